//! Browser access to an S3 bucket.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use std::sync::Arc;

use qo_store::admin::BucketAdmin;
use qo_store::browser::{BrowserRights, SessionRequest};
use qo_store::{StoreError, open};
use serde_json::Value;

use crate::fake_server::{FakeServer, Response};
use crate::http_layer::s3_options;

fn admin(url: &str) -> Arc<dyn BucketAdmin> {
    open(url, &s3_options()).unwrap().admin.unwrap()
}

fn on(server: &FakeServer) -> Arc<dyn BucketAdmin> {
    admin(&format!(
        "s3://bucket/some/prefix?endpoint={}",
        server.endpoint
    ))
}

fn session_request(role: Option<&str>) -> SessionRequest {
    SessionRequest {
        rights: BrowserRights::Read,
        seconds: 900,
        role: role.map(str::to_owned),
    }
}

#[test]
fn the_location_is_addressable_by_a_browser() {
    let aws = admin("s3://my-bucket/p?region=eu-central-1")
        .browser_location()
        .unwrap();
    assert_eq!(aws.endpoint, "https://s3.eu-central-1.amazonaws.com");
    assert!(aws.virtual_host);
    assert_eq!(
        aws.url_of("ui/index.html"),
        "https://my-bucket.s3.eu-central-1.amazonaws.com/p/ui/index.html"
    );
    let own = admin("s3://my-bucket?endpoint=http://127.0.0.1:9000")
        .browser_location()
        .unwrap();
    assert_eq!(own.endpoint, "http://127.0.0.1:9000");
    assert!(!own.virtual_host);
    assert_eq!(
        own.url_of("ui/index.html"),
        "http://127.0.0.1:9000/my-bucket/ui/index.html"
    );
}

#[tokio::test]
async fn a_session_has_only_the_requested_permissions() {
    let document = "<AssumeRoleResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\"><AssumeRoleResult>\
        <Credentials><AccessKeyId>ASIA1</AccessKeyId><SecretAccessKey>s</SecretAccessKey>\
        <SessionToken>t</SessionToken><Expiration>2026-11-16T01:00:00Z</Expiration></Credentials>\
        <PackedPolicySize>6</PackedPolicySize></AssumeRoleResult>\
        <ResponseMetadata><RequestId>r</RequestId></ResponseMetadata></AssumeRoleResponse>";
    let server = FakeServer::scripted(vec![Response::new(200).body(document)]).await;
    let session = on(&server)
        .browser_session(&session_request(Some("arn:aws:iam::1:role/x")))
        .await
        .unwrap();
    assert_eq!(session.access_key_id, "ASIA1");
    assert_eq!(session.session_token.as_deref(), Some("t"));
    assert_eq!(
        session.expires_at.unwrap().to_string(),
        "2026-11-16T01:00:00.000Z"
    );
    assert!(
        !format!("{session:?}").contains("ASIA1"),
        "the credentials must not be printed"
    );

    let requests = server.requests();
    assert_eq!(requests[0].line(), "POST /?");
    assert!(
        requests[0]
            .header("authorization")
            .unwrap()
            .contains("/sts/aws4_request")
    );
    let form: std::collections::BTreeMap<_, _> = url::form_urlencoded::parse(&requests[0].body)
        .into_owned()
        .collect();
    assert_eq!(form["Action"], "AssumeRole");
    assert_eq!(form["DurationSeconds"], "900");
    assert_eq!(form["RoleArn"], "arn:aws:iam::1:role/x");
    let policy: Value = serde_json::from_str(&form["Policy"]).unwrap();
    let objects = policy["Statement"][1]["Resource"].as_array().unwrap();
    assert!(
        objects.contains(&"arn:aws:s3:::bucket/some/prefix/tasks/*".into()),
        "{policy}"
    );
    assert!(!policy.to_string().contains("s3:Put"), "{policy}");
}

#[tokio::test]
async fn a_server_without_sessions_is_unsupported() {
    let refusal = "<ErrorResponse><Error><Code>NotImplemented</Code><Message>no</Message></Error></ErrorResponse>";
    let server = FakeServer::scripted(vec![Response::new(501).body(refusal)]).await;
    let error = on(&server)
        .browser_session(&session_request(None))
        .await
        .unwrap_err();
    assert!(matches!(error, StoreError::Unsupported { .. }), "{error}");
}

#[tokio::test]
async fn publishing_a_folder_keeps_other_policy_statements() {
    let theirs = r#"{"Version":"2012-10-17","Statement":[{"Sid":"Theirs","Effect":"Deny","Principal":"*","Action":"s3:*","Resource":"arn:aws:s3:::bucket/x"}]}"#;
    let server =
        FakeServer::scripted(vec![Response::new(200).body(theirs), Response::new(204)]).await;
    assert!(on(&server).publish("ui").await.unwrap());
    let requests = server.requests();
    assert_eq!(requests[1].line(), "PUT /bucket?policy");
    let written = requests[1].text();
    let policy: Value = serde_json::from_str(&written).unwrap();
    assert_eq!(policy["Statement"][0]["Sid"], "Theirs");
    assert_eq!(
        policy["Statement"][1]["Resource"][0],
        "arn:aws:s3:::bucket/some/prefix/ui/*"
    );

    // A second call changes nothing.
    let server = FakeServer::scripted(vec![Response::new(200).body(written)]).await;
    assert!(!on(&server).publish("ui").await.unwrap());
    assert_eq!(server.requests().len(), 1);
}
