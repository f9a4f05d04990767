//! The way of one request, from its first header to its answer.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use axum::extract::Request;
use axum::http::header::CONTENT_ENCODING;
use axum::http::{HeaderMap, Method};
use axum::response::Response;

use crate::accept::{Accept, Accepted};
use crate::answer::{self, Failure};
use crate::body::Intake;
use crate::route::Route;

pub(crate) type Clock = Arc<dyn Fn() -> SystemTime + Send + Sync>;

/// What all routes of one router share.
pub(crate) struct Shared {
    pub(crate) acceptor: Arc<dyn Accept>,
    pub(crate) intake: Intake,
    pub(crate) retry_after: Duration,
    pub(crate) clock: Clock,
}

/// One source: where its requests are taken or refused.
pub(crate) struct Endpoint {
    pub(crate) source: String,
    pub(crate) route: Route,
    pub(crate) shared: Arc<Shared>,
}

impl Endpoint {
    pub(crate) async fn answer(&self, request: Request) -> Response {
        match self.take(request).await {
            Ok(accepted) => {
                tracing::debug!(source = self.source, ?accepted, "webhook stored");
                answer::accepted()
            }
            Err(failure) => {
                failure.log(&self.source);
                failure.response(self.shared.retry_after)
            }
        }
    }

    /// In this order: what costs nothing, the body, its signature, its meaning, its place in the inbox.
    async fn take(&self, request: Request) -> Result<Accepted, Failure> {
        let Self { source, route, shared } = self;
        let (head, body) = request.into_parts();
        if head.method != Method::POST {
            return Err(Failure::Method);
        }
        if is_encoded(&head.headers) {
            return Err(Failure::Encoded);
        }
        shared.intake.check(&body)?;
        let now = (shared.clock)();
        route.scheme.glance(&head.headers, now)?;
        let body = shared.intake.read(body).await?;
        route.scheme.verify(&head.headers, &body.bytes, now)?;
        let incoming = route.incoming(source, &head.headers, body.bytes.clone())?;
        Ok(shared.acceptor.accept(incoming).await?)
    }
}

/// A few bytes can be inflated to gigabytes, and what was signed are the bytes as they came.
fn is_encoded(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_ENCODING).iter().any(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity"))
}
