use pillarbox_core::inbox::Incoming;
use pillarbox_webhook::{GitHub, Malformed, Route, Stripe};

use crate::exchange::*;
use crate::server::*;

async fn only(desk: &Desk, post: Post) -> Incoming {
    let answer = post.send(serve(webhooks(desk)).await).await;
    assert_eq!(answer.status, 200, "{}", answer.body);
    desk.taken()[0].clone()
}

/// H57: the payload is what was signed, byte for byte, and its hash goes with it.
#[tokio::test]
async fn a_stripe_delivery_is_named_by_its_body() {
    let body = r#"{ "type" : "invoice.paid", "data": {"id":"inner"}, "id" : "evt_1" }"#;
    let post = stripe(body).with("content-type", "application/json; charset=utf-8").with("x-other", "not kept");
    let incoming = only(&Desk::default(), post).await;
    let (receipt, message) = (incoming.receipt(), incoming.message());
    assert_eq!((receipt.source(), receipt.message_id()), ("stripe", "evt_1"));
    assert_eq!((message.topic(), message.get_message_type()), ("stripe.invoice.paid", Some("invoice.paid")));
    assert_eq!(message.get_content_type(), Some("application/json; charset=utf-8"));
    assert_eq!(message.payload(), body.as_bytes());
    assert!(message.get_headers().is_empty());
}

/// Made with `printf '{"id":1}' | openssl dgst -sha256`.
#[tokio::test]
async fn the_hash_is_the_sha256_of_the_body() {
    let incoming = only(&Desk::default(), stripe(r#"{"id":1}"#)).await;
    let hash = incoming.receipt().get_hash().unwrap();
    let hex: String = hash.bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(
        (hash.algorithm(), hex.as_str()),
        ("sha256", "037c9214eef74cc3887f3a4f085b4e17d76280dafd273b0ee160c09c4ba1cfd4")
    );
    assert_eq!((incoming.receipt().message_id(), incoming.message().topic()), ("1", "stripe"));
}

#[tokio::test]
async fn a_standard_delivery_is_named_by_its_header() {
    let incoming = only(&Desk::default(), standard("msg_1", r#"{"type":"contact.created","id":"inner"}"#)).await;
    assert_eq!((incoming.receipt().source(), incoming.receipt().message_id()), ("standard", "msg_1"));
    assert_eq!(incoming.message().topic(), "standard.contact.created");
    assert_eq!(incoming.message().get_headers().get("webhook-timestamp").unwrap(), &SENT_AT.to_string());
    assert_eq!(incoming.message().get_headers().get("webhook-signature"), None);
    let untyped = only(&Desk::default(), standard("msg_2", "{}")).await;
    assert_eq!((untyped.message().topic(), untyped.message().get_message_type()), ("standard", None));
}

/// GitHub can send forms as well as JSON: the body is not looked into.
#[tokio::test]
async fn a_github_delivery_is_named_by_its_headers() {
    let post = github("payload=%7B%7D")
        .with("x-github-delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958")
        .with("x-github-event", "push")
        .with("x-github-hook-id", "42");
    let incoming = only(&Desk::default(), post).await;
    assert_eq!(incoming.receipt().message_id(), "72d3162e-cc78-11e3-81ab-4c9367dc0958");
    assert_eq!(incoming.message().topic(), "github.push");
    assert_eq!(incoming.message().get_headers().get("x-github-hook-id").unwrap(), "42");
    assert_eq!(incoming.message().get_headers().len(), 1);
}

#[tokio::test]
async fn id_topic_and_headers_can_be_found_in_other_ways() {
    let desk = Desk::default();
    let forge = Route::of(GitHub::secret(SECRET).unwrap())
        .message_id(|delivery| delivery.json_id()?.ok_or(Malformed::NoMessageId))
        .topic(|delivery| Ok(format!("{}.any", delivery.source())))
        .keep_header("X-Kept")
        .keep_header("x-twice");
    let picky = Route::of(Stripe::secret(SECRET).unwrap()).topic(|_| Err(Malformed::Other("not for us")));
    let address = serve(webhooks(&desk).route("forge", forge).route("picky", picky)).await;

    let signature = pillarbox_webhook::Secret::from(SECRET).sign(&[br#"{"id":"from the body"}"#]).to_hex();
    let post = Post::to("/hooks/forge", r#"{"id":"from the body"}"#)
        .with("x-hub-signature-256", format!("sha256={signature}"))
        .with("x-kept", "kept")
        .with("x-twice", "1")
        .with("x-twice", "2");
    assert_eq!(post.send(address).await.status, 200);
    let incoming = desk.taken()[0].clone();
    assert_eq!((incoming.receipt().source(), incoming.receipt().message_id()), ("forge", "from the body"));
    assert_eq!((incoming.message().topic(), incoming.message().get_message_type()), ("forge.any", None));
    assert_eq!(
        incoming.message().get_headers().iter().collect::<Vec<_>>(),
        [(&"x-kept".to_owned(), &"kept".to_owned())]
    );

    let body = r#"{"id":"evt_1"}"#;
    let post = Post::to("/hooks/picky", body).with("stripe-signature", stripe_signature(body.as_bytes()));
    let answer = post.send(address).await;
    assert_eq!((answer.status, answer.body.as_str()), (400, "not for us\n"));
}
