//! Health and metrics over HTTP, for probes and Prometheus. Says nothing about messages or addresses.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use pillarbox::Fleet;
use serde_json::json;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

/// Upper bounds of the histograms, in seconds.
const BUCKETS: [f64; 14] = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0, 300.0];

/// How often histograms are brought into their buckets: until then they keep every figure.
const UPKEEP: Duration = Duration::from_secs(5);

/// What is shown. Lasts longer than a fleet, which is replaced when the file is read again.
#[derive(Clone)]
pub(crate) struct Endpoint {
    shown: Arc<Shown>,
}

struct Shown {
    metrics: PrometheusHandle,
    fleet: Mutex<Option<Fleet>>,
}

/// Where it is shown.
pub(crate) struct Port {
    /// As it was asked for.
    listen: String,
    served: Option<(SocketAddr, JoinHandle<()>)>,
}

impl Endpoint {
    /// Begins to count. Must come before the fleet: handles are made when it starts.
    pub(crate) fn new() -> Result<Self, String> {
        let builder = PrometheusBuilder::new()
            .set_buckets_for_metric(Matcher::Suffix("_seconds".to_owned()), &BUCKETS)
            .map_err(|error| error.to_string())?;
        let metrics = builder.install_recorder().map_err(|error| format!("metrics: {error}"))?;
        let upkept = metrics.clone();
        // Also while nobody asks for them.
        tokio::spawn(async move {
            let mut often = tokio::time::interval(UPKEEP);
            loop {
                often.tick().await;
                upkept.run_upkeep();
            }
        });
        Ok(Self { shown: Arc::new(Shown { metrics, fleet: Mutex::default() }) })
    }

    /// Shows another fleet from now on; none while there is none.
    pub(crate) fn show(&self, fleet: Option<Fleet>) {
        *self.shown.fleet.lock().unwrap_or_else(PoisonError::into_inner) = fleet;
    }

    /// Serves at an address in a task of its own, until it is closed; `off` for nowhere.
    pub(crate) async fn open(&self, listen: &str) -> Result<Port, String> {
        if listen == "off" {
            return Ok(Port { listen: listen.to_owned(), served: None });
        }
        let listener = TcpListener::bind(listen).await.map_err(|error| {
            format!("relay.listen: {listen} cannot be used: {error}; choose another, or \"off\" for none")
        })?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let router = Router::new()
            .route("/metrics", get(metrics))
            .route("/healthz", get(|| async { "alive\n" }))
            .route("/readyz", get(ready))
            .with_state(Arc::clone(&self.shown));
        let server = tokio::spawn(async move { drop(axum::serve(listener, router).await) });
        Ok(Port { listen: listen.to_owned(), served: Some((address, server)) })
    }
}

impl Port {
    /// Whether it is the one that is asked for.
    pub(crate) fn is_at(&self, listen: &str) -> bool {
        self.listen == listen
    }

    /// Nobody is answered any more when this has returned.
    pub(crate) async fn close(self) {
        if let Some((_, server)) = self.served {
            server.abort();
            let _ = server.await;
        }
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.served {
            None => f.write_str("no metrics"),
            Some((address, _)) => write!(f, "metrics on http://{address}/metrics"),
        }
    }
}
async fn metrics(State(shown): State<Arc<Shown>>) -> Response {
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4")], shown.metrics.render()).into_response()
}

/// 200 while every store answers; brokers that are away pause their routes, which is told and no reason to be restarted.
async fn ready(State(shown): State<Arc<Shown>>) -> Response {
    let fleet = shown.fleet.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let Some(fleet) = fleet else {
        return (StatusCode::SERVICE_UNAVAILABLE, "not started\n").into_response();
    };
    let mut is_ready = true;
    let mut stores = Vec::new();
    for key in fleet.stores() {
        let stats = fleet.stats(key.as_str()).ok().and_then(|stats| stats.outbox);
        let is_up = stats.as_ref().is_some_and(|stats| !stats.is_store_out);
        is_ready &= is_up;
        let paused = stats.map(|stats| stats.paused_routes).unwrap_or_default();
        stores.push(json!({ "store": key.as_str(), "is_up": is_up, "paused_routes": paused }));
    }
    is_ready &= !stores.is_empty();
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, axum::Json(json!({ "is_ready": is_ready, "stores": stores }))).into_response()
}
