use super::parse;
use proptest::prelude::*;

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
fn another_seed_gives_another_order() {
    let text = templates(&[30, 10], "/");
    assert_eq!(order(&text, 7), order(&text, 7));
    assert_ne!(order(&text, 7), order(&text, 8));
}

#[test]
fn a_template_without_variables_sends_its_sample_and_what_is_never_sent_is_sampled() {
    let text = templates(&[1, 0], "/");
    let mix = parse(&text).unwrap();
    assert!(mix.script(1).all(|step| step.template == 0 && step.message.is_none()));
    assert_eq!(mix.samples().count(), 2);
}

#[test]
fn a_variable_does_not_change_the_order() {
    let variable = "[variable.n]\nrange = [1, 9]\n";
    let with = format!("{variable}{}", templates(&[3, 2], "/{{n}}"));
    assert_eq!(order(&with, 4), order(&templates(&[3, 2], "/"), 4));
}

#[test]
fn a_script_has_as_many_decks_as_fit() {
    // 65,536 / 10,000 = 6 decks.
    assert_eq!(order(&templates(&[9_999, 1], "/"), 1).len(), 60_000);
    assert_eq!(order(&templates(&[1], "/"), 1).len(), 65_536);
}

#[test]
fn what_is_rendered_one_by_one_is_bounded_in_bytes() {
    // "GET /", 1,000 x and the value, " HTTP/1.1\r\n", "Host: shop.example\r\n", "\r\n": with the
    // longest value, of 3 bytes, 5 + 1,000 + 3 + 11 + 20 + 2 = 1,041 bytes.
    let xs = "x".repeat(1_000);
    let variable = "[variable.n]\nrange = [1, 100]\n";
    let text = format!("{variable}{}", templates(&[1], &format!("/{xs}{{{{n}}}}")));
    // 16 MiB / 1,041 = 16,116.
    assert_eq!(order(&text, 1).len(), 16_116);
    // A text that is looked for in the answers is kept for each, too: 1,041 + 1,003 = 2,044 bytes.
    let expecting = format!("{text}expect = {{ body_contains = '{xs}{{{{n}}}}' }}");
    // 16 MiB / 2,044 = 8,208.
    assert_eq!(order(&expecting, 1).len(), 8_208);
    // The same without a variable is rendered once.
    assert_eq!(order(&templates(&[1], &format!("/{xs}")), 1).len(), 65_536);
}

proptest! {
    #[test]
    fn every_deck_holds_the_exact_proportions(
        weights in prop::collection::vec(0u32..20, 1..6),
        seed: u64,
        varies: bool,
    ) {
        prop_assume!(weights.iter().sum::<u32>() > 0);
        let text = match varies {
            true => format!("[variable.n]\ncounter = 1\n{}", templates(&weights, "/{{n}}")),
            false => templates(&weights, "/"),
        };
        let deck = weights.iter().sum::<u32>() as usize;
        let mix = parse(&text).unwrap();
        let order: Vec<usize> =
            mix.script(seed).take(20 * deck).map(|step| step.template).collect();
        prop_assert_eq!(order.len(), 20 * deck);
        for cards in order.chunks(deck) {
            for (index, weight) in weights.iter().enumerate() {
                let dealt = cards.iter().filter(|card| **card == index).count();
                prop_assert_eq!(dealt, *weight as usize);
            }
        }
    }
}
