//! Streams of a connection, by identifier.

/// One stream. It exists until its release, even if closed before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    /// 0 in an empty place of the table.
    pub(crate) id: u32,
    pub(crate) receive: Side,
    pub(crate) send: Side,
    /// Reset by either side: nothing more is sent or delivered.
    pub(crate) is_reset: bool,
    /// Reset by the peer, which must send nothing after that.
    pub(crate) is_reset_by_peer: bool,
    /// HEAD request: its response has no body.
    pub(crate) is_head: bool,
    /// CONNECT request, unless the response has rejected it: what follows the heads is a tunnel.
    pub(crate) is_connect: bool,
    /// The stream window cut a send short.
    pub(crate) is_blocked: bool,
    /// Set by the caller.
    pub(crate) token: usize,
    /// Bytes of DATA that may be sent. Negative after the peer lowered its initial window.
    pub(crate) send_window: i64,
    /// Bytes of DATA that the peer may send.
    pub(crate) receive_window: i64,
    /// Delivered bytes that the caller has not credited.
    pub(crate) held: u32,
    /// Credit not yet sent to the peer.
    pub(crate) credit: u32,
    /// Growth of the receive window so far.
    pub(crate) growth: u32,
    /// Half of a window was consumed.
    pub(crate) is_long: bool,
    /// Body bytes still expected, if the head has a length.
    pub(crate) body_left: Option<u64>,
}

/// One direction of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Before the head of the message; also after interim responses.
    Head,
    Body,
    Ended,
}

impl Stream {
    pub(crate) const fn new(id: u32, token: usize, send_window: i64, receive_window: i64) -> Self {
        Self {
            id,
            receive: Side::Head,
            send: Side::Head,
            is_reset: false,
            is_reset_by_peer: false,
            is_head: false,
            is_connect: false,
            is_blocked: false,
            token,
            send_window,
            receive_window,
            held: 0,
            credit: 0,
            growth: 0,
            is_long: false,
            body_left: None,
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_reset || (self.receive == Side::Ended && self.send == Side::Ended)
    }

    pub(crate) fn can_send(&self, side: Side) -> bool {
        !self.is_reset && self.send == side
    }
}

/// Hash table of streams with linear probing. As identifiers of one side are consecutive odd numbers, a table with
/// room has almost no collisions.
#[derive(Debug, Default)]
pub(crate) struct StreamTable {
    /// Empty, or a power of two; at most half of it is used.
    places: Vec<Stream>,
    len: usize,
}

const PLACES_MIN: usize = 4;

const EMPTY: Stream = Stream::new(0, 0, 0, 0);

impl StreamTable {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn home(&self, id: u32) -> usize {
        (id >> 1) as usize & (self.places.len() - 1)
    }

    fn find(&self, id: u32) -> Option<usize> {
        if self.len == 0 {
            return None;
        }
        let mut place = self.home(id);
        loop {
            match self.places[place].id {
                0 => return None,
                found if found == id => return Some(place),
                _ => place = (place + 1) & (self.places.len() - 1),
            }
        }
    }

    pub(crate) fn get(&self, id: u32) -> Option<&Stream> {
        self.find(id).map(|place| &self.places[place])
    }

    pub(crate) fn get_mut(&mut self, id: u32) -> Option<&mut Stream> {
        self.find(id).map(|place| &mut self.places[place])
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Stream> {
        self.places.iter_mut().filter(|stream| stream.id != 0)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.places.iter().filter(|stream| stream.id != 0)
    }

    /// Adds a stream whose identifier is not in the table.
    pub(crate) fn insert(&mut self, stream: Stream) -> &mut Stream {
        if 2 * (self.len + 1) > self.places.len() {
            let places = (2 * self.places.len()).max(PLACES_MIN);
            let old = std::mem::replace(&mut self.places, vec![EMPTY; places]);
            for stream in old.into_iter().filter(|stream| stream.id != 0) {
                self.put(stream);
            }
        }
        self.len += 1;
        let place = self.put(stream);
        &mut self.places[place]
    }

    fn put(&mut self, stream: Stream) -> usize {
        let mut place = self.home(stream.id);
        while self.places[place].id != 0 {
            place = (place + 1) & (self.places.len() - 1);
        }
        self.places[place] = stream;
        place
    }

    pub(crate) fn remove(&mut self, id: u32) -> Option<Stream> {
        let mut hole = self.find(id)?;
        let removed = std::mem::replace(&mut self.places[hole], EMPTY);
        self.len -= 1;
        // Moves back streams that a lookup would not find past the hole.
        let mask = self.places.len() - 1;
        let mut place = hole;
        loop {
            place = (place + 1) & mask;
            let id = self.places[place].id;
            if id == 0 {
                return Some(removed);
            }
            let from_home = place.wrapping_sub(self.home(id)) & mask;
            if from_home >= (place.wrapping_sub(hole) & mask) {
                self.places.swap(hole, place);
                hole = place;
            }
        }
    }

    /// Frees the memory of an empty table.
    pub(crate) fn shrink(&mut self) {
        if self.len == 0 {
            self.places = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn table_is_a_map(steps in prop::collection::vec((any::<bool>(), 0..64_u32), 0..300)) {
            let mut table = StreamTable::default();
            let mut model = BTreeMap::new();
            for (adds, number) in steps {
                let id = 2 * number + 1;
                if adds && !model.contains_key(&id) {
                    let token = model.len();
                    table.insert(Stream::new(id, token, 0, 0));
                    model.insert(id, token);
                } else if !adds {
                    prop_assert_eq!(table.remove(id).map(|stream| stream.token), model.remove(&id));
                }
                prop_assert_eq!(table.len(), model.len());
                for id in (1..128).step_by(2) {
                    prop_assert_eq!(table.get(id).map(|stream| stream.token), model.get(&id).copied());
                }
            }
            let mut ids: Vec<u32> = table.iter().map(|stream| stream.id).collect();
            ids.sort_unstable();
            prop_assert_eq!(ids, model.into_keys().collect::<Vec<_>>());
        }
    }
}
