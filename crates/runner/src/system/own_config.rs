//! A user's own configuration file in place of a template of the recipe.

use super::nginx_config::{self, Filling};
use anyhow::{Context as _, bail};
use minijinja::syntax::SyntaxConfig;
use minijinja::{Environment, Error, Value};
use std::fs;
use std::path::Path;
use tollgate_experiment::experiment::Subject;
use tollgate_experiment::recipe::{CONFIG_OPTION, ConfigLine, ConfigSyntax, OwnConfig};
use tollgate_records::error::io_error;
use tollgate_records::subject::OptionValue;

/// Error of a part of a recipe.
pub(super) fn failed(subject: &Subject, part: &str) -> impl FnOnce(Error) -> anyhow::Error + use<> {
    let context = format!("cannot render {part} of system `{}`", subject.recipe.name);
    move |error| anyhow::Error::from(error).context(context)
}

/// Returns the path of the file that replaces a template.
pub(super) fn path<'a>(subject: &'a Subject, template: &str) -> Option<&'a Path> {
    let own = subject.recipe.file.config.as_ref()?;
    match subject.options.get(CONFIG_OPTION) {
        Some(OptionValue::Text(path)) if own.template == template && subject.has_own_config() => {
            Some(Path::new(path))
        }
        _ => None,
    }
}

/// Returns the syntax of such a file: variables alone, as `{%` and `{#` occur in configurations.
pub(super) fn syntax() -> Result<SyntaxConfig, Error> {
    SyntaxConfig::builder()
        .block_delimiters("{%tollgate", "%}")
        .comment_delimiters("{#tollgate", "#}")
        .keep_trailing_newline(true)
        .build()
}

/// Renders the file and checks that it has the lines that a trial needs. Those of a file without variables are filled in,
/// if its syntax is known.
pub(super) fn render(
    environment: &Environment<'_>,
    known: &Value,
    subject: &Subject,
    path: &Path,
    filling: &Filling<'_>,
) -> anyhow::Result<String> {
    let source = fs::read(path).map_err(io_error("read", path))?;
    let syntax = subject.recipe.file.config.as_ref().and_then(|own| own.syntax);
    let name = path.display().to_string();
    if let Some(ConfigSyntax::Nginx) = syntax
        && !source.windows(2).any(|pair| pair == b"{{")
    {
        let failed = || {
            format!("cannot use {name} as the configuration of system `{}`", subject.recipe.name)
        };
        return nginx_config::fill_in(path, filling).with_context(failed);
    }
    let source = String::from_utf8(source).with_context(|| format!("{name} is not UTF-8"))?;
    let text = environment.render_named_str(&name, &source, known);
    let text = text.map_err(failed(subject, &format!("`{name}` as the configuration")))?;
    let lines = subject.recipe.file.config.iter().flat_map(|OwnConfig { lines, .. }| lines);
    let mut missing = String::new();
    for line in lines {
        let needed = environment.render_str(&line.text, known);
        if !contains(&text, &needed.map_err(failed(subject, "`config` in system.toml"))?) {
            missing += &format!("\n    {}", instruction(line, &source));
        }
    }
    if missing.is_empty() {
        Ok(text)
    } else {
        bail!(
            "cannot use {name} as the configuration of system `{}`. Write these lines into it as they are; \
             tollgate fills in the {{{{ }}}} for each trial:{missing}",
            subject.recipe.name
        )
    }
}

/// True if a line that is not a comment contains the text as a whole word or number.
fn contains(config: &str, text: &str) -> bool {
    let is_inside = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
    let lines = config.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines.into_iter().any(|line| {
        line.match_indices(text).any(|(at, _)| {
            let before =
                text.starts_with(char::is_alphanumeric) && is_inside(line[..at].chars().last());
            let after = text.ends_with(char::is_alphanumeric)
                && is_inside(line[at + text.len()..].chars().next());
            !before && !after
        })
    })
}

/// Returns the line to write, with the line of the file that it replaces.
fn instruction(line: &ConfigLine, source: &str) -> String {
    let alternatives = line.write.as_slice();
    let replaced = |line: &String| {
        let directive = line.split_whitespace().next()?;
        let is_replaced = |old: &str| {
            let words: Vec<&str> = old.split_whitespace().collect();
            let begins = |at: usize| at == 0 || words[at - 1].ends_with(['{', ';']);
            // A block may have the name of a directive.
            let has_argument = |at: usize| words.get(at + 1).is_some_and(|word| *word != "{");
            let at = words.iter().position(|word| *word == directive);
            at.is_some_and(|at| begins(at) && has_argument(at))
        };
        let (number, old) = (1..).zip(source.lines()).find(|(_, old)| is_replaced(old))?;
        Some(format!("{line}    in place of line {number}: {}", old.trim()))
    };
    let added = || alternatives.last().cloned().unwrap_or_default();
    alternatives.iter().find_map(replaced).unwrap_or_else(added)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_experiment::recipe::Patterns;

    #[test]
    fn address_is_not_found_in_a_longer_one() {
        let has = |config: &str| contains(config, "127.0.0.1:80");
        assert!(has("listen 127.0.0.1:80;") && has("a\n  bind 127.0.0.1:80"));
        assert!(!has("listen 127.0.0.1:8080;") && !has("listen 1127.0.0.1:80;"));
        assert!(!has("# listen 127.0.0.1:80;") && !has(""));
    }

    #[test]
    fn instruction_names_a_line_of_the_directive_and_no_block() {
        let write = ["server {{ origin.address }};", "proxy_pass http://{{ origin.address }};"];
        let write = Patterns::Several(write.map(str::to_owned).to_vec());
        let line = ConfigLine { text: String::new(), write };
        let pass = "server {\n  location / { proxy_pass http://b; }\n}\n";
        assert_eq!(
            instruction(&line, &format!("{pass}upstream b {{\n  server 10.0.0.1;\n}}")),
            "server {{ origin.address }};    in place of line 5: server 10.0.0.1;"
        );
        assert_eq!(
            instruction(&line, pass),
            "proxy_pass http://{{ origin.address }};    in place of line 2: \
             location / { proxy_pass http://b; }"
        );
        assert_eq!(instruction(&line, ""), "proxy_pass http://{{ origin.address }};");
    }
}
