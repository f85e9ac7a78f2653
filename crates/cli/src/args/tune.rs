//! The arguments of `carole tune`.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{OutputChoice, duration};

/// The most ranks that share a host's memory; groups of more use connections.
const MOST_RANKS: usize = 64;

/// Measure which algorithm is best for which size, and save the table.
///
/// For each number of ranks, all-reduces of 1 KiB to 16 MiB go every way there is, in turns, and
/// every result is checked. What is not at least 5 % better than Carole's default is left as it is.
/// Nothing else should run on the machine meanwhile. A table decides speed only: results are the
/// same bits with any.
#[derive(Debug, Args)]
#[command(after_help = "Example:
  carole tune -n 2,4,8 --save table.json
  carole run -n 4 --table table.json -- ./train")]
pub(crate) struct TuneArguments {
    /// Numbers of ranks to measure; by default 2, 4, the number of cores and twice that, at
    /// most 64
    #[arg(
        short = 'n',
        long = "ranks",
        value_name = "N,…",
        value_delimiter = ',',
        value_parser = ranks
    )]
    pub(crate) ranks: Vec<usize>,

    /// Where to save the table; `-` saves nothing
    #[arg(long, value_name = "FILE", default_value = "carole-table.json")]
    pub(crate) save: PathBuf,

    /// Time to measure each size for, in each round and each way
    #[arg(long, value_name = "S", default_value = "0.2", value_parser = duration::seconds)]
    pub(crate) seconds: f64,

    /// How often to measure everything; the median counts
    #[arg(
        long,
        value_name = "R",
        default_value = "3",
        value_parser = clap::value_parser!(u16).range(1..=1000)
    )]
    pub(crate) rounds: u16,

    /// What to print
    #[arg(long, value_name = "FORM", value_enum, default_value_t)]
    pub(crate) output: OutputChoice,
}

impl TuneArguments {
    /// The numbers of ranks to measure on a host of `cores` cores, in ascending order.
    pub(crate) fn numbers(&self, cores: usize) -> Vec<usize> {
        let mut numbers = if self.ranks.is_empty() {
            let usual = [2, 4, cores, 2 * cores];
            usual.map(|ranks| ranks.clamp(2, MOST_RANKS)).to_vec()
        } else {
            self.ranks.clone()
        };
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// The file to write, if one is to be written.
    pub(crate) fn file(&self) -> Option<&Path> {
        (self.save != Path::new("-")).then_some(&self.save)
    }
}

fn ranks(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(ranks) if (2..=MOST_RANKS).contains(&ranks) => Ok(ranks),
        _ => Err(format!("a table is for 2 to {MOST_RANKS} ranks of a host")),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        tune: TuneArguments,
    }

    fn numbers(words: &[&str], cores: usize) -> Vec<usize> {
        let words = ["tune"].iter().chain(words);
        Line::try_parse_from(words).unwrap().tune.numbers(cores)
    }

    #[test]
    fn the_usual_numbers_of_ranks_follow_from_the_cores() {
        assert_eq!(numbers(&[], 1), [2, 4]);
        assert_eq!(numbers(&[], 2), [2, 4]);
        assert_eq!(numbers(&[], 6), [2, 4, 6, 12]);
        assert_eq!(numbers(&[], 48), [2, 4, 48, 64]);
        assert_eq!(numbers(&[], 128), [2, 4, 64]);
    }

    #[test]
    fn numbers_that_are_given_are_sorted_and_taken_once() {
        assert_eq!(numbers(&["-n", "8,2,8"], 2), [2, 8]);
        for wrong in ["1", "65", "x"] {
            assert!(Line::try_parse_from(["tune", "-n", wrong]).is_err());
        }
    }
}
