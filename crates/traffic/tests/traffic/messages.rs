use super::{parse, sent};
use proptest::prelude::*;
use tollgate_traffic::Message;

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
fn a_body_of_filler_is_so_many_letters_and_goes_with_its_length() {
    let mix = parse(
        "[[template]]
         name = 'a'
         class = 'benign'
         weight = 1
         method = 'POST'
         path = '/upload'
         body_bytes = 5",
    );
    let message = mix.unwrap().samples().next().unwrap();
    assert_eq!(message.body, "xxxxx");
    let expected = "POST /upload HTTP/1.1\r\nHost: shop.example\r\nContent-Length: 5\r\n\r\nxxxxx";
    assert_eq!(String::from_utf8(message.text().render().unwrap()).unwrap(), expected);
}

#[test]
fn a_template_may_leave_out_a_header_of_the_mix_and_send_its_own() {
    let mix = parse(
        "[[template]]
         name = 'a'
         class = 'benign'
         weight = 1
         path = '/'
         without = ['host']
         headers = ['Host: other.example']",
    );
    let headers = mix.unwrap().samples().next().unwrap().headers;
    assert_eq!(headers, [("Host".to_owned(), "other.example".to_owned())]);
}

#[test]
fn a_body_repeats_a_text_and_counts_it() {
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
    assert_eq!(mix.unwrap().samples().next().unwrap().body, "shop=7&n1=1-&n2=2-&n3=3.");
}

#[test]
fn a_mix_of_only_some_templates_sends_those_with_the_values_of_their_variables() {
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
fn headers_of_the_mix_come_before_those_of_the_template() {
    let mix = parse(
        "[[template]]
         name = 'a'
         class = 'benign'
         weight = 1
         path = '/'
         headers = ['X-Token:  a:b ']",
    );
    let headers = mix.unwrap().samples().next().unwrap().headers;
    let owned = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(headers, [owned("Host", "shop.example"), owned("X-Token", "a:b")]);
}

#[test]
fn a_counter_counts_up_in_the_order_of_sending_and_is_the_same_all_over_a_request() {
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
fn templates_that_share_a_counter_share_its_numbers() {
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
fn a_sample_has_the_first_values_in_every_place() {
    let samples: Vec<Message> = parse(EVERYWHERE).unwrap().samples().collect();
    let sample = &samples[0];
    assert_eq!(sample.method, "POST");
    assert_eq!(sample.path, "/-1?q={{7*7}}");
    assert_eq!(sample.headers[1].1, "<{{7*7}}>");
    assert_eq!(sample.body, "{\"n\":-1}");
    assert_eq!((sample.expect.status, sample.expect.body_bytes), (201, Some(9)));
    assert_eq!(sample.expect.body_contains.as_deref(), Some("n=-1"));
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
    let mix = parse(EVERYWHERE).unwrap();
    let bytes = |seed| -> Vec<u8> {
        sent(&mix, seed, 100).iter().flat_map(|message| message.text().render().unwrap()).collect()
    };
    assert_eq!(bytes(7), bytes(7));
    assert_ne!(bytes(7), bytes(8));
}

#[test]
fn every_value_comes_about_as_often_as_every_other() {
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
    fn a_range_is_never_left(min in -50i64..50, length in 0i64..50, seed: u64) {
        let text = COUNTER.replace("counter = 998", &format!("range = [{min}, {}]", min + length));
        for message in sent(&parse(&text).unwrap(), seed, 20) {
            let number = message.path.rsplit('=').next().unwrap().parse::<i64>().unwrap();
            prop_assert!((min..=min + length).contains(&number), "{}", number);
        }
    }
}
