//! What an origin is started with.

use std::net::SocketAddr;

/// Where an origin listens and what it runs on.
#[derive(Clone, Debug)]
pub struct Config {
    /// The address to listen on; port 0 asks for any free one.
    pub listen: SocketAddr,
    /// How many threads serve, from 1 to 256.
    pub threads: usize,
    /// The CPUs to run on, numbered from 0: each thread is pinned to one of them, in turn. None: the
    /// threads are not pinned.
    pub cpus: Vec<usize>,
}
