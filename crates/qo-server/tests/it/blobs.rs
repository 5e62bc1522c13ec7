//! Blobs over HTTP, plainly and through the remote client.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt};
use qo::blob::{GcOptions, address_of};
use qo::{BlobError, BlobStore, BlobStoreExt};
use qo_core::keys::Key;
use qo_fixtures::TestStore;
use qo_remote::{RemoteConfig, RemoteEngine, Token};
use qo_server::Auth;
use qo_server::tokens::{Scope, TokenStore};
use qo_store::runtime::TokioRuntime;
use reqwest::{Client, Method, Response};

use qo_fixtures::client_of;

use crate::support::{TestServer, api, config, memory, plain_client, serve, serve_store};

async fn send(server: &TestServer, method: Method, path: &str, body: &[u8]) -> Response {
    let client: Client = plain_client();
    let request = client.request(method, format!("{}{path}", server.url));
    request.body(body.to_vec()).send().await.unwrap()
}

async fn get(server: &TestServer, path: &str, range: Option<&str>) -> Response {
    let mut request = plain_client().get(format!("{}{path}", server.url));
    if let Some(range) = range {
        request = request.header("range", range);
    }
    request.send().await.unwrap()
}

fn remote(server: &TestServer) -> Arc<dyn BlobStore> {
    let config = RemoteConfig::parse(&server.url).unwrap();
    let engine = RemoteEngine::new(config, TokioRuntime::shared()).unwrap();
    Arc::new(engine.blobs())
}

#[tokio::test]
async fn an_upload_is_new_or_known_and_its_address_is_the_answer() {
    let server = serve(config()).await;
    let address = address_of(b"hello");
    let put = send(&server, Method::PUT, "/blobs", b"hello").await;
    assert_eq!(put.status(), 201);
    let body: serde_json::Value = serde_json::from_slice(&put.bytes().await.unwrap()).unwrap();
    assert_eq!(body["address"], address.to_string());
    assert_eq!(body["size"], 5);
    assert_eq!(
        send(&server, Method::PUT, "/blobs", b"hello")
            .await
            .status(),
        200
    );
    let path = format!("/blobs/{address}");
    assert_eq!(
        send(&server, Method::PUT, &path, b"hello").await.status(),
        200
    );
    let other = format!("/blobs/{}", address_of(b"other"));
    assert_eq!(
        send(&server, Method::PUT, &other, b"other").await.status(),
        201
    );

    let whole = get(&server, &path, None).await;
    assert_eq!(whole.status(), 200);
    assert_eq!(whole.headers()["etag"], format!("\"{address}\""));
    assert_eq!(whole.headers()["accept-ranges"], "bytes");
    assert_eq!(whole.headers()["content-length"], "5");
    assert_eq!(whole.bytes().await.unwrap(), "hello");
    let head = send(&server, Method::HEAD, &path, b"").await;
    assert_eq!(
        (head.status().as_u16(), &head.headers()["content-length"]),
        (200, &"5".parse().unwrap())
    );
}

#[tokio::test]
async fn ranges_are_partial_content() {
    let server = serve(config()).await;
    let address = address_of(b"0123456789");
    send(&server, Method::PUT, "/blobs", b"0123456789").await;
    let path = format!("/blobs/{address}");
    for (range, content_range, bytes) in [
        ("bytes=0-3", "bytes 0-3/10", "0123"),
        ("bytes=7-", "bytes 7-9/10", "789"),
        ("bytes=-2", "bytes 8-9/10", "89"),
        ("bytes=5-100", "bytes 5-9/10", "56789"),
    ] {
        let part = get(&server, &path, Some(range)).await;
        assert_eq!(part.status(), 206, "{range}");
        assert_eq!(part.headers()["content-range"], content_range);
        assert_eq!(part.bytes().await.unwrap(), bytes);
    }
    let beyond = get(&server, &path, Some("bytes=10-")).await;
    assert_eq!(beyond.status(), 416);
    assert_eq!(beyond.headers()["content-range"], "bytes */10");
    let several = get(&server, &path, Some("bytes=0-1,3-4")).await;
    assert_eq!(several.status(), 200);
}

#[tokio::test]
async fn wrong_uploads_are_problems_and_store_nothing() {
    let server = serve(config()).await;
    let expected = address_of(b"what was meant");
    let path = format!("/blobs/{expected}");
    let problem = server
        .refused(
            api("PUT", &path).body("what was sent"),
            422,
            "blob_mismatch",
        )
        .await;
    assert_eq!(problem["expected"], expected.to_string());
    assert_eq!(problem["actual"], address_of(b"what was sent").to_string());
    assert!(server.objects().await.is_empty());
    server
        .refused(api("GET", &path), 404, "blob_not_found")
        .await;
    assert_eq!(send(&server, Method::HEAD, &path, b"").await.status(), 404);
    server
        .refused(
            api("GET", "/blobs/59ae214373240a255f453cc2fa8d26ab60d6b532"),
            400,
            "bad_request",
        )
        .await;
    server
        .refused(api("POST", format!("{path}/touch")), 404, "blob_not_found")
        .await;
    let short = api("POST", "/blobs/gc").body(r#"{"grace_seconds":5}"#);
    server.refused(short, 400, "bad_request").await;
}

/// The client of a plain download sees a broken connection, and the remote client a damaged blob, on every kind of store.
#[tokio::test]
async fn a_damaged_blob_is_never_delivered_as_a_whole() {
    let addresses = [
        TestStore::memory(),
        TestStore::sqlite(),
        TestStore::seaweedfs("httpblob"),
    ];
    for address in &addresses {
        let store = address.open();
        let server = serve_store(store, config()).await;
        let content: Vec<u8> = (0..600_000_u32)
            .map(|index| u8::try_from(index % 251).unwrap())
            .collect();
        let put = remote(&server)
            .put_bytes(Bytes::from(content.clone()))
            .await
            .unwrap();
        let key = Key::BlobData {
            address: put.address,
            generation: 1,
        };
        let mut damaged = content;
        damaged[300_000] ^= 1;
        server
            .client
            .put(&key.to_string(), Bytes::from(damaged))
            .await
            .unwrap();
        let url = format!("{}/blobs/{}", server.url, put.address);
        // A problem if the store returns the blob in one piece, a broken connection otherwise.
        if let Ok(response) = plain_client().get(url).send().await {
            let status = response.status().as_u16();
            let body = response.bytes().await;
            assert!(status == 500 || body.is_err(), "{}", address.url());
        }
        let error = remote(&server)
            .read_all(put.address, 1 << 20)
            .await
            .unwrap_err();
        let found = matches!(error, BlobError::Damaged { .. } | BlobError::Store(_));
        assert!(found, "{error}");
    }
}

#[tokio::test]
async fn the_remote_client_has_all_operations() {
    let server = serve(config()).await;
    let blobs = remote(&server);
    let content: Vec<u8> = (0..3_000_000_u32)
        .map(|index| u8::try_from(index % 253).unwrap())
        .collect();
    let put = blobs.put_bytes(Bytes::from(content.clone())).await.unwrap();
    assert!(put.created);
    assert!(
        !blobs
            .put_bytes(Bytes::from(content.clone()))
            .await
            .unwrap()
            .created
    );
    assert_eq!(blobs.head(put.address).await.unwrap().size, 3_000_000);
    assert!(blobs.read_all(put.address, 1 << 30).await.unwrap() == content);
    let part = blobs.get(put.address, Some(10..20)).await.unwrap();
    let part: Vec<Bytes> = part.body.try_collect().await.unwrap();
    assert_eq!(part.concat(), content[10..20]);
    let error = blobs
        .get(put.address, Some(5..3_000_001))
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            BlobError::BadRange {
                size: 3_000_000,
                ..
            }
        ),
        "{error}"
    );
    let absent = address_of(b"absent");
    let not_found = BlobError::NotFound { address: absent };
    assert_eq!(blobs.head(absent).await.unwrap_err(), not_found);
    assert_eq!(blobs.touch(absent).await.unwrap_err(), not_found);
    assert_eq!(blobs.get(absent, None).await.unwrap_err(), not_found);
    let body = futures_util::stream::iter([Ok(Bytes::from_static(b"x"))]);
    let wrong = blobs.put(body.boxed(), Some(absent));
    assert!(matches!(wrong.await, Err(BlobError::Mismatch { .. })));
    let page = blobs.list(None, 10).await.unwrap();
    assert_eq!(page.blobs.len(), 1);
    let report = blobs
        .gc(server.engine.as_ref(), &GcOptions::default())
        .await
        .unwrap();
    assert_eq!((report.blobs, report.recent, report.collected), (1, 1, 0));
    assert_eq!(blobs.delete(put.address).await, Ok(true));
    assert_eq!(blobs.delete(put.address).await, Ok(false));
    assert!(blobs.list(None, 10).await.unwrap().blobs.is_empty());
}

#[tokio::test]
async fn scopes_decide_who_may_use_blobs() {
    let store = memory();
    let tokens = TokenStore::new(client_of(&store), TokioRuntime::shared());
    let mut secrets = Vec::new();
    for scope in [Scope::Submit, Scope::Work, Scope::Read, Scope::Admin] {
        let token = tokens.create(scope.as_str(), &[scope], None).await.unwrap();
        secrets.push((scope, token.reveal().to_owned()));
    }
    let mut config = config();
    config.auth = Auth::stored(tokens);
    let server = serve_store(store, config).await;
    server
        .refused(api("PUT", "/blobs").body("x"), 401, "unauthorized")
        .await;
    let address = address_of(b"x");
    for (scope, secret) in &secrets {
        let may_write = *scope != Scope::Read;
        let (status, _) = server
            .reply(api("PUT", "/blobs").body("x").token(secret))
            .await;
        assert_eq!(status < 300, may_write, "{scope:?}");
        let may_read = *scope != Scope::Submit;
        let path = format!("/blobs/{address}");
        let (status, _) = server.reply(api("GET", &path).token(secret)).await;
        assert_eq!(status < 300, may_read, "{scope:?}");
        let (status, _) = server.reply(api("POST", "/blobs/gc").token(secret)).await;
        assert_eq!(status < 300, *scope == Scope::Admin, "{scope:?}");
    }
    let mut config = RemoteConfig::parse(&server.url).unwrap();
    config.token = Some(Token::new(secrets[2].1.clone()));
    let reader = RemoteEngine::new(config, TokioRuntime::shared())
        .unwrap()
        .blobs();
    assert!(reader.put_bytes(Bytes::from_static(b"y")).await.is_err());
    assert_eq!(reader.head(address).await.unwrap().size, 1);
}
