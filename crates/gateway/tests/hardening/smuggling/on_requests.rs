//! The table of requests, through the gateway and its peers.

use std::collections::BTreeSet;

use tollgate_gateway::config::Address;

use super::case::Request;
use super::origin::Origin;
use super::outcome::Outcome;
use super::requests;
use crate::front::Peer;
use crate::served::Served;

#[test]
fn every_request_is_refused_or_passed_on_in_one_form() {
    let origin = Origin::start();
    let gateway = Served::before(origin.address);
    let faults: Vec<_> = requests::all()
        .filter_map(|request| Outcome::of(request, gateway.address(), &origin).faults(request))
        .collect();
    assert!(faults.is_empty(), "{} requests went wrong:\n{}", faults.len(), faults.join("\n"));
}

/// What nginx and HAProxy make of the same, beside what we expect: to be read, with `--nocapture`, and no
/// judgement of theirs. Only that both took part is checked.
#[test]
fn peers_make_of_the_same_requests_what_is_printed() {
    let origin = Origin::start();
    let peers = [Peer::nginx(origin.address), Peer::haproxy(origin.address)];
    let briefs = peers.each_ref().map(|peer| briefs(&peer.address, &origin));
    println!("{:48} {:34} {:34} gateway", "request", peers[0].name, peers[1].name);
    for (at, request) in requests::all().enumerate() {
        let ours = request.fate.brief();
        println!("{:48} {:34} {:34} {ours}", request.name, briefs[0][at], briefs[1][at]);
    }
    for (peer, briefs) in peers.iter().zip(&briefs) {
        let different: BTreeSet<_> = briefs.iter().collect();
        assert!(different.len() > 5, "{} makes the same of everything: {different:?}", peer.name);
    }
}

fn briefs(proxy: &Address, origin: &Origin) -> Vec<String> {
    let brief = |request: &Request| Outcome::of(request, proxy, origin).brief(request);
    requests::all().map(brief).collect()
}

#[test]
fn the_table_is_as_long_as_it_says_and_names_no_row_twice() {
    let names: Vec<_> = requests::all().map(|request| request.name).collect();
    let different: BTreeSet<_> = names.iter().collect();
    assert!(names.len() >= 120, "{} rows", names.len());
    assert_eq!(different.len(), names.len());
}
