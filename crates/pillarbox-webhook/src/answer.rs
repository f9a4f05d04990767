//! What the sender is told: a status and one short line. What the operator is told: the reason, once, in the log.

use std::time::Duration;

use axum::http::header::{ALLOW, CONNECTION, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};

use crate::accept::AcceptError;
use crate::refusal::{Malformed, Refusal};

/// Every way in which a request can fail.
#[derive(Debug)]
pub(crate) enum Failure {
    Method,
    Encoded,
    TooLarge,
    TooSlow,
    Busy,
    Refused(Refusal),
    Malformed(Malformed),
    NotAccepted(AcceptError),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Malformed> for Failure {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl From<AcceptError> for Failure {
    fn from(error: AcceptError) -> Self {
        Self::NotAccepted(error)
    }
}

/// The same for new messages and known ones.
pub(crate) fn accepted() -> Response {
    line(StatusCode::OK, "accepted")
}

impl Failure {
    fn status(&self) -> StatusCode {
        match self {
            Self::Method => StatusCode::METHOD_NOT_ALLOWED,
            Self::Encoded => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooSlow => StatusCode::REQUEST_TIMEOUT,
            Self::Refused(_) => StatusCode::UNAUTHORIZED,
            Self::Malformed(_) | Self::NotAccepted(AcceptError::Invalid(_)) => StatusCode::BAD_REQUEST,
            Self::Busy | Self::NotAccepted(AcceptError::Unavailable(_)) => StatusCode::SERVICE_UNAVAILABLE,
            Self::NotAccepted(AcceptError::Failed(_)) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Who is not believed learns nothing; who is believed learns what to mend.
    fn text(&self) -> String {
        match self {
            Self::Method => "only POST".into(),
            Self::Encoded => "the body must not be compressed".into(),
            Self::TooLarge => "the body is too large".into(),
            Self::TooSlow => "the body came too slowly".into(),
            Self::Busy => "busy, come again".into(),
            Self::Refused(_) => "signature refused".into(),
            Self::Malformed(malformed) => malformed.to_string(),
            Self::NotAccepted(AcceptError::Invalid(_)) => "the message cannot be stored".into(),
            Self::NotAccepted(AcceptError::Unavailable(_)) => "not stored, come again".into(),
            Self::NotAccepted(AcceptError::Failed(_)) => "not stored".into(),
        }
    }

    /// One line per failure. Errors of the receiver's side are errors; what a stranger sends is at most a warning.
    pub(crate) fn log(&self, source: &str) {
        match self {
            Self::Refused(refusal) => tracing::warn!(source, reason = %refusal, "webhook refused"),
            Self::Malformed(malformed) => tracing::warn!(source, reason = %malformed, "webhook malformed"),
            Self::NotAccepted(error) => tracing::error!(source, %error, "webhook not stored"),
            Self::Busy => tracing::warn!(source, "webhook put off: too many bodies at once"),
            Self::Method | Self::Encoded | Self::TooLarge | Self::TooSlow => {
                tracing::info!(source, status = self.status().as_u16(), "webhook not read");
            }
        }
    }

    pub(crate) fn response(&self, retry_after: Duration) -> Response {
        let mut response = line(self.status(), &self.text());
        let headers = response.headers_mut();
        match self.status() {
            StatusCode::METHOD_NOT_ALLOWED => drop(headers.insert(ALLOW, HeaderValue::from_static("POST"))),
            StatusCode::SERVICE_UNAVAILABLE => drop(headers.insert(RETRY_AFTER, retry_after.as_secs().max(1).into())),
            // The rest of the body is still to come, and nobody will read it.
            StatusCode::REQUEST_TIMEOUT => drop(headers.insert(CONNECTION, HeaderValue::from_static("close"))),
            _ => {}
        }
        response
    }
}

fn line(status: StatusCode, text: &str) -> Response {
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    (status, [(CONTENT_TYPE, plain)], format!("{text}\n")).into_response()
}
