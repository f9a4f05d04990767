//! Who serves a queue: its table, and the list as an operator sees it.

use std::time::Duration;

use pillarbox::Instance;

use super::inbox::Place;

/// WRK-03: the table is made when it is asked for, printed, checked and upgraded like others, and never by itself.
#[test]
fn migrate_makes_the_list_of_instances_when_it_is_asked_to() {
    for place in Place::everywhere() {
        assert_eq!(place.run(&["migrate"]).0, 0);
        assert_eq!(place.run(&["instances"]), (0, "no instance is registered\n".to_owned()));
        let (_, checked) = place.run(&["migrate", "--check"]);
        assert!(!checked.contains("instances"), "{checked}");
        let (code, refused) = place.refused(&["migrate", "--check", "--instances"]);
        assert_eq!(code, 1);
        assert!(refused.contains("the tables do not exist") && refused.contains("--instances"), "{refused}");
        let (_, made) = place.run(&["migrate", "--instances", "--inbox"]);
        assert_eq!(made.matches("instances: tables created, version 4").count(), 2, "{made}");
        let (_, again) = place.run(&["migrate"]);
        assert_eq!(again.matches("instances: nothing to do, the tables have version 4").count(), 2, "{again}");
        let (_, printed) = place.run(&["migrate", "--print", "--instances"]);
        assert!(printed.contains("_instance") && printed.matches("outbox_shelf").count() > 0, "{printed}");
        assert!(!place.run(&["migrate", "--print"]).1.contains("_instance"));
    }
}

/// WRK-11: so are the tables of the work coordinator.
#[test]
fn migrate_makes_the_tables_of_progress_when_it_is_asked_to() {
    for place in Place::everywhere() {
        let (_, plain) = place.run(&["migrate"]);
        assert!(!plain.contains("progress"), "{plain}");
        let (code, refused) = place.refused(&["migrate", "--check", "--progress"]);
        assert!(code == 1 && refused.contains("the tables do not exist"), "{refused}");
        let (_, made) = place.run(&["migrate", "--progress"]);
        assert_eq!(made.matches("progress: tables created, version 5").count(), 1, "{made}");
        let (_, again) = place.run(&["migrate"]);
        assert_eq!(again.matches("progress: nothing to do, the tables have version 5").count(), 1, "{again}");
        let (_, printed) = place.run(&["migrate", "--print", "--progress"]);
        assert!(printed.contains("_receptor") && printed.contains("_checkpoint"), "{printed}");
        assert!(!place.run(&["migrate", "--print"]).1.contains("_receptor"));
    }
}

/// WRK-03, H62: live and silent ones are listed with what they said, and nothing of it steers the terminal.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn instances_are_listed_with_what_they_said() {
    for place in Place::everywhere() {
        place.run(&["migrate", "--instances"]);
        let list = place.store().await.instances().unwrap();
        let evil = Instance::new("orders\u{1b}[2J", "host-1", 4711).version("1.2").metadata("zone", "\u{202e}eu");
        let plain = Instance::new("billing", "host-2", 1);
        for instance in [&evil, &plain] {
            list.heartbeat(instance).await.unwrap();
        }
        let (code, text) = place.run(&["instances"]);
        let lines: Vec<_> = text.lines().collect();
        assert_eq!((code, lines.len()), (0, 3), "{text}");
        assert!(lines[0].starts_with("id") && lines[0].ends_with("state   metadata"), "{text}");
        assert!(lines[1].starts_with(&evil.id().to_string()) && lines[1].contains("orders\\u{1b}[2J   1.2"), "{text}");
        assert!(lines[1].ends_with("live    zone=\\u{202e}eu"), "{text}");
        let json = place.json(&["instances"]);
        let [first, second] = &json["instances"].as_array().unwrap()[..] else { panic!("{json}") };
        assert_eq!((&first["service"], &first["metadata"]["zone"]), (&"orders\u{1b}[2J".into(), &"\u{202e}eu".into()));
        assert_eq!((&second["host"], &second["pid"], &second["version"]), (&"host-2".into(), &1.into(), &().into()));
        assert_eq!(second["state"], "live");
        // Nobody is heard of within no time at all.
        let json = place.json(&["instances", "--stale-after", "0"]);
        assert_eq!(json["instances"][0]["state"], "stale");
        assert!(list.live(Duration::from_secs(3600)).await.unwrap().len() == 2, "looking changes nothing");
    }
}

/// WRK-03: the inbox has a list of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_instances_of_the_inbox_are_listed_apart() {
    let place = Place::sqlite();
    place.run(&["migrate", "--inbox"]);
    let inbox = place.inbox().await;
    let list = inbox.queue().instances().unwrap();
    list.deploy_schema().await.unwrap();
    list.heartbeat(&Instance::new("receiver", "host", 1)).await.unwrap();
    assert_eq!(place.json(&["instances", "--inbox"])["instances"][0]["service"], "receiver");
    assert_eq!(place.run(&["instances"]).1, "no instance is registered\n");
}
