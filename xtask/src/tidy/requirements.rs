//! Every requirement has one row in the table, and the proof that it names exists.

use std::collections::{BTreeMap, BTreeSet};

use super::tree::Tree;
use super::{Problem, ids, markdown, rust};

pub(crate) const TABLE: &str = "docs/requirements.md";

pub(crate) struct Row {
    pub(crate) line: usize,
    pub(crate) id: String,
    pub(crate) proof: Proof,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Proof {
    Open,
    ByType,
    Document(String),
    Tests(Vec<String>),
    /// None of the forms that a proof may have.
    Unreadable(String),
}

pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let Some(text) = tree.text(TABLE) else {
        return vec![Problem::of_file(TABLE, "is missing")];
    };
    let rows = rows(text);
    let known = known_tests(tree);
    let mut problems = row_problems(&rows);
    for row in &rows {
        let found = proof_problems(&row.proof, tree, &known);
        problems.extend(found.into_iter().map(|what| Problem::at(TABLE, row.line, what)));
    }
    problems
}

pub(crate) fn summary(tree: &Tree) -> String {
    let rows = rows(tree.text(TABLE).unwrap_or_default());
    let count = |is: fn(&Proof) -> bool| rows.iter().filter(|row| is(&row.proof)).count();
    format!(
        "requirements: {} proven, {} by type, {} documented, {} open",
        count(|proof| matches!(proof, Proof::Tests(_))),
        count(|proof| matches!(proof, Proof::ByType)),
        count(|proof| matches!(proof, Proof::Document(_))),
        count(|proof| matches!(proof, Proof::Open)),
    )
}

pub(crate) fn rows(text: &str) -> Vec<Row> {
    let meant = markdown::rows(text).filter(|(_, cells)| ids::looks_like_one(&cells[0]));
    meant
        .map(|(line, cells)| {
            let proof = parse_proof(cells.get(1).map_or("", String::as_str));
            Row { line, id: cells[0].clone(), proof }
        })
        .collect()
}

/// Does the test `outbox::claim::does_it` name this function in this file?
pub(crate) fn names(test: &str, path: &str, function: &rust::Function<'_>) -> bool {
    let mut segments = test.rsplit("::");
    if segments.next() != Some(function.name) {
        return false;
    }
    let stem = path.rsplit('/').next().and_then(|file| file.strip_suffix(".rs"));
    segments.next().is_none_or(|module| stem == Some(module) || function.modules.contains(&module))
}

fn parse_proof(cell: &str) -> Proof {
    let test = |name: &str| {
        let name = name.trim().strip_prefix('`')?.strip_suffix('`')?;
        let fits = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        (!name.is_empty() && name.chars().all(fits)).then(|| name.to_owned())
    };
    if cell == "open" {
        return Proof::Open;
    }
    if cell.strip_prefix("by type:").is_some_and(|words| !words.trim().is_empty()) {
        return Proof::ByType;
    }
    if let Some(path) = cell.strip_prefix("doc:") {
        return Proof::Document(markdown::bare(path.trim()).to_owned());
    }
    match cell.split(',').map(test).collect() {
        Some(names) => Proof::Tests(names),
        None => Proof::Unreadable(cell.to_owned()),
    }
}

fn row_problems(rows: &[Row]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut seen = BTreeMap::new();
    for row in rows {
        if !ids::exists(&row.id) {
            problems.push(Problem::at(TABLE, row.line, format!("unknown id {}", row.id)));
        } else if let Some(first) = seen.insert(row.id.as_str(), row.line) {
            let what = format!("second row for {}; the first is line {first}", row.id);
            problems.push(Problem::at(TABLE, row.line, what));
        }
    }
    for id in ids::all().filter(|id| !seen.contains_key(id.as_str())) {
        problems.push(Problem::of_file(TABLE, format!("no row for {id}")));
    }
    problems
}

fn proof_problems(proof: &Proof, tree: &Tree, known: &BTreeSet<(String, String)>) -> Vec<String> {
    match proof {
        Proof::Open | Proof::ByType => Vec::new(),
        Proof::Document(path) => {
            let file = path.split_once('#').map_or(path.as_str(), |(file, _)| file);
            let missing = file.is_empty() || !tree.has(file);
            missing.then(|| format!("no document `{path}`")).into_iter().collect()
        }
        Proof::Tests(tests) => {
            let missing = tests.iter().filter(|test| !is_known(test, known));
            missing.map(|test| format!("no test `{test}`")).collect()
        }
        Proof::Unreadable(cell) => vec![format!("cannot read the proof `{cell}`")],
    }
}

/// Pairs of module and function; the empty module stands for "anywhere".
fn known_tests(tree: &Tree) -> BTreeSet<(String, String)> {
    let mut known = BTreeSet::new();
    let ours = |path: &str| ["crates/", "examples/", "refusals/", "xtask/"].iter().any(|place| path.starts_with(place));
    for (path, text) in tree.ending(".rs").filter(|(path, _)| ours(path)) {
        let stem = path.rsplit('/').next().unwrap_or(path).trim_end_matches(".rs");
        for function in rust::functions(text) {
            for module in function.modules.iter().copied().chain([stem, ""]) {
                known.insert((module.to_owned(), function.name.to_owned()));
            }
        }
    }
    known
}

fn is_known(test: &str, known: &BTreeSet<(String, String)>) -> bool {
    let mut segments = test.rsplit("::");
    let name = segments.next().unwrap_or_default();
    let module = segments.next().unwrap_or_default();
    known.contains(&(module.to_owned(), name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::super::printed;
    use super::*;

    fn complete_table(replaced: &[(&str, &str)]) -> String {
        let proof = |id: &str| {
            let found = replaced.iter().find(|(replaced, _)| *replaced == id);
            found.map_or("open", |(_, proof)| *proof)
        };
        let rows = ids::all().map(|id| format!("| {id} | {} | words |\n", proof(&id)));
        format!("| ID | proof | words |\n|---|---|---|\n{}", rows.collect::<String>())
    }

    fn problems(table: &str) -> Vec<String> {
        let suite = "pub async fn once() {}\nmod deep {\n    fn inner() {}\n}\n";
        printed(check(&Tree::of(&[(TABLE, table), ("docs/a.md", ""), ("crates/x/src/suite/claim.rs", suite)])))
    }

    #[test]
    fn a_complete_table_has_no_problems() {
        let table = complete_table(&[
            ("OBX-001", "`outbox::claim::once`, `once`"),
            ("OBX-002", "`deep::inner`"),
            ("OBX-003", "doc: docs/a.md"),
            ("OBX-004", "by type: ids are types"),
        ]);
        assert_eq!(problems(&table), Vec::<String>::new());
        let tree = Tree::of(&[(TABLE, &table)]);
        assert_eq!(summary(&tree), "requirements: 2 proven, 1 by type, 1 documented, 283 open");
    }

    #[test]
    fn a_proof_that_does_not_exist_is_found() {
        let table = complete_table(&[
            ("OBX-001", "`settle::once`"),
            ("OBX-002", "`never`"),
            ("OBX-003", "doc: docs/b.md"),
            ("OBX-004", "surely"),
            ("OBX-005", "by type:"),
        ]);
        assert_eq!(
            problems(&table),
            [
                "docs/requirements.md:3: no test `settle::once`",
                "docs/requirements.md:4: no test `never`",
                "docs/requirements.md:5: no document `docs/b.md`",
                "docs/requirements.md:6: cannot read the proof `surely`",
                "docs/requirements.md:7: cannot read the proof `by type:`",
            ]
        );
    }

    #[test]
    fn missing_double_and_unknown_ids_are_found() {
        let table = complete_table(&[])
            .replace("| HOT-25 | open | words |\n", "| HOT-26 | open | words |\n")
            .replace("| WRK-02 |", "| WRK-01 |");
        let found = problems(&table).join("\n");
        assert!(found.contains("unknown id HOT-26"), "{found}");
        assert!(found.contains("no row for HOT-25"), "{found}");
        assert!(found.contains("second row for WRK-01"), "{found}");
        assert!(found.contains("no row for WRK-02"), "{found}");
    }

    #[test]
    fn a_missing_table_is_found() {
        assert_eq!(printed(check(&Tree::of(&[]))), ["docs/requirements.md:1: is missing"]);
    }
}
