//! Subjects that run already: nginx started by hand, attached by pid, control group, unit and container.

use crate::origin::OriginProcess;
use crate::support::{
    NO_LIMITS, Started, Workspace, flat, show, stderr, stdout, wait_until, without_limits,
};
use serde_json::Value;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// nginx in front of an origin, both started by the test.
struct Site {
    nginx: Started,
    port: u16,
    _origin: OriginProcess,
}

/// Starts nginx by a shell command in front of it, such as `exec`.
fn start(workspace: &Workspace, before: &str) -> Site {
    let origin = OriginProcess::start(workspace, &["127.0.0.1:0"]);
    let backend = origin.listens_on.trim_start_matches("http://").to_owned();
    let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr());
    let port = port.expect("a free port").port();
    let dir = workspace.path("hand");
    let temp: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {}/{kind};\n", dir.display()))
        .concat();
    workspace.write(
        "hand/nginx.conf",
        &format!(
            "daemon off;\npid {0}/nginx.pid;\nerror_log stderr error;\nworker_processes 1;\nevents {{}}\nhttp {{\n\
             access_log off;\nkeepalive_requests 1000000000;\n{temp}\
             upstream origin {{ server {backend}; keepalive 8; keepalive_requests 1000000000; }}\n\
             proxy_http_version 1.1;\nproxy_set_header Connection \"\";\nproxy_set_header Host $host;\n\
             ignore_invalid_headers off;\n\
             server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass http://origin; }} }}\n}}\n",
            dir.display()
        ),
    );
    let script = format!("{before} nginx -e stderr -p {0} -c {0}/nginx.conf", dir.display());
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).stdin(Stdio::null());
    let path = std::env::var("PATH").unwrap_or_default();
    shell.env("PATH", format!("{path}:/usr/sbin:/sbin"));
    let nginx = Started::new(shell.spawn().expect("a shell"));
    let listens = || TcpStream::connect(("127.0.0.1", port)).is_ok();
    let started = wait_until(Duration::from_secs(30), listens);
    assert!(started, "nginx does not listen; to install it: apt-get install -y nginx");
    Site { nginx, port, _origin: origin }
}

impl Site {
    fn pid(&self) -> u32 {
        self.nginx.id()
    }

    /// Stops nginx with its workers.
    fn stop(mut self) {
        let pid = nix::unistd::Pid::from_raw(self.pid().cast_signed());
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("nginx runs");
        self.nginx.wait().expect("the end of nginx");
    }

    fn is_running(&mut self) -> bool {
        self.nginx.try_wait().expect("a process").is_none()
    }
}

/// An experiment of nginx by its recipe, and of a server that runs already.
fn experiment(port: u16, keys: &str, blocks: u32) -> String {
    format!(
        "title = \"Is it the same nginx?\"\nbaseline = \"recipe\"\n\
         [[case]]\nname = \"browse\"\nmix = \"browse\"\n\
         load = {{ connections = 4, duration = \"500ms\", warmup = \"200ms\", busy_poll = false }}\n\
         [[subject]]\nname = \"recipe\"\nsystem = \"nginx\"\n\
         [[subject]]\nname = \"hand\"\nurl = \"http://127.0.0.1:{port}\"\n{keys}\n\
         [design]\nblocks = {blocks}\n{NO_LIMITS}"
    )
}

fn hand(workspace: &Workspace) -> Value {
    let report = workspace.json("out/report.json");
    let subjects = report["cases"][0]["subjects"].as_array().expect("subjects").clone();
    subjects.into_iter().find(|subject| subject["name"] == "hand").expect("the subject")
}

/// The CPU of the server over that of the same nginx as a recipe, and its peak memory.
fn check_attached(workspace: &Workspace, keys: &str, port: u16) -> String {
    workspace.write("hand.toml", &experiment(port, keys, 3));
    let output = workspace.run(&["run", "hand.toml", "--out", "out"]);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    let hand = hand(workspace);
    let cpu = &hand["prices"]["cpu_us_per_request"];
    assert_eq!(cpu["n"], 3, "{hand:#}");
    let ratio = cpu["ratio"]["estimate"].as_f64().expect("a ratio");
    assert!((0.4..2.5).contains(&ratio), "{ratio}: {}", show(&output));
    let memory = hand["figures"]["memory_peak_bytes"].as_f64().expect("memory");
    assert!((1e6..500e6).contains(&memory), "{memory}");
    assert!(hand["figures"]["startup_ms"].is_null(), "{hand:#}");
    let table = flat(&stdout(&output));
    for text in ["hand is a server that runs already", "Not measured: start time."] {
        assert!(table.contains(text), "no {text:?} in {table}");
    }
    table
}

#[test]
fn attached_nginx_costs_as_much_as_its_recipe() {
    let workspace = Workspace::exclusive();
    let mut site = start(&workspace, "exec");
    let table =
        check_attached(&workspace, &format!("attach = {{ pid = {} }}", site.pid()), site.port);
    let cpu = format!("CPU is that of pid {}", site.pid());
    assert!(table.contains(&cpu), "{table}");
    // It may use all CPUs, and is not moved.
    assert!(table.contains("which may use the CPUs 0, 1"), "{table}");
    assert!(site.is_running(), "the run stopped the server");
    let manifest = workspace.json("out/manifest.json");
    let external = &manifest["experiment"]["subjects"][1]["external"];
    assert_eq!(external["attach"], format!("pid {}", site.pid()));
    site.stop();
    workspace.assert_nothing_runs();
}

/// A control group that is removed at the end of the test.
struct Group(PathBuf);

impl Group {
    /// In version 2 if it is mounted, else in version 1.
    fn new() -> Self {
        let name = format!("tollgate-e2e-{}", std::process::id());
        let mounts = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified", "/sys/fs/cgroup/cpuacct"];
        let mounts = mounts.iter().filter(|mount| Path::new(mount).join("cgroup.procs").is_file());
        let mut reasons = Vec::new();
        for mount in mounts {
            let folder = Path::new(mount).join(&name);
            match fs::create_dir(&folder) {
                Ok(()) => return Self(folder),
                Err(error) => reasons.push(format!("{}: {error}", folder.display())),
            }
        }
        panic!("this test makes a control group, as root: {}", reasons.join("; "));
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // It is busy until its processes are gone.
        wait_until(Duration::from_secs(10), || fs::remove_dir(&self.0).is_ok());
    }
}

#[test]
fn attached_control_group_has_the_cpu_of_its_processes() {
    let workspace = Workspace::exclusive();
    let group = Group::new();
    let folder = group.0.display().to_string();
    let site = start(&workspace, &format!("echo $$ > {folder}/cgroup.procs; exec"));
    check_attached(&workspace, &format!("attach = {{ cgroup = \"{folder}\" }}"), site.port);
    site.stop();
    workspace.assert_nothing_runs();
}

/// Writes a program that takes the place of another, and prints if its arguments are these.
fn stand_in(workspace: &Workspace, program: &str, arguments: &str, prints: &str) {
    let name = format!("bin/{program}");
    let script = format!(
        "#!/bin/sh\nif [ \"$*\" = '{arguments}' ]; then\n  printf '{prints}'\nelse\n  echo \"unexpected: $*\" >&2\n  exit 1\nfi\n"
    );
    workspace.write(&name, &script);
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(workspace.path(&name), mode).expect("a program");
}

/// Runs the experiment with the programs of `bin/` first.
fn run_with_stand_ins(workspace: &Workspace, arguments: &[&str]) -> std::process::Output {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = workspace.command(&without_limits(arguments));
    command.env("PATH", format!("{}:{path}", workspace.path("bin").display()));
    command.output().expect("the binary runs")
}

#[test]
fn unit_and_container_are_found_by_their_programs() {
    let workspace = Workspace::concurrent();
    let site = start(&workspace, "exec");
    let pid = site.pid();
    let unit = "show --property=ControlGroup --property=MainPID -- shop.service";
    stand_in(&workspace, "systemctl", unit, &format!("ControlGroup=\\nMainPID={pid}\\n"));
    let inspect = "inspect --type container --format {{.State.Pid}} -- shop";
    stand_in(&workspace, "docker", "version", "");
    stand_in(&workspace, "podman", inspect, &format!("{pid}\\n"));
    for attach in ["unit = \"shop.service\"", "container = \"shop\""] {
        let text = experiment(site.port, &format!("attach = {{ {attach} }}"), 1);
        workspace.write("hand.toml", &text);
        let output = run_with_stand_ins(&workspace, &["run", "hand.toml", "--out", "out"]);
        assert_eq!(output.status.code(), Some(0), "{}", show(&output));
        let cpu = &hand(&workspace)["figures"]["cpu_us_per_request"];
        assert!(cpu.as_f64() > Some(1.0), "{cpu}: {}", show(&output));
        fs::remove_dir_all(workspace.path("out")).expect("the run's directory");
    }
    stand_in(&workspace, "docker", inspect, "0\\n");
    let output = run_with_stand_ins(&workspace, &["run", "hand.toml", "--out", "out"]);
    let message = flat(&stderr(&output));
    let reason =
        "subject `hand`: cannot attach to container shop: docker: the container does not run";
    assert!(message.contains(reason), "{message}");
    assert_eq!(output.status.code(), Some(2), "{}", show(&output));
    site.stop();
    workspace.assert_nothing_runs();
}

/// On a machine whose init is systemd, a real unit.
#[test]
fn unit_of_systemd_is_attached() {
    if !Path::new("/run/systemd/system").is_dir() {
        eprintln!(
            "systemd does not run here; `unit_and_container_are_found_by_their_programs` has its stand-in"
        );
        return;
    }
    let workspace = Workspace::exclusive();
    let unit = format!("tollgate-e2e-{}", std::process::id());
    let site = start(&workspace, &format!("exec systemd-run --scope --unit={unit}"));
    check_attached(&workspace, &format!("attach = {{ unit = \"{unit}.scope\" }}"), site.port);
    site.stop();
    workspace.assert_nothing_runs();
}

#[test]
fn server_without_processes_has_no_cpu_and_enters_no_verdict() {
    let workspace = Workspace::concurrent();
    let site = start(&workspace, "exec");
    workspace.write("hand.toml", &experiment(site.port, "about = \"by hand\"", 1));
    let output = workspace.run(&["run", "hand.toml", "--out", "out"]);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    let found = hand(&workspace);
    for metric in ["cpu_us_per_request", "memory_peak_bytes"] {
        assert!(found["prices"][metric].is_null(), "{found:#}");
        assert!(found["figures"][metric].is_null(), "{found:#}");
    }
    assert!(found["prices"]["throughput_per_s"]["ratio"]["estimate"].as_f64() > Some(0.0));
    // An attack passes a proxy without rules.
    assert_eq!(found["figures"]["detection_rate"], 0.0);
    let table = flat(&stdout(&output));
    assert!(table.contains("Not measured: start time, CPU, memory."), "{table}");
    // As the baseline, it leaves no price in CPU.
    let other = workspace.run(&["report", "out", "--baseline", "hand"]);
    let table = flat(&stdout(&other));
    let reason = "the baseline hand is a server whose processes are not known";
    assert!(table.contains(reason), "{table}");
    site.stop();
    workspace.assert_nothing_runs();
}

#[test]
fn server_that_goes_away_is_named_and_the_rest_is_kept() {
    let workspace = Workspace::concurrent();
    let site = start(&workspace, "exec");
    let keys = format!("attach = {{ pid = {} }}", site.pid());
    workspace.write("hand.toml", &experiment(site.port, &keys, 4));
    let run = workspace.start(&["run", "hand.toml", "--seed", "1", "--out", "out"]);
    // After a block, so that both subjects have a trial.
    let reached = wait_until(Duration::from_secs(120), || workspace.trials() >= 2);
    assert!(reached, "no trials");
    site.stop();
    let output = run.wait_with_output().expect("the end of the run");
    let records = workspace.records();
    let of_hand: Vec<&Value> =
        records.iter().filter(|record| record["subject"] == "hand").collect();
    assert!(of_hand[0]["outcome"]["measured"]["responses"].as_u64() > Some(0), "{}", show(&output));
    let reasons = of_hand.iter().map(|record| record["outcome"].to_string()).collect::<String>();
    assert!(
        reasons.contains("no process has the number") || reasons.contains("has ended"),
        "{reasons}"
    );
    let recipe = records.iter().filter(|record| record["subject"] == "recipe").count();
    assert!(recipe >= 4, "{recipe} trials of the other subject: {}", show(&output));
    let text = flat(&(stdout(&output) + &stderr(&output)));
    assert!(text.contains("hand"), "{text}");
    assert!(workspace.path("out/report.html").is_file());
    workspace.assert_nothing_runs();
}

#[test]
fn other_hosts_and_certificates_need_permission() {
    let workspace = Workspace::concurrent();
    let refused = |text: &str, arguments: &[&str], reason: &str| {
        workspace.write("hand.toml", text);
        let output = workspace.run(&[&["run", "hand.toml", "--out", "out"], arguments].concat());
        assert_eq!(output.status.code(), Some(2), "{}", show(&output));
        let message = flat(&stderr(&output));
        assert!(message.contains(reason), "{message}");
        assert!(!workspace.path("out").exists(), "a run was started");
    };
    let remote = experiment(80, "", 1).replace("127.0.0.1:80", "192.0.2.7");
    let reason = "subject `hand`: cannot load `192.0.2.7`: not this machine; if you may load it, add --allow-host 192.0.2.7";
    refused(&remote, &[], reason);
    refused(&remote, &["--allow-host", "192.0.2.8"], reason);
    let origin = OriginProcess::start(&workspace, &["127.0.0.1:0", "--tls"]);
    let secure = |keys: &str| {
        experiment(80, keys, 1)
            .replace("http://127.0.0.1:80", &origin.listens_on)
            .replace("mix = \"browse\"", "mix = \"browse\"\nprotocol = \"https\"")
    };
    refused(
        &secure(""),
        &[],
        "trust it or its authority with `cacert`, or skip the check with `insecure = true`",
    );
    refused(&secure("cacert = \"none.pem\""), &[], "none.pem");
    workspace.write("hand.toml", &secure("insecure = true"));
    let output = workspace.run(&["run", "hand.toml", "--out", "out"]);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    origin.stop();
    workspace.assert_nothing_runs();
}
