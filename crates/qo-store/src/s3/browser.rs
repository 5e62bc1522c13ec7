//! Direct access to an S3 bucket from a browser: its location, short-lived sessions, and a publicly readable folder.
//!
//! Sessions come from the Security Token Service: that of AWS for its own buckets, the bucket's server for others, if
//! it has one. `AssumeRole` takes a role. `GetFederationToken`, which only AWS has, derives a session from a user's
//! long-lived keys. In both cases a session policy limits the session to the queue's part of the bucket.

use bytes::Bytes;
use http::Method;
use object_store::aws::AwsAuthorizer;
use object_store::client::HttpRequestBody;
use quick_xml::de::from_str;
use serde::Deserialize;
use serde_json::{Value, json};

use super::request::{AdminReply, Request, failure_of};
use super::{S3Admin, encoding::percent_encode};
use crate::browser::{BrowserCredentials, BrowserRights, BucketLocation, SessionRequest};
use crate::error::StoreError;
use crate::http_layer::{read_bounded, read_error};

const SESSION: &str = "creating a browser session";
const PUBLISHING: &str = "making the dashboard publicly readable";
/// The id of qo's statement in the bucket's policy. AWS allows only letters and digits.
const STATEMENT: &str = "QoDashboard";
const RESPONSE_MAX_BYTES: usize = 256 * 1024;

#[derive(Deserialize)]
struct SessionResponse {
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
    pub(super) fn location(&self) -> BucketLocation {
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

    pub(super) async fn signing_credentials(&self) -> Result<BrowserCredentials, StoreError> {
        let credential = self.settings.credentials.get_credential().await;
        let credential = credential.map_err(|_| self.denied("no credentials are available"))?;
        Ok(BrowserCredentials {
            access_key_id: credential.key_id.clone(),
            secret_access_key: credential.secret_key.clone(),
            session_token: credential.token.clone(),
            expires_at: None,
        })
    }

    pub(super) async fn create_session(
        &self,
        request: &SessionRequest,
    ) -> Result<BrowserCredentials, StoreError> {
        let location = self.location();
        let is_aws = location.endpoint.ends_with(".amazonaws.com");
        // Servers other than AWS only support `AssumeRole`. Without a role, it gives a subset of the caller's
        // own permissions.
        let (action, name) = if is_aws && request.role.is_none() {
            ("GetFederationToken", "Name")
        } else {
            ("AssumeRole", "RoleSessionName")
        };
        let seconds = request.seconds.to_string();
        let policy = session_policy(&location, request.rights).to_string();
        let mut form = vec![
            ("Action", action),
            ("Version", "2011-06-15"),
            (name, "qo-dashboard"),
            ("DurationSeconds", &seconds),
            ("Policy", &policy),
        ];
        if let Some(role) = &request.role {
            form.push(("RoleArn", role));
        }
        let url = if is_aws {
            format!("https://sts.{}.amazonaws.com/", location.region)
        } else {
            format!("{}/", location.endpoint)
        };
        let response = self.request_session(&url, &form).await?;
        let text = String::from_utf8_lossy(&response);
        let response: SessionResponse = from_str(&text).map_err(|_| self.damaged("the session"))?;
        let credentials = response.result.credentials;
        Ok(BrowserCredentials {
            expires_at: credentials.expiration.parse().ok(),
            access_key_id: credentials.access_key_id,
            secret_access_key: credentials.secret_access_key,
            session_token: Some(credentials.session_token),
        })
    }

    async fn request_session(&self, url: &str, form: &[(&str, &str)]) -> Result<Bytes, StoreError> {
        let cannot = |detail: String| StoreError::Unsupported {
            operation: SESSION,
            detail,
        };
        let pairs: Vec<_> = form
            .iter()
            .map(|(name, value)| format!("{name}={}", percent_encode(value, false)))
            .collect();
        let credential = self.settings.credentials.get_credential().await;
        let credential = credential.map_err(|_| self.denied("no credentials are available"))?;
        let mut request = http::Request::builder()
            .method(Method::POST)
            .uri(url)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(HttpRequestBody::from(Bytes::from(pairs.join("&"))))
            .map_err(|_| cannot("the service has no valid URL".to_owned()))?;
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
        match read_bounded(response.into_body(), RESPONSE_MAX_BYTES).await {
            Ok((body, false)) => Ok(body),
            Ok((_, true)) => Err(self.damaged("the session")),
            Err(error) => Err(cannot(format!("the response was interrupted: {error}"))),
        }
    }

    /// Adds a statement to the bucket's policy. Other statements stay.
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
        // A queue under another prefix of the bucket has its own folder, so resources are added, not
        // replaced.
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
            AdminReply::Body(_) => Ok(true),
            AdminReply::Refused { status, code } => Err(self.refused(PUBLISHING, status, &code)),
        }
    }

    fn denied(&self, detail: &str) -> StoreError {
        StoreError::Denied {
            key: self.settings.name_of(""),
            detail: detail.to_owned(),
        }
    }
}

/// Limits a session to the queue's part of the bucket.
fn session_policy(location: &BucketLocation, rights: BrowserRights) -> Value {
    let bucket = format!("arn:aws:s3:::{}", location.bucket);
    let objects = if location.prefix.is_empty() {
        format!("{bucket}/*")
    } else {
        format!("{bucket}/{}/*", location.prefix)
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
