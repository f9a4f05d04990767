//! The books: everything counted in the database when all is over, and whether it adds up.

use pillarbox::admin::{Counts, MessageName, OutboxAdmin};
use pillarbox::prelude::*;

use super::failed;
use super::shop::{OrderPlaced, ReceiptDue, Shop};
use crate::exit::Failure;
use crate::output::Paint;

/// What was found.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ledger {
    /// Transactions that the shop committed, and rolled back.
    committed: u64,
    rolled_back: u64,
    /// Rows of the orders table.
    orders: u64,
    /// Orders and messages of transactions that were rolled back.
    ghosts: u64,
    shipping: Account,
    mailing: Account,
    at_kill: AtKill,
}

/// When worker 1 was dead.
#[derive(Clone, Copy, Debug)]
pub(super) struct AtKill {
    pub(super) was_killed: bool,
    /// Messages that it held.
    pub(super) held: u64,
    /// Those that had taken effect, which it could not say any more.
    pub(super) unacknowledged: u64,
}

/// One topic: its messages, and what came of them.
#[derive(Clone, Copy, Debug)]
struct Account {
    messages: Counts,
    effects: u64,
    /// Effects for an order that is not there, or had that effect before.
    odd_effects: u64,
    /// Messages that reached a handler which took effect, and how often that happened once more.
    delivered: u64,
    repeated: u64,
}

impl Ledger {
    pub(super) async fn balance(shop: &Shop, at_kill: AtKill) -> Result<Self, Failure> {
        let store = shop.outbox().store();
        let mut ghosts = 0;
        for (order, messages) in shop.rolled_back() {
            let found = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM orders WHERE id = ?1)").bind(order);
            let is_there: bool = found.fetch_one(store.pool()).await.map_err(failed)?;
            ghosts += u64::from(is_there);
            for id in messages {
                ghosts += u64::from(store.get(MessageName::Message(*id)).await.map_err(failed)?.is_some());
            }
        }
        Ok(Self {
            committed: shop.committed_count() as u64,
            rolled_back: shop.rolled_back().len() as u64,
            orders: shop.count("SELECT count(*) FROM orders").await?,
            ghosts,
            shipping: Account::balance(shop, OrderPlaced::TOPIC).await?,
            mailing: Account::balance(shop, ReceiptDue::TOPIC).await?,
            at_kill,
        })
    }

    pub(super) fn table(&self) -> String {
        let heads = ["orders", "messages", "done", "dead", "effects", "delivered twice"].map(str::to_owned);
        let row = |account: &Account| {
            let Counts { done, dead, .. } = account.messages;
            [self.orders, account.all(), done, dead, account.effects, account.repeated].map(|count| count.to_string())
        };
        line("", &heads)
            + &line(OrderPlaced::TOPIC, &row(&self.shipping))
            + &line(ReceiptDue::TOPIC, &row(&self.mailing))
    }

    /// Every line of the reckoning, and whether it holds.
    pub(super) fn checks(&self) -> Vec<(bool, String)> {
        let Self { committed, rolled_back, orders, ghosts, shipping, mailing, at_kill } = self;
        let (twice, unacknowledged) = (shipping.repeated + mailing.repeated, at_kill.unacknowledged);
        let dead = shipping.messages.dead + mailing.messages.dead;
        vec![
            (*orders > 0 && orders == committed, format!("{committed} transactions committed = {orders} orders")),
            (
                shipping.all() == *orders && mailing.all() == *orders,
                format!("{orders} orders = {} messages to ship = {} messages to mail", shipping.all(), mailing.all()),
            ),
            (
                *rolled_back > 0 && *ghosts == 0,
                format!("{rolled_back} transactions rolled back left {ghosts} orders or messages behind"),
            ),
            (shipping.is_even(), format!("shipping: {}", shipping.told())),
            (mailing.is_even(), format!("mailing: {}", mailing.told())),
            (dead == 1 && mailing.messages.dead == 1, format!("{dead} dead letter: the receipt without a mailbox")),
            (
                at_kill.was_killed && unacknowledged > 0 && unacknowledged <= at_kill.held,
                format!(
                    "worker 1 was killed holding {} messages, {unacknowledged} with their effect already done",
                    at_kill.held
                ),
            ),
            (
                twice >= unacknowledged && shipping.odd_effects + mailing.odd_effects == 0,
                format!("{twice} delivered twice, took effect once"),
            ),
        ]
    }

    pub(super) fn reckoning(&self, paint: Paint) -> String {
        let line = |(holds, words): (bool, String)| match holds {
            true => format!("   {} {words}\n", paint.good("✓")),
            false => format!("   {} {words}\n", paint.bad("✗ does not add up:")),
        };
        self.checks().into_iter().map(line).collect()
    }

    pub(super) fn adds_up(&self) -> bool {
        self.checks().iter().all(|(holds, _)| *holds)
    }
}

impl Account {
    async fn balance(shop: &Shop, topic: &str) -> Result<Self, Failure> {
        let store = shop.outbox().store();
        let overview = store.overview().await.map_err(failed)?;
        let found = overview.topics.iter().find(|counted| counted.topic == topic);
        let count = async |sql: &'static str| {
            let counted: i64 = sqlx::query_scalar(sql).bind(topic).fetch_one(store.pool()).await.map_err(failed)?;
            u64::try_from(counted).map_err(failed)
        };
        let known =
            "SELECT count(DISTINCT order_id) FROM effects WHERE topic = ?1 AND order_id IN (SELECT id FROM orders)";
        let effects = count("SELECT count(*) FROM effects WHERE topic = ?1").await?;
        Ok(Self {
            messages: found.map(|counted| counted.counts).unwrap_or_default(),
            effects,
            odd_effects: effects.saturating_sub(count(known).await?),
            delivered: count("SELECT count(DISTINCT message_id) FROM deliveries WHERE topic = ?1").await?,
            repeated: count("SELECT count(*) - count(DISTINCT message_id) FROM deliveries WHERE topic = ?1").await?,
        })
    }

    fn all(&self) -> u64 {
        let Counts { pending, processing, done, dead } = self.messages;
        pending + processing + done + dead
    }

    /// Every message is done or dead, and what is done has taken effect.
    fn is_even(&self) -> bool {
        let Counts { pending, processing, done, .. } = self.messages;
        pending + processing == 0 && done == self.effects && self.delivered == self.effects
    }

    fn told(&self) -> String {
        let Counts { pending, processing, done, dead } = self.messages;
        let mut words =
            format!("{} messages = {done} done + {dead} dead; {done} done = {} effects", self.all(), self.effects);
        if pending + processing > 0 {
            words += &format!("; {} are left", pending + processing);
        }
        words
    }
}

fn line(name: &str, [orders, messages, done, dead, effects, twice]: &[String; 6]) -> String {
    format!("   {name:<14}{orders:>6}{messages:>10}{done:>7}{dead:>7}{effects:>9}{twice:>17}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Ledger {
        let counts = |done, dead| Counts { pending: 0, processing: 0, done, dead };
        Ledger {
            committed: 200,
            rolled_back: 20,
            orders: 200,
            ghosts: 0,
            shipping: Account { messages: counts(200, 0), effects: 200, odd_effects: 0, delivered: 200, repeated: 4 },
            mailing: Account { messages: counts(199, 1), effects: 199, odd_effects: 0, delivered: 199, repeated: 0 },
            at_kill: AtKill { was_killed: true, held: 20, unacknowledged: 4 },
        }
    }

    #[test]
    fn a_good_run_adds_up() {
        assert!(good().adds_up(), "{:?}", good().checks());
    }

    #[test]
    fn whatever_is_lost_doubled_or_left_behind_is_found() {
        type Spoil = fn(&mut Ledger);
        let table: [(Spoil, &str); 13] = [
            (|ledger| ledger.orders = 199, "= 199 orders"),
            (|ledger| ledger.shipping.messages.done = 199, "199 messages to ship"),
            (|ledger| ledger.mailing.messages.pending = 1, "1 are left"),
            (|ledger| ledger.ghosts = 1, "left 1 orders"),
            (|ledger| ledger.rolled_back = 0, "0 transactions rolled back"),
            (|ledger| ledger.shipping.effects = 199, "= 199 effects"),
            (|ledger| ledger.mailing.messages.dead = 0, "0 dead letter"),
            (|ledger| ledger.shipping.messages = Counts { done: 199, dead: 1, ..Counts::default() }, "2 dead letter"),
            (|ledger| ledger.at_kill.was_killed = false, "worker 1"),
            (|ledger| ledger.at_kill.unacknowledged = 0, "worker 1"),
            (|ledger| ledger.shipping.delivered = 199, "shipping"),
            (|ledger| ledger.shipping.repeated = 3, "3 delivered twice"),
            (|ledger| ledger.shipping.odd_effects = 1, "took effect once"),
        ];
        for (spoil, words) in table {
            let mut ledger = good();
            spoil(&mut ledger);
            let found = ledger.checks().into_iter().filter(|(holds, _)| !holds);
            let found: Vec<String> = found.map(|(_, words)| words).collect();
            assert!(found.iter().any(|line| line.contains(words)), "{words}: {found:?}");
        }
    }
}
