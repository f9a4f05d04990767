use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use pillarbox_webhook::Scheme;
use proptest::prelude::*;

use crate::support::*;

/// Flips one bit somewhere in the header values or the body.
fn flip(request: &mut Request, place: prop::sample::Index) {
    let length = request.headers.iter().map(|(_, value)| value.len()).sum::<usize>() + request.body.len();
    let bit = place.index(length * 8);
    let parts = request.headers.iter_mut().map(|(_, value)| value).chain([&mut request.body]);
    let mut byte = bit / 8;
    for part in parts {
        match part.get_mut(byte) {
            Some(target) => return *target ^= 1 << (bit % 8),
            None => byte -= part.len(),
        }
    }
}

/// A signed request is taken; with one bit flipped it is not.
fn check(scheme: &impl Scheme, mut request: Request, place: prop::sample::Index) -> Result<(), TestCaseError> {
    prop_assert_eq!(request.verify(scheme, at(SENT_AT)), Ok(()));
    flip(&mut request, place);
    prop_assert!(request.verify(scheme, at(SENT_AT)).is_err(), "{:?}", request);
    Ok(())
}

fn anything() -> impl Strategy<Value = Vec<u8>> {
    let likely = "[tv1shawec_=, .0-9a-f]{0,200}".prop_map(String::into_bytes);
    prop_oneof![likely, prop::collection::vec(any::<u8>(), 0..200)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    /// H57.
    #[test]
    fn one_flipped_bit_anywhere_is_refused(body in prop::collection::vec(any::<u8>(), 0..300), place: prop::sample::Index) {
        check(&stripe(), by_stripe(&body), place)?;
        check(&standard(), by_standard(&body), place)?;
        check(&github(), by_github(&body), place)?;
    }

    /// H56.
    #[test]
    fn time_decides_as_the_window_says(offset in -1_000_i64..1_000, tolerance in 0_u64..900) {
        let now = at(SENT_AT.checked_add_signed(offset).unwrap());
        let is_inside = offset.unsigned_abs() <= tolerance;
        let tolerance = Duration::from_secs(tolerance);
        prop_assert_eq!(by_stripe(b"{}").verify(&stripe().tolerance(tolerance), now).is_ok(), is_inside);
        prop_assert_eq!(by_standard(b"{}").verify(&standard().tolerance(tolerance), now).is_ok(), is_inside);
    }

    /// H57: nothing panics, and nobody gets in by chance.
    #[test]
    fn any_headers_get_an_answer(values in prop::collection::vec(anything(), 0..6), body in anything(), now: u32) {
        let names =
            ["stripe-signature", "x-hub-signature-256", "webhook-id", "webhook-timestamp", "webhook-signature"];
        let mut headers = HeaderMap::new();
        for (name, value) in names.iter().cycle().zip(values) {
            if let Ok(value) = HeaderValue::from_bytes(&value) {
                headers.append(HeaderName::from_static(name), value);
            }
        }
        let now = at(now.into());
        prop_assert!(stripe().verify(&headers, &body, now).is_err());
        prop_assert!(standard().verify(&headers, &body, now).is_err());
        prop_assert!(github().verify(&headers, &body, now).is_err());
    }
}
