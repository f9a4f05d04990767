//! What a message must have beside its topic or its types.

use std::collections::BTreeMap;
use std::fmt;

use crate::message::Message;
use crate::problem::Problem;

/// Fields and the values that they must have; none at all is met by every message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Conditions(BTreeMap<Field, String>);

/// A field that a condition can be about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Field {
    MessageType,
    Tenant,
    Header(String),
}

impl Conditions {
    pub(super) fn set(&mut self, field: Field, value: String) {
        self.0.insert(field, value);
    }

    /// How many there are: the more, the more specific.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_met_by(&self, message: &Message) -> bool {
        self.unmet_by(message).is_none()
    }

    /// The first that a message does not meet, in words.
    pub(super) fn unmet_by(&self, message: &Message) -> Option<String> {
        let unmet = self.0.iter().find(|(field, value)| field.of(message) != Some(value.as_str()));
        unmet.map(|(field, value)| match field.of(message) {
            Some(found) => format!("{field} is `{found}`, not `{value}`"),
            None => format!("there is no {field}, and `{value}` is asked for"),
        })
    }

    /// Whether no message can meet both.
    pub(super) fn excludes(&self, other: &Self) -> bool {
        self.0.iter().any(|(field, value)| other.0.get(field).is_some_and(|other| other != value))
    }

    pub(super) fn check(&self, problems: &mut Vec<Problem>) {
        for (field, value) in &self.0 {
            super::check_name(field.name(), value, problems);
            if let Field::Header(name) = field {
                super::check_name("header", name, problems);
            }
        }
    }

    /// For a short name: ` tenant=acme`.
    pub(super) fn name(&self) -> String {
        self.0.iter().map(|(field, value)| format!(" {field}={value}")).collect()
    }
}

impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, (field, value)) in self.0.iter().enumerate() {
            write!(f, "{} {field} `{value}`", if index == 0 { " with" } else { " and" })?;
        }
        Ok(())
    }
}

impl Field {
    fn of<'a>(&self, message: &'a Message) -> Option<&'a str> {
        match self {
            Self::MessageType => message.get_message_type(),
            Self::Tenant => message.get_tenant(),
            Self::Header(name) => message.get_headers().get(name).map(String::as_str),
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::MessageType => "message_type",
            Self::Tenant => "tenant",
            Self::Header(_) => "header",
        }
    }
}

impl fmt::Display for Field {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MessageType => f.write_str("type"),
            Self::Tenant => f.write_str("tenant"),
            Self::Header(name) => write!(f, "header {name}"),
        }
    }
}
