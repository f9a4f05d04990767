//! Encrypted connections to MySQL and MariaDB: by an address that demands them there are no others.

use pillarbox_core::schema::SchemaPolicy;
use pillarbox_core::store::StoreOptions;
use pillarbox_core::{ErrorKind, OutboxStore as _, OwnerToken, StoreError, StoreTransaction as _, Transactional as _};
use pillarbox_mysql::MysqlStore;
use pillarbox_testing::{Encryption, use_everything};
use sqlx::{Executor as _, Row as _};

use crate::harness::{encrypted_url, fresh_naming, url};
use crate::hazards::claim;

fn encryption() -> Encryption {
    Encryption {
        encrypted: encrypted_url(),
        plain: url(),
        mode: "ssl-mode",
        modes: ["PREFERRED", "REQUIRED", "VERIFY_CA", "VERIFY_IDENTITY"],
        root: "ssl-ca",
    }
}

async fn open(address: &str) -> Result<(), StoreError> {
    let options = StoreOptions { schema: SchemaPolicy::Assume, ..StoreOptions::default() };
    MysqlStore::connect(address, options).await.map(drop)
}

/// OBX-107, IBX-128, H63: by an address that demands encryption, everything works on a server that takes nothing else, and
/// the server says of a connection of the pool and of a transaction that it is encrypted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_address_that_demands_encryption_gets_nothing_else() {
    let good = encrypted_url();
    let plain = good.replace("VERIFY_IDENTITY", "DISABLED");
    let refused = MysqlStore::connect(&plain, StoreOptions::default()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Rejected, "{refused}");
    let options = StoreOptions { naming: fresh_naming(), ..StoreOptions::default() };
    let store = MysqlStore::connect(&good, options).await.unwrap();
    use_everything(&store).await.unwrap();
    // Nobody can look at its connections; the server would have refused plain ones.
    store.detached().await.unwrap().claim(claim(OwnerToken::new(), 1)).await.unwrap();
    let mut tx = store.begin().await.unwrap();
    let mut pooled = store.pool().acquire().await.unwrap();
    for connection in [tx.connection(), &mut *pooled] {
        let row = connection.fetch_one("SHOW SESSION STATUS LIKE 'Ssl_cipher'").await.unwrap();
        assert!(!row.try_get_unchecked::<String, _>(1).unwrap().is_empty());
    }
    tx.commit().await.unwrap();
}

/// OBX-107, IBX-128, H63: a server that offers no encryption is refused by an address that demands it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_falls_back_to_plain_text() {
    encryption().nothing_falls_back_to_plain_text(open).await;
}

/// OBX-107, IBX-128, H63: a certificate that the given root did not sign, or that is another host's, is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_certificate_that_is_not_trusted_is_refused() {
    encryption().what_is_not_trusted_is_refused(open).await;
}
