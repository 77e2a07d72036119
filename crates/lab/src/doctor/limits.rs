//! What the kernel allows of connections: open files, the queue in front of a listener, and local ports.

use super::{Check, bad, good, poor};
use crate::environment::Environment;

/// What is told of a machine, each with what is needed of it.
pub(super) fn checks(environment: &Environment) -> Vec<Check> {
    vec![
        open_files(environment.open_files),
        backlog(environment.somaxconn.as_deref()),
        ports(environment.port_range.as_deref()),
    ]
}

/// The experiments that come with the tool open up to 128 connections on both sides of a proxy.
const FEWEST_FILES: u64 = 512;
/// A load of some 1,700 connections.
const ENOUGH_FILES: u64 = 4096;

/// The soft limit is raised to the hard one before anything is started. A proxy has a connection on each
/// side, and some files besides, as its recipe reckons.
fn open_files((soft, hard): (u64, u64)) -> Check {
    let carried = hard.saturating_sub(512) / 2;
    let found = format!(
        "{soft}, may be raised to {hard}: a proxy can carry {carried} connections; needed: {ENOUGH_FILES}"
    );
    let mend = "ulimit -Hn 65536, as root, in the shell that starts tollgate";
    match hard {
        0..FEWEST_FILES => bad("open files", found, mend),
        FEWEST_FILES..ENOUGH_FILES => poor("open files", found, mend),
        _ => good("open files", found),
    }
}

/// What the recipes of nginx ask for, unless a subject says otherwise.
const BACKLOG: u64 = 4096;

/// A listener gets no longer queue than the kernel allows, whatever it asks for.
fn backlog(somaxconn: Option<&str>) -> Check {
    let name = "listen queue";
    let mend = format!("sysctl -w net.core.somaxconn={BACKLOG}, as root");
    match somaxconn.map(str::parse::<u64>) {
        Some(Ok(most)) => {
            let found =
                format!("net.core.somaxconn is {most}; needed, as nginx asks for it: {BACKLOG}");
            if most < BACKLOG { poor(name, found, &mend) } else { good(name, found) }
        }
        Some(Err(_)) | None => poor(name, "net.core.somaxconn is not told".to_owned(), &mend),
    }
}

/// For 10,000 connections to one server, and as many that rest for a minute after their end, where the
/// server does not close first.
const ENOUGH_PORTS: u64 = 20_000;

fn ports(range: Option<&str>) -> Check {
    let name = "local ports";
    let mend = "sysctl -w net.ipv4.ip_local_port_range=\"15000 60999\", as root";
    let ends = range.map(|range| range.split_whitespace().map(str::parse::<u64>));
    let ends: Option<Vec<u64>> = ends.and_then(|ends| ends.collect::<Result<_, _>>().ok());
    match ends.as_deref() {
        Some(&[first, last]) if first <= last => {
            let count = last - first + 1;
            let found = format!(
                "{count}, from {first} to {last}; needed for 10,000 connections: {ENOUGH_PORTS}"
            );
            if count < ENOUGH_PORTS { poor(name, found, mend) } else { good(name, found) }
        }
        _ => poor(name, "net.ipv4.ip_local_port_range is not told".to_owned(), mend),
    }
}

#[cfg(test)]
mod tests {
    use super::super::State;
    use super::*;

    #[test]
    fn a_limit_tells_its_value_what_is_needed_and_the_line_that_mends_it() {
        for (hard, state) in [
            (511, State::Impossible),
            (512, State::Poor),
            (4_095, State::Poor),
            (4_096, State::Good),
        ] {
            assert_eq!(open_files((256, hard)).state, state, "{hard}");
        }
        let enough = open_files((1024, 20_000));
        assert!(enough.found.contains("a proxy can carry 9744 connections"), "{}", enough.found);
        let few = backlog(Some("128"));
        assert_eq!(few.state, State::Poor);
        assert_eq!(few.found, "net.core.somaxconn is 128; needed, as nginx asks for it: 4096");
        assert_eq!(few.mend.as_deref(), Some("sysctl -w net.core.somaxconn=4096, as root"));
        assert_eq!(backlog(Some("4096")).state, State::Good);
        assert_eq!(backlog(None).state, State::Poor);
        assert_eq!(backlog(Some("many")).state, State::Poor);
    }

    #[test]
    fn ports_are_counted_both_ends_included() {
        let usual = ports(Some("32768 60999"));
        assert_eq!(usual.state, State::Good);
        assert!(usual.found.starts_with("28232, from 32768 to 60999;"), "{}", usual.found);
        assert_eq!(ports(Some("40000\t59998")).state, State::Poor);
        assert_eq!(ports(Some("40000 59999")).state, State::Good);
        for odd in [None, Some(""), Some("1"), Some("2 1"), Some("a b"), Some("1 2 3")] {
            assert_eq!(ports(odd).found, "net.ipv4.ip_local_port_range is not told", "{odd:?}");
        }
    }
}
