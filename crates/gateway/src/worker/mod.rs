//! One thread of a gateway: its listeners, client connections and connections to backends.
//!
//! An [`exchange`] is a client with its transaction, and moves by itself: [`head`] reads and checks the head of a request;
//! [`turn`] applies the verdicts of the firewall, moves what is available and ends the transaction; [`assign`] chooses a
//! backend; [`request`] and [`response`] forward; [`tunnel`] takes over after an upgrade; [`spoe`] answers HAProxy. What exchanges use in turn is
//! [`shared`]: pools and connections to backends ([`upstreams`], [`pools`]), frames of HTTP/2 ([`http2`]), buffers and caches
//! ([`scratch`]).
//!
//! The [`event_loop`] gives exchanges their turns; [`accept`] and [`commands`] are the rest of it. States
//! and the files that define them are listed in `LIFECYCLE.md`.

mod accept;
mod assign;
mod client;
mod commands;
mod event_loop;
mod exchange;
mod head;
mod http2;
mod keys;
#[cfg(test)]
mod lifecycle;
mod link;
mod per_client;
mod pools;
mod proxy_header;
mod request;
mod response;
mod scratch;
mod shared;
mod spoe;
mod spoe_message;
#[cfg(test)]
mod tests;
mod transaction;
mod tunnel;
mod turn;
mod upstreams;

pub(crate) use event_loop::Worker;
