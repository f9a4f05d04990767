//! Signatures as Standard Webhooks has them: `v1,` and the HMAC-SHA256 of `<id>.<timestamp>.<body>` as base64.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use pillarbox_core::Problem;
use sha2::Sha256;
use zeroize::Zeroizing;

/// Secrets in rotation at once; each costs an HMAC over every body.
const COUNT_MAX: usize = 16;
/// Standard Webhooks asks for 24 to 64 bytes; a shorter one could be guessed.
const BYTES_MIN: usize = 16;

/// The secrets that a body is signed with: the current one, and those that are being rotated in or out.
#[derive(Clone, Default)]
pub(super) struct Signer(Vec<Zeroizing<Vec<u8>>>);

impl Signer {
    /// Reads secrets that are written as base64, with or without `whsec_` before it. Complaints name places, never a secret.
    pub(super) fn new(written: &[Zeroizing<String>], problems: &mut Vec<Problem>) -> Self {
        if written.len() > COUNT_MAX {
            let complaint = format!("must be at most {COUNT_MAX}");
            problems.push(Problem::out_of_range("secrets", COUNT_MAX as u64, complaint));
        }
        let mut secrets = Vec::with_capacity(written.len());
        for (index, text) in written.iter().enumerate() {
            let text = text.trim();
            let text = text.strip_prefix("whsec_").unwrap_or(text);
            let mut secret = Zeroizing::new(Vec::with_capacity(base64::decoded_len_estimate(text.len())));
            if STANDARD.decode_vec(text, &mut secret).is_err() {
                problems.push(Problem::malformed("secrets", format!("must be base64: number {index} is not")));
            } else if secret.len() < BYTES_MIN {
                let complaint = format!("must have at least {BYTES_MIN} bytes: number {index} has less");
                problems.push(Problem::out_of_range("secrets", BYTES_MIN as u64, complaint));
            }
            secrets.push(secret);
        }
        Self(secrets)
    }

    /// The value of `webhook-signature`: one signature for each secret.
    pub(super) fn sign(&self, id: &str, timestamp: &str, body: &[u8]) -> Option<String> {
        let signatures = self.0.iter().map(|secret| {
            let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("HMAC takes keys of every length");
            for part in [id.as_bytes(), b".", timestamp.as_bytes(), b".", body] {
                mac.update(part);
            }
            format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
        });
        let signatures: Vec<_> = signatures.collect();
        (!signatures.is_empty()).then(|| signatures.join(" "))
    }
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signer({} secrets)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn signer(secrets: &[&str]) -> Result<Signer, Vec<(Option<u64>, String)>> {
        let written: Vec<_> = secrets.iter().map(|text| Zeroizing::new((*text).to_owned())).collect();
        let mut problems = Vec::new();
        let signer = Signer::new(&written, &mut problems);
        let told = problems.iter().map(|problem| (problem.limit(), problem.to_string()));
        if problems.is_empty() { Ok(signer) } else { Err(told.collect()) }
    }

    // key=$(printf 0123456789abcdef0123456789abcdef); printf 'msg_1.1700000000.{"a":1}' |
    // openssl dgst -sha256 -hmac "$key" -binary | base64
    const OPENSSL: &str = "v1,rkwp5YuvdrMkcu0ZhuMsXoTg44mHAr1Q0+FFgFpXsjY=";

    #[test]
    fn the_signature_is_the_one_that_openssl_makes() {
        let signer = signer(&["whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY="]).unwrap();
        assert_eq!(signer.sign("msg_1", "1700000000", br#"{"a":1}"#).as_deref(), Some(OPENSSL));
        assert_eq!(Signer::default().sign("msg_1", "1", b""), None);
    }

    #[test]
    fn each_secret_in_rotation_signs() {
        let (old, new) = ("whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", "ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYQ==");
        let both = signer(&[old, new]).unwrap().sign("m", "1", b"b").unwrap();
        let each = [old, new].map(|secret| signer(&[secret]).unwrap().sign("m", "1", b"b").unwrap());
        assert_eq!(both, each.join(" "));
    }

    /// H54, H57: a secret that anybody could guess is refused, and none is ever shown.
    #[test]
    fn bad_secrets_are_refused_without_being_shown() {
        let table = [("", Some(16)), ("whsec_", Some(16)), ("Y2FuYXJ5", Some(16)), ("canary!", None)];
        for (secret, limit) in table {
            let problems = signer(&["whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", secret]).unwrap_err();
            assert_eq!(problems[0].0, limit, "{secret}");
            assert!(problems[0].1.contains("number 1") && !problems[0].1.contains("canary"), "{problems:?}");
        }
        let many = ["MDEyMzQ1Njc4OWFiY2RlZg=="; 17];
        assert_eq!(signer(&many).unwrap_err()[0].0, Some(16));
        assert_eq!(format!("{:?}", signer(&many[..2]).unwrap()), "Signer(2 secrets)");
    }
}
