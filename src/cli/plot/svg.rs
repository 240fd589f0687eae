//! A chart as a picture: SVG, with nothing that a browser would have to fetch.

use std::fmt::Write;

use super::{Chart, short};

const WIDTH: f64 = 960.0;
const HEIGHT: f64 = 480.0;
/// Room for the axes and the title.
const LEFT: f64 = 80.0;
const RIGHT: f64 = 24.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 70.0;
/// Steps of the axis of values.
const STEPS: usize = 5;
/// Most labels below the axis.
const LABELS: usize = 8;
const COLOURS: [&str; 6] = ["#2563eb", "#dc2626", "#16a34a", "#d97706", "#9333ea", "#0891b2"];

/// The picture's text.
pub(in super::super) fn draw(chart: &Chart) -> String {
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
         <text x=\"{LEFT}\" y=\"24\" font-size=\"16\">{}</text>\n",
        escaped(&chart.title)
    );
    let (low, high) = chart.range();
    let down = |y: f64| TOP + (high - y) / (high - low) * (HEIGHT - TOP - BOTTOM);
    for step in 0..=STEPS {
        let value = low + (high - low) * step as f64 / STEPS as f64;
        let y = down(value);
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - RIGHT,
            LEFT - 8.0,
            y + 4.0,
            short(value)
        );
    }
    match chart.is_bars {
        true => bars(chart, down, &mut out),
        false => lines(chart, down, &mut out),
    }
    out += "</svg>\n";
    out
}

fn bars(chart: &Chart, down: impl Fn(f64) -> f64, out: &mut String) {
    let points: Vec<_> = chart.series.iter().flat_map(|series| &series.points).collect();
    let step = (WIDTH - LEFT - RIGHT) / points.len().max(1) as f64;
    let every = points.len().div_ceil(LABELS).max(1);
    for (number, point) in points.iter().enumerate() {
        let x = LEFT + step * number as f64;
        let (top, bottom) = (down(point.y.max(0.0)), down(point.y.min(0.0)));
        let _ = writeln!(
            out,
            "<rect x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\"><title>{}: {}</title></rect>",
            x + step * 0.1,
            step * 0.8,
            bottom - top,
            COLOURS[0],
            escaped(&point.label),
            short(point.y)
        );
        if number % every == 0 {
            label(x + step / 2.0, &point.label, out);
        }
    }
}

fn lines(chart: &Chart, down: impl Fn(f64) -> f64, out: &mut String) {
    let Some((first, last)) = chart.ends() else { return };
    let span = (last.x - first.x).max(f64::MIN_POSITIVE);
    let across = |x: f64| LEFT + (x - first.x) / span * (WIDTH - LEFT - RIGHT);
    for (number, series) in chart.series.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let points: Vec<String> = series
            .points
            .iter()
            .map(|point| format!("{:.1},{:.1}", across(point.x), down(point.y)))
            .collect();
        match points.as_slice() {
            [only] => {
                let (x, y) = only.split_once(',').unwrap_or_default();
                let _ = writeln!(out, "<circle cx=\"{x}\" cy=\"{y}\" r=\"3\" fill=\"{colour}\"/>");
            }
            _ => {
                let _ = writeln!(
                    out,
                    "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" points=\"{}\"/>",
                    points.join(" ")
                );
            }
        }
        if chart.series.len() > 1 {
            let (x, y) = (LEFT + 150.0 * (number % 5) as f64, HEIGHT - 24.0 + 16.0 * (number / 5) as f64);
            let _ = writeln!(
                out,
                "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"10\" height=\"10\" fill=\"{colour}\"/>\
                 <text x=\"{:.1}\" y=\"{y:.1}\">{}</text>",
                y - 9.0,
                x + 14.0,
                escaped(&series.name)
            );
        }
    }
    label(across(first.x), &first.label, out);
    if last.x > first.x {
        label(across(last.x), &last.label, out);
    }
}

/// A text below the axis, kept inside the picture.
fn label(x: f64, text: &str, out: &mut String) {
    let anchor = if x > WIDTH - 80.0 { "end" } else { "middle" };
    let _ = writeln!(
        out,
        "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" font-size=\"11\">{}</text>",
        HEIGHT - BOTTOM + 18.0,
        escaped(text)
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::tests::chart;
    use super::*;

    #[test]
    fn bars_reach_from_zero_to_their_value() {
        let drawn = draw(&chart(&[(0, "", 4), (1, "", 2)], false).expect("draws"));
        // The axis is 370 high, from 40 to 410; the bars share 856 across.
        assert!(drawn.contains("<rect x=\"122.8\" y=\"40.0\" width=\"342.4\" height=\"370.0\""), "{drawn}");
        assert!(drawn.contains("<rect x=\"550.8\" y=\"225.0\" width=\"342.4\" height=\"185.0\""), "{drawn}");
        assert!(drawn.contains("<title>1970-01-01 00:01:00: 2</title>"));
    }

    #[test]
    fn names_can_not_break_the_picture() {
        let drawn = draw(&chart(&[(0, "<a&b>", 1), (1, "<a&b>", 2), (0, "c", 1)], true).expect("draws"));
        assert!(drawn.contains("&lt;a&amp;b&gt;") && !drawn.contains("<a&b>"));
        assert_eq!(drawn.matches("<polyline").count(), 1);
        assert_eq!(drawn.matches("<circle").count(), 1);
        assert!(drawn.contains("points=\"80.0,225.0 936.0,40.0\""), "{drawn}");
    }
}
