//! The picture, drawn from what is known. Reads no clock and asks nobody.

use std::time::Duration;

use pillarbox::admin::{BlockedKey, Counts, Overview};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Cell, Paragraph, Row, Table};

use super::rates::{Rate, Rates};
use crate::blocked;
use crate::instances::Instances;
use crate::output::{age, escaped, grouped};

/// What one look brought.
pub(super) struct Snapshot {
    pub(super) overview: Overview,
    pub(super) blocked: Vec<BlockedKey>,
    /// A line for each route that is paused.
    pub(super) paused: Vec<String>,
    pub(super) instances: Option<Instances>,
}

/// Everything that is shown.
pub(super) struct Screen<'a> {
    pub(super) store: &'a str,
    pub(super) snapshot: Option<&'a Snapshot>,
    pub(super) rates: &'a Rates,
    /// Why the last look failed.
    pub(super) trouble: Option<&'a str>,
    /// How old the snapshot is.
    pub(super) age: Duration,
    pub(super) interval: Duration,
}

/// Paused routes that are shown at the most.
const PAUSED_MAX: usize = 5;

const BAD: Style = Style::new().fg(Color::Red);
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

impl Screen<'_> {
    pub(super) fn draw(&self, frame: &mut Frame<'_>) {
        let mut below = self.paused();
        below.extend(self.blocked());
        let height = u16::try_from(below.len()).unwrap_or(u16::MAX);
        let [head, topics, foot, help] = Layout::vertical([
            Constraint::Length(4),
            Constraint::Fill(1),
            Constraint::Length(height),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        frame.render_widget(Paragraph::new(self.head()), head);
        self.draw_topics(frame, topics);
        frame.render_widget(Paragraph::new(below), foot);
        frame.render_widget(Paragraph::new(self.help()), help);
    }

    fn head(&self) -> Vec<Line<'static>> {
        let name = Span::styled(format!("store {}", escaped(self.store)), BOLD);
        let Some(snapshot) = self.snapshot else {
            let words = self.trouble.map_or_else(|| "looking …".to_owned(), escaped);
            return vec![
                Line::from(name),
                Line::from(Span::styled(words, if self.trouble.is_some() { BAD } else { DIM })),
            ];
        };
        let (overview, total) = (&snapshot.overview, snapshot.overview.total());
        let oldest = overview.oldest_pending.map(|waits| format!(" (oldest {})", age(waits))).unwrap_or_default();
        let counts = format!("pending {}{oldest}   in flight {}   ", grouped(total.pending), grouped(total.processing));
        let dead =
            Span::styled(format!("dead {}", grouped(total.dead)), if total.dead > 0 { BAD } else { Style::new() });
        let rate = self
            .rates
            .total()
            .map(|rate| format!("   stored {}/s   done {}/s", rounded(rate.stored), rounded(rate.done)));
        let trouble = self.trouble.map_or_else(Line::default, |why| {
            let words = format!("no answer for {}: {}; trying again", age(self.age), escaped(why));
            Line::from(Span::styled(words, BAD))
        });
        vec![
            Line::from(name),
            Line::from(vec![Span::raw(counts), dead, Span::raw(rate.unwrap_or_default())]),
            Line::from(leases(snapshot)),
            trouble,
        ]
    }

    fn draw_topics(&self, frame: &mut Frame<'_>, area: Rect) {
        let Some(snapshot) = self.snapshot else { return };
        let headings = ["topic", "pending", "in flight", "done", "dead", "stored/s", "done/s"];
        let rows = snapshot.overview.topics.iter().map(|topic| {
            let Counts { pending, processing, done, dead } = topic.counts;
            let rate = self.rates.of(&topic.topic);
            let shown = |rate: Option<f64>| right(rate.map_or_else(String::new, rounded));
            Row::new([
                Cell::from(escaped(&topic.topic)),
                right(grouped(pending)),
                right(grouped(processing)),
                right(grouped(done)),
                right(grouped(dead)).style(if dead > 0 { BAD } else { Style::new() }),
                shown(rate.map(|rate: Rate| rate.stored)),
                shown(rate.map(|rate: Rate| rate.done)),
            ])
        });
        let header =
            headings.iter().enumerate().map(|(at, name)| if at == 0 { Cell::from(*name) } else { right(*name) });
        let widths = [Constraint::Fill(1), Constraint::Length(11), Constraint::Length(9), Constraint::Length(11)];
        let widths = widths.into_iter().chain([Constraint::Length(9); 3]);
        let table = Table::new(rows, widths).header(Row::new(header).style(BOLD)).column_spacing(2);
        frame.render_widget(table, area);
    }

    fn paused(&self) -> Vec<Line<'static>> {
        let lines = self.snapshot.map_or(&[][..], |snapshot| &snapshot.paused);
        lines.iter().take(PAUSED_MAX).map(|line| Line::from(line.clone())).collect()
    }

    fn blocked(&self) -> Vec<Line<'static>> {
        let keys = self.snapshot.map_or(&[][..], |snapshot| &snapshot.blocked);
        keys.iter().map(|key| Line::from(blocked::line(key))).collect()
    }

    fn help(&self) -> Line<'static> {
        Line::from(Span::styled(format!("every {} s   q quits", self.interval.as_secs()), DIM))
    }
}

fn leases(snapshot: &Snapshot) -> String {
    let Overview { active_lease_count, expired_lease_count, .. } = snapshot.overview;
    let leases = format!("leases {} running, {} ran out", grouped(active_lease_count), grouped(expired_lease_count));
    match snapshot.instances {
        None => leases,
        Some(instances) => format!("{leases}   instances {}", instances.words()),
    }
}

fn right(words: impl Into<String>) -> Cell<'static> {
    Cell::from(Line::from(words.into()).right_aligned())
}

/// Small rates with a digit behind the point.
fn rounded(rate: f64) -> String {
    if rate < 10.0 { format!("{rate:.1}") } else { format!("{rate:.0}") }
}

#[cfg(test)]
mod tests {
    use pillarbox::WorkId;
    use pillarbox::admin::TopicCounts;
    use pillarbox::outbox::State;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn snapshot() -> Snapshot {
        let topic = |topic: &str, [pending, processing, done, dead]: [u64; 4]| TopicCounts {
            topic: topic.to_owned(),
            counts: Counts { pending, processing, done, dead },
        };
        let topics = vec![topic("order.created", [1_200, 96, 40_000, 0]), topic("pay\x1b[2J", [4, 0, 7, 12])];
        let overview = Overview {
            topics,
            oldest_pending: Some(Duration::from_secs(2)),
            active_lease_count: 95,
            expired_lease_count: 1,
        };
        let blocked = vec![BlockedKey {
            key: "customer-7".into(),
            head: WorkId::from_i64(41),
            state: State::Dead,
            last_error: Some("no\nmailbox".into()),
            due_at: None,
            waiting_count: 3,
        }];
        let paused = vec!["route mail: paused 5 min 0 s ago".to_owned()];
        Snapshot { overview, blocked, paused, instances: Some(Instances { live: 3, stale: 1 }) }
    }

    fn drawn(screen: &Screen<'_>) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(90, 10)).unwrap();
        terminal.draw(|frame| screen.draw(frame)).unwrap();
        let buffer = terminal.backend().buffer();
        let line = |y| (0..90).map(|x| buffer[(x, y)].symbol()).collect::<String>().trim_end().to_owned();
        (0..10).map(line).collect()
    }

    /// WRK-08, H62: counts, rates, ages, leases, instances and blocked keys, and nothing that steers the terminal.
    #[test]
    fn everything_that_is_known_is_shown() {
        let after = snapshot();
        let mut before = snapshot();
        before.overview.topics[0].counts.done = 39_000;
        let rates = Rates::between(&before.overview, &after.overview, Duration::from_secs(2));
        let interval = Duration::from_secs(2);
        let screen = Screen {
            store: "shop",
            snapshot: Some(&after),
            rates: &rates,
            trouble: None,
            age: Duration::ZERO,
            interval,
        };
        let expected = [
            "store shop",
            "pending 1,204 (oldest 2 s)   in flight 96   dead 12   stored 500/s   done 500/s",
            "leases 95 running, 1 ran out   instances 3 live, 1 stale",
            "",
            "topic                     pending  in flight         done       dead   stored/s     done/s",
            "order.created               1,200         96       40,000          0        500        500",
            "pay\\u{1b}[2J                    4          0            7         12        0.0        0.0",
            "route mail: paused 5 min 0 s ago",
            "blocked key customer-7: 3 behind row 41, which is dead: no\\nmailbox",
            "every 2 s   q quits",
        ];
        assert_eq!(drawn(&screen), expected);
    }

    #[test]
    fn a_database_that_went_away_is_told_beside_what_was_known() {
        let known = snapshot();
        let rates = Rates::default();
        let screen = Screen {
            store: "shop",
            snapshot: Some(&known),
            rates: &rates,
            trouble: Some("the database cannot be reached"),
            age: Duration::from_secs(14),
            interval: Duration::from_secs(2),
        };
        let lines = drawn(&screen);
        assert_eq!(lines[3], "no answer for 14 s: the database cannot be reached; trying again");
        assert!(lines[5].starts_with("order.created"), "{lines:?}");
        let nothing = Screen { snapshot: None, ..screen };
        assert_eq!(drawn(&nothing)[1], "the database cannot be reached");
    }
}
