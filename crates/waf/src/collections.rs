//! Persistent collections: values that rules keep from one transaction to the next, as `IP`, `SESSION` and `GLOBAL`.
//!
//! A collection is a record of named values under its kind, the application (`SecWebAppId`) and its key. Records are in memory, in
//! shards with a lock each. Every read and write is one short section under the lock of its shard, never held while a rule is
//! evaluated. So the last writer of a value wins, and no increment is lost.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::hash_map::{Entry, HashMap, RandomState};
use std::hash::BuildHasher as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::limits::{COLLECTION_KEY_MAX, COLLECTION_RECORD_MAX};
use crate::operator::text::parse_integer;
use crate::variable::Variable;

#[cfg(test)]
mod tests;

/// Locks of a set of collections.
const SHARDS: usize = 16;

/// Name of the value with which rules set the timeout of a collection.
const TIMEOUT: &[u8] = b"timeout";

/// Bytes of memory of a record and of a value beside their texts: twice the entries of their tables, which are half full at
/// worst, and the overhead of allocations.
const RECORD_SIZE: usize =
    2 * (size_of::<(Arc<[u8]>, Record)>() + size_of::<(u64, Arc<[u8]>)>()) + 64;
const VALUE_SIZE: usize = 2 * size_of::<Value>() + 32;

/// Limits of [`Collections`]. Each of 16 shards has its part. Beyond them, the collection whose last update is the oldest goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectionLimits {
    /// Collections, such as `IP` with one key.
    pub entries: usize,
    /// Bytes of memory.
    pub bytes: usize,
}

impl Default for CollectionLimits {
    /// 100,000 collections, 64 MiB.
    fn default() -> Self {
        Self { entries: 100_000, bytes: 64 << 20 }
    }
}

/// Contents of [`Collections`], and what limits have removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CollectionUsage {
    /// Collections.
    pub entries: usize,
    /// Bytes of memory.
    pub bytes: usize,
    /// Collections that had to go before their timeout, for others.
    pub evicted: u64,
}

/// Values that rules keep from one transaction to the next, shared by threads. [`Transaction::collections`] uses them.
///
/// They last as long as this value: other rules, as after a reload, find what earlier ones have written.
///
/// [`Transaction::collections`]: crate::Transaction::collections
#[derive(Debug)]
pub struct Collections {
    shards: Box<[Mutex<Shard>]>,
    hasher: RandomState,
}

/// Collection that a transaction has opened, as it was then.
#[derive(Debug)]
pub(crate) struct Opened {
    collections: Arc<Collections>,
    variable: Variable,
    /// Kind, application and key.
    id: Arc<[u8]>,
    /// Start of the key in `id`.
    key: usize,
    header: Option<Header>,
    /// Timeout of a new collection, in seconds.
    timeout: u64,
    opened_at: u64,
    has_written: bool,
}

/// Facts about a collection that the engine keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Header {
    created_at: u64,
    updated_at: u64,
    /// Seconds after the last update.
    timeout: u64,
    /// Transactions that changed it.
    updates: u64,
}

/// Change of a value. All but `Set` and `Add` leave a value alone that is not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Write<'a> {
    Set(&'a [u8]),
    Add(i64),
    Unset,
    /// Unsets the value after so many seconds.
    Expire(u64),
    /// Subtracts the amount for each period of so many seconds since the value was set, down to 0.
    Deprecate {
        amount: u64,
        period: u64,
    },
}

/// A value that does not fit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Full;

#[derive(Debug)]
struct Shard {
    records: HashMap<Arc<[u8]>, Record>,
    /// Ids of all records by the number of their last write.
    order: BTreeMap<u64, Arc<[u8]>>,
    last_write: u64,
    size: usize,
    evicted: u64,
    limits: CollectionLimits,
}

#[derive(Debug)]
struct Record {
    header: Header,
    /// Number of the last write.
    written: u64,
    size: usize,
    /// In the order of their names.
    values: Vec<Value>,
}

#[derive(Clone, Debug)]
struct Value {
    name: Box<[u8]>,
    text: Box<[u8]>,
    expires_at: Option<u64>,
    /// Start of the current period of `deprecatevar`.
    deprecated_at: u64,
}

impl Default for Collections {
    fn default() -> Self {
        Self::new(CollectionLimits::default())
    }
}

impl Collections {
    /// Creates empty collections.
    pub fn new(limits: CollectionLimits) -> Self {
        Self::with_shards(SHARDS, limits)
    }

    pub(crate) fn with_shards(count: usize, limits: CollectionLimits) -> Self {
        let limits = limits.of_shard(count);
        let shards = (0..count).map(|_| Mutex::new(Shard::new(limits)));
        Self { shards: shards.collect(), hasher: RandomState::new() }
    }

    /// Changes the limits, and removes the collections beyond them.
    pub fn set_limits(&self, limits: CollectionLimits) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            shard.limits = limits.of_shard(self.shards.len());
            shard.evict();
        }
    }

    /// Stored entries and bytes, including collections whose timeout has passed and that no transaction has opened since.
    pub fn usage(&self) -> CollectionUsage {
        let mut usage = CollectionUsage::default();
        for shard in &self.shards {
            let shard = lock(shard);
            usage.entries += shard.records.len();
            usage.bytes += shard.size;
            usage.evicted += shard.evicted;
        }
        usage
    }

    fn shard(&self, id: &[u8]) -> MutexGuard<'_, Shard> {
        // The tables of the shards hash with keys of their own.
        let hash = self.hasher.hash_one(id);
        lock(&self.shards[(hash % self.shards.len() as u64) as usize])
    }
}

fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CollectionLimits {
    /// The part of one shard, of as many.
    fn of_shard(self, count: usize) -> Self {
        Self { entries: (self.entries / count).max(1), bytes: self.bytes / count }
    }
}

impl Opened {
    /// Opens the collection of a kind, an application and a key. A collection is kept from its first write on.
    pub(crate) fn new(
        collections: &Arc<Collections>,
        (variable, application, key): (Variable, &str, &[u8]),
        timeout: u64,
        now: u64,
    ) -> Self {
        let (id, start) = id((variable, application, key));
        let id: Arc<[u8]> = id.into();
        let header = collections.shard(&id).live(&id, now).map(|record| record.header);
        Self {
            collections: Arc::clone(collections),
            variable,
            id,
            key: start,
            header,
            timeout,
            opened_at: now,
            has_written: false,
        }
    }

    /// True if it is the collection of this kind, application and key.
    pub(crate) fn is(&self, (variable, application, key): (Variable, &str, &[u8])) -> bool {
        self.variable == variable && *self.id == *id((variable, application, key)).0
    }

    pub(crate) fn variable(&self) -> Variable {
        self.variable
    }

    pub(crate) fn key(&self) -> &[u8] {
        &self.id[self.key..]
    }

    /// The current value of a name in lower case.
    pub(crate) fn value(&self, name: &[u8], now: u64) -> Option<Vec<u8>> {
        let written = {
            let mut shard = self.collections.shard(&self.id);
            shard.live(&self.id, now).and_then(|record| record.value(name, now)).map(<[u8]>::to_vec)
        };
        written.or_else(|| self.fact(name))
    }

    /// Names and values that rules have written.
    pub(crate) fn values(&self, now: u64) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut shard = self.collections.shard(&self.id);
        let values = shard.live(&self.id, now).map_or(&[][..], |record| &record.values);
        let values = values.iter().filter(|value| !value.has_expired(now));
        values.map(|value| (value.name.to_vec(), value.text.to_vec())).collect()
    }

    /// A value that the engine keeps, as it was when the collection was opened.
    fn fact(&self, name: &[u8]) -> Option<Vec<u8>> {
        let header = self.header.unwrap_or(Header {
            created_at: self.opened_at,
            updated_at: self.opened_at,
            timeout: self.timeout,
            updates: 0,
        });
        let number = match name {
            b"key" => return Some(self.key().to_vec()),
            b"is_new" => u64::from(self.header.is_none()),
            b"create_time" => header.created_at,
            b"last_update_time" if self.header.is_some() => header.updated_at,
            TIMEOUT => header.timeout,
            b"update_counter" => header.updates,
            b"update_rate" => {
                let seconds = self.opened_at.saturating_sub(header.created_at);
                header.updates.saturating_mul(60).checked_div(seconds).unwrap_or(0)
            }
            _ => return None,
        };
        Some(number.to_string().into_bytes())
    }

    /// Changes the value of a name in lower case.
    pub(crate) fn write(&mut self, name: &[u8], write: Write<'_>, now: u64) -> Result<(), Full> {
        let mut shard = self.collections.shard(&self.id);
        let is_written = shard.write(&self.id, name, write, self.timeout, now)?;
        if is_written && !self.has_written {
            self.has_written = true;
            shard.count_update(&self.id);
        }
        Ok(())
    }
}

/// Text that names a collection, and the start of the key in it.
fn id((variable, application, key): (Variable, &str, &[u8])) -> (Vec<u8>, usize) {
    let mut id = vec![variable as u8];
    id.extend_from_slice(&(application.len() as u64).to_le_bytes());
    id.extend_from_slice(application.as_bytes());
    let start = id.len();
    id.extend_from_slice(&key[..key.len().min(COLLECTION_KEY_MAX)]);
    (id, start)
}

impl Shard {
    fn new(limits: CollectionLimits) -> Self {
        Self {
            records: HashMap::new(),
            order: BTreeMap::new(),
            last_write: 0,
            size: 0,
            evicted: 0,
            limits,
        }
    }

    /// The record, unless its timeout has passed.
    fn live(&mut self, id: &[u8], now: u64) -> Option<&mut Record> {
        if self.records.get(id)?.has_expired(now) {
            self.remove(id);
            return None;
        }
        self.records.get_mut(id)
    }

    fn remove(&mut self, id: &[u8]) {
        if let Some(record) = self.records.remove(id) {
            self.order.remove(&record.written);
            self.size -= record.size;
        }
    }

    /// Changes a value. Returns false if there was nothing to change.
    fn write(
        &mut self,
        id: &Arc<[u8]>,
        name: &[u8],
        write: Write<'_>,
        timeout: u64,
        now: u64,
    ) -> Result<bool, Full> {
        let record_max = self.limits.bytes.min(COLLECTION_RECORD_MAX);
        let is_known = self.live(id, now).is_some();
        let mut new = None;
        let record = match self.records.entry(Arc::clone(id)) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(_) => new.insert(Record::new(id.len(), timeout, now)),
        };
        let old_size = record.size;
        let written = record.write(name, write, record_max, now);
        if is_known {
            // Values that have expired may be gone, even if nothing was written.
            self.size = self.size - old_size + record.size;
        }
        if !written? {
            return Ok(false);
        }
        record.header.updated_at = record.header.updated_at.max(now);
        if is_known {
            self.order.remove(&record.written);
        }
        self.last_write += 1;
        record.written = self.last_write;
        if let Some(record) = new {
            self.size += record.size;
            self.records.insert(Arc::clone(id), record);
        }
        self.order.insert(self.last_write, Arc::clone(id));
        self.drop_expired(now);
        self.evict();
        Ok(true)
    }

    fn count_update(&mut self, id: &[u8]) {
        if let Some(record) = self.records.get_mut(id) {
            record.header.updates += 1;
        }
    }

    /// Drops up to two of the oldest records if their timeouts have passed: more than a write adds.
    fn drop_expired(&mut self, now: u64) {
        for _ in 0..2 {
            let Some(id) = self.order.values().next().map(Arc::clone) else { return };
            if self.live(&id, now).is_some() {
                return;
            }
        }
    }

    /// Drops the oldest records until the limits hold.
    fn evict(&mut self) {
        while self.records.len() > self.limits.entries || self.size > self.limits.bytes {
            let Some(id) = self.order.values().next().map(Arc::clone) else { return };
            self.remove(&id);
            self.evicted += 1;
        }
    }
}

impl Record {
    fn new(id: usize, timeout: u64, now: u64) -> Self {
        Self {
            header: Header { created_at: now, updated_at: now, timeout, updates: 0 },
            written: 0,
            size: RECORD_SIZE + id,
            values: Vec::new(),
        }
    }

    fn has_expired(&self, now: u64) -> bool {
        now >= self.header.updated_at.saturating_add(self.header.timeout)
    }

    fn position(&self, name: &[u8]) -> Result<usize, usize> {
        self.values.binary_search_by(|value| (*value.name).cmp(name))
    }

    fn value(&self, name: &[u8], now: u64) -> Option<&[u8]> {
        let value = &self.values[self.position(name).ok()?];
        (!value.has_expired(now)).then_some(&*value.text)
    }

    /// Changes a value. Returns false if there was nothing to change.
    fn write(
        &mut self,
        name: &[u8],
        write: Write<'_>,
        size_max: usize,
        now: u64,
    ) -> Result<bool, Full> {
        let current = self.value(name, now).map_or(0, parse_integer);
        let text = match write {
            Write::Set(text) => Cow::Borrowed(text),
            Write::Add(amount) => {
                let sum = current.saturating_add(amount);
                Cow::Owned(sum.to_string().into_bytes())
            }
            Write::Unset => return Ok(self.unset(name, now)),
            Write::Expire(seconds) => return Ok(self.expire(name, seconds, now)),
            Write::Deprecate { amount, period } => {
                let Some(rest) = self.deprecated(name, amount, period, now) else {
                    return Ok(false);
                };
                Cow::Owned(rest.to_string().into_bytes())
            }
        };
        self.set(name, &text, size_max, now)?;
        let restarts = match write {
            Write::Set(_) => true,
            Write::Add(_) => current <= 0,
            _ => false,
        };
        if restarts {
            self.restart_periods(name, now);
        }
        if name == TIMEOUT {
            self.header.timeout = u64::try_from(parse_integer(&text)).unwrap_or(0);
        }
        Ok(true)
    }

    fn set(&mut self, name: &[u8], text: &[u8], size_max: usize, now: u64) -> Result<(), Full> {
        let known = self.position(name).ok().filter(|&at| !self.values[at].has_expired(now));
        let freed = known.map_or(0, |at| self.values[at].size());
        let added = VALUE_SIZE + name.len() + text.len();
        if self.size - freed + added > size_max {
            self.drop_expired_values(now);
            if self.size - freed + added > size_max {
                return Err(Full);
            }
        }
        match self.position(name) {
            Ok(at) if known.is_some() => {
                self.values[at].text = text.into();
                self.size -= freed;
            }
            found => {
                let value = Value {
                    name: name.into(),
                    text: text.into(),
                    expires_at: None,
                    deprecated_at: now,
                };
                match found {
                    Ok(at) => self.size -= std::mem::replace(&mut self.values[at], value).size(),
                    Err(at) => self.values.insert(at, value),
                }
            }
        }
        self.size += added;
        Ok(())
    }

    fn drop_expired_values(&mut self, now: u64) {
        let size = &mut self.size;
        self.values.retain(|value| {
            let has_expired = value.has_expired(now);
            *size -= if has_expired { value.size() } else { 0 };
            !has_expired
        });
    }

    fn unset(&mut self, name: &[u8], now: u64) -> bool {
        let Ok(at) = self.position(name) else { return false };
        let value = self.values.remove(at);
        self.size -= value.size();
        !value.has_expired(now)
    }

    fn expire(&mut self, name: &[u8], seconds: u64, now: u64) -> bool {
        let Ok(at) = self.position(name) else { return false };
        let value = &mut self.values[at];
        if value.has_expired(now) {
            return false;
        }
        value.expires_at = Some(now.saturating_add(seconds));
        true
    }

    fn restart_periods(&mut self, name: &[u8], now: u64) {
        if let Ok(at) = self.position(name) {
            self.values[at].deprecated_at = now;
        }
    }

    /// Value after the periods that have passed, if it changes.
    fn deprecated(&mut self, name: &[u8], amount: u64, period: u64, now: u64) -> Option<i64> {
        let at = self.position(name).ok()?;
        let value = &mut self.values[at];
        if value.has_expired(now) {
            return None;
        }
        let periods = now.saturating_sub(value.deprecated_at).checked_div(period)?;
        value.deprecated_at += periods * period;
        let current = parse_integer(&value.text);
        let amount = i64::try_from(periods.saturating_mul(amount)).unwrap_or(i64::MAX);
        let rest = current.saturating_sub(amount).max(current.min(0));
        (rest != current).then_some(rest)
    }
}

impl Value {
    fn has_expired(&self, now: u64) -> bool {
        self.expires_at.is_some_and(|at| now >= at)
    }

    fn size(&self) -> usize {
        VALUE_SIZE + self.name.len() + self.text.len()
    }
}
