//! One budget of connections over all stores of a fleet, by the server's own count.

use std::collections::HashSet;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use pillarbox::naming::Naming;
use pillarbox::prelude::*;
use pillarbox::store::Enqueue;
use pillarbox::{Fleet, Served, StorePlace};
use tokio::sync::mpsc::UnboundedReceiver;
use uuid::Uuid;

use super::support::*;

/// Messages of each store.
const MESSAGES: usize = 3;

/// Names of so many stores in one database.
fn namings(stores: usize) -> Vec<Naming> {
    let prefix = format!("b_{}", &Uuid::now_v7().simple().to_string()[16..]);
    (0..stores).map(|number| Naming::new(format!("{prefix}_{number}"), "outbox").unwrap()).collect()
}

/// A fleet that polls all the time, so that every store needs a connection again and again.
async fn fleet_of(
    address: &str,
    namings: &[Naming],
    budget: usize,
    served: Served,
) -> (Fleet, UnboundedReceiver<String>) {
    let place = |(number, naming): (usize, &Naming)| {
        StorePlace::new(format!("tenant-{number:02}").as_str(), address).unwrap().naming(naming.clone())
    };
    let builder = quiet_fleet().discover(Listed::new(namings.iter().enumerate().map(place).collect()));
    let millisecond = Duration::from_millis(1);
    let builder = builder.connections_max(budget).poll_interval(millisecond).idle_interval(5 * millisecond);
    let (builder, told) = telling(builder.serve(served).reap_interval(20 * millisecond));
    let fleet = builder.start().await.unwrap();
    assert_eq!(fleet.stores().len(), namings.len());
    (fleet, told)
}

/// Writes messages into every store as another process would, and waits until each has handled them.
async fn flow<S: EnqueueElsewhere>(mut told: UnboundedReceiver<String>, elsewhere: &[S]) {
    for round in 0..MESSAGES {
        for store in elsewhere {
            store.write(&Message::new("work", round.to_string())).await;
        }
        let mut stores: Vec<String> = Vec::new();
        for _ in elsewhere {
            stores.push(told.recv().await.unwrap());
        }
        stores.sort_unstable();
        stores.dedup();
        assert_eq!(stores.len(), elsewhere.len(), "messages flow in every store");
    }
}

/// A store through connections that are not the fleet's.
trait EnqueueElsewhere {
    async fn write(&self, message: &Message);
}

impl<S: OutboxStore> EnqueueElsewhere for S {
    async fn write(&self, message: &Message) {
        self.enqueue(Enqueue::pending(std::slice::from_ref(message))).await.unwrap();
    }
}

/// Asks the server for the ports of its clients, again with each of its answers, for as long as the fleet lives; the most that
/// were connected at one time.
///
/// A server counts a connection for a while after it was closed. So only those count that are open at this end as well.
async fn most_during(fleet: impl Future<Output = ()>, clients: impl AsyncFn() -> Vec<u16>) -> usize {
    let (mut fleet, mut most) = (pin!(fleet), 0);
    loop {
        let connected = tokio::select! {
            connected = clients() => connected,
            () = &mut fleet => return most,
        };
        let open = open_here();
        most = most.max(connected.iter().filter(|port| open.contains(port)).count());
    }
}

/// The ports of this machine's open connections.
fn open_here() -> HashSet<u16> {
    const ESTABLISHED: &str = "01";
    let tables =
        ["tcp", "tcp6"].map(|table| std::fs::read_to_string(format!("/proc/self/net/{table}")).unwrap_or_default());
    let port = |row: &str| {
        let columns: Vec<&str> = row.split_whitespace().collect();
        let (_, port) = columns.get(1)?.rsplit_once(':')?;
        u16::from_str_radix(port, 16).ok().filter(|_| columns.get(3) == Some(&ESTABLISHED))
    };
    tables.iter().flat_map(|table| table.lines()).filter_map(port).collect()
}

/// The budget; as many again for calls that get no answer for a second, which a busy machine may cause.
fn assert_within(most: usize, budget: usize) {
    assert!(most > 0 && most <= 2 * budget, "{most} connections with a budget of {budget}");
}

/// OBX-067.
#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_holds_no_more_connections_than_its_budget_on_postgres() {
    use pillarbox::postgres::PostgresStore;
    use sqlx::postgres::PgPoolOptions;

    let (url, namings, budget) = (crate::acceptance::url("PILLARBOX_TEST_POSTGRES_URL"), namings(40), 8);
    let name = namings[0].schema().to_string();
    let address = format!("{url}?application_name={name}");
    let pool = PgPoolOptions::new().max_connections(1).connect(&url).await.unwrap();
    let clients = async || {
        let ports = sqlx::query_scalar("select client_port from pg_stat_activity where application_name = $1");
        let ports: Vec<Option<i32>> = ports.bind(&name).fetch_all(&pool).await.unwrap();
        ports.into_iter().flatten().filter_map(|port| u16::try_from(port).ok()).collect()
    };
    let mut elsewhere = Vec::new();
    for naming in &namings {
        let options = StoreOptions { naming: naming.clone(), ..StoreOptions::default() };
        elsewhere.push(PostgresStore::with_pool(pool.clone(), options).await.unwrap());
    }
    let work = async {
        let (fleet, told) = fleet_of(&address, &namings, budget, Served::Outboxes).await;
        flow(told, &elsewhere).await;
        fleet.shutdown(Duration::from_secs(5)).await;
    };
    assert_within(most_during(work, clients).await, budget);
}

/// OBX-067, IBX-086: an inbox uses the connections of its outbox.
#[cfg(feature = "mysql")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_holds_no_more_connections_than_its_budget_on_mysql() {
    use pillarbox::mysql::MysqlStore;
    use sqlx::mysql::MySqlPoolOptions;

    let (url, namings, budget) = (crate::acceptance::url("PILLARBOX_TEST_MYSQL_URL"), namings(16), 4);
    // A database of its own: its connections are told from others by it.
    let database = namings[0].schema().to_string();
    let (server, _) = url.rsplit_once('/').unwrap();
    let address = format!("{server}/{database}");
    let directory = MySqlPoolOptions::new().max_connections(1).connect(&url).await.unwrap();
    let run = async |sql: String| sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&directory).await.unwrap();
    run(format!("create database {database}")).await;
    let pool = MySqlPoolOptions::new().max_connections(1).connect(&address).await.unwrap();
    let clients = async || {
        let hosts = "select host from information_schema.processlist where db = ? and id <> connection_id()";
        let hosts: Vec<String> = sqlx::query_scalar(hosts).bind(&database).fetch_all(&pool).await.unwrap();
        hosts.iter().filter_map(|host| host.rsplit_once(':')?.1.parse().ok()).collect()
    };
    let mut elsewhere = Vec::new();
    for naming in &namings {
        let options = StoreOptions { naming: naming.clone(), ..StoreOptions::default() };
        let store = MysqlStore::with_pool(pool.clone(), options).await.unwrap();
        Outbox::new(store.clone()).inbox().await.unwrap();
        elsewhere.push(store);
    }
    let work = async {
        let (fleet, told) = fleet_of(&address, &namings, budget, Served::Both).await;
        flow(told, &elsewhere).await;
        fleet.shutdown(Duration::from_secs(5)).await;
    };
    assert_within(most_during(work, clients).await, budget);
    run(format!("drop database {database}")).await;
}
