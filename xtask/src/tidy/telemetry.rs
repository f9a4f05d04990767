//! Every log line of the runtime stands in the table of its document, and names its store.

use super::tree::Tree;
use super::{Problem, markdown};

const DOCUMENT: &str = "docs/telemetry.md";
const SOURCES: &str = "crates/pillarbox/src/";
const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

/// Lines that have no field `store`, and why.
const WITHOUT_STORE: [(&str, &str); 12] = [
    ("stores could not be discovered: those that are known are kept", "it is about all of them"),
    ("a file is passed over", "it is no store"),
    ("a file is passed over: its name is no text", "it is no store"),
    ("a tenant is passed over", "nobody can tell which one"),
    ("the propagator of traces panicked", "it belongs to the program, and serves all stores"),
    ("delivered", DELIVERY),
    ("not delivered", DELIVERY),
    ("a destination asks for time: its messages wait, and spend no attempt", DELIVERY),
    ("a host is away: its messages wait, and spend no attempt; those for other hosts go on", DELIVERY),
    ("a host that was away is back: its messages are delivered again", DELIVERY),
    ("a destination is gone for good: its messages are dead from now on, replay them when it is back", DELIVERY),
    ("a destination that was gone is back: its messages are delivered again", DELIVERY),
];
const DELIVERY: &str = "a transport serves many stores; the span around it names the one";

pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let document = tree.text(DOCUMENT).unwrap_or_default();
    let rows = markdown::section_rows(document, "## Logs and spans");
    let told: Vec<&str> = rows.iter().filter_map(|(_, cells)| cells.get(1)).flat_map(|cell| spans(cell)).collect();
    let mut problems = Vec::new();
    for (path, text) in tree.ending(".rs").filter(|(path, _)| path.starts_with(SOURCES)) {
        for Said { line, said, has_store } in messages(text) {
            if !has_store && !WITHOUT_STORE.iter().any(|(known, _)| *known == said) {
                problems.push(Problem::at(path, line, format!("`{said}` has no field `store`")));
            }
            if !told.iter().any(|told| fits(&said, told)) {
                problems.push(Problem::at(path, line, format!("{DOCUMENT} has no row for `{said}`")));
            }
        }
    }
    problems
}

/// What stands between backticks.
fn spans(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

/// Whether a documented text is what is said; `{what}` stands for anything.
fn fits(said: &str, told: &str) -> bool {
    let fixed: Vec<&str> = said.split('{').map(|part| part.split_once('}').map_or(part, |(_, after)| after)).collect();
    let [first, .., last] = fixed[..] else { return said == told };
    told.len() >= first.len() + last.len() && told.starts_with(first) && told.ends_with(last)
}

/// One call that logs.
struct Said {
    /// Where it begins.
    line: usize,
    said: String,
    has_store: bool,
}

/// All log lines of a file.
fn messages(text: &str) -> Vec<Said> {
    let mut found = Vec::new();
    for (start, _) in text.match_indices("tracing::") {
        let rest = &text[start + "tracing::".len()..];
        let Some((level, arguments)) = rest.split_once("!(") else { continue };
        if LEVELS.contains(&level)
            && let Some((said, fields)) = last_literal(arguments)
        {
            let line = text[..start].matches('\n').count() + 1;
            found.push(Said { line, said, has_store: fields.split(',').any(is_store) });
        }
    }
    found
}

/// Whether a field is the store, by its own name or by that of its value.
fn is_store(field: &str) -> bool {
    field.split('=').next().is_some_and(|name| name.trim() == "store")
}

/// The last string among the arguments of a call, up to the parenthesis that ends it; and the arguments.
fn last_literal(arguments: &str) -> Option<(String, &str)> {
    let (mut depth, mut literal, mut last) = (1, None::<String>, None);
    let mut chars = arguments.chars();
    while let Some(c) = chars.next() {
        match (&mut literal, c) {
            (Some(text), '\\') => match chars.next() {
                // A line that is continued begins with its first word.
                Some('\n') => {
                    let ahead = chars.as_str();
                    chars = ahead[ahead.len() - ahead.trim_start().len()..].chars();
                }
                escaped => text.extend(escaped),
            },
            (Some(_), '"') => last = literal.take(),
            (Some(text), c) => text.push(c),
            (None, '"') => literal = Some(String::new()),
            (None, '(') => depth += 1,
            (None, ')') => depth -= 1,
            (None, _) => {}
        }
        if depth == 0 {
            let end = arguments.len() - chars.as_str().len();
            return Some((last?, &arguments[..end - 1]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::printed;
    use super::*;

    const TABLE: &str = "## Logs and spans\n\n| level | text | fields |\n|---|---|---|\n\
                         | WARN | `reap failed; the next one tries again`, `purge failed; …` | |\n\
                         | INFO | `a long line` (or not) | |\n\n## Traces\n\n| WARN | `elsewhere` | |\n";

    fn problems(source: &str) -> Vec<String> {
        printed(check(&Tree::of(&[(DOCUMENT, TABLE), ("crates/pillarbox/src/a.rs", source)])))
    }

    #[test]
    fn what_is_documented_is_no_problem() {
        let source = "tracing::info!(target: TARGET, store = b(\"x\"), \"a long \\\n    line\");\n\
                      tracing::warn!(%error, store, \"{what} failed; the next one tries again\");\n\
                      tracing::subscriber::set_default(a);\n";
        assert_eq!(problems(source), Vec::<String>::new());
    }

    #[test]
    fn what_is_not_documented_is_found() {
        let source = "\ntracing::debug!(store, \"new\");\nfn a() {\n    tracing::error!(\n        store,\n        \"{what} broke\"\n    );\n}\n\
                      tracing::warn!(store, \"elsewhere\");\n";
        assert_eq!(
            problems(source),
            [
                "crates/pillarbox/src/a.rs:2: docs/telemetry.md has no row for `new`",
                "crates/pillarbox/src/a.rs:4: docs/telemetry.md has no row for `{what} broke`",
                "crates/pillarbox/src/a.rs:9: docs/telemetry.md has no row for `elsewhere`",
            ]
        );
    }

    #[test]
    fn a_line_without_its_store_is_found() {
        let source = "tracing::info!(target: TARGET, key = store.id(), restore, \"a long line\");\n\
                      tracing::info!(store = id, \"a long line\");\n";
        assert_eq!(problems(source), ["crates/pillarbox/src/a.rs:1: `a long line` has no field `store`"]);
        let known = format!("tracing::debug!(transport, \"{}\");", WITHOUT_STORE[0].0);
        assert!(!problems(&known).iter().any(|problem| problem.contains("no field")));
    }
}
