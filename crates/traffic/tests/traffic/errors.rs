use std::error::Error;

use super::parse;

/// Returns the error of a mix with its causes on one line.
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

/// Returns the error of a mix of one template with these variables.
fn error_with(variables: &str, rest: &str) -> String {
    error(&format!("{variables}\n{}", template("a", 1, rest)))
}

#[test]
fn rejects_weights_and_duplicate_names() {
    assert_eq!(
        error(&template("a", 0, "path = '/'")),
        "all templates have weight 0; give at least one a weight above 0"
    );
    assert_eq!(
        error(&template("a", 10_001, "path = '/'")),
        "weights add up to 10001, but the limit is 10000; divide them by a common factor"
    );
    assert_eq!(
        error(&template("a", 1, "path = '/'").repeat(2)),
        "two templates are named `a`; figures are reported by name, so rename one"
    );
}

#[test]
fn rejects_names_other_than_one_line_of_text() {
    for (name, shown) in [("", ""), (" ", " "), ("a\\nb", "a\\nb")] {
        let mix = template("a", 1, "path = '/'").replace("'a'", &format!("\"{name}\""));
        assert_eq!(
            error(&mix),
            format!(
                "invalid template name `{shown}`: expected one line of plain text, under which figures \
                 are reported"
            )
        );
    }
}

#[test]
fn rejects_invalid_body_bytes() {
    assert_eq!(
        error(&template("a", 1, "path = '/'\nbody = 'x'\nbody_bytes = 1")),
        "template `a`: both `body` and `body_bytes`; remove one"
    );
    assert_eq!(
        error(&template("a", 1, "path = '/'\nbody_bytes = 67108865")),
        "template `a`: `body_bytes` makes 67108865 bytes, but the limit is 67108864"
    );
}

#[test]
fn rejects_invalid_body_repeat() {
    let repeat =
        |times: u32| format!("body_repeat = {{ each = 'x{{{{index}}}}', times = {times} }}");
    let with = |rest: &str| error(&template("a", 1, &format!("path = '/'\n{rest}\n{}", repeat(1))));
    assert_eq!(with("body = 'x'"), "template `a`: both `body` and `body_repeat`; remove one");
    assert_eq!(
        with("body_bytes = 1"),
        "template `a`: both `body_bytes` and `body_repeat`; remove one"
    );
    // 10 characters, and one more for an index of ten digits.
    assert_eq!(
        error(&template("a", 1, &format!("path = '/'\n{}", repeat(6_100_806)))),
        "template `a`: `body_repeat` makes 67108866 bytes, but the limit is 67108864"
    );
    assert_eq!(
        error_with(
            "[variable.index]\ncounter = 1",
            &format!("path = '/{{{{index}}}}'\n{}", repeat(1))
        ),
        "template `a`: variable `index` conflicts with {{index}} in `body_repeat`; rename it"
    );
}

#[test]
fn rejects_removal_of_unknown_header() {
    assert_eq!(
        error(&template("a", 1, "path = '/'\nwithout = ['Accept']\nheaders = ['Accept: */*']")),
        "template `a`: `without` names `Accept`, which is not a header of the mix"
    );
}

#[test]
fn rejects_empty_family() {
    assert_eq!(
        error(&template("a", 1, "path = '/'\nfamily = ''")),
        "template `a`: `family` is empty; give it a name, or remove the key"
    );
}

#[test]
fn only_rejects_unknown_and_unsent_templates() {
    let mix = template("a", 1, "path = '/'") + &template("b", 0, "path = '/'");
    let only = |name: &str| parse(&mix).unwrap().only(&[name.to_owned()]).unwrap_err().to_string();
    assert_eq!(only("c"), "unknown template `c`; the mix has a, b");
    assert_eq!(only("b"), "all templates have weight 0; give at least one a weight above 0");
}

#[test]
fn rejects_invalid_requests() {
    assert_eq!(
        error(&template("a", 1, "path = 'index.html'")),
        "template `a`: path `index.html` does not start with `/`"
    );
    assert_eq!(
        error(&template("a", 1, "path = '/'\nheaders = [': value']")),
        "invalid header `: value`: expected `Name: value`"
    );
    assert_eq!(
        error(&template("a", 1, "path = '/'\nheaders = ['Host: other']")),
        "template `a`: expected one Host header, found 2"
    );
    assert_eq!(
        error(&template("a", 1, "path = '/a b'")),
        "template `a`: target contains the byte 0x20 at 2, which is not allowed there"
    );
}

#[test]
fn error_names_the_value_of_an_invalid_request() {
    let variables = "[variable.id]\nrange = [1, 10]\n[variable.q]\nlist = ['shoes', 'a b']";
    assert_eq!(
        error_with(variables, "path = '/{{id}}?q={{q}}'"),
        "template `a` with `id` = `10`, `q` = `a b`: target contains the byte 0x20 at 7, which is not allowed there"
    );
    let variables = "[variable.q]\nlist = ['shoes', \"a\\nb\"]";
    assert_eq!(
        error_with(variables, "path = '/'\nheaders = ['X: {{q}}']"),
        "template `a` with `q` = `a\\nb`: value of header `X` contains the byte 0x0a at 1, which is not allowed there"
    );
    // -9 and 10 have two characters, and 0, between them, has one.
    assert_eq!(
        error_with(
            "[variable.n]\nrange = [-9, 10]",
            "method = 'POST'\npath = '/'\nheaders = ['Content-Length: 2']\nbody = '{{n}}'"
        ),
        "template `a` with `n` = `0`: Content-Length is `2`, but the body has 1 bytes"
    );
}

#[test]
fn unknown_variable_gets_the_nearest_name() {
    let variables = "[variable.order]\ncounter = 1\n[variable.product]\ncounter = 1";
    assert_eq!(
        error_with(variables, "path = '/{{prodct}}/{{order}}'"),
        "template `a`: unknown variable `prodct`; the nearest one is `product`"
    );
    assert_eq!(
        error_with("", "path = '/'\nbody = '{{config}}'"),
        "template `a`: unknown variable `config`; the mix declares none"
    );
    for place in
        ["path = '/'\nheaders = ['X: {{x}}']", "path = '/'\nexpect = { body_contains = '{{x}}' }"]
    {
        assert_eq!(
            error_with("", place),
            "template `a`: unknown variable `x`; the mix declares none"
        );
    }
}

#[test]
fn rejects_unused_variable() {
    // Braces with spaces are text, so the variable is not used there.
    assert_eq!(
        error_with("[variable.id]\ncounter = 1", "path = '/'\nbody = '{{ id }}'"),
        "unused variable `id`; write {{id}} in a template, or remove it"
    );
}

#[test]
fn rejects_invalid_variables() {
    let of = |name: &str, says: &str| {
        error_with(&format!("[variable.{name}]\n{says}"), "path = '/{{id}}'")
    };
    assert_eq!(
        of("id", ""),
        "variable `id`: expected exactly one of `list`, `counter` and `range`"
    );
    assert_eq!(
        of("id", "counter = 1\nrange = [1, 2]"),
        "variable `id`: expected exactly one of `list`, `counter` and `range`"
    );
    assert_eq!(of("id", "range = [1, 2]\nstep = 1"), "variable `id`: `step` requires `counter`");
    assert_eq!(
        of("id", "counter = 1\nstep = 0"),
        "variable `id`: a `step` of 0 repeats one number; use a `list` of one text"
    );
    // 65,535 steps after the first number: a counter can start from 2^63 - 65,536 at most.
    assert_eq!(
        of("id", "counter = 9223372036854710273"),
        "variable `id`: a counter from 9223372036854710273 in steps of 1 exceeds 64 bits within 65536 requests"
    );
    let last = "[variable.id]\ncounter = 9223372036854710272\n";
    parse(&format!("{last}{}", template("a", 1, "path = '/{{id}}'"))).unwrap();
    assert_eq!(
        of("id", "counter = 0\nstep = 9223372036854775807"),
        "variable `id`: a counter from 0 in steps of 9223372036854775807 exceeds 64 bits within 65536 requests"
    );
    assert_eq!(of("id", "list = []"), "variable `id`: `list` is empty; give it at least one text");
    let long = format!("list = [{}]", "'a',".repeat(10_001));
    assert_eq!(of("id", &long), "variable `id`: `list` has 10001 texts, but the limit is 10000");
    assert_eq!(
        of("id", "range = [2, 1]"),
        "variable `id`: `range` [2, 1] is empty; put the smaller number first"
    );
    for name in ["1d", "'a-b'", "''", "'é'"] {
        assert_eq!(
            of(name, "counter = 1"),
            format!(
                "variable `{}`: invalid name: use letters, digits and `_`, but no digit first",
                name.trim_matches('\'')
            )
        );
    }
}

#[test]
fn rejects_invalid_expectations() {
    assert_eq!(
        error_with("", "path = '/'\nexpect = { body_contains = '' }"),
        "template `a`: `body_contains` can have 0 bytes; expected 1 to 4096"
    );
    assert_eq!(
        error_with(
            "[variable.q]\nlist = ['a', '']",
            "path = '/'\nexpect = { body_contains = '{{q}}' }"
        ),
        "template `a`: `body_contains` can have 0 bytes; expected 1 to 4096"
    );
    let of_length = |bytes| {
        let text = "y".repeat(bytes);
        format!("path = '/'\nexpect = {{ body_contains = '{text}' }}")
    };
    parse(&template("a", 1, &of_length(4_096))).unwrap();
    assert_eq!(
        error_with("", &of_length(4_097)),
        "template `a`: `body_contains` can have 4097 bytes; expected 1 to 4096"
    );
    for expect in ["body_contains = 'a'", "body_bytes = 1"] {
        assert_eq!(
            error_with("", &format!("method = 'HEAD'\npath = '/'\nexpect = {{ {expect} }}")),
            "template `a`: cannot expect a body, because the response to HEAD has none"
        );
    }
}

#[test]
fn rejects_round_that_is_too_large_to_render() {
    // "POST / HTTP/1.1\r\n" 17, "Host: shop.example\r\n" 20, "Content-Length: 1678\r\n" 22, "\r\n" 2,
    // body 1,678: 1,739 bytes, 10,000 times.
    let body = format!("method = 'POST'\npath = '/'\nbody = '{}{{{{n}}}}'", "x".repeat(1_677));
    assert_eq!(
        error(&format!("[variable.n]\nrange = [1, 9]\n{}", template("a", 10_000, &body))),
        "templates with variables, each sent as often as its weight, take 17390000 bytes, but the limit is 16777216; reduce weights or requests"
    );
}
