//! How two nodes verify that they belong to the same cluster.
//!
//! ```text
//! caller    hello: version, cluster, from, to, nonce                      ──► called
//! caller ◄── refused: reason     or     accepted: version, nonce, proof    called
//! caller    proof                                                         ──► called
//! ```
//!
//! A proof is an HMAC-SHA-256 of everything said so far, keyed with the shared secret. Both nonces are random, so a proof cannot be used
//! again. Every later frame carries an HMAC with a key of this connection and its position, so nobody can add, change, repeat or reorder
//! frames. The content is not encrypted: use a private network between nodes.

use std::io;
use std::ops::RangeInclusive;

use bytes::{Bytes, BytesMut};
use ring::hmac;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::codec::{DecodeError, Decoder, Encoder};
use crate::config::ClusterSecret;

const MARK: [u8; 4] = *b"qoC1";
/// The largest message before the other side has shown that it knows the secret.
const HELLO_MAX_BYTES: usize = 4 * 1024;
/// The largest frame: the entries of one message, or a part of a snapshot.
const FRAME_MAX_BYTES: usize = 256 * 1024 * 1024;
const TAG_BYTES: usize = 16;
const NONCE_BYTES: usize = 32;

/// Who this node is.
#[derive(Debug, Clone)]
pub(super) struct Identity {
    pub(super) cluster: String,
    pub(super) node: u64,
    pub(super) secret: ClusterSecret,
    /// The versions of the protocol that this node speaks.
    pub(super) versions: RangeInclusive<u32>,
}

/// A connection whose other side knows the secret.
pub(super) struct Channel {
    stream: TcpStream,
    key: hmac::Key,
    is_caller: bool,
    sent: u64,
    received: u64,
}

/// Why there is no connection.
pub(super) enum HandshakeError {
    Io(io::Error),
    /// The other side, or this one, refused.
    Refused(String),
}

impl From<io::Error> for HandshakeError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<DecodeError> for HandshakeError {
    fn from(error: DecodeError) -> Self {
        Self::Refused(format!("it does not speak qo's protocol: {error}"))
    }
}

fn proof(secret: &ClusterSecret, role: &[u8], said: &[&[u8]]) -> hmac::Tag {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let mut context = hmac::Context::with_key(&key);
    context.update(role);
    for part in said {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    }
    context.sign()
}

/// Compares without showing by its duration where two proofs differ.
fn is_proof(secret: &ClusterSecret, role: &[u8], said: &[&[u8]], shown: &[u8]) -> bool {
    let expected = proof(secret, role, said);
    let key = hmac::Key::new(hmac::HMAC_SHA256, b"compare");
    let shown = hmac::sign(&key, shown);
    hmac::verify(&key, expected.as_ref(), shown.as_ref()).is_ok()
}

async fn send(stream: &mut TcpStream, message: &[u8]) -> io::Result<()> {
    let mut out = Encoder::with_capacity(message.len() + 4);
    out.bytes(message);
    stream.write_all(&out.finish()).await
}

async fn receive(stream: &mut TcpStream) -> io::Result<Bytes> {
    let length = stream.read_u32().await? as usize;
    if length > HELLO_MAX_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "the first message is too large",
        ));
    }
    let mut message = BytesMut::zeroed(length);
    stream.read_exact(&mut message).await?;
    Ok(message.freeze())
}

impl Channel {
    /// Connects as the caller.
    pub(super) async fn call(
        mut stream: TcpStream,
        identity: &Identity,
        to: u64,
        nonce: [u8; NONCE_BYTES],
    ) -> Result<Self, HandshakeError> {
        stream.set_nodelay(true)?;
        let mut hello = Encoder::default();
        hello
            .raw(&MARK)
            .u32(*identity.versions.end())
            .u32(*identity.versions.start())
            .bytes(identity.cluster.as_bytes());
        hello.u64(identity.node).u64(to).raw(&nonce);
        let hello = hello.finish();
        send(&mut stream, &hello).await?;
        let answer = receive(&mut stream).await?;
        let mut input = Decoder::new(answer.clone());
        if input.u8()? != 0 {
            return Err(HandshakeError::Refused(input.text()?));
        }
        let version = input.u32()?;
        if !identity.versions.contains(&version) {
            return Err(HandshakeError::Refused(format!(
                "it chose version {version} of the protocol, which this node does not speak"
            )));
        }
        let other: [u8; NONCE_BYTES] = input.array()?;
        let shown = input.bytes()?;
        if !is_proof(&identity.secret, b"called", &[&hello, &other], &shown) {
            return Err(HandshakeError::Refused(
                "it has another secret; give all nodes of a cluster the same".to_owned(),
            ));
        }
        let own = proof(&identity.secret, b"caller", &[&hello, &other]);
        send(&mut stream, own.as_ref()).await?;
        Ok(Self::new(stream, identity, true, &hello, &other))
    }

    /// Accepts a caller, and returns its number.
    pub(super) async fn accept(
        mut stream: TcpStream,
        identity: &Identity,
        nonce: [u8; NONCE_BYTES],
    ) -> Result<(Self, u64), HandshakeError> {
        stream.set_nodelay(true)?;
        let hello = receive(&mut stream).await?;
        let (from, version) = match check_hello(&hello, identity) {
            Ok(accepted) => accepted,
            Err(reason) => {
                let mut refusal = Encoder::default();
                refusal.u8(1).bytes(reason.as_bytes());
                send(&mut stream, &refusal.finish()).await?;
                return Err(HandshakeError::Refused(reason));
            }
        };
        let mut answer = Encoder::default();
        answer.u8(0).u32(version).raw(&nonce);
        answer.bytes(proof(&identity.secret, b"called", &[&hello, &nonce]).as_ref());
        send(&mut stream, &answer.finish()).await?;
        let shown = receive(&mut stream).await?;
        if !is_proof(&identity.secret, b"caller", &[&hello, &nonce], &shown) {
            return Err(HandshakeError::Refused(
                "it has another secret; give all nodes of a cluster the same".to_owned(),
            ));
        }
        Ok((Self::new(stream, identity, false, &hello, &nonce), from))
    }

    fn new(
        stream: TcpStream,
        identity: &Identity,
        is_caller: bool,
        hello: &[u8],
        nonce: &[u8],
    ) -> Self {
        let key = proof(&identity.secret, b"session", &[hello, nonce]);
        Self {
            stream,
            key: hmac::Key::new(hmac::HMAC_SHA256, key.as_ref()),
            is_caller,
            sent: 0,
            received: 0,
        }
    }

    fn tag(&self, by_caller: bool, number: u64, frame: &[u8]) -> hmac::Tag {
        let mut context = hmac::Context::with_key(&self.key);
        context.update(&[u8::from(by_caller)]);
        context.update(&number.to_be_bytes());
        context.update(frame);
        context.sign()
    }

    /// Sends a frame.
    pub(super) async fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        let tag = self.tag(self.is_caller, self.sent, frame);
        self.sent += 1;
        let mut header = Encoder::with_capacity(4 + TAG_BYTES);
        header.count(frame.len()).raw(&tag.as_ref()[..TAG_BYTES]);
        self.stream.write_all(&header.finish()).await?;
        self.stream.write_all(frame).await
    }

    /// Receives a frame. None if the other side has closed the connection.
    pub(super) async fn receive(&mut self) -> io::Result<Option<Bytes>> {
        let length = match self.stream.read_u32().await {
            Ok(length) => length as usize,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
            Err(error) => return Err(error),
        };
        if length > FRAME_MAX_BYTES {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a frame is too large",
            ));
        }
        let mut shown = [0; TAG_BYTES];
        self.stream.read_exact(&mut shown).await?;
        // Grows as bytes arrive, so a false length costs nothing.
        let mut frame = BytesMut::with_capacity(length.min(1024 * 1024));
        while frame.len() < length {
            let missing = length - frame.len();
            let mut part = (&mut self.stream).take(missing as u64);
            if part.read_buf(&mut frame).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let expected = self.tag(!self.is_caller, self.received, &frame);
        self.received += 1;
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"compare");
        let shown = hmac::sign(&key, &shown);
        if hmac::verify(&key, &expected.as_ref()[..TAG_BYTES], shown.as_ref()).is_err() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a frame was changed on its way",
            ));
        }
        Ok(Some(frame.freeze()))
    }
}

/// The number of the caller, and the version to speak; or why it is refused.
fn check_hello(hello: &Bytes, identity: &Identity) -> Result<(u64, u32), String> {
    let read = || -> Result<_, DecodeError> {
        let mut input = Decoder::new(hello.clone());
        let mark: [u8; 4] = input.array()?;
        let (newest, oldest) = (input.u32()?, input.u32()?);
        let cluster = input.text()?;
        let (from, to) = (input.u64()?, input.u64()?);
        let _nonce: [u8; NONCE_BYTES] = input.array()?;
        Ok((mark, newest, oldest, cluster, from, to))
    };
    let (mark, newest, oldest, cluster, from, to) =
        read().map_err(|error| format!("the greeting cannot be read: {error}"))?;
    if mark != MARK {
        return Err("this is a node of a qo cluster, which speaks another protocol".to_owned());
    }
    let (own_oldest, own_newest) = (*identity.versions.start(), *identity.versions.end());
    let version = newest.min(own_newest);
    if version < oldest.max(own_oldest) {
        return Err(format!(
            "versions {oldest} to {newest} of the protocol were offered, and this node speaks {own_oldest} to {own_newest}: update the older node"
        ));
    }
    if cluster != identity.cluster {
        return Err(format!(
            "this node belongs to the cluster {:?}, not to {cluster:?}",
            identity.cluster
        ));
    }
    if to != identity.node {
        return Err(format!(
            "this is node {}, not node {to}: check the addresses of the members",
            identity.node
        ));
    }
    if from == identity.node {
        return Err(format!("node {from} exists twice"));
    }
    Ok((from, version))
}
