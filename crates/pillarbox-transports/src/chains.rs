//! Batches of messages of which some must stay in order.

use std::collections::HashMap;

use pillarbox_core::{Parcel, Undelivered};

/// The places of a batch in chains: messages of one key in their order, and each one without a key by itself.
pub(crate) fn chains(parcels: &[Parcel<'_>]) -> Vec<Vec<usize>> {
    let mut chains: Vec<Vec<usize>> = Vec::new();
    let mut of_key = HashMap::new();
    for (at, parcel) in parcels.iter().enumerate() {
        let next = chains.len();
        let chain = match parcel.message.get_key() {
            Some(key) => *of_key.entry(key).or_insert(next),
            None => next,
        };
        if chain == next {
            chains.push(Vec::new());
        }
        chains[chain].push(at);
    }
    chains
}

/// What is said of a message that was not sent, because the one before it in its chain was not taken.
pub(crate) fn behind(earlier: &Undelivered) -> Undelivered {
    match earlier {
        Undelivered::Unavailable { .. } | Undelivered::Later { .. } => earlier.clone(),
        _ => Undelivered::refused("an earlier message of its key was not taken"),
    }
}

#[cfg(test)]
mod tests {
    use pillarbox_core::Message;

    use super::*;

    #[test]
    fn messages_of_a_key_stand_in_one_chain() {
        let messages = [Some("a"), None, Some("b"), Some("a"), None].map(|key| {
            let message = Message::new("t", "");
            key.into_iter().fold(message, Message::key)
        });
        let parcels: Vec<_> = messages.iter().map(|message| Parcel::new("d", message)).collect();
        assert_eq!(chains(&parcels), [vec![0, 3], vec![1], vec![2], vec![4]]);
        assert_eq!(chains(&[]), Vec::<Vec<usize>>::new());
    }

    #[test]
    fn what_stands_behind_a_rejected_message_may_go_another_time() {
        assert!(matches!(behind(&Undelivered::rejected("no")), Undelivered::Refused { .. }));
        let away = Undelivered::unavailable("away");
        assert_eq!(behind(&away), away);
    }
}
