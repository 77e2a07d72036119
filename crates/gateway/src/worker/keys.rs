//! Keys of what a thread owns, which cannot be mistaken for each other.

use std::marker::PhantomData;
use std::ops::{Index, IndexMut};

use slab::Slab;
use tollgate_net::{ConnectionId, EventSource, Serial};

/// A place in an [`Arena`].
pub(super) trait Key: Copy {
    fn new(index: usize) -> Self;

    fn index(self) -> usize;
}

macro_rules! keys {
    ($($(#[doc = $doc:literal])* $name:ident)*) => {$(
        $(#[doc = $doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) struct $name(usize);

        impl Key for $name {
            fn new(index: usize) -> Self {
                Self(index)
            }

            fn index(self) -> usize {
                self.0
            }
        }
    )*};
}

keys! {
    /// A client: a connection, or a stream of one.
    ExchangeKey
    /// A connection to a backend, or a stream of one.
    UpstreamKey
    /// An HTTP/2 connection, of a client or to a backend.
    Http2Key
    /// A configuration in use.
    GenerationKey
    /// A listener. Reused once no client refers to it.
    ListenerKey
}

/// Identifies a client also after its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ExchangeId {
    pub(super) key: ExchangeKey,
    pub(super) serial: Serial,
}

impl ExchangeId {
    pub(super) fn of(ConnectionId { key, serial }: ConnectionId) -> Self {
        Self { key: ExchangeKey::new(key), serial }
    }

    pub(super) fn token(self) -> u64 {
        let Self { key, serial } = self;
        EventSource::Downstream(ConnectionId { key: key.index(), serial }).token()
    }
}

/// Values by their keys. The key of a removed value is reused.
#[derive(Debug)]
pub(super) struct Arena<K, T> {
    slab: Slab<T>,
    keys: PhantomData<fn(K)>,
}

impl<K, T> Default for Arena<K, T> {
    fn default() -> Self {
        Self { slab: Slab::new(), keys: PhantomData }
    }
}

impl<K: Key, T> Arena<K, T> {
    pub(super) fn insert(&mut self, value: T) -> K {
        K::new(self.slab.insert(value))
    }

    /// Inserts a value that depends on its key.
    pub(super) fn insert_with(&mut self, value: impl FnOnce(K) -> T) -> K {
        let entry = self.slab.vacant_entry();
        let key = K::new(entry.key());
        entry.insert(value(key));
        key
    }

    pub(super) fn remove(&mut self, key: K) -> T {
        self.slab.remove(key.index())
    }

    #[inline]
    pub(super) fn get(&self, key: K) -> Option<&T> {
        self.slab.get(key.index())
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: K) -> Option<&mut T> {
        self.slab.get_mut(key.index())
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (K, &T)> {
        self.slab.iter().map(|(index, value)| (K::new(index), value))
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.slab.iter().map(|(_, value)| value)
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slab.iter_mut().map(|(_, value)| value)
    }

    /// The keys of the values that `is_wanted` selects, for changes of the arena.
    pub(super) fn keys(&self, is_wanted: impl Fn(&T) -> bool) -> Vec<K> {
        self.iter().filter_map(|(key, value)| is_wanted(value).then_some(key)).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }
}

impl<K: Key, T> Index<K> for Arena<K, T> {
    type Output = T;

    #[inline]
    fn index(&self, key: K) -> &T {
        &self.slab[key.index()]
    }
}

impl<K: Key, T> IndexMut<K> for Arena<K, T> {
    #[inline]
    fn index_mut(&mut self, key: K) -> &mut T {
        &mut self.slab[key.index()]
    }
}
