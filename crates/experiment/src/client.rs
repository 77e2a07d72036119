//! Loads that foreign clients can send. They send one request again and again, and check little of its responses: a load that
//! they would send in another way is rejected.

use crate::experiment::Subject;
use crate::file::CaseFile;
use crate::load_file::LoadFlaw;
use crate::workload::{Delivery, workload};
use std::collections::BTreeSet;
use std::time::Duration;
use tollgate_load::Request;
use tollgate_traffic::load_shape::{CaseProtocol, LoadProgram};
use tollgate_traffic::units::Span;
use tollgate_traffic::{Class, Mix};

/// Checks that a client can send the load of a case.
pub(crate) fn check(client: LoadProgram, case: &CaseFile) -> Result<(), LoadFlaw> {
    let CaseFile { load, protocol, .. } = case;
    if client.is_own() {
        return Ok(());
    }
    let whole_seconds = |time: Option<Span>| time.is_none_or(|time| is_whole(time.0));
    let can_close = client != LoadProgram::H2load || load.keepalive;
    let conditions = [
        ("client", case.rate_of.is_none(), "cannot keep a rate, as of `rate_of`"),
        ("rate", load.rate.is_none(), "cannot keep a rate"),
        (
            "client",
            client == LoadProgram::H2load || !protocol.is_http2(),
            "has no HTTP/2; use h2load",
        ),
        ("requests", client != LoadProgram::Wrk || load.requests.is_none(), NO_REQUESTS),
        ("threads", client != LoadProgram::Ab || load.threads == 1, "has one thread"),
        ("keepalive", can_close, "does not end if servers close its connections; use wrk or ab"),
        ("tls_resume", !load.tls_resume, "does not resume sessions"),
        ("busy_poll", !load.busy_poll, "does not poll; set `busy_poll = false`"),
        ("duration", whole_seconds(load.duration), WHOLE_SECONDS),
        ("quick_duration", whole_seconds(load.quick_duration), WHOLE_SECONDS),
        ("timeout", is_whole(load.timeout.0), WHOLE_SECONDS),
    ];
    match conditions.into_iter().find(|(_, holds, _)| !holds) {
        Some((key, _, what)) => Err((key, format!("{client} {what}"))),
        None => Ok(()),
    }
}

const NO_REQUESTS: &str = "sends for a time, not a number of requests; use `duration`";
const WHOLE_SECONDS: &str = "is given whole seconds";

fn is_whole(time: Duration) -> bool {
    time.subsec_nanos() == 0 && !time.is_zero()
}

/// Checks that a client can load a subject. It gets the address of a server, and would send it no other name over TLS.
pub(crate) fn check_server(
    client: LoadProgram,
    subject: &Subject,
    protocol: CaseProtocol,
) -> Result<(), String> {
    match &subject.external {
        Some(external) if !client.is_own() && protocol.is_tls() => {
            Err(format!("{client} does not send the name of {} over TLS", external.server.url))
        }
        _ => Ok(()),
    }
}

/// Checks that a client can send the requests of a mix and tell if their responses are the expected ones.
pub(crate) fn check_mix(client: LoadProgram, mix: &Mix) -> Result<(), String> {
    if client.is_own() {
        return Ok(());
    }
    let as_written =
        Delivery { prefix: "", host: None, keep_alive: true, blocks: None, responses: None };
    // A mix that cannot be rendered is rejected elsewhere.
    let Ok(workload) = workload(mix, &as_written, 0) else { return Ok(()) };
    let sent: BTreeSet<u32> = workload.order().iter().copied().collect();
    let mut sent = sent.iter().map(|index| &workload.requests()[*index as usize]);
    let (Some(request), None) = (sent.next(), sent.next()) else {
        return Err(format!(
            "{client} sends one request again and again, and this mix has several; select a template without variables by \
             `only`"
        ));
    };
    let template = &mix.templates()[request.template];
    let Request { message, expect, .. } = request;
    let is_success = |status: u16| (200..300).contains(&status);
    let conditions = [
        (message.method() == "GET" && message.body().is_empty(), "sends GET without a body"),
        (template.class == Class::Benign, "does not tell responses to attacks from others"),
        (expect.status.is_none_or(is_success), "cannot expect another status than 2xx"),
        (
            expect.body_bytes.is_none() && expect.body_contains.is_none(),
            "does not check bodies; use a template without `body_bytes` and `body_contains`",
        ),
    ];
    match conditions.into_iter().find(|(holds, _)| !holds) {
        Some((_, what)) => Err(format!("template `{}`: {client} {what}", template.name)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use crate::adjust::Adjustments;
    use crate::catalog::Catalog;
    use crate::experiment::Experiment;
    use crate::loading::WrittenExperiment;
    use crate::toml_file::NamedText;
    use std::time::Duration;
    use tollgate_traffic::load_shape::LoadProgram;

    const MIX: &str = "title = 'x'\nheaders = ['Host: a']\n[[template]]\nname = 'page'\nclass = 'benign'\nweight = 1\npath = '/'\nexpect = { status = 200 }\n";

    /// Loads an experiment with this case, a mix of one request, and a subject with these keys beside nginx.
    fn load(case: &str, mix: &str, subject: &str, quick: bool) -> Result<Experiment, String> {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("one.toml"), mix).unwrap();
        let text = format!(
            "title = 'x'\nbaseline = 'nginx'\n[[case]]\nname = 'one'\nmix = 'one.toml'\n{case}\n\
             [[subject]]\nname = 'nginx'\nsystem = 'nginx'\n[[subject]]\nname = 'other'\nsystem = 'nginx'\n{subject}"
        );
        let path = folder.path().join("mine.toml").display().to_string();
        let source = NamedText { name: path.clone(), text };
        let adjustments = Adjustments { quick, ..Adjustments::default() };
        let catalog = Catalog::new(vec![]);
        WrittenExperiment::parse(&path, source)
            .and_then(|written| Experiment::from_written(&catalog, written, &adjustments))
            .map_err(|error| format!("{error:#}").replace(&path, "mine.toml"))
    }

    /// Returns the reason why a case with these keys of its load is rejected.
    fn reason(load_keys: &str, further: &str) -> String {
        let case = format!("{further}\nload = {{ connections = 9, {load_keys} }}");
        let error = load(&case, MIX, "", false).unwrap_err();
        error.split_once(": ").unwrap().1.to_owned()
    }

    #[test]
    fn load_that_a_client_cannot_send_is_rejected() {
        for (keys, further, expected) in [
            ("client = 'wrk', duration = '1s'", "", "wrk does not poll; set `busy_poll = false`"),
            (
                "client = 'ab', duration = '1s', rate = 5, busy_poll = false",
                "",
                "ab cannot keep a rate",
            ),
            (
                "client = 'h2load', duration = '1s', keepalive = false, busy_poll = false",
                "",
                "h2load does not end if servers close its connections; use wrk or ab",
            ),
            (
                "client = 'wrk', requests = 50, busy_poll = false",
                "",
                "wrk sends for a time, not a number of requests; use `duration`",
            ),
            (
                "client = 'ab', duration = '1s', threads = 2, busy_poll = false",
                "",
                "ab has one thread",
            ),
            (
                "client = 'wrk', duration = '1500ms', busy_poll = false",
                "",
                "wrk is given whole seconds",
            ),
            (
                "client = 'ab', duration = '1s', timeout = '100ms', busy_poll = false",
                "",
                "ab is given whole seconds",
            ),
            (
                "client = 'wrk', duration = '1s', busy_poll = false",
                "protocol = 'h2'",
                "wrk has no HTTP/2; use h2load",
            ),
            (
                "client = 'wrk', duration = '1s', tls_resume = true, busy_poll = false",
                "protocol = 'https'",
                "wrk does not resume sessions",
            ),
        ] {
            assert_eq!(reason(keys, further), expected, "{keys}");
        }
    }

    const FOREIGN: &str =
        "load = { client = 'ab', connections = 9, duration = '2s', busy_poll = false }";

    #[test]
    fn mix_that_a_client_cannot_send_or_check_is_rejected() {
        for (from, to, expected) in [
            (
                "path = '/'",
                "path = '/'\nmethod = 'POST'",
                "template `page`: ab sends GET without a body",
            ),
            (
                "'benign'",
                "'malicious'",
                "template `page`: ab does not tell responses to attacks from others",
            ),
            ("200", "404", "template `page`: ab cannot expect another status than 2xx"),
            (
                "status = 200",
                "status = 200, body_bytes = 9",
                "template `page`: ab does not check bodies; use a template without `body_bytes` and `body_contains`",
            ),
            (
                "[[template]]",
                "[[template]]\nname = 'two'\nclass = 'benign'\nweight = 1\npath = '/2'\n[[template]]",
                "ab sends one request again and again, and this mix has several; select a template without variables by `only`",
            ),
        ] {
            let error = load(FOREIGN, &MIX.replacen(from, to, 1), "", false).unwrap_err();
            assert!(error.ends_with(expected), "{error}");
        }
    }

    #[test]
    fn server_that_runs_already_is_not_loaded_by_a_client_over_tls() {
        let case = format!("protocol = 'https'\n{FOREIGN}");
        let shop = "[[subject]]\nname = 'shop'\nurl = 'https://127.0.0.1'";
        let error = load(&case, MIX, shop, false).unwrap_err();
        assert!(
            error.ends_with("ab does not send the name of https://127.0.0.1 over TLS"),
            "{error}"
        );
    }

    #[test]
    fn subject_has_a_client_of_its_own() {
        let case = "load = { connections = 9, duration = '2s', busy_poll = false }";
        let experiment = load(case, MIX, "client = 'wrk'", false).unwrap();
        let client = |at: usize| experiment.cases[0].load_of(&experiment.subjects[at]).program;
        assert_eq!([client(0), client(1)], [LoadProgram::Tollgate, LoadProgram::Wrk]);
        assert!(!experiment.is_sent_by_tollgate());
        let error =
            load("load = { connections = 9, duration = '2s' }", MIX, "client = 'wrk'", false);
        assert!(error.unwrap_err().ends_with("wrk does not poll; set `busy_poll = false`"));
    }

    #[test]
    fn quick_load_of_a_client_has_whole_seconds() {
        let seconds = |quick| {
            let experiment = load(FOREIGN, MIX, "", quick).unwrap();
            experiment.cases[0].load.window.longest()
        };
        assert_eq!([seconds(false), seconds(true)], [2, 1].map(Duration::from_secs));
    }
}
