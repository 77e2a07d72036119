//! `tollgate gateway` between clients and servers of others: Java's, Go's, gRPC's, gunicorn, Chromium.

use crate::foreign_server::{ForeignServer, free_port};
use crate::gateway::{GatewayProcess, lines};
use crate::go_ftw::go;
use crate::site::browser::Browser;
use crate::support::{Started, Workspace, show, stdout};
use serde_json::{Value, json};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc::Receiver;
use std::time::Duration;
use tollgate_tls::SelfSigned;

/// Deadline for one step on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const PROGRAMS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/gateway-clients");
/// Of a listener, with the files of [`write_certificate`].
const TLS: &str = "tls: { certificates: [{ certificate: site.pem, key: site.key }] }";

/// A server that prints its port, and then perhaps more.
struct Server {
    _child: Started,
    address: String,
    printed: Receiver<String>,
}

impl Server {
    fn start(command: &mut Command) -> Self {
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let child = child.unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
        let mut child = Started::new(child);
        let printed = lines(child.stdout.take().expect("its output"));
        let port = printed.recv_timeout(PATIENCE).expect("a port");
        Self { _child: child, address: format!("127.0.0.1:{port}"), printed }
    }

    /// A pool of this name with this server.
    fn pool(&self, name: &str, keys: &str) -> String {
        pool(name, &self.address, keys)
    }
}

fn pool(name: &str, address: &str, keys: &str) -> String {
    format!("{{ name: {name}, backends: [{{ address: '{address}' }}]{keys} }}")
}

/// Runs a client to its end. Returns what it prints.
fn run(command: &mut Command, package: &str) -> String {
    let output = command.stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| {
        panic!("cannot run {command:?}: {error}; to install it: apt-get install -y {package}")
    });
    assert!(output.status.success(), "{command:?}: {}", show(&output));
    stdout(&output)
}

fn java(arguments: &[&str]) -> String {
    let mut command = Command::new("java");
    command.arg("-XX:TieredStopAtLevel=1").arg(format!("{PROGRAMS}/Client.java")).args(arguments);
    run(&mut command, "default-jdk-headless")
}

/// The client and server of net/http.
fn net_http(arguments: &[&str]) -> Command {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let program = PROGRAM.get_or_init(|| {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("gateway-clients");
        let path = program.to_str().expect("UTF-8");
        go("tests/gateway-clients", &["build", "-o", path, "."]);
        program
    });
    let mut command = Command::new(program);
    command.args(arguments);
    command
}

/// Python with the packages of the clients and servers.
fn python(arguments: &[&str]) -> Command {
    static PACKAGES: OnceLock<PathBuf> = OnceLock::new();
    let packages = PACKAGES.get_or_init(install_packages);
    let mut command = Command::new("python3");
    command.args(arguments).current_dir(PROGRAMS);
    command.env("PYTHONPATH", packages).env("PYTHONDONTWRITEBYTECODE", "1");
    command
}

/// Installs them for this version of Python, unless an earlier run has. Returns their folder.
fn install_packages() -> PathBuf {
    let script = "import sys; print(sys.implementation.cache_tag)";
    let version = run(Command::new("python3").args(["-c", script]), "python3");
    let name = format!("gateway-clients-{}", version.trim());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let (requirements, installed) =
        (format!("{PROGRAMS}/requirements.txt"), folder.join("requirements.txt"));
    let text = fs::read(&requirements).expect("a file");
    if fs::read(&installed).is_ok_and(|installed| installed == text) {
        return folder;
    }
    // Of an earlier list, or incomplete.
    fs::remove_dir_all(&folder).ok();
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]);
    pip.args(["--only-binary", ":all:", "--require-hashes", "--requirement", &requirements]);
    pip.arg("--target").arg(&folder).env("PIP_ROOT_USER_ACTION", "ignore");
    let output = pip.output().expect("Python runs");
    assert!(
        output.status.success(),
        "cannot install packages of Python; pip itself: apt-get install -y python3-pip\n{}",
        show(&output)
    );
    fs::write(installed, text).expect("a file");
    folder
}

/// Starts gunicorn with one worker.
fn gunicorn(workspace: &Workspace, arguments: &[&str]) -> ForeignServer {
    let port = free_port();
    let log = workspace.path("gunicorn.log");
    let mut command =
        python(&["-m", "gunicorn", "--no-control-socket", "--workers", "1", "--error-logfile"]);
    command.arg(&log).args(["--bind", &format!("127.0.0.1:{port}")]).args(arguments);
    command.arg("application:application").stdout(Stdio::null());
    ForeignServer::start(&mut command, port, || fs::read_to_string(log).unwrap_or_default())
}

/// Writes a certificate of the gateway and its key to the folder. Returns the path of the certificate.
fn write_certificate(workspace: &Workspace) -> String {
    let path = workspace.path("site.pem");
    let certificate = SelfSigned::new(&["127.0.0.1", "127.0.0.2"]).expect("a certificate");
    certificate.write(&path).expect("files");
    path.to_str().expect("UTF-8").to_owned()
}

/// Starts a gateway with a listener for TLS.
fn start_tls(workspace: &Workspace, rest: &str) -> GatewayProcess {
    let listeners = format!("listeners: [{{ address: '127.0.0.1:0', {TLS} }}]\n");
    workspace.write("gateway.yaml", &(listeners + rest));
    GatewayProcess::start(workspace)
}

/// Starts a gateway without TLS and with defaults.
fn start_plain(workspace: &Workspace, backend: &str) -> GatewayProcess {
    GatewayProcess::start_with(workspace, &["gateway", "--from", "127.0.0.1:0", "--to", backend])
}

#[test]
fn java_sends_three_hundred_requests_at_once_on_one_connection() {
    let workspace = Workspace::concurrent();
    let certificate = write_certificate(&workspace);
    let server = Server::start(&mut net_http(&["server"]));
    let config =
        format!("pools: [{}]\nlimits: {{ http2_streams: 300 }}\n", server.pool("site", ""));
    let gateway = start_tls(&workspace, &config);
    // Their responses come once all requests have arrived.
    let url = format!("https://{}/together?count=300", gateway.address);
    let counts = java(&["requests", &certificate, &url, "300"]);
    assert_eq!(counts, "{HTTP_2 200 together=300}\n");
}

#[test]
fn java_opens_and_closes_a_websocket() {
    let workspace = Workspace::concurrent();
    let certificate = write_certificate(&workspace);
    let server = Server::start(&mut python(&["echo.py"]));
    let gateway = start_tls(&workspace, &format!("pools: [{}]\n", server.pool("echo", "")));
    // The JDK's upgrade request has `Content-Length: 0`.
    let url = format!("wss://{}/", gateway.address);
    assert_eq!(java(&["websocket", &certificate, &url, "hello"]), "hello 4001 enough\n");
    let end = server.printed.recv_timeout(PATIENCE).expect("the end of the connection");
    assert_eq!(end, "4001 enough");
}

/// Runs a check of Go's client over HTTP/2 against Go's server, over HTTP/1.1 and over HTTP/2.
fn check_net_http(check: &str) {
    let workspace = Workspace::concurrent();
    let certificate = write_certificate(&workspace);
    let key = certificate.replace(".pem", ".key");
    for (server, keys) in [
        (&["server"][..], ""),
        (&["server", &certificate, &key], ", protocol: h2, tls: { ca: site.pem }"),
    ] {
        let server = Server::start(&mut net_http(server));
        let gateway = start_tls(&workspace, &format!("pools: [{}]\n", server.pool("go", keys)));
        let url = format!("https://{}", gateway.address);
        run(&mut net_http(&[check, &url, &certificate]), "golang-go");
    }
}

#[test]
fn go_sends_three_hundred_requests_at_once() {
    check_net_http("together");
}

#[test]
fn go_uploads_after_100_continue() {
    check_net_http("upload");
}

#[test]
fn go_sends_and_receives_trailers() {
    check_net_http("trailers");
}

#[test]
fn go_reads_each_event_as_it_is_sent() {
    check_net_http("events");
}

/// Starts a gRPC server, and a gateway with listeners in the clear and for TLS, whose addresses are the last.
fn start_calls(workspace: &Workspace) -> (Server, GatewayProcess, [String; 2]) {
    let server = Server::start(&mut python(&["calls.py", "server"]));
    workspace.write(
        "gateway.yaml",
        &format!(
            "listeners:\n  - {{ address: '127.0.0.1:0', http2: true }}\n  - {{ address: '127.0.0.2:0', {TLS} }}\n\
             pools: [{}]\n",
            server.pool("calls", ", protocol: h2")
        ),
    );
    let gateway = GatewayProcess::start(workspace);
    let line = gateway.printed.recv_timeout(PATIENCE).expect("a line");
    let encrypted = line.strip_prefix("listening on https://").expect("an address").to_owned();
    let addresses = [gateway.address.clone(), encrypted];
    (server, gateway, addresses)
}

#[test]
fn grpc_calls_carry_metadata_statuses_deadlines_and_streams() {
    let workspace = Workspace::concurrent();
    let certificate = write_certificate(&workspace);
    let (_server, _gateway, [plain, encrypted]) = start_calls(&workspace);
    for channel in [&[&*plain][..], &[&*encrypted, &*certificate]] {
        let call = |method| run(python(&["calls.py", method]).args(channel), "python3");
        assert_eq!(call("unary"), "b'ABC' why b'\\x00\\xffabc'\n");
        let error = "FAILED_PRECONDITION '100 % gr\\xf6\\xdfer\\nthan abc' b'\\x08\\t\\x00'\n";
        assert_eq!(call("error"), format!("{error}b'abc'\n{error}"));
        assert_eq!(call("both"), "True\nTrue\nTrue\n[] both\n");
        assert_eq!(call("endless"), "DEADLINE_EXCEEDED\nb'yes'\n");
    }
}

#[test]
fn grpc_stream_may_be_silent_for_a_minute() {
    let workspace = Workspace::long();
    let certificate = write_certificate(&workspace);
    let (_server, _gateway, [_, encrypted]) = start_calls(&workspace);
    let mut client = python(&["calls.py", "silent", &encrypted, &certificate]);
    assert_eq!(run(&mut client, "python3"), "b'one'\nb'two'\n");
}

#[test]
fn stream_of_events_of_gunicorn_may_be_silent_for_a_minute() {
    let workspace = Workspace::long();
    let server = gunicorn(&workspace, &["--worker-class", "gthread", "--threads", "2"]);
    let gateway = start_plain(&workspace, &server.address());
    let url = format!("http://{}/events?silence=65", gateway.address);
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--max-time", "200", &url]);
    assert_eq!(run(&mut curl, "curl"), "data: one\n\ndata: two\n\n");
}

fn connect(gateway: &GatewayProcess, request: &str) -> TcpStream {
    let mut client = TcpStream::connect(&gateway.address).expect("it listens");
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    write!(client, "{request}\r\nHost: a\r\nConnection: close\r\n\r\n").expect("it reads");
    client
}

#[test]
fn slow_upload_does_not_occupy_the_only_worker() {
    let workspace = Workspace::concurrent();
    let server = gunicorn(&workspace, &["--worker-class", "sync"]);
    let gateway = start_plain(&workspace, &server.address());
    let body = [b'x'; 60_000];
    let head = format!("POST /upload HTTP/1.1\r\nContent-Length: {}", body.len());
    let mut slow = connect(&gateway, &head);
    let (last, body) = body.split_last().expect("bytes");
    for piece in body.chunks(3_000) {
        slow.write_all(piece).expect("it reads");
        let other = gateway.get("/");
        assert!(other.ends_with("\r\n\r\nfine"), "{other}");
    }
    slow.write_all(&[*last]).expect("it reads");
    let mut response = String::new();
    slow.read_to_string(&mut response).expect("a response");
    assert!(response.ends_with("\r\n\r\n60000 bytes"), "{response}");
}

#[test]
fn slow_download_does_not_occupy_the_only_worker() {
    let workspace = Workspace::concurrent();
    let server = gunicorn(&workspace, &["--worker-class", "sync"]);
    let gateway = start_plain(&workspace, &server.address());
    // The buffers of the sockets and of the gateway hold both.
    for size in [60_000, 500_000] {
        let mut slow = connect(&gateway, &format!("GET /download?size={size} HTTP/1.1"));
        // The response has begun.
        slow.read_exact(&mut [0]).expect("a byte");
        let other = gateway.get("/");
        assert!(other.ends_with("\r\n\r\nfine"), "{other}");
        let mut response = String::new();
        slow.read_to_string(&mut response).expect("a response");
        let (_, body) = response.split_once("\r\n\r\n").expect("a head");
        assert_eq!(body.len(), size);
    }
}

/// Fetches resources, which the server answers in groups of fifty, reads events that it asks for one by one, and uses a
/// WebSocket.
const PAGE_SCRIPT: &str = r#"
(async () => {
    const resource = number => fetch(`/together?count=50&number=${number}`).then(it => it.text());
    const texts = await Promise.all(Array.from({ length: 150 }, (_, number) => resource(number)));
    const resources = performance.getEntriesByType("resource");
    const events = await new Promise((resolve, reject) => {
        const source = new EventSource("/events");
        const seen = [];
        source.onmessage = event => {
            seen.push(event.data);
            if (seen.length < 5) return fetch(`/next?text=${seen.length}`);
            source.close();
            resolve(seen);
        };
        source.onerror = () => reject(new Error("no stream of events"));
    });
    const socket = await new Promise((resolve, reject) => {
        const socket = new WebSocket(`wss://${location.host}/echo`);
        let echo;
        socket.onopen = () => socket.send("hello");
        socket.onmessage = event => { echo = event.data; socket.close(4001, "enough"); };
        socket.onclose = event => resolve([echo, event.code, event.reason, event.wasClean]);
        socket.onerror = () => reject(new Error("no WebSocket"));
    });
    return {
        complete: texts.filter(text => text === "together").length,
        protocols: [...new Set(resources.map(resource => resource.nextHopProtocol))],
        events,
        socket,
    };
})()
"#;

#[test]
fn chromium_fetches_many_resources_reads_events_and_opens_a_websocket() {
    let workspace = Workspace::concurrent();
    write_certificate(&workspace);
    let site = Server::start(&mut net_http(&["server"]));
    let echo = Server::start(&mut python(&["echo.py"]));
    let config = format!(
        "pools: [{}, {}]\nroutes: [{{ pool: site }}, {{ path: /echo, pool: echo }}]\naccess_log: {{ to: stdout, \
         format: json }}\n",
        site.pool("site", ""),
        echo.pool("echo", "")
    );
    let gateway = start_tls(&workspace, &config);
    let mut browser = Browser::start(&workspace, &workspace.path("downloads"));
    browser.ignore_certificates();
    browser.open(&format!("https://{}/", gateway.address));
    assert_eq!(
        browser.evaluate(PAGE_SCRIPT),
        json!({
            "complete": 150,
            "protocols": ["h2"],
            "events": ["first", "1", "2", "3", "4"],
            "socket": ["hello", 4001, "enough", true],
        })
    );
    assert_eq!(echo.printed.recv_timeout(PATIENCE).expect("the end"), "4001 enough");
    // The WebSocket is a stream of HTTP/2, too.
    let line = loop {
        let line = gateway.printed.recv_timeout(PATIENCE).expect("a line of the log");
        let line: Value = serde_json::from_str(&line).expect("JSON");
        if line["target"] == "/echo" {
            break line;
        }
    };
    assert_eq!((&line["status"], &line["version"]), (&json!(101), &json!("2.0")), "{line}");
}
