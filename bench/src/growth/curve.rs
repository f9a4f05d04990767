//! Curves as they are kept and shown.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::document::number;
use crate::machine::Machine;
use crate::plot::{self, Panel};
use crate::report::Summary;

/// Everything that was measured of growth.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(crate) struct Curves {
    pub(crate) machine: Machine,
    pub(crate) curves: Vec<Curve>,
}

/// Figures of one database over what grows.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Curve {
    /// What was measured, such as `drain`.
    pub(crate) part: String,
    pub(crate) unit: String,
    /// What grows.
    pub(crate) across: String,
    pub(crate) database: String,
    pub(crate) command: String,
    pub(crate) points: Vec<Point>,
}

/// The rounds at one place of a curve.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Point {
    pub(crate) at: u32,
    pub(crate) rounds: Vec<f64>,
}

impl Curve {
    pub(crate) fn new(part: &str, unit: &str, across: &str, database: &str, command: &str, at: &[usize]) -> Self {
        let point = |at: &usize| Point { at: u32::try_from(*at).unwrap(), rounds: Vec::new() };
        Self {
            part: part.into(),
            unit: unit.into(),
            across: across.into(),
            database: database.into(),
            command: command.into(),
            points: at.iter().map(point).collect(),
        }
    }

    pub(crate) fn add(&mut self, place: usize, figure: f64) {
        let Point { at, rounds } = &mut self.points[place];
        eprintln!("  {}, {}, {} {at}: {}", self.part, self.database, self.across, number(figure));
        rounds.push(figure);
    }

    /// The last place over the first, round by round.
    fn ratio(&self) -> Option<Summary> {
        let (first, last) = (self.points.first()?, self.points.last()?);
        let ratios: Vec<f64> = last.rounds.iter().zip(&first.rounds).map(|(last, first)| last / first).collect();
        Summary::of(&ratios)
    }
}

impl Curves {
    /// Takes a later curve in place of the same one.
    pub(crate) fn take(&mut self, curve: Curve) {
        match self.curves.iter_mut().find(|old| old.part == curve.part && old.database == curve.database) {
            Some(old) => *old = curve,
            None => self.curves.push(curve),
        }
    }

    fn parts(&self) -> Vec<Vec<&Curve>> {
        let mut parts: Vec<Vec<&Curve>> = Vec::new();
        for curve in &self.curves {
            match parts.iter_mut().find(|part| part[0].part == curve.part) {
                Some(part) => part.push(curve),
                None => parts.push(vec![curve]),
            }
        }
        parts
    }

    pub(crate) fn markdown(&self) -> String {
        let mut text = format!("{}\n", self.machine.sentence());
        for part in self.parts() {
            let Curve { part: name, unit, across, command, .. } = part[0];
            let mut places: Vec<u32> = part.iter().flat_map(|curve| &curve.points).map(|point| point.at).collect();
            places.sort_unstable();
            places.dedup();
            let _ = write!(text, "\n**{name}**, {unit}: `{command}`\n\n| {across} |");
            for at in &places {
                let _ = write!(text, " {} |", number(f64::from(*at)).replace(".00", "").replace(".0", ""));
            }
            let _ = writeln!(text, " last ÷ first |\n|---|{}---|", "---|".repeat(places.len()));
            for curve in part {
                let _ = write!(text, "| {} |", curve.database);
                for at in &places {
                    let point = curve.points.iter().find(|point| point.at == *at);
                    let summary = point.and_then(|point| Summary::of(&point.rounds));
                    let _ = write!(text, " {} |", summary.map_or_else(|| "–".into(), |summary| summary.to_string()));
                }
                let ratio = curve.ratio().map_or_else(String::new, |ratio| ratio.to_string());
                let _ = writeln!(text, " {ratio} |");
            }
        }
        text
    }

    pub(crate) fn plot(&self) -> String {
        let panels: Vec<Panel> = self.parts().iter().map(|part| panel(part)).collect();
        plot::page(&panels)
    }
}

fn panel(part: &[&Curve]) -> Panel {
    let drawn = |curve: &&Curve| plot::Curve {
        name: curve.database.clone(),
        points: curve
            .points
            .iter()
            .filter_map(|point| Some((f64::from(point.at), Summary::of(&point.rounds)?.median)))
            .collect(),
    };
    let curves: Vec<_> = part.iter().map(drawn).filter(|curve| !curve.points.is_empty()).collect();
    plot::curves(&part[0].part, &part[0].unit, &part[0].across, &curves)
}
