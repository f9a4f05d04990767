//! The statements, with the configured names in place of the default ones.

use std::sync::Arc;

use pillarbox_core::naming::Naming;

/// One statement, ready to be sent.
#[derive(Debug)]
pub(crate) struct Statement {
    pub(crate) text: Arc<str>,
    /// Whether it is prepared under a name and so keeps its plan. The calls of the hot path do: their functions see to a
    /// plan that is always right. All others are planned anew, for the tables as they are, in a transaction of their own.
    pub(crate) is_hot: bool,
}

/// Every statement of the store, rendered once when it is opened.
#[derive(Debug)]
pub(crate) struct Sql {
    pub(crate) enqueue: Statement,
    pub(crate) enqueue_one: Statement,
    pub(crate) enqueue_delayed: Statement,
    pub(crate) claim: Statement,
    pub(crate) settle: Statement,
    pub(crate) exchange: Statement,
    pub(crate) renew: Statement,
    pub(crate) reap: Statement,
    pub(crate) purge: Statement,
    pub(crate) topics: Statement,
    pub(crate) leases: Statement,
    pub(crate) get: Statement,
    pub(crate) list_live: Statement,
    pub(crate) list_pending_shelf: Statement,
    pub(crate) list_done: Statement,
    pub(crate) list_dead: Statement,
    pub(crate) count_dead: Statement,
    pub(crate) replay: Statement,
    pub(crate) delete: Statement,
    /// The table that is meant, as the statements of the hot path name it.
    pub(crate) meant: String,
}

macro_rules! planned {
    ($when:ident, $naming:expr, $file:literal) => {
        Statement::$when(include_str!(concat!("../sql/", $file, ".sql")), $naming)
    };
}

impl Statement {
    fn once(sql: &str, naming: &Naming) -> Self {
        Self { text: Arc::from(render(sql, naming)), is_hot: true }
    }

    fn anew(sql: &str, naming: &Naming) -> Self {
        Self { text: Arc::from(render(sql, naming)), is_hot: false }
    }
}

impl Sql {
    pub(crate) fn new(naming: &Naming) -> Self {
        let list = include_str!("../sql/outbox_list_shelf.sql");
        let list_of =
            |state: &str| Statement::anew(&list.replace("state = 'dead'", &format!("state = '{state}'")), naming);
        Self {
            enqueue: planned!(once, naming, "outbox_enqueue"),
            enqueue_one: planned!(once, naming, "outbox_enqueue_one"),
            enqueue_delayed: planned!(once, naming, "outbox_enqueue_delayed"),
            claim: planned!(once, naming, "outbox_claim"),
            settle: planned!(once, naming, "outbox_settle"),
            exchange: planned!(once, naming, "outbox_exchange"),
            renew: planned!(anew, naming, "outbox_renew"),
            reap: planned!(anew, naming, "outbox_reap"),
            purge: planned!(anew, naming, "outbox_purge"),
            topics: planned!(anew, naming, "outbox_topics"),
            leases: planned!(anew, naming, "outbox_leases"),
            get: planned!(anew, naming, "outbox_get"),
            list_live: planned!(anew, naming, "outbox_list_live"),
            list_pending_shelf: list_of("pending"),
            list_done: list_of("done"),
            list_dead: list_of("dead"),
            count_dead: planned!(anew, naming, "outbox_count_dead"),
            replay: planned!(anew, naming, "outbox_replay"),
            delete: planned!(anew, naming, "outbox_delete"),
            meant: render("pillarbox.outbox", naming),
        }
    }
}

/// Puts the configured names, quoted, in place of the default ones.
///
/// The files use `pillarbox` for the schema, `outbox` and `outbox_…` for what belongs to the table, and
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
            "outbox" if after_schema => quote(table, &mut rendered),
            _ if word.starts_with("outbox_") => quote(&format!("{table}{}", &word["outbox".len()..]), &mut rendered),
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

    /// H53: every identifier that came from the configuration is quoted, in every statement.
    #[test]
    fn no_statement_keeps_a_default_name() {
        let naming = Naming::new("s1", "t1").unwrap();
        let all = format!("{:?}", Sql::new(&naming));
        let code: String = all.split("\\n").filter(|line| !line.trim_start().starts_with("--")).collect();
        assert!(!code.contains("pillarbox."));
        assert!(!code.contains("\"outbox"));
    }

    /// H5: NOTIFY takes a lock that all commits of the server share; nothing that runs in a user's transaction does that.
    #[test]
    fn nothing_notifies() {
        let migrations = crate::migrate::MIGRATIONS.map(|migration| migration.sql).concat();
        let all = format!("{:?} {migrations}", Sql::new(&Naming::default())).to_lowercase();
        assert!(!all.contains("notify"));
        assert!(!all.contains("trigger"));
    }
}
