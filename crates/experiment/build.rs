//! Rebuilds when a compiled-in input changes.

fn main() {
    for folder in ["systems", "builds", "experiments", "mixes", "site"] {
        println!("cargo::rerun-if-changed=../../{folder}");
    }
}
