//! Stores that lie in a folder.

use std::path::{Path, PathBuf};
use std::{fs, io};

use async_trait::async_trait;
use pillarbox_core::{Discovery, DiscoveryError, StorePlace};

use crate::telemetry::TARGET;

/// A folder of SQLite files: each is a store, named by its file without the ending.
///
/// A file that vanishes is drained and let go; it is never made anew. One that was replaced under its name, as by a restored
/// backup, counts as moved (on Unix): the old one is drained, the new one served. A folder that cannot be read changes nothing.
#[derive(Clone, Debug)]
pub struct SqliteFiles {
    folder: PathBuf,
    ending: String,
}

impl SqliteFiles {
    /// The files of a folder that end in `.db`.
    pub fn in_folder(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into(), ending: "db".into() }
    }

    /// The files with another ending, said without the dot.
    #[must_use]
    pub fn ending(mut self, ending: impl Into<String>) -> Self {
        self.ending = ending.into();
        self
    }
}

#[async_trait]
impl Discovery for SqliteFiles {
    async fn discover(&self) -> Result<Vec<StorePlace>, DiscoveryError> {
        let Self { folder, ending } = self.clone();
        let found = tokio::task::spawn_blocking(move || files(&folder, &ending)).await;
        let files = found.map_err(DiscoveryError::new)?;
        let files = files.map_err(|error| DiscoveryError::new(format!("the folder cannot be read: {error}")))?;
        Ok(files.iter().filter_map(|(path, identity)| Some(place_of(path)?.content(identity))).collect())
    }
}

/// The files, each with what tells it from another one under the same name.
fn files(folder: &Path, ending: &str) -> io::Result<Vec<(PathBuf, String)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_none_or(|found| found != ending) {
            continue;
        }
        // One that vanished meanwhile is none.
        if let Some(found) = fs::metadata(&path).ok().filter(fs::Metadata::is_file) {
            files.push((path, identity_of(&found)));
        }
    }
    Ok(files)
}

#[cfg(unix)]
fn identity_of(file: &fs::Metadata) -> String {
    use std::os::unix::fs::MetadataExt;
    format!("{}:{}", file.dev(), file.ino())
}

/// An open file cannot be replaced there.
#[cfg(not(unix))]
fn identity_of(_: &fs::Metadata) -> String {
    String::new()
}

/// None, and a line of log, for a name that is no key.
fn place_of(path: &Path) -> Option<StorePlace> {
    let (Some(stem), Some(text)) = (path.file_stem().and_then(|stem| stem.to_str()), path.to_str()) else {
        tracing::warn!(target: TARGET, ?path, "a file is passed over: its name is no text");
        return None;
    };
    match StorePlace::new(stem, address_of(text)) {
        Ok(place) => Some(place),
        Err(error) => {
            tracing::warn!(target: TARGET, %error, ?path, "a file is passed over");
            None
        }
    }
}

/// The file must be there: it is opened for reading and writing, and not created.
fn address_of(path: &str) -> String {
    let path = path.replace('%', "%25").replace('?', "%3F").replace('#', "%23");
    format!("sqlite:{path}?mode=rw")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn odd_names_lead_to_their_own_files() {
        assert_eq!(address_of("/data/a b.db"), "sqlite:/data/a b.db?mode=rw");
        assert_eq!(address_of("/data/50%?#.db"), "sqlite:/data/50%25%3F%23.db?mode=rw");
    }

    /// OBX-075, IBX-093: what lies beside the databases, as SQLite's own files do, is no store.
    #[tokio::test]
    async fn only_files_with_the_ending_are_stores() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["eu.db", "us.db", "eu.db-wal", "eu.db-shm", "notes.txt", "other.sqlite", " .db"] {
            fs::write(folder.path().join(name), "").unwrap();
        }
        fs::create_dir(folder.path().join("folder.db")).unwrap();
        let keys = async |files: SqliteFiles| {
            let mut keys: Vec<_> =
                files.discover().await.unwrap().iter().map(|place| place.key().to_string()).collect();
            keys.sort();
            keys
        };
        assert_eq!(keys(SqliteFiles::in_folder(folder.path())).await, ["eu", "us"]);
        assert_eq!(keys(SqliteFiles::in_folder(folder.path()).ending("sqlite")).await, ["other"]);
        let error = SqliteFiles::in_folder(folder.path().join("gone")).discover().await.unwrap_err();
        assert!(error.to_string().starts_with("the folder cannot be read"), "{error}");
    }
}
