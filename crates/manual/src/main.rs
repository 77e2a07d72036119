//! `tollgate-manual ROOT OUT` writes the manual of a repository to a folder.

use anyhow::Context as _;
use std::env;
use std::path::Path;
use tollgate_manual::Tree;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<_> = env::args_os().skip(1).collect();
    let [root, out] = arguments.as_slice() else {
        anyhow::bail!("expected two folders: tollgate-manual ROOT OUT");
    };
    let root = Path::new(root).canonicalize().context("cannot read the first folder")?;
    Tree::read(&root)?.write(&root, Path::new(out))
}
