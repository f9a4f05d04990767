//! Tells a runtime what to do with messages, and how much of it at once.

use std::any::type_name;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use pillarbox_core::retry::RetryPolicy;
use pillarbox_core::route::RouteTable;
use pillarbox_core::{AfterDead, AttemptEnd, Invalid, Isolation, OwnerToken, Problem, RoutingKey, StoreId, TypeName};
use tokio_util::sync::CancellationToken;

use crate::batch::BatchHandler;
use crate::config::{CAPACITY_MAX, Config, INTERVAL_MAX, UnknownTopics, WORKERS_MAX, count_within, time_within};
use crate::context::{Context, Scope, States};
use crate::event::Event;
use crate::failure::HandlerResult;
use crate::handler::{Handler, NamesTopic};
use crate::hot_path::Hub;
use crate::interceptor::{After, Before, Interceptor};
use crate::membership::MembershipDraft;
use crate::plan::{Plan, PlannedRoute, RouteHandler};
use crate::route::{HandledRoute, Route};
use crate::telemetry::{RouteMeters, Telemetry};
use crate::transactional::Transacting;
use crate::turns::Turns;

/// What a runtime for one outbox, or one inbox, runs on.
#[derive(Clone, Debug, Default)]
pub struct OneStore {
    pub(crate) hub: Option<Arc<Hub>>,
    /// Its key in a fleet, and the turns of the fleet.
    pub(crate) key: Option<RoutingKey>,
    pub(crate) turns: Option<Arc<Turns>>,
}

/// Collects handlers and settings, and checks them together when the runtime starts. For one store, or for a whole
/// [fleet](crate::Fleet) of them: everything but the beginning and the end is the same.
///
/// ```
/// use std::time::Duration;
/// use pillarbox::prelude::*;
/// # #[derive(serde::Serialize, serde::Deserialize)] struct OrderCreated { id: i64 }
/// # impl Event for OrderCreated { const TOPIC: &str = "order.created"; }
/// # struct Mailer;
/// # impl Mailer { async fn send(&self, _: &OrderCreated) -> Result<(), std::io::Error> { Ok(()) } }
///
/// fn routes(builder: RuntimeBuilder, mailer: Mailer) -> RuntimeBuilder {
///     builder
///         .state(mailer)
///         .on(async |order: Payload<OrderCreated>, mailer: State<Mailer>| {
///             mailer.send(&order).await?; // any error: retried with backoff
///             Ok(())
///         })
///         .on_topic("payment.*", async |message: Raw| {
///             println!("{} bytes", message.payload().len());
///             Handled::done()
///         })
///         .route(Route::topic("slow.**").concurrency_max(2).run_time_max(Duration::from_secs(600)).to(
///             async |cx: Context, attempt: Attempt| {
///                 println!("attempt {} of {}", attempt.0, cx.message_id());
///                 Ok(())
///             },
///         ))
/// }
/// ```
#[must_use = "a builder does nothing until it is started"]
pub struct RuntimeBuilder<On = OneStore> {
    /// What it runs on.
    pub(crate) on: On,
    pub(crate) config: Config,
    pub(crate) membership: MembershipDraft,
    routes: Vec<HandledRoute>,
    interceptors: Vec<Arc<dyn Interceptor>>,
    states: States,
    /// Types that were registered more than once.
    doubled_states: Vec<&'static str>,
    is_transactional: bool,
    isolation: Option<Isolation>,
}

/// Handlers.
impl<On> RuntimeBuilder<On> {
    /// Handles the messages of an [`Event`]: the first argument is its [`Payload`](crate::Payload), which names the topic.
    pub fn on<Args: NamesTopic + 'static>(self, handler: impl Handler<Args>) -> Self {
        self.on_topic(<Args::Event as Event>::TOPIC, handler)
    }

    /// Handles the messages of a topic, or of all topics that a pattern matches.
    ///
    /// Topics are divided by dots. `*` stands for exactly one part, `**` at the end for any number of them, also none. The
    /// most specific handler gets the message; two that are equally specific keep the runtime from starting.
    pub fn on_topic<Args: 'static>(self, topic: impl Into<String>, handler: impl Handler<Args>) -> Self {
        self.route(Route::topic(topic).to(handler))
    }

    /// Handles the messages of one type about one kind of aggregate, each a text or an enum.
    pub fn on_type<Args: 'static>(
        self,
        aggregate_type: impl TypeName,
        message_type: impl TypeName,
        handler: impl Handler<Args>,
    ) -> Self {
        self.route(Route::types(aggregate_type, message_type).to(handler))
    }

    /// Handles the messages of one type that belong to no aggregate.
    pub fn on_message_type<Args: 'static>(self, message_type: impl TypeName, handler: impl Handler<Args>) -> Self {
        self.route(Route::message_type(message_type).to(handler))
    }

    /// Handles messages many at a time, up to `size_max`; a batch never waits to be full.
    pub fn on_batch<Args: 'static>(
        self,
        topic: impl Into<String>,
        size_max: usize,
        handler: impl BatchHandler<Args>,
    ) -> Self {
        self.route(Route::topic(topic).to_batch(size_max, handler))
    }

    /// Adds a route with settings of its own.
    pub fn route(mut self, route: HandledRoute) -> Self {
        self.routes.push(route);
        self
    }

    /// Something that handlers take as [`State<T>`](crate::extract::State), one of each type.
    pub fn state<T: Send + Sync + 'static>(mut self, state: T) -> Self {
        if !self.states.insert(state) {
            self.doubled_states.push(type_name::<T>());
        }
        self
    }

    /// Runs every handler inside a transaction of the store that its message came from; see [`InTx`](crate::InTx), by which
    /// handlers get it. [`Route::transactional`] does so for one.
    ///
    /// It is begun after the before-interceptors and committed, together with the end of the message, before the
    /// after-interceptors, which are told how it went. A handler that fails, panics or runs too long is rolled back. Of a
    /// batch, the messages that are answered as done end with the transaction; it is rolled back only if none is.
    ///
    /// A transaction that cannot be begun or committed, because it lost a race or its database is away, spends no attempt. A
    /// conflict that a statement of the handler's own reports is for the handler to judge: by `?` it becomes a failed attempt
    /// like any other error, and [`Failure::again_in`](crate::Failure::again_in) spends none.
    ///
    /// Every handler that runs holds a connection. Let the pool have some more than there are workers, for claims, verdicts
    /// and whatever else your handlers ask of the database.
    pub fn transactional(mut self) -> Self {
        self.is_transactional = true;
        self
    }

    /// The isolation level of handlers' transactions, instead of the store's.
    pub fn isolation(mut self, isolation: Isolation) -> Self {
        self.isolation = Some(isolation);
        self
    }

    /// Runs before every handler, in the order of registration. A failure ends the attempt.
    pub fn before<F, Fut>(self, before: F) -> Self
    where
        F: Fn(Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult> + Send + 'static,
    {
        self.interceptor(Before(before))
    }

    /// Runs after every handler, in reverse order of registration. A failure is logged, nothing more.
    pub fn after<F, Fut>(self, after: F) -> Self
    where
        F: Fn(Context, AttemptEnd) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = HandlerResult> + Send + 'static,
    {
        self.interceptor(After(after))
    }

    /// Runs before and after every handler.
    pub fn interceptor(mut self, interceptor: impl Interceptor) -> Self {
        self.interceptors.push(Arc::new(interceptor));
        self
    }
}

macro_rules! settings {
    ($($(#[$doc:meta])* $field:ident: $type:ty,)*) => {
        /// Settings. Each is checked when the runtime starts.
        impl<On> RuntimeBuilder<On> {
            $(
                $(#[$doc])*
                pub fn $field(mut self, $field: $type) -> Self {
                    self.config.$field = $field;
                    self
                }
            )*
        }
    };
}

settings! {
    /// Handlers at one time; 4 unless set.
    worker_count: usize,
    /// Messages that wait in memory after their commit; 1000 unless set. What does not fit is left to the poller.
    hot_capacity: usize,
    /// Claimed messages that wait in memory; 1000 unless set.
    cold_capacity: usize,
    /// Bytes of payloads that are held in memory, from the claim or the commit until the verdict is written; 64 MiB unless set. Large
    /// messages are claimed in smaller numbers; what was claimed before it was known how large they are may come on top.
    held_bytes_max: usize,
    /// Messages in one claim; 200 unless set.
    claim_limit: u32,
    /// How long a message stays ours unless renewed; 30 s unless set. A crash is healed after this time.
    lease: Duration,
    /// How long a handler may run, leases renewed meanwhile; 5 min unless set.
    run_time_max: Duration,
    /// How often to look for messages when nobody wakes us; 500 ms unless set.
    poll_interval: Duration,
    /// How often to look for messages while wake-ups work; 10 s unless set.
    idle_interval: Duration,
    /// How often leases that ran out and messages that expired are looked for; 30 s unless set.
    reap_interval: Duration,
    /// How often done messages past their retention are removed; 60 s unless set.
    purge_interval: Duration,
    /// Calls to the store at one time; 2 unless set.
    store_call_count: usize,
    /// How often and how soon failed messages are tried again, where the route says nothing else.
    retry: RetryPolicy,
    /// What becomes of messages that no handler is registered for; tried again unless set.
    unknown_topics: UnknownTopics,
    /// The least time between two calls that settle, while many messages are handled; 2 ms unless set.
    settle_interval: Duration,
    /// How long a route pauses when its destination is first found down; 1 s unless set. It doubles from there.
    pause_first: Duration,
    /// The longest pause of a route whose destination is down; 30 s unless set.
    pause_max: Duration,
}

/// Order.
impl<On> RuntimeBuilder<On> {
    /// What a dead message does to the later ones of its key: they wait until it is replayed or deleted, unless set.
    pub fn after_dead(mut self, after_dead: AfterDead) -> Self {
        self.config.order.after_dead = after_dead;
        self
    }

    /// Handles all messages in the order in which they were stored, one at a time, as if they had one key. Of all processes
    /// that do so one at a time works; another one takes over when it stops, or when its leases have run out.
    ///
    /// Every process that handles messages of this outbox must say so.
    pub fn in_sequence(mut self) -> Self {
        self.config.order.in_sequence = true;
        self
    }
}

impl RuntimeBuilder {
    pub(crate) fn new() -> Self {
        Self::on_target(OneStore::default())
    }

    /// Checks everything that was said, for a runtime on this hub.
    pub(crate) fn plan_on(self, hub: &Arc<Hub>) -> Result<Plan, Invalid> {
        let (hub_weak, transactions, isolation) = (Arc::downgrade(hub), Arc::clone(&hub.transactions), self.isolation);
        self.into_plan(hub.store.id().clone(), Some(Transacting { hub: hub_weak, transactions, isolation }))
    }
}

impl<On> RuntimeBuilder<On> {
    pub(crate) fn on_target(on: On) -> Self {
        Self {
            on,
            config: Config::default(),
            membership: MembershipDraft::default(),
            routes: Vec::new(),
            interceptors: Vec::new(),
            states: States::default(),
            doubled_states: Vec::new(),
            is_transactional: false,
            isolation: None,
        }
    }

    /// The same handlers and settings once more, for another target.
    pub(crate) fn again_on<Other>(&self, on: Other) -> RuntimeBuilder<Other> {
        RuntimeBuilder {
            on,
            config: self.config.clone(),
            membership: self.membership.clone(),
            routes: self.routes.clone(),
            interceptors: self.interceptors.clone(),
            states: self.states.clone(),
            doubled_states: self.doubled_states.clone(),
            is_transactional: self.is_transactional,
            isolation: self.isolation,
        }
    }
}

/// What was said, checked.
impl RuntimeBuilder {
    /// Checks everything that was said and names all that is wrong with it.
    pub(crate) fn into_plan(self, store_id: StoreId, transacting: Option<Transacting>) -> Result<Plan, Invalid> {
        let mut problems = Vec::new();
        let mut note = |checked: Result<(), Invalid>| {
            if let Err(invalid) = checked {
                problems.extend_from_slice(invalid.problems());
            }
        };
        note(self.config.validate());
        let hub = transacting.as_ref().and_then(|transacting| transacting.hub.upgrade());
        let member = self.membership.check(hub.as_deref().map(|hub| &*hub.store));
        note(member.as_ref().map(|_| ()).map_err(Clone::clone));
        let table = RouteTable::new(self.routes.iter().map(|route| route.draft.selector.clone()));
        note(table.as_ref().map(|_| ()).map_err(Clone::clone));
        for route in &self.routes {
            note(self.check_route(route));
            note(self.check_transaction(route, transacting.as_ref()));
        }
        note(check_names(&self.routes));
        for name in &self.doubled_states {
            note(Err(Problem::malformed("state", format!("`{name}` was registered more than once")).into()));
        }
        Invalid::unless_empty(problems)?;

        let telemetry = Telemetry::new(&store_id);
        let transacting = transacting.map(Arc::new);
        let is_transactional = |route: &HandledRoute| self.is_transactional || route.draft.is_transactional;
        let planned = |route: HandledRoute| {
            let transacting = transacting.clone().filter(|_| is_transactional(&route));
            planned(route, &self.config, &store_id, transacting)
        };
        let routes = self.routes.into_iter().map(planned).collect();
        let (owner, token) = (OwnerToken::new(), CancellationToken::new());
        let scope = Scope { store_id, key: self.on.key, owner, token, states: self.states, telemetry };
        let unknown_topics = self.config.unknown_topics;
        let (interceptors, config) = (self.interceptors, self.config);
        let (table, member) = (table?, Arc::new(member?));
        Ok(Plan {
            table,
            routes,
            interceptors,
            config,
            scope: Arc::new(scope),
            unknown_topics,
            turns: self.on.turns,
            member,
        })
    }

    fn check_route(&self, route: &HandledRoute) -> Result<(), Invalid> {
        let mut problems = route.problems.clone();
        let draft = &route.draft;
        if let Some(count) = draft.concurrency_max {
            count_within("concurrency_max", count, 1, WORKERS_MAX, &mut problems);
        }
        if let Some(time) = draft.run_time_max {
            time_within("run_time_max", time, Duration::from_millis(1), INTERVAL_MAX, &mut problems);
        }
        if let RouteHandler::Batch { size_max, .. } = &route.handler {
            count_within("size_max", *size_max, 1, CAPACITY_MAX, &mut problems);
        }
        for need in route.needs.iter().filter(|need| !need.is_transaction && !self.states.has(need.id)) {
            let complaint = format!("`{}` is taken by the handler of {} but not registered", need.name, draft.selector);
            problems.push(Problem::malformed("state", complaint));
        }
        Invalid::unless_empty(problems)
    }
}

/// Whether the transaction that a handler takes will be there.
impl RuntimeBuilder {
    fn check_transaction(&self, route: &HandledRoute, transacting: Option<&Transacting>) -> Result<(), Invalid> {
        let needs: Vec<_> = route.needs.iter().filter(|need| need.is_transaction).collect();
        let Some(need) = needs.first() else { return Ok(()) };
        let handler = format!("the handler of {}", route.draft.selector);
        let known = transacting.map(|transacting| transacting.transactions.store_type());
        let complaint = match known {
            _ if !self.is_transactional && !route.draft.is_transactional => {
                format!("is taken by {handler}, which is not transactional: say so with `.transactional()`")
            }
            Some(known) if known.id != need.id => {
                format!("of `{}` is taken by {handler}, and its messages come from `{}`", need.name, known.name)
            }
            _ if needs.len() > 1 => format!("is taken {} times by {handler}", needs.len()),
            _ => return Ok(()),
        };
        Err(Problem::malformed("transaction", complaint).into())
    }
}

/// Names stand in metrics: two routes of one name could not be told apart.
fn check_names(routes: &[HandledRoute]) -> Result<(), Invalid> {
    let mut problems = Vec::new();
    for (index, route) in routes.iter().enumerate() {
        let draft = &route.draft;
        // Of two routes for the same messages the table has complained already.
        let is_twin = |other: &&HandledRoute| other.draft.name == draft.name && other.draft.selector != draft.selector;
        if draft.name.is_empty() && draft.selector.validate().is_ok() {
            problems.push(Problem::empty("name"));
        } else if let Some(twin) = routes[..index].iter().find(is_twin) {
            let (name, one, other) = (&draft.name, &twin.draft.selector, &draft.selector);
            problems.push(Problem::malformed("name", format!("`{name}` is used for {one} and for {other}")));
        }
    }
    Invalid::unless_empty(problems)
}

fn planned(
    route: HandledRoute,
    config: &Config,
    store_id: &StoreId,
    transacting: Option<Arc<Transacting>>,
) -> PlannedRoute {
    let HandledRoute { draft, handler, .. } = route;
    PlannedRoute {
        meters: RouteMeters::new(store_id, &draft.name),
        name: draft.name,
        handler,
        concurrency_max: draft.concurrency_max,
        run_time_max: draft.run_time_max.unwrap_or(config.run_time_max),
        retry: draft.retry.unwrap_or_else(|| config.retry.clone()),
        transacting,
    }
}

impl<On: fmt::Debug> fmt::Debug for RuntimeBuilder<On> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RuntimeBuilder")
            .field("on", &self.on)
            .field("routes", &self.routes)
            .field("interceptor_count", &self.interceptors.len())
            .field("states", &self.states)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use pillarbox_core::Message;

    use super::*;
    use crate::batch::Batch;
    use crate::extract::{Raw, State};
    use crate::failure::Handled;

    fn plan(builder: RuntimeBuilder) -> Result<Plan, Invalid> {
        builder.into_plan(StoreId::new("shop").unwrap(), None)
    }

    async fn nothing(_: Raw) -> HandlerResult {
        Handled::done()
    }

    enum Kind {
        Order,
    }

    impl TypeName for Kind {
        fn type_name(&self) -> &str {
            match self {
                Self::Order => "Order",
            }
        }
    }

    /// OBX-054, HOT-17, HOT-18.
    #[test]
    fn a_message_goes_to_the_route_of_its_topic_or_types() {
        let builder = RuntimeBuilder::new()
            .on_topic("order.created", nothing)
            .on_topic("order.*", nothing)
            .on_type(Kind::Order, "shipped", nothing)
            .on_message_type("shipped", nothing)
            .on_batch("audit.**", 10, async |_: Batch| Ok(()));
        let plan = plan(builder).unwrap();
        let shipped = || Message::new("order.shipped", "").message_type("shipped");
        let table = [
            (Message::new("order.created", ""), Some("order.created")),
            (Message::new("order.lost", ""), Some("order.*")),
            (shipped().aggregate_type(Kind::Order), Some("Order/shipped")),
            (shipped(), Some("__GLOBAL__/shipped")),
            (shipped().aggregate_type("Parcel"), Some("order.*")),
            (Message::new("audit", ""), Some("audit.**")),
            (Message::new("payment", ""), None),
        ];
        for (message, name) in table {
            let route = plan.route_of(&message).map(|route| plan.routes[route].name.as_str());
            assert_eq!(route, name, "{message:?}");
        }
    }

    /// HOT-18: and whatever else is wrong is named in the same breath.
    #[test]
    fn every_problem_is_named_at_once() {
        let builder = RuntimeBuilder::new()
            .worker_count(0)
            .lease(Duration::ZERO)
            .state(1_u8)
            .state(2_u8)
            .on_topic("", nothing)
            .on_type("Order", "created", nothing)
            .on_type("Order", "created", nothing)
            .on_batch("audit", 0, async |_: Batch, _: State<String>| Ok(()))
            .on_topic("mail", async |_: State<u16>| Ok(()))
            .route(Route::topic("one").name("same").concurrency_max(0).to(nothing))
            .route(Route::topic("two").name("same").run_time_max(Duration::ZERO).to(nothing))
            .route(Route::topic("three").name("").to(nothing));
        let invalid = plan(builder).unwrap_err();
        let problems: Vec<_> = invalid.problems().iter().map(ToString::to_string).collect();
        let starts = [
            "worker_count must be 1 to 10000",
            "lease must be",
            "topic must not be empty",
            "route 2 (type `created` of `Order`) and 3 (type `created` of `Order`)",
            "size_max must be 1 to",
            "state `alloc::string::String` is taken by the handler of topic `audit`",
            "state `u16` is taken by the handler of topic `mail` but not registered",
            "concurrency_max must be 1 to",
            "run_time_max must be 1ms to",
            "name `same` is used for topic `one` and for topic `two`",
            "name must not be empty",
            "state `u8` was registered more than once",
        ];
        assert_eq!(problems.len(), starts.len(), "{problems:#?}");
        for (problem, start) in problems.iter().zip(starts) {
            assert!(problem.starts_with(start), "{problem}");
        }
    }

    #[test]
    fn a_route_has_its_own_settings_or_those_of_the_runtime() {
        let (second, minute) = (Duration::from_secs(1), Duration::from_secs(60));
        let own =
            Route::topic("own").concurrency_max(2).run_time_max(second).retry(RetryPolicy::default().attempts_max(1));
        let builder = RuntimeBuilder::new()
            .run_time_max(minute)
            .retry(RetryPolicy::default().attempts_max(3))
            .on_topic("plain", nothing)
            .route(own.to(nothing));
        let plan = plan(builder).unwrap();
        let settings = plan.routes.iter().map(|route| {
            let attempts_max = (1..).find(|attempts| route.retry.is_exhausted(*attempts));
            (route.concurrency_max, route.run_time_max, attempts_max)
        });
        assert_eq!(settings.collect::<Vec<_>>(), [(None, minute, Some(3)), (Some(2), second, Some(1))]);
        assert!(format!("{plan:?}").contains(r#"routes: ["plain", "own"]"#));
    }

    #[test]
    fn a_runtime_may_have_no_handlers() {
        let plan = plan(RuntimeBuilder::new().unknown_topics(UnknownTopics::Leave)).unwrap();
        assert_eq!(plan.route_of(&Message::new("t", "")), None);
        assert_eq!(plan.unknown_topics, UnknownTopics::Leave);
    }
}
