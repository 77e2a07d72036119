use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

/// A program in C, built once a run by the compiler that Rust itself links with; `sources` are
/// files of this folder.
pub(crate) fn built(name: &'static str, sources: &[&str]) -> PathBuf {
    static BUILT: Mutex<BTreeMap<&str, PathBuf>> = Mutex::new(BTreeMap::new());
    let mut built = BUILT.lock().unwrap_or_else(PoisonError::into_inner);
    built.entry(name).or_insert_with(|| build(name, sources)).clone()
}

fn build(name: &str, sources: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fidelity");
    let binary = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let status = Command::new("cc")
        .args(["-O2", "-Wall", "-Wextra", "-Werror", "-o"])
        .arg(&binary)
        .args(sources.iter().map(|source| folder.join(source)))
        .arg("-lm")
        .status()
        .expect("a C compiler: scripts/setup installs one");
    assert!(status.success(), "{name} does not compile");
    binary
}
