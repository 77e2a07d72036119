//! A load that several hosts send together: the plan of one of them in its form on the pipe, and its result.

use serde::{Deserialize, Serialize};
use std::path::Path;
use std::time::Duration;
use thiserror::Error;
use tollgate_load::{Arrivals, Error as LoadError, Plan, Shard, ShardSummary, Target};
use tollgate_tls::{ClientError, ClientOptions, TlsClient, TlsVersion, Trust};

/// One host's part of a load. Rate, requests and connections are those of all hosts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct LoadPlan {
    /// Without TLS.
    plan: Plan,
    tls: Option<TlsPlan>,
    /// Time that this host needs to open its connections.
    pub(crate) lead_time: Duration,
}

/// Options of TLS. Files were stored before, under their names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsPlan {
    /// A file is the name of a stored one, relative to the agent's folder.
    pub trust: Trust,
    /// Name that the certificate must have.
    pub name: String,
    /// Files with certificate and key of the client.
    pub identity: Option<(String, String)>,
    /// Minor version of TLS 1, 2 or 3; `None` for both.
    pub minor_version: Option<u8>,
    pub resume: bool,
    /// Protocols of ALPN.
    pub protocols: Vec<String>,
}

/// Result of one host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ShardResult {
    pub summary: ShardSummary,
    /// Start of the window, by the clock of the host. `None` if it never started.
    pub opened_at_ns: Option<u64>,
}

#[derive(Debug, Error)]
pub enum PlanError {
    #[error("cannot load a unix-domain socket from other hosts; use an address")]
    UnixSocket,
    #[error("cannot replay a recording from several hosts: a session has one; remove --on")]
    Replay,
    #[error("cannot divide the load: {0}")]
    Invalid(#[from] LoadError),
    #[error("cannot use TLS with these options")]
    Tls(#[from] ClientError),
    #[error("cannot use TLS 1.{0}; use 1.2 or 1.3")]
    TlsVersion(u8),
}

impl LoadPlan {
    /// Returns the plan of each of `count` hosts.
    pub fn divide(
        plan: &Plan,
        tls: Option<&TlsPlan>,
        count: usize,
    ) -> Result<Vec<Self>, PlanError> {
        if matches!(plan.target, Target::Unix(_)) {
            return Err(PlanError::UnixSocket);
        }
        if matches!(plan.arrivals, Arrivals::Replay(_)) {
            return Err(PlanError::Replay);
        }
        let shards = (0..count).map(|index| {
            let plan = Plan { shard: Shard { index, count }, ..plan.clone() };
            plan.validate()?;
            Ok(Self { lead_time: plan.lead_time(), tls: tls.cloned(), plan })
        });
        shards.collect()
    }

    /// Returns the plan of this host. `folder` has the stored files.
    pub(crate) fn to_plan(&self, folder: &Path) -> Result<Plan, PlanError> {
        let tls = self.tls.as_ref().map(|tls| tls.client(folder)).transpose()?;
        let plan = Plan { tls, ..self.plan.clone() };
        plan.validate()?;
        Ok(plan)
    }

    /// Connections of this host at most.
    pub(crate) fn connections_here(&self) -> usize {
        self.plan.connections_max().div_ceil(self.plan.shard.count)
    }

    /// Open files that this host needs.
    pub(crate) fn open_files(&self) -> usize {
        self.plan.open_files()
    }
}

impl TlsPlan {
    fn client(&self, folder: &Path) -> Result<TlsClient, PlanError> {
        let file = |name: &str| folder.join(name);
        let trust = match &self.trust {
            Trust::File(name) => Trust::File(folder.join(name)),
            other => other.clone(),
        };
        let identity =
            self.identity.as_ref().map(|(certificate, key)| (file(certificate), file(key)));
        let protocols: Vec<&[u8]> = self.protocols.iter().map(String::as_bytes).collect();
        Ok(TlsClient::new(&ClientOptions {
            trust: &trust,
            name: &self.name,
            identity: identity
                .as_ref()
                .map(|(certificate, key)| (certificate.as_path(), key.as_path())),
            version: match self.minor_version {
                None => None,
                Some(2) => Some(TlsVersion::Tls12),
                Some(3) => Some(TlsVersion::Tls13),
                Some(other) => return Err(PlanError::TlsVersion(other)),
            },
            resume: self.resume,
            protocols: &protocols,
        })?)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::net::SocketAddr;
    use std::sync::Arc;
    use tollgate_http1::{RequestMessage, RequestText};
    use tollgate_load::{Expectation, Phases, Rate, RateStage, Request, Workload};
    use tollgate_tls::SelfSigned;
    use tollgate_traffic::load_shape::{Clients, OpenLoop, Protocol, Spacing};

    fn message(method: &str, body: &[u8]) -> RequestMessage {
        let headers = [("Host", "a"), ("X", "é")];
        RequestText { method, target: "/?a", headers: &headers, body }.render().unwrap()
    }

    pub(crate) fn plan(target: SocketAddr) -> Plan {
        let expect = Expectation { status: Some(200), ..Expectation::default() };
        let request = Request { message: message("GET", b""), expect, template: 0 };
        Plan {
            target: Target::Tcp(target),
            tls: None,
            workload: Arc::new(Workload::new(vec![request], vec![0]).unwrap()),
            arrivals: Arrivals::Closed { connections: 5 },
            clients: Clients {
                protocol: Protocol::Http1 { pipeline: 1 },
                threads: 1,
                busy_poll: false,
                connect_timeout: Duration::from_secs(5),
                response_timeout: Duration::from_secs(5),
            },
            phases: Phases::Endless,
            series: None,
            first_byte: false,
            cpus: vec![],
            shard: Shard::WHOLE,
        }
    }

    pub(crate) fn open_loop(rate: Rate, spacing: Spacing, connections: usize) -> Arrivals {
        let connections_max = connections;
        let schedule = OpenLoop { rate, spacing, connections, connections_max };
        Arrivals::Open { schedule, seed: 9 }
    }

    #[test]
    fn divided_plans_are_the_plan_and_their_shard() {
        let target = "10.0.0.1:80".parse().unwrap();
        let rate = Rate::Stages(vec![RateStage {
            from_per_s: 0.1,
            to_per_s: 1e5 / 3.0,
            length: Duration::new(3, 7),
        }]);
        let expect = Expectation {
            body_contains: Some(b"\xff\0"[..].into()),
            or_status: Some(403),
            ..Expectation::default()
        };
        let request = Request { message: message("PUT", b"\xff\0"), expect, template: 1 };
        let plan = Plan {
            arrivals: open_loop(rate, Spacing::Poisson, 5),
            workload: Arc::new(Workload::new(vec![request], vec![0, 0]).unwrap()),
            phases: Phases::Requests(7),
            ..plan(target)
        };
        let shards = LoadPlan::divide(&plan, None, 3).unwrap();
        for (index, shard) in shards.iter().enumerate() {
            let text = serde_json::to_string(shard).unwrap();
            let back: LoadPlan = serde_json::from_str(&text).unwrap();
            let back = back.to_plan(Path::new("/nowhere")).unwrap();
            let expected = Plan { shard: Shard { index, count: 3 }, ..plan.clone() };
            assert_eq!(format!("{back:?}"), format!("{expected:?}"));
        }
        assert_eq!(shards[0].connections_here(), 2);
        assert!(Arc::ptr_eq(&shards[0].plan.workload, &shards[2].plan.workload));
    }

    #[test]
    fn trusted_file_is_read_from_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        SelfSigned::new(&["a.test"]).unwrap().write(&folder.path().join("site")).unwrap();
        let plan = TlsPlan {
            trust: Trust::File("site.pem".into()),
            name: "a.test".to_owned(),
            identity: None,
            minor_version: None,
            resume: false,
            protocols: vec![],
        };
        let back: TlsPlan = serde_json::from_str(&serde_json::to_string(&plan).unwrap()).unwrap();
        assert_eq!(back, plan);
        back.client(folder.path()).unwrap();
        assert!(matches!(back.client(Path::new("/nowhere")), Err(PlanError::Tls(_))));
    }

    #[test]
    fn lead_of_a_host_is_that_of_its_own_connections() {
        let rate = Rate::Constant(10.0);
        let plan = Plan {
            arrivals: open_loop(rate, Spacing::Constant, 10_000),
            ..plan("10.0.0.1:80".parse().unwrap())
        };
        // 10 ms, and 50 us for each of 5,000 connections.
        for shard in LoadPlan::divide(&plan, None, 2).unwrap() {
            assert_eq!(shard.lead_time, Duration::from_millis(260));
        }
    }

    #[test]
    fn loads_that_cannot_be_divided_say_why() {
        let target = "10.0.0.1:80".parse().unwrap();
        let error =
            |plan: &Plan, count| LoadPlan::divide(plan, None, count).unwrap_err().to_string();
        let message = error(&plan(target), 6);
        assert_eq!(
            message,
            "cannot divide the load: cannot use 5 connections for 6 threads: choose 6 to 120000"
        );
        let socket = Plan { target: Target::Unix("/run/a.sock".into()), ..plan(target) };
        assert!(error(&socket, 2).contains("unix-domain socket"));
    }
}
