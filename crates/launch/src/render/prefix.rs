//! What stands in front of a line: whose it is.

use super::colour;

/// The most runs of ranks that are written out; past them the rest is a number.
const RUNS: usize = 8;

/// Who prints: one process of the job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Label {
    /// Its rank, among those of its role.
    pub rank: usize,
    /// Its host, as a person calls it.
    pub host: String,
    /// Its role, such as `worker`.
    pub role: String,
}

/// The prefixes of a job's processes.
#[derive(Debug)]
pub(crate) struct Prefixes {
    single: Vec<Vec<u8>>,
    width: usize,
}

impl Prefixes {
    /// A prefix names the host and the role only where they differ within the job.
    pub(crate) fn new(labels: &[Label], coloured: bool) -> Self {
        let differ = |word: fn(&Label) -> &str| {
            labels
                .windows(2)
                .any(|pair| word(&pair[0]) != word(&pair[1]))
        };
        let (hosts, roles) = (differ(|label| &label.host), differ(|label| &label.role));
        let names: Vec<String> = labels
            .iter()
            .map(|label| {
                let role = if roles {
                    format!("{} ", label.role)
                } else {
                    String::new()
                };
                let host = if hosts {
                    format!("@{}", label.host)
                } else {
                    String::new()
                };
                format!("{role}{}{host}", label.rank)
            })
            .collect();
        let width = names
            .iter()
            .map(|name| name.chars().count())
            .max()
            .unwrap_or(0);
        let single = labels
            .iter()
            .zip(&names)
            .map(|(label, name)| {
                let mut prefix = Vec::new();
                if coloured {
                    prefix.extend_from_slice(colour::of_rank(label.rank).as_bytes());
                }
                prefix.extend_from_slice(format!("{name:>width$}|").as_bytes());
                if coloured {
                    prefix.extend_from_slice(colour::RESET);
                }
                prefix.push(b' ');
                prefix
            })
            .collect();
        Self { single, width }
    }

    /// What stands in front of a line that one process printed.
    pub(crate) fn of(&self, place: usize) -> &[u8] {
        &self.single[place]
    }

    /// What stands in front of a line that several ranks printed, given in order:
    /// `ranks 0-3,5| `.
    pub(crate) fn shared(&self, title: &str, ranks: &[usize]) -> String {
        let name = format!("{title} {}", list(ranks));
        format!("{name:>width$}| ", width = self.width)
    }
}

/// `0-3,5`.
fn list(ranks: &[usize]) -> String {
    let runs: Vec<&[usize]> = ranks.chunk_by(|a, b| a + 1 == *b).collect();
    let written = &runs[..runs.len().min(RUNS)];
    let names: Vec<String> = written
        .iter()
        .map(|run| match run {
            [first, .., last] => format!("{first}-{last}"),
            _ => run[0].to_string(),
        })
        .collect();
    let names = names.join(",");
    match ranks.len() - written.concat().len() {
        0 => names,
        more => format!("{names} and {more} more"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefixes(labels: &[(usize, &str, &str)]) -> Vec<String> {
        let labels: Vec<Label> = labels
            .iter()
            .map(|&(rank, host, role)| Label {
                rank,
                host: host.to_owned(),
                role: role.to_owned(),
            })
            .collect();
        Prefixes::new(&labels, false)
            .single
            .into_iter()
            .map(|prefix| String::from_utf8(prefix).unwrap())
            .collect()
    }

    #[test]
    fn only_what_differs_is_named_and_columns_align() {
        let one_host: Vec<_> = (9..11).map(|rank| (rank, "a", "worker")).collect();
        assert_eq!(prefixes(&one_host), [" 9| ", "10| "]);
        let hosts = [(0, "a", "worker"), (3, "node-b", "worker")];
        assert_eq!(prefixes(&hosts), ["     0@a| ", "3@node-b| "]);
        let roles = [(0, "a", "ps"), (0, "a", "worker")];
        assert_eq!(prefixes(&roles), ["    ps 0| ", "worker 0| "]);
        let both = [(0, "a", "ps"), (0, "b", "ps"), (1, "b", "w")];
        assert_eq!(prefixes(&both), ["ps 0@a| ", "ps 0@b| ", " w 1@b| "]);
    }

    #[test]
    fn a_colour_ends_before_the_line_begins() {
        let label = Label {
            rank: 1,
            host: "a".into(),
            role: "worker".into(),
        };
        let prefixes = Prefixes::new(&[label], true);
        assert_eq!(prefixes.of(0), b"\x1b[38;5;130m1|\x1b[0m ");
    }

    #[test]
    fn ranks_are_written_as_runs() {
        assert_eq!(list(&[0, 1, 2, 3, 5]), "0-3,5");
        assert_eq!(list(&[0, 1]), "0-1");
        assert_eq!(list(&[7]), "7");
        let even: Vec<usize> = (0..256).map(|rank| 2 * rank).collect();
        assert_eq!(list(&even), "0,2,4,6,8,10,12,14 and 248 more");
    }

    #[test]
    fn a_shared_prefix_ends_where_the_others_do() {
        let prefixes = Prefixes {
            single: Vec::new(),
            width: 12,
        };
        assert_eq!(prefixes.shared("ranks", &[0, 1, 2]), "   ranks 0-2| ");
    }
}
