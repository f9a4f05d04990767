//! The answers of one batch while they come in, and the rule that nothing overtakes an earlier message of its key.

use std::collections::{HashMap, HashSet};

use pillarbox_core::{DeliveryResult, Parcel, Undelivered};

/// Parcels, and the answers so far.
#[derive(Debug)]
pub(crate) struct Batch<'a> {
    parcels: &'a [Parcel<'a>],
    answers: Vec<Option<DeliveryResult>>,
    /// Keys of which a message was not taken, and the first place where that was so.
    stopped: HashMap<&'a str, usize>,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(parcels: &'a [Parcel<'a>]) -> Self {
        Self { parcels, answers: vec![None; parcels.len()], stopped: HashMap::new() }
    }

    pub(crate) fn parcel(&self, place: usize) -> &'a Parcel<'a> {
        &self.parcels[place]
    }

    /// The places that have no answer yet, in order.
    pub(crate) fn unanswered(&self) -> Vec<usize> {
        (0..self.answers.len()).filter(|place| self.answers[*place].is_none()).collect()
    }

    pub(crate) fn is_answered(&self, place: usize) -> bool {
        self.answers[place].is_some()
    }

    pub(crate) fn answer(&mut self, place: usize, answer: DeliveryResult) {
        if let (Err(_), Some(key)) = (&answer, self.parcels[place].message.get_key()) {
            let first = self.stopped.entry(key).or_insert(place);
            *first = place.min(*first);
        }
        self.answers[place] = Some(answer);
    }

    /// Takes back the answers of these places, and of all behind them that have one of their keys: they are sent again, in order.
    #[cfg(feature = "kafka")]
    pub(crate) fn reopen(&mut self, places: &[usize]) {
        let mut keys = HashSet::new();
        for place in 0..self.parcels.len() {
            let key = self.parcels[place].message.get_key();
            let is_behind = key.is_some_and(|key| keys.contains(key));
            if is_behind || places.contains(&place) {
                self.answers[place] = None;
                keys.extend(key);
            }
        }
        // Where a key stops is only known from the answers that are left.
        self.stopped.clear();
        for (place, answer) in self.answers.iter().enumerate() {
            if let (Some(Err(_)), Some(key)) = (answer, self.parcels[place].message.get_key()) {
                self.stopped.entry(key).or_insert(place);
            }
        }
    }

    /// Whether it may be sent. Answers for it if not, because an earlier message of its key stayed behind.
    pub(crate) fn admits(&mut self, place: usize) -> bool {
        let stopped_at = self.parcels[place].message.get_key().and_then(|key| self.stopped.get(key));
        let is_stopped = stopped_at.is_some_and(|first| *first < place);
        if is_stopped {
            self.answers[place] = Some(Err(overtaking()));
        }
        !is_stopped
    }

    /// Every answer; what has none gets the given one. What was taken although an earlier message of its key was not goes again
    /// after that one, under its id.
    pub(crate) fn finish(self, missing: &Undelivered) -> Vec<DeliveryResult> {
        let mut stopped = HashSet::new();
        let answers = self.answers.into_iter().zip(self.parcels).map(|(answer, parcel)| {
            let answer = answer.unwrap_or_else(|| Err(missing.clone()));
            match (parcel.message.get_key(), answer) {
                (Some(key), Ok(_)) if stopped.contains(key) => Err(overtaking()),
                (Some(key), Err(undelivered)) => {
                    stopped.insert(key);
                    Err(undelivered)
                }
                (_, answer) => answer,
            }
        });
        answers.collect()
    }
}

fn overtaking() -> Undelivered {
    Undelivered::refused("an earlier message of its key was not taken")
}

#[cfg(test)]
mod tests {
    use pillarbox_core::{Delivery, Message};

    use super::*;

    fn keyed(keys: &[&str]) -> Vec<Message> {
        keys.iter().map(|key| Message::new("t", "").key(*key)).collect()
    }

    /// HOUSE: messages of a key stay in order, whatever becomes of one of them.
    #[test]
    fn nothing_overtakes_an_earlier_message_of_its_key() {
        let mut messages = keyed(&["a", "b", "a", "b"]);
        messages.push(Message::new("t", ""));
        let parcels: Vec<_> = messages.iter().map(|message| Parcel::new("d", message)).collect();
        let mut batch = Batch::new(&parcels);
        batch.answer(0, Err(Undelivered::rejected("no")));
        assert!(batch.admits(1) && !batch.admits(2) && batch.admits(3) && batch.admits(4));
        assert_eq!(batch.unanswered(), [1, 3, 4]);
        batch.answer(3, Ok(Delivery::Taken));
        batch.answer(4, Ok(Delivery::Taken));
        let away = Undelivered::unavailable("away");
        let refused = Err(overtaking());
        assert_eq!(
            batch.finish(&away),
            [Err(Undelivered::rejected("no")), Err(away), refused.clone(), refused, Ok(Delivery::Taken)]
        );
    }

    /// What stands before a message that was not taken goes all the same.
    #[test]
    fn only_what_stands_behind_is_held_back() {
        let messages = keyed(&["a", "a", "a"]);
        let parcels: Vec<_> = messages.iter().map(|message| Parcel::new("d", message)).collect();
        let mut batch = Batch::new(&parcels);
        batch.answer(1, Err(Undelivered::refused("no")));
        assert!(batch.admits(0) && !batch.admits(2));
    }

    /// What is sent again may be taken this time, and then nothing of its key is held back.
    #[cfg(feature = "kafka")]
    #[test]
    fn what_is_sent_again_holds_nothing_back_any_more() {
        let messages = keyed(&["a", "a", "a", "b", "b"]);
        let parcels: Vec<_> = messages.iter().map(|message| Parcel::new("d", message)).collect();
        let mut batch = Batch::new(&parcels);
        batch.answer(1, Err(Undelivered::refused("no")));
        batch.answer(3, Err(Undelivered::refused("no")));
        batch.reopen(&[0]);
        assert_eq!(batch.unanswered(), [0, 1, 2, 4]);
        for place in 0..3 {
            assert!(batch.admits(place), "{place}");
            batch.answer(place, Ok(Delivery::Taken));
        }
        assert!(!batch.admits(4), "its key was not sent again");
    }
}
