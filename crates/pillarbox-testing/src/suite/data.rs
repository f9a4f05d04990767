//! Bytes in, bytes out; and what is refused before it reaches a database.

use std::time::{Duration, SystemTime};

use super::support::*;
use crate::Harness;

async fn round_trip<H: Harness>(h: &H, message: &Message) -> Message {
    enqueue(h.store(), std::slice::from_ref(message)).await;
    let owner = OwnerToken::new();
    let claimed = claim_one(h.store(), owner).await;
    let looked_up = stored(h.store(), message.id()).await.message.expect("it can be read");
    let read = claimed.message.clone().expect("it can be read");
    assert_eq!(looked_up, read, "claim and look-up read the same");
    settle_all(h.store(), owner, &[claimed], &Verdict::Ack).await;
    read
}

async fn refusal<H: Harness>(h: &H, message: Message) -> Vec<&'static str> {
    let mut tx = h.begin().await;
    let batch = [message];
    let refused = h.enqueue_in(&mut tx, Enqueue::pending(&batch)).await;
    h.rollback(tx).await;
    let fields = refused_fields(refused);
    assert_eq!(refused_fields(h.store().enqueue(Enqueue::pending(&batch)).await), fields);
    assert_eq!(find(h.store(), batch[0].id()).await, None);
    fields
}

/// Every field comes back as it was given, and as none when it was not. HOT-16, WRK-02, H48.
pub async fn every_field_comes_back<H: Harness>() {
    let h = start::<H>().await;
    let bare = Message::new("t", "");
    assert_eq!(round_trip(&h, &bare).await, bare);
    let full = Message::new("order.created", "payload")
        .message_type("created")
        .aggregate_type("order")
        .aggregate_id("order-7")
        .tenant("acme")
        .key("customer-3")
        .correlation_id("request-42")
        .causation_id("command-41")
        .content_type("text/plain; charset=utf-8")
        .header("b", "2")
        .header("a", "1")
        .header("empty", "")
        .occurred_at(SystemTime::UNIX_EPOCH + Duration::from_micros(1_234_567_890_123_456))
        .priority(-7);
    assert_eq!(round_trip(&h, &full).await, full);
}

/// Due time and expiry come back as the instants that the database made of them. OBX-012, H50.
pub async fn due_time_and_expiry_come_back_as_instants<H: Harness>() {
    let h = start::<H>().await;
    let message = messages(1).remove(0).delay(10 * HOUR).expires_in(20 * HOUR);
    enqueue(h.store(), std::slice::from_ref(&message)).await;
    let row = stored(h.store(), message.id()).await;
    let read = row.message.expect("it can be read");
    let instant = |when| match when {
        Some(pillarbox_core::message::When::At(at)) => at,
        other => panic!("must be an instant, is {other:?}"),
    };
    assert_eq!(row.due_at, Some(instant(read.due())));
    assert_near(instant(read.due()).duration_since(row.created_at).unwrap_or_default(), 10 * HOUR);
    assert_near(instant(read.expires()).duration_since(row.created_at).unwrap_or_default(), 20 * HOUR);
}

/// A payload may be any bytes in any format, and comes back byte for byte. OBX-011, H48.
pub async fn a_payload_of_any_bytes_comes_back<H: Harness>() {
    let h = start::<H>().await;
    let every_byte: Vec<u8> = (0..=255).collect();
    let payloads: [&[u8]; 7] = [
        &every_byte,
        b"\0",
        b"\xff\xfe\xc0\x80\xed\xa0\x80",
        b"{\"a\": 1, \"a\": 2}",
        b"'; drop table outbox; --",
        b"\\x00 \\000 %s $1 ?",
        "\u{1F4EE}\u{202E}\u{0}".as_bytes(),
    ];
    for payload in payloads {
        let message = Message::new("t", payload.to_vec());
        assert_eq!(round_trip(&h, &message).await.payload(), payload);
    }
}

/// An empty payload is a payload. OBX-006.
pub async fn an_empty_payload_is_a_payload<H: Harness>() {
    let h = start::<H>().await;
    assert!(round_trip(&h, &Message::new("t", "")).await.payload().is_empty());
}

/// Text of every script, with quotes, backslashes, wildcards and line breaks, comes back as it was given. H48.
pub async fn text_of_every_kind_comes_back<H: Harness>() {
    let h = start::<H>().await;
    let texts = [
        "\u{1F4EE}\u{1F1E9}\u{1F1EA}",
        "שלום \u{202E}abc",
        "it's \"quoted\" `so` \\ \\' \\0 \\u0000",
        "line\nbreak\r\ttab",
        "%_?$1:a{}[]",
        " leading and trailing ",
        "e\u{301} is not \u{e9}",
        "\u{FEFF}\u{FFFD}\u{10FFFF}\u{7f}\u{1}",
        "null",
        "İıſK",
    ];
    for text in texts {
        let message = Message::new(text, text)
            .message_type(text)
            .aggregate_type(text)
            .aggregate_id(text)
            .tenant(text)
            .key(text)
            .correlation_id(text)
            .causation_id(text)
            .content_type(text)
            .header(text, text);
        assert_eq!(round_trip(&h, &message).await, message, "{text:?}");
        let owner = OwnerToken::new();
        let (id, claimed) = enqueue_and_claim(h.store(), owner).await;
        settle_all(h.store(), owner, &[claimed], &fail(text)).await;
        assert_eq!(stored(h.store(), id).await.last_error.as_deref(), Some(text));
    }
}

/// Topics that differ in case, accents or trailing spaces are different topics. OBX-010, H51.
pub async fn topics_are_told_apart_byte_by_byte<H: Harness>() {
    let h = start::<H>().await;
    let mut topics =
        ["order", "Order", "ORDER", "order ", " order", "ordér", "orde\u{301}r", "straße", "strasse", "i", "ı"];
    enqueue(h.store(), &topics.map(|topic| Message::new(topic, ""))).await;
    let overview = h.store().overview().await.expect("messages can be counted");
    topics.sort_unstable();
    assert_eq!(overview.topics.iter().map(|one| one.topic.as_str()).collect::<Vec<_>>(), topics);
    assert!(overview.topics.iter().all(|one| one.counts.pending == 1));
}

/// Ids that are not time-ordered are ids too; those that differ in one bit are different messages. WRK-05, H51.
pub async fn any_id_but_nil_names_a_message<H: Harness>() {
    let h = start::<H>().await;
    assert_eq!(MessageId::new().as_uuid().get_version_num(), 7);
    assert!(MessageId::from_uuid(uuid::Uuid::nil()).is_err());
    let numbers = [1, 2, 0x2020_2020_2020_2020_2020_2020_2020_2020, u128::MAX - 1, u128::MAX];
    let batch = numbers.map(|number| {
        let id = MessageId::from_uuid(uuid::Uuid::from_u128(number)).expect("it is not nil");
        Message::new("t", "").with_id(id)
    });
    enqueue(h.store(), &batch).await;
    assert_eq!(ids_of(&claim(h.store(), OwnerToken::new(), 10).await), ids(&batch));
}

/// A topic must not be empty. OBX-004.
pub async fn a_topic_must_not_be_empty<H: Harness>() {
    let h = start::<H>().await;
    assert_eq!(refusal(&h, Message::new("", "payload")).await, ["topic"]);
}

/// Texts have up to 255 characters, counted as characters, in every field. OBX-007, OBX-009, H48.
pub async fn texts_have_up_to_255_characters<H: Harness>() {
    let h = start::<H>().await;
    let of = |length: usize| {
        let text = "\u{1F4EE}".repeat(length);
        Message::new(&text, "")
            .message_type(&text)
            .aggregate_type(&text)
            .aggregate_id(&text)
            .tenant(&text)
            .key(&text)
            .correlation_id(&text)
            .causation_id(&text)
            .content_type(&text)
    };
    let longest = of(255);
    assert_eq!(round_trip(&h, &longest).await, longest);
    let fields = ["topic", "message_type", "aggregate_type", "aggregate_id", "tenant"];
    let more = ["key", "correlation_id", "causation_id", "content_type"];
    assert_eq!(refusal(&h, of(256)).await, [&fields[..], &more].concat());
}

/// An empty correlation id is none. OBX-008.
pub async fn an_empty_correlation_id_is_none<H: Harness>() {
    let h = start::<H>().await;
    let message = Message::new("t", "").correlation_id("");
    assert_eq!(round_trip(&h, &message).await.get_correlation_id(), None);
}

/// A NUL in a text is refused before it reaches the database, so that the user's transaction goes on. H48, HOT-02.
pub async fn a_nul_is_refused_and_the_transaction_goes_on<H: Harness>() {
    let h = start::<H>().await;
    let bad = [
        Message::new("a\0", ""),
        Message::new("t", "").key("a\0"),
        Message::new("t", "").correlation_id("\0"),
        Message::new("t", "").header("a\0", ""),
        Message::new("t", "").header("a", "\0"),
    ];
    let mut tx = h.begin().await;
    h.write_business_row(&mut tx).await;
    for message in bad {
        let refused = h.enqueue_in(&mut tx, Enqueue::pending(&[message])).await;
        assert_eq!(refused_fields(refused).len(), 1);
    }
    let good = messages(1);
    h.enqueue_in(&mut tx, Enqueue::pending(&good)).await.expect("the transaction is not harmed");
    h.commit(tx).await;
    assert_eq!(h.business_row_count().await, 1);
    assert_eq!(ids_of(&claim(h.store(), OwnerToken::new(), 10).await), ids(&good));
}

/// Payloads of nothing, one byte and the limit go in and out; one byte more is refused. HOT-15, OBX-096, H49.
pub async fn a_payload_may_fill_its_limit<H: Harness>() {
    let h = start::<H>().await;
    let limit = h.store().options().limits.payload_bytes_max;
    assert_eq!(limit, 1024 * 1024, "1 MiB unless set otherwise");
    for size in [0, 1, limit - 1, limit] {
        let message = Message::new("t", vec![0xa5; size]);
        assert!(round_trip(&h, &message).await.payload() == message.payload(), "{size} bytes");
    }
    assert_eq!(refusal(&h, Message::new("t", vec![0; limit + 1])).await, ["payload"]);
}

/// With the limit raised, payloads of megabytes go in and out, many in one batch too. HOT-15, OBX-096, H49.
pub async fn a_raised_limit_holds<H: Harness>() {
    let mut options = options();
    options.limits.payload_bytes_max = 8 * 1024 * 1024;
    let h = H::start(options).await;
    let large = Message::new("t", vec![0x5a; 8 * 1024 * 1024]);
    assert!(round_trip(&h, &large).await.payload() == large.payload());
    let batch: Vec<_> = (0..24_u8).map(|byte| Message::new("t", vec![byte; 1024 * 1024])).collect();
    enqueue(h.store(), &batch).await;
    let claimed = claim(h.store(), OwnerToken::new(), 100).await;
    assert!(claimed.iter().map(|one| one.message.as_ref()).eq(batch.iter().map(Ok)), "24 MiB came back");
}

/// All headers together have a limit; up to it they come back. H49.
pub async fn headers_may_fill_their_limit<H: Harness>() {
    let h = start::<H>().await;
    let limit = h.store().options().limits.headers_bytes_max;
    let full = Message::new("t", "").header("h", "\u{e9}".repeat((limit - 1) / 2));
    assert_eq!(round_trip(&h, &full).await, full);
    assert_eq!(refusal(&h, Message::new("t", "").header("h", "x".repeat(limit))).await, ["headers"]);
    assert_eq!(refusal(&h, Message::new("t", "").header("", "x")).await, ["headers"]);
}
