//! The little of Markdown that our checks read: tables, sections and fenced blocks.

use super::tree::lines;

/// A table row: its line number and trimmed cells. Header and ruler are left out by the caller,
/// who knows what a first cell looks like.
pub(crate) fn rows(text: &str) -> impl Iterator<Item = (usize, Vec<String>)> {
    lines(text).filter_map(|(number, line)| {
        let inner = line.trim().strip_prefix('|')?;
        let inner = inner.strip_suffix('|').unwrap_or(inner);
        Some((number, cells(inner)))
    })
}

/// Data rows below a heading, up to the next heading of the same or a higher level.
pub(crate) fn section_rows(text: &str, heading: &str) -> Vec<(usize, Vec<String>)> {
    let level = heading.chars().take_while(|c| *c == '#').count();
    let ends = |line: &str| {
        let hashes = line.chars().take_while(|c| *c == '#').count();
        (1..=level).contains(&hashes)
    };
    let mut inside = false;
    let mut kept = String::new();
    for line in text.lines() {
        if line.trim_end() == heading {
            inside = true;
        } else if ends(line) {
            inside = false;
        } else if inside {
            kept.push_str(line);
        }
        // Lines outside stay as empty ones, so that numbers remain those of the file.
        kept.push('\n');
    }
    let mut found: Vec<_> = rows(&kept).collect();
    if let Some(ruler) = found.iter().position(|(_, cells)| is_ruler(cells)) {
        found.drain(..=ruler);
    }
    found
}

/// The lines of all fenced blocks with this info string.
pub(crate) fn fenced<'a>(text: &'a str, info: &str) -> Vec<(usize, &'a str)> {
    let mut open: Option<bool> = None;
    let mut found = Vec::new();
    for (number, line) in lines(text) {
        match (line.trim_start().strip_prefix("```"), open) {
            (Some(word), None) => open = Some(word.trim() == info),
            (Some(_), Some(_)) => open = None,
            (None, Some(true)) if !line.trim().is_empty() => found.push((number, line.trim())),
            _ => {}
        }
    }
    found
}

/// Prose only: fenced blocks and `code` are blanked, line numbers stay.
pub(crate) fn prose(text: &str) -> String {
    let mut fence = false;
    let mut kept = String::new();
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fence = !fence;
        } else if !fence {
            kept.extend(line.split('`').step_by(2));
        }
        kept.push('\n');
    }
    kept
}

/// A cell without the backticks around it.
pub(crate) fn bare(cell: &str) -> &str {
    let inner = cell.strip_prefix('`').and_then(|rest| rest.strip_suffix('`'));
    inner.unwrap_or(cell)
}

fn cells(inner: &str) -> Vec<String> {
    let hidden = inner.replace("\\|", "\u{0}");
    hidden.split('|').map(|cell| cell.trim().replace('\u{0}', "|")).collect()
}

fn is_ruler(cells: &[String]) -> bool {
    cells.iter().all(|cell| !cell.is_empty() && cell.chars().all(|c| matches!(c, '-' | ':')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sections_rows_end_with_the_section() {
        let text = "## A\n| x |\n## B\n| p | q |\n|---|---|\n| 1 | a\\|b |\n### C\n| 2 | |\n## D\n| 3 |\n";
        let expected = vec![(6, vec!["1".to_owned(), "a|b".to_owned()]), (8, vec!["2".to_owned(), String::new()])];
        assert_eq!(section_rows(text, "## B"), expected);
    }

    #[test]
    fn a_fenced_block_is_found_by_its_info_string() {
        let text = "```rust\nno\n```\n```direction\na -> b\n\nc -> d\n```\nno\n";
        assert_eq!(fenced(text, "direction"), [(5, "a -> b"), (7, "c -> d")]);
    }

    #[test]
    fn prose_keeps_line_numbers() {
        assert_eq!(prose("a `b` c\n```\nd\n```\ne\n"), "a  c\n\n\n\ne\n");
    }
}
