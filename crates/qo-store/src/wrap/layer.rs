//! Stores for tests that change some requests and pass on the others.

use std::fmt;

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};

/// A layer over a store. Every method passes the request on unless the layer implements it.
#[async_trait]
pub trait StoreLayer: fmt::Debug + Send + Sync + 'static {
    /// The store below.
    fn inner(&self) -> &dyn ObjectStore;

    /// Runs at the start of every request.
    fn on_request(&self) {}

    /// Holds back a request that is not a list or a delete.
    async fn hold(&self) {}

    /// See [`ObjectStore::put_opts`].
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        self.inner().put_opts(location, payload, opts).await
    }

    /// See [`ObjectStore::put_multipart_opts`].
    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner().put_multipart_opts(location, options).await
    }

    /// See [`ObjectStore::get_opts`].
    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner().get_opts(location, options).await
    }

    /// See [`ObjectStore::delete_stream`].
    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner().delete_stream(locations)
    }

    /// See [`ObjectStore::list_with_offset`]; without an offset, [`ObjectStore::list`].
    fn list(
        &self,
        prefix: Option<&Path>,
        offset: Option<&Path>,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        match offset {
            Some(offset) => self.inner().list_with_offset(prefix, offset),
            None => self.inner().list(prefix),
        }
    }

    /// See [`ObjectStore::list_with_delimiter`].
    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner().list_with_delimiter(prefix).await
    }
}

/// The store that a layer makes of the store below it.
#[derive(Debug)]
pub struct LayeredStore<L>(pub L);

impl<L: StoreLayer> fmt::Display for LayeredStore<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Layered({})", self.0.inner())
    }
}

#[async_trait]
impl<L: StoreLayer> ObjectStore for LayeredStore<L> {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        opts: PutOptions,
    ) -> Result<PutResult> {
        self.0.on_request();
        self.0.hold().await;
        self.0.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.0.on_request();
        self.0.hold().await;
        self.0.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.0.on_request();
        self.0.hold().await;
        self.0.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.0.on_request();
        self.0.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.on_request();
        self.0.list(prefix, None)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.0.on_request();
        self.0.list(prefix, Some(offset))
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.0.on_request();
        self.0.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.0.on_request();
        self.0.hold().await;
        self.0.inner().copy_opts(from, to, options).await
    }
}
