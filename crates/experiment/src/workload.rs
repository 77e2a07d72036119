//! A mix as the generator sends it: bytes, and the answers that count as expected.

use std::sync::Arc;
use thiserror::Error;
use tollgate_http1::RenderError;
use tollgate_load::{Expectation, MAX_PATTERN_BYTES, Request, Workload};
use tollgate_traffic::{Class, Expect, MAX_CONTAINS_BYTES, Message, Mix, Template};

/// What a mix leaves to whoever sends it.
#[derive(Debug, Clone, Copy)]
pub struct Delivery<'a> {
    /// A path that is put before every path of the mix; empty for none.
    pub prefix: &'a str,
    /// The `Host` that is sent instead of the mix's.
    pub host: Option<&'a str>,
    /// Whether connections are kept; otherwise every request says that its connection closes.
    pub keep_alive: bool,
    /// What is blocked; nothing, where every attack is let through.
    pub blocks: Option<Blocking<'a>>,
}

/// What a subject that blocks attacks says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocking<'a> {
    /// The status code that it answers a blocked request with.
    pub status: u16,
    /// The families of attacks that it is sure to block, whatever others it may; none where that is
    /// every attack that the mix does not leave open.
    pub families: Option<&'a [String]>,
    /// Whether it may block harmless requests, too.
    pub harmless: bool,
}

/// A mix that cannot be sent.
#[derive(Debug, Error)]
pub enum WorkloadError {
    /// A template is not a request.
    #[error("template `{template}`")]
    Template {
        /// The template's name.
        template: String,
        /// Why not.
        source: RenderError,
    },
    /// The generator does not take the requests.
    #[error("the mix as a workload")]
    Load(#[from] tollgate_load::Error),
}

/// One request of each template, in the mix's order: with the first value of each variable, so that
/// they are the same every time.
///
/// # Errors
///
/// What `delivery` changes makes a template no valid request.
pub fn samples(mix: &Mix, delivery: &Delivery<'_>) -> Result<Vec<Request>, WorkloadError> {
    (0..)
        .zip(mix.samples())
        .map(|(index, message)| request(mix, index, message, delivery))
        .collect()
}

/// Everything that is sent, rendered before the run: the mix's script of this seed.
///
/// # Errors
///
/// What `delivery` changes makes a template no valid request, or the mix has more templates than the
/// generator keeps figures for.
pub fn workload(mix: &Mix, delivery: &Delivery<'_>, seed: u64) -> Result<Workload, WorkloadError> {
    let (requests, order) = script(mix, delivery, seed)?;
    Ok(Workload::new(requests, order)?)
}

/// Whatever a mix may expect, the generator can look for.
const _: () = assert!(MAX_CONTAINS_BYTES <= MAX_PATTERN_BYTES);

/// Requests, the samples first, and the order in which they are sent.
fn script(
    mix: &Mix,
    delivery: &Delivery<'_>,
    seed: u64,
) -> Result<(Vec<Request>, Vec<u32>), WorkloadError> {
    let mut requests = samples(mix, delivery)?;
    let mut order = Vec::new();
    for step in mix.script(seed) {
        let index = match step.message {
            None => step.template,
            Some(message) => {
                requests.push(request(mix, step.template, message, delivery)?);
                requests.len() - 1
            }
        };
        order.push(index as u32);
    }
    Ok((requests, order))
}

fn request(
    mix: &Mix,
    template: usize,
    mut message: Message,
    delivery: &Delivery<'_>,
) -> Result<Request, WorkloadError> {
    message.path.insert_str(0, delivery.prefix);
    let headers = &mut message.headers;
    for (name, value) in headers.iter_mut() {
        if let Some(host) = delivery.host
            && name.eq_ignore_ascii_case("host")
        {
            host.clone_into(value);
        }
    }
    if !delivery.keep_alive {
        headers.retain(|(name, _)| {
            !name.eq_ignore_ascii_case("connection") && !name.eq_ignore_ascii_case("keep-alive")
        });
        headers.push(("Connection".to_owned(), "close".to_owned()));
    }
    let of = &mix.templates()[template];
    let bytes = message.text().render();
    Ok(Request {
        bytes: bytes
            .map_err(|source| WorkloadError::Template { template: of.name.clone(), source })?,
        is_head: message.method == "HEAD",
        expect: expectation(of, message.expect, delivery.blocks),
        template,
    })
}

fn expectation(of: &Template, expect: Expect, blocks: Option<Blocking<'_>>) -> Expectation {
    let passed = Expectation {
        status: Some(expect.status),
        body_bytes: expect.body_bytes,
        body_contains: expect.body_contains.map(|text| Arc::from(text.into_bytes())),
        or_status: None,
    };
    match blocks {
        None => passed,
        Some(Blocking { status, families, harmless }) => match owed(of, families, harmless) {
            Owed::Passage => passed,
            Owed::Block => Expectation { status: Some(status), ..Expectation::default() },
            Owed::Either => Expectation { or_status: Some(status), ..passed },
        },
    }
}

/// What a subject that blocks attacks owes a request.
enum Owed {
    Passage,
    Block,
    Either,
}

fn owed(template: &Template, families: Option<&[String]>, harmless: bool) -> Owed {
    let is_of =
        |families: &[String]| template.family.as_ref().is_some_and(|f| families.contains(f));
    match (template.class, families) {
        (Class::Malicious, Some(families)) if is_of(families) => Owed::Block,
        (Class::Malicious, None) if !template.open => Owed::Block,
        (Class::Benign, _) if !template.open && !harmless => Owed::Passage,
        (Class::Malicious | Class::Benign, _) => Owed::Either,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toml_file::{self, Source};
    use tollgate_traffic::MixFile;

    const SHOP: &str = "
        title = 'a shop'
        headers = ['host: shop.example', 'Connection: keep-alive']
        [variable.id]
        counter = 1
        [[template]]
        name = 'home'
        class = 'benign'
        weight = 1
        method = 'HEAD'
        path = '/'
        [[template]]
        name = 'order'
        class = 'malicious'
        weight = 2
        path = '/order/{{id}}'
        expect = { status = 201, body_bytes = 3, body_contains = 'n{{id}}' }
    ";

    const AS_IT_IS: Delivery<'_> =
        Delivery { prefix: "", host: None, keep_alive: true, blocks: None };

    fn shop() -> Mix {
        let source = Source { name: "shop.toml".to_owned(), text: SHOP.to_owned() };
        Mix::try_from(toml_file::parse::<MixFile>(&source).unwrap()).unwrap()
    }

    fn text(request: &Request) -> &str {
        str::from_utf8(&request.bytes).unwrap()
    }

    #[test]
    fn a_delivery_changes_prefix_host_and_connection() {
        let [home, order] = <[Request; 2]>::try_from(samples(&shop(), &AS_IT_IS).unwrap()).unwrap();
        assert_eq!(
            text(&home),
            "HEAD / HTTP/1.1\r\nhost: shop.example\r\nConnection: keep-alive\r\n\r\n"
        );
        assert!(home.is_head && !order.is_head);
        let delivery = Delivery {
            prefix: "/full",
            host: Some("localhost:8080"),
            keep_alive: false,
            blocks: None,
        };
        assert_eq!(
            text(&samples(&shop(), &delivery).unwrap()[1]),
            "GET /full/order/1 HTTP/1.1\r\nhost: localhost:8080\r\nConnection: close\r\n\r\n"
        );
    }

    #[test]
    fn a_delivery_that_makes_no_request_names_the_template() {
        let delivery = Delivery { host: Some("a\nb"), ..AS_IT_IS };
        let error = samples(&shop(), &delivery).unwrap_err();
        assert_eq!(error.to_string(), "template `home`");
    }

    #[test]
    fn an_attack_is_owed_its_block_or_what_the_mix_expects() {
        let expect =
            |delivery: Delivery<'_>| samples(&shop(), &delivery).unwrap()[1].expect.clone();
        let needle: Arc<[u8]> = Arc::from(*b"n1");
        assert_eq!(
            expect(AS_IT_IS),
            Expectation {
                status: Some(201),
                body_bytes: Some(3),
                body_contains: Some(needle),
                or_status: None
            }
        );
        assert_eq!(
            expect(Delivery { blocks: Some(EVERY_ATTACK), ..AS_IT_IS }),
            Expectation { status: Some(403), ..Expectation::default() }
        );
    }

    const EVERY_ATTACK: Blocking<'_> = Blocking { status: 403, families: None, harmless: false };

    #[test]
    fn an_open_request_may_be_blocked_and_a_sure_family_has_to_be() {
        let template = |class: &str, open: bool, family: &str| {
            let name = format!("{class}-{open}-{family}");
            format!(
                "[[template]]\nname = '{name}'\nclass = '{class}'\nopen = {open}\nfamily = '{family}'\nweight = 1\npath = '/'\n"
            )
        };
        let text = "title = 'a'\nheaders = ['Host: a']\n".to_owned()
            + &template("benign", false, "search")
            + &template("benign", true, "search")
            + &template("malicious", false, "xss")
            + &template("malicious", true, "xss")
            + &template("malicious", true, "virtual-patch");
        let source = Source { name: "a.toml".to_owned(), text };
        let mix = Mix::try_from(toml_file::parse::<MixFile>(&source).unwrap()).unwrap();
        let owed = |blocks: Option<Blocking<'_>>| -> Vec<String> {
            let delivery = Delivery { blocks, ..AS_IT_IS };
            let samples = samples(&mix, &delivery).unwrap();
            samples.iter().map(|sample| sample.expect.to_string()).collect()
        };
        assert_eq!(owed(None), ["200"; 5]);
        assert_eq!(
            owed(Some(EVERY_ATTACK)),
            ["200", "200, or 403", "403", "200, or 403", "200, or 403"]
        );
        let families = ["virtual-patch".to_owned()];
        let patches = Blocking { families: Some(&families), ..EVERY_ATTACK };
        assert_eq!(
            owed(Some(patches)),
            ["200", "200, or 403", "200, or 403", "200, or 403", "403"]
        );
    }

    #[test]
    fn a_script_has_a_request_for_each_send_with_variables_and_one_for_all_without() {
        let (requests, order) = script(&shop(), &AS_IT_IS, 3).unwrap();
        // 21,845 decks of 3 fit in 65,536 sends; two of each have a request of their own, which come
        // after the two samples.
        assert_eq!((requests.len(), order.len()), (2 + 2 * 21_845, 3 * 21_845));
        let mut id = 0;
        for index in &order {
            let request = &requests[*index as usize];
            if request.template == 1 {
                id += 1;
                assert!(text(request).starts_with(&format!("GET /order/{id} ")));
                let needle = format!("n{id}");
                assert_eq!(request.expect.body_contains.as_deref(), Some(needle.as_bytes()));
            } else {
                assert_eq!(*index, 0);
            }
        }
        assert_eq!(id, 2 * 21_845);
    }
}
