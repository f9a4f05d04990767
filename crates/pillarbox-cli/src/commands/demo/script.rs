//! What will happen in the demo, drawn from its seed before anything does.

use std::time::Duration;

/// Handlers that run at one time in every process of the demo.
pub(super) const WORKER_COUNT: u32 = 4;

/// The whole demo, decided in advance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Script {
    /// While the shop's own process handles the messages.
    pub(super) at_home: Vec<Order>,
    /// While worker 1 does.
    pub(super) before_kill: Vec<Order>,
    /// While nobody does.
    pub(super) after_kill: Vec<Order>,
    /// Shipments after which the handlers of worker 1 get no answer any more.
    pub(super) stall_after: u32,
    /// Between two orders.
    pub(super) pace: Duration,
    /// How long a message stays with a process that is not heard of any more.
    pub(super) lease: Duration,
}

/// A customer at the till.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) id: u32,
    pub(super) total_cents: u32,
    /// The customer leaves before paying: the transaction is rolled back.
    pub(super) is_abandoned: bool,
    pub(super) carrier: Carrier,
    pub(super) has_mailbox: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) enum Carrier {
    Reliable,
    /// Times out twice, and takes the parcel then.
    Slow,
}

/// How much happens, and how fast.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) at_home: u32,
    pub(super) before_kill: u32,
    pub(super) after_kill: u32,
    pub(super) pace: Duration,
    pub(super) lease: Duration,
}

impl Size {
    pub(super) const WHOLE: Self = Self {
        at_home: 120,
        before_kill: 60,
        after_kill: 40,
        pace: Duration::from_millis(25),
        lease: Duration::from_secs(3),
    };
    pub(super) const QUICK: Self =
        Self { at_home: 20, before_kill: 20, after_kill: 10, pace: Duration::ZERO, lease: Duration::from_secs(1) };
}

impl Script {
    pub(super) fn new(seed: u64, size: Size) -> Self {
        let mut dice = Dice(seed);
        let mut next_id = 1;
        let mut at_home = orders(size.at_home, &mut next_id, &mut dice);
        let before_kill = orders(size.before_kill, &mut next_id, &mut dice);
        let after_kill = orders(size.after_kill, &mut next_id, &mut dice);
        misfortunes(&mut at_home, &mut dice);
        let stall_after = size.before_kill / 4 + dice.below(size.before_kill / 4);
        Self { at_home, before_kill, after_kill, stall_after, pace: size.pace, lease: size.lease }
    }

    pub(super) fn orders(&self) -> impl Iterator<Item = &Order> {
        self.at_home.iter().chain(&self.before_kill).chain(&self.after_kill)
    }
}

/// One in ten customers leaves before paying.
fn orders(count: u32, next_id: &mut u32, dice: &mut Dice) -> Vec<Order> {
    let mut orders: Vec<Order> = (0..count)
        .map(|index| Order {
            id: *next_id + index,
            total_cents: 100 + dice.below(9_900),
            is_abandoned: false,
            carrier: Carrier::Reliable,
            has_mailbox: true,
        })
        .collect();
    *next_id += count;
    for tenth in orders.chunks_mut(10) {
        let at = dice.index(tenth.len());
        tenth[at].is_abandoned = true;
    }
    orders
}

/// One order meets a slow carrier and another one has no mailbox; early enough to be seen to the end.
fn misfortunes(orders: &mut [Order], dice: &mut Dice) {
    let half = orders.len() / 2;
    let mut paid: Vec<&mut Order> = orders[..half].iter_mut().filter(|order| !order.is_abandoned).collect();
    let slow = dice.index(paid.len());
    paid.remove(slow).carrier = Carrier::Slow;
    let unknown = dice.index(paid.len());
    paid.remove(unknown).has_mailbox = false;
}

/// SplitMix64: the same numbers on every machine and in every version.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        u32::try_from(mixed % u64::from(limit.max(1))).unwrap_or(0)
    }

    fn index(&mut self, length: usize) -> usize {
        self.below(u32::try_from(length).unwrap_or(u32::MAX)) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_is_one_script() {
        for size in [Size::WHOLE, Size::QUICK] {
            assert_eq!(Script::new(7, size), Script::new(7, size));
            assert_ne!(Script::new(7, size), Script::new(8, size));
        }
    }

    #[test]
    fn every_script_has_all_that_the_demo_shows() {
        for seed in 0..500 {
            for size in [Size::WHOLE, Size::QUICK] {
                let script = Script::new(seed, size);
                let paid = || script.orders().filter(|order| !order.is_abandoned);
                let count = size.at_home + size.before_kill + size.after_kill;
                let ids: Vec<u32> = script.orders().map(|order| order.id).collect();
                assert_eq!(ids, (1..=count).collect::<Vec<_>>());
                assert_eq!(paid().count(), count as usize * 9 / 10);
                assert_eq!(paid().filter(|order| order.carrier == Carrier::Slow).count(), 1);
                assert_eq!(paid().filter(|order| !order.has_mailbox).count(), 1);
                let shipped_by_worker = script.before_kill.iter().filter(|order| !order.is_abandoned).count();
                assert!(
                    (script.stall_after + WORKER_COUNT) as usize <= shipped_by_worker,
                    "{seed}: it would never stall"
                );
            }
        }
    }
}
