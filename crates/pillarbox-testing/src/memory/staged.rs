//! What a transaction on the memory database has written, and nobody else can see yet.

use std::collections::BTreeMap;

use pillarbox_core::WorkId;
use pillarbox_core::naming::Naming;

use super::database::Inner;
use super::ledger::{Entry, Name};
use super::progress::Progress;
use super::row::Row;

/// Rows as the commit will leave them; none for those that it removes. Nobody else changes them until then.
pub(super) type Overlay = BTreeMap<WorkId, Option<Row>>;

/// What the commit will write.
#[derive(Clone, Debug, Default)]
pub(super) struct Staged {
    rows: Vec<(Naming, Overlay)>,
    pub(super) registrations: Vec<Registration>,
    pub(super) progress: Vec<(Naming, Progress)>,
    pub(super) business_row_count: u64,
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
        for (naming, overlay) in self.rows {
            if let Ok((outbox, _)) = inner.call(&naming) {
                outbox.lay_over(overlay);
            }
        }
        for registration in self.registrations {
            if let Ok((_, ledger, _)) = inner.call_inbox(&registration.naming) {
                ledger.entries.insert(registration.name, registration.entry);
            }
        }
        for (naming, staged) in self.progress {
            if let Ok((progress, _)) = inner.call_progress(&naming) {
                progress.lay_over(staged);
            }
        }
    }

    /// The rows of this transaction that nobody else can see yet.
    pub(super) fn overlay(&mut self, naming: &Naming) -> &mut Overlay {
        of(&mut self.rows, naming)
    }

    /// The progress of this transaction that nobody else can see yet.
    pub(super) fn progress(&mut self, naming: &Naming) -> &mut Progress {
        of(&mut self.progress, naming)
    }

    /// The place of a ledger's entry, when the transaction has been at it.
    pub(super) fn registration(&self, naming: &Naming, name: &Name) -> Option<usize> {
        self.registrations.iter().position(|one| one.naming == *naming && one.name == *name)
    }
}

fn of<'a, T: Default>(list: &'a mut Vec<(Naming, T)>, naming: &Naming) -> &'a mut T {
    let at = list.iter().position(|(other, _)| other == naming).unwrap_or_else(|| {
        list.push((naming.clone(), T::default()));
        list.len() - 1
    });
    &mut list[at].1
}
