//! What `--help` prints: a launcher's flags, from the table that drives their reading.

use super::flag::Flag;
use super::scan::Launcher;

/// How far what is said of a flag is set in.
const MARGIN: &str = "          ";
/// How long lines become.
const WIDTH: usize = 90;

/// All that is said of a launcher.
pub(super) fn page<D>(launcher: &Launcher<D>) -> String {
    let (name, about, usage) = (launcher.name, launcher.about, launcher.usage());
    let flags = launcher.flags.iter().map(|flag| {
        let told = filled(&flag.told());
        format!("  {}\n{told}", line(flag))
    });
    let flags: String = flags.collect();
    format!(
        "{about}\n\nUsage: {usage}\n\nFlags, and what Carole does with them:\n{flags}\n\
         docs/how-to/coming-from-{name}.md tells what is different.\n"
    )
}

/// A flag's names, and what follows the last of them.
fn line<D>(flag: &Flag<D>) -> String {
    let names = flag.names.join(", ");
    match flag.placeholder {
        "" => names,
        placeholder => format!("{names} {placeholder}"),
    }
}

/// A text in lines behind the margin.
fn filled(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= WIDTH => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(format!("{MARGIN}{word}")),
        }
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::super::flag::Handling;
    use super::super::scan::Dialect;
    use super::*;

    #[test]
    fn every_flag_is_told_with_its_values_and_what_becomes_of_it() {
        static LAUNCHER: Launcher<()> = Launcher {
            name: "someone-run",
            about: "Runs what someone runs.",
            dialect: Dialect::Go,
            flags: &[
                Flag::value(
                    &["-n", "-np"],
                    "N",
                    Handling::Honoured("that many ranks", |(), _| Ok(())),
                ),
                Flag::switch(
                    &["-x"],
                    Handling::Refused {
                        why: "nobody has ever done this and it takes a long line to say why",
                        hint: "leave it out",
                    },
                ),
                Flag::switch(&["-h"], Handling::Help),
            ],
        };
        assert_eq!(
            page(&LAUNCHER),
            "Runs what someone runs.\n\n\
             Usage: carole someone-run [FLAGS] PROGRAM [ARGUMENTS]\n\n\
             Flags, and what Carole does with them:\n  \
               -n, -np N\n          \
                       that many ranks\n  \
               -x\n          \
                       refused: nobody has ever done this and it takes a long line to say why; leave it\n          \
                       out\n  \
               -h\n          \
                       prints this\n\n\
             docs/how-to/coming-from-someone-run.md tells what is different.\n"
        );
    }
}
