use std::path::Path;
use std::{fs, str::SplitWhitespace};

use crate::sample::Sample;

/// What the server logged: one record for each request, in the order of reading.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) records: Vec<Record>,
}

/// What became of one request, in nanoseconds of the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record {
    /// The serial number of the connection, from 1.
    pub(crate) connection: u64,
    /// A letter of `enum fate` in `delay_server/answer.h`.
    pub(crate) fate: char,
    /// Just after the read.
    pub(crate) read_ns: u64,
    /// Just before the write of the last byte; 0 if there was none.
    pub(crate) written_ns: u64,
}

impl Log {
    pub(crate) fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).expect("the server's log");
        Self { records: text.lines().map(Record::parse).collect() }
    }

    /// The records of all connections but the last, which is the witness' one, and those of the
    /// last.
    pub(crate) fn without_last_connection(mut self) -> (Self, Self) {
        let last = self.records.iter().map(|record| record.connection).max().expect("a request");
        let (witness, rest) = self.records.drain(..).partition(|record| record.connection == last);
        (Self { records: rest }, Self { records: witness })
    }

    pub(crate) fn count(&self, fate: char) -> u64 {
        self.records.iter().filter(|record| record.fate == fate).count() as u64
    }

    /// The connections on which a request was read.
    pub(crate) fn connections(&self) -> u64 {
        let mut serials: Vec<u64> = self.records.iter().map(|record| record.connection).collect();
        serials.sort_unstable();
        serials.dedup();
        serials.len() as u64
    }

    /// How long the server took with each request that it answered, in microseconds.
    pub(crate) fn delays_us(&self) -> Sample {
        let is_written = |record: &&Record| record.fate == 'a' && record.written_ns > 0;
        let answered = self.records.iter().filter(is_written);
        Sample::new(answered.map(|record| (record.written_ns - record.read_ns) as f64 / 1e3))
    }

    /// When each request was read, in microseconds after the first.
    pub(crate) fn reads_us(&self) -> Vec<f64> {
        let first_ns = self.records.first().expect("a request").read_ns;
        self.records.iter().map(|record| (record.read_ns - first_ns) as f64 / 1e3).collect()
    }
}

impl Record {
    fn parse(line: &str) -> Self {
        let mut words = line.split_whitespace();
        let fate = |words: &mut SplitWhitespace<'_>| words.next()?.chars().next();
        Self {
            connection: number(words.next()),
            fate: fate(&mut words).expect("a letter"),
            read_ns: number(words.next()),
            written_ns: number(words.next()),
        }
    }
}

fn number(word: Option<&str>) -> u64 {
    word.and_then(|word| word.parse().ok()).expect("a number")
}
