//! Measures whether the time of a verification tells how much of a signature is right, or which secret fits.
//!
//! Each pair of classes is measured in random order and compared by Welch's t-test. A value beyond 4.5 would be a leak;
//! `TIMING_SAMPLES` sets the number of samples.
#![expect(clippy::print_stdout, reason = "a program that prints what it measured")]

use std::env;
use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant, SystemTime};

use axum::http::{HeaderMap, HeaderValue};
use pillarbox_webhook::{GitHub, Scheme, Secret};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const BODY: &[u8] = br#"{"id":"evt_1","type":"invoice.paid"}"#;
const LEAK: f64 = 4.5;

fn main() -> Result<(), Box<dyn Error>> {
    let samples = env::var("TIMING_SAMPLES").map_or(Ok(1_000_000), |text| text.parse())?;
    let right = Secret::from("first").sign(&[BODY]).to_hex();
    let second = Secret::from("second").sign(&[BODY]).to_hex();
    let (none, half, most) = (spoiled(&right, 0), spoiled(&right, 32), spoiled(&right, 63));
    let pairs = [
        ("same class twice, as a control", &none, &none),
        ("no digit right / half of them right", &none, &half),
        ("no digit right / all but the last right", &none, &most),
        ("signed by the first secret / by the second", &right, &second),
    ];
    let mut is_leaking = false;
    for (name, one, other) in pairs {
        let t = measure(&[signed(one)?, signed(other)?], samples)?;
        is_leaking |= t.abs() > LEAK;
        println!("t = {t:6.2}  {name}");
    }
    if is_leaking { Err("a class differs: repeat on a quiet machine before believing it".into()) } else { Ok(()) }
}

/// The same digits as far as `place`, and wrong ones from there on.
fn spoiled(tag: &str, place: usize) -> String {
    let wrong = tag[place..].chars().map(|digit| if digit == '0' { 'f' } else { '0' });
    tag[..place].chars().chain(wrong).collect()
}

fn signed(tag: &str) -> Result<HeaderMap, Box<dyn Error>> {
    let value = HeaderValue::from_str(&format!("sha256={tag}"))?;
    Ok(HeaderMap::from_iter([("x-hub-signature-256".parse()?, value)]))
}

fn measure(classes: &[HeaderMap; 2], samples: u32) -> Result<f64, Box<dyn Error>> {
    let scheme = GitHub::secrets(["first", "second"])?;
    let mut rng = StdRng::seed_from_u64(55);
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..samples {
        let class = usize::from(rng.random_ratio(1, 2));
        let began = Instant::now();
        let _ = black_box(scheme.verify(black_box(&classes[class]), black_box(BODY), SystemTime::UNIX_EPOCH));
        times[class].push(began.elapsed());
    }
    let [mut one, mut other] = times;
    Ok(welch(trimmed(&mut one), trimmed(&mut other)))
}

/// Without the slowest tenth: interrupts, not the code.
fn trimmed(times: &mut [Duration]) -> &[Duration] {
    times.sort_unstable();
    &times[..times.len() * 9 / 10]
}

fn welch(one: &[Duration], other: &[Duration]) -> f64 {
    let ((mean_one, share_one), (mean_other, share_other)) = (moments(one), moments(other));
    (mean_one - mean_other) / (share_one + share_other).sqrt()
}

/// The mean, and the variance divided by the number of samples.
fn moments(times: &[Duration]) -> (f64, f64) {
    let count = f64::from(u32::try_from(times.len()).unwrap_or(u32::MAX));
    let mean = times.iter().map(Duration::as_secs_f64).sum::<f64>() / count;
    let variance = times.iter().map(|time| (time.as_secs_f64() - mean).powi(2)).sum::<f64>() / (count - 1.0);
    (mean, variance / count)
}
