//! Four processes serve three databases of different kinds and divide the partitions of their keys, are killed at random and
//! started again: the order of every key is kept, nothing is lost, and no key is ever in two hands.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pillarbox::prelude::*;
use pillarbox::retry::{Jittered, RetryPolicy};
use pillarbox::{Fleet, FleetBuilder, this_process};
use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tokio::time::{Duration, interval, timeout};

use super::worker::{Part, Worker, play};
use super::{Backend, Mysql, POLL, Place, Postgres, Sqlite, TOPIC, fresh_place};

const PROCESSES: usize = 4;
const KILLS: usize = 10;

/// Keys of each database, and messages of each key.
const KEYS: usize = 334;
const LENGTH: usize = 4;

/// Long enough that a busy machine does not let it run out; short enough to wait for after a kill.
const LEASE: Duration = Duration::from_secs(5);

/// So short that partitions move with every kill and every start, while there is something to do.
const HEARTBEAT: Duration = Duration::from_millis(100);
const STALE_AFTER: Duration = Duration::from_secs(1);

/// What decides which attempts fail.
const SEED: u64 = 5;

const PATIENCE: Duration = Duration::from_secs(240);

/// What a process says when it has handled so many more.
const HANDLED: &str = "handled some";
const SOME: usize = 50;

/// Nothing to prove by itself: in a process of its own it is one of those that the test below kills.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_serves_three_databases() {
    play(Serving).await;
}

struct Serving;

impl Part for Serving {
    async fn play<B: Backend>(self, place: &Place, _: Option<String>) {
        let (stores, diary) = (Stores::open(place).await, Diary::open(&place.url));
        let _fleet = stores.fleet(diary).start().await.unwrap();
        std::future::pending::<()>().await;
    }
}

/// One outbox of each kind.
struct Stores {
    sqlite: Outbox<<Sqlite as Backend>::Store>,
    postgres: Outbox<<Postgres as Backend>::Store>,
    mysql: Outbox<<Mysql as Backend>::Store>,
}

impl Stores {
    async fn open(place: &Place) -> Self {
        let schema = || place.schema.clone();
        let file = format!("sqlite:{}", Path::new(&place.url).join("shop.db").display());
        let server = |name: &str| Place { url: super::server(name), schema: schema() };
        Self {
            sqlite: Outbox::new(Sqlite::open(&Place { url: file, schema: schema() }).await),
            postgres: Outbox::new(Postgres::open(&server("PILLARBOX_TEST_POSTGRES_URL")).await),
            mysql: Outbox::new(Mysql::open(&server("PILLARBOX_TEST_MYSQL_URL")).await),
        }
    }

    fn fleet(&self, diary: Diary) -> FleetBuilder {
        let backoff = Jittered { base: Duration::from_millis(5), max: Duration::from_millis(50) };
        Fleet::builder()
            .store("sqlite", &self.sqlite)
            .store("postgres", &self.postgres)
            .store("mysql", &self.mysql)
            .instance(this_process("fleet"))
            .heartbeat(HEARTBEAT, STALE_AFTER)
            .lease(LEASE)
            .claim_limit(20)
            .poll_interval(POLL)
            .idle_interval(POLL)
            .retry(RetryPolicy::default().attempts_max(1000).backoff(backoff))
            .on_topic(TOPIC, move |cx: Context| {
                let diary = diary.clone();
                async move { diary.handle(&cx).await }
            })
    }

    /// Every transaction tells about some keys; of each key the messages are stored in their order.
    async fn fill(&self) {
        fill(&self.sqlite).await;
        fill(&self.postgres).await;
        fill(&self.mysql).await;
    }

    /// How many processes divided the partitions of each store, one after the other.
    async fn registered(&self) -> [usize; 3] {
        [registered(&self.sqlite).await, registered(&self.postgres).await, registered(&self.mysql).await]
    }

    async fn unfinished(&self) -> u64 {
        let left = |overview: pillarbox::admin::Overview| overview.total().pending + overview.total().processing;
        left(self.sqlite.store().overview().await.unwrap())
            + left(self.postgres.store().overview().await.unwrap())
            + left(self.mysql.store().overview().await.unwrap())
    }
}

/// Everybody who ever served a store: whoever was killed could not take itself off the list.
async fn registered<S: OutboxStore>(outbox: &Outbox<S>) -> usize {
    outbox.store().instances().unwrap().live(PATIENCE).await.unwrap().len()
}

async fn fill<S: pillarbox::Transactional>(outbox: &Outbox<S>) {
    for number in 0..LENGTH {
        let mut tx = outbox.begin().await.unwrap();
        for key in 0..KEYS {
            tx.enqueue(Message::new(TOPIC, number.to_string()).key(format!("k{key}"))).await.unwrap();
        }
        tx.commit().await.unwrap();
    }
}

/// What all processes write into one file, a line at a time: it survives them.
#[derive(Clone)]
struct Diary {
    file: Arc<File>,
}

impl Diary {
    fn path(folder: &str) -> PathBuf {
        Path::new(folder).join("diary")
    }

    fn open(folder: &str) -> Self {
        let file = OpenOptions::new().create(true).append(true).open(Self::path(folder)).unwrap();
        Self { file: Arc::new(file) }
    }

    fn write(&self, line: &str) {
        (&*self.file).write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    async fn handle(&self, cx: &Context) -> HandlerResult {
        let key = cx.message().get_key().unwrap_or_default();
        let name = format!("{} {}/{key}", std::process::id(), cx.store_id());
        let number: u32 = std::str::from_utf8(cx.message().payload())?.parse()?;
        self.write(&format!("begin {name} {number}"));
        tokio::task::yield_now().await;
        let fails = fails(&format!("{}/{key}", cx.store_id()), number, cx.attempt());
        self.write(&format!("{} {name} {number}", if fails { "fail" } else { "done" }));
        tally();
        if fails { Err(Failure::retry("one in five")) } else { Ok(()) }
    }
}

/// One attempt in five, of whatever message: so some fail twice in a row.
fn fails(key: &str, number: u32, attempt: u32) -> bool {
    let mut hasher = DefaultHasher::new();
    (SEED, key, number, attempt).hash(&mut hasher);
    hasher.finish().is_multiple_of(5)
}

/// Says so on the error output now and then.
#[expect(clippy::print_stderr, reason = "how a process talks to the test")]
fn tally() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    if COUNT.fetch_add(1, Ordering::Relaxed) % SOME == SOME - 1 {
        eprintln!("{HANDLED}");
    }
}

/// About a fifth of all attempts failed, and some messages twice in a row.
fn check_failures(diary: &str) {
    let (mut ended, mut failed, mut most_in_a_row) = (0, 0, 0);
    let mut in_a_row = HashMap::<(&str, &str), u32>::new();
    for line in diary.lines() {
        let [what @ ("done" | "fail"), _, key, number] = line.split(' ').collect::<Vec<_>>()[..] else { continue };
        let fails = in_a_row.entry((key, number)).or_default();
        *fails = if what == "fail" { *fails + 1 } else { 0 };
        most_in_a_row = most_in_a_row.max(*fails);
        ended += 1;
        failed += usize::from(what == "fail");
    }
    let percent = failed * 100 / ended;
    assert!((15..=25).contains(&percent), "{failed} of {ended} attempts failed");
    assert!(most_in_a_row >= 2);
}

/// Reads the diary from its first line to its last, and fails at the first one that breaks the promise.
fn check(diary: &str) {
    let mut done = HashMap::<&str, u32>::new();
    let mut running = HashMap::<&str, &str>::new();
    for line in diary.lines() {
        let words: Vec<_> = line.split(' ').collect();
        if let ["killed", pid] = words[..] {
            running.retain(|_, process| *process != pid);
            continue;
        }
        let [what, pid, key, number] = words[..] else { panic!("not a line of ours: {line}") };
        let number: u32 = number.parse().unwrap();
        let next = done.entry(key).or_default();
        assert!(number <= *next, "{line}: number {next} of its key has not been done");
        if what == "begin" {
            let other = running.insert(key, pid);
            assert_eq!(other, None, "{line}: its key is in other hands");
            continue;
        }
        assert_eq!(running.remove(key), Some(pid), "{line}: it never began");
        if what == "done" {
            *next = (*next).max(number + 1);
        }
    }
    assert_eq!(done.len(), 3 * KEYS);
    assert!(done.values().all(|next| *next == u32::try_from(LENGTH).unwrap()), "something is lost");
}

/// H34, H23, WRK-03, WRK-07, BUS-07, OBX-066: order, through failures and kills, over several stores and processes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_order_of_every_key_survives_kills() {
    let (mut place, folder) = fresh_place::<Sqlite>();
    place.url = folder.path().display().to_string();
    let stores = Stores::open(&place).await;
    stores.fill().await;
    let diary = Diary::open(&place.url);
    let start = || Worker::start::<Sqlite>("fleet::a_process_serves_three_databases", &place, None);
    let mut workers: Vec<_> = (0..PROCESSES).map(|_| start()).collect();
    let mut rng = StdRng::seed_from_u64(5);
    timeout(PATIENCE, async {
        for _ in 0..KILLS {
            let victim = rng.random_range(0..PROCESSES);
            workers[victim].said(HANDLED).await;
            let worker = std::mem::replace(&mut workers[victim], start());
            let pid = worker.id();
            assert_eq!(worker.kill().signal(), Some(9));
            diary.write(&format!("killed {pid}"));
        }
        let mut look = interval(POLL);
        while stores.unfinished().await > 0 {
            look.tick().await;
        }
    })
    .await
    .expect("everything is done in time");
    drop(workers);
    let written = std::fs::read_to_string(Diary::path(&place.url)).unwrap();
    check(&written);
    assert_eq!(written.lines().filter(|line| line.starts_with("killed")).count(), KILLS);
    check_failures(&written);
    let registered = stores.registered().await;
    assert!(registered.iter().all(|count| *count > PROCESSES), "partitions never moved: {registered:?}");
}
