//! What a claim asks for, and when a lease is renewed, trusted or lost.

use std::time::Duration;

use crate::id::{Fence, OwnerToken, WorkId};
use crate::order::Order;
use crate::partition::Served;
use crate::pause::LeftOut;
use crate::problem::{Invalid, Problem};

/// The lease that a claim takes when nothing else is said; 10 s to 5 min serve most handlers.
pub const LEASE_DEFAULT: Duration = Duration::from_secs(30);

/// The longest lease; what runs longer renews.
pub const LEASE_MAX: Duration = Duration::from_secs(24 * 3600);

/// Messages in one claim at the most; 1 to 500 serve best.
pub const CLAIM_LIMIT_MAX: u32 = 10_000;

/// A claim: up to `limit` messages for one owner, each under a lease.
///
/// Every claim draws its own [`Fence`], which each settlement must bring back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    lease: Lease,
    limit: u32,
    order: Order,
    served: Option<Served>,
    left_out: LeftOut,
}

impl Claim {
    /// Checks both numbers: the lease must be longer than zero, and at least one message must be asked for.
    pub fn new(owner: OwnerToken, lease: Duration, limit: u32) -> Result<Self, Invalid> {
        let mut problems = Vec::new();
        let lease = Lease::new(owner, lease).map_err(|invalid| problems.extend_from_slice(invalid.problems()));
        if !(1..=CLAIM_LIMIT_MAX).contains(&limit) {
            let complaint = format!("must be 1 to {CLAIM_LIMIT_MAX}, is {limit}");
            let missed = if limit == 0 { 1 } else { u64::from(CLAIM_LIMIT_MAX) };
            problems.push(Problem::out_of_range("limit", missed, complaint));
        }
        Invalid::unless_empty(problems)?;
        let lease = lease.unwrap_or_else(|()| unreachable!("a refused lease was reported above"));
        Ok(Self { lease, limit, order: Order::default(), served: None, left_out: LeftOut::default() })
    }

    /// Asks for another order than that by key, in which a dead message blocks its key.
    #[must_use]
    pub fn in_order(self, order: Order) -> Self {
        Self { order, ..self }
    }

    /// Of the messages with a key only those of the partitions that the caller serves; none asks for all.
    ///
    /// It says who should take what, and guards nothing: a store that knows no partitions brings everything. In sequence, where
    /// all messages have one key, it changes nothing.
    #[must_use]
    pub fn serving(self, served: Option<Served>) -> Self {
        Self { served, ..self }
    }

    /// The partitions to claim from; none when from all.
    pub fn served(&self) -> Option<&Served> {
        self.served.as_ref().filter(|_| !self.order.in_sequence)
    }

    /// Leaves messages of these topics where they are, and later ones of their keys behind them.
    ///
    /// One that waited for its time is brought all the same, once; given back at once, it lies among the others. In sequence,
    /// where all messages have one key, it changes nothing.
    #[must_use]
    pub fn leaving_out(self, left_out: LeftOut) -> Self {
        Self { left_out, ..self }
    }

    /// The topics to leave out.
    pub fn left_out(&self) -> Option<&LeftOut> {
        Some(&self.left_out).filter(|left_out| !left_out.is_empty() && !self.order.in_sequence)
    }

    /// In which order messages are handed out.
    pub fn order(&self) -> Order {
        self.order
    }

    /// The lease that every claimed message gets.
    pub fn lease(&self) -> Lease {
        self.lease
    }

    /// The owner of the lease.
    pub fn owner(&self) -> OwnerToken {
        self.lease.owner
    }

    /// Messages at the most.
    pub fn limit(&self) -> u32 {
        self.limit
    }

    /// Another claim of the same kind, for what this one has room for after it brought some; none when it is full.
    pub fn rest(&self, brought: usize) -> Option<Self> {
        let same = self.remainder(brought)?;
        Some(Self { lease: Lease { fence: Fence::new(), ..self.lease }, ..same })
    }

    /// This claim, for what it has room for after a part of it brought some; none when it is full.
    pub fn remainder(&self, brought: usize) -> Option<Self> {
        let limit = self.limit.checked_sub(u32::try_from(brought).ok()?).filter(|limit| *limit > 0)?;
        Some(Self { limit, ..self.clone() })
    }
}

/// The right of one owner to one message for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lease {
    owner: OwnerToken,
    fence: Fence,
    duration: Duration,
}

impl Lease {
    /// A lease with a fresh fence.
    pub fn new(owner: OwnerToken, duration: Duration) -> Result<Self, Invalid> {
        // Databases count microseconds: what is shorter would be no lease at all.
        if duration < Duration::from_micros(1) {
            return Err(Problem::out_of_range("lease", 1, "must be longer than zero").into());
        }
        if duration > LEASE_MAX {
            let complaint = format!("must be at most {} seconds", LEASE_MAX.as_secs());
            return Err(Problem::out_of_range("lease", LEASE_MAX.as_secs(), complaint).into());
        }
        Ok(Self { owner, fence: Fence::new(), duration })
    }

    /// Who holds it.
    pub fn owner(&self) -> OwnerToken {
        self.owner
    }

    /// What settlements must bring back.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// How long it lasts from the database's now.
    pub fn duration(&self) -> Duration {
        self.duration
    }
}

/// A message held under a lease: what renewing and settling need to know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Held {
    /// The row.
    pub work_id: WorkId,
    /// The fence of the claim that took it.
    pub fence: Fence,
}

/// Rows of one claim that stand beside each other, none of them left out: a database finds them in one walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// The first row.
    pub first: WorkId,
    /// The last row.
    pub last: WorkId,
    /// The fence of the claim that took them.
    pub fence: Fence,
}

impl Stretch {
    /// All of these, which are sorted by their rows and name each once; nothing when they are no stretch.
    pub fn of(held: &[Held]) -> Option<Self> {
        let (first, last) = (held.first()?, held.last()?);
        let span = usize::try_from(last.work_id.as_i64().checked_sub(first.work_id.as_i64())?).ok()?;
        let is_whole = span == held.len() - 1 && held.iter().all(|held| held.fence == first.fence);
        is_whole.then_some(Self { first: first.work_id, last: last.work_id, fence: first.fence })
    }

    /// Whether this row is one of them, under the same claim.
    pub fn has(&self, held: Held) -> bool {
        self.fence == held.fence && (self.first..=self.last).contains(&held.work_id)
    }
}

/// Whether a lease should be renewed now: at 60 % of its time.
pub fn should_renew(lease: Duration, held_for: Duration) -> bool {
    held_for >= lease.mul_f64(0.6)
}

/// Whether a handler may still be started: at least 20 % of the lease must be left.
pub fn may_start(lease: Duration, held_for: Duration) -> bool {
    held_for <= lease.mul_f64(0.8)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn fields(refused: &Invalid) -> Vec<&'static str> {
        refused.problems().iter().map(Problem::field).collect()
    }

    #[test]
    fn a_claim_names_every_argument_that_is_out_of_range() {
        let owner = OwnerToken::new();
        assert_eq!(fields(&Claim::new(owner, Duration::ZERO, 0).unwrap_err()), ["lease", "limit"]);
        assert_eq!(fields(&Claim::new(owner, SECOND, CLAIM_LIMIT_MAX + 1).unwrap_err()), ["limit"]);
        assert_eq!(fields(&Claim::new(owner, LEASE_MAX + SECOND, 1).unwrap_err()), ["lease"]);
        assert!(Claim::new(owner, LEASE_MAX, CLAIM_LIMIT_MAX).is_ok());
    }

    #[test]
    fn two_claims_never_share_a_fence() {
        let owner = OwnerToken::new();
        let fence = || Claim::new(owner, SECOND, 1).unwrap().lease().fence();
        let claim = Claim::new(owner, SECOND, 10).unwrap();
        assert_eq!(claim.remainder(7).map(|part| (part.limit(), part.lease())), Some((3, claim.lease())));
        let rest = claim.rest(7).unwrap();
        assert_eq!((rest.limit(), rest.owner(), rest.lease().duration()), (3, owner, SECOND));
        assert_ne!(rest.lease().fence(), claim.lease().fence());
        assert_eq!([claim.rest(10), claim.rest(11), claim.rest(usize::MAX)], [None, None, None]);
        assert_ne!(fence(), fence());
    }

    /// H9: rows between those of a claim, or of another claim, are nobody's to settle.
    #[test]
    fn rows_of_one_claim_are_a_stretch_when_none_between_them_is_missing() {
        let ends = |rows: &[(i64, i64)]| {
            let held =
                |(id, fence): &(i64, i64)| Held { work_id: WorkId::from_i64(*id), fence: Fence::from_i64(*fence) };
            let stretch = Stretch::of(&rows.iter().map(held).collect::<Vec<_>>())?;
            Some((stretch.first.as_i64(), stretch.last.as_i64(), stretch.fence.as_i64()))
        };
        assert_eq!(ends(&[]), None);
        assert_eq!(ends(&[(7, 1)]), Some((7, 7, 1)));
        assert_eq!(ends(&[(7, 1), (8, 1), (9, 1)]), Some((7, 9, 1)));
        assert_eq!(ends(&[(7, 1), (9, 1)]), None, "a gap");
        assert_eq!(ends(&[(7, 1), (8, 2)]), None, "two claims");
        assert_eq!(ends(&[(i64::MIN, 1), (i64::MAX, 1)]), None, "too far apart to count");
    }

    /// H22: a row is in a stretch under the claim that took it, and under no other.
    #[test]
    fn a_stretch_has_the_rows_of_its_claim() {
        let held = |id, fence| Held { work_id: WorkId::from_i64(id), fence: Fence::from_i64(fence) };
        let stretch = Stretch::of(&[held(7, 1), held(8, 1), held(9, 1)]).unwrap();
        assert!([7, 8, 9].into_iter().all(|id| stretch.has(held(id, 1)) && !stretch.has(held(id, 2))));
        assert!(!stretch.has(held(6, 1)) && !stretch.has(held(10, 1)));
    }

    #[test]
    fn leases_are_renewed_at_60_percent_and_not_started_with_less_than_20_left() {
        let lease = SECOND * 10;
        assert!(!should_renew(lease, SECOND * 5));
        assert!(should_renew(lease, SECOND * 6));
        assert!(may_start(lease, SECOND * 8));
        assert!(!may_start(lease, SECOND * 9));
    }
}
