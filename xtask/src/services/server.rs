//! What is told about a kind of server; `fleet` does the starting and stopping.

use std::path::PathBuf;
use std::process::Command;

use rustix::process::Signal;

use super::mariadb::Mariadb;
use super::pgbouncer::Pgbouncer;
use super::postgres::{Postgres, Variant};
use super::rabbitmq::Rabbitmq;
use crate::failure::Outcome;
use crate::packages::Package;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Postgres,
    Mariadb,
    Pgbouncer,
    PostgresTls,
    MariadbTls,
    PostgresJumping,
    Rabbitmq,
}

impl Kind {
    /// In the order in which they answer: pgbouncer needs PostgreSQL behind it.
    pub(crate) const ALL: [Self; 7] = [
        Self::Postgres,
        Self::Mariadb,
        Self::Pgbouncer,
        Self::PostgresTls,
        Self::MariadbTls,
        Self::PostgresJumping,
        Self::Rabbitmq,
    ];

    pub(crate) fn server(self) -> &'static dyn Server {
        match self {
            Self::Postgres => &Postgres(Variant::Plain),
            Self::Mariadb => &Mariadb { is_encrypted: false },
            Self::Pgbouncer => &Pgbouncer,
            Self::PostgresTls => &Postgres(Variant::Encrypted),
            Self::MariadbTls => &Mariadb { is_encrypted: true },
            Self::PostgresJumping => &Postgres(Variant::Jumping),
            Self::Rabbitmq => &Rabbitmq,
        }
    }

    /// Also the name of its directory; none begins with another's, because a process is known by its directory.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Postgres => "postgres",
            Self::Mariadb => "mariadb",
            Self::Pgbouncer => "pgbouncer",
            Self::PostgresTls => "tls-postgres",
            Self::MariadbTls => "tls-mariadb",
            Self::PostgresJumping => "jumping-postgres",
            Self::Rabbitmq => "rabbitmq",
        }
    }

    /// The environment variable by which tests find the server.
    pub(crate) fn variable(self) -> &'static str {
        match self {
            Self::Postgres => "PILLARBOX_TEST_POSTGRES_URL",
            Self::Mariadb => "PILLARBOX_TEST_MYSQL_URL",
            Self::Pgbouncer => "PILLARBOX_TEST_PGBOUNCER_URL",
            Self::PostgresTls => "PILLARBOX_TEST_POSTGRES_TLS_URL",
            Self::MariadbTls => "PILLARBOX_TEST_MYSQL_TLS_URL",
            Self::PostgresJumping => "PILLARBOX_TEST_POSTGRES_JUMPING_URL",
            Self::Rabbitmq => "PILLARBOX_TEST_RABBITMQ_URL",
        }
    }

    /// There for tests alone: it takes encrypted connections only, its clock jumps, or it is a broker. Benchmarks need none.
    pub(crate) fn is_special(self) -> bool {
        matches!(self, Self::PostgresTls | Self::MariadbTls | Self::PostgresJumping | Self::Rabbitmq)
    }
}

/// Where one server lives.
pub(crate) struct Place {
    pub(crate) home: PathBuf,
    pub(crate) port: u16,
    /// For a server that listens on more than one.
    pub(crate) spare_ports: [u16; 2],
    pub(crate) durable: bool,
    /// The PostgreSQL that pgbouncer stands in front of.
    pub(crate) upstream: String,
}

pub(crate) trait Server {
    fn packages(&self) -> &'static [Package];
    /// The system account that runs it when we are root.
    fn account(&self) -> &'static str;
    /// Writes configuration; the command, if any, makes the data directory.
    fn prepare(&self, place: &Place) -> Outcome<Option<Command>>;
    fn serve(&self, place: &Place) -> Outcome<Command>;
    /// Succeeds when the server answers.
    fn probe(&self, place: &Place) -> Outcome<Command>;
    /// From what the probe has printed.
    fn version(&self, answer: &str) -> String {
        answer.to_owned()
    }
    /// Once, after the first answer.
    fn finish(&self, _place: &Place) -> Outcome<Option<Command>> {
        Ok(None)
    }
    fn url(&self, place: &Place) -> String;
    /// The quickest end: the data is thrown away.
    fn end_signal(&self) -> Signal;
}
