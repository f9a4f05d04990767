use super::*;

const MS: Duration = Duration::from_millis(1);
const IDLE: Situation = Situation { has_verdicts: false, may_claim_at: Tick::from_zero() };
const BUSY: Situation = Situation { has_verdicts: true, may_claim_at: Tick::from_zero() };

fn timing() -> Timing {
    Timing {
        poll_interval: MS * 500,
        idle_interval: MS * 10_000,
        settle_interval: MS * 2,
        call_count: 2,
        outage_max: MS * 1000,
        backs_off: false,
        drains: false,
    }
}

fn at(millis: u32) -> Tick {
    Tick::default().after(MS * millis)
}

/// A schedule whose first claim, at 0, came back with nothing.
fn idle() -> Schedule {
    let mut schedule = Schedule::new(timing());
    let claim = schedule.begin_claim(at(0)).unwrap();
    schedule.claimed(at(0), claim, 0, 200, 0.5);
    schedule
}

/// HOT-10: a runtime looks for messages as soon as it starts.
#[test]
fn the_first_thing_is_a_claim() {
    assert_eq!(Schedule::new(timing()).step(at(0), IDLE), Step::Claim);
}

/// OBX-103, HOT-10.
#[test]
fn without_wake_ups_an_idle_store_is_asked_at_the_poll_interval() {
    let mut schedule = idle();
    for turn in 1..10 {
        assert_eq!(schedule.step(at(turn * 500 - 1), IDLE), Step::Wait(at(turn * 500)));
        let claim = schedule.begin_claim(at(turn * 500)).unwrap();
        schedule.claimed(at(turn * 500), claim, 0, 200, 0.5);
    }
}

/// OBX-103, H35: at most 0.2 calls a second, of which claims are half.
#[test]
fn with_wake_ups_the_polls_back_off_to_the_idle_interval() {
    let mut schedule = idle();
    schedule.set_wakeups(true);
    let (mut now, mut count) = (at(0), 0);
    while now < at(1_000_000) {
        let Step::Wait(until) = schedule.step(now, IDLE) else { panic!("nothing was due") };
        now = until;
        let claim = schedule.begin_claim(now).unwrap();
        schedule.claimed(now, claim, 0, 200, 0.5);
        count += 1;
    }
    assert!(count <= 107, "{count} claims in 1000 s");
    schedule.set_wakeups(false);
    assert_eq!(schedule.step(now, IDLE), Step::Claim, "what was missed is looked for at once");
}

/// OBX-103: hundreds of stores are looked at when they start, and then each at a time of its own.
#[test]
fn a_store_of_a_fleet_is_idle_from_its_first_look_on() {
    for (dice, wait) in [(0.0, 500), (0.25, 2_500), (0.5, 5_000), (1.0, 10_000)] {
        let mut schedule = Schedule::new(Timing { backs_off: true, ..timing() });
        let claim = schedule.begin_claim(at(0)).unwrap();
        schedule.claimed(at(0), claim, 0, 200, dice);
        assert_eq!(schedule.step(at(0), IDLE), Step::Wait(at(wait)));
    }
}

/// BUS-05.
#[test]
fn a_nudge_is_a_claim_at_once() {
    let mut schedule = idle();
    assert_eq!(schedule.step(at(1), IDLE), Step::Wait(at(500)));
    schedule.nudge();
    assert_eq!(schedule.step(at(1), IDLE), Step::Claim);
    assert!(schedule.begin_claim(at(1)).is_some());
    assert!(schedule.begin_claim(at(1)).is_none(), "one nudge is one claim");
}

/// H29: what was committed after the claim looked must not wait for the next poll.
#[test]
fn a_nudge_during_a_claim_is_another_claim() {
    let mut schedule = idle();
    schedule.nudge();
    let claim = schedule.begin_claim(at(1)).unwrap();
    schedule.nudge();
    schedule.claimed(at(2), claim, 0, 200, 0.5);
    assert_eq!(schedule.step(at(2), IDLE), Step::Claim);
}

#[test]
fn a_full_claim_lets_every_loop_claim() {
    let mut schedule = idle();
    schedule.nudge();
    let claim = schedule.begin_claim(at(1)).unwrap();
    schedule.claimed(at(2), claim, 200, 200, 0.5);
    assert!(schedule.begin_claim(at(2)).is_some());
    assert!(schedule.begin_claim(at(2)).is_some());
    assert!(schedule.begin_claim(at(2)).is_none());
}

#[test]
fn a_due_time_is_a_claim() {
    let mut schedule = idle();
    schedule.comes_back(at(0), MS * 20);
    assert_eq!(schedule.step(at(1), IDLE), Step::Wait(at(20)));
    assert!(schedule.begin_claim(at(20)).is_some());
    assert!(schedule.begin_claim(at(20)).is_none());
}

#[test]
fn a_lone_verdict_goes_at_once_and_many_go_together() {
    let mut schedule = idle();
    assert_eq!(schedule.step(at(10), BUSY), Step::Settle);
    schedule.begin_settle(at(10));
    assert_eq!(schedule.step(at(10), BUSY), Step::Wait(at(12)));
    schedule.settled(at(11), MS * 3);
    assert_eq!(schedule.step(at(12), BUSY), Step::Wait(at(23)), "a slow store is left alone for longer");
    schedule.settled(at(30), MS * 300);
    assert_eq!(schedule.step(at(31), BUSY), Step::Wait(at(50)), "but not for long");
}

#[test]
fn verdicts_ride_with_a_claim() {
    let mut schedule = idle();
    schedule.nudge();
    assert_eq!(schedule.step(at(10), BUSY), Step::Claim);
    let full = Situation { may_claim_at: Tick::NEVER, ..BUSY };
    assert_eq!(schedule.step(at(10), full), Step::Settle, "no room to claim: they do not wait for it");
}

/// H35: one call tries, with growing pauses; H20: and never more than a second apart.
#[test]
fn while_the_store_is_away_one_call_at_a_time_tries_it() {
    let mut schedule = idle();
    schedule.begin_settle(at(10));
    assert!(schedule.failed(at(10), false, 1.0), "it was there until now");
    assert_eq!(schedule.step(at(10), BUSY), Step::Wait(at(60)));
    assert!(schedule.begin_claim(at(10)).is_none());
    schedule.begin_settle(at(60));
    assert!(matches!(schedule.step(at(60), BUSY), Step::Wait(until) if until > at(1000)), "the others wait");
    let mut now = at(60);
    for _ in 0..20 {
        assert!(!schedule.failed(now, false, 1.0));
        let Step::Wait(until) = schedule.step(now, BUSY) else { panic!("it waits") };
        assert!(until.since(now) <= Duration::from_secs(1));
        now = until;
    }
    schedule.settled(now, MS);
    assert!(!schedule.is_out());
}

#[test]
fn a_failed_claim_is_repeated() {
    let mut schedule = idle();
    schedule.nudge();
    schedule.begin_claim(at(10)).unwrap();
    schedule.failed(at(11), true, 0.0);
    assert_eq!(schedule.step(at(11), IDLE), Step::Wait(at(36)));
    assert_eq!(schedule.step(at(36), IDLE), Step::Claim);
}

/// HOT-13.
#[test]
fn a_closed_schedule_settles_and_claims_no_more() {
    let mut schedule = idle();
    schedule.nudge();
    schedule.close();
    assert_eq!(schedule.step(at(600), IDLE), Step::Wait(Tick::NEVER));
    assert!(schedule.begin_claim(at(600)).is_none());
    assert_eq!(schedule.step(at(600), BUSY), Step::Settle);
}

#[test]
fn emptiness_is_known_only_from_a_claim_that_began_later() {
    let mut schedule = idle();
    let mark = schedule.began_count();
    assert!(!schedule.is_empty_since(mark));
    schedule.nudge();
    let claim = schedule.begin_claim(at(1)).unwrap();
    assert!(!schedule.is_empty_since(mark));
    schedule.claimed(at(2), claim, 1, 200, 0.5);
    assert!(!schedule.is_empty_since(mark));
    schedule.nudge();
    let claim = schedule.begin_claim(at(3)).unwrap();
    schedule.claimed(at(4), claim, 0, 200, 0.5);
    assert!(schedule.is_empty_since(mark));
}

/// OBX-103: a store of a fleet that is idle again is asked ever more rarely, also without wake-ups.
#[test]
fn in_a_fleet_idle_stores_are_asked_ever_more_rarely() {
    let mut schedule = Schedule::new(Timing { backs_off: true, ..timing() });
    let (mut now, mut waits) = (at(0), Vec::new());
    for found in [3, 0, 0, 0, 0, 0, 0, 1] {
        let claim = schedule.begin_claim(now).unwrap();
        schedule.claimed(now, claim, found, 200, 0.5);
        let Step::Wait(until) = schedule.step(now, IDLE) else { panic!("nothing was due") };
        waits.push(until.since(now).as_millis());
        now = until;
    }
    assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 10_000, 10_000, 500]);
}

/// OBX-069, IBX-088: a store is drained to the end, not to the first batch that is not full.
#[test]
fn a_schedule_that_drains_claims_until_nothing_is_found() {
    let mut schedule = Schedule::new(Timing { drains: true, ..timing() });
    for (count, next) in [(7, Step::Claim), (0, Step::Wait(at(500)))] {
        let claim = schedule.begin_claim(at(0)).unwrap();
        schedule.claimed(at(0), claim, count, 200, 0.5);
        if count > 0 {
            // Of the calls that were asked for, this one is enough.
            schedule.wanted = 1;
        }
        assert_eq!(schedule.step(at(0), IDLE), next);
    }
}
