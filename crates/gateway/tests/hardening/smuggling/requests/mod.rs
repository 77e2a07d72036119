//! Requests that two servers might read in two ways. Where RFC 9112 leaves a choice between refusing and
//! mending, the gateway refuses.

mod chunks;
mod codings;
mod connection;
mod fields;
mod hosts;
mod lengths;
mod lines;

use super::case::Request;

/// All of them, a family after the other.
pub(crate) fn all() -> impl Iterator<Item = &'static Request> {
    [
        lengths::CASES,
        codings::CASES,
        chunks::CASES,
        lines::CASES,
        fields::CASES,
        hosts::CASES,
        connection::CASES,
    ]
    .into_iter()
    .flatten()
}
