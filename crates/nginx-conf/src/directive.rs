//! Directives with their places, and their text.

use std::fmt;
use std::sync::Arc;

/// A line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Path, as `include`, the caller or `nginx -T` names it.
    pub file: Arc<str>,
    /// The first line is 1.
    pub line: u32,
}

/// A word behind the name of a directive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Text without its quotes.
    pub text: String,
    /// Line on which it begins.
    pub line: u32,
}

/// End of a directive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Block {
    /// A semicolon.
    None,
    Directives(Vec<Directive>),
    /// Code in another language, such as Lua.
    Code(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directive {
    pub name: String,
    pub arguments: Vec<Argument>,
    pub block: Block,
    /// Place of the name.
    pub place: Place,
}

/// A fault of a configuration.
#[derive(Debug)]
pub struct ConfigError {
    place: Place,
    message: String,
}

impl ConfigError {
    /// Makes an error that names a line.
    pub fn new(place: &Place, message: impl Into<String>) -> Self {
        Self { place: place.clone(), message: message.into() }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}

impl std::error::Error for ConfigError {}

impl Directive {
    /// Makes a directive without a block.
    pub fn new<S: Into<String>>(
        name: &str,
        arguments: impl IntoIterator<Item = S>,
        place: &Place,
    ) -> Self {
        let argument = |text: S| Argument { text: text.into(), line: place.line };
        Self {
            name: name.to_owned(),
            arguments: arguments.into_iter().map(argument).collect(),
            block: Block::None,
            place: place.clone(),
        }
    }

    /// Returns the text of the argument at a position; empty without one.
    pub fn argument(&self, position: usize) -> &str {
        self.arguments.get(position).map_or("", |argument| &argument.text)
    }

    /// Returns the directives of the block; none without one.
    pub fn directives(&self) -> &[Directive] {
        match &self.block {
            Block::Directives(directives) => directives,
            Block::None | Block::Code(_) => &[],
        }
    }

    /// Returns the name, and the arguments with spaces between.
    pub fn title(&self) -> String {
        let arguments = self.arguments.iter().map(|argument| &*argument.text);
        std::iter::once(&*self.name).chain(arguments).collect::<Vec<_>>().join(" ")
    }
}

/// Text of directives from which nginx reads the same ones, each with its place in a comment.
#[derive(Clone, Copy, Debug)]
pub struct Directives<'a>(pub &'a [Directive]);

impl fmt::Display for Directives<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|directive| write(f, directive, 0))
    }
}

fn write(f: &mut fmt::Formatter<'_>, directive: &Directive, depth: usize) -> fmt::Result {
    let indent = depth * 4;
    write!(f, "{:indent$}{}", "", Word(&directive.name))?;
    for argument in &directive.arguments {
        write!(f, " {}", Word(&argument.text))?;
    }
    let place = &directive.place;
    match &directive.block {
        Block::None => writeln!(f, ";  # {place}"),
        Block::Code(code) => writeln!(f, " {{{code}}}  # {place}"),
        Block::Directives(directives) => {
            writeln!(f, " {{  # {place}")?;
            directives.iter().try_for_each(|directive| write(f, directive, depth + 1))?;
            writeln!(f, "{:indent$}}}", "")
        }
    }
}

/// A word, in quotes if nginx would not read it as one without them.
struct Word<'a>(&'a str);

impl fmt::Display for Word<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_plain = |c: char| c.is_alphanumeric() || "$_-+*=!~^|()[],.:/?&%<>@".contains(c);
        if !self.0.is_empty() && self.0.chars().all(is_plain) {
            return f.write_str(self.0);
        }
        f.write_str("\"")?;
        for c in self.0.chars() {
            if c == '"' || c == '\\' {
                f.write_str("\\")?;
            }
            write!(f, "{c}")?;
        }
        f.write_str("\"")
    }
}
