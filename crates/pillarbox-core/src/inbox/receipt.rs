//! What names a message that came in, and what is received with it.

use std::collections::HashMap;
use std::fmt;

use crate::id::MessageId;
use crate::message::{Limits, Message};
use crate::problem::{Invalid, Problem};

/// The header of a received message that holds the source.
pub const SOURCE_HEADER: &str = "pillarbox-source";

/// The header of a received message that holds the id which the source gave it.
pub const MESSAGE_ID_HEADER: &str = "pillarbox-message-id";

/// Characters of a source, and of a message id.
pub const NAME_CHARS_MAX: usize = 255;

/// Bytes of a content hash.
pub const HASH_BYTES_MAX: usize = 1024;

/// Characters of the name of a hash algorithm.
pub const ALGORITHM_CHARS_MAX: usize = 32;

/// The name of a message that came in: who sent it, and what the sender calls it.
///
/// Both are compared byte for byte: `Order-1`, `order-1` and `order-1 ` are three messages.
///
/// ```
/// # use pillarbox_core::inbox::{ContentHash, Receipt};
/// let receipt = Receipt::new("stripe", "evt_1").hash(ContentHash::new("sha256", [7; 32]));
/// assert!(receipt.check().is_ok());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Receipt {
    source: String,
    message_id: String,
    hash: Option<ContentHash>,
}

impl Receipt {
    /// Names a message; ids need to be unique within their source only.
    pub fn new(source: impl Into<String>, message_id: impl Into<String>) -> Self {
        Self { source: source.into(), message_id: message_id.into(), hash: None }
    }

    /// Adds a hash of the content, so that another content under the same name is noticed.
    #[must_use]
    pub fn hash(mut self, hash: ContentHash) -> Self {
        self.hash = Some(hash);
        self
    }

    /// Who sent it.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// What the sender calls it.
    pub fn message_id(&self) -> &str {
        &self.message_id
    }

    /// The hash of its content.
    pub fn get_hash(&self) -> Option<&ContentHash> {
        self.hash.as_ref()
    }

    /// Checks everything and reports everything that is wrong, before any I/O.
    pub fn check(&self) -> Result<(), Invalid> {
        Invalid::unless_empty(self.problems())
    }

    fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (field, name) in [("source", &self.source), ("message_id", &self.message_id)] {
            let length = name.chars().count();
            if name.is_empty() {
                problems.push(Problem::empty(field));
            }
            if length > NAME_CHARS_MAX {
                problems.push(Problem::too_long(field, NAME_CHARS_MAX, length));
            }
            if name.contains('\0') {
                problems.push(Problem::malformed(field, "must not contain the character NUL"));
            }
        }
        if let Some(hash) = &self.hash {
            hash.report(&mut problems);
        }
        problems
    }
}

/// A hash of a message's content, with the name of the algorithm. Hashes of two algorithms are never compared.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ContentHash {
    algorithm: String,
    bytes: Vec<u8>,
}

impl ContentHash {
    /// A hash; use a cryptographic one, such as `sha256`.
    pub fn new(algorithm: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { algorithm: algorithm.into(), bytes: bytes.into() }
    }

    /// The name of the algorithm.
    pub fn algorithm(&self) -> &str {
        &self.algorithm
    }

    /// The hash itself.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Whether both tell of different contents: one algorithm, two hashes.
    pub fn contradicts(&self, other: &Self) -> bool {
        self.algorithm == other.algorithm && self.bytes != other.bytes
    }

    fn report(&self, problems: &mut Vec<Problem>) {
        let is_printable = self.algorithm.bytes().all(|byte| byte.is_ascii_graphic());
        if self.algorithm.is_empty() {
            problems.push(Problem::empty("hash_algorithm"));
        } else if !is_printable {
            problems.push(Problem::malformed("hash_algorithm", "must consist of printable ASCII characters"));
        }
        let length = self.algorithm.chars().count();
        if length > ALGORITHM_CHARS_MAX {
            problems.push(Problem::too_long("hash_algorithm", ALGORITHM_CHARS_MAX, length));
        }
        if self.bytes.len() > HASH_BYTES_MAX {
            problems.push(Problem::too_large("hash", HASH_BYTES_MAX, self.bytes.len()));
        }
    }
}

impl fmt::Debug for ContentHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContentHash").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

/// A message that came in and is to be handled later, from the inbox's queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incoming {
    receipt: Receipt,
    message: Message,
}

impl Incoming {
    /// A message under its name. The message's own id is not used: the ledger draws one per receipt.
    pub fn new(receipt: Receipt, message: Message) -> Self {
        Self { receipt, message }
    }

    /// Its name.
    pub fn receipt(&self) -> &Receipt {
        &self.receipt
    }

    /// What is to be handled.
    pub fn message(&self) -> &Message {
        &self.message
    }

    /// The message as it stands in the queue: under the ledger's id, with headers that tell where it came from.
    pub fn queued_as(&self, id: MessageId) -> Message {
        let message = self.message.clone().with_id(id);
        message.header(SOURCE_HEADER, &self.receipt.source).header(MESSAGE_ID_HEADER, &self.receipt.message_id)
    }

    /// Checks a whole batch, receipts and messages, before any I/O.
    pub fn check_all(incoming: &[Self], limits: &Limits) -> Result<(), Invalid> {
        if incoming.len() > limits.batch_max {
            let complaint = format!("must be at most {}, are {}", limits.batch_max, incoming.len());
            return Err(Problem::out_of_range("messages", limits.batch_max as u64, complaint).into());
        }
        let mut problems = Vec::new();
        for one in incoming {
            problems.extend(one.receipt.problems());
            if let Err(invalid) = one.message.validate(limits) {
                problems.extend_from_slice(invalid.problems());
            }
        }
        Invalid::unless_empty(problems)
    }

    /// The places of a batch in rounds: within a round each receipt stands once, sorted by name, so that two batches
    /// cannot deadlock. What is named twice comes again in the next round and meets what the first one did.
    pub fn rounds(incoming: &[Self]) -> Vec<Vec<usize>> {
        let name = |at: usize| (incoming[at].receipt.source(), incoming[at].receipt.message_id());
        let mut rounds: Vec<Vec<usize>> = Vec::new();
        let mut seen = HashMap::with_capacity(incoming.len());
        for at in 0..incoming.len() {
            let round = seen.entry(name(at)).and_modify(|round| *round += 1).or_insert(0_usize);
            if *round == rounds.len() {
                rounds.push(Vec::new());
            }
            rounds[*round].push(at);
        }
        for round in &mut rounds {
            round.sort_unstable_by_key(|at| name(*at));
        }
        rounds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(receipt: &Receipt) -> Vec<&'static str> {
        receipt.check().map_or_else(|refused| refused.problems().iter().map(Problem::field).collect(), |()| Vec::new())
    }

    /// IBX-009, IBX-010, IBX-011, IBX-012, IBX-016, IBX-017.
    #[test]
    fn every_problem_of_a_receipt_is_named() {
        let bad = ContentHash::new("", vec![0; HASH_BYTES_MAX + 1]);
        let receipt = Receipt::new("", "x".repeat(256)).hash(bad);
        assert_eq!(fields(&receipt), ["source", "message_id", "hash_algorithm", "hash"]);
        assert_eq!(fields(&Receipt::new("a\0", "")), ["source", "message_id"]);
        assert_eq!(fields(&Receipt::new("a", "b").hash(ContentHash::new("ä", []))), ["hash_algorithm"]);
        assert_eq!(fields(&Receipt::new("a", "b").hash(ContentHash::new("x".repeat(33), []))), ["hash_algorithm"]);
    }

    #[test]
    fn names_are_counted_in_characters() {
        let hash = ContentHash::new("x".repeat(32), vec![0; HASH_BYTES_MAX]);
        assert_eq!(fields(&Receipt::new("😀".repeat(255), "ü".repeat(255)).hash(hash)), [""; 0]);
    }

    /// IBX-129: another algorithm is not comparable.
    #[test]
    fn only_hashes_of_one_algorithm_contradict_each_other() {
        let hash = |algorithm: &str, byte| ContentHash::new(algorithm, [byte]);
        assert!(hash("sha256", 1).contradicts(&hash("sha256", 2)));
        assert!(!hash("sha256", 1).contradicts(&hash("sha256", 1)));
        assert!(!hash("sha256", 1).contradicts(&hash("sha512", 2)));
    }

    #[test]
    fn a_batch_is_checked_as_a_whole() {
        let good = Incoming::new(Receipt::new("s", "1"), Message::new("t", ""));
        let bad = Incoming::new(Receipt::new("", "1"), Message::new("", ""));
        let refused = Incoming::check_all(&[good.clone(), bad], &Limits::default()).unwrap_err();
        assert_eq!(refused.problems().iter().map(Problem::field).collect::<Vec<_>>(), ["source", "topic"]);
        let limits = Limits { batch_max: 1, ..Limits::default() };
        assert!(Incoming::check_all(&[good.clone(), good], &limits).is_err());
    }

    #[test]
    fn a_receipt_named_twice_waits_for_the_next_round() {
        let batch: Vec<_> =
            ["b", "a", "b", "b"].map(|id| Incoming::new(Receipt::new("s", id), Message::new("t", ""))).into();
        assert_eq!(Incoming::rounds(&batch), [vec![1, 0], vec![2], vec![3]]);
        assert_eq!(Incoming::rounds(&[]), Vec::<Vec<usize>>::new());
    }

    #[test]
    fn a_queued_message_tells_where_it_came_from() {
        let id = MessageId::new();
        let message = Incoming::new(Receipt::new("stripe", "evt_1"), Message::new("t", "p")).queued_as(id);
        assert_eq!(message.id(), id);
        assert_eq!(message.get_headers()[SOURCE_HEADER], "stripe");
        assert_eq!(message.get_headers()[MESSAGE_ID_HEADER], "evt_1");
    }

    /// IBX-127.
    #[test]
    fn no_debug_text_shows_a_hash_or_a_payload() {
        let receipt = Receipt::new("s", "1").hash(ContentHash::new("sha256", b"canary".to_vec()));
        let shown = format!("{:?}", Incoming::new(receipt, Message::new("t", "canary")));
        assert!(!shown.contains("canary") && !shown.contains("99, 97"), "{shown}");
    }
}
