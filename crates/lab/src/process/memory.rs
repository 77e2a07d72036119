//! Memory of processes, read from outside.

use procfs::ProcResult;
use procfs::process::Process;
use std::collections::BTreeSet;

/// The peak memory of a set of processes, in bytes.
///
/// Each process counts with its proportional share (PSS: a page that n processes map counts 1/n for
/// each), so that what workers share with their master counts once, and with how far its resident
/// memory once stood above where it stands now.
///
/// # Errors
///
/// A process is gone, or may not be read.
pub fn peak_bytes(pids: &BTreeSet<i32>) -> ProcResult<u64> {
    pids.iter().map(|pid| process_peak_bytes(*pid)).sum()
}

fn process_peak_bytes(pid: i32) -> ProcResult<u64> {
    let process = Process::new(pid)?;
    let rollup = process.smaps_rollup()?;
    let shares = rollup.memory_map_rollup.iter();
    let share: u64 = shares.filter_map(|map| map.extension.map.get("Pss")).sum();
    let status = process.status()?;
    let peak_kib = status.vmhwm.unwrap_or(0);
    let now_kib = status.vmrss.unwrap_or(0);
    Ok(share + peak_kib.saturating_sub(now_kib) * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_was_touched_counts() {
        let me = BTreeSet::from([std::process::id().cast_signed()]);
        let before = peak_bytes(&me).unwrap();
        // Much more than other tests of this process take and give back meanwhile.
        let block = vec![1_u8; 192 << 20];
        let with_block = peak_bytes(&me).unwrap();
        assert_eq!(block[block.len() / 2], 1);
        drop(block);
        let after = peak_bytes(&me).unwrap();
        assert!(with_block > before + (150 << 20), "{before} {with_block}");
        assert!(after > before + (150 << 20), "a peak stays: {before} {after}");
    }
}
