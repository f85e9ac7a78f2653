//! Proving, before a byte is believed, that both ends hold the job's token.
//!
//! Expected flow: the client says hello (protocol range, job, generation, both peers, a nonce);
//! the server answers with the protocol it chose, its own nonce and its proof; the client sends
//! its proof. A proof is an HMAC over everything said so far and the direction, keyed with the
//! token, so that neither a replay nor a reflection passes. Over TLS it also covers a secret of the
//! channel, so that nobody between two channels can pass proofs on. The server keeps nothing for a client
//! that has not proven itself but this small state, and every message has a fixed length.
//!
//! Without TLS the bytes after the handshake are not protected: who can rewrite packets on the
//! path can take the connection over.

use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};

use carole_plan::PeerId;

use super::bundle::MOST;

/// The protocols that this version speaks.
pub(crate) const PROTOCOL: std::ops::RangeInclusive<u16> = 1..=1;

const MAGIC: [u8; 8] = *b"CAROLE\x00\x01";
/// Bytes of the client's first message.
pub(crate) const HELLO: usize = 8 + 8 + 8 + 32 * 4;
/// Bytes of the server's answer.
pub(crate) const ANSWER: usize = 8 + 32 + 32;
/// Bytes of the client's proof.
pub(crate) const PROOF: usize = 32;

/// The secret that all members of a job share.
#[derive(Clone)]
pub(crate) struct Secret(hmac::Key);

impl Secret {
    /// A secret from the job's token.
    pub(crate) fn new(token: &[u8]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, token))
    }

    fn sign(&self, direction: &str, parts: &[&[u8]]) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&self.0);
        context.update(direction.as_bytes());
        for part in parts {
            context.update(part);
        }
        context
            .sign()
            .as_ref()
            .try_into()
            .expect("SHA-256 gives 32 bytes")
    }

    fn verify(&self, direction: &str, parts: &[&[u8]], proof: &[u8]) -> bool {
        let mut message = Vec::with_capacity(512);
        message.extend_from_slice(direction.as_bytes());
        for part in parts {
            message.extend_from_slice(part);
        }
        hmac::verify(&self.0, &message, proof).is_ok()
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A peer or a job as 32 bytes.
pub(crate) type Digest = [u8; 32];

fn digest(parts: &[&[u8]]) -> Digest {
    let mut context = ring::digest::Context::new(&ring::digest::SHA256);
    for part in parts {
        context.update(&(part.len() as u64).to_le_bytes());
        context.update(part);
    }
    context
        .finish()
        .as_ref()
        .try_into()
        .expect("SHA-256 gives 32 bytes")
}

/// The digest of a peer's identity.
pub(crate) fn peer_digest(peer: &PeerId) -> Digest {
    digest(&[
        peer.host.as_bytes(),
        &peer.slot.to_le_bytes(),
        &peer.incarnation.to_le_bytes(),
    ])
}

/// The digest of a job's name.
pub(crate) fn job_digest(job: &str) -> Digest {
    digest(&[job.as_bytes()])
}

pub(crate) fn nonce() -> Result<[u8; 32], String> {
    let mut nonce = [0; 32];
    SystemRandom::new()
        .fill(&mut nonce)
        .map_err(|_| "the system gave no random bytes")?;
    Ok(nonce)
}

/// What a client claims in its first message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Hello {
    pub(crate) protocol: (u16, u16),
    /// Which of the pair's connections this is.
    pub(crate) lane: u16,
    /// How many connections the pair has.
    pub(crate) lanes: u16,
    pub(crate) generation: u64,
    pub(crate) job: Digest,
    pub(crate) from: Digest,
    pub(crate) to: Digest,
    pub(crate) nonce: [u8; 32],
}

impl Hello {
    pub(crate) fn encode(&self) -> [u8; HELLO] {
        let mut bytes = [0; HELLO];
        bytes[0..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&self.protocol.0.to_le_bytes());
        bytes[10..12].copy_from_slice(&self.protocol.1.to_le_bytes());
        bytes[12..14].copy_from_slice(&self.lane.to_le_bytes());
        bytes[14..16].copy_from_slice(&self.lanes.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.generation.to_le_bytes());
        bytes[24..56].copy_from_slice(&self.job);
        bytes[56..88].copy_from_slice(&self.from);
        bytes[88..120].copy_from_slice(&self.to);
        bytes[120..152].copy_from_slice(&self.nonce);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; HELLO]) -> Option<Self> {
        if bytes[0..8] != MAGIC {
            return None;
        }
        let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
        let part = |at: usize| -> [u8; 32] { bytes[at..at + 32].try_into().expect("32 bytes") };
        Some(Self {
            protocol: (half(8), half(10)),
            lane: half(12),
            lanes: half(14),
            generation: u64::from_le_bytes(bytes[16..24].try_into().expect("8 bytes")),
            job: part(24),
            from: part(56),
            to: part(88),
            nonce: part(120),
        })
    }
}

/// A client that knows the token, on its way in.
pub(crate) struct Admission {
    pub(crate) hello: Hello,
    said: [u8; HELLO],
    answer: [u8; ANSWER],
    channel: Channel,
}

/// A secret of the channel under the handshake, where it has one.
pub(crate) type Channel = Option<[u8; 32]>;

fn bytes_of(channel: &Channel) -> &[u8] {
    channel.as_ref().map_or(&[], |channel| channel)
}

/// The server's side of the first message: the answer to send, or why there is none.
pub(crate) fn answer(
    secret: &Secret,
    job: &Digest,
    me: &Digest,
    said: &[u8; HELLO],
    nonce: [u8; 32],
    channel: Channel,
) -> Result<(Admission, [u8; ANSWER]), String> {
    let hello = Hello::decode(said).ok_or("it does not speak Carole's protocol")?;
    if hello.protocol.1 < *PROTOCOL.start() || hello.protocol.0 > *PROTOCOL.end() {
        return Err(format!(
            "it speaks protocols {} to {}, this side {} to {}",
            hello.protocol.0,
            hello.protocol.1,
            PROTOCOL.start(),
            PROTOCOL.end()
        ));
    }
    if hello.job != *job {
        return Err("it belongs to another job".into());
    }
    if hello.to != *me {
        return Err("it looks for another peer".into());
    }
    if hello.lane >= hello.lanes || usize::from(hello.lanes) > MOST {
        return Err(format!(
            "its connection is number {} of {}",
            hello.lane, hello.lanes
        ));
    }
    let chosen = hello.protocol.1.min(*PROTOCOL.end());
    let mut answer = [0; ANSWER];
    answer[0..2].copy_from_slice(&chosen.to_le_bytes());
    answer[8..40].copy_from_slice(&nonce);
    let proof = secret.sign("carole server", &[said, &answer[..40], bytes_of(&channel)]);
    answer[40..].copy_from_slice(&proof);
    Ok((
        Admission {
            hello,
            said: *said,
            answer,
            channel,
        },
        answer,
    ))
}

impl Admission {
    /// The server's side of the last message.
    pub(crate) fn admit(&self, secret: &Secret, proof: &[u8; PROOF]) -> Result<(), String> {
        let parts: [&[u8]; 3] = [&self.said, &self.answer, bytes_of(&self.channel)];
        if secret.verify("carole client", &parts, proof) {
            Ok(())
        } else {
            Err("it could not prove that it holds the job's token".into())
        }
    }
}

/// The client's side of the answer: the proof to send, or why the server is not believed.
pub(crate) fn prove(
    secret: &Secret,
    said: &[u8; HELLO],
    answer: &[u8; ANSWER],
    channel: &Channel,
) -> Result<[u8; PROOF], String> {
    let chosen = u16::from_le_bytes([answer[0], answer[1]]);
    if !PROTOCOL.contains(&chosen) {
        return Err(format!(
            "it chose protocol {chosen}, which this side does not speak"
        ));
    }
    let channel = bytes_of(channel);
    let parts: [&[u8]; 3] = [said, &answer[..40], channel];
    if !secret.verify("carole server", &parts, &answer[40..]) {
        return Err("it could not prove that it holds the job's token".into());
    }
    Ok(secret.sign("carole client", &[said, answer, channel]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello() -> Hello {
        Hello {
            protocol: (1, 1),
            lane: 0,
            lanes: 1,
            generation: 7,
            job: job_digest("digits"),
            from: [1; 32],
            to: [2; 32],
            nonce: nonce().unwrap(),
        }
    }

    #[test]
    fn both_ends_with_the_token_pass() {
        let secret = Secret::new(b"token");
        let said = hello().encode();
        let (admission, answer) = answer(
            &secret,
            &job_digest("digits"),
            &[2; 32],
            &said,
            nonce().unwrap(),
            None,
        )
        .unwrap();
        let proof = prove(&secret, &said, &answer, &None).unwrap();
        assert_eq!(admission.admit(&secret, &proof), Ok(()));
    }

    #[test]
    fn proofs_hold_on_their_own_channel_only() {
        let secret = Secret::new(b"token");
        let job = job_digest("digits");
        let said = hello().encode();
        let (here, elsewhere) = (Some([7; 32]), Some([8; 32]));
        let (admission, reply) =
            answer(&secret, &job, &[2; 32], &said, nonce().unwrap(), here).unwrap();
        for channel in [elsewhere, None] {
            assert!(prove(&secret, &said, &reply, &channel).is_err());
        }
        let proof = prove(&secret, &said, &reply, &here).unwrap();
        assert_eq!(admission.admit(&secret, &proof), Ok(()));
        // The same words on another channel.
        for channel in [elsewhere, None] {
            let moved = Admission {
                hello: admission.hello.clone(),
                channel,
                ..admission
            };
            assert!(moved.admit(&secret, &proof).is_err());
        }
    }

    #[test]
    fn a_wrong_token_fails_on_both_sides() {
        let (ours, theirs) = (Secret::new(b"token"), Secret::new(b"other"));
        let said = hello().encode();
        let (admission, answer) = answer(
            &ours,
            &job_digest("digits"),
            &[2; 32],
            &said,
            nonce().unwrap(),
            None,
        )
        .unwrap();
        assert!(prove(&theirs, &said, &answer, &None).is_err());
        assert!(admission.admit(&ours, &[0; PROOF]).is_err());
        // The server's own proof, reflected, is not the client's.
        let reflected: [u8; PROOF] = answer[40..].try_into().unwrap();
        assert!(admission.admit(&ours, &reflected).is_err());
    }

    #[test]
    fn strangers_are_refused_with_a_reason() {
        let secret = Secret::new(b"token");
        let job = job_digest("digits");
        let ask = |said: &[u8; HELLO]| {
            answer(&secret, &job, &[2; 32], said, [0; 32], None)
                .map(drop)
                .expect_err("refused")
        };
        assert!(ask(&[0; HELLO]).contains("does not speak"));
        assert!(
            ask(&Hello {
                job: [9; 32],
                ..hello()
            }
            .encode())
            .contains("another job")
        );
        assert!(
            ask(&Hello {
                to: [9; 32],
                ..hello()
            }
            .encode())
            .contains("another peer")
        );
        assert!(
            ask(&Hello {
                protocol: (5, 9),
                ..hello()
            }
            .encode())
            .contains("protocols 5 to 9")
        );
    }
}
