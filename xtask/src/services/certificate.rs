//! Certificates for servers that take encrypted connections only: made for each start, trusted by nobody else.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::account::hand_over;
use crate::failure::{Failure, Outcome};
use crate::packages::{Package, program};
use crate::process;

pub(crate) const OPENSSL: Package = Package { name: "openssl", programs: &["openssl"] };

/// Good for the addresses under which tests reach a server of ours.
const NAMES: &str = "subjectAltName=IP:127.0.0.1,DNS:localhost";

/// A server's own certificate, which is at the same time the root that its clients trust.
pub(crate) struct Certificate {
    pub(crate) file: PathBuf,
    pub(crate) key: PathBuf,
}

impl Certificate {
    /// Where it lies in a server's home.
    pub(crate) fn of(home: &Path) -> Self {
        Self { file: home.join("server.crt"), key: home.join("server.key") }
    }

    /// Makes the server's certificate, and beside it `stranger.crt`: one of the same names that has signed nothing.
    pub(crate) fn make(home: &Path, account: &str) -> Outcome<()> {
        let Self { file, key } = Self::of(home);
        self_signed(&home.join("stranger.crt"), &key)?;
        self_signed(&file, &key)?;
        hand_over(&file, account)?;
        hand_over(&key, account)
    }

    /// The path of the root, as it stands in the query of an address.
    pub(crate) fn root(home: &Path) -> String {
        percent_encoded(&Self::of(home).file.to_string_lossy())
    }
}

/// With a new key, whatever lay there before.
fn self_signed(file: &Path, key: &Path) -> Outcome<()> {
    let mut openssl = Command::new(program("openssl")?);
    openssl.args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]);
    openssl.args(["-subj", "/CN=pillarbox-test", "-days", "30", "-addext", NAMES]);
    // An authority's certificate would not be accepted as that of a server.
    openssl.args(["-addext", "basicConstraints=critical,CA:FALSE"]);
    openssl.arg("-out").arg(file).arg("-keyout").arg(key);
    let output = process::output(&mut openssl)?;
    if output.status.success() {
        return Ok(());
    }
    Err(Failure::new(format!("openssl makes no certificate: {}", String::from_utf8_lossy(&output.stderr))))
}

fn percent_encoded(path: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte);
    let encoded = |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    path.bytes().map(encoded).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_survives_an_address_and_a_shell() {
        assert_eq!(percent_encoded("/a-b_c.d~/e+f &'%"), "/a-b_c.d~/e%2Bf%20%26%27%25");
    }
}
