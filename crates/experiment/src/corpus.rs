//! Corpora: lists of requests, each of which every trial sends once, to see if the subject blocks it.

use crate::catalog::Catalog;
use crate::toml_file::NamedText;
use crate::workload;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use tollgate_records::error::bad_input;
use tollgate_records::manifest::CorpusRequest;
use tollgate_traffic::Mix;

/// Each request takes a connection of its own in every trial, and a place in every record.
const REQUESTS_MAX: usize = 50_000;

/// Lists of requests.
#[derive(Debug, Clone, Default)]
pub struct Corpus {
    pub mixes: Vec<Mix>,
    /// Descriptions of the lists, with their hashes.
    pub sources: Vec<NamedText>,
    /// File names of the lists, without extension.
    names: Vec<String>,
}

impl Corpus {
    /// Reads lists.
    pub(crate) fn read(catalog: &Catalog, paths: &[PathBuf]) -> anyhow::Result<Self> {
        let mut corpus = Self::default();
        for path in paths {
            if path.extension().is_none_or(|extension| extension != "mix") {
                let path = path.display();
                return Err(bad_input(format!(
                    "corpus {path}: expected a list of requests (.mix), as `tollgate mix import` writes"
                )));
            }
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if corpus.names.contains(&name) {
                return Err(bad_input(format!(
                    "two lists of the corpus are named `{name}`, which distinguishes their requests in reports; rename one"
                )));
            }
            let (mix, sources) = catalog.mix(&path.display().to_string(), Path::new(""))?;
            corpus.names.push(name);
            corpus.mixes.push(mix);
            corpus.sources.extend(sources);
        }
        let count = corpus.mixes.iter().map(|mix| mix.listed().count()).sum::<usize>();
        if count > REQUESTS_MAX {
            Err(bad_input(format!(
                "the corpus has {count} requests, but the limit is {REQUESTS_MAX}; import fewer with --max-requests"
            )))
        } else {
            Ok(corpus)
        }
    }

    pub fn is_empty(&self) -> bool {
        self.mixes.is_empty()
    }

    /// Describes the requests, in the order of the lists.
    pub fn requests(&self) -> Vec<CorpusRequest> {
        let mut all = Vec::new();
        for (mix, list) in self.mixes.iter().zip(&self.names) {
            let templates = mix.templates();
            let mut counts = vec![0; templates.len()];
            mix.listed().for_each(|(template, _)| counts[template] += 1);
            let mut numbers = BTreeMap::new();
            for (template, listed) in mix.listed() {
                let known = &templates[template];
                let number = numbers.entry(template).or_insert(0);
                *number += 1;
                all.push(CorpusRequest {
                    name: match counts[template] {
                        1 => format!("{list}: {}", known.name),
                        _ => format!("{list}: {} #{number}", known.name),
                    },
                    class: known.class,
                    family: known.family.clone(),
                    request: workload::in_one_line(&listed.message),
                });
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use tollgate_traffic::Class;

    const LIST: &str = r#"{"tollgate_mix":1,"title":"t","requests":3,"templates":[{"name":"a","class":"benign"},{"name":"b","class":"malicious","family":"xss"}]}
{"template":"b","path":"/?x=<b>","headers":["Host: h","User-Agent: u"]}
{"template":"a","method":"POST","path":"/2","headers":["Host: h"],"body":"c=d\ne"}
{"template":"b","path":"/3","headers":["Host: h"]}
"#;

    #[test]
    fn requests_have_the_names_of_list_and_template() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("own.mix");
        fs::write(&path, LIST).unwrap();
        let catalog = Catalog::new(vec![]);
        let corpus = Corpus::read(&catalog, std::slice::from_ref(&path)).unwrap();
        let request = |name: &str, class, family: Option<&str>, request: &str| CorpusRequest {
            name: name.to_owned(),
            class,
            family: family.map(str::to_owned),
            request: request.to_owned(),
        };
        assert_eq!(
            corpus.requests(),
            [
                request("own: b #1", Class::Malicious, Some("xss"), "GET /?x=<b> | User-Agent: u"),
                request("own: a", Class::Benign, None, r"POST /2 | c=d\ne"),
                request("own: b #2", Class::Malicious, Some("xss"), "GET /3"),
            ]
        );
        assert!(!corpus.is_empty() && Corpus::default().is_empty());
        let twice = Corpus::read(&catalog, &[path.clone(), path]).unwrap_err().to_string();
        assert!(twice.starts_with("two lists of the corpus are named `own`"), "{twice}");
        let other = Corpus::read(&catalog, &["browse".into()]).unwrap_err().to_string();
        assert!(other.starts_with("corpus browse: expected a list of requests (.mix)"), "{other}");
    }
}
