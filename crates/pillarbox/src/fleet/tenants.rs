//! Stores that are listed in a table.

use std::fmt;

use async_trait::async_trait;
use pillarbox_core::naming::Naming;
use pillarbox_core::{Discovery, DiscoveryError, Invalid, StorePlace};

use crate::connect::read_texts;
use crate::telemetry::TARGET;

/// Tenants from a table: each row of a query is a store.
///
/// The first column is the key, the second the address of its database. A third one, where it is not null, is the name of the
/// schema, for tenants that share a database. Texts, on PostgreSQL also UUIDs. A tenant with an address or a schema that
/// cannot be used is not served, or served on as it was, and a warning says so.
///
/// ```
/// use pillarbox::{Fleet, Tenants};
///
/// let tenants = Tenants::from_query("postgres://…/directory", "select id, address from tenant where is_active");
/// let builder = Fleet::builder().discover(tenants);
/// # drop(builder);
/// ```
pub struct Tenants {
    address: String,
    query: String,
}

impl Tenants {
    /// The rows that a query finds at `sqlite:…`, `postgres://…` or `mysql://…`, each time on a new connection.
    pub fn from_query(address: impl Into<String>, query: impl Into<String>) -> Self {
        Self { address: address.into(), query: query.into() }
    }
}

#[async_trait]
impl Discovery for Tenants {
    async fn discover(&self) -> Result<Vec<StorePlace>, DiscoveryError> {
        let rows = read_texts(&self.address, &self.query).await?;
        let mut places = Vec::with_capacity(rows.len());
        for (index, row) in rows.into_iter().enumerate() {
            if row.len() < 2 {
                return Err(DiscoveryError::new("the query must answer at least two columns, key and address"));
            }
            match place_of(row) {
                Ok(place) => places.push(place),
                // Nobody can tell whose row it is, and it must not keep the others out.
                Err(error) => tracing::warn!(target: TARGET, %error, row = index + 1, "a tenant is passed over"),
            }
        }
        Ok(places)
    }
}

/// A tenant whose schema is none is there all the same: one that is served must not be taken for gone.
fn place_of(row: Vec<Option<String>>) -> Result<StorePlace, Invalid> {
    let mut columns = row.into_iter();
    let mut next = || columns.next().flatten();
    let place = StorePlace::new(next().unwrap_or_default(), next().unwrap_or_default())?;
    let Some(schema) = next() else { return Ok(place) };
    match Naming::new(schema, Naming::default().outbox().as_str()) {
        Ok(naming) => Ok(place.naming(naming)),
        Err(invalid) => StorePlace::spoilt(place.key().as_str(), invalid),
    }
}

impl fmt::Debug for Tenants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenants").field("query", &self.query).finish_non_exhaustive()
    }
}
