//! The Go tool chain that makes the builds: which one is here, what a build needs, and what else than its
//! sources decides what comes of it.

use super::bounded::output_of;
use super::render::hash_text;
use crate::inputs::build::Build;
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use std::{fmt, io};
use thiserror::Error;

/// A tool chain, as it says itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolChain {
    /// What `go version` prints: the release, and the machine that it is for.
    version: String,
    release: Release,
    /// Whether it may take a newer one in its place, when a module needs that.
    switches: bool,
    /// Those of [`SETTINGS`] that it knows, as `go env` tells them.
    settings: BTreeMap<String, String>,
}

/// A release of Go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    major: u32,
    minor: u32,
    patch: u32,
}

/// Why there is no tool chain to build with.
#[derive(Debug, Clone, Error)]
pub enum GoError {
    /// There is none on the PATH.
    #[error("there is no Go here")]
    Absent,
    /// It cannot be asked.
    #[error("asking `{command}`, which Go this is")]
    Ask {
        /// The program and its arguments.
        command: String,
        /// Why not.
        source: Arc<io::Error>,
    },
    /// It is older than a module needs, and takes no newer one in its place.
    #[error("Go {here} is here, and Go {needed} or newer is needed")]
    TooOld {
        /// What is on the PATH.
        here: Release,
        /// What `go.mod` says.
        needed: Release,
    },
}

/// The tool chain on the PATH. It is asked once: it stays the same while this process runs.
///
/// # Errors
///
/// There is none, or it does not say what it is.
pub fn here() -> Result<&'static ToolChain, GoError> {
    static HERE: OnceLock<Result<ToolChain, GoError>> = OnceLock::new();
    HERE.get_or_init(ToolChain::ask).as_ref().map_err(GoError::clone)
}

/// The release that the sources of a build need; none where `go.mod` does not say.
pub fn needed(build: &Build) -> Option<Release> {
    let module = build.sources.iter().find(|source| source.name == "go.mod")?;
    let mut lines = module.text.lines();
    lines.find_map(|line| Release::parse(line.strip_prefix("go ")?.trim()))
}

/// The modules that `go.mod` names for the build itself, each with its version. What those need in turn is pinned
/// beside them.
pub fn modules(build: &Build) -> Vec<&str> {
    let Some(module) = build.sources.iter().find(|source| source.name == "go.mod") else {
        return Vec::new();
    };
    let mut is_in_list = false;
    let required = module.text.lines().filter_map(|line| {
        let line = line.trim();
        match line {
            "require (" => is_in_list = true,
            ")" => is_in_list = false,
            _ => return line.strip_prefix("require ").or(is_in_list.then_some(line)),
        }
        None
    });
    let named = required.filter(|line| !line.ends_with("// indirect"));
    let named = named.map(|line| line.split("//").next().unwrap_or(line).trim());
    named.filter(|line| !line.is_empty()).collect()
}

/// What to do where Go is missing or too old.
pub fn mend(needed: Option<Release>) -> String {
    let release = needed.map_or_else(String::new, |needed| format!(" {needed} or newer"));
    format!("install Go{release}, and put it first on the PATH")
}

/// What `go env` is asked, of all that it knows: what changes the programs that come out. How newer tool
/// chains are fetched (`GOTOOLCHAIN`) does not: which one is taken is decided by `go.mod` and the one here.
const SETTINGS: [&str; 18] = [
    "GOFLAGS",
    "GOOS",
    "GOARCH",
    "GO386",
    "GOAMD64",
    "GOARM",
    "GOARM64",
    "GOPPC64",
    "GORISCV64",
    "GOEXPERIMENT",
    "GOFIPS140",
    "CGO_ENABLED",
    "CGO_CFLAGS",
    "CGO_CPPFLAGS",
    "CGO_CXXFLAGS",
    "CGO_LDFLAGS",
    "CC",
    "CXX",
];

/// Says whether a newer tool chain may be fetched.
const SWITCHING: &str = "GOTOOLCHAIN";

/// The first release that can take a newer one in its place.
const FIRST_TO_SWITCH: Release = Release { major: 1, minor: 21, patch: 0 };

/// How long one question may take.
const LIMIT: Duration = Duration::from_secs(20);

impl ToolChain {
    fn ask() -> Result<Self, GoError> {
        let version = answer(&["version"])?;
        let questions = SETTINGS.into_iter().chain([SWITCHING]);
        let settings = answer(&[&["env", "-json"][..], &questions.collect::<Vec<_>>()].concat())?;
        Self::of(&version, &settings)
    }

    /// From what `go version` and `go env -json` print.
    pub(crate) fn of(version: &str, settings: &str) -> Result<Self, GoError> {
        let odd = |command: &str, source: io::Error| GoError::Ask {
            command: command.to_owned(),
            source: source.into(),
        };
        let version = version.trim();
        let mut words = version.split_whitespace();
        let release = words.find_map(|word| Release::parse(word.strip_prefix("go")?));
        let release = release
            .ok_or_else(|| odd("go version", io::Error::other(format!("it says `{version}`"))))?;
        let settings: BTreeMap<String, String> =
            serde_json::from_str(settings).map_err(|error| odd("go env", error.into()))?;
        let (switching, mut settings): (BTreeMap<_, _>, BTreeMap<_, _>) =
            settings.into_iter().partition(|(name, _)| name == SWITCHING);
        // What a release does not know is empty there, and is the same as what it does not tell.
        settings.retain(|_, value| !value.is_empty());
        let switches = release >= FIRST_TO_SWITCH
            && switching.get(SWITCHING).is_some_and(|how| may_switch(how));
        Ok(Self { version: version.to_owned(), release, switches, settings })
    }

    /// Whether it can make what needs this release, by itself or by one that it fetches.
    ///
    /// # Errors
    ///
    /// It is too old.
    pub fn suffices(&self, needed: Option<Release>) -> Result<(), GoError> {
        match needed {
            Some(needed) if self.release < needed && !self.switches => {
                Err(GoError::TooOld { here: self.release, needed })
            }
            _ => Ok(()),
        }
    }

    /// Whether what needs this release is made by a newer one, which has to be fetched first.
    pub fn has_to_fetch(&self, needed: Option<Release>) -> bool {
        self.switches && needed.is_some_and(|needed| self.release < needed)
    }

    /// One hash over everything that decides what it makes from given sources.
    pub fn hash(&self) -> String {
        let settings = self.settings.iter().map(|(name, value)| format!("{name}={value}\n"));
        hash_text(&format!("{}\n{}", self.version, settings.collect::<String>()))
    }
}

impl fmt::Display for ToolChain {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Go {}", self.release)
    }
}

impl Release {
    /// From `1.25`, `1.24.6`, or with something behind it, as in `1.26rc1` and `1.27-devel`.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('.').map(|part| {
            let end = part.find(|one: char| !one.is_ascii_digit()).unwrap_or(part.len());
            part[..end].parse::<u32>().ok()
        });
        let (major, minor) = (numbers.next()??, numbers.next()??);
        Some(Self { major, minor, patch: numbers.next().flatten().unwrap_or(0) })
    }
}

impl fmt::Display for Release {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { major, minor, patch } = self;
        match patch {
            0 => write!(formatter, "{major}.{minor}"),
            patch => write!(formatter, "{major}.{minor}.{patch}"),
        }
    }
}

/// Whether a value of `GOTOOLCHAIN` lets a newer tool chain be taken, as Go's own manual has it (go.dev/doc/toolchain):
/// a release that is named alone is the only one.
fn may_switch(how: &str) -> bool {
    let how = how.rsplit('+').next().unwrap_or(how);
    matches!(how, "auto" | "path")
}

fn answer(arguments: &[&str]) -> Result<String, GoError> {
    let mut command = Command::new("go");
    // In a module's folder it would speak for the tool chain that this module asks for.
    command.args(arguments).current_dir("/");
    let failed = |source: io::Error| GoError::Ask {
        command: format!("go {}", arguments[0]),
        source: source.into(),
    };
    let output = output_of(&mut command, LIMIT).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => GoError::Absent,
        _ => failed(error),
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(failed(io::Error::other(format!("{}: {}", output.status, said.trim()))));
    }
    String::from_utf8(output.stdout).map_err(|error| failed(io::Error::other(error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::toml_file::Source;

    const LINUX: &str = r#"{"GOFLAGS": "", "GOOS": "linux", "GOTOOLCHAIN": "local"}"#;

    fn tool_chain(version: &str, settings: &str) -> ToolChain {
        ToolChain::of(version, settings).unwrap()
    }

    fn release(text: &str) -> Release {
        Release::parse(text).unwrap()
    }

    #[test]
    fn a_release_is_read_from_what_go_prints_and_from_go_mod() {
        let of = |version: &str| tool_chain(version, LINUX).to_string();
        assert_eq!(of("go version go1.19.8 linux/amd64\n"), "Go 1.19.8");
        assert_eq!(of("go version go1.25 linux/arm64"), "Go 1.25");
        assert_eq!(of("go version go1.26rc1 X:nocoverageredesign linux/amd64"), "Go 1.26");
        assert_eq!(of("go version devel go1.27-0a1b2c3 Mon Jan 1 linux/amd64"), "Go 1.27");
        let error = ToolChain::of("gccgo (Debian) 12", LINUX).unwrap_err();
        assert_eq!(error.to_string(), "asking `go version`, which Go this is");
        let module = |text: &str| {
            let text = text.to_owned();
            let file = toml::from_str("title = 'a build'\n[programs]").unwrap();
            let sources = vec![Source { name: "go.mod".to_owned(), text }];
            needed(&Build { name: "a".to_owned(), file, sources })
        };
        assert_eq!(
            module("module a\n\ngo 1.24.6\n\ntoolchain go1.26.0\n"),
            Some(release("1.24.6"))
        );
        assert_eq!(module("module a\n"), None);
    }

    #[test]
    fn the_modules_of_a_build_are_those_that_it_names_for_itself() {
        let file = toml::from_str("title = 'a build'\n[programs]").unwrap();
        let source =
            |name: &str, text: &str| Source { name: name.to_owned(), text: text.to_owned() };
        let module = "module a\n\ngo 1.25\n\nrequire b.example/b v1.2.3\n\nrequire (\n\t// the one in use\n\tc.example/c v0.1.0\n\t\
            d.example/d v0.2.0 // indirect\n)\n\nexclude (\n\te.example/e v0.3.0\n)\n";
        let build = Build { name: "a".to_owned(), file, sources: vec![source("go.mod", module)] };
        assert_eq!(modules(&build), ["b.example/b v1.2.3", "c.example/c v0.1.0"]);
        let without = Build { sources: vec![source("main.go", module)], ..build };
        assert_eq!(modules(&without), [""; 0]);
    }

    #[test]
    fn releases_are_compared_by_number() {
        assert!(release("1.9") < release("1.19.8"));
        assert!(release("1.25") < release("1.25.1"));
        assert_eq!(release("1.25"), release("1.25.0"));
    }

    #[test]
    fn an_old_one_suffices_only_where_it_may_take_a_newer_one() {
        let auto = LINUX.replace("local", "auto");
        let lack = |version: &str, settings: &str| {
            let tool_chain = tool_chain(version, settings);
            let lack = tool_chain.suffices(Some(release("1.25")));
            let lack = lack.map_err(|error| error.to_string()).err();
            (lack, tool_chain.has_to_fetch(Some(release("1.25"))))
        };
        let old = "Go 1.19.8 is here, and Go 1.25 or newer is needed".to_owned();
        let newer = "Go 1.24.9 is here, and Go 1.25 or newer is needed".to_owned();
        // Before 1.21 Go did not know how to.
        assert_eq!(lack("go version go1.19.8 linux/amd64", &auto), (Some(old), false));
        assert_eq!(lack("go version go1.24.9 linux/amd64", LINUX), (Some(newer), false));
        assert_eq!(lack("go version go1.24.9 linux/amd64", &auto), (None, true));
        for (how, fetches) in [
            ("path", true),
            ("go1.24.9+auto", true),
            ("local+path", true),
            // It is the only one that is taken then.
            ("go1.24.9", false),
            ("automatic", false),
        ] {
            let (lack, has_to_fetch) =
                lack("go version go1.24.9 linux/amd64", &LINUX.replace("local", how));
            assert_eq!((lack.is_none(), has_to_fetch), (fetches, fetches), "{how}");
        }
        assert_eq!(lack("go version go1.25.0 linux/amd64", LINUX), (None, false));
    }

    #[test]
    fn what_changes_the_programs_changes_the_hash() {
        let of = |version: &str, settings: &str| tool_chain(version, settings).hash();
        let one = of("go version go1.25.1 linux/amd64", LINUX);
        assert_ne!(one, of("go version go1.25.2 linux/amd64", LINUX));
        assert_ne!(one, of("go version go1.25.1 linux/arm64", LINUX));
        let flags = LINUX.replace(r#""GOFLAGS": """#, r#""GOFLAGS": "-race""#);
        assert_ne!(one, of("go version go1.25.1 linux/amd64", &flags));
        // Where newer ones come from is another matter, and so is what this release does not know.
        let auto = LINUX.replace("local", "auto").replace('{', r#"{"GOFIPS140": "", "#);
        assert_eq!(one, of("go version go1.25.1 linux/amd64", &auto));
    }
}
