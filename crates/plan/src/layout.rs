//! Which ranks share a host: local ranks, host ranks, and the groups they make.
//!
//! A [`HostLayout`] is computed once from the host of every rank, whatever stands for a host: the
//! plan's host name, or the machine that a peer reported. Hosts are numbered by first appearance,
//! so that the layout depends on the order of the ranks and not on names. Ranks of one host need
//! not be neighbours.

use std::collections::HashMap;
use std::hash::Hash;

/// Where every rank stands among the hosts.
///
/// ```
/// use carole_plan::HostLayout;
///
/// let layout = HostLayout::new(["a", "a", "b", "b", "b"]);
/// let position = layout.position(3).unwrap();
/// assert_eq!((position.host_rank, position.local_rank, position.local_size), (1, 1, 3));
/// assert_eq!(layout.local_ranks(3), [2, 3, 4]);
/// assert_eq!(layout.cross_ranks(3), [1, 3]);
/// assert_eq!(layout.masters(), [0, 2]);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostLayout {
    /// For each rank: its host, and its place among that host's ranks.
    places: Vec<(usize, usize)>,
    /// For each host: its ranks, ascending.
    by_host: Vec<Vec<usize>>,
    /// For each local rank: the ranks that have it, by host.
    by_local_rank: Vec<Vec<usize>>,
}

/// Where one rank stands: what a launched process is told about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The rank.
    pub rank: usize,
    /// How many ranks there are.
    pub size: usize,
    /// The rank's place among the ranks of its host.
    pub local_rank: usize,
    /// How many ranks its host has.
    pub local_size: usize,
    /// The host's place among the hosts, by first appearance.
    pub host_rank: usize,
    /// How many hosts there are.
    pub host_count: usize,
    /// The rank's place among the ranks with its local rank; below `host_rank` where an earlier
    /// host has fewer ranks.
    pub cross_rank: usize,
    /// How many hosts have a rank with its local rank.
    pub cross_size: usize,
}

impl HostLayout {
    /// The layout of ranks whose hosts are these, in rank order.
    pub fn new<H: Eq + Hash>(hosts: impl IntoIterator<Item = H>) -> Self {
        let mut numbers: HashMap<H, usize> = HashMap::new();
        let mut places = Vec::new();
        let mut by_host: Vec<Vec<usize>> = Vec::new();
        for (rank, host) in hosts.into_iter().enumerate() {
            let next = numbers.len();
            let host = *numbers.entry(host).or_insert(next);
            if host == next {
                by_host.push(Vec::new());
            }
            places.push((host, by_host[host].len()));
            by_host[host].push(rank);
        }
        let largest = by_host.iter().map(Vec::len).max().unwrap_or(0);
        let column = |i| {
            by_host
                .iter()
                .filter_map(|ranks| ranks.get(i).copied())
                .collect()
        };
        let by_local_rank = (0..largest).map(column).collect();
        Self {
            places,
            by_host,
            by_local_rank,
        }
    }

    /// How many ranks there are.
    pub fn size(&self) -> usize {
        self.places.len()
    }

    /// How many hosts there are.
    pub fn host_count(&self) -> usize {
        self.by_host.len()
    }

    /// Where `rank` stands, if there is such a rank.
    pub fn position(&self, rank: usize) -> Option<Position> {
        let &(host_rank, local_rank) = self.places.get(rank)?;
        let cross = &self.by_local_rank[local_rank];
        Some(Position {
            rank,
            size: self.size(),
            local_rank,
            local_size: self.by_host[host_rank].len(),
            host_rank,
            host_count: self.host_count(),
            cross_rank: cross.iter().position(|&r| r == rank)?,
            cross_size: cross.len(),
        })
    }

    /// The ranks on the host of `rank`, ascending; none when there is no such rank.
    pub fn local_ranks(&self, rank: usize) -> &[usize] {
        self.places
            .get(rank)
            .map_or(&[], |&(host, _)| &self.by_host[host])
    }

    /// The ranks with the local rank of `rank`, one a host, by host; none when there is no such
    /// rank. A host with fewer ranks is passed over.
    pub fn cross_ranks(&self, rank: usize) -> &[usize] {
        self.places
            .get(rank)
            .map_or(&[], |&(_, local)| &self.by_local_rank[local])
    }

    /// The first rank of every host, by host.
    pub fn masters(&self) -> &[usize] {
        self.by_local_rank.first().map_or(&[], Vec::as_slice)
    }

    /// For each rank, the number of its host by first appearance.
    pub fn host_indices(&self) -> Vec<usize> {
        self.places.iter().map(|&(host, _)| host).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_numbered_by_first_appearance() {
        let layout = HostLayout::new([7, 3, 7, 9, 3]);
        assert_eq!(layout.host_indices(), [0, 1, 0, 2, 1]);
        assert_eq!(layout.masters(), [0, 1, 3]);
        assert_eq!((layout.size(), layout.host_count()), (5, 3));
    }

    #[test]
    fn position_counts_within_the_host_and_across_hosts() {
        let layout = HostLayout::new(["a", "b", "a", "c", "a", "c"]);
        assert_eq!(
            layout.position(5),
            Some(Position {
                rank: 5,
                size: 6,
                local_rank: 1,
                local_size: 2,
                host_rank: 2,
                host_count: 3,
                cross_rank: 1,
                cross_size: 2,
            })
        );
        assert_eq!(layout.local_ranks(2), [0, 2, 4]);
        assert_eq!(layout.cross_ranks(5), [2, 5]);
        assert_eq!(layout.cross_ranks(4), [4]);
    }

    #[test]
    fn unknown_rank_has_no_position_and_no_neighbours() {
        let layout = HostLayout::new(["a"]);
        assert_eq!(layout.position(1), None);
        assert!(layout.local_ranks(1).is_empty());
        assert!(layout.cross_ranks(1).is_empty());
        assert!(HostLayout::new(Vec::<u8>::new()).masters().is_empty());
    }
}
