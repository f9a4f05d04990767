//! What is known about running servers, kept on disk between `up` and `down`.

use std::fmt::{self, Write};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::clock;
use super::server::Kind;
use crate::failure::{Context, Failure, Outcome};
use crate::process;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Record {
    pub(crate) kind: Kind,
    pub(crate) pid: u32,
    pub(crate) port: u16,
    pub(crate) home: PathBuf,
    pub(crate) url: String,
    pub(crate) version: String,
}

impl Record {
    pub(crate) fn is_running(&self) -> bool {
        process::is_ours(self.pid, &self.home)
    }

    /// The environment in which tests find the server, and what belongs to it.
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        let mut variables = vec![(self.kind.variable(), self.url.clone())];
        if self.kind == Kind::PostgresJumping {
            variables.push((clock::VARIABLE, clock::file(&self.home).display().to_string()));
        }
        variables
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, pid, port, version, .. } = self;
        write!(f, "{} {version} on 127.0.0.1:{port} (pid {pid})", kind.name())
    }
}

#[derive(Debug, PartialEq)]
pub(crate) struct State {
    pub(crate) durable: bool,
    pub(crate) home: PathBuf,
    pub(crate) records: Vec<Record>,
}

impl State {
    pub(crate) fn read(directory: &Path) -> Outcome<Option<Self>> {
        let path = directory.join("state");
        match fs::read_to_string(&path) {
            Ok(text) => match Self::parse(&text) {
                Some(state) => Ok(Some(state)),
                None => Err(Failure::new(format!("{} is damaged", path.display()))),
            },
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).context(path.display()),
        }
    }

    /// `env` is for people: `source .services/env`. It has lines for the brokers, too.
    pub(crate) fn write(&self, directory: &Path, brokers: &str) -> Outcome<()> {
        let env = directory.join("env");
        fs::write(&env, env_lines(&self.records) + brokers).context(env.display())?;
        let state = directory.join("state");
        fs::write(&state, self.text()).context(state.display())
    }

    pub(crate) fn is_running(&self) -> bool {
        self.records.iter().all(Record::is_running)
    }

    pub(crate) fn has(&self, kinds: &[Kind]) -> bool {
        kinds.iter().all(|kind| self.records.iter().any(|record| record.kind == *kind))
    }

    fn text(&self) -> String {
        let mut text = format!("{}\t{}\n", self.durable, self.home.display());
        for Record { kind, pid, port, home, url, version } in &self.records {
            let (name, home) = (kind.name(), home.display());
            let _infallible = writeln!(text, "{name}\t{pid}\t{port}\t{home}\t{url}\t{version}");
        }
        text
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let (durable, home) = lines.next()?.split_once('\t')?;
        let records = lines.map(parse_record).collect::<Option<_>>()?;
        Some(Self { durable: durable.parse().ok()?, home: home.into(), records })
    }
}

pub(crate) fn env_lines(records: &[Record]) -> String {
    // Quoted: the query of an address has characters that a shell would take for its own.
    let line = |(name, value)| format!("export {name}='{value}'\n");
    records.iter().flat_map(Record::variables).map(line).collect()
}

fn parse_record(line: &str) -> Option<Record> {
    let mut fields = line.split('\t');
    let name = fields.next()?;
    Some(Record {
        kind: Kind::ALL.into_iter().find(|kind| kind.name() == name)?,
        pid: fields.next()?.parse().ok()?,
        port: fields.next()?.parse().ok()?,
        home: fields.next()?.into(),
        url: fields.next()?.to_owned(),
        version: fields.next()?.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_survives_the_disk() {
        let record = Record {
            kind: Kind::Mariadb,
            pid: 7,
            port: 3306,
            home: "/somewhere/with a space/mariadb".into(),
            url: "mysql://pillarbox@127.0.0.1:3306/pillarbox".into(),
            version: "10.11.6-MariaDB-0+deb12u1".into(),
        };
        let state = State { durable: true, home: "/somewhere".into(), records: vec![record] };
        assert_eq!(State::parse(&state.text()), Some(state));
    }

    #[test]
    fn tests_are_told_where_a_clock_can_be_set() {
        let record = Record {
            kind: Kind::PostgresJumping,
            pid: 7,
            port: 5432,
            home: "/somewhere/jumping".into(),
            url: "postgres://postgres@127.0.0.1:5432/postgres".into(),
            version: "15".into(),
        };
        let expected = "export PILLARBOX_TEST_POSTGRES_JUMPING_URL='postgres://postgres@127.0.0.1:5432/postgres'\n\
                        export PILLARBOX_TEST_POSTGRES_CLOCK_FILE='/somewhere/jumping/clock'\n";
        assert_eq!(env_lines(&[record]), expected);
    }

    #[test]
    fn damaged_state_is_not_guessed_at() {
        assert_eq!(State::parse("true\t/home\npostgres\tno-number\t1\t/h\tu\tv\n"), None);
    }
}
