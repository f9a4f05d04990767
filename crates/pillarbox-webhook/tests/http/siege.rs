//! Thousands of slow sockets, from many processes, against a server in a process of its own whose memory is measured.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use pillarbox_webhook::Server;
use tokio::net::TcpSocket;

use crate::exchange::*;
use crate::server::*;

const PART: &str = "PILLARBOX_SIEGE_PART";
const ADDRESS: &str = "PILLARBOX_SIEGE_ADDRESS";

/// What a process writes, before its address, when it is where it should be.
const READY: &str = "siege: ";

const SLOW_SOCKETS: usize = 5000;

/// So few per process that the usual limit of 1,024 open files is enough for everybody.
const SOCKETS_PER_PROCESS: usize = 500;

const GROWTH_MAX_KIB: u64 = 16 * 1024;

/// This very test program in another process, as the part below. It ends when it is dropped.
struct Process {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStderr>>,
}

impl Process {
    fn start(part: &str, address: Option<SocketAddr>, files_max: &str) -> Self {
        let mut command = Command::new("sh");
        command
            .args(["-c", &format!("ulimit -n {files_max}; exec \"$0\" \"$@\"")])
            .arg(std::env::current_exe().unwrap());
        command.args(["--exact", "siege::a_part_is_played_until_its_input_ends", "--nocapture"]).env(PART, part);
        command.envs(address.map(|address| (ADDRESS, address.to_string())));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, lines }
    }

    /// Waits until it is ready.
    fn ready(&mut self) -> String {
        let mut lines = self.lines.by_ref().map(Result::unwrap);
        lines.find_map(|line| line.strip_prefix(READY).map(str::to_owned)).unwrap()
    }

    fn server(timeout: Duration, files_max: &str) -> (Self, SocketAddr) {
        let mut server = Self::start(&format!("server {}", timeout.as_millis()), None, files_max);
        let address = server.ready().parse().unwrap();
        (server, address)
    }

    fn besieger(address: SocketAddr, sockets: usize) -> Self {
        let mut besieger = Self::start(&sockets.to_string(), Some(address), "1024");
        besieger.ready();
        besieger
    }

    /// A figure of the process in KiB, as the kernel names it.
    fn memory(&self, figure: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(figure)).unwrap();
        line.trim_matches([':', ' ', '\t', 'k', 'B']).parse().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Nothing to prove by itself: in a process of its own it is the server, or some of those who besiege it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_is_played_until_its_input_ends() {
    let Ok(part) = std::env::var(PART) else { return };
    let _sockets = if let Some(timeout) = part.strip_prefix("server ") {
        // Who finds no place in the kernel's line comes again after a second: a long line makes for a short test.
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(1024).unwrap();
        eprintln!("{READY}{}", listener.local_addr().unwrap());
        let timeout = Duration::from_millis(timeout.parse().unwrap());
        let server = Server::new(router(webhooks(&Desk::default()))).header_timeout(timeout);
        tokio::spawn(server.serve(listener));
        Vec::new()
    } else {
        let sockets = besiege(std::env::var(ADDRESS).unwrap().parse().unwrap(), part.parse().unwrap());
        eprintln!("{READY}");
        sockets
    };
    let input = tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new()));
    input.await.unwrap().unwrap();
}

/// Everybody is slow in a way of his own.
fn besiege(address: SocketAddr, count: usize) -> Vec<TcpStream> {
    let body = stripe("").with("content-length", "1000").head("POST") + "half a body";
    let head = "POST /hooks/stripe HTTP/1.1\r\nhost: te".to_owned();
    let long = format!("{head}st\r\nx-long: {}", "x".repeat(8_000));
    let openings = [String::new(), head, long, body];
    let connect = |opening: &String| {
        let mut socket = TcpStream::connect(address).unwrap();
        // It may have been closed already, to make room for the next.
        let _ = socket.write_all(opening.as_bytes());
        socket
    };
    openings.iter().cycle().take(count).map(connect).collect()
}

/// H59: five thousand slow sockets cost at most 16 MB, and lock nobody out.
#[tokio::test]
async fn thousands_of_slow_sockets_are_cheap_and_lock_nobody_out() {
    let (server, address) = Process::server(Duration::from_secs(3600), "1024");
    assert_eq!(stripe(r#"{"id":"evt_1"}"#).send(address).await.status, 200);
    let before = server.memory("VmRSS");
    let mut besiegers = Vec::new();
    for number in 0..SLOW_SOCKETS / SOCKETS_PER_PROCESS {
        besiegers.push(Process::besieger(address, SOCKETS_PER_PROCESS));
        let answer = stripe(format!(r#"{{"id":"evt_{number}"}}"#)).send(address).await;
        assert_eq!(answer.status, 200, "after {number}");
    }
    let growth = server.memory("VmHWM").saturating_sub(before);
    assert!(growth <= GROWTH_MAX_KIB, "{growth} KiB more than the {before} KiB before");
}

/// H59: where the process may not open as many files as connections, it goes on when some have been closed.
#[tokio::test]
async fn a_server_without_files_goes_on_later() {
    let (_server, address) = Process::server(Duration::from_millis(500), "64");
    let _besieger = Process::besieger(address, 100);
    assert_eq!(stripe(r#"{"id":"evt_1"}"#).send(address).await.status, 200);
}
