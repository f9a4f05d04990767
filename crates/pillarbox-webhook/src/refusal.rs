//! Why a delivery is not taken, in words that may be logged: no secret, no signature, no payload.

/// What is wrong with a header that must be there exactly once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderFault {
    /// It is not there.
    #[error("is missing")]
    Missing,
    /// It is there more than once: one reader might believe the first, another the last.
    #[error("is there more than once")]
    Repeated,
    /// It is longer than [`HEADER_BYTES_MAX`](crate::header::HEADER_BYTES_MAX).
    #[error("is too long")]
    TooLong,
    /// It cannot be read: empty, not ASCII, or not of the form that it must have.
    #[error("is malformed")]
    Malformed,
}

impl HeaderFault {
    /// As a reason not to believe the delivery.
    pub fn refuses(self, name: &'static str) -> Refusal {
        Refusal::Header { name, fault: self }
    }

    /// As a reason not to understand the delivery.
    pub fn obscures(self, name: &'static str) -> Malformed {
        Malformed::Header { name, fault: self }
    }
}

/// Why a delivery is not believed: the answer is 401.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// A header that takes part in the signature is not as it must be.
    #[error("header {name} {fault}")]
    Header {
        /// Its name.
        name: &'static str,
        /// What is wrong with it.
        fault: HeaderFault,
    },
    /// The header is there, but no signature in it that this scheme can read.
    #[error("no readable signature of a known version")]
    NoSignature,
    /// It was signed longer ago than the window allows: perhaps a replay.
    #[error("signed too long ago")]
    TooOld,
    /// It was signed further ahead than the window allows: a wrong clock, or a replay prepared in advance.
    #[error("signed too far ahead")]
    TooFarAhead,
    /// No secret of this route made any of the signatures.
    #[error("signed by none of the secrets")]
    Mismatch,
    /// A reason of a scheme of the user's own.
    #[error("{0}")]
    Other(&'static str),
}

/// Why a delivery is believed but cannot be taken: the answer is 400, with this text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Malformed {
    /// A header that is needed is not as it must be.
    #[error("header {name} {fault}")]
    Header {
        /// Its name.
        name: &'static str,
        /// What is wrong with it.
        fault: HeaderFault,
    },
    /// The body is not one JSON object in UTF-8, or a field that is needed is of the wrong type or there twice.
    #[error("the body is not the JSON that was expected")]
    Json,
    /// Nothing names the message.
    #[error("the message has no id")]
    NoMessageId,
    /// Id, topic, content type or payload exceed what a message may measure.
    #[error("the message exceeds a limit")]
    Limits,
    /// The body broke off.
    #[error("the body is incomplete")]
    Incomplete,
    /// A reason of the user's own.
    #[error("{0}")]
    Other(&'static str),
}
