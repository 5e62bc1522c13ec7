//! Where a run takes place: the S3 server, a bucket, the faulty ways, a folder for logs; and how the command is run there.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use qo_core::Task;
use qo_core::task::decode;
use qo_sim::random::Random;
use qo_testkit::SeaweedFs;

use crate::args::{Mode, Plan};
use crate::faults::Faults;
use crate::proxy::Proxy;

/// How many brokers there are in broker mode.
const BROKERS: usize = 2;

/// What each attempt runs. It says when it starts and how it ends, and does what the input says: sleep, and fail the first so many times.
const HANDLER: &str = r#"#!/bin/sh
say() { echo "$1 $QO_TASK_ID $QO_ATTEMPT $QO_WORKER_ID $(date +%s%3N)" >> "$CHAOS_LOG"; }
say start
read -r line
line=${line#\"}
line=${line%\"}
set -- $line
sleep "$1"
if [ "$2" = never ]; then say fail; exit 65; fi
if [ "$QO_ATTEMPT" -le "$2" ]; then say fail; exit 1; fi
say end
echo "{\"attempt\":$QO_ATTEMPT}"
"#;

/// Which way a command goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Through the faulty proxy. Of several brokers, this one is asked first.
    Faulty(usize),
    /// Past it; only to look, because what is written must be seen by the proxy.
    Straight,
}

/// Where a run takes place.
#[derive(Debug)]
pub struct Place {
    /// The folder with the logs.
    pub folder: PathBuf,
    /// The way to the store.
    pub store: Proxy,
    brokers: Vec<Broker>,
    program: PathBuf,
    mode: Mode,
    server: &'static SeaweedFs,
    bucket: String,
}

#[derive(Debug)]
struct Broker {
    listen: SocketAddr,
    way: Proxy,
}

impl Place {
    /// Prepares everything but the processes. Nothing fails yet.
    pub fn new(plan: &Plan, faults: &Faults) -> Result<Self> {
        let server = SeaweedFs::shared().context("cannot start the S3 server")?;
        let bucket = server.unique_bucket(&format!("chaos-{}", plan.mode.name()))?;
        let upstream: SocketAddr = server
            .endpoint()
            .trim_start_matches("http://")
            .parse()
            .context("the S3 server has no plain address")?;
        let store = Proxy::start(upstream, faults.clone(), Random::of(&[plan.seed, 2]))?;
        let mut brokers = Vec::new();
        if plan.mode == Mode::Slate {
            for number in 0..BROKERS {
                let listen = free_address()?;
                let random = Random::of(&[plan.seed, 3, number as u64]);
                let way = Proxy::start(listen, faults.clone(), random)?;
                brokers.push(Broker { listen, way });
            }
        }
        let folder = folder_of(plan, &bucket)?;
        std::fs::write(folder.join("handler.sh"), HANDLER)?;
        Ok(Self {
            folder,
            store,
            brokers,
            program: plan.program.clone(),
            mode: plan.mode,
            server,
            bucket,
        })
    }

    /// How many brokers there are.
    pub fn brokers(&self) -> usize {
        self.brokers.len()
    }

    /// All faulty ways.
    pub fn ways(&self) -> impl Iterator<Item = &Proxy> {
        std::iter::once(&self.store).chain(self.brokers.iter().map(|broker| &broker.way))
    }

    /// The file that handlers write to.
    pub fn handler_log(&self) -> PathBuf {
        self.folder.join("handlers.log")
    }

    /// A command on the bucket itself.
    fn on_bucket(&self, way: Way) -> Command {
        let mut command = Command::new(&self.program);
        let endpoint = match way {
            Way::Faulty(_) => format!("http://{}", self.store.address()),
            Way::Straight => self.server.endpoint().to_owned(),
        };
        let engine = match self.mode {
            Mode::Direct => "",
            Mode::Json => "?engine=json",
            Mode::Slate => "?engine=slate",
        };
        command
            .current_dir(&self.folder)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &self.folder)
            .env("QO_STORE", format!("s3://{}{engine}", self.bucket))
            .env("S3_ENDPOINT", endpoint)
            .env("AWS_ACCESS_KEY_ID", self.server.access_key())
            .env("AWS_SECRET_ACCESS_KEY", self.server.secret_key())
            .env("AWS_ALLOW_HTTP", "true")
            .env("QO_MONITOR_CHECK_INTERVAL", "2")
            .env("QO_MONITOR_SWEEP_INTERVAL", "10")
            .env("RUST_LOG", "info")
            .env("NO_COLOR", "1");
        command
    }

    /// A command on the queue, as clients and workers see it.
    fn on_queue(&self, way: Way) -> Command {
        let mut command = self.on_bucket(way);
        if !self.brokers.is_empty() {
            let mut servers: Vec<String> = self
                .brokers
                .iter()
                .map(|broker| match way {
                    Way::Faulty(_) => format!("http://{}", broker.way.address()),
                    Way::Straight => format!("http://{}", broker.listen),
                })
                .collect();
            if let Way::Faulty(first) = way {
                let count = servers.len();
                servers.rotate_left(first % count);
            }
            command.env("QO_STORE", servers.join(","));
        }
        command
    }

    /// A worker of this name.
    pub fn worker(&self, name: &str, number: usize) -> Command {
        let mut command = self.on_queue(Way::Faulty(number));
        let handler = format!("work=sh {}/handler.sh", self.folder.display());
        command
            .args(["worker", "--id", name, "--exec", &handler])
            .args(["--lease", "6s", "--concurrency", "4"])
            .args(["--shutdown-timeout", "4s", "--kill-grace", "1s"])
            .env("CHAOS_LOG", self.handler_log());
        command
    }

    /// A broker.
    pub fn broker(&self, number: usize) -> Option<Command> {
        let broker = self.brokers.get(number)?;
        let mut command = self.on_bucket(Way::Faulty(number));
        command.args(["serve", "--listen", &broker.listen.to_string()]);
        Some(command)
    }

    /// A client that submits what it is given line by line.
    pub fn submitter(&self, way: Way) -> Command {
        let mut command = self.on_queue(way);
        command.args(["submit", "--many", "-", "--full", "--json"]);
        command
    }

    /// Makes the bucket known, so that nothing has to be found out about it under faults.
    pub fn prepare(&self) -> Result<()> {
        // A broker looks the bucket over by itself when it starts.
        if self.mode != Mode::Slate {
            self.tasks()?;
        }
        Ok(())
    }

    /// All tasks, as they are now.
    pub fn tasks(&self) -> Result<Vec<Task>> {
        let mut command = self.on_queue(Way::Straight);
        let output = command
            .args(["list", "--all", "--json"])
            .output()
            .context("cannot run the qo command")?;
        if !output.status.success() {
            bail!(
                "`qo list` ended with {}: {}",
                output.status,
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        let text = String::from_utf8(output.stdout).context("a list is not UTF-8")?;
        text.lines()
            .map(|line| {
                decode(line.as_bytes())
                    .with_context(|| format!("a listed task cannot be read: {line}"))
            })
            .collect()
    }

    /// Removes the bucket, and the folder unless it is kept.
    pub fn remove(self, keep: bool) {
        // What cannot be removed is below the target directory, and goes with it.
        let _ = self.server.delete_bucket(&self.bucket);
        if !keep {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

/// A port that is free now.
fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind("127.0.0.1:0").context("there is no free port")?;
    listener.local_addr().context("there is no free port")
}

/// A folder below the target directory.
fn folder_of(plan: &Plan, bucket: &str) -> Result<PathBuf> {
    let target = plan
        .program
        .ancestors()
        .find(|folder| {
            folder.join("CACHEDIR.TAG").is_file()
                || folder.file_name().is_some_and(|name| name == "target")
        })
        .unwrap_or(Path::new("target"));
    let suffix = bucket.rsplit('-').next().unwrap_or(bucket);
    let name = format!("{}-{}-{suffix}", plan.mode.name(), plan.seed);
    let folder = target.join("chaos").join(name);
    std::fs::create_dir_all(&folder)
        .with_context(|| format!("cannot make {}", folder.display()))?;
    std::path::absolute(&folder).context("the folder has no absolute path")
}
