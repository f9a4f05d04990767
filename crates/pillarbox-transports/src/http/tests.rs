use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pillarbox_core::{Delivery, Message};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::guard::tests::{INNER, INNER_IN_V6, forbidden_urls};
use super::*;

/// Answers what a test says, and counts.
#[derive(Clone, Debug)]
struct Book {
    answer: fn(usize, &str) -> io::Result<Vec<IpAddr>>,
    count: Arc<AtomicUsize>,
}

impl Book {
    fn new(answer: fn(usize, &str) -> io::Result<Vec<IpAddr>>) -> Self {
        Self { answer, count: Arc::default() }
    }

    fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl Lookup for Book {
    async fn lookup(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        (self.answer)(self.count.fetch_add(1, Ordering::SeqCst), host)
    }
}

/// A port of this machine where somebody counts who comes.
struct Door {
    address: SocketAddr,
    count: Arc<AtomicUsize>,
}

impl Door {
    /// Answers every connection with 200 and closes it.
    async fn open(address: impl Into<SocketAddr>) -> Self {
        let listener = TcpListener::bind(address.into()).await.unwrap();
        let (address, count) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&count);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(async move {
                    let _ = stream.read(&mut [0; 4096]).await;
                    let _ =
                        stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n").await;
                });
            }
        });
        Self { address, count }
    }

    fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }
}

fn network(text: &str) -> Network {
    text.parse().unwrap()
}

async fn deliver(http: &Http, destinations: &[String]) -> Vec<DeliveryResult> {
    let message = Message::new("t", "body");
    let parcels: Vec<_> = destinations.iter().map(|to| Parcel::new(to.as_str(), &message)).collect();
    http.deliver(&parcels).await
}

/// H60: whatever its spelling, and whatever name leads to it, nobody connects to an inner address.
#[tokio::test]
async fn nobody_connects_to_an_inner_address() {
    let door = Door::open((Ipv6Addr::UNSPECIFIED, 0)).await;
    let port = door.address.port();
    let book = Book::new(|_, host| {
        let number: usize = host.trim_start_matches("inner-").trim_end_matches(".example").parse().unwrap();
        let address = INNER.iter().chain(&INNER_IN_V6).nth(number).unwrap();
        Ok(vec![address.parse().unwrap()])
    });
    let http = Http::new(HttpOptions::new().lookup(book.clone())).unwrap();

    let written = forbidden_urls(port);
    assert!(written.len() >= 300);
    for (result, url) in deliver(&http, &written).await.iter().zip(&written) {
        assert_eq!(*result, Err(Undelivered::rejected(Forbidden::Address)), "{url}");
    }
    assert_eq!(book.count(), 0);

    let count = INNER.len() + INNER_IN_V6.len();
    let named: Vec<_> = (0..count).map(|number| format!("http://inner-{number}.example:{port}/")).collect();
    for (result, url) in deliver(&http, &named).await.iter().zip(&named) {
        let Err(Undelivered::Refused { reason }) = result else { panic!("{url}: {result:?}") };
        assert!(reason.ends_with(&Forbidden::Address.to_string()), "{reason}");
    }
    assert_eq!((book.count(), door.count()), (count, 0));

    let inside = Http::new(HttpOptions::new().guard(Guard::default().allow_private())).unwrap();
    assert_eq!(deliver(&inside, &[format!("http://127.1:{port}/")]).await, [Ok(Delivery::Taken)]);
    assert_eq!(door.count(), 1, "the door was there to be found");
}

/// H60: a name that answers differently each time leads nowhere else than to what was checked.
#[tokio::test]
async fn a_name_that_changes_its_address_gains_nothing() {
    let outer = Door::open((Ipv4Addr::new(127, 0, 0, 2), 0)).await;
    let inner = Door::open((Ipv4Addr::LOCALHOST, outer.address.port())).await;
    let book = Book::new(|number, _| {
        let (good, bad) = ("127.0.0.2".parse().unwrap(), IpAddr::from(Ipv4Addr::LOCALHOST));
        Ok(match number % 3 {
            0 => vec![good],
            1 => vec![bad],
            _ => vec![bad, good, bad],
        })
    });
    let guard = Guard::default().allow_networks([network("127.0.0.2")]);
    let http = Http::new(HttpOptions::new().guard(guard).lookup(book.clone())).unwrap();
    let url = [format!("http://flips.example:{}/", outer.address.port())];
    for number in 0..12 {
        let result = deliver(&http, &url).await.remove(0);
        match number % 3 {
            1 => assert!(matches!(result, Err(Undelivered::Refused { .. })), "{result:?}"),
            _ => assert_eq!(result, Ok(Delivery::Taken)),
        }
        assert_eq!(book.count(), number + 1, "one connection, one question");
    }
    assert_eq!((outer.count(), inner.count()), (8, 0));
}

/// H43: a name that nobody knows says nothing about the message.
#[tokio::test]
async fn a_name_without_an_address_is_unavailable() {
    for answer in [|_, _: &str| Err(io::Error::other("no such host")), |_, _: &str| Ok(Vec::new())] {
        let http = Http::new(HttpOptions::new().lookup(Book::new(answer))).unwrap();
        let results = deliver(&http, &["http://a.example/canary".to_owned()]).await;
        let Err(Undelivered::Unavailable { reason }) = &results[0] else { panic!("{results:?}") };
        assert!(reason.starts_with("a.example:80 cannot be connected to") && !reason.contains("canary"), "{reason}");
    }
}

/// A host that cannot be connected to is tried once in a batch, not once for each message.
#[tokio::test]
async fn the_rest_of_a_batch_does_not_wait_for_a_host_that_is_away() {
    let book = Book::new(|_, _| Err(io::Error::other("no such host")));
    let http = Http::new(HttpOptions::new().lookup(book.clone()).in_flight_max(1)).unwrap();
    let results = deliver(&http, &vec!["http://a.example/".to_owned(); 100]).await;
    assert!(results.iter().all(|result| matches!(result, Err(Undelivered::Unavailable { .. }))));
    assert_eq!(book.count(), 1);
}

/// A template can put together what it likes: a path stays below the base.
#[test]
fn a_path_stays_below_the_base() {
    let http = Http::connect_to("https://hooks.example/in?token=1").unwrap();
    let table = [
        ("", Some("https://hooks.example/in?token=1")),
        ("orders", Some("https://hooks.example/in/orders")),
        ("/orders?x=1", Some("https://hooks.example/in/orders?x=1")),
        ("orders:7", Some("https://hooks.example/in/orders:7")),
        ("//evil.example/", Some("https://hooks.example/in/evil.example/")),
        (r"\\evil.example", Some("https://hooks.example/in///evil.example")),
        ("@evil.example", Some("https://hooks.example/in/@evil.example")),
        ("https://other.example/x", Some("https://other.example/x")),
        ("HTTPS://other.example/x", Some("https://other.example/x")),
        ("../admin", None),
        ("a/../../admin", None),
        ("%2e%2e/admin", None),
        ("..", None),
        ("a b", None),
        ("a\nb", None),
        ("http://10.0.0.1/", None),
    ];
    for (destination, expected) in table {
        let found = http.target(destination).ok();
        assert_eq!(found.as_ref().map(Url::as_str), expected, "{destination}");
    }
    let baseless = Http::new(HttpOptions::new()).unwrap();
    assert_eq!(
        (baseless.target(""), baseless.target("orders")),
        (Err(Forbidden::Malformed), Err(Forbidden::Malformed))
    );
}

/// H54: settings that are wrong are told by name, all at once, and no secret is shown.
#[test]
fn wrong_settings_are_told_and_secrets_are_not() {
    let options = HttpOptions::new()
        .base("ftp://canary@a.example")
        .secret("canary")
        .header("bad name", "canary")
        .header("x", "canary\ncanary")
        .header("Host", "canary")
        .trust("canary")
        .timeout(Duration::ZERO)
        .in_flight_max(0);
    assert!(!format!("{options:?}").contains("canary"));
    let invalid = Http::new(options).unwrap_err();
    let fields: Vec<_> = invalid.problems().iter().map(Problem::field).collect();
    assert_eq!(fields, ["timeout", "in_flight_max", "secrets", "base", "headers", "headers", "headers", "trust"]);
    assert!(!invalid.to_string().contains("canary"));
    let secret = "whsec_Y2FuYXJ5Y2FuYXJ5Y2FuYXJ5Y2FuYXJ5";
    let base = "https://hooks.example/canary";
    let http = Http::new(HttpOptions::new().base(base).secret(secret).header("authorization", "canary")).unwrap();
    let shown = format!("{http:?}");
    assert!(!shown.contains("canary") && !shown.contains("Y2FuYXJ5") && shown.contains("hooks.example:443"), "{shown}");
}
