//! Which addresses a webhook may go to: a pure decision, so that nobody's message makes us call our own machines.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use pillarbox_core::{Invalid, Problem};
use url::{Host, Url};

/// The longest address, in bytes.
const URL_BYTES_MAX: usize = 2048;

/// Everything of IPv4 that is not the open internet: RFC 6890 and its followers.
const INNER_V4: [&str; 16] = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.31.196.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
];

/// Of IPv6 only this is handed out for the internet. Loopback, mapped IPv4, NAT64, local and multicast lie outside of it.
const OUTER_V6: &str = "2000::/3";
/// Inside of it: Teredo and other protocols, documentation, 6to4.
const INNER_V6: [&str; 4] = ["2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"];

/// What [`Guard::allow_private`] opens.
const PRIVATE: [&str; 6] = ["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "127.0.0.0/8", "::1/128", "fc00::/7"];

/// Where clouds tell secrets to whoever asks, some of them in ranges that are open otherwise.
const METADATA: [&str; 6] = [
    "169.254.169.254/32",
    "100.100.100.200/32",
    "168.63.129.16/32",
    "192.0.0.192/32",
    "fd00:ec2::254/128",
    "fd20:ce::254/128",
];

/// Which addresses a webhook may go to. Unless told otherwise: any port of the open internet, by `http` or `https`.
#[derive(Clone, Debug, Default)]
pub struct Guard {
    networks: Vec<Network>,
    ports: Vec<u16>,
    is_https_only: bool,
}

impl Guard {
    /// Opens private networks and this machine, for those who deliver inside. Metadata services of clouds stay closed.
    #[must_use]
    pub fn allow_private(self) -> Self {
        self.allow_networks(PRIVATE.map(known))
    }

    /// Opens networks. A metadata service of a cloud is opened only by its own address, such as `169.254.169.254/32`.
    #[must_use]
    pub fn allow_networks(mut self, networks: impl IntoIterator<Item = Network>) -> Self {
        self.networks.extend(networks);
        self
    }

    /// Only these ports.
    #[must_use]
    pub fn ports(mut self, ports: impl IntoIterator<Item = u16>) -> Self {
        self.ports.extend(ports);
        self
    }

    /// Only encrypted.
    #[must_use]
    pub fn https_only(mut self) -> Self {
        self.is_https_only = true;
        self
    }

    /// Reads and checks an address. A name in it still has to be resolved, and [`allows`](Self::allows) asked then.
    pub fn check(&self, text: &str) -> Result<Url, Forbidden> {
        if text.len() > URL_BYTES_MAX {
            return Err(Forbidden::TooLong);
        }
        // A parser would drop them in silence.
        if text.bytes().any(|byte| byte <= b' ' || byte == 0x7f) {
            return Err(Forbidden::Malformed);
        }
        let url = Url::parse(text).map_err(|_| Forbidden::Malformed)?;
        if !(url.scheme() == "https" || url.scheme() == "http" && !self.is_https_only) {
            return Err(Forbidden::Scheme { is_https_only: self.is_https_only });
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Forbidden::Credentials);
        }
        let address = match url.host() {
            Some(Host::Ipv4(address)) => Some(address.into()),
            Some(Host::Ipv6(address)) => Some(address.into()),
            Some(Host::Domain(name)) if !name.is_empty() => None,
            _ => return Err(Forbidden::Malformed),
        };
        let port = url.port_or_known_default().unwrap_or(0);
        if port == 0 || !self.ports.is_empty() && !self.ports.contains(&port) {
            return Err(Forbidden::Port { port });
        }
        match address.filter(|address| !self.allows(*address)) {
            Some(_) => Err(Forbidden::Address),
            None => Ok(url),
        }
    }

    /// Whether an address may be connected to.
    pub fn allows(&self, address: IpAddr) -> bool {
        let is_in = |networks: &[&str]| networks.iter().any(|network| known(network).contains(address));
        if is_in(&METADATA) {
            return self.networks.iter().any(|network| network.is_single() && network.contains(address));
        }
        let is_open = match address {
            IpAddr::V4(_) => !is_in(&INNER_V4),
            IpAddr::V6(_) => is_in(&[OUTER_V6]) && !is_in(&INNER_V6),
        };
        is_open || self.networks.iter().any(|network| network.contains(address))
    }
}

/// Why a webhook does not go somewhere. Repeats nothing of an address: its path may hold a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Forbidden {
    /// Longer than 2048 bytes.
    #[error("the destination is longer than {URL_BYTES_MAX} bytes")]
    TooLong,
    /// Not a URL with a host, or one with spaces or control characters.
    #[error("the destination is not a URL with a host")]
    Malformed,
    /// Neither `http` nor `https`.
    #[error("the destination must begin with {}", if *is_https_only { "https://" } else { "http:// or https://" })]
    Scheme {
        /// Whether only the latter would do.
        is_https_only: bool,
    },
    /// A name or a password before the host.
    #[error("the destination must not hold a user or a password")]
    Credentials,
    /// Not one of the ports that are allowed.
    #[error("port {port} is not allowed")]
    Port {
        /// Which.
        port: u16,
    },
    /// An address that does not belong to the open internet, written out or found under a name.
    #[error("the destination is an inner address, which is not allowed")]
    Address,
}

/// Addresses that begin alike, such as `10.0.0.0/8`; an address alone is a network of its own.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Network {
    start: IpAddr,
    bits: u32,
}

impl Network {
    /// Whether an address belongs to it. An IPv4 address that is written as IPv6 belongs to no network of IPv4.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.start, address) {
            (IpAddr::V4(start), IpAddr::V4(address)) => {
                (start.to_bits() ^ address.to_bits()).leading_zeros() >= self.bits
            }
            (IpAddr::V6(start), IpAddr::V6(address)) => {
                (start.to_bits() ^ address.to_bits()).leading_zeros() >= self.bits
            }
            _ => false,
        }
    }

    fn is_single(&self) -> bool {
        self.bits == self.bits_max()
    }

    fn bits_max(&self) -> u32 {
        if self.start.is_ipv4() { Ipv4Addr::BITS } else { Ipv6Addr::BITS }
    }
}

impl FromStr for Network {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let malformed =
            || Problem::malformed("network", "must be an address, or one with a number of bits after a slash");
        let (start, bits) = match text.split_once('/') {
            Some((start, bits)) => (start, Some(bits.parse().map_err(|_| malformed())?)),
            None => (text, None),
        };
        let start: IpAddr = start.parse().map_err(|_| malformed())?;
        let mut network = Self { start, bits: 0 };
        network.bits = bits.unwrap_or_else(|| network.bits_max());
        if network.bits > network.bits_max() {
            let complaint = format!("must have at most {} bits", network.bits_max());
            return Err(Problem::out_of_range("network", network.bits_max().into(), complaint).into());
        }
        Ok(network)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.start, self.bits)
    }
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A network of the tables above, which a test reads through.
fn known(text: &str) -> Network {
    text.parse().expect("the tables hold networks")
}

#[cfg(test)]
pub(super) mod tests;
