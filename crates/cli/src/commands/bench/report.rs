//! Printing results as they come, and judging them at the end.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};

use super::measurement::Measurement;
use super::plot;
use crate::args::{OutputChoice, size};
use crate::failure::Failure;

/// Everything measured so far, and where it goes.
pub(super) struct Report {
    output: OutputChoice,
    out: Box<dyn Write + Send>,
    rows: Vec<Measurement>,
    plot: Option<(PathBuf, File)>,
}

impl Report {
    /// A report to `out` that is also plotted into the file `plot`, which is made at once: better
    /// now than after the measuring.
    pub(super) fn new(
        output: OutputChoice,
        plot: Option<&Path>,
        out: impl Write + Send + 'static,
    ) -> Result<Self, Failure> {
        let file = |path: &Path| {
            let made = File::create(path).map(|file| (path.to_owned(), file));
            made.with_context(|| format!("--plot: cannot write {}", path.display()))
        };
        let plot = plot.map(file).transpose().map_err(|error| {
            Failure::usage(error).with_hint("is the folder there, and may you write to it?")
        })?;
        Ok(Self {
            output,
            out: Box::new(out),
            rows: Vec::new(),
            plot,
        })
    }

    /// Prints one result.
    pub(super) fn add(&mut self, row: Measurement) -> io::Result<()> {
        match self.output {
            OutputChoice::Json => writeln!(self.out, "{}", serde_json::to_string(&row)?)?,
            OutputChoice::Table => {
                if self.rows.is_empty() {
                    write!(self.out, "{}", header())?;
                }
                writeln!(self.out, "{}", line(&row))?;
            }
        }
        self.out.flush()?;
        self.rows.push(row);
        Ok(())
    }

    /// Draws the plot, and fails if a result was wrong.
    pub(super) fn finish(&mut self) -> Result<(), Failure> {
        if let Some((path, mut file)) = self.plot.take() {
            let written = file.write_all(plot::svg(&self.rows).as_bytes());
            written
                .with_context(|| format!("cannot write {}", path.display()))
                .map_err(Failure::new)?;
        }
        judge(&self.rows)
    }
}

/// Fails if a result was wrong.
pub(crate) fn judge(rows: &[Measurement]) -> Result<(), Failure> {
    let wrong: Vec<String> = rows
        .iter()
        .filter(|row| row.check == Some(false))
        .map(describe)
        .collect();
    if wrong.is_empty() {
        return Ok(());
    }
    Err(Failure::new(anyhow!("wrong results: {}", wrong.join("; "))))
}

/// `all-reduce of 1 KiB on 4 ranks`
fn describe(row: &Measurement) -> String {
    format!(
        "{} of {} on {} ranks",
        title(row),
        size::text(row.bytes),
        row.ranks
    )
}

fn title(row: &Measurement) -> String {
    match &row.list {
        Some(list) => format!("{} {list}", row.op.name()),
        None => row.op.name().to_owned(),
    }
}

fn header() -> String {
    let columns = [
        format!("{:<19} {:>5} {:>9}", "operation", "ranks", "size"),
        format!("{:>11} {:>11} {:>11}", "median", "min", "p90"),
        format!("{:>8} {:>8}", "algbw", "busbw"),
        format!(
            "{:>7}  {:<8} {:<10} check",
            "flag", "transport", "algorithm"
        ),
    ];
    let units = [
        format!("{:35}", ""),
        format!("{:>11} {:>11} {:>11}", "us", "us", "us"),
        format!("{:>8} {:>8}", "GB/s", "GB/s"),
        format!("{:>7}", "ns"),
    ];
    format!("{}\n{}\n", columns.join(" "), units.join(" "))
}

fn line(row: &Measurement) -> String {
    let bandwidth = |gbps: f64| {
        if row.bytes == 0 {
            "-".to_owned()
        } else {
            format!("{gbps:.3}")
        }
    };
    let flag = row
        .flag_ns
        .map_or("-".to_owned(), |flag| format!("{flag:.1}"));
    let check = match row.check {
        Some(true) => "ok",
        Some(false) => "WRONG",
        None => "-",
    };
    format!(
        "{:<19} {:>5} {:>9} {:>11.2} {:>11.2} {:>11.2} {:>8} {:>8} {flag:>7}  {:<9} {:<10} {check}",
        title(row),
        row.ranks,
        size::text(row.bytes),
        row.median_us,
        row.min_us,
        row.p90_us,
        bandwidth(row.algbw_gbps),
        bandwidth(row.busbw_gbps),
        row.transport,
        row.algorithm,
    )
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::super::measurement::tests::example;
    use super::super::operation::Operation;
    use super::*;

    /// What was written, for a test to look at.
    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Page {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_table_has_its_figures_under_their_names() {
        let page = Page::default();
        let mut report = Report::new(OutputChoice::Table, None, page.clone()).unwrap();
        report
            .add(example(Operation::AllReduce, 4, 1 << 20))
            .unwrap();
        report.add(example(Operation::Barrier, 4, 0)).unwrap();
        report.finish().unwrap();
        let expected = "\
operation           ranks      size      median         min         p90    algbw    busbw    flag  transport algorithm  check
                                             us          us          us     GB/s     GB/s      ns
all-reduce              4     1 MiB      200.00      100.00      400.00    5.243    7.864    61.5  shm       auto       ok
barrier                 4       0 B      200.00      100.00      400.00        -        -    61.5  shm       auto       ok
";
        assert_eq!(page.text(), expected);
    }

    #[test]
    fn a_wrong_result_is_printed_and_fails_in_the_end() {
        let page = Page::default();
        let mut report = Report::new(OutputChoice::Json, None, page.clone()).unwrap();
        let wrong = Measurement {
            check: Some(false),
            ..example(Operation::Gather, 2, 2048)
        };
        report.add(wrong).unwrap();
        assert!(page.text().contains(r#""check":false"#));
        assert!(report.finish().is_err());
    }
}
