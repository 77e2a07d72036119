//! What can run out on this machine when it connects. No backend is to blame for that.

use std::io;
use std::time::{Duration, Instant};

use rustix::io::Errno;

/// Something of this machine's own that a connection takes, and of which there is none left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// The process may open no more files.
    Files,
    /// The system may.
    SystemFiles,
    /// The kernel has no buffers.
    Buffers,
    /// Or no memory at all.
    Memory,
    /// No local port is free for that address.
    Ports,
}

impl Shortage {
    pub(crate) const ALL: [Self; 5] =
        [Self::Files, Self::SystemFiles, Self::Buffers, Self::Memory, Self::Ports];

    /// What an attempt to connect has come to nothing for. None: it is the other side's doing, or the way's.
    pub(crate) fn of(error: &io::Error) -> Option<Self> {
        let errno = Errno::from_io_error(error)?;
        Self::ALL.into_iter().find(|shortage| shortage.errno() == errno)
    }

    /// The name that the kernel's manuals have for it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Files => "EMFILE",
            Self::SystemFiles => "ENFILE",
            Self::Buffers => "ENOBUFS",
            Self::Memory => "ENOMEM",
            Self::Ports => "EADDRNOTAVAIL",
        }
    }

    /// What to do about it.
    pub(crate) fn advice(self) -> &'static str {
        match self {
            Self::Files => {
                "raise the limit on open files (ulimit -n), or lower `limits.connections`"
            }
            Self::SystemFiles => "raise fs.file-max",
            Self::Buffers | Self::Memory => {
                "give the machine more memory, or lower `limits.connections`"
            }
            Self::Ports => {
                "keep more connections (`keepalive_max`), or widen net.ipv4.ip_local_port_range"
            }
        }
    }

    fn errno(self) -> Errno {
        match self {
            Self::Files => Errno::MFILE,
            Self::SystemFiles => Errno::NFILE,
            Self::Buffers => Errno::NOBUFS,
            Self::Memory => Errno::NOMEM,
            Self::Ports => Errno::ADDRNOTAVAIL,
        }
    }
}

/// Says when something that goes on may be told once more.
#[derive(Debug, Default)]
pub(crate) struct OnceAMinute {
    told_at: Option<Instant>,
}

impl OnceAMinute {
    /// Whether it is to be told now, which is noted.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.told_at.is_none_or(|at| now.duration_since(at) >= MINUTE);
        if is_due {
            self.told_at = Some(now);
        }
        is_due
    }
}

const MINUTE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_run_out_here_is_told_from_what_a_backend_does() {
        for (errno, name) in [
            (Errno::MFILE, Some("EMFILE")),
            (Errno::NFILE, Some("ENFILE")),
            (Errno::NOBUFS, Some("ENOBUFS")),
            (Errno::NOMEM, Some("ENOMEM")),
            (Errno::ADDRNOTAVAIL, Some("EADDRNOTAVAIL")),
            (Errno::CONNREFUSED, None),
            (Errno::HOSTUNREACH, None),
            (Errno::TIMEDOUT, None),
            // The backlog of a Unix socket is full.
            (Errno::AGAIN, None),
        ] {
            let error = io::Error::from_raw_os_error(errno.raw_os_error());
            assert_eq!(Shortage::of(&error).map(Shortage::name), name, "{errno}");
        }
        assert_eq!(Shortage::of(&io::Error::other("no number")), None);
    }

    #[test]
    fn what_goes_on_is_told_once_a_minute() {
        let start = Instant::now();
        let mut told = OnceAMinute::default();
        let due_at = |second| told.is_due(start + Duration::from_secs(second));
        let due: Vec<bool> = [0, 1, 59, 60, 61, 119, 121].into_iter().map(due_at).collect();
        assert_eq!(due, [true, false, false, true, false, false, true]);
    }
}
