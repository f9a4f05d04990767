//! `pillarbox top`: a queue that is watched while it works.

mod rates;
mod view;

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use pillarbox::{StoreError, StoreId};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};

use rates::Rates;
use view::{Screen, Snapshot};

use crate::exit::{Exit, Failure};
use crate::instances::Instances;
use crate::paused::Paused;
use crate::store_args::{Queue, StoreArgs};

/// Keys that are shown at the most.
const BLOCKED_MAX: u32 = 5;

#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    store: StoreArgs,
    /// The inbox, not the outbox.
    #[arg(long)]
    inbox: bool,
    /// Seconds between two looks; each counts every message once.
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    interval: u64,
}

pub(crate) async fn run(options: Options) -> Result<Exit, Failure> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Err(Failure::wrong_use(
            "top needs a terminal to draw on: use `pillarbox status`, which has --json too",
        ));
    }
    let opened = options.store.open().await?;
    let queue = Arc::new(opened.queue(options.inbox).await?);
    let watch = Watch::new(queue.id.clone(), Duration::from_secs(options.interval));
    // Installs a hook that puts the terminal back when something panics.
    let mut terminal = ratatui::try_init().map_err(|error| Failure::new(format!("no terminal: {error}")))?;
    let ended = watch.run(&mut terminal, queue).await;
    ratatui::restore();
    ended.map_err(|error| Failure::new(format!("the terminal cannot be drawn on: {error}")))?;
    Ok(Exit::Fine)
}

/// What is known so far.
struct Watch {
    id: StoreId,
    interval: Duration,
    last: Option<(Snapshot, Instant)>,
    rates: Rates,
    trouble: Option<String>,
}

impl Watch {
    fn new(id: StoreId, interval: Duration) -> Self {
        Self { id, interval, last: None, rates: Rates::default(), trouble: None }
    }

    async fn run(mut self, terminal: &mut DefaultTerminal, queue: Arc<Queue>) -> io::Result<()> {
        let mut keys = keys();
        let mut ticks = tokio::time::interval(self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut look: Option<JoinHandle<Result<Snapshot, StoreError>>> = None;
        loop {
            terminal.draw(|frame| self.screen().draw(frame))?;
            tokio::select! {
                key = keys.recv() => match key {
                    Some(Key::Quit) | None => return Ok(()),
                    Some(Key::Redraw) => {}
                },
                _ = tokio::signal::ctrl_c() => return Ok(()),
                // One look at a time: a slow database is not asked again before it has answered.
                _ = ticks.tick(), if look.is_none() => {
                    let queue = Arc::clone(&queue);
                    look = Some(tokio::spawn(async move { look_at(&queue).await }));
                }
                answer = async { look.as_mut().expect("guarded").await }, if look.is_some() => {
                    look = None;
                    if let Ok(answer) = answer {
                        self.learn(answer);
                    }
                }
            }
        }
    }

    fn learn(&mut self, answer: Result<Snapshot, StoreError>) {
        match answer {
            Ok(snapshot) => {
                let now = Instant::now();
                if let Some((before, at)) = &self.last {
                    self.rates = Rates::between(&before.overview, &snapshot.overview, now - *at);
                }
                (self.last, self.trouble) = (Some((snapshot, now)), None);
            }
            Err(error) => self.trouble = Some(error.to_string()),
        }
    }

    fn screen(&self) -> Screen<'_> {
        Screen {
            store: self.id.as_str(),
            snapshot: self.last.as_ref().map(|(snapshot, _)| snapshot),
            rates: &self.rates,
            trouble: self.trouble.as_deref(),
            age: self.last.as_ref().map(|(_, at)| at.elapsed()).unwrap_or_default(),
            interval: self.interval,
        }
    }
}

async fn look_at(queue: &Queue) -> Result<Snapshot, StoreError> {
    let overview = queue.admin.overview().await?;
    let blocked = queue.admin.blocked_keys(BLOCKED_MAX).await?;
    let paused = Paused::of(&*queue.store).await?.lines();
    Ok(Snapshot { overview, blocked, paused, instances: Instances::of(&*queue.store).await? })
}

enum Key {
    Quit,
    Redraw,
}

/// Keys come from a thread of their own: reading them blocks. It ends with the process.
fn keys() -> mpsc::Receiver<Key> {
    let (sender, receiver) = mpsc::channel(16);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            let Some(key) = meaning(&event) else { continue };
            if sender.blocking_send(key).is_err() {
                return;
            }
        }
    });
    receiver
}

fn meaning(event: &Event) -> Option<Key> {
    match event {
        Event::Resize(..) => Some(Key::Redraw),
        Event::Key(key) if key.kind == KeyEventKind::Release => None,
        Event::Key(key) => match key.code {
            KeyCode::Char('q') | KeyCode::Esc => Some(Key::Quit),
            KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Key::Quit),
            _ => None,
        },
        _ => None,
    }
}
