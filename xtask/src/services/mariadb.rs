//! MariaDB, which stands for the MySQL family.

use std::process::Command;

use rustix::process::Signal;

use super::certificate::{Certificate, OPENSSL};
use super::server::{Place, Server};
use crate::failure::Outcome;
use crate::packages::{Package, program};

pub(crate) struct Mariadb {
    pub(crate) is_encrypted: bool,
}

const PACKAGE: Package = Package { name: "mariadb-server", programs: &["mariadbd", "mariadb-install-db", "mariadb"] };

const SETUP: &str = "create database pillarbox;
create user 'pillarbox'@'127.0.0.1' identified by '';
grant all privileges on *.* to 'pillarbox'@'127.0.0.1' with grant option;";

impl Server for Mariadb {
    fn packages(&self) -> &'static [Package] {
        if self.is_encrypted { &[PACKAGE, OPENSSL] } else { &[PACKAGE] }
    }

    fn account(&self) -> &'static str {
        "mysql"
    }

    fn prepare(&self, place: &Place) -> Outcome<Option<Command>> {
        if self.is_encrypted {
            Certificate::make(&place.home, self.account())?;
        }
        let mut install = Command::new(program("mariadb-install-db")?);
        install.arg("--no-defaults").arg(datadir(place));
        install.args(["--auth-root-authentication-method=normal", "--skip-test-db"]);
        Ok(Some(install))
    }

    fn serve(&self, place: &Place) -> Outcome<Command> {
        let mut mariadbd = Command::new(program("mariadbd")?);
        mariadbd.arg("--no-defaults").arg(datadir(place));
        mariadbd.arg(format!("--port={}", place.port));
        // Relative to the data directory: a long path would not fit into a socket address.
        mariadbd.args(["--socket=mariadb.sock", "--pid-file=mariadb.pid"]);
        mariadbd.args(["--bind-address=127.0.0.1", "--skip-name-resolve", "--skip-log-bin"]);
        mariadbd.args(["--max-connections=300", "--character-set-server=utf8mb4"]);
        if place.durable {
            mariadbd.args(["--innodb-flush-log-at-trx-commit=1", "--sync-binlog=1"]);
            // As much memory as PostgreSQL has for its benchmarks, and a log that does not go round in the middle of one.
            mariadbd.args(["--innodb-buffer-pool-size=1G", "--innodb-log-file-size=2G"]);
        } else {
            mariadbd.arg("--innodb-buffer-pool-size=256M");
            mariadbd.args(["--innodb-flush-log-at-trx-commit=0", "--sync-binlog=0"]);
        }
        if self.is_encrypted {
            let Certificate { file, key } = Certificate::of(&place.home);
            mariadbd.arg(format!("--ssl-cert={}", file.display())).arg(format!("--ssl-key={}", key.display()));
            mariadbd.arg("--require-secure-transport=ON");
        } else {
            // Newer servers make a certificate by themselves.
            mariadbd.arg("--skip-ssl");
        }
        Ok(mariadbd)
    }

    fn probe(&self, place: &Place) -> Outcome<Command> {
        self.client(place, "select version()")
    }

    fn finish(&self, place: &Place) -> Outcome<Option<Command>> {
        self.client(place, SETUP).map(Some)
    }

    fn url(&self, place: &Place) -> String {
        let address = format!("mysql://pillarbox@127.0.0.1:{}/pillarbox", place.port);
        match self.is_encrypted {
            true => format!("{address}?ssl-mode=VERIFY_IDENTITY&ssl-ca={}", Certificate::root(&place.home)),
            false => address,
        }
    }

    fn end_signal(&self) -> Signal {
        Signal::KILL
    }
}

impl Mariadb {
    fn client(&self, place: &Place, statements: &str) -> Outcome<Command> {
        let mut client = Command::new(program("mariadb")?);
        client.args(["--no-defaults", "--protocol=tcp", "--host=127.0.0.1", "--user=root"]);
        client.args(["--connect-timeout=5", "--batch", "--skip-column-names"]);
        client.arg(format!("--port={}", place.port));
        client.arg(match self.is_encrypted {
            true => format!("--ssl-ca={}", Certificate::of(&place.home).file.display()),
            false => "--skip-ssl".to_owned(),
        });
        client.arg(format!("--execute={statements}"));
        Ok(client)
    }
}

fn datadir(place: &Place) -> String {
    format!("--datadir={}", place.home.join("data").display())
}
