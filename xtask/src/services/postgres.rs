//! PostgreSQL.

use std::fs;
use std::process::Command;

use rustix::process::Signal;

use super::account::hand_over;
use super::certificate::{Certificate, OPENSSL};
use super::clock::{self, LIBFAKETIME};
use super::server::{Place, Server};
use crate::failure::{Context, Outcome};
use crate::packages::{Package, program};

pub(crate) struct Postgres(pub(crate) Variant);

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    Plain,
    /// Takes encrypted connections only.
    Encrypted,
    /// Under a clock that tests set.
    Jumping,
}

const PACKAGE: Package = Package { name: "postgresql", programs: &["postgres", "initdb", "psql"] };

impl Server for Postgres {
    fn packages(&self) -> &'static [Package] {
        match self.0 {
            Variant::Plain => &[PACKAGE],
            Variant::Encrypted => &[PACKAGE, OPENSSL],
            Variant::Jumping => &[PACKAGE, LIBFAKETIME],
        }
    }

    fn account(&self) -> &'static str {
        "postgres"
    }

    fn prepare(&self, place: &Place) -> Outcome<Option<Command>> {
        if self.0 == Variant::Jumping {
            clock::make(&place.home, self.account())?;
        }
        if self.0 == Variant::Encrypted {
            Certificate::make(&place.home, self.account())?;
            let rules = place.home.join("pg_hba.conf");
            fs::write(&rules, "hostssl all all 127.0.0.1/32 trust\n").context(rules.display())?;
            hand_over(&rules, self.account())?;
        }
        let mut initdb = Command::new(program("initdb")?);
        initdb.arg("-D").arg(place.home.join("data"));
        initdb.args(["-A", "trust", "-U", "postgres", "--no-sync"]);
        initdb.args(["-E", "UTF8", "--locale=C.UTF-8"]);
        Ok(Some(initdb))
    }

    fn serve(&self, place: &Place) -> Outcome<Command> {
        let mut postgres = Command::new(program("postgres")?);
        postgres.arg("-D").arg(place.home.join("data"));
        postgres.arg("-p").arg(place.port.to_string());
        // Relative to the data directory: a long path would not fit into a socket address.
        postgres.args(["-k", "."]);
        let always = ["listen_addresses=127.0.0.1", "max_connections=300"];
        let careless = ["fsync=off", "synchronous_commit=off", "full_page_writes=off", "shared_buffers=256MB"];
        // Benchmarks outgrow the defaults: checkpoints in the middle of a round would be what they measure.
        let durable = ["shared_buffers=1GB", "max_wal_size=8GB"];
        let special = if place.durable { &durable[..] } else { &careless[..] };
        for setting in always.iter().chain(special) {
            postgres.args(["-c", setting]);
        }
        if self.0 == Variant::Encrypted {
            let Certificate { file, key } = Certificate::of(&place.home);
            let rules = place.home.join("pg_hba.conf");
            for (name, path) in [("ssl_cert_file", file), ("ssl_key_file", key), ("hba_file", rules)] {
                postgres.arg("-c").arg(format!("{name}={}", path.display()));
            }
            postgres.args(["-c", "ssl=on"]);
        }
        match self.0 {
            Variant::Jumping => clock::command_under(&place.home, &postgres),
            Variant::Plain | Variant::Encrypted => Ok(postgres),
        }
    }

    fn probe(&self, place: &Place) -> Outcome<Command> {
        psql(&address(place), "show server_version")
    }

    fn url(&self, place: &Place) -> String {
        let address = address(place);
        match self.0 {
            Variant::Encrypted => {
                format!("{address}?sslmode=verify-full&sslrootcert={}", Certificate::root(&place.home))
            }
            Variant::Plain | Variant::Jumping => address,
        }
    }

    /// Immediate shutdown; unlike KILL it gives its shared memory back.
    fn end_signal(&self) -> Signal {
        Signal::QUIT
    }
}

fn address(place: &Place) -> String {
    format!("postgres://postgres@127.0.0.1:{}/postgres", place.port)
}

/// Also for pgbouncer, which speaks the same protocol.
pub(crate) fn psql(url: &str, statement: &str) -> Outcome<Command> {
    let mut psql = Command::new(program("psql")?);
    psql.args(["-X", "-A", "-t", "-c", statement, url]);
    psql.env("PGCONNECT_TIMEOUT", "5");
    Ok(psql)
}
