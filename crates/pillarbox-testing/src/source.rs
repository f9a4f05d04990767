//! What the subscription suite needs of a broker, beyond what a transport's [`Station`] has.

use std::future::Future;

use pillarbox_core::Subscription;

use crate::station::Station;

/// What the suite's receipts call the broker.
pub const SOURCE: &str = "suite";

/// Deliveries that a subscription of the suite takes ahead, where the broker sends ahead.
pub const AHEAD: usize = 200;

/// A broker that can be read from. What the suite sends into it goes through the station's transport.
pub trait Source: Station {
    /// Our consumer of it.
    type Subscription: Subscription;

    /// One more subscription to a [place](Station::place), which has not connected yet. All of one place are of one group: each
    /// message goes to one of them. The first one gets also what was sent before it came.
    ///
    /// Its receipts name [`SOURCE`], it takes [`AHEAD`] deliveries ahead, and its time limits are short: what one that is gone
    /// has held goes to another after a few seconds at the most.
    fn subscribe(&self, destination: &str) -> Self::Subscription;

    /// Messages of a place that its group has neither acknowledged nor rejected. Asked when no subscription is open; the broker
    /// may need a moment to notice that, so the suite asks until the number is right.
    fn left(&self, destination: &str) -> impl Future<Output = usize> + Send;
}
