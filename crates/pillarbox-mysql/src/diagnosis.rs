//! What MySQL and MariaDB say of themselves, and what that means for messages.

use pillarbox_core::StoreError;
use pillarbox_core::diagnosis::{Facts, Finding};
use sqlx::Row as _;

use crate::row::get;
use crate::store::MysqlStore;

const ON_TABLES: [&str; 4] = ["SELECT", "INSERT", "UPDATE", "DELETE"];

pub(crate) async fn diagnose(store: &MysqlStore) -> Result<Vec<Finding>, StoreError> {
    let rows = store.transact(vec![store.inner.sql.diagnose.clone()]).await?;
    let facts = rows.iter().filter(|row| row.len() == 2).map(|row| {
        let text = |column| get::<Option<Vec<u8>>>(row, column).map(Option::unwrap_or_default);
        let text = |column| text(column).map(|text| String::from_utf8_lossy(&text).into_owned());
        Ok((text(0)?, text(1)?))
    });
    let facts = facts.collect::<Result<Facts, StoreError>>()?;
    let needed = needed(&store.inner.options.naming.joined(), store.inner.server.is_mariadb);
    Ok(findings(&facts, store.pool().connect_options().get_host(), &needed))
}

/// The rights on tables that every call together needs.
fn needed(table: &str, is_mariadb: bool) -> Vec<(&'static str, String)> {
    let tables = [table.to_owned(), format!("{table}_shelf"), format!("{table}_lane")];
    let on_tables = |right: &'static str| tables.clone().map(|table| (right, table));
    let mut needed: Vec<_> = ON_TABLES.into_iter().flat_map(on_tables).collect();
    if is_mariadb {
        needed.extend(["SELECT", "INSERT"].map(|right| (right, format!("{table}_claimed"))));
    }
    needed
}

fn findings(facts: &Facts, host: &str, needed: &[(&str, String)]) -> Vec<Finding> {
    let is_encrypted = facts.get("Ssl_cipher").map(|cipher| !cipher.is_empty());
    let tls = "add ssl-mode=VERIFY_IDENTITY (or at least REQUIRED) to the address";
    vec![
        durability(facts),
        Finding::fine("isolation", "the store's own transactions are READ COMMITTED, whatever the default"),
        privileges(facts, needed),
        Finding::connections(facts.number("Threads_connected"), facts.number("max_connections")),
        Finding::encryption(is_encrypted, host, tls),
        Finding::primary(facts.is_on("read_only") == Some(true)),
    ]
}

fn durability(facts: &Facts) -> Finding {
    match facts.get("innodb_flush_log_at_trx_commit") {
        None => return Finding::unknown("durability", "the server does not say"),
        Some("1" | "3") => {}
        Some(value) => {
            let what = format!(
                "innodb_flush_log_at_trx_commit is {value}: a crash takes the last commits back, and what they enqueued"
            );
            return Finding::warning("durability", what, "set innodb_flush_log_at_trx_commit = 1, or accept that");
        }
    }
    if facts.is_on("log_bin") == Some(true) && facts.number("sync_binlog") != Some(1) {
        let what = "sync_binlog is not 1: after a crash replicas may lack commits that the primary has";
        return Finding::warning("durability", what, "set sync_binlog = 1, or accept that");
    }
    Finding::fine("durability", "every commit reaches the disk")
}

/// A right may come from the server, the database or each of the tables.
fn privileges(facts: &Facts, needed: &[(&str, String)]) -> Finding {
    if facts.get("role").is_some_and(|role| role != "NONE") {
        return Finding::unknown("privileges", "a role is active, and what it grants is not looked at");
    }
    let (wide, narrow) = (facts.all("grant"), facts.all("table_grant"));
    let has = |right: &str| wide.iter().any(|has| has == right);
    let on_tables = needed.iter().filter(|(right, _)| !has(right)).map(|(right, table)| format!("{right} ON {table}"));
    let mut missing: Vec<_> = on_tables.filter(|grant| !narrow.contains(grant)).collect();
    if !has("EXECUTE") {
        missing.push("EXECUTE on the database".to_owned());
    }
    Finding::privileges(&missing)
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
            (["1", "OFF", "0"], Health::Fine),
            (["1", "ON", "1"], Health::Fine),
            (["1", "1", "0"], Health::Warning),
            (["2", "OFF", "0"], Health::Warning),
            (["0", "ON", "1"], Health::Warning),
        ];
        for ([flush, binlog, sync], health) in table {
            let facts = facts(&[("innodb_flush_log_at_trx_commit", flush), ("log_bin", binlog), ("sync_binlog", sync)]);
            assert_eq!(durability(&facts).health, health, "{flush} {binlog} {sync}");
        }
    }

    #[test]
    fn missing_rights_are_named() {
        let wide = ["SELECT", "INSERT", "DELETE", "EXECUTE"].map(|right| ("grant", right));
        let narrow = [("table_grant", "UPDATE ON s_t")];
        let all = needed("s_t", true);
        let finding = privileges(&facts(&[&wide[..], &narrow].concat()), &all);
        assert_eq!(finding.what, "the user lacks UPDATE ON s_t_shelf, UPDATE ON s_t_lane");
        let others = [("table_grant", "UPDATE ON s_t_shelf"), ("table_grant", "UPDATE ON s_t_lane")];
        let both = [&wide[..], &narrow, &others].concat();
        assert_eq!(privileges(&facts(&both), &all).health, Health::Fine);
        assert_eq!(privileges(&facts(&[("role", "clerk")]), &all).health, Health::Unknown);
        let tables = ["s_t", "s_t_shelf", "s_t_lane"];
        let four = ON_TABLES.iter().flat_map(|right| tables.map(|table| format!("{right} ON {table}")));
        let four: Facts = four.map(|grant| ("table_grant".to_owned(), grant)).collect();
        let lacks = "the user lacks SELECT ON s_t_claimed, INSERT ON s_t_claimed, EXECUTE on the database";
        assert_eq!(privileges(&four, &all).what, lacks);
        assert_eq!(privileges(&four, &needed("s_t", false)).what, "the user lacks EXECUTE on the database");
    }
}
