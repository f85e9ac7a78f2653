//! Just enough HTTP/1.1 for one request to a coordinator, over a blocking socket.
//!
//! One connection serves one request. Bodies have a `Content-Length`; nothing else is understood,
//! because a coordinator sends nothing else. Sizes are bounded and every exchange has a deadline.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::error::Error;
use crate::names::addresses;
use crate::wire::MAX_ANSWER_BODY;

/// The longest status line and headers that are read.
const MAX_HEAD: usize = 16 * 1024;
/// How long one address may take to accept a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// One request.
pub(crate) struct Request<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) bearer: &'a str,
    pub(crate) body: Option<&'a [u8]>,
    /// What the request is for, in errors: `registering rank 2`.
    pub(crate) doing: &'a str,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) content_type: String,
    pub(crate) body: Vec<u8>,
}

/// Sends `request` to `address` (`host:port`) and reads the answer before `deadline`.
pub(crate) fn exchange(
    address: &str,
    request: &Request<'_>,
    deadline: Instant,
) -> Result<Response, Error> {
    let mut stream = connect(address, deadline).map_err(|source| Error::Connect {
        address: address.to_owned(),
        source,
    })?;
    let failed = |source: io::Error| match source.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Error::NoAnswer {
            address: address.to_owned(),
            doing: request.doing.to_owned(),
        },
        io::ErrorKind::InvalidData => Error::Protocol {
            address: address.to_owned(),
            detail: source.to_string(),
        },
        _ => Error::Connection {
            address: address.to_owned(),
            doing: request.doing.to_owned(),
            source,
        },
    };
    // A server that refuses a request early closes before it has read all of it; its answer is
    // worth more than our failure to write.
    let written = send(&mut stream, address, request, deadline);
    let answer = Reader {
        stream,
        deadline,
        buffer: Vec::new(),
    }
    .response();
    match (written, answer) {
        (_, Ok(answer)) => Ok(answer),
        (Err(error), Err(_)) | (Ok(()), Err(error)) => Err(failed(error)),
    }
}

fn connect(address: &str, deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for candidate in addresses(address, deadline)? {
        let limit = remaining(deadline)?.min(CONNECT_LIMIT);
        match TcpStream::connect_timeout(&candidate, limit) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn send(
    stream: &mut TcpStream,
    address: &str,
    request: &Request<'_>,
    deadline: Instant,
) -> io::Result<()> {
    let body = request.body.unwrap_or_default();
    let mut message = format!(
        "{} {} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n",
        request.method, request.path, request.bearer
    );
    if request.body.is_some() {
        message += "Content-Type: application/json\r\nContent-Length: ";
        message += &body.len().to_string();
        message += "\r\n";
    }
    message += "\r\n";
    let mut message = message.into_bytes();
    message.extend_from_slice(body);
    stream.set_write_timeout(Some(remaining(deadline)?))?;
    stream.write_all(&message)
}

/// The time left, as an error when there is none.
fn remaining(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        Err(io::ErrorKind::TimedOut.into())
    } else {
        Ok(left)
    }
}

fn malformed(detail: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, detail.into())
}

struct Reader {
    stream: TcpStream,
    deadline: Instant,
    buffer: Vec<u8>,
}

impl Reader {
    fn response(mut self) -> io::Result<Response> {
        let end = self.head_end()?;
        let head = std::str::from_utf8(&self.buffer[..end])
            .map_err(|_| malformed("its head is not text"))?;
        let head = Head::parse(head)?;
        self.buffer.drain(..end + 4);
        let length = match (head.status, head.content_length) {
            (204, _) => 0,
            (_, Some(length)) if length <= MAX_ANSWER_BODY => length,
            (_, Some(length)) => return Err(malformed(format!("a body of {length} bytes"))),
            (_, None) => return Err(malformed("no Content-Length")),
        };
        while self.buffer.len() < length {
            self.fill()?;
        }
        self.buffer.truncate(length);
        Ok(Response {
            status: head.status,
            content_type: head.content_type,
            body: self.buffer,
        })
    }

    /// Reads until the blank line that ends the head; returns where it begins.
    fn head_end(&mut self) -> io::Result<usize> {
        let mut searched: usize = 0;
        loop {
            let from = searched.saturating_sub(3);
            let found = self.buffer[from..]
                .windows(4)
                .position(|window| window == b"\r\n\r\n");
            if let Some(found) = found {
                return Ok(from + found);
            }
            if self.buffer.len() > MAX_HEAD {
                return Err(malformed("its head does not end"));
            }
            searched = self.buffer.len();
            self.fill()?;
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        let mut chunk = [0; 16 * 1024];
        self.stream
            .set_read_timeout(Some(remaining(self.deadline)?))?;
        loop {
            match self.stream.read(&mut chunk) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => {
                    self.buffer.extend_from_slice(&chunk[..count]);
                    return Ok(());
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

struct Head {
    status: u16,
    content_type: String,
    content_length: Option<usize>,
}

impl Head {
    fn parse(text: &str) -> io::Result<Self> {
        let mut lines = text.split("\r\n");
        let status = lines
            .next()
            .filter(|line| line.starts_with("HTTP/1."))
            .and_then(|line| line.split(' ').nth(1))
            .and_then(|status| status.parse().ok())
            .filter(|status| (200..600).contains(status))
            .ok_or_else(|| malformed("no HTTP/1.1 status line"))?;
        let mut head = Self {
            status,
            content_type: String::new(),
            content_length: None,
        };
        for line in lines {
            let Some((name, value)) = line.split_once(':') else {
                return Err(malformed("a header without a colon"));
            };
            let value = value.trim();
            match name.to_ascii_lowercase().as_str() {
                "content-length" => {
                    let length = value
                        .parse()
                        .map_err(|_| malformed("a bad Content-Length"))?;
                    head.content_length = Some(length);
                }
                "content-type" => value.clone_into(&mut head.content_type),
                "transfer-encoding" => return Err(malformed("a Transfer-Encoding")),
                _ => {}
            }
        }
        Ok(head)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// What the client makes of a server that answers `bytes` and closes.
    fn answer(bytes: &'static [u8]) -> Result<Response, Error> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 4096];
            let count = stream.read(&mut request).unwrap();
            // A client that has given up closes early; that is not this test's business.
            let _ = stream.write_all(bytes);
            count
        });
        let request = Request {
            method: "GET",
            path: "/",
            bearer: "x",
            body: None,
            doing: "testing",
        };
        let result = exchange(&address, &request, Instant::now() + Duration::from_secs(5));
        assert!(server.join().unwrap() > 0);
        result
    }

    #[test]
    fn an_answer_with_a_length_is_read() {
        let response =
            answer(b"HTTP/1.1 200 OK\r\ncontent-TYPE: a/b\r\ncontent-length: 5\r\n\r\nhello")
                .unwrap();
        assert_eq!(
            (response.status, response.content_type.as_str()),
            (200, "a/b")
        );
        assert_eq!(response.body, b"hello");
    }

    #[test]
    fn a_204_needs_no_length() {
        assert_eq!(
            answer(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap().status,
            204
        );
    }

    #[test]
    fn what_is_not_a_coordinators_answer_is_an_error_with_a_reason() {
        for (bytes, reason) in [
            (&b"SSH-2.0-OpenSSH\r\n\r\n"[..], "no HTTP/1.1 status line"),
            (b"HTTP/1.1 200 OK\r\n\r\nhello", "no Content-Length"),
            (
                b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
                "a bad Content-Length",
            ),
            (
                b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
                "a Transfer-Encoding",
            ),
            (
                b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n",
                "99999999999 bytes",
            ),
            (b"HTTP/1.1 200 OK\r\n\xff\xfe\r\n\r\n", "not text"),
        ] {
            match answer(bytes) {
                Err(Error::Protocol { detail, .. }) => assert!(detail.contains(reason), "{detail}"),
                other => panic!("expected a protocol error about {reason}, got {other:?}"),
            }
        }
    }

    #[test]
    fn a_connection_cut_in_the_middle_is_an_error() {
        let result = answer(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
        assert!(
            matches!(result, Err(Error::Connection { .. })),
            "{result:?}"
        );
    }

    #[test]
    fn a_silent_server_is_given_up_at_the_deadline() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let request = Request {
            method: "GET",
            path: "/",
            bearer: "x",
            body: None,
            doing: "testing",
        };
        let result = exchange(
            &address,
            &request,
            Instant::now() + Duration::from_millis(50),
        );
        match result {
            Err(Error::NoAnswer { doing, .. }) => assert_eq!(doing, "testing"),
            other => panic!("expected no answer, got {other:?}"),
        }
    }
}
