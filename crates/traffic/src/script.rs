//! The script: every request that is sent, in order, with its values.

use crate::message::Message;
use crate::mix::Mix;
use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha8Rng;

/// One request of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The template, by its index in the mix.
    pub template: usize,
    /// The request; none where the template has no variables, whose sample is all that it sends.
    pub message: Option<Message>,
}

/// The most requests of a script.
pub(crate) const MAX_SENDS: usize = 65_536;

/// The most bytes of all requests of a script that are rendered one by one, with the texts looked for
/// in their answers, when every variable has its longest value.
pub(crate) const MAX_RENDERED_BYTES: usize = 16 << 20;

/// A script that is being drawn.
pub(crate) struct Script<'a> {
    mix: &'a Mix,
    deck: Vec<usize>,
    /// Decks to come after this one.
    decks_left: usize,
    /// How many cards of this deck have been dealt.
    dealt: usize,
    order: ChaCha8Rng,
    values: Values,
}

impl<'a> Script<'a> {
    /// A script that deals `deck`, which holds indices of the mix's templates, again and again.
    pub(crate) fn new(mix: &'a Mix, deck: Vec<usize>, seed: u64) -> Self {
        Self {
            mix,
            dealt: deck.len(),
            deck,
            decks_left: mix.decks(),
            order: ChaCha8Rng::seed_from_u64(seed),
            values: Values::new(mix, seed),
        }
    }
}

impl Iterator for Script<'_> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        if self.dealt == self.deck.len() {
            self.decks_left = self.decks_left.checked_sub(1)?;
            self.deck.shuffle(&mut self.order);
            self.dealt = 0;
        }
        let index = self.deck[self.dealt];
        self.dealt += 1;
        let template = &self.mix.templates()[index];
        let has_variables = !template.variables.is_empty();
        Some(Step {
            template: index,
            message: has_variables.then(|| {
                for &variable in &template.variables {
                    self.values.draw(self.mix, variable);
                }
                template.message(&self.values.current)
            }),
        })
    }
}

/// The values of the variables, as they were drawn last.
struct Values {
    current: Vec<String>,
    /// How many requests have had a value of each variable.
    used: Vec<i64>,
    rng: ChaCha8Rng,
}

impl Values {
    fn new(mix: &Mix, seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        // A stream of its own: from that of the order, values would follow the shuffles.
        rng.set_stream(1);
        Self { current: mix.first_values(), used: vec![0; mix.variables().len()], rng }
    }

    fn draw(&mut self, mix: &Mix, variable: usize) {
        self.current[variable] = mix.variables()[variable].draw(self.used[variable], &mut self.rng);
        self.used[variable] += 1;
    }
}
