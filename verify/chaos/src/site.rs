//! The site of a run: the S3 server, a bucket, the faulty proxies and a folder for logs; and the `qo` commands that run there.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use qo_core::Task;
use qo_core::task::decode;
use qo_sim::random::Random;
use qo_testkit::{SeaweedFs, ports};

use crate::args::{Mode, Plan};
use crate::faults::Faults;
use crate::proxy::Proxy;

/// The number of brokers in broker mode.
const BROKERS: usize = 2;

/// The handler. It logs its start and its end, sleeps as the input says, and fails the first attempts.
const HANDLER: &str = r#"#!/bin/sh
log() { echo "$1 $QO_TASK_ID $QO_ATTEMPT $QO_WORKER_ID $(date +%s%3N)" >> "$CHAOS_LOG"; }
log start
read -r line
line=${line#\"}
line=${line%\"}
set -- $line
sleep "$1"
if [ "$2" = never ]; then log fail; exit 65; fi
if [ "$QO_ATTEMPT" -le "$2" ]; then log fail; exit 1; fi
log end
echo "{\"attempt\":$QO_ATTEMPT}"
"#;

/// How a command reaches the store or the brokers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// Through the faulty proxies. Of several brokers, this one comes first.
    Faulty(usize),
    /// Past them. For reads only, because the proxy has to see every write.
    Straight,
}

/// The site of a run.
#[derive(Debug)]
pub struct Site {
    /// The folder of the logs.
    pub folder: PathBuf,
    /// The proxy of the store.
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
    proxy: Proxy,
}

impl Site {
    /// Prepares everything but the processes, without faults.
    pub fn new(plan: &Plan, faults: &Faults) -> Result<Self> {
        let server = SeaweedFs::shared().context("cannot start the S3 server")?;
        let bucket = server.unique_bucket(&format!("chaos-{}", plan.mode.name()))?;
        let upstream: SocketAddr = server
            .endpoint()
            .trim_start_matches("http://")
            .parse()
            .context("the S3 server's address has no port")?;
        let store = Proxy::start(upstream, faults.clone(), Random::of(&[plan.seed, 2]))?;
        let mut brokers = Vec::new();
        if plan.mode == Mode::Slate {
            for number in 0..BROKERS {
                let [port] = ports::free()?;
                let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
                let random = Random::of(&[plan.seed, 3, number as u64]);
                let proxy = Proxy::start(listen, faults.clone(), random)?;
                brokers.push(Broker { listen, proxy });
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

    /// The number of brokers.
    pub fn brokers(&self) -> usize {
        self.brokers.len()
    }

    /// All faulty proxies.
    pub fn proxies(&self) -> impl Iterator<Item = &Proxy> {
        std::iter::once(&self.store).chain(self.brokers.iter().map(|broker| &broker.proxy))
    }

    /// The log of the handlers.
    pub fn handler_log(&self) -> PathBuf {
        self.folder.join("handlers.log")
    }

    /// A command on the bucket itself.
    fn on_bucket(&self, route: Route) -> Command {
        let mut command = Command::new(&self.program);
        let endpoint = match route {
            Route::Faulty(_) => format!("http://{}", self.store.address()),
            Route::Straight => self.server.endpoint().to_owned(),
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
            .envs(self.server.variables())
            .env("S3_ENDPOINT", endpoint)
            .env("QO_MONITOR_CHECK_INTERVAL", "2")
            .env("QO_MONITOR_SWEEP_INTERVAL", "10")
            .env("RUST_LOG", "info")
            .env("NO_COLOR", "1");
        command
    }

    /// A command on the queue, as clients and workers run it.
    fn on_queue(&self, route: Route) -> Command {
        let mut command = self.on_bucket(route);
        if !self.brokers.is_empty() {
            let mut servers: Vec<String> = self
                .brokers
                .iter()
                .map(|broker| match route {
                    Route::Faulty(_) => format!("http://{}", broker.proxy.address()),
                    Route::Straight => format!("http://{}", broker.listen),
                })
                .collect();
            if let Route::Faulty(first) = route {
                let count = servers.len();
                servers.rotate_left(first % count);
            }
            command.env("QO_STORE", servers.join(","));
        }
        command
    }

    /// A worker.
    pub fn worker(&self, name: &str, number: usize) -> Command {
        let mut command = self.on_queue(Route::Faulty(number));
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
        let mut command = self.on_bucket(Route::Faulty(number));
        command.args(["serve", "--listen", &broker.listen.to_string()]);
        Some(command)
    }

    /// A client that submits the tasks on its standard input.
    pub fn submitter(&self, route: Route) -> Command {
        let mut command = self.on_queue(route);
        command.args(["submit", "--many", "-", "--full", "--json"]);
        command
    }

    /// Probes the bucket, so that no process has to do so under faults.
    pub fn prepare(&self) -> Result<()> {
        // A broker probes the bucket when it starts.
        if self.mode != Mode::Slate {
            self.tasks()?;
        }
        Ok(())
    }

    /// All tasks.
    pub fn tasks(&self) -> Result<Vec<Task>> {
        let mut command = self.on_queue(Route::Straight);
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
        let text = String::from_utf8(output.stdout).context("the list is not UTF-8")?;
        text.lines()
            .map(|line| {
                decode(line.as_bytes())
                    .with_context(|| format!("cannot read a listed task: {line}"))
            })
            .collect()
    }

    /// Removes the bucket, and the folder unless it is kept.
    pub fn remove(self, keep: bool) {
        // What cannot be removed is below the target directory.
        let _ = self.server.delete_bucket(&self.bucket);
        if !keep {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
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
        .with_context(|| format!("cannot create {}", folder.display()))?;
    std::path::absolute(&folder).context("the folder has no absolute path")
}
