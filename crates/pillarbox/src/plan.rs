//! What a builder was told, checked as a whole: the runtime acts on nothing else.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use pillarbox_core::Message;
use pillarbox_core::retry::RetryPolicy;
use pillarbox_core::route::RouteTable;

use crate::batch::ErasedBatchHandler;
use crate::config::{Config, UnknownTopics};
use crate::context::Scope;
use crate::handler::ErasedHandler;
use crate::interceptor::Interceptor;
use crate::membership::Member;
use crate::telemetry::RouteMeters;
use crate::transactional::Transacting;
use crate::turns::Turns;

/// Everything that a runtime needs to know about its handlers.
pub(crate) struct Plan {
    pub(crate) table: RouteTable,
    pub(crate) routes: Vec<PlannedRoute>,
    pub(crate) interceptors: Vec<Arc<dyn Interceptor>>,
    pub(crate) config: Config,
    pub(crate) scope: Arc<Scope>,
    pub(crate) unknown_topics: UnknownTopics,
    pub(crate) member: Arc<Member>,
    /// Whose turn it is to call its store, where the store is one of a fleet.
    pub(crate) turns: Option<Arc<Turns>>,
}

/// A handler with its limits.
pub(crate) struct PlannedRoute {
    pub(crate) name: String,
    pub(crate) handler: RouteHandler,
    /// Handlers of this route at one time; nothing means as many as there are workers.
    pub(crate) concurrency_max: Option<usize>,
    pub(crate) run_time_max: Duration,
    pub(crate) retry: RetryPolicy,
    pub(crate) meters: RouteMeters,
    /// Where its handler runs inside of transactions.
    pub(crate) transacting: Option<Arc<Transacting>>,
}

/// How a route takes its messages.
#[derive(Clone)]
pub(crate) enum RouteHandler {
    One(Arc<dyn ErasedHandler>),
    Batch { size_max: usize, handler: Arc<dyn ErasedBatchHandler> },
}

impl Plan {
    /// The route that a message belongs to.
    pub(crate) fn route_of(&self, message: &Message) -> Option<usize> {
        self.table.find(message)
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.routes.iter().map(|route| route.name.as_str()).collect();
        f.debug_struct("Plan").field("routes", &names).field("config", &self.config).finish_non_exhaustive()
    }
}
