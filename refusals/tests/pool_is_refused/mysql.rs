use pillarbox::EnqueueIn;
use pillarbox::store::Enqueue;

async fn refused(store: pillarbox::mysql::MysqlStore, pool: sqlx::MySqlPool) {
    let _ = store.enqueue_in(&pool, Enqueue::pending(&[])).await;
}

fn main() {}
