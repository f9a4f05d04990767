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
