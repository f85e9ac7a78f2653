//! Every topology sums correctly on every rank, whatever the number of ranks and their hosts.

use carole_plan::{Graph, GraphPair, HostLayout, Topology, TopologyName, minimum_spanning_tree};
use proptest::collection::vec;
use proptest::prelude::*;

/// The machines of 1 to 64 ranks, in any order.
fn hosts() -> impl Strategy<Value = Vec<usize>> {
    (1_usize..=64, 1_usize..=16).prop_flat_map(|(size, machines)| vec(0..machines, size))
}

/// The parents of a tree over 1 to 64 ranks, in any numbering.
fn parents() -> impl Strategy<Value = Vec<usize>> {
    vec(any::<prop::sample::Index>(), 1..=64).prop_flat_map(|choices| {
        let size = choices.len();
        let names: Vec<usize> = (0..size).collect();
        Just(names).prop_shuffle().prop_map(move |names| {
            let mut parents = vec![0; size];
            for (i, choice) in choices.iter().enumerate() {
                // Each vertex under an earlier one, so that there is no cycle.
                parents[names[i]] = names[if i == 0 { 0 } else { choice.index(i) }];
            }
            parents
        })
    })
}

/// A square matrix of latencies; few distinct values, so that there are ties.
fn latencies(largest: usize) -> impl Strategy<Value = Vec<Vec<f64>>> {
    (1..=largest).prop_flat_map(|size| vec(vec((0_u8..20).prop_map(f64::from), size), size))
}

/// Follows every pair and checks that each rank ends with each value exactly once. Values are
/// lists of the ranks in them, so that a value lost and another counted twice cannot cancel out.
fn assert_sums(topology: &Topology, size: usize) {
    assert_eq!(topology.size(), size);
    let own: Vec<Vec<usize>> = (0..size).map(|rank| vec![rank]).collect();
    for pair in topology.pairs() {
        assert_eq!(pair.reduce().reduce_root(), Ok(pair.root()));
        assert_eq!(pair.broadcast().broadcast_root(), Ok(pair.root()));
        let results = pair
            .simulate(&own, |so_far, arrived| [&so_far[..], arrived].concat())
            .unwrap();
        assert!(
            results.iter().all(|result| result == &results[0]),
            "ranks differ"
        );
        let mut counted = results[0].clone();
        counted.sort_unstable();
        assert!(counted.iter().copied().eq(0..size), "counted {counted:?}");
    }
}

#[test]
fn every_named_topology_sums_on_every_size_with_one_to_four_ranks_a_host() {
    for size in 1..=64 {
        for local in 1..=4 {
            let blocks: Vec<usize> = (0..size).map(|rank| rank / local).collect();
            for name in TopologyName::ALL {
                assert_sums(&Topology::named(name, &blocks).unwrap(), size);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn every_named_topology_sums_on_any_layout(hosts in hosts()) {
        for name in TopologyName::ALL {
            let topology = Topology::named(name, &hosts).unwrap();
            assert_sums(&topology, hosts.len());
            prop_assert_eq!(&topology, &Topology::named(name, &hosts).unwrap());
        }
    }

    #[test]
    fn host_numbers_matter_only_by_being_equal(hosts in hosts(), shift in 1_usize..1000) {
        let renamed: Vec<usize> = hosts.iter().map(|host| 20_000 - host * 7 + shift).collect();
        for name in TopologyName::ALL {
            prop_assert_eq!(Topology::named(name, &hosts), Topology::named(name, &renamed));
        }
    }

    #[test]
    fn several_pairs_have_several_roots(hosts in hosts()) {
        let layout = HostLayout::new(&hosts);
        let roots = |name| -> Vec<usize> {
            Topology::named(name, &hosts).unwrap().pairs().iter().map(GraphPair::root).collect()
        };
        let every_rank: Vec<usize> = (0..hosts.len()).collect();
        prop_assert_eq!(&roots(TopologyName::Ring), &every_rank);
        prop_assert_eq!(&roots(TopologyName::Clique), &every_rank);
        prop_assert_eq!(roots(TopologyName::MultiStar), layout.masters());
        prop_assert_eq!(roots(TopologyName::MultiBinaryTreeStar), layout.masters());
    }

    #[test]
    fn trees_by_host_use_one_link_a_further_host(hosts in hosts()) {
        let layout = HostLayout::new(&hosts);
        for name in [
            TopologyName::Tree,
            TopologyName::MultiStar,
            TopologyName::BinaryTreeStar,
            TopologyName::MultiBinaryTreeStar,
        ] {
            for pair in Topology::named(name, &hosts).unwrap().pairs() {
                let crossing = pair.broadcast().edges().filter(|&(i, j)| hosts[i] != hosts[j]);
                prop_assert_eq!(crossing.count(), layout.host_count() - 1, "{}", name);
            }
        }
    }

    #[test]
    fn any_tree_given_by_parents_sums(parents in parents()) {
        assert_sums(&Topology::from_parents(&parents).unwrap(), parents.len());
    }

    #[test]
    fn any_array_of_parents_is_a_tree_or_refused(parents in vec(0_usize..10, 0..9)) {
        match Topology::from_parents(&parents) {
            Ok(topology) => assert_sums(&topology, parents.len()),
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn any_pair_of_graphs_that_is_accepted_sums(
        size in 1_usize..5,
        reduce in vec((0_usize..4, 0_usize..4), 0..6),
        broadcast in vec((0_usize..4, 0_usize..4), 0..6),
    ) {
        let build = |mut graph: Graph, edges: &[(usize, usize)]| {
            for (from, to) in edges {
                graph.add_edge(from % size, to % size).unwrap();
            }
            graph
        };
        let reduce = build(Graph::new(size).with_self_loops(), &reduce);
        if let Ok(pair) = GraphPair::new(reduce, build(Graph::new(size), &broadcast)) {
            assert_sums(&Topology::new(vec![pair]).unwrap(), size);
        }
    }

    #[test]
    fn spanning_tree_sums_and_does_not_depend_on_direction(latencies in latencies(64)) {
        let parents = minimum_spanning_tree(&latencies).unwrap();
        assert_sums(&Topology::from_latencies(&latencies).unwrap(), latencies.len());
        let size = latencies.len();
        let turned: Vec<Vec<f64>> =
            (0..size).map(|i| (0..size).map(|j| latencies[j][i]).collect()).collect();
        prop_assert_eq!(parents, minimum_spanning_tree(&turned).unwrap());
    }

    #[test]
    fn no_other_tree_is_lighter_than_the_spanning_tree(latencies in latencies(24)) {
        // A tree is minimal exactly when every link outside it is at least as heavy as every link
        // on the way between its ends in the tree.
        let weight = |i: usize, j: usize| f64::midpoint(latencies[i][j], latencies[j][i]);
        let parents = minimum_spanning_tree(&latencies).unwrap();
        let way_to_root = |mut rank: usize| {
            let mut way = Vec::new();
            while parents[rank] != rank {
                way.push((rank, parents[rank]));
                rank = parents[rank];
            }
            way
        };
        for i in 0..parents.len() {
            for j in 0..i {
                let (from_i, from_j) = (way_to_root(i), way_to_root(j));
                let one_sided = |a: &[(usize, usize)], b: &[(usize, usize)]| {
                    a.iter().filter(|link| !b.contains(link)).copied().collect::<Vec<_>>()
                };
                let between = [one_sided(&from_i, &from_j), one_sided(&from_j, &from_i)].concat();
                prop_assert!(between.iter().all(|&(a, b)| weight(a, b) <= weight(i, j)));
            }
        }
    }

    #[test]
    fn layout_groups_cover_every_rank_once(hosts in hosts()) {
        let layout = HostLayout::new(&hosts);
        let mut local_sum = 0;
        for rank in 0..hosts.len() {
            let position = layout.position(rank).unwrap();
            let local = layout.local_ranks(rank);
            let cross = layout.cross_ranks(rank);
            prop_assert_eq!(local[position.local_rank], rank);
            prop_assert_eq!(cross[position.cross_rank], rank);
            prop_assert_eq!((local.len(), cross.len()), (position.local_size, position.cross_size));
            prop_assert!(local.is_sorted());
            prop_assert!(local.iter().all(|&other| hosts[other] == hosts[rank]));
            local_sum += usize::from(position.local_rank == 0) * local.len();
        }
        prop_assert_eq!(local_sum, hosts.len());
    }
}
