//! Deploying and checking the tables.

use pillarbox_core::naming::Naming;
use pillarbox_core::schema::{SchemaPolicy, SchemaStatus};

use super::support::*;
use crate::Harness;

/// Names in this test's schema that no table has yet.
fn beside<H: Harness>(h: &H, table: &str, schema: SchemaPolicy) -> StoreOptions {
    let own = h.store().options().naming.schema().as_str();
    StoreOptions { naming: Naming::new(own, table).expect("the names are legal"), schema, ..options() }
}

fn with(schema: SchemaPolicy) -> StoreOptions {
    StoreOptions { schema, ..options() }
}

async fn status(store: &impl SchemaAdmin) -> SchemaStatus {
    store.check_schema().await.expect("the schema can be checked")
}

async fn version(store: &impl SchemaAdmin) -> u32 {
    match status(store).await {
        SchemaStatus::Current(version) => version,
        other => panic!("{other}"),
    }
}

/// `Deploy` creates what is needed to work; deploying again changes nothing and loses nothing.
/// OBX-091, OBX-093, OBX-094, BUS-04.
pub async fn a_deployment_can_be_repeated<H: Harness>() {
    let h = start::<H>().await;
    let batch = messages(1);
    enqueue(h.store(), &batch).await;
    let first = version(h.store()).await;
    assert!(first >= 1);
    assert_eq!(h.store().deploy_schema().await.expect("a deployment can be repeated"), first);
    let other = h.connect(with(SchemaPolicy::Deploy)).await.expect("a second process can connect");
    assert_eq!(ids_of(&claim(&other, OwnerToken::new(), 10).await), ids(&batch));
}

/// `Check` creates nothing: it refuses to start without tables and says what to do. OBX-092.
pub async fn check_creates_nothing<H: Harness>() {
    let h = start::<H>().await;
    let refused = h.connect_as_is(beside(&h, "b", SchemaPolicy::Check)).await.expect_err("there are no tables");
    assert!(!refused.is_transient());
    assert!(refused.to_string().contains("pillarbox migrate"), "{refused}");
    let looking = h.connect_as_is(beside(&h, "b", SchemaPolicy::Assume)).await.expect("it looks at nothing");
    assert_eq!(status(&looking).await, SchemaStatus::Missing);
    h.connect(with(SchemaPolicy::Check)).await.expect("the tables of the test are current");
}

/// `Assume` creates nothing and looks at nothing; the first call on missing tables says what to do. OBX-092.
pub async fn assume_looks_at_nothing<H: Harness>() {
    let h = start::<H>().await;
    let blind = h.connect_as_is(beside(&h, "b", SchemaPolicy::Assume)).await.expect("it looks at nothing");
    let owner = OwnerToken::new();
    for refused in [
        blind.claim(claim_of(owner, 1)).await.expect_err("there are no tables"),
        blind.enqueue(Enqueue::pending(&messages(1))).await.expect_err("there are no tables"),
        blind.overview().await.expect_err("there are no tables"),
    ] {
        assert!(!refused.is_transient(), "{refused}");
        assert!(refused.to_string().contains("pillarbox migrate"), "{refused}");
    }
    assert_eq!(status(&blind).await, SchemaStatus::Missing);
    let newer = version(h.store()).await + 1;
    h.set_schema_version(newer).await;
    h.connect(with(SchemaPolicy::Assume)).await.expect("it looks at nothing");
}

/// Tables that are newer than the program are refused on connect and not touched. OBX-091, H21.
pub async fn a_newer_schema_is_refused_and_not_touched<H: Harness>() {
    let h = start::<H>().await;
    let expected = version(h.store()).await;
    let found = expected + 1;
    h.set_schema_version(found).await;
    for policy in [SchemaPolicy::Deploy, SchemaPolicy::Check] {
        let refused = h.connect(with(policy)).await.expect_err("the tables are newer");
        assert!(!refused.is_transient());
        assert!(refused.to_string().contains("upgrade the program"), "{refused}");
    }
    assert!(h.store().deploy_schema().await.is_err());
    assert_eq!(status(h.store()).await, SchemaStatus::Ahead { found, expected });
}

/// Tables that are older than the program are refused by `Check` and brought up by `Deploy`, with all messages. OBX-091, H21.
pub async fn an_older_schema_is_brought_up<H: Harness>() {
    let h = start::<H>().await;
    let expected = version(h.store()).await;
    assert!(expected > 1, "there is an older version");
    let batch = messages(1);
    enqueue(h.store(), &batch).await;
    // A crash between a step and its record leaves just this: the step must bear to be run again.
    let found = expected - 1;
    h.set_schema_version(found).await;
    assert_eq!(status(h.store()).await, SchemaStatus::Behind { found, expected });
    let refused = h.connect(with(SchemaPolicy::Check)).await.expect_err("the tables are older");
    assert!(refused.to_string().contains("pillarbox migrate"), "{refused}");
    assert_eq!(h.store().deploy_schema().await.expect("the tables can be upgraded"), expected);
    assert_eq!(status(h.store()).await, SchemaStatus::Current(expected));
    assert_eq!(ids_of(&claim(h.store(), OwnerToken::new(), 10).await), ids(&batch));
}

/// Eight instances that start at once on an empty database all come up, on one set of tables. OBX-083, OBX-093, BUS-04.
pub async fn eight_instances_deploy_at_once<H: Harness>() {
    let h = std::sync::Arc::new(start::<H>().await);
    let stores =
        at_once(
            (0..8).map(|_| {
                let h = h.clone();
                async move {
                    h.connect_as_is(beside(&*h, "b", SchemaPolicy::Deploy)).await.expect("every instance comes up")
                }
            }),
        )
        .await;
    let batch = messages(8);
    for (store, message) in stores.iter().zip(&batch) {
        enqueue(store, std::slice::from_ref(message)).await;
    }
    assert_eq!(ids_of(&claim(&stores[0], OwnerToken::new(), 10).await), ids(&batch));
    assert_eq!(version(&stores[7]).await, version(h.store()).await);
}

/// Two outboxes with names of their own live side by side in one database and do not meet. BUS-04.
pub async fn two_outboxes_do_not_meet<H: Harness>() {
    let h = start::<H>().await;
    let other = h.connect_as_is(beside(&h, "b", SchemaPolicy::Deploy)).await.expect("a second outbox can be made");
    let [mine, theirs] = [messages(1), messages(1)];
    enqueue(h.store(), &mine).await;
    enqueue(&other, &theirs).await;
    assert_eq!(place(&other, Enqueue::pending(&mine)).await.len(), 1, "the id is new to the other outbox");
    assert_eq!(ids_of(&claim(h.store(), OwnerToken::new(), 10).await), ids(&mine));
    assert_eq!(ids_of(&claim(&other, OwnerToken::new(), 10).await), [theirs[0].id(), mine[0].id()]);
    h.set_schema_version(version(&other).await + 1).await;
    assert!(matches!(status(&other).await, SchemaStatus::Current(_)), "each has a version of its own");
}

/// The script for a DBA names the tables as they are configured. OBX-094.
pub async fn the_script_names_the_configured_tables<H: Harness>() {
    let h = start::<H>().await;
    let other = h.connect_as_is(beside(&h, "billing", SchemaPolicy::Assume)).await.expect("it looks at nothing");
    let script = other.schema_script();
    assert!(script.contains("billing"), "{script}");
    assert_ne!(script, h.store().schema_script());
}

/// Settings that no store can keep are refused before anything is created. H49.
pub async fn impossible_limits_are_refused<H: Harness>() {
    let h = start::<H>().await;
    let mut bad = beside(&h, "b", SchemaPolicy::Deploy);
    bad.limits.payload_bytes_max = pillarbox_core::Limits::PAYLOAD_BYTES_CEILING + 1;
    bad.limits.batch_max = 0;
    assert_eq!(refused_fields(h.connect_as_is(bad).await), ["payload_bytes_max", "batch_max"]);
    let looking = h.connect_as_is(beside(&h, "b", SchemaPolicy::Assume)).await.expect("it looks at nothing");
    assert_eq!(status(&looking).await, SchemaStatus::Missing);
}

/// Names that could carry SQL cannot be made, so that none reaches a statement. H53, BUS-04.
pub async fn names_that_could_carry_sql_are_refused<H: Harness>() {
    let h = start::<H>().await;
    for name in ["", "a b", "a\"; drop table x; --", "a`b", "a'b", "[a]", "1a", "ä", "a\0", "a.b", &"a".repeat(64)] {
        let refused = Naming::new(h.store().options().naming.schema().as_str(), name);
        assert!(refused.is_err(), "{name:?} must be refused");
    }
    // Words that mean something in SQL are names like others.
    for name in ["select", "Table", "_1"] {
        let store = h.connect_as_is(beside(&h, name, SchemaPolicy::Deploy)).await.expect("the name is legal");
        enqueue(&store, &messages(1)).await;
        assert_eq!(claim(&store, OwnerToken::new(), 10).await.len(), 1, "{name:?}");
    }
}

/// A store says which one it is: by the name given, else by one that is not empty. OBX-070.
pub async fn a_store_has_a_name<H: Harness>() {
    let h = start::<H>().await;
    assert!(!h.store().id().as_str().is_empty());
    assert_eq!(another(&h).await.id(), h.store().id(), "the name is the same for every process");
    let store_id = Some(pillarbox_core::StoreId::new("orders-eu").expect("the name is legal"));
    let named = h.connect(StoreOptions { store_id, ..options() }).await.expect("a second process can connect");
    assert_eq!(named.id().as_str(), "orders-eu");
}
