//! The documents, their links, and the files that they become.

use crate::page::{self, Document, Link};
use anyhow::{Context as _, ensure};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

const SUMMARY: &str = "docs/SUMMARY.md";
/// The document that is the first page.
const START: &str = "docs/README.md";
/// Folder of the runs, whose pages `tollgate report --site` writes beside the manual.
const RECORDS: &str = "records";

/// Documents by path, and other files that they link to. Paths are relative to the repository.
#[derive(Debug)]
pub struct Tree {
    summary: Document,
    documents: BTreeMap<PathBuf, Document>,
    files: BTreeSet<PathBuf>,
}

impl Tree {
    /// Reads the documents of the summary, and those that they link to.
    pub fn read(root: &Path) -> anyhow::Result<Self> {
        let read = |path: &Path| {
            let text = fs::read_to_string(root.join(path));
            text.map(|text| Document::parse(&text))
                .with_context(|| format!("cannot read {}", path.display()))
        };
        let summary = read(Path::new(SUMMARY))?;
        let mut tree = Self { summary, documents: BTreeMap::new(), files: BTreeSet::new() };
        let mut broken = Vec::new();
        let mut waiting: Vec<PathBuf> = Vec::new();
        let mut visit = |from: &Path, document: &Document, waiting: &mut Vec<PathBuf>| {
            for target in document.targets() {
                let Some((path, _)) = local(from, target) else { continue };
                let is_run = path.starts_with(RECORDS) && root.join(&path).is_dir();
                if root.join(&path).is_file() {
                    waiting.push(path);
                } else if !is_run {
                    broken.push(format!("{}: {target}", from.display()));
                }
            }
        };
        visit(Path::new(SUMMARY), &tree.summary, &mut waiting);
        while let Some(path) = waiting.pop() {
            if tree.documents.contains_key(&path) || tree.files.contains(&path) {
                continue;
            }
            if path.extension().is_some_and(|extension| extension == "md") {
                let document = read(&path)?;
                visit(&path, &document, &mut waiting);
                tree.documents.insert(path, document);
            } else {
                tree.files.insert(path);
            }
        }
        for (from, document) in &tree.documents {
            for target in document.targets() {
                if let Some((path, Some(anchor))) = local(from, target)
                    && tree.documents.get(&path).is_some_and(|to| !to.has_anchor(anchor))
                {
                    broken.push(format!("{}: {target}", from.display()));
                }
            }
        }
        ensure!(broken.is_empty(), "links that lead nowhere:\n{}", broken.join("\n"));
        Ok(tree)
    }

    /// Writes all pages and copies.
    pub fn write(&self, root: &Path, out: &Path) -> anyhow::Result<()> {
        for (path, document) in &self.documents {
            let link = |from: &Path, target: &str| {
                let (to, anchor) = local(from, target)?;
                let anchor = anchor.map_or_else(String::new, |anchor| format!("#{anchor}"));
                let href = relative(&output(path), &self.output(root, &to)) + &anchor;
                let title = self.documents.get(&to).map(|document| document.title().to_owned());
                Some(Link { href, title })
            };
            let text = page::render(&page::Page {
                document,
                link: &|target| link(path, target),
                summary: &self.summary,
                summary_link: &|target| link(Path::new(SUMMARY), target),
                own: &relative(&output(path), &output(path)),
            });
            write(&out.join(output(path)), text.as_bytes())?;
        }
        for path in &self.files {
            let bytes = fs::read(root.join(path));
            let bytes = bytes.with_context(|| format!("cannot read {}", path.display()))?;
            write(&out.join(path), &bytes)?;
        }
        Ok(())
    }

    /// Returns the place of a linked file or run below the folder of the manual.
    fn output(&self, root: &Path, path: &Path) -> PathBuf {
        if root.join(path).is_dir() {
            let run = path.strip_prefix(RECORDS).unwrap_or(path);
            return Path::new("..").join(run).join("report.html");
        }
        output(path)
    }
}

fn write(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let made = path.parent().map_or(Ok(()), fs::create_dir_all);
    let written = made.and_then(|()| fs::write(path, bytes));
    written.with_context(|| format!("cannot write {}", path.display()))
}

/// Returns the page of a document; other files keep their path.
fn output(path: &Path) -> PathBuf {
    if path == Path::new(START) {
        "index.html".into()
    } else if path.extension().is_some_and(|extension| extension == "md") {
        path.with_extension("html")
    } else {
        path.to_owned()
    }
}

/// Returns the file of the repository to which a link in a document leads, and the anchor there. `None` for addresses.
fn local<'a>(from: &Path, target: &'a str) -> Option<(PathBuf, Option<&'a str>)> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = match target.split_once('#') {
        Some((path, anchor)) => (path, Some(anchor)),
        None => (target, None),
    };
    if path.is_empty() {
        return Some((from.to_owned(), anchor));
    }
    let mut resolved = from.parent().unwrap_or(Path::new("")).to_owned();
    for component in Path::new(path).components() {
        match component {
            Component::ParentDir => {
                resolved.pop();
            }
            Component::Normal(name) => resolved.push(name),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    Some((resolved, anchor))
}

/// Returns the link from one file to another.
fn relative(from: &Path, to: &Path) -> String {
    let depth = from.components().count().saturating_sub(1);
    format!("{}{}", "../".repeat(depth), to.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
    }

    /// Read from the pages, so by other code than that which writes them.
    #[test]
    fn links_of_pages_lead_to_pages_and_headings() -> anyhow::Result<()> {
        let (root, folder) = (repository(), tempfile::tempdir()?);
        let out = folder.path().join("manual");
        Tree::read(&root)?.write(&root, &out)?;
        let mut pages = vec![out.join("index.html")];
        let (mut known, mut links) = (BTreeSet::new(), 0);
        while let Some(path) = pages.pop() {
            if !known.insert(path.clone()) {
                continue;
            }
            let text = fs::read_to_string(&path)?;
            for link in text.split("href=\"").skip(1) {
                let link = link.split('"').next().unwrap_or_default();
                if link.contains("://") || link.starts_with("data:") {
                    continue;
                }
                links += 1;
                let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
                let to = path.parent().unwrap_or(&path).join(file);
                let to = if file.is_empty() { path.clone() } else { to };
                if file.ends_with("report.html") && !file.contains("docs/") {
                    // A run, whose page another command writes.
                    continue;
                }
                let to =
                    to.canonicalize().with_context(|| format!("{}: {link}", path.display()))?;
                if to.extension().is_some_and(|extension| extension == "html") {
                    let id = format!("id=\"{anchor}\"");
                    let has_anchor = anchor.is_empty() || fs::read_to_string(&to)?.contains(&id);
                    assert!(has_anchor, "{}: {link}", path.display());
                    pages.push(to);
                }
            }
        }
        assert!(known.len() > 20 && links > 500, "{} pages, {links} links", known.len());
        Ok(())
    }

    #[test]
    fn summary_has_every_document() -> anyhow::Result<()> {
        let root = repository();
        let summary = fs::read_to_string(root.join(SUMMARY))?;
        for folder in ["docs", "docs/tutorials"] {
            for entry in fs::read_dir(root.join(folder))? {
                let path = entry?.path();
                let name = path.strip_prefix(root.join("docs"))?.display().to_string();
                if name.ends_with(".md") && name != "SUMMARY.md" {
                    assert!(summary.contains(&format!("({name})")), "{name}");
                }
            }
        }
        Ok(())
    }

    #[test]
    fn broken_links_are_errors() -> anyhow::Result<()> {
        let folder = tempfile::tempdir()?;
        let page = |text: &str| write(&folder.path().join("docs/README.md"), text.as_bytes());
        write(&folder.path().join(SUMMARY), b"[Start](README.md)\n")?;
        for (text, expected) in [
            ("# A b\n[x](#a-b) [y](../docs/SUMMARY.md) [z](https://example.org/none)", ""),
            ("[x](none.md)", "links that lead nowhere:\ndocs/README.md: none.md"),
            ("# A\n[x](#b)", "links that lead nowhere:\ndocs/README.md: #b"),
            ("[x](..)", "links that lead nowhere:\ndocs/README.md: .."),
        ] {
            page(text)?;
            let result = Tree::read(folder.path()).map(|_| ()).map_err(|error| error.to_string());
            let expected = if expected.is_empty() { Ok(()) } else { Err(expected.to_owned()) };
            assert_eq!(result, expected, "{text}");
        }
        Ok(())
    }
}
