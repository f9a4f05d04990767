use proptest::prelude::*;

use super::*;

fn table(topics: &[&str]) -> Result<RouteTable, Invalid> {
    RouteTable::new(topics.iter().map(|topic| Selector::topic(*topic)))
}

fn message(topic: &str, aggregate_type: &str, message_type: Option<&str>) -> Message {
    let message = Message::new(topic, "").aggregate_type(aggregate_type);
    message_type.into_iter().fold(message, Message::message_type)
}

fn complaints(selectors: impl IntoIterator<Item = Selector>) -> String {
    RouteTable::new(selectors).unwrap_err().to_string()
}

/// OBX-054.
#[test]
fn a_star_is_one_segment_and_two_are_any_number() {
    let cases = [
        ("order.created", "order.created", true),
        ("order.created", "order.Created", false),
        ("order.created", "order.created.eu", false),
        ("order.*", "order.created", true),
        ("order.*", "order", false),
        ("order.*", "order.created.eu", false),
        ("order.*", "orders.created", false),
        ("*.created", "order.created", true),
        ("*.created", "created", false),
        ("order.*.eu", "order.created.eu", true),
        ("order.**", "order", true),
        ("order.**", "order.created", true),
        ("order.**", "order.created.eu", true),
        ("order.**", "orders", false),
        ("order.*.**", "order", false),
        ("order.*.**", "order.created", true),
        ("order.*.**", "order.created.eu", true),
        ("*", "order", true),
        ("*", "order.created", false),
        ("**", "order", true),
        ("**", "order.created.eu", true),
    ];
    for (selector, topic, matches) in cases {
        let found = table(&[selector]).unwrap().find(&message(topic, "Order", None));
        assert_eq!(found.is_some(), matches, "{selector} and {topic}");
    }
}

/// OBX-054, HOT-05: exactly one, and the most specific.
#[test]
fn the_most_specific_selector_wins() {
    let selectors = [
        Selector::topic("**"),
        Selector::topic("order.**"),
        Selector::topic("order.*.**"),
        Selector::topic("order.*"),
        Selector::topic("order.*.eu"),
        Selector::pair("Order", "created"),
        Selector::message_type("created"),
        Selector::topic("order.created"),
    ];
    let cases = [
        ("payment", "Order", None, 0),
        ("order", "Order", None, 1),
        ("order.a.b", "Order", None, 2),
        ("order.a", "Order", None, 3),
        ("order.a.eu", "Order", None, 4),
        ("order.a.eu", "Order", Some("created"), 5),
        ("order.a.eu", GLOBAL_AGGREGATE, Some("created"), 6),
        ("order.a.eu", GLOBAL_AGGREGATE, Some("Created"), 4),
        ("order.a.eu", "order", Some("created"), 4),
        ("order.created", "Order", Some("created"), 7),
    ];
    let mut turned = selectors.to_vec();
    turned.reverse();
    let last = selectors.len() - 1;
    let (table, turned) = (RouteTable::new(selectors).unwrap(), RouteTable::new(turned).unwrap());
    for (topic, aggregate_type, message_type, index) in cases {
        assert_eq!(table.find(&message(topic, aggregate_type, message_type)), Some(index), "{topic}");
        assert_eq!(
            turned.find(&message(topic, aggregate_type, message_type)),
            Some(last - index),
            "{topic}, turned round"
        );
    }
}

/// HOT-18.
#[test]
fn a_second_selector_for_the_same_messages_is_named_with_the_first() {
    let pair = || Selector::pair("Order", "created");
    let text = complaints([pair(), Selector::topic("a"), pair()]);
    assert!(text.starts_with("route 1 (type `created` of `Order`) and 3 (type `created` of `Order`) match"), "{text}");
    let text = complaints([Selector::message_type("m"), Selector::pair(GLOBAL_AGGREGATE, "m")]);
    assert!(text.contains("1 (type `m`) and 2 (type `m`)"), "{text}");
    let text = complaints(["a.b", "a.b"].map(Selector::topic));
    assert!(text.contains("1 (topic `a.b`) and 2 (topic `a.b`)"), "{text}");
    let text = complaints(["a.*", "*.b"].map(Selector::topic));
    assert!(text.contains("1 (pattern `a.*`) and 2 (pattern `*.b`)"), "{text}");
    assert!(table(&["a.b.*", "a.*.c"]).is_err());
    assert!(table(&["a.*.**", "*.b.**"]).is_err());
    assert!(table(&["a.*", "b.*", "a.**", "b.**", "*.*", "**", "a.*.*"]).is_ok());
    assert!(RouteTable::new([Selector::pair("A", "m"), Selector::pair("B", "m"), Selector::message_type("m")]).is_ok());
}

/// Of equal selectors the one with more conditions gets the message.
#[test]
fn conditions_make_a_selector_more_specific() {
    let all = || Selector::topic("order.**");
    let table = RouteTable::new([
        all(),
        all().tenant("acme"),
        all().tenant("acme").header("region", "eu"),
        all().tenant("brick"),
        Selector::topic("order.paid").of_type("Paid"),
        Selector::pair("Order", "lost").tenant("acme"),
    ])
    .unwrap();
    let order = |topic: &str| Message::new(topic, "").aggregate_type("Order");
    let cases = [
        (order("order.a"), Some(0)),
        (order("order.a").tenant("acme"), Some(1)),
        (order("order.a").tenant("acme").header("region", "us"), Some(1)),
        (order("order.a").tenant("acme").header("region", "eu"), Some(2)),
        (order("order.a").tenant("brick").header("region", "eu"), Some(3)),
        (order("order.paid").tenant("acme"), Some(1)),
        (order("order.paid").tenant("acme").message_type("Paid"), Some(4)),
        (order("order.a").message_type("lost"), Some(0)),
        (order("order.a").message_type("lost").tenant("acme"), Some(5)),
        (order("payment").tenant("acme"), None),
    ];
    for (message, found) in cases {
        assert_eq!(table.find(&message), found, "{message:?}");
    }
}

/// HOT-18: conditions that one message can meet together do not tell two selectors apart.
#[test]
fn conditions_of_rivals_must_exclude_each_other() {
    let all = || Selector::topic("order.*");
    let text = complaints([all().tenant("acme"), all().header("region", "eu")]);
    assert!(text.contains("1 (pattern `order.*` with tenant `acme`)"), "{text}");
    assert!(text.contains("2 (pattern `order.*` with header region `eu`)"), "{text}");
    assert!(RouteTable::new([all().tenant("a"), all().tenant("b"), all()]).is_ok());
    assert!(RouteTable::new([all().of_type("a").tenant("t"), all().of_type("b").header("h", "1")]).is_ok());
    assert!(complaints([all().tenant("")]).contains("tenant must not be empty"));
}

#[test]
fn a_mismatch_has_a_reason() {
    let message = Message::new("order.created", "").tenant("acme");
    let table = [
        (Selector::topic("order.*").tenant("acme"), None),
        (Selector::topic("order.paid"), Some("topic `order.paid` does not match")),
        (Selector::topic("*"), Some("pattern `*` does not match")),
        (Selector::topic("order.*").tenant("b"), Some("tenant is `acme`, not `b`")),
        (Selector::topic("order.*").header("h", "1"), Some("there is no header h, and `1` is asked for")),
        (Selector::message_type("Paid"), Some("type `Paid` does not match")),
    ];
    for (selector, reason) in table {
        assert_eq!(selector.mismatch(&message).as_deref(), reason);
    }
}

#[test]
fn every_problem_is_named_at_once() {
    let long = "x".repeat(256);
    let selectors = ["", "a..b", ".a", "a.**.b", "ord*", "a.***", &long, "a\0", "ok", "ok"].map(Selector::topic);
    let types = [Selector::pair("", "m"), Selector::pair("A", ""), Selector::message_type(&long)];
    let invalid = RouteTable::new(selectors.into_iter().chain(types)).unwrap_err();
    let text: Vec<_> = invalid.problems().iter().map(ToString::to_string).collect();
    let starts = [
        "topic must not be empty",
        "topic `a..b` has an empty segment",
        "topic `.a` has an empty segment",
        "topic `a.**.b` has `**` before its end",
        "topic `ord*` has a star inside a segment",
        "topic `a.***` has a star inside a segment",
        "topic must have at most 255 characters, has 256",
        "topic must not contain NUL",
        "route 9 (topic `ok`) and 10 (topic `ok`)",
        "aggregate_type must not be empty",
        "message_type must not be empty",
        "message_type must have at most 255 characters, has 256",
    ];
    assert_eq!(text.len(), starts.len(), "{text:#?}");
    for (text, start) in text.iter().zip(starts) {
        assert!(text.starts_with(start), "{text}");
    }
}

#[test]
fn a_selector_has_a_short_name() {
    assert_eq!(Selector::topic("order.*").name(), "order.*");
    assert_eq!(Selector::topic("order.*").tenant("a").header("h", "1").name(), "order.* tenant=a header h=1");
    assert_eq!(Selector::pair("Order", "created").name(), "Order/created");
    assert_eq!(Selector::message_type("created").name(), "__GLOBAL__/created");
}

/// Written from the definition, without a thought for speed.
fn naive(pattern: &[&str], topic: &[&str]) -> bool {
    match (pattern.split_first(), topic.split_first()) {
        (Some((&"**", _)), _) => true,
        (Some((&"*", pattern)), Some((_, topic))) => naive(pattern, topic),
        (Some((literal, pattern)), Some((segment, topic))) => literal == segment && naive(pattern, topic),
        (None, None) => true,
        _ => false,
    }
}

fn matches_naively(pattern: &str, topic: &str) -> bool {
    let [pattern, topic] = [pattern, topic].map(|text| text.split('.').collect::<Vec<_>>());
    naive(&pattern, &topic)
}

fn topics() -> impl Strategy<Value = String> {
    prop::collection::vec("[ab]", 1..5).prop_map(|segments| segments.join("."))
}

fn patterns() -> impl Strategy<Value = String> {
    let segments = prop::collection::vec(prop_oneof![Just("a"), Just("b"), Just("*")], 0..4);
    (segments, any::<bool>()).prop_map(|(mut segments, open)| {
        if open || segments.is_empty() {
            segments.push("**");
        }
        segments.join(".")
    })
}

#[test]
fn a_table_agrees_with_a_naive_matcher() {
    proptest!(ProptestConfig::with_cases(2_000), |(patterns in prop::collection::vec(patterns(), 1..5), topic in topics())| {
        let Ok(table) = RouteTable::new(patterns.iter().map(Selector::topic)) else { return Ok(()) };
        let matching: Vec<_> = (0..patterns.len()).filter(|&index| matches_naively(&patterns[index], &topic)).collect();
        let found = table.find(&message(&topic, "Order", None));
        prop_assert_eq!(found.is_none(), matching.is_empty(), "{:?} {}", patterns, topic);
        if let Some(found) = found {
            prop_assert!(matching.contains(&found), "{patterns:?} {topic}");
            let specificity = |index: usize| {
                let literals = patterns[index].split('.').filter(|segment| !segment.contains('*')).count();
                (literals, !patterns[index].ends_with("**"), patterns[index].split('.').count())
            };
            for other in matching.into_iter().filter(|&other| other != found) {
                prop_assert!(specificity(found) > specificity(other), "{patterns:?} {topic}");
            }
        }
    });
}

/// HOT-18: whenever a topic could go either way, the table was refused, in whatever order it was given.
#[test]
fn no_ambiguity_is_overlooked() {
    proptest!(ProptestConfig::with_cases(2_000), |(one in patterns(), other in patterns(), topic in topics())| {
        let forth = table(&[&one, &other]);
        let back = table(&[&other, &one]);
        prop_assert_eq!(forth.is_err(), back.is_err());
        if matches_naively(&one, &topic) && matches_naively(&other, &topic) && forth.is_ok() {
            let (forth, back) = (forth?.find(&message(&topic, "A", None)), back?.find(&message(&topic, "A", None)));
            prop_assert_eq!(forth, back.map(|index| 1 - index), "{} {} {}", one, other, topic);
        }
    });
}

#[test]
fn who_can_get_messages_of_a_topic_is_known() {
    let table = RouteTable::new([
        Selector::topic("order.created"),
        Selector::topic("order.created").tenant("acme"),
        Selector::topic("order.*"),
        Selector::topic("order.paid").tenant("acme"),
        Selector::pair("Order", "shipped"),
        Selector::topic("audit.**").header("kind", "login"),
    ])
    .unwrap();
    let cases = [
        ("order.created", Some(vec![1, 0])),
        ("order.paid", Some(vec![3, 4, 2])),
        ("order.lost", Some(vec![4, 2])),
        ("audit.x", None),
        ("payment", None),
    ];
    for (topic, takers) in cases {
        assert_eq!(table.takers(topic), takers, "{topic}");
    }
    let mut named: Vec<_> = table.topics().collect();
    named.sort_unstable();
    assert_eq!(named, ["order.created", "order.paid"]);
}
