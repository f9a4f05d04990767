//! Figures, as a table and as JSON.

use std::fmt;

use serde_json::json;

use crate::document::number;

/// Median, least and greatest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Summary {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
}

impl Summary {
    pub(crate) fn of(values: &[f64]) -> Option<Self> {
        let low = values.iter().copied().min_by(f64::total_cmp)?;
        let high = values.iter().copied().max_by(f64::total_cmp)?;
        Some(Self { median: median(values.iter().copied()), low, high })
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&number(self.median))?;
        // One round has no spread.
        if self.low < self.high { write!(f, " ({}–{})", number(self.low), number(self.high)) } else { Ok(()) }
    }
}

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

/// How long something took, in microseconds. Negative when it came before what it is measured from.
#[derive(Debug)]
pub(crate) struct Delays {
    database: String,
    work: String,
    sorted: Vec<f64>,
}

impl Delays {
    pub(crate) fn new(database: &str, work: &str, micros: impl Iterator<Item = f64>) -> Self {
        let mut sorted: Vec<f64> = micros.collect();
        sorted.sort_by(f64::total_cmp);
        Self { database: database.into(), work: work.into(), sorted }
    }

    /// The value that so many per thousand stay below.
    fn at(&self, per_thousand: usize) -> f64 {
        let last = self.sorted.len().saturating_sub(1);
        self.sorted.get(last * per_thousand / 1000).copied().unwrap_or(f64::NAN)
    }
}

impl fmt::Display for Delays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [p50, p99, max] = [500, 990, 1000].map(|per_thousand| self.at(per_thousand));
        write!(f, "| {} | {} | {} | {p50:.0} | {p99:.0} | {max:.0} |", self.database, self.work, self.sorted.len())
    }
}

/// How often something happens in a second.
#[derive(Debug)]
pub(crate) struct Rate {
    database: String,
    work: String,
    per_second: f64,
}

impl Rate {
    pub(crate) fn new(database: &str, work: &str, per_second: f64) -> Self {
        Self { database: database.into(), work: work.into(), per_second }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "| {} | {} | {:.2} |", self.database, self.work, self.per_second)
    }
}

/// The most memory that a process has had.
#[derive(Debug)]
pub(crate) struct Peak {
    database: String,
    work: String,
    bytes: u64,
}

impl Peak {
    pub(crate) fn new(database: &str, work: &str, bytes: u64) -> Self {
        Self { database: database.into(), work: work.into(), bytes }
    }
}

impl fmt::Display for Peak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "| {} | {} | {} |", self.database, self.work, self.bytes / 1_000_000)
    }
}

/// All figures of one run.
#[derive(Debug, Default)]
pub(crate) struct Report {
    figures: Vec<Figure>,
    delays: Vec<Delays>,
    rates: Vec<Rate>,
    peaks: Vec<Peak>,
    only: String,
}

impl Report {
    /// A report that wants figures of work whose name contains the text.
    pub(crate) fn only(only: String) -> Self {
        Self { only, ..Self::default() }
    }

    pub(crate) fn wants(&self, work: &str) -> bool {
        work.contains(&self.only)
    }

    pub(crate) fn add(&mut self, figure: Figure) {
        self.figures.push(figure);
    }

    pub(crate) fn add_delays(&mut self, delays: Delays) {
        eprintln!("{delays}");
        self.delays.push(delays);
    }

    pub(crate) fn add_rate(&mut self, rate: Rate) {
        eprintln!("{rate}");
        self.rates.push(rate);
    }

    pub(crate) fn add_peak(&mut self, peak: Peak) {
        eprintln!("{peak}");
        self.peaks.push(peak);
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
        let delays: Vec<_> = self
            .delays
            .iter()
            .map(|delays| {
                json!({
                    "database": delays.database,
                    "work": delays.work,
                    "count": delays.sorted.len(),
                    "p50_micros": delays.at(500),
                    "p99_micros": delays.at(990),
                    "max_micros": delays.at(1000),
                })
            })
            .collect();
        let rates: Vec<_> = self
            .rates
            .iter()
            .map(|rate| json!({ "database": rate.database, "work": rate.work, "per_second": rate.per_second }))
            .collect();
        let peaks: Vec<_> = self
            .peaks
            .iter()
            .map(|peak| json!({ "database": peak.database, "work": peak.work, "bytes": peak.bytes }))
            .collect();
        let all = json!({
            "unit": "messages per second", "figures": figures, "delays": delays, "rates": rates, "peaks": peaks,
        });
        format!("{all:#}\n")
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.figures.is_empty() {
            writeln!(f, "| database | work | reference, messages/s | contender, messages/s | ratio | spread |")?;
            writeln!(f, "|---|---|---|---|---|---|")?;
        }
        for figure in &self.figures {
            writeln!(f, "{figure}")?;
        }
        if !self.delays.is_empty() {
            writeln!(f, "\n| database | work | count | p50, µs | p99, µs | max, µs |")?;
            writeln!(f, "|---|---|---|---|---|---|")?;
        }
        for delays in &self.delays {
            writeln!(f, "{delays}")?;
        }
        if !self.rates.is_empty() {
            writeln!(f, "\n| database | work | per second |\n|---|---|---|")?;
        }
        for rate in &self.rates {
            writeln!(f, "{rate}")?;
        }
        if !self.peaks.is_empty() {
            writeln!(f, "\n| database | work | MB |\n|---|---|---|")?;
        }
        for peak in &self.peaks {
            writeln!(f, "{peak}")?;
        }
        Ok(())
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}
