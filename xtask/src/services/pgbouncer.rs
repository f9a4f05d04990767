//! pgbouncer in transaction mode: each transaction may land on another server connection.

use std::fs;
use std::process::Command;

use rustix::process::Signal;

use super::account::hand_over;
use super::postgres::psql;
use super::server::{Place, Server};
use crate::failure::{Context, Outcome};
use crate::packages::{Package, program};
use crate::process;

pub(crate) struct Pgbouncer;

impl Server for Pgbouncer {
    fn packages(&self) -> &'static [Package] {
        &[Package { name: "pgbouncer", programs: &["pgbouncer"] }]
    }

    /// The account that the PostgreSQL package makes; pgbouncer has none of its own.
    fn account(&self) -> &'static str {
        "postgres"
    }

    fn prepare(&self, place: &Place) -> Outcome<Option<Command>> {
        let file = place.home.join("pgbouncer.ini");
        fs::write(&file, configuration(&Upstream::parse(&place.upstream), place.port)).context(file.display())?;
        hand_over(&file, self.account())?;
        Ok(None)
    }

    fn serve(&self, place: &Place) -> Outcome<Command> {
        let mut pgbouncer = Command::new(program("pgbouncer")?);
        pgbouncer.arg(place.home.join("pgbouncer.ini"));
        Ok(pgbouncer)
    }

    fn probe(&self, place: &Place) -> Outcome<Command> {
        psql(&self.url(place), "show server_version")
    }

    /// What answers is the PostgreSQL behind; pgbouncer's own version comes from the program.
    fn version(&self, answer: &str) -> String {
        let own = program("pgbouncer").and_then(|path| process::output(Command::new(path).arg("--version")));
        let own = own.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
        let own = own.unwrap_or_default();
        let own = own.lines().next().and_then(|line| line.split(' ').nth(1));
        format!("{} before PostgreSQL {answer}", own.unwrap_or("of unknown version"))
    }

    fn url(&self, place: &Place) -> String {
        let upstream = Upstream::parse(&place.upstream);
        format!("postgres://{}@127.0.0.1:{}/{}", upstream.user, place.port, upstream.database)
    }

    fn end_signal(&self) -> Signal {
        Signal::KILL
    }
}

#[derive(Debug, PartialEq)]
struct Upstream {
    user: String,
    password: String,
    host: String,
    port: String,
    database: String,
}

impl Upstream {
    /// `postgres://user:password@host:port/database?options`, as far as pgbouncer needs it.
    fn parse(url: &str) -> Self {
        let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
        let rest = rest.split_once('?').map_or(rest, |(rest, _)| rest);
        let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, address) = authority.rsplit_once('@').unwrap_or(("postgres", authority));
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        let (host, port) = address.rsplit_once(':').unwrap_or((address, "5432"));
        let database = if database.is_empty() { user } else { database };
        Self {
            user: user.to_owned(),
            password: percent_decoded(password),
            host: host.to_owned(),
            port: port.to_owned(),
            database: database.to_owned(),
        }
    }
}

fn configuration(upstream: &Upstream, port: u16) -> String {
    let Upstream { user, password, host, port: upstream_port, .. } = upstream;
    let password = match password.replace('\'', "''") {
        empty if empty.is_empty() => String::new(),
        password => format!(" password='{password}'"),
    };
    format!(
        "[databases]
* = host={host} port={upstream_port} user={user}{password}

[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 4
max_client_conn = 300
ignore_startup_parameters = extra_float_digits
"
    )
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let escaped = (*first == b'%').then(|| tail.get(..2)).flatten();
        let hex = escaped.and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upstream_is_read_from_its_url() {
        let read = Upstream::parse("postgres://ann:p%40ss%27@db.local:6000/shop?sslmode=require");
        let expected = Upstream {
            user: "ann".into(),
            password: "p@ss'".into(),
            host: "db.local".into(),
            port: "6000".into(),
            database: "shop".into(),
        };
        assert_eq!(read, expected);
        let line = "* = host=db.local port=6000 user=ann password='p@ss'''\n";
        assert!(configuration(&read, 1).contains(line));
    }

    #[test]
    fn what_an_url_leaves_out_has_the_usual_value() {
        let read = Upstream::parse("postgres://ann@localhost");
        assert_eq!((read.port.as_str(), read.database.as_str()), ("5432", "ann"));
        assert!(!configuration(&read, 1).contains("password"));
    }
}
