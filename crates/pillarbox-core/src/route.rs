//! Which handler a message goes to: the most specific selector that matches it, and never two.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt;

use crate::message::GLOBAL_AGGREGATE;
use crate::problem::{Invalid, Problem};

/// The longest topic, pattern or type name of a selector, in characters.
pub const SELECTOR_CHARS_MAX: usize = 255;

/// What a handler is registered for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Selector(Kind);

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
        if topic.contains('*') { Self(Kind::Pattern(topic)) } else { Self(Kind::Topic(topic)) }
    }

    /// Messages of one type about one kind of aggregate, whatever their topic.
    pub fn pair(aggregate_type: impl Into<String>, message_type: impl Into<String>) -> Self {
        Self(Kind::Pair { aggregate_type: aggregate_type.into(), message_type: message_type.into() })
    }

    /// Messages of one type that belong to no aggregate.
    pub fn message_type(message_type: impl Into<String>) -> Self {
        Self::pair(GLOBAL_AGGREGATE, message_type)
    }

    /// A short name for logs and metrics: the topic or pattern, or `aggregate type/message type`.
    pub fn name(&self) -> String {
        match &self.0 {
            Kind::Topic(topic) | Kind::Pattern(topic) => topic.clone(),
            Kind::Pair { aggregate_type, message_type } => format!("{aggregate_type}/{message_type}"),
        }
    }

    /// What is wrong with it, as far as it can be said of one selector alone.
    pub fn validate(&self) -> Result<(), Invalid> {
        let mut problems = Vec::new();
        match &self.0 {
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
        match &self.0 {
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
/// more literal segments; of these the one without `**`; of these the one with more `*`.
///
/// ```
/// # use pillarbox_core::route::{RouteTable, Selector};
/// let table = RouteTable::new([Selector::topic("order.created"), Selector::topic("order.**")])?;
/// assert_eq!(table.find("order.created", "Order", None), Some(0));
/// assert_eq!(table.find("order.line.added", "Order", None), Some(1));
/// assert_eq!(table.find("payment.made", "Order", None), None);
/// # Ok::<(), pillarbox_core::Invalid>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct RouteTable {
    topics: HashMap<String, usize>,
    /// By aggregate type, then by message type: a pair as key could not be looked up without an allocation.
    pairs: HashMap<String, HashMap<String, usize>>,
    /// The most specific first.
    patterns: Vec<(Pattern, usize)>,
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
        table.patterns.sort_by_key(|(pattern, _)| Reverse(pattern.specificity()));
        Ok(table)
    }

    /// The number of the selector that this message belongs to, in the order in which they were given.
    pub fn find(&self, topic: &str, aggregate_type: &str, message_type: Option<&str>) -> Option<usize> {
        if let Some(index) = self.topics.get(topic) {
            return Some(*index);
        }
        if let Some(message_type) = message_type
            && let Some(index) = self.pairs.get(aggregate_type).and_then(|types| types.get(message_type))
        {
            return Some(*index);
        }
        self.patterns.iter().find(|(pattern, _)| pattern.matches(topic)).map(|(_, index)| *index)
    }

    /// Adds a selector that is valid by itself; answers one that was there before and is as specific.
    fn insert(&mut self, index: usize, selector: &Selector) -> Option<usize> {
        match &selector.0 {
            Kind::Topic(topic) => keep_first(&mut self.topics, topic, index),
            Kind::Pair { aggregate_type, message_type } => {
                keep_first(self.pairs.entry(aggregate_type.clone()).or_default(), message_type, index)
            }
            Kind::Pattern(text) => {
                let pattern = Pattern::parse(text);
                let rival = self.patterns.iter().find(|(other, _)| other.rivals(&pattern)).map(|(_, rival)| *rival);
                self.patterns.push((pattern, index));
                rival
            }
        }
    }
}

fn keep_first(map: &mut HashMap<String, usize>, name: &str, index: usize) -> Option<usize> {
    let first = *map.entry(name.to_owned()).or_insert(index);
    (first != index).then_some(first)
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
            let found = table(&[selector]).unwrap().find(topic, "Order", None);
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
            assert_eq!(table.find(topic, aggregate_type, message_type), Some(index), "{topic}");
            assert_eq!(turned.find(topic, aggregate_type, message_type), Some(last - index), "{topic}, turned round");
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
            let found = table.find(&topic, "Order", None);
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
                let (forth, back) = (forth?.find(&topic, "A", None), back?.find(&topic, "A", None));
                prop_assert_eq!(forth, back.map(|index| 1 - index), "{} {} {}", one, other, topic);
            }
        });
    }
}
