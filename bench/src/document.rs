//! Tables in a document: written by this program between two marks, never by hand.

use std::path::Path;

/// Replaces what stands between `<!-- name -->` and `<!-- end of name -->`. A file without the marks gets the text alone.
pub(crate) fn write(path: &Path, name: &str, text: &str) {
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
