//! Many machines: agents on hosts, the pipes to them, and what a coordinator does with them.
//!
//! A coordinator takes hosts from a [`Carrier`](carrier::Carrier), starts an agent on each and sends it commands over its
//! standard input. An agent starts only what these commands say, and stops it when the pipe ends.

pub mod agent;
pub mod agent_program;
mod agent_role;
pub mod carrier;
pub mod clock;
pub mod connection;
pub mod describe;
pub mod doctor;
pub mod frame;
pub mod hosts;
pub mod load;
pub mod program;
pub mod protocol;
pub mod remote;
pub mod shard;
pub mod slurm;
pub mod staging;
