//! `tollgate waf serve` behind HAProxy, by SPOE.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::Duration;

use nix::sys::signal::Signal;

use crate::foreign_server::ForeignServer;
use crate::support::{Workspace, stderr, stdout, wait_until};
use crate::waf_serve::{ATTACK, PATIENCE, Scene, start_daemon};

/// Pause of a client before the rest of its body.
const PAUSE: Duration = Duration::from_millis(200);

impl Scene {
    /// A file of HAProxy, as the binary prints it.
    fn printed(&self, which: &str) -> String {
        let output = self.workspace.run(&["waf", "serve", "--print-haproxy", which, "waf.yaml"]);
        assert!(output.status.success(), "{}", stderr(&output));
        self.ports.fill(&stdout(&output))
    }

    fn haproxy(&self, proxy: &str, messages: &str) -> ForeignServer {
        self.write("coraza.cfg", messages);
        let file = self.write("haproxy.cfg", proxy);
        self.proxy(Command::new("haproxy").arg("-f").arg(file))
    }

    /// HAProxy with the printed files, which has reached the daemon.
    fn printed_haproxy(&self, change: impl FnOnce(String) -> String) -> ForeignServer {
        let haproxy = self.haproxy(&change(self.printed("proxy")), &self.printed("messages"));
        assert!(wait_until(PATIENCE, || self.status("/?q=benign", &[]) == "200"));
        haproxy
    }
}

#[test]
fn haproxy_asks_with_bodies_and_denies_without_an_answer() {
    let scene = Scene::start("HAProxy");
    let _haproxy = scene.printed_haproxy(|text| text);
    scene.check(true, "503");
}

/// The status of the response to a chunked body of `bytes` harmless bytes and an attack, before which the client waits for a
/// response.
fn status_of_paused_body(address: &str, bytes: usize) -> String {
    let mut stream = TcpStream::connect(address).expect("a connection");
    let head = "POST /echo HTTP/1.1\r\nHost: site\r\nContent-Type: application/x-www-form-urlencoded\r\n\
                Transfer-Encoding: chunked\r\n\r\n";
    let body = format!("a={}", "x".repeat(bytes - 2));
    stream.write_all(format!("{head}{bytes:x}\r\n{body}\r\n").as_bytes()).expect("room");
    let mut response = [0; 12];
    stream.set_read_timeout(Some(PAUSE)).expect("a timeout");
    let mut received = stream.read_exact(&mut response);
    if received.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
        let attack = "&q=../../../../etc/passwd";
        // HAProxy may have refused the rest.
        write!(stream, "{:x}\r\n{attack}\r\n0\r\n\r\n", attack.len()).ok();
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        received = stream.read_exact(&mut response);
    }
    received.expect("a response");
    String::from_utf8_lossy(&response[9..]).into_owned()
}

#[test]
fn body_that_haproxy_has_in_part_is_denied_also_where_a_chunk_fills_its_buffer() {
    let scene = Scene::start("HAProxy");
    // Where a chunk ends with the buffer, the length of the buffered part and the announced one are equal, as those of a
    // whole body.
    let small = |text: String| text.replace("65536", "16384");
    let haproxy = scene.printed_haproxy(small);
    let clients: Vec<_> = [1000, 15_000]
        .into_iter()
        .chain((15_080..15_240).step_by(4))
        .chain([16_000, 30_000])
        .map(|bytes| {
            let address = haproxy.address();
            (bytes, thread::spawn(move || status_of_paused_body(&address, bytes)))
        })
        .collect();
    let statuses: Vec<_> = clients
        .into_iter()
        .map(|(bytes, client)| (bytes, client.join().expect("a status")))
        .collect();
    assert!(statuses.iter().all(|(_, status)| ["403", "413"].contains(&&**status)), "{statuses:?}");
    assert_eq!((&*statuses[0].1, &*statuses[statuses.len() - 1].1), ("403", "413"));
    let large = "a".repeat(40_000);
    assert_eq!(scene.status("/", &["--data", &large]), "413");
    assert_eq!(scene.status("/", &["--data", &large[..10_000]]), "200");
}

#[test]
fn nothing_passes_without_an_answer_while_the_daemon_is_killed_and_restarted_under_load() {
    let scene = Scene::start("HAProxy");
    let haproxy = scene.printed_haproxy(|text| text);
    let url = |target: &str| format!("http://{}{target}", haproxy.address());
    let pipelined = [&*url("/?q=benign"), "-c", "64", "-n", "5000"];
    let (_, result) = scene.workspace.load(&pipelined);
    assert_eq!(result["statuses"], serde_json::json!({ "200": 5000 }));
    let attack = url(ATTACK);
    let load =
        scene.workspace.start(&["load", "--format", "json", &attack, "-c", "64", "-d", "3s"]);
    assert_eq!(scene.status(ATTACK, &[]), "403");
    scene.daemon.signal(Signal::SIGKILL);
    let again = start_daemon(&scene.workspace);
    let output = load.wait_with_output().expect("a result");
    let result: serde_json::Value = serde_json::from_str(&stdout(&output)).expect("JSON");
    let statuses = result["statuses"].as_object().expect("statuses");
    assert!(statuses.keys().all(|status| ["403", "503"].contains(&&**status)), "{result}");
    assert!(wait_until(PATIENCE, || scene.status("/?q=benign", &[]) == "200"));
    assert_eq!(scene.status(ATTACK, &[]), "403");
    again.signal(Signal::SIGTERM);
    assert_eq!(again.wait(), Some(0));
}

#[test]
fn configuration_of_coraza_spoa_is_taken_as_it_is() {
    let scene = Scene::start("HAProxy");
    // In the form of its example: a group, an application by variable, and nothing that tells the extent of a body.
    let messages = "[coraza]\nspoe-agent coraza-agent\n    groups coraza-req\n    option var-prefix coraza\n    \
        option set-on-error error\n    timeout hello 2s\n    timeout idle 2m\n    timeout processing 500ms\n    \
        use-backend coraza-spoa\n    log global\n\nspoe-message coraza-req\n    args app=var(txn.coraza.app) \
        src-ip=src src-port=src_port dst-ip=dst dst-port=dst_port method=method path=path query=query \
        version=req.ver headers=req.hdrs body=req.body exportRuleIDs=bool(true)\n\nspoe-group coraza-req\n    \
        messages coraza-req\n\n";
    let proxy = scene.ports.fill(
        "defaults\n    mode http\n    timeout client 1m\n    timeout server 1m\n    timeout connect 10s\n\
         frontend default\n    bind 127.0.0.1:8080\n    option http-buffer-request\n    \
         http-request set-var(txn.coraza.app) str(sample_app)\n    filter spoe engine coraza config coraza.cfg\n    \
         http-request send-spoe-group coraza coraza-req\n    \
         http-request deny deny_status 403 hdr waf-block \"%[var(txn.coraza.rule_ids)]\" if { var(txn.coraza.action) -m str deny }\n    \
         http-request deny deny_status 500 if { var(txn.coraza.error) -m int gt 0 }\n    default_backend site\n\
         backend site\n    server site 127.0.0.1:8000\n\
         backend coraza-spoa\n    mode tcp\n    server coraza_spoa 127.0.0.1:7423\n",
    );
    let _haproxy = scene.haproxy(&proxy, messages);
    assert_eq!(scene.status("/?q=benign", &[]), "200");
    assert_eq!(scene.status("/", &["--data", "q=benign"]), "200");
    assert_eq!(scene.status("/", &["--data", "q=../../../../etc/passwd"]), "403");
    let headers = scene.workspace.path("headers");
    assert_eq!(scene.status(ATTACK, &["-D", headers.to_str().expect("text")]), "403");
    let headers = fs::read_to_string(headers).expect("headers");
    assert!(headers.contains("waf-block: ") && headers.contains("949110"), "{headers}");
    assert_eq!(
        scene.status("/", &["-H", "Transfer-Encoding: chunked", "--data", "q=benign"]),
        "403"
    );
}

#[test]
fn responses_are_inspected() {
    let scene = Scene::with(|workspace, ports| {
        let rule = "SecRule RESPONSE_BODY \"@contains a leak\" \"id:1,phase:4,deny,log\"\n";
        workspace.write("leak.conf", rule);
        let text = "listeners: [{ spoe: 127.0.0.1:7423, responses: {}, budget: 2s }]\n\
                    waf: { rules: [leak.conf], response_body: { mime_types: [text/plain] } }\n";
        vec![ports.fill(text)]
    });
    let _haproxy = scene.printed_haproxy(|text| text);
    let text = ["-H", "Content-Type: text/plain", "--data"];
    assert_eq!(scene.status("/echo", &[&text[..], &["harmless"]].concat()), "200");
    assert_eq!(scene.status("/echo", &[&text[..], &["a leak"]].concat()), "403");
    assert_eq!(scene.status("/status/404", &[]), "404");
}

#[test]
fn printed_messages_name_the_first_application() {
    let workspace = Workspace::concurrent();
    workspace.write("a.conf", "SecAction \"id:1,pass,nolog\"");
    workspace.write(
        "waf.yaml",
        "listeners: [{ spoe: '127.0.0.1:0', applications: { shop: {}, blog: {} } }]\nwaf: { rules: [a.conf] }\n",
    );
    let printed = workspace.run(&["waf", "serve", "--print-haproxy", "messages", "waf.yaml"]);
    let printed = stdout(&printed);
    assert!(printed.contains("args app=str(blog) ") && !printed.contains("str(site)"), "{printed}");
}
