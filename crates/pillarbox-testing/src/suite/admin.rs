//! What an operator sees and does.

use pillarbox_core::admin::ADMIN_LIMIT_MAX;

use super::support::*;
use crate::Harness;

/// Counts by topic and state are exact, and topics come sorted. WRK-08.
pub async fn an_overview_counts_by_topic_and_state<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let topic = |topic: &str| Message::new(topic, "");
    enqueue(h.store(), &[topic("b"), topic("a"), topic("b"), topic("c")]).await;
    let claimed = claim(h.store(), owner, 4).await;
    settle_all(h.store(), owner, &claimed[..1], &Verdict::Ack).await;
    settle_all(h.store(), owner, &claimed[1..2], &fail("x")).await;
    enqueue(h.store(), &[topic("a"), topic("b")]).await;
    enqueue(h.store(), &[topic("b").delay(HOUR)]).await;
    let overview = h.store().overview().await.expect("messages can be counted");
    let seen: Vec<_> = overview
        .topics
        .iter()
        .map(|one| {
            let counts = one.counts;
            (one.topic.as_str(), [counts.pending, counts.processing, counts.done, counts.dead])
        })
        .collect();
    assert_eq!(seen, [("a", [1, 0, 0, 1]), ("b", [2, 1, 1, 0]), ("c", [0, 1, 0, 0])]);
}

/// Running and expired leases are told apart. WRK-08.
pub async fn an_overview_tells_running_from_expired_leases<H: Harness>() {
    let h = start::<H>().await;
    enqueue(h.store(), &messages(3)).await;
    claim(h.store(), OwnerToken::new(), 2).await;
    h.advance(LEASE).await;
    enqueue(h.store(), &messages(1)).await;
    // The next claim takes over one of the expired leases, the first in the sequence.
    claim(h.store(), OwnerToken::new(), 1).await;
    let overview = h.store().overview().await.expect("messages can be counted");
    assert_eq!((overview.active_lease_count, overview.expired_lease_count), (1, 1));
    assert_eq!(overview.total().processing, 2);
}

/// The oldest age counts from when a message could be claimed, and only messages that can be claimed now. WRK-08.
pub async fn the_oldest_pending_message_is_one_that_could_be_claimed<H: Harness>() {
    let h = start::<H>().await;
    let oldest = async || {
        let overview = h.store().overview().await.expect("messages can be counted").oldest_pending;
        let gauge = h.store().oldest_pending().await.expect("the queue can be looked at");
        assert_eq!(overview.is_some(), gauge.is_some(), "both ways to ask agree");
        assert_near(gauge.unwrap_or_default(), overview.unwrap_or_default());
        overview
    };
    assert_eq!(oldest().await, None);
    enqueue(h.store(), &[messages(1).remove(0).delay(10 * HOUR)]).await;
    enqueue(h.store(), &[messages(1).remove(0).expires_in(HOUR)]).await;
    h.advance(2 * HOUR).await;
    assert_eq!(oldest().await, None, "one is not due, the other has expired");
    h.advance(9 * HOUR).await;
    assert_near(oldest().await.expect("one is due"), HOUR);
    enqueue(h.store(), &messages(1)).await;
    h.advance(HOUR).await;
    assert_near(oldest().await.expect("two are due"), 2 * HOUR);
    claim(h.store(), OwnerToken::new(), 1).await;
    assert_near(oldest().await.expect("one is left"), HOUR);
    claim(h.store(), OwnerToken::new(), 1).await;
    assert_eq!(oldest().await, None);
}

/// A message is found by its row and by its own id, in every state; what is unknown is none. WRK-08.
pub async fn a_message_is_found_by_both_names<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let batch = messages(4);
    let rows = enqueue(h.store(), &batch).await;
    let waiting = messages(1).remove(0).delay(HOUR);
    let waiting_row = enqueue(h.store(), std::slice::from_ref(&waiting)).await[0];
    let claimed = claim(h.store(), owner, 3).await;
    settle_all(h.store(), owner, &claimed[1..2], &Verdict::Ack).await;
    settle_all(h.store(), owner, &claimed[2..], &fail("x")).await;
    let mut names: Vec<_> = batch.iter().map(Message::id).zip(rows).collect();
    names.push((waiting.id(), waiting_row));
    let states = [State::Processing, State::Done, State::Dead, State::Pending, State::Pending];
    for ((id, row), state) in names.into_iter().zip(states) {
        let by_id = stored(h.store(), id).await;
        let by_row = h.store().get(MessageName::Work(row)).await.expect("it can be looked up");
        assert_eq!((by_id.work_id, by_id.state), (row, state));
        assert_eq!(by_row, Some(by_id));
    }
    assert_eq!(find(h.store(), MessageId::new()).await, None);
    let unknown = MessageName::Work(WorkId::from_i64(987_654_321));
    assert_eq!(h.store().get(unknown).await.expect("it can be looked up"), None);
}

/// Pages follow the sequence without gaps or doubles, whether messages are ready or wait, and the last one says so. WRK-08.
pub async fn pages_follow_the_sequence<H: Harness>() {
    let h = start::<H>().await;
    let mut all = Vec::new();
    for number in 0..7 {
        let message = messages(1).remove(0);
        let message = if number % 2 == 0 { message } else { message.delay(HOUR) };
        enqueue(h.store(), std::slice::from_ref(&message)).await;
        all.push(message.id());
    }
    let mut query = ListQuery { state: State::Pending, filter: Filter::all(), after: None, limit: 3 };
    let mut pages = Vec::new();
    loop {
        let page = h.store().list(&query).await.expect("messages can be listed");
        pages.push(listed_ids(&page.messages));
        assert_eq!(page.next.is_some(), pages.len() < 3);
        match page.next {
            Some(next) => query.after = Some(next),
            None => break,
        }
    }
    assert_eq!(pages, all.chunks(3).map(<[_]>::to_vec).collect::<Vec<_>>());
    query = ListQuery { after: None, limit: 7, ..query };
    assert_eq!(
        h.store().list(&query).await.expect("messages can be listed").next,
        None,
        "a full last page is the last"
    );
}

/// Each state lists its own messages and no others. WRK-08.
pub async fn each_state_lists_its_own<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let batch = messages(4);
    enqueue(h.store(), &batch).await;
    let claimed = claim(h.store(), owner, 3).await;
    settle_all(h.store(), owner, &claimed[..1], &Verdict::Ack).await;
    settle_all(h.store(), owner, &claimed[1..2], &fail("x")).await;
    for (state, at) in [(State::Done, 0), (State::Dead, 1), (State::Processing, 2), (State::Pending, 3)] {
        let listed = list(h.store(), state, Filter::all()).await;
        assert_eq!(listed_ids(&listed), [batch[at].id()]);
        assert_eq!(listed[0].state, state);
        assert_eq!(listed[0].message.as_ref(), Ok(&batch[at]));
    }
}

/// A topic filter matches exactly this topic: case, spaces and wildcards count. OBX-010, H51.
pub async fn a_topic_filter_is_exact<H: Harness>() {
    let h = start::<H>().await;
    let topics = ["order", "Order", "order ", "orde_", "ord%", "orders"];
    let batch = topics.map(|topic| Message::new(topic, ""));
    bury(h.store(), &batch, "x").await;
    for (topic, message) in topics.iter().zip(&batch) {
        let filter = Filter::topic(*topic);
        assert_eq!(listed_ids(&list(h.store(), State::Dead, filter.clone()).await), [message.id()], "{topic:?}");
        assert_eq!(count_dead(h.store(), &filter).await, 1, "{topic:?}");
    }
}

/// What belongs to one correlation id is found in every state, exactly; of the dead it is counted, replayed and deleted.
/// WRK-02, H51.
pub async fn a_correlation_id_is_found_exactly<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let correlations = ["cart", "Cart", "cart ", "car_", "c%", "carts"];
    let of = |correlation: &str| Filter::correlation_id(correlation);
    let rows = || correlations.map(|correlation| Message::new("topic", "").correlation_id(correlation));
    let [done, dead, held, waiting, pending] = [(); 5].map(|()| rows());
    let later = waiting.clone().map(|message| message.delay(HOUR));
    for batch in [&done, &dead, &held] {
        enqueue(h.store(), batch).await;
    }
    enqueue(h.store(), &messages(1)).await;
    let claimed = claim(h.store(), owner, 19).await;
    settle_all(h.store(), owner, &claimed[..6], &Verdict::Ack).await;
    settle_all(h.store(), owner, &claimed[6..12], &fail("x")).await;
    enqueue(h.store(), &later).await;
    enqueue(h.store(), &pending).await;
    for (at, correlation) in correlations.into_iter().enumerate() {
        for (state, expected) in [
            (State::Done, vec![done[at].id()]),
            (State::Dead, vec![dead[at].id()]),
            (State::Processing, vec![held[at].id()]),
            (State::Pending, vec![waiting[at].id(), pending[at].id()]),
        ] {
            assert_eq!(listed_ids(&list(h.store(), state, of(correlation)).await), expected, "{correlation:?}");
        }
        assert_eq!(h.store().tally(Ended::Dead, &of(correlation)).await.expect("they can be counted").count, 1);
    }
    let both = Filter { topic: Some("other".into()), ..of("cart") };
    assert_eq!(h.store().tally(Ended::Dead, &both).await.expect("they can be counted").count, 0);
    assert_eq!(h.store().replay(&Replay::dead(of("cart"), 10)).await.expect("a replay succeeds").count, 1);
    assert_eq!(state(h.store(), dead[0].id()).await, State::Pending);
    assert_eq!(h.store().delete(&of("Cart"), 10).await.expect("a delete succeeds"), 1);
    assert_eq!(find(h.store(), dead[1].id()).await, None);
    assert_eq!(counts(h.store()).await.dead, 4);
}

/// A text filter finds the literal text, case counted; `%`, `_`, `\` and quotes are letters like others. H48, H51.
pub async fn an_error_filter_is_a_literal_substring<H: Harness>() {
    let h = start::<H>().await;
    let reasons = ["disk 100% full", "disk 100 full", "a_b", "axb", "TIMEOUT", "timeout", r"c:\temp", "it's \u{1F4EE}"];
    let mut dead = Vec::new();
    for reason in reasons {
        let batch = messages(1);
        bury(h.store(), &batch, reason).await;
        dead.push(batch[0].id());
    }
    let table: [(&str, &[usize]); 9] = [
        ("100%", &[0]),
        ("%", &[0]),
        ("a_b", &[2]),
        ("_", &[2]),
        ("TIME", &[4]),
        ("time", &[5]),
        (r"\t", &[6]),
        ("it's \u{1F4EE}", &[7]),
        ("full", &[0, 1]),
    ];
    for (text, found) in table {
        let filter = Filter { error_contains: Some(text.into()), ..Filter::all() };
        let expected: Vec<_> = found.iter().map(|at| dead[*at]).collect();
        assert_eq!(listed_ids(&list(h.store(), State::Dead, filter).await), expected, "{text:?}");
    }
}

/// Ages count from the settlement for dead and done messages, from the start for others. WRK-08.
pub async fn age_filters_count_from_the_right_moment<H: Harness>() {
    let h = start::<H>().await;
    let owner = OwnerToken::new();
    let [dead, pending] = [messages(1), messages(1)];
    enqueue(h.store(), &dead).await;
    let claimed = claim(h.store(), owner, 1).await;
    enqueue(h.store(), &pending).await;
    h.advance(10 * HOUR).await;
    settle_all(h.store(), owner, &claimed, &fail("x")).await;
    h.advance(HOUR).await;
    let older = |age| Filter { older_than: Some(age), ..Filter::all() };
    let newer = |age| Filter { newer_than: Some(age), ..Filter::all() };
    for (state, age, id) in [(State::Dead, HOUR, dead[0].id()), (State::Pending, 11 * HOUR, pending[0].id())] {
        assert_eq!(listed_ids(&list(h.store(), state, older(age - MINUTE)).await), [id]);
        assert_eq!(list(h.store(), state, older(age + 2 * MINUTE)).await, []);
        assert_eq!(listed_ids(&list(h.store(), state, newer(age + 2 * MINUTE)).await), [id]);
        assert_eq!(list(h.store(), state, newer(age - MINUTE)).await, []);
    }
    assert_eq!(count_dead(h.store(), &older(2 * HOUR)).await, 0);
    assert_eq!(count_dead(h.store(), &newer(2 * HOUR)).await, 1);
}

/// Limits out of range and texts with NUL are refused before anything is asked. H48.
pub async fn an_admin_call_is_bounded<H: Harness>() {
    let h = start::<H>().await;
    bury(h.store(), &messages(1), "x").await;
    for limit in [0, ADMIN_LIMIT_MAX + 1] {
        let query = ListQuery { state: State::Dead, filter: Filter::all(), after: None, limit };
        assert_eq!(refused_fields(h.store().list(&query).await), ["limit"]);
        assert_eq!(refused_fields(h.store().replay(&Replay::dead(Filter::all(), limit)).await), ["limit"]);
        assert_eq!(refused_fields(h.store().delete(&Filter::all(), limit).await), ["limit"]);
        assert_eq!(refused_fields(h.store().group_dead(GroupBy::Topic, &Filter::all(), limit).await), ["limit"]);
    }
    let nul = Filter { error_contains: Some("a\0".into()), topic: Some("b\0".into()), ..Filter::correlation_id("c\0") };
    assert_eq!(refused_fields(h.store().tally(Ended::Dead, &nul).await), ["topic", "correlation_id", "error_contains"]);
    assert_eq!(counts(h.store()).await.dead, 1);
}
