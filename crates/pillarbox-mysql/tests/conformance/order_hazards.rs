//! Order by key on MySQL and MariaDB: claims that overlap, and what they read.

use std::time::Duration;

use pillarbox_core::lease::Claim;
use pillarbox_core::store::{Enqueue, EnqueueIn as _, Settlement, StoreOptions};
use pillarbox_core::{Message, OutboxAdmin as _, OutboxStore as _, OwnerToken, Verdict};
use pillarbox_testing::Harness as _;
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

/// A claim that has not been committed.
async fn claim_slowly(h: &MysqlHarness, limit: u32) -> (MySqlConnection, usize) {
    let mut slow = MySqlConnection::connect(&url()).await.unwrap();
    slow.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED; START TRANSACTION").await.unwrap();
    let call = h.named(&format!("CALL {{t}}_claim_rows(x'01', 1, 60000000, {limit}, 0, 5, 1, NULL, NULL)"));
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

/// H8: the claim of messages with keys walks the primary key too, and looks at other rows of a key by its index.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_claim_finds_a_key_by_its_index() {
    let h = start().await;
    let messages: Vec<_> = (0..500).map(|n| Message::new("t", "").key((n % 50).to_string())).collect();
    h.store().enqueue(Enqueue::pending(&messages)).await.unwrap();
    h.run("ANALYZE TABLE {t}, {t}_shelf").await;
    let routines = include_str!("../../migrations/0002_outbox_routines.sql");
    let scan = &routines[routines.find("SELECT c.`id`, c.`message_key`").unwrap()..];
    let scan = &scan[..scan.find("FOR UPDATE").unwrap()];
    let values = [
        ("`pillarbox_outbox_shelf`", "`{t}_shelf`"),
        ("`pillarbox_outbox`", "`{t}`"),
        ("p_lost_leases_max", "5"),
        ("v_in_sequence", "FALSE"),
        ("v_dead_hold", "TRUE"),
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
    assert_eq!(keys, [("c", "PRIMARY"), ("d", "message_key"), ("f", "message_key"), ("h", "message_key")]);
}
