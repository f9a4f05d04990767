//! Seeded mutations of signed requests. `PILLARBOX_FUZZ_CASES` sets how many, `PILLARBOX_FUZZ_SEED` where they start.

use std::env;

use pillarbox_webhook::Scheme;
use rand::rngs::StdRng;
use rand::{Rng, RngExt, SeedableRng};

use crate::support::*;

const CASES: u64 = 3_000;
const SEED: u64 = 4711;

/// Pieces that mean something to one of the parsers.
const TOKENS: [&[u8]; 19] = [
    b",",
    b"=",
    b" ",
    b".",
    b"t=",
    b"v1=",
    b"v1,",
    b"v1a,",
    b"sha256=",
    b"whsec_",
    b"t=1700000000",
    b"0",
    b"-1",
    b"\t",
    b"\"",
    b"==",
    b"99999999999999999999",
    b"\xc3\xbc",
    b"\0",
];

fn setting(name: &str, default: u64) -> u64 {
    match env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name} must be a number")),
        Err(_) => default,
    }
}

fn mutate(rng: &mut StdRng, request: &mut Request) {
    let part = rng.random_range(0..=request.headers.len());
    if part < request.headers.len() && rng.random_ratio(1, 12) {
        let (name, value) = request.headers[part].clone();
        match rng.random_ratio(1, 2) {
            true => request.headers.push((name, value)),
            false => drop(request.headers.remove(part)),
        }
        return;
    }
    let bytes = match request.headers.get_mut(part) {
        Some((_, value)) => value,
        None => &mut request.body,
    };
    let place = rng.random_range(0..=bytes.len());
    match rng.random_range(0..6) {
        0 => bytes.truncate(place),
        1 => drop(bytes.splice(place..place, TOKENS[rng.random_range(0..TOKENS.len())].iter().copied())),
        2 => drop(bytes.drain(place..(place + rng.random_range(1..8)).min(bytes.len()).max(place))),
        3 => bytes.extend_from_within(place..),
        4 => bytes.extend((0..rng.random_range(1..5_000)).map(|_| b'v')),
        _ => {
            let noise = u8::try_from(rng.next_u32() & 0xff).unwrap();
            if let Some(byte) = bytes.get_mut(place) {
                *byte = noise;
            }
        }
    }
}

/// Changes a signed request again and again. It may still be taken only when all that was signed is still there.
fn fuzz(scheme: &impl Scheme, signed: &Request, tag: &[u8]) {
    let seed = setting("PILLARBOX_FUZZ_SEED", SEED);
    let case_count = setting("PILLARBOX_FUZZ_CASES", CASES);
    let mut taken_count = 0;
    for seed in (0..case_count).map(|case| seed.wrapping_add(case)) {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut request = signed.clone();
        for _ in 0..rng.random_range(1..6) {
            mutate(&mut rng, &mut request);
        }
        if request.verify(scheme, at(SENT_AT)).is_ok() {
            taken_count += 1;
            let has_tag = request.headers.iter().any(|(_, value)| contains(value, tag));
            assert!(request.body == signed.body && has_tag, "PILLARBOX_FUZZ_SEED={seed}: {request:?}");
        }
    }
    // Changes that change nothing, such as a space at the end: without them the generator would be too coarse.
    assert!(taken_count > 0 || case_count < CASES);
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

const BODY: &[u8] = br#"{"id":"evt_1","type":"invoice.paid"}"#;

/// H57.
#[test]
fn fuzzed_stripe_headers_let_nobody_in() {
    fuzz(&stripe(), &by_stripe(BODY), stripe_tag(STRIPE_SECRET, SENT_AT, BODY).as_bytes());
}

/// H57.
#[test]
fn fuzzed_standard_headers_let_nobody_in() {
    fuzz(&standard(), &by_standard(BODY), standard_tag(STANDARD_BYTES, "msg_1", SENT_AT, BODY).as_bytes());
}

/// H57.
#[test]
fn fuzzed_github_headers_let_nobody_in() {
    let signed = by_github(BODY);
    let tag = signed.headers[0].1["sha256=".len()..].to_vec();
    fuzz(&github(), &signed, &tag);
}
