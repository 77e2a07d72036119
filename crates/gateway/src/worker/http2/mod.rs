//! HTTP/2 connections of clients and to backends. Only this module knows of frames: a stream acts as a connection of its own
//! with one request. Its heads are lists of fields that pass the checks of heads in HTTP/1.1; its bodies are payload that ends
//! with the stream.

mod backends;
mod clients;
mod connections;
mod flush;
mod message;

pub(super) use connections::{Carrier, Connections, Room, Stream, StreamEnd, TlsFacts};
pub(super) use message::Following;
