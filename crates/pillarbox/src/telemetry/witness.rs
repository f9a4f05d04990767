//! Sees what is logged, for the tests of this crate.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Collects every line and span of this crate on the current thread, as `LEVEL name field=value …`.
#[derive(Clone, Default)]
pub(crate) struct Witness(Arc<Mutex<Vec<String>>>);

impl Witness {
    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn watch(&self) -> tracing::subscriber::DefaultGuard {
        tracing::subscriber::set_default(self.clone())
    }

    fn push(&self, metadata: &Metadata<'_>, record: impl FnOnce(&mut Line)) {
        let mut line = Line { said: String::new(), fields: String::new() };
        record(&mut line);
        let name = if metadata.is_span() { format!("span {}", metadata.name()) } else { line.said };
        self.0.lock().unwrap().push(format!("{} {name}{}", metadata.level(), line.fields));
    }
}

impl Subscriber for Witness {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("pillarbox")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.push(span.metadata(), |line| span.record(line));
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        self.push(event.metadata(), |line| event.record(line));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line {
    said: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.said = format!("{value:?}");
        } else {
            write!(self.fields, " {field}={value:?}").unwrap();
        }
    }
}
