//! What the status of an answer means for a message: a pure decision.

use std::time::{Duration, SystemTime};

use pillarbox_core::{Delivery, DeliveryResult, Undelivered};

/// How long an endpoint is left alone that asks for time and does not say how much.
const DELAY_UNSAID: Duration = Duration::from_secs(10);
const DELAY_MIN: Duration = Duration::from_secs(1);

/// What an endpoint answered, as far as it counts. Its body does not: nobody reads it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answer<'a> {
    pub(super) status: u16,
    pub(super) retry_after: Option<&'a str>,
    /// Bytes of the payload that was sent.
    pub(super) sent: usize,
}

impl Answer<'_> {
    /// What became of the message. `origin` says where; a delay is at most `delay_max`.
    pub(super) fn judge(self, origin: &str, now: SystemTime, delay_max: Duration) -> DeliveryResult {
        let reason = format!("{origin} answered {}", self.status);
        match self.status {
            200..=299 => Ok(Delivery::Taken),
            410 => Err(Undelivered::Gone { reason }),
            413 => Err(Undelivered::TooLarge { bytes: self.sent, limit: None }),
            429 | 503 => {
                let asked = self.retry_after.and_then(|text| delay(text.trim(), now)).unwrap_or(DELAY_UNSAID);
                Err(Undelivered::Later { delay: asked.clamp(DELAY_MIN, delay_max.max(DELAY_MIN)), reason })
            }
            // These speak of the door, not of the message: nobody listens there yet, or does not know us yet.
            401 | 403 | 404 | 408 | 425 => Err(Undelivered::refused(reason)),
            400..=499 => Err(Undelivered::rejected(reason)),
            // Redirects are not followed: they lead past the check of the destination.
            _ => Err(Undelivered::refused(reason)),
        }
    }
}

/// Seconds or a date, as HTTP has them.
fn delay(text: &str, now: SystemTime) -> Option<Duration> {
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(text.parse().map_or(Duration::MAX, Duration::from_secs));
    }
    let at = httpdate::parse_http_date(text).ok()?;
    Some(at.duration_since(now).unwrap_or(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;
    const HOUR: Duration = Duration::from_secs(3600);

    fn judged(status: u16, retry_after: Option<&str>) -> DeliveryResult {
        Answer { status, retry_after, sent: 7 }.judge("a.example:443", NOW, HOUR)
    }

    /// BUS-12: every status has one meaning.
    #[test]
    fn every_status_has_one_meaning() {
        for status in 100..=599 {
            let result = judged(status, None);
            let is_expected = match status {
                200..=299 => result == Ok(Delivery::Taken),
                410 => matches!(result, Err(Undelivered::Gone { .. })),
                413 => result == Err(Undelivered::TooLarge { bytes: 7, limit: None }),
                429 | 503 => matches!(result, Err(Undelivered::Later { delay: DELAY_UNSAID, .. })),
                100..=399 | 401 | 403 | 404 | 408 | 425 | 500.. => matches!(result, Err(Undelivered::Refused { .. })),
                _ => matches!(result, Err(Undelivered::Rejected { .. })),
            };
            assert!(is_expected, "{status}: {result:?}");
        }
        assert_eq!(judged(500, None), Err(Undelivered::refused("a.example:443 answered 500")));
    }

    /// BUS-12: Retry-After is seconds or a date, and never more than the ceiling.
    #[test]
    fn the_time_that_is_asked_for_is_given_within_bounds() {
        let seconds = Duration::from_secs;
        let table = [
            ("7", seconds(7)),
            (" 120 ", seconds(120)),
            ("0", seconds(1)),
            ("3601", HOUR),
            ("99999999999999999999999999", HOUR),
            ("Thu, 01 Jan 1970 00:01:30 GMT", seconds(90)),
            ("Thursday, 01-Jan-70 00:01:30 GMT", seconds(90)),
            ("Thu Jan  1 00:01:30 1970", seconds(90)),
            ("Fri, 01 Jan 2100 00:00:00 GMT", HOUR),
            ("-5", DELAY_UNSAID),
            ("1.5", DELAY_UNSAID),
            ("soon", DELAY_UNSAID),
            ("", DELAY_UNSAID),
        ];
        for (text, expected) in table {
            for status in [429, 503] {
                let Err(Undelivered::Later { delay, .. }) = judged(status, Some(text)) else { panic!("{text}") };
                assert_eq!(delay, expected, "{text}");
            }
        }
        let later = Answer { status: 503, retry_after: Some("Thu, 01 Jan 1970 00:00:30 GMT"), sent: 0 };
        let past = later.judge("a", NOW + HOUR, HOUR).unwrap_err();
        assert!(matches!(past, Undelivered::Later { delay: DELAY_MIN, .. }), "{past:?}");
    }
}
