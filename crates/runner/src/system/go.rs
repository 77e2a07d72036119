//! The Go tool chain: the installed release, the release that a build requires, and the settings that affect built
//! programs.

use crate::process::{Interrupt, command};
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;
use std::{fmt, io};
use tollgate_experiment::recipe::Build;
use tollgate_records::files::hash_text;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolChain {
    /// Output of `go version`: release and target platform.
    version: String,
    release: Release,
    /// True if it may fetch a newer tool chain when a module needs one.
    switches: bool,
    /// The [`SETTINGS`] that this release knows, by `go env`.
    settings: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Release {
    major: u32,
    minor: u32,
    patch: u32,
}

/// Returns the tool chain on the PATH, which is queried once per process, or the reason why there is none.
pub fn installed() -> Result<&'static ToolChain, String> {
    static INSTALLED: OnceLock<Result<ToolChain, String>> = OnceLock::new();
    INSTALLED.get_or_init(ToolChain::query).as_ref().map_err(String::clone)
}

pub(crate) const NOT_INSTALLED: &str = "Go is not installed";

/// Returns the release that `go.mod` of a build requires, if it names one.
pub fn needed(build: &Build) -> Option<Release> {
    let module = build.sources.iter().find(|source| source.name == "go.mod")?;
    let mut lines = module.text.lines();
    lines.find_map(|line| Release::parse(line.strip_prefix("go ")?.trim()))
}

/// Returns the direct dependencies in `go.mod` with their versions; indirect ones are pinned there too.
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

/// Returns a hint if Go is missing or too old.
pub fn hint(needed: Option<Release>) -> String {
    let release = needed.map_or_else(String::new, |needed| format!(" {needed} or newer"));
    format!("install Go{release} and put it first on the PATH")
}

/// Settings of `go env` that change the built programs. `GOTOOLCHAIN` does not: `go.mod` and the installed release
/// decide which tool chain is used.
const SETTINGS: &str = "GOFLAGS GOOS GOARCH GO386 GOAMD64 GOARM GOARM64 GOPPC64 GORISCV64 GOEXPERIMENT GOFIPS140 \
     CGO_ENABLED CGO_CFLAGS CGO_CPPFLAGS CGO_CXXFLAGS CGO_LDFLAGS CC CXX";

/// Setting that allows fetching a newer tool chain.
const SWITCHING: &str = "GOTOOLCHAIN";

/// First release that can fetch a newer one.
const FIRST_TO_SWITCH: Release = Release { major: 1, minor: 21, patch: 0 };

const QUERY_TIMEOUT: Duration = Duration::from_secs(20);

impl ToolChain {
    fn query() -> Result<Self, String> {
        let version = query(&["version"])?;
        let names = SETTINGS.split(' ').chain([SWITCHING]);
        let settings = query(&[&["env", "-json"][..], &names.collect::<Vec<_>>()].concat())?;
        Self::of(&version, &settings)
    }

    /// Parses the output of `go version` and `go env -json`.
    pub(crate) fn of(version: &str, settings: &str) -> Result<Self, String> {
        let version = version.trim();
        let mut words = version.split_whitespace();
        let release = words.find_map(|word| Release::parse(word.strip_prefix("go")?));
        let printed = format!("it prints `{version}`");
        let release = release.ok_or_else(|| unknown("version", printed))?;
        let settings: BTreeMap<String, String> =
            serde_json::from_str(settings).map_err(|error| unknown("env", error))?;
        let (switching, mut settings): (BTreeMap<_, _>, BTreeMap<_, _>) =
            settings.into_iter().partition(|(name, _)| name == SWITCHING);
        // Some releases print unknown settings as empty, others leave them out.
        settings.retain(|_, value| !value.is_empty());
        let switches = release >= FIRST_TO_SWITCH
            && switching.get(SWITCHING).is_some_and(|value| may_switch(value));
        Ok(Self { version: version.to_owned(), release, switches, settings })
    }

    /// Checks that this tool chain, or one that it may fetch, satisfies the release that `go.mod` requires.
    pub fn check(&self, needed: Option<Release>) -> Result<(), String> {
        match needed {
            Some(needed) if self.release < needed && !self.switches => {
                Err(format!("Go {} is installed; Go {needed} or newer is needed", self.release))
            }
            _ => Ok(()),
        }
    }

    /// True if a newer tool chain must be fetched for the required release.
    pub fn must_fetch(&self, needed: Option<Release>) -> bool {
        self.switches && needed.is_some_and(|needed| self.release < needed)
    }

    /// Hash over everything that affects the result of a build, except the sources.
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
    /// Parses `1.25` or `1.24.6`; ignores suffixes, as in `1.26rc1` and `1.27-devel`.
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

/// True if this value of `GOTOOLCHAIN` allows a newer tool chain (go.dev/doc/toolchain). A release alone does not.
fn may_switch(value: &str) -> bool {
    let mode = value.rsplit('+').next().unwrap_or(value);
    matches!(mode, "auto" | "path")
}

fn query(arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new("go");
    // In the folder of a module, Go would report the tool chain that this module requires.
    command.args(arguments).current_dir("/");
    let output = command::output(&mut command, QUERY_TIMEOUT, &Interrupt::default());
    output.map_err(|error| match error.downcast_ref::<io::Error>() {
        Some(cause) if cause.kind() == io::ErrorKind::NotFound => NOT_INSTALLED.to_owned(),
        _ => unknown(arguments[0], format!("{error:#}")),
    })
}

fn unknown(command: &str, reason: impl fmt::Display) -> String {
    format!("cannot find the version of Go by `go {command}`: {reason}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_experiment::toml_file::NamedText;

    const LINUX: &str = r#"{"GOFLAGS": "", "GOOS": "linux", "GOTOOLCHAIN": "local"}"#;

    fn tool_chain(version: &str, settings: &str) -> ToolChain {
        ToolChain::of(version, settings).unwrap()
    }

    fn release(text: &str) -> Release {
        Release::parse(text).unwrap()
    }

    #[test]
    fn parses_release_in_output_of_go_and_in_go_mod() {
        let chain = |version: &str| tool_chain(version, LINUX).to_string();
        assert_eq!(chain("go version go1.19.8 linux/amd64\n"), "Go 1.19.8");
        assert_eq!(chain("go version go1.25 linux/arm64"), "Go 1.25");
        assert_eq!(chain("go version go1.26rc1 X:nocoverageredesign linux/amd64"), "Go 1.26");
        assert_eq!(chain("go version devel go1.27-0a1b2c3 Mon Jan 1 linux/amd64"), "Go 1.27");
        let error = ToolChain::of("gccgo (Debian) 12", LINUX).unwrap_err();
        assert_eq!(
            error,
            "cannot find the version of Go by `go version`: it prints `gccgo (Debian) 12`"
        );
        let module = |text: &str| {
            let text = text.to_owned();
            let file = toml::from_str("title = 'a build'\n[programs]").unwrap();
            let sources = vec![NamedText { name: "go.mod".to_owned(), text }];
            needed(&Build { name: "a".to_owned(), file, sources })
        };
        assert_eq!(
            module("module a\n\ngo 1.24.6\n\ntoolchain go1.26.0\n"),
            Some(release("1.24.6"))
        );
        assert_eq!(module("module a\n"), None);
    }

    #[test]
    fn modules_are_direct_dependencies_only() {
        let file = toml::from_str("title = 'a build'\n[programs]").unwrap();
        let source =
            |name: &str, text: &str| NamedText { name: name.to_owned(), text: text.to_owned() };
        let module = "module a\n\ngo 1.25\n\nrequire b.example/b v1.2.3\n\nrequire (\n\t// a comment\n\tc.example/c v0.1.0\n\t\
            d.example/d v0.2.0 // indirect\n)\n\nexclude (\n\te.example/e v0.3.0\n)\n";
        let build = Build { name: "a".to_owned(), file, sources: vec![source("go.mod", module)] };
        assert_eq!(modules(&build), ["b.example/b v1.2.3", "c.example/c v0.1.0"]);
        let without = Build { sources: vec![source("main.go", module)], ..build };
        assert_eq!(modules(&without), [""; 0]);
    }

    #[test]
    fn releases_compare_by_number() {
        assert!(release("1.9") < release("1.19.8"));
        assert!(release("1.25") < release("1.25.1"));
        assert_eq!(release("1.25"), release("1.25.0"));
    }

    #[test]
    fn old_release_is_accepted_only_if_it_may_fetch_a_newer_one() {
        let auto = LINUX.replace("local", "auto");
        let check = |version: &str, settings: &str| {
            let tool_chain = tool_chain(version, settings);
            let error = tool_chain.check(Some(release("1.25"))).err();
            (error, tool_chain.must_fetch(Some(release("1.25"))))
        };
        let old = "Go 1.19.8 is installed; Go 1.25 or newer is needed".to_owned();
        let newer = "Go 1.24.9 is installed; Go 1.25 or newer is needed".to_owned();
        // Releases before 1.21 cannot fetch newer ones.
        assert_eq!(check("go version go1.19.8 linux/amd64", &auto), (Some(old), false));
        assert_eq!(check("go version go1.24.9 linux/amd64", LINUX), (Some(newer), false));
        assert_eq!(check("go version go1.24.9 linux/amd64", &auto), (None, true));
        for (value, fetches) in [
            ("path", true),
            ("go1.24.9+auto", true),
            ("local+path", true),
            // A release alone is the only one used.
            ("go1.24.9", false),
            ("automatic", false),
        ] {
            let (error, must_fetch) =
                check("go version go1.24.9 linux/amd64", &LINUX.replace("local", value));
            assert_eq!((error.is_none(), must_fetch), (fetches, fetches), "{value}");
        }
        assert_eq!(check("go version go1.25.0 linux/amd64", LINUX), (None, false));
    }

    #[test]
    fn hash_covers_release_platform_and_settings() {
        let hash = |version: &str, settings: &str| tool_chain(version, settings).hash();
        let one = hash("go version go1.25.1 linux/amd64", LINUX);
        assert_ne!(one, hash("go version go1.25.2 linux/amd64", LINUX));
        assert_ne!(one, hash("go version go1.25.1 linux/arm64", LINUX));
        let flags = LINUX.replace(r#""GOFLAGS": """#, r#""GOFLAGS": "-race""#);
        assert_ne!(one, hash("go version go1.25.1 linux/amd64", &flags));
        // Not part of it: GOTOOLCHAIN, and settings that the release does not know.
        let auto = LINUX.replace("local", "auto").replace('{', r#"{"GOFIPS140": "", "#);
        assert_eq!(one, hash("go version go1.25.1 linux/amd64", &auto));
    }
}
