//! A chart for a terminal.

use std::fmt::Write;

use unicode_width::UnicodeWidthStr;

use super::{Chart, Series, short};

/// Lines of a chart of lines.
const HEIGHT: usize = 16;
/// Colours of the series, one after another.
const COLOURS: [&str; 6] = ["\x1b[34m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[35m", "\x1b[36m"];
const OFF: &str = "\x1b[0m";
/// An eighth of a cell, two eighths, …
const EIGHTHS: [char; 8] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];

/// Draws in so many columns. Without colours the lines of several keys are letters.
pub(in super::super) fn draw(chart: &Chart, width: usize, has_colours: bool) -> String {
    let mut out = format!("{}\n", chart.title);
    match chart.is_bars {
        true => bars(chart, width, &mut out),
        false => lines(chart, width, has_colours, &mut out),
    }
    if chart.left_out > 0 {
        let _ = writeln!(out, "{} keys with smaller values are left out", chart.left_out);
    }
    out
}

fn bars(chart: &Chart, width: usize, out: &mut String) {
    let points = || chart.series.iter().flat_map(|series| &series.points);
    let labels = points().map(|point| point.label.width()).max().unwrap_or(0).min(width / 2);
    let values = points().map(|point| short(point.y).len()).max().unwrap_or(0);
    let (low, high) = chart.range();
    let room = width.saturating_sub(labels + values + 4).max(8);
    let scale = room as f64 / (high - low);
    let zero = -low * scale;
    for point in points() {
        let (from, to) =
            if point.y < 0.0 { (zero + point.y * scale, zero) } else { (zero, zero + point.y * scale) };
        let gap = " ".repeat(from.round() as usize);
        let label: String = fitted(&point.label, labels);
        let pad = " ".repeat(labels.saturating_sub(label.width()));
        let _ = writeln!(out, "{label}{pad}  {:>values$} {gap}{}", short(point.y), bar(to - from));
    }
}

/// A bar of so many cells.
fn bar(cells: f64) -> String {
    let eighths = (cells * 8.0).round() as usize;
    let mut bar = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        bar.push(EIGHTHS[eighths % 8 - 1]);
    }
    bar
}

fn fitted(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut fitted = String::new();
    for c in text.chars() {
        if fitted.width() + 2 > width {
            break;
        }
        fitted.push(c);
    }
    fitted + "…"
}

/// A cell has two points side by side and four above each other.
struct Canvas {
    width: usize,
    /// The points of each cell, as the bits of a Braille letter, and the series that came last.
    cells: Vec<(u8, usize)>,
}

impl Canvas {
    fn set(&mut self, x: usize, y: usize, series: usize) {
        const BITS: [[u8; 4]; 2] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];
        let (x, y) = (x.min(self.width * 2 - 1), y.min(HEIGHT * 4 - 1));
        let cell = &mut self.cells[y / 4 * self.width + x / 2];
        *cell = (cell.0 | BITS[x % 2][y % 4], series);
    }

    fn line(&mut self, from: (f64, f64), to: (f64, f64), series: usize) {
        let steps = (to.0 - from.0).abs().max((to.1 - from.1).abs()).ceil().max(1.0);
        for step in 0..=steps as usize {
            let share = step as f64 / steps;
            let x = from.0 + (to.0 - from.0) * share;
            let y = from.1 + (to.1 - from.1) * share;
            self.set(x.round() as usize, y.round() as usize, series);
        }
    }
}

fn lines(chart: &Chart, width: usize, has_colours: bool, out: &mut String) {
    let Some((first, last)) = chart.ends() else { return };
    let (low, high) = chart.range();
    let axis = short(low).len().max(short(high).len());
    let room = width.saturating_sub(axis + 3).max(10);
    let mut canvas = Canvas { width: room, cells: vec![(0, 0); room * HEIGHT] };
    let span = (last.x - first.x).max(f64::MIN_POSITIVE);
    let place = |x: f64, y: f64| {
        let across = (x - first.x) / span * (room * 2 - 1) as f64;
        (across, (high - y) / (high - low) * (HEIGHT * 4 - 1) as f64)
    };
    let is_lettered = !has_colours && chart.series.len() > 1;
    let mut letters = vec![None; room * HEIGHT];
    for (number, series) in chart.series.iter().enumerate() {
        let places: Vec<(f64, f64)> = series.points.iter().map(|point| place(point.x, point.y)).collect();
        for pair in places.windows(2) {
            canvas.line(pair[0], pair[1], number);
        }
        for at in &places {
            canvas.line(*at, *at, number);
            let cell = (at.1.round() as usize / 4).min(HEIGHT - 1) * room
                + (at.0.round() as usize / 2).min(room - 1);
            letters[cell] = Some(letter(number));
        }
    }
    for row in 0..HEIGHT {
        let label = match row {
            0 => short(high),
            _ if row == HEIGHT - 1 => short(low),
            _ => String::new(),
        };
        let _ = write!(out, "{label:>axis$} │");
        for column in 0..room {
            let (bits, series) = canvas.cells[row * room + column];
            match letters[row * room + column] {
                Some(letter) if is_lettered => out.push(letter),
                _ if bits == 0 || is_lettered => out.push(' '),
                _ => paint(bits, series, has_colours, out),
            }
        }
        out.truncate(out.trim_end_matches(' ').len());
        out.push('\n');
    }
    let _ = writeln!(out, "{:axis$} └{}", "", "─".repeat(room));
    let gap = room.saturating_sub(first.label.width() + last.label.width()).max(1);
    let _ = writeln!(out, "{:axis$}  {}{}{}", "", first.label, " ".repeat(gap), last.label);
    if chart.series.len() > 1 {
        let names: Vec<String> = chart
            .series
            .iter()
            .enumerate()
            .map(|(number, series)| legend(number, series, has_colours))
            .collect();
        let _ = writeln!(out, "{:axis$}  {}", "", names.join("  "));
    }
}

fn paint(bits: u8, series: usize, has_colours: bool, out: &mut String) {
    let point = char::from_u32(0x2800 + u32::from(bits)).unwrap_or('·');
    match has_colours {
        true => {
            let _ = write!(out, "{}{point}{OFF}", COLOURS[series % COLOURS.len()]);
        }
        false => out.push(point),
    }
}

fn letter(series: usize) -> char {
    char::from(b'a' + (series % 26) as u8)
}

fn legend(number: usize, series: &Series, has_colours: bool) -> String {
    let name = fitted(&series.name, 24);
    match has_colours {
        true => format!("{}━{OFF} {name}", COLOURS[number % COLOURS.len()]),
        false => format!("{} {name}", letter(number)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::chart;
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_values() {
        let chart = chart(&[(0, "", 20), (1, "", 10), (2, "", 0)], false).expect("draws");
        // 19 for the label, 2 for the value, 4 between: 35 columns leave 10 cells.
        assert_eq!(
            draw(&chart, 35 + 6, false),
            "n by window_start\n\
             1970-01-01 00:00:00  20 ████████████████\n\
             1970-01-01 00:01:00  10 ████████\n\
             1970-01-01 00:02:00   0 \n"
        );
    }

    #[test]
    fn bars_below_zero_end_at_zero() {
        let chart = chart(&[(0, "", 8), (1, "", -8)], false).expect("draws");
        let drawn = draw(&chart, 41, false);
        let lines: Vec<&str> = drawn.lines().collect();
        assert_eq!(lines[1], format!("1970-01-01 00:00:00   8 {}{}", " ".repeat(8), "█".repeat(8)));
        assert_eq!(lines[2], format!("1970-01-01 00:01:00  -8 {}", "█".repeat(8)));
    }

    #[test]
    fn lines_go_from_corner_to_corner() {
        let chart =
            chart(&[(0, "up", 0), (9, "up", 100), (0, "down", 100), (9, "down", 0)], true).expect("draws");
        let drawn = draw(&chart, 60, false);
        let lines: Vec<&str> = drawn.lines().collect();
        assert_eq!(lines.len(), 1 + HEIGHT + 3);
        assert!(lines[1].starts_with("100 │b") && lines[1].ends_with('a'), "{drawn}");
        assert!(lines[HEIGHT].starts_with("  0 │a") && lines[HEIGHT].ends_with('b'), "{drawn}");
        assert!(lines[HEIGHT + 2].contains("1970-01-01 00:00:00") && lines[HEIGHT + 2].ends_with("00:09:00"));
        assert_eq!(lines[HEIGHT + 3].trim(), "a up  b down");
        assert!(draw(&chart, 60, true).contains("\x1b[34m"));
        // Every line fits.
        assert!(lines.iter().all(|line| line.width() <= 60), "{drawn}");
    }
}
