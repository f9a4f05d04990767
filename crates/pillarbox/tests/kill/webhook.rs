//! A webhook receiver that is killed with SIGKILL again and again while deliveries come in: whatever it has answered with
//! 2xx is in the inbox, and each delivery takes effect once, however often its sender comes again.

mod receiver;
mod senders;

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;

use pillarbox::WithInbox;
use pillarbox::admin::{Filter, ListQuery};
use pillarbox::inbox::{Inbox, InboxState};
use pillarbox::outbox::State;
use pillarbox::prelude::*;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::halting::Point;
use super::worker::{Worker, reached};
use super::{Backend, PATIENCE, POLL, Place, fresh_place};
use receiver::{Desk, EFFECT, LISTENING, RECEIVER};
use senders::{Delivery, Senders};

/// Kills between the moment that a delivery is found good and its commit.
const KILLS_BEFORE_COMMIT: u32 = 50;

/// Kills at any other moment.
const KILLS_ELSEWHERE: u32 = 24;

/// Where a receiver stands still on the way to its commit.
const BEFORE_COMMIT: [Point; 2] = [Point::Accepting, Point::InTransaction];

/// Where it stands still on the way back from it, and behind it.
const ELSEWHERE: [Point; 3] = [Point::Unanswered, Point::InHandler, Point::BeforeSettle];

/// When a receiver is killed.
#[derive(Debug)]
enum Moment {
    /// So many deliveries were sent to it.
    Sent(usize),
    /// So many were answered.
    Answered(usize),
    /// It stands at a point that it has passed so often before.
    Reached(Point, u32),
}

impl Moment {
    /// All of them, those on the way to a commit mixed with the others.
    fn of_all_kills(dice: &mut StdRng) -> Vec<Self> {
        let mut reached = |points: &[Point], number: u32| {
            Self::Reached(points[number as usize % points.len()], dice.random_range(0..6))
        };
        let mut moments: Vec<_> = (0..KILLS_BEFORE_COMMIT).map(|number| reached(&BEFORE_COMMIT, number)).collect();
        moments.extend((0..KILLS_ELSEWHERE / 3).map(|number| reached(&ELSEWHERE, number)));
        moments.extend((0..KILLS_ELSEWHERE / 3).map(|_| Self::Sent(dice.random_range(1..24))));
        moments.extend((0..KILLS_ELSEWHERE / 3).map(|_| Self::Answered(dice.random_range(0..16))));
        moments.shuffle(dice);
        moments
    }

    /// The point as the receiver is told of it.
    fn point(&self) -> Option<String> {
        match self {
            Self::Reached(point, passes) => Some(format!("{point} {passes}")),
            Self::Sent(_) | Self::Answered(_) => None,
        }
    }
}

/// The tables, and the senders with what they remember.
struct Siege<B: Backend> {
    place: Place,
    desk: Desk<B::Store>,
    senders: Senders,
    _folder: TempDir,
}

impl<B: Backend> Siege<B> {
    async fn new(seed: u64) -> Self {
        let (place, folder) = fresh_place::<B>();
        let desk = Desk::open::<B>(&place).await;
        let senders = Senders::new(seed, &place.schema);
        Self { place, desk, senders, _folder: folder }
    }

    fn inbox(&self) -> &Inbox<B::Store> {
        &self.desk.inbox
    }

    /// A receiver is started, gets deliveries from many senders, and is killed at the moment.
    async fn kill_at(&self, moment: Moment) -> Vec<Delivery> {
        let mut receiver = Worker::start::<B>(RECEIVER, &self.place, moment.point().as_deref());
        let address = receiver.said(LISTENING).await.parse().unwrap();
        let mut round = self.senders.begin(address);
        match moment {
            Moment::Sent(count) => round.sent(count).await,
            Moment::Answered(count) => round.answered(count).await,
            Moment::Reached(point, _) => reached(&mut receiver, point).await,
        }
        assert_eq!(receiver.kill().signal(), Some(9), "it was killed, and did not end by itself");
        round.end().await
    }

    /// Everything that was not answered is sent again, to a receiver that lives long enough.
    async fn send_the_rest(&self) {
        let mut receiver = Worker::start::<B>(RECEIVER, &self.place, None);
        let address = receiver.said(LISTENING).await.parse().unwrap();
        self.senders.send_the_rest(address).await;
        receiver.kill();
    }

    /// A process that nobody kills handles what the others have left in the queue.
    async fn handle_the_rest(&self) {
        let (sender, mut handled) = mpsc::unbounded_channel();
        let runtime = self.desk.runtime(POLL, Some(sender)).start().await.unwrap();
        loop {
            runtime.idle().await;
            let left = self.inbox().store().admin().overview().await.unwrap().total();
            if left.pending + left.processing == 0 {
                break;
            }
            // What a killed receiver held comes when its lease has run out.
            handled.recv().await.unwrap();
        }
        runtime.shutdown(PATIENCE).await;
    }

    /// How often each delivery took effect.
    async fn effects(&self) -> BTreeMap<Delivery, usize> {
        let query = ListQuery { state: State::Pending, filter: Filter::topic(EFFECT), after: None, limit: 10_000 };
        let page = self.desk.outbox.store().list(&query).await.unwrap();
        assert_eq!(page.next, None, "one page holds all effects");
        let mut effects = BTreeMap::new();
        for stored in page.messages {
            *effects.entry(Delivery::of_payload(stored.message.unwrap().payload())).or_default() += 1;
        }
        effects
    }
}

async fn state_of<S: WithInbox>(inbox: &Inbox<S>, delivery: Delivery) -> Option<InboxState> {
    let record = inbox.store().get(delivery.source(), &delivery.message_id()).await.unwrap();
    record.map(|record| record.state)
}

/// H58, BUS-03, WRK-10.
async fn a_receiver_that_is_killed_answers_nothing_that_it_has_not_stored<B: Backend>() {
    let siege = Siege::<B>::new(58).await;
    let mut dice = StdRng::seed_from_u64(58);
    for (number, moment) in Moment::of_all_kills(&mut dice).into_iter().enumerate() {
        let killed = format!("kill {number}: {moment:?}");
        let answered = timeout(PATIENCE, siege.kill_at(moment)).await.expect(&killed);
        for delivery in answered {
            let state = state_of(siege.inbox(), delivery).await;
            let is_stored = if delivery.is_queued { state.is_some() } else { state == Some(InboxState::Done) };
            assert!(is_stored, "{killed}: {delivery:?} was answered, and is {state:?}");
        }
    }
    siege.send_the_rest().await;
    timeout(PATIENCE, siege.handle_the_rest()).await.expect("leases run out, and everything is handled");

    let deliveries = siege.senders.all();
    for delivery in &deliveries {
        assert_eq!(state_of(siege.inbox(), *delivery).await, Some(InboxState::Done), "{delivery:?}");
    }
    assert_eq!(siege.effects().await, deliveries.into_iter().map(|delivery| (delivery, 1)).collect());
}

on_every_backend! { a_receiver_that_is_killed_answers_nothing_that_it_has_not_stored }
