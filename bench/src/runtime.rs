//! The runtime: how soon a committed message is handled, how fast a backlog goes, and what writers pay for it.

mod across;
mod drain;
mod idle;
mod latency;
mod writers;

use pillarbox_core::retention::Retention;
use sqlx::sqlite::SqliteSynchronous;

use crate::report::Report;
use crate::run::Scale;
use crate::{Db, mysql, postgres, sqlite};

pub(crate) use across::{nanos, work};

pub(crate) async fn measure(scale: Scale, wanted: impl Fn(Db) -> bool, report: &mut Report) {
    if wanted(Db::Postgres) {
        let url = postgres::url();
        latency::postgres(&url, report).await;
        across::measure(&url, report).await;
        let outbox = postgres::Outbox::open(&url, "bench_drain", Retention::Delete).await;
        drain::measure("PostgreSQL", outbox, &[1, 2], scale, report).await;
        writers::measure(&url, scale, report).await;
        idle::measure(&url, report).await;
    }
    if wanted(Db::Mysql) {
        let outbox = mysql::Outbox::open(&mysql::url(), "bench_drain", Retention::Delete).await;
        drain::measure("MariaDB", outbox, &[1, 2], scale, report).await;
    }
    if wanted(Db::Sqlite) {
        let file = || sqlite::File::open(SqliteSynchronous::Full, Retention::Delete);
        latency::sqlite(file().await, report).await;
        drain::measure("SQLite", file().await, &[1], scale, report).await;
    }
}
