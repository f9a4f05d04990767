//! Everything that the file of a relay names: stores, and brokers with the places that routes lead to.

use pillarbox::StorePlace;
use pillarbox::diagnosis::Finding;
use pillarbox::schema::SchemaPolicy;
use pillarbox::store::StoreOptions;

use super::{Part, look_at};
use crate::exit::Failure;
use crate::relay::{Config, table};
use crate::store_args::Address;

/// Looks at all of them, one after the other. What cannot be reached is a finding, and keeps nobody from the others.
pub(super) async fn parts(config: &Config) -> Result<Vec<Part>, Failure> {
    table(config).map_err(Failure::wrong_use)?;
    let mut parts = Vec::new();
    for place in config.places().map_err(Failure::wrong_use)? {
        let name = place.key().to_string();
        let findings = match store(&place).await {
            Ok(part) => part.findings,
            Err(failure) => {
                vec![Finding::critical("connection", failure.words, "see that it can be reached from here")]
            }
        };
        parts.push(Part { kind: "store", name, findings });
    }
    for (name, section) in &config.transports {
        let transport = section.transport(name).map_err(Failure::wrong_use)?;
        let probed = transport.probe().await;
        let mut findings = vec![Finding::broker(&probed)];
        if probed.is_ok() {
            findings.extend(transport.diagnose(&config.checkup(name)).await);
        }
        transport.close().await;
        parts.push(Part { kind: "transport", name: name.clone(), findings });
    }
    Ok(parts)
}

async fn store(place: &StorePlace) -> Result<Part, Failure> {
    let address = Address::new(place.address().to_owned(), format!("stores.{}.url", place.key()))?.existing();
    let naming = place.get_naming().cloned().unwrap_or_default();
    look_at(&address, StoreOptions { naming, schema: SchemaPolicy::Assume, ..StoreOptions::default() }, None).await
}
