//! Its migrations are files in its package, to be copied by whoever uses it: taken from where cargo has put them.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let cargo = std::env::var_os("CARGO").expect("cargo runs this");
    let target = std::env::var("TARGET").expect("cargo sets it");
    let mut metadata = Command::new(cargo);
    // Of this platform: packages of others are not there.
    metadata.args(["metadata", "--format-version", "1", "--offline", "--filter-platform", &target]);
    let metadata = metadata.output().expect("cargo");
    assert!(metadata.status.success(), "{}", String::from_utf8_lossy(&metadata.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&metadata.stdout).expect("metadata");
    let packages = metadata["packages"].as_array().expect("packages");
    let obix = packages.iter().find(|package| package["name"] == "obix").expect("obix");
    let manifest = Path::new(obix["manifest_path"].as_str().expect("a path"));
    let folder = manifest.parent().expect("a folder").join("migrations");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).expect("migrations").map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    let all: Vec<String> = files.iter().map(|file| std::fs::read_to_string(file).expect("text")).collect();
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    std::fs::write(out.join("migrations.sql"), all.join("\n")).expect("written");
    println!("cargo::rerun-if-changed=build.rs");
}
