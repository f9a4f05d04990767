//! What is compared.

use std::fmt::{Debug, Write as _};

use super::super::support::*;
use super::{Handed, Rows, Side, Walk};
use crate::Harness;

impl<H: Harness> Walk<'_, H> {
    pub(super) fn label(&self, side: Side, row: WorkId) -> Option<usize> {
        let is_row = |rows: &Rows| row == if side == Side::Model { rows.model } else { rows.backend };
        self.rows.iter().find(|(_, rows)| is_row(rows)).map(|(label, _)| *label)
    }

    pub(super) fn claimed(&self, claimed: &[Claimed], side: Side) -> Vec<String> {
        let show = |one: &Claimed| {
            let message = one.message.as_ref().expect("the message can be read");
            let label = self.labels[&message.id()];
            assert_eq!(Some(label), self.label(side, one.held.work_id), "the row belongs to the message");
            format!(
                "m{label} attempts {} lost {} error {:?} topic {:?} key {:?}",
                one.attempts,
                one.lost_lease_count,
                one.last_error,
                message.topic(),
                message.get_key()
            )
        };
        claimed.iter().map(show).collect()
    }

    pub(super) fn shown(&self, row: &StoredMessage) -> String {
        let message = row.message.as_ref().expect("the message can be read");
        let owner = |token: Option<OwnerToken>| token.map(|token| self.owners.iter().position(|one| *one == token));
        let waits = matches!(row.state, State::Pending | State::Processing) && row.due_at.is_some();
        format!(
            "m{} key {:?} attempts {} lost {} error {:?} owner {:?} held {} settled {} by {:?} waits {waits} receipt {} bytes {} headers {}",
            self.labels[&message.id()],
            message.get_key(),
            row.attempts,
            row.lost_lease_count,
            row.last_error,
            owner(row.owner),
            row.locked_until.is_some(),
            row.settled_at.is_some(),
            owner(row.settled_by),
            row.is_receipt,
            message.payload().len(),
            message.get_headers().len(),
        )
    }

    pub(super) fn verdicts(&self, asked: &[(Handed, Verdict)]) -> String {
        asked.iter().fold(String::new(), |mut text, (handed, verdict)| {
            let label = self.label(Side::Model, handed.rows.model);
            let _ = write!(text, "[m{label:?} of owner {} {verdict:?}]", handed.owner);
            text
        })
    }

    #[track_caller]
    pub(super) fn compare<T: Debug + PartialEq>(&mut self, what: &str, model: T, backend: T) {
        self.history.compare(what, model, backend);
    }
}
