//! Memory that the allocator keeps after buffers are freed.

/// Less than this stays with the allocator, which uses it again.
const WORTH_BYTES: usize = 8 << 20;

/// Gives memory of buffers back to the system after a peak. The allocator of glibc keeps free memory below any that is in use,
/// for example all that slow peers needed below one connection that came later.
#[derive(Debug, Default)]
pub struct PeakMemory {
    peak_bytes: usize,
    /// Buffers freed since the last observation, which may not have seen them.
    freed_bytes: usize,
}

/// Smaller buffers are freed with each request, and do not count.
const BUFFER_BYTES_MIN: usize = 16 << 10;

impl PeakMemory {
    /// Notes that the buffers of a connection or stream are freed.
    pub fn freed(&mut self, bytes: usize) {
        if bytes >= BUFFER_BYTES_MIN {
            self.freed_bytes += bytes;
        }
    }

    /// Takes the current size of all buffers, now and then. Returns true if memory was given back, which takes about a
    /// millisecond per 50 MB.
    pub fn observe(&mut self, bytes: usize) -> bool {
        let is_over = self.is_over(bytes);
        if is_over {
            give_back_free();
        }
        is_over
    }

    /// True if most of the memory of the last peak is free.
    fn is_over(&mut self, bytes: usize) -> bool {
        self.peak_bytes = self.peak_bytes.max(bytes + std::mem::take(&mut self.freed_bytes));
        let free_bytes = self.peak_bytes - bytes;
        let is_over = free_bytes >= WORTH_BYTES && free_bytes >= self.peak_bytes / 2;
        if is_over {
            self.peak_bytes = bytes;
        }
        is_over
    }
}

#[cfg(target_env = "gnu")]
#[expect(unsafe_code, reason = "a call of the C library without arguments to get wrong")]
fn give_back_free() {
    // SAFETY: `malloc_trim(3)` touches only free memory of the allocator, and is safe to call from any thread.
    unsafe { nix::libc::malloc_trim(0) };
}

#[cfg(not(target_env = "gnu"))]
fn give_back_free() {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peak_between_observations_is_over_at_the_next() {
        let mut memory = PeakMemory::default();
        assert!(!memory.is_over(0));
        (0..20).for_each(|_| memory.freed(1 << 20));
        assert!(memory.is_over(1 << 20));
        assert!(!memory.is_over(1 << 20));
        (0..20 << 10).for_each(|_| memory.freed(1 << 10));
        assert!(!memory.is_over(1 << 20));
    }

    #[test]
    fn each_peak_is_over_once() {
        let mut memory = PeakMemory::default();
        let series =
            [(1, false), (0, false), (20, false), (11, false), (10, true), (1, true), (0, false)];
        for (mib, is_over) in series {
            assert_eq!(memory.is_over(mib << 20), is_over, "{mib} MiB");
        }
        let series = [(100, false), (60, false), (49, true), (45, false), (40, false), (24, true)];
        for (mib, is_over) in series {
            assert_eq!(memory.is_over(mib << 20), is_over, "{mib} MiB");
        }
    }
}
