//! Who serves a queue now: each instance says so again and again, and is gone when it has been silent for too long.
//!
//! Nothing is safe because of this list. It says who should take what, so that instances do not get into each other's way;
//! that no message is handed out twice and no order broken is guarded by the claims themselves.

use std::collections::BTreeMap;
use std::fmt;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;

use crate::error::StoreError;
use crate::id::InstanceId;
use crate::message::{HORIZON_MAX, check_text};
use crate::parts::{read_headers, write_headers};
use crate::problem::{Invalid, Problem};
use crate::retention::PurgeLimit;
use crate::schema::SchemaAdmin;

/// How often an instance says that it is there when nothing else is said.
pub const HEARTBEAT_DEFAULT: Duration = Duration::from_secs(10);

/// How long an instance may be silent when nothing else is said.
pub const STALE_AFTER_DEFAULT: Duration = Duration::from_secs(60);

/// Instances that one call lists at the most: those that were started first.
pub const INSTANCES_MAX: u32 = 1000;

/// Characters of a service, a host or a version.
pub const NAME_CHARS_MAX: usize = 255;

/// Entries of metadata.
pub const METADATA_ENTRIES_MAX: usize = 32;

/// Bytes of all names and values of metadata together.
pub const METADATA_BYTES_MAX: usize = 4096;

/// Characters of stored metadata that a store reads; longer ones were written by others, and are shown as far as this.
pub const METADATA_READ_MAX: u32 = 32 * 1024;

/// Under which name metadata is shown that is not what we would have written.
pub const METADATA_FOREIGN: &str = "?";

/// What a program says of itself. Everybody who may read the list sees it: no secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct Instance {
    id: InstanceId,
    service: String,
    host: String,
    pid: u32,
    version: Option<String>,
    metadata: BTreeMap<String, String>,
}

impl Instance {
    /// An instance of this service, under a new id.
    pub fn new(service: impl Into<String>, host: impl Into<String>, pid: u32) -> Self {
        let (service, host) = (service.into(), host.into());
        Self { id: InstanceId::new(), service, host, pid, version: None, metadata: BTreeMap::new() }
    }

    /// Replaces the drawn id by one that exists already. Two that run under one id count as one.
    #[must_use]
    pub fn with_id(mut self, id: InstanceId) -> Self {
        self.id = id;
        self
    }

    /// Which release of the service it is.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = Some(version.into()).filter(|version| !version.is_empty());
        self
    }

    /// Something else that an operator may want to see, such as a zone.
    #[must_use]
    pub fn metadata(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.metadata.insert(name.into(), value.into());
        self
    }

    /// Its name.
    pub fn id(&self) -> InstanceId {
        self.id
    }

    /// The service it belongs to.
    pub fn service(&self) -> &str {
        &self.service
    }

    /// Where it runs.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The number of its process there.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Which release it is, where it says so.
    pub fn get_version(&self) -> Option<&str> {
        self.version.as_deref()
    }

    /// What else it says of itself.
    pub fn get_metadata(&self) -> &BTreeMap<String, String> {
        &self.metadata
    }

    /// Checks every field and reports everything that is wrong, before any I/O.
    pub fn validate(&self) -> Result<(), Invalid> {
        let mut problems = Vec::new();
        for (field, text) in [("service", &self.service), ("host", &self.host)] {
            if text.is_empty() {
                problems.push(Problem::empty(field));
            }
            check_text(field, text, NAME_CHARS_MAX, &mut problems);
        }
        check_text("version", self.get_version().unwrap_or_default(), NAME_CHARS_MAX, &mut problems);
        self.check_metadata(&mut problems);
        Invalid::unless_empty(problems)
    }

    fn check_metadata(&self, problems: &mut Vec<Problem>) {
        let field = "metadata";
        let count = self.metadata.len();
        if count > METADATA_ENTRIES_MAX {
            let complaint = format!("must have at most {METADATA_ENTRIES_MAX} entries, has {count}");
            problems.push(Problem::out_of_range(field, METADATA_ENTRIES_MAX as u64, complaint));
        }
        let bytes: usize = self.metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
        if bytes > METADATA_BYTES_MAX {
            problems.push(Problem::too_large(field, METADATA_BYTES_MAX, bytes));
        }
        if self.metadata.contains_key("") {
            problems.push(Problem::malformed(field, "must not have an empty name"));
        }
        if self.metadata.iter().any(|(name, value)| name.contains('\0') || value.contains('\0')) {
            problems.push(Problem::malformed(field, "must not contain the character NUL"));
        }
    }
}

// Metadata is for the list, not for logs.
impl fmt::Debug for Instance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, service, host, pid, version, metadata } = self;
        f.debug_struct("Instance")
            .field("id", id)
            .field("service", service)
            .field("host", host)
            .field("pid", pid)
            .field("version", version)
            .field("metadata", &metadata.keys())
            .finish()
    }
}

/// An instance as the list has it, with times of the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceRecord {
    /// What it says of itself.
    pub instance: Instance,
    /// When it registered.
    pub started_at: SystemTime,
    /// When it was heard of last.
    pub last_seen_at: SystemTime,
    /// How long it had been silent when it was listed.
    pub silent_for: Duration,
}

/// The columns of a row, as any backend reads them. Whatever others wrote is shown and not obeyed.
#[derive(Clone, Debug)]
pub struct InstanceParts {
    /// Column `service`.
    pub service: String,
    /// Column `host`.
    pub host: String,
    /// Column `pid`.
    pub pid: i64,
    /// Column `version`.
    pub version: Option<String>,
    /// Column `metadata`: a JSON object.
    pub metadata: Option<String>,
}

impl InstanceParts {
    /// The columns that an instance is written to.
    pub fn of(instance: &Instance) -> Self {
        Self {
            service: instance.service.clone(),
            host: instance.host.clone(),
            pid: i64::from(instance.pid),
            version: instance.version.clone(),
            metadata: write_headers(&instance.metadata),
        }
    }

    /// The instance under this id.
    pub fn into_instance(self, id: InstanceId) -> Instance {
        let foreign = |text: String| BTreeMap::from([(METADATA_FOREIGN.to_owned(), text)]);
        let metadata = self.metadata.map(|text| read_headers(&text).unwrap_or_else(|_| foreign(text)));
        Instance {
            id,
            service: self.service,
            host: self.host,
            pid: u32::try_from(self.pid).unwrap_or(0),
            version: self.version,
            metadata: metadata.unwrap_or_default(),
        }
    }
}

/// The list of the instances that serve one queue.
///
/// Rules that hold for all methods are those of [`store`](crate::store): the database's clock decides, each call is atomic,
/// arguments are checked before any I/O, deadlocks are retried inside, many instances may call everything at once.
///
/// Its table stands beside those of the queue: both are deployed and checked together, and printed apart.
#[async_trait]
pub trait InstanceStore: SchemaAdmin + fmt::Debug + 'static {
    /// Says that an instance is there, in one statement: registers it, or moves on the time it was last seen.
    ///
    /// One that is known keeps the time it registered; what it says of itself is replaced. One that was taken for gone, or
    /// forgotten, is there again.
    async fn heartbeat(&self, instance: &Instance) -> Result<(), StoreError>;

    /// Takes an instance off the list at once; whether it was there.
    async fn leave(&self, id: InstanceId) -> Result<bool, StoreError>;

    /// The instances that were heard of within `stale_after`, in the order of their ids, at most [`INSTANCES_MAX`].
    ///
    /// One whose last sign lies further ahead than that is not among them: the clock was set back, or somebody else wrote it.
    async fn live(&self, stale_after: Duration) -> Result<Vec<InstanceRecord>, StoreError>;

    /// Removes up to `limit` instances that have not been heard of for `stale_after`; answers how many.
    async fn forget(&self, stale_after: Duration, limit: PurgeLimit) -> Result<u64, StoreError>;
}

/// Checks how long an instance may be silent.
pub fn check_stale_after(stale_after: Duration) -> Result<(), Invalid> {
    // Databases count microseconds: less would be no time at all.
    if stale_after < Duration::from_micros(1) || stale_after > HORIZON_MAX {
        let limit = HORIZON_MAX.as_secs();
        let complaint = format!("must be at least a microsecond and at most {limit} seconds");
        return Err(Problem::out_of_range("stale_after", limit, complaint).into());
    }
    Ok(())
}

/// Who came and who went between two looks at a list that is sorted by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comings {
    /// In the second list only.
    pub joined: Vec<InstanceRecord>,
    /// In the first list only.
    pub left: Vec<InstanceRecord>,
}

impl Comings {
    /// Compares two looks.
    pub fn between(before: &[InstanceRecord], after: &[InstanceRecord]) -> Self {
        let missing_in = |list: &[InstanceRecord], of: &[InstanceRecord]| {
            let is_missing =
                |one: &&InstanceRecord| list.binary_search_by_key(&one.instance.id, |other| other.instance.id).is_err();
            of.iter().filter(is_missing).cloned().collect()
        };
        Self { joined: missing_in(before, after), left: missing_in(after, before) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(instance: &Instance) -> Vec<&'static str> {
        let refused = instance.validate().unwrap_err();
        refused.problems().iter().map(Problem::field).collect()
    }

    /// WRK-03.
    #[test]
    fn every_problem_of_an_instance_is_named_at_once() {
        let good = Instance::new("orders", "host-1", 7).version("1.2.3").metadata("zone", "eu");
        assert_eq!(good.validate(), Ok(()));
        let long = "ä".repeat(NAME_CHARS_MAX + 1);
        assert_eq!(fields(&Instance::new("", "", 0)), ["service", "host"]);
        assert_eq!(fields(&Instance::new("a\0", &long, 0).version(&long)), ["service", "host", "version"]);
        assert_eq!(Instance::new("ä".repeat(NAME_CHARS_MAX), "h", 0).validate(), Ok(()));
        assert_eq!(fields(&good.clone().metadata("", "")), ["metadata"]);
        assert_eq!(fields(&good.clone().metadata("a", "\0")), ["metadata"]);
        assert_eq!(fields(&good.clone().metadata("a", "x".repeat(METADATA_BYTES_MAX))), ["metadata"]);
        let many = (0..=METADATA_ENTRIES_MAX).fold(good, |one, number| one.metadata(number.to_string(), ""));
        assert_eq!(fields(&many), ["metadata"]);
    }

    #[test]
    fn an_instance_survives_the_way_to_the_table_and_back() {
        let plain = Instance::new("orders", "host-1", u32::MAX);
        for instance in [plain.clone().version("1").metadata("a \"b\"", "\u{1F4EE}"), plain] {
            assert_eq!(InstanceParts::of(&instance).into_instance(instance.id()), instance);
        }
    }

    /// WRK-03.
    #[test]
    fn foreign_metadata_is_shown_as_it_is() {
        let table = [
            (r#"{"zone": "eu", "weight": 2}"#, vec![("weight", "2"), ("zone", "eu")]),
            ("not json", vec![("?", "not json")]),
            ("[1]", vec![("?", "[1]")]),
            (r#"{"a": {}}"#, vec![("?", r#"{"a": {}}"#)]),
        ];
        for (stored, shown) in table {
            let mut parts = InstanceParts::of(&Instance::new("s", "h", 1));
            (parts.metadata, parts.pid) = (Some(stored.to_owned()), -1);
            let instance = parts.into_instance(InstanceId::new());
            let found: Vec<_> =
                instance.get_metadata().iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            assert_eq!((found, instance.pid()), (shown, 0));
        }
    }

    #[test]
    fn no_debug_output_shows_the_values_of_metadata() {
        let shown = format!("{:?}", Instance::new("orders", "host-1", 7).metadata("token", "canary"));
        assert!(shown.contains("orders") && shown.contains("token") && !shown.contains("canary"), "{shown}");
    }

    #[test]
    fn who_came_and_who_went_is_known() {
        let record = |name: &str| InstanceRecord {
            instance: Instance::new(name, "h", 1),
            started_at: SystemTime::UNIX_EPOCH,
            last_seen_at: SystemTime::UNIX_EPOCH,
            silent_for: Duration::ZERO,
        };
        let [a, b, c] = ["a", "b", "c"].map(record);
        let seen_later = InstanceRecord { silent_for: Duration::from_secs(1), ..b.clone() };
        let comings = Comings::between(&[a.clone(), b], &[seen_later, c.clone()]);
        assert_eq!(comings, Comings { joined: vec![c], left: vec![a] });
    }

    #[test]
    fn a_threshold_is_neither_nothing_nor_for_ever() {
        assert!(check_stale_after(Duration::ZERO).is_err());
        assert!(check_stale_after(HORIZON_MAX + Duration::from_secs(1)).is_err());
        assert!(check_stale_after(STALE_AFTER_DEFAULT).is_ok());
    }
}
