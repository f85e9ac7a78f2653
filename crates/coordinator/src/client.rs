//! A blocking client for the processes of a job.
//!
//! It runs on a plain thread over [`std::net`], so a training process links no async runtime for
//! it. Each call is one connection; a client is cheap and can be shared between threads.
//!
//! Calls that wait survive a coordinator that is away for a while: they try again until their own
//! timeout. Calls that act are tried once; all of them may be repeated.

use std::time::{Duration, Instant};

use carole_plan::{Endpoint, Membership, PeerId};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::http::{Request, Response, exchange};
use crate::token::Token;
use crate::wire::{
    Accepted, Leave, Lost, LostList, MAX_WAIT, PROBLEM_JSON, Problem, Register, Registered,
    ReportLost, Status,
};

/// How long a call that does not wait may take.
const CALL_LIMIT: Duration = Duration::from_secs(10);
/// How long one long-poll is held: short enough that a coordinator that went away is noticed.
const POLL: Duration = Duration::from_secs(20);
/// Pause before a coordinator that does not answer is tried again.
const RETRY: Duration = Duration::from_millis(200);

/// A process's way to its coordinator.
///
/// ```no_run
/// use std::time::Duration;
/// use carole_coordinator::{Client, Token};
///
/// # fn main() -> Result<(), carole_coordinator::Error> {
/// let token = Token::read("/run/user/1000/carole-x/token".as_ref())?;
/// let client = Client::new("http://127.0.0.1:4000", token)?;
/// let membership = client.wait_membership(0, Duration::from_secs(60))?;
/// println!("{} members", membership.members.len());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Client {
    address: String,
    token: Token,
}

impl Client {
    /// A client for the coordinator at `http://HOST:PORT`. Nothing is opened yet.
    pub fn new(address: &str, token: Token) -> Result<Self, Error> {
        let wrong = || Error::Address {
            address: address.to_owned(),
        };
        let rest = address.strip_prefix("http://").unwrap_or(address);
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = rest.rsplit_once(':').ok_or_else(wrong)?;
        let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '/' | '@' | '?' | '#');
        if host.is_empty() || !host.chars().all(plain) || port.parse::<u16>().is_err() {
            return Err(wrong());
        }
        Ok(Self {
            address: rest.to_owned(),
            token,
        })
    }

    /// Where the coordinator is, as `HOST:PORT`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Takes `rank` for `peer`.
    pub fn register(
        &self,
        peer: &PeerId,
        rank: usize,
        endpoint: &Endpoint,
    ) -> Result<Registered, Error> {
        let request = Register {
            peer: peer.clone(),
            rank,
            endpoint: endpoint.clone(),
        };
        self.post("/v1/peers", &request, &format!("registering rank {rank}"))
    }

    /// Waits for the membership whose generation counter is above `after`.
    ///
    /// When the time is over the error names the ranks that have not registered; when the
    /// membership can no longer become complete, the error says why, without waiting further.
    pub fn wait_membership(&self, after: u32, timeout: Duration) -> Result<Membership, Error> {
        let path = format!("/v1/membership?after={after}");
        if let Some(membership) = self.poll(&path, timeout, "waiting for the membership")? {
            return Ok(membership);
        }
        let Status { size, missing, .. } = self.status()?;
        Err(Error::MembershipTimeout {
            waited: timeout,
            size,
            missing,
        })
    }

    /// The job at a glance.
    pub fn status(&self) -> Result<Status, Error> {
        let response = self.call(
            "GET",
            "/v1/status",
            None,
            "asking for the status",
            CALL_LIMIT,
        )?;
        self.decode(&response)
    }

    /// Reports that the process of `rank` is gone. Agents call this.
    pub fn report_lost(
        &self,
        rank: usize,
        reason: &str,
        exit_code: Option<i32>,
    ) -> Result<Accepted, Error> {
        let request = ReportLost {
            rank,
            reason: reason.to_owned(),
            exit_code,
        };
        self.post(
            "/v1/lost",
            &request,
            &format!("reporting the loss of rank {rank}"),
        )
    }

    /// Waits for losses whose sequence number is above `after`; none when the time is over.
    pub fn wait_lost(&self, after: u64, timeout: Duration) -> Result<Vec<Lost>, Error> {
        let path = format!("/v1/lost?after={after}");
        let list: Option<LostList> = self.poll(&path, timeout, "waiting for losses")?;
        Ok(list.map(|list| list.lost).unwrap_or_default())
    }

    /// Says that `peer` is done, so that its end is not taken for a loss.
    pub fn leave(&self, peer: &PeerId) -> Result<Accepted, Error> {
        self.post(
            "/v1/leave",
            &Leave { peer: peer.clone() },
            &format!("leaving as {peer}"),
        )
    }

    fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        request: &impl Serialize,
        doing: &str,
    ) -> Result<T, Error> {
        let body = serde_json::to_vec(request).expect("requests hold nothing JSON cannot");
        let response = self.call("POST", path, Some(&body), doing, CALL_LIMIT)?;
        self.decode(&response)
    }

    /// Long-polls `path` until something comes or `timeout` has passed.
    fn poll<T: DeserializeOwned>(
        &self,
        path: &str,
        timeout: Duration,
        doing: &str,
    ) -> Result<Option<T>, Error> {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let wait = left.min(POLL).min(MAX_WAIT);
            let path = format!("{path}&wait_ms={}", wait.as_millis());
            match self.call("GET", &path, None, doing, wait + CALL_LIMIT) {
                Ok(response) if response.status != 204 => return self.decode(&response).map(Some),
                Ok(_) if Instant::now() >= deadline => return Ok(None),
                Ok(_) => {}
                Err(error) if !away(&error) || Instant::now() + RETRY >= deadline => {
                    return Err(error);
                }
                Err(error) => {
                    tracing::debug!(%error, "the coordinator is away; trying again");
                    std::thread::sleep(RETRY);
                }
            }
        }
    }

    fn call(
        &self,
        method: &str,
        path: &str,
        body: Option<&[u8]>,
        doing: &str,
        limit: Duration,
    ) -> Result<Response, Error> {
        let bearer = self.token.to_hex();
        let request = Request {
            method,
            path,
            bearer: &bearer,
            body,
            doing,
        };
        let response = exchange(&self.address, &request, Instant::now() + limit)?;
        match response.status {
            200..=299 => Ok(response),
            401 => Err(Error::Unauthorized {
                address: self.address.clone(),
            }),
            _ if response.content_type == PROBLEM_JSON => {
                let problem: Problem = self.decode(&response)?;
                Err(Error::Refused { problem })
            }
            status => Err(self.protocol(format!("status {status} while {doing}"))),
        }
    }

    fn decode<T: DeserializeOwned>(&self, response: &Response) -> Result<T, Error> {
        serde_json::from_slice(&response.body).map_err(|error| self.protocol(error.to_string()))
    }

    fn protocol(&self, detail: String) -> Error {
        Error::Protocol {
            address: self.address.clone(),
            detail,
        }
    }
}

/// Whether the coordinator may be back in a moment.
fn away(error: &Error) -> bool {
    matches!(
        error,
        Error::Connect { .. } | Error::Connection { .. } | Error::NoAnswer { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_urls_or_host_and_port() {
        let token = Token::from_bytes([0; 32]);
        for (address, expected) in [
            ("http://127.0.0.1:80", "127.0.0.1:80"),
            ("http://[::1]:80/", "[::1]:80"),
            ("node-a:4000", "node-a:4000"),
        ] {
            let client = Client::new(address, token.clone()).unwrap();
            assert_eq!(client.address(), expected);
        }
        for address in [
            "",
            "http://",
            "node-a",
            "node-a:",
            "a:99999",
            "https://a:1/x",
            "a b:1",
        ] {
            let error = Client::new(address, token.clone()).unwrap_err();
            assert!(
                matches!(error, Error::Address { .. }),
                "{address:?} gave {error}"
            );
        }
    }
}
