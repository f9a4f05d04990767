//! Finds the library's migrations: it asks its users to take them from its package.

use std::path::Path;
use std::process::Command;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let output = Command::new(std::env::var("CARGO")?).args(["metadata", "--format-version", "1"]).output()?;
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().ok_or("no packages")?;
    let package = packages.iter().find(|package| package["name"] == "sqlxmq").ok_or("sqlxmq is not among them")?;
    let manifest = Path::new(package["manifest_path"].as_str().ok_or("it has no manifest")?);
    println!("cargo::rustc-env=SQLXMQ_MIGRATIONS={}", manifest.with_file_name("migrations").display());
    println!("cargo::rerun-if-changed=Cargo.toml");
    Ok(())
}
