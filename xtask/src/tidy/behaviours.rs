//! The conformance suite and the table of requirements tell the same story.

use super::requirements::{self, Proof, Row, TABLE};
use super::rust::{self, Function};
use super::tree::Tree;
use super::{Problem, ids};

const SUITE: &str = "crates/pillarbox-testing/src/suite/";

pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let rows = requirements::rows(tree.text(TABLE).unwrap_or_default());
    let mut problems = Vec::new();
    for (path, text) in tree.ending(".rs").filter(|(path, _)| path.starts_with(SUITE)) {
        for behaviour in rust::functions(text).iter().filter(|found| found.is_public_async) {
            let found = behaviour_problems(path, behaviour, &rows);
            problems.extend(found.into_iter().map(|what| Problem::at(path, behaviour.line, what)));
        }
    }
    problems
}

fn behaviour_problems(path: &str, behaviour: &Function<'_>, rows: &[Row]) -> Vec<String> {
    let name = behaviour.name;
    if behaviour.docs.trim().is_empty() {
        return vec![format!("`{name}` has no doc comment with the requirements that it proves")];
    }
    let said = ids::mentions(&behaviour.docs);
    let mut problems = Vec::new();
    for word in &said.malformed {
        problems.push(format!("`{name}` mentions {word}, which does not exist"));
    }
    for id in said.ids.iter().filter(|id| rows.iter().all(|row| row.id != **id)) {
        problems.push(format!("`{name}` mentions {id}, which has no row in {TABLE}"));
    }
    for row in rows.iter().filter(|row| row_names(row, path, behaviour)) {
        if !said.ids.contains(&row.id) {
            let (id, line) = (&row.id, row.line);
            problems.push(format!("`{name}` does not mention {id}, which {TABLE}:{line} says it proves"));
        }
    }
    problems
}

fn row_names(row: &Row, path: &str, behaviour: &Function<'_>) -> bool {
    match &row.proof {
        Proof::Tests(tests) => tests.iter().any(|test| requirements::names(test, path, behaviour)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::printed;
    use super::*;

    const CLAIM: &str = "crates/pillarbox-testing/src/suite/claim.rs";

    fn problems(suite: &str, table: &str) -> Vec<String> {
        printed(check(&Tree::of(&[(TABLE, table), (CLAIM, suite)])))
    }

    #[test]
    fn agreement_is_no_problem() {
        let suite = "/// Once. OBX-001, H7.\npub async fn once<H: Harness>(h: H) {}\nasync fn helper() {}\n";
        let table = "| OBX-001 | `claim::once` | w |\n| H7 | `claim::once` | w |\n";
        assert_eq!(problems(suite, table), Vec::<String>::new());
    }

    #[test]
    fn each_kind_of_disagreement_is_found() {
        let suite = "pub async fn bare() {}\n\
                     /// OBX-002 OBX-9 H66\npub async fn once() {}\n";
        assert_eq!(
            problems(suite, "| OBX-001 | `claim::once` | w |\n| H7 | `claim::once` | w |\n"),
            [
                format!("{CLAIM}:1: `bare` has no doc comment with the requirements that it proves"),
                format!("{CLAIM}:3: `once` mentions OBX-9, which does not exist"),
                format!("{CLAIM}:3: `once` mentions H66, which does not exist"),
                format!("{CLAIM}:3: `once` mentions OBX-002, which has no row in {TABLE}"),
                format!("{CLAIM}:3: `once` does not mention OBX-001, which {TABLE}:1 says it proves"),
                format!("{CLAIM}:3: `once` does not mention H7, which {TABLE}:2 says it proves"),
            ]
        );
    }

    #[test]
    fn a_row_for_another_module_is_not_about_this_behaviour() {
        let suite = "/// Once.\npub async fn once() {}\n";
        assert_eq!(problems(suite, "| OBX-001 | `settle::once` | w |\n"), Vec::<String>::new());
    }
}
