//! The operations on blobs, on every kind of store.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::TryStreamExt;
use qo_blob::{BlobError, BlobStore, BlobStoreExt, address_of};
use qo_core::keys::{BLOBS_PREFIX, Key};
use qo_fixtures::TestStore;

use crate::stores::{Opened, all, bytes, chunks, read};

const MIB: usize = 1024 * 1024;

fn data_key(address: qo_core::BlobAddress, generation: u64) -> String {
    Key::BlobData {
        address,
        generation,
    }
    .to_string()
}

#[tokio::test]
async fn blobs_are_stored_once_and_read_whole_and_in_ranges() {
    for opened in all() {
        let blobs: Arc<dyn BlobStore> = Arc::new(opened.blobs());
        // The largest one is held in a file and uploaded in parts.
        for size in [0, 1, 70_000, 3 * MIB, 20 * MIB + 3] {
            let content = bytes(size, size as u64);
            let put = blobs.put(chunks(&content, 100_000), None).await.unwrap();
            assert_eq!(put.address, address_of(&content));
            assert!(put.created && put.size == size as u64, "{put:?}");
            let again = blobs
                .put(chunks(&content, 7_777), Some(put.address))
                .await
                .unwrap();
            assert!(!again.created, "{again:?}");
            let info = blobs.head(put.address).await.unwrap();
            assert_eq!((info.size, info.address), (size as u64, put.address));
            assert_eq!(blobs.touch(put.address).await.unwrap().size, size as u64);
            assert!(read(&blobs, put.address).await.unwrap() == content);
            for range in [
                0..size.min(1),
                size / 3..size / 2,
                size.saturating_sub(5)..size,
            ] {
                if range.is_empty() {
                    continue;
                }
                let wanted = range.start as u64..range.end as u64;
                let part = blobs.get(put.address, Some(wanted)).await.unwrap();
                assert_eq!(part.size, size as u64);
                let part: Vec<Bytes> = part.body.try_collect().await.unwrap();
                assert!(part.concat() == content[range]);
            }
            let size = size as u64;
            for (start, end) in [(size, size + 1), (0, size + 1), (1, 1)] {
                let error = blobs.get(put.address, Some(start..end)).await.unwrap_err();
                assert!(matches!(error, BlobError::BadRange { .. }), "{error}");
            }
        }
    }
}

#[tokio::test]
async fn an_upload_with_another_address_stores_nothing() {
    for opened in all() {
        let blobs = opened.blobs();
        let expected = address_of(b"what was meant");
        let error = blobs
            .put(chunks(b"what was sent", 4), Some(expected))
            .await
            .unwrap_err();
        let actual = address_of(b"what was sent");
        assert_eq!(error, BlobError::Mismatch { expected, actual });
        let page = opened.client.page(BLOBS_PREFIX, None, 10).await.unwrap();
        assert!(page.entries.is_empty(), "{page:?}");
        for address in [expected, actual] {
            let error = blobs.get(address, None).await.unwrap_err();
            assert_eq!(error, BlobError::NotFound { address });
            assert_eq!(
                blobs.head(address).await,
                Err(BlobError::NotFound { address })
            );
            assert_eq!(
                blobs.touch(address).await,
                Err(BlobError::NotFound { address })
            );
        }
    }
}

#[tokio::test]
async fn damaged_bytes_are_found_when_they_are_read() {
    for opened in all() {
        let blobs: Arc<dyn BlobStore> = Arc::new(opened.blobs());
        let put = blobs
            .put_bytes(Bytes::from_static(b"the truth"))
            .await
            .unwrap();
        opened
            .overwrite(&data_key(put.address, 1), b"the trUth")
            .await;
        let error = read(&blobs, put.address).await.unwrap_err();
        assert!(matches!(error, BlobError::Damaged { .. }), "{error}");
        let error = blobs.read_all(put.address, 1_000).await.unwrap_err();
        assert!(error.to_string().contains("qo blob delete"), "{error}");
        // Deleted and uploaded again, it is whole.
        assert_eq!(blobs.delete(put.address).await, Ok(true));
        assert_eq!(blobs.delete(put.address).await, Ok(false));
        let put = blobs
            .put_bytes(Bytes::from_static(b"the truth"))
            .await
            .unwrap();
        assert!(put.created);
        assert_eq!(read(&blobs, put.address).await.unwrap(), b"the truth");
        let head = blobs.head(put.address).await.unwrap();
        assert_eq!(head.size, 9);
        let part = blobs.get(put.address, Some(4..9)).await.unwrap();
        let part: Vec<Bytes> = part.body.try_collect().await.unwrap();
        assert_eq!(part.concat(), b"truth");
    }
}

#[tokio::test]
async fn the_limit_of_the_store_is_kept() {
    let opened = Opened::new(TestStore::sqlite());
    let blobs = opened.blobs();
    assert_eq!(blobs.max_bytes(), 64 * MIB as u64);
    let content = bytes(64 * MIB, 1);
    let put = blobs.put(chunks(&content, MIB), None).await.unwrap();
    let error = blobs
        .put(chunks(&bytes(64 * MIB + 1, 2), MIB), None)
        .await
        .unwrap_err();
    assert_eq!(
        error,
        BlobError::TooLarge {
            max_bytes: 64 * MIB as u64
        }
    );
    let listed = blobs.list(None, 10).await.unwrap();
    assert_eq!(listed.blobs.len(), 1);
    assert_eq!(listed.blobs[0].address, put.address);
}

#[tokio::test]
async fn lists_have_pages() {
    for opened in all() {
        let blobs = opened.blobs();
        let mut addresses = Vec::new();
        for number in 0..23_u64 {
            let put = blobs
                .put_bytes(Bytes::from(number.to_string()))
                .await
                .unwrap();
            addresses.push(put.address);
        }
        // One was collected and stored again.
        blobs.delete(addresses[7]).await.unwrap();
        blobs.put_bytes(Bytes::from_static(b"7")).await.unwrap();
        addresses.sort();
        for limit in [1, 5, 23, 100] {
            let mut listed = Vec::new();
            let mut after = None;
            loop {
                let page = blobs.list(after, limit).await.unwrap();
                assert!(page.blobs.len() <= limit);
                listed.extend(page.blobs.into_iter().map(|blob| blob.address));
                after = page.next;
                if after.is_none() {
                    break;
                }
            }
            assert_eq!(listed, addresses);
        }
    }
}

#[tokio::test]
async fn an_upload_that_crashed_before_its_record_can_be_read_and_completed() {
    for opened in all() {
        let blobs: Arc<dyn BlobStore> = Arc::new(opened.blobs());
        let (first, second) = (address_of(b"first"), address_of(b"second"));
        opened.overwrite(&data_key(first, 1), b"first").await;
        assert_eq!(read(&blobs, first).await.unwrap(), b"first");
        assert_eq!(blobs.touch(first).await.unwrap().size, 5);
        assert!(
            !blobs
                .put_bytes(Bytes::from_static(b"first"))
                .await
                .unwrap()
                .created
        );
        // The same after an earlier generation was collected.
        blobs
            .put_bytes(Bytes::from_static(b"second"))
            .await
            .unwrap();
        blobs.delete(second).await.unwrap();
        opened.overwrite(&data_key(second, 2), b"second").await;
        assert_eq!(read(&blobs, second).await.unwrap(), b"second");
        assert_eq!(blobs.touch(second).await.unwrap().size, 6);
        assert!(
            !blobs
                .put_bytes(Bytes::from_static(b"second"))
                .await
                .unwrap()
                .created
        );
    }
}

#[tokio::test]
async fn concurrent_uploads_of_one_blob_are_one_blob() {
    for opened in all() {
        let blobs = opened.blobs();
        let uploads = (0..8).map(|_| blobs.put_bytes(Bytes::from_static(b"popular")));
        let puts = futures_util::future::try_join_all(uploads).await.unwrap();
        assert_eq!(puts.iter().filter(|put| put.created).count(), 1, "{puts:?}");
        assert_eq!(blobs.list(None, 10).await.unwrap().blobs.len(), 1);
    }
}
