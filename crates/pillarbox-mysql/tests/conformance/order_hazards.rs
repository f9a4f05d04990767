//! Order by key on MySQL and MariaDB: claims that overlap, and what they read.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pillarbox_core::admin::{Ended, Filter, Replay};
use pillarbox_core::inbox::{Incoming, Mark};
use pillarbox_core::lease::Claim;
use pillarbox_core::retention::{PurgeLimit, Retention};
use pillarbox_core::store::{Enqueue, EnqueueIn as _, Reap, Settlement, StoreOptions};
use pillarbox_core::{
    AfterDead, InboxStore as _, Isolation, Message, Order, OutboxAdmin as _, OutboxStore as _, OwnerToken, Receipt,
    StoreTransaction as _, Transactional as _, Verdict,
};
use pillarbox_testing::{Harness as _, TripCounter};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, MySqlConnection, Row as _};

use crate::harness::{MysqlHarness, url};

const HOUR: Duration = Duration::from_secs(3600);

async fn start() -> MysqlHarness {
    MysqlHarness::start(StoreOptions { rescan_interval: Duration::ZERO, ..StoreOptions::default() }).await
}

fn claim(owner: OwnerToken, limit: u32) -> Claim {
    Claim::new(owner, HOUR, limit).unwrap()
}

/// A message whose topic is its name and whose key is the first letter.
fn keyed(name: &str) -> Message {
    Message::new(name, "").key(&name[..1])
}

async fn enqueue(h: &MysqlHarness, names: &str) {
    let messages: Vec<_> = names.split(' ').map(keyed).collect();
    h.store().enqueue(Enqueue::pending(&messages)).await.unwrap();
}

/// What a claim brings while others are at work; it waits for none of them.
async fn claimed(h: &MysqlHarness, limit: u32) -> String {
    let claiming = h.store().claim(claim(OwnerToken::new(), limit));
    let claimed = tokio::time::timeout(Duration::from_secs(20), claiming).await.expect("nobody waits").unwrap();
    let names: Vec<_> = claimed.iter().map(|one| one.message.as_ref().unwrap().topic()).collect();
    names.join(" ")
}

/// No claim brings anything, be it small or large.
async fn brings_nothing(h: &MysqlHarness, why: &str) {
    for limit in [1, 3, 10] {
        assert_eq!(claimed(h, limit).await, "", "{why}");
    }
}

/// A claim that has not been committed.
async fn claim_slowly(h: &MysqlHarness, limit: u32) -> (MySqlConnection, usize) {
    claim_slowly_in(h, limit, 1).await
}

/// The same in another order, as the routine takes it.
async fn claim_slowly_in(h: &MysqlHarness, limit: u32, order: u32) -> (MySqlConnection, usize) {
    let mut slow = MySqlConnection::connect(&url()).await.unwrap();
    slow.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION").await.unwrap();
    let call = h.named(&format!("CALL {{t}}_claim_rows(x'01', 1, 60000000, {limit}, 0, 5, {order}, NULL, NULL)"));
    let taken = sqlx::raw_sql(AssertSqlSafe(call)).fetch_all(&mut slow).await.unwrap().len();
    (slow, taken)
}

/// H34, WRK-07: a claim that has not been committed keeps its key to itself, and nobody waits for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_open_claim_keeps_its_key() {
    let h = start().await;
    enqueue(&h, "a1 a2 b1 a3").await;
    let (mut slow, taken) = claim_slowly(&h, 1).await;
    assert_eq!(taken, 1);
    assert_eq!(claimed(&h, 10).await, "b1");
    slow.execute("ROLLBACK").await.unwrap();
    assert_eq!(claimed(&h, 10).await, "a1 a2 a3");
}

/// H2, H34: an earlier message that is committed late waits for a later one even while that one's claim is open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_commit_waits_for_an_open_claim() {
    let h = start().await;
    let mut early = h.begin().await;
    h.store().enqueue_in(&mut early, Enqueue::pending(&[keyed("a1")])).await.unwrap();
    enqueue(&h, "a2").await;
    let (mut slow, taken) = claim_slowly(&h, 10).await;
    assert_eq!(taken, 1);
    h.commit(early).await;
    assert_eq!(claimed(&h, 10).await, "");
    slow.execute("COMMIT").await.unwrap();
    assert_eq!(claimed(&h, 10).await, "");
}

/// WRK-07, H34: a message whose time has come, and one of its key that is there already, are not handed to two.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_wakes_is_not_joined_by_another_of_its_key() {
    let h = start().await;
    let later = |name: &str| keyed(name).delay(HOUR);
    h.store().enqueue(Enqueue::pending(&[later("a1"), later("a2")])).await.unwrap();
    h.advance(HOUR).await;
    let (mut slow, taken) = claim_slowly(&h, 1).await;
    assert_eq!((taken, claimed(&h, 10).await.as_str()), (1, ""), "the shelf beside the shelf");
    enqueue(&h, "a3").await;
    assert_eq!(claimed(&h, 10).await, "", "the hot table beside the shelf");
    slow.execute("ROLLBACK").await.unwrap();
    let put_off = async |days: i32| {
        let moved = |column| format!("{column} = {column} + INTERVAL {days} DAY");
        h.run(&format!("UPDATE {{t}}_shelf SET {}, {}", moved("due_at"), moved("wake_at"))).await;
    };
    put_off(1).await;
    let (mut slow, taken) = claim_slowly(&h, 10).await;
    assert_eq!(taken, 1);
    put_off(-1).await;
    assert_eq!(claimed(&h, 10).await, "", "the shelf beside the hot table");
    slow.execute("ROLLBACK").await.unwrap();
}

/// H33: listing again on the same connections gives the same answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocked_keys_are_listed_again_and_again() {
    let h = start().await;
    enqueue(&h, "a1 a2").await;
    let owner = OwnerToken::new();
    let held = h.store().claim(claim(owner, 1)).await.unwrap()[0].held;
    let verdict = Verdict::Fail { reason: "poison".into() };
    h.store().settle(owner, &[Settlement { held, verdict }]).await.unwrap();
    for _ in 0..20 {
        assert_eq!(h.store().blocked_keys(10).await.unwrap().len(), 1);
    }
}

/// H8: the claim of messages with keys walks the primary key too, and looks at other rows of a key by its lane.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_claim_finds_a_key_by_its_index() {
    let h = start().await;
    let messages: Vec<_> = (0..500).map(|n| Message::new("t", "").key((n % 50).to_string())).collect();
    h.store().enqueue(Enqueue::pending(&messages)).await.unwrap();
    h.run("ANALYZE TABLE {t}, {t}_shelf, {t}_lane").await;
    let routines = include_str!("../../migrations/0002_outbox_routines.sql");
    let scan = &routines[routines.find("SELECT c.`id`, c.`message_key`").unwrap()..];
    let scan = &scan[..scan.find("FOR UPDATE").unwrap()];
    let values = [
        ("`pillarbox_outbox_shelf`", "`{t}_shelf`"),
        ("`pillarbox_outbox_lane`", "`{t}_lane`"),
        ("`pillarbox_outbox`", "`{t}`"),
        ("p_lost_leases_max", "5"),
        ("v_in_sequence", "FALSE"),
        ("v_pending", "TRUE"),
        ("v_dead", "TRUE"),
        ("v_floor", "0"),
        ("v_last", "0"),
        ("v_open", "10"),
        ("p_served", "x'01'"),
        ("p_left_out", "x'006100'"),
        ("v_partitions", "1"),
        ("v_now", "UTC_TIMESTAMP(6)"),
    ];
    let sql = values.iter().fold(format!("EXPLAIN {scan}"), |sql, (name, value)| sql.replace(name, value));
    let rows = sqlx::raw_sql(AssertSqlSafe(h.named(&sql))).fetch_all(h.user()).await.unwrap();
    let text = |row: &sqlx::mysql::MySqlRow, name: &str| {
        row.try_get_unchecked::<Option<String>, _>(name).unwrap().unwrap_or_default()
    };
    let plan: Vec<_> = rows.iter().map(|row| (text(row, "table"), text(row, "key"), text(row, "Extra"))).collect();
    assert!(plan.iter().all(|(_, _, extra)| !extra.contains("filesort") && !extra.contains("temporary")), "{plan:?}");
    let mut keys: Vec<_> = plan.iter().map(|(table, key, _)| (table.as_str(), key.as_str())).collect();
    keys.sort_unstable();
    let rows = [("c", "PRIMARY"), ("d", "PRIMARY"), ("f", "PRIMARY"), ("h", "PRIMARY")];
    let lane = [("n", "lane"), ("n", "lane"), ("n", "lane"), ("p", "PRIMARY")];
    assert_eq!(keys, [&rows[..], &lane].concat());
}

/// What was claimed, by name.
fn names(claimed: &[pillarbox_core::store::Claimed]) -> String {
    let names: Vec<_> = claimed.iter().map(|one| one.message.as_ref().unwrap().topic()).collect();
    names.join(" ")
}

/// Writes messages as another language does that has nothing but INSERT.
async fn insert_by_hand(h: &MysqlHarness, names: &str) {
    let rows: Vec<_> = names.split(' ').map(|name| format!("('{name}', '', '{}')", &name[..1])).collect();
    h.run(&format!("INSERT INTO {{t}} (topic, payload, message_key) VALUES {}", rows.join(", "))).await;
}

/// OBX-095, H34: messages with keys that come by a plain INSERT are claimed by the next call, in their order, among those that
/// the library stored, and wait for each other like those.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_by_plain_insert_keep_their_order() {
    for rescan_interval in [Duration::ZERO, HOUR] {
        let h = MysqlHarness::start(StoreOptions { rescan_interval, ..StoreOptions::default() }).await;
        h.store().enqueue(Enqueue::pending(&[Message::new("-1", "")])).await.unwrap();
        assert_eq!(claimed(&h, 10).await, "-1", "there are no keys yet");
        insert_by_hand(&h, "a1 a2 b1").await;
        enqueue(&h, "a3 c1").await;
        insert_by_hand(&h, "c2").await;
        let owner = OwnerToken::new();
        let first = h.store().claim(claim(owner, 4)).await.unwrap();
        assert_eq!(names(&first), "a1 a2 b1 a3");
        assert_eq!(claimed(&h, 10).await, "c1 c2");
        insert_by_hand(&h, "a4 d1").await;
        assert_eq!(claimed(&h, 10).await, "d1", "a1 is held");
        let acks: Vec<_> = first.iter().map(|one| Settlement::ack(one.held)).collect();
        h.store().settle(owner, &acks).await.unwrap();
        assert_eq!(claimed(&h, 10).await, "a4");
        h.assert_lane("{t}").await;
    }
}

/// OBX-095: the procedure for other languages claims what they wrote by plain INSERTs, too, with one call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_claim_of_other_languages_takes_keys_by_plain_insert() {
    let h = start().await;
    insert_by_hand(&h, "a1 a2 b1").await;
    let call = AssertSqlSafe(h.named("CALL {t}_claim(x'AA', 60, 2)"));
    let rows = sqlx::raw_sql(call).fetch_all(h.user()).await.unwrap();
    let topics: Vec<String> = rows.iter().map(|row| row.try_get_unchecked("topic").unwrap()).collect();
    assert_eq!(topics, ["a1", "a2"]);
    assert_eq!(claimed(&h, 10).await, "b1");
}

/// Housekeeping puts messages by plain INSERTs into the lane, too, and those that are not due yet onto the shelf.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn housekeeping_knows_keys_by_plain_insert() {
    let h = start().await;
    insert_by_hand(&h, "a1 a2 b1").await;
    h.run("UPDATE {t} SET due_at = UTC_TIMESTAMP(6) + INTERVAL 1 HOUR WHERE topic = 'b1'").await;
    reap(&h, AfterDead::Block).await;
    h.assert_lane("{t}").await;
    assert_eq!(h.number("SELECT COUNT(*) FROM {t}_lane WHERE place = 'waiting'").await, 1);
    assert_eq!(claimed(&h, 10).await, "a1 a2");
}

async fn reap(h: &MysqlHarness, after_dead: AfterDead) {
    h.store().reap(Reap { after: None, window: 100, after_dead }).await.unwrap();
}

/// Settles what the next claim brings, one verdict for each.
async fn settle_next(h: &MysqlHarness, verdicts: &[Verdict]) {
    let owner = OwnerToken::new();
    let claimed = h.store().claim(claim(owner, u32::try_from(verdicts.len()).unwrap())).await.unwrap();
    assert_eq!(claimed.len(), verdicts.len());
    let settled: Vec<_> = claimed
        .iter()
        .zip(verdicts)
        .map(|(one, verdict)| Settlement { held: one.held, verdict: verdict.clone() })
        .collect();
    h.store().settle(owner, &settled).await.unwrap();
}

/// The whole way of messages, in all directions.
async fn walk(h: &MysqlHarness, name: impl Fn(&str) -> Message) {
    let store = h.store();
    let (abandon, fail) =
        (|delay| Verdict::Abandon { delay, reason: "again".into() }, || Verdict::Fail { reason: "poison".into() });
    let later = || name("l1").delay(HOUR);
    let batch = |letters: &str| letters.split(' ').map(&name).collect::<Vec<_>>();
    let look = async || h.assert_lane("{t}").await;
    for store in [store.clone(), store.as_on_mysql()] {
        store.enqueue(Enqueue::pending(&batch("a1 b1 c1 d1 e1 f1"))).await.unwrap();
        store.enqueue(Enqueue::pending(&[name("g1")])).await.unwrap();
        let timed = [later(), name("h1").expires_in(HOUR), name("i1").delay(HOUR).expires_in(HOUR * 2)];
        store.enqueue(Enqueue::pending(&timed)).await.unwrap();
        store.enqueue(Enqueue::pending(&timed)).await.unwrap();
        look().await;
        settle_next(h, &[Verdict::Ack, abandon(Duration::ZERO), abandon(HOUR), fail(), Verdict::Ack]).await;
        look().await;
        settle_next(h, &[Verdict::Ack, Verdict::Release { delay: HOUR }, Verdict::Ack, fail()]).await;
        look().await;
        // What was delayed, and what was given back, wakes; the rest of the claim expires or loses its lease.
        h.advance(HOUR * 2).await;
        reap(h, AfterDead::Block).await;
        look().await;
        let taken = store.claim(claim(OwnerToken::new(), 10)).await.unwrap();
        assert!(!taken.is_empty());
        look().await;
        h.advance(HOUR * 2).await;
        reap(h, AfterDead::Park).await;
        look().await;
        let first = store.replay(&Replay::dead(Filter::all(), 1)).await.unwrap();
        assert_eq!(first.count, 1);
        store.delete(&Filter::all(), 1).await.unwrap();
        look().await;
        store.replay(&Replay::dead(Filter::all(), 100)).await.unwrap();
        look().await;
        store.replay(&Replay { ended: Ended::Done, ..Replay::dead(Filter::all(), 100) }).await.unwrap();
        look().await;
        let owner = OwnerToken::new();
        loop {
            let taken = store.claim(claim(owner, 3)).await.unwrap();
            if taken.is_empty() {
                break;
            }
            let acks: Vec<_> = taken.iter().map(|one| Settlement::ack(one.held)).collect();
            store.settle(owner, &acks).await.unwrap();
            look().await;
        }
        h.store().purge(PurgeLimit::new(100).unwrap()).await.unwrap();
    }
}

/// Wherever messages with keys go, they are in the lane, and gone from it when they are done. H34.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lane_follows_every_message_with_a_key() {
    for retention in [Retention::Delete, Retention::Receipt(HOUR), Retention::Message(HOUR)] {
        let options = StoreOptions { retention, rescan_interval: Duration::ZERO, ..StoreOptions::default() };
        let h = MysqlHarness::start(options).await;
        walk(&h, keyed).await;
        assert_eq!(h.number("SELECT COUNT(*) FROM {t}_lane").await, 0);
    }
}

/// The lane of an inbox follows what is marked by hand, and what is delivered again. IBX-026, H34.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lane_of_an_inbox_follows_its_messages() {
    let h = start().await;
    let inbox = h.inbox().await;
    let places = async |expected: i64| {
        h.assert_lane("{s}_inbox").await;
        assert_eq!(h.number("SELECT COUNT(*) FROM {s}_inbox_lane").await, expected);
    };
    let incoming = |id: &str, message: Message| Incoming::new(Receipt::new("source", id), message);
    let batch = [incoming("1", keyed("a1")), incoming("2", keyed("a2").delay(HOUR)), incoming("3", keyed("b1"))];
    inbox.receive(&batch).await.unwrap();
    places(3).await;
    inbox.receive(&batch).await.unwrap();
    places(3).await;
    for id in ["1", "2"] {
        inbox.mark(&Receipt::new("source", id), Mark::Dead("by hand".into())).await.unwrap();
        places(3).await;
    }
    assert_eq!(h.number("SELECT COUNT(*) FROM {s}_inbox_lane WHERE place = 'dead'").await, 2);
    inbox.receive(&batch[1..2]).await.unwrap();
    places(3).await;
    for id in ["1", "2", "3"] {
        inbox.mark(&Receipt::new("source", id), Mark::Processed).await.unwrap();
    }
    places(0).await;
}

/// Messages without a key neither write the lane nor wait for anybody who has locked all of it. H8.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_without_keys_do_not_touch_the_lane() {
    for retention in [Retention::Delete, Retention::Message(HOUR)] {
        let options = StoreOptions { retention, rescan_interval: Duration::ZERO, ..StoreOptions::default() };
        let h = MysqlHarness::start(options).await;
        let mut other = MySqlConnection::connect(&url()).await.unwrap();
        let lock = "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE; START TRANSACTION; SELECT * FROM {t}_lane FOR UPDATE";
        other.execute(AssertSqlSafe(h.named(lock))).await.unwrap();
        let walking = walk(&h, |name| Message::new(name, ""));
        tokio::time::timeout(Duration::from_secs(40), walking).await.expect("nobody waits");
        other.execute("ROLLBACK").await.unwrap();
        assert_eq!(h.number("SELECT COUNT(*) FROM {t}_lane").await, 0);
    }
}

/// Acknowledges what was claimed.
async fn settle(h: &MysqlHarness, owner: OwnerToken, claimed: &[pillarbox_core::store::Claimed]) {
    let acks: Vec<_> = claimed.iter().map(|one| Settlement::ack(one.held)).collect();
    h.store().settle(owner, &acks).await.unwrap();
}

/// Messages in a transaction that is not committed yet.
async fn enqueue_late(h: &MysqlHarness, names: &str) -> sqlx::Transaction<'static, sqlx::MySql> {
    let mut early = h.begin().await;
    let messages: Vec<_> = names.split(' ').map(keyed).collect();
    h.store().enqueue_in(&mut early, Enqueue::pending(&messages)).await.unwrap();
    early
}

/// H2, H34: however many messages of a key are committed late, they wait for the later one that is held.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_late_commits_wait_for_one_that_is_held() {
    let h = start().await;
    let early = enqueue_late(&h, "a1 a2 a3 a4 a5 a6").await;
    enqueue(&h, "a7").await;
    let owner = OwnerToken::new();
    let held = h.store().claim(claim(owner, 10)).await.unwrap();
    assert_eq!(names(&held), "a7");
    h.commit(early).await;
    brings_nothing(&h, "a7 is held").await;
    settle(&h, owner, &held).await;
    assert_eq!(claimed(&h, 10).await, "a1 a2 a3 a4 a5 a6");
}

/// H2, H34: also while the claim of the later one is open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_late_commits_wait_for_an_open_claim() {
    let h = start().await;
    let early = enqueue_late(&h, "a1 a2 a3 a4 a5 a6").await;
    enqueue(&h, "a7").await;
    let (mut slow, taken) = claim_slowly(&h, 10).await;
    assert_eq!(taken, 1);
    h.commit(early).await;
    brings_nothing(&h, "a7 is as good as held").await;
    slow.execute("COMMIT").await.unwrap();
    assert_eq!(claimed(&h, 10).await, "", "a7 is held");
    let id = h.number("SELECT id FROM {t} WHERE topic = 'a7'").await;
    h.run(&format!("CALL {{t}}_ack(x'01', {id}, 1)")).await;
    assert_eq!(claimed(&h, 10).await, "a1 a2 a3 a4 a5 a6");
}

/// H2, H34, WRK-07: also where the later one has waited for its time, and its claim is open or committed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_late_commits_wait_for_one_that_woke() {
    let h = start().await;
    let early = enqueue_late(&h, "a1 a2 a3 a4 a5 a6").await;
    h.store().enqueue(Enqueue::pending(&[keyed("a7").delay(HOUR)])).await.unwrap();
    h.run("UPDATE {t}_shelf SET due_at = UTC_TIMESTAMP(6), wake_at = UTC_TIMESTAMP(6)").await;
    let (mut slow, taken) = claim_slowly(&h, 10).await;
    assert_eq!(taken, 1);
    h.commit(early).await;
    brings_nothing(&h, "a7 is as good as held").await;
    slow.execute("COMMIT").await.unwrap();
    assert_eq!(claimed(&h, 1).await, "", "a7 is held");
    h.run("UPDATE {t} SET locked_until = UTC_TIMESTAMP(6) WHERE topic = 'a7'").await;
    assert_eq!(claimed(&h, 10).await, "a1 a2 a3 a4 a5 a6 a7", "its lease ran out");
}

/// H2, BUS-06: in sequence, too, and while the claim of the later one is open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_late_sequence_waits_for_one_that_is_held() {
    let h = start().await;
    let order = Order { after_dead: AfterDead::Block, in_sequence: true };
    let next = async |owner, limit| h.store().claim(claim(owner, limit).in_order(order)).await.unwrap();
    let early = enqueue_late(&h, "a1 b1 a2 b2 a3 b3").await;
    enqueue(&h, "c1").await;
    let owner = OwnerToken::new();
    let held = next(owner, 10).await;
    assert_eq!(names(&held), "c1");
    h.commit(early).await;
    for limit in [1, 3, 10] {
        assert_eq!(names(&next(OwnerToken::new(), limit).await), "", "c1 is held");
    }
    settle(&h, owner, &held).await;
    let owner = OwnerToken::new();
    let six = next(owner, 10).await;
    assert_eq!(names(&six), "a1 b1 a2 b2 a3 b3");
    settle(&h, owner, &six).await;
    let early = enqueue_late(&h, "a4 b4 a5 b5 a6 b6").await;
    enqueue(&h, "c2").await;
    let (mut slow, taken) = claim_slowly_in(&h, 10, 3).await;
    assert_eq!(taken, 1);
    h.commit(early).await;
    for limit in [1, 3, 10] {
        assert_eq!(names(&next(OwnerToken::new(), limit).await), "", "c2 is as good as held");
    }
    slow.execute("ROLLBACK").await.unwrap();
    assert_eq!(names(&next(OwnerToken::new(), 10).await), "a4 b4 a5 b5 a6 b6 c2");
}

/// H34, H8: a key with a long backlog that others have gone past is looked through once, and not by each of its claims; what
/// is committed late before that waits all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_backlog_is_looked_through_once() {
    let h = start().await;
    let early = enqueue_late(&h, "a1 a2 a3 a4 a5 a6").await;
    let backlog: Vec<_> = (7..1_100).map(|number| format!("a{number}")).collect();
    enqueue(&h, &backlog.join(" ")).await;
    enqueue(&h, "b1").await;
    let owner = OwnerToken::new();
    let held = h.store().claim(claim(owner, 2)).await.unwrap();
    assert_eq!(names(&held), "a7 a8");
    assert_eq!(claimed(&h, 10).await, "b1");
    settle(&h, owner, &held).await;
    let clear = "SELECT CAST(SUBSTR(l.topic, 2) AS SIGNED) FROM {t} AS l JOIN {t}_lane AS n USING (id)
                 WHERE n.is_clear ORDER BY l.id DESC LIMIT 1";
    for (run, next) in [("a9 a10", 11), ("a11 a12", 13), ("a13 a14", 15)] {
        let held = h.store().claim(claim(owner, 2)).await.unwrap();
        assert_eq!((names(&held).as_str(), h.number(clear).await), (run, next));
        settle(&h, owner, &held).await;
    }
    let held = h.store().claim(claim(owner, 2)).await.unwrap();
    assert_eq!(names(&held), "a15 a16");
    h.commit(early).await;
    assert_eq!(claimed(&h, 2).await, "", "a15 is held");
    settle(&h, owner, &held).await;
    let held = h.store().claim(claim(owner, 16)).await.unwrap();
    assert_eq!(names(&held), "a1 a2 a3 a4 a5 a6 a17 a18 a19 a20 a21 a22 a23 a24 a25 a26");
    let (back, kept) = held.split_at(14);
    let release = |one: &pillarbox_core::store::Claimed| Settlement {
        held: one.held,
        verdict: Verdict::Release { delay: Duration::ZERO },
    };
    h.store().settle(owner, &back.iter().map(release).collect::<Vec<_>>()).await.unwrap();
    for limit in [1, 7, 9] {
        assert_eq!(claimed(&h, limit).await, "", "a25 is held");
    }
    settle(&h, owner, kept).await;
    assert_eq!(claimed(&h, 8).await, "a1 a2 a3 a4 a5 a6 a17 a18");
}

/// H8, H14: open transactions that write one key, in batches of every size, or settle in it, do not wait for each other in the
/// lane, whatever their isolation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn producers_of_one_key_do_not_wait_for_each_other() {
    let h = start().await;
    enqueue(&h, "a1 a2 b1").await;
    let owner = OwnerToken::new();
    let held = h.store().claim(claim(owner, 3)).await.unwrap();
    let levels = [
        (Isolation::RepeatableRead, "REPEATABLE READ", Verdict::Fail { reason: "poison".into() }),
        (Isolation::RepeatableRead, "REPEATABLE READ", Verdict::Ack),
        (Isolation::ReadCommitted, "READ COMMITTED", Verdict::Ack),
    ];
    for ((isolation, level, verdict), one) in levels.into_iter().zip(&held) {
        let mut settler = h.store().begin_at(isolation).await.unwrap();
        let settlement = [Settlement { held: one.held, verdict }];
        settler.settle(h.store(), owner, &settlement).await.unwrap();
        let mut open = [h.begin_at(level).await, h.begin_at(level).await, h.begin_at(level).await];
        for (store, counts) in [(h.store().clone(), &[1, 3, 40, 1850][..]), (h.store().as_on_mysql(), &[1, 3])] {
            for count in counts {
                for tx in &mut open {
                    let batch: Vec<_> = (0..*count).map(|_| keyed("a9")).collect();
                    let timed = [keyed("a9").delay(HOUR), keyed("a9").expires_in(HOUR), Message::new("-", "")];
                    let enqueue = async {
                        let all = store.enqueue_in(&mut *tx, Enqueue::pending(&batch).owned()).await.unwrap();
                        assert!(all.iter().all(|one| one.placement.work_id().is_some()));
                        store.enqueue_in(&mut *tx, Enqueue::pending(&timed)).await.unwrap();
                        store.enqueue_in(&mut *tx, Enqueue::pending(&timed)).await.unwrap();
                    };
                    tokio::time::timeout(Duration::from_secs(20), enqueue).await.expect("nobody waits");
                }
            }
        }
        settler.commit().await.unwrap();
        for tx in open {
            h.commit(tx).await;
        }
        h.assert_lane("{t}").await;
    }
}

/// A batch of messages with keys takes one round trip, too, in which they get their places. The first may have to be prepared.
#[tokio::test]
async fn a_batch_with_keys_takes_one_round_trip() {
    let h = start().await;
    let counter = TripCounter::to(&url()).await;
    let mut connection = MySqlConnection::connect(counter.address()).await.unwrap();
    for store in [h.store().clone(), h.store().as_on_mysql()] {
        for (count, is_new) in [1, 2, 100, 900].into_iter().flat_map(|count| [(count, true), (count, false)]) {
            let mut trips = 0;
            for _ in 0..2 {
                let batch: Vec<_> = (0..count).map(|_| keyed("a1")).collect();
                let enqueue = Enqueue::pending(&batch);
                let mut tx = connection.begin().await.unwrap();
                let before = counter.count();
                store.enqueue_in(&mut tx, if is_new { enqueue.owned() } else { enqueue }).await.unwrap();
                trips = counter.count() - before;
                tx.commit().await.unwrap();
            }
            assert_eq!(trips, 1, "{count}, new: {is_new}");
        }
    }
    h.assert_lane("{t}").await;
}

/// H8, H34: workers and producers of few keys, some of which write by hand, surface no deadlock; no key is in two hands, and
/// nothing is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_key_is_in_two_hands_among_many_workers() {
    let h = Arc::new(start().await);
    let producers = (0..6).map(|number| {
        let h = Arc::clone(&h);
        tokio::spawn(async move {
            for round in 0..30 {
                let level = ["READ COMMITTED", "REPEATABLE READ"][(number + round) % 2];
                let mut tx = h.begin_at(level).await;
                let keys = (0..3).map(|step| ["a", "b", "c", "d", "e"][(number + round * step) % 5]);
                if number == 0 {
                    let rows: Vec<_> = keys.map(|key| format!("('{key}', '', '{key}')")).collect();
                    let insert = format!("INSERT INTO {{t}} (topic, payload, message_key) VALUES {}", rows.join(", "));
                    tx.execute(AssertSqlSafe(h.named(&insert))).await.unwrap();
                } else {
                    let batch: Vec<_> = keys.map(keyed).collect();
                    h.store().enqueue_in(&mut tx, Enqueue::pending(&batch)).await.unwrap();
                }
                tokio::task::yield_now().await;
                h.commit(tx).await;
            }
        })
    });
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let in_hands = Arc::new(Mutex::new(HashSet::new()));
    let workers = (0..8).map(|_| {
        let (h, stopped, in_hands) = (Arc::clone(&h), stopped.clone(), Arc::clone(&in_hands));
        tokio::spawn(async move {
            let (owner, mut count, mut held, mut mine) = (OwnerToken::new(), 0, Vec::new(), HashSet::new());
            loop {
                let last = *stopped.borrow();
                in_hands.lock().unwrap().retain(|key: &String| !mine.contains(key));
                let exchanged = h.store().exchange(&held, claim(owner, 4)).await.unwrap();
                count += exchanged.claimed.len();
                mine = exchanged.claimed.iter().map(|one| one.message.as_ref().unwrap().topic().to_owned()).collect();
                let are_free = mine.iter().all(|key| in_hands.lock().unwrap().insert(key.clone()));
                assert!(are_free, "{mine:?} beside {in_hands:?}");
                held = exchanged.claimed.iter().map(|one| Settlement::ack(one.held)).collect();
                if last && held.is_empty() {
                    return count;
                }
                tokio::task::yield_now().await;
            }
        })
    });
    let (producers, workers): (Vec<_>, Vec<_>) = (producers.collect(), workers.collect());
    for producer in producers {
        producer.await.unwrap();
    }
    stop.send(true).unwrap();
    let mut count = 0;
    for worker in workers {
        count += worker.await.unwrap();
    }
    // They stop when a claim brings nothing, which also happens where two meet. What is left comes without the others.
    let owner = OwnerToken::new();
    loop {
        let rest = h.store().claim(claim(owner, 100)).await.unwrap();
        if rest.is_empty() {
            break;
        }
        count += rest.len();
        settle(&h, owner, &rest).await;
    }
    assert_eq!(count, 6 * 30 * 3);
}
