//! Small promises about files: nothing unfinished, no machine's own paths, the documents exist.

use super::Problem;
use super::tree::{Tree, lines};

/// A text that must not occur, and the files in which it must not.
struct Banned {
    // Put together from pieces, or each check would find itself.
    needle: &'static str,
    because: &'static str,
    applies: fn(&str) -> bool,
}

const BANNED: [Banned; 8] = [
    Banned { needle: concat!("/wo", "rk/"), because: MACHINE, applies: |_| true },
    Banned { needle: concat!("/ro", "ot/"), because: MACHINE, applies: |_| true },
    Banned { needle: concat!("/fa", "rm/"), because: MACHINE, applies: |_| true },
    Banned { needle: concat!("to", "do!("), because: UNFINISHED, applies: is_source },
    Banned { needle: concat!("unimple", "mented!("), because: UNFINISHED, applies: is_source },
    Banned { needle: concat!("db", "g!("), because: UNFINISHED, applies: is_source },
    Banned { needle: concat!("#[ig", "nore"), because: "tests are never skipped", applies: is_source },
    Banned { needle: concat!("sle", "ep("), because: "tests wait on signals", applies: is_test },
];
const MACHINE: &str = "no machine's own paths";
const UNFINISHED: &str = "what is unfinished must not land";

const DOCUMENTS: [&str; 5] = ["CHANGELOG.md", "README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "docs/glossary.md"];
const README_COMMANDS: [&str; 2] = ["cargo run -- demo", "cargo xtask test"];

pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, text) in tree.files() {
        problems.extend(banned(path, text));
        if path.ends_with(".sql") && !text.starts_with("--") {
            problems.push(Problem::of_file(path, "must start with a comment that says why"));
        }
    }
    for document in DOCUMENTS.into_iter().filter(|document| !tree.has(document)) {
        problems.push(Problem::of_file(document, "is missing"));
    }
    if let Some(readme) = tree.text("README.md") {
        for command in README_COMMANDS.into_iter().filter(|command| !readme.contains(command)) {
            problems.push(Problem::of_file("README.md", format!("does not name `{command}`")));
        }
    }
    problems
}

fn banned(path: &str, text: &str) -> Vec<Problem> {
    let mut problems = Vec::new();
    for Banned { needle, because, .. } in BANNED.iter().filter(|banned| (banned.applies)(path)) {
        for (number, _) in lines(text).filter(|(_, line)| line.contains(needle)) {
            problems.push(Problem::at(path, number, format!("`{needle}`: {because}")));
        }
    }
    problems
}

fn is_source(path: &str) -> bool {
    let rooms = ["crates/", "examples/", "xtask/"];
    path.ends_with(".rs") && rooms.iter().any(|room| path.starts_with(room))
}

fn is_test(path: &str) -> bool {
    let mut parts = path.split('/');
    let in_tests = parts.next() == Some("crates") && parts.nth(1) == Some("tests");
    in_tests || path.starts_with("crates/pillarbox-testing/src/suite/")
}

#[cfg(test)]
mod tests {
    use super::super::printed;
    use super::*;

    fn problems(path: &str, text: &str) -> Vec<String> {
        printed(banned(path, text))
    }

    #[test]
    fn each_banned_text_is_found_where_it_is_banned() {
        for Banned { needle, .. } in &BANNED {
            let text = format!("fine\nlet x = {needle}\n");
            let found = problems("crates/pillarbox/tests/a/b.rs", &text);
            assert_eq!(found.len(), 1, "{needle}");
            assert!(found[0].starts_with("crates/pillarbox/tests/a/b.rs:2: "), "{found:?}");
        }
    }

    #[test]
    fn sources_may_wait_and_documents_may_speak() {
        let wait = concat!("sle", "ep(a).await; ");
        assert!(problems("crates/pillarbox/src/poller.rs", wait).is_empty());
        assert!(problems("docs/guide.md", concat!("write no to", "do!()")).is_empty());
        assert_eq!(problems("crates/pillarbox-testing/src/suite/claim.rs", wait).len(), 1);
    }

    #[test]
    fn missing_documents_commands_and_comments_are_found() {
        let tree =
            Tree::of(&[("README.md", "cargo xtask test"), ("a.sql", "select 1;"), ("b.sql", "-- Why.\nselect 1;")]);
        assert_eq!(
            printed(check(&tree)),
            [
                "a.sql:1: must start with a comment that says why",
                "CHANGELOG.md:1: is missing",
                "CONTRIBUTING.md:1: is missing",
                "ARCHITECTURE.md:1: is missing",
                "docs/glossary.md:1: is missing",
                "README.md:1: does not name `cargo run -- demo`",
            ]
        );
    }
}
