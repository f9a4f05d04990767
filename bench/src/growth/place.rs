//! Where messages are put: a set of tables in one of the databases, opened by its address as any tool does.

use std::sync::Arc;

use pillarbox::Store;
use pillarbox::prelude::{Outbox, Retention, StoreOptions};
use pillarbox_core::message::Message;
use pillarbox_core::naming::Naming;
use pillarbox_core::store::Enqueue;
use sqlx::{Connection as _, Executor as _, PgConnection};
use tempfile::TempDir;

use crate::subject::TOPIC;
use crate::{Db, mysql, postgres};

/// Tables of their own.
pub(crate) struct Place {
    db: Db,
    pub(crate) url: String,
    pub(crate) name: String,
    pub(crate) outbox: Outbox<dyn Store>,
    _directory: Option<Arc<TempDir>>,
}

impl Place {
    pub(crate) async fn make(db: Db, name: &str) -> Self {
        let directory = (db == Db::Sqlite).then(|| Arc::new(TempDir::new().unwrap()));
        let url = match (db, &directory) {
            (Db::Postgres, _) => postgres::url(),
            (Db::Mysql, _) => mysql::url(),
            (Db::Sqlite, Some(directory)) => format!("sqlite:{}", directory.path().join("growth.db").display()),
            (Db::Sqlite, None) => unreachable!("a file has a directory"),
        };
        let outbox = open(&url, name).await;
        Self { db, url, name: name.into(), outbox, _directory: directory }
    }

    /// Lets the server write down what it was given, so that no round is measured together with that.
    pub(crate) async fn settle_down(&self) {
        if self.db == Db::Postgres {
            let mut session = PgConnection::connect(&self.url).await.unwrap();
            session.execute("VACUUM ANALYZE").await.unwrap();
            session.execute("CHECKPOINT").await.unwrap();
        }
    }

    /// Messages with payloads of so many bytes.
    pub(crate) async fn fill_large(&self, count: usize, bytes: usize) {
        // A statement is bounded as well.
        let at_once = (4_000_000 / bytes).clamp(1, 1000);
        for first in (0..count).step_by(at_once) {
            let size = at_once.min(count - first);
            let batch: Vec<Message> = (0..size).map(|_| Message::new(TOPIC, vec![b'x'; bytes])).collect();
            self.outbox.store().enqueue(Enqueue::pending(&batch)).await.unwrap();
        }
    }
}

/// The same tables, also from another process.
pub(crate) async fn open(url: &str, name: &str) -> Outbox<dyn Store> {
    let naming = Naming::new(name, "outbox").unwrap();
    let options = StoreOptions { naming, retention: Retention::Delete, ..StoreOptions::default() };
    Outbox::connect_with(url, options).await.unwrap()
}
