//! A handler's place: which messages it gets, and how much of the runtime.

use std::fmt;
use std::time::Duration;

use pillarbox_core::retry::RetryPolicy;
use pillarbox_core::route::Selector;
use pillarbox_core::{Problem, TypeName};

use crate::batch::{self, BatchHandler};
use crate::event::Event;
use crate::extract::Need;
use crate::handler::{self, Handler};
use crate::plan::RouteHandler;

/// Which messages a handler gets, and the settings that are its own.
#[must_use = "a route goes nowhere until `.to(handler)`"]
#[derive(Clone, Debug)]
pub struct Route {
    pub(crate) selector: Selector,
    pub(crate) name: String,
    pub(crate) concurrency_max: Option<usize>,
    pub(crate) run_time_max: Option<Duration>,
    pub(crate) retry: Option<RetryPolicy>,
    pub(crate) is_transactional: bool,
}

impl Route {
    /// The messages of a topic, or of all topics that a pattern matches.
    pub fn topic(topic: impl Into<String>) -> Self {
        Self::new(Selector::topic(topic))
    }

    /// The messages of an event's topic.
    pub fn event<E: Event>() -> Self {
        Self::topic(E::TOPIC)
    }

    /// The messages of one type about one kind of aggregate.
    pub fn types(aggregate_type: impl TypeName, message_type: impl TypeName) -> Self {
        Self::new(Selector::pair(aggregate_type.type_name(), message_type.type_name()))
    }

    /// The messages of one type that belong to no aggregate.
    pub fn message_type(message_type: impl TypeName) -> Self {
        Self::new(Selector::message_type(message_type.type_name()))
    }

    /// Of these only the messages of one type.
    pub fn of_type(self, message_type: impl TypeName) -> Self {
        self.narrowed(|selector| selector.of_type(message_type.type_name()))
    }

    /// Of these only the messages of one tenant.
    pub fn tenant(self, tenant: impl Into<String>) -> Self {
        self.narrowed(|selector| selector.tenant(tenant))
    }

    /// Of these only the messages that have a header with this value.
    pub fn header(self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.narrowed(|selector| selector.header(name, value))
    }

    /// Its name in logs and metrics, which no other route has; unless set, what it matches.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Handlers of this route at one time; unless set, as many as there are workers.
    pub fn concurrency_max(mut self, concurrency_max: usize) -> Self {
        self.concurrency_max = Some(concurrency_max);
        self
    }

    /// How long its handler may run, instead of the runtime's setting.
    pub fn run_time_max(mut self, run_time_max: Duration) -> Self {
        self.run_time_max = Some(run_time_max);
        self
    }

    /// How often and how soon its messages are tried again, instead of the runtime's setting.
    pub fn retry(mut self, retry: RetryPolicy) -> Self {
        self.retry = Some(retry);
        self
    }

    /// Runs its handler inside a transaction, as [`RuntimeBuilder::transactional`](crate::RuntimeBuilder::transactional) does
    /// for all.
    pub fn transactional(mut self) -> Self {
        self.is_transactional = true;
        self
    }

    /// Which messages it gets.
    pub fn selector(&self) -> &Selector {
        &self.selector
    }

    /// Its handler.
    pub fn to<Args: 'static, H: Handler<Args>>(self, handler: H) -> HandledRoute {
        HandledRoute::new(self, RouteHandler::One(handler::erased(handler)), H::needs())
    }

    /// Its handler, which takes up to `size_max` messages at a time.
    pub fn to_batch<Args: 'static, H: BatchHandler<Args>>(self, size_max: usize, handler: H) -> HandledRoute {
        let handler = RouteHandler::Batch { size_max, handler: batch::erased(handler) };
        HandledRoute::new(self, handler, H::needs())
    }

    /// A route that has a name of its own keeps it.
    fn narrowed(mut self, narrow: impl FnOnce(Selector) -> Selector) -> Self {
        let has_own_name = self.name != self.selector.name();
        self.selector = narrow(self.selector);
        if !has_own_name {
            self.name = self.selector.name();
        }
        self
    }

    fn new(selector: Selector) -> Self {
        let name = selector.name();
        Self { selector, name, concurrency_max: None, run_time_max: None, retry: None, is_transactional: false }
    }
}

/// A route with its handler, for [`RuntimeBuilder::route`](crate::RuntimeBuilder::route).
#[derive(Clone)]
pub struct HandledRoute {
    pub(crate) draft: Route,
    pub(crate) handler: RouteHandler,
    pub(crate) needs: Vec<Need>,
    /// What was wrong with it before the runtime could look.
    pub(crate) problems: Vec<Problem>,
}

impl HandledRoute {
    fn new(draft: Route, handler: RouteHandler, needs: Vec<Need>) -> Self {
        Self { draft, handler, needs, problems: Vec::new() }
    }
}

impl fmt::Debug for HandledRoute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HandledRoute").field(&self.draft).finish()
    }
}
