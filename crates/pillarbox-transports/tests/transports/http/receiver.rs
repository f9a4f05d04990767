//! A server of webhooks that keeps what it answered, and can be killed.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::pending;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt, stream};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use pillarbox_core::wire::from_line_safe;
use pillarbox_testing::station::Arrived;
use pillarbox_webhook::{Scheme, StandardWebhooks};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};

/// Larger bodies are answered with 413.
pub(crate) const BODY_BYTES_MAX: usize = 300_000;

/// What HTTP itself and Standard Webhooks add to a message's headers.
const NOT_THE_MESSAGES: [&str; 8] = [
    "host",
    "accept",
    "user-agent",
    "content-length",
    "content-type",
    "webhook-id",
    "webhook-timestamp",
    "webhook-signature",
];

/// A request that was verified or not.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

struct Book {
    scheme: StandardWebhooks,
    requests: Mutex<Vec<Received>>,
    places: Mutex<BTreeMap<String, Vec<Arrived>>>,
    redirect: Mutex<String>,
    /// Requests to `/slow` wait for one of these.
    slow: Semaphore,
    changed: watch::Sender<()>,
}

pub(crate) struct Receiver {
    address: SocketAddr,
    book: Arc<Book>,
    serving: Option<JoinHandle<()>>,
}

impl Receiver {
    /// Listens on a free port, and takes what is signed with the secret.
    pub(crate) async fn start(secret: &str) -> Self {
        let book = Arc::new(Book {
            scheme: StandardWebhooks::secret(secret).expect("the secret is one"),
            requests: Mutex::default(),
            places: Mutex::default(),
            redirect: Mutex::default(),
            slow: Semaphore::new(0),
            changed: watch::Sender::new(()),
        });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        let serving = Some(tokio::spawn(serve(listener, Arc::clone(&book))));
        Self { address, book, serving }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Makes a place, and answers its path.
    pub(crate) fn place(&self, name: &str) -> String {
        let path = format!("/places/{name}");
        self.book.places.lock().expect("nobody panics with the book open").insert(path.clone(), Vec::new());
        path
    }

    /// Where redirects lead.
    pub(crate) fn redirect_to(&self, url: &str) {
        url.clone_into(&mut self.book.redirect.lock().expect("nobody panics with the book open"));
    }

    /// Every `POST` so far.
    pub(crate) fn requests(&self) -> Vec<Received> {
        self.book.requests.lock().expect("nobody panics with the book open").clone()
    }

    /// Waits until so many have come.
    pub(crate) async fn asked(&self, count: usize) {
        let mut changed = self.book.changed.subscribe();
        while self.requests().len() < count {
            changed.changed().await.expect("the book is there");
        }
    }

    /// Answers so many of those that wait at `/slow`.
    pub(crate) fn go_on(&self, count: usize) {
        self.book.slow.add_permits(count);
    }

    pub(crate) async fn arrived(&self, path: &str, count: usize) -> Vec<Arrived> {
        let mut changed = self.book.changed.subscribe();
        loop {
            let arrived = self.book.places.lock().expect("nobody panics with the book open")[path].clone();
            if arrived.len() >= count {
                return arrived;
            }
            changed.changed().await.expect("the book is there");
        }
    }

    /// Drops the listener and every connection.
    pub(crate) async fn kill(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.abort();
            let _ = serving.await;
        }
    }

    pub(crate) async fn revive(&mut self) {
        let mut again = tokio::time::interval(Duration::from_millis(5));
        let listener = loop {
            match TcpListener::bind(self.address).await {
                Ok(listener) => break listener,
                Err(_) => drop(again.tick().await),
            }
        };
        self.serving = Some(tokio::spawn(serve(listener, Arc::clone(&self.book))));
    }
}

/// Connections live in the set, and end with the task that holds it.
async fn serve(listener: TcpListener, book: Arc<Book>) {
    let router = Router::new().fallback(answer).with_state(book);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                connections.spawn(serve_one(stream, router.clone()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve_one(stream: TcpStream, router: Router) {
    let service = TowerToHyperService::new(router);
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}

async fn answer(State(book): State<Arc<Book>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    if parts.method != Method::POST {
        return StatusCode::METHOD_NOT_ALLOWED.into_response();
    }
    let Ok(body) = to_bytes(body, usize::MAX).await else { return StatusCode::BAD_REQUEST.into_response() };
    let path = parts.uri.path().to_owned();
    let received = Received { path: path.clone(), headers: parts.headers, body };
    book.requests.lock().expect("nobody panics with the book open").push(received.clone());
    book.changed.send_replace(());
    if received.body.len() > BODY_BYTES_MAX {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    }
    if book.scheme.verify(&received.headers, &received.body, SystemTime::now()).is_err() {
        return (StatusCode::UNAUTHORIZED, "canary: who are you?").into_response();
    }
    let words: Vec<_> = path.split('/').skip(1).collect();
    match words.as_slice() {
        ["status", status] => told(&book, status, None),
        ["status", status, after] => told(&book, status, Some(after)),
        ["hang"] => pending().await,
        ["slow"] => {
            book.slow.acquire().await.expect("nobody closes it").forget();
            StatusCode::NO_CONTENT.into_response()
        }
        ["flood"] => Body::from_stream(stream::repeat_with(|| Ok::<_, Infallible>(vec![0; 4096]))).into_response(),
        ["drip"] => {
            let first = stream::once(async { Ok::<_, Infallible>(vec![0]) });
            Body::from_stream(first.chain(stream::pending())).into_response()
        }
        _ => book.take(&path, received).into_response(),
    }
}

fn told(book: &Book, status: &str, after: Option<&str>) -> Response {
    let mut headers = HeaderMap::new();
    if let Some(after) = after {
        headers.insert("retry-after", after.parse().expect("a path is a header"));
    }
    let redirect = book.redirect.lock().expect("nobody panics with the book open");
    if !redirect.is_empty() {
        headers.insert("location", redirect.parse().expect("a URL is a header"));
    }
    (status.parse::<StatusCode>().expect("a status"), headers, "canary").into_response()
}

impl Book {
    fn take(&self, path: &str, received: Received) -> StatusCode {
        let mut places = self.places.lock().expect("nobody panics with the book open");
        let Some(place) = places.get_mut(path) else { return StatusCode::NOT_FOUND };
        let text = |name: &str| received.headers.get(name).map(|value| decoded(value.as_bytes()));
        let own = received.headers.iter().filter(|(name, _)| !NOT_THE_MESSAGES.contains(&name.as_str()));
        place.push(Arrived {
            body: received.body.clone(),
            content_type: text("content-type"),
            headers: own
                .map(|(name, value)| (from_line_safe(name.as_str()).into_owned(), decoded(value.as_bytes())))
                .collect(),
            broker_key: None,
            broker_id: text("webhook-id"),
        });
        self.changed.send_replace(());
        StatusCode::NO_CONTENT
    }
}

fn decoded(value: &[u8]) -> String {
    from_line_safe(std::str::from_utf8(value).expect("lines are ASCII")).into_owned()
}
