//! The address of a broker as a URL, read without any I/O.

use std::fmt;

use pillarbox_core::{Invalid, Problem, wire};
use url::Url;
use zeroize::Zeroizing;

/// A scheme of URLs, the port that goes with it, and whether it is encrypted.
pub(crate) struct Scheme {
    pub(crate) name: &'static str,
    pub(crate) port: u16,
    pub(crate) is_encrypted: bool,
}

/// Where a broker is, and who we are there.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) is_encrypted: bool,
    pub(crate) user: Option<String>,
    pub(crate) password: Option<Zeroizing<String>>,
}

impl Endpoint {
    /// Reads `scheme://user:password@host:port`. Complaints never repeat the URL, which may hold a password.
    pub(crate) fn parse(url: &str, schemes: &[Scheme]) -> Result<Self, Invalid> {
        let malformed = |complaint: String| Invalid::from(Problem::malformed("url", complaint));
        let url = Url::parse(url).map_err(|error| malformed(format!("cannot be read: {error}")))?;
        let Some(scheme) = schemes.iter().find(|scheme| scheme.name == url.scheme()) else {
            let names: Vec<_> = schemes.iter().map(|scheme| format!("{}://", scheme.name)).collect();
            return Err(malformed(format!("must begin with {}", names.join(" or "))));
        };
        let host = url.host_str().filter(|host| !host.is_empty()).ok_or_else(|| malformed("names no host".into()))?;
        if !matches!(url.path(), "" | "/") || url.query().is_some() || url.fragment().is_some() {
            return Err(malformed("must end after the port".into()));
        }
        let decoded = |text: &str| wire::from_line_safe(text).into_owned();
        Ok(Self {
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: url.port().unwrap_or(scheme.port),
            is_encrypted: scheme.is_encrypted,
            user: Some(url.username()).filter(|user| !user.is_empty()).map(decoded),
            password: url.password().map(decoded).map(Zeroizing::new),
        })
    }
}

/// Host and port, which say where it is and nothing else.
impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            return write!(f, "[{}]:{}", self.host, self.port);
        }
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SCHEMES: [Scheme; 2] = [
        Scheme { name: "mqtt", port: 1883, is_encrypted: false },
        Scheme { name: "mqtts", port: 8883, is_encrypted: true },
    ];

    #[test]
    fn an_address_is_read_with_its_defaults() {
        let endpoint = Endpoint::parse("mqtts://us%40er:p%3Aw@[::1]", &SCHEMES).unwrap();
        assert_eq!((endpoint.to_string().as_str(), endpoint.is_encrypted), ("[::1]:8883", true));
        assert_eq!(endpoint.user.as_deref(), Some("us@er"));
        assert_eq!(endpoint.password.as_deref().map(String::as_str), Some("p:w"));
        assert_eq!(Endpoint::parse("mqtt://broker:9/", &SCHEMES).unwrap().to_string(), "broker:9");
    }

    /// H48: a complaint about a URL tells no secret.
    #[test]
    fn a_wrong_address_is_named_without_its_password() {
        for url in
            ["broker", "http://u:canary@h", "mqtt://u:canary@h/path", "mqtt://u:canary@h?q", "mqtt://u:canary@:1"]
        {
            let invalid = Endpoint::parse(url, &SCHEMES).unwrap_err();
            assert_eq!(invalid.problems()[0].field(), "url");
            assert!(!invalid.to_string().contains("canary"), "{invalid}");
        }
        let endpoint = Endpoint::parse("mqtt://u:canary@h", &SCHEMES).unwrap();
        assert_eq!(format!("{endpoint:?}"), "h:1883");
    }
}
