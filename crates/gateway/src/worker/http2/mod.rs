//! HTTP/2 connections of clients and to backends. Only this module knows of frames and streams: a stream acts as a
//! connection of its own with one request, in HTTP/1.1.

mod backends;
mod clients;
mod connections;
mod flush;
mod message;

pub(super) use connections::{Carrier, Connections, Stream, StreamEnd, TlsFacts};
