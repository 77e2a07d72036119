//! What a build prints, on disk: its end, where it is too much.

use std::fs::{self, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

/// How long the log of a build may become.
pub(super) const BYTES_MAX: u64 = 16 << 20;

/// Cuts the beginning off a log that has become longer than `most`, so that half of that is left. Who writes to it has to append, as a build does.
/// What is written in the very moment of the cut may be lost or stand before it; after the end of a build
/// nothing is.
///
/// # Errors
///
/// It cannot be read or written.
pub(super) fn bound(log: &Path, most: u64) -> io::Result<()> {
    let length = fs::metadata(log)?.len();
    if length <= most {
        return Ok(());
    }
    let mut file = OpenOptions::new().read(true).append(true).open(log)?;
    file.seek(SeekFrom::Start(length - most / 2))?;
    let mut end = Vec::new();
    (&file).take(most / 2).read_to_end(&mut end)?;
    // From the first whole line on, where there is one.
    let start = end.iter().position(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
    file.set_len(0)?;
    file.write_all(CUT)?;
    file.write_all(&end[start..])
}

const CUT: &[u8] = b"[what was printed before this line was cut off, as the log became too long]\n";

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u64 = 10_000;

    #[test]
    fn a_log_that_becomes_too_long_keeps_its_end() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("build.log");
        fs::write(&log, "one\ntwo\n").unwrap();
        bound(&log, MOST).unwrap();
        assert_eq!(fs::read_to_string(&log).unwrap(), "one\ntwo\n");
        let line = format!("{}\n", "x".repeat(99));
        let lines = usize::try_from(MOST).unwrap() / line.len() + 1;
        fs::write(&log, line.repeat(lines) + "the last line\n").unwrap();
        // Who appends goes on at the new end.
        let mut writer = OpenOptions::new().append(true).open(&log).unwrap();
        bound(&log, MOST).unwrap();
        writer.write_all(b"one more\n").unwrap();
        let text = fs::read_to_string(&log).unwrap();
        assert!(text.starts_with("[what was printed before"), "{}", &text[..99]);
        assert_eq!(text.lines().nth(1), Some(line.trim_end()));
        assert!(text.ends_with("the last line\none more\n"));
        assert!((text.len() as u64) < MOST / 2 + 200, "{}", text.len());
    }
}
