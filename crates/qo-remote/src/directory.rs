//! Which server is asked, and which one next.
//!
//! | what is known | where a request goes after a server did not serve it |
//! | --- | --- |
//! | a list of servers | where the server said that the leader is; else to the next of the list |
//! | a store that names the broker | where the store says; the broker's id goes with each request, so that another process at that address refuses |
//!
//! A server that sends its clients elsewhere was trusted with their token already. One that was reached over TLS cannot send them to
//! a server without.
//!
//! Many requests fail at once when a server dies. The first of them moves all; the others find that they have been moved.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use qo_store::runtime::Runtime;
use url::Url;

use super::config::{RemoteConfig, server};

/// A store is not asked more often for its broker, however many requests fail.
const ASK_INTERVAL: Duration = Duration::from_millis(100);

/// Where a broker is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its URL.
    pub url: String,
    /// Its name.
    pub id: String,
}

/// Tells where the broker is.
#[async_trait]
pub trait Discovery: fmt::Debug + Send + Sync + 'static {
    /// Looks where the broker is; else says why there is none to be asked.
    async fn find(&self) -> Result<Found, String>;
}

/// A server that is asked.
#[derive(Debug)]
pub(super) struct Server {
    url: Url,
    /// The id of the broker that it must be.
    broker: Option<String>,
    /// Its place in the list, or that of the server that named it.
    index: usize,
    /// Counts the moves, so that of all who want to leave a server one moves all.
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
    pub(super) fn place(&self) -> &str {
        self.url.as_str().trim_end_matches('/')
    }
}

pub(super) struct Directory {
    listed: Vec<Url>,
    discovery: Option<Arc<dyn Discovery>>,
    runtime: Arc<dyn Runtime>,
    current: Mutex<Arc<Server>>,
    /// When the store was last asked, and what it said. Whoever comes meanwhile waits for that.
    asked: tokio::sync::Mutex<Option<(Duration, Result<(), String>)>>,
}

impl Directory {
    /// The servers of a configuration, of which there is at least one: a text without any is refused before.
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
            asked: tokio::sync::Mutex::new(None),
        }
    }

    /// The server that is asked now.
    pub(super) fn current(&self) -> Arc<Server> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&current)
    }

    /// Leaves a server that did not serve. `leader` is where it says that the leader is. An error says why there is nobody to go to.
    pub(super) async fn move_on(&self, from: &Server, leader: Option<&str>) -> Result<(), String> {
        if let Some(discovery) = &self.discovery {
            return self.find(discovery.as_ref(), from).await;
        }
        let named = leader.and_then(|text| server(text).ok());
        let named = named.filter(|url| *url != from.url && is_as_safe(url, &from.url));
        let next = (from.index + 1) % self.listed.len();
        let (url, index) = match named {
            Some(url) => (url, from.index),
            None => (self.listed[next].clone(), next),
        };
        self.go(from, url, None, index);
        Ok(())
    }

    async fn find(&self, discovery: &dyn Discovery, from: &Server) -> Result<(), String> {
        let mut asked = self.asked.lock().await;
        if self.current().moves != from.moves {
            return Ok(());
        }
        let now = self.runtime.monotonic();
        if let Some((at, said)) = asked.as_ref()
            && now < *at + ASK_INTERVAL
        {
            return said.clone();
        }
        let said = match discovery.find().await {
            Err(why) => Err(why),
            Ok(found) => match server(&found.url) {
                Err(error) => Err(error.to_string()),
                Ok(url) => {
                    if url != from.url || from.broker.as_ref() != Some(&found.id) {
                        tracing::info!(server = found.url, "the queue is served elsewhere now");
                        self.go(from, url, Some(found.id), from.index);
                    }
                    Ok(())
                }
            },
        };
        *asked = Some((self.runtime.monotonic(), said.clone()));
        said
    }

    fn go(&self, from: &Server, url: Url, broker: Option<String>, index: usize) {
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

/// Whether a server may be named by another one.
fn is_as_safe(url: &Url, by: &Url) -> bool {
    by.scheme() != "https" || url.scheme() == "https"
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
    async fn a_list_is_followed_in_its_order_and_left_for_a_leader_that_is_named() {
        let directory = listed("http://a,http://b");
        let first = directory.current();
        assert_eq!(first.place(), "http://a");
        directory.move_on(&first, None).await.unwrap();
        assert_eq!(directory.current().place(), "http://b");
        // Whoever failed at the first one, too, has been moved already.
        directory.move_on(&first, Some("http://x")).await.unwrap();
        let second = directory.current();
        assert_eq!(second.place(), "http://b");
        directory
            .move_on(&second, Some("http://c:1/qo"))
            .await
            .unwrap();
        let named = directory.current();
        assert_eq!(named.place(), "http://c:1/qo");
        directory.move_on(&named, None).await.unwrap();
        assert_eq!(directory.current().place(), "http://a");
    }

    #[tokio::test]
    async fn nobody_is_sent_to_nonsense_or_to_a_server_that_is_less_safe() {
        for nonsense in ["http://c", "ftp://c", "c", "https://u:p@c", "https://a"] {
            let directory = listed("https://a,https://b");
            let first = directory.current();
            directory.move_on(&first, Some(nonsense)).await.unwrap();
            assert_eq!(directory.current().place(), "https://b", "{nonsense}");
        }
    }

    #[derive(Debug)]
    struct Script(Mutex<VecDeque<Result<Found, String>>>);

    #[async_trait]
    impl Discovery for Script {
        async fn find(&self) -> Result<Found, String> {
            self.0.lock().unwrap().pop_front().unwrap()
        }
    }

    #[tokio::test]
    async fn a_store_is_asked_once_for_all_who_fail_at_once() {
        let found = |url: &str, id: &str| {
            Ok(Found {
                url: url.to_owned(),
                id: id.to_owned(),
            })
        };
        let script = [found("http://b", "2"), Err("nobody".to_owned())];
        let mut config = RemoteConfig::parse("http://a").unwrap();
        config.broker = Some("1".to_owned());
        config.discovery = Some(Arc::new(Script(Mutex::new(script.into()))));
        let runtime = TokioRuntime::shared();
        let directory = Directory::new(config, Arc::clone(&runtime));
        let first = directory.current();
        assert_eq!(first.broker(), Some("1"));
        for _ in 0..3 {
            directory.move_on(&first, Some("http://x")).await.unwrap();
        }
        let second = directory.current();
        assert_eq!((second.place(), second.broker()), ("http://b", Some("2")));
        // So soon after the last look it is not asked again.
        directory.move_on(&second, None).await.unwrap();
        runtime.sleep(ASK_INTERVAL * 2).await;
        let why = directory.move_on(&second, None).await.unwrap_err();
        assert_eq!(why, "nobody");
        assert_eq!(
            directory.current().place(),
            "http://b",
            "there may be an answer yet"
        );
    }
}
