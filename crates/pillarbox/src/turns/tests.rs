use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

const LIMIT: Duration = Duration::from_secs(10);

fn turn(turns: &Arc<Turns>, store: &str) -> Turn {
    Turn::new(&StoreId::new(store).unwrap(), Some(turns))
}

/// Polls once: whether the turn came at once, or is waited for.
macro_rules! is_ready {
    ($future:expr) => {
        futures_util::poll!($future.as_mut()).is_ready()
    };
}

/// OBX-067, OBX-068, IBX-086, IBX-087: whoever holds a turn stands behind all others that wait.
#[tokio::test]
async fn round_robin_gives_every_store_one_turn() {
    let turns = Turns::new(Selection::RoundRobin, 1, LIMIT);
    let [mut a, mut b, mut c] = ["a", "b", "c"].map(|store| turn(&turns, store));
    b.take().await;
    b.found(true);
    let (mut a_waits, mut c_waits) = (Box::pin(a.take()), Box::pin(c.take()));
    assert!(!is_ready!(a_waits) && !is_ready!(c_waits));
    let mut b_waits = Box::pin(b.take());
    assert!(!is_ready!(b_waits), "it is the turn of c");
    assert!(is_ready!(c_waits) && !is_ready!(a_waits));
    drop(c_waits);
    drop(c);
    assert!(is_ready!(a_waits) && !is_ready!(b_waits));
}

/// OBX-069, IBX-088.
#[tokio::test]
async fn drain_first_stays_with_a_store_that_finds_something() {
    let turns = Turns::new(Selection::DrainFirst, 1, LIMIT);
    let [mut a, mut b] = ["a", "b"].map(|store| turn(&turns, store));
    a.take().await;
    let mut b_waits = Box::pin(b.take());
    assert!(!is_ready!(b_waits));
    for _ in 0..3 {
        a.found(true);
        a.take().await;
        assert!(!is_ready!(b_waits));
    }
    // A call that looked for nothing, to settle or to reap, says nothing.
    a.take().await;
    assert!(!is_ready!(b_waits));
    a.found(false);
    let mut a_waits = Box::pin(a.take());
    assert!(!is_ready!(a_waits));
    assert!(is_ready!(b_waits));
}

/// A turn that was granted to somebody who stopped waiting is not lost.
#[tokio::test]
async fn a_turn_that_nobody_takes_goes_to_the_next() {
    let turns = Turns::new(Selection::RoundRobin, 1, LIMIT);
    let [mut a, mut b, mut c] = ["a", "b", "c"].map(|store| turn(&turns, store));
    a.take().await;
    let (mut b_waits, mut c_waits) = (Box::pin(b.take()), Box::pin(c.take()));
    assert!(!is_ready!(b_waits) && !is_ready!(c_waits));
    a.give_back();
    // Granted to b, which has not looked yet.
    drop(b_waits);
    assert!(is_ready!(c_waits));
    drop(c_waits);
    c.give_back();
    let state = turns.lock();
    assert_eq!((state.running, state.overdue, state.waiting.len()), (0, 0, 0));
}

/// A database that does not answer keeps nobody waiting for longer than a second, and its call ends in time.
#[tokio::test(start_paused = true)]
async fn a_call_without_an_answer_lends_its_place_and_is_given_up() {
    let turns = Turns::new(Selection::RoundRobin, 1, LIMIT);
    let mut hung = turn(&turns, "hung");
    hung.take().await;
    let calling = tokio::spawn(async move {
        let answer: Result<(), _> = hung.call(std::future::pending()).await;
        (hung, answer.unwrap_err().to_string())
    });
    let mut other = turn(&turns, "other");
    other.take().await;
    assert_eq!(turns.lock().overdue, 1);
    let (hung, complaint) = calling.await.unwrap();
    assert_eq!(complaint, "no answer within 10s");
    drop((hung, other));
    let state = turns.lock();
    assert_eq!((state.running, state.overdue), (0, 0));
}

/// Even when nobody answers there are at most twice as many calls as places.
#[tokio::test(start_paused = true)]
async fn calls_without_an_answer_are_bounded_too() {
    let turns = Turns::new(Selection::RoundRobin, 3, LIMIT);
    let (at_once, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let calls = (0..20).map(|number| {
        let (mut turn, at_once, most) = (turn(&turns, &number.to_string()), Arc::clone(&at_once), Arc::clone(&most));
        tokio::spawn(async move {
            turn.take().await;
            most.fetch_max(at_once.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            let answer: Result<(), _> = turn.call(std::future::pending()).await;
            at_once.fetch_sub(1, Ordering::SeqCst);
            answer.unwrap_err()
        })
    });
    for call in calls.collect::<Vec<_>>() {
        call.await.unwrap();
    }
    assert_eq!(most.load(Ordering::SeqCst), 6);
}

/// Outside of a fleet nobody waits for anybody, however long it takes.
#[tokio::test(start_paused = true)]
async fn without_a_fleet_there_are_no_turns() {
    let store = StoreId::new("alone").unwrap();
    let (mut one, mut other) = (Turn::new(&store, None), Turn::new(&store, None));
    one.take().await;
    other.take().await;
    let slow = async {
        tokio::time::advance(LIMIT * 9).await;
        Ok(7)
    };
    assert_eq!(one.call(slow).await.unwrap(), 7);
}
