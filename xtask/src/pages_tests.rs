//! Tests of the documentation: links lead somewhere, and every page can be found.

use std::fs;
use std::path::{Path, PathBuf};

use crate::root::root;

/// The folders that contain pages of the project. Build output and installed packages are not among them.
const FOLDERS: [&str; 6] = ["", "crates", "docs", "examples", "packaging", "verify"];

/// All pages, relative to the root.
fn pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for folder in FOLDERS {
        collect(Path::new(folder), folder.is_empty(), &mut pages);
    }
    assert!(pages.len() > 40, "{pages:?}");
    pages
}

fn collect(folder: &Path, only_files: bool, pages: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(root().join(folder)).unwrap() {
        let entry = entry.unwrap();
        let path = folder.join(entry.file_name());
        let is_folder = entry.file_type().unwrap().is_dir();
        let is_output = path.ends_with("target") || path.ends_with("node_modules");
        if is_folder && !only_files && !is_output {
            collect(&path, false, pages);
        } else if is_page(&path) {
            pages.push(path);
        }
    }
}

fn is_page(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "md")
}

/// The text of a page without its code blocks.
fn prose(page: &Path) -> String {
    let text = fs::read_to_string(root().join(page)).unwrap();
    let parts = text.split("```").step_by(2);
    parts.collect::<Vec<_>>().join("\n")
}

/// The targets of the links on a page.
fn links(text: &str) -> impl Iterator<Item = &str> {
    let ends = text.split("](").skip(1);
    ends.filter_map(|end| Some(end.split_once(')')?.0))
        .filter(|link| !link.contains(':') && !link.contains(char::is_whitespace))
}

/// The anchors of the headings on a page, as GitHub forms them.
fn anchors(page: &Path) -> Vec<String> {
    let text = prose(page);
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let heading = line.trim_start_matches('#').trim().to_lowercase();
            let kept = heading.chars().filter_map(|character| match character {
                ' ' => Some('-'),
                '-' | '_' => Some(character),
                _ => character.is_alphanumeric().then_some(character),
            });
            kept.collect()
        })
        .collect()
}

#[test]
fn every_link_leads_to_a_file_and_a_heading() {
    for page in pages() {
        for link in links(&prose(&page)) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match path {
                "" => page.clone(),
                _ => page.parent().unwrap_or(Path::new("")).join(path),
            };
            let place = format!("{link} in {}", page.display());
            assert!(root().join(&target).exists(), "{place}: no such file");
            if !anchor.is_empty() && is_page(&target) {
                let anchors = anchors(&target);
                assert!(
                    anchors.iter().any(|known| known == anchor),
                    "{place}: {anchors:?}"
                );
            }
        }
    }
}

#[test]
fn the_list_of_pages_is_complete() {
    let list = prose(Path::new("docs/README.md"));
    for page in pages() {
        if let Ok(page) = page.strip_prefix("docs")
            && page != Path::new("README.md")
        {
            let listed = links(&list).any(|link| Path::new(link) == page);
            assert!(listed, "docs/README.md lacks {}", page.display());
        }
    }
}

#[test]
fn the_readme_stays_short() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap();
    assert!(readme.lines().count() <= 120);
}
