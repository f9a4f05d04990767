//! The bounds of a head, and limits that make no sense.

use std::time::Duration;

use axum::Router;
use pillarbox_webhook::Server;

use crate::exchange::*;
use crate::server::*;

/// A valid delivery whose head has exactly this many bytes.
fn headed(bytes: usize) -> Post {
    let post = || stripe(r#"{"id":"evt_1"}"#);
    let plain = post().with("x-pad", "").head("POST").len();
    post().with("x-pad", "x".repeat(bytes - plain))
}

/// H59.
#[tokio::test]
async fn a_head_beyond_its_bytes_is_refused() {
    let desk = Desk::default();
    for limit in [1000, 8192, 100_000] {
        let address = host(Server::new(router(webhooks(&desk))).header_bytes(limit)).await;
        assert_eq!(headed(limit).send(address).await.status, 200, "{limit}");
        let answer = headed(limit + 1).send(address).await;
        assert_eq!((answer.status, answer.body.as_str()), (431, ""), "{limit}");
    }
    assert_eq!(desk.taken().len(), 3);
}

/// H59: nothing has to be set.
#[tokio::test]
async fn a_head_of_more_than_eight_kibibytes_is_refused_by_default() {
    let desk = Desk::default();
    let address = host(Server::new(router(webhooks(&desk)))).await;
    assert_eq!(headed(8 * 1024).send(address).await.status, 200);
    assert_eq!(headed(8 * 1024 + 1).send(address).await.status, 431);
    assert_eq!(desk.taken().len(), 1);
}

/// H59: those of a plain delivery are host, connection, length and signature.
#[tokio::test]
async fn too_many_headers_are_refused() {
    let desk = Desk::default();
    for limit in [10, 100, 300] {
        let address = host(Server::new(router(webhooks(&desk))).header_count(limit)).await;
        let many = (5..=limit).fold(stripe(r#"{"id":"evt_1"}"#), |post, index| post.with(&format!("x-{index}"), "y"));
        assert_eq!(many.send(address).await.status, 200, "{limit}");
        assert_eq!(many.with("x-more", "y").send(address).await.status, 431, "{limit}");
    }
    assert_eq!(desk.taken().len(), 3);
}

/// H59: everything that is wrong is named, with its limit, before anybody is served.
#[tokio::test]
async fn limits_that_make_no_sense_are_refused() {
    let (zero, years) = (Duration::ZERO, Duration::MAX);
    let none =
        |server: Server| server.connections(0).header_timeout(zero).idle_timeout(zero).grace(zero).drain_timeout(zero);
    let endless = |server: Server| server.header_timeout(years).idle_timeout(years).grace(years).drain_timeout(years);
    let day = 24 * 60 * 60;
    let small = [
        ("connections", 1),
        ("header_bytes", 1),
        ("header_count", 1),
        ("header_timeout", 1),
        ("idle_timeout", 1),
        ("grace", 1),
        ("drain_timeout", 1),
    ];
    let large = [
        ("header_bytes", 1024 * 1024),
        ("header_count", 10_000),
        ("header_timeout", day),
        ("idle_timeout", day),
        ("grace", day),
        ("drain_timeout", day),
    ];
    for (server, expected) in [
        (none(Server::new(Router::new())).header_bytes(0).header_count(0), small.as_slice()),
        (endless(Server::new(Router::new())).header_bytes(usize::MAX).header_count(usize::MAX), &large),
    ] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let invalid = server.serve(listener).await.unwrap_err();
        let found: Vec<_> =
            invalid.problems().iter().map(|problem| (problem.field(), problem.limit().unwrap())).collect();
        assert_eq!(found, expected, "{invalid}");
    }
}
