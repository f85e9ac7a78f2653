//! The arguments of `carole repo`.

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::{OutputChoice, PlaceArguments, duration};

/// Bring the git repositories of all hosts to a branch, and tell every host's commit.
///
/// Nothing is forced: a host with uncommitted changes, without the folder or with a branch that has
/// diverged is told of and left as it is. The exit code is 0 only if all hosts are at the same
/// commit.
#[derive(Debug, Args)]
pub(crate) struct RepoArguments {
    #[command(subcommand)]
    pub(crate) action: RepoAction,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum RepoAction {
    /// Fetch, and check a branch out as it is on each host
    Checkout(RepoWork),
    /// Fetch, check a branch out and bring it forward to the remote's
    Update(RepoWork),
}

/// Which branch of which repository, and where.
#[derive(Debug, Args)]
pub(crate) struct RepoWork {
    /// The branch
    #[arg(value_name = "BRANCH")]
    pub(crate) branch: Branch,

    /// The repository's folder, the same on all hosts; this folder by default. '~/DIR' in quotes is
    /// in the home folder of each host
    #[arg(long, value_name = "DIR")]
    pub(crate) path: Option<PathBuf>,

    /// How long each host may take; any time by default
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub(crate) timeout: Option<Duration>,

    /// What to print
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub(crate) output: OutputChoice,

    #[command(flatten)]
    pub(crate) place: PlaceArguments,
}

/// The name of a branch, made of letters, digits and a few signs that mean nothing to a shell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Branch(String);

impl Branch {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Branch {
    type Err = String;

    /// Refuses what git refuses, and more.
    fn from_str(text: &str) -> Result<Self, String> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "._/-+@#=,".contains(c);
        if let Some(odd) = text.chars().find(|c| !plain(*c)) {
            return Err(format!("a branch has no {odd:?} in its name"));
        }
        let part_is_right = |part: &str| {
            !part.is_empty()
                && !part.starts_with('.')
                && !part.ends_with('.')
                && part.strip_suffix(".lock").is_none()
        };
        let right = text.split('/').all(part_is_right)
            && !text.contains("..")
            && !text.starts_with(['-', '@', '#'])
            && text != "HEAD"
            && text.len() <= 200;
        if right {
            Ok(Self(text.to_owned()))
        } else {
            Err("this is no branch's name, such as main or team/feature-1".to_owned())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_branches_are_checked_before_they_go_anywhere() {
        for name in [
            "main",
            "team/feature-1",
            "v1.2",
            "fix/#123",
            "a@1.x",
            "x+y,z=1",
        ] {
            assert_eq!(name.parse::<Branch>().unwrap().as_str(), name);
        }
        for name in [
            "", "-f", "--force", "a b", "a;b", "$(x)", "`x`", "a'b", "a\"b", "a\\b", "a\nb", "a|b",
            "a&b", "a>b", "a*", "a?", "a[b", "a~1", "a^", "a:b", "a!b", "../x", "a..b", ".a",
            "a/.b", "a/", "/a", "a//b", "a.lock", "a.lock/b", "a.", "@", "@{1}", "HEAD", "ä",
        ] {
            assert!(name.parse::<Branch>().is_err(), "{name:?}");
        }
    }
}
