//! The known word that a person most likely meant.

/// The longest word that is looked at; what is longer is no slip of the pen.
const LONGEST: usize = 64;

/// The word of `known` that is nearest to `word`, if one is near.
///
/// Case, hyphens and underscores do not count, and neither does the end of a word that begins like
/// a known one: `environment` is near `env`.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if word.len() > LONGEST {
        return None;
    }
    let word = letters(word);
    known
        .into_iter()
        .filter_map(|candidate| {
            let other = letters(candidate);
            let longer = word.len().max(other.len());
            let shorter = word.len().min(other.len());
            let distance = distance(&word, &other);
            let begins_alike = shorter >= 3 && word[..shorter] == other[..shorter];
            (distance <= (longer / 3).max(1) || begins_alike).then_some((distance, candidate))
        })
        .min_by_key(|&(distance, _)| distance)
        .map(|(_, candidate)| candidate)
}

fn letters(word: &str) -> Vec<char> {
    word.chars()
        .filter(|character| !matches!(character, '-' | '_'))
        .flat_map(char::to_lowercase)
        .collect()
}

/// How many characters must be inserted, left out, changed or swapped with their neighbour.
fn distance(from: &[char], to: &[char]) -> usize {
    let mut before = vec![0; to.len() + 1];
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for i in 1..=from.len() {
        let mut row = vec![i; to.len() + 1];
        for j in 1..=to.len() {
            let change = usize::from(from[i - 1] != to[j - 1]);
            row[j] = (last[j] + 1).min(row[j - 1] + 1).min(last[j - 1] + change);
            if i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1] {
                row[j] = row[j].min(before[j - 2] + 1);
            }
        }
        before = std::mem::replace(&mut last, row);
    }
    last[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: [&str; 6] = ["replicas", "elastic", "command", "env", "slots", "setup"];

    #[test]
    fn slips_of_the_pen_are_understood() {
        for (word, meant) in [
            ("replica", "replicas"),
            ("Replicas", "replicas"),
            ("repilcas", "replicas"),
            ("comand", "command"),
            ("environment", "env"),
            ("set-up", "setup"),
        ] {
            assert_eq!(nearest(word, FIELDS), Some(meant), "{word}");
        }
    }

    #[test]
    fn other_words_are_near_to_nothing() {
        for word in ["", "image", "x", "template", &"replicas".repeat(9)] {
            assert_eq!(nearest(word, FIELDS), None, "{word}");
        }
    }

    #[test]
    fn the_distance_counts_single_changes() {
        let distance = |from: &str, to: &str| distance(&letters(from), &letters(to));
        assert_eq!(distance("abc", "abc"), 0);
        assert_eq!(distance("abc", "acb"), 1);
        assert_eq!(distance("abc", ""), 3);
        assert_eq!(distance("kitten", "sitting"), 3);
    }
}
