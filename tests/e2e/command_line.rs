//! Help texts, invalid input, exit codes.

use crate::support::{Workspace, show, stderr, stdout, two_subjects};

#[test]
fn help_of_every_subcommand() {
    let workspace = Workspace::concurrent();
    let mut commands = vec![Vec::new()];
    while let Some(command) = commands.pop() {
        let arguments: Vec<&str> = command.iter().map(String::as_str).collect();
        let output = workspace.run(&[&arguments[..], &["--help"]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", show(&output));
        let help = stdout(&output);
        for line in help.lines() {
            assert!(line.chars().count() <= 80, "{command:?} --help is wider than 80: {line}");
        }
        // The names under `Commands:`, of which `help` repeats the others.
        let names = help.lines().skip_while(|line| *line != "Commands:").skip(1);
        let names = names.take_while(|line| !line.is_empty());
        let names = names.filter(|line| line.starts_with("  ") && !line.starts_with("   "));
        let names = names.filter_map(|line| line.split_whitespace().next());
        let subcommands = names.filter(|name| *name != "help").map(str::to_owned);
        commands.extend(subcommands.map(|name| [&command[..], &[name]].concat()));
        match &arguments[..] {
            [] => insta::assert_snapshot!(help),
            ["systems" | "waf" | "schema" | "batch"] | ["systems" | "waf", _] => {}
            _ => insta::assert_snapshot!(format!("help-{}", command.join("-")), help),
        }
    }
}

#[test]
fn invalid_input_exits_with_2() {
    let workspace = Workspace::concurrent();
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
    for (arguments, message) in [
        (&["run", "first-lok"][..], "unknown experiment `first-lok`; did you mean `first-look`?"),
        (&["run", "ngnix"], "unknown system `ngnix`; did you mean `nginx`?"),
        (&["run", "-blocks", "5"], "'-blocks': long options have two dashes: --blocks"),
        (&["load", "-disable-keepalive", "a"], "have two dashes: --disable-keepalive"),
        (&["init", "ngnix", "haproxy"], "did you mean `nginx`?"),
        (&["init", "--system", "nginx"], "nginx is a built-in system; choose another name"),
        (&["run", "none.toml"], "cannot read none.toml: No such file or directory"),
        (&["run", "typo.toml"], "typo.toml:3:1: unknown key `basline`; did you mean `baseline`?"),
        (
            &["run", "load.toml"],
            "load.toml:8:47: unknown key `warmpu` in [case.load]; did you mean `warmup`?",
        ),
        (
            &["run", "two.toml", "--only", "ful"],
            "--only ful: unknown subject; did you mean `full`?",
        ),
        (&["run", "two.toml", "--blocks", "0"], "--blocks 0: expected 1 to 1000"),
        (
            &["run", "two.toml", "--threshold", "cpu(ful/nginx)<60"],
            "--threshold: `cpu(ful/nginx)<60`, column 5: the run has no subject `ful`; did you mean `full`?",
        ),
        (
            &["run", "two.toml", "--threshold", "cpu(full/nginx)<60us"],
            "--threshold: `cpu(full/nginx)<60us`, column 19: `us` is not a unit of a ratio; known: `x`, `%`",
        ),
        (&["run", "zero.toml"], "zero.toml:8:74: expected 1ms to 1h, got 0s"),
        (&["run", "verb.toml"], "odd.toml: template `browse`: method contains the byte 0x20"),
        (&["run", "list.toml"], "list.toml:5:1: `case` is a list: write [[case]]"),
        (&["run", "crs.toml"], "crs.toml:17:19: system `nginx-modsecurity` has no option `rule`"),
        (&["run", "cpus.toml"], "[cpus] gives CPU 0 to the system and to another role"),
        (&["run", "two.toml", "--out", "taken"], "taken exists and is not empty"),
        (&["run", "two.toml", "--out", "a\"b"], "has a quote"),
        (
            &["run", "two.toml", "--out", "two.toml"],
            "two.toml is a file, not a directory; choose another --out",
        ),
        (
            &["search", "two.toml", "--goal", "p99<5ms", "--out", "two.toml/out"],
            "two.toml is a file, not a directory; choose another --out",
        ),
        (
            &["run", "two.toml", "--budget", "ten"],
            "`ten` is not a duration such as \"10s\" or \"400ms\"",
        ),
        (&["run", "--block", "3"], "a similar argument exists: '--blocks'"),
        (&["run", "--catalog", "nowhere"], "--catalog: no such folder: nowhere"),
        (&["report", "nowhere"], "no directory nowhere"),
        (
            &["report", "taken/precious"],
            "taken/precious is a file, not a directory; name the directory of a run",
        ),
        (&["report", "emptied"], "emptied/manifest.json:1 is damaged; restore"),
        (&["compare", "nowhere", "."], "no directory nowhere"),
        (
            &["run", "rate.toml"],
            "rate.toml:8:34: expected a rate above 0 and at most 10000000, got 0",
        ),
        (&["search", "--goal", "p98<5ms"], "`p98<5ms`, column 1: unknown metric `p98`"),
        (&["search"], "--goal <GOALS>"),
        (
            &["search", "two.toml", "--goal", "p99<5ms", "--width", "0.5%"],
            "--width must be from 1% to 100%, not 0.5%",
        ),
        (&["load", "http://127.0.0.1:99999/", "-n", "1"], "the port must be at most 65535"),
        (&["load", "http://127.0.0.1/", "-q", "9"], "unexpected option '-q': use --rate N"),
        (
            &["load", "http://127.0.0.1/", "-n", "1", "-c", "1", "-t", "2"],
            "cannot use 1 connections for 2 threads",
        ),
        (&["report", "."], ". is not the directory of a run: it has no manifest.json"),
        (
            &["run", "--resume", "early"],
            "early is the directory of a run that ended before its first trial",
        ),
        (&["load", "http://192.0.2.7/", "-n", "1"], "--allow-host 192.0.2.7"),
        (&["load", "ftp://127.0.0.1/", "-n", "1"], "scheme ftp is not supported, use http"),
    ] {
        let output = workspace.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", show(&output));
        assert!(stderr(&output).contains(message), "{arguments:?}: {}", show(&output));
        assert!(!stderr(&output).contains("as a value"), "{}", show(&output));
        assert_eq!(stdout(&output), "", "errors belong to standard error");
    }
    assert_eq!(workspace.read("taken/precious"), "data");
    assert!(!workspace.path("a\"b").exists(), "the directory is created");
}

#[test]
#[cfg_attr(
    not(feature = "e2e"),
    ignore = "needs nginx and a build of ModSecurity; add `--features e2e`"
)]
fn list_and_doctor_show_systems() {
    let workspace = Workspace::concurrent();
    let list = stdout(&workspace.run(&["list"]));
    for word in [
        "first-look",
        "modsecurity",
        "nginx-modsecurity",
        "installed: nginx version:",
        // No system uses it by default.
        "Core Rule Set not in use",
        "rules = \"crs\": OWASP_CRS/4.25.0",
        "in_band = \"crs\": OWASP_CRS/4.25.0",
        "browse",
    ] {
        assert!(list.contains(word), "no {word:?} in:\n{list}");
    }
    assert!(!list.contains("no Core Rule Set"), "{list}");
    let output = workspace.run(&["doctor"]);
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    for word in
        ["CPUs", "open files", "clock", "hypervisor", "steal", "pressure", "A run is possible"]
    {
        assert!(stdout(&output).contains(word), "no {word:?} in:\n{}", stdout(&output));
    }
}

#[test]
fn doctor_exits_with_1_on_one_cpu() {
    let workspace = Workspace::concurrent();
    let mut command = std::process::Command::new("taskset");
    command.args(["-c", "0"]).arg(assert_cmd::cargo::cargo_bin!("tollgate")).arg("doctor");
    let output = command.output().expect("taskset");
    assert_eq!(output.status.code(), Some(1), "{}", show(&output));
    assert!(stdout(&output).contains("FAIL  CPUs"), "{}", show(&output));
    assert!(stdout(&output).contains("-> give the machine or container a second CPU"));
    workspace.assert_nothing_runs();
}
