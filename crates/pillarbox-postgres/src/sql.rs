//! The statements, with the configured names in place of the default ones.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use pillarbox_core::State;
use pillarbox_core::admin::Ended;
use pillarbox_core::naming::Naming;

/// One statement, ready to be sent.
#[derive(Debug)]
pub(crate) struct Statement {
    pub(crate) text: Arc<str>,
    /// What a statement that is prepared under a name is for, bound to it beside its arguments: behind a pooler another one
    /// may bear the name. The statements of the hot path are prepared: they have one plan that is always right. All
    /// others are planned anew, for the tables as they are, in a transaction of their own.
    pub(crate) guard: Option<Arc<str>>,
}

/// Every statement of the store, rendered once when it is opened.
#[derive(Debug)]
pub(crate) struct Sql {
    pub(crate) enqueue: Statement,
    pub(crate) enqueue_one: Statement,
    enqueue_new: String,
    enqueue_new_many: String,
    /// Completed ones, by what they are for: few, because a program's messages use few sets of columns.
    new: Mutex<HashMap<NewKey, Arc<Statement>>>,
    pub(crate) enqueue_delayed: Statement,
    pub(crate) claim: Statement,
    claim_stretch: String,
    pub(crate) lease_end: Statement,
    pub(crate) lease_spread: Statement,
    pub(crate) settle: Statement,
    pub(crate) exchange: Statement,
    pub(crate) renew: Statement,
    pub(crate) reap: Statement,
    pub(crate) purge: Statement,
    pub(crate) clock: Statement,
    pub(crate) top: Statement,
    pub(crate) topics: Statement,
    pub(crate) leases: Statement,
    pub(crate) get: Statement,
    pub(crate) list_live: Statement,
    pub(crate) list_pending_shelf: Statement,
    pub(crate) list_done: Statement,
    pub(crate) list_dead: Statement,
    pub(crate) tally: PerEnd,
    pub(crate) group_dead: Statement,
    pub(crate) replay: PerEnd,
    pub(crate) delete: Statement,
    pub(crate) blocked_keys: Statement,
    pub(crate) diagnose: Statement,
}

/// The statements of an inbox's ledger; those of its queue are the outbox's.
#[derive(Debug)]
pub(crate) struct InboxSql {
    pub(crate) see: Statement,
    pub(crate) register: Statement,
    pub(crate) register_new: Statement,
    pub(crate) place: Statement,
    pub(crate) release: Statement,
    pub(crate) set: Statement,
    pub(crate) queue: Statement,
    pub(crate) revise: Statement,
    pub(crate) leave: Statement,
    pub(crate) bury: Statement,
    pub(crate) get: Statement,
    pub(crate) mismatches: Statement,
    pub(crate) purge: Statement,
}

/// The statements of the list of instances.
#[derive(Debug)]
pub(crate) struct InstanceSql {
    pub(crate) heartbeat: Statement,
    pub(crate) leave: Statement,
    pub(crate) live: Statement,
    pub(crate) forget: Statement,
}

/// The statements of the list of paused routes.
#[derive(Debug)]
pub(crate) struct PauseSql {
    pub(crate) add: Statement,
    pub(crate) end: Statement,
    pub(crate) list: Statement,
}

/// The statements of the progress of receptors and perspectives.
#[derive(Debug)]
pub(crate) struct ProgressSql {
    pub(crate) record_receptors: Statement,
    pub(crate) record_checkpoints: Statement,
    pub(crate) receptors_of: Statement,
    pub(crate) checkpoint: Statement,
    pub(crate) purge: Statement,
    pub(crate) purge_look: Statement,
}

/// A statement for each way in which messages end.
#[derive(Debug)]
pub(crate) struct PerEnd {
    done: Statement,
    dead: Statement,
}

/// A column that some message of a batch uses, and its type as a parameter.
pub(crate) type UsedColumn = (&'static str, &'static str);

/// Many or one, leased or not, and the columns in use.
type NewKey = (bool, bool, Vec<UsedColumn>);

macro_rules! planned {
    ($when:ident, $naming:expr, $file:literal) => {
        Statement::$when(include_str!(concat!("../sql/", $file, ".sql")), $naming)
    };
}

impl Statement {
    fn once(sql: &str, naming: &Naming) -> Self {
        Self { text: Arc::from(render(sql, naming)), guard: Some(Arc::from(render("pillarbox.outbox", naming))) }
    }

    fn anew(sql: &str, naming: &Naming) -> Self {
        Self { text: Arc::from(render(sql, naming)), guard: None }
    }
}

impl PerEnd {
    fn new(sql: &str, naming: &Naming) -> Self {
        let [done, dead] = Ended::ALL.map(|ended| Statement::anew(&of_state(sql, ended.state()), naming));
        Self { done, dead }
    }

    pub(crate) fn of(&self, ended: Ended) -> &Statement {
        match ended {
            Ended::Done => &self.done,
            Ended::Dead => &self.dead,
        }
    }
}

/// A literal, so that the partial index of the state serves.
fn of_state(sql: &str, state: State) -> String {
    sql.replace("state = 'dead'", &format!("state = '{}'", state.as_str()))
}

impl Sql {
    pub(crate) fn new(naming: &Naming) -> Self {
        let list = include_str!("../sql/outbox_list_shelf.sql");
        let list_of = |state: State| Statement::anew(&of_state(list, state), naming);
        Self {
            enqueue: planned!(once, naming, "outbox_enqueue"),
            enqueue_one: planned!(once, naming, "outbox_enqueue_one"),
            enqueue_new: bare(include_str!("../sql/outbox_enqueue_new.sql"), naming),
            enqueue_new_many: bare(include_str!("../sql/outbox_enqueue_new_many.sql"), naming),
            new: Mutex::default(),
            enqueue_delayed: planned!(once, naming, "outbox_enqueue_delayed"),
            claim: planned!(once, naming, "outbox_claim"),
            claim_stretch: bare(include_str!("../sql/outbox_claim_stretch.sql"), naming),
            lease_end: planned!(anew, naming, "outbox_lease_end"),
            lease_spread: planned!(anew, naming, "outbox_lease_spread"),
            settle: planned!(once, naming, "outbox_settle"),
            exchange: planned!(once, naming, "outbox_exchange"),
            renew: planned!(anew, naming, "outbox_renew"),
            reap: planned!(anew, naming, "outbox_reap"),
            purge: planned!(anew, naming, "outbox_purge"),
            clock: planned!(anew, naming, "outbox_clock"),
            top: planned!(anew, naming, "outbox_top"),
            topics: planned!(anew, naming, "outbox_topics"),
            leases: planned!(anew, naming, "outbox_leases"),
            get: planned!(anew, naming, "outbox_get"),
            list_live: planned!(anew, naming, "outbox_list_live"),
            list_pending_shelf: list_of(State::Pending),
            list_done: list_of(State::Done),
            list_dead: list_of(State::Dead),
            tally: PerEnd::new(include_str!("../sql/outbox_tally.sql"), naming),
            group_dead: planned!(anew, naming, "outbox_group_dead"),
            replay: PerEnd::new(include_str!("../sql/outbox_replay.sql"), naming),
            delete: planned!(anew, naming, "outbox_delete"),
            blocked_keys: planned!(anew, naming, "outbox_blocked_keys"),
            diagnose: planned!(anew, naming, "outbox_diagnose"),
        }
    }

    /// The statement for the rows of stretches, each from its first row to its last: those that nobody has locked, or, where others have let
    /// go of some, those that nobody has locked any more.
    pub(crate) fn claim_stretch(&self, stretches: &[(i64, i64)], were_locked: bool) -> Statement {
        let ranges: Vec<_> = stretches.iter().map(|(first, last)| format!("id BETWEEN {first} AND {last}")).collect();
        let count: i64 = stretches.iter().map(|(first, last)| last - first + 1).sum();
        let (first, last) = stretches.first().zip(stretches.last()).map_or((0, 0), |(first, last)| (first.0, last.1));
        let mut text = self.claim_stretch.replace("id BETWEEN 0 AND 0", &ranges.join(" OR "));
        text = text.replace("id BETWEEN -1 AND 1", &format!("id BETWEEN {first} AND {last}"));
        text = text.replace("LIMIT 0", &format!("LIMIT {count}"));
        if were_locked {
            text = text.replace(" AND xmax = '0'::xid", "") + " FOR SHARE SKIP LOCKED";
        }
        Statement { text: Arc::from(text), guard: None }
    }

    /// The statement for messages that no store can hold yet, with the columns that they use.
    pub(crate) fn enqueue_new(&self, many: bool, leased: bool, used: Vec<UsedColumn>) -> Arc<Statement> {
        let mut known = self.new.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (many, leased, used);
        if let Some(statement) = known.get(&key) {
            return Arc::clone(statement);
        }
        let statement = Arc::new(self.complete_new(many, leased, &key.2));
        known.insert(key, Arc::clone(&statement));
        statement
    }

    fn complete_new(&self, many: bool, leased: bool, used: &[UsedColumn]) -> Statement {
        let template = if many { &self.enqueue_new_many } else { &self.enqueue_new };
        let mut number = FIRST_FREE;
        let mut next = || {
            number += 1;
            number - 1
        };
        let (mut names, mut values, mut columns, mut arrays) =
            (String::new(), String::new(), String::new(), String::new());
        if leased {
            names.push_str(", attempts, owner_token, fence, locked_until");
            let (owner, lease, fence) = (next(), next(), next());
            let _ = write!(values, ", 1, ${owner}::uuid, ${fence}::bigint");
            let _ = write!(values, ", clock_timestamp() + ${lease}::bigint * interval '1 microsecond'");
        }
        for (name, kind) in used {
            let cast = if *name == "headers" { "::jsonb" } else { "" };
            let number = next();
            let _ = write!(names, ", {name}");
            let _ = match (many, *name) {
                (true, "priority") => write!(values, ", coalesce(input.priority, 0)"),
                (true, name) => write!(values, ", input.{name}{cast}"),
                (false, _) => write!(values, ", ${number}::{kind}{cast}"),
            };
            let _ = write!(columns, ", {name}");
            let _ = write!(arrays, ", ${number}::{kind}[]");
        }
        let (table, _) = template.split_once(" (").unwrap_or((template, ""));
        let guard = format!("{table}{}{names}", if many { " *" } else { "" });
        let text = template
            .replace(" /*names*/", &names)
            .replace(" /*values*/", &values)
            .replace(" /*columns*/", &columns)
            .replace(" /*arrays*/", &arrays)
            .replace("$0 = 'guard'", &format!("${} = '{guard}'", next()));
        Statement { text: Arc::from(text), guard: Some(Arc::from(guard)) }
    }
}

impl InboxSql {
    pub(crate) fn new(naming: &Naming) -> Self {
        Self {
            see: planned!(once, naming, "inbox_see"),
            register: planned!(once, naming, "inbox_register"),
            register_new: planned!(once, naming, "inbox_register_new"),
            place: planned!(anew, naming, "inbox_place"),
            release: planned!(anew, naming, "inbox_release"),
            set: planned!(anew, naming, "inbox_set"),
            queue: planned!(anew, naming, "inbox_queue"),
            revise: planned!(anew, naming, "inbox_revise"),
            leave: planned!(anew, naming, "inbox_leave"),
            bury: planned!(anew, naming, "inbox_bury"),
            get: planned!(anew, naming, "inbox_get"),
            mismatches: planned!(anew, naming, "inbox_mismatches"),
            purge: planned!(anew, naming, "inbox_purge"),
        }
    }
}

impl InstanceSql {
    pub(crate) fn new(naming: &Naming) -> Self {
        Self {
            heartbeat: planned!(anew, naming, "instance_heartbeat"),
            leave: planned!(anew, naming, "instance_leave"),
            live: planned!(anew, naming, "instance_live"),
            forget: planned!(anew, naming, "instance_forget"),
        }
    }
}

impl PauseSql {
    pub(crate) fn new(naming: &Naming) -> Self {
        Self {
            add: planned!(anew, naming, "pause_add"),
            end: planned!(anew, naming, "pause_end"),
            list: planned!(anew, naming, "pause_list"),
        }
    }
}

impl ProgressSql {
    pub(crate) fn new(naming: &Naming) -> Self {
        Self {
            record_receptors: planned!(anew, naming, "progress_record_receptors"),
            record_checkpoints: planned!(anew, naming, "progress_record_checkpoints"),
            receptors_of: planned!(anew, naming, "progress_receptors_of"),
            checkpoint: planned!(anew, naming, "progress_checkpoint"),
            purge: planned!(anew, naming, "progress_purge"),
            purge_look: planned!(anew, naming, "progress_purge_look"),
        }
    }
}

/// The number of the first parameter after what every message has.
const FIRST_FREE: usize = 4;

/// A rendered statement without its comments: the driver hashes the text of each call to find what it has prepared.
fn bare(sql: &str, naming: &Naming) -> String {
    let lines: Vec<&str> = sql.lines().filter(|line| !line.starts_with("--")).collect();
    render(&lines.join("\n"), naming)
}

/// Puts the configured names, quoted, in place of the default ones.
///
/// The files use `pillarbox` for the schema, `outbox` and `outbox_…` for what belongs to the table, or `inbox…`, and
/// `pillarbox.<verb>` for routines; routines of another table carry its name, so that two outboxes fit in one schema.
pub(crate) fn render(sql: &str, naming: &Naming) -> String {
    let table = naming.outbox().as_str();
    let mut rendered = String::with_capacity(sql.len() + 256);
    let mut rest = sql;
    let mut after_schema = false;
    while let Some(start) = rest.find(|c: char| c.is_ascii_alphanumeric() || c == '_') {
        let (between, word_on) = rest.split_at(start);
        let end = word_on.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(word_on.len());
        let (word, tail) = word_on.split_at(end);
        rendered.push_str(between);
        after_schema = after_schema && between == ".";
        match word {
            "pillarbox" if tail.starts_with('.') => quote(naming.schema().as_str(), &mut rendered),
            "outbox" | "inbox" if after_schema => quote(table, &mut rendered),
            _ if word.starts_with("outbox_") => quote(&format!("{table}{}", &word["outbox".len()..]), &mut rendered),
            _ if word.starts_with("inbox_") => quote(&format!("{table}{}", &word["inbox".len()..]), &mut rendered),
            "schema_version" if after_schema => quote(word, &mut rendered),
            _ if after_schema && table != "outbox" => quote(&format!("{table}_{word}"), &mut rendered),
            _ if after_schema => quote(word, &mut rendered),
            _ => rendered.push_str(word),
        }
        after_schema = word == "pillarbox" && tail.starts_with('.');
        rest = tail;
    }
    rendered.push_str(rest);
    rendered
}

fn quote(name: &str, rendered: &mut String) {
    rendered.push('"');
    rendered.push_str(name);
    rendered.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_replaced_and_quoted() {
        let naming = Naming::new("billing", "events").unwrap();
        let table = [
            ("SELECT FROM pillarbox.outbox", "SELECT FROM \"billing\".\"events\""),
            ("pillarbox.outbox_shelf AS shelf", "\"billing\".\"events_shelf\" AS shelf"),
            ("nextval('pillarbox.outbox_id')", "nextval('\"billing\".\"events_id\"')"),
            ("CREATE INDEX outbox_shelf_dead ON", "CREATE INDEX \"events_shelf_dead\" ON"),
            ("FUNCTION pillarbox.enqueue(", "FUNCTION \"billing\".\"events_enqueue\"("),
            ("pillarbox.inbox_ledger AS ledger", "\"billing\".\"events_ledger\" AS ledger"),
            ("$8 = 'pillarbox.inbox'", "$8 = '\"billing\".\"events\"'"),
            ("pillarbox.schema_version", "\"billing\".\"schema_version\""),
            ("-- the outbox of pillarbox", "-- the outbox of pillarbox"),
            ("enqueue.topic = $1", "enqueue.topic = $1"),
        ];
        for (sql, rendered) in table {
            assert_eq!(render(sql, &naming), rendered);
        }
    }

    #[test]
    fn the_default_names_stay() {
        let rendered = render("pillarbox.enqueue pillarbox.outbox", &Naming::default());
        assert_eq!(rendered, "\"pillarbox\".\"enqueue\" \"pillarbox\".\"outbox\"");
    }

    /// Behind a pooler a statement for other columns may bear the same name: its guard differs, too.
    #[test]
    fn a_statement_for_new_messages_says_what_it_is_for() {
        let sql = Sql::new(&Naming::default());
        let of = |many, leased, column| sql.enqueue_new(many, leased, vec![(column, "text")]);
        let all: Vec<_> = [false, true]
            .into_iter()
            .flat_map(|many| [false, true].map(|leased| (many, leased)))
            .flat_map(|(many, leased)| ["tenant_id", "message_key"].map(|column| of(many, leased, column)))
            .collect();
        let guards: std::collections::HashSet<_> = all.iter().map(|statement| statement.guard.clone()).collect();
        assert_eq!(guards.len(), all.len());
        for statement in &all {
            let guard = statement.guard.as_deref().unwrap_or_default();
            assert!(statement.text.contains(&format!("= '{guard}'")), "{}", statement.text);
            assert!(!statement.text.contains("/*"), "{}", statement.text);
        }
    }

    /// H53: every identifier that came from the configuration is quoted, in every statement.
    #[test]
    fn no_statement_keeps_a_default_name() {
        let naming = Naming::new("s1", "t1").unwrap();
        let beside = (InboxSql::new(&naming), InstanceSql::new(&naming), PauseSql::new(&naming));
        let all = format!("{:?} {beside:?}", Sql::new(&naming));
        let code: String = all.split("\\n").filter(|line| !line.trim_start().starts_with("--")).collect();
        assert!(!code.contains("pillarbox."));
        assert!(!code.contains("\"outbox") && !code.contains("\"inbox"));
    }

    /// H5: NOTIFY takes a lock that all commits of the server share; nothing that runs in a user's transaction does that.
    #[test]
    fn nothing_notifies() {
        let parts =
            [&crate::migrate::QUEUE, &crate::migrate::LEDGER, &crate::migrate::INSTANCES, &crate::migrate::PAUSES];
        let migrations: String = parts.into_iter().flat_map(|part| part.steps).map(|migration| migration.sql).collect();
        let naming = Naming::default();
        let beside = (InboxSql::new(&naming), InstanceSql::new(&naming), PauseSql::new(&naming));
        let all = format!("{:?} {beside:?} {migrations}", Sql::new(&naming)).to_lowercase();
        assert!(!all.contains("notify"));
        assert!(!all.contains("trigger"));
    }
}
