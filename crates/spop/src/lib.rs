//! SPOP 2.0, the protocol of HAProxy's SPOE, as an agent, with the messages and variables of coraza-spoa. No I/O.
//!
//! A [`Connection`] accepts received bytes in any pieces and returns [`Event`]s that borrow from them; it appends
//! replies to the caller's buffer. Each NOTIFY is acknowledged by its [`NotifyId`], in any order. Fragments are never
//! announced, so a frame holds a whole message; [`Limits`] bound what HAProxy may send.

mod connection;
mod coraza;
mod data;
mod error;
mod frame;

pub use connection::{Connection, Event, NotifyId};
pub use coraza::{
    Action, Body, BodyExtent, Interruption, Matches, Message, MessageError, Request, Response,
    Variables,
};
pub use data::{Value, push_varint};
pub use error::{ConnectionError, StatusCode};
pub use frame::{FrameType, Limits, MAX_FRAME_BYTES, MIN_FRAME_BYTES};
