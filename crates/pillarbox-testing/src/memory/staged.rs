//! What a transaction on the memory database has written, and nobody else can see yet.

use std::time::SystemTime;

use pillarbox_core::OwnerToken;
use pillarbox_core::naming::Naming;
use pillarbox_core::retention::Retention;
use pillarbox_core::store::Settlement;

use super::database::Inner;
use super::ledger::{Entry, Name};
use super::row::Row;

/// What the commit will write.
#[derive(Clone, Debug, Default)]
pub(super) struct Staged {
    rows: Vec<(Naming, Vec<Row>)>,
    pub(super) settlements: Vec<Settling>,
    pub(super) registrations: Vec<Registration>,
    pub(super) business_row_count: u64,
}

/// A verdict on a message that was stored before; nobody else gets at it until the end.
#[derive(Clone, Debug)]
pub(super) struct Settling {
    pub(super) naming: Naming,
    pub(super) owner: OwnerToken,
    pub(super) settlement: Settlement,
    pub(super) retention: Retention,
    pub(super) at: SystemTime,
}

/// An entry of a ledger as the transaction will leave it; nobody else gets at it until then.
#[derive(Clone, Debug)]
pub(super) struct Registration {
    pub(super) naming: Naming,
    pub(super) name: Name,
    pub(super) entry: Entry,
}

impl Staged {
    /// Writes everything, with nobody else in between.
    pub(super) fn write(self, inner: &mut Inner) {
        inner.business_row_count += self.business_row_count;
        for (naming, rows) in self.rows {
            if let Ok((outbox, _)) = inner.call(&naming) {
                outbox.insert(rows);
            }
        }
        for Settling { naming, owner, settlement, retention, at } in self.settlements {
            if let Ok((outbox, _)) = inner.call(&naming) {
                outbox.settle(owner, &settlement, retention, at);
            }
        }
        for registration in self.registrations {
            if let Ok((_, ledger, _)) = inner.call_inbox(&registration.naming) {
                ledger.entries.insert(registration.name, registration.entry);
            }
        }
    }

    /// The messages of this transaction that nobody else can see yet.
    pub(super) fn unsaved(&mut self, naming: &Naming) -> &mut Vec<Row> {
        let at = self.rows.iter().position(|(other, _)| other == naming).unwrap_or_else(|| {
            self.rows.push((naming.clone(), Vec::new()));
            self.rows.len() - 1
        });
        &mut self.rows[at].1
    }

    /// Settles a message that was born leased in this very transaction.
    pub(super) fn settle_unsaved(
        &mut self,
        naming: &Naming,
        owner: OwnerToken,
        settlement: &Settlement,
        retention: Retention,
        at: SystemTime,
    ) -> bool {
        let unsaved = self.unsaved(naming);
        let is_meant = |row: &Row| row.id == settlement.held.work_id && row.is_under(owner, settlement.held);
        let Some(place) = unsaved.iter().position(is_meant) else { return false };
        if !unsaved[place].settle(owner, &settlement.verdict, retention, at) {
            unsaved.remove(place);
        }
        true
    }
}
