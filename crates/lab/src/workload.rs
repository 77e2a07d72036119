//! A mix as the generator sends it: bytes, and the answers that count as expected.

use std::sync::Arc;
use thiserror::Error;
use tollgate_load::{Expectation, MAX_NEEDLE_BYTES, Request, Workload};
use tollgate_traffic::{Class, Expect, MAX_CONTAINS_BYTES, Message, Mix};
use tollgate_wire::RenderError;

/// What a mix leaves to whoever sends it.
#[derive(Debug, Clone, Copy)]
pub struct Delivery<'a> {
    /// A path that is put before every path of the mix; empty for none.
    pub prefix: &'a str,
    /// The `Host` that is sent instead of the mix's.
    pub host: Option<&'a str>,
    /// Whether connections are kept; otherwise every request says that its connection closes.
    pub keep_alive: bool,
    /// The status code that attacks are owed; none where they are let through.
    pub blocks: Option<u16>,
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
const _: () = assert!(MAX_CONTAINS_BYTES <= MAX_NEEDLE_BYTES);

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
        expect: expectation(of.class, message.expect, delivery.blocks),
        template,
    })
}

fn expectation(class: Class, expect: Expect, blocks: Option<u16>) -> Expectation {
    match (class, blocks) {
        (Class::Malicious, Some(status)) => {
            Expectation { status: Some(status), body_bytes: None, body_contains: None }
        }
        (Class::Malicious | Class::Benign, _) => Expectation {
            status: Some(expect.status),
            body_bytes: expect.body_bytes,
            body_contains: expect.body_contains.map(|text| Arc::from(text.into_bytes())),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::toml_file::{self, Source};
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
            Expectation { status: Some(201), body_bytes: Some(3), body_contains: Some(needle) }
        );
        assert_eq!(
            expect(Delivery { blocks: Some(403), ..AS_IT_IS }),
            Expectation { status: Some(403), body_bytes: None, body_contains: None }
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
