//! RabbitMQ, which speaks AMQP 0.9.1 and, by a plugin, AMQP 1.0.

use std::process::Command;

use rustix::process::Signal;

use super::server::{Place, Server};
use crate::failure::Outcome;
use crate::packages::Package;

pub(crate) struct Rabbitmq;

/// Tests that kill a broker start one of their own by the same script.
const SCRIPT: &str = include_str!("../../../stations/src/rabbitmq/node.sh");

/// Fails until the node has started completely.
const VERSION: &str = "case rabbit:is_running() of true -> list_to_atom(rabbit_misc:version()) end.";

impl Server for Rabbitmq {
    fn packages(&self) -> &'static [Package] {
        &[Package { name: "rabbitmq-server", programs: &["rabbitmq-server", "epmd"] }]
    }

    fn account(&self) -> &'static str {
        "rabbitmq"
    }

    fn prepare(&self, _place: &Place) -> Outcome<Option<Command>> {
        Ok(None)
    }

    fn serve(&self, place: &Place) -> Outcome<Command> {
        let mut serve = script("serve", place);
        let [distribution, epmd] = place.spare_ports;
        serve.args([place.port, distribution, epmd].map(|port| port.to_string()));
        Ok(serve)
    }

    fn probe(&self, place: &Place) -> Outcome<Command> {
        let mut control = script("control", place);
        control.args(["--quiet", "eval", VERSION]);
        Ok(control)
    }

    fn version(&self, answer: &str) -> String {
        answer.trim_matches('\'').to_owned()
    }

    fn url(&self, place: &Place) -> String {
        format!("amqp://guest:guest@127.0.0.1:{}/%2F", place.port)
    }

    fn end_signal(&self) -> Signal {
        Signal::KILL
    }
}

fn script(what: &str, place: &Place) -> Command {
    let mut sh = Command::new("sh");
    sh.args(["-c", SCRIPT, "node.sh", what]).arg(&place.home);
    sh
}
