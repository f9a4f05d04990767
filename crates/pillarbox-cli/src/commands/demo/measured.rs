//! What the demo counted, in words, and the one function that decides whether every promise held.

use std::process::ExitStatus;
use std::time::Duration;

use pillarbox::MessageId;
use pillarbox::admin::Counts;

use super::shop::Shop;
use crate::exit::Failure;

/// After the orders were placed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    orders: u64,
    messages: u64,
    rolled_back: u64,
    /// Orders and messages of transactions that were rolled back: there must be none.
    ghosts: u64,
}

impl Placed {
    pub(super) async fn count(shop: &Shop, rolled_back: &[(u32, MessageId)]) -> Result<Self, Failure> {
        let mut ghosts = 0;
        for &(order, message) in rolled_back {
            ghosts += u64::from(shop.knows_order(order).await?) + u64::from(shop.knows_message(message).await?);
        }
        Ok(Self {
            orders: shop.count("SELECT count(*) FROM orders").await?,
            messages: shop.messages().await?.pending,
            rolled_back: rolled_back.len() as u64,
            ghosts,
        })
    }

    pub(super) fn told(&self) -> String {
        let Self { orders, messages, rolled_back, ghosts } = self;
        format!(
            "{orders:>5} orders committed\n\
             {messages:>5} messages wait in the outbox, each committed with its order\n\
             {rolled_back:>5} transactions rolled back on purpose; orders and messages left of them: {ghosts}\n"
        )
    }
}

/// When the first worker was dead.
#[derive(Clone, Copy, Debug)]
pub(super) struct AtKill {
    ended: ExitStatus,
    messages: Counts,
    delivered: u64,
}

impl AtKill {
    pub(super) async fn count(shop: &Shop, ended: ExitStatus) -> Result<Self, Failure> {
        let delivered = shop.count("SELECT count(*) FROM deliveries WHERE worker = '1'").await?;
        Ok(Self { ended, messages: shop.messages().await?, delivered })
    }

    /// Shipped, but the store was never told.
    fn unacknowledged(&self) -> u64 {
        self.delivered.saturating_sub(self.messages.done)
    }

    pub(super) fn told(&self) -> String {
        let Self { ended, messages, delivered } = self;
        let unacknowledged = self.unacknowledged();
        let untouched = messages.processing.saturating_sub(unacknowledged);
        format!(
            "  killed in the middle of a batch, after {delivered} deliveries ({ended})\n\
             {:>5} delivered and acknowledged\n\
             {unacknowledged:>5} delivered, but the worker died before it could acknowledge them\n\
             {untouched:>5} claimed, but not delivered\n\
             {:>5} not claimed yet\n",
            messages.done, messages.pending,
        )
    }
}

/// Everything, at the end.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    placed: Placed,
    at_kill: AtKill,
    waited: Duration,
    messages: Counts,
    taken_over: u64,
    deliveries: u64,
    shipments: u64,
    shipped_twice: u64,
    lost: u64,
}

impl Measured {
    pub(super) async fn count(shop: &Shop, placed: Placed, at_kill: AtKill, waited: Duration) -> Result<Self, Failure> {
        let lost = "SELECT count(*) FROM orders WHERE id NOT IN (SELECT order_id FROM shipments)";
        Ok(Self {
            placed,
            at_kill,
            waited,
            messages: shop.messages().await?,
            taken_over: shop.count("SELECT count(*) FROM deliveries WHERE lost_lease_count > 0").await?,
            deliveries: shop.count("SELECT count(*) FROM deliveries").await?,
            shipments: shop.count("SELECT count(*) FROM shipments").await?,
            shipped_twice: shop.count("SELECT count(*) - count(DISTINCT order_id) FROM shipments").await?,
            lost: shop.count(lost).await?,
        })
    }

    /// Arrivals that the receiver's unique key turned away.
    fn absorbed(&self) -> u64 {
        self.deliveries.saturating_sub(self.shipments)
    }

    pub(super) fn told(&self) -> String {
        format!(
            "  {:.1} s after the kill, the dead worker's leases had run out, and worker 2 could claim its messages\n\
             {:>5} messages taken over from the dead worker\n\
             {:>5} of them delivered for the second time: the receiver knew their ids and shipped nothing\n",
            self.waited.as_secs_f64(),
            self.taken_over,
            self.absorbed(),
        )
    }

    pub(super) fn summary(&self) -> String {
        let rows = [
            ("orders committed", self.placed.orders),
            ("messages enqueued", self.placed.messages),
            ("transactions rolled back", self.placed.rolled_back),
            ("delivered before the kill", self.at_kill.delivered),
            ("taken over after the lease ran out", self.taken_over),
            ("duplicates absorbed by the receiver", self.absorbed()),
            ("orders shipped", self.shipments),
            ("orders shipped twice", self.shipped_twice),
            ("orders lost", self.lost),
        ];
        rows.iter().map(|(what, count)| format!("  {what:<36}{count:>5}\n")).collect()
    }

    /// What did not hold; empty when all is well.
    pub(super) fn broken_promises(&self) -> Vec<String> {
        let Self { placed, at_kill, messages, .. } = self;
        let left = messages.pending + messages.processing + messages.dead;
        let promises = [
            (placed.orders > 0 && placed.messages == placed.orders, "not every order has exactly one message"),
            (placed.rolled_back > 0 && placed.ghosts == 0, "a rolled-back transaction left something behind"),
            (was_killed(at_kill.ended), "the first worker was not killed"),
            (at_kill.unacknowledged() > 0, "the kill did not come between a delivery and its acknowledgement"),
            (self.taken_over == at_kill.messages.processing, "not every message of the dead worker was taken over"),
            (self.absorbed() == at_kill.unacknowledged(), "a message was delivered twice without need, or not again"),
            (self.lost == 0, "an order was never shipped"),
            (self.shipped_twice == 0 && self.shipments == placed.orders, "an order was not shipped exactly once"),
            (messages.done == placed.messages && left == 0, "a message is left that is not done"),
        ];
        let broken = promises.into_iter().filter(|(holds, _)| !holds);
        broken.map(|(_, what)| what.to_owned()).collect()
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

#[cfg(all(test, unix))]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    fn good() -> Measured {
        let counts = |pending, processing, done| Counts { pending, processing, done, dead: 0 };
        Measured {
            placed: Placed { orders: 200, messages: 200, rolled_back: 20, ghosts: 0 },
            at_kill: AtKill { ended: ExitStatus::from_raw(9), messages: counts(80, 20, 100), delivered: 110 },
            waited: Duration::from_millis(1_480),
            messages: counts(0, 0, 200),
            taken_over: 20,
            deliveries: 210,
            shipments: 200,
            shipped_twice: 0,
            lost: 0,
        }
    }

    #[test]
    fn a_good_run_breaks_no_promise() {
        assert_eq!(good().broken_promises(), Vec::<String>::new());
    }

    #[test]
    fn each_broken_promise_is_found() {
        type Spoil = fn(&mut Measured);
        let table: [(Spoil, &str); 9] = [
            (|m| m.placed.messages = 199, "exactly one message"),
            (|m| m.placed.ghosts = 1, "rolled-back"),
            (|m| m.at_kill.ended = ExitStatus::from_raw(0), "not killed"),
            (|m| m.at_kill.delivered = 100, "between a delivery"),
            (|m| m.taken_over = 19, "taken over"),
            (|m| m.deliveries = 211, "without need"),
            (|m| m.lost = 1, "never shipped"),
            (|m| m.shipped_twice = 1, "exactly once"),
            (|m| m.messages.dead = 1, "not done"),
        ];
        for (spoil, words) in table {
            let mut measured = good();
            spoil(&mut measured);
            let broken = measured.broken_promises();
            assert!(broken.iter().any(|promise| promise.contains(words)), "{words}: {broken:?}");
        }
    }
}
