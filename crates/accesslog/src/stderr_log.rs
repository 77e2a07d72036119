//! Messages on standard error, written by one thread per process, so that a slow or absent reader blocks no caller.

use std::io::{self, Write};
use std::sync::OnceLock;

use crate::queue::{FINISH_TIMEOUT, Queue, QueueConfig};

const QUEUE_MAX_BYTES: usize = 64 << 10;

static QUEUE: OnceLock<Queue> = OnceLock::new();
static PROGRAM: OnceLock<&str> = OnceLock::new();

/// Starts the thread that writes; before that, [`write()`] blocks. `program` names the program in messages, unless an earlier
/// call has named it.
pub fn start(program: &'static str) -> io::Result<()> {
    let program = *PROGRAM.get_or_init(|| program);
    if QUEUE.get().is_some() {
        return Ok(());
    }
    let config = QueueConfig {
        program,
        name: "standard error",
        thread: "stderr-log",
        max_bytes: QUEUE_MAX_BYTES,
        // Called by this queue's own thread.
        report: write_line,
    };
    let queue = Queue::start(Box::new(io::stderr()), config)?;
    // If another thread was first, its queue stays.
    QUEUE.get_or_init(|| queue);
    Ok(())
}

/// The name of the program in messages: that of the first [`start`].
pub fn program() -> &'static str {
    PROGRAM.get().copied().unwrap_or("tollgate")
}

/// Writes a message as one line. Drops it if the queue is full; the queue reports that later.
pub fn write(message: &str) {
    match QUEUE.get() {
        Some(queue) => {
            queue.add(format!("{message}\n").as_bytes(), 1);
        }
        None => write_line(message),
    }
}

/// Waits until all messages are written, for [`FINISH_TIMEOUT`] at most.
pub fn finish() {
    if let Some(queue) = QUEUE.get() {
        queue.finish(FINISH_TIMEOUT);
    }
}

fn write_line(message: &str) {
    // There is no other place to report a failure.
    writeln!(io::stderr(), "{message}").ok();
}
