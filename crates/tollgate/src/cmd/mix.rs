//! `tollgate mix import`: writes a mix of the requests in logs and other recordings.

use crate::cmd::waf::files;
use crate::console::{self, Exit, Failure, eprint_line};
use anyhow::{Context, anyhow};
use clap::ValueEnum;
use flate2::bufread::MultiGzDecoder;
use std::fs::File;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use tollgate_stats::number::count;
use tollgate_traffic::import::{Importer, Label, Options, Recorded, Secret};
use tollgate_traffic::import::{access_log, curl, har, lines};
use tollgate_traffic::{Class, MAX_EVENTS, MAX_LISTED};
use tollgate_waf_tools::regression::TestFile;
use tollgate_waf_tools::replay;

/// Default limit of distinct requests, which bounds the memory of an import.
const REQUESTS_MAX: usize = 250_000;

/// Limit of a file that is read as a whole, in bytes: HAR, YAML and commands.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// Length of the start of a file by which its format is recognized. The last line is read to its end.
const START_BYTES: usize = 64 << 10;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    /// Write a mix of the requests in logs, HAR files, rule tests or curl commands
    ///
    /// Equal requests become one with a weight. Values of credentials, cookies
    /// and tokens become the letter `x`.
    Import(ImportArgs),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  tollgate mix import /var/log/nginx/access.log -o shop.mix
  tollgate mix import access.log.*.gz --only-host shop.example -o shop.mix
  tollgate mix import shop.har --host localhost -o shop.mix
  tollgate mix import log.ndjson --field method=verb --field target=url -o a.mix
  tollgate mix import coreruleset/tests/regression/tests -o crs.mix
  tollgate mix import sentences/ --as lines -o text.mix
  tollgate mix import requests.sh --as curl --keep cookie -o api.mix
  zcat access.log.2.gz | tollgate mix import - -o shop.mix

To send it: tollgate load http://127.0.0.1:8080/ --mix ./shop.mix
In its order, with the sessions of its clients: add --pace original
In an experiment: mix = \"shop.mix\". docs/mixes.md describes the format.")]
struct ImportArgs {
    /// Files, some of which may be compressed by gzip; folders of rule tests or lines; `-`: standard input
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Format of the files [default: by their content]
    #[arg(long = "as", value_enum, value_name = "FORMAT")]
    format: Option<Format>,
    /// File to write, which must not exist
    #[arg(short, long, value_name = "FILE.mix")]
    out: PathBuf,
    /// Title of the mix [default: names of the files]
    #[arg(long, value_name = "TEXT")]
    title: Option<String>,
    /// Class of the requests, except of rule tests, whose expected rules decide
    #[arg(long, value_enum, value_name = "CLASS", default_value = "benign")]
    class: ClassArg,
    /// Host header of all requests [default: as recorded, or localhost]
    #[arg(long, value_name = "NAME")]
    host: Option<String>,
    /// Only requests for this host; repeatable
    #[arg(long, value_name = "HOST")]
    only_host: Vec<String>,
    /// Leave out this header; repeatable
    #[arg(long, value_name = "NAME")]
    without: Vec<String>,
    /// Expected responses: the recorded status, and with `size` the length of the body, too
    #[arg(long, value_enum, value_name = "WHAT", default_value = "status")]
    expect: ExpectArg,
    /// Secrets to keep; repeatable
    #[arg(long, value_enum, value_name = "SECRET")]
    keep: Vec<Keep>,
    /// Member of a JSON log for method, target, request, protocol, host, referer, agent, status, size, headers, time,
    /// duration or client; repeatable
    #[arg(long, value_name = "NAME=MEMBER")]
    field: Vec<String>,
    /// Limit of distinct requests; further ones are skipped
    #[arg(long, value_name = "N", default_value_t = REQUESTS_MAX, value_parser = requests_max)]
    max_requests: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    /// combined or common (nginx, Apache), httplog (HAProxy), JSON (Caddy, `tollgate gateway`, others)
    AccessLog,
    /// HTTP Archive, as browsers export it
    Har,
    /// Tests of a rule set in the YAML format of go-ftw
    Ftw,
    /// Commands of curl
    Curl,
    /// Lines of text, each as an argument and as a field of a form; folders: their *.txt files
    Lines,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ClassArg {
    Benign,
    Malicious,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ExpectArg {
    Any,
    Status,
    Size,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Keep {
    /// Authorization, and other headers with the name of a secret
    Authorization,
    /// Values of cookies
    Cookie,
    /// Arguments with the name of a secret, in targets and Referer
    Query,
    /// Fields with the name of a secret, in forms and JSON
    Body,
    All,
}

fn requests_max(text: &str) -> Result<usize, String> {
    let range = 1..=MAX_LISTED;
    text.parse()
        .ok()
        .filter(|number| range.contains(number))
        .ok_or_else(|| format!("expected 1 to {MAX_LISTED}"))
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    match &args.command {
        Command::Import(args) => import(args),
    }
}

fn import(args: &ImportArgs) -> Result<Exit, Failure> {
    if args.out.extension().is_none_or(|extension| extension != "mix") {
        let message = anyhow!("--out {}: the name of a list must end in .mix", args.out.display());
        return Err(Failure::bad_input(message));
    }
    if args.out.exists() {
        let message =
            anyhow!("--out {}: it exists; remove it, or choose another name", args.out.display());
        return Err(Failure::bad_input(message));
    }
    let mut importer = Importer::new(args.options());
    let fields = args.fields().map_err(Failure::bad_input)?;
    for path in &args.files {
        add(args, path, &fields, &mut importer)
            .with_context(|| format!("cannot import \"{}\"", path.display()))
            .map_err(Failure::bad_input)?;
    }
    report(&importer);
    if importer.distinct_requests() == 0 {
        return Err(Failure::nothing(anyhow!(
            "no request to import; nothing was written (--as names the format)"
        )));
    }
    let cannot = || format!("cannot write \"{}\"", args.out.display());
    let file = File::create_new(&args.out).with_context(cannot).map_err(Failure::bad_input)?;
    let mut out = BufWriter::new(file);
    importer.write(&args.title(), &mut out).and_then(|()| out.flush()).with_context(cannot)?;
    let order = match (importer.ordered(), importer.is_in_seconds()) {
        (0, _) => "no order, as the times are not known".to_owned(),
        (events, false) => format!("order of {}", count(events)),
        (events, true) => format!("order of {}, with times in whole seconds", count(events)),
    };
    console::print(&format!(
        "wrote {}: {}, {} distinct, {order}\n",
        args.out.display(),
        requests(importer.requests()),
        count(importer.distinct_requests() as u64)
    ))?;
    Ok(Exit::Success)
}

fn requests(number: u64) -> String {
    match number {
        1 => "1 request".to_owned(),
        _ => format!("{} requests", count(number)),
    }
}

/// Prints what an import changed and skipped.
fn report(importer: &Importer) {
    if importer.masked() > 0 {
        let masked = requests(importer.masked());
        eprint_line(&format!("secrets masked in {masked}; --keep keeps them"));
    }
    if importer.without_body() > 0 {
        let bodies = requests(importer.without_body());
        eprint_line(&format!(
            "{bodies} had a body that the log does not contain whole: sent without what is missing"
        ));
    }
    if importer.without_response() > 0 {
        let requests = requests(importer.without_response());
        eprint_line(&format!("{requests} got no response (statuses such as 499): any is expected"));
    }
    if importer.ordered() > 0 && importer.unordered() > 0 {
        let unordered = requests(importer.unordered());
        eprint_line(&format!(
            "{unordered} not in the order of a replay: without a time, more than {}, or more than ten years from the others",
            count(MAX_EVENTS as u64)
        ));
    }
    if importer.ordered() > 0 && importer.without_client() > 0 {
        let requests = requests(importer.without_client());
        eprint_line(&format!("{requests} without a client: one session; see --field client="));
    }
    for (reason, skipped) in importer.skipped() {
        eprint_line(&format!(
            "skipped {}: {reason} (first: {})",
            count(skipped.count),
            skipped.first
        ));
    }
}

impl ImportArgs {
    fn options(&self) -> Options {
        let mut keep = Vec::new();
        for (kind, secret) in [
            (Keep::Authorization, Secret::Headers),
            (Keep::Cookie, Secret::Cookies),
            (Keep::Query, Secret::Queries),
            (Keep::Body, Secret::Bodies),
        ] {
            if self.keep.contains(&kind) || self.keep.contains(&Keep::All) {
                keep.push(secret);
            }
        }
        Options {
            host: self.host.clone(),
            only_hosts: self.only_host.clone(),
            without: self.without.clone(),
            keep,
            expect_status: self.expect != ExpectArg::Any,
            expect_size: self.expect == ExpectArg::Size,
            requests_max: self.max_requests,
        }
    }

    fn fields(&self) -> anyhow::Result<access_log::Fields> {
        let mut fields = access_log::Fields::default();
        for field in &self.field {
            let (name, member) = field
                .split_once('=')
                .with_context(|| format!("--field {field}: expected NAME=MEMBER"))?;
            fields.set(name, member).map_err(|reason| anyhow!("--field {field}: {reason}"))?;
        }
        Ok(fields)
    }

    fn label(&self) -> Label {
        let class = match self.class {
            ClassArg::Benign => Class::Benign,
            ClassArg::Malicious => Class::Malicious,
        };
        Label { name: None, class, family: None, open: false, is_public: false }
    }

    fn title(&self) -> String {
        let names = self.files.iter().map(|path| {
            path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
        });
        let title = || format!("imported from {}", names.collect::<Vec<_>>().join(", "));
        self.title.clone().unwrap_or_else(title)
    }
}

/// Adds the requests of a file, or of a folder of rule tests.
fn add(
    args: &ImportArgs,
    path: &Path,
    fields: &access_log::Fields,
    importer: &mut Importer,
) -> anyhow::Result<()> {
    if args.format == Some(Format::Lines) {
        return add_lines(args, path, importer);
    }
    if path.is_dir() {
        let tests = files(path, "yaml")?;
        if tests.is_empty() {
            return Err(anyhow!(
                "the folder has no *.yaml file; only rule tests, and lines with --as lines, are read from folders"
            ));
        }
        // Some contain comments alone, which would not be recognized.
        return tests.iter().try_for_each(|test| {
            let file = File::open(test).with_context(|| test.display().to_string())?;
            add_tests(&text(file)?, &test.display().to_string(), test, importer)
        });
    }
    let name = path.display().to_string();
    let plain: Box<dyn Read> = match name.as_str() {
        "-" => Box::new(io::stdin().lock()),
        _ => Box::new(File::open(path)?),
    };
    let mut compressed = BufReader::new(plain);
    let is_gzip = compressed.fill_buf()?.starts_with(b"\x1f\x8b");
    let plain: Box<dyn Read> =
        if is_gzip { Box::new(MultiGzDecoder::new(compressed)) } else { Box::new(compressed) };
    let mut reader = BufReader::with_capacity(START_BYTES, plain);
    let mut start = Vec::new();
    (&mut reader).take(START_BYTES as u64).read_to_end(&mut start)?;
    // To the end of the line.
    (&mut reader).take(access_log::LINE_BYTES_MAX).read_until(b'\n', &mut start)?;
    let format = match args.format {
        Some(format) => format,
        // Such as a log right after its rotation.
        None if start.is_empty() => return Ok(()),
        None => recognize(&start).context("the format is not known; name it with --as")?,
    };
    let reader = start.as_slice().chain(reader);
    let label = args.label();
    match format {
        Format::AccessLog => {
            access_log::import(reader, &name, fields, &label, importer)?;
        }
        Format::Har => {
            har::import(&whole(reader)?, &name, &label, importer).map_err(anyhow::Error::msg)?;
        }
        Format::Ftw => add_tests(&text(reader)?, &name, path, importer)?,
        Format::Curl => curl::import(&text(reader)?, &name, &label, importer),
        Format::Lines => unreachable!("lines are read before"),
    }
    Ok(())
}

/// Adds the lines of a file, or of the texts in a folder. What a rule set does with them is the result, so that all are open.
fn add_lines(args: &ImportArgs, path: &Path, importer: &mut Importer) -> anyhow::Result<()> {
    let texts = files(path, "txt")?;
    if texts.is_empty() {
        return Err(anyhow!("the folder has no *.txt file"));
    }
    for path in texts {
        let place = path.display().to_string();
        let read: Box<dyn Read> = match place.as_str() {
            "-" => Box::new(io::stdin().lock()),
            _ => Box::new(File::open(&path).with_context(|| place.clone())?),
        };
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let family = Some(stem.to_ascii_lowercase()).filter(|stem| stem != "-");
        let label = Label { family, open: true, is_public: true, ..args.label() };
        let name = if place == "-" { "line" } else { &stem };
        lines::import(&whole(read)?, &place, name, &label, importer);
    }
    Ok(())
}

fn whole(reader: impl Read) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    reader.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(anyhow!("the file is larger than {FILE_BYTES_MAX} bytes"));
    }
    Ok(bytes)
}

fn text(reader: impl Read) -> anyhow::Result<String> {
    String::from_utf8(whole(reader)?).context("the file is not UTF-8")
}

/// Returns the format of a file that starts with these bytes, unless it is ambiguous.
fn recognize(start: &[u8]) -> Option<Format> {
    let text = String::from_utf8_lossy(start);
    let mut lines =
        text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let first = lines.next()?;
    let compact: String = text.chars().filter(|c| !c.is_whitespace()).take(8).collect();
    if compact == r#"{"log":{"# {
        return Some(Format::Har);
    }
    if first.starts_with('{') {
        return Some(Format::AccessLog);
    }
    if first.trim_start_matches("$ ").starts_with("curl ") {
        return Some(Format::Curl);
    }
    let has_key =
        |line: &str| ["meta:", "rule_id:", "tests:"].iter().any(|key| line.starts_with(key));
    if has_key(first) || first == "---" && lines.next().is_some_and(has_key) {
        return Some(Format::Ftw);
    }
    (first.contains('"') && first.contains(" HTTP/")).then_some(Format::AccessLog)
}

/// Adds the requests of rule tests. A test that expects a rule to match is malicious. What else a rule set does with the
/// requests, and at which paranoia level, is not known, so that all are open.
fn add_tests(text: &str, name: &str, path: &Path, importer: &mut Importer) -> anyhow::Result<()> {
    let file = TestFile::parse(text).map_err(|reason| anyhow!("{name}: {reason}"))?;
    let folder = path.parent().and_then(Path::file_name);
    let family = folder.map(|folder| folder.to_string_lossy().to_ascii_lowercase());
    for test in &file.tests {
        for (stage, number) in test.stages.iter().zip(1..) {
            let place = format!("{name}, test {}, stage {number}", test.test_id);
            let is_match = stage.expects_match();
            let class = if is_match { Class::Malicious } else { Class::Benign };
            let kind = if is_match { "match" } else { "pass" };
            let label = Label {
                name: Some(format!("{} {kind}", file.rule_id)),
                class,
                family: family.clone(),
                open: true,
                is_public: true,
            };
            match stage.request().map_err(|reason| (reason, String::new())).and_then(recorded) {
                Ok(recorded) => importer.add(recorded, &label, &place),
                Err((reason, text)) => importer.skip(&reason, &place, &text),
            }
        }
    }
    Ok(())
}

/// Converts a request of a test. The error is a reason, and the target.
fn recorded(request: replay::Request) -> Result<Recorded, (String, String)> {
    let target = request.target.escape_ascii().to_string();
    let text = |bytes: Vec<u8>| {
        let reason = "the request has bytes that are not UTF-8";
        String::from_utf8(bytes).map_err(|_invalid| (reason.to_owned(), target.clone()))
    };
    if request.protocol != b"HTTP/1.1" {
        return Err(("the test is for another version than HTTP/1.1".to_owned(), target));
    }
    let is_sent = |name: &[u8]| {
        !["connection", "content-length", "transfer-encoding"]
            .iter()
            .any(|one| name.eq_ignore_ascii_case(one.as_bytes()))
    };
    let headers = request.headers.into_iter().filter(|(name, _)| is_sent(name));
    let headers = headers.map(|(name, value)| Ok((text(name)?, text(value)?)));
    let headers = headers.collect::<Result<Vec<_>, (String, String)>>()?;
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        return Err(("the test is for a request without Host".to_owned(), target));
    }
    Ok(Recorded {
        method: text(request.method)?,
        headers,
        body: request.body,
        target: text(request.target)?,
        ..Recorded::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_recognized_by_content() {
        for (start, format) in [
            ("{\n  \"log\": {\n    \"version\": \"1.2\"", Some(Format::Har)),
            ("{\"log\":\"x\",\"method\":\"GET\"}\n", Some(Format::AccessLog)),
            ("{\"level\":\"info\",\"request\":{}}", Some(Format::AccessLog)),
            ("a - - [t] \"GET / HTTP/1.1\" 200 5\n", Some(Format::AccessLog)),
            ("# requests\n\ncurl 'http://a/'\n", Some(Format::Curl)),
            ("$ curl http://a/", Some(Format::Curl)),
            ("---\nmeta:\n  author: x\nrule_id: 1\n", Some(Format::Ftw)),
            ("---\nrule_id: 1\n", Some(Format::Ftw)),
            ("GET / HTTP/1.1\r\nHost: a\r\n\r\n", None),
            ("", None),
        ] {
            assert_eq!(recognize(start.as_bytes()), format, "{start}");
        }
    }

    #[test]
    fn rule_tests_are_malicious_if_they_expect_a_rule() {
        let text = "rule_id: 7\ntests:\n  - test_id: 1\n    stages:\n      - input: {headers: {Host: a}, uri: /?a=b, version: HTTP/1.1}\n        output: {log: {expect_ids: [7]}}\n      - input: {method: POST, headers: {Host: a}, uri: /, data: a=c}\n        output: {log: {no_expect_ids: [7]}}\n      - input: {uri: /, version: HTTP/1.0}\n      - input: {uri: /}\n";
        let args = ImportArgs {
            files: Vec::new(),
            format: None,
            out: PathBuf::new(),
            title: None,
            class: ClassArg::Benign,
            host: None,
            only_host: Vec::new(),
            without: Vec::new(),
            expect: ExpectArg::Status,
            keep: Vec::new(),
            field: Vec::new(),
            max_requests: 10,
        };
        let mut importer = Importer::new(args.options());
        add_tests(text, "7.yaml", Path::new("TESTS-X/7.yaml"), &mut importer).unwrap();
        let mut list = Vec::new();
        importer.write("t", &mut list).unwrap();
        let list = String::from_utf8(list).unwrap();
        let lines: Vec<&str> = list.lines().collect();
        assert_eq!(
            lines,
            [
                r#"{"tollgate_mix":1,"title":"t","requests":2,"templates":[{"name":"7 match","class":"malicious","family":"tests-x","open":true},{"name":"7 pass","class":"benign","family":"tests-x","open":true}]}"#,
                r#"{"template":"7 match","path":"/?a=b","headers":["Host: a"]}"#,
                r#"{"template":"7 pass","method":"POST","path":"/","headers":["Host: a","Content-Type: application/x-www-form-urlencoded"],"body":"a=c"}"#,
            ]
        );
        let skipped: Vec<&String> = importer.skipped().keys().collect();
        assert_eq!(
            skipped,
            [
                "the test is for a request without Host",
                "the test is for another version than HTTP/1.1"
            ]
        );
    }
}
