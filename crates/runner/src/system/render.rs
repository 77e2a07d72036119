//! Renders the commands and configuration files of a subject from the templates of its recipe.

#[cfg(test)]
mod tests;

use super::nginx_config::Filling;
use super::own_config::{self, failed};
use anyhow::{Context, ensure};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, context};
use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use tollgate_experiment::catalog::Catalog;
use tollgate_experiment::experiment::Subject;
use tollgate_records::error::io_error;
use tollgate_records::files::{hash_file, hash_text};
use tollgate_records::subject::{Installed, OptionValue};
use tollgate_traffic::load_shape::{CaseProtocol, Concurrency};

/// Variables of one trial for templates, besides the options of the subject.
#[derive(Debug, Clone)]
pub struct RenderPlace<'a> {
    /// Folder for the configuration files.
    pub dir: &'a Path,
    /// Address of the system.
    pub listen: SocketAddr,
    /// Addresses of the origins. Empty for a system that serves responses itself.
    pub origins: &'a [SocketAddr],
    pub concurrency: Concurrency,
    /// Protocol between the clients and the system.
    pub protocol: CaseProtocol,
    /// Further ports of the recipe, by name.
    pub ports: &'a BTreeMap<String, SocketAddr>,
    pub installed: &'a Installed,
}

/// Commands of a subject after rendering, and hashes of referenced files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rendered {
    /// Commands that run to their end before the processes start.
    pub prepare: Vec<Vec<String>>,
    /// In start order.
    pub processes: Vec<RenderedProcess>,
    /// Hashes of the files that templates name by `file()` and `files()`, such as rule sets.
    pub referenced: BTreeMap<PathBuf, String>,
}

/// Condition for the start of the next process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Awaited {
    Nothing,
    Listens(SocketAddr),
    /// It answers a GET request for `/` with these headers, with neither 401 nor a server error.
    Answers(SocketAddr, BTreeMap<String, String>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedProcess {
    pub name: String,
    pub command: Vec<String>,
    /// Additional environment variables.
    pub env: BTreeMap<String, String>,
    /// Condition for the start of the next process.
    pub awaited: Awaited,
    /// Library that it must have loaded when the system is ready.
    pub loads: Option<PathBuf>,
}

/// Renders the configuration files of a subject into `place.dir`, copies its other files there, and renders its
/// commands.
pub fn render(
    catalog: &Catalog,
    subject: &Subject,
    place: &RenderPlace<'_>,
) -> anyhow::Result<Rendered> {
    let failed = |part: &str| failed(subject, part);
    let referenced = Arc::new(Mutex::new(BTreeMap::new()));
    let [mut environment, mut own_environment] =
        environments(catalog).map_err(failed("the configuration templates"))?;
    add_file_functions(&mut environment, &referenced);
    add_file_functions(&mut own_environment, &referenced);
    let known = variables(subject, place);
    for file in &subject.recipe.file.templates {
        if let Some(path) = own_config::path(subject, file) {
            let user = user_name();
            let filling = Filling {
                dir: place.dir,
                listen: place.listen,
                origins: place.origins,
                protocol: place.protocol,
                certificate: &certificate_file(place.dir),
                user: nix::unistd::geteuid().is_root().then_some(&*user),
            };
            let text = own_config::render(&own_environment, &known, subject, path, &filling)?;
            write(&place.dir.join(file), &text)?;
            continue;
        }
        let name = format!("{}/{file}", subject.recipe.name);
        // The catalog's error for a missing file is clearer than the template engine's.
        catalog.template(&name)?;
        let text = environment
            .get_template(&name)
            .and_then(|template| template.render(&known))
            .map_err(failed(&format!("configuration template `{file}`")))?;
        write(&place.dir.join(file), &text)?;
    }
    for file in &subject.recipe.file.files {
        let source = catalog.template(&format!("{}/{file}", subject.recipe.name))?;
        write(&place.dir.join(file), &source.text)?;
    }
    let is_enabled = |when: &Option<String>| match when {
        Some(when) => holds(subject, when),
        None => Ok(true),
    };
    for copied in &subject.recipe.file.copy {
        if is_enabled(&copied.when)? {
            for source in catalog.files(&copied.from)? {
                write(&place.dir.join(&copied.to).join(&source.name), &source.text)?;
                let name = Path::new(&copied.from).with_file_name(&source.name);
                let mut hashes = referenced.lock().unwrap_or_else(PoisonError::into_inner);
                hashes.insert(name, hash_text(&source.text));
            }
        }
    }
    let words = |words: &[String]| -> Result<Vec<String>, Error> {
        words.iter().map(|word| environment.render_str(word, &known)).collect()
    };
    let mut prepare = Vec::new();
    for preparation in &subject.recipe.file.prepare {
        if is_enabled(&preparation.when)? {
            let failed = failed("a `command` of `prepare` in system.toml");
            prepare.push(words(&preparation.command).map_err(failed)?);
        }
    }
    let mut processes = Vec::new();
    for process in &subject.recipe.file.process {
        if !is_enabled(&process.when)? {
            continue;
        }
        let named =
            |key: &str| failed(&format!("`{key}` of process `{}` in system.toml", process.name));
        let value = |(name, value): (&String, &String)| {
            Ok((name.clone(), environment.render_str(value, &known)?))
        };
        let port = |port: &String| {
            place.ports.get(port).copied().with_context(|| {
                let (process, system) = (&process.name, &subject.recipe.name);
                format!(
                    "process `{process}` of system `{system}` listens on unknown port `{port}`; add it to `ports`"
                )
            })
        };
        processes.push(RenderedProcess {
            name: process.name.clone(),
            command: words(&process.command).map_err(named("command"))?,
            env: process.env.iter().map(value).collect::<Result<_, _>>().map_err(named("env"))?,
            awaited: awaited(
                process.listens.as_ref().map(port).transpose()?,
                process
                    .answers
                    .iter()
                    .map(value)
                    .collect::<Result<_, _>>()
                    .map_err(named("answers"))?,
            )
            .with_context(|| {
                format!("process `{}` of system `{}`", process.name, subject.recipe.name)
            })?,
            loads: process
                .loads
                .as_ref()
                .map(|loads| environment.render_str(loads, &known))
                .transpose()
                .map_err(named("loads"))?
                .filter(|library| !library.is_empty())
                .map(PathBuf::from),
        });
    }
    let referenced = referenced.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(Rendered { prepare, processes, referenced })
}

fn awaited(
    listens: Option<SocketAddr>,
    answers: BTreeMap<String, String>,
) -> anyhow::Result<Awaited> {
    Ok(match listens {
        Some(address) if !answers.is_empty() => Awaited::Answers(address, answers),
        Some(address) => Awaited::Listens(address),
        None => {
            ensure!(answers.is_empty(), "`answers` needs `listens`, the port of the request");
            Awaited::Nothing
        }
    })
}

/// Writes a file, and creates its parent folders.
fn write(path: &Path, text: &str) -> anyhow::Result<()> {
    let made = path.parent().map_or(Ok(()), fs::create_dir_all);
    let written = made.and_then(|()| fs::write(path, text));
    written.map_err(io_error("write", path))
}

/// Evaluates a condition of the recipe under the options of the subject.
pub fn holds(subject: &Subject, expression: &str) -> anyhow::Result<bool> {
    evaluate(subject, expression, |value| Ok(value.is_true()))
}

/// Evaluates a list expression of the recipe. Returns `None` for `none`.
pub fn words(subject: &Subject, expression: &str) -> anyhow::Result<Option<Vec<String>>> {
    evaluate(subject, expression, list)
}

fn evaluate<T>(
    subject: &Subject,
    expression: &str,
    to_value: impl FnOnce(&Value) -> Result<T, Error>,
) -> anyhow::Result<T> {
    strict_environment()
        .compile_expression(expression)
        .and_then(|compiled| compiled.eval(options(subject)))
        .and_then(|value| to_value(&value))
        .map_err(failed(subject, &format!("expression `{expression}` in system.toml")))
}

fn list(value: &Value) -> Result<Option<Vec<String>>, Error> {
    if value.is_none() {
        Ok(None)
    } else {
        Ok(Some(value.try_iter()?.map(|item| item.to_string()).collect()))
    }
}

/// Renders a template of the recipe with the options of the subject and the parts found so far.
pub fn text(subject: &Subject, installed: &Installed, template: &str) -> anyhow::Result<String> {
    strict_environment()
        .render_str(
            template,
            context! {
                programs => paths(&installed.programs),
                builds => paths(&installed.builds),
                found => paths(&installed.found),
                ..options(subject)
            },
        )
        .map_err(failed(subject, &format!("template `{template}` in system.toml")))
}

fn strict_environment() -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    // Only then do errors name the undefined variable. The default of release builds is off.
    environment.set_debug(true);
    environment
}

/// Returns the environments of templates and of a user's own configuration.
fn environments(catalog: &Catalog) -> Result<[Environment<'static>; 2], Error> {
    let mut environment = strict_environment();
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .keep_trailing_newline(true)
        .build()?;
    environment.set_syntax(syntax);
    let catalog = catalog.clone();
    environment.set_loader(move |name| match catalog.find_template(name) {
        Ok(source) => Ok(source.map(|source| source.text)),
        Err(error) => Err(Error::new(ErrorKind::InvalidOperation, format!("{error:#}"))),
    });
    let mut own_environment = strict_environment();
    own_environment.set_syntax(own_config::syntax()?);
    Ok([environment, own_environment])
}

type Referenced = Arc<Mutex<BTreeMap<PathBuf, String>>>;

/// Adds `file(path)`, which returns the path, and `files(pattern)`, which returns the matching paths, sorted. Both
/// record the hashes of the files: a configuration is not complete without its rules.
fn add_file_functions(environment: &mut Environment<'_>, referenced: &Referenced) {
    let hashes = Arc::clone(referenced);
    environment.add_function("file", move |path: String| {
        record_hash(&hashes, Path::new(&path))?;
        Ok::<_, Error>(path)
    });
    let hashes = Arc::clone(referenced);
    environment.add_function("files", move |pattern: String| {
        let failed = |error: String| Error::new(ErrorKind::InvalidOperation, error);
        let paths = glob::glob(&pattern).map_err(|error| failed(error.to_string()))?;
        let mut names = Vec::new();
        // glob yields the paths sorted.
        for path in paths {
            let path = path.map_err(|error| failed(error.to_string()))?;
            record_hash(&hashes, &path)?;
            names.push(path.display().to_string());
        }
        if names.is_empty() {
            return Err(failed(format!("no file matches {pattern}")));
        }
        Ok(names)
    });
}

fn record_hash(referenced: &Referenced, path: &Path) -> Result<(), Error> {
    let hash = hash_file(path).map_err(|error| {
        Error::new(ErrorKind::InvalidOperation, format!("cannot read {}: {error}", path.display()))
    })?;
    let mut hashes = referenced.lock().unwrap_or_else(PoisonError::into_inner);
    hashes.insert(path.to_owned(), hash);
    Ok(())
}

/// Returns the file of the certificate and its key in the folder of a subject.
pub fn certificate_file(dir: &Path) -> PathBuf {
    dir.join("certificate.pem")
}

/// The names in templates, described in docs/systems.md.
fn variables(subject: &Subject, place: &RenderPlace<'_>) -> Value {
    context! {
        dir => place.dir.display().to_string(),
        listen => address(place.listen),
        origin => place.origins.first().copied().map_or(Value::UNDEFINED, address),
        origins => match place.origins {
            [] => Value::UNDEFINED,
            origins => origins.iter().copied().map(address).collect(),
        },
        connections => place.concurrency.connections,
        requests => place.concurrency.requests,
        protocol => place.protocol.to_string(),
        certificate => certificate_file(place.dir).display().to_string(),
        ports => Value::from_pairs(place.ports.iter().map(|(name, at)| (name.as_str(), address(*at)))),
        programs => paths(&place.installed.programs),
        builds => paths(&place.installed.builds),
        found => paths(&place.installed.found),
        root => nix::unistd::geteuid().is_root(),
        user => user_name(),
        ..options(subject)
    }
}

fn options(subject: &Subject) -> Value {
    let mut known: BTreeMap<&str, Value> =
        subject.options.iter().map(|(name, value)| (name.as_str(), option_value(value))).collect();
    known.insert("prefix", Value::from(&subject.prefix));
    Value::from_pairs(known)
}

fn option_value(value: &OptionValue) -> Value {
    match value {
        OptionValue::Integer(number) => Value::from(*number),
        OptionValue::Text(text) => Value::from(text),
    }
}

fn paths(found: &BTreeMap<String, PathBuf>) -> Value {
    Value::from_pairs(found.iter().map(|(name, path)| (name.as_str(), path.display().to_string())))
}

fn address(address: SocketAddr) -> Value {
    context! {
        address => address.to_string(),
        host => address.ip().to_string(),
        port => address.port(),
    }
}

/// Returns the name of the current user. Systems that drop privileges must stay this user, to be able to read a run
/// directory in its home folder.
fn user_name() -> String {
    let uid = nix::unistd::geteuid();
    match nix::unistd::User::from_uid(uid) {
        Ok(Some(user)) => user.name,
        Ok(None) | Err(_) => uid.to_string(),
    }
}
