//! What the cgroups of this process grant it: both versions, the tightest of all levels.

use std::fs;
use std::path::{Path, PathBuf};

/// None where there is no limit.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Granted {
    /// Time on cores, in thousandths of a core.
    pub(super) cores: Option<u64>,
    pub(super) memory: Option<u64>,
    /// What is left of the memory, without what can be dropped.
    pub(super) memory_left: Option<u64>,
    /// Processes and threads that there is still room for.
    pub(super) processes: Option<u64>,
}

/// What is granted to this process.
pub(super) fn limits() -> Granted {
    let membership = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    limits_in(Path::new("/sys/fs/cgroup"), &membership)
}

fn limits_in(root: &Path, membership: &str) -> Granted {
    let mut granted = Granted::default();
    for line in membership.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        if controllers.is_empty() {
            for level in levels(root, path) {
                granted.add_second_version(&level);
            }
        } else {
            for controller in controllers.split(',') {
                for level in levels(&root.join(controller), path) {
                    granted.add_first_version(controller, &level);
                }
            }
        }
    }
    granted
}

/// The folders of a cgroup and of all above it. Inside a container only the top may be there.
fn levels(root: &Path, path: &str) -> Vec<PathBuf> {
    let own = root.join(path.trim_start_matches('/'));
    own.ancestors()
        .filter(|level| level.starts_with(root))
        .map(Path::to_owned)
        .collect()
}

impl Granted {
    fn add_second_version(&mut self, level: &Path) {
        if let Some((quota, period)) = text(level, "cpu.max").split_once(' ') {
            self.add_cores(quota.parse().ok(), period.parse().ok());
        }
        let current = number(level, "memory.current");
        let dropped = field(level, "inactive_file");
        self.add_memory(number(level, "memory.max"), current, dropped);
        self.add_processes(level);
    }

    fn add_first_version(&mut self, controller: &str, level: &Path) {
        match controller {
            "cpu" => self.add_cores(
                number(level, "cpu.cfs_quota_us"),
                number(level, "cpu.cfs_period_us"),
            ),
            "memory" => self.add_memory(
                number(level, "memory.limit_in_bytes"),
                number(level, "memory.usage_in_bytes"),
                field(level, "total_inactive_file"),
            ),
            "pids" => self.add_processes(level),
            _ => {}
        }
    }

    fn add_cores(&mut self, quota: Option<u64>, period: Option<u64>) {
        if let (Some(quota), Some(period @ 1..)) = (quota, period) {
            tighten(&mut self.cores, quota.saturating_mul(1000) / period);
        }
    }

    fn add_memory(&mut self, limit: Option<u64>, current: Option<u64>, dropped: u64) {
        if let Some(limit) = limit {
            tighten(&mut self.memory, limit);
            let used = current.unwrap_or(0).saturating_sub(dropped);
            tighten(&mut self.memory_left, limit.saturating_sub(used));
        }
    }

    fn add_processes(&mut self, level: &Path) {
        if let Some(limit) = number(level, "pids.max") {
            let used = number(level, "pids.current").unwrap_or(0);
            tighten(&mut self.processes, limit.saturating_sub(used));
        }
    }
}

fn tighten(known: &mut Option<u64>, limit: u64) {
    *known = Some(known.map_or(limit, |known| known.min(limit)));
}

fn text(level: &Path, name: &str) -> String {
    let text = fs::read_to_string(level.join(name)).unwrap_or_default();
    text.trim().to_owned()
}

/// A number; `max` and -1 are none.
fn number(level: &Path, name: &str) -> Option<u64> {
    text(level, name).parse().ok()
}

/// A field of a cgroup's memory statistics.
fn field(level: &Path, name: &str) -> u64 {
    let statistics = text(level, "memory.stat");
    let mut fields = statistics.lines().filter_map(|line| line.split_once(' '));
    let found = fields.find(|(field, _)| *field == name);
    found.and_then(|(_, value)| value.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::private::PrivateFolder;

    fn tree(files: &[(&str, &str)]) -> PrivateFolder {
        let folder = PrivateFolder::new(&[std::env::temp_dir()]).unwrap();
        for (path, content) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        folder
    }

    #[test]
    fn the_tightest_level_counts() {
        let root = tree(&[
            ("a/cpu.max", "150000 100000\n"),
            ("a/b/cpu.max", "max 100000\n"),
            ("a/memory.max", "1000\n"),
            ("a/memory.current", "600\n"),
            ("a/memory.stat", "anon 1\ninactive_file 200\n"),
            ("a/b/memory.max", "5000\n"),
            ("a/b/pids.max", "100\n"),
            ("a/b/pids.current", "40\n"),
        ]);
        let granted = limits_in(root.path(), "0::/a/b\n");
        let expected = Granted {
            cores: Some(1500),
            memory: Some(1000),
            memory_left: Some(600),
            processes: Some(60),
        };
        assert_eq!(granted, expected);
    }

    #[test]
    fn the_first_version_is_read_and_no_limit_is_none() {
        let root = tree(&[
            ("cpu/x/cpu.cfs_quota_us", "50000\n"),
            ("cpu/x/cpu.cfs_period_us", "100000\n"),
            ("cpu/cpu.cfs_quota_us", "-1\n"),
            ("pids/pids.max", "max\n"),
        ]);
        let granted = limits_in(root.path(), "4:cpu,cpuacct:/x\n3:pids:/gone\n");
        let expected = Granted {
            cores: Some(500),
            ..Granted::default()
        };
        assert_eq!(granted, expected);
        assert_eq!(limits_in(root.path(), ""), Granted::default());
    }
}
