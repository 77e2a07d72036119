use tollgate_traffic::{Class, Mix, MixError, MixFile, MixTree};

fn file(text: &str) -> MixFile {
    toml::from_str(&format!("title = 'test'\n{text}")).unwrap()
}

fn leaf(text: &str) -> MixTree {
    MixTree { file: file(text), included: Vec::new() }
}

fn tree(text: &str, included: Vec<MixTree>) -> MixTree {
    MixTree { file: file(text), included }
}

fn template(name: &str, weight: u32) -> String {
    let line = format!("name = '{name}'\nclass = 'benign'\nweight = {weight}");
    format!("[[template]]\n{line}\nheaders = ['Host: a']\npath = '/{name}'\n")
}

/// How often each template is sent in one deck, by name.
fn deck(mix: &Mix, size: usize) -> Vec<(String, usize)> {
    let sent: Vec<usize> = mix.script(1).take(size).map(|step| step.template).collect();
    let count = |index| sent.iter().filter(|template| **template == index).count();
    (0..).zip(mix.templates()).map(|(index, one)| (one.name.clone(), count(index))).collect()
}

fn pairs(deck: &[(String, usize)]) -> Vec<(&str, usize)> {
    deck.iter().map(|(name, count)| (name.as_str(), *count)).collect()
}

#[test]
fn an_included_mix_has_its_share_in_the_proportions_of_its_own_weights() {
    // Of 10 requests, 7 are the pages: two thirds of those a, one third b; so 30 is the least deck.
    let pages = leaf(&(template("a", 2) + &template("b", 1)));
    let posts = leaf(&template("c", 5));
    let text = "[[include]]\nmix = 'pages'\nweight = 7\n[[include]]\nmix = 'posts'\nweight = 2\n";
    let mix = Mix::try_from(&tree(&(text.to_owned() + &template("own", 1)), vec![pages, posts]));
    let deck = deck(&mix.unwrap(), 30);
    assert_eq!(pairs(&deck), [("own", 3), ("a", 14), ("b", 7), ("c", 6)]);
}

#[test]
fn without_a_weight_those_of_the_included_mix_stand_beside_the_others() {
    let pages = leaf(&(template("a", 2) + &template("b", 4)));
    let text = "[[include]]\nmix = 'pages'\n".to_owned() + &template("own", 6);
    let deck = deck(&Mix::try_from(&tree(&text, vec![pages])).unwrap(), 12);
    assert_eq!(pairs(&deck), [("own", 6), ("a", 2), ("b", 4)]);
}

#[test]
fn shares_multiply_down_the_tree_and_only_some_templates_may_be_taken() {
    let inner = leaf(&(template("a", 1) + &template("b", 1) + &template("c", 3)));
    let middle = "[[include]]\nmix = 'inner'\nweight = 1\nonly = ['c', 'a']\n";
    let middle = tree(&(middle.to_owned() + &template("m", 1)), vec![inner]);
    // m 1/2, a 1/8, c 3/8 of a half each.
    let outer = "[[include]]\nmix = 'middle'\nweight = 1\n".to_owned() + &template("own", 1);
    let deck = deck(&Mix::try_from(&tree(&outer, vec![middle])).unwrap(), 16);
    assert_eq!(pairs(&deck), [("own", 8), ("m", 4), ("a", 1), ("c", 3)]);
}

#[test]
fn one_mix_may_be_included_twice_for_other_templates() {
    let part = || leaf(&(template("a", 1) + &template("b", 1)));
    let text = "[[include]]\nmix = 'part'\nonly = ['a']\n[[include]]\nmix = 'part'\nonly = ['b']\n";
    let mix = Mix::try_from(&tree(text, vec![part(), part()])).unwrap();
    assert_eq!(pairs(&deck(&mix, 2)), [("a", 1), ("b", 1)]);
}

#[test]
fn a_share_of_none_leaves_an_included_mix_to_the_probe() {
    let text = "[[include]]\nmix = 'pages'\nweight = 0\n".to_owned() + &template("own", 2);
    let mix = Mix::try_from(&tree(&text, vec![leaf(&template("a", 2))])).unwrap();
    assert_eq!(pairs(&deck(&mix, 4)), [("own", 4), ("a", 0)]);
}

#[test]
fn each_file_has_headers_and_variables_of_its_own() {
    let part = |host: &str, value: &str| {
        let text = format!("headers = ['Host: {host}']\n[variable.x]\nlist = ['{value}']\n");
        text + &format!(
            "[[template]]\nname = '{host}'\nclass = 'benign'\nweight = 1\npath = '/{{{{x}}}}'\n"
        )
    };
    let text = "[[include]]\nmix = 'b'\n".to_owned();
    let mix = Mix::try_from(&tree(&(part("a", "1") + &text), vec![leaf(&part("b", "2"))])).unwrap();
    let samples: Vec<_> =
        mix.samples().map(|sample| (sample.headers[0].1.clone(), sample.path)).collect();
    assert_eq!(samples, [("a".to_owned(), "/1".to_owned()), ("b".to_owned(), "/2".to_owned())]);
    // What is drawn is that of the template's own file as well.
    for step in mix.script(3).take(50) {
        assert_eq!(step.message.unwrap().path, samples[step.template].1);
    }
}

#[test]
fn family_and_openness_are_those_of_the_template_or_of_its_file() {
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
fn what_cannot_be_included_is_told() {
    let error = |text: &str, included: Vec<MixTree>| -> String {
        let error: MixError = Mix::try_from(&tree(text, included)).unwrap_err();
        error.to_string()
    };
    let include = "[[include]]\nmix = 'part'\nweight = 3\n";
    assert_eq!(error(include, vec![]), "it includes the mix `part`, which was not read with it");
    assert_eq!(
        error(include, vec![leaf(&template("a", 0))]),
        "the included mix `part` has weight 3, and each of its templates has weight 0"
    );
    assert_eq!(
        error(&format!("{include}only = ['b']\n"), vec![leaf(&template("a", 1))]),
        "there is no template `b`; the mix has a"
    );
    assert_eq!(
        error(&(include.to_owned() + &template("a", 1)), vec![leaf(&template("a", 1))]),
        "two templates are named `a`; figures are reported by name, so rename one"
    );
    // 3 requests of the part for 1 of its own, and 1 of the part's in 10,007, which is a prime number.
    let part = leaf(&(template("b", 1) + &template("c", 10_006)));
    assert_eq!(
        error(&(include.to_owned() + &template("a", 1)), vec![part]),
        "the weights add up to 40028, the limit is 10000; divide them by a common factor"
    );
}
