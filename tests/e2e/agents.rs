//! Agents of several hosts, on this machine: `--on local`, and stand-ins for ssh and kubectl that check their arguments
//! and run the script of the agent here.

#![expect(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

use crate::origin::OriginProcess;
use crate::support::{
    Experiment, Started, Workspace, generates_load, show, stage_program, stderr, stdout, wait_until,
};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use procfs::process::{Process, all_processes};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A workspace with a staging folder, which has the program unless stated, and a folder with stand-ins, which come first
/// in the PATH.
struct Place(Workspace);

impl Place {
    fn new() -> Self {
        Self::in_workspace(Workspace::concurrent())
    }

    fn in_workspace(workspace: Workspace) -> Self {
        let place = Self::without_program(workspace);
        stage_program(&place.staging_folder());
        place
    }

    fn without_program(workspace: Workspace) -> Self {
        for name in ["stage", "bin"] {
            fs::create_dir(workspace.path(name)).unwrap();
        }
        Self(workspace)
    }

    /// Returns the staging folder of this user.
    fn staging_folder(&self) -> PathBuf {
        self.0.path(&format!("stage/tollgate-{}", nix::unistd::getuid()))
    }

    fn stand_in(&self, name: &str, script: &str) {
        let path = self.0.path("bin").join(name);
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.0.command(arguments);
        let path = std::env::var("PATH").unwrap();
        command
            .env("TOLLGATE_STAGE", self.0.path("stage"))
            .env("PATH", format!("{}:{path}", self.0.path("bin").display()));
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn start(&self, arguments: &[&str]) -> Started {
        let mut command = self.command(arguments);
        Started::new(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Files in the staging folder.
    fn staged(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.staging_folder()).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    /// Agents and their servers, which run programs of the staging folder.
    fn agents(&self) -> Vec<Pid> {
        let folder = self.0.path("");
        let processes = all_processes().unwrap().flatten();
        let runs_here = |process: &Process| {
            process.cmdline().is_ok_and(|words| {
                words.first().is_some_and(|program| Path::new(program).starts_with(&folder))
            })
        };
        processes.filter(runs_here).map(|process| Pid::from_raw(process.pid)).collect()
    }

    /// Checks that no process runs and that only the program is left.
    fn assert_nothing_left(&self) {
        assert!(wait_until(PATIENCE, || self.agents().is_empty()), "{:?}", self.agents());
        let is_program = |path: &PathBuf| path.file_name().unwrap().len() == 64;
        let others = || self.staged().into_iter().filter(|path| !is_program(path)).count();
        assert!(wait_until(PATIENCE, || others() == 0), "{:?}", self.staged());
    }
}

/// A server that answers every request and counts its responses.
struct Server {
    address: SocketAddr,
    responses: Arc<AtomicUsize>,
}

fn serve() -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, responses) = (listener.local_addr().unwrap(), Arc::<AtomicUsize>::default());
    let server = Server { address, responses: Arc::clone(&responses) };
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, responses) = (stream.unwrap(), Arc::clone(&responses));
            thread::spawn(move || answer(stream, &responses));
        }
    });
    server
}

fn answer(mut stream: TcpStream, responses: &AtomicUsize) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut line = String::new();
    while reader.read_line(&mut line).is_ok_and(|bytes| bytes > 0) {
        let is_end = line == "\r\n";
        line.clear();
        let response = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        if is_end {
            if stream.write_all(response.as_bytes()).is_err() {
                return;
            }
            responses.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn json(output: &Output) -> Value {
    assert_eq!(output.status.code(), Some(0), "{}", show(output));
    serde_json::from_str(&stdout(output)).unwrap()
}

fn names(result: &Value) -> Vec<&str> {
    let generators = result["generators"].as_array().unwrap();
    generators.iter().map(|one| one["name"].as_str().unwrap()).collect()
}

#[test]
fn load_is_divided_and_merged_to_the_count() {
    let (place, server) = (Place::new(), serve());
    let url = format!("http://{}/", server.address);
    let output =
        place.run(&["load", &url, "--on", "local:3", "-c", "7", "-n", "1000", "--format", "json"]);
    let plan = stderr(&output);
    assert!(
        plan.starts_with("plan: 3 generators on local:3 (local-1, local-2, local-3)"),
        "{plan}"
    );
    let result = json(&output);
    assert_eq!(names(&result), ["local-1", "local-2", "local-3"]);
    let parts = result["generators"].as_array().unwrap().iter();
    let parts: Vec<u64> = parts.map(|one| one["responses"].as_u64().unwrap()).collect();
    assert_eq!(parts, [334, 333, 333]);
    for count in [&result["sent"], &result["responses"], &result["latency"]["count"]] {
        assert_eq!(count, 1000);
    }
    assert_eq!((&result["load"]["connections"], &result["connects"]), (&7.into(), &7.into()));
    place.assert_nothing_left();
}

/// A server whose connections take a time to be established: it passes bytes to another one, late.
fn serve_late(server: SocketAddr, delay: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            thread::spawn(move || {
                thread::sleep(delay);
                let mut server = TcpStream::connect(server).unwrap();
                let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                thread::spawn(move || std::io::copy(&mut from, &mut to));
                std::io::copy(&mut server, &mut client).ok();
            });
        }
    });
    address
}

#[test]
fn duration_starts_with_the_first_request() {
    let place = Place::new();
    let origin = OriginProcess::start(&place.0, &["127.0.0.1:0", "--tls"]);
    let address = origin.listens_on.strip_prefix("https://").unwrap().parse().unwrap();
    // The handshakes of a closed loop without a warm-up end after 700 ms.
    let late = serve_late(address, Duration::from_millis(700));
    let url = format!("https://{late}/");
    let arguments = ["--insecure", "-c", "4", "-d", "1s", "--format", "json"];
    let output = place.run(&[&["load", &url, "--on", "local:2"], &arguments[..]].concat());
    let window_s = json(&output)["window_s"].as_f64().unwrap();
    assert!(window_s >= 0.9, "{window_s}: {}", show(&output));
    place.assert_nothing_left();
}

#[test]
fn rate_of_all_hosts_is_the_asked_one() {
    let (place, server) = (Place::in_workspace(Workspace::exclusive()), serve());
    let url = format!("http://{}/", server.address);
    let arguments = ["--rate", "1000", "-d", "2s", "--warmup", "500ms", "--format", "json"];
    for spacing in [&[][..], &["--poisson"]] {
        let output = place.run(
            &[&["load", &url, "--on", "local:2", "-c", "4"], &arguments[..], spacing].concat(),
        );
        let result = json(&output);
        let due = result["lateness"]["count"].as_u64().unwrap() as f64;
        let window_s = result["window_s"].as_f64().unwrap();
        // On a busy machine the windows of two hosts differ by some milliseconds; a Poisson process of 2,000 requests has a standard deviation of 45.
        let tolerance = if spacing.is_empty() { 0.01 } else { 0.1 };
        let rate = due / window_s;
        assert!(
            (rate / 1000.0 - 1.0).abs() <= tolerance + 2.0 / due,
            "{rate}: {due} in {window_s}"
        );
        assert!(window_s > 1.9, "{window_s}");
        assert!(result["warm_up"]["responses"].as_u64().unwrap() > 0);
        assert!(result["window_skew_ms"].as_f64().unwrap() > 0.0, "{result}");
    }
    place.assert_nothing_left();
}

#[test]
fn program_is_staged_once_and_a_damaged_one_is_replaced() {
    let place = Place::without_program(Workspace::concurrent());
    let examine = || json(&place.run(&["doctor", "--on", "local:2", "--format", "json"]));
    let hosts = examine();
    assert_eq!(hosts["hosts"].as_array().unwrap().len(), 2);
    // One machine has one clock.
    for host in hosts["hosts"].as_array().unwrap() {
        let clock = &host["clock"];
        let offset_ns = clock["offset_ns"].as_i64().unwrap().unsigned_abs();
        assert!(offset_ns <= clock["round_trip_ns_min"].as_u64().unwrap().div_ceil(2), "{clock}");
    }
    let [program] = &place.staged()[..] else { panic!("{:?}", place.staged()) };
    let modified = || program.metadata().unwrap().modified().unwrap();
    let first = modified();
    examine();
    assert_eq!(modified(), first);
    fs::remove_file(program).unwrap();
    fs::write(program, "#!/bin/sh\necho damaged\n").unwrap();
    fs::set_permissions(program, fs::Permissions::from_mode(0o700)).unwrap();
    examine();
    assert!(program.metadata().unwrap().len() > 1_000_000);
    place.assert_nothing_left();
}

/// Starts a load of ten minutes, and waits until its agents have sent for a second.
fn long_load(place: &Place, server: &Server) -> Started {
    let url = format!("http://{}/", server.address);
    let arguments = ["load", &url, "--on", "local:2", "-c", "2", "-d", "10m", "--rate", "10"];
    let child = place.start(&arguments);
    let senders = || place.agents().into_iter().filter(|pid| generates_load(*pid)).count();
    assert!(wait_until(PATIENCE, || senders() == 2));
    // By then the coordinator knows that the load has started.
    let responses = || server.responses.load(Ordering::Relaxed);
    let first = responses();
    assert!(wait_until(PATIENCE, || responses() >= first + 10));
    child
}

/// A process that executes the commands of an agent: the child of a supervisor. Servers are its children, and run the
/// same program.
fn worker(place: &Place) -> Pid {
    let agents = place.agents();
    let agent_above = |pid: Pid| {
        let stat = Process::new(pid.as_raw()).and_then(|one| one.stat()).ok()?;
        Some(Pid::from_raw(stat.ppid)).filter(|parent| agents.contains(parent))
    };
    let is_worker =
        |pid: &Pid| agent_above(*pid).is_some_and(|parent| agent_above(parent).is_none());
    agents.iter().copied().find(is_worker).unwrap()
}

#[test]
fn load_ends_with_a_lost_agent() {
    let (place, server) = (Place::new(), serve());
    for (signal, reason) in
        [(Signal::SIGKILL, ": the agent ended"), (Signal::SIGSTOP, ": no heartbeat for ")]
    {
        let child = long_load(&place, &server);
        kill(worker(&place), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let message = stderr(&output);
        assert!(message.contains("lost local-") && message.contains(reason), "{message}");
        place.assert_nothing_left();
    }
}

#[test]
fn agents_end_with_their_coordinator() {
    let (place, server) = (Place::new(), serve());
    for signal in [Signal::SIGKILL, Signal::SIGTERM] {
        let child = long_load(&place, &server);
        kill(Pid::from_raw(child.id().cast_signed()), signal).unwrap();
        let output = child.wait_with_output().unwrap();
        // An interrupted load prints its result.
        let is_printed = String::from_utf8_lossy(&output.stdout).contains("interrupted");
        assert_eq!(is_printed, signal == Signal::SIGTERM, "{}", stderr(&output));
        // Its windows end when the hosts get the command.
        assert!(!stderr(&output).contains("warning: the windows"), "{}", stderr(&output));
        place.assert_nothing_left();
    }
}

#[test]
fn ssh_and_kubectl_run_the_agent_on_their_hosts() {
    let (place, server) = (Place::without_program(Workspace::concurrent()), serve());
    // As sshd, it gives the words to a shell.
    place.stand_in(
        "ssh",
        r#"#!/bin/sh
if [ "$1 $2 $3 $4 $5" != "-T -o BatchMode=yes -o ServerAliveInterval=5" ] || [ "$6" != -- ]; then
  echo "unexpected arguments: $*" >&2; exit 9
fi
case $7 in node-[12]) ;; *) echo "ssh: connect to host $7 port 22: Connection refused" >&2; exit 255;; esac
[ $# = 8 ] || { echo "$# arguments" >&2; exit 9; }
echo "Welcome to $7"
exec sh -c "$8"
"#,
    );
    place.stand_in(
        "kubectl",
        r#"#!/bin/sh
if [ "$1 $2 $3 $4" != "exec --stdin --namespace lab" ] || [ "$6 $7 $8" != "-- sh -c" ] || [ $# != 9 ]; then
  echo "unexpected arguments: $*" >&2; exit 9
fi
case $5 in load-[12]) ;; *) echo "Error from server (NotFound): pods \"$5\" not found" >&2; exit 1;; esac
exec sh -c "$9"
"#,
    );
    let url = format!("http://{}/", server.address);
    let options = ["-c", "2", "-n", "10", "--format", "json"];
    let refused = place.run(&[&["load", &url, "--on", "ssh:node-1"], &options[..]].concat());
    assert_eq!(refused.status.code(), Some(2));
    assert!(stderr(&refused).contains("add --allow-host 127.0.0.1"), "{}", stderr(&refused));
    let load = |on: &str| {
        let permitted = ["load", &url, "--allow-host", "127.0.0.1", "--on", on];
        place.run(&[&permitted, &options[..]].concat())
    };
    assert_eq!(names(&json(&load("ssh:node-1,node-2"))), ["node-1", "node-2"]);
    let kubectl = json(&load("kubectl:lab/load-1,lab/load-2"));
    assert_eq!((names(&kubectl), &kubectl["sent"]), (vec!["lab/load-1", "lab/load-2"], &10.into()));
    for (on, message) in [
        ("ssh:node-1,node-3", "cannot start an agent on node-3: it ended before the agent started"),
        ("ssh:node-3", "ssh: connect to host node-3 port 22: Connection refused"),
        ("kubectl:lab/web", "pods \"web\" not found"),
    ] {
        let output = load(on);
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains(message), "{}", stderr(&output));
    }
    place.assert_nothing_left();
}

/// Writes an experiment of short and light trials to `two.toml`.
fn write_experiment(place: &Place) {
    let experiment = Experiment {
        title: "Do both subjects work?",
        load: r#"connections = 4, rate = 200, duration = "500ms", warmup = "50ms""#,
        subjects: &[("direct", "direct", ""), ("gateway", "tollgate-gateway", "")],
        blocks: 3,
    };
    place.0.write("two.toml", &experiment.text());
}

/// Starts a run, and waits for its first trial.
fn run_in_progress(place: &Place) -> Started {
    write_experiment(place);
    let on = ["run", "two.toml", "--on", "local:4", "--generators", "2", "--out", "out"];
    let child = place.start(&on);
    assert!(wait_until(PATIENCE, || place.0.trials() > 0));
    child
}

/// Returns false for a trial that failed or was repeated, as on a busy machine.
fn is_valid(record: &Value) -> bool {
    record["outcome"]["measured"]["invalid"] == Value::Array(vec![])
}

/// Checks that each trial was measured once, and returns the number of lost ones.
fn check_records(place: &Place, before: &[Value]) -> usize {
    let records = place.0.records();
    assert_eq!(records[..before.len()], *before);
    let measured: Vec<String> = records
        .iter()
        .filter(|record| is_valid(record))
        .map(|record| format!("{} {}", record["subject"], record["block"]))
        .collect();
    let distinct: BTreeSet<&String> = measured.iter().collect();
    assert_eq!((measured.len(), distinct.len()), (6, 6), "{records:#?}");
    let lost = records.iter().filter(|record| record["outcome"]["failed"]["step"] == "host");
    lost.count()
}

#[test]
fn run_measures_the_roles_on_their_hosts() {
    let place = Place::new();
    let output = run_in_progress(&place).wait_with_output().unwrap();
    let message = stderr(&output);
    assert!(message.contains("system: local-1 (127.0.0.1), listens there"), "{message}");
    assert_eq!(check_records(&place, &[]), 0, "{message}");
    for record in place.0.records().into_iter().filter(is_valid) {
        let hosts = &record["outcome"]["measured"]["hosts"];
        assert_eq!(
            (&hosts["system"]["host"], &hosts["origin"]["host"]),
            (&"local-1".into(), &"local-2".into())
        );
        let generators = hosts["generators"].as_array().unwrap();
        let responses: u64 = generators.iter().map(|one| one["responses"].as_u64().unwrap()).sum();
        assert_eq!(record["outcome"]["measured"]["responses"], responses);
        // The direct subject has no processes.
        let system = &record["outcome"]["measured"]["cpu"]["system"];
        assert_eq!(system.is_null(), record["subject"] == "direct", "{record}");
    }
    let manifest = place.0.json("out/manifest.json");
    assert_eq!(manifest["hosts"].as_array().unwrap().len(), 4);
    place.assert_nothing_left();
}

#[test]
fn polling_of_an_origin_on_its_host_is_not_its_work() {
    let place = Place::new();
    let experiment = Experiment {
        title: "Does the origin work?",
        load: r#"connections = 4, rate = 200, duration = "500ms", warmup = "50ms", busy_poll = true"#,
        subjects: &[("direct", "direct", ""), ("gateway", "tollgate-gateway", "")],
        blocks: 1,
    };
    place.0.write("poll.toml", &experiment.text());
    let output = place.run(&["run", "poll.toml", "--on", "local:3", "--out", "out"]);
    let mut records = place.0.records();
    records.retain(is_valid);
    assert!(records.len() >= 2, "{}", show(&output));
    for record in records {
        let measured = &record["outcome"]["measured"];
        let cpu = &measured["cpu"];
        // A busy machine leaves it little time to poll.
        assert!(cpu["origin_polled_us"].as_u64().unwrap() > 0, "{record}");
        assert_ne!(measured["bottleneck"], "origin", "{record}");
        // Threads that poll wait for a CPU all the time.
        assert!(measured["noise"]["cpu_pressure_percent"].is_null(), "{record}");
    }
    place.assert_nothing_left();
}

#[test]
fn lost_host_invalidates_its_trial_and_is_replaced() {
    let place = Place::new();
    let child = run_in_progress(&place);
    let before = place.0.records();
    kill(worker(&place), Signal::SIGKILL).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(check_records(&place, &before) <= 1, "{}", stderr(&output));
    assert!(stderr(&output).contains("lost local-"), "{}", stderr(&output));
    place.assert_nothing_left();
}

#[test]
fn killed_run_on_hosts_resumes() {
    let place = Place::new();
    let mut child = run_in_progress(&place);
    let supervisor = Pid::from_raw(child.id().cast_signed());
    for pid in [place.0.supervised(&child), supervisor] {
        kill(pid, Signal::SIGKILL).ok();
    }
    child.wait().unwrap();
    let before = place.0.records();
    place.assert_nothing_left();
    let output = place.run(&["run", "--resume", "out"]);
    assert_eq!(check_records(&place, &before), 0, "{}", stderr(&output));
    place.assert_nothing_left();
}

#[test]
fn hosts_are_checked_before_anything_starts() {
    let place = Place::without_program(Workspace::concurrent());
    for (arguments, message) in [
        (&["http://192.0.2.1/", "--on", "local:2"][..], "add --allow-host 192.0.2.1"),
        (&["http://127.0.0.1:9/", "--on", "local:3", "-c", "2"], "choose 3 to 60000"),
        (&["http://127.0.0.1:9/", "--on", "local:0"], "invalid number of hosts `0`"),
        (&["http://127.0.0.1:9/", "--on", "local", "--series", "a.csv"], "cannot be used with"),
    ] {
        let output = place.run(&[&["load"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains(message), "{}", stderr(&output));
    }
    assert!(place.staged().is_empty());
}
