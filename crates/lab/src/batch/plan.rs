//! Which products share a round. Pure.

use super::rounds::ANCHOR;
use std::collections::BTreeMap;

/// A product that is to be measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Its hash.
    pub(super) product: String,
    /// What it is called in the round: the first revision's name that has it.
    pub(super) name: String,
    /// How many revisions have it.
    pub(super) revisions: usize,
}

/// The subjects of one round, besides the anchor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Share {
    /// The product of each subject, in their order.
    pub(super) subjects: Vec<(String, String)>,
    /// Of a subject that is a product a second time, the subject that is the first.
    pub(super) again: BTreeMap<String, String>,
}

/// What a subject is called that is a product a second time.
const AGAIN: &str = "-again";

/// Deals products out to rounds, neighbours together. The product that is the anchor's stands beside it,
/// and where another one belongs to several revisions, the first such one of a round runs a second time:
/// both tell how far apart equal products are.
pub(super) fn shares(wanted: &[Wanted], together: usize, anchor: &str) -> Vec<Share> {
    let share = |products: &[Wanted]| {
        let subject = |one: &Wanted| (one.name.clone(), one.product.clone());
        let beside = products.iter().filter(|one| one.product == anchor);
        let mut share = Share {
            subjects: products.iter().map(subject).collect(),
            again: beside.map(|one| (one.name.clone(), ANCHOR.to_owned())).collect(),
        };
        let is_shared = |one: &&Wanted| one.revisions > 1 && one.product != anchor;
        if let Some(shared) = products.iter().find(is_shared) {
            let name = format!("{}{AGAIN}", shared.name);
            share.subjects.push((name.clone(), shared.product.clone()));
            share.again.insert(name, shared.name.clone());
        }
        share
    };
    // As even as can be: a last round with one product would cost as much anchor as one with four.
    let rounds = wanted.len().div_ceil(together.max(1));
    let mut left = wanted;
    (0..rounds)
        .map(|round| {
            let (these, rest) = left.split_at(left.len().div_ceil(rounds - round));
            left = rest;
            share(these)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn wanted(name: &str, revisions: usize) -> Wanted {
        Wanted { product: format!("hash of {name}"), name: name.to_owned(), revisions }
    }

    #[test]
    fn neighbours_share_a_round_and_what_several_revisions_have_runs_twice() {
        let all = [wanted("a", 1), wanted("b", 2), wanted("c", 3), wanted("d", 1), wanted("e", 1)];
        let shares = shares(&all, 4, "hash of e");
        let names = |share: &Share| -> Vec<String> {
            share.subjects.iter().map(|(name, _)| name.clone()).collect()
        };
        assert_eq!(names(&shares[0]), ["a", "b", "c", "b-again"]);
        assert_eq!(names(&shares[1]), ["d", "e"]);
        assert_eq!(shares[0].again, BTreeMap::from([("b-again".to_owned(), "b".to_owned())]));
        assert_eq!(shares[0].subjects[3].1, "hash of b");
        assert_eq!(shares[1].again, BTreeMap::from([("e".to_owned(), "anchor".to_owned())]));
    }

    proptest! {
        #[test]
        fn every_product_is_in_one_round_and_rounds_are_even(count in 0usize..60, together in 1usize..9) {
            let all: Vec<Wanted> = (0..count).map(|place| wanted(&place.to_string(), 1)).collect();
            let shares = shares(&all, together, "");
            let dealt: Vec<&(String, String)> = shares.iter().flat_map(|share| &share.subjects).collect();
            prop_assert_eq!(dealt.len(), count);
            prop_assert!(dealt.iter().zip(&all).all(|(one, other)| one.0 == other.name));
            let sizes: Vec<usize> = shares.iter().map(|share| share.subjects.len()).collect();
            let (least, most) = (sizes.iter().min(), sizes.iter().max());
            prop_assert!(most.is_none_or(|most| *most <= together && most - least.unwrap() <= 1));
        }
    }
}
