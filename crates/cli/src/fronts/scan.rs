//! Splitting a command line into flags, their values and the program.
//!
//! Three families of rules: Python's argparse, Open MPI's and Go's. In all of them the first word
//! that is neither a flag nor a flag's value is the program, and all words from there on are its
//! own.

use std::ffi::OsString;

use anyhow::anyhow;
use carole_launch::request::Request;
use carole_plan::nearest;

use super::flag::{Flag, Given, Handling, Values};
use super::{Asked, help};
use crate::commands::version;
use crate::failure::Failure;

/// A launcher: its name and how its command line is read.
pub(super) struct Launcher<D: 'static> {
    pub(super) name: &'static str,
    /// What it is, for help.
    pub(super) about: &'static str,
    pub(super) dialect: Dialect,
    pub(super) flags: &'static [Flag<D>],
}

/// How flags are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    /// Python's: `--flag value`, `--flag=value`, `-f value`, `-fvalue`, and the beginning of a long
    /// name where it can only mean one.
    Argparse {
        /// `_` in a long name means `-`.
        underscores: bool,
    },
    /// Open MPI's: one dash or two, `-flag value` or `--flag=value`, whole names only.
    OpenMpi,
    /// Go's: one dash or two, `-flag value` or `-flag=value`, whole names only; a switch may have
    /// a value, after `=` only.
    Go,
}

/// What a command line leads to.
enum Scanned {
    /// The program with its arguments.
    Program(Vec<OsString>),
    /// What a person who asked is told.
    Answer(String),
}

/// A flag's place in a command line.
struct Found<'a, D: 'static> {
    flag: &'a Flag<D>,
    /// Its name as it was written.
    name: String,
    /// A value in the same word.
    attached: Option<String>,
}

impl<D> Launcher<D> {
    /// Reads a command line: its flags change `draft`, of which `finish` makes a request together
    /// with the program and its arguments. Of these there is at least one word.
    pub(super) fn read(
        &self,
        words: &[OsString],
        mut draft: D,
        finish: impl FnOnce(D, Vec<OsString>) -> Result<Request, Failure>,
    ) -> Result<Asked, Failure> {
        match self.scan(words, &mut draft)? {
            Scanned::Program(program) => Ok(Asked::Job(Box::new(finish(draft, program)?))),
            Scanned::Answer(answer) => Ok(Asked::Answer(answer)),
        }
    }

    /// Applies the flags among `words` to `draft`, up to the program or to a question.
    fn scan(&self, words: &[OsString], draft: &mut D) -> Result<Scanned, Failure> {
        let mut rest = words;
        while let [first, after @ ..] = rest {
            let Some(word) = first.to_str().filter(|word| is_flag(word)) else {
                break;
            };
            rest = after;
            if word == "--" {
                break;
            }
            let found = self.find(word)?;
            // Whatever its values are: they may be written in a way that only the launcher knows.
            if let Handling::Refused { why, hint } = found.flag.handling {
                let name = found.name;
                return Err(Failure::usage(anyhow!("{name}: {why}")).with_hint(hint));
            }
            let given = self.values(&found, &mut rest)?;
            match found.flag.handling {
                Handling::Honoured(_, apply) => apply(draft, &given)?,
                Handling::Sets(variable, apply) => apply(draft, &given, variable)?,
                Handling::AcceptedIf(_, check) => check(&given)?,
                Handling::Accepted(_) | Handling::Refused { .. } => {}
                Handling::Help => return Ok(Scanned::Answer(help::page(self))),
                Handling::Version => return Ok(Scanned::Answer(version::text())),
            }
        }
        if rest.is_empty() {
            let name = self.name;
            let hint = format!(
                "usage is {}; carole {name} --help lists the flags",
                self.usage()
            );
            return Err(Failure::usage(anyhow!("{name} was given no program")).with_hint(hint));
        }
        Ok(Scanned::Program(rest.to_vec()))
    }

    /// How it is called.
    pub(super) fn usage(&self) -> String {
        format!("carole {} [FLAGS] PROGRAM [ARGUMENTS]", self.name)
    }

    /// The flag that `word` names.
    fn find(&self, word: &str) -> Result<Found<'_, D>, Failure> {
        let found = match self.dialect {
            Dialect::Argparse { underscores } => self.find_argparse(word, underscores)?,
            Dialect::OpenMpi => self.find_bare(word, word.starts_with("--")),
            Dialect::Go => self.find_bare(word, true),
        };
        found.ok_or_else(|| self.unknown(word))
    }

    fn find_argparse(
        &self,
        word: &str,
        underscores: bool,
    ) -> Result<Option<Found<'_, D>>, Failure> {
        let long = word.starts_with("--");
        let (name, attached) = split(word);
        let spelled = if underscores && long {
            name.replace('_', "-")
        } else {
            name.to_owned()
        };
        let found = |flag, attached| {
            let name = name.to_owned();
            Ok(Some(Found {
                flag,
                name,
                attached,
            }))
        };
        if let Some(flag) = self.named(|known| known == spelled).next() {
            return found(flag, attached);
        }
        let begun: Vec<_> = self
            .named(|known| known.starts_with(&spelled) && known.starts_with("--") == long)
            .collect();
        match begun[..] {
            [flag] => return found(flag, attached),
            [] => {}
            _ => return Err(self.ambiguous(name, &spelled)),
        }
        // A value right behind a flag of one letter, as in `-r3`.
        let Some((letter, value)) = word.split_at_checked(2).filter(|_| !long) else {
            return Ok(None);
        };
        let flag = self.named(|known| known == letter).next();
        Ok(flag
            .filter(|flag| flag.values == Values::One)
            .map(|flag| Found {
                flag,
                name: letter.to_owned(),
                attached: Some(value.to_owned()),
            }))
    }

    /// Finds a whole name, however many dashes it has.
    fn find_bare(&self, word: &str, equals: bool) -> Option<Found<'_, D>> {
        let (name, attached) = if equals { split(word) } else { (word, None) };
        let bare = bare(name)?;
        let flag = self
            .named(|known| known.trim_start_matches('-') == bare)
            .next()?;
        Some(Found {
            flag,
            name: name.to_owned(),
            attached,
        })
    }

    /// The flags with a name that fits.
    fn named(&self, fits: impl Fn(&str) -> bool) -> impl Iterator<Item = &Flag<D>> {
        let fits = move |flag: &&Flag<D>| flag.names.iter().any(|name| fits(name));
        self.flags.iter().filter(fits)
    }

    /// Takes the values of a flag from its word and from those after it.
    fn values(&self, found: &Found<'_, D>, rest: &mut &[OsString]) -> Result<Given, Failure> {
        let name = &found.name;
        let attached = found.attached.clone().map(OsString::from);
        let mut values = Vec::new();
        match (found.flag.values, attached) {
            (Values::None, None) => {}
            (Values::None, Some(value)) if self.dialect == Dialect::Go => values.push(value),
            (Values::One, Some(value)) => values.push(value),
            (Values::None, Some(_)) => {
                return Err(Failure::usage(anyhow!("{name} takes no value"))
                    .with_hint(format!("write {name} alone")));
            }
            (Values::Two, Some(_)) => {
                return Err(Failure::usage(anyhow!("{name} takes two values"))
                    .with_hint(format!("write {name} FIRST SECOND")));
            }
            (Values::One, None) => values.push(self.next_value(name, rest)?),
            (Values::Two, None) => {
                values.push(self.next_value(name, rest)?);
                values.push(self.next_value(name, rest)?);
            }
        }
        Ok(Given {
            name: name.clone(),
            values,
        })
    }

    fn next_value(&self, name: &str, rest: &mut &[OsString]) -> Result<OsString, Failure> {
        let missing = || {
            let hint = match self.dialect {
                // A value with a dash in front is only understood in the same word.
                Dialect::Argparse { .. } if name.starts_with("--") => format!("write {name}=VALUE"),
                _ => format!("write {name} VALUE"),
            };
            Failure::usage(anyhow!("{name} has no value")).with_hint(hint)
        };
        let [value, after @ ..] = *rest else {
            return Err(missing());
        };
        let argparse = matches!(self.dialect, Dialect::Argparse { .. });
        if argparse && value.to_str().is_some_and(looks_like_a_flag) {
            return Err(missing());
        }
        *rest = after;
        Ok(value.clone())
    }

    fn unknown(&self, word: &str) -> Failure {
        let (name, _) = split(word);
        let launcher = self.name;
        let names = self
            .flags
            .iter()
            .flat_map(|flag| flag.names.iter().copied());
        let hint = match nearest(name, names) {
            Some(near) => format!("the nearest flag is {near}"),
            None => "flags of your own program go after its name".to_owned(),
        };
        Failure::usage(anyhow!("{name} is no flag of {launcher} that Carole knows")).with_hint(hint)
    }

    fn ambiguous(&self, name: &str, spelled: &str) -> Failure {
        let names = self.flags.iter().flat_map(|flag| flag.names.iter());
        let begun: Vec<_> = names
            .filter(|known| known.starts_with(spelled))
            .copied()
            .collect();
        let hint = format!("it could be any of {}", begun.join(", "));
        Failure::usage(anyhow!("{name} could be more than one flag")).with_hint(hint)
    }
}

/// Whether a word is a flag where a flag or the program is expected.
fn is_flag(word: &str) -> bool {
    word.len() > 1 && word.starts_with('-')
}

/// Whether argparse takes a word for a flag where a value is expected.
fn looks_like_a_flag(word: &str) -> bool {
    is_flag(word) && !word.contains(' ') && word.parse::<f64>().is_err()
}

/// A flag's name, and the value in the same word.
fn split(word: &str) -> (&str, Option<String>) {
    match word.split_once('=') {
        Some((name, value)) => (name, Some(value.to_owned())),
        None => (word, None),
    }
}

/// A name without its one or two dashes.
fn bare(name: &str) -> Option<&str> {
    let bare = name.strip_prefix("--").or_else(|| name.strip_prefix('-'))?;
    (!bare.is_empty() && !bare.starts_with('-')).then_some(bare)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{message, words};
    use super::*;

    /// What was given, in order.
    type Draft = Vec<String>;

    fn note(draft: &mut Draft, given: &Given) -> Result<(), Failure> {
        let values: Result<Vec<_>, _> = (0..given.values.len()).map(|i| given.text_at(i)).collect();
        draft.push(format!("{}={}", given.name, values?.join("+")));
        Ok(())
    }

    const FLAGS: &[Flag<Draft>] = &[
        Flag::value(&["-n", "--num-ranks"], "N", Handling::Honoured("", note)),
        Flag::value(
            &["-hostfile", "--hostfile"],
            "FILE",
            Handling::Honoured("", note),
        ),
        Flag::switch(&["--numa"], Handling::Honoured("", note)),
        Flag::pair(&["--mca"], "KEY VALUE", Handling::Honoured("", note)),
        Flag::switch(&["--quiet"], Handling::Accepted("no effect")),
        Flag::value(
            &["--shape"],
            "NAME",
            Handling::Refused {
                why: "there is one shape",
                hint: "leave it out",
            },
        ),
    ];

    fn launcher(dialect: Dialect) -> Launcher<Draft> {
        Launcher {
            name: "someone-run",
            about: "Runs what someone runs.",
            dialect,
            flags: FLAGS,
        }
    }

    const PYTHON: Dialect = Dialect::Argparse { underscores: true };

    fn read(dialect: Dialect, line: &str) -> String {
        let mut draft = Draft::new();
        let program = program(launcher(dialect).scan(&words(line), &mut draft));
        let program: Vec<_> = program.iter().map(|word| word.to_string_lossy()).collect();
        format!("{} : {}", draft.join(" "), program.join(" "))
    }

    fn program(scanned: Result<Scanned, Failure>) -> Vec<OsString> {
        match scanned {
            Ok(Scanned::Program(program)) => program,
            Ok(Scanned::Answer(answer)) => panic!("an answer: {answer}"),
            Err(failure) => panic!("{}", failure.render(false)),
        }
    }

    fn error(dialect: Dialect, line: &str) -> String {
        let mut draft = Draft::new();
        message(launcher(dialect).scan(&words(line), &mut draft).map(drop))
    }

    #[test]
    fn pythons_rules() {
        for (line, expected) in [
            ("-n 4 a -n 5 --", "-n=4 : a -n 5 --"),
            ("-n4 a", "-n=4 : a"),
            ("-n=4 a", "-n=4 : a"),
            ("--num-ranks=4 a", "--num-ranks=4 : a"),
            ("--num_ranks 4 a", "--num_ranks=4 : a"),
            ("--num_r 4 a", "--num_r=4 : a"),
            ("-hostf f a", "-hostf=f : a"),
            ("--host f a", "--host=f : a"),
            ("-n -4 a", "-n=-4 : a"),
            ("--quiet -- --odd", " : --odd"),
            ("- x", " : - x"),
        ] {
            assert_eq!(read(PYTHON, line), expected, "{line}");
        }
        let error = |line| error(PYTHON, line);
        assert_eq!(
            error("--num 4 a"),
            "error: --num could be more than one flag\n\
             hint: it could be any of --num-ranks, --numa\n"
        );
        assert_eq!(
            error("--num-ranks --quiet a"),
            "error: --num-ranks has no value\nhint: write --num-ranks=VALUE\n"
        );
        assert_eq!(
            error("--quiet=1 a"),
            "error: --quiet takes no value\nhint: write --quiet alone\n"
        );
        assert_eq!(
            error("-n"),
            "error: -n has no value\nhint: write -n VALUE\n"
        );
    }

    #[test]
    fn open_mpis_rules() {
        for (line, expected) in [
            ("-num-ranks 4 a -n", "-num-ranks=4 : a -n"),
            ("--num-ranks=4 a", "--num-ranks=4 : a"),
            ("-n -4 a", "-n=-4 : a"),
            ("-mca pml ob1 a", "-mca=pml+ob1 : a"),
            ("--n 4 -- a", "--n=4 : a"),
        ] {
            assert_eq!(read(Dialect::OpenMpi, line), expected, "{line}");
        }
        let error = |line| error(Dialect::OpenMpi, line);
        for unknown in ["-num 4 a", "-n4 a", "-n=4 a", "---n 4 a"] {
            assert!(error(unknown).contains("is no flag of someone-run"));
        }
        assert!(error("--mca pml").starts_with("error: --mca has no value\n"));
        assert!(error("--mca=pml ob1 a").starts_with("error: --mca takes two values\n"));
    }

    #[test]
    fn gos_rules() {
        for (line, expected) in [
            ("-n 4 a", "-n=4 : a"),
            ("--n=4 a", "--n=4 : a"),
            ("-n= a", "-n= : a"),
            ("-numa a", "-numa= : a"),
            ("-numa=false a", "-numa=false : a"),
            ("-n 4 -- -a", "-n=4 : -a"),
        ] {
            assert_eq!(read(Dialect::Go, line), expected, "{line}");
        }
    }

    #[test]
    fn an_unknown_flag_is_named_with_the_nearest_known_one() {
        assert_eq!(
            error(PYTHON, "--num-rank5=4 a"),
            "error: --num-rank5 is no flag of someone-run that Carole knows\n\
             hint: the nearest flag is --num-ranks\n"
        );
        assert_eq!(
            error(Dialect::Go, "-frobnicate a"),
            "error: -frobnicate is no flag of someone-run that Carole knows\n\
             hint: flags of your own program go after its name\n"
        );
    }

    #[test]
    fn a_refused_flag_says_why_whatever_its_value_is() {
        for line in ["--shape", "--shape round a", "--shape=round a"] {
            assert_eq!(
                error(PYTHON, line),
                "error: --shape: there is one shape\nhint: leave it out\n"
            );
        }
    }

    #[test]
    fn a_program_is_needed() {
        for line in ["", "-n 4", "-n 4 --"] {
            assert_eq!(
                error(PYTHON, line),
                "error: someone-run was given no program\n\
                 hint: usage is carole someone-run [FLAGS] PROGRAM [ARGUMENTS]; \
                 carole someone-run --help lists the flags\n"
            );
        }
    }

    #[cfg(unix)]
    #[test]
    fn a_program_need_not_be_utf8() {
        use std::os::unix::ffi::OsStringExt;
        let words = vec![OsString::from_vec(vec![b'-', 0xff])];
        let scanned = launcher(PYTHON).scan(&words, &mut Draft::new());
        assert_eq!(program(scanned), words);
    }
}
