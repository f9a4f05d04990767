//! The repository's files, read once.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use crate::failure::{Context, Failure, Outcome};
use crate::process;

/// Path from the root, with `/`, to text. A file that is not text is there, but empty.
pub(crate) struct Tree {
    files: BTreeMap<String, String>,
}

impl Tree {
    /// What git tracks or would track, so that a new file is checked before it is committed.
    pub(crate) fn read(root: &Path) -> Outcome<Self> {
        let mut git = Command::new("git");
        // On ci machines the checkout may belong to another user.
        git.current_dir(root).args(["-c", "safe.directory=*", "ls-files", "-z"]);
        git.args(["--cached", "--others", "--exclude-standard"]);
        let output = process::output(&mut git)?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(Failure::new(format!("git ls-files: {said}")));
        }
        let listed = String::from_utf8(output.stdout).context("git ls-files")?;
        let mut files = BTreeMap::new();
        for path in listed.split('\0').filter(|path| !path.is_empty()) {
            // Deleted, but not yet in the index.
            let Ok(bytes) = fs::read(root.join(path)) else {
                continue;
            };
            files.insert(path.to_owned(), String::from_utf8(bytes).unwrap_or_default());
        }
        Ok(Self { files })
    }

    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Self {
        let owned = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
        Self { files: files.iter().map(owned).collect() }
    }

    pub(crate) fn text(&self, path: &str) -> Option<&str> {
        self.files.get(path).map(String::as_str)
    }

    /// A file, or a directory with files in it.
    pub(crate) fn has(&self, path: &str) -> bool {
        let directory = format!("{}/", path.trim_end_matches('/'));
        self.files.contains_key(path) || path.is_empty() || self.files.keys().any(|file| file.starts_with(&directory))
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = (&str, &str)> {
        self.files.iter().map(|(path, text)| (path.as_str(), text.as_str()))
    }

    pub(crate) fn ending(&self, end: &str) -> impl Iterator<Item = (&str, &str)> {
        self.files().filter(move |(path, _)| path.ends_with(end))
    }
}

/// Lines with their numbers as editors count them.
pub(crate) fn lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line))
}
