//! The arguments of `carole goto`.

use std::ffi::OsString;

use anyhow::anyhow;
use carole_launch::Target;
use clap::Args;

use super::PlaceArguments;
use crate::failure::Failure;

/// Open a shell on a host, named by itself or by what runs there.
///
/// With --job, or if one job runs, what is named is part of that job: it is reached as the job
/// reaches it, and the shell begins in the job's folder. With a list of hosts, a number is a rank of
/// the list's slots, as `carole run` places them. Without either, a host is any.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  carole goto worker 0              the host of the first worker of the job that runs
  carole goto --job train 5         the host of rank 5 of the job named train
  carole goto -H a:4,b:4 5          the host of rank 5, if a job ran on these
  carole goto ann@node-b -- htop    htop instead of a shell")]
pub(crate) struct GotoArguments {
    /// HOST, RANK or ROLE INDEX
    #[arg(required = true, num_args = 1..=2, value_name = "WHERE")]
    pub(crate) target: Vec<String>,

    /// The job, among those that were started on this machine
    #[arg(long, value_name = "NAME", conflicts_with = "where")]
    pub(crate) job: Option<String>,

    /// A command to run instead of a shell, after `--`
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,

    #[command(flatten)]
    pub(crate) place: PlaceArguments,
}

impl GotoArguments {
    /// What is looked for.
    pub(crate) fn target(&self) -> Result<Target, Failure> {
        let number = |text: &str| text.parse::<usize>().ok();
        match &self.target[..] {
            [one] => Ok(match number(one) {
                Some(rank) => Target::Rank(rank),
                None => Target::Host(one.clone()),
            }),
            [role, index] => match number(index) {
                Some(index) => Ok(Target::Role {
                    role: role.clone(),
                    index,
                }),
                None => Err(
                    Failure::usage(anyhow!("{role} {index}: an index is a number"))
                        .with_hint("a command stands after --, as in carole goto b -- htop"),
                ),
            },
            _ => unreachable!("the parser takes one or two"),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        goto: GotoArguments,
    }

    fn target(words: &[&str]) -> Result<Target, Failure> {
        let words = ["goto"].iter().chain(words);
        Line::try_parse_from(words).unwrap().goto.target()
    }

    #[test]
    fn hosts_ranks_and_roles_are_told_apart() {
        let role = Target::Role {
            role: "worker".into(),
            index: 1,
        };
        assert_eq!(target(&["5"]).unwrap(), Target::Rank(5));
        assert_eq!(target(&["b"]).unwrap(), Target::Host("b".into()));
        assert_eq!(target(&["worker", "1"]).unwrap(), role);
        assert_eq!(target(&["worker", "1", "--", "ls", "-l"]).unwrap(), role);
        assert_eq!(
            target(&["10.0.0.2"]).unwrap(),
            Target::Host("10.0.0.2".into())
        );
        assert_eq!(target(&["b", "ls"]).unwrap_err().code(), 2);
    }
}
