//! Crates depend on each other only in the direction that ARCHITECTURE.md draws.

use std::collections::BTreeSet;

use serde_json::Value;

use super::tree::Tree;
use super::{Problem, markdown};

const PAGE: &str = "ARCHITECTURE.md";
const CORE: &str = "pillarbox-core";
/// Runtimes and database drivers, with all crates whose names continue these with a hyphen.
const KEPT_FROM_CORE: [&str; 11] = [
    "tokio",
    "sqlx",
    "async-std",
    "rusqlite",
    "libsqlite3",
    "postgres",
    "mysql",
    "mysql_async",
    "tiberius",
    "diesel",
    "sea-orm",
];

/// `cargo metadata` knows renamed, inherited and platform dependencies; Cargo.toml alone does not.
pub(crate) fn check(tree: &Tree, metadata: &Value) -> Vec<Problem> {
    let page = tree.text(PAGE).unwrap_or_default();
    let drawn = markdown::fenced(page, "direction");
    let mut problems = Vec::new();
    let mut allowed = BTreeSet::new();
    for (line, text) in drawn {
        match text.split_once("->") {
            Some((from, to)) => {
                let from = from.trim();
                allowed.extend(to.split(',').map(|to| (from, to.trim())));
            }
            None => problems.push(Problem::at(PAGE, line, format!("`{text}` is no `a -> b`"))),
        }
    }
    for Edge { from, to } in edges(metadata) {
        let manifest = format!("crates/{from}/Cargo.toml");
        if to.starts_with("pillarbox") && !allowed.contains(&(from, to)) {
            let what = format!("`{from} -> {to}` is not drawn in {PAGE}, block `direction`");
            problems.push(Problem::at(&manifest, line_of(tree, &manifest, to), what));
        }
        if from == CORE && is_kept_from_core(to) {
            let what = format!("{CORE} decides and must not depend on {to}");
            problems.push(Problem::at(&manifest, line_of(tree, &manifest, to), what));
        }
    }
    problems
}

struct Edge<'a> {
    from: &'a str,
    to: &'a str,
}

/// Dev-dependencies are exempt: tests may know everything.
fn edges(metadata: &Value) -> Vec<Edge<'_>> {
    let mut edges = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            if dependency["kind"] == "dev" {
                continue;
            }
            if let (Some(from), Some(to)) = (package["name"].as_str(), dependency["name"].as_str()) {
                edges.push(Edge { from, to });
            }
        }
    }
    edges
}

fn is_kept_from_core(name: &str) -> bool {
    KEPT_FROM_CORE
        .iter()
        .any(|kept| name.strip_prefix(kept).is_some_and(|rest| rest.is_empty() || rest.starts_with('-')))
}

fn line_of(tree: &Tree, manifest: &str, dependency: &str) -> usize {
    let text = tree.text(manifest).unwrap_or_default();
    let mut found = super::tree::lines(text).filter(|(_, line)| line.starts_with(dependency));
    found.next().map_or(1, |(number, _)| number)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::printed;
    use super::*;

    fn metadata() -> Value {
        json!({ "packages": [
            { "name": "pillarbox-core", "dependencies": [
                { "name": "tokio-util", "kind": null },
                { "name": "tokio", "kind": "dev" },
                { "name": "pillarbox-testing", "kind": "dev" },
                { "name": "postgres-types", "kind": "build" },
            ]},
            { "name": "pillarbox-sqlite", "dependencies": [
                { "name": "pillarbox-core", "kind": null },
                { "name": "sqlx", "kind": null },
            ]},
        ]})
    }

    #[test]
    fn undrawn_edges_and_drivers_in_core_are_found() {
        let manifest = "[dependencies]\npillarbox-core.workspace = true\n";
        let tree =
            Tree::of(&[(PAGE, "```direction\nnonsense\n```\n"), ("crates/pillarbox-sqlite/Cargo.toml", manifest)]);
        assert_eq!(
            printed(check(&tree, &metadata())),
            [
                "ARCHITECTURE.md:2: `nonsense` is no `a -> b`",
                "crates/pillarbox-core/Cargo.toml:1: pillarbox-core decides and must not depend on tokio-util",
                "crates/pillarbox-core/Cargo.toml:1: pillarbox-core decides and must not depend on postgres-types",
                "crates/pillarbox-sqlite/Cargo.toml:2: `pillarbox-sqlite -> pillarbox-core` is not drawn in ARCHITECTURE.md, block `direction`",
            ]
        );
    }

    #[test]
    fn a_drawn_edge_is_fine() {
        let tree = Tree::of(&[(PAGE, "```direction\npillarbox-sqlite -> pillarbox-core\n```\n")]);
        let found = printed(check(&tree, &metadata())).join("\n");
        assert!(!found.contains("not drawn"), "{found}");
    }
}
