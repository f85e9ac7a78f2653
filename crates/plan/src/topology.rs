//! Topologies: along which graphs values are combined and the result is spread.
//!
//! A [`Topology`] is a set of [`GraphPair`]s over the same ranks. Each pair alone sums correctly on
//! every rank; where there are several, a tensor is cut into as many *segments* and each takes its
//! own pair, so that different segments load different links. Segments depend on the tensor's
//! length alone, and not on the chunks in which an engine moves them: the order in which values are
//! combined must not change with the size of a chunk. (KungFu deals chunks out to the pairs
//! instead.)
//!
//! All of it is checked when it is made: whoever holds a pair holds two trees over all ranks with
//! one root.
//!
//! What the named topologies look like is said at [`TopologyName`]; which one suits a size and a
//! link is the engine's to measure. Nothing here moves data.

mod generate;
mod name;
mod simulate;

use std::fmt::Write as _;
use std::ops::Range;

pub use name::TopologyName;

use crate::error::PlanError;
use crate::graph::Graph;
use crate::spanning_tree::minimum_spanning_tree;

/// A reduce graph and the broadcast graph that follows it, with one root.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct GraphPair {
    reduce: Graph,
    broadcast: Graph,
    root: usize,
}

impl GraphPair {
    /// A pair of these graphs: an in-tree with self loops and an out-tree, over the same vertices
    /// and with the same root.
    pub fn new(reduce: Graph, broadcast: Graph) -> Result<Self, PlanError> {
        if reduce.len() != broadcast.len() {
            return Err(PlanError::SizeMismatch {
                what: "the broadcast graph",
                found: broadcast.len(),
                expected: reduce.len(),
            });
        }
        let start = broadcast.broadcast_root()?;
        let root = reduce.reduce_root()?;
        if root != start {
            return Err(PlanError::RootsDiffer {
                reduce: root,
                broadcast: start,
            });
        }
        Ok(Self {
            reduce,
            broadcast,
            root,
        })
    }

    /// The pair that reduces up one tree and broadcasts down the same one.
    pub fn from_broadcast(broadcast: Graph) -> Result<Self, PlanError> {
        Self::new(broadcast.reverse().with_self_loops(), broadcast)
    }

    /// The pair over the tree in which `parents[i]` is the parent of `i` and the root its own.
    pub fn from_parents(parents: &[usize]) -> Result<Self, PlanError> {
        Self::from_broadcast(Graph::from_parents(parents)?)
    }

    /// The graph along which values are combined.
    pub fn reduce(&self) -> &Graph {
        &self.reduce
    }

    /// The graph along which the result is spread.
    pub fn broadcast(&self) -> &Graph {
        &self.broadcast
    }

    /// The rank where reducing ends and broadcasting starts.
    pub fn root(&self) -> usize {
        self.root
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.reduce.len()
    }
}

/// A set of graph pairs over the same ranks.
///
/// ```
/// use carole_plan::{Topology, TopologyName};
///
/// // Four ranks, two a machine.
/// let topology = Topology::named(TopologyName::MultiStar, &[0, 0, 1, 1])?;
/// let segments: Vec<_> = topology.segments(5).map(|(part, pair)| (part, pair.root())).collect();
/// assert_eq!(segments, [(0..3, 0), (3..5, 2)]);
/// # Ok::<(), carole_plan::PlanError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Topology {
    pairs: Vec<GraphPair>,
}

impl Topology {
    /// A topology of these pairs: at least one, all over as many ranks.
    pub fn new(pairs: Vec<GraphPair>) -> Result<Self, PlanError> {
        let expected = pairs.first().ok_or(PlanError::NoPairs)?.size();
        match pairs.iter().find(|pair| pair.size() != expected) {
            None => Ok(Self { pairs }),
            Some(pair) => Err(PlanError::SizeMismatch {
                what: "a pair of graphs",
                found: pair.size(),
                expected,
            }),
        }
    }

    /// The named topology over ranks of which `hosts[rank]` is the machine. The numbers matter only
    /// by being equal or not.
    pub fn named(name: TopologyName, hosts: &[usize]) -> Result<Self, PlanError> {
        Self::new(generate::pairs(name, &crate::HostLayout::new(hosts))?)
    }

    /// The tree in which `parents[i]` is the parent of `i` and the one root its own (a forest array
    /// with one tree in KungFu's words).
    pub fn from_parents(parents: &[usize]) -> Result<Self, PlanError> {
        Self::new(vec![GraphPair::from_parents(parents)?])
    }

    /// The tree from rank 0 along which the sum of the latencies is least; see
    /// [`minimum_spanning_tree`].
    pub fn from_latencies<R: AsRef<[f64]>>(latencies: &[R]) -> Result<Self, PlanError> {
        Self::from_parents(&minimum_spanning_tree(latencies)?)
    }

    /// The pairs; never none.
    pub fn pairs(&self) -> &[GraphPair] {
        &self.pairs
    }

    /// Cuts a tensor of `length` elements into one segment a pair, in order. Segments differ by at
    /// most one element, the longer ones first; those of a short tensor may be empty.
    pub fn segments(&self, length: usize) -> impl Iterator<Item = (Range<usize>, &GraphPair)> {
        let (short, longer) = (length / self.pairs.len(), length % self.pairs.len());
        self.pairs.iter().enumerate().map(move |(i, pair)| {
            let start = i * short + i.min(longer);
            let end = start + short + usize::from(i < longer);
            (start..end, pair)
        })
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.pairs[0].size()
    }

    /// All pairs in the DOT language, each in a box of its own, broadcast edges dashed.
    pub fn to_dot(&self, name: &str) -> String {
        let mut dot = format!("digraph {} {{\n", crate::graph::quote(name));
        // Writing to a String cannot fail.
        for (i, pair) in self.pairs.iter().enumerate() {
            for (kind, graph, style) in [
                ("reduce", &pair.reduce, ""),
                ("broadcast", &pair.broadcast, " [style=dashed]"),
            ] {
                let _ = writeln!(dot, "  subgraph cluster_{kind}_{i} {{");
                let _ = writeln!(dot, "    label=\"{kind} {i}\";");
                graph.write_dot(&mut dot, "    ", &format!("{kind}_{i}_"), style);
                dot.push_str("  }\n");
            }
        }
        dot.push_str("}\n");
        dot
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::GraphKind;

    #[test]
    fn pair_needs_one_size_and_one_root() {
        let from_zero = Graph::from_parents(&[0, 0]).unwrap();
        let from_one = Graph::from_parents(&[1, 1]).unwrap();
        let to_zero = from_zero.reverse().with_self_loops();
        assert_eq!(
            GraphPair::new(to_zero.clone(), from_one),
            Err(PlanError::RootsDiffer {
                reduce: 0,
                broadcast: 1
            })
        );
        let larger = Graph::from_parents(&[0, 0, 0]).unwrap();
        assert_eq!(
            GraphPair::new(to_zero, larger).unwrap_err().to_string(),
            "the size of the broadcast graph is 3, expected 2"
        );
    }

    #[test]
    fn topology_needs_pairs_of_one_size() {
        assert_eq!(Topology::new(vec![]), Err(PlanError::NoPairs));
        let pairs = [&[0, 0][..], &[0][..]].map(|p| GraphPair::from_parents(p).unwrap());
        assert!(matches!(
            Topology::new(pairs.to_vec()),
            Err(PlanError::SizeMismatch { .. })
        ));
    }

    #[test]
    fn parents_must_make_one_tree() {
        let topology = Topology::from_parents(&[1, 1, 1, 0]).unwrap();
        assert_eq!((topology.size(), topology.pairs()[0].root()), (4, 1));
        assert_eq!(
            Topology::from_parents(&[0, 1, 0]),
            Err(PlanError::NotOneRoot {
                graph: GraphKind::Broadcast,
                roots: vec![0, 1]
            })
        );
        assert_eq!(Topology::from_parents(&[]), Err(PlanError::NoRanks));
    }

    #[test]
    fn segments_cover_the_tensor_in_order() {
        let topology = Topology::named(TopologyName::Clique, &[0, 0, 0]).unwrap();
        let cut = |length| {
            topology
                .segments(length)
                .map(|(s, _)| s)
                .collect::<Vec<_>>()
        };
        assert_eq!(cut(8), [0..3, 3..6, 6..8]);
        assert_eq!(cut(1), [0..1, 1..1, 1..1]);
        assert_eq!(cut(0), [0..0, 0..0, 0..0]);
        let largest = cut(usize::MAX);
        assert_eq!(largest[2].end, usize::MAX);
        let roots: Vec<_> = topology.segments(8).map(|(_, pair)| pair.root()).collect();
        assert_eq!(roots, [0, 1, 2]);
    }

    #[test]
    fn latencies_make_a_tree() {
        let topology =
            Topology::from_latencies(&[[0.0, 5.0, 1.0], [5.0, 0.0, 2.0], [1.0, 2.0, 0.0]]).unwrap();
        assert_eq!(topology, Topology::from_parents(&[0, 2, 0]).unwrap());
    }

    #[test]
    fn dot_has_a_box_a_graph() {
        let topology = Topology::named(TopologyName::Star, &[0, 0]).unwrap();
        assert_eq!(
            topology.to_dot("star"),
            "digraph \"star\" {\n  subgraph cluster_reduce_0 {\n    label=\"reduce 0\";\n    \
             reduce_0_0 [label=\"0\"];\n    reduce_0_1 [label=\"1\"];\n    \
             reduce_0_0 -> reduce_0_0;\n    reduce_0_1 -> reduce_0_1;\n    \
             reduce_0_1 -> reduce_0_0;\n  }\n  subgraph cluster_broadcast_0 {\n    \
             label=\"broadcast 0\";\n    broadcast_0_0 [label=\"0\"];\n    \
             broadcast_0_1 [label=\"1\"];\n    broadcast_0_0 -> broadcast_0_1 [style=dashed];\n  \
             }\n}\n"
        );
    }
}
