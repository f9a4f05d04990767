//! A database in memory: a clock, and the tables of as many outboxes as have names.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use pillarbox_core::StoreError;
use pillarbox_core::naming::Naming;
use pillarbox_core::schema::{SchemaPolicy, SchemaStatus};
use pillarbox_core::store::StoreOptions;

use super::instance::Instances;
use super::ledger::Ledger;
use super::outbox::Outbox;
use super::pause;
use super::progress::Progress;
use super::store::MemoryStore;
use super::transaction::MemoryTransaction;

/// The version of the schema; the same number as in the other backends.
pub(super) const SCHEMA_VERSION: u32 = 2;

/// The version of a ledger's schema; the same number as in the other backends.
const LEDGER_VERSION: u32 = 3;

/// The version of the list of instances; the same number as in the other backends.
const INSTANCES_VERSION: u32 = 4;

/// The version of the tables of progress; the same number as in the other backends.
const PROGRESS_VERSION: u32 = 5;

/// The version of the list of paused routes; the same number as in the other backends.
const PAUSES_VERSION: u32 = 6;

/// A database in memory, shared by all its handles.
#[derive(Clone)]
pub struct MemoryDatabase {
    inner: Arc<Mutex<Inner>>,
}

/// What is in the database.
#[derive(Debug)]
pub(super) struct Inner {
    now: SystemTime,
    outboxes: HashMap<Naming, Outbox>,
    ledgers: HashMap<Naming, Ledger>,
    instances: HashMap<Naming, Instances>,
    progress: HashMap<Naming, Progress>,
    pauses: HashMap<Naming, pause::Rows>,
    pub(super) business_row_count: u64,
}

impl MemoryDatabase {
    /// An empty database. Its clock starts at a fixed instant, far from the machine's own clock on purpose.
    #[expect(clippy::new_without_default, reason = "two calls make two databases; a default would hide that")]
    pub fn new() -> Self {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_600_000_000);
        let inner = Inner {
            now,
            outboxes: HashMap::new(),
            ledgers: HashMap::new(),
            instances: HashMap::new(),
            progress: HashMap::new(),
            pauses: HashMap::new(),
            business_row_count: 0,
        };
        Self { inner: Arc::new(Mutex::new(inner)) }
    }

    /// Opens a store, as another process would; does about the tables what the options say.
    pub fn connect(&self, options: StoreOptions) -> Result<MemoryStore, StoreError> {
        options.validate()?;
        let policy = options.schema;
        let store = MemoryStore::on(self.clone(), options);
        match policy {
            SchemaPolicy::Deploy => drop(self.deploy(&store)?),
            SchemaPolicy::Check => self.schema_status(&store).require_current()?,
            SchemaPolicy::Assume => {}
        }
        Ok(store)
    }

    /// Begins a transaction; what it enqueues exists when it is committed.
    pub fn begin(&self) -> MemoryTransaction {
        MemoryTransaction::new(self.clone())
    }

    /// Lets time pass.
    pub fn advance(&self, by: Duration) {
        self.lock().now += by;
    }

    /// What the database's clock shows.
    pub fn now(&self) -> SystemTime {
        self.lock().now
    }

    pub(super) fn deploy(&self, store: &MemoryStore) -> Result<u32, StoreError> {
        let status = self.schema_status(store);
        if let SchemaStatus::Ahead { .. } = status {
            status.require_current()?;
        }
        let mut inner = self.lock();
        inner.outboxes.entry(store.naming().clone()).or_default().version = SCHEMA_VERSION;
        Ok(SCHEMA_VERSION)
    }

    pub(super) fn schema_status(&self, store: &MemoryStore) -> SchemaStatus {
        let found = self.lock().outboxes.get(store.naming()).map(|outbox| outbox.version);
        SchemaStatus::of(found, SCHEMA_VERSION)
    }

    pub(super) fn deploy_ledger(&self, naming: &Naming) -> u32 {
        self.lock().ledgers.entry(naming.clone()).or_default();
        LEDGER_VERSION
    }

    pub(super) fn ledger_status(&self, naming: &Naming) -> SchemaStatus {
        SchemaStatus::of(self.lock().ledgers.contains_key(naming).then_some(LEDGER_VERSION), LEDGER_VERSION)
    }

    pub(super) fn deploy_instances(&self, naming: &Naming) -> u32 {
        self.lock().instances.entry(naming.clone()).or_default();
        INSTANCES_VERSION
    }

    pub(super) fn instances_status(&self, naming: &Naming) -> SchemaStatus {
        SchemaStatus::of(self.lock().instances.contains_key(naming).then_some(INSTANCES_VERSION), INSTANCES_VERSION)
    }

    pub(super) fn deploy_progress(&self, naming: &Naming) -> u32 {
        self.lock().progress.entry(naming.clone()).or_default();
        PROGRESS_VERSION
    }

    pub(super) fn progress_status(&self, naming: &Naming) -> SchemaStatus {
        SchemaStatus::of(self.lock().progress.contains_key(naming).then_some(PROGRESS_VERSION), PROGRESS_VERSION)
    }

    pub(super) fn deploy_pauses(&self, naming: &Naming) -> u32 {
        self.lock().pauses.entry(naming.clone()).or_default();
        PAUSES_VERSION
    }

    pub(super) fn pauses_status(&self, naming: &Naming) -> SchemaStatus {
        SchemaStatus::of(self.lock().pauses.contains_key(naming).then_some(PAUSES_VERSION), PAUSES_VERSION)
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    /// The tables of one outbox and the time of this call. Each call comes a millisecond after the one before.
    pub(super) fn call(&mut self, naming: &Naming) -> Result<(&mut Outbox, SystemTime), StoreError> {
        self.now += Duration::from_millis(1);
        match self.outboxes.get_mut(naming) {
            Some(outbox) => Ok((outbox, self.now)),
            None => Err(StoreError::rejected(SchemaStatus::Missing.to_string())),
        }
    }
}

impl Inner {
    /// As [`call`](Self::call), with the ledger beside the queue.
    pub(super) fn call_inbox(&mut self, naming: &Naming) -> Result<(&mut Outbox, &mut Ledger, SystemTime), StoreError> {
        self.now += Duration::from_millis(1);
        match (self.outboxes.get_mut(naming), self.ledgers.get_mut(naming)) {
            (Some(outbox), Some(ledger)) => Ok((outbox, ledger, self.now)),
            _ => Err(StoreError::rejected(SchemaStatus::Missing.to_string())),
        }
    }
}

impl Inner {
    /// As [`call`](Self::call), on the list of instances.
    pub(super) fn call_instances(&mut self, naming: &Naming) -> Result<(&mut Instances, SystemTime), StoreError> {
        self.now += Duration::from_millis(1);
        let missing = || StoreError::rejected(SchemaStatus::Missing.to_string());
        Ok((self.instances.get_mut(naming).ok_or_else(missing)?, self.now))
    }
}

impl Inner {
    /// As [`call`](Self::call), on the progress of receptors and perspectives.
    pub(super) fn call_progress(&mut self, naming: &Naming) -> Result<(&mut Progress, SystemTime), StoreError> {
        self.now += Duration::from_millis(1);
        let missing = || StoreError::rejected(SchemaStatus::Missing.to_string());
        Ok((self.progress.get_mut(naming).ok_or_else(missing)?, self.now))
    }
}

impl Inner {
    /// As [`call`](Self::call), on the list of paused routes.
    pub(super) fn call_pauses(&mut self, naming: &Naming) -> Result<(&mut pause::Rows, SystemTime), StoreError> {
        self.now += Duration::from_millis(1);
        let missing = || StoreError::rejected(SchemaStatus::Missing.to_string());
        Ok((self.pauses.get_mut(naming).ok_or_else(missing)?, self.now))
    }
}

impl fmt::Debug for MemoryDatabase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryDatabase").finish_non_exhaustive()
    }
}
