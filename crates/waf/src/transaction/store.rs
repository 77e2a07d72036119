//! Values that rules write: TX, and the collections that `initcol` opens.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use indexmap::IndexMap;

use crate::collections::{CollectionLimits, Collections, Full, Opened, Write};
use crate::limits::WRITTEN_BYTES_MAX;
use crate::operator::text::parse_integer;
use crate::rule::Selector;
use crate::variable::Variable;

/// Values of all collections that rules write.
#[derive(Debug, Default)]
pub(crate) struct Store {
    /// Kinds, numbers and texts of the values with a slot. Their memory is apart, as a transaction sets few texts.
    kinds: Vec<Kind>,
    numbers: Vec<i64>,
    texts: Vec<Vec<u8>>,
    /// Slots whose texts this transaction has written.
    written: Vec<u32>,
    /// Values whose collection or name is not known before a rule runs.
    named: BTreeMap<Variable, IndexMap<Vec<u8>, Vec<u8>>>,
    /// Bytes of all values and of the names in `named`.
    size: usize,
    /// `None`: each collection lasts for one transaction.
    pub(crate) collections: Option<Arc<Collections>>,
    opened: Vec<Opened>,
    /// Seconds since 1970.
    pub(crate) now: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Unset,
    Number,
    Text,
}

/// Bytes that a named value takes beside its name and text: those of both, a hash and an index.
const NAMED_SIZE: usize = 2 * size_of::<Vec<u8>>() + 2 * size_of::<usize>();

impl Store {
    /// Unsets all values.
    pub(crate) fn clear(&mut self, slots: usize) {
        for slot in self.written.drain(..) {
            let text = &mut self.texts[slot as usize];
            text.clear();
            text.shrink_to(256);
        }
        self.kinds.clear();
        self.kinds.resize(slots, Kind::Unset);
        self.numbers.resize(slots, 0);
        self.texts.resize(slots, Vec::new());
        self.named.clear();
        self.size = 0;
        self.opened.clear();
        self.now = 0;
    }

    pub(crate) fn is_set(&self, slot: u32) -> bool {
        self.kinds[slot as usize] != Kind::Unset
    }

    /// Appends the value of a slot to `output`.
    pub(crate) fn append(&self, slot: u32, output: &mut Vec<u8>) {
        match self.kinds[slot as usize] {
            Kind::Unset => {}
            Kind::Number => append_number(self.numbers[slot as usize], output),
            Kind::Text => output.extend_from_slice(&self.texts[slot as usize]),
        }
    }

    /// Value of a slot as a number; 0 if it is unset or no number.
    pub(crate) fn number(&self, slot: u32) -> i64 {
        match self.kinds[slot as usize] {
            Kind::Unset => 0,
            Kind::Number => self.numbers[slot as usize],
            Kind::Text => parse_integer(&self.texts[slot as usize]),
        }
    }

    pub(crate) fn set(&mut self, slot: u32, value: &[u8]) -> Result<(), Full> {
        let text = &mut self.texts[slot as usize];
        reserve(&mut self.size, text.len(), value.len())?;
        if text.is_empty() && !value.is_empty() {
            self.written.push(slot);
        }
        text.clear();
        text.extend_from_slice(value);
        self.kinds[slot as usize] = Kind::Text;
        Ok(())
    }

    pub(crate) fn set_number(&mut self, slot: u32, value: i64) {
        self.numbers[slot as usize] = value;
        self.kinds[slot as usize] = Kind::Number;
    }

    pub(crate) fn unset(&mut self, slot: u32) {
        self.kinds[slot as usize] = Kind::Unset;
    }

    /// Opens the persistent collection of an application and a key, in place of another one of that variable, unless it is open.
    pub(crate) fn open(&mut self, id: (Variable, &str, &[u8]), timeout: u64) {
        if self.opened.iter().any(|opened| opened.is(id)) {
            return;
        }
        let own = || Arc::new(Collections::with_shards(1, CollectionLimits::default()));
        let collections = self.collections.as_ref().map_or_else(own, Arc::clone);
        self.opened.retain(|opened| opened.variable() != id.0);
        self.opened.push(Opened::new(&collections, id, timeout, self.now));
    }

    pub(crate) fn opened(&self, variable: Variable) -> Option<&Opened> {
        self.opened.iter().find(|opened| opened.variable() == variable)
    }

    pub(crate) fn named(&self, variable: Variable, name: &[u8]) -> Option<Cow<'_, [u8]>> {
        if let Some(opened) = self.opened(variable) {
            return opened.value(name, self.now).map(Cow::Owned);
        }
        self.named.get(&variable)?.get(name).map(|value| Cow::Borrowed(value.as_slice()))
    }

    /// Changes a value whose collection or name is not known before a rule runs.
    pub(crate) fn write(
        &mut self,
        variable: Variable,
        name: &[u8],
        write: Write<'_>,
    ) -> Result<(), Full> {
        let now = self.now;
        let mut opened = self.opened.iter_mut();
        if let Some(opened) = opened.find(|opened| opened.variable() == variable) {
            return opened.write(name, write, now);
        }
        match write {
            Write::Set(value) => self.set_named(variable, name, value),
            Write::Add(amount) => {
                let current = self.named(variable, name).map_or(0, |value| parse_integer(&value));
                let sum = current.saturating_add(amount);
                self.set_named(variable, name, itoa::Buffer::new().format(sum).as_bytes())
            }
            Write::Unset => {
                self.unset_named(variable, name);
                Ok(())
            }
            // Time does not pass in one transaction.
            Write::Expire(_) | Write::Deprecate { .. } => Ok(()),
        }
    }

    fn set_named(&mut self, variable: Variable, name: &[u8], value: &[u8]) -> Result<(), Full> {
        let values = self.named.entry(variable).or_default();
        if let Some(old) = values.get_mut(name) {
            reserve(&mut self.size, old.len(), value.len())?;
            old.clear();
            // `size` counts lengths, not capacities.
            old.shrink_to(value.len().max(NAMED_SIZE));
            old.extend_from_slice(value);
        } else {
            reserve(&mut self.size, 0, NAMED_SIZE + name.len() + value.len())?;
            values.insert(name.to_vec(), value.to_vec());
        }
        Ok(())
    }

    fn unset_named(&mut self, variable: Variable, name: &[u8]) {
        let collection = self.named.get_mut(&variable);
        if let Some(old) = collection.and_then(|collection| collection.swap_remove(name)) {
            self.size -= NAMED_SIZE + name.len() + old.len();
        }
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
        if let Some(opened) = self.opened(variable) {
            if let Selector::Name(name, _) = selector {
                opened.value(name, self.now).into_iter().for_each(|value| visit(name, &value));
                return;
            }
            let values = opened.values(self.now).into_iter();
            let selected = values.filter(|(name, _)| selector.accepts(name));
            selected.for_each(|(name, value)| visit(&name, &value));
            return;
        }
        let Some(values) = self.named.get(&variable) else { return };
        if let Selector::Name(name, _) = selector {
            values.get_key_value(name).into_iter().for_each(|(name, value)| visit(name, value));
            return;
        }
        for (name, value) in values {
            if selector.accepts(name) {
                visit(name, value);
            }
        }
    }

    /// Bytes of memory.
    pub(crate) fn memory(&self) -> usize {
        self.size
    }
}

/// Counts bytes that are written in place of others.
fn reserve(size: &mut usize, freed: usize, added: usize) -> Result<(), Full> {
    let needed = *size - freed + added;
    if needed > WRITTEN_BYTES_MAX {
        return Err(Full);
    }
    *size = needed;
    Ok(())
}

pub(crate) fn append_number(value: i64, output: &mut Vec<u8>) {
    output.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_hold_numbers_and_texts() {
        let mut store = Store::default();
        store.clear(2);
        assert_eq!(store.set(0, b"12"), Ok(()));
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
    fn values_are_bounded_by_what_they_take() {
        let mut store = Store::default();
        store.clear(1);
        let large = vec![b'x'; WRITTEN_BYTES_MAX / 2];
        for _ in 0..8 {
            assert_eq!(store.set(0, &large), Ok(()), "a value is replaced");
        }
        assert_eq!(store.write(Variable::Tx, b"a", Write::Set(&large)), Err(Full));
        assert_eq!(store.named(Variable::Tx, b"a"), None);
        for value in [b"x", b"y"] {
            assert_eq!(store.write(Variable::Tx, b"a", Write::Set(value)), Ok(()));
        }
        assert_eq!(store.named(Variable::Tx, b"a").as_deref(), Some(b"y".as_slice()));
        assert_eq!(store.write(Variable::Tx, b"a", Write::Unset), Ok(()));
        assert_eq!(store.memory(), large.len());
    }
}
