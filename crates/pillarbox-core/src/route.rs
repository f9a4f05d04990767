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

    /// Every selector that messages of a topic can belong to, whatever their other fields; none when some may belong to nobody.
    pub fn takers(&self, topic: &str) -> Option<Vec<usize>> {
        let mut takers = Vec::new();
        // Behind one that asks for nothing else, no other has its turn.
        let mut ends_with = |entry: &Entry| {
            takers.push(entry.index);
            entry.conditions.count() == 0
        };
        let mut is_complete = self.topics.get(topic).is_some_and(|entries| entries.iter().any(&mut ends_with));
        if !is_complete {
            let pairs = self.pairs.values().flat_map(HashMap::values).flatten();
            for entry in pairs {
                ends_with(entry);
            }
            let mut fitting = self.patterns.iter().filter(|(pattern, _)| pattern.matches(topic));
            is_complete = fitting.any(|(_, entry)| ends_with(entry));
        }
        is_complete.then_some(takers)
    }

    /// The topics that some selector names in full.
    pub fn topics(&self) -> impl Iterator<Item = &str> {
        self.topics.keys().map(String::as_str)
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
mod tests;
