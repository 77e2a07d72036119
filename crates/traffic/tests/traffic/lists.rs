use std::sync::Arc;

use tollgate_traffic::{Mix, MixError, MixTree, RequestList, Sample, StepRequest};

use super::file;

/// A list of `a` with weights 4 and 2, and `b` with weight 6.
fn list() -> MixTree {
    let text = r#"{"tollgate_mix":1,"title":"recorded","requests":3,"templates":[{"name":"a","class":"benign","status":200},{"name":"b","class":"malicious"}]}
{"template":"a","weight":4,"path":"/1","headers":["Host: h"]}
{"template":"b","weight":6,"path":"/2","headers":["Host: h"]}
{"template":"a","weight":2,"path":"/3","headers":["Host: h"]}
"#;
    MixTree::List(Arc::new(RequestList::read(text.as_bytes()).unwrap()))
}

fn including(text: &str) -> Result<Mix, MixError> {
    let template = "[[template]]\nname = 'own'\nclass = 'benign'\nweight = 3\nheaders = ['Host: a']\npath = '/own'\n";
    Mix::try_from(&MixTree::File {
        file: file(&format!("{text}{template}")),
        included: vec![list()],
    })
}

/// Counts the requests of a mix's first round by their path, or by `own`.
fn round(mix: &Mix) -> Vec<(String, usize)> {
    let size: u32 = mix.templates().iter().map(|template| template.weight).sum();
    let paths: Vec<String> =
        mix.listed().map(|(_, request)| request.message.target()[..2].to_owned()).collect();
    let mut counts: Vec<(String, usize)> = Vec::new();
    for step in mix.script(7).take(size as usize) {
        let name = match step.request {
            StepRequest::Listed(position) => {
                assert_eq!(step.template, mix.listed().nth(position).unwrap().0);
                paths[position].clone()
            }
            StepRequest::Sample => mix.templates()[step.template].name.clone(),
            StepRequest::Message(message) => panic!("{message:?}"),
        };
        match counts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => counts.push((name, 1)),
        }
    }
    counts.sort();
    counts
}

fn counts(expected: &[(&str, usize)]) -> Vec<(String, usize)> {
    expected.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
}

#[test]
fn list_sends_each_request_by_its_weight() {
    let mix = Mix::try_from(&list()).unwrap();
    assert_eq!(mix.title(), "recorded");
    assert_eq!(round(&mix), counts(&[("/1", 4), ("/2", 6), ("/3", 2)]));
    let statuses: Vec<_> = mix.templates().iter().map(|template| template.status).collect();
    assert_eq!(statuses, [Some(200), None]);
    let samples: Vec<bool> = mix
        .samples()
        .zip([&b"GET /1 "[..], b"GET /2 "])
        .map(
            |(sample, start)| matches!(sample, Sample::Listed(one) if one.message.bytes().starts_with(start)),
        )
        .collect();
    assert_eq!(samples, [true, true]);
}

#[test]
fn included_list_has_its_share_and_the_proportions_of_its_requests() {
    // Own weights are 3; the list has 12, and shares 3: 3 * 4 = 12 own, 12 of the list.
    let mix = including("[[include]]\nmix = 'list'\nweight = 3\n").unwrap();
    assert_eq!(round(&mix), counts(&[("/1", 4), ("/2", 6), ("/3", 2), ("own", 12)]));
    let plain = including("[[include]]\nmix = 'list'\n").unwrap();
    assert_eq!(round(&plain), counts(&[("/1", 4), ("/2", 6), ("/3", 2), ("own", 3)]));
    let doubled = including("[[include]]\nmix = 'list'\nweight = 24\n").unwrap();
    assert_eq!(round(&doubled), counts(&[("/1", 8), ("/2", 12), ("/3", 4), ("own", 3)]));
    let probed = including("[[include]]\nmix = 'list'\nweight = 0\n").unwrap();
    assert_eq!(round(&probed), counts(&[("own", 1)]));
}

#[test]
fn templates_of_a_list_are_selected_by_name() {
    let only = ["b".to_owned()];
    let mix = Mix::try_from(&list()).unwrap().only(&only).unwrap();
    assert_eq!(round(&mix), counts(&[("/2", 6)]));
    let included = including("[[include]]\nmix = 'list'\nonly = ['a']\n").unwrap();
    assert_eq!(round(&included), counts(&[("/1", 4), ("/3", 2), ("own", 3)]));
}
