//! The same 200 bytes for everybody.

/// What every payload measures, in bytes of JSON.
const SIZE: usize = 200;

/// The n-th payload: `{"n":<number>,"pad":"xxxx…"}`.
#[must_use]
pub fn payload(number: u64) -> String {
    let head = format!("{{\"n\":{number},\"pad\":\"");
    let pad = SIZE - 2 - head.len();
    format!("{head}{:x<pad$}\"}}", "")
}

/// The number in a payload, also when a database wrote the JSON anew: it stays the first member.
pub(crate) fn number(payload: &[u8]) -> Option<u64> {
    let digits = payload.iter().skip_while(|byte| !byte.is_ascii_digit()).take_while(|byte| byte.is_ascii_digit());
    let mut number = None;
    for digit in digits {
        number = Some(number.unwrap_or(0_u64).checked_mul(10)?.checked_add(u64::from(digit - b'0'))?);
    }
    number
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_payload_has_200_bytes_and_its_number() {
        for n in [0, 7, 4711, 199_999, 9_999_999_999] {
            let text = payload(n);
            assert_eq!(text.len(), SIZE);
            assert_eq!(number(text.as_bytes()), Some(n));
        }
    }

    #[test]
    fn a_payload_that_a_database_wrote_anew_has_its_number() {
        assert_eq!(number(br#"{"n": 42, "pad": "xx"}"#), Some(42));
        assert_eq!(number(br#"{"pad": "xx"}"#), None);
    }
}
