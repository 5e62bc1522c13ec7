//! Profiles in the AWS configuration files.
//!
//! The format is the INI dialect of the AWS tools. Sections are `[name]` in the credentials file, and `[profile name]` and
//! `[default]` in the configuration file. `#` and `;` start a comment at the start of a line, and after white space in a
//! value. A line that starts with white space continues the property above it; such lines are skipped, because nothing
//! that qo reads is nested. The credentials file takes precedence over the configuration file.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::config_file::read_text;
use super::error::OpenError;
use super::options::OpenOptions;

/// The properties of one profile, from both files.
#[derive(Default)]
pub(crate) struct Profile {
    properties: BTreeMap<String, String>,
}

impl Profile {
    /// A property that is set and not empty.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.properties
            .get(name)
            .map(String::as_str)
            .filter(|value| !value.is_empty())
    }

    /// The setting by which this profile gets its credentials, if qo does not support it.
    pub(crate) fn unsupported(&self) -> Option<&'static str> {
        if self.get("role_arn").is_some() {
            // A role takes precedence over keys, which are then those of the caller that assumes it. Using the keys
            // directly would act as the wrong identity.
            return Some("role_arn (a role to assume)");
        }
        if self.get("aws_access_key_id").is_some() || self.get("credential_process").is_some() {
            return None;
        }
        if self.get("sso_session").is_some() || self.get("sso_start_url").is_some() {
            return Some("sso_session (IAM Identity Center)");
        }
        if self.get("login_session").is_some() {
            return Some("login_session (aws login)");
        }
        None
    }
}

/// The paths of the two files.
#[derive(Debug)]
pub(crate) struct ProfileFiles {
    pub(crate) credentials: PathBuf,
    pub(crate) config: PathBuf,
}

impl ProfileFiles {
    /// The paths that the AWS tools use. Without a home directory they are relative and do not exist.
    pub(crate) fn locate(options: &OpenOptions) -> Self {
        let locate = |variable: &str, name: &str| match options.var(variable) {
            Some(path) => options.expand_home(path),
            None => options.home().unwrap_or_default().join(".aws").join(name),
        };
        Self {
            credentials: locate("AWS_SHARED_CREDENTIALS_FILE", "credentials"),
            config: locate("AWS_CONFIG_FILE", "config"),
        }
    }

    /// The profile with this name, or `None` if neither file has it.
    pub(crate) fn profile(&self, name: &str) -> Result<Option<Profile>, OpenError> {
        let mut found = None;
        for (path, is_config) in [(&self.config, true), (&self.credentials, false)] {
            let Some(text) = read_text(path)? else {
                continue;
            };
            parse(&text, |section, property| {
                if is_named(section, name, is_config) {
                    let profile: &mut Profile = found.get_or_insert_with(Profile::default);
                    if let Some((key, value)) = property {
                        profile.properties.insert(key, value.to_owned());
                    }
                }
            });
        }
        Ok(found)
    }
}

fn is_named(section: &str, name: &str, is_config: bool) -> bool {
    let mut words = section.split_whitespace();
    match (words.next(), words.next(), words.next()) {
        (Some(only), None, None) => only == name && (!is_config || name == "default"),
        (Some("profile"), Some(second), None) => is_config && unquote(second) == name,
        // A quoted name may contain spaces.
        (Some("profile"), Some(_), Some(_)) => {
            is_config
                && section
                    .trim_start()
                    .strip_prefix("profile")
                    .is_some_and(|rest| unquote(rest.trim()) == name)
        }
        _ => !is_config && section.trim() == name,
    }
}

fn unquote(text: &str) -> &str {
    text.strip_prefix('"')
        .and_then(|text| text.strip_suffix('"'))
        .unwrap_or(text)
}

/// Calls `visit` for each section, and for each property with its section. Malformed lines are skipped, as the AWS tools
/// do: an error in one profile must not make the others unusable.
fn parse(text: &str, mut visit: impl FnMut(&str, Option<(String, &str)>)) {
    let mut section = None;
    let mut has_property = false;
    for line in text.trim_start_matches('\u{feff}').lines() {
        let trimmed = line.trim();
        if trimmed.is_empty() || trimmed.starts_with(['#', ';']) {
            continue;
        }
        if let Some(rest) = trimmed.strip_prefix('[') {
            section = rest.split_once(']').map(|(name, _)| name.trim());
            has_property = false;
            if let Some(section) = section {
                visit(section, None);
            }
            continue;
        }
        if has_property && line.starts_with([' ', '\t']) {
            continue;
        }
        if let (Some(section), Some((key, value))) = (section, trimmed.split_once('=')) {
            has_property = true;
            visit(
                section,
                Some((
                    key.trim().to_ascii_lowercase(),
                    without_comment(value).trim(),
                )),
            );
        }
    }
}

fn without_comment(value: &str) -> &str {
    let comment = [" #", " ;", "\t#", "\t;"]
        .iter()
        .filter_map(|mark| value.find(mark))
        .min();
    comment.map_or(value, |at| &value[..at])
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::runtime::TokioRuntime;

    fn files(credentials: &[u8], config: &[u8]) -> (tempfile::TempDir, ProfileFiles) {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join(".aws")).unwrap();
        fs::write(directory.path().join(".aws/credentials"), credentials).unwrap();
        fs::write(directory.path().join(".aws/config"), config).unwrap();
        let options = OpenOptions::new(TokioRuntime::shared())
            .with_var("HOME", directory.path().to_str().unwrap());
        let files = ProfileFiles::locate(&options);
        (directory, files)
    }

    fn get(files: &ProfileFiles, profile: &str, name: &str) -> Option<String> {
        files
            .profile(profile)
            .unwrap()
            .and_then(|profile| profile.get(name).map(str::to_owned))
    }

    #[test]
    fn both_files_make_a_profile() {
        let (_directory, files) = files(
            b"# comment\n[default]\naws_access_key_id = ID1 # inline\naws_secret_access_key=a#b;c\n\n[ dev ]\r\nAWS_ACCESS_KEY_ID=ID2\r\nregion = from-credentials\r\n",
            b"\xef\xbb\xbf[default]\nregion = eu-central-1\ns3 =\n  addressing_style = path\n  region = nested\n[profile dev] ; note\nregion = from-config\nendpoint_url = http://127.0.0.1:9000\n[profile \"two words\"]\nregion = tw\n[dev]\nendpoint_url = wrong\n[sso-session dev]\nsso_region = x\n",
        );
        assert_eq!(get(&files, "default", "aws_access_key_id").unwrap(), "ID1");
        assert_eq!(
            get(&files, "default", "aws_secret_access_key").unwrap(),
            "a#b;c"
        );
        assert_eq!(get(&files, "default", "region").unwrap(), "eu-central-1");
        assert_eq!(get(&files, "dev", "aws_access_key_id").unwrap(), "ID2");
        assert_eq!(get(&files, "dev", "region").unwrap(), "from-credentials");
        assert_eq!(
            get(&files, "dev", "endpoint_url").unwrap(),
            "http://127.0.0.1:9000"
        );
        assert_eq!(get(&files, "two words", "region").unwrap(), "tw");
        assert!(files.profile("profile").unwrap().is_none());
        assert!(files.profile("de").unwrap().is_none());
    }

    #[test]
    fn an_indented_first_property_is_read() {
        let (_directory, files) = files(b"[default]\n  aws_access_key_id = ID\n", b"");
        assert_eq!(get(&files, "default", "aws_access_key_id").unwrap(), "ID");
    }

    #[test]
    fn missing_files_have_no_profiles() {
        let options = OpenOptions::new(TokioRuntime::shared()).with_var("HOME", "/nonexistent");
        assert!(
            ProfileFiles::locate(&options)
                .profile("default")
                .unwrap()
                .is_none()
        );
    }

    #[test]
    fn hostile_files_are_rejected_or_skipped() {
        let (_directory, binary) = files(b"[default]\naws_secret_access_key = SECRET\xff\xfe", b"");
        let error = binary.profile("default").err().unwrap().to_string();
        assert!(
            error.ends_with("/.aws/credentials: it is not UTF-8 text"),
            "{error}"
        );
        assert!(!error.contains("SECRET"));

        let huge = vec![b'a'; 1024 * 1024 + 1];
        let (_directory, huge) = files(b"", &huge);
        let error = huge.profile("default").err().unwrap().to_string();
        assert!(
            error.ends_with("/.aws/config: it is larger than 1 MiB"),
            "{error}"
        );

        let (_directory, odd) = files(
            b"]\n[\n[]\n=\n==\na=b\n[default\nregion=x\n\0\n[default]\n=v\nregion\n",
            b"",
        );
        assert!(get(&odd, "default", "region").is_none());
        assert!(odd.profile("default").unwrap().is_some());
    }

    #[test]
    fn a_file_that_is_a_directory_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let options = OpenOptions::new(TokioRuntime::shared())
            .with_var("AWS_CONFIG_FILE", directory.path().to_str().unwrap());
        assert!(ProfileFiles::locate(&options).profile("default").is_err());
    }

    #[test]
    fn unsupported_settings_are_reported() {
        let (_directory, files) = files(
            b"[keys]\naws_access_key_id=a\nsso_session=s\n[role]\nrole_arn=r\naws_access_key_id=a\n",
            b"[profile sso]\nsso_session=s\n[profile process]\ncredential_process=x\n[profile region]\nregion=r\n",
        );
        let unsupported = |name| files.profile(name).unwrap().unwrap().unsupported();
        assert_eq!(unsupported("keys"), None);
        assert_eq!(unsupported("process"), None);
        assert_eq!(unsupported("region"), None);
        assert_eq!(unsupported("role"), Some("role_arn (a role to assume)"));
        assert_eq!(
            unsupported("sso"),
            Some("sso_session (IAM Identity Center)")
        );
    }
}
