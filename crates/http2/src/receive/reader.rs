//! State between two reads: the part of a frame or field block that has arrived.

/// State of reading frames.
#[derive(Debug)]
pub(crate) struct Reader {
    pub(super) state: ReadState,
    /// Start of an incomplete frame other than DATA.
    pub(super) partial: Vec<u8>,
    /// Field block that waits for CONTINUATION frames.
    pub(super) block: Vec<u8>,
    pub(super) pending: Option<PendingBlock>,
    /// The first frame must be SETTINGS.
    pub(super) has_settings: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum ReadState {
    /// Number of bytes of the preface read.
    Preface(usize),
    Frame,
    Data(DataFrame),
}

/// Capacity kept for incomplete frames and blocks.
const KEPT_BYTES: usize = 1024;

impl Reader {
    /// `awaits_preface`: the peer is a client.
    pub(crate) fn new(awaits_preface: bool) -> Self {
        let state = if awaits_preface { ReadState::Preface(0) } else { ReadState::Frame };
        Self { state, partial: Vec::new(), block: Vec::new(), pending: None, has_settings: false }
    }

    pub(crate) fn shrink(&mut self) {
        self.partial.shrink_to_fit();
        self.block.shrink_to_fit();
    }
}

/// Clears a buffer, and frees it if it is large.
pub(super) fn clear(buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.shrink_to(KEPT_BYTES);
}

/// A field block that waits for CONTINUATION frames.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingBlock {
    pub(super) stream: u32,
    pub(super) end_stream: bool,
    pub(super) continuations: u32,
}

/// A DATA frame that is being read. Its pieces are delivered as they arrive.
#[derive(Clone, Copy, Debug)]
pub(super) struct DataFrame {
    pub(super) stream: u32,
    /// Payload bytes left; includes the padding and its length byte until that byte is read.
    pub(super) left: u32,
    pub(super) padding: u32,
    pub(super) state: DataState,
    pub(super) end_stream: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DataState {
    /// Before the length of the padding.
    PadLength,
    Payload,
    /// After the payload.
    Padding,
    /// The stream no longer accepts data.
    Discard,
}

impl DataFrame {
    /// True if the next step needs no byte.
    pub(super) fn needs_no_input(&self) -> bool {
        self.left == 0 && self.state != DataState::PadLength
    }
}
