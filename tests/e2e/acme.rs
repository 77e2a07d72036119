//! Certificates that an authority issues: `tollgate gateway` and Pebble.

use crate::gateway::GatewayProcess;
use crate::go_ftw::go;
use crate::support::{Started, Workspace, show, wait_until};
use nix::sys::signal::Signal;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;
use std::time::Duration;
use tollgate_tls::SelfSigned;

/// Longer than the pause after a failed order.
const PATIENCE: Duration = Duration::from_secs(150);
/// Key and identifier of an account, as authorities give them.
const EXTERNAL: [&str; 2] =
    ["kid-1", "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W"];

/// A running authority.
struct Authority {
    _child: Started,
    /// URL of its directory.
    directory: String,
}

impl Authority {
    /// It asks for proofs on these ports of 127.0.0.1, and its certificates are valid for some seconds.
    fn start(
        workspace: &Workspace,
        http_port: &str,
        tls_port: &str,
        validity: &str,
        external: &[&str],
    ) -> Self {
        let certificate = SelfSigned::new(&["127.0.0.1"]).expect("a certificate");
        certificate.write(&workspace.path("authority")).expect("files");
        let mut child = Command::new(program())
            .args([workspace.path("authority.pem"), workspace.path("authority.key")])
            .args([http_port, tls_port, validity])
            .args(external)
            .env("PEBBLE_VA_NOSLEEP", "1")
            // A client may give up after the third rejected nonce, which happens.
            .env("PEBBLE_WFE_NONCEREJECT", "0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(workspace.path("authority.log")).expect("a file"))
            .spawn()
            .map(Started::new)
            .expect("it starts");
        let mut directory = String::new();
        let output = child.stdout.take().expect("its output");
        BufReader::new(output).read_line(&mut directory).expect("a line");
        Self { _child: child, directory: directory.trim().to_owned() }
    }
}

fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("acme");
        go("tests/acme", &["build", "-o", program.to_str().expect("UTF-8"), "."]);
        program
    })
}

/// `openssl s_client`, which sends nothing.
fn s_client(address: &str, name: &str, more: &[&str]) -> Output {
    let arguments = ["s_client", "-connect", address, "-servername", name];
    let command = Command::new("openssl").args(arguments).args(more).stdin(Stdio::null()).output();
    command.expect("openssl; run make packages")
}

/// Serial number, issuer and names of the certificate that a client with this name gets, if it gets one.
fn certificate(workspace: &Workspace, address: &str, name: &str) -> Option<String> {
    let output = s_client(address, name, &[]);
    if !output.status.success() {
        return None;
    }
    fs::write(workspace.path("seen"), &output.stdout).expect("a file");
    let output = Command::new("openssl")
        .args(["x509", "-noout", "-serial", "-issuer", "-ext", "subjectAltName", "-in"])
        .arg(workspace.path("seen"))
        .output()
        .expect("openssl");
    assert!(output.status.success(), "{}", show(&output));
    Some(String::from_utf8(output.stdout).expect("UTF-8"))
}

fn configuration(listeners: &str, acme: &str) -> String {
    format!(
        "listeners: {listeners}\nroutes: [{{ respond: {{ status: 200, body: fine }} }}]\nadmin: '127.0.0.1:0'\n{acme}"
    )
}

/// The page of the admin server, whose address is the next line.
fn metrics(gateway: &GatewayProcess) -> String {
    let admin = gateway.printed.recv_timeout(PATIENCE).expect("a line");
    let admin = admin.strip_prefix("admin on ").expect("an address");
    let page = Command::new("curl").args(["-sS", &format!("{admin}/metrics")]).output();
    String::from_utf8(page.expect("curl").stdout).expect("UTF-8")
}

fn port(address: &str) -> &str {
    address.rsplit(':').next().expect("a port")
}

fn wait_for_message(gateway: &GatewayProcess, part: &str) -> String {
    loop {
        let message = gateway.message_within(PATIENCE);
        if message.contains(part) {
            return message;
        }
    }
}

#[test]
fn certificate_is_issued_in_handshakes_and_kept_over_a_restart() {
    let workspace = Workspace::concurrent();
    workspace.write("gateway.yaml", &configuration("[{ address: '127.0.0.1:0' }]", ""));
    let gateway = GatewayProcess::start(&workspace);
    let authority = Authority::start(&workspace, "1", port(&gateway.address), "86400", &[]);
    let tls = "tls: { certificates: [{ acme: [One.test, two.test] }] }";
    let listeners = format!("[{{ address: '127.0.0.1:0', {tls} }}]");
    let acme = format!(
        "acme: {{ agree_to_terms: true, state: state, directory: '{}', ca: authority.pem, contact: a@one.test }}\n",
        authority.directory
    );
    workspace.write("gateway.yaml", &configuration(&listeners, &acme));
    gateway.signal(Signal::SIGHUP);
    wait_for_message(&gateway, "the certificate of one.test, two.test was issued, until 20");
    let seen = certificate(&workspace, &gateway.address, "two.test").expect("a certificate");
    assert!(seen.contains("DNS:one.test, DNS:two.test") && seen.contains("Pebble"), "{seen}");
    // Handshakes for a proof are complete before their connections end.
    let failed = "tollgate_gateway_tls_handshakes_total{";
    let page = metrics(&gateway);
    let mut failed =
        page.lines().filter(|line| line.starts_with(failed) && line.contains("result=\"failed\""));
    assert!(failed.next().is_some_and(|line| line.ends_with(" 0")), "{page}");
    // No proof is shown any more, neither for a name of the certificate nor for another one.
    for name in ["one.test", "other.test"] {
        let refused = s_client(&gateway.address, name, &["-alpn", "acme-tls/1"]);
        assert!(!refused.status.success(), "{}", show(&refused));
    }
    // A reload changes nothing.
    gateway.signal(Signal::SIGHUP);
    wait_for_message(&gateway, "reloaded");
    assert_eq!(certificate(&workspace, &gateway.address, "one.test").as_ref(), Some(&seen));
    // With other names, the site goes on until the authority, which is not there, issues another certificate.
    drop(authority);
    let more = configuration(&listeners.replace("One.test", "new.test, One.test"), &acme);
    workspace.write("gateway.yaml", &more);
    gateway.signal(Signal::SIGHUP);
    wait_for_message(&gateway, "no certificate of new.test, one.test, two.test was issued");
    assert_eq!(certificate(&workspace, &gateway.address, "one.test").as_ref(), Some(&seen));
    workspace.write("gateway.yaml", &configuration(&listeners, &acme));
    gateway.signal(Signal::SIGTERM);
    assert_eq!(gateway.wait(), Some(0));

    // Nobody but the owner can read the keys.
    let folder = fs::read_dir(workspace.path("state")).expect("it is there").next();
    let folder = folder.expect("an authority").expect("a folder").path();
    let files = fs::read_dir(folder).expect("it is a folder").map(|file| file.expect("a file"));
    let mut files: Vec<_> = files
        .map(|file| (file.file_name(), file.metadata().expect("it is there").permissions().mode()))
        .collect();
    files.sort();
    let expected = ["account.json", "one.test.pem"].map(|name| (name.into(), 0o100_600));
    assert_eq!(files, expected);

    // Another gateway starts with the certificate, without the authority.
    let gateway = GatewayProcess::start(&workspace);
    assert_eq!(certificate(&workspace, &gateway.address, "one.test"), Some(seen));
    assert!(metrics(&gateway).contains("certificate_orders_total{result=\"failed\"} 0\n"));
}

#[test]
fn certificate_is_renewed_while_the_gateway_runs() {
    let workspace = Workspace::concurrent();
    workspace.write("gateway.yaml", &configuration("[{ address: '127.0.0.1:0' }]", ""));
    let gateway = GatewayProcess::start(&workspace);
    // Renewed after two to four seconds.
    let authority = Authority::start(&workspace, "1", port(&gateway.address), "6", &[]);
    let tls = "tls: { certificates: [{ acme: [one.test] }] }";
    let listeners = format!("[{{ address: '127.0.0.1:0', {tls} }}]");
    let acme = format!(
        "acme: {{ agree_to_terms: true, state: state, directory: '{}', ca: authority.pem }}\n",
        authority.directory
    );
    workspace.write("gateway.yaml", &configuration(&listeners, &acme));
    gateway.signal(Signal::SIGHUP);
    wait_for_message(&gateway, "was issued");
    let first = certificate(&workspace, &gateway.address, "one.test").expect("a certificate");
    let is_another = || {
        let seen = certificate(&workspace, &gateway.address, "one.test");
        seen.expect("there is always one") != first
    };
    assert!(wait_until(PATIENCE, is_another), "{first}");
}

#[test]
fn certificate_is_issued_over_http_for_an_account_outside_of_acme() {
    let workspace = Workspace::concurrent();
    let plain = "[{ address: '127.0.0.1:0' }]";
    workspace.write("gateway.yaml", &configuration(plain, ""));
    let gateway = GatewayProcess::start(&workspace);
    let authority = Authority::start(&workspace, port(&gateway.address), "1", "86400", &EXTERNAL);
    workspace.write("mac.key", EXTERNAL[1]);
    let listeners = "[{ address: '127.0.0.1:0' }, { address: '127.0.0.2:0', tls: { certificates: [{ acme: [one.test] }] } }]";
    let acme = |account: &str| {
        format!(
            "acme: {{ agree_to_terms: true, state: state, directory: '{}', ca: authority.pem, challenge: http-01{account} }}\n",
            authority.directory
        )
    };
    // The authority asks for an account.
    workspace.write("gateway.yaml", &configuration(listeners, &acme("")));
    gateway.signal(Signal::SIGHUP);
    let message = wait_for_message(&gateway, "no certificate of one.test was issued");
    assert!(message.contains("trying again in 1m: ") && message.contains("xternal"), "{message}");
    let account = ", external_account: { id: kid-1, key: mac.key }";
    workspace.write("gateway.yaml", &configuration(listeners, &acme(account)));
    gateway.signal(Signal::SIGHUP);
    wait_for_message(&gateway, "the certificate of one.test was issued");
    // Its own paths below that of proofs belong to the site.
    let other = gateway.get("/.well-known/acme-challenge/other");
    assert!(other.ends_with("fine"), "{other}");
}

#[test]
fn failed_check_is_reported_with_the_words_of_the_authority() {
    let workspace = Workspace::concurrent();
    // It asks another server, which has no proof.
    workspace.write("other.yaml", &configuration("[{ address: '127.0.0.1:0' }]", ""));
    let other = GatewayProcess::start_with(&workspace, &["gateway", "other.yaml"]);
    let authority = Authority::start(&workspace, port(&other.address), "1", "86400", &[]);
    let listeners = "[{ address: '127.0.0.1:0' }, { address: '127.0.0.2:0', tls: { certificates: [{ acme: [one.test] }] } }]";
    let acme = format!(
        "acme: {{ agree_to_terms: true, state: state, directory: '{}', ca: authority.pem, challenge: http-01 }}\n",
        authority.directory
    );
    workspace.write("gateway.yaml", &configuration(listeners, &acme));
    let gateway = GatewayProcess::start(&workspace);
    let https = gateway.printed.recv_timeout(PATIENCE).expect("a line");
    let https = https.strip_prefix("listening on https://").expect("an address").to_owned();
    let message = wait_for_message(&gateway, "no certificate of one.test was issued");
    assert!(message.contains("could not check the names: one.test: "), "{message}");
    assert!(message.contains("authorization"), "{message}");
    // Clients are refused rather than given a certificate that they cannot trust.
    assert_eq!(certificate(&workspace, &https, "one.test"), None);
    let page = metrics(&gateway);
    for sample in [
        "certificate_orders_total{result=\"failed\"} 1\n",
        "certificate_expiry_timestamp_seconds{names=\"one.test\"} 0\n",
    ] {
        assert!(page.contains(&format!("tollgate_gateway_{sample}")), "{page}");
    }
}
