//! What a message may measure, and the checks of it.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use super::{HORIZON_MAX, Message, When};
use crate::problem::{Invalid, Problem};

/// What a message may measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Characters in any text field.
    pub text_chars_max: usize,
    /// Bytes of the payload; at most [`Limits::PAYLOAD_BYTES_CEILING`].
    pub payload_bytes_max: usize,
    /// Bytes of all header names and values together.
    pub headers_bytes_max: usize,
    /// Messages in one enqueue call.
    pub batch_max: usize,
}

impl Limits {
    /// No setting raises the payload limit above this: it keeps every statement within what the drivers frame safely.
    pub const PAYLOAD_BYTES_CEILING: usize = 64 * 1024 * 1024;

    /// Checks the limits themselves.
    pub fn validate(&self) -> Result<(), Invalid> {
        let mut problems = Vec::new();
        if !(1..=255).contains(&self.text_chars_max) {
            problems.push(Problem::out_of_range("text_chars_max", 255, "must be 1 to 255"));
        }
        if self.payload_bytes_max > Self::PAYLOAD_BYTES_CEILING {
            problems.push(Problem::too_large("payload_bytes_max", Self::PAYLOAD_BYTES_CEILING, self.payload_bytes_max));
        }
        if self.batch_max == 0 {
            problems.push(Problem::out_of_range("batch_max", 1, "must be at least 1"));
        }
        Invalid::unless_empty(problems)
    }

    /// Checks a whole batch; a field's problem is reported once per message.
    pub fn check(&self, messages: &[Message]) -> Result<(), Invalid> {
        if messages.len() > self.batch_max {
            let complaint = format!("must be at most {}, are {}", self.batch_max, messages.len());
            return Err(Problem::out_of_range("messages", self.batch_max as u64, complaint).into());
        }
        let problems = messages
            .iter()
            .filter_map(|message| message.validate(self).err())
            .flat_map(|invalid| invalid.problems().to_vec())
            .collect();
        Invalid::unless_empty(problems)
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { text_chars_max: 255, payload_bytes_max: 1024 * 1024, headers_bytes_max: 64 * 1024, batch_max: 10_000 }
    }
}

impl Message {
    /// Checks every field and reports everything that is wrong, before any I/O.
    pub fn validate(&self, limits: &Limits) -> Result<(), Invalid> {
        let mut problems = Vec::new();
        if self.topic.is_empty() {
            problems.push(Problem::empty("topic"));
        }
        for (field, value) in self.texts() {
            check_text(field, value, limits.text_chars_max, &mut problems);
        }
        check_headers(&self.extras.headers, limits, &mut problems);
        if self.payload.len() > limits.payload_bytes_max {
            problems.push(Problem::too_large("payload", limits.payload_bytes_max, self.payload.len()));
        }
        check_horizon("due", self.extras.due, &mut problems);
        check_horizon("expires", self.extras.expires, &mut problems);
        check_instant("occurred_at", self.extras.occurred_at, &mut problems);
        if let (Some(When::After(due)), Some(When::After(expires))) = (self.extras.due, self.extras.expires)
            && expires <= due
        {
            problems.push(Problem::malformed("expires", "must lie after the due time"));
        }
        Invalid::unless_empty(problems)
    }
}

/// Notes what is wrong with a text that may be empty.
pub(crate) fn check_text(field: &'static str, value: &str, chars_max: usize, problems: &mut Vec<Problem>) {
    // No text has more characters than bytes.
    if value.len() > chars_max {
        let length = value.chars().count();
        if length > chars_max {
            problems.push(Problem::too_long(field, chars_max, length));
        }
    }
    if value.as_bytes().contains(&0) {
        problems.push(Problem::malformed(field, "must not contain the character NUL"));
    }
}

fn check_headers(headers: &BTreeMap<String, String>, limits: &Limits, problems: &mut Vec<Problem>) {
    let bytes: usize = headers.iter().map(|(name, value)| name.len() + value.len()).sum();
    if bytes > limits.headers_bytes_max {
        problems.push(Problem::too_large("headers", limits.headers_bytes_max, bytes));
    }
    if headers.keys().any(String::is_empty) {
        problems.push(Problem::malformed("headers", "must not have an empty name"));
    }
    if headers.iter().any(|(name, value)| name.contains('\0') || value.contains('\0')) {
        problems.push(Problem::malformed("headers", "must not contain the character NUL"));
    }
}

fn check_horizon(field: &'static str, when: Option<When>, problems: &mut Vec<Problem>) {
    match when {
        Some(When::After(delay)) if delay > HORIZON_MAX => {
            let limit = HORIZON_MAX.as_secs();
            problems.push(Problem::out_of_range(field, limit, format!("must lie within {limit} seconds")));
        }
        Some(When::At(at)) => check_instant(field, Some(at), problems),
        Some(When::After(_)) | None => {}
    }
}

/// The years 1970 to 2199 fit into every database's type for times.
fn check_instant(field: &'static str, at: Option<SystemTime>, problems: &mut Vec<Problem>) {
    const LATEST: Duration = Duration::from_secs(7_258_118_400);
    let Some(at) = at else { return };
    match at.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) if since < LATEST => {}
        _ => problems.push(Problem::out_of_range(field, LATEST.as_secs(), "must lie in the years 1970 to 2199")),
    }
}
