//! Rebuilds when a compiled-in input changes, and names the commit that is being built.

use std::process::Command;

fn main() {
    for folder in ["systems", "builds", "experiments", "mixes", "site"] {
        println!("cargo::rerun-if-changed=../../{folder}");
    }
    println!("cargo::rerun-if-changed=../../.git/HEAD");
    println!("cargo::rerun-if-changed=../../.git/logs/HEAD");
    println!("cargo::rustc-env=TOLLGATE_COMMIT={}", commit());
}

/// The commit's short name, with `-dirty` behind it when the tree differs; `unknown` where there is
/// no git or no repository, as in a source archive.
fn commit() -> String {
    let described = Command::new("git")
        .args(["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"])
        .output();
    match described {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        }
        _ => "unknown".to_owned(),
    }
}
