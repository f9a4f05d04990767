//! Who is at a row; others wait, or pass it over, as they do in a database.

use std::collections::HashMap;

use pillarbox_core::{StoreError, WorkId};
use tokio::sync::watch;

/// Rows that a transaction has changed. They are free again when this is dropped.
#[derive(Debug)]
pub(super) struct Lock {
    _open: watch::Sender<()>,
}

/// A transaction that has changed a row.
#[derive(Clone, Debug)]
pub(super) struct Holder {
    open: watch::Receiver<()>,
}

impl Holder {
    /// Waits until it has ended, or has gone back to a savepoint.
    pub(super) async fn ended(mut self) {
        while self.open.changed().await.is_ok() {}
    }

    fn is_open(&self) -> bool {
        self.open.has_changed().is_ok()
    }
}

/// Rows that open transactions have changed.
#[derive(Clone, Debug, Default)]
pub(super) struct Locks {
    rows: HashMap<WorkId, Holder>,
}

impl Locks {
    /// What must end before another can change the row.
    pub(super) fn holder(&self, row: WorkId) -> Option<&Holder> {
        self.rows.get(&row).filter(|holder| holder.is_open())
    }

    /// Takes a row for free.
    pub(super) fn ignore(&mut self, row: WorkId) {
        self.rows.remove(&row);
    }

    /// Keeps others away from rows that nobody has.
    pub(super) fn take(&mut self, rows: impl IntoIterator<Item = WorkId>) -> Lock {
        self.rows.retain(|_, holder| holder.is_open());
        let (_open, open) = watch::channel(());
        self.rows.extend(rows.into_iter().map(|row| (row, Holder { open: open.clone() })));
        Lock { _open }
    }
}

/// Tries until no other transaction is in the way.
pub(super) async fn until_free<T>(
    mut attempt: impl FnMut() -> Result<Result<T, Holder>, StoreError>,
) -> Result<T, StoreError> {
    loop {
        match attempt()? {
            Ok(done) => return Ok(done),
            Err(holder) => holder.ended().await,
        }
    }
}
