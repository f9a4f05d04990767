//! Links between our documents lead somewhere.

use super::tree::{Tree, lines};
use super::{Problem, markdown};

pub(crate) fn check(tree: &Tree) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, text) in tree.ending(".md").filter(|(path, _)| is_ours(path)) {
        for (number, line) in lines(&markdown::prose(text)) {
            for target in local_targets(line) {
                if !resolve(path, target).is_some_and(|file| tree.has(&file)) {
                    let what = format!("the link to `{target}` leads nowhere");
                    problems.push(Problem::at(path, number, what));
                }
            }
        }
    }
    problems
}

fn is_ours(path: &str) -> bool {
    !path.contains('/') || path.starts_with("docs/")
}

/// Targets of `[words](target)` and `[word]: target` within the repository, without `#anchor`.
fn local_targets(line: &str) -> Vec<&str> {
    let inline = line.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let reference = line.trim_start().strip_prefix('[').and_then(|rest| rest.split_once("]: "));
    inline
        .map(|(target, _)| target)
        .chain(reference.map(|(_, target)| target))
        .filter_map(|target| target.split_whitespace().next())
        .map(|target| target.split('#').next().unwrap_or(target))
        .filter(|target| !target.is_empty() && !target.contains(':'))
        .collect()
}

/// The path from the root, or nothing when it leaves the repository.
fn resolve(from: &str, target: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    if target.starts_with('/') {
        parts.clear();
    }
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::super::printed;
    use super::*;

    #[test]
    fn dead_links_are_found_and_living_ones_are_not() {
        let page = "[a](../README.md#top) [b](decisions/) [c](gone.md) [d](https://e.org/x)\n\
                    [e](#here) `[f](code.md)` [g](../../out.md)\n[h]: lost.md\n";
        let tree = Tree::of(&[
            ("README.md", "[docs](docs/guide.md)"),
            ("docs/guide.md", page),
            ("docs/decisions/0001-a.md", ""),
        ]);
        assert_eq!(
            printed(check(&tree)),
            [
                "docs/guide.md:1: the link to `gone.md` leads nowhere",
                "docs/guide.md:2: the link to `../../out.md` leads nowhere",
                "docs/guide.md:3: the link to `lost.md` leads nowhere",
            ]
        );
    }
}
