use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use crate::log::Log;
use crate::machine::{GENERATOR_CPU, pin};
use crate::sample::Sample;
use crate::server::DelayServer;

/// Latencies in microseconds, in the order of sending, as a client saw them that writes a request
/// and blocks until the answer is there: the least that this machine lets anybody see.
pub(crate) struct Witness {
    latencies_us: Vec<f64>,
}

/// The longest that an answer may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Sends `count` requests for `path`, one at a time, on one connection and from the generator's
/// CPU, each after a rest of `gap`.
pub(crate) fn observe(server: &DelayServer, path: &str, count: usize, gap: Duration) -> Witness {
    let request = format!("GET {path} HTTP/1.1\r\nHost: witness\r\n\r\n");
    let exchange = || {
        pin(0, GENERATOR_CPU);
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).expect("a connection");
        stream.set_nodelay(true).expect("TCP_NODELAY");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        let mut answer = [0; 4096];
        let once = |_| {
            thread::sleep(gap);
            let began = Instant::now();
            stream.write_all(request.as_bytes()).expect("the request is sent");
            let length = stream.read(&mut answer).expect("an answer");
            let latency = began.elapsed();
            assert!(answer[..length].ends_with(b"\r\n\r\nok\n"), "not the whole answer at once");
            latency.as_secs_f64() * 1e6
        };
        (0..count).map(once).collect()
    };
    // A thread of its own, so that what the test starts later is not pinned with it.
    let latencies_us = thread::scope(|scope| scope.spawn(exchange).join()).expect("the witness");
    Witness { latencies_us }
}

impl Witness {
    /// What the machine added to each delay, in microseconds; `log` is of this witness alone.
    pub(crate) fn overheads_us(&self, log: &Log) -> Sample {
        assert_eq!(self.latencies_us.len(), log.records.len(), "each request is in the log");
        let pairs = self.latencies_us.iter().zip(&log.records);
        Sample::new(pairs.map(|(latency_us, record)| {
            latency_us - (record.written_ns - record.read_ns) as f64 / 1e3
        }))
    }
}
