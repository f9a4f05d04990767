//! How many bytes of payloads a runtime holds, and what it may take in besides. Pure.

/// What a payload is taken for while none has been seen.
const FIRST_GUESS: usize = 64 * 1024;

/// The size of the payloads that come, as far as can be told from those that came.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PayloadSize {
    mean: usize,
}

impl Default for PayloadSize {
    fn default() -> Self {
        Self { mean: FIRST_GUESS }
    }
}

impl PayloadSize {
    /// So many came, with so many bytes. Believed at once when they are larger than thought, and bit by bit when they are smaller.
    pub(crate) fn saw(&mut self, count: usize, bytes: usize) {
        let Some(mean) = bytes.checked_div(count) else { return };
        self.mean = if mean >= self.mean { mean } else { self.mean - (self.mean - mean).div_ceil(2) };
    }

    /// Messages that one of several calls may claim where `free` bytes are; none when nothing is free, else one at least.
    pub(crate) fn affordable(self, free: usize, call_count: usize, limit: usize) -> usize {
        if free == 0 {
            return 0;
        }
        let each = free / call_count.max(1);
        each.checked_div(self.mean).unwrap_or(limit).max(1).min(limit)
    }
}

/// How many of these payloads, from the first on, fit into the bytes that are free.
pub(crate) fn fitting(free: usize, payloads: impl Iterator<Item = usize>) -> usize {
    let mut left = free;
    let fits = |bytes: &usize| match left.checked_sub(*bytes) {
        Some(rest) => {
            left = rest;
            true
        }
        None => false,
    };
    payloads.take_while(fits).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1024 * 1024;

    #[test]
    fn small_payloads_are_limited_by_their_number_only() {
        let mut size = PayloadSize::default();
        assert_eq!(size.affordable(64 * MIB, 2, 200), 200, "nor are those that nobody has seen");
        size.saw(200, 200 * 200);
        assert_eq!(size.affordable(64 * MIB, 2, 10_000), 1020);
        for _ in 0..20 {
            size.saw(200, 200 * 200);
        }
        assert_eq!(size.affordable(MIB, 2, 10_000), 2621);
        size.saw(3, 0);
        size.saw(0, 0);
        assert!(size.affordable(MIB, 2, 10_000) > 5000);
    }

    /// HOUSE: however large they are, they are claimed; and none while there is no room.
    #[test]
    fn large_payloads_are_limited_by_their_bytes() {
        let mut size = PayloadSize::default();
        size.saw(10, 10 * MIB);
        assert_eq!(size.affordable(64 * MIB, 2, 200), 32);
        assert_eq!(size.affordable(64 * MIB, 2, 20), 20);
        assert_eq!([size.affordable(1, 2, 200), size.affordable(0, 2, 200)], [1, 0]);
    }

    #[test]
    fn payloads_fit_until_one_does_not() {
        assert_eq!(fitting(10, [3, 7, 1].into_iter()), 2);
        assert_eq!(fitting(10, [11, 1].into_iter()), 0, "what comes behind does not overtake");
        assert_eq!(fitting(0, [0, 0].into_iter()), 2);
    }
}
