//! The objects of the cluster as one node offers them.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use qo_engine::EngineError;
use qo_store::StoreClient;
use qo_store::client::ClientConfig;
use qo_store::clock::StoreClock;

use super::read::ObjectReader;
use super::write::ClusterObjects;
use super::{failed, unsupported};
use crate::config::PAYLOAD_MAX_BYTES;
use crate::leader::database::RowReader;
use crate::node::{ClusterNode, NodeShared};

/// Small objects that all nodes have. Writes need the lead. Clones share everything.
#[derive(Clone)]
pub struct NodeObjects {
    node: Arc<NodeShared>,
    /// Whether this node must lead for reads, too, and a majority confirms that it does.
    confirms_reads: bool,
}

impl fmt::Debug for NodeObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeObjects")
            .field("confirms_reads", &self.confirms_reads)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for NodeObjects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the objects of the cluster")
    }
}

impl ClusterNode {
    /// Objects whose reads are never older than what was acknowledged before. Only the leader reads them.
    pub fn objects(&self) -> StoreClient {
        client(&self.shared, Arc::clone(&self.shared.objects_clock), true)
    }

    /// Objects as this node has them. Every node reads them; one that is cut off may read old ones.
    pub fn local_objects(&self) -> StoreClient {
        client(&self.shared, Arc::clone(&self.shared.objects_clock), false)
    }
}

/// A client of the objects of a node.
pub(in crate::leader) fn client(
    node: &Arc<NodeShared>,
    clock: Arc<StoreClock>,
    confirms_reads: bool,
) -> StoreClient {
    let mut config = ClientConfig::default();
    config.object_bytes_max = PAYLOAD_MAX_BYTES;
    let runtime = Arc::clone(&node.runtime);
    let objects = NodeObjects {
        node: Arc::clone(node),
        confirms_reads,
    };
    StoreClient::new(Arc::new(objects), clock, runtime, config)
}

impl NodeObjects {
    fn leading(&self) -> Result<ClusterObjects> {
        let objects = self.node.serving_objects();
        objects.ok_or_else(|| failed(EngineError::NotLeader))
    }

    async fn reader(&self) -> Result<ObjectReader> {
        if self.confirms_reads {
            let objects = self.leading()?;
            objects.confirm().await.map_err(failed)?;
            return Ok(objects.reader);
        }
        Ok(ObjectReader(RowReader {
            rows: Arc::clone(&self.node.rows),
            pool: Arc::clone(&self.node.pool),
        }))
    }

    fn list_after(
        &self,
        prefix: Option<&Path>,
        after: Option<&Path>,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        let objects = self.clone();
        let (prefix, after) = (prefix.cloned(), after.cloned());
        stream::once(async move {
            let reader = objects.reader().await?;
            Ok::<_, object_store::Error>(reader.list(prefix.as_ref(), after.as_ref()))
        })
        .try_flatten()
        .boxed()
    }
}

#[async_trait]
impl ObjectStore for NodeObjects {
    async fn put_opts(&self, path: &Path, body: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.leading()?.put_opts(path, body, opts).await
    }

    async fn put_multipart_opts(
        &self,
        _location: &Path,
        _opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        Err(unsupported("an upload in parts"))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.reader().await?.get(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        let objects = self.clone();
        locations
            .and_then(move |path| {
                let objects = objects.clone();
                async move { objects.leading()?.delete(path).await }
            })
            .boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.list_after(prefix, None)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.list_after(prefix, Some(offset))
    }

    async fn list_with_delimiter(&self, _prefix: Option<&Path>) -> Result<ListResult> {
        Err(unsupported("a list of folders"))
    }

    async fn copy_opts(&self, _from: &Path, _to: &Path, _options: CopyOptions) -> Result<()> {
        Err(unsupported("a copy"))
    }
}
