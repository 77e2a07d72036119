//! Which processes belong to a role: a process that the lab started, and all its descendants.

use nix::unistd::{Pid, getpid};
use procfs::process::{Stat, all_processes};
use procfs::{ProcError, ProcResult};
use std::collections::BTreeSet;

/// Every process that was alive at one moment.
#[derive(Debug)]
pub struct ProcessTable(Vec<Stat>);

impl ProcessTable {
    /// The processes that are alive now; one that ends while the list is read is left out.
    ///
    /// # Errors
    ///
    /// The process list cannot be read.
    pub fn read() -> ProcResult<Self> {
        let mut alive = Vec::new();
        for process in all_processes()? {
            match process.and_then(|process| process.stat()) {
                Ok(stat) if stat.state != 'Z' && stat.state != 'X' => alive.push(stat),
                Ok(_) | Err(ProcError::NotFound(_) | ProcError::PermissionDenied(_)) => {}
                // A process that ends between opening and reading its files reads as ESRCH.
                Err(ProcError::Io(error, _)) if error.raw_os_error() == Some(nix::libc::ESRCH) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Self(alive))
    }

    /// The process and all its descendants; empty when the process itself is gone. Processes of its
    /// group count as its descendants, because an orphan keeps its group but not its parent.
    pub fn below(&self, root: Pid) -> BTreeSet<i32> {
        let belongs = |stat: &&Stat| stat.pid == root.as_raw() || stat.pgrp == root.as_raw();
        self.with_descendants(self.0.iter().filter(belongs).map(|stat| stat.pid).collect())
    }

    /// All descendants of this process.
    pub fn below_this(&self) -> BTreeSet<i32> {
        self.strays(&BTreeSet::new())
    }

    /// Processes that made themselves independent of the one that started them, with their
    /// descendants: the lab is the parent of orphans, so they are its children, and none of `known`.
    pub fn strays(&self, known: &BTreeSet<i32>) -> BTreeSet<i32> {
        let lab = getpid().as_raw();
        let strays = |stat: &&Stat| stat.ppid == lab && !known.contains(&stat.pid);
        // What orphans of a known process' own group do is already counted with that process.
        let apart = |stat: &&Stat| !known.contains(&stat.pgrp);
        let roots = self.0.iter().filter(strays).filter(apart).map(|stat| stat.pid).collect();
        self.with_descendants(roots)
    }

    fn with_descendants(&self, mut tree: BTreeSet<i32>) -> BTreeSet<i32> {
        loop {
            let before = tree.len();
            let children = self.0.iter().filter(|stat| tree.contains(&stat.ppid));
            let children: Vec<i32> = children.map(|stat| stat.pid).collect();
            tree.extend(children);
            if tree.len() == before {
                return tree;
            }
        }
    }
}
