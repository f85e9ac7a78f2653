//! What `/etc/resolv.conf` says.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

/// Servers that are asked, as the system's library does.
const SERVERS: usize = 3;
/// Domains of the search list.
const DOMAINS: usize = 32;
/// The longest file that is read.
const LONGEST: u64 = 1 << 20;
const PORT: u16 = 53;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Configuration {
    pub(super) servers: Vec<SocketAddr>,
    /// Domains in which a short name is looked for.
    pub(super) search: Vec<String>,
    /// A name with as many dots is first taken as it is.
    pub(super) dots: usize,
    /// How long a server may take.
    pub(super) timeout: Duration,
    /// How often all of them are asked.
    pub(super) attempts: usize,
}

impl Default for Configuration {
    fn default() -> Self {
        Self {
            servers: vec![(Ipv4Addr::LOCALHOST, PORT).into()],
            search: Vec::new(),
            dots: 1,
            timeout: Duration::from_secs(5),
            attempts: 2,
        }
    }
}

/// A file's text; none if it cannot be read, as the system's library takes it.
pub(super) fn text_of(path: &Path) -> String {
    let mut bytes = Vec::new();
    let read =
        std::fs::File::open(path).and_then(|file| file.take(LONGEST).read_to_end(&mut bytes));
    if let Err(error) = read {
        tracing::debug!(path = %path.display(), %error, "not read");
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

impl Configuration {
    pub(super) fn read(path: &Path) -> Self {
        Self::parse(&text_of(path))
    }

    /// What makes no sense is passed over, as the system's library does.
    pub(super) fn parse(text: &str) -> Self {
        let mut configuration = Self::default();
        let mut servers = Vec::new();
        for line in text.lines().filter(|line| !line.starts_with(['#', ';'])) {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => {
                    let address = words.next().and_then(|word| word.parse::<IpAddr>().ok());
                    servers.extend(address.map(|address| SocketAddr::from((address, PORT))));
                }
                Some("search" | "domain") => {
                    let domains = words.map(|word| word.trim_matches('.').to_owned());
                    let domains = domains.filter(|domain| !domain.is_empty());
                    configuration.search = domains.take(DOMAINS).collect();
                }
                Some("options") => words.for_each(|word| configuration.set(word)),
                _ => {}
            }
        }
        servers.truncate(SERVERS);
        if !servers.is_empty() {
            configuration.servers = servers;
        }
        configuration
    }

    fn set(&mut self, option: &str) {
        let Some((name, value)) = option.split_once(':') else {
            return;
        };
        let Ok(value) = value.parse::<usize>() else {
            return;
        };
        // The bounds are those of the system's library.
        match name {
            "ndots" => self.dots = value.min(15),
            "timeout" => self.timeout = Duration::from_secs(value.clamp(1, 30) as u64),
            "attempts" => self.attempts = value.clamp(1, 5),
            _ => {}
        }
    }

    /// The full names that a name may stand for, in the order in which they are tried.
    pub(super) fn candidates(&self, name: &str) -> Vec<String> {
        if let Some(full) = name.strip_suffix('.') {
            return vec![full.to_owned()];
        }
        let in_domains = self.search.iter().map(|domain| format!("{name}.{domain}"));
        let mut candidates: Vec<String> = in_domains.collect();
        let dots = name.bytes().filter(|byte| *byte == b'.').count();
        let place = if dots >= self.dots {
            0
        } else {
            candidates.len()
        };
        candidates.insert(place, name.to_owned());
        candidates
    }
}
