//! What PostgreSQL says of itself, and what that means for messages.

use std::time::Duration;

use pillarbox_core::StoreError;
use pillarbox_core::diagnosis::{Facts, Finding};

use crate::row;
use crate::store::PostgresStore;

pub(crate) async fn diagnose(store: &PostgresStore) -> Result<Vec<Finding>, StoreError> {
    let naming = &store.settings().naming;
    let (schema, table) = (naming.schema().to_string(), naming.outbox().to_string());
    let rows = store.fetch(&store.sql().diagnose, |query| query.bind(schema.clone()).bind(table.clone())).await?;
    let facts = rows.iter().map(|row| Ok((row::get(row, 0)?, row::get::<Option<String>>(row, 1)?.unwrap_or_default())));
    let facts = facts.collect::<Result<Facts, StoreError>>()?;
    Ok(findings(&facts, store.pool().connect_options().get_host()))
}

fn findings(facts: &Facts, host: &str) -> Vec<Finding> {
    let open_for = facts.number("transaction_seconds").map(Duration::from_secs);
    let tls = "add sslmode=verify-full (or at least require) to the address";
    vec![
        durability(facts),
        isolation(facts),
        Finding::privileges(&facts.all("missing_grant")),
        Finding::connections(facts.number("connections"), facts.number("max_connections")),
        Finding::encryption(facts.is_on("ssl"), host, tls),
        Finding::primary(facts.is_on("recovery") == Some(true)),
        Finding::longest_transaction(open_for),
    ]
}

fn durability(facts: &Facts) -> Finding {
    let is_off = |name: &str| facts.is_on(name) == Some(false);
    if is_off("fsync") {
        return Finding::critical(
            "durability",
            "fsync is off: a power loss can destroy the database",
            "set fsync = on",
        );
    }
    if is_off("full_page_writes") {
        let what = "full_page_writes is off: a power loss can tear pages";
        return Finding::critical(
            "durability",
            what,
            "set full_page_writes = on, unless the file system never tears pages",
        );
    }
    match facts.get("synchronous_commit") {
        None => Finding::unknown("durability", "the server does not say"),
        Some("off") => {
            let what = "synchronous_commit is off: a crash takes the last commits back, and what they enqueued";
            let fix = "set synchronous_commit = on for the users that enqueue and settle, or accept that";
            Finding::warning("durability", what, fix)
        }
        Some(word) => Finding::fine("durability", format!("fsync on, full_page_writes on, synchronous_commit {word}")),
    }
}

/// Every level serves; above the default, transactions of the user's own fail more often.
fn isolation(facts: &Facts) -> Finding {
    match facts.get("default_transaction_isolation") {
        None => Finding::unknown("isolation", "the server does not say"),
        Some("read committed") => Finding::fine("isolation", "read committed by default"),
        Some(level) => {
            let what = format!("{level} by default: transactions that enqueue may have to be repeated");
            Finding::warning("isolation", what, "repeat them after a serialization failure, or lower the default")
        }
    }
}

#[cfg(test)]
mod tests {
    use pillarbox_core::diagnosis::Health;

    use super::*;

    fn facts(facts: &[(&str, &str)]) -> Facts {
        facts.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn what_a_crash_can_take_is_told() {
        let table = [
            (["on", "on", "on"], Health::Fine),
            (["on", "on", "remote_apply"], Health::Fine),
            (["on", "on", "off"], Health::Warning),
            (["on", "off", "on"], Health::Critical),
            (["off", "on", "on"], Health::Critical),
        ];
        for ([fsync, pages, commit], health) in table {
            let facts = facts(&[("fsync", fsync), ("full_page_writes", pages), ("synchronous_commit", commit)]);
            assert_eq!(durability(&facts).health, health, "{fsync} {pages} {commit}");
        }
        assert_eq!(durability(&Facts::default()).health, Health::Unknown);
    }

    #[test]
    fn other_isolation_levels_are_named() {
        let of = |level| isolation(&facts(&[("default_transaction_isolation", level)]));
        assert_eq!(of("read committed").health, Health::Fine);
        assert!(of("serializable").what.starts_with("serializable by default"));
    }

    #[test]
    fn every_fact_has_its_finding() {
        let all = facts(&[("missing_grant", "UPDATE ON s.t"), ("recovery", "true"), ("transaction_seconds", "3600")]);
        let all = findings(&all, "db");
        let of = |check| all.iter().find(|finding: &&Finding| finding.check == check).map(|finding| finding.health);
        for (check, health) in [
            ("privileges", Health::Critical),
            ("primary", Health::Critical),
            ("transactions", Health::Warning),
            ("encryption", Health::Unknown),
            ("connections", Health::Unknown),
        ] {
            assert_eq!(of(check), Some(health), "{check}");
        }
    }
}
