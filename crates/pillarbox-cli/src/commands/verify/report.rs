//! What is said about what was found.

use pillarbox::WorkId;
use serde_json::{Value, json};

use super::ways::{Findings, RouteFinding};
use crate::exit::Exit;
use crate::output::{Paint, escaped, grouped};

/// Numbers of missing messages that are shown; JSON has all.
const SHOWN_MAX: usize = 10;

/// One store, and what brokers have of its messages.
pub(super) struct StoreReport {
    store: String,
    findings: Findings,
    /// How many of the missing ones were put back, where that was asked for.
    pub(super) replayed: Option<u64>,
}

impl StoreReport {
    pub(super) fn new(store: &str, findings: Findings) -> Self {
        Self { store: store.to_owned(), findings, replayed: None }
    }

    /// All that are missing, over all routes.
    pub(super) fn missing(&self) -> Vec<WorkId> {
        self.findings.routes.values().flat_map(|finding| &finding.missing).copied().collect()
    }

    pub(super) fn as_text(&self, paint: Paint) -> String {
        let mut text = format!("store {}\n", escaped(&self.store));
        if self.findings.routes.is_empty() {
            text += "– nothing that is kept was delivered in that time\n";
        }
        for finding in self.findings.routes.values() {
            text += &line(finding, paint);
        }
        if self.findings.unrouted > 0 {
            let count = grouped(self.findings.unrouted);
            text += &format!("– {count} delivered, and by which route is not known any more\n");
        }
        let missing = self.missing().len() as u64;
        match self.replayed {
            _ if missing == 0 => {}
            None => text += "  fix: add --replay to deliver what is missing once more, under the same ids\n",
            Some(replayed) if replayed < missing => {
                let left = grouped(missing - replayed);
                text +=
                    &format!("  {} replayed; {left} could not be: only receipts are left of them\n", grouped(replayed));
            }
            Some(replayed) => text += &format!("  {} replayed\n", grouped(replayed)),
        }
        text
    }

    fn as_json(&self) -> Value {
        let route = |finding: &RouteFinding| {
            let missing: Vec<_> = finding.missing.iter().map(|id| id.as_i64()).collect();
            json!({
                "route": finding.route, "to": finding.to, "delivered": finding.delivered, "there": finding.there,
                "too_old": finding.too_old, "missing": missing, "unreadable": finding.unreadable,
            })
        };
        let routes: Vec<_> = self.findings.routes.values().map(route).collect();
        json!({
            "store": self.store, "routes": routes, "unrouted": self.findings.unrouted, "replayed": self.replayed,
        })
    }
}

pub(super) fn all_as_json(reports: &[StoreReport]) -> Value {
    json!({ "stores": reports.iter().map(StoreReport::as_json).collect::<Vec<_>>() })
}

pub(super) fn exit(reports: &[StoreReport]) -> Exit {
    let missing = |report: &&StoreReport| !report.missing().is_empty();
    match reports.iter().filter(missing).map(|report| report.replayed.is_some()).min() {
        None => Exit::Fine,
        Some(true) => Exit::Warning,
        Some(false) => Exit::Critical,
    }
}

fn line(finding: &RouteFinding, paint: Paint) -> String {
    let RouteFinding { route, to, delivered, there, too_old, missing, unreadable } = finding;
    let head = format!("{} → {}", escaped(route), escaped(to));
    if let Some(why) = unreadable {
        return format!("– {head}: {} delivered; {}\n", grouped(*delivered), escaped(why));
    }
    let old = match too_old {
        0 => String::new(),
        count => format!(", {} so old that the broker may have dropped them", grouped(*count)),
    };
    if missing.is_empty() {
        return paint.good(&format!("✓ {head}: {} of {} are there{old}", grouped(*there), grouped(*delivered))) + "\n";
    }
    let mut numbers: Vec<_> = missing.iter().take(SHOWN_MAX).map(ToString::to_string).collect();
    if missing.len() > SHOWN_MAX {
        numbers.push("…".to_owned());
    }
    let (count, all) = (grouped(missing.len() as u64), grouped(*delivered));
    paint.bad(&format!("✗ {head}: {count} of {all} are missing{old}: {}", numbers.join(", "))) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(missing: &[i64], unreadable: Option<&str>) -> StoreReport {
        let finding = RouteFinding {
            route: "order.**".to_owned(),
            to: "bus".to_owned(),
            delivered: 2_000,
            there: 2_000 - missing.len() as u64,
            too_old: 0,
            missing: missing.iter().copied().map(WorkId::from_i64).collect(),
            unreadable: unreadable.map(str::to_owned),
        };
        StoreReport::new("shop", Findings { routes: [(0, finding)].into(), unrouted: 0 })
    }

    #[test]
    fn what_is_missing_is_told_with_what_to_do() {
        let text = report(&[7, 9], None).as_text(Paint::OFF);
        let fix = "  fix: add --replay to deliver what is missing once more, under the same ids\n";
        assert_eq!(text, format!("store shop\n✗ order.** → bus: 2 of 2,000 are missing: 7, 9\n{fix}"));
        let many: Vec<_> = (1..=11).collect();
        assert!(report(&many, None).as_text(Paint::OFF).contains("9, 10, …\n"));
        let mut replayed = report(&[7, 9], None);
        replayed.replayed = Some(1);
        assert!(
            replayed.as_text(Paint::OFF).ends_with("  1 replayed; 1 could not be: only receipts are left of them\n")
        );
    }

    #[test]
    fn what_is_there_or_unknown_is_fine() {
        assert_eq!(report(&[], None).as_text(Paint::OFF), "store shop\n✓ order.** → bus: 2,000 of 2,000 are there\n");
        let unknown = report(&[], Some("what http took cannot be looked through"));
        let text = unknown.as_text(Paint::OFF);
        assert_eq!(text, "store shop\n– order.** → bus: 2,000 delivered; what http took cannot be looked through\n");
        assert_eq!(exit(&[report(&[], None), unknown]), Exit::Fine);
    }

    #[test]
    fn one_store_that_misses_something_decides() {
        let mut replayed = report(&[1], None);
        replayed.replayed = Some(1);
        assert_eq!(exit(&[report(&[], None), replayed]), Exit::Warning);
        let mut replayed = report(&[1], None);
        replayed.replayed = Some(1);
        assert_eq!(exit(&[replayed, report(&[1], None)]), Exit::Critical);
    }
}
