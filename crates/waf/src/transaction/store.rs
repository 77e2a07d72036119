//! Values that rules write: TX and the collections of `initcol`.

use crate::operator::text::parse_integer;
use crate::rule::Selector;
use crate::transformation::decimal;
use crate::variable::Variable;

/// Values of all collections that rules write.
#[derive(Debug, Default)]
pub(crate) struct Store {
    slots: Vec<Slot>,
    /// Values whose collection or name is not known before a rule runs.
    named: Vec<Named>,
    /// Bytes of all values in `named` and of all texts set since the last clear.
    size: usize,
}

#[derive(Debug, Default)]
struct Slot {
    state: State,
    text: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Unset,
    Number(i64),
    Text,
}

#[derive(Debug)]
struct Named {
    variable: Variable,
    name: Vec<u8>,
    value: Vec<u8>,
}

/// Bytes that the values of one transaction may take.
const SIZE_MAX: usize = 1 << 20;

impl Store {
    /// Unsets all values.
    pub(crate) fn clear(&mut self, slots: usize) {
        self.slots.resize_with(slots, Slot::default);
        for slot in &mut self.slots {
            slot.state = State::Unset;
            slot.text.clear();
            slot.text.shrink_to(256);
        }
        self.named.clear();
        self.named.shrink_to(16);
        self.size = 0;
    }

    pub(crate) fn is_set(&self, slot: u32) -> bool {
        self.slots[slot as usize].state != State::Unset
    }

    /// Appends the value of a slot to `output`.
    pub(crate) fn append(&self, slot: u32, output: &mut Vec<u8>) {
        let slot = &self.slots[slot as usize];
        match slot.state {
            State::Unset => {}
            State::Number(value) => append_number(value, output),
            State::Text => output.extend_from_slice(&slot.text),
        }
    }

    /// Value of a slot as a number; 0 if it is unset or no number.
    pub(crate) fn number(&self, slot: u32) -> i64 {
        let slot = &self.slots[slot as usize];
        match slot.state {
            State::Unset => 0,
            State::Number(value) => value,
            State::Text => parse_integer(&slot.text),
        }
    }

    pub(crate) fn set(&mut self, slot: u32, value: &[u8]) {
        if !self.reserve(value.len()) {
            return;
        }
        let slot = &mut self.slots[slot as usize];
        slot.state = State::Text;
        slot.text.clear();
        slot.text.extend_from_slice(value);
    }

    pub(crate) fn set_number(&mut self, slot: u32, value: i64) {
        self.slots[slot as usize].state = State::Number(value);
    }

    pub(crate) fn unset(&mut self, slot: u32) {
        self.slots[slot as usize].state = State::Unset;
    }

    pub(crate) fn named(&self, variable: Variable, name: &[u8]) -> Option<&[u8]> {
        self.named
            .iter()
            .find(|n| n.variable == variable && n.name == name)
            .map(|n| n.value.as_slice())
    }

    pub(crate) fn set_named(&mut self, variable: Variable, name: &[u8], value: &[u8]) {
        if !self.reserve(name.len() + value.len()) {
            return;
        }
        match self.named.iter_mut().find(|n| n.variable == variable && n.name == name) {
            Some(found) => found.value = value.to_vec(),
            None => self.named.push(Named { variable, name: name.to_vec(), value: value.to_vec() }),
        }
    }

    pub(crate) fn unset_named(&mut self, variable: Variable, name: &[u8]) {
        self.named.retain(|n| n.variable != variable || n.name != name);
    }

    /// Calls `visit` with name and value of each set value of a collection that is selected.
    pub(crate) fn visit(
        &self,
        variable: Variable,
        selector: &Selector,
        names: &[Vec<u8>],
        mut visit: impl FnMut(&[u8], &[u8]),
    ) {
        if variable == Variable::Tx {
            let mut text = Vec::new();
            let mut visit_slot = |slot: u32| {
                let name = &names[slot as usize];
                if self.is_set(slot)
                    && (matches!(selector, Selector::Pattern(_)) || selector.accepts(name))
                {
                    text.clear();
                    self.append(slot, &mut text);
                    visit(name, &text);
                }
            };
            match selector {
                Selector::Pattern(regex) => regex.slots(names).iter().copied().for_each(visit_slot),
                _ => (0..).zip(names).for_each(|(slot, _)| visit_slot(slot)),
            }
        }
        let named = self.named.iter().filter(|n| n.variable == variable);
        named.filter(|n| selector.accepts(&n.name)).for_each(|n| visit(&n.name, &n.value));
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> usize {
        let slots: usize = self.slots.iter().map(|slot| slot.text.capacity()).sum();
        let named = self.named.iter().map(|n| size_of::<Named>() + n.name.len() + n.value.len());
        slots + named.sum::<usize>()
    }

    /// Counts bytes that are written; false if the limit is reached.
    fn reserve(&mut self, bytes: usize) -> bool {
        if self.size + bytes > SIZE_MAX {
            return false;
        }
        self.size += bytes;
        true
    }
}

pub(crate) fn append_number(value: i64, output: &mut Vec<u8>) {
    if value < 0 {
        output.push(b'-');
    }
    output.extend_from_slice(decimal(value.unsigned_abs(), &mut [0; 20]));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_hold_numbers_and_texts() {
        let mut store = Store::default();
        store.clear(2);
        store.set(0, b"12");
        store.set_number(1, -3);
        let mut text = Vec::new();
        store.append(0, &mut text);
        store.append(1, &mut text);
        assert_eq!(
            (text.as_slice(), store.number(0), store.number(1)),
            (b"12-3".as_slice(), 12, -3)
        );
        store.unset(0);
        assert!(!store.is_set(0));
    }

    #[test]
    fn named_values_are_bounded() {
        let mut store = Store::default();
        store.clear(0);
        store.set_named(Variable::Tx, b"a", &vec![0; SIZE_MAX]);
        assert_eq!(store.named(Variable::Tx, b"a"), None);
        store.set_named(Variable::Tx, b"a", b"x");
        store.set_named(Variable::Tx, b"a", b"y");
        assert_eq!(store.named(Variable::Tx, b"a"), Some(b"y".as_slice()));
    }
}
