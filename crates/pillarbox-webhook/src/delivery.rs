//! A delivery whose signature was found good, and what names its message.

use std::cell::OnceCell;
use std::fmt;

use axum::http::HeaderMap;
use bytes::Bytes;
use serde::de::{self, Deserialize, Deserializer, Visitor};

use crate::header;
use crate::refusal::Malformed;

/// A request whose signature was found good. Its body is looked into only now.
pub struct Delivery<'a> {
    source: &'a str,
    headers: &'a HeaderMap,
    body: &'a Bytes,
    fields: OnceCell<Result<Fields, Malformed>>,
}

impl<'a> Delivery<'a> {
    pub(crate) fn new(source: &'a str, headers: &'a HeaderMap, body: &'a Bytes) -> Self {
        Self { source, headers, body, fields: OnceCell::new() }
    }

    /// The route it came by.
    pub fn source(&self) -> &'a str {
        self.source
    }

    /// All headers. Most schemes do not sign them; whoever carries the request can change those.
    pub fn headers(&self) -> &'a HeaderMap {
        self.headers
    }

    /// A header that must be there exactly once.
    pub fn header(&self, name: &'static str) -> Result<&'a str, Malformed> {
        header::only(self.headers, name).map_err(|fault| fault.obscures(name))
    }

    /// The body, byte for byte as it was signed.
    pub fn body(&self) -> &'a Bytes {
        self.body
    }

    /// The top-level `id` of the JSON body: a text, or a whole number as its digits.
    pub fn json_id(&self) -> Result<Option<String>, Malformed> {
        self.fields().map(|fields| fields.id.clone().map(|id| id.0))
    }

    /// The top-level `type` of the JSON body.
    pub fn json_type(&self) -> Result<Option<String>, Malformed> {
        self.fields().map(|fields| fields.kind.clone().map(|kind| kind.0))
    }

    fn fields(&self) -> Result<&Fields, Malformed> {
        let read = || {
            // Fields that are skipped would not be checked for UTF-8 by the parser.
            let text = str::from_utf8(self.body).map_err(|_| Malformed::Json)?;
            serde_json::from_str(text).map_err(|_| Malformed::Json)
        };
        self.fields.get_or_init(read).as_ref().map_err(|malformed| *malformed)
    }
}

// Headers and body may be secrets: only sizes are shown.
impl fmt::Debug for Delivery<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("source", &self.source)
            .field("header_count", &self.headers.len())
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// The two fields that name a message. A field that is there twice is an error; all others are skipped without recursion.
#[derive(serde::Deserialize)]
struct Fields {
    #[serde(default)]
    id: Option<Name>,
    #[serde(default, rename = "type")]
    kind: Option<Name>,
}

#[derive(Clone)]
struct Name(String);

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;

        impl Visitor<'_> for Reader {
            type Value = Name;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a whole number")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Name, E> {
                Ok(Name(text.to_owned()))
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Name, E> {
                Ok(Name(number.to_string()))
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Name, E> {
                Ok(Name(number.to_string()))
            }
        }

        deserializer.deserialize_any(Reader)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Names = Result<(Option<String>, Option<String>), Malformed>;

    fn names(body: impl Into<Bytes>) -> Names {
        let (headers, body) = (HeaderMap::new(), body.into());
        let delivery = Delivery::new("shop", &headers, &body);
        Ok((delivery.json_id()?, delivery.json_type()?))
    }

    fn named(id: &str, kind: &str) -> Names {
        let name = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Ok((name(id), name(kind)))
    }

    /// H57, H59.
    #[test]
    fn only_whole_json_with_single_names_is_read() {
        let table = [
            (r#"{"id":"evt_1","type":"paid"}"#, named("evt_1", "paid")),
            (r#"{"data":{"id":"inner","type":"inner"},"type":"paid","id":7}"#, named("7", "paid")),
            (r#"{"id":-7}"#, named("-7", "")),
            (r#"{"id":null,"type":null}"#, named("", "")),
            (r#"{"id":"\u00e4\ud83d\ude00"}"#, named("ä😀", "")),
            ("{}", named("", "")),
            (r#"{"id":"a","id":"b"}"#, Err(Malformed::Json)),
            (r#"{"id":1.5}"#, Err(Malformed::Json)),
            (r#"{"id":true}"#, Err(Malformed::Json)),
            (r#"{"id":{"a":1}}"#, Err(Malformed::Json)),
            (r#"{"id":"\ud83d"}"#, Err(Malformed::Json)),
            (r#"{"id":"a"} {}"#, Err(Malformed::Json)),
            (r#"{"id":"a""#, Err(Malformed::Json)),
            ("\u{feff}{}", Err(Malformed::Json)),
            ("", Err(Malformed::Json)),
            ("null", Err(Malformed::Json)),
            ("\"id\"", Err(Malformed::Json)),
        ];
        for (body, expected) in table {
            assert_eq!(names(body), expected, "{body}");
        }
        assert_eq!(names(&b"{\"other\":\"\xff\"}"[..]), Err(Malformed::Json));
    }

    /// H59: a depth that would overflow the stack of a recursive parser.
    #[test]
    fn deep_json_does_not_overflow() {
        let (open, close) = ("[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(names(format!(r#"{{"deep":{open}{close},"id":"a"}}"#)), named("a", ""));
        assert_eq!(names(format!(r#"{{"id":{open}{close}}}"#)), Err(Malformed::Json));
        assert_eq!(names(open), Err(Malformed::Json));
        assert_eq!(names(r#"{"a":"#.repeat(100_000)), Err(Malformed::Json));
    }
}
