//! Starting several servers at once, and stopping exactly these.

use std::fs::{self, File};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::account::{Life, command_as, hand_over};
use super::home::Home;
use super::record::Record;
use super::server::{Kind, Place};
use crate::failure::{Context, Failure, Outcome};
use crate::{packages, process};

const ANSWER_WITHIN: Duration = Duration::from_secs(60);
const STARTS_MAX: usize = 3;
const PORT_TAKEN: &str = "Address already in use";

/// What to start.
pub(crate) struct Wanted {
    pub(crate) kinds: Vec<Kind>,
    /// The PostgreSQL behind pgbouncer, when it is not one of ours.
    pub(crate) upstream: Option<String>,
    pub(crate) durable: bool,
}

/// Running servers; dropping them stops them and removes their data.
pub(crate) struct Fleet {
    home: Home,
    members: Vec<Member>,
}

struct Member {
    kind: Kind,
    place: Place,
    serving: Option<Child>,
    version: String,
}

impl Fleet {
    /// Programs come before the home: without them there are no accounts to own it.
    pub(crate) fn start(wanted: &Wanted, home: impl FnOnce() -> Outcome<Home>) -> Outcome<Self> {
        let needed: Vec<_> = wanted.kinds.iter().flat_map(|kind| kind.server().packages()).collect();
        packages::ensure(&needed)?;
        let mut fleet = Self { home: home()?, members: Vec::new() };
        // A free port may be taken before the server binds it; then all start again on others.
        for _ in 1..STARTS_MAX {
            match fleet.try_start(wanted) {
                Err(failure) if failure.message.contains(PORT_TAKEN) => fleet.stop_members(),
                outcome => return outcome.map(|()| fleet),
            }
        }
        fleet.try_start(wanted).map(|()| fleet)
    }

    pub(crate) fn home(&self) -> PathBuf {
        self.home.path.clone()
    }

    pub(crate) fn records(&self) -> Vec<Record> {
        self.members.iter().map(Member::record).collect()
    }

    /// Hands the servers over to whoever reads their records.
    pub(crate) fn leave_running(mut self) {
        self.members.clear();
    }

    /// Each step is taken by all servers at once: making data directories is most of the wait.
    fn try_start(&mut self, wanted: &Wanted) -> Outcome<()> {
        self.members = enlist(wanted, &self.home.path)?;
        let throwaway = self.home.is_throwaway();
        let mut preparing = Vec::new();
        for member in &self.members {
            if let Some(child) = member.prepare()? {
                preparing.push((member, child));
            }
        }
        // All are waited for, also when one has failed: none may write into a removed home.
        let ends: Vec<_> = preparing.iter_mut().map(|(_, child)| process::wait(child)).collect();
        process::check_interrupt()?;
        for ((member, _), end) in preparing.iter().zip(ends) {
            // Once more, alone: many at once were too much for a machine that had just installed them.
            if !end?.success() && !member.prepare_alone()? {
                return Err(member.broken("cannot make its data directory"));
            }
        }
        for member in &mut self.members {
            member.serve(throwaway)?;
        }
        self.members.iter_mut().try_for_each(Member::await_answer)
    }

    fn stop_members(&mut self) {
        for member in &mut self.members {
            member.stop();
        }
        self.members.clear();
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let handed_over = self.members.is_empty() && !self.home.is_throwaway();
        self.stop_members();
        if !handed_over {
            self.home.remove();
        }
    }
}

impl Member {
    fn prepare(&self) -> Outcome<Option<Child>> {
        let (server, home) = (self.kind.server(), &self.place.home);
        let _from_an_earlier_start = fs::remove_dir_all(home);
        fs::create_dir(home).context(home.display())?;
        hand_over(home, server.account())?;
        let command = server.prepare(&self.place)?;
        let life = Life::Ours(rustix::process::Signal::KILL);
        command.map(|command| self.spawn(command, life)).transpose()
    }

    /// Whether that went well.
    fn prepare_alone(&self) -> Outcome<bool> {
        println!("{}", self.broken("could not make its data directory and tries again").message);
        let Some(mut child) = self.prepare()? else { return Ok(true) };
        let end = process::wait(&mut child)?;
        process::check_interrupt()?;
        Ok(end.success())
    }

    fn serve(&mut self, throwaway: bool) -> Outcome<()> {
        let server = self.kind.server();
        let command = server.serve(&self.place)?;
        let life = if throwaway { Life::Ours(server.end_signal()) } else { Life::Lasting };
        self.serving = Some(self.spawn(command, life)?);
        Ok(())
    }

    /// In its own process group: the terminal's Ctrl-C must not take servers from running tests.
    fn spawn(&self, command: Command, life: Life) -> Outcome<Child> {
        let log = File::options().create(true).append(true).open(self.log());
        let log = log.context(self.log().display())?;
        let mut command = command_as(self.kind.server().account(), command, life)?;
        command.current_dir(&self.place.home).process_group(0).stdin(Stdio::null());
        command.stdout(log.try_clone().context("cannot share a log")?).stderr(log);
        process::spawn(&mut command)
    }

    fn await_answer(&mut self) -> Outcome<()> {
        let server = self.kind.server();
        let deadline = Instant::now() + ANSWER_WITHIN;
        loop {
            process::check_interrupt()?;
            let output = process::output(&mut server.probe(&self.place)?)?;
            // A stranger could answer on our port; only a living server of ours counts.
            if self.has_ended() {
                return Err(self.broken("ended before it answered"));
            }
            if output.status.success() {
                let answer = String::from_utf8_lossy(&output.stdout);
                self.version = server.version(answer.trim());
                break;
            }
            if Instant::now() > deadline {
                return Err(self.broken("does not answer"));
            }
            thread::sleep(Duration::from_millis(50));
        }
        if let Some(mut command) = server.finish(&self.place)? {
            let output = process::output(&mut command)?;
            if !output.status.success() {
                let said = String::from_utf8_lossy(&output.stderr);
                return Err(self.broken(&format!("cannot be set up: {said}")));
            }
        }
        Ok(())
    }

    fn has_ended(&mut self) -> bool {
        let serving = self.serving.as_mut();
        serving.is_none_or(|child| !matches!(child.try_wait(), Ok(None)))
    }

    fn stop(&mut self) {
        if let Some(mut child) = self.serving.take() {
            process::end(child.id(), &self.place.home, self.kind.server().end_signal());
            let _collected = child.wait();
        }
    }

    fn record(&self) -> Record {
        Record {
            kind: self.kind,
            pid: self.serving.as_ref().map_or(0, Child::id),
            port: self.place.port,
            home: self.place.home.clone(),
            url: self.kind.server().url(&self.place),
            version: self.version.clone(),
        }
    }

    /// The log goes with the home, so its errors and its end are part of the message.
    fn broken(&self, what: &str) -> Failure {
        let log = fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        let (before, tail) = lines.split_at(lines.len().saturating_sub(20));
        let is_error = |line: &&&str| ["ERROR", "FATAL", "rror:"].iter().any(|word| line.contains(word));
        let errors: String = before.iter().filter(is_error).take(20).map(|line| format!("{line}\n")).collect();
        Failure::new(format!("{} {what}; its log says:\n{errors}{}", self.kind.name(), tail.join("\n")))
    }

    fn log(&self) -> PathBuf {
        self.place.home.join("log")
    }
}

fn enlist(wanted: &Wanted, home: &Path) -> Outcome<Vec<Member>> {
    let mut members: Vec<Member> = Vec::new();
    // All listeners stay open until every port is known, so that all ports differ.
    let mut listeners = Vec::new();
    for &kind in &wanted.kinds {
        let mut free_port = || -> Outcome<u16> {
            let listener = TcpListener::bind(("127.0.0.1", 0)).context("no free port")?;
            let port = listener.local_addr().context("no free port")?.port();
            listeners.push(listener);
            Ok(port)
        };
        let (port, spare_ports) = (free_port()?, [free_port()?, free_port()?]);
        let ours = members.iter().find(|member| member.kind == Kind::Postgres);
        let ours = ours.map(|member| member.kind.server().url(&member.place));
        let upstream = wanted.upstream.clone().or(ours).unwrap_or_default();
        let place = Place { home: home.join(kind.name()), port, spare_ports, durable: wanted.durable, upstream };
        members.push(Member { kind, place, serving: None, version: String::new() });
    }
    Ok(members)
}
