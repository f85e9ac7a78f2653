//! The plot: time and bus bandwidth over size, both axes logarithmic, as an SVG.

use std::fmt::Write;

use super::measurement::Measurement;
use crate::args::size;

const WIDTH: f64 = 1080.0;
const PANEL: f64 = 540.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 56.0;
const LEGEND_COLUMNS: usize = 4;
const LEGEND_LINE: f64 = 22.0;
/// The least distance of labels on the axis of sizes.
const LABEL_ROOM: f64 = 46.0;
/// Told apart with the common deficiencies of colour vision (Okabe and Ito), black first.
const COLOURS: [&str; 7] = [
    "#000000", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9",
];
/// Once the colours are used up, lines are told apart by dashes.
const DASHES: [&str; 4] = ["none", "7 4", "2 3", "9 3 2 3"];

/// What one line shows: an operation on a number of ranks.
struct Series<'a> {
    label: String,
    rows: Vec<&'a Measurement>,
}

/// The whole picture.
pub(super) fn svg(rows: &[Measurement]) -> String {
    let series = series(rows);
    let legend = LEGEND_LINE * series.len().div_ceil(LEGEND_COLUMNS) as f64;
    let height = HEIGHT + legend + 14.0;
    let mut out = String::new();
    let text = &mut out;
    put(
        text,
        format_args!(
            r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" font-family="sans-serif" font-size="12">"#
        ),
    );
    put(text, format_args!("<title>carole bench</title>"));
    put(
        text,
        format_args!(r#"<rect width="{WIDTH}" height="{height}" fill="white"/>"#),
    );
    panel(
        text,
        0.0,
        "time of one operation (less is better)",
        &series,
        microseconds,
        |row| row.median_us,
    );
    panel(
        text,
        PANEL,
        "bus bandwidth (more is better)",
        &series,
        gigabytes,
        |row| row.busbw_gbps,
    );
    for (index, one) in series.iter().enumerate() {
        let x = LEFT + (WIDTH - LEFT) / LEGEND_COLUMNS as f64 * (index % LEGEND_COLUMNS) as f64;
        let y = HEIGHT + 8.0 + LEGEND_LINE * (index / LEGEND_COLUMNS) as f64;
        put(
            text,
            format_args!(r#"<path d="M{x:.1},{y:.1} h28" {}/>"#, stroke(index)),
        );
        put(
            text,
            format_args!(
                r#"<text x="{:.1}" y="{:.1}">{}</text>"#,
                x + 34.0,
                y + 4.0,
                escape(&one.label)
            ),
        );
    }
    out += "</svg>\n";
    out
}

/// The rows that have a size, by what their line is called.
fn series(rows: &[Measurement]) -> Vec<Series<'_>> {
    let mut found: Vec<Series<'_>> = Vec::new();
    for row in rows
        .iter()
        .filter(|row| row.bytes > 0 && row.median_us > 0.0)
    {
        let list = row
            .list
            .as_ref()
            .map(|list| format!(" {list}"))
            .unwrap_or_default();
        let label = format!("{}{list}, {} ranks", row.op.name(), row.ranks);
        match found.iter_mut().find(|one| one.label == label) {
            Some(one) => one.rows.push(row),
            None => found.push(Series {
                label,
                rows: vec![row],
            }),
        }
    }
    for one in &mut found {
        one.rows.sort_by_key(|row| row.bytes);
    }
    found
}

/// A logarithmic axis from `low` to `high`, drawn from `start` to `end`.
struct Axis {
    low: f64,
    high: f64,
    start: f64,
    end: f64,
}

impl Axis {
    fn place(&self, value: f64) -> f64 {
        let span = self.high.ln() - self.low.ln();
        // A single value has its place in the middle.
        let share = if span > 0.0 {
            (value.ln() - self.low.ln()) / span
        } else {
            0.5
        };
        self.start + share * (self.end - self.start)
    }

    /// Round values to draw lines at: 1, 2 and 5 of each decade, or only 1 of many decades.
    fn ticks(&self) -> Vec<f64> {
        let (first, last) = (
            self.low.log10().floor() as i32,
            self.high.log10().ceil() as i32,
        );
        let steps: &[f64] = if (self.high / self.low).log10() > 2.5 {
            &[1.0]
        } else {
            &[1.0, 2.0, 5.0]
        };
        (first..=last)
            .flat_map(|decade| steps.iter().map(move |step| step * 10_f64.powi(decade)))
            .filter(|tick| (self.low * 0.999..=self.high * 1.001).contains(tick))
            .collect()
    }
}

/// From a round value below all to one above.
fn bounds(values: impl Iterator<Item = f64> + Clone) -> Option<(f64, f64)> {
    let low = values.clone().min_by(f64::total_cmp)?;
    let high = values.max_by(f64::total_cmp)?;
    let round = |value: f64, up: bool| {
        let decade = 10_f64.powf(value.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * decade);
        if up {
            steps
                .into_iter()
                .find(|step| *step >= value)
                .unwrap_or(value)
        } else {
            steps
                .into_iter()
                .rev()
                .find(|step| *step <= value)
                .unwrap_or(value)
        }
    };
    let (low, high) = (round(low, false), round(high, true));
    Some(if low < high {
        (low, high)
    } else {
        (low / 2.0, high * 2.0)
    })
}

fn panel(
    text: &mut String,
    x: f64,
    title: &str,
    series: &[Series<'_>],
    label: fn(f64) -> String,
    figure: fn(&Measurement) -> f64,
) {
    let rows = || series.iter().flat_map(|one| one.rows.iter().copied());
    let Some((low, high)) = bounds(rows().map(figure).filter(|value| *value > 0.0)) else {
        return;
    };
    let mut sizes: Vec<usize> = rows().map(|row| row.bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let (Some(&first), Some(&last)) = (sizes.first(), sizes.last()) else {
        return;
    };
    let (right, bottom) = (PANEL - RIGHT, HEIGHT - BOTTOM);
    let across = Axis {
        low: first as f64,
        high: last as f64,
        start: LEFT,
        end: right,
    };
    let up = Axis {
        low,
        high,
        start: bottom,
        end: TOP,
    };
    let middle = f64::midpoint(LEFT, right);

    put(text, format_args!(r#"<g transform="translate({x},0)">"#));
    put(
        text,
        format_args!(
            r#"<text x="{middle}" y="{}" text-anchor="middle" font-size="15">{title}</text>"#,
            TOP - 16.0
        ),
    );
    for tick in up.ticks() {
        let y = up.place(tick);
        put(
            text,
            format_args!(r##"<path d="M{LEFT},{y:.1} H{right}" stroke="#dddddd"/>"##),
        );
        put(
            text,
            format_args!(
                r#"<text x="{}" y="{:.1}" text-anchor="end">{}</text>"#,
                LEFT - 7.0,
                y + 4.0,
                label(tick)
            ),
        );
    }
    let mut taken = f64::NEG_INFINITY;
    for bytes in sizes {
        let x = across.place(bytes as f64);
        put(
            text,
            format_args!(r##"<path d="M{x:.1},{TOP} V{bottom}" stroke="#eeeeee"/>"##),
        );
        if x - taken >= LABEL_ROOM {
            taken = x;
            put(
                text,
                format_args!(
                    r#"<text x="{x:.1}" y="{}" text-anchor="middle">{}</text>"#,
                    bottom + 18.0,
                    size::text(bytes)
                ),
            );
        }
    }
    put(
        text,
        format_args!(
            r##"<path d="M{LEFT},{TOP} V{bottom} H{right}" fill="none" stroke="#555555"/>"##
        ),
    );
    put(
        text,
        format_args!(
            r##"<text x="{middle}" y="{}" text-anchor="middle" fill="#555555">size of a rank's tensor</text>"##,
            bottom + 40.0
        ),
    );
    for (index, one) in series.iter().enumerate() {
        let shown = one.rows.iter().filter(|row| figure(row) > 0.0);
        let point = |row: &Measurement| (across.place(row.bytes as f64), up.place(figure(row)));
        let path: Vec<String> = shown
            .clone()
            .map(|row| point(row))
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        put(
            text,
            format_args!(r#"<path d="M{}" {}/>"#, path.join(" L"), stroke(index)),
        );
        for row in shown {
            let (x, y) = point(row);
            put(
                text,
                format_args!(
                    r#"<circle cx="{x:.1}" cy="{y:.1}" r="3" fill="{}"><title>{}: {}, {}</title></circle>"#,
                    COLOURS[index % COLOURS.len()],
                    escape(&one.label),
                    size::text(row.bytes),
                    label(figure(row))
                ),
            );
        }
    }
    put(text, format_args!("</g>"));
}

fn stroke(index: usize) -> String {
    let colour = COLOURS[index % COLOURS.len()];
    let dashes = DASHES[index / COLOURS.len() % DASHES.len()];
    format!(r#"fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}""#)
}

/// A time in the unit that fits.
fn microseconds(value: f64) -> String {
    match value {
        1e6.. => format!("{} s", short(value / 1e6)),
        1e3.. => format!("{} ms", short(value / 1e3)),
        _ => format!("{} µs", short(value)),
    }
}

fn gigabytes(value: f64) -> String {
    if value >= 0.1 {
        format!("{} GB/s", short(value))
    } else {
        format!("{} MB/s", short(value * 1e3))
    }
}

/// Three digits at the most, and no zeros behind the point.
fn short(value: f64) -> String {
    let places = (2 - value.log10().floor() as i32).clamp(0, 4) as usize;
    let text = format!("{value:.places$}");
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    } else {
        text
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

fn put(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("writing to a string cannot fail");
}

#[cfg(test)]
mod tests {
    use super::super::measurement::tests::example;
    use super::super::operation::Operation;
    use super::*;

    #[test]
    fn every_operation_has_a_line_in_both_panels_and_a_label() {
        let rows: Vec<Measurement> = [Operation::AllReduce, Operation::AllGather]
            .into_iter()
            .flat_map(|op| [4, 1 << 10, 1 << 20].map(|bytes| example(op, 4, bytes)))
            .chain([example(Operation::Barrier, 4, 0)])
            .collect();
        let picture = svg(&rows);
        assert!(picture.starts_with("<svg ") && picture.ends_with("</svg>\n"));
        assert_eq!(picture.matches("<circle").count(), 12);
        assert!(picture.contains(">all-gather, 4 ranks</text>"));
        assert!(!picture.contains("barrier") && !picture.contains("NaN"));
    }

    #[test]
    fn a_single_size_is_drawn_in_the_middle_and_nothing_gives_no_panel() {
        let picture = svg(&[example(Operation::Broadcast, 2, 4096)]);
        assert!(picture.contains(&format!("cx=\"{:.1}\"", f64::midpoint(LEFT, PANEL - RIGHT))));
        assert!(!svg(&[]).contains("<g "));
    }

    #[test]
    fn labels_are_short() {
        assert_eq!(microseconds(0.5), "0.5 µs");
        assert_eq!(microseconds(20_000.0), "20 ms");
        assert_eq!(microseconds(1234.0), "1.23 ms");
        assert_eq!(gigabytes(7.5), "7.5 GB/s");
        assert_eq!(gigabytes(0.002), "2 MB/s");
        assert_eq!(gigabytes(10.0), "10 GB/s");
    }

    #[test]
    fn an_axis_ends_at_round_values() {
        assert_eq!(bounds([3.0, 170.0].into_iter()), Some((2.0, 200.0)));
        assert_eq!(bounds([5.0].into_iter()), Some((2.5, 10.0)));
        let axis = Axis {
            low: 2.0,
            high: 200.0,
            start: 0.0,
            end: 1.0,
        };
        assert_eq!(axis.ticks().first(), Some(&2.0));
        assert_eq!(axis.ticks().last(), Some(&200.0));
    }
}
