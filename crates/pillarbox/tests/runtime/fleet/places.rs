//! Tenants from a table, on every database that has one.

use std::time::Duration;

use pillarbox::prelude::*;
use pillarbox::sqlite::SqliteStore;
use pillarbox::{Discovery, Fleet, Tenants};
use uuid::Uuid;

use super::support::*;
use crate::witness::Witness;

/// Serves two tenants of a table, sees one go and another come, and finds one that was entered wrongly left out.
async fn served(fleet: &Fleet, told: &mut tokio::sync::mpsc::UnboundedReceiver<String>, tenants: [Uuid; 2]) {
    for tenant in tenants {
        fleet.router().outbox(tenant).unwrap().enqueue_now(Message::new("work", "")).await.unwrap();
        assert_eq!(told.recv().await.unwrap(), tenant.to_string());
    }
    fleet.idle().await;
    for tenant in tenants {
        assert_eq!(fleet.stats(tenant).unwrap().outbox.unwrap().done_count, 1);
    }
}

/// OBX-075, OBX-077, OBX-078.
#[tokio::test]
async fn tenants_come_from_a_table_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let address = |name: &str| format!("sqlite:{}", folder.path().join(name).with_extension("db").display());
    let directory = SqliteStore::connect(&address("directory"), StoreOptions::default()).await.unwrap();
    sqlx::query("create table tenant (key text, address text)").execute(directory.pool()).await.unwrap();
    let [one, other] = [1, 2].map(|_| Uuid::now_v7());
    let insert = async |key: Option<String>, address: Option<String>| {
        let insert = sqlx::query("insert into tenant (key, address) values (?, ?)").bind(key).bind(address);
        insert.execute(directory.pool()).await.unwrap();
    };
    insert(Some(one.to_string()), Some(address("one"))).await;
    insert(Some(other.to_string().to_uppercase()), Some(address("other"))).await;
    insert(None, Some(address("nobody"))).await;
    insert(Some("nowhere".into()), None).await;
    let tenants = || Tenants::from_query(address("directory"), "select key, address from tenant");
    let (builder, mut told) = telling(quiet_fleet().discover(tenants()));
    let fleet = builder.start().await.unwrap();
    assert_eq!(fleet.stores().len(), 2);
    served(&fleet, &mut told, [one, other]).await;
    sqlx::query("delete from tenant where key = ?").bind(one.to_string()).execute(directory.pool()).await.unwrap();
    let refreshed = fleet.refresh().await.unwrap();
    assert_eq!((names(&refreshed.removed), refreshed.kept.len()), (vec![one.to_string().as_str()], 1));
    assert_eq!(refreshed.failed[0].0.as_str(), "nowhere");

    for query in ["select key from tenant", "select no_such_column, address from tenant"] {
        assert!(Tenants::from_query(address("directory"), query).discover().await.is_err(), "{query}");
    }
    assert!(Tenants::from_query(address("missing"), "select 1, 2").discover().await.is_err());
    assert!(!folder.path().join("missing.db").exists());
    fleet.shutdown(Duration::from_secs(5)).await;
}

/// OBX-075, OBX-078: a row that was spoilt is no tenant that left: it is served where it was, and somebody is told.
#[tokio::test]
async fn a_tenant_whose_row_is_spoilt_is_still_served() {
    let witness = Witness::default();
    let _watch = witness.watch();
    let folder = tempfile::tempdir().unwrap();
    let address = |name: &str| format!("sqlite:{}", folder.path().join(name).with_extension("db").display());
    let directory = SqliteStore::connect(&address("directory"), StoreOptions::default()).await.unwrap();
    let run = async |sql: String| sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(directory.pool()).await.unwrap();
    run("create table tenant (key text, address text, schema text)".into()).await;
    run(format!("insert into tenant values ('eu', '{}', 'shop')", address("eu"))).await;
    let tenants = Tenants::from_query(address("directory"), "select key, address, schema from tenant");
    let (builder, mut told) = telling(quiet_fleet().discover(tenants));
    let fleet = builder.start().await.unwrap();
    run("update tenant set schema = 'no name; at all'".into()).await;
    run(format!("insert into tenant values ('us', '{}', 'nor this')", address("us"))).await;
    let refreshed = fleet.refresh().await.unwrap();
    assert!(refreshed.removed.is_empty(), "{refreshed:?}");
    assert_eq!(refreshed.failed.iter().map(|(key, _)| key.as_str()).collect::<Vec<_>>(), ["eu", "us"]);
    fleet.router().outbox("eu").unwrap().enqueue_now(Message::new("work", "")).await.unwrap();
    assert_eq!(told.recv().await.unwrap(), "eu");
    let lines = witness.lines();
    let warned = lines.iter().filter(|line| line.starts_with("WARN a store cannot be served"));
    assert_eq!(warned.count(), 2, "{lines:#?}");

    run("update tenant set schema = 'shop' where key = 'eu'".into()).await;
    assert_eq!(names(&fleet.refresh().await.unwrap().kept), ["eu"]);
    fleet.shutdown(Duration::from_secs(5)).await;
}

/// OBX-075, OBX-077: keys are UUIDs, and tenants share a database under schemas of their own.
#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_come_from_a_table_on_postgres() {
    let (directory, _folder) = crate::acceptance::outbox::<crate::acceptance::Postgres>().await;
    let (pool, schema) =
        (directory.store().pool(), OutboxStore::options(directory.store()).naming.schema().to_string());
    let url = crate::acceptance::url("PILLARBOX_TEST_POSTGRES_URL");
    let create = format!("create table {schema}.tenant (key uuid, address text, schema text)");
    sqlx::query(sqlx::AssertSqlSafe(create)).execute(pool).await.unwrap();
    let tenants = [1, 2].map(|_| Uuid::now_v7());
    for (number, tenant) in tenants.iter().enumerate() {
        let insert = format!("insert into {schema}.tenant values ($1, $2, $3)");
        let insert =
            sqlx::query(sqlx::AssertSqlSafe(insert)).bind(tenant).bind(&url).bind(format!("{schema}_{number}"));
        insert.execute(pool).await.unwrap();
    }
    let query = format!("select key, address, schema from {schema}.tenant");
    let (builder, mut told) = telling(quiet_fleet().discover(Tenants::from_query(&url, query)));
    let fleet = builder.start().await.unwrap();
    served(&fleet, &mut told, tenants).await;
    for (number, tenant) in tenants.iter().enumerate() {
        let outbox = fleet.router().outbox_of::<pillarbox::postgres::PostgresStore>(*tenant).unwrap();
        assert_eq!(OutboxStore::options(outbox.store()).naming.schema().as_str(), format!("{schema}_{number}"));
        assert!(!fleet.stats(*tenant).unwrap().outbox.unwrap().has_wakeups, "no connection is kept for wake-ups");
    }
    fleet.shutdown(Duration::from_secs(5)).await;
}

/// OBX-075, OBX-077.
#[cfg(feature = "mysql")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tenants_come_from_a_table_on_mysql() {
    let (directory, _folder) = crate::acceptance::outbox::<crate::acceptance::Mysql>().await;
    let (pool, schema) =
        (directory.store().pool(), OutboxStore::options(directory.store()).naming.schema().to_string());
    let url = crate::acceptance::url("PILLARBOX_TEST_MYSQL_URL");
    let create = format!("create table {schema}_tenant (`key` char(36), address varchar(500), prefix varchar(40))");
    sqlx::query(sqlx::AssertSqlSafe(create)).execute(pool).await.unwrap();
    let tenants = [1, 2].map(|_| Uuid::now_v7());
    for (number, tenant) in tenants.iter().enumerate() {
        let insert = format!("insert into {schema}_tenant values (?, ?, ?)");
        let insert = sqlx::query(sqlx::AssertSqlSafe(insert));
        let insert = insert.bind(tenant.to_string()).bind(&url).bind(format!("{schema}_{number}"));
        insert.execute(pool).await.unwrap();
    }
    let query = format!("select `key`, address, prefix from {schema}_tenant");
    let (builder, mut told) = telling(quiet_fleet().discover(Tenants::from_query(&url, query)));
    let fleet = builder.start().await.unwrap();
    served(&fleet, &mut told, tenants).await;
    fleet.shutdown(Duration::from_secs(5)).await;
}

/// OBX-066, OBX-071, IBX-085, IBX-090: three kinds of databases, outboxes and inboxes, one set of handlers.
#[cfg(all(feature = "postgres", feature = "mysql"))]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_fleet_serves_all_kinds_of_databases() {
    use pillarbox::naming::Naming;
    use pillarbox::{Served, StorePlace};

    let folder = tempfile::tempdir().unwrap();
    let schema = format!("f_{}", &Uuid::now_v7().simple().to_string()[16..]);
    let places = [
        ("mysql", crate::acceptance::url("PILLARBOX_TEST_MYSQL_URL")),
        ("postgres", crate::acceptance::url("PILLARBOX_TEST_POSTGRES_URL")),
        ("sqlite", format!("sqlite:{}", folder.path().join("shop.db").display())),
    ];
    let naming = Naming::new(schema, "outbox").unwrap();
    let place = |(key, address): &(&str, String)| StorePlace::new(*key, address).unwrap().naming(naming.clone());
    let listed = Listed::new(places.iter().map(place).collect());
    let (sender, mut told) = tokio::sync::mpsc::unbounded_channel();
    let builder = quiet_fleet().discover(listed.clone()).serve(Served::Both).wakeups();
    let builder = builder.on_topic("work", move |cx: Context| {
        let sender = sender.clone();
        async move {
            sender.send((cx.routing_key().map(ToString::to_string), cx.store_id().to_string()))?;
            Ok(())
        }
    });
    let fleet = builder.start().await.unwrap();
    assert_eq!(names(&fleet.stores()), ["mysql", "postgres", "sqlite"]);
    for (key, _) in &places {
        fleet.router().outbox(*key).unwrap().enqueue_now(Message::new("work", "")).await.unwrap();
        assert_eq!(told.recv().await.unwrap(), (Some((*key).to_owned()), (*key).to_owned()));
        let incoming = Incoming::new(Receipt::new("shop", "1"), Message::new("work", ""));
        fleet.router().inbox(*key).unwrap().receive(&[incoming]).await.unwrap();
        assert_eq!(told.recv().await.unwrap(), (Some((*key).to_owned()), format!("{key}/inbox")));
    }
    while !fleet.stats("postgres").unwrap().outbox.unwrap().has_wakeups {
        tokio::task::yield_now().await;
    }
    assert_eq!(fleet.refresh().await.unwrap().kept.len(), 3);
    listed.answer(Ok(Vec::new()));
    assert_eq!(fleet.refresh().await.unwrap().removed.len(), 3);
    fleet.shutdown(Duration::from_secs(5)).await;
}

/// H54.
#[test]
fn no_debug_text_shows_the_address_of_the_directory() {
    let tenants = Tenants::from_query("postgres://user:canary@db/directory", "select 1, 2");
    assert!(!format!("{tenants:?} {:?}", Fleet::builder().discover(Listed::new(Vec::new()))).contains("canary"));
}
