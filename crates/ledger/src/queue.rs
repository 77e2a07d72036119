//! Lines on their way to a reader that may be slow: who writes them does not wait for it.

use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// After how long without a word it is told once more that lines were left out.
const QUIET: Duration = Duration::from_secs(60);

/// Lines that a thread of their own writes. It ends when this is dropped and all is written.
pub(crate) struct Queue {
    shared: Arc<Shared>,
}

/// What lines are of.
#[derive(Clone, Copy)]
pub(crate) struct Kind {
    /// Who tells what goes wrong with them.
    pub(crate) program: &'static str,
    /// What they are called then.
    pub(crate) name: &'static str,
    /// The name of the thread that writes them.
    pub(crate) thread: &'static str,
    /// How many bytes wait for the reader at most; lines beyond that are left out.
    pub(crate) waiting_max_bytes: usize,
    /// Tells it; called by the thread that writes.
    pub(crate) tell: fn(&str),
}

struct Shared {
    kind: Kind,
    state: Mutex<State>,
    /// There is something to write, or there will be nothing more.
    is_asked: Condvar,
    /// Something was written.
    is_written: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Vec<u8>,
    /// Lines that were left out.
    lost: u64,
    is_writing: bool,
    /// The writer sleeps, and is to be woken.
    is_idle: bool,
    /// Nothing can be written any more.
    has_failed: bool,
    is_closed: bool,
}

impl Queue {
    /// Starts the thread that writes to `to`.
    ///
    /// # Errors
    ///
    /// There are no threads left.
    pub(crate) fn start(to: Box<dyn Write + Send>, kind: Kind) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            kind,
            state: Mutex::default(),
            is_asked: Condvar::new(),
            is_written: Condvar::new(),
        });
        let its = Arc::clone(&shared);
        thread::Builder::new().name(kind.thread.to_owned()).spawn(move || its.write(to))?;
        Ok(Self { shared })
    }

    /// Has these lines written, of which there are so many. Says how many of them were left out, which is all or
    /// none.
    pub(crate) fn add(&self, lines: &[u8], count: u64) -> u64 {
        let mut state = self.shared.lock();
        let waiting_max_bytes = self.shared.kind.waiting_max_bytes;
        if state.has_failed || state.waiting.len() + lines.len() > waiting_max_bytes {
            state.lost += count;
            return count;
        }
        state.waiting.extend_from_slice(lines);
        if std::mem::take(&mut state.is_idle) {
            self.shared.is_asked.notify_one();
        }
        0
    }

    /// Nothing can be written any more.
    pub(crate) fn has_failed(&self) -> bool {
        self.shared.lock().has_failed
    }

    /// Waits until all is written, but for no longer than that. Says how many bytes wait still.
    pub(crate) fn finish(&self, patience: Duration) -> usize {
        let is_busy = |state: &mut State| state.is_writing || !state.waiting.is_empty();
        let waited =
            self.shared.is_written.wait_timeout_while(self.shared.lock(), patience, is_busy);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.waiting.len()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.is_asked.notify_one();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The life of the thread.
    fn write(&self, mut to: Box<dyn Write + Send>) {
        let Kind { program, name, tell, .. } = self.kind;
        let mut lines = Vec::new();
        let mut told = Told::default();
        while self.take(&mut lines) {
            let written = to.write_all(&lines).and_then(|()| to.flush());
            lines.clear();
            let mut state = self.lock();
            state.is_writing = false;
            if written.is_err() {
                state.has_failed = true;
                state.waiting = Vec::new();
            }
            let lost = state.lost;
            drop(state);
            self.is_written.notify_all();
            if let Err(error) = written {
                // Said once: serving goes on without.
                tell(&format!("{program}: {name} ends here: {error}"));
                return;
            }
            // It is this thread that says so: whoever reads that may be as slow.
            if told.is_due(lost, Instant::now()) {
                tell(&format!(
                    "{program}: {name} is not read as fast as it is written: {lost} lines were left out so far"
                ));
            }
        }
    }

    /// Waits for lines, and takes all there are. Whether there are any, and will be.
    fn take(&self, lines: &mut Vec<u8>) -> bool {
        let mut state = self.lock();
        while state.waiting.is_empty() {
            if state.is_closed {
                return false;
            }
            state.is_idle = true;
            state = self.is_asked.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.is_idle = false;
        state.is_writing = true;
        std::mem::swap(&mut state.waiting, lines);
        true
    }
}

/// How many lines were told to have been left out, and when.
#[derive(Default)]
struct Told {
    lost: u64,
    at: Option<Instant>,
}

impl Told {
    /// Whether there is something new to tell, after so long; it is told then.
    fn is_due(&mut self, lost: u64, now: Instant) -> bool {
        let is_due = lost > self.lost && self.at.is_none_or(|at| now.duration_since(at) >= QUIET);
        if is_due {
            *self = Self { lost, at: Some(now) };
        }
        is_due
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(10);

    /// A reader that takes a piece when it is told to, and shows it.
    struct Slow {
        takes: Receiver<()>,
        taken: Sender<Vec<u8>>,
    }

    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.takes.recv().map_err(io::Error::other)?;
            self.taken.send(bytes.to_vec()).map_err(io::Error::other)?;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    const KIND: Kind = Kind {
        program: "a test",
        name: "what it tests",
        thread: "a-test",
        waiting_max_bytes: 4 << 20,
        tell: |_| {},
    };

    fn slow() -> (Queue, Sender<()>, Receiver<Vec<u8>>) {
        slow_of(KIND)
    }

    fn slow_of(kind: Kind) -> (Queue, Sender<()>, Receiver<Vec<u8>>) {
        let ((take, takes), (taken, pieces)) = (channel(), channel());
        let queue = Queue::start(Box::new(Slow { takes, taken }), kind).unwrap();
        (queue, take, pieces)
    }

    #[test]
    fn a_slow_reader_gets_all_that_it_has_room_for_in_order_and_holds_up_nobody() {
        let (queue, take, pieces) = slow();
        assert_eq!(queue.add(b"first\n", 1), 0);
        // The writer has taken it, and waits for the reader.
        while !queue.shared.lock().is_writing {
            thread::yield_now();
        }
        let half = vec![b'h'; KIND.waiting_max_bytes / 2];
        assert_eq!(queue.add(&half, 7), 0);
        assert_eq!(queue.add(b"small\n", 1), 0);
        assert_eq!(queue.add(&half, 7), 7);
        assert_eq!(queue.add(b"last\n", 2), 0);
        assert_eq!(queue.finish(Duration::from_millis(10)), half.len() + 11);
        (0..2).for_each(|_| take.send(()).unwrap());
        assert_eq!(pieces.recv_timeout(PATIENCE).unwrap(), b"first\n");
        let rest = pieces.recv_timeout(PATIENCE).unwrap();
        assert_eq!(rest, [&half[..], b"small\n", b"last\n"].concat());
        assert_eq!(queue.finish(PATIENCE), 0);
        // There is room again.
        assert_eq!(queue.add(&half, 7), 0);
        assert_eq!(queue.shared.lock().lost, 7);
    }

    #[test]
    fn what_waits_is_written_though_nobody_adds_to_it_any_more() {
        let (queue, take, pieces) = slow();
        assert_eq!(queue.add(b"a\n", 1), 0);
        drop(queue);
        take.send(()).unwrap();
        assert_eq!(pieces.recv_timeout(PATIENCE).unwrap(), b"a\n");
        // The thread has ended, and its reader with it.
        assert!(pieces.recv_timeout(PATIENCE).is_err());
    }

    #[test]
    fn after_an_error_all_is_left_out() {
        let (queue, take, _) = slow();
        drop(take);
        assert_eq!(queue.add(b"a\n", 1), 0);
        assert_eq!(queue.finish(PATIENCE), 0);
        assert_eq!(queue.add(b"b\n", 1), 1);
    }

    #[test]
    fn what_was_left_out_is_told_by_its_name_once_there_is_a_reader_again() {
        static TOLD: Mutex<Vec<String>> = Mutex::new(Vec::new());
        let tell = |message: &str| TOLD.lock().unwrap().push(message.to_owned());
        let (queue, take, pieces) = slow_of(Kind { waiting_max_bytes: 10, tell, ..KIND });
        assert_eq!(queue.add(b"1234567\n", 1), 0);
        while !queue.shared.lock().is_writing {
            thread::yield_now();
        }
        assert_eq!(queue.add(b"12345678901\n", 1), 1);
        assert_eq!(queue.add(b"12\n", 1), 0);
        assert_eq!(queue.add(b"1234567\n", 2), 2);
        assert_eq!(*TOLD.lock().unwrap(), [""; 0]);
        take.send(()).unwrap();
        pieces.recv_timeout(PATIENCE).unwrap();
        take.send(()).unwrap();
        pieces.recv_timeout(PATIENCE).unwrap();
        // Its thread has told it before it took the second piece.
        assert_eq!(
            *TOLD.lock().unwrap(),
            [
                "a test: what it tests is not read as fast as it is written: 3 lines were left out so far"
            ]
        );
    }

    #[test]
    fn what_was_left_out_is_told_once_a_minute_and_only_if_it_is_more() {
        let start = Instant::now();
        let mut told = Told::default();
        let due = [(0, 0), (3, 0), (4, 59), (4, 60), (4, 121), (5, 122)]
            .map(|(lost, second)| told.is_due(lost, start + Duration::from_secs(second)));
        assert_eq!(due, [false, true, false, true, false, true]);
    }
}
