//! The command line itself: help, bad input, exit codes.

use crate::experiment::two_subjects;
use crate::support::{Workspace, stderr, stdout, told, wait_until};
use std::net::TcpListener;
use std::time::Duration;

#[test]
fn help_names_every_subcommand_and_every_exit_code() {
    let workspace = Workspace::beside_others();
    let help = stdout(&workspace.run(&["--help"]));
    insta::assert_snapshot!(help);
    let subcommands =
        ["run", "search", "report", "compare", "list", "doctor", "load", "origin", "gateway"];
    for subcommand in subcommands {
        let output = workspace.run(&[subcommand, "--help"]);
        assert_eq!(output.status.code(), Some(0));
        insta::assert_snapshot!(format!("help-{subcommand}"), stdout(&output));
    }
    for subcommand in ["run", "stats", "find"] {
        let output = workspace.run(&["batch", subcommand, "--help"]);
        assert_eq!(output.status.code(), Some(0));
        insta::assert_snapshot!(format!("help-batch-{subcommand}"), stdout(&output));
    }
}

#[test]
fn bad_input_exits_with_2_and_says_what_to_do() {
    let workspace = Workspace::beside_others();
    workspace.write("two.toml", &two_subjects());
    workspace.write("typo.toml", &two_subjects().replace("baseline ", "basline "));
    workspace.write("load.toml", &two_subjects().replace("warmup", "warmpu"));
    workspace.write("zero.toml", &two_subjects().replace("50ms\"", "50ms\", timeout = \"0s\""));
    workspace.write("verb.toml", &two_subjects().replace("\"browse\"\nload", "\"odd.toml\"\nload"));
    workspace.write(
        "odd.toml",
        "title = 'odd'\nheaders = ['Host: a']\n[[template]]\nname = 'browse'\nclass = 'benign'
        weight = 1\npath = '/'\nmethod = 'GET IT'",
    );
    workspace.write("rate.toml", &two_subjects().replace("= 4,", "= 4, rate = 0,"));
    workspace.write("list.toml", &two_subjects().replace("[[case]]", "[case]"));
    workspace.write("crs.toml", &two_subjects().replace("rules =", "rule ="));
    let shared = "[cpus]\ngenerator = [0]\norigin = [0]\nsystem = [0]\n";
    workspace.write("cpus.toml", &format!("{}{shared}", two_subjects()));
    workspace.write("taken/precious", "data");
    workspace.write("early/trials.ndjson", "");
    workspace.write("emptied/manifest.json", "");
    for (arguments, told_line) in [
        (
            &["run", "first-lok"][..],
            "there is no experiment `first-lok`; did you mean `first-look`?",
        ),
        (&["run", "none.toml"], "reading none.toml: No such file or directory"),
        (&["run", "typo.toml"], "typo.toml:3:1: unknown key `basline`; did you mean `baseline`?"),
        (
            &["run", "load.toml"],
            "load.toml:8:47: unknown key `warmpu` in [case.load]; did you mean `warmup`?",
        ),
        (
            &["run", "two.toml", "--only", "ful"],
            "--only ful: there is no such subject; did you mean `full`?",
        ),
        (&["run", "two.toml", "--blocks", "0"], "--blocks 0: it has to be between 1 and 1000"),
        (
            &["run", "two.toml", "--threshold", "cpu(ful/nginx)<60"],
            "--threshold: `cpu(ful/nginx)<60`, column 5: the run has no subject `ful`; did you mean `full`?",
        ),
        (
            &["run", "two.toml", "--threshold", "cpu(full/nginx)<60us"],
            "--threshold: `cpu(full/nginx)<60us`, column 19: `us` is no unit of a ratio; there is `x`, `%`",
        ),
        (&["run", "zero.toml"], "zero.toml:8:74: 0s: it has to be between 1ms and 1h"),
        (&["run", "verb.toml"], "odd.toml: template `browse`: the method has the byte 0x20"),
        (&["run", "list.toml"], "list.toml:5:1: there may be several of `case`: write [[case]]"),
        (&["run", "crs.toml"], "crs.toml:17:19: system `nginx-modsecurity` has no option `rule`"),
        (&["run", "cpus.toml"], "[cpus] gives CPU 0 to the system and to what measures it"),
        (&["run", "two.toml", "--out", "taken"], "taken is there already and is not empty"),
        (&["run", "two.toml", "--out", "a\"b"], "holds a quote"),
        (
            &["run", "two.toml", "--out", "two.toml"],
            "two.toml is a file, not a directory; choose another --out",
        ),
        (
            &["search", "two.toml", "--slo", "p99<5ms", "--out", "two.toml/out"],
            "two.toml is a file, not a directory; choose another --out",
        ),
        (
            &["run", "two.toml", "--budget", "ten"],
            "`ten` is not a duration such as \"10s\" or \"400ms\"",
        ),
        (&["run", "--catalog", "nowhere"], "--catalog nowhere: there is no such folder"),
        (&["report", "nowhere"], "there is no directory nowhere"),
        (
            &["report", "taken/precious"],
            "taken/precious is a file, not a directory; name the directory of a run",
        ),
        (
            &["report", "emptied"],
            "emptied/manifest.json:1 is not what tollgate wrote there; put back",
        ),
        (&["compare", "nowhere", "."], "there is no directory nowhere"),
        (&["run", "rate.toml"], "rate.toml:8:34: 0: it has to be above 0 and at most 10000000"),
        (
            &["search", "--slo", "p98<5ms"],
            "`p98<5ms`: there is no figure `p98`; did you mean `p90`?",
        ),
        (&["search"], "--slo <GOALS>"),
        (
            &["search", "two.toml", "--slo", "p99<5ms", "--width", "0.5%"],
            "--width 0.5%: it has to be from 1% to 100%",
        ),
        (&["load", "http://127.0.0.1:99999/", "-n", "1"], "a number up to 65535"),
        (&["load", "http://127.0.0.1/"], "<--requests <N>|--duration <TIME>>"),
        (
            &["load", "http://127.0.0.1/", "-n", "1", "-c", "1", "-t", "2"],
            "2 threads need at least 2",
        ),
        (&["report", "."], ". is not a run's directory: it has no manifest.json"),
        (&["run", "--resume", "early"], "early holds a run that ended before its first trial"),
        (&["load", "http://192.0.2.7/", "-n", "1"], "--allow-host 192.0.2.7"),
        (&["load", "ftp://127.0.0.1/", "-n", "1"], "only http is spoken here, not ftp"),
    ] {
        let output = workspace.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", told(&output));
        assert!(stderr(&output).contains(told_line), "{arguments:?}: {}", told(&output));
        assert_eq!(stdout(&output), "", "errors go to standard error");
    }
    assert_eq!(workspace.read("taken/precious"), "data");
    assert!(!workspace.path("a\"b").exists(), "a directory that cannot be used is not made");
}

#[test]
fn list_and_doctor_tell_what_there_is() {
    let workspace = Workspace::beside_others();
    let list = stdout(&workspace.run(&["list"]));
    for word in [
        "first-look",
        "modsecurity",
        "nginx-modsecurity",
        "installed: nginx version:",
        // No system has it in use by default.
        "Core Rule Set not in use",
        "rules = \"crs\": OWASP_CRS/4.25.0",
        "in_band = \"crs\": OWASP_CRS/4.25.0",
        "browse",
    ] {
        assert!(list.contains(word), "no {word:?} in:\n{list}");
    }
    assert!(!list.contains("no Core Rule Set"), "{list}");
    let output = workspace.run(&["doctor"]);
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    for word in
        ["CPUs", "open files", "clock", "hypervisor", "steal", "pressure", "A run is possible"]
    {
        assert!(stdout(&output).contains(word), "no {word:?} in:\n{}", stdout(&output));
    }
}

#[test]
fn doctor_exits_with_1_where_no_run_is_possible() {
    let workspace = Workspace::beside_others();
    let mut command = std::process::Command::new("taskset");
    command.args(["-c", "0"]).arg(assert_cmd::cargo::cargo_bin!("tollgate")).arg("doctor");
    let output = command.output().expect("taskset");
    assert_eq!(output.status.code(), Some(1), "{}", told(&output));
    assert!(stdout(&output).contains("FAIL  CPUs"), "{}", told(&output));
    assert!(stdout(&output).contains("-> give the machine or container a second CPU"));
    workspace.assert_nothing_runs();
}

#[test]
fn an_origin_says_where_it_listens_stops_on_term_and_names_a_port_in_use() {
    use std::io::{BufRead, BufReader};
    let workspace = Workspace::beside_others();
    let mut child = workspace.start(&["origin", "--listen", "127.0.0.1:0"]);
    let mut line = String::new();
    let mut printed = BufReader::new(child.stdout.take().expect("its output"));
    printed.read_line(&mut line).expect("a line");
    let address = line.trim().strip_prefix("listening on http://").expect("an address").to_owned();
    let second = workspace.run(&["origin", "--listen", &address]);
    assert_eq!(second.status.code(), Some(1), "{}", told(&second));
    assert!(
        stderr(&second).contains(&address) && stderr(&second).contains("in use"),
        "{}",
        told(&second)
    );
    let pid = nix::unistd::Pid::from_raw(child.id().cast_signed());
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("it runs");
    let ended = std::cell::RefCell::new(child);
    let gone = wait_until(Duration::from_secs(5), || {
        ended.borrow_mut().try_wait().expect("its end").is_some_and(|status| status.success())
    });
    assert!(gone, "it did not stop with 0");
    TcpListener::bind(&address).expect("the port is free again");
}
