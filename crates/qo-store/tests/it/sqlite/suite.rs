//! The test suite that `object_store` runs against its own stores.

use object_store::integration;
use qo_store::admin::{BucketAdmin, Versioning};

use super::Fixture;

async fn run_all(store: &qo_store::SqliteStore) {
    integration::put_get_delete_list(store).await;
    integration::list_with_offset_exclusivity(store).await;
    integration::list_uses_directories_correctly(store).await;
    integration::list_with_delimiter(store).await;
    integration::rename_and_copy(store).await;
    integration::copy_if_not_exists(store).await;
    integration::copy_rename_nonexistent_object(store).await;
    integration::stream_get(store).await;
    integration::put_opts(store, true).await;
    integration::put_get_attributes(store).await;
    integration::multipart_race_condition(store, true).await;
    integration::multipart_out_of_order(store).await;
    let missing = integration::get_nonexistent_object(store, None).await;
    assert!(matches!(missing, Err(object_store::Error::NotFound { .. })));
}

#[tokio::test]
async fn passes_unversioned() {
    let fixture = Fixture::new();
    run_all(&fixture.store).await;
}

#[tokio::test]
async fn passes_versioned() {
    let fixture = Fixture::new();
    fixture.store.set_versioning(Versioning::On).await.unwrap();
    run_all(&fixture.store).await;
    // Reads a replaced version.
    integration::get_opts(&fixture.store).await;
}
