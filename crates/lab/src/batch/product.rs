//! What a build leaves in its folder: one hash, by which equal products are known wherever they lie.

use crate::system::builds::files_below;
use crate::system::render::{hash_file, hash_text};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// SHA-256 over the names of all files below a folder, their contents, and whether they can be executed:
/// of two that differ in that alone, one may not even start.
///
/// # Errors
///
/// A file cannot be read.
pub(super) fn hash(folder: &Path) -> io::Result<String> {
    let mut files = files_below(folder)?;
    files.sort();
    let mut text = String::new();
    for path in files {
        let name = path.strip_prefix(folder).unwrap_or(&path).display().to_string();
        let is_program = fs::metadata(&path)?.permissions().mode() & EXECUTABLE != 0;
        let kind = if is_program { "program" } else { "file" };
        // Writing to a String cannot fail.
        writeln!(text, "{} {kind} {name}", hash_file(&path)?).ok();
    }
    Ok(hash_text(&text))
}

/// The bits that let the owner, the group or others execute a file.
const EXECUTABLE: u32 = 0o111;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_is_known_by_names_contents_and_what_can_be_executed() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("bin/server");
        fs::create_dir(dir.path().join("bin")).unwrap();
        fs::write(&file, "abc").unwrap();
        let set = |mode: u32| fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        set(0o644);
        let plain = hash(dir.path()).unwrap();
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(plain, hash_text(&format!("{abc} file bin/server\n")));
        // Who may read or write it changes nothing of what it does.
        set(0o600);
        assert_eq!(hash(dir.path()).unwrap(), plain);
        set(0o755);
        assert_eq!(hash(dir.path()).unwrap(), hash_text(&format!("{abc} program bin/server\n")));
    }
}
