//! The statements, rendered once for the configured names.
//!
//! The files hold the default names, so that each runs as it stands in `sqlite3`. A name is replaced only where it stands
//! as a whole word, so a configured name that contains a default one does no harm.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use pillarbox_core::State;
use pillarbox_core::admin::Ended;
use pillarbox_core::naming::Naming;
use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

const DEFAULT_OUTBOX: &str = "pillarbox_outbox";
const DEFAULT_INBOX: &str = "pillarbox_inbox";
const DEFAULT_VERSION: &str = "pillarbox_schema_version";

/// Rows that one enqueue statement can carry, largest first: few texts, so that the driver keeps all of them prepared, and
/// the sizes that people choose for their batches.
pub(crate) const ENQUEUE_ROWS: [usize; 10] = [1000, 500, 200, 100, 50, 20, 10, 5, 2, 1];

/// The line of `outbox_enqueue.sql` that stands for one message.
const ENQUEUE_ROW: &str = "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";

macro_rules! statements {
    ($($name:ident)*) => {
        /// Every statement, ready to be run.
        #[derive(Debug)]
        pub(crate) struct Statements {
            /// One for each of [`ENQUEUE_ROWS`].
            pub(crate) enqueue: [SqlStr; ENQUEUE_ROWS.len()],
            enqueue_plain: String,
            enqueue_new: String,
            /// Completed ones, by what they are for: few, because a program's messages use few sets of columns.
            plain: Mutex<HashMap<Plain, SqlStr>>,
            /// To be completed by [`found`].
            pub(crate) enqueue_found: String,
            /// A claim, and behind it what remembers its time: one hop to the driver's thread.
            pub(crate) claim_and_tick: SqlStr,
            /// New leases of stretches, with the same behind them.
            pub(crate) lease_add_and_tick: SqlStr,
            /// What was leased as a stretch is so no more; what is left of it is.
            pub(crate) lease_cut_and_add: SqlStr,
            pub(crate) lease_spread_and_drop: SqlStr,
            pub(crate) list_done: SqlStr,
            pub(crate) list_dead: SqlStr,
            pub(crate) list_waiting: SqlStr,
            /// For each of [`Ended::ALL`].
            pub(crate) tally: [SqlStr; 2],
            /// For each of [`Ended::ALL`].
            pub(crate) replay: [SqlStr; 2],
            $(pub(crate) $name: SqlStr,)*
        }

        impl Statements {
            pub(crate) fn new(naming: &Naming) -> Self {
                let render = |sql: &str| ready(&rendered(&bare(sql), naming));
                let ended = |sql: &str| Ended::ALL.map(|ended| render(&of_state(sql, ended.state())));
                let enqueue = include_str!("../sql/outbox_enqueue.sql");
                let list = include_str!("../sql/outbox_list_shelf.sql");
                Self {
                    enqueue: ENQUEUE_ROWS.map(|rows| {
                        render(&enqueue.replace(ENQUEUE_ROW, &[ENQUEUE_ROW].repeat(rows).join(",")))
                    }),
                    enqueue_plain: rendered(&bare(include_str!("../sql/outbox_enqueue_plain.sql")), naming),
                    plain: Mutex::default(),
                    enqueue_new: rendered(&bare(include_str!("../sql/outbox_enqueue_new.sql")), naming),
                    enqueue_found: rendered(&bare(include_str!("../sql/outbox_enqueue_found.sql")), naming),
                    claim_and_tick: render(&format!(
                        "{}\n{}",
                        include_str!("../sql/outbox_claim.sql"),
                        include_str!("../sql/outbox_tick.sql").replace("?2", "?11"),
                    )),
                    lease_add_and_tick: render(&format!(
                        "{}\n{}",
                        include_str!("../sql/outbox_lease_add.sql"),
                        include_str!("../sql/outbox_tick.sql").replace("?1", "?5").replace("?2", "?6"),
                    )),
                    lease_cut_and_add: render(concat!(
                        include_str!("../sql/outbox_lease_cut.sql"),
                        include_str!("../sql/outbox_lease_add.sql"),
                    )),
                    lease_spread_and_drop: render(concat!(
                        include_str!("../sql/outbox_lease_spread.sql"),
                        include_str!("../sql/outbox_lease_drop.sql"),
                    )),
                    list_done: render(&of_state(list, State::Done)),
                    list_dead: render(list),
                    list_waiting: render(&of_state(list, State::Pending)),
                    tally: ended(include_str!("../sql/outbox_tally.sql")),
                    replay: ended(include_str!("../sql/outbox_replay.sql")),
                    $($name: render(include_str!(concat!("../sql/outbox_", stringify!($name), ".sql"))),)*
                }
            }
        }
    };
}

statements! {
    clock now tick enqueue_delayed leave_live leave_shelf
    claim_look claim_stretch claim_waiting claim_sequence claim_sequence_waiting
    lease_start lease_list settle_done_leased settle_remove_leased
    settle_done settle_shelve settle_remove settle_remove_claim settle_remove_stretch settle_return renew
    reap_look reap_park reap_shelve reap_release reap_waiting purge purge_look
    topics leases get list_live group_dead delete blocked_keys diagnose top
}

/// A literal, because only a literal lets SQLite use the partial indexes.
fn of_state(sql: &str, state: State) -> String {
    sql.replace("state = 'dead'", &format!("state = '{}'", state.as_str()))
}

/// One of the two statements for messages that ended.
pub(crate) fn of_end(statements: &[SqlStr; 2], ended: Ended) -> &SqlStr {
    let [done, dead] = statements;
    match ended {
        Ended::Done => done,
        Ended::Dead => dead,
    }
}

macro_rules! statements_beside {
    ($(#[$doc:meta])* $type:ident, $noun:literal: $($name:ident)*) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub(crate) struct $type {
            $(pub(crate) $name: SqlStr,)*
        }

        impl $type {
            pub(crate) fn new(naming: &Naming) -> Self {
                let render = |sql: &str| ready(&rendered(&bare(sql), naming));
                Self {
                    $($name: render(include_str!(concat!("../sql/", $noun, "_", stringify!($name), ".sql"))),)*
                }
            }
        }
    };
}

statements_beside! {
    /// The statements of the list of instances.
    InstanceStatements, "instance": heartbeat leave live forget
}

statements_beside! {
    /// The statements of the list of paused routes.
    PauseStatements, "pause": add end find list
}

statements_beside! {
    /// The statements of the progress of receptors and perspectives.
    ProgressStatements, "progress": record_receptors record_checkpoints receptors_of checkpoint purge purge_look
}

statements_beside! {
    /// The statements of an inbox's ledger; those of its queue are the outbox's.
    InboxStatements, "inbox":
    see register register_new release set queue revise leave_live leave_shelf bury_live bury get mismatches
    purge purge_look
}

/// What a statement for messages without due time and expiry is for.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct Plain {
    pub(crate) rows: usize,
    pub(crate) columns: Vec<&'static str>,
    pub(crate) is_leased: bool,
    /// No store can hold the messages yet.
    pub(crate) is_new: bool,
}

impl Statements {
    /// The statement for so many plain messages that use these columns.
    pub(crate) fn plain(&self, plain: Plain) -> SqlStr {
        let mut known = self.plain.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(statement) = known.get(&plain) {
            return statement.clone();
        }
        let statement = self.complete(&plain);
        known.insert(plain, statement.clone());
        statement
    }

    fn complete(&self, plain: &Plain) -> SqlStr {
        let (names, values) = match plain.is_leased {
            true => (", owner_token, fence, locked_until, attempts", ", ?, ?, now + ?, 1"),
            false => ("", ""),
        };
        // Only the other statement reads the clock that a lease needs.
        let lean = plain.is_new && !plain.is_leased;
        let sql = if lean { &self.enqueue_new } else { &self.enqueue_plain };
        let row = format!("(?, ?, ?{})", ", ?".repeat(plain.columns.len()));
        let columns: String = plain.columns.iter().flat_map(|column| [", ", column]).collect();
        let text = sql
            .replace("(?, ?, ? /*values*/)", &vec![row; plain.rows].join(","))
            .replace(" /*columns*/", &columns)
            .replace(" /*lease names*/", names)
            .replace(" /*lease values*/", values);
        ready(&text)
    }
}

/// The look at so many messages.
pub(crate) fn found(sql: &str, count: usize) -> SqlStr {
    ready(&sql.replace("? /*messages*/", &vec!["?"; count].join(", ")))
}

/// Replaces the default names, wherever they stand as words, by the configured ones, quoted.
pub(crate) fn rendered(sql: &str, naming: &Naming) -> String {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut text = String::with_capacity(sql.len() + 256);
    let mut rest = sql;
    while !rest.is_empty() {
        let word_end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(word_end);
        match renamed(word, naming) {
            Some(name) => text.extend(["\"", &name, "\""]),
            None => text.push_str(word),
        }
        let gap_end = after.find(is_word).unwrap_or(after.len());
        text.push_str(&after[..gap_end]);
        rest = &after[gap_end..];
    }
    text
}

/// A statement without its comments: the driver hashes the text of each call to find what it has prepared.
fn bare(sql: &str) -> String {
    sql.lines().filter(|line| !line.starts_with("--")).map(str::trim).collect::<Vec<_>>().join("\n")
}

/// The name of the table that holds the versions.
pub(crate) fn version_table(naming: &Naming) -> String {
    format!("{}_schema_version", naming.schema())
}

/// A text that was made of our own files and checked names.
pub(crate) fn ready(sql: &str) -> SqlStr {
    AssertSqlSafe(Arc::<str>::from(sql)).into_sql_str()
}

fn renamed(word: &str, naming: &Naming) -> Option<String> {
    if word == DEFAULT_VERSION {
        return Some(version_table(naming));
    }
    let suffix = word.strip_prefix(DEFAULT_OUTBOX).or_else(|| word.strip_prefix(DEFAULT_INBOX))?;
    (suffix.is_empty() || suffix.starts_with('_')).then(|| naming.joined() + suffix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_replaced_as_whole_words_and_quoted() {
        let naming = Naming::new("app", "pillarbox_outbox").unwrap();
        let sql =
            "SELECT x FROM pillarbox_outbox, pillarbox_outbox_shelf, my_pillarbox_outbox, pillarbox_schema_version;";
        assert_eq!(
            rendered(sql, &naming),
            "SELECT x FROM \"app_pillarbox_outbox\", \"app_pillarbox_outbox_shelf\", my_pillarbox_outbox, \
             \"app_schema_version\";"
        );
    }

    /// H53: the configured names leave nothing of the default ones behind.
    #[test]
    fn no_statement_keeps_a_default_name() {
        let naming = Naming::new("app", "mail").unwrap();
        let beside =
            (InboxStatements::new(&naming), InstanceStatements::new(&naming), ProgressStatements::new(&naming));
        let statements = format!("{:?} {beside:?}", Statements::new(&naming));
        let code: String = statements.split("\\n").filter(|line| !line.trim_start().starts_with("--")).collect();
        // Messages carry this name, whatever tables are called.
        assert!(!code.replace(pillarbox_core::wire::REPLAY, "").contains("pillarbox"), "{code}");
    }

    #[test]
    fn a_plain_statement_names_only_the_columns_in_use() {
        let statements = Statements::new(&Naming::default());
        let of = |rows, columns: &[&'static str], is_leased, is_new| {
            statements.plain(Plain { rows, columns: columns.to_vec(), is_leased, is_new })
        };
        let sql = of(2, &["content_type"], false, false);
        assert!(sql.as_str().contains("(?, ?, ?, ?),(?, ?, ?, ?)"), "{sql:?}");
        assert!(sql.as_str().contains("(created_at, message_id, topic, payload, content_type)"), "{sql:?}");
        let sql = of(2, &["content_type"], false, true);
        assert!(sql.as_str().contains("(message_id, topic, payload, content_type)"), "{sql:?}");
        assert!(!sql.as_str().contains("EXISTS"), "{sql:?}");
        let sql = of(1, &[], true, true);
        assert!(
            sql.as_str().contains("(created_at, owner_token, fence, locked_until, attempts, message_id"),
            "{sql:?}"
        );
    }

    #[test]
    fn an_enqueue_statement_has_as_many_rows_as_it_says() {
        let statements = Statements::new(&Naming::default());
        for (rows, sql) in ENQUEUE_ROWS.into_iter().zip(&statements.enqueue) {
            assert_eq!(sql.as_str().matches(ENQUEUE_ROW).count(), rows);
            assert!(sql.as_str().matches('?').count() <= 32_766);
        }
    }
}
