//! What an instance tells of its routes: their names, and which of them it paused by itself. It stands in the metadata of the
//! [list of instances](crate::instance), as far as there is room.

use std::time::Duration;

use crate::instance::Instance;

/// Under which name an instance lists its routes.
const ROUTES: &str = "routes";

/// What stands before the name of a route that is paused.
const HALT: &str = "halted ";

/// Halts that are told at the most.
const HALTS_MAX: usize = 8;

/// A route that an instance paused because its destination is away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Halt {
    /// Its name.
    pub route: String,
    /// For how long.
    pub lasts: Duration,
    /// When the destination is tried again.
    pub probe_in: Duration,
    /// What was last heard of it.
    pub reason: String,
}

impl Halt {
    /// Characters of the reason.
    pub const REASON_CHARS_MAX: usize = 160;

    fn to_text(&self) -> String {
        format!("{} {} {}", self.lasts.as_secs(), self.probe_in.as_secs(), self.reason)
    }

    fn of_text(route: &str, text: &str) -> Option<Self> {
        let mut parts = text.splitn(3, ' ');
        let mut seconds = || parts.next()?.parse().ok().map(Duration::from_secs);
        let (lasts, probe_in) = (seconds()?, seconds()?);
        Some(Self { route: route.to_owned(), lasts, probe_in, reason: parts.next().unwrap_or_default().to_owned() })
    }
}

impl Instance {
    /// Tells of its routes and of those that it paused by itself, as far as its metadata has room.
    #[must_use]
    pub fn telling(self, routes: &[&str], halts: &[Halt]) -> Self {
        let mut told = self;
        for halt in halts.iter().take(HALTS_MAX) {
            told = told.with_room_for(format!("{HALT}{}", halt.route), halt.to_text());
        }
        told.with_room_for(ROUTES.to_owned(), serde_json::Value::from(routes).to_string())
    }

    /// The names of its routes, where it tells them.
    pub fn routes(&self) -> Option<Vec<String>> {
        self.get_metadata().get(ROUTES).and_then(|text| serde_json::from_str(text).ok())
    }

    /// The routes that it paused by itself, as they were when it was last heard of.
    pub fn halts(&self) -> Vec<Halt> {
        let halt = |(name, text): (&String, &String)| Halt::of_text(name.strip_prefix(HALT)?, text);
        self.get_metadata().iter().filter_map(halt).collect()
    }

    fn with_room_for(self, name: String, value: String) -> Self {
        let more = self.clone().metadata(name, value);
        if more.validate().is_ok() { more } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instance::METADATA_BYTES_MAX;

    fn halt(route: &str) -> Halt {
        let (lasts, probe_in) = (Duration::from_secs(840), Duration::from_secs(12));
        Halt { route: route.into(), lasts, probe_in, reason: "broker refused connections".into() }
    }

    #[test]
    fn what_an_instance_tells_of_its_routes_is_read_again() {
        let told = Instance::new("relay", "host", 1).metadata("zone", "eu");
        let told = told.telling(&["order.*", "audit \"x\""], &[halt("order.*")]);
        assert_eq!(told.routes(), Some(vec!["order.*".to_owned(), "audit \"x\"".to_owned()]));
        assert_eq!(told.halts(), [halt("order.*")]);
        assert_eq!(told.get_metadata()["halted order.*"], "840 12 broker refused connections");
        assert_eq!(Instance::new("s", "h", 1).routes(), None);
    }

    #[test]
    fn what_does_not_fit_is_not_told() {
        let routes = vec!["route"; 1000];
        let halts: Vec<_> = (0..20).map(|number| halt(&number.to_string())).collect();
        let told = Instance::new("relay", "host", 1).telling(&routes, &halts);
        assert_eq!((told.routes(), told.halts().len()), (None, HALTS_MAX));
        let full = Instance::new("relay", "host", 1).metadata("a", "x".repeat(METADATA_BYTES_MAX - 1));
        assert_eq!(full.clone().telling(&["r"], &halts), full);
        let foreign = Instance::new("s", "h", 1).metadata("halted x", "long ago").metadata("routes", "[1]");
        assert_eq!((foreign.halts(), foreign.routes()), (vec![], None));
    }
}
