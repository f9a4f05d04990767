//! Delays in the answer of `latency`.

use serde_json::{Value, json};

/// Nanoseconds from one moment to a later one; negative when it came before.
#[derive(Debug, Default)]
pub(crate) struct Delays(Vec<i64>);

impl Delays {
    pub(crate) fn add(&mut self, nanos: i64) {
        self.0.push(nanos);
    }

    pub(crate) fn answer(mut self) -> Value {
        self.0.sort_unstable();
        let [p50, p99, max] = [500, 990, 1000].map(|per_thousand| self.at(per_thousand));
        json!({ "p50_us": p50, "p99_us": p99, "max_us": max, "count": self.0.len() })
    }

    /// Microseconds that so many per thousand do not exceed.
    fn at(&self, per_thousand: usize) -> f64 {
        let rank = (self.0.len() * per_thousand).div_ceil(1000).saturating_sub(1);
        #[expect(clippy::cast_precision_loss, reason = "delays far below 2^52 nanoseconds")]
        self.0.get(rank).map_or(f64::NAN, |nanos| *nanos as f64 / 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_one_of_the_delays() {
        let mut delays = Delays::default();
        (1..=200).rev().for_each(|micros| delays.add(micros * 1000));
        let answer = delays.answer();
        assert_eq!((answer["p50_us"].as_f64(), answer["p99_us"].as_f64()), (Some(100.0), Some(198.0)));
        assert_eq!((answer["max_us"].as_f64(), answer["count"].as_u64()), (Some(200.0), Some(200)));
    }
}
