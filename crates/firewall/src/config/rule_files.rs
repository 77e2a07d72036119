//! Rules that the gateway finds or brings itself: the installed Core Rule Set, and those for the parsing of bodies.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use tollgate_waf::BodyKind;

/// Stands for the installed Core Rule Set in `rules`.
pub(crate) const CRS: &str = "crs";

/// Folders of the rules of the Core Rule Set, and of its setup: of the packages of Debian and others, and of its own archive.
const CRS_FOLDERS: [[&str; 2]; 7] = [
    ["/etc/tollgate/crs/rules", "/etc/tollgate/crs"],
    ["/usr/share/modsecurity-crs/rules", "/etc/modsecurity/crs"],
    ["/usr/share/coreruleset/rules", "/etc/coreruleset"],
    ["/usr/share/coreruleset/rules", "/usr/share/coreruleset"],
    ["/usr/local/share/coreruleset/rules", "/usr/local/share/coreruleset"],
    ["/usr/share/owasp-modsecurity-crs/rules", "/usr/share/owasp-modsecurity-crs"],
    ["/opt/coreruleset/rules", "/opt/coreruleset"],
];

/// File with the version, at the start of the rules.
const FIRST_RULES: &str = "REQUEST-901-INITIALIZATION.conf";
/// The version is behind the comment of the license.
const VERSION_BYTES_MAX: u64 = 64 << 10;

/// An installed Core Rule Set.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct InstalledCrs {
    /// Files and patterns to include, in this order.
    pub(crate) includes: Vec<PathBuf>,
    pub(crate) folder: PathBuf,
    /// Such as `4.25.0`.
    pub(crate) version: String,
}

impl InstalledCrs {
    /// The first that is below `root`.
    pub(crate) fn find(root: &Path) -> Option<Self> {
        let below = |path: &str| root.join(path.trim_start_matches('/'));
        CRS_FOLDERS.iter().find_map(|[rules, setup]| Self::in_folders(below(rules), &below(setup)))
    }

    fn in_folders(rules: PathBuf, setup: &Path) -> Option<Self> {
        let version = version(&rules.join(FIRST_RULES))?;
        let is_there = |name: &&str| setup.join(name).is_file();
        let setup_file = ["crs-setup.conf", "crs-setup.conf.example"]
            .iter()
            .copied()
            .find(|name| is_there(name))?;
        // Exclusions of the administrator, beside the setup. Otherwise they are among the rules.
        let own = |name: &'static str| is_there(&name).then(|| setup.join(name));
        let includes = [
            Some(setup.join(setup_file)),
            own("REQUEST-900-EXCLUSION-RULES-BEFORE-CRS.conf"),
            Some(rules.join("*.conf")),
            own("RESPONSE-999-EXCLUSION-RULES-AFTER-CRS.conf"),
        ];
        Some(Self { includes: includes.into_iter().flatten().collect(), folder: rules, version })
    }

    /// Files and folders whose presence decides which one is used.
    pub(crate) fn candidates() -> impl Iterator<Item = PathBuf> {
        CRS_FOLDERS
            .iter()
            .flat_map(|[rules, setup]| [Path::new(rules).join(FIRST_RULES), PathBuf::from(setup)])
    }

    /// The folders in which it is looked for.
    pub(crate) fn folders() -> String {
        CRS_FOLDERS.map(|[rules, _]| rules).join(", ")
    }
}

/// The version in the rules: `ver:'OWASP_CRS/4.25.0'`.
fn version(file: &Path) -> Option<String> {
    let mut text = String::new();
    std::fs::File::open(file).ok()?.take(VERSION_BYTES_MAX).read_to_string(&mut text).ok()?;
    let (_, behind) = text.split_once("ver:'OWASP_CRS/")?;
    behind.split_once('\'').map(|(version, _)| version.to_owned())
}

/// The rules that are missing for bodies which otherwise pass uninspected, as in the recommended configuration of
/// ModSecurity. `uninspected`: as of [`tollgate_waf::RuleSet::uninspected_bodies`].
pub(crate) fn body_rules(uninspected: &[BodyKind]) -> String {
    let rules = [
        (
            BodyKind::Json,
            "SecRule REQUEST_HEADERS:Content-Type \"@rx (?i)^application/(?:[a-z0-9.+-]+\\+)?json\" \
             \"id:4000000001,phase:1,pass,nolog,ctl:requestBodyProcessor=JSON\"\n",
        ),
        (
            BodyKind::Xml,
            "SecRule REQUEST_HEADERS:Content-Type \"@rx (?i)^(?:application|text)/(?:[a-z0-9.+-]+\\+)?xml\" \
             \"id:4000000002,phase:1,pass,nolog,ctl:requestBodyProcessor=XML\"\n",
        ),
        (
            BodyKind::Malformed,
            "SecRule REQBODY_ERROR \"!@eq 0\" \"id:4000000003,phase:2,deny,status:400,\
             msg:'The body is malformed',logdata:'%{REQBODY_ERROR_MSG}'\"\n\
             SecRule MULTIPART_STRICT_ERROR \"!@eq 0\" \"id:4000000004,phase:2,deny,status:400,\
             msg:'The multipart body is malformed or ambiguous'\"\n",
        ),
    ];
    rules.iter().filter(|(kind, _)| uninspected.contains(kind)).map(|(_, text)| *text).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, write};

    use super::*;

    #[test]
    fn installed_rule_set_is_found_with_its_setup_and_version() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        assert_eq!(InstalledCrs::find(root), None);
        let install = |rules: &str, setup: &str, version: &str| {
            create_dir_all(root.join(rules)).unwrap();
            create_dir_all(root.join(setup).parent().unwrap()).unwrap();
            let first =
                format!("# Rules\nSecAction \"id:901001,ver:'OWASP_CRS/{version}',pass\"\n");
            write(root.join(rules).join(FIRST_RULES), first).unwrap();
            write(root.join(setup), "").unwrap();
        };
        install("opt/coreruleset/rules", "opt/coreruleset/crs-setup.conf.example", "4.1.0");
        let found = InstalledCrs::find(root).unwrap();
        assert_eq!(found.version, "4.1.0");
        let folder = root.join("opt/coreruleset");
        let expected = [folder.join("crs-setup.conf.example"), folder.join("rules/*.conf")];
        assert_eq!(found.includes, expected);
        // The package of Debian precedes it.
        install("usr/share/modsecurity-crs/rules", "etc/modsecurity/crs/crs-setup.conf", "3.3.4");
        let own = "REQUEST-900-EXCLUSION-RULES-BEFORE-CRS.conf";
        let setup = root.join("etc/modsecurity/crs");
        write(setup.join(own), "").unwrap();
        let found = InstalledCrs::find(root).unwrap();
        assert_eq!(found.version, "3.3.4");
        let rules = root.join("usr/share/modsecurity-crs/rules/*.conf");
        assert_eq!(found.includes, [setup.join("crs-setup.conf"), setup.join(own), rules]);
    }
}
