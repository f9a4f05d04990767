//! Child processes that never outlive us: run to the end, or until a signal asks us to stop.

use std::env;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::failure::{Context, Failure, Outcome};

const POLL: Duration = Duration::from_millis(20);
/// nextest gives its tests 10 s to end; it must get the chance to report.
const GRACE: Duration = Duration::from_secs(15);

static CAUGHT: OnceLock<Arc<AtomicUsize>> = OnceLock::new();

/// From here on a signal is noted instead of ending us, so that servers are always stopped.
pub(crate) fn watch_signals() -> Outcome<()> {
    let caught = CAUGHT.get_or_init(Arc::default);
    for (signal, value) in [(SIGINT, 2), (SIGTERM, 15), (SIGHUP, 1)] {
        signal_hook::flag::register_usize(signal, Arc::clone(caught), value).context("cannot watch for signals")?;
    }
    Ok(())
}

/// Fails with the shell's code for a signal once one has arrived.
pub(crate) fn check_interrupt() -> Outcome<()> {
    match caught_signal() {
        None => Ok(()),
        Some(signal) => {
            Err(Failure::with_code(128_u8.saturating_add(u8::try_from(signal.as_raw()).unwrap_or(0)), "interrupted"))
        }
    }
}

/// Runs a command that talks to the terminal. It gets its own process group: a signal reaches it
/// once, through us, together with everything it has started.
pub(crate) fn run(command: Command) -> Outcome<ExitStatus> {
    check_interrupt()?;
    let mut command = dies_with_us(command, Signal::TERM);
    command.stdin(Stdio::null()).process_group(0);
    let mut child = spawn(&mut command)?;
    let status = wait(&mut child)?;
    check_interrupt()?;
    Ok(status)
}

/// Runs a short command without the terminal and gives back what it said.
pub(crate) fn output(command: &mut Command) -> Outcome<Output> {
    let doing = format!("cannot run {}", program(command));
    command.stdin(Stdio::null()).output().context(doing)
}

pub(crate) fn spawn(command: &mut Command) -> Outcome<Child> {
    let doing = format!("cannot run {}", program(command));
    command.spawn().context(doing)
}

/// Waits while nobody interrupts; then passes the signal on and waits a little more.
pub(crate) fn wait(child: &mut Child) -> Outcome<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait().context("cannot wait for a child")? {
            return Ok(status);
        }
        if let Some(signal) = caught_signal() {
            signal_group(child, signal);
            return reap(child);
        }
        thread::sleep(POLL);
    }
}

/// Wraps a command so that the kernel signals it when we are gone, even by `kill -9`. Only from
/// the main thread: the kernel watches the thread that starts the command, not the process.
pub(crate) fn dies_with_us(command: Command, signal: Signal) -> Command {
    let Some(setpriv) = find("setpriv", &[]) else {
        return command;
    };
    let mut wrapped = Command::new(setpriv);
    wrapped.arg("--pdeathsig").arg(signal_name(signal));
    wrapped.arg("--").arg(command.get_program());
    wrapped.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => wrapped.env(name, value),
            None => wrapped.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        wrapped.current_dir(directory);
    }
    wrapped
}

/// Ends a process that was started with `mark` on its command line, and no other: a process
/// id may have been given to a stranger since.
pub(crate) fn end(pid: u32, mark: &Path, signal: Signal) {
    let Some(id) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return;
    };
    for signal in [signal, Signal::KILL] {
        if !is_ours(pid, mark) {
            return;
        }
        let _already_gone = kill_process(id, signal);
        let deadline = Instant::now() + GRACE;
        while is_ours(pid, mark) && Instant::now() < deadline {
            thread::sleep(POLL);
        }
    }
}

/// A dead process that nobody has collected has an empty command line, so it counts as gone.
pub(crate) fn is_ours(pid: u32, mark: &Path) -> bool {
    let Ok(line) = std::fs::read(format!("/proc/{pid}/cmdline")) else {
        return false;
    };
    String::from_utf8_lossy(&line).contains(&*mark.to_string_lossy())
}

/// The first such program in PATH, then in the other directories.
pub(crate) fn find(program: &str, elsewhere: &[PathBuf]) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(elsewhere.iter().cloned())
        .map(|directory| directory.join(program))
        .find(|candidate| candidate.is_file())
}

pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// As a shell would report it.
pub(crate) fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| Some(128 + status.signal()?));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}

/// A command as one would type it.
pub(crate) fn shown(command: &Command) -> String {
    let mut line = program(command);
    for argument in command.get_args() {
        line.push(' ');
        line.push_str(&argument.to_string_lossy());
    }
    line
}

/// The name that `setpriv` knows; the few signals that end our servers and tests.
pub(crate) fn signal_name(signal: Signal) -> &'static str {
    match signal {
        Signal::QUIT => "QUIT",
        Signal::TERM => "TERM",
        _ => "KILL",
    }
}

fn program(command: &Command) -> String {
    let path = Path::new(command.get_program());
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn caught_signal() -> Option<Signal> {
    match CAUGHT.get()?.load(Ordering::Relaxed) {
        2 => Some(Signal::INT),
        15 => Some(Signal::TERM),
        1 => Some(Signal::HUP),
        _ => None,
    }
}

fn reap(child: &mut Child) -> Outcome<ExitStatus> {
    let deadline = Instant::now() + GRACE;
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait().context("cannot wait for a child")? {
            return Ok(status);
        }
        thread::sleep(POLL);
    }
    signal_group(child, Signal::KILL);
    child.wait().context("cannot wait for a child")
}

fn signal_group(child: &Child, signal: Signal) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        let _already_gone = kill_process_group(group, signal);
    }
}
