//! The play in three scenes: at home, the kill, the takeover.

use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use pillarbox::admin::{Counts, Filter, ListQuery, OutboxAdmin, StoredMessage};
use pillarbox::outbox::State as MessageState;
use pillarbox::prelude::*;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use super::desk::Desk;
use super::failed;
use super::ledger::AtKill;
use super::process::{PATIENCE, Process};
use super::progress::Progress;
use super::script::{Carrier, Order, Script, WORKER_COUNT};
use super::shop::{OrderPlaced, ReceiptDue, Shop};
use super::worker::STALLED;
use crate::exit::Failure;
use crate::output::{Paint, escaped, say};

/// Between two looks into the database.
const LOOK_INTERVAL: Duration = Duration::from_millis(50);
/// For verdicts of worker 1 that are on their way when its handlers stand still.
const QUIET_MAX: Duration = Duration::from_secs(2);

pub(super) struct Stage {
    pub(super) shop: Shop,
    pub(super) script: Script,
    pub(super) database: PathBuf,
    pub(super) paint: Paint,
}

impl Stage {
    /// Orders are placed, and the same process handles their messages as soon as they are committed.
    pub(super) async fn at_home(&mut self) -> Result<(), Failure> {
        self.headline("1. The shop takes orders and handles their messages in the same process")?;
        let desk = Desk::new(self.shop.outbox().store().pool(), "shop", None);
        let begun = desk.begun();
        let builder = desk.handlers(Runtime::builder(self.shop.outbox()), self.script.lease);
        let runtime = builder.start().await.map_err(failed)?;
        self.place(self.script.at_home.clone()).await?;
        self.until_settled().await?;
        let stats = runtime.stats();
        runtime.shutdown(PATIENCE).await;

        let (committed, rolled_back) = (self.shop.committed_count(), self.shop.rolled_back().len());
        let latency = match begun.lock() {
            Ok(begun) => self.shop.median_latency(&begun),
            Err(_) => return Err(failed("a handler panicked")),
        };
        say(&format!(
            "   {committed} orders committed with their messages, {rolled_back} transactions rolled back\n\
             \x20  {} of {} messages were handed over in memory; a handler began {:.1} ms after its commit did (median)\n",
            stats.hot_count,
            committed * 2,
            latency.as_secs_f64() * 1_000.0,
        ))?;
        self.tell_misfortunes().await
    }

    async fn tell_misfortunes(&self) -> Result<(), Failure> {
        let slow = self.script.orders().find(|order| order.carrier == Carrier::Slow).map_or(0, |order| order.id);
        for stored in self.list(MessageState::Done).await? {
            if stored.attempts > 1 && self.order_of(&stored) == Some(slow) {
                let error = escaped(stored.last_error.as_deref().unwrap_or("unknown"));
                say(&format!(
                    "   order {slow}: {} attempts failed ({error}), attempt {} shipped it\n",
                    stored.attempts - 1,
                    stored.attempts
                ))?;
            }
        }
        for stored in self.list(MessageState::Dead).await? {
            let order = self.order_of(&stored).unwrap_or(0);
            let error = escaped(stored.last_error.as_deref().unwrap_or("unknown"));
            say(&format!("   order {order}: its receipt is a dead letter ({error})\n"))?;
        }
        Ok(())
    }

    /// A worker process handles the messages, and is killed while its handlers wait for an answer.
    pub(super) async fn kill(&mut self) -> Result<(AtKill, Instant), Failure> {
        self.headline("2. A worker process takes over the handlers, and is killed")?;
        let mut worker = Process::start(&self.database, self.script.lease, Some(self.script.stall_after))?;
        let id = worker.id();
        self.place(self.script.before_kill.clone()).await?;
        worker.wait_for(STALLED).await?;
        // Whether they are all written or not decides nothing; it makes for the same numbers every time.
        let _ = timeout(QUIET_MAX, self.until_quiet()).await;
        let ended = worker.kill().await?;
        let killed = Instant::now();

        let Counts { pending, processing: held, .. } = self.messages().await?;
        let unacknowledged = self.unacknowledged().await?;
        say(&format!(
            "   worker 1 (process {id}) killed in the middle of its work: {ended}\n\
             \x20  it held {held} messages; {unacknowledged} of them had taken effect, which it could not say any more\n\
             \x20  {pending} more wait for somebody to handle them\n",
        ))?;
        Ok((AtKill { was_killed: was_killed(ended), held, unacknowledged }, killed))
    }

    /// The shop goes on, another worker comes, and takes over what the dead one held once its leases have run out.
    pub(super) async fn take_over(&mut self, killed: Instant) -> Result<(), Failure> {
        self.headline("3. The shop goes on; another worker takes over")?;
        self.place(self.script.after_kill.clone()).await?;
        let worker = Process::start(&self.database, self.script.lease, None)?;
        say(&format!("   worker 2 (process {}) starts and takes what nobody holds\n", worker.id()))?;
        let total = self.messages().await?;
        let before = total.done + total.dead;
        let mut progress = Progress::new(total.pending + total.processing);
        let (mut taken_over_at, mut looks) = (None, interval(LOOK_INTERVAL));
        while killed.elapsed() < PATIENCE {
            looks.tick().await;
            let Counts { pending, processing, done, dead } = self.messages().await?;
            let taken_over = self.taken_over().await?;
            if taken_over > 0 && taken_over_at.is_none() {
                taken_over_at = Some(killed.elapsed());
            }
            let words = match taken_over {
                0 => format!("{} done · the dead worker's leases still run", done + dead - before),
                count => format!("{} done · {count} taken over from the dead worker", done + dead - before),
            };
            progress.show(done + dead - before, &words)?;
            if pending + processing == 0 {
                break;
            }
        }
        progress.clear()?;
        worker.finish().await?;
        let waited = taken_over_at.ok_or_else(|| failed("nothing was taken over from the dead worker"))?;
        say(&format!(
            "   {} messages of worker 1 taken over {:.1} s after its death, when its leases of {:.0} s had run out\n",
            self.taken_over().await?,
            waited.as_secs_f64(),
            self.script.lease.as_secs_f64(),
        ))
    }

    fn headline(&self, words: &str) -> Result<(), Failure> {
        say(&format!("\n{}\n", self.paint.heading(words)))
    }

    async fn place(&mut self, orders: Vec<Order>) -> Result<(), Failure> {
        let mut progress = Progress::new(orders.len() as u64);
        let mut pace = interval(self.script.pace.max(Duration::from_micros(1)));
        pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for (count, order) in (1..).zip(&orders) {
            pace.tick().await;
            self.shop.place(order).await?;
            let (shipped, mailed) = (self.effects(OrderPlaced::TOPIC).await?, self.effects(ReceiptDue::TOPIC).await?);
            let placed = self.shop.committed_count();
            progress
                .show(count, &format!("{placed} orders committed · {shipped} shipped · {mailed} receipts mailed"))?;
        }
        progress.clear()
    }

    /// Waits until every message is done or dead.
    async fn until_settled(&self) -> Result<(), Failure> {
        let settled = async {
            loop {
                let Counts { pending, processing, .. } = self.messages().await?;
                if pending + processing == 0 {
                    return Ok(());
                }
                sleep(LOOK_INTERVAL).await;
            }
        };
        timeout(PATIENCE, settled).await.map_err(|_| failed("messages are left that nobody handles"))?
    }

    /// Waits until only handlers that stand still are not acknowledged.
    async fn until_quiet(&self) -> Result<(), Failure> {
        while self.unacknowledged().await? > u64::from(WORKER_COUNT) {
            sleep(LOOK_INTERVAL).await;
        }
        Ok(())
    }

    async fn messages(&self) -> Result<Counts, Failure> {
        Ok(self.shop.outbox().store().overview().await.map_err(failed)?.total())
    }

    async fn list(&self, state: MessageState) -> Result<Vec<StoredMessage>, Failure> {
        let query = ListQuery { state, filter: Filter::all(), after: None, limit: 1_000 };
        Ok(self.shop.outbox().store().list(&query).await.map_err(failed)?.messages)
    }

    fn order_of(&self, stored: &StoredMessage) -> Option<u32> {
        let payload = stored.message.as_ref().ok()?.payload();
        let order = serde_json::from_slice::<serde_json::Value>(payload).ok()?.get("order")?.as_u64()?;
        u32::try_from(order).ok()
    }

    /// Effects whose message is not done.
    async fn unacknowledged(&self) -> Result<u64, Failure> {
        let effects = self.shop.count("SELECT count(*) FROM effects").await?;
        Ok(effects.saturating_sub(self.messages().await?.done))
    }

    async fn effects(&self, topic: &str) -> Result<i64, Failure> {
        let counted = sqlx::query_scalar("SELECT count(*) FROM effects WHERE topic = ?1").bind(topic);
        counted.fetch_one(self.shop.outbox().store().pool()).await.map_err(failed)
    }

    /// Messages that were delivered after a lease of theirs had run out.
    async fn taken_over(&self) -> Result<u64, Failure> {
        self.shop.count("SELECT count(DISTINCT message_id) FROM deliveries WHERE lost_lease_count > 0").await
    }
}

#[cfg(unix)]
fn was_killed(status: ExitStatus) -> bool {
    const SIGKILL: i32 = 9;
    std::os::unix::process::ExitStatusExt::signal(&status) == Some(SIGKILL)
}

#[cfg(not(unix))]
fn was_killed(status: ExitStatus) -> bool {
    !status.success()
}
