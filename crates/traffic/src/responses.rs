//! Responses of recordings, by which the origin of a run answers the requests of lists.

use std::collections::BTreeMap;
use std::io::{self, BufRead, Write};

use serde::{Deserialize, Serialize};

use crate::list::ListedRequest;
use crate::mix::Mix;

/// Response to requests with one method and target.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordedResponse {
    pub method: String,
    pub target: String,
    pub status: u16,
    #[serde(rename = "type")]
    pub content_type: String,
    /// Length of the body: the mean, rounded. `None` if the recording does not have it.
    pub bytes: Option<u64>,
    /// Number of requests in a round of the mix that got this response.
    pub weight: u64,
}

/// Responses to all requests of the lists of a mix, in the order of methods and targets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedResponses(Vec<RecordedResponse>);

impl RecordedResponses {
    /// Returns the responses to the lists of a mix. `None` if it has none.
    ///
    /// Requests with one method and target differ in headers or bodies alone, which a proxy may change, so the
    /// origin does not distinguish them: responses with one status and type become one, of their mean length.
    pub fn of(mix: &Mix) -> Option<Self> {
        let mut sums: BTreeMap<(&str, &str, u16, &str), Sum> = BTreeMap::new();
        for (template, request, weight) in mix.listed_with_weights() {
            let ListedRequest { response, message, .. } = request;
            // A list without recorded responses has those that it expects.
            let status = response.status.or(mix.templates()[template].status).unwrap_or(200);
            let target = message.target();
            let content_type =
                response.content_type.as_deref().unwrap_or_else(|| type_by_extension(target));
            let sum = sums.entry((message.method(), target, status, content_type)).or_default();
            let weight = u64::from(weight);
            sum.weight += weight;
            if let Some(bytes) = response.bytes.or(request.body_bytes) {
                // A template of weight 0 is sent by the probe.
                sum.sized += u128::from(weight.max(1));
                sum.bytes += u128::from(bytes) * u128::from(weight.max(1));
            }
        }
        let response =
            |((method, target, status, content_type), sum): ((&str, &str, u16, &str), Sum)| {
                let half = sum.sized / 2;
                RecordedResponse {
                    method: method.to_owned(),
                    target: target.to_owned(),
                    status,
                    content_type: content_type.to_owned(),
                    bytes: (sum.bytes + half).checked_div(sum.sized).map(|mean| mean as u64),
                    weight: sum.weight,
                }
            };
        let responses: Vec<_> = sums.into_iter().map(response).collect();
        (!responses.is_empty()).then_some(Self(responses))
    }

    /// Returns the responses to requests with this method and target.
    pub fn to(&self, method: &str, target: &str) -> &[RecordedResponse] {
        let start = self.0.partition_point(|one| key(one) < (method, target));
        let end = self.0.partition_point(|one| key(one) <= (method, target));
        &self.0[start..end]
    }

    /// Returns the responses to each method and target.
    pub fn by_request(&self) -> impl Iterator<Item = &[RecordedResponse]> {
        self.0.chunk_by(|one, other| key(one) == key(other))
    }

    /// Returns these responses, and the same for targets with a prefix, which a system may remove or not.
    pub fn with_prefix(mut self, prefix: &str) -> Self {
        if !prefix.is_empty() {
            let prefixed = |one: &RecordedResponse| RecordedResponse {
                target: format!("{prefix}{}", one.target),
                ..one.clone()
            };
            self.0.extend(self.0.iter().map(prefixed).collect::<Vec<_>>());
            self.0.sort_by(|one, other| key(one).cmp(&key(other)));
        }
        self
    }

    /// Writes the responses, one JSON object a line.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        self.0.iter().try_for_each(|response| {
            serde_json::to_writer(&mut *out, response)?;
            out.write_all(b"\n")
        })
    }

    /// Reads what [`write`](Self::write) wrote.
    pub fn read(reader: impl BufRead) -> io::Result<Vec<RecordedResponse>> {
        reader.lines().map(|line| Ok(serde_json::from_str(&line?)?)).collect()
    }
}

fn key(response: &RecordedResponse) -> (&str, &str) {
    (&response.method, &response.target)
}

#[derive(Debug, Default)]
struct Sum {
    weight: u64,
    /// Weight of the responses with a known length.
    sized: u128,
    bytes: u128,
}

/// Programs of a server, which respond with pages.
const PAGES: [&str; 14] = [
    "action", "asp", "aspx", "cfm", "cgi", "do", "jsf", "jsp", "jspx", "php", "phtml", "pl", "py",
    "rb",
];

/// Returns the type of a resource by its extension: without one, that of a page.
fn type_by_extension(target: &str) -> &'static str {
    let path = target.split('?').next().unwrap_or(target);
    let name = path.rsplit('/').next().unwrap_or(path);
    let extension = name.rsplit_once('.').map(|(_, extension)| extension);
    let is_page = |extension: &&str| PAGES.iter().any(|page| page.eq_ignore_ascii_case(extension));
    let known = extension.filter(|extension| !is_page(extension));
    known.and_then(|extension| mime_guess::from_ext(extension).first_raw()).unwrap_or("text/html")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::include::MixTree;
    use crate::list::RequestList;
    use std::sync::Arc;

    #[test]
    fn types_follow_extensions_and_pages_have_none() {
        for (target, expected) in [
            ("/", "text/html"),
            ("/a.b/c", "text/html"),
            ("/index.php?x=a.png", "text/html"),
            ("/LOGIN.ASPX", "text/html"),
            ("/a.css?v=1", "text/css"),
            ("/i/a.PNG", "image/png"),
            ("/data.json", "application/json"),
            ("/a.unknown", "text/html"),
        ] {
            assert_eq!(type_by_extension(target), expected, "{target}");
        }
    }

    fn responses(lines: &[&str]) -> RecordedResponses {
        let head = format!(
            r#"{{"tollgate_mix":1,"title":"a","requests":{},"templates":[{{"name":"t","class":"benign","status":302}}]}}"#,
            lines.len()
        );
        let text = [&[head.as_str()], lines].concat().join("\n");
        let list = Arc::new(RequestList::read(text.as_bytes()).unwrap());
        RecordedResponses::of(&Mix::try_from(&MixTree::List(list)).unwrap()).unwrap()
    }

    #[test]
    fn responses_of_a_target_have_their_mean_length_and_their_weights() {
        let of_a =
            |rest: &str| format!(r#"{{"template":"t","path":"/a","headers":["Host: a"],{rest}}}"#);
        let lines = [
            of_a(r#""weight":3,"response":{"status":200,"bytes":10}"#),
            of_a(r#""body":"x","response":{"status":200,"bytes":100}"#),
            of_a(r#""weight":2,"response":{"status":304,"bytes":0}"#),
            // Without a recorded response: that which is expected.
            r#"{"template":"t","path":"/old.css","headers":["Host: a"],"body_bytes":7}"#.to_owned(),
        ];
        let responses = responses(&lines.each_ref().map(String::as_str));
        let short = |one: &RecordedResponse| (one.status, one.bytes, one.weight);
        let to = |target| responses.to("GET", target).iter().map(short).collect::<Vec<_>>();
        // (3 x 10 + 100) / 4 = 32.5
        assert_eq!(to("/a"), [(200, Some(33), 4), (304, Some(0), 2)]);
        assert_eq!(to("/old.css"), [(302, Some(7), 1)]);
        assert_eq!(to("/b"), []);
        assert_eq!(responses.to("GET", "/old.css")[0].content_type, "text/css");
        let mut text = Vec::new();
        responses.clone().write(&mut text).unwrap();
        assert_eq!(RecordedResponses::read(text.as_slice()).unwrap(), responses.0);
        let prefixed = responses.clone().with_prefix("/full");
        let status = |target| prefixed.to("GET", target)[0].status;
        assert_eq!((status("/a"), status("/full/a"), status("/full/old.css")), (200, 200, 302));
    }
}
