//! A worker as a process of its own: this very program, started again.

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use super::failed;
use crate::exit::Failure;

/// Far more than any step takes; a demo that hangs helps nobody.
pub(super) const PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct Process {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    id: u32,
}

impl Process {
    pub(super) fn start(database: &Path, lease: Duration, stall_after: Option<u32>) -> Result<Self, Failure> {
        let mut command = Command::new(std::env::current_exe().map_err(failed)?);
        command.arg("demo-worker").arg("--database").arg(database);
        command.args(["--lease-ms", &lease.as_millis().to_string()]);
        if let Some(count) = stall_after {
            command.args(["--stall-after", &count.to_string()]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn().map_err(failed)?;
        let stdout = child.stdout.take().ok_or_else(|| failed("the worker has no output"))?;
        let id = child.id().ok_or_else(|| failed("the worker has no process id"))?;
        Ok(Self { child, lines: BufReader::new(stdout).lines(), id })
    }

    pub(super) fn id(&self) -> u32 {
        self.id
    }

    /// Waits until the worker has said this line.
    pub(super) async fn wait_for(&mut self, line: &str) -> Result<(), Failure> {
        let waiting = async {
            while let Some(said) = self.lines.next_line().await.map_err(failed)? {
                if said == line {
                    return Ok(());
                }
            }
            Err(failed(format!("the worker ended without having {line}")))
        };
        timeout(PATIENCE, waiting).await.map_err(|_| failed(format!("the worker has not {line} in time")))?
    }

    /// Kills the process as `kill -9` does: it gets no chance to tidy up. Answers how it ended.
    pub(super) async fn kill(mut self) -> Result<ExitStatus, Failure> {
        self.child.start_kill().map_err(failed)?;
        self.child.wait().await.map_err(failed)
    }

    /// Lets the worker shut down in good order.
    pub(super) async fn finish(mut self) -> Result<(), Failure> {
        drop(self.child.stdin.take());
        let ended = timeout(PATIENCE, self.child.wait()).await;
        let status = ended.map_err(|_| failed("the worker did not finish in time"))?.map_err(failed)?;
        if status.success() { Ok(()) } else { Err(failed(format!("the worker ended with {status}"))) }
    }
}
