//! A second handle on the same tables whose connections belong to another runtime.

use std::sync::mpsc;

use super::support::*;
use crate::Harness;

/// A detached handle has the name and the settings of the first, and deploys nothing again. OBX-059.
pub async fn a_detached_handle_is_the_same_store<H: Harness>() {
    let h = H::start(losing(7)).await;
    h.set_schema_version(99).await;
    let detached = h.store().detached().await.expect("a store can be detached");
    assert_eq!(detached.id(), h.store().id());
    assert_eq!(detached.options().naming, h.store().options().naming);
    assert_eq!(detached.options().lost_leases_max, 7);
}

/// What one handle claims, a detached one renews and settles. H27.
pub async fn a_detached_handle_renews_and_settles_what_another_claimed<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let (id, claimed) = enqueue_and_claim(h.store(), owner).await;
    let detached = h.store().detached().await.expect("a store can be detached");
    let renewed = detached.renew(owner, &[claimed.held], HOUR).await.expect("a renew succeeds");
    assert_eq!(renewed, [Settled::Applied]);
    h.advance(59 * MINUTE).await;
    assert_eq!(claim(h.store(), OwnerToken::new(), 10).await, []);
    let settled = detached.settle(owner, &[Settlement::ack(claimed.held)]).await.expect("a settle succeeds");
    assert_eq!(settled, [Settled::Applied]);
    assert_eq!(state(h.store(), id).await, State::Done);
}

/// A detached handle outlives the one it came from. H27.
pub async fn a_detached_handle_does_not_need_the_first<H: Harness>() {
    let h = start::<H>().await;
    let batch = messages(1);
    let first = another(&h).await;
    enqueue(&first, &batch).await;
    let detached = first.detached().await.expect("a store can be detached");
    drop(first);
    let claimed = detached.claim(claim_of(OwnerToken::new(), 10)).await.expect("a claim succeeds");
    assert_eq!(ids_of(&claimed), ids(&batch));
}

/// While every thread of the program's runtime is blocked, a detached handle on a runtime of its own goes on. H27.
pub async fn a_detached_handle_works_while_the_first_runtime_is_blocked<H: Harness>() {
    let ended = tokio::task::spawn_blocking(beside_a_blocked_runtime::<H>).await;
    ended.expect("the detached handle goes on");
}

fn beside_a_blocked_runtime<H: Harness>() {
    let program = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime can be started");
    let beside = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime can be started");
    let owner = OwnerToken::new();
    let (blocked, is_blocked) = mpsc::channel();
    let (unblock, wait) = mpsc::channel::<()>();
    // A task, so that the first handle's connections belong to the thread that it blocks, right after the claim.
    program.spawn(async move {
        let h = start::<H>().await;
        let (_, claimed) = enqueue_and_claim(h.store(), owner).await;
        let _ = blocked.send((h, claimed));
        let _ = wait.recv();
    });
    let (h, claimed) = is_blocked.recv().expect("the store starts");
    let served = beside.block_on(tokio::time::timeout(PATIENCE, async {
        let detached = h.store().detached().await?;
        let renewed = detached.renew(owner, &[claimed.held], HOUR).await?;
        let settled = detached.settle(owner, &[Settlement::ack(claimed.held)]).await?;
        Ok::<_, StoreError>((renewed, settled))
    }));
    drop(unblock);
    let (renewed, settled) = served.expect("nobody waits for the blocked thread").expect("the calls succeed");
    assert_eq!((renewed, settled), (vec![Settled::Applied], vec![Settled::Applied]));
    let done = program.block_on(async { counts(h.store()).await.done });
    assert_eq!(done, 1);
    program.block_on(async { drop(h) });
}
