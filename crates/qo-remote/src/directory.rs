//! Chooses the server for requests, and the next one after a failure.
//!
//! | configured | where a request goes after a server did not serve it |
//! | --- | --- |
//! | a list of servers, or the nodes of a cluster | to the leader that the server named; otherwise to the next server in the list |
//! | a store that names the broker | to the address in the store; each request carries the broker's id, so that another process at that address refuses it |
//!
//! A server that redirects its clients has their token already. A server that was reached over TLS cannot redirect them to one
//! without TLS.
//!
//! When a server dies, many requests fail at once. The first of them moves all to the next server; the others see that they have
//! been moved.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use qo_store::runtime::Runtime;
use url::Url;

use super::config::{RemoteConfig, server};

/// The minimum interval between two discoveries, however many requests fail.
const DISCOVERY_INTERVAL: Duration = Duration::from_millis(100);

/// The address of a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokerAddress {
    /// Its URL.
    pub url: String,
    /// Its id.
    pub id: String,
}

/// Finds the broker.
#[async_trait]
pub trait Discovery: fmt::Debug + Send + Sync + 'static {
    /// Finds the broker, or returns the reason why there is none.
    async fn find(&self) -> Result<BrokerAddress, String>;
}

/// A server that receives requests.
#[derive(Debug)]
pub(super) struct Server {
    url: Url,
    /// The id of the broker that must serve there.
    broker: Option<String>,
    /// Its index in the list, or the index of the server that named it.
    index: usize,
    /// The number of moves so far. Of many requests that fail at a server, only the first moves.
    moves: u64,
}

impl Server {
    pub(super) fn url(&self) -> &Url {
        &self.url
    }

    pub(super) fn broker(&self) -> Option<&str> {
        self.broker.as_deref()
    }

    /// Its URL, for messages.
    pub(super) fn display_url(&self) -> &str {
        self.url.as_str().trim_end_matches('/')
    }
}

pub(super) struct Directory {
    listed: Vec<Url>,
    discovery: Option<Arc<dyn Discovery>>,
    runtime: Arc<dyn Runtime>,
    current: Mutex<Arc<Server>>,
    /// The time and the result of the last discovery. Requests that fail meanwhile wait for it.
    last_discovery: tokio::sync::Mutex<Option<(Duration, Result<(), String>)>>,
}

impl Directory {
    /// The servers of a configuration. There is at least one: a configuration without a server is rejected earlier.
    pub(super) fn new(config: RemoteConfig, runtime: Arc<dyn Runtime>) -> Self {
        let first = Server {
            url: config.servers[0].clone(),
            broker: config.broker,
            index: 0,
            moves: 0,
        };
        Self {
            listed: config.servers,
            discovery: config.discovery,
            runtime,
            current: Mutex::new(Arc::new(first)),
            last_discovery: tokio::sync::Mutex::new(None),
        }
    }

    /// The current server.
    pub(super) fn current(&self) -> Arc<Server> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&current)
    }

    /// Moves away from a server that did not serve a request. `leader` is the leader that the server named. The error is the reason
    /// why there is no other server.
    pub(super) async fn move_on(&self, from: &Server, leader: Option<&str>) -> Result<(), String> {
        if let Some(discovery) = &self.discovery {
            return self.find(discovery.as_ref(), from).await;
        }
        let named = leader.and_then(|text| server(text).ok());
        let named = named.filter(|url| *url != from.url && may_redirect(&from.url, url));
        let next = (from.index + 1) % self.listed.len();
        let (url, index) = match named {
            Some(url) => (url, from.index),
            None => (self.listed[next].clone(), next),
        };
        self.switch(from, url, None, index);
        Ok(())
    }

    async fn find(&self, discovery: &dyn Discovery, from: &Server) -> Result<(), String> {
        let mut last_discovery = self.last_discovery.lock().await;
        if self.current().moves != from.moves {
            return Ok(());
        }
        let now = self.runtime.monotonic();
        if let Some((at, result)) = last_discovery.as_ref()
            && now < *at + DISCOVERY_INTERVAL
        {
            return result.clone();
        }
        let result = match discovery.find().await {
            Err(reason) => Err(reason),
            Ok(broker) => match server(&broker.url) {
                Err(error) => Err(error.to_string()),
                Ok(url) => {
                    if url != from.url || from.broker.as_ref() != Some(&broker.id) {
                        tracing::info!(server = broker.url, "another server serves the queue now");
                        self.switch(from, url, Some(broker.id), from.index);
                    }
                    Ok(())
                }
            },
        };
        *last_discovery = Some((self.runtime.monotonic(), result.clone()));
        result
    }

    fn switch(&self, from: &Server, url: Url, broker: Option<String>, index: usize) {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.moves == from.moves {
            *current = Arc::new(Server {
                url,
                broker,
                index,
                moves: from.moves + 1,
            });
        }
    }
}

/// Whether a server may redirect clients to another one: never from TLS to plain HTTP.
fn may_redirect(from: &Url, to: &Url) -> bool {
    from.scheme() != "https" || to.scheme() == "https"
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use qo_store::runtime::TokioRuntime;

    use super::*;

    fn listed(urls: &str) -> Directory {
        let config = RemoteConfig::parse(urls).unwrap();
        Directory::new(config, TokioRuntime::shared())
    }

    #[tokio::test]
    async fn the_list_is_followed_in_order_and_a_named_leader_comes_first() {
        let directory = listed("http://a,http://b");
        let first = directory.current();
        assert_eq!(first.display_url(), "http://a");
        directory.move_on(&first, None).await.unwrap();
        assert_eq!(directory.current().display_url(), "http://b");
        // Another request that failed at the first server has been moved already.
        directory.move_on(&first, Some("http://x")).await.unwrap();
        let second = directory.current();
        assert_eq!(second.display_url(), "http://b");
        directory
            .move_on(&second, Some("http://c:1/qo"))
            .await
            .unwrap();
        let named = directory.current();
        assert_eq!(named.display_url(), "http://c:1/qo");
        directory.move_on(&named, None).await.unwrap();
        assert_eq!(directory.current().display_url(), "http://a");
    }

    #[tokio::test]
    async fn invalid_and_less_secure_redirects_are_ignored() {
        for leader in ["http://c", "ftp://c", "c", "https://u:p@c", "https://a"] {
            let directory = listed("https://a,https://b");
            let first = directory.current();
            directory.move_on(&first, Some(leader)).await.unwrap();
            assert_eq!(directory.current().display_url(), "https://b", "{leader}");
        }
    }

    #[derive(Debug)]
    struct ScriptedDiscovery(Mutex<VecDeque<Result<BrokerAddress, String>>>);

    #[async_trait]
    impl Discovery for ScriptedDiscovery {
        async fn find(&self) -> Result<BrokerAddress, String> {
            self.0.lock().unwrap().pop_front().unwrap()
        }
    }

    #[tokio::test]
    async fn concurrent_failures_share_one_discovery() {
        let broker = |url: &str, id: &str| {
            Ok(BrokerAddress {
                url: url.to_owned(),
                id: id.to_owned(),
            })
        };
        let script = [broker("http://b", "2"), Err("no broker".to_owned())];
        let mut config = RemoteConfig::parse("http://a").unwrap();
        config.broker = Some("1".to_owned());
        config.discovery = Some(Arc::new(ScriptedDiscovery(Mutex::new(script.into()))));
        let runtime = TokioRuntime::shared();
        let directory = Directory::new(config, Arc::clone(&runtime));
        let first = directory.current();
        assert_eq!(first.broker(), Some("1"));
        for _ in 0..3 {
            directory.move_on(&first, Some("http://x")).await.unwrap();
        }
        let second = directory.current();
        assert_eq!(
            (second.display_url(), second.broker()),
            ("http://b", Some("2"))
        );
        // There is no second discovery so soon after the first.
        directory.move_on(&second, None).await.unwrap();
        runtime.sleep(DISCOVERY_INTERVAL * 2).await;
        let reason = directory.move_on(&second, None).await.unwrap_err();
        assert_eq!(reason, "no broker");
        assert_eq!(
            directory.current().display_url(),
            "http://b",
            "the server may still respond"
        );
    }
}
