//! Where delivered messages went, and what is found there.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use pillarbox::admin::StoredMessage;
use pillarbox::template::Escape;
use pillarbox::{Message, MessageId, Recall, Recalled, RouteTable, Template, Transport, WorkId};

use crate::relay::{Config, table};

/// Messages that are looked for at one time, over all destinations.
const LOOKED_FOR_MAX: usize = 50_000;

/// By how much the clocks of a broker and a database may differ.
const SKEW_MAX: Duration = Duration::from_secs(600);

/// The routes of a relay, and what was found out about their messages.
pub(super) struct Ways {
    table: RouteTable,
    routes: Vec<Way>,
    /// By route and destination.
    sent: BTreeMap<(usize, String), Sent>,
    sent_count: usize,
    findings: Findings,
}

struct Way {
    name: String,
    to: String,
    template: Template,
    transport: Arc<dyn Transport>,
}

/// Messages that went to one destination.
struct Sent {
    rows: HashMap<MessageId, Row>,
    from: SystemTime,
    until: SystemTime,
}

#[derive(Clone, Copy)]
struct Row {
    work_id: WorkId,
    settled_at: SystemTime,
}

/// What was found out about one store.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// By the place of the route in the file.
    pub(super) routes: BTreeMap<usize, RouteFinding>,
    /// Messages whose way is not known any more.
    pub(super) unrouted: u64,
}

/// What was found out about the messages of one route.
#[derive(Debug, Default)]
pub(super) struct RouteFinding {
    pub(super) route: String,
    pub(super) to: String,
    pub(super) delivered: u64,
    pub(super) there: u64,
    /// So old that the broker may have dropped them, as it was told to.
    pub(super) too_old: u64,
    pub(super) missing: Vec<WorkId>,
    /// Why some of them could not be looked for.
    pub(super) unreadable: Option<String>,
}

impl Ways {
    pub(super) fn of(config: &Config) -> Result<Self, String> {
        let (table, selectors) = table(config)?;
        let mut transports = BTreeMap::new();
        for (name, section) in &config.transports {
            transports.insert(name.as_str(), section.transport(name)?);
        }
        let mut routes = Vec::new();
        for (section, selector) in config.routes.iter().zip(&selectors) {
            let template = section.destination.parse().map_err(|invalid: pillarbox::Invalid| invalid.to_string())?;
            let transport =
                transports.get(section.to.as_str()).ok_or_else(|| format!("no transport {}", section.to))?;
            let transport = Arc::clone(transport);
            routes.push(Way { name: selector.name(), to: section.to.clone(), template, transport });
        }
        Ok(Self { table, routes, sent: BTreeMap::new(), sent_count: 0, findings: Findings::default() })
    }

    /// Takes note of a message that was delivered, and looks for all that were noted when they are many.
    pub(super) async fn take(&mut self, stored: StoredMessage) -> Result<(), String> {
        let StoredMessage { work_id, created_at, settled_at: Some(settled_at), message: Ok(message), .. } = stored
        else {
            self.findings.unrouted += 1;
            return Ok(());
        };
        let Some((route, destination)) = self.way_of(&message) else {
            self.findings.unrouted += 1;
            return Ok(());
        };
        let sent = self.sent.entry((route, destination)).or_insert_with(|| Sent {
            rows: HashMap::new(),
            from: created_at,
            until: settled_at,
        });
        sent.from = sent.from.min(created_at);
        sent.until = sent.until.max(settled_at);
        sent.rows.insert(message.id(), Row { work_id, settled_at });
        self.sent_count += 1;
        if self.sent_count >= LOOKED_FOR_MAX { self.look().await } else { Ok(()) }
    }

    fn way_of(&self, message: &Message) -> Option<(usize, String)> {
        let route = self.table.find(message)?;
        let destination = self.routes[route].template.fill(message, Escape::Nothing).ok()?;
        Some((route, destination))
    }

    /// Everything about the messages that were taken since the last call.
    pub(super) async fn findings(&mut self) -> Result<Findings, String> {
        self.look().await?;
        Ok(std::mem::take(&mut self.findings))
    }

    /// Drops what was taken of a store that could not be gone through.
    pub(super) fn forget(&mut self) {
        self.sent.clear();
        self.sent_count = 0;
        self.findings = Findings::default();
    }

    async fn look(&mut self) -> Result<(), String> {
        self.sent_count = 0;
        for ((route, destination), sent) in std::mem::take(&mut self.sent) {
            let way = &self.routes[route];
            let wanted: HashSet<_> = sent.rows.keys().copied().collect();
            let from = sent.from.checked_sub(SKEW_MAX).unwrap_or(SystemTime::UNIX_EPOCH);
            let recall = Recall { destination: &destination, wanted: &wanted, from, until: sent.until + SKEW_MAX };
            let recalled = way.transport.recall(&recall).await;
            let recalled = recalled.map_err(|error| format!("transports.{}: {error}", way.to))?;
            let finding = self.findings.routes.entry(route).or_insert_with(|| RouteFinding {
                route: way.name.clone(),
                to: way.to.clone(),
                ..RouteFinding::default()
            });
            finding.add(&sent.rows, recalled);
        }
        Ok(())
    }

    pub(super) async fn close(&self) {
        for way in &self.routes {
            way.transport.close().await;
        }
    }
}

impl RouteFinding {
    fn add(&mut self, rows: &HashMap<MessageId, Row>, recalled: Recalled) {
        self.delivered += rows.len() as u64;
        let (ids, since) = match recalled {
            Recalled::Found { ids, since } => (ids, since),
            Recalled::Unreadable { why } => {
                self.unreadable = Some(why);
                return;
            }
        };
        for (id, row) in rows {
            // The broker's clock may be ahead of the database's.
            let is_too_old = since.is_some_and(|since| row.settled_at < since + SKEW_MAX);
            match ids.contains(id) {
                true => self.there += 1,
                false if is_too_old => self.too_old += 1,
                false => self.missing.push(row.work_id),
            }
        }
        self.missing.sort_unstable();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// H44: what the broker should have is missing; what it may have dropped is not.
    #[test]
    fn what_is_missing_is_told_from_what_is_too_old() {
        let [there, gone, old] = [(), (), ()].map(|()| MessageId::new());
        let start = SystemTime::UNIX_EPOCH + SKEW_MAX;
        let row = |number, settled_at| Row { work_id: WorkId::from_i64(number), settled_at };
        let late = start + SKEW_MAX * 2;
        let rows = HashMap::from([(there, row(1, start)), (gone, row(2, late)), (old, row(3, start))]);
        let ids = HashSet::from([there]);

        let mut finding = RouteFinding::default();
        finding.add(&rows, Recalled::Found { ids: ids.clone(), since: Some(start) });
        assert_eq!((finding.delivered, finding.there, finding.too_old), (3, 1, 1));
        assert_eq!(finding.missing, [WorkId::from_i64(2)]);

        let mut finding = RouteFinding::default();
        finding.add(&rows, Recalled::Found { ids, since: None });
        assert_eq!(finding.missing, [WorkId::from_i64(2), WorkId::from_i64(3)]);
        finding.add(&rows, Recalled::unreadable("no"));
        assert_eq!((finding.delivered, finding.missing.len(), finding.unreadable.as_deref()), (6, 2, Some("no")));
    }
}
