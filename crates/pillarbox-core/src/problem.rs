//! What is wrong with an argument, said so that the caller can mend it.

use std::fmt;

/// One thing that is wrong with one field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    field: &'static str,
    limit: Option<u64>,
    complaint: String,
}

impl Problem {
    /// A field that must not be empty.
    pub fn empty(field: &'static str) -> Self {
        Self { field, limit: Some(1), complaint: "must not be empty".into() }
    }

    /// A text that is too long, counted in characters.
    pub fn too_long(field: &'static str, max: usize, actual: usize) -> Self {
        let complaint = format!("must have at most {max} characters, has {actual}");
        Self { field, limit: Some(max as u64), complaint }
    }

    /// Bytes that are too many.
    pub fn too_large(field: &'static str, max: usize, actual: usize) -> Self {
        let complaint = format!("must have at most {max} bytes, has {actual}");
        Self { field, limit: Some(max as u64), complaint }
    }

    /// A number or duration outside its range; the limit is the end of the range that was missed.
    pub fn out_of_range(field: &'static str, limit: u64, complaint: impl Into<String>) -> Self {
        Self { field, limit: Some(limit), complaint: complaint.into() }
    }

    /// Anything that no number can say.
    pub fn malformed(field: &'static str, complaint: impl Into<String>) -> Self {
        Self { field, limit: None, complaint: complaint.into() }
    }

    /// The name of the field or argument.
    pub fn field(&self) -> &'static str {
        self.field
    }

    /// The limit that was missed, where it is a number.
    pub fn limit(&self) -> Option<u64> {
        self.limit
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.field, self.complaint)
    }
}

/// All problems of one call, found before anything was sent to the database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    problems: Vec<Problem>,
}

impl Invalid {
    /// Everything that is wrong; never empty.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// `Ok` when nothing was found.
    pub fn unless_empty(problems: Vec<Problem>) -> Result<(), Self> {
        if problems.is_empty() { Ok(()) } else { Err(Self { problems }) }
    }
}

impl From<Problem> for Invalid {
    fn from(problem: Problem) -> Self {
        Self { problems: vec![problem] }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.problems.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Invalid {}
