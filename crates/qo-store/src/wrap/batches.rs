//! Splits a stream of keys to delete into batches of one request each.

use futures_util::stream::{self, BoxStream, Stream, StreamExt};
use object_store::path::Path;
use object_store::{Error, Result};

use super::PAGE;

/// The keys of one delete request, and the error that ended the batch, if any.
pub(super) struct Batch {
    pub(super) keys: Vec<Path>,
    pub(super) error: Option<Error>,
}

/// Splits the keys into batches of [`PAGE`]. An error ends its batch but not the stream. The keys before it are kept.
pub(super) fn batches(
    locations: BoxStream<'static, Result<Path>>,
) -> impl Stream<Item = Batch> + Send {
    stream::unfold(Some(locations), |remaining| async move {
        let mut locations = remaining?;
        let mut keys = Vec::new();
        loop {
            let error = match locations.next().await {
                None if keys.is_empty() => return None,
                None => return Some((Batch { keys, error: None }, None)),
                Some(Ok(key)) => {
                    keys.push(key);
                    if keys.len() < PAGE {
                        continue;
                    }
                    None
                }
                Some(Err(error)) => Some(error),
            };
            return Some((Batch { keys, error }, Some(locations)));
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn keys_before_an_error_are_kept() {
        let refused = || Error::NotImplemented {
            operation: "a".into(),
            implementer: "b".into(),
        };
        let keys = (0..2_500).map(|n| Ok(Path::from(format!("k{n}"))));
        let locations = keys.chain([Err(refused()), Ok(Path::from("last"))]);
        let sizes: Vec<_> = batches(stream::iter(locations.collect::<Vec<_>>()).boxed())
            .map(|batch| (batch.keys.len(), batch.error.is_some()))
            .collect()
            .await;
        assert_eq!(
            sizes,
            [(1_000, false), (1_000, false), (500, true), (1, false)]
        );
    }
}
