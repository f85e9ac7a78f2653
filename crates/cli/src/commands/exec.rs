//! `carole exec`: one command on every host, and what came of it.

use std::io::{self, Write};
use std::process::ExitCode;

use carole_launch::Exit;
use carole_launch::remote::{Ending, Kept, Outcome};
use serde::Serialize;

use super::everywhere::{Everywhere, in_words};
use crate::args::{ExecArguments, OutputChoice};
use crate::failure::Failure;

/// The code of a shell that finds no such program.
const NOT_FOUND: i32 = 127;

pub(crate) fn exec(arguments: &ExecArguments) -> Result<ExitCode, Failure> {
    let everywhere = Everywhere::new(&arguments.place, arguments.timeout)?;
    let mut printer = Printer {
        output: arguments.output,
        out: io::stdout(),
        err: io::stderr(),
    };
    let outcomes = everywhere.run(&arguments.command, |host, outcome| {
        printer.print(&host.name, outcome)
    })?;
    let not_found = |one: &Outcome| one.ending.code() == NOT_FOUND;
    let spaces = arguments.command[0].to_string_lossy().contains(' ');
    everywhere.conclude(&outcomes).map_err(|failure| {
        if spaces && outcomes.iter().any(not_found) {
            failure.with_hint("the command and its arguments are separate words; a shell's text goes as -- sh -c 'TEXT'")
        } else {
            failure
        }
    })
}

/// Prints outcomes as they come.
struct Printer<O, E> {
    output: OutputChoice,
    out: O,
    err: E,
}

/// What a program reads of a host.
#[derive(Serialize)]
struct Row<'a> {
    host: &'a str,
    #[serde(flatten)]
    ending: EndingRow<'a>,
    seconds: f64,
    stdout: String,
    stderr: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    stdout_cut: Option<Cut>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stderr_cut: Option<Cut>,
}

/// One of `code` and `signal`, or `error` and perhaps `hint`.
#[derive(Serialize)]
#[serde(untagged)]
enum EndingRow<'a> {
    Exited(Exit),
    Failed {
        error: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        hint: Option<&'a str>,
    },
}

/// What is missing from a stream's middle.
#[derive(Serialize)]
struct Cut {
    /// How many bytes stand before it.
    at: usize,
    bytes: u64,
}

impl<O: Write, E: Write> Printer<O, E> {
    fn print(&mut self, host: &str, outcome: &Outcome) -> io::Result<()> {
        match self.output {
            OutputChoice::Json => {
                let row = serde_json::to_string(&Row::new(host, outcome))?;
                writeln!(self.out, "{row}")?;
            }
            OutputChoice::Table => {
                let seconds = outcome.elapsed.as_secs_f64();
                let ending = in_words(&outcome.ending);
                writeln!(self.out, "== {host}: {ending}, {seconds:.1} s")?;
                for (bytes, cut) in parts(&outcome.stdout) {
                    write_lines(&mut self.out, "", &bytes)?;
                    if let Some(cut) = cut {
                        writeln!(self.out, "[carole: {cut} bytes were cut here]")?;
                    }
                }
                // Before the other stream: a terminal may show both.
                self.out.flush()?;
                for (bytes, cut) in parts(&outcome.stderr) {
                    write_lines(&mut self.err, &format!("{host}| "), &bytes)?;
                    if let Some(cut) = cut {
                        writeln!(self.err, "{host}| [carole: {cut} bytes were cut here]")?;
                    }
                }
                self.err.flush()?;
            }
        }
        self.out.flush()
    }
}

/// The beginning, with what was cut behind it, and the end.
fn parts(kept: &Kept) -> [(Vec<u8>, Option<u64>); 2] {
    let cut = (kept.cut() > 0).then_some(kept.cut());
    [(kept.beginning(), cut), (kept.end(), None)]
}

/// Writes lines, the last one whole as well.
fn write_lines(to: &mut impl Write, prefix: &str, bytes: &[u8]) -> io::Result<()> {
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        to.write_all(prefix.as_bytes())?;
        to.write_all(line)?;
    }
    match bytes.last() {
        None | Some(b'\n') => Ok(()),
        Some(_) => writeln!(to),
    }
}

impl<'a> Row<'a> {
    fn new(host: &'a str, outcome: &'a Outcome) -> Self {
        let cut = |kept: &Kept| {
            (kept.cut() > 0).then(|| Cut {
                at: kept.beginning().len(),
                bytes: kept.cut(),
            })
        };
        Self {
            host,
            ending: match &outcome.ending {
                Ending::Exited(exit) => EndingRow::Exited(*exit),
                Ending::Failed { problem, hint, .. } => EndingRow::Failed {
                    error: problem,
                    hint: hint.as_deref(),
                },
            },
            seconds: (outcome.elapsed.as_secs_f64() * 1000.0).round() / 1000.0,
            stdout: outcome.stdout.text(),
            stderr: outcome.stderr.text(),
            stdout_cut: cut(&outcome.stdout),
            stderr_cut: cut(&outcome.stderr),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn printed(output: OutputChoice, outcome: &Outcome) -> (String, String) {
        let mut printer = Printer {
            output,
            out: Vec::new(),
            err: Vec::new(),
        };
        printer.print("b", outcome).unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (text(printer.out), text(printer.err))
    }

    fn outcome(ending: Ending, stdout: &[u8], stderr: &[u8]) -> Outcome {
        Outcome {
            index: 1,
            ending,
            elapsed: Duration::from_millis(1234),
            stdout: Kept::from(stdout),
            stderr: Kept::from(stderr),
        }
    }

    #[test]
    fn a_host_s_result_is_a_heading_and_what_it_printed() {
        let one = outcome(Ending::Exited(Exit::Code(3)), b"out\nmore", b"err\nlast");
        let (out, err) = printed(OutputChoice::Table, &one);
        assert_eq!(out, "== b: exited with code 3, 1.2 s\nout\nmore\n");
        assert_eq!(err, "b| err\nb| last\n");
        let (out, err) = printed(OutputChoice::Json, &one);
        let expected =
            r#"{"host":"b","code":3,"seconds":1.234,"stdout":"out\nmore","stderr":"err\nlast"}"#;
        assert_eq!((out.trim_end(), &*err), (expected, ""));
    }

    #[test]
    fn signals_and_failures_have_names_of_their_own() {
        let one = outcome(Ending::Exited(Exit::Signal(9)), b"", b"");
        let (out, _) = printed(OutputChoice::Json, &one);
        assert!(out.contains(r#""signal":9"#), "{out}");
        let ending = Ending::Failed {
            problem: "no route".into(),
            hint: None,
            code: 255,
        };
        let (out, _) = printed(OutputChoice::Json, &outcome(ending.clone(), b"", b""));
        assert!(
            out.starts_with(r#"{"host":"b","error":"no route","seconds""#),
            "{out}"
        );
        let (out, _) = printed(OutputChoice::Table, &outcome(ending, b"", b""));
        assert_eq!(out, "== b: no route, 1.2 s\n");
    }

    #[test]
    fn what_was_cut_is_told_where_it_was() {
        let long = vec![b'x'; 5 << 20];
        let one = outcome(Ending::Exited(Exit::Code(0)), &long, b"");
        let (out, _) = printed(OutputChoice::Table, &one);
        assert!(out.contains("x\n[carole: 1048576 bytes were cut here]\nx"));
        let (out, _) = printed(OutputChoice::Json, &one);
        assert!(out.contains(r#""stdout_cut":{"at":2097152,"bytes":1048576}"#));
    }
}
