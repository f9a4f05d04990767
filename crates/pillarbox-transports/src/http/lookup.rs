//! From names to addresses, each of which the guard has seen.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use async_trait::async_trait;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use super::guard::{Forbidden, Guard};

/// How names are resolved: by the system, unless a program brings its own way.
#[async_trait]
pub trait Lookup: fmt::Debug + Send + Sync + 'static {
    /// The addresses of a host.
    async fn lookup(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// The system's own way.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemLookup;

#[async_trait]
impl Lookup for SystemLookup {
    async fn lookup(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        Ok(tokio::net::lookup_host((host, 0)).await?.map(|address| address.ip()).collect())
    }
}

/// Resolves a name once for each connection, and hands on just those addresses that passed. Nobody asks again in between, so
/// that a name which changes its answer gains nothing.
#[derive(Clone, Debug)]
pub(super) struct GuardedLookup {
    pub(super) guard: Arc<Guard>,
    pub(super) lookup: Arc<dyn Lookup>,
}

impl GuardedLookup {
    async fn addresses(self, host: String) -> Result<Addrs, Box<dyn Error + Send + Sync>> {
        let found = self.lookup.lookup(&host).await?;
        if found.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the name has no address").into());
        }
        let allowed: Vec<_> = found.into_iter().filter(|address| self.guard.allows(*address)).collect();
        if allowed.is_empty() {
            return Err(Forbidden::Address.into());
        }
        // Port zero stands for the one in the URL.
        Ok(Box::new(allowed.into_iter().map(|address| SocketAddr::new(address, 0))))
    }
}

impl Resolve for GuardedLookup {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(self.clone().addresses(name.as_str().to_owned()))
    }
}

/// Whether the guard, and not the network, was what ended a request.
pub(super) fn forbidden_by(error: &(dyn Error + 'static)) -> Option<Forbidden> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(forbidden) = error.downcast_ref::<Forbidden>() {
            return Some(*forbidden);
        }
        next = error.source();
    }
    None
}
