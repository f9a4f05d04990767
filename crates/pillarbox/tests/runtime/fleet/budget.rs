//! One budget of connections over all stores of a fleet, by the server's own count.

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

/// Writes messages into every store as another process would, counts the server's connections whenever one is handled, and
/// answers the largest count.
async fn most<S: EnqueueElsewhere>(
    mut told: UnboundedReceiver<String>,
    elsewhere: &[S],
    count: impl AsyncFn() -> usize,
) -> usize {
    let mut most = count().await;
    for round in 0..MESSAGES {
        for store in elsewhere {
            store.write(&Message::new("work", round.to_string())).await;
        }
        let mut stores: Vec<String> = Vec::new();
        for _ in elsewhere {
            stores.push(told.recv().await.unwrap());
            most = most.max(count().await);
        }
        stores.sort_unstable();
        stores.dedup();
        assert_eq!(stores.len(), elsewhere.len(), "messages flow in every store");
    }
    most
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

/// A server counts a connection for a moment after it was closed: no more of them than are closed at one time.
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
    let (fleet, told) = fleet_of(&address, &namings, budget, Served::Outboxes).await;
    let pool = PgPoolOptions::new().max_connections(1).connect(&url).await.unwrap();
    let mut elsewhere = Vec::new();
    for naming in namings {
        let options = StoreOptions { naming, ..StoreOptions::default() };
        elsewhere.push(PostgresStore::with_pool(pool.clone(), options).await.unwrap());
    }
    let count = async || {
        let count = sqlx::query_scalar("select count(*) from pg_stat_activity where application_name = $1");
        usize::try_from(count.bind(&name).fetch_one(&pool).await.unwrap_or(i64::MAX)).unwrap()
    };
    assert_within(most(told, &elsewhere, count).await, budget);
    fleet.shutdown(Duration::from_secs(5)).await;
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
    let pool = MySqlPoolOptions::new().max_connections(1).connect(&url).await.unwrap();
    let run = async |sql: String| sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&pool).await.unwrap();
    run(format!("create database {database}; use {database}")).await;
    let (fleet, told) = fleet_of(&format!("{server}/{database}"), &namings, budget, Served::Both).await;
    let mut elsewhere = Vec::new();
    for naming in namings {
        let options = StoreOptions { naming, ..StoreOptions::default() };
        elsewhere.push(MysqlStore::with_pool(pool.clone(), options).await.unwrap());
    }
    let count = async || {
        let count = "select count(*) from information_schema.processlist where db = ? and id <> connection_id()";
        let count = sqlx::query_scalar(count).bind(&database).fetch_one(&pool).await;
        usize::try_from(count.unwrap_or(i64::MAX)).unwrap()
    };
    assert_within(most(told, &elsewhere, count).await, budget);
    fleet.shutdown(Duration::from_secs(5)).await;
    run(format!("drop database {database}")).await;
}
