//! Leases of stretches: rows that stand beside each other are leased by one row of their own, and are written only when they go.
//!
//! A claim of many takes two calls: one that leases, one that reads. Why, is said at `outbox_take` in
//! `migrations/0002_outbox_routines.sql`.

use pillarbox_core::StoreError;
use pillarbox_core::lease::Claim;
use pillarbox_core::store::CONFLICT_RETRIES_MAX;
use sqlx::postgres::PgRow;

use crate::row;
use crate::store::{PostgresStore, pause};

/// Fewer rows are written one by one: that takes fewer calls.
pub(crate) const STRETCH_MIN: u32 = 256;

/// No stretch is leased where other statements look at the owners of rows.
pub(crate) const NO_STRETCHES: u32 = u32::MAX;

/// What a claim brought.
pub(crate) enum Brought {
    /// Messages.
    Rows(Vec<PgRow>),
    /// Messages whose stretches are leased, and whether others may be left.
    Stretches(Vec<PgRow>, bool),
    /// Nothing, because others were faster: rows are to be claimed.
    Nothing,
}

/// What a claim has leased.
#[derive(Debug, PartialEq, Eq)]
struct Stretches {
    /// First and last rows, sorted; those that stand beside each other are one.
    ranges: Vec<(i64, i64)>,
    row_count: usize,
    has_rest: bool,
}

impl PostgresStore {
    /// Reads the messages of the stretches that a claim has leased; what it brought itself stays as it is.
    pub(crate) async fn read_stretches(&self, claim: &Claim, rows: Vec<PgRow>) -> Result<Brought, StoreError> {
        if !rows.first().is_some_and(row::is_stretch) {
            return Ok(Brought::Rows(rows));
        }
        let leased = rows.iter().map(|row| Ok((row::get(row, 0)?, row::get(row, 5)?, row::get::<i32>(row, 6)? != 0)));
        let stretches = Stretches::new(leased.collect::<Result<_, StoreError>>()?);
        if stretches.row_count == 0 {
            return Ok(Brought::Nothing);
        }
        let mut races = 0;
        loop {
            let read = self.sql().claim_stretch(&stretches.ranges, races > 0);
            let read = self.fetch(&read, |query| query).await;
            match read {
                Ok(rows) if rows.len() == stretches.row_count => {
                    return Ok(Brought::Stretches(rows, stretches.has_rest));
                }
                Ok(_) if races < CONFLICT_RETRIES_MAX => {
                    races += 1;
                    pause(races).await;
                }
                read => {
                    // Should this fail as well, the leases run out.
                    let (owner, fence) = (claim.owner().as_uuid(), claim.lease().fence().as_i64());
                    let ended = self.execute(&self.sql().lease_end, |query| query.bind(owner).bind(fence)).await;
                    return read.and(ended).map(|_| Brought::Nothing);
                }
            }
        }
    }
}

impl Stretches {
    /// From first rows, how many rows there are of each, and whether there are others.
    fn new(mut leased: Vec<(i64, i32, bool)>) -> Self {
        leased.sort_unstable();
        let mut stretches = Self { ranges: Vec::new(), row_count: 0, has_rest: false };
        for (first, row_count, has_rest) in leased {
            stretches.row_count += usize::try_from(row_count).unwrap_or_default();
            stretches.has_rest |= has_rest;
            let end = first.saturating_add(row_count.into());
            match stretches.ranges.last_mut() {
                Some((_, last)) if *last == first - 1 => *last = end - 1,
                _ => stretches.ranges.push((first, end - 1)),
            }
        }
        stretches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stretches_beside_each_other_are_read_as_one() {
        let leased = vec![(501, 500, true), (1, 500, true), (1_001, 3, true), (2_000, 1, true)];
        let ranges = vec![(1, 1_003), (2_000, 2_000)];
        assert_eq!(Stretches::new(leased), Stretches { ranges, row_count: 1_004, has_rest: true });
        assert_eq!(Stretches::new(vec![(0, 0, true)]).row_count, 0, "others were faster");
    }
}
