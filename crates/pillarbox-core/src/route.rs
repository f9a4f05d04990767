//! Which handler a message goes to: the most specific selector that matches it, and never two.

mod condition;

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;

use crate::message::{GLOBAL_AGGREGATE, Message};
use crate::problem::{Invalid, Problem};
use condition::{Conditions, Field};

/// The longest topic, pattern or type name of a selector, in characters.
pub const SELECTOR_CHARS_MAX: usize = 255;

/// What a handler is registered for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Selector {
    kind: Kind,
    conditions: Conditions,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Kind {
    Topic(String),
    Pattern(String),
    Pair { aggregate_type: String, message_type: String },
}

impl Selector {
    /// A topic, or a pattern when one of its segments (divided by `.`) is a star.
    ///
    /// `*` stands for exactly one segment. `**` stands for any number of them, also none, and only at the end.
    pub fn topic(topic: impl Into<String>) -> Self {
        let topic = topic.into();
        Self::of(if topic.contains('*') { Kind::Pattern(topic) } else { Kind::Topic(topic) })
    }

    /// Messages of one type about one kind of aggregate, whatever their topic.
    pub fn pair(aggregate_type: impl Into<String>, message_type: impl Into<String>) -> Self {
        Self::of(Kind::Pair { aggregate_type: aggregate_type.into(), message_type: message_type.into() })
    }

    /// Messages of one type that belong to no aggregate.
    pub fn message_type(message_type: impl Into<String>) -> Self {
        Self::pair(GLOBAL_AGGREGATE, message_type)
    }

    /// Of these only the messages of one type.
    pub fn of_type(mut self, message_type: impl Into<String>) -> Self {
        self.conditions.set(Field::MessageType, message_type.into());
        self
    }

    /// Of these only the messages of one tenant.
    pub fn tenant(mut self, tenant: impl Into<String>) -> Self {
        self.conditions.set(Field::Tenant, tenant.into());
        self
    }

    /// Of these only the messages that have a header with this value.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.conditions.set(Field::Header(name.into()), value.into());
        self
    }

    /// A short name for logs and metrics: the topic or pattern, or `aggregate type/message type`, and the conditions.
    pub fn name(&self) -> String {
        let conditions = self.conditions.name();
        match &self.kind {
            Kind::Topic(topic) | Kind::Pattern(topic) => format!("{topic}{conditions}"),
            Kind::Pair { aggregate_type, message_type } => format!("{aggregate_type}/{message_type}{conditions}"),
        }
    }

    /// Why a message does not belong to it; none when it does, unless something more specific matches too.
    pub fn mismatch(&self, message: &Message) -> Option<String> {
        let fits = match &self.kind {
            Kind::Topic(topic) => topic == message.topic(),
            Kind::Pattern(pattern) => Pattern::parse(pattern).matches(message.topic()),
            Kind::Pair { aggregate_type, message_type } => {
                aggregate_type == message.get_aggregate_type()
                    && Some(message_type.as_str()) == message.get_message_type()
            }
        };
        if fits { self.conditions.unmet_by(message) } else { Some(format!("{} does not match", self.kind)) }
    }

    fn of(kind: Kind) -> Self {
        Self { kind, conditions: Conditions::default() }
    }

    /// What is wrong with it, as far as it can be said of one selector alone.
    pub fn validate(&self) -> Result<(), Invalid> {
        let mut problems = Vec::new();
        self.conditions.check(&mut problems);
        match &self.kind {
            Kind::Topic(topic) => check_segments(topic, &mut problems),
            Kind::Pattern(pattern) => {
                check_segments(pattern, &mut problems);
                check_stars(pattern, &mut problems);
            }
            Kind::Pair { aggregate_type, message_type } => {
                check_name("aggregate_type", aggregate_type, &mut problems);
                check_name("message_type", message_type, &mut problems);
            }
        }
        Invalid::unless_empty(problems)
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.kind, self.conditions)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Topic(topic) => write!(f, "topic `{topic}`"),
            Kind::Pattern(pattern) => write!(f, "pattern `{pattern}`"),
            Kind::Pair { aggregate_type, message_type } if aggregate_type == GLOBAL_AGGREGATE => {
                write!(f, "type `{message_type}`")
            }
            Kind::Pair { aggregate_type, message_type } => write!(f, "type `{message_type}` of `{aggregate_type}`"),
        }
    }
}

/// All selectors of a runtime, ready to be looked up. Each message finds at most one.
///
/// From the most specific to the least: the exact topic; the pair of aggregate type and message type; the pattern with
/// more literal segments; of these the one without `**`; of these the one with more `*`; and among all that are equal so far,
/// the one with more conditions on type, tenant and headers.
///
/// ```
/// # use pillarbox_core::Message;
/// # use pillarbox_core::route::{RouteTable, Selector};
/// let table = RouteTable::new([
///     Selector::topic("order.created"),
///     Selector::topic("order.**"),
///     Selector::topic("order.**").tenant("acme"),
/// ])?;
/// assert_eq!(table.find(&Message::new("order.created", "")), Some(0));
/// assert_eq!(table.find(&Message::new("order.line.added", "")), Some(1));
/// assert_eq!(table.find(&Message::new("order.line.added", "").tenant("acme")), Some(2));
/// assert_eq!(table.find(&Message::new("payment.made", "")), None);
/// # Ok::<(), pillarbox_core::Invalid>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct RouteTable {
    topics: HashMap<String, Vec<Entry>>,
    /// By aggregate type, then by message type: a pair as key could not be looked up without an allocation.
    pairs: HashMap<String, HashMap<String, Vec<Entry>>>,
    /// The most specific first.
    patterns: Vec<(Pattern, Entry)>,
}

/// What is left of a selector once its kind is told by the place.
#[derive(Clone, Debug)]
struct Entry {
    index: usize,
    conditions: Conditions,
}

impl Entry {
    /// Whether some message meets the conditions of both, and neither has more of them.
    fn rivals(&self, other: &Self) -> bool {
        self.conditions.count() == other.conditions.count() && !self.conditions.excludes(&other.conditions)
    }
}

impl RouteTable {
    /// Checks all selectors together and names everything that is wrong, each pair of rivals with both.
    pub fn new(selectors: impl IntoIterator<Item = Selector>) -> Result<Self, Invalid> {
        let selectors: Vec<_> = selectors.into_iter().collect();
        let mut problems = Vec::new();
        let mut table = Self::default();
        for (index, selector) in selectors.iter().enumerate() {
            match selector.validate() {
                Ok(()) => {
                    if let Some(rival) = table.insert(index, selector) {
                        problems.push(rivals(&selectors, rival, index));
                    }
                }
                Err(invalid) => problems.extend_from_slice(invalid.problems()),
            }
        }
        Invalid::unless_empty(problems)?;
        let most_first = |entries: &mut Vec<Entry>| entries.sort_by_key(|entry| Reverse(entry.conditions.count()));
        table.topics.values_mut().for_each(most_first);
        table.pairs.values_mut().flat_map(HashMap::values_mut).for_each(most_first);
        let specificity =
            |(pattern, entry): &(Pattern, Entry)| Reverse((pattern.specificity(), entry.conditions.count()));
        table.patterns.sort_by_key(specificity);
        Ok(table)
    }

    /// The number of the selector that this message belongs to, in the order in which they were given.
    pub fn find(&self, message: &Message) -> Option<usize> {
        let met =
            |entries: &Vec<Entry>| entries.iter().find(|entry| entry.conditions.is_met_by(message)).map(|e| e.index);
        if let Some(index) = self.topics.get(message.topic()).and_then(met) {
            return Some(index);
        }
        if let Some(message_type) = message.get_message_type()
            && let Some(types) = self.pairs.get(message.get_aggregate_type())
            && let Some(index) = types.get(message_type).and_then(met)
        {
            return Some(index);
        }
        let fits = |(pattern, entry): &&(Pattern, Entry)| {
            pattern.matches(message.topic()) && entry.conditions.is_met_by(message)
        };
        self.patterns.iter().find(fits).map(|(_, entry)| entry.index)
    }

    /// Adds a selector that is valid by itself; answers one that was there before and is as specific.
    fn insert(&mut self, index: usize, selector: &Selector) -> Option<usize> {
        let entry = Entry { index, conditions: selector.conditions.clone() };
        match &selector.kind {
            Kind::Topic(topic) => push(self.topics.entry(topic.clone()).or_default(), entry),
            Kind::Pair { aggregate_type, message_type } => {
                let types = self.pairs.entry(aggregate_type.clone()).or_default();
                push(types.entry(message_type.clone()).or_default(), entry)
            }
            Kind::Pattern(text) => {
                let pattern = Pattern::parse(text);
                let is_rival = |(other, theirs): &&(Pattern, Entry)| other.rivals(&pattern) && theirs.rivals(&entry);
                let rival = self.patterns.iter().find(is_rival).map(|(_, rival)| rival.index);
                self.patterns.push((pattern, entry));
                rival
            }
        }
    }
}

fn push(entries: &mut Vec<Entry>, entry: Entry) -> Option<usize> {
    let rival = entries.iter().find(|other| other.rivals(&entry)).map(|rival| rival.index);
    entries.push(entry);
    rival
}

fn rivals(selectors: &[Selector], first: usize, second: usize) -> Problem {
    let (one, other) = (&selectors[first], &selectors[second]);
    let complaint = format!(
        "{} ({one}) and {} ({other}) match the same messages, neither more specific: one message has one handler",
        first + 1,
        second + 1
    );
    Problem::malformed("route", complaint)
}

/// A pattern taken apart at its dots.
#[derive(Clone, Debug)]
struct Pattern {
    /// A literal, or nothing for `*`.
    segments: Vec<Option<String>>,
    /// Whether `**` follows.
    open: bool,
}

impl Pattern {
    fn parse(text: &str) -> Self {
        let (fixed, open) = match text.strip_suffix("**") {
            Some(fixed) => (fixed.strip_suffix('.').unwrap_or(fixed), true),
            None => (text, false),
        };
        let segment = |segment: &str| (segment != "*").then(|| segment.to_owned());
        let segments = if fixed.is_empty() { Vec::new() } else { fixed.split('.').map(segment).collect() };
        Self { segments, open }
    }

    fn matches(&self, topic: &str) -> bool {
        let mut rest = topic.split('.');
        let fits = |segment: &Option<String>, given: &str| segment.as_deref().is_none_or(|literal| literal == given);
        let starts = self.segments.iter().all(|segment| rest.next().is_some_and(|given| fits(segment, given)));
        starts && (self.open || rest.next().is_none())
    }

    /// Greater is more specific.
    fn specificity(&self) -> (usize, bool, usize) {
        let literals = self.segments.iter().flatten().count();
        (literals, !self.open, self.segments.len() - literals)
    }

    /// Whether some topic matches both and neither is more specific.
    fn rivals(&self, other: &Self) -> bool {
        // Equally specific patterns have equally many segments, and both are open or both are not.
        self.specificity() == other.specificity()
            && self.segments.iter().zip(&other.segments).all(|pair| match pair {
                (Some(one), Some(two)) => one == two,
                _ => true,
            })
    }
}

fn check_name(field: &'static str, name: &str, problems: &mut Vec<Problem>) {
    let length = name.chars().count();
    if name.is_empty() {
        problems.push(Problem::empty(field));
    } else if length > SELECTOR_CHARS_MAX {
        problems.push(Problem::too_long(field, SELECTOR_CHARS_MAX, length));
    }
    if name.contains('\0') {
        problems.push(Problem::malformed(field, "must not contain NUL"));
    }
}

fn check_segments(topic: &str, problems: &mut Vec<Problem>) {
    check_name("topic", topic, problems);
    if !topic.is_empty() && topic.split('.').any(str::is_empty) {
        problems.push(Problem::malformed("topic", format!("`{}` has an empty segment", shown(topic))));
    }
}

fn check_stars(pattern: &str, problems: &mut Vec<Problem>) {
    let count = pattern.split('.').count();
    for (index, segment) in pattern.split('.').enumerate() {
        let complaint = match segment {
            "**" if index + 1 < count => "has `**` before its end",
            "*" | "**" => continue,
            mixed if mixed.contains('*') => "has a star inside a segment, and a star stands for whole segments",
            _ => continue,
        };
        problems.push(Problem::malformed("topic", format!("`{}` {complaint}", shown(pattern))));
    }
}

/// What a problem repeats of a name that may be far too long.
fn shown(name: &str) -> &str {
    name.char_indices().nth(SELECTOR_CHARS_MAX).map_or(name, |(end, _)| &name[..end])
}

#[cfg(test)]
mod tests {
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
        assert!(
            text.starts_with("route 1 (type `created` of `Order`) and 3 (type `created` of `Order`) match"),
            "{text}"
        );
        let text = complaints([Selector::message_type("m"), Selector::pair(GLOBAL_AGGREGATE, "m")]);
        assert!(text.contains("1 (type `m`) and 2 (type `m`)"), "{text}");
        let text = complaints(["a.b", "a.b"].map(Selector::topic));
        assert!(text.contains("1 (topic `a.b`) and 2 (topic `a.b`)"), "{text}");
        let text = complaints(["a.*", "*.b"].map(Selector::topic));
        assert!(text.contains("1 (pattern `a.*`) and 2 (pattern `*.b`)"), "{text}");
        assert!(table(&["a.b.*", "a.*.c"]).is_err());
        assert!(table(&["a.*.**", "*.b.**"]).is_err());
        assert!(table(&["a.*", "b.*", "a.**", "b.**", "*.*", "**", "a.*.*"]).is_ok());
        assert!(
            RouteTable::new([Selector::pair("A", "m"), Selector::pair("B", "m"), Selector::message_type("m")]).is_ok()
        );
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
}
