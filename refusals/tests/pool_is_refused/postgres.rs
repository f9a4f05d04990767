use pillarbox::EnqueueIn;
use pillarbox::store::Enqueue;

async fn refused(store: pillarbox::postgres::PostgresStore, pool: sqlx::PgPool) {
    let _ = store.enqueue_in(&pool, Enqueue::pending(&[])).await;
}

fn main() {}
