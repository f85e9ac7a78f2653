//! The tree that joins all ranks at the least total latency.
//!
//! Latencies are measured by each rank for itself, so the two directions of a link differ a little;
//! their mean counts, because an all-reduce uses both. Ties are broken by rank, so that every rank
//! that holds the same matrix finds the same tree. How latencies are measured and gathered is the
//! engine's; when to change the tree is a policy's.

use crate::error::PlanError;

/// The minimum spanning tree of a square matrix of latencies, as the parent of every rank, rank 0
/// being the root and its own parent. The diagonal is not looked at.
///
/// ```
/// use carole_plan::minimum_spanning_tree;
///
/// let latencies = [[0.0, 9.0, 1.0], [9.0, 0.0, 2.0], [1.0, 2.0, 0.0]];
/// assert_eq!(minimum_spanning_tree(&latencies)?, [0, 2, 0]);
/// # Ok::<(), carole_plan::PlanError>(())
/// ```
pub fn minimum_spanning_tree<R: AsRef<[f64]>>(latencies: &[R]) -> Result<Vec<usize>, PlanError> {
    check(latencies)?;
    let size = latencies.len();
    let weight =
        |i: usize, j: usize| f64::midpoint(latencies[i].as_ref()[j], latencies[j].as_ref()[i]);

    // Prim's algorithm. `best[i]` is the lightest link from the tree to `i` so far.
    let mut parents = vec![0; size];
    let mut best: Vec<f64> = (0..size)
        .map(|i| if i == 0 { 0.0 } else { weight(0, i) })
        .collect();
    let mut outside: Vec<usize> = (1..size).collect();
    // The first of equal minima is the lowest rank, because `outside` stays in order.
    while let Some(place) =
        (0..outside.len()).min_by(|&a, &b| best[outside[a]].total_cmp(&best[outside[b]]))
    {
        let joined = outside.remove(place);
        for &rank in &outside {
            let weight = weight(joined, rank);
            if weight < best[rank] || (weight <= best[rank] && joined < parents[rank]) {
                best[rank] = weight;
                parents[rank] = joined;
            }
        }
    }
    Ok(parents)
}

fn check<R: AsRef<[f64]>>(latencies: &[R]) -> Result<(), PlanError> {
    let expected = latencies.len();
    if expected == 0 {
        return Err(PlanError::NoRanks);
    }
    for (row, entries) in latencies.iter().map(AsRef::as_ref).enumerate() {
        if entries.len() != expected {
            return Err(PlanError::LatencyRow {
                row,
                found: entries.len(),
                expected,
            });
        }
        for (column, &found) in entries.iter().enumerate() {
            if row != column && !(found.is_finite() && found >= 0.0) {
                return Err(PlanError::Latency { row, column, found });
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_directions_of_a_link_count() {
        // 0 -> 1 looks short, but the way back is long.
        let latencies = [[0.0, 1.0, 3.0], [9.0, 0.0, 2.0], [3.0, 2.0, 0.0]];
        assert_eq!(minimum_spanning_tree(&latencies).unwrap(), [0, 2, 0]);
    }

    #[test]
    fn ties_are_broken_by_rank() {
        assert_eq!(
            minimum_spanning_tree(&vec![vec![1.0; 5]; 5]).unwrap(),
            [0; 5]
        );
        // 3 is as near to 2 as to 1, and 2 joins first: the lower parent wins all the same.
        let latencies = [
            [0.0, 2.0, 1.0, 9.0],
            [2.0, 0.0, 9.0, 3.0],
            [1.0, 9.0, 0.0, 3.0],
            [9.0, 3.0, 3.0, 0.0],
        ];
        assert_eq!(minimum_spanning_tree(&latencies).unwrap(), [0, 0, 0, 1]);
    }

    #[test]
    fn one_rank_is_its_own_tree() {
        assert_eq!(minimum_spanning_tree(&[[f64::NAN]]).unwrap(), [0]);
    }

    #[test]
    fn huge_latencies_do_not_overflow() {
        let latencies = vec![vec![f64::MAX; 3]; 3];
        assert_eq!(minimum_spanning_tree(&latencies).unwrap(), [0, 0, 0]);
    }

    #[test]
    fn matrix_must_be_square_and_hold_latencies() {
        let error = |matrix: &[Vec<f64>]| minimum_spanning_tree(matrix).unwrap_err().to_string();
        assert_eq!(error(&[]), "a topology needs at least one rank");
        assert_eq!(
            error(&[vec![0.0, 1.0], vec![1.0]]),
            "latency matrix: the length of row 1 is 1, expected 2"
        );
        for bad in [-1.0, f64::INFINITY] {
            assert_eq!(
                error(&[vec![0.0, bad], vec![1.0, 0.0]]),
                format!("latency matrix: row 0, column 1 is {bad}, expected a finite number >= 0")
            );
        }
    }
}
