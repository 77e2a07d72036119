//! The folders of builds that are under way, and of those that were cut off before they could clean up.

use std::path::Path;
use std::{fs, io, process};

const PREFIX: &str = "unfinished-";

/// The name of the folder that this process works in.
pub(super) fn name() -> String {
    format!("{PREFIX}{}", process::id())
}

/// Removes those in a folder whose process is gone: it was killed, and nobody else knows of them.
///
/// # Errors
///
/// The folder cannot be read, or one of them cannot be removed.
pub(super) fn remove(folder: &Path) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let owner = name.to_string_lossy().strip_prefix(PREFIX).map(str::parse::<u32>);
        let Some(Ok(owner)) = owner else { continue };
        // One of this very number was another process of old: this one has made none yet.
        if owner != process::id() && Path::new(&format!("/proc/{owner}")).exists() {
            continue;
        }
        match fs::remove_dir_all(entry.path()) {
            // Another build that begins now has removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            removed => removed?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn what_a_process_left_is_removed_once_that_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let mut sleeper = Command::new("sleep").arg("60").spawn().unwrap();
        let of_sleeper = format!("{PREFIX}{}", sleeper.id());
        let others = ["0123456789ab-000000000001", "unfinished-by-hand"];
        for name in [&of_sleeper, &name()].into_iter().map(String::as_str).chain(others) {
            fs::create_dir_all(dir.path().join(name).join("source")).unwrap();
        }
        let left = || {
            let entries = fs::read_dir(dir.path()).unwrap().flatten();
            let mut names: Vec<_> =
                entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        remove(dir.path()).unwrap();
        assert_eq!(left(), [others[0], &of_sleeper, others[1]]);
        sleeper.kill().unwrap();
        sleeper.wait().unwrap();
        remove(dir.path()).unwrap();
        assert_eq!(left(), others);
    }
}
