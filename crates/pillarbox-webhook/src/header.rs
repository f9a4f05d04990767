//! Headers that must be there exactly once.

use axum::http::HeaderMap;

use crate::refusal::HeaderFault;

/// A header that takes part in a decision may not be longer: dozens of signatures fit, and no loop over them is long.
pub const HEADER_BYTES_MAX: usize = 4096;

/// The value of a header that is there exactly once, is not empty and consists of visible ASCII.
pub fn only<'a>(headers: &'a HeaderMap, name: &str) -> Result<&'a str, HeaderFault> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().ok_or(HeaderFault::Missing)?;
    if values.next().is_some() {
        return Err(HeaderFault::Repeated);
    }
    if value.len() > HEADER_BYTES_MAX {
        return Err(HeaderFault::TooLong);
    }
    let text = value.to_str().map_err(|_| HeaderFault::Malformed)?.trim();
    if text.is_empty() { Err(HeaderFault::Malformed) } else { Ok(text) }
}

/// Like [`only`], for a header that may be left out.
pub fn at_most_one<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, HeaderFault> {
    match only(headers, name) {
        Ok(text) => Ok(Some(text)),
        Err(HeaderFault::Missing) => Ok(None),
        Err(fault) => Err(fault),
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    /// H57.
    #[test]
    fn a_header_counts_when_it_is_there_once_and_can_be_read() {
        let longest = "x".repeat(HEADER_BYTES_MAX);
        let too_long = "x".repeat(HEADER_BYTES_MAX + 1);
        type Case<'a> = (&'a [&'a [u8]], Result<&'a str, HeaderFault>);
        let table: [Case<'_>; 9] = [
            (&[b"value"], Ok("value")),
            (&[b" value\t"], Ok("value")),
            (&[], Err(HeaderFault::Missing)),
            (&[b"value", b"value"], Err(HeaderFault::Repeated)),
            (&[b"", b""], Err(HeaderFault::Repeated)),
            (&[b""], Err(HeaderFault::Malformed)),
            (&["ä".as_bytes()], Err(HeaderFault::Malformed)),
            (&[longest.as_bytes()], Ok(&longest)),
            (&[too_long.as_bytes()], Err(HeaderFault::TooLong)),
        ];
        for (values, expected) in table {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append("x-name", HeaderValue::from_bytes(value).unwrap());
            }
            assert_eq!(only(&headers, "X-Name"), expected);
        }
    }
}
