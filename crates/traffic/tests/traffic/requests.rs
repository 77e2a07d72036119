use proptest::prelude::*;
use tollgate_traffic::{Message, StepRequest};

use super::{parse, sent};

const COUNTER: &str = "
    [variable.id]
    counter = 998
    [[template]]
    name = 'page'
    class = 'benign'
    weight = 1
    path = '/page/{{id}}?again={{id}}'
";

fn paths(messages: &[Message]) -> Vec<&str> {
    messages.iter().map(|message| message.path.as_str()).collect()
}

#[test]
fn body_bytes_makes_a_body_with_content_length() {
    let mix = parse(
        "[[template]]
         name = 'a'
         class = 'benign'
         weight = 1
         method = 'POST'
         path = '/upload'
         body_bytes = 5",
    );
    let message = mix.unwrap().messages().next().unwrap();
    assert_eq!(message.body, "xxxxx");
    let expected = "POST /upload HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 5\r\n\r\nxxxxx";
    assert_eq!(str::from_utf8(message.text().render().unwrap().bytes()).unwrap(), expected);
}

#[test]
fn template_replaces_a_header_of_the_mix() {
    let mix = parse(
        "[[template]]
         name = 'a'
         class = 'benign'
         weight = 1
         path = '/'
         without = ['host']
         headers = ['Host: other.example']",
    );
    let headers = mix.unwrap().messages().next().unwrap().headers;
    assert_eq!(headers, [("Host".to_owned(), "other.example".to_owned())]);
}

#[test]
fn body_repeat_numbers_the_repetitions() {
    let mix = parse(
        "[variable.shop]
         counter = 7
         [[template]]
         name = 'a'
         class = 'benign'
         weight = 1
         method = 'POST'
         path = '/cart'
         body_repeat = { begin = 'shop={{shop}}', each = '&n{{index}}={{index}}', times = 3, between = '-', end = '.' }",
    );
    assert_eq!(mix.unwrap().messages().next().unwrap().body, "shop=7&n1=1-&n2=2-&n3=3.");
}

#[test]
fn only_keeps_the_selected_templates_with_their_variables() {
    let other = "
        [[template]]
        name = 'other'
        class = 'benign'
        weight = 3
        path = '/other'
    ";
    let mix = parse(&format!("{other}{COUNTER}")).unwrap().only(&["page".to_owned()]).unwrap();
    let names: Vec<&str> = mix.templates().iter().map(|t| t.name.as_str()).collect();
    assert_eq!(names, ["page"]);
    assert_eq!(paths(&sent(&mix, 1, 2)), ["/page/998?again=998", "/page/999?again=999"]);
    assert!(mix.script(1).all(|step| step.template == 0));
}

#[test]
fn headers_of_the_mix_precede_those_of_the_template() {
    let mix = parse(
        "[[template]]
         name = 'a'
         class = 'benign'
         weight = 1
         path = '/'
         headers = ['X-Token:  a:b ']",
    );
    let headers = mix.unwrap().messages().next().unwrap().headers;
    let owned = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(headers, [owned("Host", "shop.example"), owned("X-Token", "a:b")]);
}

#[test]
fn counter_increases_with_each_request() {
    assert_eq!(
        paths(&sent(&parse(COUNTER).unwrap(), 1, 3)),
        ["/page/998?again=998", "/page/999?again=999", "/page/1000?again=1000"]
    );
    let down = COUNTER.replace("counter = 998", "counter = 1\nstep = -3");
    assert_eq!(
        paths(&sent(&parse(&down).unwrap(), 1, 3)),
        ["/page/1?again=1", "/page/-2?again=-2", "/page/-5?again=-5"]
    );
}

#[test]
fn templates_share_the_numbers_of_a_counter() {
    let other = "
        [[template]]
        name = 'other'
        class = 'benign'
        weight = 2
        path = '/other/{{id}}?again={{id}}'
    ";
    let messages = sent(&parse(&format!("{COUNTER}{other}")).unwrap(), 5, 30);
    for (number, path) in (998..).zip(paths(&messages)) {
        assert!(path.ends_with(&format!("/{number}?again={number}")), "{number}: {path}");
    }
}

const EVERYWHERE: &str = "
    [variable.word]
    list = ['{{7*7}}', 'b']
    [variable.number]
    range = [-1, 1]
    [[template]]
    name = 'everywhere'
    class = 'malicious'
    weight = 1
    method = 'POST'
    path = '/{{number}}?q={{7*7}}'
    headers = ['X-Word: <{{word}}>']
    body = '{\"n\":{{number}}}'
    expect = { status = 201, body_bytes = 9, body_contains = 'n={{number}}' }
";

#[test]
fn sample_has_the_first_values() {
    let samples: Vec<Message> = parse(EVERYWHERE).unwrap().messages().collect();
    let sample = &samples[0];
    assert_eq!(sample.method, "POST");
    assert_eq!(sample.path, "/-1?q={{7*7}}");
    assert_eq!(sample.headers[1].1, "<{{7*7}}>");
    assert_eq!(sample.body, "{\"n\":-1}");
    assert_eq!((sample.expect.status, sample.expect.body_bytes), (201, Some(9)));
    assert_eq!(sample.expect.body_contains.as_deref(), Some("n=-1"));
}

#[test]
fn seed_determines_the_bytes() {
    let mix = parse(EVERYWHERE).unwrap();
    let bytes = |seed| -> Vec<u8> {
        sent(&mix, seed, 100)
            .iter()
            .flat_map(|message| message.text().render().unwrap().bytes().to_vec())
            .collect()
    };
    assert_eq!(bytes(7), bytes(7));
    assert_ne!(bytes(7), bytes(8));
}

#[test]
fn values_are_equally_frequent() {
    let messages = sent(&parse(EVERYWHERE).unwrap(), 1, 9_000);
    for number in ["-1", "0", "1"] {
        let count = messages.iter().filter(|m| m.body == format!("{{\"n\":{number}}}")).count();
        // 3000 expected; the standard deviation of a binomial of 9000 and 1/3 is 45.
        assert!((2_700..3_300).contains(&count), "{number}: {count}");
    }
    let b = messages.iter().filter(|m| m.headers[1].1 == "<b>").count();
    // 4500 expected, with a standard deviation of 47.
    assert!((4_200..4_800).contains(&b), "b: {b}");
}

proptest! {
    #[test]
    fn numbers_stay_within_the_range(min in -50i64..50, length in 0i64..50, seed: u64) {
        let text = COUNTER.replace("counter = 998", &format!("range = [{min}, {}]", min + length));
        for message in sent(&parse(&text).unwrap(), seed, 20) {
            let number = message.path.rsplit('=').next().unwrap().parse::<i64>().unwrap();
            prop_assert!((min..=min + length).contains(&number), "{}", number);
        }
    }
}

fn templates(weights: &[u32], path: &str) -> String {
    let template = |(index, weight)| {
        format!(
            "[[template]]\nname = 't{index}'\nclass = 'benign'\nweight = {weight}\npath = '{path}'\n"
        )
    };
    weights.iter().enumerate().map(template).collect()
}

fn order(text: &str, seed: u64) -> Vec<usize> {
    parse(text).unwrap().script(seed).map(|step| step.template).collect()
}

#[test]
fn seed_determines_the_order() {
    let text = templates(&[30, 10], "/");
    assert_eq!(order(&text, 7), order(&text, 7));
    assert_ne!(order(&text, 7), order(&text, 8));
}

#[test]
fn template_without_variables_sends_its_sample() {
    let text = templates(&[1, 0], "/");
    let mix = parse(&text).unwrap();
    assert!(mix.script(1).all(|step| step.template == 0 && step.request == StepRequest::Sample));
    assert_eq!(mix.messages().count(), 2);
}

#[test]
fn variables_do_not_change_the_order() {
    let variable = "[variable.n]\nrange = [1, 9]\n";
    let with = format!("{variable}{}", templates(&[3, 2], "/{{n}}"));
    assert_eq!(order(&with, 4), order(&templates(&[3, 2], "/"), 4));
}

#[test]
fn script_has_as_many_rounds_as_fit() {
    // 65,536 / 10,000 = 6 rounds.
    assert_eq!(order(&templates(&[9_999, 1], "/"), 1).len(), 60_000);
    assert_eq!(order(&templates(&[1], "/"), 1).len(), 65_536);
}

#[test]
fn requests_with_variables_are_limited_in_bytes() {
    // "GET /", 1,000 x and the value, " HTTP/1.1\r\n", "Host: shop.example\r\n", "\r\n": with the
    // longest value, of 3 bytes, 5 + 1,000 + 3 + 11 + 20 + 2 = 1,041 bytes.
    let xs = "x".repeat(1_000);
    let variable = "[variable.n]\nrange = [1, 100]\n";
    let text = format!("{variable}{}", templates(&[1], &format!("/{xs}{{{{n}}}}")));
    // 16 MiB / 1,041 = 16,116.
    assert_eq!(order(&text, 1).len(), 16_116);
    // The text expected in the response counts too: 1,041 + 1,003 = 2,044 bytes.
    let expecting = format!("{text}expect = {{ body_contains = '{xs}{{{{n}}}}' }}");
    // 16 MiB / 2,044 = 8,208.
    assert_eq!(order(&expecting, 1).len(), 8_208);
    // Without a variable the request is rendered once.
    assert_eq!(order(&templates(&[1], &format!("/{xs}")), 1).len(), 65_536);
}

proptest! {
    #[test]
    fn every_round_has_the_exact_proportions(
        weights in prop::collection::vec(0u32..20, 1..6),
        seed: u64,
        varies: bool,
    ) {
        prop_assume!(weights.iter().sum::<u32>() > 0);
        let text = match varies {
            true => format!("[variable.n]\ncounter = 1\n{}", templates(&weights, "/{{n}}")),
            false => templates(&weights, "/"),
        };
        let round = weights.iter().sum::<u32>() as usize;
        let mix = parse(&text).unwrap();
        let order: Vec<usize> =
            mix.script(seed).take(20 * round).map(|step| step.template).collect();
        prop_assert_eq!(order.len(), 20 * round);
        for requests in order.chunks(round) {
            for (index, weight) in weights.iter().enumerate() {
                let count = requests.iter().filter(|template| **template == index).count();
                prop_assert_eq!(count, *weight as usize);
            }
        }
    }
}
