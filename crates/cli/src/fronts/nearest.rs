//! The name that somebody may have meant.

/// The candidate with the fewest letters to change, if most letters may stay.
pub(super) fn nearest<'a>(
    word: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    let bare = |name: &str| name.trim_start_matches('-').replace('_', "-");
    let word = bare(word);
    let allowed = word.chars().count().div_ceil(3);
    let distances = candidates.map(|name| (distance(&word, &bare(name)), name));
    let (distance, name) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= allowed).then_some(name)
}

/// How many letters must be added, removed or replaced to get from one word to the other.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_count_letters() {
        for (from, to, expected) in [
            ("", "", 0),
            ("", "ab", 2),
            ("kitten", "sitting", 3),
            ("node", "node", 0),
        ] {
            assert_eq!(distance(from, to), expected, "{from} {to}");
            assert_eq!(distance(to, from), expected, "{to} {from}");
        }
    }

    #[test]
    fn a_slip_finds_its_name_and_nonsense_finds_none() {
        let names = ["--nnodes", "--nproc-per-node", "-hostfile"];
        let find = |word| nearest(word, names.into_iter());
        assert_eq!(find("--nnode"), Some("--nnodes"));
        assert_eq!(find("--nproc_per_nod"), Some("--nproc-per-node"));
        assert_eq!(find("--hostfiel"), Some("-hostfile"));
        assert_eq!(find("--frobnicate"), None);
    }
}
