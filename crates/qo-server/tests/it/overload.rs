//! A broker that takes no more submits says so over HTTP.

use std::sync::Arc;

use futures_util::future::{Either, select};
use object_store::path::Path;
use object_store::{ObjectStore, PutOptions, PutPayload, PutResult, Result};
use qo::{BrokerEngine, JsonConfig};
use qo_fixtures::{LayeredStore, StoreLayer};
use qo_store::client::ClientConfig;
use qo_store::runtime::TokioRuntime;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::support::{api, config, memory, serve_engine};

/// A store whose writes wait until it is open.
#[derive(Debug)]
struct Gate {
    objects: Arc<dyn ObjectStore>,
    is_open: watch::Receiver<bool>,
}

#[async_trait::async_trait]
impl StoreLayer for Gate {
    fn inner(&self) -> &dyn ObjectStore {
        self.objects.as_ref()
    }

    async fn put_opts(&self, path: &Path, body: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let mut is_open = self.is_open.clone();
        is_open.wait_for(|is_open| *is_open).await.unwrap();
        self.objects.put_opts(path, body, opts).await
    }
}

#[tokio::test]
async fn a_submit_beyond_the_limit_of_a_broker_may_be_tried_again_later() {
    let store = memory();
    let (gate, is_open) = watch::channel(true);
    let slow = LayeredStore(Gate {
        objects: Arc::clone(&store.objects),
        is_open,
    });
    let mut settings = JsonConfig::local();
    settings.state.submits_max = 1;
    let engine = BrokerEngine::json(
        Arc::new(slow),
        Arc::clone(&store.clock),
        TokioRuntime::shared(),
        ClientConfig::default(),
        settings,
    );
    let server = serve_engine(store, Arc::new(engine), config()).await;
    gate.send(false).unwrap();
    let task = json!({ "task_type": "t", "input": 1 });
    let submit = || Box::pin(server.send(api("POST", "/v1/tasks").json(&task)));
    // One of the two is being written, and has no response before the store is open again.
    let (Either::Left((refused, accepted)) | Either::Right((refused, accepted))) =
        select(submit(), submit()).await;
    assert_eq!(refused.status().as_u16(), 503);
    let seconds = refused.headers()["retry-after"].to_str().unwrap();
    assert!(seconds.parse::<u64>().unwrap() >= 1, "{seconds}");
    let problem: Value = serde_json::from_slice(&refused.bytes().await.unwrap()).unwrap();
    assert_eq!(problem["code"], "overloaded", "{problem}");
    gate.send(true).unwrap();
    assert_eq!(accepted.await.status().as_u16(), 201);
    let (status, list) = server.reply(api("GET", "/v1/tasks")).await;
    assert_eq!(status, 200, "{list}");
    assert_eq!(list["tasks"].as_array().unwrap().len(), 1, "{list}");
    let (status, _) = server.reply(api("POST", "/v1/tasks").json(&task)).await;
    assert_eq!(status, 201, "there is room again");
}
