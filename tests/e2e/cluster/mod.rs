//! The lab on many machines, `--on slurm`: the hosts are network namespaces of this machine (`tests/cluster/cluster`).

mod batch; // `batch run`.
mod faults; // Agents, hosts, links and daemons that fail.
mod hosts; // The cluster.
mod run; // `run`, and what fails in it.

use crate::support::{Started, Workspace, show, stderr, stdout, wait_until};
use assert_cmd::cargo::cargo_bin;
use hosts::{Cluster, PATIENCE, wait_for};
use nix::sys::signal::{Signal, kill};
use serde_json::Value;
use std::env;
use std::process::{Command, Output, Stdio};

#[test]
fn jobs_run_on_hosts_of_their_own_and_leave_nothing() {
    let workspace = Workspace::concurrent();
    let cluster = Cluster::start_without_program(&workspace, &["sut1", "gen1", "gen2"]);
    let names = cluster.slurm("srun", &["--constraint=gen", "--nodes=2", "hostname"]);
    let mut names: Vec<&str> = names.lines().collect();
    names.sort_unstable();
    assert_eq!(names, ["gen1", "gen2"]);
    let checkout = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    for host in cluster.nodes() {
        let on_host = format!("--nodelist={}", host.name);
        // A file of the checkout, and a process that leaves the group and the session of the job.
        let script = format!("cat {checkout}/Cargo.toml; setsid sleep 1000 & touch /tmp/file");
        let output = cluster.slurm("srun", &[&on_host, "sh", "-c", &script]);
        assert_eq!(output, "");
        cluster.slurm("srun", &[&on_host, "rm", "/tmp/file"]);
    }
    cluster.assert_nothing_left();
    drop(cluster);
    workspace.assert_nothing_runs();
}

#[test]
fn hosts_end_with_a_killed_cluster() {
    let workspace = Workspace::concurrent();
    let mut cluster = Cluster::start_without_program(&workspace, &["sut1", "gen1"]);
    assert!(!workspace.running().is_empty());
    cluster.kill();
    workspace.assert_nothing_runs();
}

/// Checks that `doctor` has found these hosts, and the offsets of their clocks.
fn check_doctor(cluster: &Cluster<'_>, output: &Output, names: &[&str]) {
    assert_eq!(output.status.code(), Some(0), "{}", show(output));
    let report: Value = serde_json::from_str(&stdout(output)).expect("JSON");
    let hosts = report["hosts"].as_array().expect("hosts");
    let found: Vec<&str> =
        hosts.iter().map(|host| host["name"].as_str().expect("a name")).collect();
    assert_eq!(found, names, "{report:#}");
    for (host, name) in hosts.iter().zip(names) {
        let clock = &host["clock"];
        let offset_ns = clock["offset_ns"].as_i64().expect("an offset");
        let round_trip_ns = clock["round_trip_ns_min"].as_u64().expect("a time");
        let error_ns = offset_ns.abs_diff(cluster.host(name).clock_offset_ns);
        assert!(error_ns <= round_trip_ns.div_ceil(2), "off by {error_ns} ns: {host:#}");
    }
    cluster.assert_nothing_left();
}

#[test]
fn clock_offsets_are_within_half_a_round_trip() {
    let workspace = Workspace::concurrent();
    let names = ["sut1", "origin1", "gen1", "gen2"];
    let cluster = Cluster::start(&workspace, &names);
    let output = cluster.run(&["doctor", "--on", "slurm:4", "--format", "json"]);
    let mut sorted = names;
    sorted.sort_unstable();
    check_doctor(&cluster, &output, &sorted);
}

/// An origin on a host, which is not part of any job.
fn start_origin(cluster: &Cluster<'_>, host: &str) -> (Started, String) {
    let host = cluster.host(host);
    let mut command = host.in_network(cargo_bin!("tollgate"));
    let address = format!("{}:8080", host.address);
    command.args(["origin", "--listen", &address]).stdout(Stdio::null());
    let origin = Started::new(command.spawn().expect("nsenter"));
    let listens = || host.listeners().iter().any(|address| address.port() == 8080);
    assert!(wait_until(PATIENCE, listens), "no origin");
    (origin, format!("http://{}:8080/", host.name))
}

/// `tollgate load` from the nodes with the feature `gen`.
fn load(cluster: &Cluster<'_>, arguments: &[&str]) -> Command {
    let mut command = cluster.command(&[&["load", "--format", "json"], arguments].concat());
    command.env("SALLOC_CONSTRAINT", "gen");
    command
}

/// Checks that these generators have sent this many requests together, to 0.1 %, and that their results add up.
fn check_load(output: &Output, generators: &[&str], requests: u64) {
    let result = checked_result(output, generators);
    let due = due(&result);
    assert!(due.abs_diff(requests) <= requests / 1_000, "{due} of {requests}: {result}");
}

/// Returns the number of requests that were sent or should have been.
fn due(result: &Value) -> u64 {
    result["sent"].as_u64().expect("a count") + result["unsent"].as_u64().unwrap_or(0)
}

/// Returns the result of these generators, and checks that their results add up.
fn checked_result(output: &Output, generators: &[&str]) -> Value {
    // 3: unsent requests, on a busy machine.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{}", show(output));
    let result: Value = serde_json::from_str(&stdout(output)).expect("JSON");
    let count = |result: &Value, name: &str| result[name].as_u64().expect("a count");
    let found = result["generators"].as_array().expect("generators");
    let names: Vec<&str> = found.iter().map(|one| one["name"].as_str().expect("a name")).collect();
    assert_eq!(names, generators);
    let responses = found.iter().map(|one| count(one, "responses"));
    assert_eq!(responses.sum::<u64>(), count(&result, "responses"), "{result}");
    assert_eq!(result["statuses"]["200"], result["responses"], "{result}");
    result
}

#[test]
fn load_is_divided_exactly() {
    let workspace = Workspace::concurrent();
    let cluster = Cluster::start_without_program(&workspace, &["sut1", "gen1", "gen2", "gen3"]);
    let (origin, url) = start_origin(&cluster, "sut1");
    let on = ["--on", "slurm:3", "--allow-host", "sut1"];
    let generators = ["gen1", "gen2", "gen3"];
    let run = |arguments: &[&str]| {
        let arguments = [&[url.as_str()], &on[..], arguments].concat();
        load(&cluster, &arguments).output().expect("nsenter")
    };
    check_load(&run(&["-c", "5", "-n", "3001"]), &generators, 3_001);
    let open = ["-c", "30", "--rate", "1500", "--poisson", "-n", "3001"];
    check_load(&run(&open), &generators, 3_001);

    let result = checked_result(&run(&["-c", "3", "--rate", "1500", "-d", "2s"]), &generators);
    // A busy machine can move both ends of a generator's window; requests are due from the start of its schedule to the
    // end of the window.
    let windows = result["generators"].as_array().expect("generators").iter();
    let windows_s: f64 = windows.map(|one| one["window_s"].as_f64().expect("seconds")).sum();
    let expected = windows_s * 1500.0 / generators.len() as f64;
    assert!(due(&result) >= 2_997, "{result}");
    assert!(due(&result) as f64 <= 1.01 * expected, "not {expected}: {result}");
    assert!(windows_s > 5.9, "{result}");
    drop(origin);
    cluster.assert_nothing_left();
}

#[test]
fn ssh_carries_agents() {
    let workspace = Workspace::concurrent();
    let mut cluster = Cluster::start_without_program(&workspace, &["sut1", "gen1", "gen2"]);
    cluster.start_sshd();
    let (origin, url) = start_origin(&cluster, "sut1");
    let arguments = [&url, "--on", "ssh:gen1,gen2", "--allow-host", "sut1", "-c", "2", "-n", "999"];
    check_load(&load(&cluster, &arguments).output().expect("nsenter"), &["gen1", "gen2"], 999);
    // A host without sshd.
    let missing = [&url, "--on", "ssh:gen1,ctl", "--allow-host", "sut1", "-n", "1"];
    let output = load(&cluster, &missing).output().expect("nsenter");
    assert_eq!(output.status.code(), Some(1), "{}", show(&output));
    let message = stderr(&output);
    assert!(message.contains("cannot start an agent on ctl: "), "{message}");
    assert!(message.contains("Connection refused"), "{message}");
    drop(origin);
    cluster.assert_nothing_left();
}

#[test]
fn kubectl_carries_agents() {
    let workspace = Workspace::concurrent();
    let cluster = Cluster::start_without_program(&workspace, &["sut1", "gen1", "gen2"]);
    cluster.install_kubectl();
    let (origin, _) = start_origin(&cluster, "sut1");
    let path = format!("{}:{}", workspace.path("bin").display(), env::var("PATH").expect("a PATH"));
    let address = &cluster.host("sut1").address;
    let url = format!("http://{address}:8080/");
    let load = |pods: &str| {
        let arguments = ["load", "--format", "json", &url, "--on", pods, "--allow-host", address];
        let mut command = workspace.command(&[&arguments[..], &["-c", "2", "-n", "999"]].concat());
        command.env("PATH", &path).output().expect("the binary runs")
    };
    check_load(&load("kubectl:lab/gen1,lab/gen2"), &["lab/gen1", "lab/gen2"], 999);
    let output = load("kubectl:lab/gen3");
    assert_eq!(output.status.code(), Some(1), "{}", show(&output));
    assert!(stderr(&output).contains("pods \"gen3\" not found"), "{}", show(&output));
    drop(origin);
    cluster.assert_nothing_left();
}

#[test]
fn load_needs_permission_for_its_target() {
    let workspace = Workspace::concurrent();
    let cluster = Cluster::start_without_program(&workspace, &["sut1", "gen1"]);
    let output = load(&cluster, &["http://sut1:8080/", "-n", "1", "--on", "slurm:1"]).output();
    let output = output.expect("nsenter");
    assert_eq!(output.status.code(), Some(2), "{}", show(&output));
    assert!(stderr(&output).contains("--allow-host sut1"), "{}", show(&output));
    cluster.assert_nothing_left();
}

/// All nodes are busy: `doctor` says so at once, and commands that wait in the queue leave it after TERM.
#[test]
fn request_in_the_queue_ends_with_its_command() {
    let workspace = Workspace::concurrent();
    run::write_experiment(&workspace, 1);
    let cluster = Cluster::start_without_program(&workspace, &["sut1", "origin1", "gen1"]);
    let job = ["--parsable", "--exclusive", "--nodes=3", "--chdir=/", "--output=/dev/null"];
    let job = cluster.slurm("sbatch", &[&job[..], &["--wrap=sleep 1000"]].concat());
    let jobs = || cluster.slurm("squeue", &["--noheader", "--format=%j %T"]);
    assert!(wait_for(|| jobs().contains("RUNNING")), "{}", jobs());

    for (on, message) in [
        ("slurm", "no node of Slurm is idle"),
        // As if they had been idle a moment before.
        ("slurm:2", "cannot take 2 nodes of Slurm"),
    ] {
        let output = cluster.run(&["doctor", "--on", on]);
        assert_eq!(output.status.code(), Some(1), "{}", show(&output));
        assert!(stderr(&output).contains(message), "{}", show(&output));
    }
    for command in [
        &["load", "http://sut1:8080/", "--on", "slurm:1", "--allow-host", "sut1"][..],
        &["run", "two.toml", "--on", "slurm", "--out", "out"],
    ] {
        let child = cluster.spawn(command);
        assert!(wait_for(|| jobs().contains("tollgate PENDING")), "{}", jobs());
        kill(cluster.coordinator(&child), Signal::SIGTERM).expect("it waits");
        let output = child.wait_with_output().expect("an end");
        assert_eq!(output.status.code(), Some(130), "{}", show(&output));
        assert!(wait_for(|| !jobs().contains("tollgate")), "{}", jobs());
    }
    cluster.slurm("scancel", &[job.trim()]);
    cluster.assert_nothing_left();
}
