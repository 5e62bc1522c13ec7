//! Buckets of the server.

use std::thread;

use qo_testkit::{KitError, SeaweedFs};

fn status_of<T: std::fmt::Debug>(outcome: Result<T, KitError>) -> u16 {
    match outcome {
        Err(KitError::Refused { status, .. }) => status,
        other => panic!("the server should have refused: {other:?}"),
    }
}

#[test]
fn buckets_are_created_once_and_deleted_once() {
    let server = SeaweedFs::shared().unwrap();
    let bucket = server.unique_bucket("made once").unwrap();
    assert_eq!(status_of(server.create_bucket(&bucket)), 409);
    server.delete_bucket(&bucket).unwrap();
    assert_eq!(status_of(server.delete_bucket(&bucket)), 404);
}

#[test]
fn many_buckets_can_be_created_at_once() {
    let server = SeaweedFs::shared().unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10 {
                    server.unique_bucket("many").unwrap();
                    server.unique_versioned_bucket("many").unwrap();
                }
            });
        }
    });
}

#[test]
fn all_callers_share_one_server() {
    let first = SeaweedFs::shared().unwrap();
    let second = SeaweedFs::shared().unwrap();
    assert!(std::ptr::eq(first, second));
    assert!(
        first.endpoint().starts_with("http://127.0.0.1:"),
        "{first:?}"
    );
}
