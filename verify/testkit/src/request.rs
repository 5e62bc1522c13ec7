//! One request over plain HTTP, blocking, on a connection of its own.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::Duration;

use crate::KitError;

/// The kit requests nothing long.
const MAX_RESPONSE_BYTES: u64 = 1 << 20;

/// The server's response.
#[derive(Debug)]
struct HttpResponse {
    status: u16,
    body: String,
}

/// A request with its headers.
#[derive(Clone, Copy)]
pub(crate) struct HttpRequest<'a> {
    pub(crate) method: &'a str,
    /// Host and port.
    pub(crate) host: &'a str,
    /// Path and query.
    pub(crate) target: &'a str,
    pub(crate) headers: &'a [(&'static str, String)],
    pub(crate) body: &'a [u8],
}

/// Sends the request to its host. An error unless the response is a success. The timeout is for each single step on the connection.
pub(crate) fn send(request: HttpRequest<'_>, timeout: Duration) -> Result<(), KitError> {
    let described = || format!("{} {}", request.method, request.target);
    let response = exchange(request, timeout).map_err(|source| KitError::Unreachable {
        request: described(),
        host: request.host.to_owned(),
        source,
    })?;
    match response.status {
        200..300 => Ok(()),
        status => Err(KitError::Refused {
            request: described(),
            status,
            body: response.body,
        }),
    }
}

/// Sends the request and reads the whole response.
fn exchange(request: HttpRequest<'_>, timeout: Duration) -> io::Result<HttpResponse> {
    let address = request
        .host
        .to_socket_addrs()?
        .next()
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "the host has no address"))?;
    let mut stream = TcpStream::connect_timeout(&address, timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    stream.write_all(&encode(request))?;
    let mut response = Vec::new();
    stream.take(MAX_RESPONSE_BYTES).read_to_end(&mut response)?;
    decode(&response)
}

fn encode(request: HttpRequest<'_>) -> Vec<u8> {
    let HttpRequest {
        method,
        host,
        target,
        headers,
        body,
    } = request;
    let headers: String = headers
        .iter()
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    let head = format!(
        "{method} {target} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-length: {}\r\n{headers}\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn decode(response: &[u8]) -> io::Result<HttpResponse> {
    let text = String::from_utf8_lossy(response);
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, "the response is not HTTP");
    let (head, body) = text.split_once("\r\n\r\n").ok_or_else(invalid)?;
    let status = head
        .strip_prefix("HTTP/1.")
        .and_then(|rest| rest.split(' ').nth(1))
        .and_then(|status| status.parse().ok())
        .ok_or_else(invalid)?;
    Ok(HttpResponse {
        status,
        body: body.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_parsed() {
        let response = decode(b"HTTP/1.1 404 Not Found\r\nserver: x\r\n\r\n<Error/>").unwrap();
        assert_eq!((response.status, response.body.as_str()), (404, "<Error/>"));
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
