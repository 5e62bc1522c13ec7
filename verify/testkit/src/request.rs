//! One signed S3 request over plain HTTP, blocking, on a connection of its own.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use crate::clock;
use crate::sign::{self, Credentials, Signable};

/// The kit asks for nothing long.
const MAX_ANSWER_BYTES: u64 = 1 << 20;

/// What the server answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: String,
}

/// Signs the request now, sends it to the server that it names, and reads the whole answer. The timeout is for each
/// single step on the connection.
pub(crate) fn send(
    request: Signable<'_>,
    credentials: &Credentials,
    timeout: Duration,
) -> io::Result<Answer> {
    let address = request
        .host
        .to_socket_addrs()?
        .next()
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the host has no address"))?;
    let mut stream = TcpStream::connect_timeout(&address, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    stream.write_all(&encode(request, credentials, clock::unix_now_s()))?;
    let mut answer = Vec::new();
    stream.take(MAX_ANSWER_BYTES).read_to_end(&mut answer)?;
    decode(&answer)
}

fn encode(request: Signable<'_>, credentials: &Credentials, unix_s: i64) -> Vec<u8> {
    let query = request
        .subresource
        .map(|name| format!("?{name}"))
        .unwrap_or_default();
    let signed: String = sign::headers(request, credentials, unix_s)
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .concat();
    let head = format!(
        "{} {}{query} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-length: {}\r\n{signed}\r\n",
        request.method,
        request.path,
        request.host,
        request.body.len()
    );
    [head.as_bytes(), request.body].concat()
}

fn decode(answer: &[u8]) -> io::Result<Answer> {
    let text = String::from_utf8_lossy(answer);
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, "the answer is not HTTP");
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(invalid)?;
    let status = head
        .strip_prefix("HTTP/1.")
        .and_then(|rest| rest.split(' ').nth(1))
        .and_then(|status| status.parse().ok())
        .ok_or_else(invalid)?;
    Ok(Answer {
        status,
        body: body.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_taken_apart() {
        let answer = decode(b"HTTP/1.1 404 Not Found\r\nserver: x\r\n\r\n<Error/>").unwrap();
        assert_eq!((answer.status, answer.body.as_str()), (404, "<Error/>"));
        for broken in [
            "",
            "HTTP/1.1 200 OK\r\n",
            "SSH-2.0\r\n\r\n",
            "HTTP/1.1 many\r\n\r\n",
        ] {
            assert_eq!(
                decode(broken.as_bytes()).unwrap_err().kind(),
                io::ErrorKind::InvalidData
            );
        }
    }
}
