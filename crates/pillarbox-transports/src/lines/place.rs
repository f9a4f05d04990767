//! Where lines are written, and the writing of them.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Component, Path, PathBuf};

use pillarbox_core::Undelivered;

/// What operating systems allow for a name; the path as a whole gets a few of them.
const NAME_BYTES_MAX: usize = 255;
const PATH_BYTES_MAX: usize = 1024;

/// A file or standard output.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Place {
    Stdout,
    File { directory: PathBuf, name: PathBuf },
}

/// Why a destination is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Misplaced {
    #[error("the destination is empty: it must name a file")]
    Empty,
    #[error("the destination is too long: a path may have 1024 bytes, and a name in it 255")]
    TooLong,
    #[error("the destination leads out of the directory: it must be relative, without `..`")]
    Outside,
    #[error("the destination has a character that no file's name should have")]
    Odd,
}

impl Place {
    /// Where a destination lies; decided without looking.
    pub(super) fn find(directory: Option<&Path>, destination: &str) -> Result<Self, Misplaced> {
        let Some(directory) = directory.filter(|_| destination != "-") else { return Ok(Self::Stdout) };
        if destination.is_empty() {
            return Err(Misplaced::Empty);
        }
        if destination.len() > PATH_BYTES_MAX || destination.split('/').any(|name| name.len() > NAME_BYTES_MAX) {
            return Err(Misplaced::TooLong);
        }
        if destination.contains(|character: char| character.is_control() || character == '\\') {
            return Err(Misplaced::Odd);
        }
        // An empty name is a slash too many, at the start, at the end or in between.
        let is_plain = |name: &str| !name.is_empty() && name != "." && name != "..";
        let is_normal = |component| matches!(component, Component::Normal(_));
        if !destination.split('/').all(is_plain) || !Path::new(destination).components().all(is_normal) {
            return Err(Misplaced::Outside);
        }
        Ok(Self::File { directory: directory.to_owned(), name: destination.into() })
    }

    /// Appends whole lines, with one write where the system takes them at once.
    pub(super) fn write(&self, lines: &[u8], is_synced: bool) -> Result<(), Undelivered> {
        let written = match self {
            Self::Stdout => write_stdout(lines),
            Self::File { directory, name } => append(directory, name, lines, is_synced),
        };
        written.map_err(|error| self.undelivered(&error))
    }

    fn undelivered(&self, error: &io::Error) -> Undelivered {
        let name = match self {
            Self::Stdout => "standard output".to_owned(),
            Self::File { name, .. } => format!("file {}", name.display()),
        };
        let reason = format!("{name}: {error}");
        match error.kind() {
            io::ErrorKind::IsADirectory | io::ErrorKind::NotADirectory | io::ErrorKind::InvalidFilename => {
                Undelivered::rejected(reason)
            }
            // A full disk, a lost right, a directory that is not mounted: they say nothing about the message.
            _ => Undelivered::unavailable(reason),
        }
    }
}

/// Whether the directory is there.
pub(super) fn probe(directory: &Path) -> Result<(), String> {
    match directory.metadata() {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(format!("{} is not a directory", directory.display())),
        Err(error) => Err(format!("{}: {error}", directory.display())),
    }
}

fn write_stdout(lines: &[u8]) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(lines)?;
    stdout.flush()
}

fn append(directory: &Path, name: &Path, lines: &[u8], is_synced: bool) -> io::Result<()> {
    let path = directory.join(name);
    // Only what is below the directory is made: one that is not mounted must not be filled.
    let below = name.parent().filter(|below| !below.as_os_str().is_empty());
    if below.is_some() && directory.metadata()?.is_dir() {
        std::fs::create_dir_all(path.parent().unwrap_or(directory))?;
    }
    let mut file = OpenOptions::new().read(true).append(true).create(true).open(&path)?;
    if is_cut_off(&mut file)? {
        file.write_all(&[b"\n", lines].concat())?;
    } else {
        file.write_all(lines)?;
    }
    if is_synced {
        file.sync_all()?;
        sync_directories(directory, below.unwrap_or(Path::new("")))?;
    }
    Ok(())
}

/// Whether the last line has no end, because somebody who wrote it was killed or the disk was full.
fn is_cut_off(file: &mut File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(false);
    }
    // A pipe has no end to look at.
    if file.seek(SeekFrom::End(-1)).is_err() {
        return Ok(false);
    }
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

/// A new file outlives a power cut only if its directory does.
#[cfg(unix)]
fn sync_directories(directory: &Path, below: &Path) -> io::Result<()> {
    below.ancestors().try_for_each(|below| File::open(directory.join(below))?.sync_all())
}

#[cfg(not(unix))]
fn sync_directories(_: &Path, _: &Path) -> io::Result<()> {
    Ok(())
}
