//! Tables in a document: written by this program between two marks, never by hand.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde::de::DeserializeOwned;

/// Replaces what stands between `<!-- name -->` and `<!-- end of name -->`. A file without the marks gets the text alone.
fn write(path: &Path, name: &str, text: &str) {
    let (begin, end) = (format!("<!-- {name} -->"), format!("<!-- end of {name} -->"));
    let old = std::fs::read_to_string(path).unwrap_or_default();
    let new = match (old.find(&begin), old.find(&end)) {
        (Some(from), Some(to)) if from < to => {
            format!("{}\n\n{}\n\n{}", &old[..from + begin.len()], text.trim(), &old[to..])
        }
        _ => format!("{begin}\n\n{}\n\n{end}\n", text.trim()),
    };
    std::fs::write(path, new).unwrap();
    eprintln!("tables written to {}", path.display());
}

/// What a file has, or nothing.
pub(crate) fn read_json<T: DeserializeOwned + Default>(path: &Path) -> T {
    let Ok(text) = std::fs::read_to_string(path) else {
        return T::default();
    };
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub(crate) fn write_json(path: &Path, value: &impl Serialize) {
    std::fs::write(path, format!("{}\n", serde_json::to_string_pretty(value).unwrap())).unwrap();
}

/// How this program was called, without where it writes to: for the reader of a table.
pub(crate) fn command() -> String {
    let is_output = |word: &str| ["--json", "--plot", "--markdown"].iter().any(|output| word.starts_with(output));
    let mut words = vec!["cargo xtask bench".to_owned()];
    let mut arguments = std::env::args().skip(1);
    while let Some(word) = arguments.next() {
        if !is_output(&word) {
            words.push(word);
        } else if !word.contains('=') {
            arguments.next();
        }
    }
    words.join(" ")
}

/// Where figures go, besides the terminal.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outputs {
    pub(crate) json: Option<PathBuf>,
    pub(crate) plot: Option<PathBuf>,
    pub(crate) markdown: Option<PathBuf>,
}

impl Outputs {
    /// Writes all that are wanted; the tables between the marks of that name.
    pub(crate) fn write(&self, name: &str, value: &impl Serialize, tables: &str, plot: &str) {
        if let Some(path) = &self.json {
            write_json(path, value);
        }
        if let Some(path) = &self.plot {
            std::fs::write(path, plot).unwrap();
        }
        if let Some(path) = &self.markdown {
            // A plot that lies beside the document is shown in it.
            let beside = self.plot.as_ref().filter(|plot| plot.parent() == path.parent());
            let file = beside.and_then(|plot| plot.file_name()).map(|file| file.to_string_lossy());
            let picture = file.map_or_else(String::new, |file| format!("![{name}]({file})\n\n"));
            write(path, name, &format!("{picture}{tables}"));
        }
    }
}

/// A number as people read it: with commas, and no more digits than it deserves.
pub(crate) fn number(value: f64) -> String {
    let magnitude = value.abs();
    if !value.is_finite() {
        return "–".into();
    }
    if magnitude < 10.0 {
        return format!("{value:.2}");
    }
    if magnitude < 100.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{magnitude:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0.0 { format!("-{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_stands_between_the_marks_is_replaced() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "# A\n\n<!-- peers -->\nold\n<!-- end of peers -->\n\n# B\n").unwrap();
        write(file.path(), "peers", "| new |\n");
        let text = std::fs::read_to_string(file.path()).unwrap();
        assert_eq!(text, "# A\n\n<!-- peers -->\n\n| new |\n\n<!-- end of peers -->\n\n# B\n");
    }

    #[test]
    fn numbers_have_commas_and_few_digits() {
        let texts = [0.123, 4.5, 45.67, 999.6, 1234.5, -1_234_567.0, f64::NAN].map(number);
        assert_eq!(texts, ["0.12", "4.50", "45.7", "1,000", "1,234", "-1,234,567", "–"]);
    }
}
