//! Secrets: bytes that do not print, are wiped when dropped, and are never empty where they count.

use std::fmt;

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use zeroize::Zeroizing;

/// Secrets are copied by hand, and the padding gets lost on the way; nothing is ambiguous without it.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What Standard Webhooks puts before a secret, so that one recognises it.
const PREFIX: &str = "whsec_";

/// A secret that sender and receiver share. It does not print, has no equality, and is wiped from memory when dropped.
#[derive(Clone)]
pub struct Secret(Zeroizing<Vec<u8>>);

impl Secret {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Nothing, or nothing but white space: a variable that was never filled.
    fn is_blank(&self) -> bool {
        self.0.trim_ascii().is_empty()
    }

    /// Reads a secret that is written as base64, with or without `whsec_` before it.
    fn decoded(&self) -> Option<Self> {
        let text = self.0.trim_ascii();
        let text = text.strip_prefix(PREFIX.as_bytes()).unwrap_or(text);
        let mut bytes = Zeroizing::new(Vec::with_capacity(base64::decoded_len_estimate(text.len())));
        LENIENT.decode_vec(text, &mut bytes).ok()?;
        Some(Self(bytes))
    }
}

impl From<Vec<u8>> for Secret {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        text.into_bytes().into()
    }
}

impl From<&[u8]> for Secret {
    fn from(bytes: &[u8]) -> Self {
        bytes.to_vec().into()
    }
}

impl<const N: usize> From<[u8; N]> for Secret {
    fn from(bytes: [u8; N]) -> Self {
        bytes.to_vec().into()
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        text.as_bytes().into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// The secrets of one route: the current one, and those that are being rotated in or out. At least one, none empty.
#[derive(Clone, Debug)]
pub struct Secrets(Vec<Secret>);

impl Secrets {
    /// More than these would be a mistake, and each costs an HMAC over the body of every request.
    pub const COUNT_MAX: usize = 16;

    /// Takes the secrets as the bytes that they are.
    pub fn new(secrets: impl IntoIterator<Item = impl Into<Secret>>) -> Result<Self, SecretError> {
        let secrets: Vec<Secret> = secrets.into_iter().take(Self::COUNT_MAX + 1).map(Into::into).collect();
        if secrets.is_empty() {
            return Err(SecretError::None);
        }
        if secrets.len() > Self::COUNT_MAX {
            return Err(SecretError::TooMany);
        }
        match secrets.iter().position(Secret::is_blank) {
            Some(index) => Err(SecretError::Empty { index }),
            None => Ok(Self(secrets)),
        }
    }

    /// Takes secrets that are written as base64, with or without `whsec_` before it.
    pub fn base64(secrets: impl IntoIterator<Item = impl Into<Secret>>) -> Result<Self, SecretError> {
        let written = Self::new(secrets)?;
        let mut secrets = Vec::with_capacity(written.0.len());
        for (index, secret) in written.0.iter().enumerate() {
            let secret = secret.decoded().ok_or(SecretError::NotBase64 { index })?;
            if secret.bytes().is_empty() {
                return Err(SecretError::Empty { index });
            }
            secrets.push(secret);
        }
        Ok(Self(secrets))
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Secret> {
        self.0.iter()
    }
}

/// Why a route cannot be built. Names places in the list, never a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SecretError {
    /// The list has no secret: everybody could sign.
    #[error("at least one secret is needed")]
    None,
    /// A secret without content: everybody could sign.
    #[error("secret {index} is empty")]
    Empty {
        /// Its place in the list, from zero.
        index: usize,
    },
    /// A secret that should be base64 is something else.
    #[error("secret {index} is not base64")]
    NotBase64 {
        /// Its place in the list, from zero.
        index: usize,
    },
    /// More than [`Secrets::COUNT_MAX`].
    #[error("at most {} secrets can be in rotation", Secrets::COUNT_MAX)]
    TooMany,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// H57: nobody starts a receiver to which everybody can sign.
    #[test]
    fn an_empty_secret_is_refused_wherever_it_stands() {
        let table: [(&[&str], SecretError); 6] = [
            (&[], SecretError::None),
            (&[""], SecretError::Empty { index: 0 }),
            (&["good", ""], SecretError::Empty { index: 1 }),
            (&["good", "also good", " \r\n\t"], SecretError::Empty { index: 2 }),
            (&["\n"], SecretError::Empty { index: 0 }),
            (&["s"; 17], SecretError::TooMany),
        ];
        for (given, expected) in table {
            assert_eq!(Secrets::new(given.iter().copied()).unwrap_err(), expected, "{given:?}");
        }
        assert_eq!(Secrets::new(["s"; 16]).unwrap().iter().count(), 16);
    }

    /// H57: the prefix alone is an empty secret, and what is not base64 is not guessed at.
    #[test]
    fn a_written_secret_is_read_as_base64_or_refused() {
        let table: [(&str, Result<&[u8], SecretError>); 9] = [
            ("whsec_AAEC", Ok(&[0, 1, 2])),
            ("AAEC", Ok(&[0, 1, 2])),
            ("whsec_AAE=", Ok(&[0, 1])),
            ("whsec_AAE", Ok(&[0, 1])),
            ("whsec_AAEC\n", Ok(&[0, 1, 2])),
            ("whsec_", Err(SecretError::Empty { index: 0 })),
            ("whsec_AAF", Err(SecretError::NotBase64 { index: 0 })),
            ("whsec_A", Err(SecretError::NotBase64 { index: 0 })),
            ("whsec_ä", Err(SecretError::NotBase64 { index: 0 })),
        ];
        for (given, expected) in table {
            match (Secrets::base64([given]), expected) {
                (Ok(secrets), Ok(bytes)) => assert_eq!(secrets.iter().next().unwrap().bytes(), bytes, "{given}"),
                (Err(error), Err(expected)) => assert_eq!(error, expected, "{given}"),
                (found, _) => panic!("{given}: {:?}", found.map(|_| ())),
            }
        }
    }

    /// H54.
    #[test]
    fn secrets_do_not_print() {
        let secrets = Secrets::new(["canary-1", "canary-2"]).unwrap();
        assert_eq!(format!("{secrets:?}"), "Secrets([Secret(..), Secret(..)])");
        let error = Secrets::base64(["canary!"]).unwrap_err();
        assert!(!format!("{error} {error:?}").contains("canary"));
    }
}
