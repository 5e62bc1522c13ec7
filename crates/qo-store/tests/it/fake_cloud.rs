//! The request formats of Google and Azure, against fakes that store objects and require the headers of conditional
//! writes.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Mutex;

use futures_util::TryStreamExt;
use object_store::path::Path;
use object_store::{
    Error, GetOptions, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload, UpdateVersion,
};
use qo_store::response::{self, ResponseError};
use qo_store::runtime::TokioRuntime;
use qo_store::{OpenOptions, Store, StoreKind, check, open};

use crate::fake_server::{FakeServer, Request, Response, decode};

const MODIFIED: &str = "Sun, 15 Nov 2026 12:00:00 GMT";

/// The state of both fakes: bytes, and a number that grows with each write.
#[derive(Default)]
struct Objects {
    kept: BTreeMap<String, (u64, Vec<u8>)>,
    writes: u64,
}

impl Objects {
    fn put(&mut self, key: &str, body: &[u8]) -> u64 {
        self.writes += 1;
        self.kept
            .insert(key.to_owned(), (self.writes, body.to_vec()));
        self.writes
    }

    fn generation(&self, key: &str) -> Option<u64> {
        self.kept.get(key).map(|(generation, _)| *generation)
    }
}

fn e_tag(generation: u64) -> String {
    format!("\"etag-{generation}\"")
}

fn get(objects: &Objects, key: &str, request: &Request, version_header: &str) -> Response {
    let Some((generation, body)) = objects.kept.get(key) else {
        return Response::error(404, "NoSuchKey");
    };
    let response = if request.header("if-none-match") == Some(&e_tag(*generation)) {
        Response::new(304)
    } else {
        Response::new(200).body(body.clone())
    };
    response
        .header("etag", e_tag(*generation))
        .header("last-modified", MODIFIED)
        .header(version_header, generation.to_string())
}

/// Google Cloud Storage: a bucket `bucket`, the XML API, and generations as conditions.
fn google(objects: &Mutex<Objects>, request: &Request) -> Response {
    let mut objects = objects.lock().unwrap();
    let Some(key) = request.path.strip_prefix("/bucket") else {
        return Response::error(404, "NoSuchBucket");
    };
    let key = decode(key.trim_start_matches('/'));
    match request.method.as_str() {
        "GET" if key.is_empty() => {
            assert_eq!(request.parameter("list-type").as_deref(), Some("2"));
            let prefix = request.parameter("prefix").unwrap_or_default();
            let after = request.parameter("start-after").unwrap_or_default();
            let mut list = String::from("<ListBucketResult>");
            for (key, (generation, body)) in &objects.kept {
                if key.starts_with(&prefix) && *key > after {
                    write!(
                        list,
                        "<Contents><Key>{key}</Key><Size>{}</Size><LastModified>2026-11-15T12:00:00Z</LastModified><ETag>{}</ETag></Contents>",
                        body.len(),
                        e_tag(*generation)
                    )
                    .unwrap();
                }
            }
            list.push_str("</ListBucketResult>");
            Response::new(200).body(list)
        }
        "GET" | "HEAD" => get(&objects, &key, request, "x-goog-generation"),
        "PUT" => {
            let held = objects.generation(&key).unwrap_or(0);
            match request.header("x-goog-if-generation-match") {
                // An object with this key may only be written conditionally.
                None if key.contains("guarded") => Response::error(400, "MissingCondition"),
                Some(wanted) if wanted != held.to_string() => {
                    Response::error(412, "PreconditionFailed")
                }
                _ if key.contains("busy") => Response::error(409, "Conflict"),
                _ => {
                    let generation = objects.put(&key, &request.body);
                    Response::new(200)
                        .header("etag", e_tag(generation))
                        .header("x-goog-generation", generation.to_string())
                }
            }
        }
        "DELETE" => match objects.kept.remove(&key) {
            Some(_) => Response::new(204),
            None => Response::error(404, "NoSuchKey"),
        },
        _ => Response::new(405),
    }
}

/// Azure: a container `bucket` of the account `account`, and entity tags as conditions.
fn azure(objects: &Mutex<Objects>, request: &Request) -> Response {
    let mut objects = objects.lock().unwrap();
    if !request
        .header("authorization")
        .is_some_and(|value| value.starts_with("SharedKey account:"))
    {
        return Response::error(401, "NoAuthenticationInformation");
    }
    assert!(request.header("x-ms-version").is_some());
    let Some(key) = request.path.strip_prefix("/bucket") else {
        return Response::error(404, "ContainerNotFound");
    };
    let key = decode(key.trim_start_matches('/'));
    match request.method.as_str() {
        "GET" if request.parameter("comp").as_deref() == Some("list") => {
            assert_eq!(request.parameter("restype").as_deref(), Some("container"));
            let prefix = request.parameter("prefix").unwrap_or_default();
            let from = request.parameter("startFrom").unwrap_or_default();
            let mut list = String::from("<EnumerationResults><Blobs>");
            for (key, (generation, body)) in &objects.kept {
                if key.starts_with(&prefix) && *key >= from {
                    write!(
                        list,
                        "<Blob><Name>{key}</Name><Properties><Last-Modified>{MODIFIED}</Last-Modified><Content-Length>{}</Content-Length><Content-Type>text/plain</Content-Type><Etag>{}</Etag></Properties></Blob>",
                        body.len(),
                        e_tag(*generation)
                    )
                    .unwrap();
                }
            }
            list.push_str("</Blobs><NextMarker/></EnumerationResults>");
            Response::new(200).body(list)
        }
        "GET" | "HEAD" => get(&objects, &key, request, "x-ms-version-id"),
        "PUT" => {
            assert_eq!(request.header("x-ms-blob-type"), Some("BlockBlob"));
            let held = objects.generation(&key);
            match (request.header("if-match"), request.header("if-none-match")) {
                (None, None) if key.contains("guarded") => Response::error(400, "MissingCondition"),
                (None, Some("*")) if held.is_some() => Response::error(409, "BlobAlreadyExists"),
                (Some(tag), None) if held.map(e_tag).as_deref() != Some(tag) => {
                    Response::error(412, "ConditionNotMet")
                }
                _ if key.contains("busy") => Response::error(409, "LeaseIdMissing"),
                _ => {
                    let generation = objects.put(&key, &request.body);
                    Response::new(201).header("etag", e_tag(generation))
                }
            }
        }
        "POST" if request.parameter("comp").as_deref() == Some("batch") => {
            delete_batch(&mut objects, &request.text())
        }
        _ => Response::new(405),
    }
}

/// Azure deletes in batches: the requests are the parts of one body, the responses the parts of another.
fn delete_batch(objects: &mut Objects, body: &str) -> Response {
    let mut responses = String::new();
    let mut id = "";
    for line in body.lines() {
        if let Some(value) = line.strip_prefix("Content-ID: ") {
            id = value.trim();
        }
        if let Some(rest) = line.strip_prefix("DELETE /bucket/") {
            let key = decode(rest.split([' ', '?']).next().unwrap());
            let status = match objects.kept.remove(&key) {
                Some(_) => "202 Accepted",
                None => "404 The specified blob does not exist.",
            };
            write!(
                responses,
                "--responses\r\nContent-Type: application/http\r\nContent-ID: {id}\r\n\r\nHTTP/1.1 {status}\r\nServer: fake\r\n\r\n"
            )
            .unwrap();
        }
    }
    responses.push_str("--responses--\r\n");
    Response::new(202)
        .header("content-type", "multipart/mixed; boundary=responses")
        .body(responses)
}

async fn google_store() -> (FakeServer, Store) {
    let objects = Mutex::default();
    let server = FakeServer::start(move |request| google(&objects, request)).await;
    let key = format!(
        r#"{{"private_key":"private","private_key_id":"id","client_email":"a@example.org","gcs_base_url":"{}","disable_oauth":true}}"#,
        server.endpoint
    );
    let options =
        OpenOptions::new(TokioRuntime::shared()).with_var("GOOGLE_SERVICE_ACCOUNT_KEY", key);
    let store = open("gs://bucket/some/prefix", &options).unwrap();
    assert_eq!(store.kind, StoreKind::Gcs);
    (server, store)
}

async fn azure_store() -> (FakeServer, Store) {
    let objects = Mutex::default();
    let server = FakeServer::start(move |request| azure(&objects, request)).await;
    let options = OpenOptions::new(TokioRuntime::shared())
        .with_var("AZURE_STORAGE_ACCOUNT_NAME", "account")
        .with_var("AZURE_STORAGE_ACCOUNT_KEY", "c2VjcmV0")
        .with_var("AZURE_STORAGE_ENDPOINT", &server.endpoint);
    let store = open("az://bucket/some/prefix", &options).unwrap();
    assert_eq!(store.kind, StoreKind::Azure);
    (server, store)
}

fn create() -> PutOptions {
    PutMode::Create.into()
}

/// The life cycle of an object, through conditional writes only.
async fn live(store: &dyn ObjectStore) {
    let key = Path::from("a b/guarded.json");
    let first = store.put_opts(&key, "one".into(), create()).await.unwrap();
    let again = store.put_opts(&key, "two".into(), create()).await;
    assert!(
        matches!(again, Err(Error::AlreadyExists { .. })),
        "{again:?}"
    );

    let swap = |e_tag, version| PutMode::Update(UpdateVersion { e_tag, version });
    let first_tag = swap(first.e_tag.clone(), first.version.clone());
    let second = store
        .put_opts(&key, "two".into(), first_tag.clone().into())
        .await
        .unwrap();
    assert_ne!(first.e_tag, second.e_tag);
    let stale = store.put_opts(&key, "three".into(), first_tag.into()).await;
    assert!(
        matches!(stale, Err(Error::Precondition { .. })),
        "{stale:?}"
    );

    let found = store.get(&key).await.unwrap();
    assert_eq!(found.meta.e_tag, second.e_tag);
    let (e_tag, version) = (found.meta.e_tag.clone(), found.meta.version.clone());
    assert_eq!(found.bytes().await.unwrap(), "two");
    let unchanged = GetOptions {
        if_none_match: e_tag.clone(),
        ..GetOptions::default()
    };
    let unchanged = store.get_opts(&key, unchanged).await;
    assert!(matches!(unchanged, Err(Error::NotModified { .. })));
    // The tag of a read works for a swap like that of a write.
    store
        .put_opts(&key, "three".into(), swap(e_tag, version).into())
        .await
        .unwrap();

    let missing = store.get(&Path::from("nothing")).await;
    assert!(matches!(missing, Err(Error::NotFound { .. })));

    let other = Path::from("a b/other");
    store.put(&other, PutPayload::from("x")).await.unwrap();
    let listed: Vec<_> = store
        .list(Some(&Path::from("a b")))
        .map_ok(|meta| meta.location)
        .try_collect()
        .await
        .unwrap();
    assert_eq!(listed, [key.clone(), other.clone()]);
    let after: Vec<_> = store
        .list_with_offset(Some(&Path::from("a b")), &key)
        .map_ok(|meta| meta.location)
        .try_collect()
        .await
        .unwrap();
    assert_eq!(after, std::slice::from_ref(&other));

    store.delete(&key).await.unwrap();
    store.delete(&other).await.unwrap();
    let left: Vec<_> = store.list(None).try_collect().await.unwrap();
    assert!(left.is_empty());
}

/// Checks that the fake rejects an unconditional write where a condition is required.
async fn an_unconditional_write_is_rejected(store: &dyn ObjectStore) {
    let key = Path::from("guarded");
    let error = store.put(&key, "x".into()).await.unwrap_err();
    assert!(matches!(
        response::find(&error),
        Some(ResponseError::Status { status: 400, code: Some(code), .. }) if code == "MissingCondition"
    ));
}

/// A 409 that does not mean 'exists' is reported as such.
async fn a_conflict_is_not_an_existing_object(store: &dyn ObjectStore) {
    let key = Path::from("busy");
    let error = store
        .put_opts(&key, "x".into(), create())
        .await
        .unwrap_err();
    assert!(!matches!(error, Error::AlreadyExists { .. }), "{error}");
    assert!(matches!(
        response::find(&error),
        Some(ResponseError::Status { status: 409, .. })
    ));
}

#[tokio::test]
async fn google_conditions_are_generations() {
    let (server, store) = google_store().await;
    check(&store, &*TokioRuntime::shared()).await.unwrap();
    live(&*store.objects).await;
    an_unconditional_write_is_rejected(&*store.objects).await;
    a_conflict_is_not_an_existing_object(&*store.objects).await;

    let puts: Vec<_> = server
        .requests()
        .into_iter()
        .filter(|request| request.method == "PUT")
        .collect();
    let conditions: Vec<_> = puts
        .iter()
        .take(5)
        .map(|put| put.header("x-goog-if-generation-match").unwrap().to_owned())
        .collect();
    assert_eq!(conditions, ["0", "0", "1", "1", "2"]);
    assert_eq!(
        puts[0].path,
        "/bucket/some%2Fprefix%2Fa%20b%2Fguarded%2Ejson"
    );
}

#[tokio::test]
async fn azure_conditions_are_entity_tags() {
    let (server, store) = azure_store().await;
    check(&store, &*TokioRuntime::shared()).await.unwrap();
    live(&*store.objects).await;
    an_unconditional_write_is_rejected(&*store.objects).await;
    a_conflict_is_not_an_existing_object(&*store.objects).await;

    let conditions: Vec<_> = server
        .requests()
        .into_iter()
        .filter(|request| request.method == "PUT")
        .take(5)
        .map(|put| {
            let header = |name| put.header(name).map(str::to_owned);
            (header("if-match"), header("if-none-match"))
        })
        .collect();
    let none_match = (None, Some("*".to_owned()));
    let matches = |generation| (Some(e_tag(generation)), None);
    assert_eq!(
        conditions,
        [
            none_match.clone(),
            none_match,
            matches(1),
            matches(1),
            matches(2)
        ]
    );
}

#[tokio::test]
async fn a_missing_bucket_error_says_how_to_create_it() {
    let (server, _store) = google_store().await;
    let options = OpenOptions::new(TokioRuntime::shared()).with_var(
        "GOOGLE_SERVICE_ACCOUNT_KEY",
        r#"{"private_key":"private","private_key_id":"id","client_email":"a@example.org","disable_oauth":true}"#,
    );
    let url = format!("gs://other?endpoint={}", server.endpoint);
    let error = check(&open(&url, &options).unwrap(), &*TokioRuntime::shared())
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        format!(
            "gs://other at {}: there is no bucket \"other\": create it with 'gcloud storage buckets create gs://other', or name another one",
            server.endpoint
        )
    );

    let (server, _store) = azure_store().await;
    let options = OpenOptions::new(TokioRuntime::shared())
        .with_var("AZURE_STORAGE_ACCOUNT_NAME", "account")
        .with_var("AZURE_STORAGE_ACCOUNT_KEY", "c2VjcmV0");
    let url = format!("az://other?endpoint={}", server.endpoint);
    let error = check(&open(&url, &options).unwrap(), &*TokioRuntime::shared())
        .await
        .unwrap_err();
    assert!(
        error.to_string().ends_with(
            "there is no bucket \"other\": create it with 'az storage container create --name other', or name another one"
        ),
        "{error}"
    );
}

#[tokio::test]
async fn azure_rejects_requests_not_signed_by_the_account() {
    let (server, _store) = azure_store().await;
    let options = OpenOptions::new(TokioRuntime::shared())
        .with_var("AZURE_STORAGE_ACCOUNT_NAME", "stranger")
        .with_var("AZURE_STORAGE_ACCOUNT_KEY", "c2VjcmV0");
    let url = format!("az://bucket?endpoint={}", server.endpoint);
    let error = check(&open(&url, &options).unwrap(), &*TokioRuntime::shared())
        .await
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("rejected the credentials (NoAuthenticationInformation): check the key in AZURE_STORAGE_ACCOUNT_KEY"),
        "{error}"
    );
}
