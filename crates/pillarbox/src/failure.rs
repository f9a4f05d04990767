//! What a handler says when it did not succeed, and what should become of the message.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use pillarbox_core::outbox::REASON_CHARS_MAX;

/// What every handler returns. Any error that `?` meets becomes a [`Failure`] that is retried with backoff.
pub type HandlerResult = Result<(), Failure>;

/// Why a message was not handled, and what to do with it.
///
/// It is made from any error by `?`, which means "try again with backoff", or by one of the constructors. It is no
/// [`Error`] itself; only so can every error become one. A boxed error or a report of another crate is no [`Error`]
/// either: `.map_err(Failure::retry)` takes whatever can be shown.
pub struct Failure {
    kind: FailureKind,
    reason: String,
}

/// What should become of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureKind {
    /// Another attempt, after the backoff of the route's retry policy.
    Retry,
    /// No attempt can mend it: dead at once.
    Dead,
    /// Another attempt after this time; the failed one is spent.
    RetryAfter(Duration),
    /// Not really tried: again after this time, no attempt spent.
    Again(Duration),
    /// The destination is down, the message is not to blame: the route pauses, no attempt is spent.
    Unavailable,
}

impl Failure {
    /// Another attempt may mend it.
    pub fn retry(why: impl fmt::Display) -> Self {
        Self::new(FailureKind::Retry, &why)
    }

    /// No attempt can mend it.
    pub fn dead(why: impl fmt::Display) -> Self {
        Self::new(FailureKind::Dead, &why)
    }

    /// Another attempt after this time; this one is spent.
    pub fn retry_after(delay: Duration, why: impl fmt::Display) -> Self {
        Self::new(FailureKind::RetryAfter(delay), &why)
    }

    /// Not really tried: again after this time, no attempt spent.
    pub fn again_in(delay: Duration) -> Self {
        Self { kind: FailureKind::Again(delay), reason: String::new() }
    }

    /// The destination is down: the route pauses and probes, messages wait and spend no attempt.
    pub fn unavailable(why: impl fmt::Display) -> Self {
        Self::new(FailureKind::Unavailable, &why)
    }

    /// What should become of the message.
    pub fn kind(&self) -> FailureKind {
        self.kind
    }

    /// Why, as it is stored with the message.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    pub(crate) fn into_reason(self) -> String {
        self.reason
    }

    /// The same for another message of the batch.
    pub(crate) fn repeated(&self) -> Self {
        Self { kind: self.kind, reason: self.reason.clone() }
    }

    fn new(kind: FailureKind, why: &dyn fmt::Display) -> Self {
        Self { kind, reason: cut(why.to_string()) }
    }
}

impl<E: Error + Send + Sync + 'static> From<E> for Failure {
    fn from(error: E) -> Self {
        Self { kind: FailureKind::Retry, reason: cut(with_sources(&error)) }
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failure").field("kind", &self.kind).field("reason", &self.reason).finish()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            FailureKind::Again(delay) => write!(f, "not tried, again in {delay:?}"),
            _ => f.write_str(&self.reason),
        }
    }
}

/// Words for the last line of a handler: what became of the message.
///
/// ```
/// use std::time::Duration;
/// use pillarbox::prelude::*;
///
/// # struct Declined { for_good: bool }
/// # impl std::fmt::Display for Declined {
/// #     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str("declined") }
/// # }
/// fn answer(charged: Result<(), Declined>) -> HandlerResult {
///     match charged {
///         Ok(()) => Handled::done(),
///         Err(error) if error.for_good => Handled::dead(error),
///         Err(error) => Handled::retry_after(Duration::from_secs(60), error),
///     }
/// }
/// # assert!(answer(Ok(())).is_ok());
/// # assert!(answer(Err(Declined { for_good: true })).is_err());
/// # assert!(answer(Err(Declined { for_good: false })).is_err());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Handled;

impl Handled {
    /// The message is done.
    pub fn done() -> HandlerResult {
        Ok(())
    }

    /// No attempt can help: the message is dead.
    pub fn dead(why: impl fmt::Display) -> HandlerResult {
        Err(Failure::dead(why))
    }

    /// Another attempt, with backoff.
    pub fn retry(why: impl fmt::Display) -> HandlerResult {
        Err(Failure::retry(why))
    }

    /// Another attempt after this time; this one is spent.
    pub fn retry_after(delay: Duration, why: impl fmt::Display) -> HandlerResult {
        Err(Failure::retry_after(delay, why))
    }

    /// Again after this time, no attempt spent.
    pub fn again_in(delay: Duration) -> HandlerResult {
        Err(Failure::again_in(delay))
    }

    /// The destination is down: the route pauses, not the messages.
    pub fn unavailable(why: impl fmt::Display) -> HandlerResult {
        Err(Failure::unavailable(why))
    }
}

/// The error with its sources. Many errors end with their source's text already; that one is not said twice.
fn with_sources(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    // A chain that leads back to itself would never end.
    for _ in 0..SOURCES_MAX {
        let Some(cause) = source else { break };
        let said = cause.to_string();
        if !text.ends_with(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        source = cause.source();
    }
    text
}

const SOURCES_MAX: usize = 16;

/// Cut here, not only where it is stored: an error may carry a whole document.
pub(crate) fn cut(mut reason: String) -> String {
    if reason.len() > REASON_CHARS_MAX
        && let Some((end, _)) = reason.char_indices().nth(REASON_CHARS_MAX)
    {
        reason.truncate(end);
        reason.shrink_to_fit();
    }
    reason
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("mail was not sent")]
    struct Outer(#[source] Middle);

    #[derive(Debug, thiserror::Error)]
    #[error("connection lost: {0}")]
    struct Middle(#[source] std::io::Error);

    fn by_question_mark() -> HandlerResult {
        Err(Outer(Middle(std::io::Error::other("reset by peer"))))?;
        Ok(())
    }

    /// OBX-056: any error becomes a retry; a source that the text ends with already is not said twice.
    #[test]
    fn any_error_is_a_retry_with_its_sources() {
        let failure = by_question_mark().unwrap_err();
        assert_eq!(failure.kind(), FailureKind::Retry);
        assert_eq!(failure.reason(), "mail was not sent: connection lost: reset by peer");
    }

    #[test]
    fn every_constructor_says_what_becomes_of_the_message() {
        let minute = Duration::from_secs(60);
        let table = [
            (Handled::retry("why"), FailureKind::Retry, "why"),
            (Handled::dead("why"), FailureKind::Dead, "why"),
            (Handled::retry_after(minute, "why"), FailureKind::RetryAfter(minute), "why"),
            (Handled::again_in(minute), FailureKind::Again(minute), ""),
            (Handled::unavailable("why"), FailureKind::Unavailable, "why"),
        ];
        for (result, kind, reason) in table {
            let failure = result.unwrap_err();
            assert_eq!((failure.kind(), failure.reason()), (kind, reason), "{failure:?}");
        }
        assert!(Handled::done().is_ok());
    }

    /// HOT-14.
    #[test]
    fn a_reason_has_at_most_4000_characters() {
        for length in [3999, 4000, 4001, 100_000] {
            let kept = Failure::retry("ü".repeat(length)).reason().chars().count();
            assert_eq!(kept, length.min(4000));
        }
        let error = Failure::from(std::io::Error::other("ü".repeat(5000)));
        assert_eq!(error.reason().chars().count(), 4000);
    }

    #[test]
    fn a_chain_of_sources_that_never_ends_is_cut() {
        #[derive(Debug)]
        struct Ring;
        impl fmt::Display for Ring {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("ring")
            }
        }
        impl Error for Ring {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                Some(self)
            }
        }
        assert_eq!(Failure::from(Ring).reason(), "ring");
    }
}
