//! Threads do not grow with the stores of a fleet. Alone in its process: other tests have threads of their own.

#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::time::Duration;

use pillarbox::Fleet;
use pillarbox::prelude::*;
use pillarbox_testing::MemoryStore;

/// The threads of this process while a fleet of so many stores runs.
async fn threads_of_a_fleet(store_count: usize) -> usize {
    let mut builder = Fleet::builder().on_topic("work", async |_: Context| Ok(()));
    for number in 0..store_count {
        let name = format!("store-{number}");
        let store_id = Some(pillarbox::StoreId::new(&name).unwrap());
        let store = MemoryStore::new(StoreOptions { store_id, ..StoreOptions::default() });
        store.enqueue(Enqueue::pending(&[Message::new("work", "")])).await.unwrap();
        builder = builder.store(&name, &Outbox::new(store));
    }
    let fleet = builder.start().await.unwrap();
    fleet.idle().await;
    let threads = std::fs::read_dir("/proc/self/task").unwrap().count();
    fleet.shutdown(Duration::from_secs(5)).await;
    threads
}

/// OBX-066, IBX-085: one thread renews the leases of all stores.
#[tokio::test]
async fn two_hundred_stores_need_no_more_threads_than_one() {
    let alone = threads_of_a_fleet(1).await;
    assert_eq!(threads_of_a_fleet(200).await, alone);
}
