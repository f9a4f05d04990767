//! Contestants are installed in a scratch directory from their registries; nothing is written into the project.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Where the sources of the contestants are.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers");

/// Folders that are started a second time with an argument: as `<folder>-<argument>`.
const VARIANTS: [(&str, &str); 1] = [("pillarbox", "defaults")];

/// Who should take part and has no folder, and why.
const ABSENT: [(&str, &str); 1] =
    [("river", "Go modules cannot be fetched where this was measured; there is no contestant in Go")];

/// Ours, which stands first, and the least that anybody can do.
const FIRST: [&str; 3] = ["pillarbox", "pillarbox-defaults", "bare"];

/// A program that takes part, or the reason why it cannot.
#[derive(Debug)]
pub(crate) struct Installed {
    pub(crate) name: String,
    pub(crate) start: Result<Start, String>,
}

/// How a program is started.
#[derive(Clone, Debug)]
pub(crate) struct Start {
    program: PathBuf,
    arguments: Vec<String>,
    folder: PathBuf,
}

impl Start {
    pub(crate) fn command(&self) -> tokio::process::Command {
        let mut command = tokio::process::Command::new(&self.program);
        command.args(&self.arguments).current_dir(&self.folder);
        command
    }
}

/// Installs all contestants whose names are wanted. No names: everybody.
pub(crate) fn install(wanted: &[String]) -> Vec<Installed> {
    let is_wanted = |name: &str| wanted.is_empty() || wanted.iter().any(|wanted| wanted == name);
    let home = scratch();
    copy(Path::new(SOURCES), &home.join("peers"));
    let mut folders: Vec<String> = fs::read_dir(SOURCES)
        .unwrap()
        .filter_map(|entry| Some(entry.ok()?.file_name().to_str()?.to_owned()))
        .filter(|name| name != "contest" && manifest(&home.join("peers").join(name)).is_some())
        .collect();
    folders.sort();
    let mut all = Vec::new();
    for folder in folders {
        let variants = VARIANTS.iter().filter(|(of, _)| *of == folder).map(|(_, variant)| *variant);
        let names: Vec<_> = std::iter::once((folder.clone(), None))
            .chain(variants.map(|variant| (format!("{folder}-{variant}"), Some(variant))))
            .filter(|(name, _)| is_wanted(name))
            .collect();
        if names.is_empty() {
            continue;
        }
        eprintln!("installing {folder}");
        let start = installed(&home, &home.join("peers").join(&folder));
        for (name, argument) in names {
            let mut start = start.clone();
            if let (Ok(start), Some(argument)) = (&mut start, argument) {
                start.arguments.push(argument.to_owned());
            }
            all.push(Installed { name, start });
        }
    }
    for (name, reason) in ABSENT.into_iter().filter(|(name, _)| is_wanted(name)) {
        if !all.iter().any(|there| there.name == name) {
            all.push(Installed { name: name.into(), start: Err(reason.into()) });
        }
    }
    all.sort_by_key(|one| FIRST.iter().position(|first| *first == one.name).unwrap_or(FIRST.len()));
    all
}

fn scratch() -> PathBuf {
    std::env::var_os("PILLARBOX_PEERS_DIR").map_or_else(|| std::env::temp_dir().join("pillarbox-peers"), PathBuf::from)
}

fn manifest(folder: &Path) -> Option<&'static str> {
    ["Cargo.toml", "package.json", "requirements.txt"].into_iter().find(|name| folder.join(name).exists())
}

fn installed(home: &Path, folder: &Path) -> Result<Start, String> {
    match manifest(folder) {
        Some("Cargo.toml") => rust(home, folder),
        Some("package.json") => node(folder),
        _ => python(folder),
    }
}

fn rust(home: &Path, folder: &Path) -> Result<Start, String> {
    let manifest = folder.join("Cargo.toml");
    let text = fs::read_to_string(&manifest).map_err(|error| error.to_string())?;
    let package = text.lines().find_map(|line| line.strip_prefix("name = \"")?.strip_suffix('"'));
    let package = package.ok_or("its manifest has no name")?.to_owned();
    let target = home.join("target");
    let mut build = Command::new("cargo");
    build.args(["build", "--release", "--quiet"]).current_dir(folder).env("CARGO_TARGET_DIR", &target);
    run(build)?;
    Ok(Start { program: target.join("release").join(package), arguments: Vec::new(), folder: folder.into() })
}

fn node(folder: &Path) -> Result<Start, String> {
    let mut npm = Command::new("npm");
    npm.arg(if folder.join("package-lock.json").exists() { "ci" } else { "install" });
    npm.args(["--silent", "--no-audit", "--no-fund"]).current_dir(folder);
    // Written last, with the list that it is for: an installation that was interrupted does not have it.
    let (list, mark) = (fs::read(folder.join("package.json")), folder.join("node_modules/complete"));
    let list = list.map_err(|error| error.to_string())?;
    if fs::read(&mark).ok().as_ref() != Some(&list) {
        run(npm)?;
        fs::write(mark, list).map_err(|error| error.to_string())?;
    }
    Ok(Start { program: "node".into(), arguments: vec!["index.js".into()], folder: folder.into() })
}

fn python(folder: &Path) -> Result<Start, String> {
    let program = folder.join("venv/bin/python");
    if !program.exists() {
        let mut venv = Command::new("python3");
        venv.args(["-m", "venv", "venv"]).current_dir(folder);
        run(venv)?;
    }
    let mut pip = Command::new(&program);
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", "requirements.txt"]);
    pip.current_dir(folder);
    run(pip)?;
    Ok(Start { program, arguments: vec!["main.py".into()], folder: folder.into() })
}

/// Runs to the end; a failure is told in one line.
fn run(mut command: Command) -> Result<(), String> {
    let line = format!("{command:?}");
    // Our own standard output has the tables.
    let output = command.stdin(Stdio::null()).output().map_err(|error| format!("{line}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    eprintln!("{text}");
    let last = text.lines().find(|line| line.starts_with("error")).or_else(|| text.lines().last()).unwrap_or_default();
    Err(format!("{}: {last}", command.get_program().to_string_lossy()))
}

/// Copies what changed. Ways up to the project's crates are made absolute: the copy lies elsewhere.
fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type().unwrap().is_dir() {
            // What somebody installed by hand belongs to his machine.
            if !["node_modules", "target", "venv"].iter().any(|name| entry.file_name() == *name) {
                copy(&source, &target);
            }
            continue;
        }
        let mut bytes = fs::read(&source).unwrap();
        if entry.file_name() == "Cargo.toml" {
            let root = Path::new(SOURCES).parent().and_then(Path::parent).unwrap();
            let text = String::from_utf8(bytes).unwrap();
            bytes = text.replace("\"../../../", &format!("\"{}/", root.display())).into_bytes();
        }
        // An equal file keeps its time, so that nothing is built anew.
        if fs::read(&target).ok().as_ref() != Some(&bytes) {
            fs::write(&target, bytes).unwrap();
        }
    }
}
