//! The files of the dashboard.
//!
//! The list is written out, so that the program holds what is named here and nothing else; a test compares it with the folder.

use std::sync::OnceLock;

/// One file.
#[derive(Debug, Clone, Copy)]
pub struct Asset {
    /// Where it lies below the dashboard's folder, such as `js/app.js`.
    pub path: &'static str,
    /// Its content.
    pub bytes: &'static [u8],
}

macro_rules! assets {
    ($($path:literal),* $(,)?) => {
        /// Every file, in the order of their paths.
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
    "js/format.js",
    "js/http/source.js",
    "js/json/scan.js",
    "js/record/keys.js",
    "js/record/queues.js",
    "js/record/record.js",
    "js/record/schema.js",
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
    "js/views/actions.js",
    "js/views/connect.js",
    "js/views/count.js",
    "js/views/help.js",
    "js/views/overview.js",
    "js/views/queues.js",
    "js/views/settings.js",
    "js/views/task.js",
    "js/views/tasks.js",
    "js/views/versions.js",
    "js/views/workers.js",
    "js/widgets/basics.js",
    "js/widgets/chart.js",
    "js/widgets/dialog.js",
    "js/widgets/json_tree.js",
    "js/widgets/timeline.js",
    "js/widgets/toast.js",
];

/// The page that everything starts from.
pub const INDEX: &str = "index.html";

/// What a server should say of each file besides its type: it may be kept, and is asked for again each time, by its tag.
pub const CACHE_CONTROL: &str = "no-cache";

/// What a server should send with each file. A file in a bucket carries the policy in the page itself, which lacks what only a
/// header can say: who may put the page into a frame.
pub const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self' https: http://127.0.0.1:* http://localhost:*; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

impl Asset {
    /// Its media type.
    pub fn content_type(&self) -> &'static str {
        match self.path.rsplit_once('.').map(|(_, ending)| ending) {
            Some("html") => "text/html; charset=utf-8",
            Some("js") => "text/javascript; charset=utf-8",
            Some("css") => "text/css; charset=utf-8",
            Some("svg") => "image/svg+xml",
            _ => "application/octet-stream",
        }
    }

    /// A tag that changes with the content, in quotes, as a header holds it.
    pub fn etag(&self) -> &'static str {
        static TAGS: OnceLock<Vec<String>> = OnceLock::new();
        let tags = TAGS.get_or_init(|| ALL.iter().map(|asset| tag(asset.bytes)).collect());
        let place = ALL.iter().position(|asset| asset.path == self.path);
        place
            .and_then(|place| tags.get(place))
            .map_or("\"\"", String::as_str)
    }
}

/// The file at a path; the page itself for an empty one.
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

    fn files(dir: &Path, below: &str, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(dir).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let path = if below.is_empty() {
                name
            } else {
                format!("{below}/{name}")
            };
            if entry.path().is_dir() {
                files(&entry.path(), &path, found);
            } else {
                found.insert(path);
            }
        }
    }

    #[test]
    fn the_list_is_the_folder() {
        let mut found = BTreeSet::new();
        files(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join("ui"),
            "",
            &mut found,
        );
        found.retain(|path| !path.starts_with("tests/") && path != "package.json");
        let listed: BTreeSet<_> = ALL.iter().map(|asset| asset.path.to_owned()).collect();
        assert_eq!(listed, found);
        assert_eq!(listed.len(), ALL.len(), "nothing is there twice");
    }

    #[test]
    fn every_file_has_a_type_and_a_tag_of_its_own() {
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
    fn the_page_runs_no_script_but_its_own_files() {
        let page = String::from_utf8(find("").unwrap().bytes.to_vec()).unwrap();
        assert!(page.contains("script-src 'self';") && !page.contains("unsafe-"));
        assert_eq!(page.matches("<script").count(), 1);
        assert!(page.contains("<script type=\"module\" src=\"js/app.js\"></script>"));
        assert!(!page.contains(" style=") && !page.contains(" on"));
    }
}
