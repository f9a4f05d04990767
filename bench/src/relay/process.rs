//! `pillarbox relay`, which lies beside this program.

use std::process::Stdio;

use tempfile::TempDir;
use tokio::process::{Child, Command};

/// A relay that runs; killed when it is dropped.
pub(super) struct Relay {
    child: Child,
    /// Its file.
    _home: TempDir,
}

impl Relay {
    /// Everything but where, and what it keeps, is left as it is unless told otherwise.
    pub(super) fn start(url: &str, schema: &str, keep: &str, to: &str, destination: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("pillarbox.toml");
        let text = format!(
            "[relay]\nlisten = \"off\"\nkeep = \"{keep}\"\n[stores.bench]\nurl = \"{url}\"\nschema = \"{schema}\"\n\
             [transports.broker]\nurl = \"{to}\"\n[[routes]]\nto = \"broker\"\ndestination = \"{destination}\"\n"
        );
        std::fs::write(&file, text).unwrap();
        let program = std::env::current_exe().unwrap().with_file_name("pillarbox");
        let mut command = Command::new(&program);
        command.arg("relay").arg("--config").arg(&file).stderr(Stdio::null()).kill_on_drop(true);
        let child = command.spawn().unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        Self { child, _home: home }
    }

    pub(super) fn assert_running(&mut self) {
        let ended = self.child.try_wait().unwrap();
        assert!(ended.is_none(), "the relay has ended: {ended:?}");
    }

    /// The most memory that it has had so far, as the system counts it.
    pub(super) fn peak_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id().unwrap())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
    }

    /// Asks it to end, and waits until it has.
    pub(super) async fn end(mut self) {
        let id = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-TERM", &id]).status().await.unwrap().success());
        assert!(self.child.wait().await.unwrap().success(), "the relay ends in order");
    }
}
