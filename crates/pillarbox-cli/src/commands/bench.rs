//! `pillarbox bench`: what one's own database can do, measured in tables that are made for it and dropped again.

mod tables;

use std::future::Future;
use std::time::{Duration, Instant};

use clap::{Args, value_parser};
use pillarbox::lease::Claim;
use pillarbox::naming::Naming;
use pillarbox::schema::SchemaPolicy;
use pillarbox::store::{Enqueue, Settlement, StoreOptions};
use pillarbox::{Message, MessageId, OwnerToken, Store, StoreError};
use serde_json::json;

use crate::exit::{Exit, Failure};
use crate::output::{Side, grouped, json_line, say, table};
use crate::store_args::StoreArgs;

/// Single messages take a commit each: fewer of them tell as much.
const SINGLE_MAX: u32 = 1_000;

const LEASE: Duration = Duration::from_secs(300);

/// The user's own tables are not touched: the bench makes some under a name of their own, and drops them at its end.
#[derive(Args)]
pub(crate) struct Options {
    #[command(flatten)]
    store: StoreArgs,
    /// Messages of each round.
    #[arg(long, value_name = "COUNT", default_value_t = 10_000, value_parser = value_parser!(u32).range(1..=1_000_000))]
    messages: u32,
    /// Messages of one batch.
    #[arg(long, value_name = "COUNT", default_value_t = 500, value_parser = value_parser!(u32).range(1..=10_000))]
    batch: u32,
    /// Bytes of one payload.
    #[arg(long, value_name = "BYTES", default_value_t = 512, value_parser = value_parser!(u32).range(0..=1_000_000))]
    payload_bytes: u32,
    /// Print one line of JSON.
    #[arg(long)]
    json: bool,
}

/// One thing that was measured.
struct Measured {
    what: &'static str,
    messages: u32,
    took: Duration,
}

impl Measured {
    fn per_second(&self) -> u64 {
        let micros = self.took.as_micros().max(1);
        u64::try_from(u128::from(self.messages) * 1_000_000 / micros).unwrap_or(u64::MAX)
    }
}

pub(crate) async fn run(options: Options) -> Result<Exit, Failure> {
    let address = options.store.address()?.existing();
    let schema = format!("pillarbox_bench_{}", &MessageId::new().as_uuid().simple().to_string()[24..]);
    let naming = Naming::new(&schema, "outbox").map_err(|invalid| Failure::new(invalid.to_string()))?;
    let settings = StoreOptions { naming, schema: SchemaPolicy::Deploy, ..StoreOptions::default() };
    let store = address.connect(settings).await?;
    let measured = tokio::select! {
        measured = measure(&*store, &options) => measured.map_err(|error| address.failure(&error)),
        _ = tokio::signal::ctrl_c() => Err(Failure::new("interrupted: nothing was measured")),
    };
    let dropped = tables::drop_all(&address, &schema).await.map_err(|error| {
        Failure::new(format!("the tables of `{schema}` could not be dropped, drop them by hand: {error}"))
    });
    let measured = measured?;
    dropped?;
    say(&match options.json {
        true => as_json(store.id().as_str(), &schema, &measured),
        false => as_text(&measured, &options),
    })?;
    Ok(Exit::Fine)
}

async fn measure(store: &dyn Store, options: &Options) -> Result<Vec<Measured>, StoreError> {
    let Options { messages, batch, payload_bytes, .. } = *options;
    let payload = vec![b'x'; payload_bytes as usize];
    let new = |count: u32| (0..count).map(|_| Message::new("bench", payload.clone())).collect::<Vec<_>>();
    let single = messages.min(SINGLE_MAX);
    let mut measured = Vec::new();
    // Once unmeasured: connections are opened and statements prepared.
    enqueue(store, &new(batch.min(messages)), batch).await?;
    drain(store, batch.min(messages), batch).await?;

    let one_by_one = new(single);
    measured.push(timed("enqueue, one by one", single, enqueue(store, &one_by_one, 1)).await?);
    let many = new(messages);
    measured.push(timed("enqueue, in batches", messages, enqueue(store, &many, batch)).await?);
    measured.push(timed("claim and settle", single + messages, drain(store, single + messages, batch)).await?);
    Ok(measured)
}

async fn timed(
    what: &'static str,
    messages: u32,
    work: impl Future<Output = Result<(), StoreError>>,
) -> Result<Measured, StoreError> {
    let started = Instant::now();
    work.await?;
    Ok(Measured { what, messages, took: started.elapsed() })
}

async fn enqueue(store: &dyn Store, messages: &[Message], batch: u32) -> Result<(), StoreError> {
    for chunk in messages.chunks(batch as usize) {
        store.enqueue(Enqueue::pending(chunk)).await?;
    }
    Ok(())
}

/// Claims and settles in one call each time, as a runtime does that is never idle.
async fn drain(store: &dyn Store, messages: u32, batch: u32) -> Result<(), StoreError> {
    let owner = OwnerToken::new();
    let claim = || Claim::new(owner, LEASE, batch).map_err(StoreError::from);
    let (mut left, mut settlements) = (u64::from(messages), Vec::new());
    loop {
        let exchanged = store.exchange(&settlements, claim()?).await?;
        left = left.saturating_sub(settlements.len() as u64);
        if exchanged.claimed.is_empty() && left > 0 {
            return Err(StoreError::rejected("messages that were just stored cannot be claimed"));
        }
        if left == 0 {
            return Ok(());
        }
        settlements = exchanged.claimed.iter().map(|claimed| Settlement::ack(claimed.held)).collect();
    }
}

fn as_text(measured: &[Measured], options: &Options) -> String {
    let mut rows = vec![["", "messages", "took", "messages/s"].map(str::to_owned)];
    rows.extend(measured.iter().map(|one| {
        let took = format!("{}.{:02} s", one.took.as_secs(), one.took.subsec_millis() / 10);
        [one.what.to_owned(), grouped(one.messages.into()), took, grouped(one.per_second())]
    }));
    let note = format!(
        "\none connection at a time, batches of {}, payloads of {} bytes, everything kept\n",
        grouped(options.batch.into()),
        grouped(options.payload_bytes.into())
    );
    table([Side::Left, Side::Right, Side::Right, Side::Right], &rows) + &note
}

fn as_json(store: &str, schema: &str, measured: &[Measured]) -> String {
    let measured: Vec<_> = measured
        .iter()
        .map(|one| {
            let seconds = one.took.as_secs_f64();
            json!({ "what": one.what, "messages": one.messages, "seconds": seconds, "per_second": one.per_second() })
        })
        .collect();
    json_line(&json!({ "store": store, "schema": schema, "measured": measured }))
}
