//! Renews the leases of everything that is held, from a thread of its own: handlers that block every thread of the
//! program's runtime cannot starve it. One thread serves any number of stores, each by a task.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use pillarbox_core::store::SETTLE_MAX;
use pillarbox_core::{OutboxStore, Settled, StoreError};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::clock::Tick;
use crate::connections::close_idle;
use crate::dispatcher::Engine;
use crate::flight::{Flight, Phase};
use crate::runtime::lasting;
use crate::telemetry::TARGET;
use crate::turns::PATIENCE;

/// The longest and the shortest time between two looks at what is held.
const LOOK_MAX: Duration = Duration::from_secs(1);
const LOOK_MIN: Duration = Duration::from_millis(5);

/// Time beyond its limit that a handler may take to end, before its lease is left to run out.
const OVERTIME: Duration = Duration::from_secs(1);

/// Stores whose leases are renewed at one time.
const RENEWALS_MAX: usize = 4;

/// The thread.
#[derive(Clone, Debug)]
pub(crate) struct Renewer {
    handle: Handle,
    places: Arc<Semaphore>,
}

impl Renewer {
    /// Starts the thread. It ends by itself soon after the token is cancelled.
    pub(crate) fn start(stop: CancellationToken) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let name = "pillarbox-renew".to_owned();
        thread::Builder::new().name(name).spawn(move || {
            runtime.block_on(stop.cancelled());
            // A connection that hangs must not keep the thread.
            runtime.shutdown_timeout(Duration::from_millis(100));
        })?;
        Ok(Self { handle, places: Arc::new(Semaphore::new(RENEWALS_MAX)) })
    }

    /// Renews what this engine holds, until it is told to stop; then, or when the thread ends, it cancels the other token.
    pub(crate) fn serve(&self, engine: Arc<Engine>, stop: CancellationToken, ended: CancellationToken) {
        let ended = ended.drop_guard();
        let places = Arc::clone(&self.places);
        self.handle.spawn(async move {
            let _ended = ended;
            tokio::select! {
                biased;
                () = stop.cancelled() => {}
                () = lasting(Some(engine.store.id().clone()), || run(&engine, &places)) => {}
            }
        });
    }
}

async fn run(engine: &Engine, places: &Semaphore) {
    let lease = engine.plan.config.lease;
    let look = (lease / 20).clamp(LOOK_MIN, LOOK_MAX);
    let mut store: Option<Arc<dyn OutboxStore>> = None;
    let mut is_failing = false;
    loop {
        tokio::time::sleep(look).await;
        let due = engine.flights_to_renew();
        if due.is_empty() {
            continue;
        }
        let renewed = in_turn(places, renew(engine, &mut store, &due)).await;
        if engine.plan.turns.is_some() {
            close_idle(store.as_ref()).await;
        }
        if let Err(error) = &renewed
            && !is_failing
        {
            let id = engine.store.id().as_str();
            tracing::warn!(target: TARGET, %error, store = id, count = due.len(), "leases cannot be renewed; trying on");
        }
        is_failing = renewed.is_err();
    }
}

/// Waits for one of the places. One that gets no answer gives its place back, and keeps no other store from renewing.
async fn in_turn<T>(places: &Semaphore, renewal: impl Future<Output = T>) -> T {
    let place = places.acquire().await;
    let mut renewal = pin!(renewal);
    let renewed = timeout(PATIENCE, &mut renewal).await;
    drop(place);
    match renewed {
        Ok(renewed) => renewed,
        Err(_) => renewal.await,
    }
}

/// Renews through connections of this thread's own, which are opened when they are first needed.
async fn renew(
    engine: &Engine,
    store: &mut Option<Arc<dyn OutboxStore>>,
    due: &[Arc<Flight>],
) -> Result<(), StoreError> {
    let store = match store {
        Some(store) => store,
        None => store.insert(engine.store.detached().await?),
    };
    for flights in due.chunks(SETTLE_MAX) {
        let held: Vec<_> = flights.iter().map(|flight| flight.held).collect();
        let leased_at = engine.clock.now();
        let answers = store.renew(engine.owner, &held, engine.plan.config.lease).await?;
        engine.renewed(flights, &answers, leased_at);
    }
    Ok(())
}

impl Engine {
    /// Everything held that needs a longer lease, but for handlers that should have ended long ago.
    fn flights_to_renew(&self) -> Vec<Arc<Flight>> {
        let now = self.clock.now();
        let mut due = self.flights.due(now, self.plan.config.lease);
        due.retain(|flight| {
            let limit = self.plan.routes[flight.route].run_time_max.saturating_add(OVERTIME);
            let is_hung = flight.running_for(now).is_some_and(|time| time > limit);
            if is_hung && flight.give_up() {
                let (message_id, store) = (flight.cx.message_id(), self.store.id().as_str());
                let route = &self.plan.routes[flight.route].name;
                tracing::error!(target: TARGET, %message_id, route, store, "a handler blocks its thread: its lease is left to run out");
                flight.cx.cancel();
                // Under leases of ours they would keep everybody from the one that hangs.
                self.give_back_after(flight);
            }
            !is_hung
        });
        due
    }

    /// Takes note of what the store said about leases.
    fn renewed(&self, flights: &[Arc<Flight>], answers: &[Settled], leased_at: Tick) {
        let mut count = 0;
        for (flight, answer) in flights.iter().zip(answers) {
            match answer {
                Settled::Applied => {
                    flight.renewed(leased_at);
                    count += 1;
                }
                // Its verdict may have been written while the renewal was under way.
                Settled::LeaseLost if flight.phase() == Phase::Ended || flight.cx.is_settled() => {}
                Settled::LeaseLost => {
                    flight.lost();
                    self.give_back_after(flight);
                    self.counters.lease_lost();
                    self.telemetry().lease_lost(Some(flight.cx.message_id()));
                }
            }
        }
        self.counters.renewed(count);
    }
}
