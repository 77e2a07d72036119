//! Messages between the coordinator and an agent.
//!
//! The agent speaks first: [`Hello`]. Then the coordinator sends [`Request`]s, each with an id of its own, and the agent
//! answers each with one [`FromAgent::Reply`]. Commands run one after the other, but `Ping` is answered at once. Both
//! sides send a sign of life while they have nothing else to send.

use crate::agent_program::{ProgramCommand, ProgramReply};
use crate::describe::HostFacts;
use crate::shard::{LoadPlan, ShardResult};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tollgate_load::{Progress, Request as LoadRequest};
use tollgate_records::subject::{Options, SubjectState};
use tollgate_records::trial::TrialFailure;
use tollgate_runner::role::StartedSystem;
use tollgate_runner::role::window::WindowReadings;
use tollgate_runner::system::state::FixedPlace;
use tollgate_traffic::RecordedResponses;
use tollgate_traffic::load_shape::{CaseProtocol, Concurrency};

/// Version of the messages. Both sides must have the same one.
pub const PROTOCOL: u32 = 2;

/// Interval of the signs of life of an agent.
pub const HEARTBEAT: Duration = Duration::from_millis(200);

/// Time without a byte from an agent after which it is lost.
pub const HEARTBEAT_LIMIT: Duration = Duration::from_secs(1);

/// Interval of the signs of life of the coordinator.
pub const COORDINATOR_HEARTBEAT: Duration = Duration::from_secs(1);

/// Time without a byte from the coordinator after which an agent stops what it started, and ends.
pub const COORDINATOR_LIMIT: Duration = Duration::from_secs(10);

/// First message of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    pub protocol: u32,
    /// Version of the program.
    pub tollgate: String,
    pub hostname: String,
    pub pid: u32,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromCoordinator {
    Alive,
    Request(Request),
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Request {
    pub id: u64,
    pub command: Command,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FromAgent {
    Hello(Hello),
    Alive,
    Reply { id: u64, reply: Reply },
}

/// Times are readings of the monotonic clock of the agent's host, in nanoseconds.
#[derive(Debug, Clone, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Command {
    /// Reads the clock.
    Ping,
    /// Describes the host.
    Describe,
    /// Checks a load and keeps it. Nothing is sent yet.
    PrepareLoad(Box<LoadPlan>),
    /// Starts the load at a time.
    StartLoad {
        at_ns: u64,
    },
    /// Counts of the running load.
    Progress,
    /// Opens the window of the load at a time.
    OpenWindow {
        at_ns: u64,
    },
    /// Ends the load at a time.
    CloseWindow {
        at_ns: u64,
    },
    /// Returns the result of a load, ending it if it still runs.
    FinishLoad,
    /// Files and a run of the program.
    Program(ProgramCommand),
    /// Finds the system of a subject, and renders its configuration with fixed ports.
    State {
        subject: SubjectPlan,
        fixed: FixedPlace,
    },
    StartOrigins(Box<OriginsPlan>),
    StartSystem(Box<SystemPlan>),
    /// Asks for the first server that has ended.
    ServersExit,
    /// Asks for the last lines of the servers' logs.
    ServersLog,
    /// Asks for the CPU time of the servers.
    ServersCpu,
    /// Opens the readings of a window at a time.
    OpenReadings {
        at_ns: u64,
    },
    /// Closes them at a time.
    CloseReadings {
        at_ns: u64,
    },
    StopServers,
    /// Stops everything, removes the folder of the agent and ends it.
    Stop,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    Pong {
        clock_ns: u64,
    },
    Host(Box<HostFacts>),
    Done,
    /// Time at which the command took effect.
    DoneAt {
        at_ns: u64,
    },
    Progress(LoadProgress),
    Load(Box<ShardResult>),
    Program(ProgramReply),
    State(Box<SubjectState>),
    Origins {
        addresses: Vec<SocketAddr>,
    },
    System(Box<StartedSystem>),
    /// The servers did not start.
    Failed(TrialFailure),
    /// Reason and end of the log, if a server has ended.
    Exit(Option<(String, Vec<String>)>),
    Log(Vec<String>),
    /// `None` without processes.
    Cpu {
        us: Option<u64>,
    },
    Readings(Box<WindowReadings>),
    Error {
        message: String,
    },
}

/// A subject without its recipe, which is in the catalog.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SubjectPlan {
    pub name: String,
    pub system: String,
    pub options: Options,
    pub prefix: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OriginsPlan {
    /// Address to listen on.
    pub ip: IpAddr,
    pub count: u16,
    pub busy_poll: bool,
    /// Responses in place of the benchmark site.
    pub responses: Option<RecordedResponses>,
    /// Request of the readiness check.
    pub ready: LoadRequest,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SystemPlan {
    pub subject: SubjectPlan,
    /// Address to listen on.
    pub ip: IpAddr,
    pub origins: Vec<SocketAddr>,
    pub concurrency: Concurrency,
    pub protocol: CaseProtocol,
    pub ready: LoadRequest,
}

/// Counts of a running load.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadProgress {
    pub counts: Progress,
    /// True if all requests of the plan have finished.
    pub is_done: bool,
    /// Start of the window, by the clock of the host. `None` while the first requests wait for connections.
    pub opened_at_ns: Option<u64>,
}
