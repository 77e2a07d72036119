use super::parse;
use std::error::Error;

/// The error of a mix and its causes, on one line.
fn error(text: &str) -> String {
    let error = parse(text).unwrap_err();
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(source) = cause {
        text += &format!(": {source}");
        cause = source.source();
    }
    text
}

fn template(name: &str, weight: u32, rest: &str) -> String {
    format!("[[template]]\nname = '{name}'\nclass = 'benign'\nweight = {weight}\n{rest}\n")
}

/// The error of a mix of one template with these variables.
fn error_with(variables: &str, rest: &str) -> String {
    error(&format!("{variables}\n{}", template("a", 1, rest)))
}

#[test]
fn weights_and_names() {
    assert_eq!(
        error(&template("a", 0, "path = '/'")),
        "every template has weight 0, so nothing would be sent; give one a weight above 0"
    );
    assert_eq!(
        error(&template("a", 10_001, "path = '/'")),
        "the weights add up to 10001, the limit is 10000; divide them by a common factor"
    );
    assert_eq!(
        error(&template("a", 1, "path = '/'").repeat(2)),
        "two templates are named `a`; figures are reported by name, so rename one"
    );
}

#[test]
fn a_template_has_a_name_that_can_stand_in_a_report() {
    for (name, told) in [("", ""), (" ", " "), ("a\\nb", "a\\nb")] {
        let mix = template("a", 1, "path = '/'").replace("'a'", &format!("\"{name}\""));
        assert_eq!(
            error(&mix),
            format!(
                "the name of a template is `{told}`: it has to be one line of plain text, as figures \
                 are reported by it"
            )
        );
    }
}

#[test]
fn a_body_of_filler_is_the_only_one_and_within_its_limit() {
    assert_eq!(
        error(&template("a", 1, "path = '/'\nbody = 'x'\nbody_bytes = 1")),
        "template `a` has a `body` and `body_bytes`; leave one of them out"
    );
    assert_eq!(
        error(&template("a", 1, "path = '/'\nbody_bytes = 67108865")),
        "template `a`: `body_bytes` is 67108865; it may be at most 67108864"
    );
}

#[test]
fn a_body_that_repeats_is_the_only_one_within_its_limit_and_counts_alone() {
    let repeat =
        |times: u32| format!("body_repeat = {{ each = 'x{{{{index}}}}', times = {times} }}");
    let with = |rest: &str| error(&template("a", 1, &format!("path = '/'\n{rest}\n{}", repeat(1))));
    assert_eq!(
        with("body = 'x'"),
        "template `a` has a `body` and `body_repeat`; leave one of them out"
    );
    assert_eq!(
        with("body_bytes = 1"),
        "template `a` has a `body_bytes` and `body_repeat`; leave one of them out"
    );
    // 10 characters, and one more for an index of ten digits.
    assert_eq!(
        error(&template("a", 1, &format!("path = '/'\n{}", repeat(6_100_806)))),
        "template `a`: `body_repeat` is 67108866; it may be at most 67108864"
    );
    assert_eq!(
        error_with(
            "[variable.index]\ncounter = 1",
            &format!("path = '/{{{{index}}}}'\n{}", repeat(1))
        ),
        "template `a`: in a `body_repeat` {{index}} counts, so no variable may be named `index`"
    );
}

#[test]
fn only_a_header_of_the_mix_can_be_left_out() {
    assert_eq!(
        error(&template("a", 1, "path = '/'\nwithout = ['Accept']\nheaders = ['Accept: */*']")),
        "template `a` leaves out the header `Accept`, which the mix does not share"
    );
}

#[test]
fn a_family_has_a_name() {
    assert_eq!(
        error(&template("a", 1, "path = '/'\nfamily = ''")),
        "template `a`: its `family` is empty; name it, or leave the key out"
    );
}

#[test]
fn only_templates_that_are_there_and_sent() {
    let mix = template("a", 1, "path = '/'") + &template("b", 0, "path = '/'");
    let only = |name: &str| parse(&mix).unwrap().only(&[name.to_owned()]).unwrap_err().to_string();
    assert_eq!(only("c"), "there is no template `c`; the mix has a, b");
    assert_eq!(
        only("b"),
        "every template has weight 0, so nothing would be sent; give one a weight above 0"
    );
}

#[test]
fn what_is_no_request() {
    assert_eq!(
        error(&template("a", 1, "path = 'index.html'")),
        "template `a`: the path `index.html` does not start with `/`"
    );
    assert_eq!(
        error(&template("a", 1, "path = '/'\nheaders = [': value']")),
        "the header line `: value` is not of the form `Name: value`"
    );
    assert_eq!(
        error(&template("a", 1, "path = '/'\nheaders = ['Host: other']")),
        "template `a`: there must be one Host header, not 2"
    );
    assert_eq!(
        error(&template("a", 1, "path = '/a b'")),
        "template `a`: the target has the byte 0x20 at 2, which may not stand there"
    );
}

#[test]
fn a_value_that_makes_no_request_is_named() {
    let variables = "[variable.id]\nrange = [1, 10]\n[variable.q]\nlist = ['shoes', 'a b']";
    assert_eq!(
        error_with(variables, "path = '/{{id}}?q={{q}}'"),
        "template `a` with `id` = `10`, `q` = `a b`: the target has the byte 0x20 at 7, which may not stand there"
    );
    let variables = "[variable.q]\nlist = ['shoes', \"a\\nb\"]";
    assert_eq!(
        error_with(variables, "path = '/'\nheaders = ['X: {{q}}']"),
        "template `a` with `q` = `a\\nb`: the value of the header `X` has the byte 0x0a at 1, which may not stand there"
    );
    // -9 and 10 have two characters, and 0, between them, has one.
    assert_eq!(
        error_with(
            "[variable.n]\nrange = [-9, 10]",
            "method = 'POST'\npath = '/'\nheaders = ['Content-Length: 2']\nbody = '{{n}}'"
        ),
        "template `a` with `n` = `0`: the header Content-Length says `2`, and the body has 1 bytes"
    );
}

#[test]
fn a_variable_that_is_not_there_gets_the_nearest() {
    let variables = "[variable.order]\ncounter = 1\n[variable.product]\ncounter = 1";
    assert_eq!(
        error_with(variables, "path = '/{{prodct}}/{{order}}'"),
        "template `a`: there is no variable `prodct`; the nearest that there is is `product`"
    );
    assert_eq!(
        error_with("", "path = '/'\nbody = '{{config}}'"),
        "template `a`: there is no variable `config`; the mix declares none"
    );
    for place in
        ["path = '/'\nheaders = ['X: {{x}}']", "path = '/'\nexpect = { body_contains = '{{x}}' }"]
    {
        assert_eq!(
            error_with("", place),
            "template `a`: there is no variable `x`; the mix declares none"
        );
    }
}

#[test]
fn a_variable_that_is_not_used() {
    // Braces with spaces are text, so the variable is not used there.
    assert_eq!(
        error_with("[variable.id]\ncounter = 1", "path = '/'\nbody = '{{ id }}'"),
        "no template uses the variable `id`; write {{id}} in one, or remove it"
    );
}

#[test]
fn what_a_variable_cannot_be() {
    let of = |name: &str, says: &str| {
        error_with(&format!("[variable.{name}]\n{says}"), "path = '/{{id}}'")
    };
    assert_eq!(
        of("id", ""),
        "variable `id`: it needs exactly one of `list`, `counter` and `range`"
    );
    assert_eq!(
        of("id", "counter = 1\nrange = [1, 2]"),
        "variable `id`: it needs exactly one of `list`, `counter` and `range`"
    );
    assert_eq!(
        of("id", "range = [1, 2]\nstep = 1"),
        "variable `id`: `step` goes with `counter` only"
    );
    assert_eq!(
        of("id", "counter = 1\nstep = 0"),
        "variable `id`: a `step` of 0 repeats one number; use a `list` of one text"
    );
    // 65,535 steps after the first number: 2^63 - 65,536 is the last that a counter can start from.
    assert_eq!(
        of("id", "counter = 9223372036854710273"),
        "variable `id`: a counter from 9223372036854710273 in steps of 1 leaves 64 bits within 65536 requests"
    );
    let last = "[variable.id]\ncounter = 9223372036854710272\n";
    parse(&format!("{last}{}", template("a", 1, "path = '/{{id}}'"))).unwrap();
    assert_eq!(
        of("id", "counter = 0\nstep = 9223372036854775807"),
        "variable `id`: a counter from 0 in steps of 9223372036854775807 leaves 64 bits within 65536 requests"
    );
    assert_eq!(
        of("id", "list = []"),
        "variable `id`: the `list` is empty; give it at least one text"
    );
    let long = format!("list = [{}]", "'a',".repeat(10_001));
    assert_eq!(of("id", &long), "variable `id`: the `list` has 10001 texts, the limit is 10000");
    assert_eq!(
        of("id", "range = [2, 1]"),
        "variable `id`: the `range` [2, 1] is empty; the smaller number comes first"
    );
    for name in ["1d", "'a-b'", "''", "'é'"] {
        assert_eq!(
            of(name, "counter = 1"),
            format!(
                "variable `{}`: a name has letters, digits and `_`, and does not start with a digit",
                name.trim_matches('\'')
            )
        );
    }
}

#[test]
fn what_cannot_be_expected() {
    assert_eq!(
        error_with("", "path = '/'\nexpect = { body_contains = '' }"),
        "template `a`: `body_contains` can have 0 bytes; it has to have 1 to 4096"
    );
    assert_eq!(
        error_with(
            "[variable.q]\nlist = ['a', '']",
            "path = '/'\nexpect = { body_contains = '{{q}}' }"
        ),
        "template `a`: `body_contains` can have 0 bytes; it has to have 1 to 4096"
    );
    let of_length = |bytes| {
        let text = "y".repeat(bytes);
        format!("path = '/'\nexpect = {{ body_contains = '{text}' }}")
    };
    parse(&template("a", 1, &of_length(4_096))).unwrap();
    assert_eq!(
        error_with("", &of_length(4_097)),
        "template `a`: `body_contains` can have 4097 bytes; it has to have 1 to 4096"
    );
    for expect in ["body_contains = 'a'", "body_bytes = 1"] {
        assert_eq!(
            error_with("", &format!("method = 'HEAD'\npath = '/'\nexpect = {{ {expect} }}")),
            "template `a`: the answer to a HEAD has no body, so none can be expected"
        );
    }
}

#[test]
fn a_deck_that_is_too_large_to_render() {
    // "POST / HTTP/1.1\r\n" 17, "Host: shop.example\r\n" 20, "Content-Length: 1678\r\n" 22, "\r\n" 2,
    // body 1,678: 1,739 bytes, 10,000 times.
    let body = format!("method = 'POST'\npath = '/'\nbody = '{}{{{{n}}}}'", "x".repeat(1_677));
    assert_eq!(
        error(&format!("[variable.n]\nrange = [1, 9]\n{}", template("a", 10_000, &body))),
        "to send every template with variables as often as its weight says takes 17390000 bytes, the limit is 16777216; make weights or requests smaller"
    );
}
