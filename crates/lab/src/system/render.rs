//! Commands and configs of a subject, rendered from its recipe's templates.

#[cfg(test)]
mod tests;

use super::installed::Installed;
use crate::inputs::catalog::{Catalog, CatalogError};
use crate::inputs::experiment::Subject;
use crate::inputs::options::OptionValue;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Value;
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, context};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fs, io};
use thiserror::Error;

/// What templates know about one trial besides the options of the subject.
#[derive(Debug, Clone)]
pub struct Place<'a> {
    /// The folder that configs are written into.
    pub dir: &'a Path,
    /// Where the system is to listen.
    pub listen: SocketAddr,
    /// Where the origins listen; none stands behind a system that answers by itself.
    pub origins: &'a [SocketAddr],
    /// How many connections the load opens at the same time.
    pub connections: u32,
    /// The recipe's further ports, by name.
    pub ports: &'a BTreeMap<String, SocketAddr>,
    /// What the recipe needs, and where it is.
    pub installed: &'a Installed,
}

/// The files that a subject really got.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rendered {
    /// The commands that run and end before the processes are started.
    pub prepare: Vec<Vec<String>>,
    /// The processes, in the recipe's order.
    pub processes: Vec<RenderedProcess>,
    /// Hashes of what the configs refer to through `file()` and `files()`: rule sets above all.
    pub referenced: BTreeMap<PathBuf, String>,
}

/// A process as it is to be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedProcess {
    /// What it is called in messages.
    pub name: String,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// What its environment has besides.
    pub env: BTreeMap<String, String>,
    /// Where it listens before the next process is started.
    pub listens: Option<SocketAddr>,
}

/// Why a config could not be made.
#[derive(Debug, Error)]
pub enum RenderError {
    /// A template or an expression of the recipe fails.
    #[error("rendering {what} of system `{system}`")]
    Template {
        /// The system's name.
        system: String,
        /// Which text of the recipe.
        what: String,
        /// What the template engine says, with the line.
        source: Error,
    },
    /// A template that the recipe names is not there.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// A process is to listen on a port that the recipe does not name.
    #[error(
        "process `{process}` of system `{system}` listens on `{port}`, which is none of its `ports`"
    )]
    NoPort {
        /// The system's name.
        system: String,
        /// The process.
        process: String,
        /// The port's name.
        port: String,
    },
    /// The rendered file cannot be written.
    #[error("writing {path}")]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Renders every config of the subject into `place.dir`, and its commands, and copies its files there.
///
/// # Errors
///
/// A template that is missing, wrong, or refers to a file that cannot be read.
pub fn render(
    catalog: &Catalog,
    subject: &Subject,
    place: &Place<'_>,
) -> Result<Rendered, RenderError> {
    let failed = |what: String| {
        let system = subject.recipe.name.clone();
        move |source: Error| RenderError::Template { system, what, source }
    };
    let referenced = Arc::new(Mutex::new(BTreeMap::new()));
    let mut environment =
        environment(catalog).map_err(failed("the config templates".to_owned()))?;
    add_file_functions(&mut environment, &referenced);
    let known = context! {
        dir => place.dir.display().to_string(),
        listen => address(place.listen),
        origin => place.origins.first().copied().map_or(Value::UNDEFINED, address),
        origins => match place.origins {
            [] => Value::UNDEFINED,
            origins => origins.iter().copied().map(address).collect(),
        },
        connections => place.connections,
        ports => Value::from_pairs(place.ports.iter().map(|(name, at)| (name.as_str(), address(*at)))),
        programs => paths(&place.installed.programs),
        builds => paths(&place.installed.builds),
        found => paths(&place.installed.found),
        root => nix::unistd::geteuid().is_root(),
        user => user_name(),
        ..options(subject)
    };
    for file in &subject.recipe.file.templates {
        let name = format!("{}/{file}", subject.recipe.name);
        // Looked up by the catalog first, so that a missing file is told as such.
        catalog.template(&name)?;
        let text = environment
            .get_template(&name)
            .and_then(|template| template.render(&known))
            .map_err(failed(format!("config template `{file}`")))?;
        write(&place.dir.join(file), &text)?;
    }
    for file in &subject.recipe.file.files {
        let source = catalog.template(&format!("{}/{file}", subject.recipe.name))?;
        write(&place.dir.join(file), &source.text)?;
    }
    let is_wanted = |when: &Option<String>| match when {
        Some(when) => holds(subject, when),
        None => Ok(true),
    };
    for copied in &subject.recipe.file.copy {
        if is_wanted(&copied.when)? {
            for source in catalog.files(&copied.from)? {
                write(&place.dir.join(&copied.to).join(&source.name), &source.text)?;
                let name = Path::new(&copied.from).with_file_name(&source.name);
                let mut noted = referenced.lock().unwrap_or_else(PoisonError::into_inner);
                noted.insert(name, hash_text(&source.text));
            }
        }
    }
    let words = |words: &[String]| -> Result<Vec<String>, Error> {
        words.iter().map(|word| environment.render_str(word, &known)).collect()
    };
    let mut prepare = Vec::new();
    for preparation in &subject.recipe.file.prepare {
        if is_wanted(&preparation.when)? {
            let failed = failed("a command of `prepare`".to_owned());
            prepare.push(words(&preparation.command).map_err(failed)?);
        }
    }
    let mut processes = Vec::new();
    for process in &subject.recipe.file.process {
        if !is_wanted(&process.when)? {
            continue;
        }
        let of = |what: &str| failed(format!("the {what} of process `{}`", process.name));
        let value = |(name, value): (&String, &String)| {
            Ok((name.clone(), environment.render_str(value, &known)?))
        };
        let port = |port: &String| {
            place.ports.get(port).copied().ok_or_else(|| RenderError::NoPort {
                system: subject.recipe.name.clone(),
                process: process.name.clone(),
                port: port.clone(),
            })
        };
        processes.push(RenderedProcess {
            name: process.name.clone(),
            command: words(&process.command).map_err(of("command"))?,
            env: process.env.iter().map(value).collect::<Result<_, _>>().map_err(of("env"))?,
            listens: process.listens.as_ref().map(port).transpose()?,
        });
    }
    let referenced = referenced.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(Rendered { prepare, processes, referenced })
}

/// Writes a file of a subject, and makes the folder that it stands in.
fn write(path: &Path, text: &str) -> Result<(), RenderError> {
    let made = path.parent().map_or(Ok(()), fs::create_dir_all);
    let written = made.and_then(|()| fs::write(path, text));
    written.map_err(|source| RenderError::Write { path: path.to_owned(), source })
}

/// Whether an expression of the recipe holds for the subject.
///
/// # Errors
///
/// The expression is wrong.
pub fn holds(subject: &Subject, expression: &str) -> Result<bool, RenderError> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment
        .compile_expression(expression)
        .and_then(|compiled| compiled.eval(options(subject)))
        .map(|value| value.is_true())
        .map_err(|source| RenderError::Template {
            system: subject.recipe.name.clone(),
            what: format!("the expression `{expression}`"),
            source,
        })
}

/// The words of an expression of the recipe that is a list, or none where it is `none`.
///
/// # Errors
///
/// The expression is wrong, or is something else.
pub fn words(subject: &Subject, expression: &str) -> Result<Option<Vec<String>>, RenderError> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment
        .compile_expression(expression)
        .and_then(|compiled| compiled.eval(options(subject)))
        .and_then(|value| list(&value))
        .map_err(|source| RenderError::Template {
            system: subject.recipe.name.clone(),
            what: format!("the expression `{expression}`"),
            source,
        })
}

fn list(value: &Value) -> Result<Option<Vec<String>>, Error> {
    match value.is_none() {
        true => Ok(None),
        false => Ok(Some(value.try_iter()?.map(|item| item.to_string()).collect())),
    }
}

/// A template of the recipe that knows the options and what has been found so far.
///
/// # Errors
///
/// The template is wrong.
pub fn text(
    subject: &Subject,
    installed: &Installed,
    template: &str,
) -> Result<String, RenderError> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment
        .render_str(
            template,
            context! {
                programs => paths(&installed.programs),
                builds => paths(&installed.builds),
                found => paths(&installed.found),
                ..options(subject)
            },
        )
        .map_err(|source| RenderError::Template {
            system: subject.recipe.name.clone(),
            what: format!("`{template}`"),
            source,
        })
}

/// The SHA-256 of a file, in hex.
///
/// # Errors
///
/// The file cannot be read.
pub fn hash_file(path: &Path) -> io::Result<String> {
    let mut hasher = Sha256::new();
    io::copy(&mut fs::File::open(path)?, &mut HashWriter(&mut hasher))?;
    Ok(hex(&hasher.finalize()))
}

/// The SHA-256 of a text, in hex.
pub fn hash_text(text: &str) -> String {
    hex(&Sha256::digest(text))
}

/// Bytes as lower-case hex digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a String cannot fail.
        write!(text, "{byte:02x}").ok();
        text
    })
}

struct HashWriter<'a>(&'a mut Sha256);

impl io::Write for HashWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn environment(catalog: &Catalog) -> Result<Environment<'static>, Error> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .keep_trailing_newline(true)
        .build()?;
    environment.set_syntax(syntax);
    let catalog = catalog.clone();
    environment.set_loader(move |name| match catalog.template(name) {
        Ok(source) => Ok(Some(source.text)),
        Err(CatalogError::NotFound { .. }) => Ok(None),
        Err(error) => {
            Err(Error::new(ErrorKind::InvalidOperation, "reading a template").with_source(error))
        }
    });
    Ok(environment)
}

type Referenced = Arc<Mutex<BTreeMap<PathBuf, String>>>;

/// `file(path)` is that path, and `files(pattern)` are the paths that match, sorted; both note the
/// hash of what they name, because a config means nothing without the rules that it pulls in.
fn add_file_functions(environment: &mut Environment<'_>, referenced: &Referenced) {
    let noted = Arc::clone(referenced);
    environment.add_function("file", move |path: String| {
        note(&noted, Path::new(&path))?;
        Ok::<_, Error>(path)
    });
    let noted = Arc::clone(referenced);
    environment.add_function("files", move |pattern: String| {
        let failed = |error: String| Error::new(ErrorKind::InvalidOperation, error);
        let paths = glob::glob(&pattern).map_err(|error| failed(error.to_string()))?;
        let mut names = Vec::new();
        // glob yields the paths sorted.
        for path in paths {
            let path = path.map_err(|error| failed(error.to_string()))?;
            note(&noted, &path)?;
            names.push(path.display().to_string());
        }
        if names.is_empty() {
            return Err(failed(format!("no file matches {pattern}")));
        }
        Ok(names)
    });
}

fn note(referenced: &Referenced, path: &Path) -> Result<(), Error> {
    let hash = hash_file(path).map_err(|error| {
        Error::new(ErrorKind::InvalidOperation, format!("reading {}: {error}", path.display()))
    })?;
    let mut noted = referenced.lock().unwrap_or_else(PoisonError::into_inner);
    noted.insert(path.to_owned(), hash);
    Ok(())
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

/// The name of the user that runs this; systems that drop root have to stay that user, or they
/// could not read a run directory under a home folder.
fn user_name() -> String {
    let uid = nix::unistd::geteuid();
    match nix::unistd::User::from_uid(uid) {
        Ok(Some(user)) => user.name,
        Ok(None) | Err(_) => uid.to_string(),
    }
}
