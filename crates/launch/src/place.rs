//! Where a rank stands among the others.

/// A rank's place in its job, by every count that programs ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The rank in the job.
    pub rank: usize,
    /// How many ranks the job has.
    pub size: usize,
    /// The rank among those on the same host.
    pub local_rank: usize,
    /// How many ranks there are on the same host.
    pub local_size: usize,
    /// The host's place among the hosts.
    pub host_rank: usize,
    /// How many hosts there are.
    pub hosts: usize,
    /// The rank among those with the same local rank, one a host.
    pub cross_rank: usize,
    /// How many ranks have the same local rank.
    pub cross_size: usize,
}

impl Place {
    /// The place of `rank` when all ranks are on one host.
    pub fn on_one_host(rank: usize, size: usize) -> Self {
        Self {
            rank,
            size,
            local_rank: rank,
            local_size: size,
            host_rank: 0,
            hosts: 1,
            cross_rank: 0,
            cross_size: 1,
        }
    }
}
