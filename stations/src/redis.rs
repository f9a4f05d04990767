//! Redis Streams, with a server for each station.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pillarbox_core::Transport;
use pillarbox_testing::source::{SOURCE, Source};
use pillarbox_testing::station::{Arrived, Station, Traits};
use pillarbox_transports::Redis;
use pillarbox_transports::redis::{RedisOptions, RedisSubscription, RedisSubscriptionOptions};
use redis::aio::MultiplexedConnection;
use redis::{RedisResult, cmd};

use crate::{Broker, Server};

/// A server that writes to its disk before it answers. A place is a stream.
#[derive(Debug)]
pub struct RedisStation {
    /// The program.
    pub server: Server,
}

impl RedisStation {
    /// What starts it on a port, in a directory.
    pub fn command(port: u16, home: &Path) -> Vec<String> {
        let (port, home) = (port.to_string(), home.display().to_string());
        let line = ["redis-server", "--bind", "127.0.0.1", "--port", &port, "--dir", &home, "--save", ""];
        // Nor does it rewrite its file in the middle of what is tested or measured.
        let durable = ["--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"];
        let small = ["--proto-max-bulk-len", "1048576"];
        line.iter().chain(&durable).chain(&small).map(ToString::to_string).collect()
    }

    /// Settings with short time limits.
    pub fn options() -> RedisOptions {
        RedisOptions { timeout: Duration::from_secs(2), ..RedisOptions::default() }
    }

    /// A transport to it.
    pub fn redis(&self, options: RedisOptions) -> Redis {
        Redis::with(&self.url(), options).unwrap()
    }

    /// A connection of the test's own, once the server has loaded what it had.
    async fn connection(&self) -> MultiplexedConnection {
        let mut again = tokio::time::interval(Duration::from_millis(10));
        loop {
            let client = redis::Client::open(self.url()).unwrap();
            if let Ok(mut connection) = client.get_multiplexed_async_connection().await
                && cmd("PING").exec_async(&mut connection).await.is_ok()
            {
                return connection;
            }
            again.tick().await;
        }
    }

    /// Asks it something, by words with one space between.
    pub async fn ask<T: redis::FromRedisValue>(&self, words: &str) -> RedisResult<T> {
        let mut words = words.split(' ');
        let mut command = cmd(words.next().unwrap());
        for word in words {
            command.arg(word);
        }
        command.query_async(&mut self.connection().await).await
    }

    /// A subscription to a place.
    pub fn subscription(&self, destination: &str) -> RedisSubscription {
        let mut chosen = RedisSubscriptionOptions::new(destination, "group");
        (chosen.idle, chosen.connection) = (Duration::from_secs(1), Self::options());
        RedisSubscription::new(SOURCE, &self.url(), chosen).unwrap()
    }
}

impl Station for RedisStation {
    const TRAITS: Traits = Traits {
        knows_ids: false,
        refuses_nowhere: false,
        refused_bytes: Some(1_100_000),
        is_durable: true,
        is_mortal: true,
    };

    async fn open() -> Self {
        Self { server: Server::start(Self::command).await }
    }

    fn transport(&self) -> Arc<dyn Transport> {
        Arc::new(self.redis(Self::options()))
    }

    async fn place(&self, name: &str) -> String {
        format!("suite:{name}")
    }

    fn nowhere(&self) -> String {
        "nowhere".to_owned()
    }

    async fn arrived(&self, destination: &str, count: usize) -> Vec<Arrived> {
        type Entry = (String, Vec<Vec<u8>>);
        let mut again = tokio::time::interval(Duration::from_millis(10));
        let entries = loop {
            let entries: Vec<Entry> = self.ask(&format!("XRANGE {destination} - +")).await.unwrap();
            if entries.len() >= count {
                break entries;
            }
            again.tick().await;
        };
        let arrived = entries.into_iter().map(|(id, words)| {
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            assert_eq!(words[0], b"body");
            let headers: BTreeMap<_, _> =
                words[2..].chunks(2).map(|pair| (text(&pair[0]).to_lowercase(), text(&pair[1]))).collect();
            Arrived {
                body: words[1].clone().into(),
                content_type: headers.get("content-type").cloned(),
                headers,
                broker_key: None,
                broker_id: Some(id),
            }
        });
        arrived.collect()
    }

    async fn kill(&mut self) {
        self.server.kill();
    }

    async fn revive(&mut self) {
        self.server.revive().await;
    }
}

impl Broker for RedisStation {
    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.server.port())
    }

    fn server(&mut self) -> &mut Server {
        &mut self.server
    }
}

impl Source for RedisStation {
    type Subscription = RedisSubscription;

    fn subscribe(&self, destination: &str) -> RedisSubscription {
        self.subscription(destination)
    }

    async fn left(&self, destination: &str) -> usize {
        let groups: RedisResult<Vec<BTreeMap<String, redis::Value>>> =
            self.ask(&format!("XINFO GROUPS {destination}")).await;
        let number = |value: &redis::Value| redis::from_redis_value_ref::<usize>(value).unwrap();
        match groups.unwrap_or_default().first() {
            Some(group) => number(&group["pending"]) + number(&group["lag"]),
            None => self.ask(&format!("XLEN {destination}")).await.unwrap(),
        }
    }
}
