//! The files of the dashboard.
//!
//! The list is explicit, so that the program embeds these files and nothing else. A test compares it with the directory.

use std::sync::OnceLock;

/// A file of the dashboard.
#[derive(Debug, Clone, Copy)]
pub struct Asset {
    /// Path relative to the dashboard's root, such as `js/app.js`.
    pub path: &'static str,
    /// Contents.
    pub bytes: &'static [u8],
}

macro_rules! assets {
    ($($path:literal),* $(,)?) => {
        /// Every file, sorted by path.
        pub const ALL: &[Asset] = &[$(Asset {
            path: $path,
            bytes: include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/ui/", $path)),
        }),*];
    };
}

assets![
    "css/base.css",
    "css/pages.css",
    "css/parts.css",
    "icon.svg",
    "index.html",
    "js/activity.js",
    "js/app.js",
    "js/counter.js",
    "js/dom.js",
    "js/failures.js",
    "js/format.js",
    "js/http/client.js",
    "js/http/handover.js",
    "js/http/overview.js",
    "js/http/source.js",
    "js/http/stream.js",
    "js/json/scan.js",
    "js/record/keys.js",
    "js/record/limit_usage.js",
    "js/record/queues.js",
    "js/record/record.js",
    "js/record/queue_settings.js",
    "js/record/schedules.js",
    "js/record/schema.js",
    "js/record/sealed.js",
    "js/record/transitions.js",
    "js/router.js",
    "js/s3/cache.js",
    "js/s3/change.js",
    "js/s3/client.js",
    "js/s3/clock.js",
    "js/s3/sign.js",
    "js/s3/source.js",
    "js/s3/survey.js",
    "js/s3/walk.js",
    "js/s3/xml.js",
    "js/search.js",
    "js/settings.js",
    "js/source.js",
    "js/throttle.js",
    "js/views/actions.js",
    "js/views/confirm_link.js",
    "js/views/connect.js",
    "js/views/count.js",
    "js/views/errors.js",
    "js/views/help.js",
    "js/views/overview.js",
    "js/views/queues.js",
    "js/views/schedules.js",
    "js/views/settings.js",
    "js/views/submit.js",
    "js/views/task.js",
    "js/views/tasks.js",
    "js/views/versions.js",
    "js/views/webhooks.js",
    "js/views/workers.js",
    "js/widgets/basics.js",
    "js/widgets/chart.js",
    "js/widgets/dialog.js",
    "js/widgets/json_tree.js",
    "js/widgets/timeline.js",
    "js/widgets/toast.js",
];

/// The start page.
pub const INDEX: &str = "index.html";

/// The `Cache-Control` header of each file: clients may cache it, but must revalidate it by its `ETag`.
pub const CACHE_CONTROL: &str = "no-cache";

/// The `Content-Security-Policy` header of each file. In a bucket the policy is in the page itself, without `frame-ancestors`, which
/// only a header can set.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self' https: http://127.0.0.1:* http://localhost:*; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

impl Asset {
    /// Media type.
    pub fn content_type(&self) -> &'static str {
        match self.path.rsplit_once('.').map(|(_, extension)| extension) {
            Some("html") => "text/html; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("svg") => "image/svg+xml",
            _ => "application/octet-stream",
        }
    }

    /// The `ETag` header: a quoted hash of the contents.
    pub fn etag(&self) -> &'static str {
        static TAGS: OnceLock<Vec<String>> = OnceLock::new();
        let tags = TAGS.get_or_init(|| ALL.iter().map(|asset| tag(asset.bytes)).collect());
        let index = ALL.iter().position(|asset| asset.path == self.path);
        index
            .and_then(|index| tags.get(index))
            .map_or("\"\"", String::as_str)
    }
}

/// Finds a file by path. The empty path is the start page.
pub fn find(path: &str) -> Option<&'static Asset> {
    let path = if path.is_empty() { INDEX } else { path };
    ALL.iter().find(|asset| asset.path == path)
}

fn tag(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let digest = ring::digest::digest(&ring::digest::SHA256, bytes);
    let mut text = String::from("\"");
    for byte in digest.as_ref().iter().take(16) {
        // Writing into a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text.push('"');
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    fn collect_files(dir: &Path, parent: &str, files: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let path = if parent.is_empty() {
                name
            } else {
                format!("{parent}/{name}")
            };
            if entry.path().is_dir() {
                collect_files(&entry.path(), &path, files);
            } else {
                files.insert(path);
            }
        }
    }

    #[test]
    fn the_list_matches_the_directory() {
        let mut files = BTreeSet::new();
        collect_files(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("ui"),
            "",
            &mut files,
        );
        files.retain(|path| !path.starts_with("tests/") && path != "package.json");
        let listed: BTreeSet<_> = ALL.iter().map(|asset| asset.path.to_owned()).collect();
        assert_eq!(listed, files);
        assert_eq!(listed.len(), ALL.len(), "no file is listed twice");
    }

    #[test]
    fn every_file_has_a_media_type_and_a_unique_etag() {
        let tags: BTreeSet<_> = ALL.iter().map(Asset::etag).collect();
        assert_eq!(tags.len(), ALL.len());
        for asset in ALL {
            assert_ne!(
                asset.content_type(),
                "application/octet-stream",
                "{}",
                asset.path
            );
        }
        assert_eq!(find("").unwrap().path, INDEX);
        assert!(find("../Cargo.toml").is_none());
    }

    #[test]
    fn the_page_runs_no_inline_scripts() {
        let page = String::from_utf8(find("").unwrap().bytes.to_vec()).unwrap();
        assert!(page.contains("script-src 'self';") && !page.contains("unsafe-"));
        assert_eq!(page.matches("<script").count(), 1);
        assert!(page.contains("<script type=\"module\" src=\"js/app.js\"></script>"));
        assert!(!page.contains(" style=") && !page.contains(" on"));
    }
}
