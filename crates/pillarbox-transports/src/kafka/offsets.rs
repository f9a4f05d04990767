//! Which offset of a partition may be committed: the one behind which everything is settled. Pure.

use std::collections::{HashMap, VecDeque};

/// One delivery, as the subscription calls it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KafkaTag {
    partition: i32,
    offset: i64,
    /// Tells deliveries from before a partition was revoked, or read again, from those after it.
    epoch: u64,
}

impl KafkaTag {
    pub(super) fn place(&self) -> (i32, i64) {
        (self.partition, self.offset)
    }
}

/// A partition and an offset in it.
pub(super) type Place = (i32, i64);

/// What is to be done after a settle.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Moves {
    /// The next offset to be read by whoever comes after us.
    pub(super) commits: Vec<Place>,
    /// Where to read again.
    pub(super) rewinds: Vec<Place>,
}

/// Deliveries of all partitions that are not settled, or behind one that is not.
#[derive(Debug, Default)]
pub(super) struct Offsets {
    partitions: HashMap<i32, Held>,
    epoch: u64,
}

#[derive(Debug)]
struct Held {
    epoch: u64,
    /// In order of their offsets.
    deliveries: VecDeque<(i64, Mark)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    Open,
    Done,
    Again,
}

impl Offsets {
    pub(super) fn delivered(&mut self, partition: i32, offset: i64) -> KafkaTag {
        let held = self.partitions.entry(partition).or_insert_with(|| {
            self.epoch += 1;
            Held { epoch: self.epoch, deliveries: VecDeque::new() }
        });
        held.deliveries.push_back((offset, Mark::Open));
        KafkaTag { partition, offset, epoch: held.epoch }
    }

    /// Forgets partitions that are somebody else's now: what is settled there later counts for nothing.
    pub(super) fn revoke(&mut self, partitions: impl IntoIterator<Item = i32>) {
        for partition in partitions {
            self.partitions.remove(&partition);
        }
    }

    /// Notes what became of deliveries: done, or to come again.
    pub(super) fn settle(&mut self, outcomes: impl IntoIterator<Item = (KafkaTag, bool)>) -> Moves {
        for (tag, is_done) in outcomes {
            let Some(held) = self.partitions.get_mut(&tag.partition).filter(|held| held.epoch == tag.epoch) else {
                continue;
            };
            if let Ok(at) = held.deliveries.binary_search_by_key(&tag.offset, |(offset, _)| *offset) {
                held.deliveries[at].1 = if is_done { Mark::Done } else { Mark::Again };
            }
        }
        let mut moves = Moves::default();
        for (partition, held) in &mut self.partitions {
            let mut next = None;
            while let Some((offset, _)) = held.deliveries.pop_front_if(|(_, mark)| *mark == Mark::Done) {
                next = Some(offset + 1);
            }
            moves.commits.extend(next.map(|next| (*partition, next)));
            let again = held.deliveries.iter().find(|(_, mark)| *mark == Mark::Again);
            moves.rewinds.extend(again.map(|(offset, _)| (*partition, *offset)));
        }
        // All that comes after a rewind is delivered once more, so nothing that is known of it counts.
        self.revoke(moves.rewinds.iter().map(|(partition, _)| *partition));
        moves.commits.sort_unstable();
        moves.rewinds.sort_unstable();
        moves
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moves(commits: &[Place], rewinds: &[Place]) -> Moves {
        Moves { commits: commits.to_vec(), rewinds: rewinds.to_vec() }
    }

    /// H45: an offset tells that all before it is done, so it waits for all before it.
    #[test]
    fn an_offset_is_committed_when_all_before_it_are_settled() {
        let mut offsets = Offsets::default();
        // Offsets have gaps, where a topic is compacted.
        let tags: Vec<_> = [3, 4, 9].into_iter().map(|offset| offsets.delivered(0, offset)).collect();
        let other = offsets.delivered(1, 7);
        assert_eq!(offsets.settle([(tags[1], true)]), moves(&[], &[]));
        assert_eq!(offsets.settle([(tags[0], true), (other, true)]), moves(&[(0, 5), (1, 8)], &[]));
        assert_eq!(offsets.settle([(tags[2], true)]), moves(&[(0, 10)], &[]));
        assert_eq!(offsets.settle([]), moves(&[], &[]));
    }

    #[test]
    fn what_is_put_off_is_read_again_with_all_after_it() {
        let mut offsets = Offsets::default();
        let tags: Vec<_> = (0..5).map(|offset| offsets.delivered(0, offset)).collect();
        let outcomes = [(tags[0], true), (tags[1], false), (tags[2], true), (tags[3], false)];
        assert_eq!(offsets.settle(outcomes), moves(&[(0, 1)], &[(0, 1)]));
        assert_eq!(offsets.settle([(tags[4], true)]), moves(&[], &[]), "it comes again, and is settled then");
        let again: Vec<_> = (1..5).map(|offset| offsets.delivered(0, offset)).collect();
        assert_eq!(offsets.settle(again.into_iter().map(|tag| (tag, true))), moves(&[(0, 5)], &[]));
    }

    /// H45: what was settled after a partition went to somebody else moves nothing there.
    #[test]
    fn a_revoked_partition_is_not_committed() {
        let mut offsets = Offsets::default();
        let (lost, kept) = (offsets.delivered(0, 5), offsets.delivered(1, 5));
        offsets.revoke([0]);
        assert_eq!(offsets.settle([(lost, true), (kept, true)]), moves(&[(1, 6)], &[]));
        let back = offsets.delivered(0, 5);
        assert_eq!(offsets.settle([(lost, true)]), moves(&[], &[]), "an old delivery says nothing of the new one");
        assert_eq!(offsets.settle([(back, true)]), moves(&[(0, 6)], &[]));
    }
}
