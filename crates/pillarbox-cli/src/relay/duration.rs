//! Times in a configuration: a whole number and its unit, such as `500ms`, `30s`, `5m`, `2h`.

use std::time::Duration;

use serde::{Deserialize, Deserializer, de};

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    parse(&text).ok_or_else(|| de::Error::custom("expected a whole number and one of ms, s, m, h, such as \"30s\""))
}

/// A time that may be missing.
pub(crate) mod optional {
    use super::{Deserializer, Duration};

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        super::deserialize(deserializer).map(Some)
    }
}

fn parse(text: &str) -> Option<Duration> {
    let digits = text.find(|character: char| !character.is_ascii_digit())?;
    let (number, unit) = text.split_at(digits);
    let number: u64 = number.parse().ok()?;
    let milliseconds = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return None,
    };
    Some(Duration::from_millis(number.checked_mul(milliseconds)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_has_a_number_and_a_unit() {
        let table = [("500ms", 500), ("30s", 30_000), ("5m", 300_000), ("2h", 7_200_000), ("0s", 0)];
        for (text, milliseconds) in table {
            assert_eq!(parse(text), Some(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["", "30", "s", "1.5s", "-1s", "7d ", "99999999999999999999s", "18446744073709551615h"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
