//! Every requirement and every hazard has one row in the table, and the proof that it names exists.

use std::collections::BTreeMap;

use super::tree::Tree;
use super::{Problem, ids, markdown, rust};

pub(crate) const TABLE: &str = "docs/requirements.md";

/// Where behaviours are: public functions, of which others make tests.
const SUITES: &str = "crates/pillarbox-testing/src/";

/// The parts of the paths of all tests, by their names.
type Known = BTreeMap<String, Vec<Vec<String>>>;

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
    let (hazards, requirements): (Vec<_>, Vec<_>) = rows.iter().partition(|row| ids::is_hazard(&row.id));
    let count = |rows: &[&Row], is: fn(&Proof) -> bool| rows.iter().filter(|row| is(&row.proof)).count();
    format!(
        "requirements: {} proven, {} by type, {} documented, {} open; hazards: {} with tests, {} open",
        count(&requirements, |proof| matches!(proof, Proof::Tests(_))),
        count(&requirements, |proof| matches!(proof, Proof::ByType)),
        count(&requirements, |proof| matches!(proof, Proof::Document(_))),
        count(&requirements, |proof| matches!(proof, Proof::Open)),
        count(&hazards, |proof| matches!(proof, Proof::Tests(_))),
        count(&hazards, |proof| matches!(proof, Proof::Open)),
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

/// Does the test `claim::does_it` name this function in this file?
pub(crate) fn names(test: &str, path: &str, function: &rust::Function<'_>) -> bool {
    let (name, modules) = split(test);
    name == function.name && is_at(&modules, &place_of(path, function))
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

fn proof_problems(proof: &Proof, tree: &Tree, known: &Known) -> Vec<String> {
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

/// Functions that the test runner runs, and behaviours of the suites. Helpers prove nothing.
fn known_tests(tree: &Tree) -> Known {
    let mut known = Known::new();
    let ours = |path: &str| ["crates/", "examples/", "refusals/", "xtask/"].iter().any(|place| path.starts_with(place));
    for (path, text) in tree.ending(".rs").filter(|(path, _)| ours(path)) {
        let is_suite = path.starts_with(SUITES);
        for function in rust::functions(text) {
            if function.is_test || is_suite && function.is_public_async {
                known.entry(function.name.to_owned()).or_default().push(place_of(path, &function));
            }
        }
    }
    known
}

fn is_known(test: &str, known: &Known) -> bool {
    let (name, modules) = split(test);
    known.get(name).is_some_and(|places| places.iter().any(|place| is_at(&modules, place)))
}

/// The name of a test, and the crate and modules before it.
fn split(test: &str) -> (&str, Vec<&str>) {
    let mut modules: Vec<&str> = test.split("::").collect();
    (modules.pop().unwrap_or_default(), modules)
}

/// Crate, folders, file and modules of a function. Crates are called by their short names: `pillarbox-core` is `core`.
fn place_of(path: &str, function: &rust::Function<'_>) -> Vec<String> {
    let file = path.trim_end_matches(".rs").split('/');
    let short = |part: &str| part.strip_prefix("pillarbox-").unwrap_or(part).replace('-', "_");
    file.map(short).chain(function.modules.iter().map(|module| (*module).to_owned())).collect()
}

/// Whether the modules that a row names occur in the place, in their order; a row may leave some out.
fn is_at(modules: &[&str], place: &[String]) -> bool {
    let mut rest = place.iter();
    modules.iter().all(|module| rest.any(|part| part == module))
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
        let suite = "pub async fn once() {}\n";
        let hazards = "#[test]\nfn breaks() {}\nfn helper() {}\nmod deep {\n    #[test]\n    fn inner() {}\n}\n";
        printed(check(&Tree::of(&[
            (TABLE, table),
            ("docs/a.md", ""),
            ("crates/pillarbox-testing/src/suite/claim.rs", suite),
            ("crates/pillarbox-sqlite/tests/conformance/hazards.rs", hazards),
        ])))
    }

    #[test]
    fn a_complete_table_has_no_problems() {
        let table = complete_table(&[
            ("OBX-001", "`suite::claim::once`, `once`"),
            ("OBX-002", "`sqlite::hazards::deep::inner`, `deep::inner`"),
            ("OBX-003", "doc: docs/a.md"),
            ("OBX-004", "by type: ids are types"),
            ("H7", "`sqlite::hazards::breaks`"),
        ]);
        assert_eq!(problems(&table), Vec::<String>::new());
        let tree = Tree::of(&[(TABLE, &table)]);
        assert_eq!(
            summary(&tree),
            "requirements: 2 proven, 1 by type, 1 documented, 283 open; hazards: 1 with tests, 64 open"
        );
    }

    #[test]
    fn a_proof_that_does_not_exist_is_found() {
        let table = complete_table(&[
            ("OBX-001", "`settle::once`"),
            ("OBX-002", "`never`"),
            ("OBX-003", "doc: docs/b.md"),
            ("OBX-004", "surely"),
            ("OBX-005", "by type:"),
            ("H1", "`postgres::hazards::breaks`, `sqlite::hazards::helper`"),
        ]);
        assert_eq!(
            problems(&table),
            [
                "docs/requirements.md:3: no test `settle::once`",
                "docs/requirements.md:4: no test `never`",
                "docs/requirements.md:5: no document `docs/b.md`",
                "docs/requirements.md:6: cannot read the proof `surely`",
                "docs/requirements.md:7: cannot read the proof `by type:`",
                "docs/requirements.md:290: no test `postgres::hazards::breaks`",
                "docs/requirements.md:290: no test `sqlite::hazards::helper`",
            ]
        );
    }

    #[test]
    fn missing_double_and_unknown_ids_are_found() {
        let table = complete_table(&[])
            .replace("| HOT-25 | open | words |\n", "| HOT-26 | open | words |\n")
            .replace("| WRK-02 |", "| WRK-01 |")
            .replace("| H65 |", "| H66 |");
        let found = problems(&table).join("\n");
        assert!(found.contains("unknown id HOT-26"), "{found}");
        assert!(found.contains("no row for HOT-25"), "{found}");
        assert!(found.contains("second row for WRK-01"), "{found}");
        assert!(found.contains("no row for WRK-02"), "{found}");
        assert!(found.contains("unknown id H66") && found.contains("no row for H65"), "{found}");
    }

    #[test]
    fn a_missing_table_is_found() {
        assert_eq!(printed(check(&Tree::of(&[]))), ["docs/requirements.md:1: is missing"]);
    }
}
