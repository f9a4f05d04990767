//! Whether a server keeps what it has acknowledged.

use std::collections::HashMap;

use pillarbox_core::diagnosis::{Facts, Finding};
use redis::aio::MultiplexedConnection;
use redis::cmd;

const NAMES: [&str; 4] = ["appendonly", "appendfsync", "maxmemory", "maxmemory-policy"];

/// Reads the settings, as far as the user may.
pub(super) async fn settings(connection: &mut MultiplexedConnection) -> Vec<Finding> {
    let mut asked = redis::pipe();
    for name in NAMES {
        asked.cmd("CONFIG").arg("GET").arg(name);
    }
    let answers: Vec<HashMap<String, String>> = asked.query_async(connection).await.unwrap_or_default();
    let facts: Facts = answers.into_iter().flatten().collect();
    let replication: Option<String> = cmd("INFO").arg("replication").query_async(connection).await.ok();
    let role = replication.map(|said| Finding::primary(said.contains("role:slave")));
    role.into_iter().chain(judge(&facts)).collect()
}

fn judge(facts: &Facts) -> [Finding; 2] {
    let sync = facts.get("appendfsync").unwrap_or_default();
    let fix = "set `appendonly yes` and `appendfsync always`: by CONFIG SET now, and in redis.conf or by CONFIG REWRITE for good";
    let persistence = match facts.is_on("appendonly") {
        None => Finding::unknown("persistence", "the user may not read the server's settings"),
        Some(false) => {
            let what = "appendonly is off: what came since the last snapshot is lost when the server ends";
            Finding::critical("persistence", what, fix)
        }
        Some(true) if sync == "always" => Finding::fine("persistence", "what is acknowledged is on the disk"),
        Some(true) => {
            let what = format!("appendfsync is {sync}: what came last, about a second of it, may be lost");
            Finding::warning("persistence", what, fix)
        }
    };
    let policy = facts.get("maxmemory-policy").unwrap_or_default();
    let memory = match facts.number("maxmemory") {
        None => Finding::unknown("memory", "the user may not read the server's settings"),
        Some(0) => Finding::fine("memory", "no limit is set"),
        Some(_) if policy.starts_with("allkeys") => {
            let what = format!("maxmemory-policy is {policy}: a server that is full removes whole streams");
            let fix =
                "set `maxmemory-policy noeviction`: a full server then takes nothing, and messages wait in the outbox";
            Finding::critical("memory", what, fix)
        }
        Some(_) => Finding::fine("memory", format!("a server that is full keeps its streams ({policy})")),
    };
    [persistence, memory]
}

#[cfg(test)]
mod tests {
    use pillarbox_core::diagnosis::Health::{self, Critical, Fine, Unknown, Warning};

    use super::*;

    #[test]
    fn settings_that_lose_messages_are_found() {
        let table: [([&str; 4], [Health; 2]); 5] = [
            (["yes", "always", "0", "allkeys-lru"], [Fine, Fine]),
            (["yes", "everysec", "100", "noeviction"], [Warning, Fine]),
            (["no", "everysec", "100", "volatile-lru"], [Critical, Fine]),
            (["no", "always", "100", "allkeys-random"], [Critical, Critical]),
            (["", "", "", ""], [Unknown, Unknown]),
        ];
        for (values, expected) in table {
            let facts = NAMES.iter().zip(values).map(|(name, value)| ((*name).to_owned(), value.to_owned())).collect();
            let findings = judge(&facts);
            assert_eq!(findings.each_ref().map(|finding| finding.health), expected, "{values:?}");
            assert!(findings.iter().all(|finding| finding.fix.is_some() == (finding.health >= Warning)));
        }
    }
}
