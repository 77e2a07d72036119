//! Which processes belong to a role: a process that the lab started, and all its descendants.

use nix::unistd::{Pid, getpid};
use procfs::process::{Stat, all_processes};
use procfs::{ProcError, ProcResult};
use std::collections::BTreeSet;

/// The process and all its descendants that are alive now; empty when the process itself is gone.
/// Processes of its group count as its descendants, because an orphan keeps its group but not its
/// parent.
///
/// # Errors
///
/// The process list cannot be read.
pub fn of(root: Pid) -> ProcResult<BTreeSet<i32>> {
    let all = snapshot()?;
    let belongs = |stat: &&Stat| stat.pid == root.as_raw() || stat.pgrp == root.as_raw();
    let roots = all.iter().filter(belongs).map(|stat| stat.pid).collect();
    Ok(with_descendants(roots, &all))
}

/// Processes that made themselves independent of the one that started them, with their descendants:
/// the lab is the parent of orphans, so they are its children, and none of `known`.
///
/// # Errors
///
/// The process list cannot be read.
pub fn strays(known: &BTreeSet<i32>) -> ProcResult<BTreeSet<i32>> {
    let lab = getpid().as_raw();
    let all = snapshot()?;
    let strays = |stat: &&Stat| stat.ppid == lab && !known.contains(&stat.pid);
    // What orphans of a known process' own group do is already counted with that process.
    let apart = |stat: &&Stat| !known.contains(&stat.pgrp);
    let roots = all.iter().filter(strays).filter(apart).map(|stat| stat.pid).collect();
    Ok(with_descendants(roots, &all))
}

fn with_descendants(mut tree: BTreeSet<i32>, all: &[Stat]) -> BTreeSet<i32> {
    loop {
        let before = tree.len();
        let children = all.iter().filter(|stat| tree.contains(&stat.ppid));
        let children: Vec<i32> = children.map(|stat| stat.pid).collect();
        tree.extend(children);
        if tree.len() == before {
            return tree;
        }
    }
}

/// Every process that is alive; one that ends while the list is read is left out.
fn snapshot() -> ProcResult<Vec<Stat>> {
    let mut all = Vec::new();
    for process in all_processes()? {
        match process.and_then(|process| process.stat()) {
            Ok(stat) if stat.state != 'Z' && stat.state != 'X' => all.push(stat),
            Ok(_) | Err(ProcError::NotFound(_) | ProcError::PermissionDenied(_)) => {}
            // A process that ends between opening and reading its files reads as ESRCH.
            Err(ProcError::Io(error, _)) if error.raw_os_error() == Some(nix::libc::ESRCH) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(all)
}
