//! Loading of rules: text, written rules, resolved rules.
//!
//! A dialect turns text into *written* rules, which name each other by id, tag and marker, and appends them to the draft. When
//! all files are read, `resolve` applies updates and defaults, and replaces names by positions: the rules that run.

mod dialect;
mod draft;
mod resolve;
mod written;

pub mod source;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::error::{LoadError, RulePlace};
use crate::review::BodyKind;
use crate::ruleset::RuleSet;
use crate::settings::Settings;

use dialect::naxsi::Naxsi;
use dialect::seclang::directive::Include;
use dialect::{appsec, naxsi, seclang};
use draft::Draft;
use written::Entry;

/// Depth of nested files.
const INCLUDE_DEPTH_MAX: usize = 16;

/// Reads rules from files and texts.
#[derive(Debug, Default)]
pub struct Builder {
    /// Sources of the place that the rules are for, then those of the places around it.
    places: Vec<Vec<SourceText>>,
    skip_unsupported: bool,
    supplement: Option<Supplement>,
}

/// Name and text of the rules for kinds of request bodies that are not inspected.
type Supplement = (String, fn(&[BodyKind]) -> String);

#[derive(Debug)]
enum SourceText {
    File(PathBuf),
    /// Name, text, and folder of the files that it names.
    Text(String, Vec<u8>, PathBuf),
}

impl RuleSet {
    /// Starts an empty builder.
    pub fn builder() -> Builder {
        Builder::default()
    }
}

impl Builder {
    /// Adds a file with everything that it includes.
    pub fn file(self, path: impl AsRef<Path>) -> Self {
        self.add(SourceText::File(path.as_ref().to_owned()))
    }

    /// Adds a text; files that it names are searched in the current folder.
    pub fn text(self, name: &str, text: impl Into<Vec<u8>>) -> Self {
        self.text_in("", name, text)
    }

    /// Adds a text; files that it names are searched in a folder.
    pub fn text_in(self, folder: impl Into<PathBuf>, name: &str, text: impl Into<Vec<u8>>) -> Self {
        self.add(SourceText::Text(name.to_owned(), text.into(), folder.into()))
    }

    fn add(mut self, source: SourceText) -> Self {
        match self.places.last_mut() {
            Some(place) => place.push(source),
            None => self.places.push(vec![source]),
        }
        self
    }

    /// Continues with the sources of the place around, as a server around a location. Their rules run after those that were
    /// added before, whose settings win. `SecDefaultAction` has effect in its own place only.
    pub fn around(mut self) -> Self {
        self.places.push(Vec::new());
        self
    }

    /// Leaves out unsupported directives in place of failing; see [`RuleSet::skipped`].
    pub fn skip_unsupported(mut self, skip: bool) -> Self {
        self.skip_unsupported = skip;
        self
    }

    /// Adds rules in front of those of [`build`](Self::build), for the kinds of request bodies that they leave uninspected;
    /// see [`RuleSet::uninspected_bodies`]. [`build_on`](Self::build_on) adds none. Rules whose tag or message
    /// `SecRuleUpdateActionById` changes count as they were written.
    pub fn supplement(mut self, name: &str, rules: fn(&[BodyKind]) -> String) -> Self {
        self.supplement = Some((name.to_owned(), rules));
        self
    }

    /// Reads everything and compiles the rules.
    ///
    /// # Errors
    ///
    /// A file cannot be read, or a directive is invalid or not supported.
    pub fn build(self) -> Result<RuleSet, LoadError> {
        resolve::resolve(self.compiled(Settings::default())?)
    }

    /// Builds on the set of the place around, whose compiled rules the new set shares. Returns `None` if the sources have rules
    /// of their own or change those of the set, as by `SecRuleUpdateActionById`: then [`build`](Self::build) with the sources of
    /// that place, behind [`around`](Self::around), is needed.
    ///
    /// # Errors
    ///
    /// As of [`build`](Self::build).
    pub fn build_on(self, around: &RuleSet) -> Result<Option<RuleSet>, LoadError> {
        let Loader { draft, naxsi } = self.read(around.settings.clone())?;
        Ok(if naxsi.is_empty() { resolve::overlaid(draft, around) } else { None })
    }

    /// Reads everything without resolving it, so that rules may name those of another source. Returns the number of rules, and
    /// the files on which they depend.
    ///
    /// # Errors
    ///
    /// As of [`build`](Self::build).
    pub fn check(self) -> Result<(usize, Vec<PathBuf>), LoadError> {
        let draft = self.compiled(Settings::default())?;
        let is_rule = |entry: &&Entry| matches!(entry, Entry::Rule(..));
        Ok((draft.entries.iter().filter(is_rule).count(), draft.shared.files_read))
    }

    fn compiled(mut self, settings: Settings) -> Result<Draft, LoadError> {
        let supplement = self.supplement.take();
        let mut loader = self.read(settings)?;
        std::mem::take(&mut loader.naxsi).compile(&mut loader.draft)?;
        if let Some((name, rules)) = supplement {
            let rules = rules(&loader.draft.uninspected_bodies());
            let (name, text, folder) = (&Arc::from(name), rules.as_bytes(), Path::new(""));
            let around = loader.draft.begin_place();
            loader.text(Text { name, text, folder, depth: 0 })?;
            loader.draft.end_place(around)?;
        }
        Ok(loader.draft)
    }

    fn read(self, settings: Settings) -> Result<Loader, LoadError> {
        let draft = Draft::new(settings, self.skip_unsupported);
        let mut loader = Loader { draft, naxsi: Naxsi::default() };
        // From the outermost place on, so that the last setting is that of the innermost.
        for sources in self.places.into_iter().rev() {
            let around = loader.draft.begin_place();
            for source in sources {
                match source {
                    SourceText::File(path) => loader.file(&path, 0)?,
                    SourceText::Text(name, text, folder) => {
                        let (name, text, folder) = (&Arc::from(name), &text, &folder);
                        loader.text(Text { name, text, folder, depth: 0 })?;
                    }
                }
            }
            loader.draft.end_place(around)?;
        }
        Ok(loader)
    }
}

struct Loader {
    draft: Draft,
    naxsi: Naxsi,
}

/// Text of a file that is read.
#[derive(Clone, Copy)]
struct Text<'a> {
    name: &'a Arc<str>,
    text: &'a [u8],
    /// Folder in which files that it names are searched.
    folder: &'a Path,
    /// Files that name each other, up to this one.
    depth: usize,
}

impl Loader {
    /// Reads a file with everything that it includes.
    fn file(&mut self, path: &Path, depth: usize) -> Result<(), LoadError> {
        let name: Arc<str> = Arc::from(path.display().to_string());
        let start = || RulePlace { file: Arc::clone(&name), line: 1, column: 1 };
        if depth == 0 && appsec::is_name(&name) && !self.draft.is_new(path, start) {
            return Ok(());
        }
        let text = std::fs::read(path)
            .map_err(|source| LoadError::Read { path: path.to_owned(), source })?;
        self.draft.shared.files_read.push(path.to_owned());
        let folder = path.parent().unwrap_or(Path::new(""));
        self.text(Text { name: &name, text: &text, folder, depth })
    }

    /// Reads a text in the dialect of its name.
    fn text(&mut self, text: Text<'_>) -> Result<(), LoadError> {
        if appsec::is_name(text.name) {
            self.appsec(text)
        } else if naxsi::is_name(text.name) {
            self.naxsi.read(&mut self.draft, text.name, text.text)
        } else {
            self.seclang(text)
        }
    }

    fn seclang(&mut self, text: Text<'_>) -> Result<(), LoadError> {
        for directive in seclang::lexer::directives(text.name, text.text)? {
            let read = self.draft.directive(&directive, text.folder);
            if let Some(Some(Include { files, place })) = self.draft.skip(read)? {
                check_depth(text.depth, || place.clone())?;
                files.iter().try_for_each(|file| self.file(file, text.depth + 1))?;
            }
        }
        Ok(())
    }

    fn appsec(&mut self, text: Text<'_>) -> Result<(), LoadError> {
        let file = appsec::AppsecFile::parse(text.name, text.text, text.folder)?;
        file.settings(&mut self.draft)?;
        for (path, place) in file.seclang_files() {
            check_depth(text.depth, || place.clone())?;
            if self.draft.is_new(&path, || place.clone()) {
                self.file(&path, text.depth + 1)?;
            }
        }
        for rules in file.seclang_texts() {
            self.seclang(Text { text: &rules, ..text })?;
        }
        file.rules(&mut self.draft)
    }
}

fn check_depth(depth: usize, place: impl Fn() -> RulePlace) -> Result<(), LoadError> {
    if depth < INCLUDE_DEPTH_MAX {
        return Ok(());
    }
    let message = format!("files are nested more than {INCLUDE_DEPTH_MAX} times");
    Err(LoadError::Invalid { place: place(), message })
}
