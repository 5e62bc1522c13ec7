//! The credentials that sign requests to S3.
//!
//! They come from the first available of: the profile in the URL, the keys in the environment, the profile in
//! `AWS_PROFILE` or `default`, a web identity, the container, the machine. `object_store` fetches the last three.

use std::sync::Arc;

use object_store::StaticCredentialProvider;
use object_store::aws::{AwsCredential, AwsCredentialProvider};

use super::address::BucketAddress;
use super::cloud::is_header_value;
use super::error::OpenError;
use super::options::OpenOptions;
use super::process::ProcessCredentials;
use super::profile::{Profile, ProfileFiles};
use crate::store::CredentialSource;

/// A profile with its name, and whether it takes precedence over credentials in the environment.
pub(super) struct NamedProfile {
    name: String,
    pub(super) profile: Profile,
    is_explicit: bool,
}

pub(super) fn find_profile(
    address: &BucketAddress,
    options: &OpenOptions,
    files: &ProfileFiles,
) -> Result<Option<NamedProfile>, OpenError> {
    let named = |name: &str, is_explicit| {
        files.profile(name).map(|profile| {
            profile.map(|profile| NamedProfile {
                name: name.to_owned(),
                profile,
                is_explicit,
            })
        })
    };
    let required = |name: &str, is_explicit| {
        named(name, is_explicit)?
            .map(Some)
            .ok_or_else(|| OpenError::MissingProfile {
                profile: name.chars().take(64).collect(),
                credentials_file: files.credentials.clone(),
                config_file: files.config.clone(),
            })
    };
    if let Some(name) = address.parameter("profile") {
        return required(name, true);
    }
    if let Some(name) = options.var("AWS_PROFILE") {
        return required(name, false);
    }
    match named("default", false) {
        // The file was not requested, and with keys in the environment it is not needed.
        Err(_) if options.var("AWS_ACCESS_KEY_ID").is_some() => Ok(None),
        result => result,
    }
}

/// The source of the credentials, and their provider unless `object_store` creates it.
pub(super) struct Credentials {
    pub(super) source: CredentialSource,
    pub(super) provider: Option<AwsCredentialProvider>,
}

pub(super) fn credentials(
    options: &OpenOptions,
    profile: Option<&NamedProfile>,
    store: &str,
) -> Result<Credentials, OpenError> {
    if let Some(profile) = profile
        && profile.is_explicit
    {
        return of_profile(profile, options)?.ok_or_else(|| OpenError::BadSetting {
            setting: format!("AWS profile {:?}", profile.name),
            reason: "it has neither aws_access_key_id and aws_secret_access_key nor a credential_process",
        });
    }
    let keys = keys(
        options.var("AWS_ACCESS_KEY_ID"),
        options.var("AWS_SECRET_ACCESS_KEY"),
        options.var("AWS_SESSION_TOKEN"),
        "the environment variable",
        [
            "AWS_ACCESS_KEY_ID",
            "AWS_SECRET_ACCESS_KEY",
            "AWS_SESSION_TOKEN",
        ],
    )?;
    if let Some(provider) = keys {
        return Ok(Credentials {
            source: CredentialSource::AwsEnvironment,
            provider: Some(provider),
        });
    }
    let without_provider = |source| {
        Ok(Credentials {
            source,
            provider: None,
        })
    };
    let web_identity = options.var("AWS_WEB_IDENTITY_TOKEN_FILE").is_some()
        && options.var("AWS_ROLE_ARN").is_some();
    let container = options
        .var("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI")
        .is_some()
        || (options.var("AWS_CONTAINER_CREDENTIALS_FULL_URI").is_some()
            && options
                .var("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
                .is_some());
    if let Some(profile) = profile {
        match of_profile(profile, options) {
            Ok(Some(credentials)) => return Ok(credentials),
            Ok(None) => {}
            // An unsupported default profile is ignored if a role is configured.
            Err(OpenError::UnsupportedProfile { .. })
                if (web_identity || container) && options.var("AWS_PROFILE").is_none() => {}
            Err(error) => return Err(error),
        }
    }
    if web_identity {
        without_provider(CredentialSource::AwsWebIdentity)
    } else if container {
        without_provider(CredentialSource::AwsContainer)
    } else if options.flag("AWS_EC2_METADATA_DISABLED") {
        Err(OpenError::NoCredentials {
            store: store.to_owned(),
            advice: "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or name a profile with AWS_PROFILE",
        })
    } else {
        without_provider(CredentialSource::AwsInstance)
    }
}

/// The credentials of a profile, or `None` if it has none.
fn of_profile(
    named: &NamedProfile,
    options: &OpenOptions,
) -> Result<Option<Credentials>, OpenError> {
    let NamedProfile { name, profile, .. } = named;
    if let Some(what) = profile.unsupported() {
        return Err(OpenError::UnsupportedProfile {
            profile: name.clone(),
            what,
        });
    }
    let keys = keys(
        profile.get("aws_access_key_id"),
        profile.get("aws_secret_access_key"),
        profile.get("aws_session_token"),
        &format!("AWS profile {name:?}: its"),
        [
            "aws_access_key_id",
            "aws_secret_access_key",
            "aws_session_token",
        ],
    )?;
    if let Some(provider) = keys {
        return Ok(Some(Credentials {
            source: CredentialSource::AwsProfile(name.clone()),
            provider: Some(provider),
        }));
    }
    Ok(profile
        .get("credential_process")
        .map(|command| Credentials {
            source: CredentialSource::AwsProcess(name.clone()),
            provider: Some(Arc::new(ProcessCredentials::new(
                name,
                command,
                Arc::clone(options.runtime()),
            ))),
        }))
}

/// A provider of a pair of keys. Both must be set or neither, and they must be valid header values.
fn keys(
    key_id: Option<&str>,
    secret: Option<&str>,
    token: Option<&str>,
    origin: &str,
    names: [&str; 3],
) -> Result<Option<AwsCredentialProvider>, OpenError> {
    let incomplete = |present: &str, missing: &str| OpenError::IncompleteCredentials {
        present: format!("{origin} {present}"),
        missing: missing.to_owned(),
    };
    let (key_id, secret_key) = match (key_id, secret) {
        (None, None) => return Ok(None),
        (Some(_), None) => return Err(incomplete(names[0], names[1])),
        (None, Some(_)) => return Err(incomplete(names[1], names[0])),
        (Some(key_id), Some(secret)) => (key_id, secret),
    };
    for (name, value) in [(names[0], Some(key_id)), (names[2], token)] {
        if !value.is_none_or(is_header_value) {
            return Err(OpenError::BadSetting {
                setting: format!("{origin} {name}"),
                reason: "it contains a space, a line break or a non-ASCII character",
            });
        }
    }
    Ok(Some(Arc::new(StaticCredentialProvider::new(
        AwsCredential {
            key_id: key_id.to_owned(),
            secret_key: secret_key.to_owned(),
            token: token.map(str::to_owned),
        },
    ))))
}
