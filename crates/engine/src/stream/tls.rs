//! TLS 1.3 on TCP connections between peers.
//!
//! Every peer makes a key and a self-signed certificate of its own when it begins to listen, and
//! registers the certificate's SHA-256 with its address. Both ends show theirs, and each compares
//! the other's with what the membership says: who connects at once, who listens when its session
//! asks for the connection, because a newcomer may come before the membership does. There are no
//! authorities, no names and no dates to check. The proofs of the job's token cover a value that
//! only the two ends of this very channel can compute, so that nobody in between can pass them on.
//!
//! Reading and writing never block. Reading hands out all that has come before it says that there
//! is nothing; what TLS holds back of a write is bounded, counts as not sent, and is sent by
//! [`TlsSocket::flush`]. The memory for encryption is rustls's own: unlike plain connections these
//! allocate while data moves.

use std::fmt::Write as _;
use std::io::{self, BufRead, IoSlice};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{
    CertificateError, ClientConfig, ClientConnection, Connection, DigitallySignedStruct,
    DistinguishedName, ServerConfig, ServerConnection, SignatureScheme,
};

use crate::error::Error;
use crate::sys;

/// The SHA-256 of a certificate.
pub(crate) type Fingerprint = [u8; 32];

/// What the proofs are bound to.
const LABEL: &[u8] = b"EXPORTER-Carole-peers";
/// Pieces of memory that are sent with one call.
const MAX_PARTS: usize = 16;
/// Encrypted bytes that are read at a time.
const INBOUND: usize = 64 << 10;
/// Encrypted bytes that may wait for the socket.
const OUTBOUND: usize = 128 << 10;

fn fingerprint(certificate: &CertificateDer<'_>) -> Fingerprint {
    let digest = ring::digest::digest(&ring::digest::SHA256, certificate);
    digest.as_ref().try_into().expect("SHA-256 gives 32 bytes")
}

/// The fingerprint as it is registered.
pub(crate) fn to_hex(fingerprint: &Fingerprint) -> String {
    fingerprint.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// A registered fingerprint; `None` when it is none.
pub(crate) fn from_hex(text: &str) -> Option<Fingerprint> {
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut fingerprint = [0; 32];
    for (index, byte) in fingerprint.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * index..2 * index + 2)?, 16).ok()?;
    }
    Some(fingerprint)
}

/// A peer's key and certificate.
pub(crate) struct Identity {
    provider: Arc<CryptoProvider>,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
    server: Arc<ServerConfig>,
}

fn failed(error: impl std::fmt::Display) -> Error {
    Error::System {
        context: "preparing TLS".into(),
        message: error.to_string(),
    }
}

impl Identity {
    /// A fresh key with its certificate.
    pub(crate) fn new() -> Result<Self, Error> {
        let made = rcgen::generate_simple_self_signed(vec!["carole".to_owned()]).map_err(failed)?;
        let certificate = made.cert.der().clone();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).map_err(failed)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(failed)?
            .with_client_cert_verifier(Arc::new(Pinned::new(&provider, None)))
            .with_single_cert(vec![certificate.clone()], key.clone_key())
            .map_err(failed)?;
        // Connections are made once a generation; there is nothing to resume.
        server.send_tls13_tickets = 0;
        Ok(Self {
            provider,
            certificate,
            key,
            server: Arc::new(server),
        })
    }

    pub(crate) fn fingerprint(&self) -> Fingerprint {
        fingerprint(&self.certificate)
    }

    /// The listening side of a connection.
    pub(crate) fn accept(&self, stream: TcpStream) -> Result<TlsSocket, Error> {
        let session = ServerConnection::new(Arc::clone(&self.server)).map_err(failed)?;
        Ok(TlsSocket::new(stream, session.into()))
    }

    /// The connecting side, which talks to the owner of the certificate `expected` only.
    pub(crate) fn connect(
        &self,
        stream: TcpStream,
        expected: Fingerprint,
    ) -> Result<TlsSocket, Error> {
        let verifier = Pinned::new(&self.provider, Some(expected));
        let mut config = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .map_err(failed)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_client_auth_cert(vec![self.certificate.clone()], self.key.clone_key())
            .map_err(failed)?;
        config.enable_sni = false;
        config.resumption = rustls::client::Resumption::disabled();
        let name = ServerName::try_from("carole").map_err(failed)?;
        let session = ClientConnection::new(Arc::new(config), name).map_err(failed)?;
        Ok(TlsSocket::new(stream, session.into()))
    }
}

/// Believes one certificate, or, where that is checked later, any.
#[derive(Debug)]
struct Pinned {
    expected: Option<Fingerprint>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Pinned {
    fn new(provider: &CryptoProvider, expected: Option<Fingerprint>) -> Self {
        Self {
            expected,
            algorithms: provider.signature_verification_algorithms,
        }
    }

    fn check(&self, certificate: &CertificateDer<'_>) -> Result<(), rustls::Error> {
        match self.expected {
            Some(expected) if fingerprint(certificate) != expected => {
                Err(CertificateError::ApplicationVerificationFailure.into())
            }
            _ => Ok(()),
        }
    }

    fn verify(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }
}

fn no_tls12() -> Result<HandshakeSignatureValid, rustls::Error> {
    Err(rustls::PeerIncompatible::Tls12NotOffered.into())
}

impl ServerCertVerifier for Pinned {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.check(end_entity)
            .map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verify(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl ClientCertVerifier for Pinned {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.check(end_entity)
            .map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _certificate: &CertificateDer<'_>,
        _signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        no_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verify(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

/// One end of an encrypted connection.
pub(crate) struct TlsSocket {
    stream: TcpStream,
    state: Mutex<State>,
}

struct State {
    session: Connection,
    /// Encrypted bytes that have come and are not looked at yet.
    inbound: Box<[u8]>,
    start: usize,
    end: usize,
}

impl TlsSocket {
    fn new(stream: TcpStream, mut session: Connection) -> Self {
        session.set_buffer_limit(Some(OUTBOUND));
        Self {
            stream,
            state: Mutex::new(State {
                session,
                inbound: Box::default(),
                start: 0,
                end: 0,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Encrypts and sends what the socket takes; how many bytes were accepted.
    pub(crate) fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut state = self.state();
        if !state.flush(&self.stream)? {
            return Ok(0);
        }
        let mut copies = [IoSlice::new(&[]); MAX_PARTS];
        let count = parts.len().min(MAX_PARTS);
        copies[..count].copy_from_slice(&parts[..count]);
        let mut rest = &mut copies[..count];
        let mut accepted = 0;
        loop {
            IoSlice::advance_slices(&mut rest, 0);
            if rest.is_empty() {
                return Ok(accepted);
            }
            let count = io::Write::write_vectored(&mut state.session.writer(), rest)?;
            accepted += count;
            IoSlice::advance_slices(&mut rest, count);
            if !state.flush(&self.stream)? || count == 0 {
                return Ok(accepted);
            }
        }
    }

    /// Sends what was accepted before; true when nothing of it is left.
    pub(crate) fn flush(&self) -> io::Result<bool> {
        self.state().flush(&self.stream)
    }

    /// Says no more.
    pub(crate) fn finish(&self) -> io::Result<()> {
        let mut state = self.state();
        state.session.send_close_notify();
        let flushed = state.flush(&self.stream);
        self.stream.shutdown(Shutdown::Write)?;
        flushed.map(drop)
    }

    /// Whether something that was accepted waits for the socket.
    pub(crate) fn wants_write(&self) -> bool {
        self.state().session.wants_write()
    }

    /// Reads what there is and gives it to `take`, which says how much it took: all of it, unless
    /// it is full. `None` when there is nothing now; zero at the end of the stream.
    pub(crate) fn receive(
        &self,
        mut take: impl FnMut(&[u8]) -> usize,
    ) -> io::Result<Option<usize>> {
        let mut state = self.state();
        let mut received = 0;
        loop {
            match state.session.reader().fill_buf() {
                Ok(bytes) if !bytes.is_empty() => {
                    let count = take(bytes);
                    let full = count < bytes.len();
                    state.session.reader().consume(count);
                    received += count;
                    if full {
                        return Ok(Some(received));
                    }
                    continue;
                }
                // The end, with or without a word: that is for the frames to tell.
                Ok(_) => return Ok(Some(received)),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Ok(Some(received));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(error),
            }
            match state.read(&self.stream)? {
                None if received > 0 => return Ok(Some(received)),
                None => return Ok(None),
                Some(0) => return Ok(Some(received)),
                Some(_) => {}
            }
        }
    }

    /// A value that only the two ends of this channel know, once its handshake is over.
    pub(crate) fn channel(&self) -> io::Result<[u8; 32]> {
        let state = self.state();
        state
            .session
            .export_keying_material([0; 32], LABEL, None)
            .map_err(|error| io::Error::other(reason(&error)))
    }

    /// The certificate that the other end has shown.
    pub(crate) fn fingerprint(&self) -> Option<Fingerprint> {
        let state = self.state();
        let shown = state.session.peer_certificates()?;
        shown.first().map(fingerprint)
    }
}

impl State {
    /// Reads encrypted bytes and looks at them; how many, `None` for none now, zero at the end.
    fn read(&mut self, stream: &TcpStream) -> io::Result<Option<usize>> {
        if self.start == self.end {
            if self.inbound.is_empty() {
                self.inbound = vec![0; INBOUND].into();
            }
            match sys::receive_into(stream.as_fd(), &mut self.inbound)? {
                None => return Ok(None),
                Some(0) => {
                    self.session.read_tls(&mut io::empty())?;
                    return Ok(Some(0));
                }
                Some(count) => (self.start, self.end) = (0, count),
            }
        }
        let count = self
            .session
            .read_tls(&mut &self.inbound[self.start..self.end])?;
        self.start += count;
        let processed = self.session.process_new_packets();
        // Answers of the handshake, and the alert that tells the other end what was wrong.
        let flushed = self.flush(stream);
        processed.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, reason(&error)))?;
        flushed?;
        Ok(Some(count))
    }

    fn flush(&mut self, stream: &TcpStream) -> io::Result<bool> {
        while self.session.wants_write() {
            match self.session.write_tls(&mut Outbound(stream)) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

/// What went wrong, in words that tell a person what to look at.
fn reason(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(_) => {
            "its certificate is not the one that it registered".into()
        }
        rustls::Error::InvalidMessage(_) => {
            "it does not speak TLS, which this side asks for".into()
        }
        rustls::Error::AlertReceived(alert) => format!("it ended TLS with the alert {alert:?}"),
        other => format!("TLS failed: {other}"),
    }
}

/// Writes to the socket without blocking and without a signal.
struct Outbound<'a>(&'a TcpStream);

impl io::Write for Outbound<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        match sys::send(self.0.as_fd(), parts)? {
            0 => Err(io::ErrorKind::WouldBlock.into()),
            count => Ok(count),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for TlsSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fingerprints_are_written_and_read() {
        let identity = Identity::new().unwrap();
        let text = to_hex(&identity.fingerprint());
        assert_eq!(text.len(), 64);
        assert_eq!(from_hex(&text), Some(identity.fingerprint()));
        let other = Identity::new().unwrap();
        assert_ne!(identity.fingerprint(), other.fingerprint());
        for bad in ["", "ab", &text[1..], &"zz".repeat(32), &"é".repeat(32)] {
            assert_eq!(from_hex(bad), None, "{bad}");
        }
    }
}
