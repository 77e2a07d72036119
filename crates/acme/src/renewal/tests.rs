use std::sync::mpsc;

use rcgen::{CertificateParams, KeyPair};

use super::*;
use crate::Challenge;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const MINUTE: Duration = Duration::from_secs(60);

fn day(day: u32) -> SystemTime {
    SystemTime::UNIX_EPOCH + (20_000 + day) * DAY
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// A certificate for these names that is issued on day 0 for 90 days.
fn issued(names: &[&str]) -> String {
    let key = KeyPair::generate().unwrap();
    let mut parameters = CertificateParams::new(owned(names)).unwrap();
    parameters.not_before = day(0).into();
    parameters.not_after = day(90).into();
    key.serialize_pem() + &parameters.self_signed(&key).unwrap().pem()
}

fn place(names: &[&str], pem: Option<&str>) -> Arc<ManagedCertificate> {
    let place = Arc::new(ManagedCertificate::new(owned(names)));
    if let Some(pem) = pem {
        place.set(pem.as_bytes()).unwrap();
    }
    place
}

fn state(certificates: Vec<Arc<ManagedCertificate>>) -> State {
    let (proofs, pending) = (Arc::default(), HashMap::new());
    State { certificates, proofs, pending, is_stopping: false }
}

#[test]
fn certificate_is_renewed_after_two_thirds_of_its_validity_or_for_a_new_name() {
    let names = owned(&["b.example", "a.example"]);
    let facts = |names: &[&str]| place(names, Some(&issued(names))).facts().unwrap();
    let both = facts(&["a.example", "b.example"]);
    for (facts, at, expected) in [
        (None, 0, 0),
        (Some(&both), 0, 60),
        (Some(&both), 59, 1),
        (Some(&both), 60, 0),
        (Some(&both), 100, 0),
        (Some(&facts(&["b.example"])), 0, 0),
        (Some(&facts(&["b.example", "c.example"])), 0, 0),
        // Authorities may add one.
        (Some(&facts(&["a.example", "b.example", "c.example"])), 0, 60),
    ] {
        let wait = until_renewal(&names, facts, day(at));
        assert_eq!(wait, expected * DAY, "{facts:?} on day {at}");
    }
}

#[test]
fn failed_orders_are_repeated_after_growing_pauses_that_fit_the_validity() {
    let (now, start) = (day(60), Instant::now());
    let names = owned(&["a.example"]);
    let mut state = state(vec![place(&["a.example"], None)]);
    assert!(matches!(state.step(now, start), Step::Order(found) if found == names));
    for minutes in [1, 4, 16, 60, 60] {
        let after = state.retry_after(&names, now);
        assert_eq!(after, minutes * MINUTE);
        state.pending.insert(names.clone(), Pending::Retry { after, since: start });
        assert!(matches!(state.step(now, start), Step::Wait(wait) if wait == after));
        assert!(matches!(state.step(now, start + after), Step::Order(_)));
    }
    // One that expires in 20 minutes.
    state.certificates = vec![place(&["a.example"], Some(&issued(&["a.example"])))];
    assert_eq!(state.retry_after(&names, day(90) - 20 * MINUTE), 5 * MINUTE);
    assert_eq!(state.retry_after(&names, day(90) - MINUTE), MINUTE);
    assert_eq!(state.retry_after(&names, day(91)), 60 * MINUTE);
    // One of another authority, whose replacement has failed.
    let retry = Pending::Retry { after: MINUTE, since: start };
    state.pending.insert(names.clone(), retry);
    assert!(matches!(state.step(day(0), start), Step::Wait(wait) if wait == MINUTE));
    assert!(matches!(state.step(day(0), start + MINUTE), Step::Order(_)));
    state.is_stopping = true;
    assert!(matches!(state.step(now, start), Step::Stop));
}

#[test]
fn certificate_that_could_not_be_written_is_written_later_and_not_ordered_again() {
    let (now, start) = (day(0), Instant::now());
    let mut state = state(vec![place(&["a.example"], Some(&issued(&["a.example"])))]);
    let keep = Pending::Keep { pem: "pem".to_owned(), since: start };
    state.pending.insert(owned(&["a.example"]), keep);
    assert!(matches!(state.step(now, start), Step::Wait(wait) if wait == MINUTE));
    let step = state.step(now, start + MINUTE);
    assert!(matches!(step, Step::Keep(_, pem) if pem == "pem"));
}

#[test]
fn new_place_gets_a_certificate_with_a_common_name_until_its_own_is_issued() {
    let one = issued(&["a.example"]);
    let old = state(vec![place(&["a.example"], Some(&one)), place(&["b.example"], None)]);
    for (names, is_filled) in [
        (&["a.example"][..], true),
        (&["www.a.example", "a.example"], true),
        (&["b.example"], false),
        (&["c.example"], false),
    ] {
        let new = place(names, None);
        assert_eq!(old.fill(&new), is_filled, "{names:?}");
        assert_eq!(new.facts().is_some(), is_filled, "{names:?}");
        let is_due = !matches!(state(vec![new]).step(day(0), Instant::now()), Step::Wait(_));
        assert_eq!(is_due, names != ["a.example"], "{names:?}");
    }
    // One that was read from its file has the right names.
    let both = issued(&["www.a.example", "a.example"]);
    let new = place(&["www.a.example", "a.example"], Some(&both));
    assert!(!old.fill(&new));
    assert_eq!(new.facts().unwrap().names, ["www.a.example", "a.example"]);
}

#[test]
fn unreachable_authority_is_reported_and_certificates_of_another_one_are_used_meanwhile() {
    let folder = tempfile::tempdir().unwrap();
    let settings = |port: u16| Settings {
        directory: format!("https://127.0.0.1:{port}/"),
        authorities: Arc::default(),
        contact: None,
        external_account: None,
        challenge: Challenge::TlsAlpn01,
        state: folder.path().to_owned(),
    };
    let (sender, events) = mpsc::channel();
    let report = move |event: &Event<'_>| {
        let Event::Failed { names, retry_after, .. } = event else { panic!("{event:?}") };
        sender.send((names.to_vec(), *retry_after)).ok();
    };
    let old = place(&["a.example"], Some(&issued(&["a.example"])));
    let idle = |_: &Event<'_>| {};
    // Ports below 1024 of loopback addresses that nothing listens on.
    let first = Renewal::start(settings(1), vec![Arc::clone(&old)], Arc::default(), None, idle);
    let first = first.unwrap();
    let new = place(&["a.example"], None);
    let second =
        Renewal::start(settings(2), vec![Arc::clone(&new)], Arc::default(), Some(&first), report);
    let _second = second.unwrap();
    assert_eq!(new.facts(), old.facts());
    let patience = Duration::from_secs(120);
    assert_eq!(events.recv_timeout(patience).unwrap(), (owned(&["a.example"]), MINUTE));
}
