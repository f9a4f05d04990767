use pillarbox::EnqueueIn;
use pillarbox::store::Enqueue;

async fn refused(store: pillarbox::sqlite::SqliteStore, pool: sqlx::SqlitePool) {
    let _ = store.enqueue_in(&pool, Enqueue::pending(&[])).await;
}

fn main() {}
