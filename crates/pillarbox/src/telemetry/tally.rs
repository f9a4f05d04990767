//! Sees what is measured, for the tests of this crate.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use metrics::{Key, KeyName, Metadata, Recorder, SharedString, Unit};

/// Keeps what was registered, by name and labels, with the bits that were last written.
#[derive(Default)]
pub(crate) struct Tally(Mutex<BTreeMap<String, Arc<AtomicU64>>>);

impl Tally {
    fn cell(&self, key: &Key) -> Arc<AtomicU64> {
        let labels: Vec<_> = key.labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let name = format!("{} {}", key.name(), labels.join(","));
        Arc::clone(self.0.lock().unwrap().entry(name).or_default())
    }

    /// Everything that was registered.
    pub(crate) fn names(&self) -> Vec<String> {
        self.0.lock().unwrap().keys().cloned().collect()
    }

    pub(crate) fn count(&self, name: &str) -> u64 {
        self.0.lock().unwrap()[name].load(Ordering::Relaxed)
    }

    pub(crate) fn level(&self, name: &str) -> f64 {
        f64::from_bits(self.count(name))
    }
}

impl Recorder for Tally {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> metrics::Counter {
        self.cell(key).into()
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> metrics::Gauge {
        self.cell(key).into()
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> metrics::Histogram {
        self.cell(key);
        metrics::Histogram::noop()
    }
}
