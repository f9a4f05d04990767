//! Python and Node for the tests that run programs in other languages, with the packages that those programs name.
//!
//! The packages are installed below the target directory, once for each list of them: nothing is written into the project.

use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::process::Command;

use crate::failure::{Context, Failure, Outcome};
use crate::packages::{self, Package};
use crate::{process, workspace};

/// How tests find an installation.
type Variable = (&'static str, String);

struct Language {
    variable: &'static str,
    packages: &'static [Package],
    /// Where its examples are, and the files there that say what they need.
    folder: &'static str,
    lists: &'static [&'static str],
    /// Makes the installation in an empty directory that has copies of the lists.
    install: fn(&Path) -> Vec<Command>,
    /// What tests are told of, inside of it.
    result: &'static str,
}

const LANGUAGES: [Language; 2] = [
    Language {
        variable: "PILLARBOX_TEST_PYTHON",
        packages: &[
            Package { name: "python3", programs: &["python3"] },
            Package { name: "python3-venv", programs: &["python3 -m ensurepip"] },
        ],
        folder: "examples/python",
        lists: &["requirements.txt"],
        install: |home| {
            let mut venv = Command::new("python3");
            venv.args(["-m", "venv", "venv"]).current_dir(home);
            let mut pip = Command::new(home.join("venv/bin/python"));
            pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", "requirements.txt"]);
            pip.current_dir(home);
            vec![venv, pip]
        },
        result: "venv/bin/python",
    },
    Language {
        variable: "PILLARBOX_TEST_NODE_PATH",
        packages: &[Package { name: "nodejs", programs: &["node"] }, Package { name: "npm", programs: &["npm"] }],
        folder: "examples/node",
        lists: &["package.json", "package-lock.json"],
        install: |home| {
            let mut npm = Command::new("npm");
            npm.args(["ci", "--silent", "--ignore-scripts", "--no-audit", "--no-fund"]).current_dir(home);
            vec![npm]
        },
        result: "node_modules",
    },
];

/// Prints how tests find the languages.
pub(crate) fn run() -> Outcome<()> {
    for (name, value) in ensure()? {
        println!("export {name}='{value}'");
    }
    Ok(())
}

/// Installs what is missing. What the caller has set stays as it is.
pub(crate) fn ensure() -> Outcome<Vec<Variable>> {
    let wanted: Vec<_> = LANGUAGES.iter().filter(|language| env::var_os(language.variable).is_none()).collect();
    packages::ensure(&wanted.iter().flat_map(|language| language.packages).collect::<Vec<_>>())?;
    wanted.into_iter().map(Language::ensure).collect()
}

/// The languages themselves, for programs that bring the list of their packages along.
pub(crate) fn ensure_programs() -> Outcome<()> {
    packages::ensure(&LANGUAGES.iter().flat_map(|language| language.packages).collect::<Vec<_>>())
}

impl Language {
    fn ensure(&self) -> Outcome<Variable> {
        let lists = self.read_lists()?;
        let home = workspace::target().join("languages").join(format!("{:016x}", hashed(&lists)));
        // Made last: an installation that was interrupted does not have it.
        let mark = home.join("complete");
        if !mark.exists() {
            self.install_into(&home, &lists)?;
            fs::write(&mark, "").context(mark.display())?;
        }
        Ok((self.variable, home.join(self.result).display().to_string()))
    }

    fn install_into(&self, home: &Path, lists: &[(&str, String)]) -> Outcome<()> {
        eprintln!("languages: installing what {} needs", self.folder);
        let _from_an_earlier_try = fs::remove_dir_all(home);
        fs::create_dir_all(home).context(home.display())?;
        for (name, text) in lists {
            fs::write(home.join(name), text).context(name)?;
        }
        for command in (self.install)(home) {
            let line = process::shown(&command);
            let status = process::run(command)?;
            if !status.success() {
                return Err(Failure::new(format!("{line}: {status}; try it by hand in {}", home.display())));
            }
        }
        Ok(())
    }

    fn read_lists(&self) -> Outcome<Vec<(&'static str, String)>> {
        let read = |name: &&'static str| {
            let path = workspace::root().join(self.folder).join(name);
            Ok((*name, fs::read_to_string(&path).context(path.display())?))
        };
        self.lists.iter().map(read).collect()
    }
}

/// Another list, or another project tree with its own target directory, is another installation.
fn hashed(lists: &[(&str, String)]) -> u64 {
    let mut hasher = DefaultHasher::new();
    lists.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_language_has_its_lists() {
        for language in &LANGUAGES {
            assert!(language.read_lists().unwrap().iter().all(|(_, text)| !text.is_empty()), "{}", language.folder);
        }
    }

    /// A list that names the place it came from would bind everybody to that place.
    #[test]
    fn no_list_names_a_registry() {
        for (name, text) in LANGUAGES.iter().flat_map(|language| language.read_lists().unwrap()) {
            assert!(!text.contains("\"resolved\"") && !text.contains("index-url"), "{name}");
        }
    }

    #[test]
    fn another_list_is_another_installation() {
        let list = |text: &str| vec![("requirements.txt", text.to_owned())];
        assert_eq!(hashed(&list("a==1")), hashed(&list("a==1")));
        assert_ne!(hashed(&list("a==1")), hashed(&list("a==2")));
    }
}
