//! Messages for a person, on standard error. Who tells one does not wait for whoever reads them, who may be nobody:
//! a thread of their own writes them. There is one for the whole process, as there is one standard error.

use std::io::{self, Write};
use std::sync::OnceLock;

use crate::access_log::FINISH_TIMEOUT;
use crate::queue::{Kind, Queue};

/// How many bytes wait for the reader at most; messages beyond that are left out.
const WAITING_MAX_BYTES: usize = 64 << 10;

static QUEUE: OnceLock<Queue> = OnceLock::new();

/// From now on, whoever tells something waits for nobody. `program` is who tells that messages were left out.
///
/// # Errors
///
/// There are no threads left.
pub fn start(program: &'static str) -> io::Result<()> {
    if QUEUE.get().is_some() {
        return Ok(());
    }
    let kind = Kind {
        program,
        name: "standard error",
        thread: "messages",
        waiting_max_bytes: WAITING_MAX_BYTES,
        // It is the thread of this very queue that tells it.
        tell: write,
    };
    let queue = Queue::start(Box::new(io::stderr()), kind)?;
    // Another one may have been first, and is enough.
    QUEUE.get_or_init(|| queue);
    Ok(())
}

/// Tells a person something, as a line of its own.
pub fn tell(message: &str) {
    match QUEUE.get() {
        Some(queue) => {
            // It counts itself what it leaves out, and tells that.
            queue.add(format!("{message}\n").as_bytes(), 1);
        }
        None => write(message),
    }
}

/// Waits until all is written, for as long as a reader is waited for at the end.
pub fn finish() {
    if let Some(queue) = QUEUE.get() {
        queue.finish(FINISH_TIMEOUT);
    }
}

fn write(message: &str) {
    // What nobody can be told is let go.
    writeln!(io::stderr(), "{message}").ok();
}
