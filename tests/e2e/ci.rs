//! `action.yml` and `ci/gitlab.yml`: their scripts, run as GitHub and GitLab run them, with a stand-in of gh.

use crate::support::{Experiment, Workspace, show, stdout};
use assert_cmd::cargo::cargo_bin;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

#[derive(Debug, Deserialize)]
struct Action {
    inputs: BTreeMap<String, Input>,
    outputs: BTreeMap<String, ActionOutput>,
    runs: Runs,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Input {
    description: String,
    default: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ActionOutput {
    description: String,
    value: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Runs {
    using: String,
    steps: Vec<Step>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Step {
    name: String,
    #[serde(default)]
    id: String,
    #[serde(rename = "if")]
    condition: Option<String>,
    shell: String,
    env: BTreeMap<String, String>,
    run: String,
}

#[derive(Debug, Deserialize)]
struct Gitlab {
    #[serde(rename = ".tollgate")]
    tollgate: GitlabJob,
}

#[derive(Debug, Deserialize)]
struct GitlabJob {
    variables: BTreeMap<String, String>,
    script: Vec<String>,
    allow_failure: AllowFailure,
    artifacts: Artifacts,
}

#[derive(Debug, Deserialize)]
struct AllowFailure {
    exit_codes: Vec<i32>,
}

#[derive(Debug, Deserialize)]
struct Artifacts {
    when: String,
    paths: Vec<String>,
    reports: BTreeMap<String, String>,
}

fn repository() -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    path.canonicalize().expect("the repository")
}

/// A runner of actions: what GitHub knows of a job, by the names in expressions.
struct Runner<'a> {
    workspace: &'a Workspace,
    context: BTreeMap<String, String>,
}

/// The end of a job.
struct Job {
    /// Exit codes of the steps that ran, by name.
    steps: BTreeMap<String, i32>,
    outputs: BTreeMap<String, String>,
    log: String,
}

impl Job {
    fn has_failed(&self) -> bool {
        self.steps.values().any(|code| *code != 0)
    }

    fn output(&self, name: &str) -> &str {
        self.outputs.get(name).map_or("", String::as_str)
    }
}

impl<'a> Runner<'a> {
    /// A job for pull request 7 of a repository.
    fn new(workspace: &'a Workspace) -> Self {
        write_program(workspace, "bin/gh", GH);
        let context = [
            ("github.token", "secret"),
            ("github.action_repository", ""),
            ("github.server_url", "https://github.invalid"),
            ("github.event.pull_request.number", "7"),
            ("github.event.pull_request.head.repo.full_name", "owner/name"),
        ];
        let context = context.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Self { workspace, context: context.into() }
    }

    fn set(&mut self, name: &str, value: &str) {
        self.context.insert(name.to_owned(), value.to_owned()).expect("a known name");
    }

    /// Runs the action with these inputs and the default of the others.
    fn run(&self, inputs: &[(&str, &str)]) -> Job {
        let Action { inputs: known, outputs, runs } = action();
        let mut context = self.context.clone();
        for (name, input) in &known {
            let given = inputs.iter().find(|(given, _)| given == name);
            let value = given.map_or_else(|| fill(&input.default, &context), |it| it.1.to_owned());
            context.insert(format!("inputs.{name}"), value);
        }
        for (name, _) in inputs {
            assert!(known.contains_key(*name), "the action has no input {name}");
        }
        let mut job = Job { steps: BTreeMap::new(), outputs: BTreeMap::new(), log: String::new() };
        for step in &runs.steps {
            assert_eq!(step.shell, "bash");
            assert!(!step.run.contains("${{"), "a value could inject commands: {}", step.run);
            let runs = match &step.condition {
                None => !job.has_failed(),
                Some(condition) => holds(condition, &context),
            };
            if !runs {
                continue;
            }
            let env = step.env.iter().map(|(name, value)| (name.clone(), fill(value, &context)));
            let output = self.step(&step.run, env);
            job.steps.insert(step.name.clone(), output.status.code().expect("an exit code"));
            job.log += &show(&output);
            for line in self.workspace.read("github-output").lines() {
                let (name, value) = line.split_once('=').expect("NAME=VALUE");
                context.insert(format!("steps.{}.outputs.{name}", step.id), value.to_owned());
            }
        }
        for (name, output) in &outputs {
            job.outputs.insert(name.clone(), fill(&output.value, &context));
        }
        job
    }

    /// Runs a script as `shell: bash` does.
    fn step(&self, script: &str, env: impl IntoIterator<Item = (String, String)>) -> Output {
        self.workspace.write("step.sh", script);
        self.workspace.write("github-output", "");
        let mut command = self.command(&["--noprofile", "--norc", "-eo", "pipefail", "step.sh"]);
        command.env("GITHUB_OUTPUT", self.workspace.path("github-output"));
        command.env("GITHUB_STEP_SUMMARY", self.workspace.path("job-summary"));
        command.env("GITHUB_ACTION_PATH", repository());
        command.env("GITHUB_REPOSITORY", "owner/name").envs(env);
        command.output().expect("bash runs")
    }

    /// bash in the folder of the test, which finds stand-ins first.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("bash");
        let path = std::env::var("PATH").expect("PATH");
        let bin = self.workspace.path("bin");
        command.args(arguments).current_dir(self.workspace.path(""));
        command.env("PATH", format!("{}:{path}", bin.display())).env_remove("CARGO_TARGET_DIR");
        command.env("STAND_IN", self.workspace.path("")).env("NO_COLOR", "1");
        // As in `Workspace::command`.
        command.env("XDG_RUNTIME_DIR", self.workspace.path(""));
        command
    }

    /// Bodies of the comments on the pull request, by id.
    fn comments(&self) -> BTreeMap<String, String> {
        let comments = self.workspace.json("comments.json");
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let comments = comments.as_array().expect("comments").iter();
        comments.map(|comment| (text(&comment["id"]), text(&comment["body"]))).collect()
    }
}

fn action() -> Action {
    let text = fs::read_to_string(repository().join("action.yml")).expect("action.yml");
    serde_saphyr::from_str(&text).expect("an action")
}

/// Replaces the expressions of a text. Outputs that no step has written are empty.
fn fill(text: &str, context: &BTreeMap<String, String>) -> String {
    let mut parts = text.split("${{");
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (expression, rest) = part.split_once("}}").expect("the end of an expression");
        let values = expression.split("||").map(|name| value(name.trim(), context));
        filled += values.into_iter().find(|value| !value.is_empty()).unwrap_or_default();
        filled += rest;
    }
    filled
}

fn value<'a>(name: &str, context: &'a BTreeMap<String, String>) -> &'a str {
    match context.get(name) {
        Some(value) => value,
        None if name.starts_with("steps.") => "",
        None => panic!("unknown: {name}"),
    }
}

/// Evaluates a condition of a step in a job that is not cancelled.
fn holds(condition: &str, context: &BTreeMap<String, String>) -> bool {
    let condition = condition.trim().strip_prefix("${{").and_then(|it| it.strip_suffix("}}"));
    condition.expect("an expression").split("&&").map(str::trim).all(|term| {
        if term == "!cancelled()" {
            return true;
        }
        let (term, is_equal) = match term.split_once("==") {
            Some(operands) => (operands, true),
            None => (term.split_once("!=").expect("a comparison"), false),
        };
        let text = term.1.trim().trim_matches('\'');
        (value(term.0.trim(), context) == text) == is_equal
    })
}

fn write_program(workspace: &Workspace, name: &str, text: &str) {
    workspace.write(name, text);
    let mode = fs::Permissions::from_mode(0o755);
    fs::set_permissions(workspace.path(name), mode).expect("a program");
}

/// Stand-in of gh: the comments of pull request 7 are in comments.json, and are listed one per page. Calls that the
/// GitHub API would refuse fail.
const GH: &str = r#"#!/usr/bin/env bash
set -euo pipefail
cd "$STAND_IN"
fail() { echo "gh: $*" >&2; exit 1; }
[ "${GH_TOKEN:-}" = secret ] || fail "HTTP 403: Resource not accessible by integration"
[ "$1" = api ] || fail "unknown command $1"
shift
declare -A fields
path='' filter=. paginate=
while [ $# -gt 0 ]; do
    case $1 in
    -f | -F)
        name=${2%%=*} value=${2#*=}
        if [ "$1" = -F ] && [[ $value = @* ]]; then value=$(cat "${value#@}"; printf .); value=${value%.}; fi
        fields[$name]=$value
        shift
        ;;
    --jq) filter=$2; shift ;;
    --paginate) paginate=yes ;;
    -*) fail "unknown option $1" ;;
    *) path=$1 ;;
    esac
    shift
done
[ -z "${fields[body]+set}" ] || [ ${#fields[body]} -le 65536 ] || fail "HTTP 422: body is too long"
echo "$path ${fields[id]:-}" >>calls
case $path in
graphql)
    if [[ ${fields[query]} = mutation* ]]; then
        jq -e --arg id "${fields[id]}" 'any(.id == $id and .viewerDidAuthor)' comments.json >/dev/null ||
            fail "Could not resolve to a node with the global id of '${fields[id]}'"
        jq --arg id "${fields[id]}" --arg body "${fields[body]}" \
            'map(if .id == $id then .body = $body else . end)' comments.json >comments.new
        mv comments.new comments.json
        jq -nr "{data: {updateIssueComment: {issueComment: {url: \"https://github.invalid/7\"}}}} | $filter"
    else
        [ "${fields[owner]}/${fields[name]}#${fields[number]}" = owner/name#7 ] || fail "not found"
        [[ ${fields[query]} = *"after: \$endCursor"*"pageInfo { hasNextPage endCursor }"* ]] || fail "no pagination"
        jq -c '.[]' comments.json | while read -r comment; do
            jq -r "{data: {repository: {pullRequest: {comments: {nodes: [.]}}}}} | $filter" <<<"$comment"
            [ "$paginate" ] || break
        done
    fi
    ;;
repos/owner/name/issues/7/comments)
    id="made-$(jq length comments.json)"
    jq --arg id "$id" --arg body "${fields[body]}" \
        '. + [{id: $id, viewerDidAuthor: true, body: $body}]' comments.json >comments.new
    mv comments.new comments.json
    jq -nr "{html_url: \"https://github.invalid/7#$id\"} | $filter"
    ;;
*) fail "HTTP 404: $path" ;;
esac
"#;

/// An experiment on subjects that need no package.
fn write_experiment(workspace: &Workspace, blocks: u32) {
    let experiment = Experiment {
        title: "Does the gateway start?",
        load: r#"connections = 2, rate = 200, duration = "200ms", warmup = "20ms""#,
        subjects: &[("direct", "direct", ""), ("gateway", "tollgate-gateway", "")],
        blocks,
    };
    workspace.write("gate.toml", &experiment.text());
}

#[test]
fn action_comments_once_and_fails_after_the_comment() {
    let workspace = Workspace::concurrent();
    write_experiment(&workspace, 6);
    let foreign = json!([
        { "id": "talk", "viewerDidAuthor": true, "body": "Thanks" },
        { "id": "forged", "viewerDidAuthor": false, "body": "<!-- tollgate: gate.toml 346154f4 -->\nmine" },
    ]);
    workspace.write("comments.json", &foreign.to_string());
    let runner = Runner::new(&workspace);
    let binary = cargo_bin!("tollgate").to_str().expect("a path");
    let run = |directory, thresholds| {
        let inputs = [
            ("experiment", "gate.toml"),
            ("binary", binary),
            ("directory", directory),
            ("thresholds", thresholds),
            ("arguments", "--seed 7\n--margin=3%"),
        ];
        runner.run(&inputs)
    };

    // No comment yet: one is made.
    let passing = run("first", "memory(gateway) < 4096\n\nstartup(gateway)<60s\n");
    assert!(!passing.has_failed(), "{}", passing.log);
    assert_eq!(passing.output("exit-code"), "0");
    let comments = runner.comments();
    assert_eq!(comments.len(), 3, "{comments:#?}");
    let comment = &comments["made-2"];
    let rest = comment.strip_prefix("<!-- tollgate: gate.toml 346154f4 -->\n").expect(comment);
    assert_eq!(rest, workspace.read(passing.output("summary")));
    assert_eq!(rest, workspace.read("job-summary"));
    assert!(
        rest.starts_with("## Thresholds\n\n| threshold | value \\[95 %\\] | n | outcome |"),
        "{rest}"
    );
    for threshold in ["memory(gateway) \\< 4096", "startup(gateway)\\<60s"] {
        let line = rest.lines().find(|line| line.starts_with(&format!("| {threshold} |")));
        assert!(line.is_some_and(|line| line.ends_with("| pass |")), "{rest}");
    }
    assert!(rest.ends_with(&workspace.read("first/report.md")), "{rest}");
    let junit = workspace.read(passing.output("junit"));
    assert!(junit.contains(r#"tests="2" failures="0" errors="0" skipped="0""#), "{junit}");
    let command = workspace.json("first/manifest.json")["command"].to_string();
    assert!(command.contains(r#""--seed","7""#) && command.contains("--margin"), "{command}");

    // A missed threshold: the comment is replaced, and the job fails.
    let missed = run("second", "memory(gateway)<0.01\nstartup(gateway)<60s");
    assert_eq!(missed.steps["Run"], 99, "{}", missed.log);
    assert_eq!(missed.steps["Comment"], 0, "{}", missed.log);
    assert_eq!(missed.output("exit-code"), "99");
    let comments = runner.comments();
    assert_eq!(comments.len(), 3, "{comments:#?}");
    let line = comments["made-2"].lines().find(|line| line.starts_with("| memory(gateway)"));
    assert!(line.is_some_and(|line| line.ends_with("| fail |")), "{comments:#?}");
    assert_eq!(comments["forged"], "<!-- tollgate: gate.toml 346154f4 -->\nmine");
    assert_eq!(comments["talk"], "Thanks");
    let junit = workspace.read("second/junit.xml");
    assert!(junit.contains(r#"tests="2" failures="1" errors="0" skipped="0""#), "{junit}");
    assert!(junit.contains("<failure message=\""), "{junit}");
    workspace.assert_nothing_runs();
}

#[test]
fn action_explains_what_it_cannot_do() {
    let workspace = Workspace::concurrent();
    write_experiment(&workspace, 1);
    workspace.write("comments.json", "[]");
    let mut runner = Runner::new(&workspace);
    let binary = cargo_bin!("tollgate").to_str().expect("a path");
    let inputs = |directory, not_settled, comment| {
        [
            ("experiment", "gate.toml"),
            ("binary", binary),
            ("directory", directory),
            ("thresholds", "startup(gateway)<60s"),
            ("not-settled", not_settled),
            ("comment", comment),
        ]
    };
    // One block settles nothing.
    let failing = runner.run(&inputs("first", "fail", "false"));
    assert_eq!(failing.steps, [("Build".to_owned(), 0), ("Run".to_owned(), 75)].into());
    let junit = workspace.read("first/junit.xml");
    assert!(junit.contains("<skipped message=\""), "{junit}");

    // The token may not comment.
    runner.set("github.token", "read-only");
    let refused = runner.run(&inputs("second", "pass", "true"));
    assert_eq!((refused.steps["Run"], refused.steps["Comment"]), (0, 1), "{}", refused.log);
    assert!(refused.log.contains("permissions: pull-requests: write"), "{}", refused.log);
    assert_eq!(refused.output("exit-code"), "75");

    // Tokens of forks never may, and other events have no pull request.
    runner.set("github.event.pull_request.head.repo.full_name", "fork/name");
    let fork = runner.step(&comment_script(), comment_env(&runner));
    assert_eq!(fork.status.code(), Some(0), "{}", show(&fork));
    assert!(stdout(&fork).contains("::notice::No comment on a pull request from a fork"));
    runner.set("github.event.pull_request.number", "");
    let push = runner.step(&comment_script(), comment_env(&runner));
    assert_eq!(push.status.code(), Some(0), "{}", show(&push));
    assert!(runner.comments().is_empty());

    // Without a run there is no comment.
    let invalid = runner.run(&[("experiment", "missing.toml"), ("binary", binary)]);
    assert_eq!(invalid.steps, [("Build".to_owned(), 0), ("Run".to_owned(), 2)].into());
    // The report of an earlier run is not commented again.
    let again = runner.run(&inputs("first", "fail", "true"));
    assert_eq!(again.steps, [("Build".to_owned(), 0), ("Run".to_owned(), 2)].into());
    assert!(again.log.contains("first exists; name another directory"), "{}", again.log);
    let invalid = runner.run(&[("binary", "missing")]);
    assert_eq!(invalid.steps, [("Build".to_owned(), 2)].into());
    assert!(invalid.log.contains("not an executable file: 'missing'"), "{}", invalid.log);
    let invalid = runner.run(&[("version", "v1")]);
    assert!(invalid.log.contains("the URL of the repository is unknown"), "{}", invalid.log);
    let invalid = runner.run(&[("version", "--upload-pack=true")]);
    assert!(invalid.log.contains("is not a tag, a branch or a commit"), "{}", invalid.log);
    workspace.assert_nothing_runs();
}

fn comment_script() -> String {
    let step = action().runs.steps.into_iter().find(|step| step.name == "Comment");
    step.expect("a step that comments").run
}

/// The environment of the comment after the second run.
fn comment_env(runner: &Runner<'_>) -> Vec<(String, String)> {
    let mut context = runner.context.clone();
    context.insert("inputs.token".to_owned(), "secret".to_owned());
    context.insert("inputs.name".to_owned(), "gate".to_owned());
    context.insert("steps.run.outputs.summary".to_owned(), "second/summary.md".to_owned());
    let step = action().runs.steps.into_iter().find(|step| step.name == "Comment");
    let env = step.expect("a step that comments").env;
    env.into_iter().map(|(name, value)| (name, fill(&value, &context))).collect()
}

#[test]
fn long_summaries_are_shortened_in_comments() {
    let workspace = Workspace::concurrent();
    workspace.write("comments.json", "[]");
    let runner = Runner::new(&workspace);
    workspace.write("second/summary.md", &format!("## Thresholds\n{}", "a line\n".repeat(20_000)));
    let output = runner.step(&comment_script(), comment_env(&runner));
    assert_eq!(output.status.code(), Some(0), "{}", show(&output));
    let comments = runner.comments();
    let comment = &comments["made-0"];
    assert!(comment.starts_with("<!-- tollgate: gate c974e17b -->\nShortened; the job summary has the whole report.\n\n## Thresholds\na line\n"));
    assert!(comment.ends_with("a line\n"));
    assert!((60_000..65_536).contains(&comment.len()), "{}", comment.len());
}

#[test]
fn action_builds_a_version() {
    let workspace = Workspace::concurrent();
    workspace.write("comments.json", "[]");
    write_tagged_repository(&workspace);
    let mut runner = Runner::new(&workspace);
    runner.set("github.server_url", &format!("file://{}", workspace.path("").display()));
    runner.set("github.action_repository", "tools");
    // The stand-in builds a program that prints how it was built.
    let cargo = "#!/usr/bin/env bash\nset -eu\nsource=${!#}; source=${source%/Cargo.toml}\n\
        [ -f \"$source/tagged\" ] || exit 1\nmkdir -p \"$source/target/release\"\n\
        printf '#!/bin/sh\\necho \"built by: %s\" >&2; exit 4\\n' \"$*\" >\"$source/target/release/tollgate\"\n\
        chmod +x \"$source/target/release/tollgate\"\n";
    write_program(&workspace, "bin/cargo", cargo);
    let job = runner.run(&[("version", "v1"), ("comment", "true")]);
    assert_eq!(job.steps, [("Build".to_owned(), 0), ("Run".to_owned(), 4)].into(), "{}", job.log);
    let built = "built by: build --quiet --release --locked -p tollgate --manifest-path /";
    assert!(job.log.contains(built), "{}", job.log);
    let job = runner.run(&[("version", "v2")]);
    assert!(job.log.contains("cannot fetch 'v2' from file://"), "{}", job.log);
}

/// A repository `tools` with the scripts of this one, and a file `tagged` at tag v1.
fn write_tagged_repository(workspace: &Workspace) {
    let script = format!(
        "mkdir -p tools/scripts && cp -r '{0}/ci' tools/ && cp '{0}/scripts/as-root' tools/scripts/\n\
         cd tools && git init -q && touch tagged && git add . \n\
         git -c user.name=a -c user.email=a@b commit -qm 1 && git tag v1 \n\
         git rm -q tagged && git -c user.name=a -c user.email=a@b commit -qm 2",
        repository().display()
    );
    workspace.write("make.sh", &script);
    let mut command = Command::new("bash");
    command.args(["-e", "make.sh"]).current_dir(workspace.path(""));
    let output = command.output().expect("bash runs");
    assert!(output.status.success(), "{}", show(&output));
}

#[test]
fn gitlab_job_keeps_reports_as_artifacts() {
    let workspace = Workspace::concurrent();
    write_experiment(&workspace, 6);
    write_tagged_repository(&workspace);
    let text = fs::read_to_string(repository().join("ci/gitlab.yml")).expect("ci/gitlab.yml");
    let Gitlab { tollgate: job } = serde_saphyr::from_str(&text).expect("a job");
    let url = format!("file://{}", workspace.path("tools").display());
    let mut variables = job.variables.clone();
    for (name, value) in [
        ("TOLLGATE_REPOSITORY", url.as_str()),
        ("TOLLGATE_VERSION", "v1"),
        ("TOLLGATE_BINARY", cargo_bin!("tollgate").to_str().expect("a path")),
        ("TOLLGATE_EXPERIMENT", "gate.toml"),
        ("TOLLGATE_THRESHOLDS", "memory(gateway)<0.01"),
    ] {
        assert!(variables.insert(name.to_owned(), value.to_owned()).is_some(), "{name}");
    }
    workspace.write("job.sh", &job.script.join("\n"));
    let runner = Runner { workspace: &workspace, context: BTreeMap::new() };
    let mut command = runner.command(&["-eo", "pipefail", "job.sh"]);
    let output = command.envs(variables).output().expect("bash runs");
    assert_eq!(output.status.code(), Some(99), "{}", show(&output));
    assert!(!job.allow_failure.exit_codes.contains(&99));
    assert_eq!(job.allow_failure.exit_codes, [75]);
    assert_eq!(
        (job.artifacts.when.as_str(), &job.artifacts.paths[..]),
        ("always", &["tollgate-run/".to_owned()][..])
    );
    let junit = workspace.read(&job.artifacts.reports["junit"]);
    assert!(
        junit.contains(r#"classname="browse.gateway" name="memory(gateway)&lt;0.01""#),
        "{junit}"
    );
    let summary = workspace.read("tollgate-run/summary.md");
    assert!(summary.starts_with("## Thresholds\n"), "{summary}");
    workspace.assert_nothing_runs();
}

#[test]
fn inputs_and_outputs_are_described() {
    let Action { inputs, outputs, runs } = action();
    assert_eq!(runs.using, "composite");
    let described = inputs.values().map(|input| &input.description);
    let described = described.chain(outputs.values().map(|output| &output.description));
    assert!(described.into_iter().all(|text| text.len() > 10));
    let docs = fs::read_to_string(repository().join("docs/ci.md")).expect("docs/ci.md");
    for name in inputs.keys().chain(outputs.keys()) {
        assert!(docs.contains(&format!("`{name}`")), "docs/ci.md does not explain `{name}`");
    }
}
