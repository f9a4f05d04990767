//! Plots as SVG, written by hand: bars and curves are all that is needed.

use std::fmt::Write as _;

use crate::document::number;

const WIDTH: f64 = 460.0;
const GAP: f64 = 30.0;
const COLUMNS: usize = 2;
const COLOURS: [&str; 8] = ["#c0392b", "#2c6fbb", "#2e8b57", "#b8860b", "#6a4c93", "#00838f", "#795548", "#607d8b"];

/// One part of a page, drawn from its upper left corner.
pub(crate) struct Panel {
    height: f64,
    content: String,
}

/// A bar of a panel; the marked ones are ours.
pub(crate) struct Bar {
    pub(crate) name: String,
    pub(crate) value: f64,
    pub(crate) is_marked: bool,
}

/// A curve of a panel.
pub(crate) struct Curve {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
}

/// Horizontal bars, from zero on; or by magnitude, where values are too far apart.
pub(crate) fn bars(title: &str, unit: &str, bars: &[Bar], by_magnitude: bool) -> Panel {
    const LABEL: f64 = 130.0;
    const ROW: f64 = 20.0;
    let length = |value: f64| if by_magnitude { value.max(1.0).log10() } else { value.max(0.0) };
    let longest = bars.iter().map(|bar| length(bar.value)).fold(f64::MIN_POSITIVE, f64::max);
    let scale = if by_magnitude { ", logarithmic" } else { "" };
    let mut content = heading(title, &format!("{unit}{scale}"));
    for (at, bar) in bars.iter().enumerate() {
        let top = 44.0 + row(at) * ROW;
        let long = length(bar.value) / longest * (WIDTH - LABEL - 70.0);
        let colour = if bar.is_marked { COLOURS[0] } else { "#8aa0b4" };
        let (text, name) = (top + 12.0, escaped(&bar.name));
        let _ = write!(
            content,
            "<text x=\"{:.0}\" y=\"{text:.0}\" text-anchor=\"end\">{name}</text>\
             <rect x=\"{LABEL:.0}\" y=\"{top:.0}\" width=\"{long:.1}\" height=\"15\" fill=\"{colour}\"/>\
             <text x=\"{:.1}\" y=\"{text:.0}\">{}</text>",
            LABEL - 6.0,
            LABEL + long + 5.0,
            number(bar.value)
        );
    }
    Panel { height: 44.0 + row(bars.len()) * ROW, content }
}

/// Curves over a logarithmic axis; upwards from zero.
pub(crate) fn curves(title: &str, unit: &str, across: &str, curves: &[Curve]) -> Panel {
    const LEFT: f64 = 70.0;
    const TOP: f64 = 50.0;
    const HIGH: f64 = 200.0;
    let all = || curves.iter().flat_map(|curve| &curve.points);
    let (first, last) = all().fold((f64::MAX, f64::MIN), |(low, high), (x, _)| (low.min(*x), high.max(*x)));
    let highest = all().map(|(_, y)| *y).fold(f64::MIN_POSITIVE, f64::max);
    let wide = WIDTH - LEFT - 20.0;
    let span = (last.log10() - first.log10()).max(f64::MIN_POSITIVE);
    let x = |value: f64| LEFT + (value.log10() - first.log10()) / span * wide;
    let y = |value: f64| TOP + HIGH * (1.0 - value / highest);
    let mut content = heading(title, unit);
    for part in [0.0, 0.5, 1.0] {
        let (at, text) = (y(highest * part), number(highest * part));
        let _ = write!(
            content,
            "<line x1=\"{LEFT:.0}\" y1=\"{at:.1}\" x2=\"{:.0}\" y2=\"{at:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
            LEFT + wide,
            LEFT - 6.0,
            at + 4.0
        );
    }
    let mut marks: Vec<f64> = all().map(|(x, _)| *x).collect();
    marks.sort_by(f64::total_cmp);
    marks.dedup();
    for mark in marks {
        let _ = write!(
            content,
            "<text x=\"{:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>",
            x(mark),
            TOP + HIGH + 16.0,
            short(mark)
        );
    }
    let _ = write!(
        content,
        "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\" fill=\"#666\">{}</text>",
        LEFT + wide / 2.0,
        TOP + HIGH + 32.0,
        escaped(across)
    );
    for (at, curve) in curves.iter().enumerate() {
        let colour = COLOURS[at % COLOURS.len()];
        let points: Vec<_> = curve.points.iter().map(|(px, py)| format!("{:.1},{:.1}", x(*px), y(*py))).collect();
        let top = TOP + HIGH + 50.0 + row(at) * 16.0;
        let _ = write!(
            content,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\
             <rect x=\"{LEFT:.0}\" y=\"{:.0}\" width=\"14\" height=\"4\" fill=\"{colour}\"/>\
             <text x=\"{:.0}\" y=\"{top:.0}\">{}</text>",
            points.join(" "),
            top - 6.0,
            LEFT + 20.0,
            escaped(&curve.name)
        );
    }
    Panel { height: TOP + HIGH + 50.0 + row(curves.len()) * 16.0, content }
}

/// All panels on one page, in columns.
pub(crate) fn page(panels: &[Panel]) -> String {
    let mut tops = [GAP; COLUMNS];
    let mut content = String::new();
    for panel in panels {
        let column = (0..COLUMNS).min_by(|a, b| tops[*a].total_cmp(&tops[*b])).unwrap_or(0);
        let left = GAP + row(column) * (WIDTH + GAP);
        let _ = writeln!(content, "<g transform=\"translate({left:.0} {:.0})\">{}</g>", tops[column], panel.content);
        tops[column] += panel.height + GAP;
    }
    let height = tops.iter().copied().fold(0.0, f64::max);
    let width = GAP + row(COLUMNS) * (WIDTH + GAP);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"sans-serif\" \
         font-size=\"12\"><rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n{content}</svg>\n"
    )
}

fn heading(title: &str, unit: &str) -> String {
    format!(
        "<text x=\"0\" y=\"14\" font-size=\"15\" font-weight=\"bold\">{}</text><text x=\"0\" y=\"32\" fill=\"#666\">{}</text>",
        escaped(title),
        escaped(unit)
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// 10 k, 3 M: numbers below an axis.
fn short(value: f64) -> String {
    if value >= 1e6 {
        format!("{} M", value / 1e6)
    } else if value >= 1e3 {
        format!("{} k", value / 1e3)
    } else {
        format!("{value}")
    }
}

fn row(at: usize) -> f64 {
    u32::try_from(at).map_or(0.0, f64::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_every_bar_and_every_curve() {
        let bar = Bar { name: "a < b".into(), value: 12.0, is_marked: true };
        let curve = Curve { name: "one".into(), points: vec![(10.0, 1.0), (1e6, 2.0)] };
        let svg = page(&[bars("Bars", "per second", &[bar], false), curves("Curves", "µs", "backlog", &[curve])]);
        assert!(svg.contains("a &lt; b") && svg.contains("<rect") && svg.contains("12.0"));
        assert!(svg.contains("<polyline") && svg.contains("1 M") && !svg.contains("NaN"));
    }
}
