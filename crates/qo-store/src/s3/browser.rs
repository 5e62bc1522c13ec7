//! What a browser needs to call an S3 bucket by itself: its place, short sessions, and a folder that everybody may read.
//!
//! Sessions come from the Security Token Service: that of AWS for its own buckets, the bucket's server for others, where some
//! have one. `AssumeRole` takes a role; `GetFederationToken` narrows the rights of a user's own long-lived keys, and is AWS's
//! alone. Either way a policy of the session's own limits it to the queue's place in the bucket.

use bytes::Bytes;
use http::Method;
use object_store::aws::AwsAuthorizer;
use object_store::client::HttpRequestBody;
use quick_xml::de::from_str;
use serde::Deserialize;
use serde_json::{Value, json};

use super::request::{Answer, Request, failure_of};
use super::{S3Admin, encoding::percent_encode};
use crate::browser::{BrowserCredentials, BrowserRights, BucketLocation, SessionRequest};
use crate::error::StoreError;
use crate::http_layer::{read_bounded, read_error};

const SESSION: &str = "making a session";
const PUBLISHING: &str = "letting everybody read the dashboard";
/// The name of qo's statement in a bucket's policy. AWS allows letters and digits only.
const STATEMENT: &str = "QoDashboard";
const ANSWER_MAX_BYTES: usize = 256 * 1024;

#[derive(Deserialize)]
struct SessionAnswer {
    #[serde(alias = "AssumeRoleResult", alias = "GetFederationTokenResult")]
    result: SessionResult,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SessionResult {
    credentials: SessionCredentials,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SessionCredentials {
    access_key_id: String,
    secret_access_key: String,
    session_token: String,
    expiration: String,
}

impl S3Admin {
    pub(super) fn place(&self) -> BucketLocation {
        let settings = &self.settings;
        let bucket = settings.bucket.clone();
        let path_style = settings.bucket_url.strip_suffix(&format!("/{bucket}"));
        let endpoint = path_style.map_or_else(
            || {
                settings
                    .bucket_url
                    .replacen(&format!("://{bucket}."), "://", 1)
            },
            str::to_owned,
        );
        BucketLocation {
            endpoint,
            virtual_host: path_style.is_none(),
            bucket,
            prefix: settings.prefix.to_string(),
            region: settings.region.clone(),
            bucket_url: settings.bucket_url.clone(),
        }
    }

    pub(super) async fn credentials_as_they_are(&self) -> Result<BrowserCredentials, StoreError> {
        let credential = self.settings.credentials.get_credential().await;
        let credential = credential.map_err(|_| self.denied("no credentials could be had"))?;
        Ok(BrowserCredentials {
            access_key_id: credential.key_id.clone(),
            secret_access_key: credential.secret_key.clone(),
            session_token: credential.token.clone(),
            expires_at: None,
        })
    }

    pub(super) async fn make_session(
        &self,
        wish: &SessionRequest,
    ) -> Result<BrowserCredentials, StoreError> {
        let place = self.place();
        let is_aws = place.endpoint.ends_with(".amazonaws.com");
        // Servers other than AWS know one way, and without a role narrow the caller's own rights by it.
        let (action, name) = if is_aws && wish.role.is_none() {
            ("GetFederationToken", "Name")
        } else {
            ("AssumeRole", "RoleSessionName")
        };
        let seconds = wish.seconds.to_string();
        let policy = session_policy(&place, wish.rights).to_string();
        let mut form = vec![
            ("Action", action),
            ("Version", "2011-06-15"),
            (name, "qo-dashboard"),
            ("DurationSeconds", &seconds),
            ("Policy", &policy),
        ];
        if let Some(role) = &wish.role {
            form.push(("RoleArn", role));
        }
        let url = if is_aws {
            format!("https://sts.{}.amazonaws.com/", place.region)
        } else {
            format!("{}/", place.endpoint)
        };
        let answer = self.ask_for_session(&url, &form).await?;
        let text = String::from_utf8_lossy(&answer);
        let answer: SessionAnswer = from_str(&text).map_err(|_| self.damaged("the session"))?;
        let credentials = answer.result.credentials;
        Ok(BrowserCredentials {
            expires_at: credentials.expiration.parse().ok(),
            access_key_id: credentials.access_key_id,
            secret_access_key: credentials.secret_access_key,
            session_token: Some(credentials.session_token),
        })
    }

    async fn ask_for_session(&self, url: &str, form: &[(&str, &str)]) -> Result<Bytes, StoreError> {
        let cannot = |detail: String| StoreError::Unsupported {
            operation: SESSION,
            detail,
        };
        let pairs: Vec<_> = form
            .iter()
            .map(|(name, value)| format!("{name}={}", percent_encode(value, false)))
            .collect();
        let credential = self.settings.credentials.get_credential().await;
        let credential = credential.map_err(|_| self.denied("no credentials could be had"))?;
        let mut request = http::Request::builder()
            .method(Method::POST)
            .uri(url)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(HttpRequestBody::from(Bytes::from(pairs.join("&"))))
            .map_err(|_| cannot("the service has no valid address".to_owned()))?;
        AwsAuthorizer::new(&credential, "sts", &self.settings.region)
            .try_authorize(&mut request, None)
            .map_err(|_| cannot("the request could not be signed".to_owned()))?;
        let response = match self.settings.client.execute(request).await {
            Ok(response) => response,
            Err(error) => return Err(cannot(failure_of(&error).to_string())),
        };
        if !response.status().is_success() {
            return Err(cannot(read_error(response).await.1.to_string()));
        }
        match read_bounded(response.into_body(), ANSWER_MAX_BYTES).await {
            Ok((body, false)) => Ok(body),
            Ok((_, true)) => Err(self.damaged("the session")),
            Err(error) => Err(cannot(format!("the answer broke off: {error}"))),
        }
    }

    /// Adds a statement to the bucket's policy. What others have put there stays.
    pub(super) async fn make_readable(&self, folder: &str) -> Result<bool, StoreError> {
        let resource = format!(
            "arn:aws:s3:::{}/{}/*",
            self.settings.bucket,
            self.settings.full_key(folder)
        );
        let present = self
            .setting("policy", PUBLISHING, "NoSuchBucketPolicy")
            .await?;
        let mut policy = match &present {
            None => json!({ "Version": "2012-10-17", "Statement": [] }),
            Some(text) => serde_json::from_slice::<Value>(text)
                .map_err(|_| self.damaged("the bucket's policy"))?,
        };
        let ours = json!({
            "Sid": STATEMENT,
            "Effect": "Allow",
            "Principal": "*",
            "Action": ["s3:GetObject"],
            "Resource": [resource],
        });
        let Some(statements) = policy.get_mut("Statement").and_then(Value::as_array_mut) else {
            return Err(self.damaged("the bucket's policy"));
        };
        if statements.contains(&ours) {
            return Ok(false);
        }
        // A queue under another prefix of the bucket has its own folder, so that resources are added, not replaced.
        match statements.iter_mut().find(|one| one["Sid"] == STATEMENT) {
            Some(one) => match one.get_mut("Resource").and_then(Value::as_array_mut) {
                Some(list) if list.contains(&json!(resource)) => return Ok(false),
                Some(list) => list.push(json!(resource)),
                None => *one = ours,
            },
            None => statements.push(ours),
        }
        let request = Request {
            method: Method::PUT,
            key: "",
            query: &[("policy", "")],
            body: Some(policy.to_string()),
            operation: PUBLISHING,
        };
        match self.settings.send(&request).await? {
            Answer::Body(_) => Ok(true),
            Answer::Refused { status, code } => Err(self.refused(PUBLISHING, status, &code)),
        }
    }

    fn denied(&self, detail: &str) -> StoreError {
        StoreError::Denied {
            key: self.settings.name_of(""),
            detail: detail.to_owned(),
        }
    }
}

/// Limits a session to the queue's place in the bucket.
fn session_policy(place: &BucketLocation, rights: BrowserRights) -> Value {
    let bucket = format!("arn:aws:s3:::{}", place.bucket);
    let objects = if place.prefix.is_empty() {
        format!("{bucket}/*")
    } else {
        format!("{bucket}/{}/*", place.prefix)
    };
    let on_objects: &[&str] = match rights {
        BrowserRights::Read => &["s3:GetObject", "s3:GetObjectVersion"],
        BrowserRights::Operate => &[
            "s3:GetObject",
            "s3:GetObjectVersion",
            "s3:PutObject",
            "s3:DeleteObject",
        ],
    };
    json!({
        "Version": "2012-10-17",
        "Statement": [
            { "Effect": "Allow", "Action": on_objects, "Resource": [objects] },
            { "Effect": "Allow", "Action": ["s3:ListBucket", "s3:ListBucketVersions"], "Resource": [bucket] },
        ],
    })
}
