use std::io::ErrorKind;
use std::time::Duration;

use axum::Router;
use pillarbox_webhook::{AcceptError, Stripe, Webhooks};

use crate::exchange::*;
use crate::server::*;

const PAID: &str = r#"{"id":"evt_1","type":"invoice.paid"}"#;

/// H58: the answer comes after the commit, not before.
#[tokio::test]
async fn nothing_is_answered_before_the_delivery_is_stored() {
    let desk = Desk::default();
    desk.hold();
    let mut stream = write(serve(webhooks(&desk)).await, &stripe(PAID).bytes()).await;
    desk.entered().await;
    let early = stream.try_read(&mut [0; 64]).map_err(|error| error.kind());
    assert_eq!(early, Err(ErrorKind::WouldBlock));
    assert!(desk.taken().is_empty());
    desk.release();
    assert_eq!(finish(&mut stream).await.status, 200);
    assert_eq!(desk.taken().len(), 1);
}

/// H56: within the window, a replay is a duplicate, and the sender cannot tell.
#[tokio::test]
async fn a_duplicate_is_answered_like_a_new_one() {
    let desk = Desk::default();
    let address = serve(webhooks(&desk)).await;
    let (first, second) = (stripe(PAID).send(address).await, stripe(PAID).send(address).await);
    assert_eq!((first.status, second.status), (200, 200));
    assert_eq!(first.body, second.body);
    assert_eq!(desk.taken()[0].receipt(), desk.taken()[1].receipt());
}

/// H56, H57.
#[tokio::test]
async fn what_is_not_signed_is_refused_and_reaches_nobody() {
    let desk = Desk::default();
    let address = serve(webhooks(&desk)).await;
    let signature = stripe_signature(PAID.as_bytes());
    let unsigned = || Post::to("/hooks/stripe", PAID);
    let table = [
        unsigned(),
        unsigned().with("stripe-signature", ""),
        unsigned().with("stripe-signature", "t=1700000000,v1=00"),
        unsigned().with("stripe-signature", signature.replace("t=17", "t=16")),
        unsigned().with("stripe-signature", &signature).with("Stripe-Signature", &signature),
        Post::to("/hooks/stripe", PAID.replace("evt_1", "evt_2")).with("stripe-signature", &signature),
        Post::to("/hooks/github", PAID).with("stripe-signature", &signature),
        Post::to("/hooks/standard", PAID).with("stripe-signature", &signature),
        // Not JSON either: the signature is looked at first.
        Post::to("/hooks/stripe", "{").with("stripe-signature", &signature),
    ];
    for (index, post) in table.iter().enumerate() {
        let answer = post.send(address).await;
        assert_eq!((answer.status, answer.body.as_str()), (401, "signature refused\n"), "case {index}");
    }
    assert!(desk.taken().is_empty());
}

/// H57.
#[tokio::test]
async fn what_is_signed_but_senseless_is_malformed() {
    let desk = Desk::default();
    let address = serve(webhooks(&desk)).await;
    let event = "x-github-event";
    let table = [
        stripe(""),
        stripe("{"),
        stripe("[]"),
        stripe(r#"{"type":"no id"}"#),
        stripe(r#"{"id":"","type":"empty id"}"#),
        stripe(r#"{"id":"a","id":"b"}"#),
        stripe(format!(r#"{{"id":"{}"}}"#, "x".repeat(256))),
        stripe(r#"{"id":"a\u0000b"}"#),
        stripe(format!(r#"{{"id":"a","type":"{}"}}"#, "x".repeat(250))),
        stripe(b"{\"id\":\"a\",\"note\":\"\xff\"}"),
        stripe(PAID).with("content-type", "application/json").with("content-type", "text/plain"),
        standard("msg_1", "not json"),
        github(PAID),
        github(PAID).with(event, "push"),
        github(PAID).with("x-github-delivery", "1"),
        github(PAID).with(event, "push").with("x-github-delivery", "1").with("x-github-delivery", "2"),
    ];
    for (index, post) in table.iter().enumerate() {
        let answer = post.send(address).await;
        assert_eq!(answer.status, 400, "case {index}");
        assert!(answer.is_brief(), "case {index}: {:?}", answer.body);
    }
    assert!(desk.taken().is_empty());
}

#[tokio::test]
async fn other_paths_and_methods_have_their_own_answers() {
    let address = serve(webhooks(&Desk::default())).await;
    for path in ["/hooks/other", "/hooks", "/hooks/", "/hooks/stripe/", "/hooks/STRIPE", "/hooks/%73tripes", "/stripe"]
    {
        assert_eq!(Post::to(path, "").send(address).await.status, 404, "{path}");
    }
    for method in ["GET", "PUT", "DELETE", "OPTIONS", "PATCH"] {
        let mut stream = write(address, stripe("").head(method).as_bytes()).await;
        let answer = finish(&mut stream).await;
        assert_eq!(answer.status, 405, "{method}");
        assert!(answer.head.contains("allow: post"), "{}", answer.head);
        assert!(answer.is_brief());
    }
}

/// H58: who could not store says so, and nothing about why.
#[tokio::test]
async fn a_store_that_fails_is_never_a_success() {
    let desk = Desk::default();
    let address = serve(webhooks(&desk).retry_after(Duration::from_secs(7))).await;
    let cause = || "canary: password authentication failed for user relay".to_owned();
    let table = [
        (AcceptError::Unavailable(cause()), 503),
        (AcceptError::Invalid(cause()), 400),
        (AcceptError::Failed(cause()), 500),
    ];
    for (failure, status) in table {
        desk.fail(failure);
        let answer = stripe(PAID).send(address).await;
        assert_eq!(answer.status, status);
        assert!(answer.is_brief() && !answer.body.contains("canary"), "{:?}", answer.body);
        assert_eq!(answer.head.contains("retry-after: 7"), status == 503, "{}", answer.head);
    }
    assert!(desk.taken().is_empty());
}

/// H57: everything that is wrong is named before anybody can connect.
#[test]
fn a_receiver_that_cannot_work_does_not_start() {
    let scheme = || Stripe::secret(SECRET).unwrap();
    let fields = |webhooks: Webhooks| -> Vec<&'static str> {
        match webhooks.into_router() {
            Ok(_) => Vec::new(),
            Err(invalid) => invalid.problems().iter().map(pillarbox_core::Problem::field).collect(),
        }
    };
    let new = || Webhooks::new(Desk::default());
    assert_eq!(fields(new()), ["routes"]);
    for source in ["", "a/b", "{source}", "*", "ü", "a b", "..", &"x".repeat(101)] {
        assert_eq!(fields(new().route(source, scheme())), ["source"], "{source:?}");
    }
    assert_eq!(fields(new().route("a", scheme()).route("a", scheme())), ["source"]);
    let kept = pillarbox_webhook::Route::of(scheme()).keep_header("a b").keep_header("Pillarbox-Source");
    assert_eq!(fields(new().route("a", kept)), ["keep_header", "keep_header"]);
    let wrong = new().body_limit(0).memory_limit(usize::MAX).read_timeout(Duration::ZERO);
    assert_eq!(fields(wrong), ["routes", "body_limit", "memory_limit", "read_timeout"]);
    assert_eq!(fields(new().route("a", scheme()).memory_limit(10)), ["memory_limit"]);
    assert!(fields(new().route("a", scheme()).route("b.c-d_E9", scheme())).is_empty());
}

#[test]
fn the_router_can_be_merged_into_one_with_a_fallback() {
    let hooks = webhooks(&Desk::default()).into_router().unwrap();
    let _: Router = Router::new().fallback(|| async { "mine" }).merge(hooks);
}
