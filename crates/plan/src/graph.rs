//! Directed graphs over ranks, and the two shapes that a collective needs.
//!
//! An edge `i -> j` means that `i` sends to `j`. A vertex with a self loop starts from its own value
//! and combines what arrives with it; one without takes what arrives. So a **reduce graph** is a
//! tree whose edges point to the root, with a self loop on every vertex, and a **broadcast graph**
//! is a tree whose edges point away from the root, without self loops.
//!
//! Neighbours are kept in ascending order and edges are a set: two graphs with the same edges are
//! equal however they were built, and whoever combines values in the order of [`Graph::prevs`]
//! combines them in the same order everywhere. There are no weights here; see
//! [`crate::spanning_tree`].

use std::fmt::Write as _;

use crate::error::{GraphKind, PlanError};

/// A directed communication graph over the vertices `0..n`, self loops allowed.
///
/// ```
/// use carole_plan::Graph;
///
/// let mut graph = Graph::new(3);
/// graph.add_edge(0, 1)?;
/// graph.add_edge(0, 2)?;
/// assert_eq!(graph.nexts(0), [1, 2]);
/// assert_eq!(graph.broadcast_root()?, 0);
/// # Ok::<(), carole_plan::PlanError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Graph {
    vertices: Vec<Vertex>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Vertex {
    self_loop: bool,
    prevs: Vec<usize>,
    nexts: Vec<usize>,
}

impl Graph {
    /// A graph of `vertices` vertices without edges.
    pub fn new(vertices: usize) -> Self {
        Self {
            vertices: vec![Vertex::default(); vertices],
        }
    }

    /// The forest in which `parents[i]` is the parent of `i`, a root being its own parent; its
    /// edges point away from the roots.
    pub fn from_parents(parents: &[usize]) -> Result<Self, PlanError> {
        let mut graph = Self::new(parents.len());
        for (vertex, &parent) in parents.iter().enumerate() {
            graph.check(parent)?;
            if parent != vertex {
                graph.add_edge(parent, vertex)?;
            }
        }
        graph.check_reachable(&graph.sources(), GraphKind::Broadcast, Self::nexts)?;
        Ok(graph)
    }

    /// How many vertices there are.
    pub fn len(&self) -> usize {
        self.vertices.len()
    }

    /// Whether there is no vertex.
    pub fn is_empty(&self) -> bool {
        self.vertices.is_empty()
    }

    /// Adds the edge `from -> to`, a self loop if they are equal. Adding an edge again changes
    /// nothing.
    pub fn add_edge(&mut self, from: usize, to: usize) -> Result<(), PlanError> {
        self.check(from)?;
        self.check(to)?;
        if from == to {
            self.vertices[from].self_loop = true;
        } else {
            insert_sorted(&mut self.vertices[from].nexts, to);
            insert_sorted(&mut self.vertices[to].prevs, from);
        }
        Ok(())
    }

    /// Gives every vertex a self loop.
    #[must_use]
    pub fn with_self_loops(mut self) -> Self {
        for vertex in &mut self.vertices {
            vertex.self_loop = true;
        }
        self
    }

    /// The vertices that send to `vertex`, ascending, itself not among them; none for a vertex that
    /// does not exist.
    pub fn prevs(&self, vertex: usize) -> &[usize] {
        self.vertices.get(vertex).map_or(&[], |v| &v.prevs)
    }

    /// The vertices that `vertex` sends to, ascending, itself not among them; none for a vertex
    /// that does not exist.
    pub fn nexts(&self, vertex: usize) -> &[usize] {
        self.vertices.get(vertex).map_or(&[], |v| &v.nexts)
    }

    /// Whether `vertex` starts from its own value.
    pub fn has_self_loop(&self, vertex: usize) -> bool {
        self.vertices.get(vertex).is_some_and(|v| v.self_loop)
    }

    /// All edges, self loops among them, ordered by source and then by target, a self loop first.
    pub fn edges(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        self.vertices.iter().enumerate().flat_map(|(i, v)| {
            let self_loop = v.self_loop.then_some((i, i));
            self_loop
                .into_iter()
                .chain(v.nexts.iter().map(move |&j| (i, j)))
        })
    }

    /// The graph with every edge turned round; self loops stay.
    #[must_use]
    pub fn reverse(&self) -> Self {
        let turn = |v: &Vertex| Vertex {
            self_loop: v.self_loop,
            prevs: v.nexts.clone(),
            nexts: v.prevs.clone(),
        };
        Self {
            vertices: self.vertices.iter().map(turn).collect(),
        }
    }

    /// Checks that this is a reduce graph, an in-tree over all vertices with a self loop on each,
    /// and returns where it ends.
    pub fn reduce_root(&self) -> Result<usize, PlanError> {
        if let Some(vertex) = (0..self.len()).find(|&v| !self.has_self_loop(v)) {
            return Err(PlanError::MissingSelfLoop { vertex });
        }
        self.tree_root(GraphKind::Reduce, Self::nexts, Self::prevs)
    }

    /// Checks that this is a broadcast graph, an out-tree over all vertices without self loops, and
    /// returns where it starts.
    pub fn broadcast_root(&self) -> Result<usize, PlanError> {
        if let Some(vertex) = (0..self.len()).find(|&v| self.has_self_loop(v)) {
            return Err(PlanError::UnexpectedSelfLoop { vertex });
        }
        self.tree_root(GraphKind::Broadcast, Self::prevs, Self::nexts)
    }

    /// The graph in the DOT language, under this name.
    pub fn to_dot(&self, name: &str) -> String {
        let mut dot = format!("digraph {} {{\n", quote(name));
        self.write_dot(&mut dot, "  ", "", "");
        dot.push_str("}\n");
        dot
    }

    /// Writes vertices and edges, every vertex named `prefix` and its number.
    pub(crate) fn write_dot(&self, dot: &mut String, indent: &str, prefix: &str, style: &str) {
        // Writing to a String cannot fail.
        for vertex in 0..self.len() {
            let _ = writeln!(dot, "{indent}{prefix}{vertex} [label=\"{vertex}\"];");
        }
        for (from, to) in self.edges() {
            let _ = writeln!(dot, "{indent}{prefix}{from} -> {prefix}{to}{style};");
        }
    }

    fn check(&self, vertex: usize) -> Result<(), PlanError> {
        if vertex < self.len() {
            Ok(())
        } else {
            Err(PlanError::VertexOutOfRange {
                vertex,
                vertices: self.len(),
            })
        }
    }

    fn sources(&self) -> Vec<usize> {
        (0..self.len())
            .filter(|&v| self.prevs(v).is_empty())
            .collect()
    }

    /// The root of the tree whose edges are read by `up` (towards it) and `down` (away from it).
    fn tree_root(
        &self,
        graph: GraphKind,
        up: fn(&Self, usize) -> &[usize],
        down: fn(&Self, usize) -> &[usize],
    ) -> Result<usize, PlanError> {
        if self.is_empty() {
            return Err(PlanError::NoRanks);
        }
        if let Some(vertex) = (0..self.len()).find(|&v| up(self, v).len() > 1) {
            let parents = up(self, vertex).len();
            return Err(PlanError::SeveralParents {
                graph,
                vertex,
                parents,
            });
        }
        let roots: Vec<usize> = (0..self.len())
            .filter(|&v| up(self, v).is_empty())
            .collect();
        let &[root] = roots.as_slice() else {
            return Err(PlanError::NotOneRoot { graph, roots });
        };
        self.check_reachable(&[root], graph, down)?;
        Ok(root)
    }

    fn check_reachable(
        &self,
        from: &[usize],
        graph: GraphKind,
        down: fn(&Self, usize) -> &[usize],
    ) -> Result<(), PlanError> {
        let mut reached = vec![false; self.len()];
        let mut waiting = from.to_vec();
        while let Some(vertex) = waiting.pop() {
            if !std::mem::replace(&mut reached[vertex], true) {
                waiting.extend_from_slice(down(self, vertex));
            }
        }
        match reached.iter().position(|&r| !r) {
            None => Ok(()),
            Some(vertex) => Err(PlanError::Cycle { graph, vertex }),
        }
    }
}

fn insert_sorted(list: &mut Vec<usize>, value: usize) {
    if let Err(place) = list.binary_search(&value) {
        list.insert(place, value);
    }
}

/// A quoted string of the DOT language.
pub(crate) fn quote(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(vertices: usize, edges: &[(usize, usize)]) -> Graph {
        let mut graph = Graph::new(vertices);
        for &(from, to) in edges {
            graph.add_edge(from, to).unwrap();
        }
        graph
    }

    #[test]
    fn edges_are_a_set_in_ascending_order() {
        let a = graph(3, &[(0, 2), (0, 1), (2, 2), (0, 2)]);
        let b = graph(3, &[(2, 2), (0, 1), (0, 2)]);
        assert_eq!(a, b);
        assert_eq!(a.edges().collect::<Vec<_>>(), [(0, 1), (0, 2), (2, 2)]);
        assert_eq!(a.prevs(2), [0]);
        assert!(a.has_self_loop(2) && !a.has_self_loop(0));
    }

    #[test]
    fn edge_to_an_unknown_vertex_is_refused() {
        let error = Graph::new(2).add_edge(0, 2).unwrap_err();
        assert_eq!(
            error.to_string(),
            "vertex 2 is not one of the 2 vertices of the graph"
        );
        assert!(Graph::new(2).nexts(7).is_empty());
    }

    #[test]
    fn reverse_turns_edges_and_keeps_self_loops() {
        let turned = graph(3, &[(0, 1), (0, 2), (1, 1)]).reverse();
        assert_eq!(turned, graph(3, &[(1, 0), (2, 0), (1, 1)]));
    }

    #[test]
    fn broadcast_graph_is_an_out_tree() {
        assert_eq!(graph(3, &[(1, 0), (1, 2)]).broadcast_root(), Ok(1));
        assert_eq!(graph(1, &[]).broadcast_root(), Ok(0));
        assert_eq!(
            graph(3, &[(0, 1), (2, 1)])
                .broadcast_root()
                .unwrap_err()
                .to_string(),
            "broadcast graph: vertex 1 has 2 parents, expected at most one"
        );
        assert_eq!(
            graph(3, &[(0, 1)])
                .broadcast_root()
                .unwrap_err()
                .to_string(),
            "broadcast graph: the roots are [0, 2], expected exactly one"
        );
        assert_eq!(
            graph(4, &[(0, 1), (2, 3), (3, 2)])
                .broadcast_root()
                .unwrap_err()
                .to_string(),
            "broadcast graph: vertex 2 is on a cycle or hangs from one"
        );
        assert_eq!(
            graph(2, &[(0, 1), (1, 0)]).broadcast_root(),
            Err(PlanError::NotOneRoot {
                graph: GraphKind::Broadcast,
                roots: vec![]
            })
        );
        assert_eq!(
            graph(2, &[(0, 1), (1, 1)]).broadcast_root(),
            Err(PlanError::UnexpectedSelfLoop { vertex: 1 })
        );
        assert_eq!(Graph::new(0).broadcast_root(), Err(PlanError::NoRanks));
    }

    #[test]
    fn reduce_graph_is_an_in_tree_with_self_loops() {
        let tree = graph(3, &[(0, 1), (2, 1)]);
        assert_eq!(
            tree.reduce_root(),
            Err(PlanError::MissingSelfLoop { vertex: 0 })
        );
        assert_eq!(tree.with_self_loops().reduce_root(), Ok(1));
        let split = graph(3, &[(0, 1), (0, 2)]).with_self_loops();
        assert_eq!(
            split.reduce_root(),
            Err(PlanError::SeveralParents {
                graph: GraphKind::Reduce,
                vertex: 0,
                parents: 2
            })
        );
    }

    #[test]
    fn parents_make_a_forest() {
        let forest = Graph::from_parents(&[0, 0, 2, 2, 3]).unwrap();
        assert_eq!(forest, graph(5, &[(0, 1), (2, 3), (3, 4)]));
        assert_eq!(Graph::from_parents(&[]).unwrap(), Graph::new(0));
    }

    #[test]
    fn parents_out_of_range_or_in_a_circle_are_refused() {
        assert_eq!(
            Graph::from_parents(&[0, 5]),
            Err(PlanError::VertexOutOfRange {
                vertex: 5,
                vertices: 2
            })
        );
        assert_eq!(
            Graph::from_parents(&[0, 2, 1]),
            Err(PlanError::Cycle {
                graph: GraphKind::Broadcast,
                vertex: 1
            })
        );
    }

    #[test]
    fn dot_lists_vertices_then_edges() {
        assert_eq!(
            graph(2, &[(0, 0), (1, 0)]).to_dot("my \"graph\""),
            "digraph \"my \\\"graph\\\"\" {\n  0 [label=\"0\"];\n  1 [label=\"1\"];\n  \
             0 -> 0;\n  1 -> 0;\n}\n"
        );
    }
}
