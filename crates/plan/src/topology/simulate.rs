//! What a graph pair computes, without moving data: the reference that tests compare with.
//!
//! The order of combination is fixed: a rank starts from its own value and combines the values of
//! its predecessors in ascending order of rank, each complete before it is used. An engine that
//! follows the graphs in this order gives the same bits.

use super::GraphPair;
use crate::error::PlanError;
use crate::graph::Graph;

impl GraphPair {
    /// The value on every rank after reducing and broadcasting `values` (one a rank), where
    /// `combine(so_far, arrived)` is the operation.
    ///
    /// ```
    /// use carole_plan::{Topology, TopologyName};
    ///
    /// let topology = Topology::named(TopologyName::Ring, &[0, 0, 1])?;
    /// let sums = topology.pairs()[0].simulate(&[1, 20, 300], |a, b| a + b)?;
    /// assert_eq!(sums, [321, 321, 321]);
    /// # Ok::<(), carole_plan::PlanError>(())
    /// ```
    pub fn simulate<T: Clone>(
        &self,
        values: &[T],
        combine: impl Fn(T, &T) -> T,
    ) -> Result<Vec<T>, PlanError> {
        if values.len() != self.size() {
            return Err(PlanError::SizeMismatch {
                what: "the list of values",
                found: values.len(),
                expected: self.size(),
            });
        }
        let mut values = values.to_vec();
        for graph in [self.reduce(), self.broadcast()] {
            for vertex in order(graph) {
                let arrived = graph.prevs(vertex);
                if graph.has_self_loop(vertex) {
                    let own = values[vertex].clone();
                    values[vertex] = arrived.iter().fold(own, |sum, &v| combine(sum, &values[v]));
                } else if let Some(&last) = arrived.last() {
                    values[vertex] = values[last].clone();
                }
            }
        }
        Ok(values)
    }
}

/// The vertices, each after all that send to it. A vertex on a cycle would be left out.
fn order(graph: &Graph) -> Vec<usize> {
    let mut missing: Vec<usize> = (0..graph.len()).map(|v| graph.prevs(v).len()).collect();
    let mut order: Vec<usize> = (0..graph.len()).filter(|&v| missing[v] == 0).collect();
    let mut done = 0;
    while let Some(&vertex) = order.get(done) {
        done += 1;
        for &next in graph.nexts(vertex) {
            missing[next] -= 1;
            if missing[next] == 0 {
                order.push(next);
            }
        }
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_value_comes_first_then_predecessors_in_ascending_order() {
        // 3 -> 1, then 1 and 2 -> 0.
        let pair = GraphPair::from_parents(&[0, 0, 0, 1]).unwrap();
        let words = ["a", "b", "c", "d"].map(String::from);
        let joined = pair.simulate(&words, |so_far, arrived| format!("({so_far}{arrived})"));
        assert_eq!(joined.unwrap(), vec!["((a(bd))c)"; 4]);
    }

    #[test]
    fn values_must_be_one_a_rank() {
        let pair = GraphPair::from_parents(&[0, 0]).unwrap();
        assert_eq!(
            pair.simulate(&[1], |a, b| a + b).unwrap_err().to_string(),
            "the size of the list of values is 1, expected 2"
        );
    }
}
