//! What people see: plain text, aligned, colours only on a terminal, and nothing that could steer that terminal.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, SystemTime};

use crate::exit::Failure;

/// Writes to standard output. A reader that has gone away (`| head`) is no failure.
pub(crate) fn say(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::new(format!("standard output cannot be written: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes one line to standard error.
pub(crate) fn complain(words: &str) {
    // Nobody is left to be told when this fails.
    let _ = writeln!(io::stderr().lock(), "pillarbox: {}", escaped(words));
}

/// Says on standard error how it goes: standard output belongs to what a command was asked for.
pub(crate) fn tell(words: &str) {
    let _ = writeln!(io::stderr().lock(), "{}", escaped(words));
}

/// Text from a database, as one harmless line: whatever could move the cursor or turn the direction of reading is shown
/// as `\u{…}`.
pub(crate) fn escaped(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut line, character| {
        if is_unsafe(character) {
            line.extend(character.escape_default());
        } else {
            line.push(character);
        }
        line
    })
}

/// JSON as one line; what JSON itself allows and a terminal may obey is escaped too.
pub(crate) fn json_line(value: &serde_json::Value) -> String {
    let mut line = String::new();
    for character in value.to_string().chars() {
        if is_unsafe(character) {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                let _ = write!(line, "\\u{unit:04x}");
            }
        } else {
            line.push(character);
        }
    }
    line.push('\n');
    line
}

fn is_unsafe(character: char) -> bool {
    let turns_direction =
        matches!(character, '\u{061c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    let breaks_line = matches!(character, '\u{2028}' | '\u{2029}');
    character.is_control() || turns_direction || breaks_line
}

/// `40112` as `40,112`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// A number with its noun.
pub(crate) fn counted(count: usize, one: &str, many: &str) -> String {
    let noun = if count == 1 { one } else { many };
    format!("{} {noun}", grouped(u64::try_from(count).unwrap_or(u64::MAX)))
}

/// An age in its two largest units, such as `2 h 5 min`.
pub(crate) fn age(age: Duration) -> String {
    let seconds = age.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) if seconds == 0 => format!("{} ms", age.as_millis()),
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// An instant to the second, as RFC 3339 has it, in UTC. One that nobody could have meant is shown as `?`.
pub(crate) fn instant(at: SystemTime) -> String {
    let seconds = match at.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_secs()).map_or(i64::MIN, |seconds| -seconds),
    };
    let Ok(at) = time::OffsetDateTime::from_unix_timestamp(seconds) else { return "?".to_owned() };
    let (year, month, day) = at.to_calendar_date();
    let (hour, minute, second) = at.to_hms();
    format!("{year:04}-{:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z", u8::from(month))
}

/// An instant to the minute, in UTC; without the day when it is the same as now's.
pub(crate) fn minute(at: SystemTime, now: SystemTime) -> String {
    let (at, now) = (instant(at), instant(now));
    match (at.split_once('T'), now.split_once('T')) {
        (Some((day, hour)), Some((today, _))) if hour.len() > 5 => {
            let hour = &hour[..5];
            if day == today { hour.to_owned() } else { format!("{day} {hour}") }
        }
        _ => at,
    }
}

/// On which side the words of a column begin.
#[derive(Clone, Copy)]
pub(crate) enum Side {
    Left,
    Right,
}

/// Rows as aligned lines; the first one has the headings.
pub(crate) fn table<const N: usize>(sides: [Side; N], rows: &[[String; N]]) -> String {
    table_of([true; N], sides, rows)
}

/// Like [`table`], with only some of the columns.
pub(crate) fn table_of<const N: usize>(shown: [bool; N], sides: [Side; N], rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(shown).zip(sides).zip(widths).filter(|(((_, is_shown), _), _)| *is_shown);
        let cells = cells.map(|(((cell, _), side), width)| match side {
            Side::Left => format!("{cell:<width$}"),
            Side::Right => format!("{cell:>width$}"),
        });
        let cells: Vec<_> = cells.collect();
        cells.join("   ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}

/// How words are marked; the words must say everything by themselves.
#[derive(Clone, Copy)]
pub(crate) struct Paint {
    is_on: bool,
}

impl Paint {
    #[cfg(test)]
    pub(crate) const OFF: Self = Self { is_on: false };

    /// Colours on a terminal, unless `NO_COLOR` asks for none.
    pub(crate) fn of_stdout() -> Self {
        let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { is_on: io::stdout().is_terminal() && !refused }
    }

    pub(crate) fn heading(self, words: &str) -> String {
        self.marked("1", words)
    }

    pub(crate) fn good(self, words: &str) -> String {
        self.marked("32", words)
    }

    pub(crate) fn warning(self, words: &str) -> String {
        self.marked("33", words)
    }

    pub(crate) fn bad(self, words: &str) -> String {
        self.marked("31", words)
    }

    fn marked(self, code: &str, words: &str) -> String {
        if self.is_on { format!("\x1b[{code}m{words}\x1b[0m") } else { words.to_owned() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// H62: escape sequences of a stored topic do not reach the terminal.
    #[test]
    fn what_could_steer_a_terminal_is_shown_not_obeyed() {
        let table = [
            ("order.created", "order.created"),
            ("größe 注文", "größe 注文"),
            ("a\x1b[2Jb", "a\\u{1b}[2Jb"),
            ("a\nb\tc", "a\\nb\\tc"),
            ("\u{9b}31m", "\\u{9b}31m"),
            ("\u{202e}evil", "\\u{202e}evil"),
            ("\u{61c}1", "\\u{61c}1"),
        ];
        for (text, shown) in table {
            assert_eq!(escaped(text), shown);
        }
    }

    #[test]
    fn json_stays_json_when_it_is_escaped() {
        let value = serde_json::json!({ "topic": "a\u{9b}\u{202e}\x1b\n\"ß" });
        let line = json_line(&value);
        assert_eq!(line.trim_end(), r#"{"topic":"a\u009b\u202e\u001b\n\"ß"}"#);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&line).unwrap(), value);
    }

    #[test]
    fn instants_are_in_utc() {
        let after = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        assert_eq!(instant(after(0)), "1970-01-01T00:00:00Z");
        assert_eq!(instant(after(1_700_000_000)), "2023-11-14T22:13:20Z");
        assert_eq!(instant(after(1 << 40)), "?");
    }

    #[test]
    fn columns_are_aligned_and_lines_have_no_tail() {
        let rows = [["id", "topic", "error"], ["7", "größe", ""]].map(|row| row.map(str::to_owned));
        assert_eq!(table([Side::Right, Side::Left, Side::Left], &rows), "id   topic   error\n 7   größe\n");
    }

    #[test]
    fn numbers_are_grouped() {
        let table = [(0, "0"), (999, "999"), (1_000, "1,000"), (40_112, "40,112"), (1_234_567, "1,234,567")];
        for (number, shown) in table {
            assert_eq!(grouped(number), shown);
        }
    }

    #[test]
    fn ages_have_two_units() {
        let table = [(2, "2 s"), (59, "59 s"), (62, "1 min 2 s"), (7_500, "2 h 5 min"), (90_000, "1 d 1 h")];
        for (seconds, shown) in table {
            assert_eq!(age(Duration::from_secs(seconds)), shown);
        }
        assert_eq!(age(Duration::from_millis(40)), "40 ms");
    }
}
