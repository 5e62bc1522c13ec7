//! Opening stores: which settings apply, what is rejected, and the error messages.
#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

use std::fs;

use object_store::ObjectStoreExt;
use object_store::path::Path;
use qo_store::runtime::TokioRuntime;
use qo_store::{
    CredentialSource, OpenError, OpenOptions, Store, StoreKind, StoreSource, check, open,
    open_default,
};
use qo_testkit::SeaweedFs;
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::fake_server::{FakeServer, Response};
use crate::http_layer::s3_options;
use crate::real_stores::{empty, seaweedfs_options};

/// A home directory with these AWS files.
fn home(credentials: &str, config: &str) -> (TempDir, OpenOptions) {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join(".aws")).unwrap();
    fs::write(directory.path().join(".aws/credentials"), credentials).unwrap();
    fs::write(directory.path().join(".aws/config"), config).unwrap();
    let options = empty().with_var("HOME", directory.path().to_str().unwrap());
    (directory, options)
}

fn open_error(url: &str, options: &OpenOptions) -> String {
    let text = open(url, options).unwrap_err().to_string();
    assert_eq!(text.lines().count(), 1, "{text}");
    text
}

async fn check_error(store: &Store) -> String {
    let checked = check(store, &*TokioRuntime::shared()).await;
    checked.unwrap_err().to_string()
}

#[tokio::test]
async fn unnamed_memory_stores_are_separate() {
    let key = Path::from("key");
    let (first, second) = (
        open("memory:", &empty()).unwrap(),
        open("memory:", &empty()).unwrap(),
    );
    first.objects.put(&key, "x".into()).await.unwrap();
    assert!(second.objects.get(&key).await.is_err());
    let (first, second) = (
        open("memory:opening", &empty()).unwrap(),
        open("memory:opening", &empty()).unwrap(),
    );
    first.objects.put(&key, "x".into()).await.unwrap();
    let read = second.objects.get(&key).await.unwrap();
    assert_eq!(read.bytes().await.unwrap(), "x");
    check(&second, &*TokioRuntime::shared()).await.unwrap();
    assert_eq!(second.description, "memory:opening");
}

#[tokio::test]
async fn the_environment_is_read_in_order() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().to_str().unwrap();
    let nothing = empty()
        .with_var("XDG_DATA_HOME", data)
        .with_var("QO_STORE", "");
    let store = open_default(&nothing).unwrap();
    let path = directory.path().join("qo/qo.db");
    assert_eq!(store.source, StoreSource::DataDirectory(path.clone()));
    assert_eq!(store.kind, StoreKind::Sqlite);
    assert!(path.is_file());
    store
        .objects
        .put(&Path::from("a"), "x".into())
        .await
        .unwrap();
    check(&store, &*TokioRuntime::shared()).await.unwrap();

    let bucket = s3_options()
        .with_var("S3_BUCKET", "my-bucket")
        .with_var("S3_ENDPOINT", "http://127.0.0.1:9000")
        .with_var("AWS_ENDPOINT_URL", "http://127.0.0.1:1");
    let store = open_default(&bucket).unwrap();
    assert_eq!(store.source, StoreSource::S3Bucket);
    assert_eq!(store.description, "s3://my-bucket at http://127.0.0.1:9000");
    let store = open_default(&bucket.with_var("QO_STORE", "memory:")).unwrap();
    assert_eq!(
        (store.source, store.kind),
        (StoreSource::QoStore, StoreKind::Memory)
    );

    assert_eq!(
        open_default(&empty()).unwrap_err(),
        OpenError::NoDataDirectory
    );
    if cfg!(target_os = "linux") {
        let store = open_default(&empty().with_var("HOME", data)).unwrap();
        let path = directory.path().join(".local/share/qo/qo.db");
        assert_eq!(store.source, StoreSource::DataDirectory(path));
    }
}

#[test]
fn an_unwritable_path_is_a_one_line_error() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "not a directory").unwrap();
    let text = open_error(&format!("sqlite:{}/qo.db", file.display()), &empty());
    assert!(text.starts_with("cannot write "), "{text}");
    let text = open_error("sqlite:/proc/qo/qo.db", &empty());
    assert!(text.starts_with("cannot write /proc/qo/qo.db"), "{text}");
    let text = open_error(&format!("sqlite:{}", file.display()), &empty());
    assert!(text.contains("is not an SQLite database"), "{text}");
}

#[tokio::test]
async fn sqlite_finds_the_home_directory() {
    let directory = tempfile::tempdir().unwrap();
    let options = empty().with_var("HOME", directory.path().to_str().unwrap());
    let store = open("sqlite:~/mine.db", &options).unwrap();
    assert!(directory.path().join("mine.db").is_file());
    assert!(store.admin.is_some());
}

#[test]
fn s3_settings_have_a_precedence() {
    let (_home, options) = home(
        "[default]\naws_access_key_id=i\naws_secret_access_key=s\n",
        "[default]\nregion=eu-west-9\nendpoint_url=http://127.0.0.1:5\n",
    );
    let at = |url: &str, options: &OpenOptions| open(url, options).unwrap().description;
    assert_eq!(at("s3://b/p", &options), "s3://b/p at http://127.0.0.1:5");
    let options = options.with_var("AWS_ENDPOINT_URL", "http://127.0.0.1:4");
    assert_eq!(at("s3://b", &options), "s3://b at http://127.0.0.1:4");
    let options = options.with_var("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:3");
    assert_eq!(at("s3://b", &options), "s3://b at http://127.0.0.1:3");
    let options = options.with_var("S3_ENDPOINT", "http://127.0.0.1:2");
    assert_eq!(at("s3://b", &options), "s3://b at http://127.0.0.1:2");
    assert_eq!(
        at("s3://b?endpoint=http://127.0.0.1:1", &options),
        "s3://b at http://127.0.0.1:1"
    );

    let (_home, options) = home(
        "[default]\naws_access_key_id=i\naws_secret_access_key=s\n",
        "[default]\nregion=r5\n",
    );
    let in_region = |options: &_| at("s3://b", options).replace("s3://b at https://b.s3.", "");
    assert_eq!(in_region(&options), "r5.amazonaws.com");
    let mut options = options;
    for (variable, region) in [
        ("AWS_DEFAULT_REGION", "r4"),
        ("AWS_REGION", "r3"),
        ("S3_REGION", "r2"),
    ] {
        options = options.with_var(variable, region);
        assert_eq!(in_region(&options), format!("{region}.amazonaws.com"));
    }
    assert_eq!(
        at("s3://b.c?region=r1", &options),
        "s3://b.c at https://s3.r1.amazonaws.com"
    );
    assert_eq!(
        at("s3://b", &s3_options()),
        "s3://b at https://b.s3.us-east-1.amazonaws.com"
    );
}

#[test]
fn s3_credentials_have_a_precedence() {
    let source = |url: &str, options: &OpenOptions| open(url, options).unwrap().credentials;
    let (_home, with_files) = home(
        "[default]\naws_access_key_id=i\naws_secret_access_key=s\n[dev]\naws_access_key_id=i\naws_secret_access_key=s\naws_session_token=t\n",
        "[profile tool]\ncredential_process=true\n",
    );
    let with_keys = with_files
        .clone()
        .with_var("AWS_ACCESS_KEY_ID", "i")
        .with_var("AWS_SECRET_ACCESS_KEY", "s");
    let web = |options: OpenOptions| {
        options
            .with_var("AWS_WEB_IDENTITY_TOKEN_FILE", "/token")
            .with_var("AWS_ROLE_ARN", "arn:aws:iam::1:role/r")
    };
    let container =
        |options: OpenOptions| options.with_var("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "/creds");
    let everything = web(container(with_keys));
    assert_eq!(
        source("s3://b?profile=dev", &everything),
        CredentialSource::AwsProfile("dev".to_owned())
    );
    assert_eq!(
        source("s3://b", &everything),
        CredentialSource::AwsEnvironment
    );
    let without_keys = web(container(with_files.clone()));
    assert_eq!(
        source("s3://b", &without_keys),
        CredentialSource::AwsProfile("default".to_owned())
    );
    assert_eq!(
        source("s3://b", &without_keys.with_var("AWS_PROFILE", "tool")),
        CredentialSource::AwsProcess("tool".to_owned())
    );
    assert_eq!(
        source("s3://b", &web(container(empty()))),
        CredentialSource::AwsWebIdentity
    );
    assert_eq!(
        source("s3://b", &container(empty())),
        CredentialSource::AwsContainer
    );
    assert_eq!(source("s3://b", &empty()), CredentialSource::AwsInstance);
    // A default profile with only a region, or one that needs a login, does not prevent using a role.
    let (_home, region_only) = home("", "[default]\nregion=eu-west-1\n");
    assert_eq!(
        source("s3://b", &container(region_only)),
        CredentialSource::AwsContainer
    );
    let (_home, sso) = home("", "[default]\nsso_session=s\n");
    assert_eq!(
        source("s3://b", &web(sso)),
        CredentialSource::AwsWebIdentity
    );
}

#[test]
fn every_s3_error_is_one_line_that_says_what_to_do() {
    let (home, options) = home(
        "[half]\naws_access_key_id=i\n[odd]\naws_access_key_id=a b\naws_secret_access_key=s\n",
        "[profile sso]\nsso_session=x\n[profile role]\nrole_arn=x\nsource_profile=y\n[profile empty]\n",
    );
    let aws = home.path().join(".aws");
    assert_eq!(
        open_error("s3://b?profile=none", &options),
        format!(
            "there is no AWS profile \"none\" in {0}/credentials or {0}/config: add it with 'aws configure --profile none', or name another one",
            aws.display()
        )
    );
    assert_eq!(
        open_error("s3://b?profile=none", &options),
        open_error("s3://b", &options.clone().with_var("AWS_PROFILE", "none"))
    );
    assert_eq!(
        open_error("s3://b?profile=sso", &options),
        "AWS profile \"sso\" uses sso_session (IAM Identity Center), which qo does not support: run 'aws configure export-credentials --profile sso --format env' and use its output, or give the profile a credential_process"
    );
    assert!(
        open_error("s3://b?profile=role", &options).contains("uses role_arn (a role to assume)")
    );
    assert_eq!(
        open_error("s3://b?profile=empty", &options),
        "AWS profile \"empty\" cannot be used: it has neither aws_access_key_id and aws_secret_access_key nor a credential_process"
    );
    assert_eq!(
        open_error("s3://b?profile=half", &options),
        "AWS profile \"half\": its aws_access_key_id is set but aws_secret_access_key is not: set both, or neither"
    );
    assert_eq!(
        open_error("s3://b?profile=odd", &options),
        "AWS profile \"odd\": its aws_access_key_id cannot be used: it contains a space, a line break or a non-ASCII character"
    );
    assert_eq!(
        open_error("s3://b", &empty().with_var("AWS_SECRET_ACCESS_KEY", "s")),
        "the environment variable AWS_SECRET_ACCESS_KEY is set but AWS_ACCESS_KEY_ID is not: set both, or neither"
    );
    assert_eq!(
        open_error(
            "s3://b",
            &s3_options().with_var("AWS_SESSION_TOKEN", "a\nb")
        ),
        "the environment variable AWS_SESSION_TOKEN cannot be used: it contains a space, a line break or a non-ASCII character"
    );
    assert_eq!(
        open_error(
            "s3://b",
            &empty().with_var("AWS_EC2_METADATA_DISABLED", "true")
        ),
        "there are no credentials for s3://b at https://b.s3.us-east-1.amazonaws.com: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile with AWS_PROFILE"
    );
    assert_eq!(
        open_error("s3://b?region=a.b", &s3_options()),
        "the parameter region cannot be used: expected a region such as eu-central-1"
    );
    assert_eq!(
        open_error(
            "s3://b",
            &s3_options().with_var("S3_ENDPOINT", "localhost:9000")
        ),
        "S3_ENDPOINT cannot be used: expected an endpoint such as https://s3.example.org or http://127.0.0.1:9000"
    );
    assert!(
        open_error("s3://b", &s3_options().with_var("AWS_TIMEOUT", "soon"))
            .ends_with("cannot be used: check the AWS_* environment variables")
    );
    assert_eq!(
        open_error(
            "s3://b",
            &s3_options().with_var("AWS_UNSIGNED_PAYLOAD", "perhaps")
        ),
        "the settings for s3://b at https://b.s3.us-east-1.amazonaws.com cannot be used: check the AWS_* environment variables"
    );
}

#[test]
fn every_gcs_and_azure_error_is_one_line_that_says_what_to_do() {
    assert_eq!(
        open_error("az://c", &empty()),
        "there are no credentials for az://c: set AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY or another of Azure's credentials"
    );
    let account = empty().with_var("AZURE_STORAGE_ACCOUNT_NAME", "a");
    assert_eq!(
        open_error(
            "az://c",
            &account.with_var("AZURE_STORAGE_ACCOUNT_KEY", "no base64!")
        ),
        "the settings for az://c at https://a.blob.core.windows.net cannot be used: check the AZURE_* environment variables"
    );
    assert_eq!(
        open_error(
            "gs://b",
            &empty().with_var("GOOGLE_SERVICE_ACCOUNT", "/nonexistent/key.json")
        ),
        "cannot read /nonexistent/key.json: the file in GOOGLE_SERVICE_ACCOUNT does not exist"
    );
    assert_eq!(
        open_error(
            "gs://b",
            &empty().with_var("GOOGLE_SERVICE_ACCOUNT_KEY", "{\"private_key\":7}")
        ),
        "the settings for gs://b at https://storage.googleapis.com cannot be used: check the GOOGLE_* environment variables"
    );
}

#[tokio::test]
async fn every_check_error_is_one_line_that_says_what_to_do() {
    let found = async |response: Response| {
        // Temporary failures are retried.
        let server = FakeServer::scripted(vec![response; 10]).await;
        let store = open(
            &format!("s3://b?endpoint={}", server.endpoint),
            &s3_options(),
        )
        .unwrap();
        let text = check_error(&store).await;
        assert_eq!(text.lines().count(), 1, "{text}");
        text.replace(&server.endpoint, "SERVER")
    };
    assert_eq!(
        found(Response::error(404, "NoSuchBucket")).await,
        "s3://b at SERVER: there is no bucket \"b\": create it with 'aws s3 mb s3://b --endpoint-url SERVER', or name another one"
    );
    assert_eq!(
        found(Response::new(404)).await,
        "s3://b at SERVER: the endpoint returned 404 without a reason: check that it is the endpoint of a store, and check the bucket's name"
    );
    for (status, code) in [
        (403, "InvalidAccessKeyId"),
        (403, "SignatureDoesNotMatch"),
        (400, "ExpiredToken"),
        (403, "AccessDenied"),
    ] {
        assert_eq!(
            found(Response::error(status, code)).await,
            format!(
                "s3://b at SERVER: the store rejected the credentials ({code}): check the environment variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, and that they may list, read and write this bucket"
            )
        );
    }
    let skewed = found(
        Response::error(403, "RequestTimeTooSkewed")
            .header("date", "Sun, 06 Nov 1994 08:49:37 GMT"),
    );
    let skewed = skewed.await;
    assert!(
        skewed.starts_with("s3://b at SERVER: this machine's clock differs from the store's by ")
            && skewed.ends_with(" s, and the store accepts at most 900 s: correct the clock"),
        "{skewed}"
    );
    assert_eq!(
        found(Response::error(400, "AuthorizationHeaderMalformed")).await,
        "s3://b at SERVER: the bucket is in another region (the store returned 400 AuthorizationHeaderMalformed: because of AuthorizationHeaderMalformed): set AWS_REGION, or ?region= in the store URL"
    );
    assert_eq!(
        found(Response::error(500, "InternalError")).await,
        "s3://b at SERVER: the store returned 500 InternalError: because of InternalError"
    );
}

#[tokio::test]
async fn an_unreachable_endpoint_is_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let store = open(&format!("s3://b?endpoint=http://{address}"), &s3_options()).unwrap();
    let text = check_error(&store).await;
    assert!(
        text.starts_with(&format!(
            "s3://b at http://{address}: cannot reach http://{address}: could not connect ("
        )) && text.ends_with("check the endpoint and the network"),
        "{text}"
    );
}

#[tokio::test]
async fn unavailable_credentials_are_reported() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = listener.local_addr().unwrap();
    drop(listener);
    let server = FakeServer::scripted(Vec::new()).await;
    let url = format!("s3://b?endpoint={}", server.endpoint);
    let options = empty().with_var("AWS_METADATA_ENDPOINT", format!("http://{silent}"));
    let text = check_error(&open(&url, &options).unwrap()).await;
    assert_eq!(
        text.replace(&server.endpoint, "SERVER"),
        format!(
            "s3://b at SERVER: the machine's metadata service returned no credentials (the credential endpoint {silent} did not respond): set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile with AWS_PROFILE"
        )
    );
    let (_home, options) = home("[default]\ncredential_process = exit 7\n", "");
    let text = check_error(&open(&url, &options).unwrap()).await;
    assert!(
        text.contains("the credential_process of AWS profile \"default\" returned no credentials"),
        "{text}"
    );
    assert_eq!(server.requests().len(), 0);
}

#[tokio::test]
async fn a_real_server_distinguishes_wrong_from_right() {
    let server = SeaweedFs::shared().unwrap();
    let bucket = server.unique_bucket("opening").unwrap();
    let options = seaweedfs_options();
    let store = open(&format!("s3://{bucket}/p"), &options).unwrap();
    check(&store, &*TokioRuntime::shared()).await.unwrap();
    store
        .objects
        .put(&Path::from("a"), "x".into())
        .await
        .unwrap();
    assert!(
        store.clock.uncertainty_ms().is_some(),
        "the server's date must be observed"
    );
    assert!(store.clock.offset_ms().abs() < 2_000);

    let missing = open("s3://no-such-bucket-here", &options).unwrap();
    let text = check_error(&missing).await;
    assert!(
        text.contains("there is no bucket \"no-such-bucket-here\""),
        "{text}"
    );
    let wrong = open(
        &format!("s3://{bucket}"),
        &options.clone().with_var("AWS_SECRET_ACCESS_KEY", "wrong"),
    )
    .unwrap();
    let text = check_error(&wrong).await;
    assert!(
        text.contains("the store rejected the credentials (SignatureDoesNotMatch)"),
        "{text}"
    );
    let unknown = open(
        &format!("s3://{bucket}"),
        &options.with_var("AWS_ACCESS_KEY_ID", "unknown"),
    )
    .unwrap();
    let text = check_error(&unknown).await;
    assert!(
        text.contains("the store rejected the credentials (InvalidAccessKeyId)"),
        "{text}"
    );
}
