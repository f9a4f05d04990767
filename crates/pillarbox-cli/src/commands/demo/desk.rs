//! Where the messages are handled: shipping and mailing, written so that what is delivered twice takes effect once.

use std::collections::HashMap;
use std::future::pending;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use pillarbox::prelude::*;
use sqlx::SqlitePool;

use super::script::{Carrier, WORKER_COUNT};
use super::shop::{OrderPlaced, ReceiptDue};
use super::worker::STALLED;
use crate::output::say;

/// Looked for so often: SQLite has no way to wake another process.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Few at a time, so that there is something left for the next worker.
const CLAIM_LIMIT: u32 = 10;

pub(super) struct Desk {
    pool: SqlitePool,
    process: &'static str,
    stall: Option<Stall>,
    begun: Begun,
}

/// When the first attempt to ship each order began.
pub(super) type Begun = Arc<Mutex<HashMap<u32, Instant>>>;

/// From some shipment on, no handler gets an answer any more.
struct Stall {
    after: u32,
    shipped: AtomicU32,
}

impl Desk {
    pub(super) fn new(pool: &SqlitePool, process: &'static str, stall_after: Option<u32>) -> Self {
        let stall = stall_after.map(|after| Stall { after, shipped: AtomicU32::new(0) });
        Self { pool: pool.clone(), process, stall, begun: Begun::default() }
    }

    pub(super) fn begun(&self) -> Begun {
        Arc::clone(&self.begun)
    }

    /// The same handlers in every process.
    pub(super) fn handlers(self, builder: RuntimeBuilder, lease: Duration) -> RuntimeBuilder {
        builder
            .state(self)
            .on(async |placed: Payload<OrderPlaced>, desk: State<Desk>, cx: Context| desk.ship(&placed, &cx).await)
            .on(async |receipt: Payload<ReceiptDue>, desk: State<Desk>, cx: Context| desk.mail(&receipt, &cx).await)
            .worker_count(WORKER_COUNT as usize)
            .claim_limit(CLAIM_LIMIT)
            .cold_capacity(CLAIM_LIMIT as usize * 2)
            .poll_interval(POLL_INTERVAL)
            .lease(lease)
    }

    async fn ship(&self, placed: &OrderPlaced, cx: &Context) -> HandlerResult {
        if let Ok(mut begun) = self.begun.lock() {
            begun.entry(placed.order).or_insert_with(Instant::now);
        }
        if placed.carrier == Carrier::Slow && cx.attempt() <= 2 {
            Err(io::Error::new(io::ErrorKind::TimedOut, "the carrier does not answer"))?;
        }
        self.take_effect(cx, placed.order).await?;
        self.wait_for_carrier().await?;
        Ok(())
    }

    async fn mail(&self, receipt: &ReceiptDue, cx: &Context) -> HandlerResult {
        if !receipt.has_mailbox {
            return Handled::dead("no such mailbox");
        }
        self.take_effect(cx, receipt.order).await?;
        Ok(())
    }

    async fn take_effect(&self, cx: &Context, order: u32) -> Result<(), sqlx::Error> {
        let id = cx.message_id().as_uuid();
        let mut tx = self.pool.begin_with("BEGIN IMMEDIATE").await?;
        sqlx::query("INSERT INTO deliveries (message_id, topic, process, lost_lease_count) VALUES (?1, ?2, ?3, ?4)")
            .bind(id)
            .bind(cx.topic())
            .bind(self.process)
            .bind(cx.lost_lease_count())
            .execute(&mut *tx)
            .await?;
        sqlx::query("INSERT INTO effects (message_id, topic, order_id) VALUES (?1, ?2, ?3) ON CONFLICT DO NOTHING")
            .bind(id)
            .bind(cx.topic())
            .bind(order)
            .execute(&mut *tx)
            .await?;
        tx.commit().await
    }

    /// Comes back at once, unless this is the worker that is to be killed: its calls hang in the end.
    async fn wait_for_carrier(&self) -> io::Result<()> {
        let Some(stall) = &self.stall else { return Ok(()) };
        let shipped = stall.shipped.fetch_add(1, Ordering::SeqCst) + 1;
        if shipped <= stall.after {
            return Ok(());
        }
        if shipped == stall.after + WORKER_COUNT {
            say(&format!("{STALLED}\n")).map_err(|failure| io::Error::other(failure.words))?;
        }
        pending().await
    }
}
