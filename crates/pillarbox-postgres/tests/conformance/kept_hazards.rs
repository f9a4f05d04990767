//! Connections that go from one transaction to the next past the pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pillarbox_core::schema::SchemaPolicy;
use pillarbox_core::store::{Enqueue, StoreOptions};
use pillarbox_core::{OutboxAdmin, StoreTransaction, Transactional};
use pillarbox_postgres::{PostgresStore, PostgresTransaction};
use pillarbox_testing::{Harness, run};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, PgPool, Row};

use crate::harness::{Direct, PostgresHarness, Route, always_everything, messages};

pub(crate) async fn start() -> PostgresHarness {
    PostgresHarness::<Direct>::start(always_everything()).await
}

/// A store on the harness's tables with a pool of its own.
pub(crate) async fn beside(h: &PostgresHarness, pool: PgPool) -> PostgresStore {
    let options = StoreOptions { naming: h.naming.clone(), schema: SchemaPolicy::Check, ..always_everything() };
    PostgresStore::with_pool(pool, options).await.unwrap()
}

pub(crate) fn options(connections_max: u32) -> PgPoolOptions {
    PgPoolOptions::new().max_connections(connections_max).acquire_timeout(Duration::from_secs(30))
}

pub(crate) async fn pid(tx: &mut PostgresTransaction) -> i32 {
    sqlx::raw_sql("SELECT pg_backend_pid()").fetch_one(tx.connection()).await.unwrap().get(0)
}

/// A whole transaction with a message, which ends with the message; the session that it had.
pub(crate) async fn transact(store: &PostgresStore) -> i32 {
    let mut tx = store.begin().await.unwrap();
    let pid = pid(&mut tx).await;
    sqlx::raw_sql("CREATE TEMPORARY TABLE written (id int) ON COMMIT DROP").execute(tx.connection()).await.unwrap();
    tx.enqueue(store, Enqueue::pending(&messages(1)).owned()).await.unwrap();
    tx.commit().await.unwrap();
    pid
}

/// The pool is asked once for many transactions in a row, where its owner has said that nothing is done in between. BUS-11.
#[test]
fn a_connection_goes_from_one_transaction_to_the_next() {
    run(|| async {
        let h = start().await;
        for reuses in [false, true] {
            let (acquired, released) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            let (on_acquire, on_release) = (Arc::clone(&acquired), Arc::clone(&released));
            let pool = options(4)
                .before_acquire(move |_, _| {
                    on_acquire.fetch_add(1, Ordering::SeqCst);
                    Box::pin(async { Ok(true) })
                })
                .after_release(move |_, _| {
                    on_release.fetch_add(1, Ordering::SeqCst);
                    Box::pin(async { Ok(true) })
                })
                .connect(&Direct::url())
                .await
                .unwrap();
            let store = beside(&h, pool).await;
            let store = if reuses { store.reusing_connections() } else { store };
            let first = transact(&store).await;
            let before = acquired.load(Ordering::SeqCst);
            for _ in 0..5 {
                let pid = transact(&store).await;
                assert!(!reuses || pid == first, "another session");
            }
            let asked = acquired.load(Ordering::SeqCst) - before;
            // A connection goes back in a task of its own; another one may be asked for in the meantime.
            assert!(if reuses { asked == 0 } else { asked > 0 }, "asked {asked} times");
            store.pool().close().await;
            assert!(!reuses || released.load(Ordering::SeqCst) <= 2, "given back {released:?} times");
        }
        assert_eq!(h.store().overview().await.unwrap().total().pending, 12);
    });
}

/// One that nobody wants goes back by itself, and the pool can be closed while some wait. H7.
#[test]
fn what_nobody_wants_goes_back_to_the_pool() {
    run(|| async {
        let h = start().await;
        let store = beside(&h, options(4).connect(&Direct::url()).await.unwrap()).await.reusing_connections();
        transact(&store).await;
        while store.pool().num_idle() < store.pool().size() as usize {
            tokio::task::yield_now().await;
        }
        transact(&store).await;
        store.pool().close().await;
        assert_eq!(store.pool().size(), 0);
        store.begin().await.unwrap_err();
    });
}

/// Whoever asks the pool itself is not kept waiting by transactions that pass its only connection on. H7.
#[test]
fn nobody_waits_for_a_connection_that_is_kept() {
    run(|| async {
        let h = start().await;
        let store = beside(&h, options(1).connect(&Direct::url()).await.unwrap()).await.reusing_connections();
        for _ in 0..5 {
            transact(&store).await;
            let mut own = store.pool().acquire().await.unwrap();
            sqlx::raw_sql("SELECT").execute(&mut *own).await.unwrap();
        }
    });
}

/// A session that was ended while its connection waited is replaced before anything happens on it. H8.
#[test]
fn a_connection_that_died_meanwhile_is_replaced() {
    run(|| async {
        let h = start().await;
        let store = beside(&h, options(4).connect(&Direct::url()).await.unwrap()).await.reusing_connections();
        for _ in 0..5 {
            let pid = transact(&store).await;
            let end = AssertSqlSafe(format!("SELECT pg_terminate_backend({pid}, 30000)"));
            sqlx::raw_sql(end).execute(&h.pool).await.unwrap();
            assert_ne!(transact(&store).await, pid);
        }
        assert_eq!(h.store().overview().await.unwrap().total().pending, 10);
    });
}

/// What was rolled back, dropped or has failed is not passed on before the server has forgotten it. H9.
#[test]
fn nothing_of_a_lost_transaction_reaches_the_next() {
    run(|| async {
        let h = start().await;
        let store = beside(&h, options(4).connect(&Direct::url()).await.unwrap()).await.reusing_connections();
        for way in 0..4 {
            let mut tx = store.begin().await.unwrap();
            tx.enqueue(&store, Enqueue::pending(&messages(1)).owned()).await.unwrap();
            match way {
                0 => tx.rollback().await.unwrap(),
                1 => drop(tx),
                2 => {
                    sqlx::raw_sql("SELECT 1 / 0").execute(tx.connection()).await.unwrap_err();
                    tx.commit().await.unwrap_err();
                }
                _ => {
                    sqlx::raw_sql("ROLLBACK").execute(tx.connection()).await.unwrap();
                    tx.commit().await.unwrap_err();
                }
            }
            transact(&store).await;
        }
        assert_eq!(h.store().overview().await.unwrap().total().pending, 4);
    });
}

/// The last handle may go where no runtime is, with connections that wait: the pool has them all the same, and so it has when the
/// runtime ends first on which they were used. H7.
#[test]
fn no_connection_is_lost_with_a_store_or_a_runtime() {
    let other = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for store_goes_first in [true, false] {
        let left = std::sync::Mutex::new(None);
        run(|| async {
            let h = start().await;
            let store = beside(&h, options(4).connect(&Direct::url()).await.unwrap()).await.reusing_connections();
            transact(&store).await;
            *left.lock().unwrap() = Some((store.pool().clone(), store, h));
        });
        let (pool, store, h) = left.lock().unwrap().take().unwrap();
        let store = (!store_goes_first).then_some(store);
        let closed = other.block_on(async { tokio::time::timeout(Duration::from_secs(30), pool.close()).await });
        assert!(closed.is_ok(), "a connection is missing");
        assert_eq!(pool.size(), 0);
        drop((store, h));
    }
}
