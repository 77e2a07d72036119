//! Which processes belong to a role: a process that the lab started, and all its descendants.

use nix::unistd::Pid;
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
    let mut tree: BTreeSet<i32> = all
        .iter()
        .filter(|stat| stat.pid == root.as_raw() || stat.pgrp == root.as_raw())
        .map(|stat| stat.pid)
        .collect();
    loop {
        let before = tree.len();
        let children = all.iter().filter(|stat| tree.contains(&stat.ppid));
        let children: Vec<i32> = children.map(|stat| stat.pid).collect();
        tree.extend(children);
        if tree.len() == before {
            return Ok(tree);
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
