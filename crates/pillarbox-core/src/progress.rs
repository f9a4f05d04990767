//! How far receptors and perspectives have come: what the work coordinator remembers beside a queue.
//!
//! A receptor is one of several that handle the same message, each by itself. A perspective is a view that is built from a
//! stream of messages, and its checkpoint says up to where. Nothing of it changes what becomes of a message.

use std::collections::HashSet;
use std::fmt;
use std::hash::Hash;
use std::time::SystemTime;

use async_trait::async_trait;

use crate::error::StoreError;
use crate::id::MessageId;
use crate::message::check_text;
use crate::outbox::stored_reason;
use crate::problem::{Invalid, Problem};
use crate::retention::PurgeLimit;
use crate::schema::SchemaAdmin;

/// Characters of the name of a receptor, a stream or a perspective.
pub const NAME_CHARS_MAX: usize = 255;

/// Results or checkpoints in one call at the most.
pub const PROGRESS_MAX: usize = 10_000;

/// Receptors of one message that one call lists at the most.
pub const RECEPTORS_MAX: u32 = 1000;

/// How something ended.
#[derive(Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is done, for good.
    Done,
    /// It failed, for this reason, of which [`REASON_CHARS_MAX`](crate::outbox::REASON_CHARS_MAX) characters are stored.
    Failed(String),
}

impl Outcome {
    /// The word in the tables.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed(_) => "failed",
        }
    }

    /// The reason as it is stored; none when it is done, or when there is nothing to say.
    pub fn error(&self) -> Option<String> {
        match self {
            Self::Done => None,
            Self::Failed(reason) => stored_reason(reason).map(String::from),
        }
    }

    /// The outcome that these columns say. What others wrote counts as failed.
    pub fn from_columns(state: &str, error: Option<String>) -> Self {
        if state == Self::Done.as_str() { Self::Done } else { Self::Failed(error.unwrap_or_default()) }
    }
}

// A reason may quote data.
impl fmt::Debug for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a receptor has made of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceptorResult {
    /// The message, of the outbox or of the inbox. It need not be stored any more.
    pub message_id: MessageId,
    /// The receptor's name.
    pub receptor: String,
    /// How it ended.
    pub outcome: Outcome,
}

impl ReceptorResult {
    fn key(&self) -> (MessageId, &str) {
        (self.message_id, &self.receptor)
    }

    fn check(&self, problems: &mut Vec<Problem>) {
        check_name("receptor", &self.receptor, problems);
    }
}

/// How far a perspective has come in a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    /// The stream's name, such as the key of its messages.
    pub stream: String,
    /// The perspective's name.
    pub perspective: String,
    /// The place in the stream: any number that grows.
    pub position: u64,
    /// The message that stands there, where that is known.
    pub message_id: Option<MessageId>,
    /// Whether the perspective has taken it in.
    pub outcome: Outcome,
}

impl Checkpoint {
    /// The largest position: databases count with a sign.
    pub const POSITION_MAX: u64 = i64::MAX.unsigned_abs();

    fn key(&self) -> (&str, &str) {
        (&self.stream, &self.perspective)
    }

    fn check(&self, problems: &mut Vec<Problem>) {
        check_name("stream", &self.stream, problems);
        check_name("perspective", &self.perspective, problems);
        if self.position > Self::POSITION_MAX {
            let complaint = format!("must be at most {}", Self::POSITION_MAX);
            problems.push(Problem::out_of_range("position", Self::POSITION_MAX, complaint));
        }
    }
}

/// What became of a result or of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// It is stored.
    Applied,
    /// What is stored stays: it is done, or further on.
    Kept,
    /// Another one of the same name came before it in this very call, and counts.
    NamedTwice,
}

/// What is known of a receptor's work on one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceptorRecord {
    /// The last result.
    pub result: ReceptorResult,
    /// How many results have been stored.
    pub attempts: u32,
    /// When the last one was, by the database's clock.
    pub changed_at: SystemTime,
}

/// What is known of a perspective in one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckpointRecord {
    /// The last checkpoint.
    pub checkpoint: Checkpoint,
    /// When it was stored, by the database's clock.
    pub changed_at: SystemTime,
}

/// How far receptors and perspectives have come, beside one queue. It is written by
/// [`WorkTransaction`](crate::transaction::WorkTransaction).
///
/// Its tables are deployed or checked by whoever uses them, together with those of the queue, and printed apart.
#[async_trait]
pub trait ProgressStore: SchemaAdmin + fmt::Debug + 'static {
    /// What receptors have made of a message, in the order of their names, byte for byte; at most [`RECEPTORS_MAX`].
    async fn receptors_of(&self, message_id: MessageId) -> Result<Vec<ReceptorRecord>, StoreError>;

    /// How far a perspective has come in a stream; none when nobody has said.
    async fn checkpoint(&self, stream: &str, perspective: &str) -> Result<Option<CheckpointRecord>, StoreError>;

    /// Forgets up to `limit` results of receptors, oldest first, that were stored longer ago than
    /// [`keeps_results_for`](crate::retention::Retention::keeps_results_for) says and whose message the queue has no more;
    /// answers how many. One of a message of another queue goes by its age alone. Checkpoints stay.
    ///
    /// Does nothing where the tables are not deployed, or are none of this user's business. Safe to run on every instance at
    /// once.
    async fn purge(&self, limit: PurgeLimit) -> Result<u64, StoreError>;
}

/// Checks the name of a stream and that of a perspective.
pub fn check_names(stream: &str, perspective: &str) -> Result<(), Invalid> {
    let mut problems = Vec::new();
    check_name("stream", stream, &mut problems);
    check_name("perspective", perspective, &mut problems);
    Invalid::unless_empty(problems)
}

/// Notes everything that is wrong with results and checkpoints.
pub(crate) fn check_all(receptors: &[ReceptorResult], checkpoints: &[Checkpoint], problems: &mut Vec<Problem>) {
    for (field, count) in [("receptors", receptors.len()), ("checkpoints", checkpoints.len())] {
        if count > PROGRESS_MAX {
            let complaint = format!("must be at most {PROGRESS_MAX}, are {count}");
            problems.push(Problem::out_of_range(field, PROGRESS_MAX as u64, complaint));
            return;
        }
    }
    receptors.iter().for_each(|one| one.check(problems));
    checkpoints.iter().for_each(|one| one.check(problems));
}

fn check_name(field: &'static str, name: &str, problems: &mut Vec<Problem>) {
    if name.is_empty() {
        problems.push(Problem::empty(field));
    }
    check_text(field, name, NAME_CHARS_MAX, problems);
}

/// Records, prepared for the database: sorted by name, so that two writers cannot deadlock, each name once.
#[derive(Debug)]
pub struct RecordPlan<'a, T> {
    asked: &'a [T],
    /// Places of those that go to the database.
    rows: Vec<usize>,
}

impl<'a> RecordPlan<'a, ReceptorResult> {
    /// Of two results for one message and receptor the first counts.
    pub fn receptors(asked: &'a [ReceptorResult]) -> Self {
        Self::by(asked, ReceptorResult::key)
    }
}

impl<'a> RecordPlan<'a, Checkpoint> {
    /// Of two checkpoints for one stream and perspective the first counts.
    pub fn checkpoints(asked: &'a [Checkpoint]) -> Self {
        Self::by(asked, Checkpoint::key)
    }
}

impl<'a, T> RecordPlan<'a, T> {
    fn by<K: Ord + Hash>(asked: &'a [T], key: impl Fn(&'a T) -> K) -> Self {
        let mut seen = HashSet::with_capacity(asked.len());
        let mut rows: Vec<usize> = (0..asked.len()).filter(|at| seen.insert(key(&asked[*at]))).collect();
        rows.sort_by_key(|at| key(&asked[*at]));
        Self { asked, rows }
    }

    /// What goes to the database.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = &'a T> {
        let asked = self.asked;
        self.rows.iter().map(move |at| &asked[*at])
    }

    /// Whether there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// One answer for each that was asked, from those that were stored.
    pub fn answers(&self, is_applied: impl Fn(&T) -> bool) -> Vec<Recorded> {
        let mut answers = vec![Recorded::NamedTwice; self.asked.len()];
        for at in &self.rows {
            answers[*at] = if is_applied(&self.asked[*at]) { Recorded::Applied } else { Recorded::Kept };
        }
        answers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn checkpoint(stream: &str, position: u64) -> Checkpoint {
        let (perspective, outcome) = ("totals".into(), Outcome::Done);
        Checkpoint { stream: stream.into(), perspective, position, message_id: None, outcome }
    }

    #[test]
    fn records_are_sorted_and_named_once_and_answered_in_the_callers_order() {
        let asked = [checkpoint("b", 1), checkpoint("a", 2), checkpoint("b", 3)];
        let plan = RecordPlan::checkpoints(&asked);
        assert_eq!(plan.rows().map(|one| one.position).collect::<Vec<_>>(), [2, 1]);
        let answers = plan.answers(|one| one.stream == "b");
        assert_eq!(answers, [Recorded::Applied, Recorded::Kept, Recorded::NamedTwice]);
    }

    #[test]
    fn every_problem_of_a_record_is_named() {
        let fields = |receptor: &str, one: Checkpoint| {
            let (message_id, outcome) = (MessageId::new(), Outcome::Done);
            let mut problems = Vec::new();
            check_all(&[ReceptorResult { message_id, receptor: receptor.into(), outcome }], &[one], &mut problems);
            problems.iter().map(Problem::field).collect::<Vec<_>>()
        };
        assert_eq!(fields("mail", checkpoint("a", Checkpoint::POSITION_MAX)), [""; 0]);
        let bad = Checkpoint { perspective: "\0".into(), ..checkpoint("", u64::MAX) };
        assert_eq!(fields(&"x".repeat(256), bad), ["receptor", "stream", "perspective", "position"]);
    }

    #[test]
    fn no_debug_output_shows_a_reason() {
        assert_eq!(format!("{:?}", Outcome::Failed("canary".into())), "failed");
    }

    #[test]
    fn an_outcome_survives_the_way_to_the_table_and_back() {
        for outcome in [Outcome::Done, Outcome::Failed("why".into()), Outcome::Failed(String::new())] {
            assert_eq!(Outcome::from_columns(outcome.as_str(), outcome.error()), outcome);
        }
        assert_eq!(Outcome::from_columns("?", None), Outcome::Failed(String::new()));
    }
}
