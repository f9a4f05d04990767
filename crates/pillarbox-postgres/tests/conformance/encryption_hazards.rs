//! Encrypted connections to PostgreSQL: by an address that demands them there are no others.

use pillarbox_core::schema::SchemaPolicy;
use pillarbox_core::store::{OutboxStore, StoreOptions};
use pillarbox_core::{StoreError, StoreTransaction, Transactional};
use pillarbox_postgres::PostgresStore;
use pillarbox_testing::{Encryption, run, use_everything};
use sqlx::Row;

use crate::harness::{Pooler, Route, always_everything, claim, encrypted_url, fresh_naming};

fn encryption() -> Encryption {
    Encryption {
        encrypted: encrypted_url(),
        plain: Pooler::url(),
        mode: "sslmode",
        modes: ["prefer", "require", "verify-ca", "verify-full"],
        root: "sslrootcert",
    }
}

async fn open(address: &str) -> Result<(), StoreError> {
    let options = StoreOptions { schema: SchemaPolicy::Assume, ..StoreOptions::default() };
    PostgresStore::connect(address, options).await.map(drop)
}

/// OBX-107, IBX-128, H63: by an address that demands encryption, everything works, and the server says of every connection
/// that it is encrypted: those of the pool, of a transaction, of a detached handle, and the one that listens.
#[test]
fn an_address_that_demands_encryption_gets_nothing_else() {
    run(|| async {
        let naming = fresh_naming();
        let address = format!("{}&application_name={}", encrypted_url(), naming.schema());
        let options = StoreOptions { naming: naming.clone(), ..always_everything() };
        let store = PostgresStore::connect(&address, options).await.unwrap();
        use_everything(&store).await.unwrap();
        let detached = store.detached().await.unwrap();
        detached.claim(claim(1)).await.unwrap();
        let mut subscription = store.listen().await.unwrap().unwrap();
        let mut tx = store.begin().await.unwrap();
        let connections = "
            SELECT count(*) FILTER (WHERE ssl), count(*) FILTER (WHERE ssl AND query LIKE 'LISTEN%'), count(*)
            FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = $1";
        let row = sqlx::query(connections).bind(naming.schema().as_str()).fetch_one(tx.connection()).await.unwrap();
        let (encrypted, listening, all): (i64, i64, i64) = (row.get(0), row.get(1), row.get(2));
        assert!(encrypted >= 3 && listening >= 1, "{encrypted} encrypted, {listening} of them listen");
        assert_eq!(encrypted, all);
        tx.commit().await.unwrap();
        store.wake_others().await.unwrap();
        subscription.next().await.unwrap();
    });
}

/// OBX-107, IBX-128, H63: a server that offers no encryption is refused by an address that demands it.
#[test]
fn nothing_falls_back_to_plain_text() {
    run(|| async { encryption().nothing_falls_back_to_plain_text(open).await });
}

/// OBX-107, IBX-128, H63: a certificate that the given root did not sign, or that is another host's, is refused.
#[test]
fn a_certificate_that_is_not_trusted_is_refused() {
    run(|| async { encryption().what_is_not_trusted_is_refused(open).await });
}
