//! Encryption with a provider of its own: the one of the process belongs to the program, which may have none or several.

use std::error::Error;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use rustls::client::WantsClientCert;
use rustls::crypto::ring;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};

/// Read once, and only as far as it can be read: whoever has certificates of their own names them.
static SYSTEM: LazyLock<Arc<RootCertStore>> = LazyLock::new(|| {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    Arc::new(roots)
});

/// Trusts the certificates of a PEM file, or else those of the system.
pub(crate) fn trusting(roots: Option<&Path>) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, String> {
    let roots = match roots {
        Some(file) => Arc::new(read(file)?),
        None => Arc::clone(&SYSTEM),
    };
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    Ok(builder.with_root_certificates(roots))
}

fn read(file: &Path) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    // A bundle may hold some that nobody can use; one that can be is enough.
    match roots.add_parsable_certificates(certificates(file)?) {
        (0, _) => Err(unusable(file, &"none of its certificates can be read")),
        _ => Ok(roots),
    }
}

/// The certificates of a PEM file, of which there is at least one.
pub(crate) fn certificates(file: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let pem = CertificateDer::pem_file_iter(file).map_err(|error| unusable(file, &error))?;
    let certificates: Vec<_> = pem.collect::<Result<_, _>>().map_err(|error| unusable(file, &error))?;
    if certificates.is_empty() {
        return Err(unusable(file, &"it holds no certificate"));
    }
    Ok(certificates)
}

/// A file of certificates or keys is of no use.
pub(crate) fn unusable(file: &Path, why: &dyn fmt::Display) -> String {
    format!("the file {} cannot be used: {why}", file.display())
}

/// Why no connection came about; with what to do about it, where encryption is the reason.
pub(crate) fn words(error: &(dyn Error + 'static)) -> String {
    match cause(error) {
        Some(rustls::Error::InvalidCertificate(why)) => {
            format!(
                "its certificate is not trusted for this address ({why}); check root_certificates and the host name"
            )
        }
        Some(rustls::Error::InvalidMessage(_)) => "it does not answer with encryption on this port".to_owned(),
        _ => error.to_string(),
    }
}

/// What encryption complains about, where it does.
fn cause<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        // An error of I/O does not name as its source what it was made from.
        next = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}

#[cfg(test)]
mod tests {
    use rustls::{CertificateError, InvalidMessage};

    use super::*;

    #[test]
    fn a_file_without_certificates_is_named() {
        let home = tempfile::tempdir().unwrap();
        let (empty, missing) = (home.path().join("empty.pem"), home.path().join("missing.pem"));
        std::fs::write(&empty, "").unwrap();
        let words = trusting(Some(&empty)).err().unwrap();
        assert!(words.contains("empty.pem") && words.ends_with("it holds no certificate"), "{words}");
        assert!(trusting(Some(&missing)).err().unwrap().contains("missing.pem"));
    }

    #[test]
    fn the_reason_is_found_below_other_errors() {
        let refused = rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer);
        assert!(words(&refused).contains("check root_certificates"));
        let wrapped = io::Error::other(io::Error::new(io::ErrorKind::InvalidData, refused));
        assert!(words(&wrapped).contains("check root_certificates"));
        let plain = io::Error::other(rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType));
        assert!(words(&plain).contains("encryption"));
        assert_eq!(words(&io::Error::other("away")), "away");
    }
}
