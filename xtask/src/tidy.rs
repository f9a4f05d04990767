//! Checks of what the compiler cannot see. Each is a pure function from files to problems.

mod backends;
mod behaviours;
mod direction;
mod hygiene;
mod ids;
mod links;
mod markdown;
mod requirements;
mod rust;
mod telemetry;
mod tree;

use std::fmt;

use crate::failure::{Context, Failure, Outcome};
use crate::{process, workspace};

use tree::Tree;

pub(crate) fn run() -> Outcome<()> {
    let tree = Tree::read(&workspace::root())?;
    let metadata = cargo_metadata()?;
    println!("{}", requirements::summary(&tree));
    let mut problems: Vec<Problem> = [
        requirements::check(&tree),
        behaviours::check(&tree),
        backends::check(&tree),
        direction::check(&tree, &metadata),
        hygiene::check(&tree),
        links::check(&tree),
        telemetry::check(&tree),
    ]
    .concat();
    problems.sort();
    for problem in &problems {
        println!("{problem}");
    }
    match problems.len() {
        0 => {
            println!("tidy: no problems");
            Ok(())
        }
        count => Err(Failure::new(format!("tidy: {count} problems"))),
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Problem {
    path: String,
    line: usize,
    what: String,
}

impl Problem {
    fn at(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into() }
    }

    /// Something that should be in a file and is not has no line of its own.
    fn of_file(path: &str, what: impl Into<String>) -> Self {
        Self::at(path, 1, what)
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

fn cargo_metadata() -> Outcome<serde_json::Value> {
    let mut cargo = workspace::cargo();
    cargo.args(["metadata", "--no-deps", "--format-version", "1"]);
    let output = process::output(&mut cargo)?;
    if !output.status.success() {
        return Err(Failure::new(String::from_utf8_lossy(&output.stderr).into_owned()));
    }
    serde_json::from_slice(&output.stdout).context("cargo metadata")
}

/// For tests of the checks: what was found, as it would be printed.
#[cfg(test)]
fn printed(problems: Vec<Problem>) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}
