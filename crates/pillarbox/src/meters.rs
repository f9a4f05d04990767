//! Counters, gauges and histograms of the facade `metrics`; without the feature they do nothing.

use std::time::Duration;

macro_rules! meter {
    ($(#[$doc:meta])* $name:ident, $register:ident) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $name {
            #[cfg(feature = "metrics")]
            inner: Registered<metrics::$name>,
        }

        impl $name {
            /// The label `route` is for what differs between routes; topics would be too many.
            pub(crate) fn new(name: &'static str, store: &str, route: Option<&str>) -> Self {
                #[cfg(feature = "metrics")]
                {
                    let mut labels = vec![metrics::Label::new("store", store.to_owned())];
                    labels.extend(route.map(|route| metrics::Label::new("route", route.to_owned())));
                    Self { inner: Registered(metrics::$register!(name, labels)) }
                }
                #[cfg(not(feature = "metrics"))]
                {
                    let _ = (name, store, route);
                    Self {}
                }
            }
        }
    };
}

meter!(
    /// Something that only grows.
    Counter,
    counter
);
meter!(
    /// Something that goes up and down.
    Gauge,
    gauge
);
meter!(
    /// Something of which the distribution matters.
    Histogram,
    histogram
);

impl Counter {
    pub(crate) fn add(&self, count: usize) {
        self.add_u64(u64::try_from(count).unwrap_or(u64::MAX));
    }

    pub(crate) fn add_u64(&self, count: u64) {
        #[cfg(feature = "metrics")]
        self.inner.0.increment(count);
        let _ = count;
    }
}

impl Gauge {
    pub(crate) fn set(&self, value: f64) {
        #[cfg(feature = "metrics")]
        self.inner.0.set(value);
        let _ = value;
    }

    pub(crate) fn set_count(&self, count: usize) {
        // Exact up to four billion, and nothing here is bounded by more than a million.
        self.set(f64::from(u32::try_from(count).unwrap_or(u32::MAX)));
    }
}

impl Histogram {
    pub(crate) fn record(&self, time: Duration) {
        #[cfg(feature = "metrics")]
        self.inner.0.record(time);
        let _ = time;
    }
}

/// A handle of the facade, which has no `Debug` worth printing.
#[cfg(feature = "metrics")]
struct Registered<T>(T);

#[cfg(feature = "metrics")]
impl<T> std::fmt::Debug for Registered<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Registered")
    }
}
