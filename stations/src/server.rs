//! A program that serves a port, for as long as a test or benchmark wants it.

use std::ffi::OsStr;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;

/// A program that serves a port of the loopback, with a directory of its own. Killed when it is dropped.
#[derive(Debug)]
pub struct Server {
    port: u16,
    home: TempDir,
    /// From the port and the directory to the command line.
    command: fn(u16, &Path) -> Vec<String>,
    child: Option<Child>,
}

impl Server {
    /// Starts a program and waits until its port answers. The command is `[program, arguments…]`.
    pub async fn start(command: fn(u16, &Path) -> Vec<String>) -> Self {
        let home = tempfile::tempdir().expect("a directory can be made");
        let mut server = Self { port: free_port(), home, command, child: None };
        server.revive().await;
        server
    }

    /// Where it is.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its directory.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Asks it to end, and waits until it has.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            signal(&child, "TERM");
            child.wait().expect("the server ends");
        }
    }

    /// Takes all time from it: connections stay open, and nothing is answered.
    pub fn freeze(&self) {
        signal(self.child.as_ref().expect("it runs"), "STOP");
    }

    /// Lets it go on.
    pub fn thaw(&self) {
        signal(self.child.as_ref().expect("it runs"), "CONT");
    }

    /// Starts it on the port and the directory that it had.
    pub async fn revive(&mut self) {
        let words = (self.command)(self.port, self.home.path());
        self.child = Some(mortal(&words));
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.port));
        let mut again = tokio::time::interval(Duration::from_millis(10));
        while TcpStream::connect(address).await.is_err() {
            let ended = self.child.as_mut().and_then(|child| child.try_wait().ok().flatten());
            assert!(ended.is_none(), "{} ended at once: {ended:?}", words[0]);
            again.tick().await;
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port on which somebody takes one connection and says nothing; ends with what was said to it, when that is over.
pub async fn silent() -> (u16, JoinHandle<Vec<u8>>) {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port is free");
    let port = listener.local_addr().expect("it has an address").port();
    let silent = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.expect("somebody comes");
        let mut said = Vec::new();
        stream.read_to_end(&mut said).await.expect("the end comes");
        said
    });
    (port, silent)
}

fn signal(child: &Child, name: &str) {
    let sent = Command::new("kill").args([format!("-{name}"), child.id().to_string()]).status();
    assert!(sent.is_ok_and(|status| status.success()), "the server gets signal {name}");
}

/// A child that is killed when this process ends, however it ends.
fn mortal(words: &[String]) -> Child {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL", "--"].map(OsStr::new)).args(words);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap_or_else(|error| panic!("{} cannot be started: {error}", words[0]))
}

/// A port that was free a moment ago.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    listener.local_addr().expect("it has an address").port()
}
