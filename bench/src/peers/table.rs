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

/// The disciplines of each task, in the order in which they came.
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

/// The disciplines of a task by the runs in which they were measured; first the run that most contestants took part in.
fn runs<'a>(disciplines: &[&'a Discipline]) -> Vec<Vec<&'a Discipline>> {
    let mut runs: Vec<Vec<&Discipline>> = Vec::new();
    for discipline in disciplines {
        match runs.iter_mut().find(|run| run[0].command == discipline.command) {
            Some(run) => run.push(discipline),
            None => runs.push(vec![discipline]),
        }
    }
    runs.sort_by_key(|run| std::cmp::Reverse(run[0].figures.len()));
    runs
}

/// What marks a figure of another run than the first.
fn mark(run: usize) -> String {
    "†".repeat(run)
}

/// The run that has a contestant's figure, and its place among them.
fn found<'a>(runs: &[Vec<&'a Discipline>], title: usize, name: &str) -> Option<(usize, &'a Discipline)> {
    let mut disciplines = runs.iter().filter_map(|run| run.get(title).copied()).enumerate();
    disciplines.find(|(_, discipline)| discipline.summary(name).is_some())
}

fn table(results: &Results, disciplines: &[&Discipline]) -> String {
    let runs = runs(disciplines);
    let first = &runs[0];
    let mut text =
        format!("**{}**: `{}`, {} rounds\n\n| contestant |", first[0].task, first[0].command, first[0].round_count());
    for discipline in first {
        let _ = write!(text, " {}, {} | {OURS} ÷ it |", discipline.title, discipline.unit);
    }
    let _ = writeln!(text, "\n|---|{}", "---|---|".repeat(first.len()));
    for entry in &results.entries {
        let _ = write!(text, "| {} |", entry.name);
        for title in 0..first.len() {
            let _ = match found(&runs, title, &entry.name) {
                Some((run, discipline)) => {
                    let summary = discipline.summary(&entry.name).map_or_else(String::new, |all| all.to_string());
                    let ratio = discipline.ratio(OURS, &entry.name).filter(|_| entry.name != OURS);
                    let failed = failed_rounds(discipline, &entry.name);
                    let ratio = ratio.map_or_else(String::new, |ratio| ratio.to_string());
                    write!(text, " {summary}{}{failed} | {ratio} |", mark(run))
                }
                None => write!(text, " {} | |", problem(entry.missing.as_ref(), &runs, title, &entry.name)),
            };
        }
        text.push('\n');
    }
    for (at, run) in runs.iter().enumerate().skip(1) {
        let ours: Vec<_> = run
            .iter()
            .filter_map(|discipline| Some(format!("{} {}", discipline.title, discipline.summary(OURS)?)))
            .collect();
        let (command, rounds) = (&run[0].command, run[0].round_count());
        let _ = write!(text, "\n{} `{command}`, {rounds} rounds; {OURS} in them: {}\n", mark(at), ours.join(", "));
    }
    runs.iter().fold(text, |text, run| text + &beside(results, run[0]))
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

fn problem(missing: Option<&String>, runs: &[Vec<&Discipline>], title: usize, name: &str) -> String {
    if missing.is_some() {
        return "missing".into();
    }
    let disciplines = runs.iter().filter_map(|run| run.get(title));
    let figure = disciplines.filter_map(|discipline| discipline.figure(name)?.problem.as_ref()).next();
    figure.map_or_else(|| "not measured".into(), |problem| format!("– ({problem})"))
}

/// A panel of bars for each discipline, the best above.
pub(crate) fn plot(results: &Results) -> String {
    let tasks = tasks(results);
    let all = tasks.iter().map(|disciplines| runs(disciplines));
    let panels = all.flat_map(|runs| (0..runs[0].len()).filter_map(|at| panel(results, &runs, at)).collect::<Vec<_>>());
    page(&panels.collect::<Vec<_>>())
}

fn panel(results: &Results, runs: &[Vec<&Discipline>], title: usize) -> Option<Panel> {
    let discipline = runs[0][title];
    let bar = |name: &String| {
        let value = found(runs, title, name)?.1.summary(name)?.median;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::results::{Entry, Figure};

    #[test]
    fn what_another_run_has_is_marked_and_compared_within_it() {
        let run = |command: &str, rates: &[(&str, f64)]| {
            let figure =
                |(name, rate): &(&str, f64)| Figure { name: (*name).into(), rounds: vec![Some(*rate)], problem: None };
            Discipline {
                task: "drain".into(),
                title: "rate".into(),
                unit: "messages/s".into(),
                is_less_better: false,
                command: command.into(),
                figures: rates.iter().map(figure).collect(),
            }
        };
        let results = Results {
            entries: ["pillarbox", "fast", "slow"].map(|name| Entry { name: name.into(), ..Entry::default() }).into(),
            disciplines: vec![
                run("late", &[(OURS, 40.0), ("slow", 10.0)]),
                run("early", &[(OURS, 60.0), ("fast", 30.0), ("other", 1.0)]),
            ],
            ..Results::default()
        };
        let text = markdown(&results);
        for line in [
            "**drain**: `early`, 1 rounds",
            "| pillarbox | 60.0 |  |",
            "| fast | 30.0 | 2.00 |",
            "| slow | 10.0† | 4.00 |",
            "† `late`, 1 rounds; pillarbox in them: rate 40.0",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
