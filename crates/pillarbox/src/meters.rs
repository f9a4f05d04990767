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

#[cfg(test)]
#[cfg(feature = "metrics")]
mod tests {
    use pillarbox_core::StoreId;
    use pillarbox_core::clock::Jump;
    use pillarbox_core::store::Reaped;

    use crate::telemetry::inbox::InboxTelemetry;
    use crate::telemetry::tally::Tally;
    use crate::telemetry::{METRICS, RouteMeters, Telemetry};

    /// HOT-20: every name is registered, with the store, and where routes differ with the route.
    #[test]
    fn every_metric_is_registered_and_moves() {
        let tally = Tally::default();
        let store_id = StoreId::new("shop").unwrap();
        let (telemetry, route, _inbox) = metrics::with_local_recorder(&tally, || {
            (Telemetry::new(&store_id), RouteMeters::new(&store_id, "order.*"), InboxTelemetry::new(&store_id))
        });
        let registered = tally.names();
        for name in METRICS {
            let full = registered.iter().find(|full| full.starts_with(&format!("{name} store=shop")));
            assert!(full.is_some(), "{name} is not registered");
        }
        assert_eq!(registered.len(), METRICS.len() + 1, "deaths are counted with a route and without one");

        telemetry.hot_enqueued(1);
        telemetry.hot_dropped(2, false);
        telemetry.claimed(3);
        telemetry.purged(4);
        telemetry.clock_jumped(Jump::Back(std::time::Duration::ZERO));
        telemetry.reaped(&Reaped { released: 1, lost: 2, expired: 3, ..Reaped::default() });
        telemetry.depths(7, 8, 9);
        telemetry.oldest_age(std::time::Duration::from_millis(1500));
        telemetry.wakeups(true);
        route.dead();
        route.paused(true);
        route.end_to_end_took(std::time::Duration::ZERO);
        let counts = [
            ("pillarbox_hot_enqueued_total store=shop", 1),
            ("pillarbox_hot_dropped_total store=shop", 2),
            ("pillarbox_cold_enqueued_total store=shop", 3),
            ("pillarbox_purged_total store=shop", 4),
            ("pillarbox_reaped_total store=shop", 6),
            ("pillarbox_clock_jumps_total store=shop", 1),
            ("pillarbox_dead_total store=shop,route=order.*", 1),
            ("pillarbox_dead_total store=shop", 5),
        ];
        for (name, count) in counts {
            assert_eq!(tally.count(name), count, "{name}");
        }
        let levels = [
            ("pillarbox_hot_depth store=shop", 7.0),
            ("pillarbox_cold_depth store=shop", 8.0),
            ("pillarbox_in_flight store=shop", 9.0),
            ("pillarbox_oldest_age_seconds store=shop", 1.5),
            ("pillarbox_wakeups store=shop", 1.0),
            ("pillarbox_route_paused store=shop,route=order.*", 1.0),
        ];
        for (name, level) in levels {
            assert!((tally.level(name) - level).abs() < f64::EPSILON, "{name}");
        }
    }
}
