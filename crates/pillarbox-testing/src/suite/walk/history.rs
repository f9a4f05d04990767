//! What a walk has done so far, and what a difference looks like.

use std::fmt::Debug;

/// The answers of a walk, on which both sides agreed.
pub(in crate::suite) struct History {
    group: &'static str,
    seed: u64,
    shard: u64,
    lines: Vec<String>,
}

impl History {
    pub(in crate::suite) fn new(group: &'static str, seed: u64, shard: u64) -> Self {
        Self { group, seed, shard, lines: Vec::new() }
    }

    pub(in crate::suite) fn note(&mut self, line: String) {
        self.lines.push(line);
    }

    #[track_caller]
    pub(in crate::suite) fn compare<T: Debug + PartialEq>(&mut self, what: &str, model: T, backend: T) {
        assert!(model == backend, "{}", self.report(what, &model, &backend));
        self.lines.push(format!("{what} -> {model:?}"));
    }

    pub(in crate::suite) fn report(&self, what: &str, model: &dyn Debug, backend: &dyn Debug) -> String {
        let Self { group, seed, shard, lines } = self;
        let package = std::env::var("CARGO_PKG_NAME").unwrap_or_else(|_| "<package>".into());
        let (step, history) = (lines.len(), lines.join("\n  "));
        format!(
            "walk {seed} leaves the reference after {step} answers, at: {what}\n\
             reference: {model:?}\n  backend: {backend:?}\nbefore it:\n  {history}\n\
             replay it: PILLARBOX_WALK_SEED={seed} cargo nextest run -p {package} {group}::shard_{shard}_"
        )
    }
}
