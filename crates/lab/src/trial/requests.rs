//! What a subject is sent, and the answers that it owes.

use crate::inputs::experiment::{Case, Experiment, Subject};
use crate::system::render::{self, RenderError};
use crate::workload::{self, Blocking, Delivery, WorkloadError};
use thiserror::Error;
use tollgate_load::{Expectation, Request, Workload};
use tollgate_traffic::{Class, Template};

/// A case's mix as one subject gets it.
#[derive(Debug)]
pub struct Requests<'a> {
    /// One request of each template, in the mix's order, for the probe.
    pub samples: Vec<Request>,
    /// The status code that tells a blocked request.
    pub blocked_status: u16,
    case: &'a Case,
    subject: &'a Subject,
    does_block: bool,
    families: Option<Vec<String>>,
    harmless: bool,
}

/// A mix that cannot be rendered for a subject.
#[derive(Debug, Error)]
pub enum RequestsError {
    /// The recipe's `blocks.when` is wrong.
    #[error(transparent)]
    Recipe(#[from] RenderError),
    /// The mix cannot be sent.
    #[error("mix {mix}")]
    Mix {
        /// The mix's file.
        mix: String,
        /// Why not.
        source: WorkloadError,
    },
    /// Nothing in the mix would tell a subject that blocks attacks from one whose rules are not on.
    #[error(
        "nothing that mix {mix} sends shows that {subject} is on: it has no attack that {subject} is sure to block. \
         Give it one, with `class = \"malicious\"` and, for the probe to be all that sends it, `weight = 0`; mixes/get.toml has some to include"
    )]
    Unproven {
        /// The mix's file.
        mix: String,
        /// The subject.
        subject: String,
    },
}

impl<'a> Requests<'a> {
    /// Renders the samples of a case's mix for a subject.
    ///
    /// # Errors
    ///
    /// A template that is not a valid request, or an expression of the recipe that is wrong.
    pub fn render(case: &'a Case, subject: &'a Subject) -> Result<Self, RequestsError> {
        let blocks = &subject.recipe.file.blocks;
        let families = match blocks.as_ref().and_then(|blocks| blocks.families.as_deref()) {
            // Which attacks the rules that were taken away would have blocked, nobody knows before.
            _ if subject.lacks_rules => Some(Vec::new()),
            Some(families) => render::words(subject, families)?,
            None => None,
        };
        let harmless = match blocks.as_ref().and_then(|blocks| blocks.harmless.as_deref()) {
            Some(harmless) => render::holds(subject, harmless)?,
            None => false,
        };
        let does_block = match blocks {
            Some(blocks) => render::holds(subject, &blocks.when)?,
            None => false,
        };
        let blocked_status = blocks.as_ref().map_or(FORBIDDEN, |blocks| blocks.status);
        let samples = Vec::new();
        let requests =
            Self { samples, blocked_status, case, subject, does_block, families, harmless };
        let samples = workload::samples(&case.mix, &requests.delivery()).map_err(in_mix(case))?;
        Ok(Self { samples, ..requests })
    }

    /// The request by whose answer a server is known to be ready: the first harmless one, as every server
    /// lets that through from its first right answer on; of attacks alone, the first.
    pub fn ready(&self) -> &Request {
        let mut templates = self.case.mix.templates().iter().zip(&self.samples);
        let harmless = templates.find(|(template, _)| template.class == Class::Benign);
        harmless.map_or(&self.samples[0], |(_, sample)| sample)
    }

    /// Renders everything that the load sends, drawn from a seed.
    ///
    /// # Errors
    ///
    /// A request that is not valid.
    pub fn workload(&self, seed: u64) -> Result<Workload, RequestsError> {
        workload::workload(&self.case.mix, &self.delivery(), seed).map_err(in_mix(self.case))
    }

    /// Whether a subject that blocks attacks is sent one that it is sure to block.
    fn proves(&self) -> Result<(), RequestsError> {
        // Which attacks are blocked without the rules that were taken away, nobody knows before.
        if !self.does_block || self.subject.lacks_rules {
            return Ok(());
        }
        let is_block = Expectation { status: Some(self.blocked_status), ..Expectation::default() };
        let mut templates = self.case.mix.templates().iter().zip(&self.samples);
        let is_proof = |(template, sample): (&Template, &Request)| {
            template.class == Class::Malicious && sample.expect == is_block
        };
        match templates.any(is_proof) {
            true => Ok(()),
            false => Err(RequestsError::Unproven {
                mix: self.case.mix_source.name.clone(),
                subject: self.subject.name.clone(),
            }),
        }
    }

    fn delivery(&self) -> Delivery<'_> {
        let blocking = Blocking {
            status: self.blocked_status,
            families: self.families.as_deref(),
            harmless: self.harmless,
        };
        Delivery {
            prefix: &self.subject.prefix,
            host: None,
            keep_alive: self.case.load.keepalive,
            blocks: self.does_block.then_some(blocking),
        }
    }
}

/// Renders every template of an experiment once, so that one that cannot be sent is told before
/// anything is started.
///
/// # Errors
///
/// A template is not a valid request, or a mix has nothing that tells whether a WAF is on.
pub fn check(experiment: &Experiment) -> Result<(), RequestsError> {
    for case in &experiment.cases {
        for subject in case.subjects.iter().map(|at| &experiment.subjects[*at]) {
            match Requests::render(case, subject) {
                Ok(requests) => requests.proves()?,
                // A recipe that is wrong spoils its own subjects only, and is told of there.
                Err(RequestsError::Recipe(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// What a WAF answers a blocked request with, as a rule.
const FORBIDDEN: u16 = 403;

fn in_mix(case: &Case) -> impl Fn(WorkloadError) -> RequestsError {
    |source| RequestsError::Mix { mix: case.mix_source.name.clone(), source }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inputs::catalog::Catalog;
    use crate::inputs::experiment::Adjustments;
    use crate::inputs::options::OptionValue;
    use std::fs;

    fn experiment(name: &str) -> Experiment {
        Experiment::load(&Catalog::new(vec![]), name, &Adjustments::default()).unwrap()
    }

    fn owed(experiment: &Experiment, subject: &str) -> Vec<Option<u16>> {
        let subject = experiment.subjects.iter().find(|s| s.name == subject).unwrap();
        let requests = Requests::render(&experiment.cases[0], subject).unwrap();
        requests.samples.iter().map(|request| request.expect.status).collect()
    }

    #[test]
    fn only_a_subject_that_blocks_owes_a_block() {
        let experiment = experiment("first-look");
        let through = [Some(200); 5];
        assert_eq!(owed(&experiment, "nginx"), through);
        assert_eq!(owed(&experiment, "direct"), through);
        assert_eq!(owed(&experiment, "light"), through);
        assert_eq!(
            owed(&experiment, "full"),
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

    /// An attack of the family that is its name, too.
    fn attack(name: &str, open: bool) -> String {
        format!(
            "[[template]]\nname = '{name}'\nfamily = '{name}'\nopen = {open}\nclass = 'malicious'\nweight = 1\npath = '/'\n"
        )
    }

    #[test]
    fn a_mix_without_an_attack_that_a_waf_is_sure_to_block_proves_nothing() {
        let reason = |templates: &str| {
            let error = check(&patches(templates)).err()?.to_string();
            let (_, lack) = error.split_once("shows that ").unwrap();
            Some(lack.split(". ").next().unwrap().to_owned())
        };
        let unproven = |subject| {
            Some(format!("{subject} is on: it has no attack that {subject} is sure to block"))
        };
        assert_eq!(reason(&(attack("virtual-patch", true) + &attack("xss", false))), None);
        assert_eq!(reason(&attack("virtual-patch", true)), unproven("all"));
        assert_eq!(reason(&attack("xss", false)), unproven("vpatch"));
        let harmless = "[[template]]\nname = 'x'\nclass = 'benign'\nweight = 1\npath = '/'\nexpect = { status = 406 }\n";
        assert_eq!(reason(harmless), unproven("vpatch"));
    }

    #[test]
    fn a_recipe_says_which_families_are_sure_to_be_blocked() {
        let experiment = patches(&(attack("virtual-patch", true) + &attack("xss", false)));
        let owed = |subject: usize| -> Vec<String> {
            let requests = Requests::render(&experiment.cases[0], &experiment.subjects[subject]);
            requests.unwrap().samples.iter().map(|sample| sample.expect.to_string()).collect()
        };
        assert_eq!(owed(0), ["200", "200"]);
        assert_eq!(owed(1), ["406", "200, or 406"]);
        assert_eq!(owed(2), ["200, or 406", "406"]);
        // Without some of its rules, each attack may pass.
        let lacking = Subject { lacks_rules: true, ..experiment.subjects[2].clone() };
        let requests = Requests::render(&experiment.cases[0], &lacking).unwrap();
        let owed: Vec<String> =
            requests.samples.iter().map(|sample| sample.expect.to_string()).collect();
        assert_eq!(owed, ["200, or 406", "200, or 406"]);
    }

    #[test]
    fn a_server_is_asked_something_harmless_where_the_mix_has_that() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("mixes")).unwrap();
        let template = |class: &str, path: &str| {
            format!(
                "[[template]]\nname = '{class}'\nclass = '{class}'\nweight = 1\npath = '{path}'\n"
            )
        };
        let catalog = Catalog::new(vec![folder.path().to_owned()]);
        let asked = |templates: &str| {
            let mix = format!("title = 'x'\nheaders = ['Host: a']\n{templates}");
            fs::write(folder.path().join("mixes/a.toml"), mix).unwrap();
            let mut case = experiment("first-look").cases[0].clone();
            case.mix = catalog.mix("a", folder.path()).unwrap().0;
            let subject = &experiment("first-look").subjects[0];
            let ready = Requests::render(&case, subject).unwrap().ready().bytes.clone();
            String::from_utf8(ready).unwrap().split(' ').nth(1).unwrap().to_owned()
        };
        let attack = template("malicious", "/etc/passwd");
        assert_eq!(asked(&format!("{attack}{}", template("benign", "/page"))), "/page");
        assert_eq!(asked(&attack), "/etc/passwd");
    }

    #[test]
    fn a_higher_paranoia_level_may_block_what_is_harmless() {
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
    fn a_location_owes_what_it_says() {
        let experiment = experiment("modsecurity");
        assert_eq!(owed(&experiment, "off"), [Some(200); 2]);
        assert_eq!(owed(&experiment, "light"), [Some(200); 2]);
        assert_eq!(owed(&experiment, "full"), [Some(200), Some(403)]);
    }

    #[test]
    fn the_prefix_comes_before_the_path_and_close_replaces_keep_alive() {
        let experiment = experiment("modsecurity");
        let mut case = experiment.cases[0].clone();
        let text = |case: &Case| {
            let requests = Requests::render(case, &experiment.subjects[2]).unwrap();
            String::from_utf8(requests.samples[0].bytes.clone()).unwrap()
        };
        let kept = text(&case);
        assert!(
            kept.starts_with("GET /modsec-full/test.pl?param1=test&para2=test2 HTTP/1.1\r\nHost: "),
            "{kept}"
        );
        assert!(kept.contains("\r\nConnection: keep-alive\r\n"), "{kept}");
        case.load.keepalive = false;
        let closed = text(&case);
        assert!(
            closed.contains("\r\nConnection: close\r\n") && !closed.contains("eep-"),
            "{closed}"
        );
    }
}
