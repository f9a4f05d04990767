//! The receiver as a sender meets it.

use axum::body::Body;
use axum::http::{Request, StatusCode};
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use tower::ServiceExt as _;

use super::*;

const SECRET: &str = "whsec_test";

fn delivery(id: &str, secret: &str) -> Request<Body> {
    let body = format!(r#"{{"id":"{id}","type":"payment.succeeded","data":{{"invoice":7}}}}"#);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(format!("{now}.{body}").as_bytes());
    let hex: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
    Request::post("/webhooks/stripe")
        .header("stripe-signature", format!("t={now},v1={hex}"))
        .body(Body::from(body))
        .unwrap()
}

/// WRK-10: a delivery that comes twice takes effect once; one that is not signed, never.
#[tokio::test]
async fn a_delivery_takes_effect_once() {
    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite:{}", folder.path().join("webhooks.db").display());
    let (router, runtime, outbox) = start(&url, SECRET).await.unwrap();
    for (id, secret, status) in [
        ("evt_1", SECRET, StatusCode::OK),
        ("evt_1", SECRET, StatusCode::OK),
        ("evt_2", "another", StatusCode::UNAUTHORIZED),
        ("evt_3", SECRET, StatusCode::OK),
    ] {
        assert_eq!(router.clone().oneshot(delivery(id, secret)).await.unwrap().status(), status, "{id}");
        runtime.idle().await;
    }
    let paid: i64 = sqlx::query_scalar("select count(*) from payments").fetch_one(outbox.store().pool()).await.unwrap();
    assert_eq!(paid, 2);
    runtime.shutdown(Duration::from_secs(5)).await;
}
