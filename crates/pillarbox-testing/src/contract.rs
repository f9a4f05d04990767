//! What other languages write by plain SQL: the statements of the document, and the message that the fullest of them leaves.

use std::time::Duration;

use pillarbox_core::admin::{MessageName, StoredMessage};
use pillarbox_core::{Message, MessageId, OutboxAdmin, State, key_hash};
use uuid::Uuid;

/// The id in the statements that use everything a message may have.
const FULL: Uuid = Uuid::from_u128(0x0198_a7c2_5b1e_7c3d_9a4f_2f6e_8d1c_0b5a);

/// The key in all statements of the document.
const KEY: &str = "customer-7";

/// The code blocks of a document that begin with these words, such as `sql postgres`, in its order.
pub fn code_blocks(page: &str, words: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(info) = line.strip_prefix("```") else { continue };
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        if info == words {
            blocks.push(block.join("\n"));
        }
    }
    blocks
}

/// The hash that a routine for other languages must give the key of the document.
pub fn contract_key_hash() -> i64 {
    i64::from(key_hash(KEY))
}

/// Looks whether the statement that uses everything was stored as the library itself would have.
///
/// # Panics
///
/// When it was not.
pub async fn assert_contract_message<S: OutboxAdmin>(store: &S) {
    let name = MessageName::Message(MessageId::from_uuid(FULL).expect("an id"));
    let stored = store.get(name).await.expect("the store answers").expect("the message is stored");
    let due = stored.due_at.expect("it is delayed").duration_since(stored.created_at).expect("it lies ahead");
    assert_eq!(due, Duration::from_secs(30));
    assert_eq!((stored.state, stored.attempts, stored.owner), (State::Pending, 0, None));
    let message = read(&stored);
    assert_eq!(message.topic(), "order.created");
    assert_eq!(serde_json::from_slice::<serde_json::Value>(message.payload()).unwrap_or_default()["id"], 2);
    let texts = [
        (message.get_key(), KEY),
        (message.get_message_type(), "shop.OrderCreated"),
        (message.get_aggregate_id(), "2"),
        (message.get_tenant(), "acme"),
        (message.get_correlation_id(), "request-4711"),
        (message.get_causation_id(), "basket-12"),
        (message.get_content_type(), "application/json"),
        (message.get_headers().get("source").map(String::as_str), "shop"),
        (message.get_headers().get("retries").map(String::as_str), "3"),
    ];
    for (found, expected) in texts {
        assert_eq!(found, Some(expected));
    }
    assert_eq!((message.get_aggregate_type(), message.get_priority()), ("order", 5));
    assert!(message.expires().is_some());
}

fn read(stored: &StoredMessage) -> &Message {
    stored.message.as_ref().expect("it can be read")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_blocks_that_are_asked_for_are_found() {
        let page = "```sql a\nx;\ny;\n```\ntext\n```sql b\nz;\n```\n```\nplain\n```\n```sql a\n```\n";
        assert_eq!(code_blocks(page, "sql a"), ["x;\ny;", ""]);
        assert_eq!(code_blocks(page, "sql"), Vec::<String>::new());
    }
}
