//! What SQLite says of its file, and what that means for messages.

use pillarbox_core::StoreError;
use pillarbox_core::diagnosis::{Facts, Finding};
use sqlx::{AssertSqlSafe, Connection as _};

use crate::error::store_error;
use crate::row;
use crate::store::SqliteStore;

pub(crate) async fn diagnose(store: &SqliteStore) -> Result<Vec<Finding>, StoreError> {
    let rows = sqlx::query(store.inner.sql.diagnose.clone()).fetch_all(store.pool()).await.map_err(store_error)?;
    let facts = rows.iter().map(|row| Ok((row::get(row, 0)?, row::get::<Option<String>>(row, 1)?.unwrap_or_default())));
    let facts = facts.collect::<Result<Facts, StoreError>>()?;
    let isolation = Finding::fine("isolation", "serializable: SQLite has no other");
    Ok(vec![durability(&facts), isolation, privileges(store).await, space(&facts)])
}

/// Writes, and takes it back: a transaction that only begins may do so in any file.
async fn privileges(store: &SqliteStore) -> Finding {
    match write_nothing(store).await.map_err(store_error) {
        Ok(()) => Finding::fine("privileges", "the file can be written"),
        Err(error) if error.is_transient() => Finding::unknown("privileges", error.to_string()),
        Err(error) => {
            let fix =
                "let the user of this program write the file and its directory, and no `mode=ro` stand in the address";
            Finding::critical("privileges", error.to_string(), fix)
        }
    }
}

async fn write_nothing(store: &SqliteStore) -> Result<(), sqlx::Error> {
    let mut connection = store.pool().acquire().await?;
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
    let table =
        AssertSqlSafe(format!("CREATE TABLE IF NOT EXISTS {}_doctor (id)", store.inner.options.naming.joined()));
    sqlx::raw_sql(table).execute(&mut *tx).await?;
    tx.rollback().await
}

fn durability(facts: &Facts) -> Finding {
    let mode = facts.get("journal_mode").unwrap_or("unknown").to_lowercase();
    let words = match facts.number("synchronous") {
        Some(0) => "OFF",
        Some(1) => "NORMAL",
        Some(2) => "FULL",
        Some(3) => "EXTRA",
        _ => return Finding::unknown("durability", "SQLite does not say"),
    };
    let what = format!("journal_mode {mode}, synchronous {words}");
    match (mode.as_str(), words) {
        // Nothing of a database in memory outlives its process, and its user knows.
        ("memory", _) => Finding::unknown("durability", "the database is in memory"),
        ("off", _) => {
            Finding::critical("durability", what, "set journal_mode = WAL: without a journal a crash ruins the file")
        }
        (_, "OFF") => Finding::critical("durability", what, "set synchronous = FULL: a power loss can ruin the file"),
        ("wal", "NORMAL") => {
            let what = format!("{what}: a power loss takes the last commits back, and what they enqueued");
            Finding::warning("durability", what, "set synchronous = FULL, or accept that")
        }
        _ => Finding::fine("durability", what),
    }
}

fn space(facts: &Facts) -> Finding {
    let number = |name| facts.number(name);
    let (Some(pages), Some(free), Some(max)) =
        (number("page_count"), number("freelist_count"), number("max_page_count"))
    else {
        return Finding::unknown("space", "SQLite does not say");
    };
    let bytes = pages.saturating_mul(number("page_size").unwrap_or(4_096));
    let what = format!("{} KiB in the file, of which {free} of {pages} pages are free", bytes / 1_024);
    if pages.saturating_sub(free).saturating_mul(10) <= max.saturating_mul(9) {
        return Finding::fine("space", what);
    }
    Finding::warning("space", format!("{what}; it may have {max}"), "raise max_page_count, or purge what is done")
}

#[cfg(test)]
mod tests {
    use pillarbox_core::diagnosis::Health;

    use super::*;

    fn facts(facts: &[(&str, &str)]) -> Facts {
        facts.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn what_a_power_loss_can_take_is_told() {
        let table = [
            (["wal", "2"], Health::Fine),
            (["delete", "2"], Health::Fine),
            (["wal", "1"], Health::Warning),
            (["wal", "0"], Health::Critical),
            (["off", "2"], Health::Critical),
            (["memory", "2"], Health::Unknown),
            (["wal", "?"], Health::Unknown),
        ];
        for ([mode, synchronous], health) in table {
            let finding = durability(&facts(&[("journal_mode", mode), ("synchronous", synchronous)]));
            assert_eq!(finding.health, health, "{mode} {synchronous}: {finding:?}");
        }
    }

    #[test]
    fn a_file_that_is_nearly_full_is_told() {
        let of = |free| {
            let pages =
                [("page_count", "100"), ("max_page_count", "100"), ("page_size", "4096"), ("freelist_count", free)];
            space(&facts(&pages)).health
        };
        assert_eq!((of("10"), of("9")), (Health::Fine, Health::Warning));
        assert_eq!(space(&Facts::default()).health, Health::Unknown);
    }
}
