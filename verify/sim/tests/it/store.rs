//! The simulated store behaves like a real one.

use std::sync::Arc;
use std::time::Duration;

use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, UpdateVersion};
use qo_sim::faults::Trouble;
use qo_sim::plan::Plan;
use qo_sim::random::Random;
use qo_sim::sched::Scheduler;
use qo_sim::store::{Bucket, BucketSettings, Link, Request};
use qo_sim::trace::Trace;

/// Runs a test on a store without faults.
fn on_store<T: Future<Output = ()> + Send + 'static>(
    settings: BucketSettings,
    test: impl FnOnce(Link, Arc<Bucket>, Scheduler) -> T,
) {
    let scheduler = Scheduler::new(1, Trace::new(false));
    let plan = Plan {
        faults: [].into(),
        ..Plan::of(1)
    };
    let bucket = Arc::new(Bucket::new(&scheduler, settings));
    let trouble = Arc::new(Trouble::new(&scheduler, &plan));
    let process = scheduler.start_process("test", Random::of(&[1]), 0);
    let clock = Arc::default();
    let link = Link::new(
        &scheduler,
        process,
        ("test".to_owned(), 1),
        &bucket,
        &clock,
        &trouble,
        None,
    );
    let test = test(link, Arc::clone(&bucket), scheduler.clone());
    scheduler.run(Box::pin(test)).unwrap();
    scheduler.finish();
}

fn expected(e_tag: Option<&String>) -> PutMode {
    PutMode::Update(UpdateVersion {
        e_tag: e_tag.cloned(),
        version: None,
    })
}

#[test]
fn conditions_hold_or_fail() {
    on_store(BucketSettings::default(), |link, _, _| async move {
        let key = Path::from("a/b");
        let created = link
            .put_opts(&key, "1".into(), PutMode::Create.into())
            .await
            .unwrap();
        let again = link
            .put_opts(&key, "2".into(), PutMode::Create.into())
            .await;
        assert!(matches!(again, Err(Error::AlreadyExists { .. })));
        let swapped = link
            .put_opts(&key, "1".into(), expected(created.e_tag.as_ref()).into())
            .await
            .unwrap();
        assert_ne!(swapped.e_tag, created.e_tag, "no tag comes twice");
        let stale = link
            .put_opts(&key, "3".into(), expected(created.e_tag.as_ref()).into())
            .await;
        assert!(matches!(stale, Err(Error::Precondition { .. })));
        let read = link.get(&key).await.unwrap().bytes().await.unwrap();
        assert_eq!(read, "1");
    });
}

#[test]
fn content_tags_are_equal_for_equal_content() {
    let settings = BucketSettings {
        hashes_content: true,
        versions_max: Some(3),
        ..BucketSettings::default()
    };
    on_store(settings, |link, bucket, _| async move {
        let key = Path::from("a");
        let first = link.put(&key, "x".into()).await.unwrap();
        link.put(&key, "y".into()).await.unwrap();
        let third = link.put(&key, "x".into()).await.unwrap();
        assert_eq!(first.e_tag, third.e_tag);
        link.put(&key, "z".into()).await.unwrap_err();
        assert!(bucket.full_keys().contains("a"));
    });
}

#[test]
fn lists_are_ordered_and_stale_lists_show_an_earlier_state() {
    on_store(
        BucketSettings::default(),
        |link, bucket, scheduler| async move {
            for key in ["a/2", "a/1", "a/3/x", "ab/1", "b"] {
                link.put(&Path::from(key), "".into()).await.unwrap();
            }
            let prefix = Path::from("a");
            let names = |metas: Vec<object_store::ObjectMeta>| -> Vec<String> {
                metas.iter().map(|meta| meta.location.to_string()).collect()
            };
            let listed = link.list(Some(&prefix)).try_collect().await.unwrap();
            assert_eq!(names(listed), ["a/1", "a/2", "a/3/x"]);
            let after = link
                .list_with_offset(Some(&prefix), &Path::from("a/1"))
                .try_collect()
                .await
                .unwrap();
            assert_eq!(names(after), ["a/2", "a/3/x"]);
            let level = link.list_with_delimiter(Some(&prefix)).await.unwrap();
            assert_eq!(level.common_prefixes, [Path::from("a/3")]);
            assert_eq!(names(level.objects), ["a/1", "a/2"]);

            scheduler.sleep(Duration::from_secs(10)).await;
            link.delete(&Path::from("a/1")).await.unwrap();
            link.put(&Path::from("a/9"), "".into()).await.unwrap();
            let request = Request::List {
                prefix: Some(prefix),
                offset: None,
            };
            let qo_sim::store::StoreReply::List(old) =
                bucket.stale_list(&request, Duration::from_secs(5))
            else {
                panic!("a list is answered with a list");
            };
            assert_eq!(names(old), ["a/1", "a/2", "a/3/x"]);
        },
    );
}
