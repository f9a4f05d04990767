//! The tables and the plot of a contest.

use std::fmt::Write as _;

use super::results::{Discipline, Results};
use super::task::Task;
use crate::plot::{Bar, Panel, bars, page};

/// Whom the others are compared with.
const OURS: &str = "pillarbox";

/// Everything as Markdown: who, where, and a table for each task.
pub(crate) fn markdown(results: &Results) -> String {
    let mut text = format!("{}\n\n", results.machine.sentence());
    text += "| contestant | version | language | settings |\n|---|---|---|---|\n";
    for entry in &results.entries {
        let _ = match &entry.missing {
            Some(reason) => writeln!(text, "| {} | missing | | {reason} |", entry.name),
            None => {
                writeln!(text, "| {} | {} | {} | {} |", entry.name, entry.version, entry.language, entry.settings)
            }
        };
    }
    for disciplines in tasks(results) {
        let _ = write!(text, "\n{}", table(results, &disciplines));
    }
    text
}

/// Disciplines that were measured together, in the order in which they came.
fn tasks(results: &Results) -> Vec<Vec<&Discipline>> {
    let mut tasks: Vec<Vec<&Discipline>> = Vec::new();
    for discipline in &results.disciplines {
        match tasks.iter_mut().find(|task| task[0].task == discipline.task) {
            Some(task) => task.push(discipline),
            None => tasks.push(vec![discipline]),
        }
    }
    tasks
}

fn table(results: &Results, disciplines: &[&Discipline]) -> String {
    let rounds = disciplines[0].figures.iter().map(|figure| figure.rounds.len()).max().unwrap_or(0);
    let mut text =
        format!("**{}**: `{}`, {rounds} rounds\n\n| contestant |", disciplines[0].task, disciplines[0].command);
    for discipline in disciplines {
        let _ = write!(text, " {}, {} | {OURS} ÷ it |", discipline.title, discipline.unit);
    }
    let _ = writeln!(text, "\n|---|{}", "---|---|".repeat(disciplines.len()));
    for entry in &results.entries {
        let _ = write!(text, "| {} |", entry.name);
        for discipline in disciplines {
            let _ = match discipline.summary(&entry.name) {
                Some(summary) => {
                    let ratio = discipline.ratio(OURS, &entry.name).filter(|_| entry.name != OURS);
                    let failed = failed_rounds(discipline, &entry.name);
                    let ratio = ratio.map_or_else(String::new, |ratio| ratio.to_string());
                    write!(text, " {summary}{failed} | {ratio} |")
                }
                None => write!(text, " {} | |", problem(entry.missing.as_ref(), discipline, &entry.name)),
            };
        }
        text.push('\n');
    }
    text + &beside(results, disciplines[0])
}

/// What became of each contestant's own rate, where the other one was measured in the same rounds.
fn beside(results: &Results, discipline: &Discipline) -> String {
    let other = Task::compared_with(&discipline.task).and_then(|other| {
        results.disciplines.iter().find(|one| one.task == other && one.command == discipline.command)
    });
    let Some(other) = other else { return String::new() };
    let ratios: Vec<_> = results
        .entries
        .iter()
        .filter_map(|entry| Some(format!("{} {}", entry.name, discipline.ratio_to(other, &entry.name)?)))
        .collect();
    format!("\n÷ {}, in the same rounds: {}\n", other.task, ratios.join(", "))
}

/// Says so when some rounds of a contestant failed, and why.
fn failed_rounds(discipline: &Discipline, name: &str) -> String {
    let figure = discipline.figure(name);
    let problem = figure.and_then(|figure| figure.problem.as_ref());
    problem.map_or_else(String::new, |problem| format!("; not in every round ({problem})"))
}

fn problem(missing: Option<&String>, discipline: &Discipline, name: &str) -> String {
    if missing.is_some() {
        return "missing".into();
    }
    let figure = discipline.figure(name).and_then(|figure| figure.problem.as_ref());
    figure.map_or_else(|| "not measured".into(), |problem| format!("– ({problem})"))
}

/// A panel of bars for each discipline, the best above.
pub(crate) fn plot(results: &Results) -> String {
    let panels: Vec<Panel> = results.disciplines.iter().filter_map(|discipline| panel(results, discipline)).collect();
    page(&panels)
}

fn panel(results: &Results, discipline: &Discipline) -> Option<Panel> {
    let bar = |name: &String| {
        let value = discipline.summary(name)?.median;
        Some(Bar { name: name.clone(), value, is_marked: name.starts_with(OURS) })
    };
    let mut all: Vec<Bar> = results.entries.iter().filter_map(|entry| bar(&entry.name)).collect();
    all.sort_by(|a, b| b.value.total_cmp(&a.value));
    if discipline.is_less_better {
        all.reverse();
    }
    let direction = if discipline.is_less_better { "less is better" } else { "more is better" };
    let is_rate = discipline.title == "rate";
    let title = if is_rate { discipline.task.clone() } else { format!("{}: {}", discipline.task, discipline.title) };
    let unit = format!("{}, {direction}", discipline.unit);
    (!all.is_empty()).then(|| bars(&title, &unit, &all, discipline.unit == "µs"))
}
