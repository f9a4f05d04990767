//! Order by key: the drain of messages with keys beside that of messages without.

use pillarbox_core::retention::Retention;
use sqlx::sqlite::SqliteSynchronous;

use crate::report::Report;
use crate::run::{Scale, Work, compare};
use crate::store::{Backend, Keyed, Through};
use crate::{Db, mysql, postgres, sqlite};

const KEYS: [(usize, &str); 3] = [(10_000, "10,000 keys"), (100, "100 keys"), (1, "1 key")];

pub(crate) async fn measure(scale: Scale, wanted: impl Fn(Db) -> bool, report: &mut Report) {
    let two = [Work::Drain { workers: 1 }, Work::Drain { workers: 2 }, Work::Exchange { workers: 1 }];
    if wanted(Db::Postgres) {
        let store = postgres::Outbox::open(&postgres::url(), "bench_order", Retention::Delete).await;
        beside_unordered("PostgreSQL", store, &two, scale, report).await;
    }
    if wanted(Db::Mysql) {
        let store = mysql::Outbox::open(&mysql::url(), "bench_order", Retention::Delete).await;
        beside_unordered("MariaDB", store, &two, scale, report).await;
    }
    if wanted(Db::Sqlite) {
        let store = sqlite::File::open(SqliteSynchronous::Normal, Retention::Delete).await;
        beside_unordered("SQLite NORMAL", store, &[Work::Exchange { workers: 1 }], scale, report).await;
    }
}

async fn beside_unordered<B: Backend>(database: &str, store: B, works: &[Work], scale: Scale, report: &mut Report) {
    for (count, name) in KEYS {
        let (unordered, ordered) = (Through(store.clone()), Keyed::new(store.clone(), count));
        compare(report, database, works, ["no keys", name], &unordered, &ordered, scale).await;
    }
}
