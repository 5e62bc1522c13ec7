//! Administration of S3 buckets: the exact requests to a fake server, and their effects on a real one.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use std::sync::Arc;

use object_store::ObjectStoreExt;
use object_store::path::Path;
use qo_store::admin::{BucketAdmin, CorsRule, LifecycleRule, Versioning};
use qo_store::{StoreError, open};
use qo_testkit::SeaweedFs;
use ring::digest::{SHA256, digest};

use crate::fake_server::{FakeServer, Request, Response};
use crate::http_layer::s3_options;
use crate::real_stores;

fn admin(server: &FakeServer, location: &str) -> Arc<dyn BucketAdmin> {
    let url = format!("s3://{location}?endpoint={}", server.endpoint);
    open(&url, &s3_options()).unwrap().admin.unwrap()
}

fn cors_rule() -> CorsRule {
    CorsRule {
        allowed_origins: vec!["https://qo.example.org".to_owned()],
        allowed_methods: vec!["GET".to_owned(), "PUT".to_owned()],
        allowed_headers: vec!["*".to_owned()],
        expose_headers: vec!["ETag".to_owned()],
        max_age_seconds: 3000,
    }
}

fn lifecycle_rule(id: &str, prefix: &str) -> LifecycleRule {
    LifecycleRule {
        id: id.to_owned(),
        prefix: prefix.to_owned(),
        expire_days: None,
        expire_noncurrent_days: Some(1),
        expire_delete_markers: true,
        abort_multipart_days: None,
    }
}

fn only(server: &FakeServer) -> Request {
    let requests = server.requests();
    assert_eq!(requests.len(), 1, "{requests:?}");
    requests.into_iter().next().unwrap()
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").unwrap();
        text
    })
}

#[tokio::test]
async fn a_setting_is_put_with_a_checksum_and_a_signature() {
    let server = FakeServer::scripted(vec![Response::new(200)]).await;
    admin(&server, "bucket")
        .set_cors(&[cors_rule()])
        .await
        .unwrap();
    let request = only(&server);
    assert_eq!(request.line(), "PUT /bucket?cors");
    assert_eq!(
        request.text(),
        "<CORSConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><CORSRule>\
         <AllowedOrigin>https://qo.example.org</AllowedOrigin><AllowedMethod>GET</AllowedMethod>\
         <AllowedMethod>PUT</AllowedMethod><AllowedHeader>*</AllowedHeader><ExposeHeader>ETag</ExposeHeader>\
         <MaxAgeSeconds>3000</MaxAgeSeconds></CORSRule></CORSConfiguration>"
    );
    let sum = digest(&SHA256, &request.body);
    assert_eq!(
        request.header("x-amz-content-sha256"),
        Some(hex(sum.as_ref()).as_str())
    );
    // Computed with other tools from the text above.
    assert_eq!(
        request.header("x-amz-checksum-sha256"),
        Some("xEQsxHv0ubQdDvRR3jc3Ta+1T8tJZpP+19IV14Wk8Bc=")
    );
    let authorization = request.header("authorization").unwrap();
    assert!(
        authorization.starts_with("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")
            && authorization.contains("/us-east-1/s3/aws4_request")
            && authorization.contains("x-amz-checksum-sha256"),
        "{authorization}"
    );
}

#[tokio::test]
async fn each_setting_has_its_request() {
    let server =
        FakeServer::start(
            |request| match (request.method.as_str(), request.query.as_str()) {
                ("GET", "cors") => Response::error(404, "NoSuchCORSConfiguration"),
                ("GET", "lifecycle") => Response::error(404, "NoSuchLifecycleConfiguration"),
                ("GET", "versioning") => Response::new(200).body("<VersioningConfiguration/>"),
                ("PUT", _) => Response::new(200),
                ("DELETE", _) => Response::new(204),
                _ => Response::new(400),
            },
        )
        .await;
    let admin = admin(&server, "bucket");
    assert_eq!(admin.cors().await.unwrap(), []);
    assert_eq!(admin.lifecycle().await.unwrap(), []);
    assert_eq!(admin.versioning().await.unwrap(), Versioning::Off);
    // Versioning that was never enabled is not disabled.
    admin.set_versioning(Versioning::Off).await.unwrap();
    admin.set_versioning(Versioning::On).await.unwrap();
    admin.set_cors(&[]).await.unwrap();
    admin.set_lifecycle(&[]).await.unwrap();
    admin
        .set_lifecycle(&[lifecycle_rule("qo-index", "ready/")])
        .await
        .unwrap();
    let requests = server.requests();
    let lines: Vec<_> = requests.iter().map(Request::line).collect();
    assert_eq!(
        lines,
        [
            "GET /bucket?cors",
            "GET /bucket?lifecycle",
            "GET /bucket?versioning",
            "GET /bucket?versioning",
            "PUT /bucket?versioning",
            "DELETE /bucket?cors",
            "GET /bucket?lifecycle",
            "DELETE /bucket?lifecycle",
            "GET /bucket?lifecycle",
            "PUT /bucket?lifecycle",
        ]
    );
    assert!(requests[4].text().contains("<Status>Enabled</Status>"));
    assert_eq!(
        requests[9].text(),
        "<LifecycleConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Rule><ID>qo-index</ID>\
         <Filter><Prefix>ready/</Prefix></Filter><Status>Enabled</Status>\
         <Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>\
         <NoncurrentVersionExpiration><NoncurrentDays>1</NoncurrentDays></NoncurrentVersionExpiration>\
         </Rule></LifecycleConfiguration>"
    );
}

#[tokio::test]
async fn rules_of_other_tools_survive() {
    const FOREIGN: &str = "<Rule><ID>cold</ID><Filter><Prefix>q/</Prefix></Filter><Status>Enabled</Status><Transition><Days>30</Days><StorageClass>GLACIER</StorageClass></Transition></Rule>";
    const OUTSIDE: &str = "<Rule><ID>logs</ID><Filter><Prefix>logs/</Prefix></Filter><Status>Enabled</Status><Expiration><Days>9</Days></Expiration></Rule>";
    const INSIDE: &str = "<Rule><ID>qo-old</ID><Filter><Prefix>q/old/</Prefix></Filter><Status>Enabled</Status><Expiration><Days>3</Days></Expiration></Rule>";
    let server = FakeServer::start(|request| match request.method.as_str() {
        "GET" => Response::new(200).body(format!(
            "<LifecycleConfiguration>{FOREIGN}{OUTSIDE}{INSIDE}</LifecycleConfiguration>"
        )),
        _ => Response::new(200),
    })
    .await;
    let admin = admin(&server, "bucket/q");
    let shown = admin.lifecycle().await.unwrap();
    assert_eq!(shown.len(), 1);
    assert_eq!(
        (shown[0].id.as_str(), shown[0].prefix.as_str()),
        ("qo-old", "old/")
    );
    admin
        .set_lifecycle(&[lifecycle_rule("qo-index", "ready/")])
        .await
        .unwrap();
    let put = server.requests().pop().unwrap().text();
    assert!(put.contains(FOREIGN) && put.contains(OUTSIDE), "{put}");
    assert!(
        !put.contains("qo-old") && put.contains("<Prefix>q/ready/</Prefix>"),
        "{put}"
    );
}

#[tokio::test]
async fn the_bucket_can_be_part_of_the_host_name() {
    let server = FakeServer::start(|_| Response::error(403, "AccessDenied")).await;
    let options = s3_options().with_var("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "true");
    let url = format!("s3://bucket/q?endpoint={}", server.endpoint);
    let store = open(&url, &options).unwrap();
    let admin = store.admin.unwrap();
    assert!(store.objects.get(&Path::from("a")).await.is_err());
    assert!(admin.get_version("a", "v").await.is_err());
    assert!(admin.cors().await.is_err());
    let lines: Vec<_> = server.requests().iter().map(Request::line).collect();
    assert_eq!(lines, ["GET /q/a?", "GET /q/a?versionId=v", "GET /?cors"]);
}

fn version(key: &str, id: &str, second: u32) -> String {
    format!(
        "<Version><Key>{key}</Key><VersionId>{id}</VersionId><IsLatest>{}</IsLatest><LastModified>2026-01-01T00:00:{second:02}.000Z</LastModified><ETag>\"{id}\"</ETag><Size>1</Size></Version>",
        second == 59
    )
}

#[tokio::test]
async fn versions_are_paged_and_only_of_this_key() {
    let page = |inner: &str| {
        Response::new(200).body(format!(
            "<ListVersionsResult><EncodingType>url</EncodingType>{inner}</ListVersionsResult>"
        ))
    };
    let more = |id: &str| {
        format!(
            "<IsTruncated>true</IsTruncated><NextKeyMarker>q%2Fa+b</NextKeyMarker><NextVersionIdMarker>{id}</NextVersionIdMarker>"
        )
    };
    let server = FakeServer::scripted(vec![
        page(&format!(
            "{}{}{}",
            more("v2"),
            version("q%2Fa+b", "v3", 59),
            version("q%2Fa+b", "v2", 30)
        )),
        page(&format!(
            "{}{}{}",
            more("x"),
            version("q%2Fa+b", "v1", 10),
            version("q%2Fa+b2", "x", 40)
        )),
    ])
    .await;
    let admin = admin(&server, "bucket/q");
    let list = admin.list_versions("a b", 10).await.unwrap();
    let ids: Vec<_> = list
        .versions
        .iter()
        .map(|version| version.version.as_str())
        .collect();
    assert_eq!(ids, ["v3", "v2", "v1"]);
    assert!(!list.truncated);
    let lines: Vec<_> = server.requests().iter().map(Request::line).collect();
    assert_eq!(
        lines,
        [
            "GET /bucket?encoding-type=url&max-keys=11&prefix=q%2Fa%20b&versions",
            "GET /bucket?encoding-type=url&max-keys=9&key-marker=q%2Fa%20b&version-id-marker=v2&prefix=q%2Fa%20b&versions",
        ]
    );
}

#[tokio::test]
async fn the_version_limit_is_respected() {
    let server = FakeServer::start(|_| {
        Response::new(200).body(format!(
            "<ListVersionsResult><IsTruncated>false</IsTruncated>{}{}</ListVersionsResult>",
            version("a", "v2", 59),
            version("a", "v1", 30)
        ))
    })
    .await;
    let admin = admin(&server, "bucket");
    let one = admin.list_versions("a", 1).await.unwrap();
    assert_eq!((one.versions.len(), one.truncated), (1, true));
    let two = admin.list_versions("a", 2).await.unwrap();
    assert_eq!((two.versions.len(), two.truncated), (2, false));
}

#[tokio::test]
async fn one_version_is_read_and_removed_by_id() {
    let server = FakeServer::scripted(vec![
        Response::new(200).body("old"),
        Response::new(204),
        Response::error(404, "NoSuchVersion"),
        Response::error(404, "NoSuchVersion"),
        Response::error(405, "MethodNotAllowed"),
    ])
    .await;
    let admin = admin(&server, "bucket/q");
    assert_eq!(admin.get_version("a b/é", "v+/1").await.unwrap(), "old");
    admin.delete_version("a b/é", "v+/1").await.unwrap();
    admin.delete_version("a", "gone").await.unwrap();
    let missing = admin.get_version("a", "gone").await.unwrap_err();
    assert!(matches!(missing, StoreError::NotFound { .. }), "{missing}");
    let marker = admin.get_version("a", "marker").await.unwrap_err();
    assert!(matches!(marker, StoreError::NotFound { .. }), "{marker}");
    let lines: Vec<_> = server.requests().iter().map(Request::line).collect();
    assert_eq!(lines[0], "GET /bucket/q/a%20b/%C3%A9?versionId=v%2B%2F1");
    assert_eq!(lines[1], "DELETE /bucket/q/a%20b/%C3%A9?versionId=v%2B%2F1");
}

#[tokio::test]
async fn failures_are_distinguished() {
    let failure = async |status, code: &str| {
        let server = FakeServer::start({
            let code = code.to_owned();
            move |_| Response::error(status, &code)
        })
        .await;
        let error = admin(&server, "bucket").versioning().await.unwrap_err();
        (error, server.requests().len())
    };
    let (error, sent) = failure(403, "AccessDenied").await;
    assert!(matches!(error, StoreError::Denied { .. }), "{error}");
    assert_eq!(sent, 1);
    let (error, sent) = failure(400, "ExpiredToken").await;
    assert!(matches!(error, StoreError::Denied { .. }), "{error}");
    assert_eq!(sent, 1);
    let (error, _) = failure(404, "NoSuchBucket").await;
    assert!(matches!(error, StoreError::NotFound { .. }), "{error}");
    for (status, code) in [
        (501, "NotImplemented"),
        (405, "MethodNotAllowed"),
        (400, "NotImplemented"),
    ] {
        let (error, sent) = failure(status, code).await;
        assert!(matches!(error, StoreError::Unsupported { .. }), "{error}");
        assert_eq!(sent, 1);
    }
    let (error, sent) = failure(503, "SlowDown").await;
    assert!(
        matches!(error, StoreError::Throttled { attempts: 4, .. }),
        "{error}"
    );
    assert_eq!(sent, 4);
    let (error, sent) = failure(500, "InternalError").await;
    assert!(
        matches!(error, StoreError::Unavailable { attempts: 4, .. }),
        "{error}"
    );
    assert_eq!(sent, 4);
}

#[tokio::test]
async fn a_transient_failure_is_retried() {
    let server = FakeServer::scripted(vec![
        Response::error(500, "InternalError"),
        Response::hang_up(),
        Response::new(200)
            .body("<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>"),
    ])
    .await;
    assert_eq!(
        admin(&server, "bucket").versioning().await.unwrap(),
        Versioning::On
    );
    assert_eq!(server.requests().len(), 3);
}

#[tokio::test]
async fn malformed_responses_are_corrupt() {
    let server = FakeServer::start(|_| Response::new(200).body("<odd")).await;
    let admin = admin(&server, "bucket");
    for error in [
        admin.versioning().await.unwrap_err(),
        admin.cors().await.unwrap_err(),
        admin.lifecycle().await.unwrap_err(),
        admin.list_versions("a", 1).await.unwrap_err(),
    ] {
        assert!(matches!(error, StoreError::Corrupt { .. }), "{error}");
    }
}

#[tokio::test]
async fn versions_on_a_real_server() {
    let bucket = SeaweedFs::shared()
        .unwrap()
        .unique_versioned_bucket("admin")
        .unwrap();
    let store = real_stores::seaweedfs(&bucket);
    let admin = store.admin.unwrap();
    assert_eq!(admin.versioning().await.unwrap(), Versioning::On);
    assert_eq!(admin.list_versions("a b+é", 10).await.unwrap().versions, []);
    let key = Path::parse("a b+é").unwrap();
    for body in ["one", "two", "three"] {
        store.objects.put(&key, body.into()).await.unwrap();
    }
    store
        .objects
        .put(&Path::parse("a b+é2").unwrap(), "other".into())
        .await
        .unwrap();
    store.objects.delete(&key).await.unwrap();

    let list = admin.list_versions("a b+é", 10).await.unwrap();
    assert_eq!(list.versions.len(), 4, "{list:?}");
    assert!(!list.truncated);
    assert!(
        list.versions[0].is_delete_marker && list.versions[0].is_latest,
        "{list:?}"
    );
    let mut bodies = Vec::new();
    for version in &list.versions[1..] {
        assert!(!version.is_delete_marker && !version.is_latest, "{list:?}");
        bodies.push(admin.get_version("a b+é", &version.version).await.unwrap());
    }
    assert_eq!(bodies, ["three", "two", "one"]);
    let marker = admin.get_version("a b+é", &list.versions[0].version).await;
    assert!(marker.is_err());

    let two = admin.list_versions("a b+é", 2).await.unwrap();
    assert_eq!((two.versions.len(), two.truncated), (2, true));
    assert_eq!(two.versions, list.versions[..2]);

    let below = admin.list_versions_below("a b", 10).await.unwrap();
    let keys: Vec<_> = below.versions.iter().map(|found| &*found.key).collect();
    assert_eq!(keys, ["a b+é", "a b+é", "a b+é", "a b+é", "a b+é2"]);
    let of_key: Vec<_> = below.versions[..4]
        .iter()
        .map(|found| &found.version)
        .collect();
    assert_eq!(of_key, list.versions.iter().collect::<Vec<_>>());
    assert!(!below.truncated);

    // Removing the marker restores the object.
    admin
        .delete_version("a b+é", &list.versions[0].version)
        .await
        .unwrap();
    let back = store
        .objects
        .get(&key)
        .await
        .unwrap()
        .bytes()
        .await
        .unwrap();
    assert_eq!(back, "three");
    let left = admin.list_versions("a b+é", 10).await.unwrap();
    assert_eq!(left.versions.len(), 3);
    assert!(left.versions[0].is_latest, "{left:?}");
}

#[tokio::test]
async fn settings_on_a_real_server() {
    let bucket = SeaweedFs::shared().unwrap().unique_bucket("admin").unwrap();
    let store = real_stores::seaweedfs(&bucket);
    let admin = store.admin.unwrap();
    assert_eq!(admin.versioning().await.unwrap(), Versioning::Off);
    admin.set_versioning(Versioning::Off).await.unwrap();
    assert_eq!(admin.versioning().await.unwrap(), Versioning::Off);
    admin.set_versioning(Versioning::On).await.unwrap();
    assert_eq!(admin.versioning().await.unwrap(), Versioning::On);
    admin.set_versioning(Versioning::Off).await.unwrap();
    assert_eq!(admin.versioning().await.unwrap(), Versioning::Suspended);

    assert_eq!(admin.cors().await.unwrap(), []);
    admin.set_cors(&[cors_rule()]).await.unwrap();
    assert_eq!(admin.cors().await.unwrap(), [cors_rule()]);
    admin.set_cors(&[]).await.unwrap();
    assert_eq!(admin.cors().await.unwrap(), []);

    assert_eq!(admin.lifecycle().await.unwrap(), []);
    let rule = LifecycleRule {
        expire_days: Some(3),
        expire_noncurrent_days: None,
        expire_delete_markers: false,
        ..lifecycle_rule("qo-workers", "workers/")
    };
    admin
        .set_lifecycle(std::slice::from_ref(&rule))
        .await
        .unwrap();
    assert_eq!(admin.lifecycle().await.unwrap(), [rule]);
    admin.set_lifecycle(&[]).await.unwrap();
    assert_eq!(admin.lifecycle().await.unwrap(), []);
}
