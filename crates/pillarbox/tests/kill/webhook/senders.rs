//! Those who send: they remember what was answered with 2xx, and come again with everything else.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use pillarbox::webhook::Secret;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The route whose deliveries take effect before they are answered.
pub(crate) const DIRECT: &str = "direct";

/// The route whose deliveries wait in the inbox.
pub(crate) const QUEUED: &str = "queued";

pub(crate) const SECRET: &str = "whsec_test";

const SENDERS: usize = 8;

/// One message of the outside world, which may be delivered many times.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Delivery {
    number: u32,
    pub(crate) is_queued: bool,
}

impl Delivery {
    fn new(number: u32) -> Self {
        Self { number, is_queued: number % 2 == 1 }
    }

    pub(crate) fn source(self) -> &'static str {
        if self.is_queued { QUEUED } else { DIRECT }
    }

    pub(crate) fn message_id(self) -> String {
        format!("evt_{}", self.number)
    }

    fn body(self) -> String {
        format!(r#"{{"id":"{}","type":"paid"}}"#, self.message_id())
    }

    /// The delivery whose body this is.
    pub(crate) fn of_payload(payload: &[u8]) -> Self {
        let body: serde_json::Value = serde_json::from_slice(payload).unwrap();
        Self::new(body["id"].as_str().unwrap().strip_prefix("evt_").unwrap().parse().unwrap())
    }

    fn request(self, prefix: &str) -> String {
        let (source, body) = (self.source(), self.body());
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs().to_string();
        let tag = Secret::from(SECRET).sign(&[time.as_bytes(), b".", body.as_bytes()]).to_hex();
        let length = body.len();
        format!(
            "POST /{prefix}/{source} HTTP/1.1\r\nhost: test\r\nconnection: close\r\ncontent-length: {length}\r\n\
             stripe-signature: t={time},v1={tag}\r\n\r\n{body}"
        )
    }
}

/// What all senders together remember.
#[derive(Debug)]
struct Memory {
    dice: StdRng,
    made: u32,
    unanswered: Vec<Delivery>,
    answered: BTreeSet<Delivery>,
}

impl Memory {
    /// One that was not answered, a new one, or now and then one that was answered before.
    fn choose(&mut self) -> Delivery {
        if !self.answered.is_empty() && self.dice.random_ratio(1, 8) {
            let at = self.dice.random_range(0..self.answered.len());
            return self.answered.iter().nth(at).copied().unwrap();
        }
        if !self.unanswered.is_empty() && self.dice.random_ratio(1, 2) {
            let at = self.dice.random_range(0..self.unanswered.len());
            return self.unanswered.swap_remove(at);
        }
        self.made += 1;
        Delivery::new(self.made - 1)
    }

    fn remember(&mut self, delivery: Delivery, is_answered: bool) {
        if is_answered {
            self.answered.insert(delivery);
        } else if !self.answered.contains(&delivery) {
            self.unanswered.push(delivery);
        }
    }
}

pub(crate) struct Senders {
    memory: Arc<Mutex<Memory>>,
    /// The first part of all paths.
    prefix: String,
}

/// Where a receiver can be reached.
#[derive(Clone)]
struct Door {
    address: SocketAddr,
    prefix: String,
    /// Deliveries that were sent there, and that were answered.
    counts: watch::Sender<(usize, usize)>,
}

impl Senders {
    pub(crate) fn new(seed: u64, prefix: &str) -> Self {
        let dice = StdRng::seed_from_u64(seed);
        let memory = Memory { dice, made: 0, unanswered: Vec::new(), answered: BTreeSet::new() };
        Self { memory: Arc::new(Mutex::new(memory)), prefix: prefix.to_owned() }
    }

    fn door(&self, address: SocketAddr) -> Door {
        Door { address, prefix: self.prefix.clone(), counts: watch::Sender::default() }
    }

    /// Every delivery that was ever sent; all of them are answered by now.
    pub(crate) fn all(&self) -> Vec<Delivery> {
        let memory = self.memory.lock().unwrap();
        let all: Vec<_> = (0..memory.made).map(Delivery::new).collect();
        assert!(memory.answered.iter().eq(&all), "not answered: {:?}", memory.unanswered);
        all
    }

    /// Everybody sends one delivery after the other, until nobody listens any more.
    pub(crate) fn begin(&self, address: SocketAddr) -> Round {
        let door = self.door(address);
        let mut tasks = JoinSet::new();
        for _ in 0..SENDERS {
            tasks.spawn(send(Arc::clone(&self.memory), door.clone()));
        }
        Round { counts: door.counts.subscribe(), tasks }
    }

    /// What was not answered, once more.
    pub(crate) async fn send_the_rest(&self, address: SocketAddr) {
        let door = self.door(address);
        let rest = std::mem::take(&mut self.memory.lock().unwrap().unanswered);
        for delivery in rest {
            let answer = door.deliver(delivery).await;
            self.memory.lock().unwrap().remember(delivery, answer.is_ok_and(is_success));
        }
    }
}

/// The senders while one receiver lives.
pub(crate) struct Round {
    /// Sent, and answered.
    counts: watch::Receiver<(usize, usize)>,
    tasks: JoinSet<Vec<Delivery>>,
}

impl Round {
    pub(crate) async fn sent(&mut self, count: usize) {
        self.counts.wait_for(|(sent, _)| *sent >= count).await.unwrap();
    }

    pub(crate) async fn answered(&mut self, count: usize) {
        self.counts.wait_for(|(_, answered)| *answered >= count).await.unwrap();
    }

    /// What was answered with 2xx, once all senders have noticed that nobody listens any more.
    pub(crate) async fn end(self) -> Vec<Delivery> {
        self.tasks.join_all().await.concat()
    }
}

async fn send(memory: Arc<Mutex<Memory>>, door: Door) -> Vec<Delivery> {
    let mut answered = Vec::new();
    loop {
        let delivery = memory.lock().unwrap().choose();
        let answer = door.deliver(delivery).await;
        memory.lock().unwrap().remember(delivery, matches!(answer, Ok(status) if is_success(status)));
        match answer {
            Ok(status) => assert!(is_success(status), "{delivery:?}: {status}"),
            Err(_) => return answered,
        }
        answered.push(delivery);
        door.counts.send_modify(|(_, answered)| *answered += 1);
    }
}

fn is_success(status: u16) -> bool {
    (200..300).contains(&status)
}

impl Door {
    /// The status of the answer, which counts once its first line is whole.
    async fn deliver(&self, delivery: Delivery) -> io::Result<u16> {
        let mut stream = TcpStream::connect(self.address).await?;
        if stream.local_addr()? == self.address {
            // A connection to a port that nobody listens on can meet itself there.
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        stream.write_all(delivery.request(&self.prefix).as_bytes()).await?;
        self.counts.send_modify(|(sent, _)| *sent += 1);
        let mut answer = Vec::new();
        // A killed receiver's connection may end in an orderly way or not; what was said before counts.
        let _ = stream.read_to_end(&mut answer).await;
        let line = String::from_utf8(answer).ok().and_then(|text| Some(text.split_once("\r\n")?.0.to_owned()));
        match line.and_then(|line| line.split(' ').nth(1)?.parse().ok()) {
            // The port of a killed receiver has been given to a receiver of another test.
            None | Some(404) => Err(io::ErrorKind::UnexpectedEof.into()),
            Some(status) => Ok(status),
        }
    }
}
