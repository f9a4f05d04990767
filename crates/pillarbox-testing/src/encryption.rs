//! What an address gets that demands encryption: an encrypted connection to the server that it means, or none.

use pillarbox_core::{ErrorKind, StoreError};

/// Two servers of one kind of database, and the words by which its addresses speak of encryption.
///
/// Each claim opens a store by many addresses: `open` connects, and drops what it got.
#[derive(Clone, Debug)]
pub struct Encryption {
    /// The address of a server on 127.0.0.1, with the last of the modes and then the root of its certificate: `server.crt`.
    /// Beside that file lies `stranger.crt`, a certificate of the same names that has signed nothing.
    pub encrypted: String,
    /// The address of a server that offers no encryption, without parameters.
    pub plain: String,
    /// The parameter that says how much is demanded.
    pub mode: &'static str,
    /// Its values: encryption where it is offered, always, with a certificate that is trusted, and one of this very host.
    pub modes: [&'static str; 4],
    /// The parameter that names the root.
    pub root: &'static str,
}

impl Encryption {
    /// A server that offers no encryption is refused by an address that demands it.
    ///
    /// # Panics
    ///
    /// When it is not, or for another reason.
    pub async fn nothing_falls_back_to_plain_text(&self, open: impl AsyncFn(&str) -> Result<(), StoreError>) {
        let [where_offered, demanding @ ..] = self.modes;
        let address = |mode: &str| format!("{}?{}={mode}", self.plain, self.mode);
        open(&address(where_offered)).await.expect("the server can be reached");
        for mode in demanding {
            let refused = unencrypted(&open, &address(mode)).await;
            assert!(refused.contains("server offers none"), "{mode}: {refused}");
        }
    }

    /// A certificate that the given root did not sign, or that is another host's, is refused.
    ///
    /// # Panics
    ///
    /// When it is not, or for another reason.
    pub async fn what_is_not_trusted_is_refused(&self, open: impl AsyncFn(&str) -> Result<(), StoreError>) {
        let [.., any_host, this_host] = self.modes;
        let good = &self.encrypted;
        open(good).await.expect("the certificate is trusted");
        let elsewhere = good.replace("127.0.0.1", "0.0.0.0");
        open(&elsewhere.replace(this_host, any_host)).await.expect("the name is not looked at");
        let (rootless, _) = good.split_once(&format!("&{}", self.root)).expect("the address names a root");
        for address in [rootless, &good.replace("server.crt", "stranger.crt"), &elsewhere] {
            let refused = unencrypted(&open, address).await;
            assert!(refused.contains("not trusted"), "{address}: {refused}");
        }
        let refused = refusal(&open, &good.replace("server.crt", "no_such.crt")).await;
        assert!(refused.contains("certificate file"), "{refused}");
    }
}

async fn unencrypted(open: &impl AsyncFn(&str) -> Result<(), StoreError>, address: &str) -> String {
    let refused = refusal(open, address).await;
    assert!(refused.contains("no encrypted connection"), "{refused}");
    refused
}

/// Why no connection comes about; the password is not part of it.
async fn refusal(open: &impl AsyncFn(&str) -> Result<(), StoreError>, address: &str) -> String {
    let address = address.replacen('@', ":canary@", 1);
    assert!(address.contains("canary"), "the address names a user");
    let error = open(&address).await.expect_err("the address is refused");
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let shown = format!("{error} {error:?}");
    assert!(!shown.contains("canary"), "{shown}");
    shown
}
