use tollgate_traffic::{Class, Mix, MixError, MixTree};

use super::{file, message};

fn leaf(text: &str) -> MixTree {
    tree(text, Vec::new())
}

fn tree(text: &str, included: Vec<MixTree>) -> MixTree {
    MixTree::File { file: file(text), included }
}

fn template(name: &str, weight: u32) -> String {
    let line = format!("name = '{name}'\nclass = 'benign'\nweight = {weight}");
    format!("[[template]]\n{line}\nheaders = ['Host: a']\npath = '/{name}'\n")
}

/// Counts each template in one round.
fn round(mix: &Mix, size: usize) -> Vec<(String, usize)> {
    let sent: Vec<usize> = mix.script(1).take(size).map(|step| step.template).collect();
    let count = |index| sent.iter().filter(|template| **template == index).count();
    (0..).zip(mix.templates()).map(|(index, one)| (one.name.clone(), count(index))).collect()
}

fn pairs(round: &[(String, usize)]) -> Vec<(&str, usize)> {
    round.iter().map(|(name, count)| (name.as_str(), *count)).collect()
}

#[test]
fn included_mix_has_its_weight_in_its_own_proportions() {
    // Of 10 requests, 7 are pages: two thirds of those a, one third b; so the smallest round has 30.
    let pages = leaf(&(template("a", 2) + &template("b", 1)));
    let posts = leaf(&template("c", 5));
    let text = "[[include]]\nmix = 'pages'\nweight = 7\n[[include]]\nmix = 'posts'\nweight = 2\n";
    let mix = Mix::try_from(&tree(&(text.to_owned() + &template("own", 1)), vec![pages, posts]));
    let round = round(&mix.unwrap(), 30);
    assert_eq!(pairs(&round), [("own", 3), ("a", 14), ("b", 7), ("c", 6)]);
}

#[test]
fn include_without_weight_keeps_the_weights() {
    let pages = leaf(&(template("a", 2) + &template("b", 4)));
    let text = "[[include]]\nmix = 'pages'\n".to_owned() + &template("own", 6);
    let round = round(&Mix::try_from(&tree(&text, vec![pages])).unwrap(), 12);
    assert_eq!(pairs(&round), [("own", 6), ("a", 2), ("b", 4)]);
}

#[test]
fn weights_multiply_down_the_tree_with_selected_templates() {
    let inner = leaf(&(template("a", 1) + &template("b", 1) + &template("c", 3)));
    let middle = "[[include]]\nmix = 'inner'\nweight = 1\nonly = ['c', 'a']\n";
    let middle = tree(&(middle.to_owned() + &template("m", 1)), vec![inner]);
    // m 1/2, a 1/8, c 3/8 of a half each.
    let outer = "[[include]]\nmix = 'middle'\nweight = 1\n".to_owned() + &template("own", 1);
    let round = round(&Mix::try_from(&tree(&outer, vec![middle])).unwrap(), 16);
    assert_eq!(pairs(&round), [("own", 8), ("m", 4), ("a", 1), ("c", 3)]);
}

#[test]
fn mix_may_be_included_twice_with_different_templates() {
    let part = || leaf(&(template("a", 1) + &template("b", 1)));
    let text = "[[include]]\nmix = 'part'\nonly = ['a']\n[[include]]\nmix = 'part'\nonly = ['b']\n";
    let mix = Mix::try_from(&tree(text, vec![part(), part()])).unwrap();
    assert_eq!(pairs(&round(&mix, 2)), [("a", 1), ("b", 1)]);
}

#[test]
fn include_with_weight_zero_is_not_sent() {
    let text = "[[include]]\nmix = 'pages'\nweight = 0\n".to_owned() + &template("own", 2);
    let mix = Mix::try_from(&tree(&text, vec![leaf(&template("a", 2))])).unwrap();
    assert_eq!(pairs(&round(&mix, 4)), [("own", 4), ("a", 0)]);
}

#[test]
fn each_file_has_its_own_headers_and_variables() {
    let part = |host: &str, value: &str| {
        let text = format!("headers = ['Host: {host}']\n[variable.x]\nlist = ['{value}']\n");
        text + &format!(
            "[[template]]\nname = '{host}'\nclass = 'benign'\nweight = 1\npath = '/{{{{x}}}}'\n"
        )
    };
    let text = "[[include]]\nmix = 'b'\n".to_owned();
    let mix = Mix::try_from(&tree(&(part("a", "1") + &text), vec![leaf(&part("b", "2"))])).unwrap();
    let samples: Vec<_> =
        mix.messages().map(|sample| (sample.headers[0].1.clone(), sample.path)).collect();
    assert_eq!(samples, [("a".to_owned(), "/1".to_owned()), ("b".to_owned(), "/2".to_owned())]);
    for step in mix.script(3).take(50) {
        assert_eq!(message(step.request).path, samples[step.template].1);
    }
}

#[test]
fn open_defaults_to_that_of_the_file() {
    let inner = "open = true\n".to_owned()
        + "[[template]]\nname = 'a'\nclass = 'malicious'\nfamily = 'xss'\nweight = 1\nheaders = ['Host: a']\npath = '/'\n"
        + &template("b", 1).replace("weight", "open = false\nweight");
    let mix = Mix::try_from(&tree(
        &("[[include]]\nmix = 'inner'\n".to_owned() + &template("own", 1)),
        vec![leaf(&inner)],
    ));
    let mix = mix.unwrap();
    let seen: Vec<_> =
        mix.templates().iter().map(|t| (t.class, t.family.as_deref(), t.open)).collect();
    assert_eq!(
        seen,
        [
            (Class::Benign, None, false),
            (Class::Malicious, Some("xss"), true),
            (Class::Benign, None, false)
        ]
    );
}

#[test]
fn rejects_invalid_includes() {
    let error = |text: &str, included: Vec<MixTree>| -> String {
        let error: MixError = Mix::try_from(&tree(text, included)).unwrap_err();
        error.to_string()
    };
    let include = "[[include]]\nmix = 'part'\nweight = 3\n";
    assert_eq!(error(include, vec![]), "included mix `part` is missing");
    assert_eq!(
        error(include, vec![leaf(&template("a", 0))]),
        "included mix `part` has weight 3, but all its templates have weight 0"
    );
    assert_eq!(
        error(&format!("{include}only = ['b']\n"), vec![leaf(&template("a", 1))]),
        "unknown template `b`; the mix has a"
    );
    assert_eq!(
        error(&(include.to_owned() + &template("a", 1)), vec![leaf(&template("a", 1))]),
        "two templates are named `a`; figures are reported by name, so rename one"
    );
    // 3 requests of the part for 1 of the file, and 1 of 10,007 in the part, which is prime.
    let part = leaf(&(template("b", 1) + &template("c", 10_006)));
    assert_eq!(
        error(&(include.to_owned() + &template("a", 1)), vec![part]),
        "weights add up to 40028, but the limit is 10000; divide them by a common factor"
    );
}
