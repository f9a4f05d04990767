use super::*;

fn queue(hot: usize, cold: usize, routes: Vec<Lane>) -> Queue<u32> {
    Queue::new(hot, cold, routes)
}

fn fill(queue: &Queue<u32>, path: Path, route: usize, entries: impl IntoIterator<Item = u32>) {
    let entries: Vec<_> = entries.into_iter().map(|entry| (route, entry)).collect();
    assert_eq!(queue.reserve(path, entries.len()), entries.len());
    assert!(queue.push(path, entries).is_empty());
}

/// Takes everything that can be taken without anything finishing.
fn drain(queue: &Queue<u32>) -> Vec<Vec<u32>> {
    std::iter::from_fn(|| queue.try_next())
        .map(|work| match work.entries {
            Entries::One(entry) => vec![entry],
            Entries::Batch(entries) => entries,
        })
        .collect()
}

/// HOT-08.
#[test]
fn two_hot_entries_leave_for_each_cold_one() {
    let queue = queue(10, 10, vec![Lane::Shared]);
    fill(&queue, Path::Hot, 0, 0..6);
    fill(&queue, Path::Cold, 0, 100..105);
    let order: Vec<u32> = drain(&queue).concat();
    assert_eq!(order, [0, 1, 100, 2, 3, 101, 4, 5, 102, 103, 104]);
}

/// HOT-07.
#[test]
fn both_queues_are_bounded_and_room_is_reserved_before_it_is_used() {
    let queue = queue(3, 2, vec![Lane::Shared]);
    assert_eq!(queue.reserve(Path::Hot, 2), 2);
    assert_eq!(queue.reserve(Path::Hot, 2), 1, "what is reserved counts");
    assert_eq!(queue.reserve(Path::Hot, 1), 0);
    assert!(!queue.give_back(Path::Hot, 2));
    assert_eq!(queue.push(Path::Hot, vec![(0, 1)]), []);
    assert_eq!(queue.reserve(Path::Hot, 9), 2, "the entry takes its place");
    assert_eq!(queue.depths(), Depths { hot: 1, cold: 0 });
    assert_eq!(queue.reserve(Path::Cold, 9), 2);
}

#[test]
fn whoever_waits_for_room_is_told_once() {
    let queue = queue(0, 4, vec![Lane::Shared]);
    fill(&queue, Path::Cold, 0, 0..4);
    assert_eq!(queue.reserve_cold(2, 4), 0);
    let news: Vec<bool> = std::iter::from_fn(|| queue.try_next()).map(|work| work.made_room).collect();
    assert_eq!(news, [false, true, false, false]);
    assert_eq!(queue.reserve_cold(2, 3), 3);
    assert_eq!(queue.reserve_cold(2, 3), 0, "one place is less than two");
    assert!(queue.give_back(Path::Cold, 3));
    assert_eq!(queue.reserve_cold(9, 3), 3, "a queue that is smaller than what is wanted is enough when empty");
}

/// HOT-09, OBX-060.
#[test]
fn a_route_with_a_limit_runs_no_more_at_once_and_holds_up_nobody() {
    let queue = queue(0, 10, vec![Lane::Own { concurrency_max: 2, batch_max: None }, Lane::Shared]);
    fill(&queue, Path::Cold, 0, 0..5);
    fill(&queue, Path::Cold, 1, 100..102);
    assert_eq!(drain(&queue).concat(), [0, 1, 100, 101]);
    assert_eq!(queue.depths().cold, 3, "those that wait for their route count");
    queue.finished(0);
    assert_eq!(drain(&queue).concat(), [2]);
    queue.finished(0);
    queue.finished(0);
    assert_eq!(drain(&queue).concat(), [3, 4]);
    queue.finished(0);
    queue.finished(0);
    fill(&queue, Path::Cold, 0, 7..8);
    assert_eq!(drain(&queue).concat(), [7], "the limit is free again");
}

#[test]
fn a_batch_takes_what_waits_up_to_its_size() {
    let queue = queue(10, 10, vec![Lane::Own { concurrency_max: usize::MAX, batch_max: Some(3) }]);
    fill(&queue, Path::Cold, 0, 0..7);
    fill(&queue, Path::Hot, 0, 7..8);
    assert_eq!(drain(&queue), [vec![0, 1, 2], vec![3, 4, 5], vec![6, 7]]);
    assert_eq!(queue.depths(), Depths::default());
    fill(&queue, Path::Hot, 0, 8..9);
    assert_eq!(drain(&queue), [vec![8]]);
}

#[test]
fn batches_of_a_route_with_a_limit_grow_while_one_runs() {
    let queue = queue(10, 10, vec![Lane::Own { concurrency_max: 1, batch_max: Some(10) }]);
    fill(&queue, Path::Hot, 0, 0..1);
    assert_eq!(drain(&queue), [vec![0]]);
    fill(&queue, Path::Hot, 0, 1..3);
    fill(&queue, Path::Cold, 0, 3..4);
    assert_eq!(drain(&queue), Vec::<Vec<u32>>::new());
    queue.finished(0);
    assert_eq!(drain(&queue), [vec![1, 2, 3]]);
}

/// HOT-13.
#[test]
fn a_closed_queue_gives_everything_back_and_accepts_nothing() {
    let queue = queue(10, 10, vec![Lane::Shared, Lane::Own { concurrency_max: 1, batch_max: None }]);
    fill(&queue, Path::Hot, 0, 0..2);
    fill(&queue, Path::Cold, 1, 2..5);
    assert_eq!(queue.reserve(Path::Hot, 1), 1);
    assert_eq!(queue.close(), [0, 1, 2, 3, 4]);
    assert_eq!(queue.push(Path::Hot, vec![(0, 9)]), [(0, 9)], "what was reserved before comes back");
    assert_eq!(queue.reserve(Path::Hot, 1), 0);
    assert_eq!(queue.reserve_cold(1, 1), 0);
    queue.finished(1);
    assert_eq!(queue.try_next(), None);
    assert_eq!(queue.close(), [] as [u32; 0]);
}
