//! Names of schema and tables: configurable, and safe to put into a statement.

use std::fmt;

use crate::problem::{Invalid, Problem};

/// A name that can stand in SQL: `^[A-Za-z_][A-Za-z0-9_]{0,62}$`, nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identifier(String);

impl Identifier {
    /// The longest name; PostgreSQL cuts silently what is longer.
    pub const CHARS_MAX: usize = 63;

    /// Checks the name; `field` is what the caller calls it.
    pub fn new(field: &'static str, name: impl Into<String>) -> Result<Self, Invalid> {
        let name = name.into();
        let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !starts_well || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            let complaint = "must be a letter or underscore followed by letters, digits and underscores";
            return Err(Problem::malformed(field, complaint).into());
        }
        if name.len() > Self::CHARS_MAX {
            return Err(Problem::too_long(field, Self::CHARS_MAX, name.len()).into());
        }
        Ok(Self(name))
    }

    /// The name itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Identifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Where the tables are: `schema.outbox` on PostgreSQL, `schema_outbox` where a database has no schemas.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Naming {
    schema: Identifier,
    outbox: Identifier,
}

impl Naming {
    /// Room that our own suffixes, such as `_shelf_message_id`, need within a database's limit.
    const SUFFIX_CHARS_MAX: usize = 20;

    /// Checks both names, and that the names derived from them fit too.
    pub fn new(schema: impl Into<String>, outbox: impl Into<String>) -> Result<Self, Invalid> {
        let schema = Identifier::new("schema", schema);
        let outbox = Identifier::new("table", outbox);
        let problems = [&schema, &outbox]
            .into_iter()
            .filter_map(|name| name.as_ref().err())
            .flat_map(|invalid| invalid.problems().to_vec())
            .collect();
        Invalid::unless_empty(problems)?;
        let (schema, outbox) = (schema?, outbox?);
        let room = Identifier::CHARS_MAX - Self::SUFFIX_CHARS_MAX - 1;
        let length = schema.as_str().len() + outbox.as_str().len();
        if length > room {
            return Err(Problem::too_long("schema and table together", room, length).into());
        }
        Ok(Self { schema, outbox })
    }

    /// The schema, or the first part of every table's name.
    pub fn schema(&self) -> &Identifier {
        &self.schema
    }

    /// The outbox table, or the second part of its name.
    pub fn outbox(&self) -> &Identifier {
        &self.outbox
    }

    /// The name of the outbox table where a database has no schemas.
    pub fn joined(&self) -> String {
        format!("{}_{}", self.schema, self.outbox)
    }
}

impl Default for Naming {
    fn default() -> Self {
        Self { schema: Identifier("pillarbox".into()), outbox: Identifier("outbox".into()) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_that_could_carry_sql_are_refused() {
        for name in ["", "a b", "a\"b", "a;drop table x", "a`", "1a", "ä", "a\0", "a.b", "a-b", "a'", "[a]"] {
            let refused = Naming::new("pillarbox", name).unwrap_err();
            assert_eq!(refused.problems()[0].field(), "table", "{name:?}");
        }
    }

    #[test]
    fn both_names_are_reported_at_once() {
        assert_eq!(Naming::new("", "a b").unwrap_err().problems().len(), 2);
    }

    #[test]
    fn derived_names_must_fit() {
        assert!(Naming::new("s".repeat(21), "t".repeat(21)).is_ok());
        assert!(Naming::new("s".repeat(21), "t".repeat(22)).is_err());
        assert!(Identifier::new("x", "a".repeat(64)).is_err());
    }

    /// H53: whatever is accepted consists of harmless characters only.
    #[test]
    fn accepted_names_hold_no_special_character() {
        proptest!(|(name in "\\PC{0,70}")| {
            if let Ok(accepted) = Identifier::new("x", name.clone()) {
                prop_assert!(accepted.as_str().bytes().all(|b| b == b'_' || b.is_ascii_alphanumeric()));
                prop_assert!(accepted.as_str().len() <= 63);
            }
        });
    }
}
