//! The addresses of a host's name.
//!
//! A dynamically linked program asks the system's library, which knows of every place where names
//! are kept. A statically linked one cannot: glibc loads the parts that do so at run time, and only
//! of its own version. It looks for itself, here: the address itself, `localhost`, `/etc/hosts`, then
//! the name servers of `/etc/resolv.conf`. Other places (NIS, LDAP, multicast) are left out.
//!
//! # Guarantees
//!
//! Every question ends at its deadline. An answer counts only if it comes from the server that was
//! asked, to the port that asked, with the question's random number and the question itself; what it
//! holds is bounded before it is kept.

mod configuration;
mod message;
mod query;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::time::Instant;

use configuration::Configuration;
use message::Kind;
use query::Outcome;

/// More addresses than a name can use.
const MOST: usize = 64;

/// The addresses of `HOST:PORT`, the best first; at least one.
///
/// ```
/// # fn main() -> std::io::Result<()> {
/// let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
/// let addresses = carole_coordinator::addresses("127.0.0.1:80", deadline)?;
/// assert_eq!(addresses, ["127.0.0.1:80".parse().unwrap()]);
/// # Ok(())
/// # }
/// ```
pub fn addresses(address: &str, deadline: Instant) -> io::Result<Vec<SocketAddr>> {
    let found = if cfg!(target_feature = "crt-static") {
        let (host, port) = split(address)?;
        let found = look_up(host, &Places::default(), deadline)?;
        found.into_iter().map(|ip| (ip, port).into()).collect()
    } else {
        address.to_socket_addrs()?.collect::<Vec<_>>()
    };
    if found.is_empty() {
        return Err(unknown(address));
    }
    Ok(found)
}

/// Where names are looked up.
struct Places<'a> {
    hosts: &'a Path,
    configuration: Configuration,
}

impl Default for Places<'_> {
    fn default() -> Self {
        Self {
            hosts: Path::new("/etc/hosts"),
            configuration: Configuration::read(Path::new("/etc/resolv.conf")),
        }
    }
}

fn split(address: &str) -> io::Result<(&str, u16)> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidInput, "it is not HOST:PORT");
    let (host, port) = address.rsplit_once(':').ok_or_else(wrong)?;
    Ok((host, port.parse().map_err(|_| wrong())?))
}

fn unknown(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{name} has no address"))
}

/// The addresses of a name: the first place that knows it decides.
fn look_up(name: &str, places: &Places, deadline: Instant) -> io::Result<Vec<IpAddr>> {
    let plain = name
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    if let Ok(address) = plain.unwrap_or(name).parse() {
        return Ok(vec![address]);
    }
    let text = configuration::text_of(places.hosts);
    let listed = in_hosts_file(&text, name);
    if !listed.is_empty() {
        return Ok(listed);
    }
    let local = name.trim_end_matches('.').to_ascii_lowercase();
    if local == "localhost" || local.ends_with(".localhost") {
        return Ok(vec![Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()]);
    }
    in_dns(name, &places.configuration, deadline)
}

fn in_hosts_file(text: &str, name: &str) -> Vec<IpAddr> {
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default());
    let found = lines.filter_map(|line| {
        let mut words = line.split_whitespace();
        let address: IpAddr = words.next()?.parse().ok()?;
        words
            .any(|word| word.eq_ignore_ascii_case(name))
            .then_some(address)
    });
    found.take(MOST).collect()
}

/// Asks for the name and for what the search list makes of it, IPv4 first.
fn in_dns(name: &str, configuration: &Configuration, deadline: Instant) -> io::Result<Vec<IpAddr>> {
    let mut failure = None;
    for candidate in configuration.candidates(name) {
        let mut found = Vec::new();
        for kind in [Kind::V4, Kind::V6] {
            match query::ask(&candidate, kind, configuration, deadline) {
                Ok(Outcome::Addresses(addresses)) => found.extend(addresses),
                Ok(Outcome::NoSuchName) => break,
                Err(error) => failure = Some(error),
            }
        }
        if !found.is_empty() {
            return Ok(found);
        }
    }
    // A server that did not answer is told of rather than a name that the others do not know.
    Err(failure.unwrap_or_else(|| unknown(name)))
}

#[cfg(test)]
mod tests;
