//! `pillarbox pause` and `resume`: what an operator says and sees, and a relay that obeys.

use pillarbox::admin::{Filter, ListQuery};
use pillarbox::outbox::State;
use pillarbox::pause::Halt;
use pillarbox::{Instance, OutboxStore};

use super::inbox::Place;
use super::relay::{Running, config};
use super::*;

/// WRK-08: a pause is told with since when, by whom and why, on every kind of database; both commands can be repeated.
#[test]
fn a_route_is_paused_and_resumed() {
    for place in Place::everywhere() {
        place.run(&["migrate"]);
        assert_eq!(place.run(&["resume", "orders"]), (0, "route orders: was not paused\n".to_owned()));
        assert_eq!(place.json(&["status"])["paused_routes"], serde_json::json!([]));
        let pause = ["pause", "orders", "--reason", "partner\u{1b} is down"];
        assert_eq!(place.run(&pause), (0, "route orders: paused\n".to_owned()));
        let (code, again) = place.run(&["pause", "orders", "--reason", "another"]);
        assert!(code == 0 && again.starts_with("route orders: was already paused since 20"), "{again}");
        assert!(again.contains(" ago) by ") && again.ends_with(": partner\\u{1b} is down\n"), "{again}");
        let json = place.json(&["pause", "orders"]);
        assert_eq!((&json["is_paused"], &json["is_served"]), (&true.into(), &Value::Null));
        assert_eq!(json["was_paused"]["reason"], "partner\u{1b} is down");

        let (code, status) = place.run(&["status"]);
        assert!(code == 0 && status.contains("\nroute orders: paused "), "{status}");
        assert!(status.contains(": partner\\u{1b} is down\n"), "{status}");
        let paused = &place.json(&["status"])["paused_routes"][0];
        assert_eq!((&paused["route"], &paused["paused_by"]), (&"orders".into(), &"operator".into()));

        let (code, resumed) = place.run(&["resume", "orders"]);
        assert!(code == 0 && resumed.starts_with("route orders: resumed, was paused since 20"), "{resumed}");
        let json = place.json(&["resume", "orders"]);
        assert_eq!((&json["is_paused"], &json["was_paused"]), (&false.into(), &Value::Null));
        assert!(!place.run(&["status"]).1.contains("paused"));
    }
}

/// WRK-08: what makes no sense is refused in one line, and tables that are missing are told.
#[test]
fn a_pause_that_makes_no_sense_is_refused() {
    let place = Place::sqlite();
    std::fs::write(place.url().strip_prefix("sqlite:").unwrap(), "").unwrap();
    for command in ["pause", "resume"] {
        let (code, line) = place.refused(&[command, "orders"]);
        assert!(code == 1 && line.contains("the tables do not exist: run `pillarbox migrate`"), "{line}");
    }
    place.run(&["migrate"]);
    for command in ["pause", "resume"] {
        let (code, line) = place.refused(&[command, ""]);
        assert!(code == 2 && line.contains("route must not be empty"), "{line}");
    }
    let (code, line) = place.refused(&["pause", "orders", "--inbox"]);
    assert!(code == 1 && line.contains("has no inbox"), "{line}");
}

/// OBX-091: the list is made by the first pause or by `migrate`, and printed and checked like others.
#[test]
fn migrate_makes_the_list_of_pauses_when_it_is_asked_to() {
    for place in Place::everywhere() {
        let (_, plain) = place.run(&["migrate"]);
        assert!(!plain.contains("pauses"), "{plain}");
        let (code, refused) = place.refused(&["migrate", "--check", "--pauses"]);
        assert!(code == 1 && refused.contains("--pauses"), "{refused}");
        let (_, made) = place.run(&["migrate", "--pauses", "--inbox"]);
        assert_eq!(made.matches("pauses: tables created, version 6").count(), 2, "{made}");
        assert!(place.run(&["migrate", "--print", "--pauses"]).1.contains("_pause"));
        assert!(!place.run(&["migrate", "--print"]).1.contains("_pause"));
        assert_eq!(place.run(&["pause", "mail", "--inbox"]).1, "route mail: paused\n");
        let status = place.json(&["status"]);
        assert_eq!(status["paused_routes"], serde_json::json!([]));
        assert_eq!(status["inbox"]["paused_routes"][0]["route"], "mail");
    }
}

/// WRK-08, H33: what instances tell of their routes is shown, and whether any has the one that is paused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_instances_tell_of_their_routes_is_shown() {
    let place = Place::sqlite();
    place.run(&["migrate", "--instances"]);
    let list = place.store().await.instances().unwrap();
    let (lasts, probe_in) = (Duration::from_secs(840), Duration::from_secs(3600));
    let halt = Halt { route: "order.*".into(), lasts, probe_in, reason: "broker refused connections".into() };
    let relay = Instance::new("relay", "host-1", 7).telling(&["order.*", "mail"], &[halt]);
    list.heartbeat(&relay).await.unwrap();
    let (_, status) = place.run(&["status"]);
    assert!(status.contains("route order.*: paused 14 min "), "{status}");
    assert!(status.contains(" ago, broker refused connections; next probe in "), "{status}");
    assert!(status.contains("(relay on host-1, pid 7)\n"), "{status}");
    let json = &place.json(&["status"])["paused_routes"][0];
    assert_eq!((&json["paused_by"], &json["reason"]), (&"instance".into(), &"broker refused connections".into()));

    assert_eq!(place.run(&["pause", "mail"]).1, "route mail: paused\n");
    let (code, unknown) = place.run(&["pause", "orders"]);
    let words = "route orders: paused\nno running instance has a route of this name; they have: mail, order.*\n";
    assert_eq!((code, unknown.as_str()), (0, words));
    assert_eq!(place.json(&["pause", "orders"])["is_served"], false);
    list.heartbeat(&Instance::new("older", "host-2", 8)).await.unwrap();
    assert_eq!(place.json(&["pause", "orders"])["is_served"], Value::Null, "one of them does not tell");
}

const ROUTES: &str = "[[routes]]\nname = \"orders\"\ntopic = \"order.*\"\nto = \"out\"\ndestination = \"-\"\n\
    [[routes]]\nname = \"mail\"\ntopic = \"mail\"\nto = \"out\"\ndestination = \"-\"\n";

/// WRK-08, BUS-09: a relay delivers nothing of a paused route and everything of the others, also after a restart, until the
/// route is resumed.
#[tokio::test(flavor = "multi_thread")]
async fn a_relay_obeys_a_pause_over_a_restart() {
    let (directory, url) = fresh();
    let orders: Vec<_> = (0..500).map(|number| Message::new("order.created", number.to_string())).collect();
    let store = store_with(&url, &orders).await;
    let path = config(&directory, &url, ROUTES);
    assert_eq!(code(&pillarbox(&["pause", "orders", "--url", &url])), 0);
    for round in ["one", "two"] {
        let mut relay = Running::start(&["--config", &path]);
        relay.says();
        store.enqueue(Enqueue::pending(&[Message::new("mail", round)])).await.unwrap();
        let message = relay.delivered();
        assert_eq!((&message["topic"], &message["payload"]), (&"mail".into(), &round.into()));
        relay.signal("TERM");
        assert!(relay.child.wait().unwrap().success());
    }
    let counts = store.overview().await.unwrap().total();
    assert_eq!((counts.pending, counts.processing, counts.done), (500, 0, 2));
    let query = ListQuery { state: State::Pending, filter: Filter::all(), after: None, limit: 1000 };
    let pending = store.list(&query).await.unwrap().messages;
    assert!(pending.iter().all(|message| message.attempts == 0), "no attempt is counted");

    let mut relay = Running::start(&["--config", &path]);
    relay.says();
    assert_eq!(code(&pillarbox(&["resume", "orders", "--url", &url])), 0);
    for _ in 0..500 {
        assert_eq!(relay.delivered()["topic"], "order.created");
    }
}
