//! The graphs of the named topologies.
//!
//! Every tree is first written as an array of parents. Below, a *master* is the first rank of a
//! host; masters are ordered by host, and hosts by first appearance. The shapes are KungFu's, so
//! that a name means the same links in both:
//!
//! | name | pairs | tree of each pair |
//! |---|---|---|
//! | star | 1 | all ranks under rank 0 |
//! | clique | one a rank | all ranks under that rank |
//! | ring | one a rank | a chain round the ranks; reducing ends and spreading starts at that rank |
//! | tree | 1 | ranks under their master, masters under the first |
//! | multi-star | one a host | ranks under their master, masters under that host's |
//! | binary-tree | 1 | rank `i` under `(i - 1) / 2` |
//! | binary-tree-star | 1 | ranks under their master, a binary tree over the masters |
//! | multi-binary-tree-star | one a host | the same, the binary tree starting at that host |
//!
//! Ring and clique hold a graph pair for every rank, so their memory grows with the square of the
//! ranks.

use super::{GraphPair, TopologyName};
use crate::error::PlanError;
use crate::graph::Graph;
use crate::layout::HostLayout;

/// The pairs of the named topology over this layout.
pub(super) fn pairs(name: TopologyName, layout: &HostLayout) -> Result<Vec<GraphPair>, PlanError> {
    let size = layout.size();
    if size == 0 {
        return Err(PlanError::NoRanks);
    }
    let hosts = layout.host_count();
    let tree = |parents: Vec<usize>| GraphPair::from_parents(&parents);
    match name.resolve(layout) {
        TopologyName::Star => Ok(vec![tree(star(size, 0))?]),
        TopologyName::Clique => (0..size).map(|root| tree(star(size, root))).collect(),
        TopologyName::Ring => (0..size).map(|root| ring(size, root)).collect(),
        TopologyName::Tree => Ok(vec![tree(under_masters(layout, &star(hosts, 0)))?]),
        TopologyName::MultiStar => (0..hosts)
            .map(|root| tree(under_masters(layout, &star(hosts, root))))
            .collect(),
        TopologyName::BinaryTree => Ok(vec![tree(binary_tree(size, 0))?]),
        // `resolve` never returns `Auto`.
        TopologyName::BinaryTreeStar | TopologyName::Auto => {
            Ok(vec![tree(under_masters(layout, &binary_tree(hosts, 0)))?])
        }
        TopologyName::MultiBinaryTreeStar => (0..hosts)
            .map(|root| tree(under_masters(layout, &binary_tree(hosts, root))))
            .collect(),
    }
}

/// Everything under `root`.
fn star(size: usize, root: usize) -> Vec<usize> {
    vec![root; size]
}

/// A binary tree over `0..size` in order of breadth, turned so that it starts at `root`.
fn binary_tree(size: usize, root: usize) -> Vec<usize> {
    let parent = |vertex: usize| {
        let place = (vertex + size - root) % size;
        let above = place.saturating_sub(1) / 2;
        (above + root) % size
    };
    (0..size).map(parent).collect()
}

/// Values travel once round the ring from the rank after `root` and are complete at `root`; the
/// result then travels the same way. The one graph is not the other turned round: both send to the
/// next rank, which keeps every link in one direction.
fn ring(size: usize, root: usize) -> Result<GraphPair, PlanError> {
    let mut reduce = Graph::new(size).with_self_loops();
    let mut broadcast = Graph::new(size);
    for step in 1..size {
        let vertex = (root + step) % size;
        reduce.add_edge(vertex, (vertex + 1) % size)?;
        broadcast.add_edge((vertex + size - 1) % size, vertex)?;
    }
    GraphPair::new(reduce, broadcast)
}

/// Ranks under their master, and the masters under each other as their hosts are in
/// `host_parents`.
fn under_masters(layout: &HostLayout, host_parents: &[usize]) -> Vec<usize> {
    let masters = layout.masters();
    let hosts = layout.host_indices();
    let parent = |(rank, &host): (usize, &usize)| {
        let master = masters[host];
        if rank == master {
            masters[host_parents[host]]
        } else {
            master
        }
    };
    hosts.iter().enumerate().map(parent).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::Topology;

    /// Three hosts: ranks 0, 1; ranks 2, 4; ranks 3, 5, 6.
    const HOSTS: [usize; 7] = [8, 8, 3, 5, 3, 5, 5];

    /// The parents of every pair's broadcast tree.
    fn trees(name: TopologyName, hosts: &[usize]) -> Vec<Vec<usize>> {
        let topology = Topology::named(name, hosts).unwrap();
        let parent = |graph: &Graph, v| graph.prevs(v).first().copied().unwrap_or(v);
        let parents = |pair: &GraphPair| {
            (0..pair.size())
                .map(|v| parent(pair.broadcast(), v))
                .collect()
        };
        topology.pairs().iter().map(parents).collect()
    }

    #[test]
    fn star_and_clique_put_all_ranks_under_one() {
        assert_eq!(trees(TopologyName::Star, &[0, 0, 1]), [[0, 0, 0]]);
        assert_eq!(
            trees(TopologyName::Clique, &[0, 0, 1]),
            [[0, 0, 0], [1, 1, 1], [2, 2, 2]]
        );
    }

    #[test]
    fn ring_sends_to_the_next_rank_in_both_graphs() {
        let topology = Topology::named(TopologyName::Ring, &[0; 4]).unwrap();
        assert_eq!(topology.pairs().len(), 4);
        let pair = &topology.pairs()[2];
        assert_eq!(pair.root(), 2);
        let between = |graph: &Graph| graph.edges().filter(|(i, j)| i != j).collect::<Vec<_>>();
        assert_eq!(between(pair.reduce()), [(0, 1), (1, 2), (3, 0)]);
        assert_eq!(between(pair.broadcast()), [(0, 1), (2, 3), (3, 0)]);
    }

    #[test]
    fn tree_is_a_star_of_stars() {
        assert_eq!(trees(TopologyName::Tree, &HOSTS), [[0, 0, 0, 0, 2, 3, 3]]);
    }

    #[test]
    fn multi_star_has_a_root_on_every_host() {
        assert_eq!(
            trees(TopologyName::MultiStar, &HOSTS),
            [
                [0, 0, 0, 0, 2, 3, 3],
                [2, 0, 2, 2, 2, 3, 3],
                [3, 0, 3, 3, 2, 3, 3]
            ]
        );
    }

    #[test]
    fn binary_tree_ignores_hosts() {
        assert_eq!(
            trees(TopologyName::BinaryTree, &HOSTS),
            [[0, 0, 0, 1, 1, 2, 2]]
        );
    }

    #[test]
    fn binary_tree_star_is_a_binary_tree_over_masters() {
        assert_eq!(
            trees(TopologyName::BinaryTreeStar, &[0, 1, 2, 3, 3]),
            [[0, 0, 0, 1, 3]]
        );
    }

    #[test]
    fn multi_binary_tree_star_turns_the_tree_by_one_host_each_time() {
        assert_eq!(
            trees(TopologyName::MultiBinaryTreeStar, &[0, 1, 2, 3, 3]),
            [
                [0, 0, 0, 1, 3],
                [2, 1, 1, 1, 3],
                [2, 3, 2, 2, 3],
                [3, 3, 0, 3, 3]
            ]
        );
    }

    #[test]
    fn auto_is_the_topology_it_resolves_to() {
        assert_eq!(
            trees(TopologyName::Auto, &[1, 1]),
            trees(TopologyName::Star, &[1, 1])
        );
        assert_eq!(
            trees(TopologyName::Auto, &HOSTS),
            trees(TopologyName::BinaryTreeStar, &HOSTS)
        );
    }

    #[test]
    fn one_rank_is_a_topology_and_none_is_not() {
        for name in TopologyName::ALL {
            assert_eq!(trees(name, &[6]), [[0]], "{name}");
            assert_eq!(Topology::named(name, &[]), Err(PlanError::NoRanks));
        }
    }
}
