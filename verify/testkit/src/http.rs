//! The part of HTTP/1.1 that a proxy needs: whole requests and whole responses.

use std::io::{self, BufRead, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The longest head.
const HEAD_MAX_BYTES: u64 = 64 * 1024;
/// The longest body.
const BODY_MAX_BYTES: u64 = 256 * 1024 * 1024;
/// A claim may wait for a minute.
const ANSWER_LIMIT: Duration = Duration::from_mins(2);

/// A request.
#[derive(Debug, Clone)]
pub struct Request {
    /// The method.
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// The header lines, without line ends.
    headers: Vec<String>,
    first: String,
    /// The body.
    pub body: Vec<u8>,
}

impl Request {
    /// Reads the next request of a connection; `None` at its end.
    pub fn read(from: &mut impl BufRead) -> io::Result<Option<Self>> {
        let Some(mut lines) = head(from)? else {
            return Ok(None);
        };
        let first = lines.remove(0);
        let mut words = first.split(' ');
        let (Some(method), Some(target)) = (words.next(), words.next()) else {
            return Err(broken("no request line"));
        };
        let path = target.split('?').next().unwrap_or(target).to_owned();
        let mut request = Self {
            method: method.to_owned(),
            path,
            first: first.clone(),
            headers: lines,
            body: Vec::new(),
        };
        if request.header("transfer-encoding").is_some() {
            return Err(broken("a body of unknown length"));
        }
        let length = request.header("content-length").unwrap_or("0");
        let length: u64 = length
            .parse()
            .map_err(|_| broken("a length is no number"))?;
        if length > BODY_MAX_BYTES {
            return Err(broken("a body is too long"));
        }
        from.take(length).read_to_end(&mut request.body)?;
        if request.body.len() as u64 != length {
            return Err(broken("a body breaks off"));
        }
        Ok(Some(request))
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }

    /// The query, without its question mark.
    pub fn query(&self) -> &str {
        let target = self.first.split(' ').nth(1).unwrap_or_default();
        target.split_once('?').map_or("", |(_, query)| query)
    }

    /// Sends it and waits for the whole response. A connection of its own ends with the response, so that its end need not be found in it.
    pub fn send(&self, to: SocketAddr) -> io::Result<Response> {
        let mut stream = TcpStream::connect(to)?;
        stream.set_read_timeout(Some(ANSWER_LIMIT))?;
        stream.set_nodelay(true)?;
        let mut head = format!("{}\r\n", self.first);
        let kept = self
            .headers
            .iter()
            .filter(|line| !is_named(line, "connection"));
        for line in kept {
            head.push_str(line);
            head.push_str("\r\n");
        }
        head.push_str("connection: close\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        stream.write_all(&self.body)?;
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes)?;
        Response::parse(&bytes)
    }
}

/// A response.
#[derive(Debug, Clone)]
pub struct Response {
    /// The status.
    pub status: u16,
    head: Vec<u8>,
    /// The body as received, with its chunks if it is chunked.
    body: Vec<u8>,
}

impl Response {
    fn parse(bytes: &[u8]) -> io::Result<Self> {
        let mut rest = bytes;
        let lines = head(&mut rest)?.ok_or_else(|| broken("no response"))?;
        let status = lines[0].split(' ').nth(1);
        let status = status
            .and_then(|status| status.parse().ok())
            .ok_or_else(|| broken("no status"))?;
        let mut head = Vec::new();
        for line in lines.iter().filter(|line| !is_named(line, "connection")) {
            head.extend_from_slice(line.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(b"\r\n");
        Ok(Self {
            status,
            head,
            body: rest.to_vec(),
        })
    }

    /// An S3 error of the proxy itself.
    pub fn made_up(status: u16, code: &str) -> Self {
        Self::xml(
            status,
            &format!("<Error><Code>{code}</Code><Message>made up</Message></Error>"),
        )
    }

    /// A response of the proxy itself, with an XML element as its body.
    pub fn xml(status: u16, element: &str) -> Self {
        let body = format!("<?xml version=\"1.0\"?>{element}");
        let head = format!(
            "HTTP/1.1 {status} made-up\r\ncontent-type: application/xml\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        Self {
            status,
            head: head.into_bytes(),
            body: body.into_bytes(),
        }
    }

    /// Writes it.
    pub fn write(&self, to: &mut impl Write) -> io::Result<()> {
        to.write_all(&self.head)?;
        to.write_all(&self.body)?;
        to.flush()
    }

    /// Writes the first part of it.
    pub fn write_torn(&self, to: &mut impl Write) -> io::Result<()> {
        let cut = if self.body.is_empty() {
            to.write_all(&self.head[..self.head.len() / 2])?;
            0
        } else {
            to.write_all(&self.head)?;
            self.body.len() / 2
        };
        to.write_all(&self.body[..cut])?;
        to.flush()
    }
}

/// Reads the lines of a head; `None` if there is not a byte.
fn head(from: &mut impl BufRead) -> io::Result<Option<Vec<String>>> {
    let mut lines = Vec::new();
    let mut limited = from.take(HEAD_MAX_BYTES);
    loop {
        let mut line = String::new();
        if limited.read_line(&mut line)? == 0 {
            return if lines.is_empty() {
                Ok(None)
            } else {
                Err(broken("a head breaks off"))
            };
        }
        let line = line.trim_end_matches(['\r', '\n']);
        if line.is_empty() {
            if lines.is_empty() {
                continue;
            }
            return Ok(Some(lines));
        }
        lines.push(line.to_owned());
    }
}

fn is_named(line: &str, name: &str) -> bool {
    line.split_once(':')
        .is_some_and(|(found, _)| found.eq_ignore_ascii_case(name))
}

fn find<'a>(headers: &'a [String], name: &str) -> Option<&'a str> {
    let line = headers.iter().find(|line| is_named(line, name))?;
    line.split_once(':').map(|(_, value)| value.trim())
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
