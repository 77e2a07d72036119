//! Roles of hosts: by the features of nodes, and otherwise in their order.

use crate::hosts::Host;
use crate::slurm::{self, ListedNode, NodeChoice};
use std::collections::BTreeSet;
use tollgate_runner::process::Interrupt;

/// Features of nodes that name a role.
const FEATURES: [&str; 3] = ["sut", "origin", "gen"];

/// Agents before those of the generators: system and origin.
pub(super) const SYSTEM: usize = 0;
pub(super) const ORIGIN: usize = 1;
pub(super) const SERVERS: usize = 2;

/// Chooses nodes by the features that name roles, if there are such nodes and the user chooses none, and avoids lost
/// nodes if there are enough others.
pub(super) fn choose(
    generators: usize,
    lost: &BTreeSet<String>,
    interrupt: &Interrupt,
) -> anyhow::Result<NodeChoice> {
    let nodes = slurm::list_nodes(interrupt)?;
    let counts = [1, 1, generators];
    let is_free = std::env::var_os("SALLOC_CONSTRAINT").is_none();
    let has_all = FEATURES.iter().all(|feature| nodes.iter().any(|node| node.has(feature)));
    if !is_free || !has_all {
        let without = avoidable(&nodes, lost, None, counts.iter().sum());
        return Ok(NodeChoice { without, ..NodeChoice::default() });
    }
    let roles = FEATURES.iter().zip(counts);
    let parts: Vec<String> =
        roles.clone().map(|(feature, count)| format!("{feature}*{count}")).collect();
    let constraint = Some(format!("[{}]", parts.join("&")));
    let avoidable =
        |(feature, count): (&&str, usize)| avoidable(&nodes, lost, Some(feature), count);
    let without = roles.flat_map(avoidable).collect();
    Ok(NodeChoice { constraint, without, is_immediate: false })
}

/// Lost nodes with a feature, if enough others have it.
fn avoidable(
    nodes: &[ListedNode],
    lost: &BTreeSet<String>,
    feature: Option<&str>,
    count: usize,
) -> Vec<String> {
    let of_role = nodes.iter().filter(|node| feature.is_none_or(|feature| node.has(feature)));
    let (lost, others): (Vec<&ListedNode>, Vec<_>) =
        of_role.partition(|node| lost.contains(&node.name));
    // A node that is up may still be busy with the end of the last trial.
    let is_enough = others.iter().filter(|node| node.is_up()).count() >= count;
    if is_enough { lost.iter().map(|node| node.name.clone()).collect() } else { Vec::new() }
}

/// Orders hosts as system, origin and generators: by their features, and otherwise as they are.
pub(super) fn assign(hosts: Vec<Host>) -> Vec<Host> {
    let mut left = hosts;
    let mut take = |feature: &str| {
        let has = |host: &Host| host.features.iter().any(|one| one == feature);
        let is_other =
            |host: &Host| !host.features.iter().any(|one| FEATURES.contains(&one.as_str()));
        let position = left.iter().position(has).or_else(|| left.iter().position(is_other));
        left.remove(position.unwrap_or(0))
    };
    let mut ordered = vec![take(FEATURES[0]), take(FEATURES[1])];
    ordered.append(&mut left);
    ordered
}

pub(super) fn role_name(index: usize) -> String {
    match index {
        SYSTEM => "system".to_owned(),
        ORIGIN => "origin".to_owned(),
        index => format!("generator-{}", index - ORIGIN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::carrier::AgentPlace;

    fn hosts(all: &[(&str, &str)]) -> Vec<Host> {
        let host = |(name, feature): &(&str, &str)| Host {
            place: AgentPlace::Ssh { host: (*name).to_owned() },
            address: None,
            features: feature.split(',').filter(|one| !one.is_empty()).map(str::to_owned).collect(),
        };
        all.iter().map(host).collect()
    }

    fn names(hosts: Vec<Host>) -> Vec<String> {
        assign(hosts).iter().map(|host| host.place.name()).collect()
    }

    #[test]
    fn roles_go_to_their_features_and_otherwise_in_order() {
        let all = [("a", "gen"), ("b", "gen,fast"), ("c", "origin"), ("d", "sut")];
        assert_eq!(names(hosts(&all)), ["d", "c", "a", "b"]);
        assert_eq!(names(hosts(&[("a", ""), ("b", ""), ("c", "")])), ["a", "b", "c"]);
        // Nodes without a role before those of another one.
        assert_eq!(names(hosts(&[("a", "gen"), ("b", ""), ("c", "sut")])), ["c", "b", "a"]);
    }

    #[test]
    fn lost_nodes_are_avoided_if_their_role_has_others() {
        let node = |name: &str, state: &str| ListedNode {
            name: name.to_owned(),
            state: state.to_owned(),
            features: format!("{},fast", name.trim_end_matches(char::is_numeric)),
        };
        let nodes = [
            node("sut1", "idle"),
            node("gen1", "idle"),
            node("gen2", "completing"),
            node("gen3", "idle"),
            node("gen4", "down*"),
        ];
        let lost = ["sut1", "gen1"].map(str::to_owned).into();
        let avoided = |feature, count| avoidable(&nodes, &lost, feature, count);
        assert_eq!(avoided(Some("gen"), 2), ["gen1"]);
        assert_eq!(avoided(Some("gen"), 3), [""; 0]);
        // Only one node can be the system.
        assert_eq!(avoided(Some("sut"), 1), [""; 0]);
        assert_eq!(avoided(None, 2), ["sut1", "gen1"]);
    }
}
