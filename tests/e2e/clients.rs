//! Foreign clients in `tollgate run`: wrk, ab and h2load.

use crate::support::{Workspace, flat, show, stderr, stdout, without_limits};
use serde_json::Value;

const MIX: &str = "title = \"x\"\nheaders = [\"Host: shop.example\"]\n[[template]]\nname = \"page\"\nclass = \"benign\"\nweight = 1\n\
    path = \"/?payload=100\"\nexpect = { status = 200 }\n";

fn case(name: &str, protocol: &str, load: &str) -> String {
    format!(
        "[[case]]\nname = \"{name}\"\nmix = \"page.toml\"\nprotocol = \"{protocol}\"\n\
         load = {{ connections = 4, warmup = \"50ms\", busy_poll = false, {load} }}\n"
    )
}

fn experiment(cases: &str, subjects: &str) -> String {
    format!("title = \"x\"\nbaseline = \"nginx\"\n[design]\nblocks = 1\n{cases}{subjects}")
}

const NGINX: &str = "[[subject]]\nname = \"nginx\"\nsystem = \"nginx\"\n";

#[test]
fn wrk_ab_and_h2load_send_the_load() {
    let workspace = Workspace::quiet();
    workspace.write("page.toml", MIX);
    let cases = [
        case("wrk", "h1", "client = \"wrk\", duration = \"1s\""),
        case("wrk-close", "https", "client = \"wrk\", duration = \"1s\", keepalive = false"),
        case("ab", "h1", "client = \"ab\", requests = 700"),
        case("h2load", "https-h2", "client = \"h2load\", requests = 600, streams = 3"),
        case("h2load-h1", "h1", "client = \"h2load\", duration = \"1s\""),
    ];
    workspace.write("clients.toml", &experiment(&cases.concat(), NGINX));
    let output = workspace.run(&without_limits(&["run", "clients.toml", "--out", "out"]));
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    let table = flat(&stdout(&output));
    assert!(table.contains("h2load (`h2load nghttp2/"), "{table}");
    assert!(table.contains("sent the load of nginx in h2load, nginx in h2load-h1."), "{table}");

    let records = workspace.records();
    assert_eq!(records.len(), 5);
    for record in records {
        let name = record["case"].as_str().expect("a case");
        let measured = &record["outcome"]["measured"];
        assert_eq!(measured["invalid"], Value::Array(vec![]), "{record:#}");
        let client = name.split('-').next().expect("a name");
        assert_eq!(measured["client"]["name"], client, "{record:#}");
        let command = measured["client"]["command"].as_array().expect("a command");
        assert!(command[0].as_str().expect("a path").ends_with(client), "{record:#}");
        let count = |value: &Value| value.as_u64().expect("a count");
        let responses = count(&measured["responses"]);
        match name {
            "ab" => assert_eq!(responses, 700),
            "h2load" => assert_eq!(responses, 600),
            _ => assert!(responses > 0, "{record:#}"),
        }
        assert!(measured["throughput_per_s"].as_f64() > Some(0.0), "{record:#}");
        // The client and nginx have worked, and their time is that of nobody else.
        for role in ["generator", "system"] {
            let cpu = &measured["cpu"][role];
            assert!(count(&cpu["user_us"]) + count(&cpu["system_us"]) > 0, "{record:#}");
        }
        let latency = &measured["latency"];
        let known = if client == "h2load" { "mean_ms" } else { "p50_ms" };
        assert!(latency[known].as_f64() > Some(0.0), "{record:#}");
        assert!(latency.get("histogram_v2_base64").is_none(), "{record:#}");
    }
    workspace.assert_nothing_runs();
}

#[test]
fn subjects_of_a_case_have_clients_of_their_own() {
    let workspace = Workspace::quiet();
    workspace.write("page.toml", MIX);
    let by_wrk = "[[subject]]\nname = \"wrk\"\nsystem = \"nginx\"\nclient = \"wrk\"\n";
    let case = case("page", "h1", "duration = \"1s\"");
    workspace.write("clients.toml", &experiment(&case, &format!("{NGINX}{by_wrk}")));
    let run = without_limits(&["run", "clients.toml", "--out", "out"]);
    let run = [&run[..], &["--threshold", "generator_cpu(nginx)>0us"]].concat();
    let output = workspace.run(&run);
    // One block gives no interval.
    assert_eq!(output.status.code(), Some(75), "{}", show(&output));
    let clients: Vec<(Value, Value)> = workspace
        .records()
        .into_iter()
        .map(|mut record| {
            let client = record["outcome"]["measured"]["client"]["name"].take();
            (record["subject"].take(), client)
        })
        .collect();
    assert!(clients.contains(&("nginx".into(), Value::Null)), "{clients:?}");
    assert!(clients.contains(&("wrk".into(), "wrk".into())), "{clients:?}");
}

#[test]
fn response_that_a_client_does_not_expect_makes_a_trial_invalid() {
    let workspace = Workspace::quiet();
    workspace.write("page.toml", MIX);
    // Half of the responses, after one to the readiness check and one to the probe.
    workspace.write(
        "fails.conf",
        "daemon off;\npid \"{{ dir }}/nginx.pid\";\nerror_log stderr error;\nevents {}\nhttp {\n\
         split_clients \"$request_id\" $fails { 50% 1; * \"\"; }\nmap \"$http_user_agent$fails\" $now { ~ApacheBench.*1 1; default \"\"; }\n\
         server { listen {{ listen.address }}; location / { if ($now) { return 404; } proxy_pass http://{{ origin.address }}; } }\n}\n",
    );
    let subjects = format!("{NGINX}with = {{ config = \"fails.conf\" }}\n");
    let case = case("ab", "h1", "client = \"ab\", requests = 400");
    workspace.write("clients.toml", &experiment(&case, &subjects));
    let output = workspace.run(&without_limits(&["run", "clients.toml", "--out", "out"]));
    assert_eq!(output.status.code(), Some(4), "{}", show(&output));
    let measured = &workspace.records()[0]["outcome"]["measured"];
    let unexpected = measured["unexpected"].as_u64().expect("a count");
    assert!((100..=400).contains(&unexpected), "{measured:#}");
    assert_eq!(measured["invalid"][0]["example"], "`page`: counted by ab", "{measured:#}");
}

#[test]
fn missing_client_is_named_with_its_package() {
    let workspace = Workspace::concurrent();
    workspace.write("page.toml", MIX);
    let case = case("page", "h1", "client = \"wrk\", duration = \"1s\"");
    workspace.write("clients.toml", &experiment(&case, NGINX));
    let mut command = workspace.command(&["run", "clients.toml", "--out", "out"]);
    let output = command.env("PATH", "/usr/sbin:/sbin").output().expect("tollgate");
    assert_eq!(output.status.code(), Some(2), "{}", show(&output));
    assert_eq!(
        flat(&stderr(&output)),
        "tollgate: no program `wrk`, the client of a load; install it: apt-get install -y wrk"
    );
    assert!(!workspace.path("out/trials.ndjson").exists());
}
