//! What a contest found, as it is kept.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::document;
use crate::machine::Machine;
use crate::report::Summary;

/// Everything of one contest.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct Results {
    pub(crate) machine: Machine,
    pub(crate) entries: Vec<Entry>,
    pub(crate) disciplines: Vec<Discipline>,
}

/// Who took part, or why not.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Entry {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) language: String,
    pub(crate) settings: String,
    pub(crate) missing: Option<String>,
}

/// One figure per contestant and round.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Discipline {
    /// What was done; disciplines with the same task are measured together.
    pub(crate) task: String,
    /// What was counted.
    pub(crate) title: String,
    pub(crate) unit: String,
    pub(crate) is_less_better: bool,
    pub(crate) command: String,
    pub(crate) figures: Vec<Figure>,
}

/// The rounds of one contestant.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
pub(crate) struct Figure {
    pub(crate) name: String,
    /// By round; a round that failed has none.
    pub(crate) rounds: Vec<Option<f64>>,
    pub(crate) problem: Option<String>,
}

impl Discipline {
    pub(crate) fn summary(&self, name: &str) -> Option<Summary> {
        let rounds: Vec<f64> = self.figure(name)?.rounds.iter().copied().flatten().collect();
        Summary::of(&rounds)
    }

    /// One contestant over another, round by round: what both had in common, such as a slow minute, goes away.
    pub(crate) fn ratio(&self, above: &str, below: &str) -> Option<Summary> {
        ratio(self.figure(above)?, self.figure(below)?)
    }

    /// One contestant here over itself there, round by round.
    pub(crate) fn ratio_to(&self, other: &Self, name: &str) -> Option<Summary> {
        ratio(self.figure(name)?, other.figure(name)?)
    }

    /// Whether it has everything that the other one has.
    fn covers(&self, old: &Self) -> bool {
        let has = |figure: &Figure| self.figure(&figure.name).is_some();
        old.task == self.task && old.title == self.title && (old.command == self.command || old.figures.iter().all(has))
    }

    /// Rounds of those that took part in most.
    pub(crate) fn round_count(&self) -> usize {
        self.figures.iter().map(|figure| figure.rounds.len()).max().unwrap_or(0)
    }

    pub(crate) fn figure(&self, name: &str) -> Option<&Figure> {
        self.figures.iter().find(|figure| figure.name == name)
    }

    /// The figure of a contestant, to be filled.
    pub(crate) fn figure_of(&mut self, name: &str) -> &mut Figure {
        let at = self.figures.iter().position(|figure| figure.name == name).unwrap_or_else(|| {
            self.figures.push(Figure { name: name.into(), ..Figure::default() });
            self.figures.len() - 1
        });
        &mut self.figures[at]
    }
}

fn ratio(above: &Figure, below: &Figure) -> Option<Summary> {
    let pairs = above.rounds.iter().zip(&below.rounds);
    let ratios: Vec<f64> = pairs.filter_map(|(above, below)| Some((*above)? / (*below)?)).collect();
    Summary::of(&ratios)
}

impl Results {
    /// What a file has, or nothing.
    pub(crate) fn read(path: &Path) -> Self {
        document::read_json(path)
    }

    /// Takes disciplines from a later run in place of those that it covers: a contest may be run in parts, each whole in itself.
    /// What had contestants that the later one did not have stays beside it.
    pub(crate) fn take(&mut self, later: Self) {
        self.machine = later.machine;
        for entry in later.entries {
            match self.entries.iter_mut().find(|old| old.name == entry.name) {
                Some(old) => *old = entry,
                None => self.entries.push(entry),
            }
        }
        for discipline in later.disciplines {
            let is_covered = |old: &Discipline| discipline.covers(old);
            let at = self.disciplines.iter().position(is_covered).unwrap_or(self.disciplines.len());
            self.disciplines.retain(|old| !is_covered(old));
            self.disciplines.insert(at, discipline);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(name: &str, rounds: &[Option<f64>]) -> Figure {
        Figure { name: name.into(), rounds: rounds.into(), problem: None }
    }

    fn drain(command: &str, figures: Vec<Figure>) -> Discipline {
        Discipline {
            task: "drain".into(),
            title: "drain".into(),
            unit: "messages/s".into(),
            is_less_better: false,
            command: command.into(),
            figures,
        }
    }

    #[test]
    fn a_ratio_is_taken_round_by_round() {
        let (we, they) = ([Some(20.0), Some(2.0), Some(40.0)], [Some(10.0), Some(1.0), None]);
        let discipline = drain("", vec![figure("we", &we), figure("they", &they)]);
        assert_eq!(discipline.ratio("we", "they"), Some(Summary { median: 2.0, low: 2.0, high: 2.0 }));
        assert_eq!(discipline.summary("they").map(|they| (they.low, they.high)), Some((1.0, 10.0)));
        assert_eq!(discipline.ratio("we", "nobody"), None);
        let other = drain("", vec![figure("we", &[Some(40.0), Some(4.0), Some(20.0)])]);
        assert_eq!(discipline.ratio_to(&other, "we"), Some(Summary { median: 0.5, low: 0.5, high: 2.0 }));
        assert_eq!(discipline.ratio_to(&other, "they"), None);
    }

    #[test]
    fn a_later_run_takes_the_place_of_what_it_covers() {
        let run = |command: &str, names: &[&str]| {
            let figures = names.iter().map(|name| figure(name, &[Some(1.0)])).collect();
            Results { disciplines: vec![drain(command, figures)], ..Results::default() }
        };
        let mut results = run("all", &["we", "they", "slow"]);
        results.take(run("some", &["we", "they"]));
        results.take(run("slow", &["we", "slow"]));
        let commands = |results: &Results| -> Vec<String> {
            results.disciplines.iter().map(|discipline| discipline.command.clone()).collect()
        };
        assert_eq!(commands(&results), ["all", "some", "slow"], "each has somebody whom the later ones do not have");
        results.take(run("all again", &["we", "they", "slow"]));
        assert_eq!(commands(&results), ["all again"]);
    }
}
