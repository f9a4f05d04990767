//! The service as a client meets it, on both databases.

use axum::body::{Body, to_bytes};
use axum::http::{Request, header};
use sqlx::{Connection as _, PgConnection};
use tower::ServiceExt as _;

use super::*;

async fn ask(router: &Router, request: Request<Body>) -> (StatusCode, Value) {
    let response = router.clone().oneshot(request).await.unwrap();
    let status = response.status();
    let body = to_bytes(response.into_body(), 1 << 20).await.unwrap();
    (status, serde_json::from_slice(&body).unwrap())
}

fn order(id: i64) -> Request<Body> {
    let body = json!({ "id": id, "customer": "ada@example.org", "total_cents": 999 }).to_string();
    Request::post("/orders").header(header::CONTENT_TYPE, "application/json").body(Body::from(body)).unwrap()
}

async fn orders_are_placed_and_mailed(url: &str) {
    let (router, runtime) = start(url).await.unwrap();
    for id in [1, 2] {
        assert_eq!(ask(&router, order(id)).await, (StatusCode::CREATED, json!({ "id": id })));
    }
    assert_eq!(ask(&router, order(2)).await.0, StatusCode::CONFLICT);
    runtime.idle().await;
    let (status, orders) = ask(&router, Request::get("/orders").body(Body::empty()).unwrap()).await;
    assert_eq!(status, StatusCode::OK);
    let mailed = |id: i64| json!({ "id": id, "customer": "ada@example.org", "total_cents": 999, "is_mailed": true });
    assert_eq!(orders, json!([mailed(1), mailed(2)]));
    assert_eq!(runtime.stats().done_count, 2, "the refused order has no message");
    runtime.shutdown(Duration::from_secs(5)).await;
}

/// BUS-13, HOT-23.
#[tokio::test]
async fn orders_are_placed_and_mailed_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    orders_are_placed_and_mailed(&format!("sqlite:{}", folder.path().join("orders.db").display())).await;
}

/// BUS-13, HOT-23: in a database of its own.
#[tokio::test]
async fn orders_are_placed_and_mailed_on_postgres() {
    let server = std::env::var("PILLARBOX_TEST_POSTGRES_URL").expect("PILLARBOX_TEST_POSTGRES_URL names a server");
    let name = format!("orders_{}", uuid::Uuid::new_v4().simple());
    let mut admin = PgConnection::connect(&server).await.unwrap();
    let run = async |connection: &mut PgConnection, sql: String| {
        sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(connection).await.unwrap();
    };
    run(&mut admin, format!("create database {name}")).await;
    let (address, _) = server.rsplit_once('/').unwrap();
    orders_are_placed_and_mailed(&format!("{address}/{name}")).await;
    run(&mut admin, format!("drop database {name} with (force)")).await;
}
