//! Who knows one backend knows all: they have the same files, or ARCHITECTURE.md says why not.

use std::collections::{BTreeMap, BTreeSet};

use super::tree::Tree;
use super::{Problem, markdown};

const BACKENDS: [&str; 3] = ["sqlite", "postgres", "mysql"];
const ROOMS: [&str; 4] = ["src/", "sql/", "migrations/", "tests/"];
const PAGE: &str = "ARCHITECTURE.md";
const SECTION: &str = "## Backend differences";

type Owners = BTreeSet<String>;

struct Excuse {
    line: usize,
    pattern: String,
    owners: Owners,
    has_reason: bool,
}

pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let excuses = excuses(tree.text(PAGE).unwrap_or_default());
    let differences = differences(tree);
    let covers =
        |excuse: &Excuse, path: &str, owners: &Owners| excuse.owners == *owners && matches(&excuse.pattern, path);
    let mut problems = Vec::new();
    for (path, owners) in &differences {
        if !excuses.iter().any(|excuse| covers(excuse, path, owners)) {
            problems.push(unexplained(path, owners));
        }
    }
    for excuse in &excuses {
        let Excuse { line, pattern, .. } = excuse;
        if !excuse.has_reason {
            problems.push(Problem::at(PAGE, *line, format!("`{pattern}` differs without a reason")));
        }
        if !differences.iter().any(|(path, owners)| covers(excuse, path, owners)) {
            let owners = listed(&excuse.owners);
            let what = format!("`{pattern}` in only {owners} is no longer a difference");
            problems.push(Problem::at(PAGE, *line, what));
        }
    }
    problems
}

fn unexplained(path: &str, owners: &Owners) -> Problem {
    let owner = owners.first().map_or("", String::as_str);
    let what = format!("only in {}; give the others one or a row in {PAGE}, `{SECTION}`", listed(owners));
    Problem::of_file(&format!("crates/pillarbox-{owner}/{path}"), what)
}

/// Paths that some backends have and others lack, with those that have them.
fn differences(tree: &Tree) -> BTreeMap<String, Owners> {
    let mut owners: BTreeMap<String, Owners> = BTreeMap::new();
    for backend in BACKENDS {
        let home = format!("crates/pillarbox-{backend}/");
        let paths = tree.files().filter_map(|(path, _)| path.strip_prefix(home.as_str()));
        for path in paths.filter(|path| ROOMS.iter().any(|room| path.starts_with(room))) {
            owners.entry(path.to_owned()).or_default().insert(backend.to_owned());
        }
    }
    owners.retain(|_, owners| owners.len() < BACKENDS.len());
    owners
}

fn excuses(page: &str) -> Vec<Excuse> {
    let rows = markdown::section_rows(page, SECTION).into_iter();
    rows.map(|(line, cells)| {
        let cell = |index: usize| cells.get(index).map_or("", String::as_str);
        let owner = |name: &str| {
            let name = markdown::bare(name.trim());
            name.strip_prefix("pillarbox-").unwrap_or(name).to_owned()
        };
        Excuse {
            line,
            pattern: markdown::bare(cell(0)).to_owned(),
            owners: cell(1).split(',').map(owner).collect(),
            has_reason: !cell(2).is_empty(),
        }
    })
    .collect()
}

/// `*` stands for any run of characters.
fn matches(pattern: &str, path: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == path,
        Some((start, rest)) => path.strip_prefix(start).is_some_and(|tail| {
            tail.char_indices().map(|(at, _)| at).chain([tail.len()]).any(|at| matches(rest, &tail[at..]))
        }),
    }
}

fn listed(owners: &Owners) -> String {
    owners.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::super::printed;
    use super::*;

    fn problems(extra: &[(&str, &str)]) -> Vec<String> {
        let mut files = vec![
            ("crates/pillarbox-sqlite/src/lib.rs", ""),
            ("crates/pillarbox-postgres/src/lib.rs", ""),
            ("crates/pillarbox-mysql/src/lib.rs", ""),
            ("crates/pillarbox-mysql/Cargo.toml", ""),
        ];
        files.extend(extra);
        printed(check(&Tree::of(&files)))
    }

    #[test]
    fn equal_lists_need_no_section() {
        assert_eq!(problems(&[]), Vec::<String>::new());
    }

    #[test]
    fn a_file_that_others_lack_is_found() {
        let found = problems(&[("crates/pillarbox-postgres/src/notify.rs", "")]);
        assert_eq!(found.len(), 1);
        assert!(found[0].starts_with("crates/pillarbox-postgres/src/notify.rs:1: only in postgres;"));
    }

    #[test]
    fn a_row_explains_exactly_the_backends_it_names() {
        let page = "## Backend differences\n| path | backends | reason |\n|---|---|---|\n\
                    | `sql/lock_*.sql` | postgres, mysql | sqlite has one writer |\n";
        let both = [
            (PAGE, page),
            ("crates/pillarbox-postgres/sql/lock_take.sql", ""),
            ("crates/pillarbox-mysql/sql/lock_take.sql", ""),
        ];
        assert_eq!(problems(&both), Vec::<String>::new());
        assert_eq!(problems(&both[..2]).len(), 2, "wrong owners: unexplained, and a stale row");
    }

    #[test]
    fn a_row_that_describes_nothing_is_found() {
        let page = "## Backend differences\n|a|b|c|\n|-|-|-|\n| src/lib.rs | mysql | |\n";
        assert_eq!(
            problems(&[(PAGE, page)]),
            [
                "ARCHITECTURE.md:4: `src/lib.rs` differs without a reason",
                "ARCHITECTURE.md:4: `src/lib.rs` in only mysql is no longer a difference",
            ]
        );
    }

    #[test]
    fn stars_match_any_run() {
        assert!(matches("sql/*_x.sql", "sql/a_b_x.sql"));
        assert!(matches("tests/*", "tests/a/b.rs"));
        assert!(!matches("sql/*_x.sql", "sql/a_y.sql"));
    }
}
