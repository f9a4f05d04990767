//! Wake-ups from other processes: subscribed to, proved by a wake-up of our own, and given up with one line of log.

use std::sync::Arc;
use std::time::Duration;

use pillarbox_core::{StoreError, Wakeups};
use tokio::time::{sleep, timeout};

use crate::clock::{dice, spread};
use crate::dispatcher::Engine;
use crate::telemetry::TARGET;

/// How long our own wake-up may take to come back before the subscription counts as deaf.
const PROBE_TIME: Duration = Duration::from_secs(5);

/// The first and the longest time between two subscriptions.
const AGAIN_FIRST: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_secs(300);

/// What is known about wake-ups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Nothing yet; the store is polled.
    Unknown,
    /// They arrive.
    Listening,
    /// They do not; the store is polled. So many tries in a row have failed.
    Polling { tries: u32 },
}

/// What happened to a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Happened {
    /// A wake-up arrived.
    Woken,
    /// The subscription failed or ended.
    Broken,
    /// Our own wake-up never came back.
    Deaf,
}

impl Mode {
    pub(crate) fn next(self, happened: Happened) -> Self {
        match (self, happened) {
            (_, Happened::Woken) => Self::Listening,
            (Self::Polling { tries }, _) => Self::Polling { tries: tries.saturating_add(1) },
            (Self::Unknown | Self::Listening, _) => Self::Polling { tries: 1 },
        }
    }

    /// How long to wait before the next subscription.
    pub(crate) fn pause(self, dice: f64) -> Duration {
        match self {
            Self::Unknown | Self::Listening => Duration::ZERO,
            Self::Polling { tries } => {
                let plain = AGAIN_FIRST.saturating_mul(1 << tries.saturating_sub(1).min(20)).min(AGAIN_MAX);
                spread(plain, dice)
            }
        }
    }
}

/// Listens for as long as the runtime lives; ends at once on a store that has no wake-ups.
pub(crate) async fn run(engine: Arc<Engine>) {
    let mut mode = Mode::Unknown;
    engine.set_wakeups(false);
    loop {
        let happened = match engine.store.listen().await {
            Ok(None) => return,
            Ok(Some(wakeups)) => listen(&engine, wakeups, &mut mode).await,
            Err(error) => (Happened::Broken, Some(error)),
        };
        let (happened, error) = happened;
        if !matches!(mode, Mode::Polling { .. }) {
            tell(&engine, happened, error.as_ref());
        }
        mode = mode.next(happened);
        engine.set_wakeups(false);
        sleep(mode.pause(dice())).await;
    }
}

/// Proves the subscription, then passes wake-ups on until it ends.
async fn listen(engine: &Engine, mut wakeups: Box<dyn Wakeups>, mode: &mut Mode) -> (Happened, Option<StoreError>) {
    if let Err(error) = engine.store.wake_others().await {
        return (Happened::Broken, Some(error));
    }
    // Anybody's wake-up proves it.
    match timeout(PROBE_TIME, wakeups.next()).await {
        Err(_) => return (Happened::Deaf, None),
        Ok(Err(error)) => return (Happened::Broken, Some(error)),
        Ok(Ok(())) => {}
    }
    *mode = mode.next(Happened::Woken);
    engine.set_wakeups(true);
    // What was written before the subscription stood woke nobody.
    engine.nudge();
    loop {
        match wakeups.next().await {
            Ok(()) => {
                engine.nudge();
                engine.plan.member.news.notify_one();
                engine.obedience.hear();
            }
            Err(error) => return (Happened::Broken, Some(error)),
        }
    }
}

impl Engine {
    fn set_wakeups(&self, listening: bool) {
        self.schedule().set_wakeups(listening);
        self.telemetry().wakeups(listening);
        self.wake_loop();
    }
}

fn tell(engine: &Engine, happened: Happened, error: Option<&StoreError>) {
    let store = engine.store.id().as_str();
    let every = engine.plan.config.poll_interval;
    let error = error.map(tracing::field::display);
    match happened {
        Happened::Deaf => tracing::warn!(
            target: TARGET, store, ?every,
            "wake-ups do not arrive, polling instead: a pooler in transaction mode swallows them; give the store a direct \
             connection, or accept the latency"
        ),
        _ => {
            tracing::warn!(target: TARGET, store, ?every, error, "no wake-ups for now, polling instead; subscribing again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mode_knows_what_news_mean() {
        use Happened::{Broken, Deaf, Woken};
        use Mode::{Listening, Polling, Unknown};
        let table = [
            (Unknown, Woken, Listening),
            (Unknown, Broken, Polling { tries: 1 }),
            (Unknown, Deaf, Polling { tries: 1 }),
            (Listening, Woken, Listening),
            (Listening, Broken, Polling { tries: 1 }),
            (Polling { tries: 3 }, Woken, Listening),
            (Polling { tries: 3 }, Broken, Polling { tries: 4 }),
            (Polling { tries: u32::MAX }, Deaf, Polling { tries: u32::MAX }),
        ];
        for (mode, happened, next) in table {
            assert_eq!(mode.next(happened), next, "{mode:?}, {happened:?}");
        }
    }

    /// H35: subscriptions that fail are tried ever more rarely.
    #[test]
    fn the_pause_between_subscriptions_grows_to_five_minutes() {
        let seconds = |tries| Mode::Polling { tries }.pause(0.5).as_secs();
        assert_eq!([1, 2, 3, 9, 10, u32::MAX].map(seconds), [1, 2, 4, 256, 300, 300]);
        assert_eq!(Mode::Listening.pause(0.5), Duration::ZERO);
    }
}
