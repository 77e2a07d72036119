//! Words are read as nginx reads them: between spaces or in quotes, where `\` quotes the next character.

use crate::directive::{Argument, Block, ConfigError, Directive, Place};
use crate::files::Files;
use std::iter::Peekable;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Depth of nested files and blocks.
const DEPTH_MAX: usize = 64;

/// Configuration with all its files.
#[derive(Debug)]
pub struct Configuration {
    /// The main file, in whose folder relative paths begin.
    pub path: PathBuf,
    pub directives: Vec<Directive>,
}

/// Reads a configuration with the files that it includes, whose relative paths begin in its folder: a file, or the output
/// of `nginx -T`, from which the included files are taken.
///
/// # Errors
///
/// A file cannot be read, or its syntax is not that of nginx.
pub fn read(path: &Path) -> Result<Configuration, ConfigError> {
    let text = std::fs::read(path).map_err(|error| {
        ConfigError::new(&start(path), format!("cannot read \"{}\": {error}", path.display()))
    })?;
    let (files, path) = Files::of(path, &text);
    let folder = path.parent().unwrap_or(Path::new(""));
    let directives = Reader { files: &files, folder }.read(&path, &start(&path), 0)?;
    Ok(Configuration { path, directives })
}

fn start(path: &Path) -> Place {
    Place { file: path.to_string_lossy().into(), line: 1 }
}

#[derive(Clone, Copy)]
struct Reader<'a> {
    files: &'a Files,
    /// Folder of relative paths.
    folder: &'a Path,
}

impl Reader<'_> {
    /// Reads a file that a place names.
    fn read(
        self,
        path: &Path,
        named_at: &Place,
        depth: usize,
    ) -> Result<Vec<Directive>, ConfigError> {
        let failed = |message: String| ConfigError::new(named_at, message);
        if depth > DEPTH_MAX {
            return Err(failed(format!("more than {DEPTH_MAX} nested files")));
        }
        let text = self.files.read(path);
        let text =
            text.map_err(|error| failed(format!("cannot read \"{}\": {error}", path.display())))?;
        let file = path.to_string_lossy().into();
        let lexer = Lexer { rest: text.iter().peekable(), line: 1, file };
        Parser { lexer, reader: self, files: depth }.block(0)
    }
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    reader: Reader<'a>,
    /// Files around this one.
    files: usize,
}

impl Parser<'_> {
    /// Reads the directives of a block, up to its end.
    fn block(&mut self, depth: usize) -> Result<Vec<Directive>, ConfigError> {
        let mut directives = Vec::new();
        if depth > DEPTH_MAX {
            return Err(self.lexer.error(format!("more than {DEPTH_MAX} nested blocks")));
        }
        loop {
            let (words, end) = self.lexer.statement()?;
            let mut words = words.into_iter();
            let Some(name) = words.next() else {
                match (end, depth) {
                    (End::File, 0) | (End::Close, 1..) => return Ok(directives),
                    (End::File, _) => {
                        return Err(self.lexer.error("unexpected end of file, expected \"}\""));
                    }
                    (End::Close | End::Semicolon | End::Open, _) => {
                        return Err(self.lexer.error(format!("unexpected {}", end.shown())));
                    }
                }
            };
            let place = Place { file: Arc::clone(&self.lexer.file), line: name.line };
            let arguments = words.collect();
            let mut directive = Directive { name: name.text, arguments, block: Block::None, place };
            match end {
                End::Semicolon if directive.name == "include" => {
                    directives.extend(self.included(&directive)?);
                    continue;
                }
                End::Semicolon => {}
                End::Open if directive.name.ends_with("_by_lua_block") => {
                    directive.block = Block::Code(self.lexer.code()?);
                }
                End::Open => directive.block = Block::Directives(self.block(depth + 1)?),
                End::Close | End::File => {
                    let message = format!(
                        "directive \"{}\" is not terminated by \";\": unexpected {}",
                        directive.name,
                        end.shown()
                    );
                    return Err(ConfigError::new(&directive.place, message));
                }
            }
            directives.push(directive);
        }
    }

    /// Reads the files of an `include`. A pattern may match none.
    fn included(&self, directive: &Directive) -> Result<Vec<Directive>, ConfigError> {
        let failed = |message: String| ConfigError::new(&directive.place, message);
        let [pattern] = directive.arguments.as_slice() else {
            return Err(failed("\"include\" takes one argument".to_owned()));
        };
        let path = self.reader.folder.join(&pattern.text);
        let paths: Vec<PathBuf> = if pattern.text.contains(['*', '?', '[']) {
            self.reader.files.matching(&path.to_string_lossy()).map_err(failed)?
        } else {
            vec![path]
        };
        let mut directives = Vec::new();
        for path in paths {
            directives.extend(self.reader.read(&path, &directive.place, self.files + 1)?);
        }
        Ok(directives)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Semicolon,
    Open,
    Close,
    File,
}

impl End {
    fn shown(self) -> &'static str {
        match self {
            Self::Semicolon => "\";\"",
            Self::Open => "\"{\"",
            Self::Close => "\"}\"",
            Self::File => "end of file",
        }
    }
}

struct Lexer<'a> {
    rest: Peekable<std::slice::Iter<'a, u8>>,
    line: u32,
    file: Arc<str>,
}

impl Lexer<'_> {
    fn error(&self, message: impl Into<String>) -> ConfigError {
        let place = Place { file: Arc::clone(&self.file), line: self.line };
        ConfigError::new(&place, message)
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.rest.next().copied();
        self.line += u32::from(byte == Some(b'\n'));
        byte
    }

    fn peek(&mut self) -> Option<u8> {
        self.rest.peek().copied().copied()
    }

    /// Reads words up to the end of a directive, or of its head.
    fn statement(&mut self) -> Result<(Vec<Argument>, End), ConfigError> {
        let mut words = Vec::new();
        loop {
            let line = self.line;
            let text = match self.peek() {
                None => return Ok((words, End::File)),
                Some(b' ' | b'\t' | b'\r' | b'\n') => {
                    self.next();
                    continue;
                }
                Some(b'#') => {
                    while self.peek().is_some_and(|byte| byte != b'\n') {
                        self.next();
                    }
                    continue;
                }
                Some(byte @ (b';' | b'{' | b'}')) => {
                    self.next();
                    let end = match byte {
                        b';' => End::Semicolon,
                        b'{' => End::Open,
                        _ => End::Close,
                    };
                    return Ok((words, end));
                }
                Some(quote @ (b'"' | b'\'')) => {
                    self.next();
                    self.quoted(quote)?
                }
                Some(_) => self.plain(),
            };
            words.push(Argument { text: String::from_utf8_lossy(&text).into_owned(), line });
        }
    }

    fn quoted(&mut self, quote: u8) -> Result<Vec<u8>, ConfigError> {
        let (start, mut text) = (self.line, Vec::new());
        loop {
            match self.next() {
                Some(byte) if byte == quote => break,
                Some(b'\\') => self.escape(&mut text),
                Some(byte) => text.push(byte),
                None => {
                    self.line = start;
                    return Err(self.error(format!("quote {} is not closed", char::from(quote))));
                }
            }
        }
        match self.peek() {
            // A closing parenthesis is a word of its own.
            Some(b' ' | b'\t' | b'\r' | b'\n' | b';' | b'{' | b')') | None => {}
            Some(other) => {
                return Err(self.error(format!(
                    "unexpected \"{}\" behind a quoted text",
                    char::from(other).escape_default()
                )));
            }
        }
        Ok(text)
    }

    fn plain(&mut self) -> Vec<u8> {
        let mut text = Vec::new();
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' | b';' => break,
                // Part of `${name}`.
                b'{' if text.last() != Some(&b'$') => break,
                b'\\' => {
                    self.next();
                    self.escape(&mut text);
                }
                _ => {
                    self.next();
                    text.push(byte);
                }
            }
        }
        text
    }

    /// Appends what `\` and the next character mean.
    fn escape(&mut self, text: &mut Vec<u8>) {
        match self.next() {
            Some(byte @ (b'"' | b'\'' | b'\\')) => text.push(byte),
            Some(b't') => text.push(b'\t'),
            Some(b'r') => text.push(b'\r'),
            Some(b'n') => text.push(b'\n'),
            other => {
                text.push(b'\\');
                text.extend(other);
            }
        }
    }

    /// Reads a block of code up to the brace that closes it.
    fn code(&mut self) -> Result<String, ConfigError> {
        let (start, mut depth, mut code) = (self.line, 1, Vec::new());
        loop {
            let Some(byte) = self.next() else {
                self.line = start;
                return Err(self.error("unexpected end of file, expected \"}\""));
            };
            match byte {
                b'{' => depth += 1,
                b'}' if depth == 1 => return Ok(String::from_utf8_lossy(&code).into_owned()),
                b'}' => depth -= 1,
                _ => {}
            }
            code.push(byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directive::Directives;
    use std::fs;

    fn shown(directives: &[Directive]) -> String {
        let shown = directives.iter().map(|one| {
            let words: Vec<String> =
                one.arguments.iter().map(|argument| format!("{:?}", argument.text)).collect();
            let block = match &one.block {
                Block::None => String::new(),
                Block::Directives(inner) => format!(" {{{}}}", shown(inner)),
                Block::Code(code) => format!(" {{{{{code}}}}}"),
            };
            format!("{}:{}({}){block}", one.place.line, one.name, words.join(","))
        });
        shown.collect::<Vec<_>>().join(" ")
    }

    fn parsed(text: &str) -> Result<String, String> {
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let path = folder.path().join("nginx.conf");
        fs::write(&path, text).unwrap_or_else(|error| panic!("{error}"));
        let name = format!("{}/", folder.path().display());
        read(&path)
            .map(|read| shown(&read.directives))
            .map_err(|error| error.to_string().replace(&name, ""))
    }

    #[test]
    fn words_are_quoted_and_escaped_as_in_nginx() {
        for (text, expected) in [
            ("a b  c;\n#x;\nd;", r#"1:a("b","c") 3:d()"#),
            ("a 'b\\tc\\rd';", r#"1:a("b\tc\rd")"#),
            (r#"a 'b "c" \'d\' \\ \d' "e\"f\n";"#, r#"1:a("b \"c\" 'd' \\ \\d","e\"f\n")"#),
            ("a ${b}c$d{e}f;", ""),
            ("a b#c;", r#"1:a("b#c")"#),
            (r"location ~ \.(a|b)$ { c; }", r#"1:location("~","\\.(a|b)$") {1:c()}"#),
            ("if ($a = \"b\") { c; }", r#"1:if("($a","=","b",")") {1:c()}"#),
            ("a{b{c;}}\n", "1:a() {1:b() {1:c()}}"),
            (
                "content_by_lua_block { if a then { b } end } c;",
                "1:content_by_lua_block() {{ if a then { b } end }} 1:c()",
            ),
        ] {
            if expected.is_empty() {
                assert!(parsed(text).is_err(), "{text}");
            } else {
                assert_eq!(parsed(text).as_deref(), Ok(expected), "{text}");
            }
        }
    }

    #[test]
    fn faults_have_their_line() {
        for (text, expected) in [
            ("a;\nb { c;\n", "nginx.conf:3: unexpected end of file, expected \"}\""),
            ("a;\n}\n", "nginx.conf:2: unexpected \"}\""),
            (
                "a;\n\nb\n}",
                "nginx.conf:3: directive \"b\" is not terminated by \";\": unexpected \"}\"",
            ),
            ("a 'b\nc;", "nginx.conf:1: quote ' is not closed"),
            ("a 'b'c;", "nginx.conf:1: unexpected \"c\" behind a quoted text"),
            (
                "\ninclude missing.conf;",
                "nginx.conf:2: cannot read \"missing.conf\": No such file or directory (os error 2)",
            ),
            ("include nginx.conf;", "nginx.conf:1: more than 64 nested files"),
        ] {
            assert_eq!(parsed(text), Err(expected.to_owned()), "{text}");
        }
    }

    #[test]
    fn included_files_stand_in_their_place() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text);
        fs::create_dir(folder.path().join("sites"))?;
        write("nginx.conf", "a;\nhttp { include sites/*.conf; include none/*; b; }")?;
        write("sites/2.conf", "second;")?;
        // Relative to the folder of the main file.
        write("sites/1.conf", "\ninclude other;")?;
        write("other", "first;")?;
        let directives = read(&folder.path().join("nginx.conf"))?.directives;
        assert_eq!(shown(&directives), "1:a() 2:http() {1:first() 1:second() 2:b()}");
        let first = &directives[1].directives()[0];
        assert_eq!(first.place.file, folder.path().join("other").to_string_lossy().into());
        Ok(())
    }

    #[test]
    fn output_of_nginx_has_the_included_files() {
        const DUMP: &str = "nginx: the configuration file /srv/nginx.conf syntax is ok\n\
            # configuration file /srv/nginx.conf:\na;\ninclude sites/*;\ninclude /other;\n\n\
            # configuration file /srv/sites/2:\nsecond;\n\n\
            # configuration file /srv/sites/1:\n\nfirst;\n\n\
            # configuration file /srv/sites/.hidden:\nhidden;\n\n\
            # configuration file /other:\nother;\n\n";
        let changed = |old: &str, new: &str| parsed(&DUMP.replace(old, new));
        assert_eq!(changed("", ""), Ok("1:a() 2:first() 1:second() 1:other()".to_owned()));
        for (old, new, expected) in [
            (
                "first;",
                "first",
                "/srv/sites/1:2: directive \"first\" is not terminated by \";\": unexpected end of file",
            ),
            (
                "file /other:",
                "file /others:",
                "/srv/nginx.conf:3: cannot read \"/other\": not in the output of nginx -T",
            ),
            // Behind a directive, such a line is a comment, and the files are those on disk.
            (
                "nginx: the",
                "the;",
                "nginx.conf:5: cannot read \"/other\": No such file or directory (os error 2)",
            ),
        ] {
            assert_eq!(changed(old, new), Err(expected.to_owned()));
        }
    }

    #[test]
    fn written_directives_are_read_as_the_same() -> Result<(), Box<dyn std::error::Error>> {
        let text = r#"
            a 'b "c" \' \\ \d	e' "" ${b} \.php$ "x;{y}" '#' $d;
            map $a $b { "" 1; ~*\.(a|b)$ 'c d'; default 2; }
            if ($a = "b") { return 301 https://$host$request_uri; }
            location / { }
            content_by_lua_block { if a then { b } end } 
            modsecurity_rules '
                SecRule ARGS "@rx \\d{2}" "id:1"
            ';
        "#;
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("nginx.conf");
        fs::write(&path, text)?;
        let first = read(&path)?.directives;
        assert_eq!(first.len(), 6);
        fs::write(&path, Directives(&first).to_string())?;
        let second = read(&path)?.directives;
        let without_lines = |directives: &[Directive]| {
            let shown = shown(directives);
            let digits = |word: &str| word.split(':').skip(1).collect::<Vec<_>>().join(":");
            shown.split(' ').map(digits).collect::<Vec<_>>()
        };
        assert_eq!(without_lines(&first), without_lines(&second));
        Ok(())
    }
}
