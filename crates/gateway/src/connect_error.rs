//! Errors of connecting to a backend: whether local resources have run out, and whether there was a connection.

use std::io;

use rustix::io::Errno;

/// A local resource that new connections need and that can run out, which is not the backend's fault.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LocalResource {
    errno: Errno,
    pub(crate) error: &'static str,
    /// Advice for the user.
    pub(crate) advice: &'static str,
}

pub(crate) static LOCAL_RESOURCES: [LocalResource; 5] = [
    LocalResource {
        errno: Errno::MFILE,
        error: "EMFILE",
        advice: "raise the limit on open files (ulimit -n) or lower `limits.connections`",
    },
    LocalResource { errno: Errno::NFILE, error: "ENFILE", advice: "raise fs.file-max" },
    LocalResource {
        errno: Errno::NOBUFS,
        error: "ENOBUFS",
        advice: "add memory or lower `limits.connections`",
    },
    LocalResource {
        errno: Errno::NOMEM,
        error: "ENOMEM",
        advice: "add memory or lower `limits.connections`",
    },
    LocalResource {
        errno: Errno::ADDRNOTAVAIL,
        error: "EADDRNOTAVAIL",
        advice: "raise `keepalive_max` or widen net.ipv4.ip_local_port_range",
    },
];

/// Returns the exhausted resource that made a connect fail.
pub(crate) fn exhausted_resource(error: &io::Error) -> Option<&'static LocalResource> {
    let errno = Errno::from_io_error(error)?;
    LOCAL_RESOURCES.iter().find(|resource| resource.errno == errno)
}

/// True if the error of a TLS handshake shows that there was no connection.
pub(crate) fn is_connect_error(error: &io::Error) -> bool {
    use io::ErrorKind;

    !matches!(
        error.kind(),
        ErrorKind::InvalidData | ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_resource_exhaustion_is_distinguished_from_backend_errors() {
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
            assert_eq!(exhausted_resource(&error).map(|resource| resource.error), name, "{errno}");
        }
        assert_eq!(exhausted_resource(&io::Error::other("no errno")), None);
    }
}
