//! RabbitMQ nodes: the one that all tests share, because it takes seconds to start, and those that a test may kill.

use std::env;
use std::future::Future;
use std::path::Path;
use std::process::Command;

use crate::server::{Server, free_port};

const SCRIPT: &str = include_str!("node.sh");

/// A node that runs.
pub trait Node: Send + Sync + Sized + 'static {
    /// Whether a test may kill it.
    const IS_MORTAL: bool;

    /// Starts it, or finds it.
    fn start() -> impl Future<Output = Self> + Send;

    /// Where it is, as a transport takes it.
    fn url(&self) -> String;

    /// The program. Panics for a node that others use, too.
    fn server(&mut self) -> &mut Server;

    /// The address without user and virtual host.
    fn address(&self) -> String {
        let url = self.url();
        url.trim_end_matches("/%2F").rsplit(['@', '/']).next().expect("it has an address").to_owned()
    }

    /// Called after something was declared.
    fn declared(&self) {}
}

/// The node of `cargo xtask services`, or of whoever tells where it is.
#[derive(Debug)]
pub struct SharedNode(String);

impl Node for SharedNode {
    const IS_MORTAL: bool = false;

    async fn start() -> Self {
        Self(env::var("PILLARBOX_TEST_RABBITMQ_URL").expect("PILLARBOX_TEST_RABBITMQ_URL says where RabbitMQ is"))
    }

    fn url(&self) -> String {
        self.0.clone()
    }

    fn server(&mut self) -> &mut Server {
        panic!("a node that others use is left alone");
    }
}

/// A node of a test's own.
#[derive(Debug)]
pub struct OwnNode(Server);

impl Node for OwnNode {
    const IS_MORTAL: bool = true;

    async fn start() -> Self {
        Self(Server::start(command).await)
    }

    fn url(&self) -> String {
        format!("amqp://127.0.0.1:{}", self.0.port())
    }

    fn server(&mut self) -> &mut Server {
        &mut self.0
    }

    /// The broker has a queue some seconds before its disk does.
    fn declared(&self) {
        self.control(&["--quiet", "eval", "mnesia:sync_log()."]);
    }
}

impl OwnNode {
    /// Runs `rabbitmqctl`.
    pub fn control(&self, arguments: &[&str]) {
        let mut control = Command::new("sh");
        control.args(["-c", SCRIPT, "node.sh", "control"]).arg(self.0.home()).args(arguments);
        let output = control.output().expect("sh can be started");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

fn command(port: u16, home: &Path) -> Vec<String> {
    let words = ["sh", "-c", SCRIPT, "node.sh", "serve", &home.to_string_lossy()].map(str::to_owned);
    let ports = [port, free_port(), free_port()].map(|port| port.to_string());
    words.into_iter().chain(ports).collect()
}
