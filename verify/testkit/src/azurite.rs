//! Azurite, Microsoft's emulator of Azure Blob Storage.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use chrono::DateTime;
use ring::hmac;

use crate::KitError;
use crate::clock;
use crate::install::azurite;
use crate::ports;
use crate::process::ServerProcess;
use crate::random;
use crate::request::{self, HttpRequest};
use crate::target_dir::target_dir;

const NAME: &str = "Azurite";
const ACCOUNT: &str = "qotests";
/// A version of the protocol that every release of Azurite knows.
const API_VERSION: &str = "2021-12-02";
const TIMEOUT: Duration = Duration::from_secs(5);
/// Each with another port. A second is rarely needed.
const MAX_STARTS: usize = 4;

/// An Azurite blob server on a loopback port, with an account of its own and its data in memory.
///
/// It lives as long as this value, and never longer than this process, however that ends.
pub struct Azurite {
    port: u16,
    /// The account's key in base64.
    key: String,
    _process: ServerProcess,
}

impl Azurite {
    /// Installs the server if it is not installed, starts it, and returns when it responds.
    pub fn start() -> Result<Self, KitError> {
        let program = azurite()?;
        let key = BASE64_STANDARD.encode(random::hex(32)?);
        let mut ended = None;
        for tries in 1..=MAX_STARTS {
            let [port] = ports::free()?;
            let dir = ServerProcess::directory(&target_dir().join("tools/run"), "azurite")?;
            let arguments = [
                "--inMemoryPersistence",
                "--silent",
                "--disableTelemetry",
                "--skipApiVersionCheck",
                "--blobPort",
                &port.to_string(),
            ]
            .map(str::to_owned);
            let accounts = format!("{ACCOUNT}:{key}");
            let path = std::env::var("PATH").unwrap_or_default();
            let environment = [("AZURITE_ACCOUNTS", accounts.as_str()), ("PATH", &path)];
            let process = ServerProcess::spawn(dir, &program, &arguments, &environment, "")?;
            let ready = process.wait_until_ready(NAME, tries, || {
                send("GET", port, &key, "", &[("comp", "list")])
            });
            match ready {
                Ok(()) => {
                    return Ok(Self {
                        port,
                        key,
                        _process: process,
                    });
                }
                Err(error @ KitError::ServerEnded { .. }) => ended = Some(error),
                Err(error) => return Err(error),
            }
        }
        Err(ended.unwrap_or(KitError::NoFreePort { tries: MAX_STARTS }))
    }

    /// Creates a container.
    pub fn create_container(&self, name: &str) -> Result<(), KitError> {
        let path = format!("/{name}");
        send(
            "PUT",
            self.port,
            &self.key,
            &path,
            &[("restype", "container")],
        )
    }

    /// The environment variables with which qo reaches it.
    pub fn variables(&self) -> [(&'static str, String); 4] {
        [
            ("AZURE_STORAGE_ACCOUNT_NAME", ACCOUNT.to_owned()),
            ("AZURE_STORAGE_ACCOUNT_KEY", self.key.clone()),
            (
                "AZURE_STORAGE_ENDPOINT",
                format!("http://127.0.0.1:{}/{ACCOUNT}", self.port),
            ),
            ("AZURE_ALLOW_HTTP", "true".to_owned()),
        ]
    }
}

impl fmt::Debug for Azurite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Azurite")
            .field("port", &self.port)
            .finish_non_exhaustive()
    }
}

/// Sends a request without a body, signed with the account's key. The kit signs by itself, and not with the code under test.
fn send(
    method: &'static str,
    port: u16,
    key: &str,
    path: &str,
    query: &[(&str, &str)],
) -> Result<(), KitError> {
    let date = DateTime::from_timestamp(clock::unix_now_s(), 0)
        .unwrap_or_default()
        .format("%a, %d %b %Y %H:%M:%S GMT")
        .to_string();
    let pairs: Vec<String> = query.iter().map(|(k, v)| format!("{k}={v}")).collect();
    let target = format!("/{ACCOUNT}{path}?{}", pairs.join("&"));
    let resource: String = query.iter().map(|(k, v)| format!("\n{k}:{v}")).collect();
    // Eleven standard headers that this request does not have, the headers of the protocol, and the resource.
    let to_sign = format!(
        "{method}{}x-ms-date:{date}\nx-ms-version:{API_VERSION}\n/{ACCOUNT}/{ACCOUNT}{path}{resource}",
        "\n".repeat(12)
    );
    let secret = BASE64_STANDARD.decode(key).unwrap_or_default();
    let signature = hmac::sign(
        &hmac::Key::new(hmac::HMAC_SHA256, &secret),
        to_sign.as_bytes(),
    );
    let authorization = format!(
        "SharedKey {ACCOUNT}:{}",
        BASE64_STANDARD.encode(signature.as_ref())
    );
    let host = format!("127.0.0.1:{port}");
    let headers = [
        ("x-ms-date", date),
        ("x-ms-version", API_VERSION.to_owned()),
        ("authorization", authorization),
    ];
    let request = HttpRequest {
        method,
        host: &host,
        target: &target,
        headers: &headers,
        body: b"",
    };
    request::send(request, TIMEOUT)
}
