//! The gateway as an HTTP/2 server, checked by h2spec.

use crate::gateway::GatewayProcess;
use crate::go_ftw::go;
use crate::origin::OriginProcess;
use crate::support::{Workspace, show};
use std::path::Path;
use std::process::Command;

/// docs/gateway.md: a listener without TLS answers anything but the preface in HTTP/1.1.
const FAILS_IN_THE_CLEAR: &str = "Sends invalid connection preface";
const TESTS: usize = 145;

/// Runs h2spec on a gateway. Returns the number of passed tests, and the other ones.
fn run(
    program: &Path,
    workspace: &Workspace,
    listener: &str,
    options: &[&str],
) -> (usize, Vec<String>) {
    let origin = OriginProcess::start(workspace, &["127.0.0.1:0"]);
    let backend = origin.listens_on.strip_prefix("http://").expect("an address");
    let config = format!(
        "listeners: [{{ address: '127.0.0.1:0', {listener} }}]
pools: [{{ name: origin, backends: [{{ address: '{backend}' }}] }}]
"
    );
    workspace.write("gateway.yaml", &config);
    let gateway = GatewayProcess::start(workspace);
    let port = gateway.address.rsplit(':').next().expect("a port");
    let report = workspace.path("report.xml");
    let mut command = Command::new(program);
    command.args(["--timeout", "10", "--port", port, "--junit-report"]).arg(&report).args(options);
    let output = command.output().expect("h2spec runs");
    assert!(report.exists(), "{}", show(&output));

    let report = workspace.read("report.xml");
    let (mut passed, mut others) = (0, Vec::new());
    for case in report.split("<testcase ").skip(1) {
        let case = case.split("</testcase>").next().expect("its text");
        if ["<failure", "<error", "<skipped"].iter().any(|kind| case.contains(kind)) {
            let name = case.split("classname=\"").nth(1).and_then(|rest| rest.split('"').next());
            others.push(name.expect("a name").to_owned());
        } else {
            passed += 1;
        }
    }
    (passed, others)
}

#[test]
fn h2spec_passes_but_for_an_invalid_preface_in_the_clear() {
    let workspace = Workspace::concurrent();
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("h2spec");
    let package = "github.com/summerwind/h2spec/cmd/h2spec";
    go("tests/h2spec", &["build", "-o", program.to_str().expect("UTF-8"), package]);
    let site = concat!(env!("CARGO_MANIFEST_DIR"), "/../gateway/tests/gateway/certificates/site");
    let tls =
        format!("tls: {{ certificates: [{{ certificate: '{site}.pem', key: '{site}.key' }}] }}");
    let over_tls = run(&program, &workspace, &tls, &["--tls", "--insecure"]);
    assert_eq!(over_tls, (TESTS, Vec::new()));
    let in_the_clear = run(&program, &workspace, "http2: true", &[]);
    assert_eq!(in_the_clear, (TESTS - 1, vec![FAILS_IN_THE_CLEAR.to_owned()]));
}
