//! Calls to the inbox that are dropped half-way. Each has happened as a whole or not at all, and can be repeated.

use std::collections::HashSet;
use std::time::Instant;

use pillarbox_core::StoreTransaction;

use super::support::*;
use crate::Harness;

/// A receive that is dropped half-way has queued its whole batch or nothing; received again, each message is there once.
/// IBX-014, IBX-102, H31.
pub async fn a_receive_cut_short_is_whole_or_nothing<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    for polls in POLLS {
        let batch: Vec<_> = (0..5).map(|number| incoming(&format!("{polls} {number}"), "")).collect();
        cut_short(polls, inbox.receive(&batch)).await;
        let again = inbox.receive(&batch).await.expect("a batch can be received");
        let before: HashSet<_> = again.iter().map(|one| one.before).collect();
        assert_eq!(before.len(), 1, "all or nothing: {again:?}");
    }
    // What was cut short may only now come to its end, and replace what was received again.
    let (owner, begun) = (OwnerToken::new(), Instant::now());
    let mut handled = HashSet::new();
    while handled.len() < 60 {
        assert!(begun.elapsed() < PATIENCE, "{} of 60 messages are stuck", 60 - handled.len());
        let claimed = claim(&*inbox.queue(), owner, 100).await;
        for one in &claimed {
            if settle(&*inbox.queue(), owner, one, &Verdict::Ack).await == Settled::Applied {
                assert!(handled.insert(ids_of(std::slice::from_ref(one))[0]), "a message is handled once");
            }
        }
        tokio::task::yield_now().await;
    }
    for polls in POLLS {
        assert_eq!(inbox_state(&inbox, &format!("{polls} 4")).await, InboxState::Done);
    }
}

/// A look that is dropped half-way has been remembered or not; the next one tells, and finds nothing else changed.
/// IBX-002, IBX-102, H31.
pub async fn a_look_cut_short_can_be_repeated<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    for polls in POLLS {
        let one = hashed(&polls.to_string(), "content");
        cut_short(polls, inbox.already_processed(&one)).await;
        let again = see(&inbox, &one).await;
        assert!(matches!(again.before, None | Some(InboxState::Seen)), "{again:?}");
        assert!(!again.is_mismatch);
        let record = record(&inbox, &polls.to_string()).await;
        assert_eq!((record.state, record.mismatch_count, record.hash.as_ref()), (InboxState::Seen, 0, one.get_hash()));
    }
}

/// A mark that is dropped half-way has moved ledger and queue together, or neither; marked again, it stands.
/// IBX-002, IBX-038, IBX-102, H31.
pub async fn a_mark_cut_short_is_whole_or_nothing<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    for polls in POLLS {
        for (name, mark_as, expected) in
            [("processed", Mark::Processed, InboxState::Done), ("dead", Mark::Dead("by hand".into()), InboxState::Dead)]
        {
            let id = format!("{name} {polls}");
            receive(&inbox, incoming(&id, "payload")).await;
            cut_short(polls, inbox.mark(&receipt(&id), mark_as.clone())).await;
            let seen = inbox_state(&inbox, &id).await;
            assert!(seen == InboxState::Processing || seen == expected, "{seen:?}");
            let before = mark(&inbox, &receipt(&id), mark_as.clone()).await;
            assert!(before == InboxState::Processing || before == expected, "{before:?}");
            assert_eq!(inbox_state(&inbox, &id).await, expected);
        }
    }
    assert!(claim(&*inbox.queue(), OwnerToken::new(), 100).await.is_empty(), "nothing is left to be handled");
    assert_eq!(count_dead(&*inbox.admin(), &Filter::all()).await, 12);
}

/// A lease that nobody heard of keeps others away until it runs out, no longer. IBX-033, IBX-034, H31, H23.
pub async fn a_lease_cut_short_runs_out<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    let lease = || Lease::new(OwnerToken::new(), LEASE).expect("the lease is legal");
    for polls in POLLS {
        let (one, mine) = (receipt(&polls.to_string()), lease());
        cut_short(polls, inbox.lease(&one, lease())).await;
        if inbox.lease(&one, mine).await.expect("a lease can be asked for").registered == Registered::New {
            cut_short(polls, inbox.release(&one, mine)).await;
            inbox.release(&one, mine).await.expect("a lease can be given back");
        }
        // What was cut short may only now come to its end.
        let begun = Instant::now();
        while inbox.lease(&one, lease()).await.expect("a lease can be asked for").registered != Registered::New {
            assert!(begun.elapsed() < PATIENCE, "the lease does not run out");
            h.advance(LEASE).await;
        }
        assert_eq!(inbox_state(&inbox, one.message_id()).await, InboxState::Processing);
    }
}

/// A registration that is dropped half-way leaves nothing once its transaction is rolled back or dropped; the next consumer is
/// the first. IBX-102, H31, H2.
pub async fn a_registration_cut_short_is_rolled_back<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    for place in POLLS {
        let one = receipt(&place.to_string());
        let mut tx = h.begin().await;
        h.write_business_row(&mut tx).await;
        cut_at(place, inbox.register(&mut tx, &one)).await;
        h.rollback(tx).await;
        let mut tx = begin(&h).await;
        h.write_row_on(&mut tx).await;
        cut_at(place, inbox.register(&mut tx, &one)).await;
        drop(tx);
        assert_eq!(inbox.get("source", one.message_id()).await.expect("a message can be looked up"), None);
        let mut tx = begin(&h).await;
        assert_eq!(inbox.register(&mut tx, &one).await.expect("it can be registered").registered, Registered::New);
        tx.commit().await.expect("it can be committed");
    }
    assert_eq!(h.business_row_count().await, 0);
}

/// Looks at records and purges that are dropped half-way leave the inbox as it was. H31.
pub async fn housekeeping_cut_short_does_no_harm<H: Harness>() {
    let h = start::<H>().await;
    let inbox = h.inbox().await;
    for polls in POLLS {
        mark(&inbox, &receipt(&format!("old {polls}")), Mark::Processed).await;
    }
    h.advance(31 * DAY).await;
    for polls in POLLS {
        see(&inbox, &receipt(&format!("new {polls}"))).await;
        cut_short(polls, inbox.purge(PurgeLimit::default())).await;
        cut_short(polls, inbox.get("source", "new 1")).await;
        cut_short(polls, inbox.mismatches(None, 10)).await;
    }
    inbox.purge(PurgeLimit::default()).await.expect("a purge succeeds");
    for polls in POLLS {
        let old = inbox.get("source", &format!("old {polls}")).await.expect("a message can be looked up");
        assert_eq!(old, None, "what is past its time is forgotten");
        assert_eq!(inbox_state(&inbox, &format!("new {polls}")).await, InboxState::Seen);
    }
}
