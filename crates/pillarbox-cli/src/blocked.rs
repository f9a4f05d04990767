//! Keys whose messages wait behind one that failed, as `status`, `top` and `blocked` show them.

use pillarbox::admin::BlockedKey;
use pillarbox::{OutboxAdmin, StoreError};
use serde_json::{Value, json};

use crate::output::{escaped, grouped, instant};

/// Keys that are counted at the most: a status must not take long when everything is stuck.
const COUNTED_MAX: u32 = 1_000;

/// Keys that are shown at the most; `pillarbox blocked` lists more.
const SHOWN_MAX: usize = 5;

/// What is blocked in one queue.
#[derive(Default)]
pub(crate) struct Blocked {
    keys: Vec<BlockedKey>,
}

impl Blocked {
    /// Looks, as far as it counts.
    pub(crate) async fn of(admin: &dyn OutboxAdmin) -> Result<Self, StoreError> {
        Ok(Self { keys: admin.blocked_keys(COUNTED_MAX).await? })
    }

    /// How many, and a line for each of the first ones; nothing where nothing is blocked.
    pub(crate) fn lines(&self) -> Vec<String> {
        if self.keys.is_empty() {
            return Vec::new();
        }
        let count = self.keys.len();
        let more = if count >= COUNTED_MAX as usize { "+" } else { "" };
        let rest = if count > SHOWN_MAX { "; `pillarbox blocked` lists them" } else { "" };
        let head = format!("blocked keys: {}{more}{rest}", grouped(count as u64));
        std::iter::once(head).chain(self.shown().map(line)).collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.keys.len()
    }

    /// The first ones.
    pub(crate) fn as_json(&self) -> Value {
        self.shown().map(as_json).collect()
    }

    fn shown(&self) -> impl Iterator<Item = &BlockedKey> {
        self.keys.iter().take(SHOWN_MAX)
    }
}

/// One key, and what it waits for.
pub(crate) fn line(key: &BlockedKey) -> String {
    let error = key.last_error.as_deref().map(|error| format!(": {}", escaped(error))).unwrap_or_default();
    let (name, count) = (escaped(&key.key), grouped(key.waiting_count));
    format!("blocked key {name}: {count} behind row {}, which is {}{error}", key.head, key.state.as_str())
}

pub(crate) fn as_json(key: &BlockedKey) -> Value {
    json!({
        "key": key.key,
        "waiting": key.waiting_count,
        "head": key.head.as_i64(),
        "state": key.state.as_str(),
        "due_at": key.due_at.map(instant),
        "error": key.last_error,
    })
}

#[cfg(test)]
mod tests {
    use pillarbox::WorkId;
    use pillarbox::outbox::State;

    use super::*;

    fn blocked(count: usize) -> Blocked {
        let key = |number: usize| BlockedKey {
            key: format!("customer-{number}\x1b"),
            head: WorkId::from_i64(41),
            state: State::Dead,
            last_error: Some("no\nmailbox".into()),
            due_at: None,
            waiting_count: 1_200,
        };
        Blocked { keys: (0..count).map(key).collect() }
    }

    /// H33, H62: how many there are is told also where they are not all shown or counted.
    #[test]
    fn the_first_keys_stand_for_all() {
        assert_eq!(blocked(0).lines(), [""; 0]);
        let two = blocked(2).lines();
        assert_eq!(two[0], "blocked keys: 2");
        assert_eq!(two[1], "blocked key customer-0\\u{1b}: 1,200 behind row 41, which is dead: no\\nmailbox");
        let many = blocked(1_000).lines();
        assert_eq!((many.len(), many[0].as_str()), (6, "blocked keys: 1,000+; `pillarbox blocked` lists them"));
        assert_eq!(blocked(1_000).as_json().as_array().map(Vec::len), Some(5));
    }
}
