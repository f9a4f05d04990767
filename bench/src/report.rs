//! Figures, as a table and as JSON.

use std::fmt;

use serde_json::json;

/// Two contenders in alternating rounds.
#[derive(Debug)]
pub(crate) struct Figure {
    database: String,
    work: String,
    names: [String; 2],
    rounds: Vec<[f64; 2]>,
}

impl Figure {
    pub(crate) fn new(database: &str, work: &str, names: [&str; 2]) -> Self {
        Self { database: database.into(), work: work.into(), names: names.map(Into::into), rounds: Vec::new() }
    }

    pub(crate) fn add(&mut self, pair: [f64; 2]) {
        self.rounds.push(pair);
    }

    /// The median of the rounds' ratios, the second contender over the first.
    fn ratio(&self) -> f64 {
        median(self.rounds.iter().map(|[reference, contender]| contender / reference))
    }

    fn medians(&self) -> [f64; 2] {
        [0, 1].map(|which| median(self.rounds.iter().map(|pair| pair[which])))
    }

    fn spread(&self) -> [f64; 2] {
        let ratios: Vec<f64> = self.rounds.iter().map(|[reference, contender]| contender / reference).collect();
        [ratios.iter().copied().fold(f64::MAX, f64::min), ratios.iter().copied().fold(0.0, f64::max)]
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [reference, contender] = self.medians();
        let [low, high] = self.spread();
        write!(
            f,
            "| {} | {} | {} {reference:.0} | {} {contender:.0} | {:.2} | {low:.2}–{high:.2} |",
            self.database,
            self.work,
            self.names[0],
            self.names[1],
            self.ratio()
        )
    }
}

/// All figures of one run.
#[derive(Debug, Default)]
pub(crate) struct Report {
    figures: Vec<Figure>,
    only: String,
}

impl Report {
    /// A report that wants figures of work whose name contains the text.
    pub(crate) fn only(only: String) -> Self {
        Self { figures: Vec::new(), only }
    }

    pub(crate) fn wants(&self, work: &str) -> bool {
        work.contains(&self.only)
    }

    pub(crate) fn add(&mut self, figure: Figure) {
        self.figures.push(figure);
    }

    pub(crate) fn to_json(&self) -> String {
        let figures: Vec<_> = self
            .figures
            .iter()
            .map(|figure| {
                let [reference, contender] = figure.medians();
                json!({
                    "database": figure.database,
                    "work": figure.work,
                    "reference": { "name": figure.names[0], "per_second": reference },
                    "contender": { "name": figure.names[1], "per_second": contender },
                    "ratio": figure.ratio(),
                    "ratio_spread": figure.spread(),
                    "rounds": figure.rounds,
                })
            })
            .collect();
        format!("{:#}\n", json!({ "unit": "messages per second", "figures": figures }))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| database | work | reference, messages/s | contender, messages/s | ratio | spread |")?;
        writeln!(f, "|---|---|---|---|---|---|")?;
        for figure in &self.figures {
            writeln!(f, "{figure}")?;
        }
        Ok(())
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
