//! Requests to a subject, with their expected responses.

use crate::system::render;
use anyhow::{Context, ensure};
use tollgate_experiment::corpus::Corpus;
use tollgate_experiment::experiment::{Case, Experiment, Subject};
use tollgate_experiment::workload::{self, Blocking, Delivery, WorkloadError};
use tollgate_load::{Expectation, Request, Workload};
use tollgate_traffic::{Class, RecordedResponses, Template};

/// The mix of a case for one subject.
#[derive(Debug)]
pub struct Requests<'a> {
    /// One request of each template, for the probe.
    pub samples: Vec<Request>,
    /// Status code of blocked requests.
    pub blocked_status: u16,
    /// Responses of the origins to requests of lists; `None` for the benchmark site.
    pub responses: Option<RecordedResponses>,
    case: &'a Case,
    subject: &'a Subject,
    does_block: bool,
    families: Option<Vec<String>>,
    benign: bool,
}

impl<'a> Requests<'a> {
    /// An error of the mix has a [`WorkloadError`]; any other is one of the recipe.
    pub fn render(case: &'a Case, subject: &'a Subject) -> anyhow::Result<Self> {
        let blocks = &subject.recipe.file.blocks;
        let has_own_config = subject.has_own_config();
        let is_unknown = subject.lacks_rules || has_own_config;
        let families = match blocks.as_ref().and_then(|blocks| blocks.families.as_deref()) {
            // Attacks that unknown rules block, or removed ones would block, are unknown.
            _ if is_unknown => Some(Vec::new()),
            Some(families) => render::words(subject, families)?,
            None => None,
        };
        let benign = match blocks.as_ref().and_then(|blocks| blocks.benign.as_deref()) {
            _ if has_own_config => true,
            Some(benign) => render::holds(subject, benign)?,
            None => false,
        };
        let does_block = match blocks {
            _ if has_own_config => true,
            Some(blocks) => render::holds(subject, &blocks.when)?,
            None => false,
        };
        let blocked_status = blocks.as_ref().map_or(FORBIDDEN, |blocks| blocks.status);
        let samples = Vec::new();
        // A server that runs already has its own backend, and some systems respond themselves.
        let has_origin = subject.external.is_none() && subject.recipe.file.origin;
        let responses = if has_origin { RecordedResponses::of(&case.mix) } else { None };
        let requests = Self {
            samples,
            blocked_status,
            responses,
            case,
            subject,
            does_block,
            families,
            benign,
        };
        let samples = workload::samples(&case.mix, &requests.delivery());
        let samples = samples.with_context(|| cannot_send(case))?;
        Ok(Self { samples, ..requests })
    }

    /// Returns the request of the readiness check: the first benign one, which every ready server passes, or the first
    /// attack if there is none.
    pub fn ready(&self) -> &Request {
        let mut templates = self.case.mix.templates().iter().zip(&self.samples);
        let benign = templates.find(|(template, _)| template.class == Class::Benign);
        benign.map_or(&self.samples[0], |(_, sample)| sample)
    }

    /// Renders the workload, drawn from a seed.
    pub fn workload(&self, seed: u64) -> anyhow::Result<Workload> {
        let workload = workload::workload(&self.case.mix, &self.delivery(), seed);
        workload.with_context(|| cannot_send(self.case))
    }

    /// Renders the requests of a corpus, each with the status code of its response if nothing blocks it, if that is known.
    pub fn corpus(&self, corpus: &Corpus) -> anyhow::Result<Vec<(Request, Option<u16>)>> {
        let mut requests = Vec::new();
        for (mix, source) in corpus.mixes.iter().zip(&corpus.sources) {
            let listed = workload::listed(mix, &self.delivery());
            let listed = listed.with_context(|| format!("cannot send corpus {}", source.name))?;
            let passed = |request: &Request| mix.templates()[request.template].status;
            requests.extend(listed.into_iter().map(|request| {
                let passed = passed(&request);
                (request, passed)
            }));
        }
        Ok(requests)
    }

    /// Checks that a subject that blocks attacks gets one that it is sure to block. Without it, the probe could not detect
    /// that its rules are inactive.
    fn check_proof(&self) -> anyhow::Result<()> {
        // Without the removed rules, or with unknown ones, the blocked attacks are unknown.
        if !self.does_block || self.subject.lacks_rules || self.subject.has_own_config() {
            return Ok(());
        }
        let is_block = Expectation { status: Some(self.blocked_status), ..Expectation::default() };
        let mut templates = self.case.mix.templates().iter().zip(&self.samples);
        let is_proof = |(template, sample): (&Template, &Request)| {
            template.class == Class::Malicious && sample.expect == is_block
        };
        let (mix, subject) = (&self.case.mix_source.name, &self.subject.name);
        ensure!(
            templates.any(is_proof),
            "mix {mix} cannot show that the rules of {subject} are active: it has no attack that {subject} is sure to \
             block; add a template with `class = \"malicious\"`, and `weight = 0` to send it in the probe only (see \
             mixes/get.toml)"
        );
        Ok(())
    }

    fn delivery(&self) -> Delivery<'_> {
        let blocking = Blocking {
            status: self.blocked_status,
            families: self.families.as_deref(),
            benign: self.benign,
            bodies: self.subject.recipe.file.blocks.as_ref().is_none_or(|blocks| blocks.bodies),
        };
        Delivery {
            prefix: &self.subject.prefix,
            host: self.subject.external.as_ref().and_then(|external| external.host.as_deref()),
            keep_alive: self.case.load.clients.protocol.keeps_connections(),
            blocks: self.does_block.then_some(blocking),
            responses: self.responses.as_ref(),
        }
    }
}

/// Renders all templates of an experiment, to find errors before anything is started.
pub fn check(experiment: &Experiment) -> anyhow::Result<()> {
    for case in &experiment.cases {
        for subject in case.subjects.iter().map(|at| &experiment.subjects[*at]) {
            match Requests::render(case, subject) {
                Ok(requests) => requests.check_proof()?,
                Err(error) if error.is::<WorkloadError>() => return Err(error),
                // An invalid recipe affects its own subjects only and is reported with them.
                Err(_) => {}
            }
        }
    }
    Ok(())
}

/// Default status code of blocked requests.
const FORBIDDEN: u16 = 403;

fn cannot_send(case: &Case) -> String {
    format!("cannot send mix {}", case.mix_source.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use tollgate_experiment::adjust::Adjustments;
    use tollgate_experiment::catalog::Catalog;
    use tollgate_records::subject::OptionValue;

    fn experiment(name: &str) -> Experiment {
        Experiment::load(&Catalog::new(vec![]), name, &Adjustments::default()).unwrap()
    }

    fn expected(experiment: &Experiment, subject: &str) -> Vec<Option<u16>> {
        let subject = experiment.subjects.iter().find(|s| s.name == subject).unwrap();
        let requests = Requests::render(&experiment.cases[0], subject).unwrap();
        requests.samples.iter().map(|request| request.expect.status).collect()
    }

    #[test]
    fn only_blocking_subjects_must_block() {
        let experiment = experiment("first-look");
        let through = [Some(200); 5];
        assert_eq!(expected(&experiment, "nginx"), through);
        assert_eq!(expected(&experiment, "direct"), through);
        assert_eq!(expected(&experiment, "light"), through);
        assert_eq!(
            expected(&experiment, "full"),
            [Some(200), Some(403), Some(403), Some(403), Some(403)]
        );
    }

    const PATCHED: &str = "
        title = 'x'
        [option.rules]
        about   = 'x'
        default = 'none'
        values  = ['none', 'vpatch', 'all']
        [[process]]
        name    = 'x'
        command = ['x']
        [blocks]
        status   = 406
        when     = \"rules != 'none'\"
        families = \"['virtual-patch'] if rules == 'vpatch' else none\"
    ";

    const PATCHES: &str = "
        title = 'x'
        baseline = 'none'
        [[case]]
        name = 'a'
        mix = 'a'
        load = { connections = 1, duration = '1s' }
        [[subject]]
        name = 'none'
        system = 'patched'
        [[subject]]
        name = 'vpatch'
        system = 'patched'
        with = { rules = 'vpatch' }
        [[subject]]
        name = 'all'
        system = 'patched'
        with = { rules = 'all' }
    ";

    fn patches(templates: &str) -> Experiment {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("mixes/a.toml", &format!("title = 'x'\nheaders = ['Host: a']\n{templates}"));
        write("systems/patched/system.toml", PATCHED);
        write("experiments/patches.toml", PATCHES);
        let catalog = Catalog::new(vec![folder.path().to_owned()]);
        Experiment::load(&catalog, "patches", &Adjustments::default()).unwrap()
    }

    /// An attack whose family is its name.
    fn attack(name: &str, open: bool) -> String {
        format!(
            "[[template]]\nname = '{name}'\nfamily = '{name}'\nopen = {open}\nclass = 'malicious'\nweight = 1\npath = '/'\n"
        )
    }

    #[test]
    fn refuses_mix_without_an_attack_that_must_be_blocked() {
        let reason = |templates: &str| {
            let error = check(&patches(templates)).err()?.to_string();
            let (_, lack) = error.split_once("rules of ").unwrap();
            Some(lack.split(";").next().unwrap().to_owned())
        };
        let unproven = |subject| {
            Some(format!("{subject} are active: it has no attack that {subject} is sure to block"))
        };
        assert_eq!(reason(&(attack("virtual-patch", true) + &attack("xss", false))), None);
        assert_eq!(reason(&attack("virtual-patch", true)), unproven("all"));
        assert_eq!(reason(&attack("xss", false)), unproven("vpatch"));
        let benign = "[[template]]\nname = 'x'\nclass = 'benign'\nweight = 1\npath = '/'\nexpect = { status = 406 }\n";
        assert_eq!(reason(benign), unproven("vpatch"));
    }

    #[test]
    fn recipe_names_families_that_must_be_blocked() {
        let experiment = patches(&(attack("virtual-patch", true) + &attack("xss", false)));
        let expected = |subject: usize| -> Vec<String> {
            let requests = Requests::render(&experiment.cases[0], &experiment.subjects[subject]);
            requests.unwrap().samples.iter().map(|sample| sample.expect.to_string()).collect()
        };
        assert_eq!(expected(0), ["200", "200"]);
        assert_eq!(expected(1), ["406", "200, or 406"]);
        assert_eq!(expected(2), ["200, or 406", "406"]);
        // Without some of the rules, every attack may pass.
        let lacking = Subject { lacks_rules: true, ..experiment.subjects[2].clone() };
        let requests = Requests::render(&experiment.cases[0], &lacking).unwrap();
        let texts: Vec<String> =
            requests.samples.iter().map(|sample| sample.expect.to_string()).collect();
        assert_eq!(texts, ["200, or 406", "200, or 406"]);
    }

    #[test]
    fn readiness_check_prefers_a_benign_request() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("mixes")).unwrap();
        let template = |class: &str, path: &str| {
            format!(
                "[[template]]\nname = '{class}'\nclass = '{class}'\nweight = 1\npath = '{path}'\n"
            )
        };
        let catalog = Catalog::new(vec![folder.path().to_owned()]);
        let path = |templates: &str| {
            let mix = format!("title = 'x'\nheaders = ['Host: a']\n{templates}");
            fs::write(folder.path().join("mixes/a.toml"), mix).unwrap();
            let mut case = experiment("first-look").cases[0].clone();
            case.mix = catalog.mix("a", folder.path()).unwrap().0;
            let subject = &experiment("first-look").subjects[0];
            let ready = Requests::render(&case, subject).unwrap().ready().message.clone();
            ready.target().to_owned()
        };
        let attack = template("malicious", "/etc/passwd");
        assert_eq!(path(&format!("{attack}{}", template("benign", "/page"))), "/page");
        assert_eq!(path(&attack), "/etc/passwd");
    }

    #[test]
    fn high_paranoia_level_may_block_benign_requests() {
        let experiment = experiment("first-look");
        let at = |paranoia: i64| {
            let full = experiment.subjects.iter().find(|subject| subject.name == "full").unwrap();
            let mut full = full.clone();
            full.options.insert("paranoia".to_owned(), OptionValue::Integer(paranoia));
            let requests = Requests::render(&experiment.cases[0], &full).unwrap();
            [0, 1].map(|at| requests.samples[at].expect.to_string())
        };
        assert_eq!(at(1), ["200 with 100 bytes", "403"]);
        assert_eq!(at(2), ["200 with 100 bytes, or 403", "403"]);
    }

    #[test]
    fn expectations_follow_the_location() {
        let experiment = experiment("modsecurity");
        assert_eq!(expected(&experiment, "off"), [Some(200); 2]);
        assert_eq!(expected(&experiment, "light"), [Some(200); 2]);
        assert_eq!(expected(&experiment, "full"), [Some(200), Some(403)]);
    }

    #[test]
    fn adds_prefix_and_connection_header() {
        let experiment = experiment("modsecurity");
        let mut case = experiment.cases[0].clone();
        let text = |case: &Case| {
            let requests = Requests::render(case, &experiment.subjects[2]).unwrap();
            String::from_utf8(requests.samples[0].message.bytes().to_vec()).unwrap()
        };
        let kept = text(&case);
        assert!(
            kept.starts_with("GET /modsec-full/test.pl?param1=test&para2=test2 HTTP/1.1\r\nHost: "),
            "{kept}"
        );
        assert!(kept.contains("\r\nConnection: keep-alive\r\n"), "{kept}");
        case.load.clients.protocol = tollgate_traffic::load_shape::Protocol::Http1Close;
        let closed = text(&case);
        assert!(
            closed.contains("\r\nConnection: close\r\n") && !closed.contains("eep-"),
            "{closed}"
        );
    }
}
