//! Which CPUs a thread runs on.

use std::io;

use rustix::thread::{CpuSet, sched_setaffinity};

/// Confines the calling thread, and the threads that it starts later, to `cpus` (numbered from 0).
///
/// # Errors
///
/// `cpus` is empty, names a CPU beyond what the kernel can count, or names none that the thread may
/// run on.
pub fn pin_current_thread(cpus: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for &cpu in cpus {
        if cpu >= CpuSet::MAX_CPU {
            let reason = format!("there is no CPU {cpu}: the highest is {}", CpuSet::MAX_CPU - 1);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        set.set(cpu);
    }
    sched_setaffinity(None, &set)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use rustix::thread::{sched_getaffinity, sched_getcpu};

    use super::*;

    #[test]
    fn a_pinned_thread_runs_there() {
        let allowed = sched_getaffinity(None).unwrap();
        let last = (0..CpuSet::MAX_CPU).rfind(|&cpu| allowed.is_set(cpu)).unwrap();
        std::thread::spawn(move || {
            pin_current_thread(&[last]).unwrap();
            assert_eq!(sched_getcpu(), last);
            assert_eq!(sched_getaffinity(None).unwrap().count(), 1);
        })
        .join()
        .unwrap();
    }

    #[test]
    fn no_cpu_and_an_impossible_cpu_are_errors() {
        for cpus in [&[][..], &[CpuSet::MAX_CPU]] {
            let error = pin_current_thread(cpus).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        }
    }
}
