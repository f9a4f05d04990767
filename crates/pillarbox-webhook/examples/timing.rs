//! Measures whether the time of a verification tells how much of a signature is right, or which secret fits.
//!
//! Each pair of classes is measured in random order and compared by Welch's t-test. A value beyond 4.5 would be a leak;
//! `TIMING_SAMPLES` sets the number of samples.
#![expect(clippy::print_stdout, reason = "a program that prints what it measured")]

use std::env;
use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use pillarbox_webhook::{Secret, Secrets, Tag};
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
        let t = measure([one, other], samples)?;
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

/// Both classes are read from the same place, so that nothing but their digits can make a difference.
fn measure(classes: [&str; 2], samples: u32) -> Result<f64, Box<dyn Error>> {
    let secrets = Secrets::new(["first", "second"])?;
    let mut rng = StdRng::seed_from_u64(55);
    let other = Secret::from("other").sign(&[BODY]);
    let mut text = String::with_capacity(64);
    // Drawn beforehand: a branch on the class just before a sample would be felt in it.
    let order: Vec<usize> = (0..samples).map(|_| usize::from(rng.random_ratio(1, 2))).collect();
    let mut measured = Vec::with_capacity(order.len());
    for class in black_box(order) {
        text.clear();
        text.push_str(classes[class]);
        // An untimed round: what was copied has arrived, and every sample begins in the same state.
        let _ = black_box(secrets.have_signed(black_box(&[BODY]), black_box(std::slice::from_ref(&other))));
        let began = Instant::now();
        let tag = black_box(Tag::from_hex(black_box(&text)));
        let _ = black_box(secrets.have_signed(black_box(&[BODY]), black_box(tag.as_slice())));
        measured.push((class, began.elapsed()));
    }
    let of = |class| measured.iter().filter(|(of, _)| *of == class).map(|(_, time)| *time).collect::<Vec<_>>();
    Ok(welch(trimmed(&mut of(0)), trimmed(&mut of(1))))
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
