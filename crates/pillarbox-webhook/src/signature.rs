//! HMAC-SHA256, made and compared in one place, so that no other place can compare it wrongly.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::{Choice, ConstantTimeEq};

use crate::secret::{Secret, Secrets};

/// A signature: the 32 bytes of an HMAC-SHA256. It has no `==`: the only comparison is [`Secrets::have_signed`].
#[derive(Clone)]
pub struct Tag([u8; 32]);

impl Tag {
    /// Reads 64 hexadecimal digits, in lower case as every sender writes them: one signature, one spelling.
    pub fn from_hex(text: &str) -> Option<Self> {
        let (pairs, rest) = text.as_bytes().as_chunks::<2>();
        let mut tag = [0; 32];
        if !rest.is_empty() || pairs.len() != tag.len() {
            return None;
        }
        let mut is_hex = 1;
        for (byte, [high, low]) in tag.iter_mut().zip(pairs) {
            let ((high, is_high), (low, is_low)) = (digit(*high), digit(*low));
            *byte = high << 4 | low;
            is_hex &= is_high & is_low;
        }
        (is_hex == 1).then_some(Self(tag))
    }

    /// Reads standard base64 with its padding; spare bits must be zero: one signature, one spelling.
    pub fn from_base64(text: &str) -> Option<Self> {
        // The decoder wants room for whole groups of three bytes; 44 characters are eleven of them.
        let mut bytes = [0; 33];
        let length = STANDARD.decode_slice(text, &mut bytes).ok()?;
        bytes[..length].try_into().ok().map(Self)
    }

    /// The signature as hexadecimal digits, for who signs.
    pub fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The signature as base64, for who signs.
    pub fn to_base64(&self) -> String {
        STANDARD.encode(self.0)
    }
}

// A signature is as good as a password for the message that it signs.
impl fmt::Debug for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Tag(..)")
    }
}

impl Secret {
    /// The HMAC-SHA256 of the parts, one after the other without anything between them.
    pub fn sign(&self, parts: &[&[u8]]) -> Tag {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.bytes()).expect("HMAC takes keys of every length");
        for part in parts {
            mac.update(part);
        }
        Tag(mac.finalize().into_bytes().into())
    }
}

impl Secrets {
    /// Whether one of the tags is the HMAC-SHA256 of the parts by one of the secrets.
    ///
    /// Every secret is worked with and every tag compared, each in constant time, also after a match: the time taken
    /// tells neither which secret fits nor how much of a signature is right.
    pub fn have_signed(&self, parts: &[&[u8]], tags: &[Tag]) -> bool {
        let mut is_signed = Choice::from(0);
        for secret in self.iter() {
            let expected = secret.sign(parts);
            for tag in tags {
                is_signed |= expected.0.ct_eq(&tag.0);
            }
        }
        is_signed.into()
    }
}

/// The value of a digit, and one if it is one. Without branches: its time would tell of the digits.
fn digit(character: u8) -> (u8, u8) {
    let (decimal, letter) = (character.wrapping_sub(b'0'), character.wrapping_sub(b'a'));
    let (is_decimal, is_letter) = (u8::from(decimal < 10), u8::from(letter < 6));
    (is_decimal.wrapping_mul(decimal) | is_letter.wrapping_mul(letter.wrapping_add(10)), is_decimal | is_letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The second case of RFC 4231, and one made with openssl; both spellings read back.
    #[test]
    fn known_answers() {
        let table: [(&str, &[&[u8]], &str); 2] = [
            (
                "Jefe",
                &[b"what do ya want ", b"for nothing?"],
                "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
            ),
            ("s3cret", &[b"1700000000", b".", b"{}"], OPENSSL),
        ];
        for (secret, parts, hex) in table {
            let tag = Secret::from(secret).sign(parts);
            assert_eq!(tag.to_hex(), hex);
            let secrets = Secrets::new([secret]).unwrap();
            assert!(secrets.have_signed(parts, &[Tag::from_hex(hex).unwrap()]));
            assert!(secrets.have_signed(parts, &[Tag::from_base64(&tag.to_base64()).unwrap()]));
        }
    }

    // printf '1700000000.{}' | openssl dgst -sha256 -hmac s3cret
    const OPENSSL: &str = "97926816e98fbb41ccb1673225ff29a2f35369099990e1b1561651e7bd097ebf";

    /// H57.
    #[test]
    fn any_secret_and_any_tag_may_match() {
        let (old, new, other) = (Secret::from("old"), Secret::from("new"), Secret::from("other"));
        let parts: &[&[u8]] = &[b"body"];
        let [by_old, by_new, by_other] = [&old, &new, &other].map(|secret| secret.sign(parts));
        let secrets = Secrets::new([new, old]).unwrap();
        let table: [(&[Tag], bool); 7] = [
            (std::slice::from_ref(&by_old), true),
            (std::slice::from_ref(&by_new), true),
            (std::slice::from_ref(&by_other), false),
            (&[by_other.clone(), by_old.clone()], true),
            (&[by_new.clone(), by_other.clone()], true),
            (&[by_other.clone(), by_other.clone()], false),
            (&[], false),
        ];
        for (index, (tags, expected)) in table.into_iter().enumerate() {
            assert_eq!(secrets.have_signed(parts, tags), expected, "case {index}");
        }
    }

    /// H57: what has two spellings could be changed on its way and still pass.
    #[test]
    fn a_tag_has_one_spelling() {
        let hex = "0f".repeat(32);
        assert!(Tag::from_hex(&hex).is_some());
        let wrong = ["", "0", &hex[1..], &format!("{hex}00"), &hex.to_uppercase(), &format!("{}0g", &hex[2..])];
        for text in wrong {
            assert!(Tag::from_hex(text).is_none(), "{text}");
        }
        assert!(Tag::from_hex(&"ä".repeat(32)).is_none());
        let base64 = Tag([7; 32]).to_base64();
        let body = base64.trim_end_matches('=');
        let (most, last) = body.split_at(body.len() - 1);
        assert!(Tag::from_base64(&base64).is_some());
        for text in ["", body, &format!("{base64}="), &format!(" {base64}"), &format!("{base64}\n"), "BwcHBw=="] {
            assert!(Tag::from_base64(text).is_none(), "{text}");
        }
        let spare = char::from(last.as_bytes()[0] + 1);
        assert!(Tag::from_base64(&format!("{most}{spare}=")).is_none(), "spare bits");
        assert!(Tag::from_base64(&STANDARD.encode([7; 33])).is_none());
        assert!(Tag::from_base64(&"A".repeat(4096)).is_none());
    }
}
