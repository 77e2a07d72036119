//! Detection of cross-site scripting: HTML as lenient browsers read it, in five contexts.
//!
//! Verdicts are those of libinjection 4.0 with one exception: there a byte 0xFF after whitespace within
//! a tag ends the document, since it equals the end marker.

use memchr::{memchr, memchr2, memmem};

/// Names of events whose attributes `on...` run scripts. A longer name that starts with one counts too.
/// The list is that of libinjection 4.0; versions before 3.10 treat every `on...` of five characters
/// and more as an event, including `online=`.
const EVENTS: &str = "\
    ABORT ACTIVATE ACTIVE ADDSOURCEBUFFER ADDSTREAM ADDTRACK AFTERPRINT ANIMATIONCANCEL ANIMATIONEND \
    ANIMATIONITERATION ANIMATIONSTART AUDIOEND AUDIOPROCESS AUDIOSTART AUTOCOMPLETE BEFOREACTIVATE \
    BEFORECOPY BEFORECUT BEFOREINPUT BEFORELOAD BEFOREPASTE BEFOREPRINT BEFOREUNLOAD BEGINEVENT \
    BLOCKED BLUR BOUNDARY BUFFEREDAMOUNTLOW CACHED CANCEL CANPLAY CHANGE CHARGINGCHANGE \
    CHARGINGTIMECHANGE CHECKING CLICK CLOSE COMPLETE COMPOSITIONEND COMPOSITIONSTART \
    COMPOSITIONUPDATE CONNECT CONTEXTMENU CONTROLLERCHANGE COPY CUECHANGE CUT DATAAVAILABLE \
    DATACHANNEL DBLCLICK DEVICECHANGE DEVICEMOTION DEVICEORIENTATION DISCHARGINGTIMECHANGE \
    DISCONNECT DOMACTIVATE DOMCHARACTERDATAMODIFIED DOMCONTENTLOADED DOMFOCUSIN DOMFOCUSOUT \
    DOMNODEINSERTED DOMNODEREMOVED DOMSUBTREEMODIFIED DOWNLOADING DRAG DROP DURATIONCHANGE EMPTIED \
    ENCRYPTED END ENTER ERROR EXIT FETCH FINISH FOCUS FORMCHANGE FORMINPUT GAMEPADCONNECTED \
    GAMEPADDISCONNECTED GESTURECHANGE GESTUREEND GESTURESCROLLEND GESTURESCROLLSTART \
    GESTURESCROLLUPDATE GESTURESTART GESTURETAP GOTPOINTERCAPTURE HASHCHANGE ICECANDIDATE \
    ICECONNECTIONSTATECHANGE ICEGATHERINGSTATECHANGE INACTIVE INPUT INSTALL INVALID KEYDOWN KEYPRESS \
    KEYSTATUSESCHANGE KEYUP LANGUAGECHANGE LEAVEPICTUREINPICTURE LEVELCHANGE LOAD LOSTPOINTERCAPTURE \
    MARK MERCHANTVALIDATION MESSAGE MOUSEDOWN MOUSEENTER MOUSELEAVE MOUSEMOVE MOUSEOUT MOUSEOVER \
    MOUSEUP MOUSEWHEEL MUTE NEGOTIATIONNEEDED NEXTTRACK NOMATCH NOUPDATE OBSOLETE OFFLINE ONLINE \
    OPEN ORIENTATIONCHANGE OVERCONSTRAINED OVERFLOWCHANGED PAGEHIDE PAGESHOW PASTE PAUSE \
    PAYERDETAILCHANGE PAYMENTAUTHORIZED PAYMENTMETHODCHANGE PAYMENTMETHODSELECTED PLAY POINTERCANCEL \
    POINTERDOWN POINTERENTER POINTERLEAVE POINTERLOCKCHANGE POINTERLOCKERROR POINTERMOVE POINTEROUT \
    POINTEROVER POINTERUP POPSTATE PREVIOUSTRACK PROCESSORERROR PROGRESS PROPERTYCHANGE RATECHANGE \
    READYSTATECHANGE REJECTIONHANDLED REMOVE RESET RESIZE RESOURCETIMINGBUFFERFULL RESULT RESUME \
    SCROLL SEARCH SECURITYPOLICYVIOLATION SEEKED SEEKING SELECT SHIPPINGADDRESSCHANGE \
    SHIPPINGCONTACTSELECTED SHIPPINGMETHODSELECTED SHIPPINGOPTIONCHANGE SHOW SIGNALINGSTATECHANGE \
    SLOTCHANGE SOUNDEND SOUNDSTART SOURCECLOSE SOURCEENDED SOURCEOPEN SPEECHEND SPEECHSTART SQUEEZE \
    STALLED START STATECHANGE STOP STORAGE SUBMIT SUCCESS SUSPEND TEXTINPUT TIMEOUT TIMEUPDATE \
    TOGGLE TONECHANGE TOUCHCANCEL TOUCHEND TOUCHFORCECHANGE TOUCHMOVE TOUCHSTART TRACK \
    TRANSITIONCANCEL TRANSITIONEND TRANSITIONRUN TRANSITIONSTART UNCAPTUREDERROR UNHANDLEDREJECTION \
    UNLOAD UNMUTE UPDATE UPGRADENEEDED VALIDATEMERCHANT VERSIONCHANGE VISIBILITYCHANGE VOLUMECHANGE \
    WAITING WEBGLCONTEXTCHANGED WEBGLCONTEXTCREATIONERROR WEBGLCONTEXTLOST WEBGLCONTEXTRESTORED \
    WEBKITANIMATIONEND WEBKITANIMATIONITERATION WEBKITANIMATIONSTART WEBKITBEFORETEXTINSERTED \
    WEBKITBEGINFULLSCREEN WEBKITCURRENTPLAYBACKTARGETISWIRELESSCHANGED WEBKITENDFULLSCREEN \
    WEBKITFULLSCREENCHANGE WEBKITFULLSCREENERROR WEBKITKEYADDED WEBKITKEYERROR WEBKITKEYMESSAGE \
    WEBKITMOUSEFORCECHANGED WEBKITMOUSEFORCEDOWN WEBKITMOUSEFORCEUP WEBKITMOUSEFORCEWILLBEGIN \
    WEBKITNEEDKEY WEBKITNETWORKINFOCHANGE WEBKITPLAYBACKTARGETAVAILABILITYCHANGED \
    WEBKITPRESENTATIONMODECHANGED WEBKITREGIONOVERSETCHANGE WEBKITREMOVESOURCEBUFFER \
    WEBKITSOURCECLOSE WEBKITSOURCEENDED WEBKITSOURCEOPEN WEBKITSPEECHCHANGE WEBKITTRANSITIONEND \
    WEBKITWILLREVEALBOTTOM WEBKITWILLREVEALLEFT WEBKITWILLREVEALRIGHT WEBKITWILLREVEALTOP WHEEL \
    WRITE ZOOM";

/// Elements that load or run something.
const ELEMENTS: [&str; 20] = [
    "APPLET", "BASE", "COMMENT", "EMBED", "FRAME", "FRAMESET", "HANDLER", "IFRAME", "IMPORT",
    "ISINDEX", "LINK", "LISTENER", "META", "NOSCRIPT", "OBJECT", "SCRIPT", "STYLE", "VMLFRAME",
    "XML", "XSS",
];

/// Attributes that load or run content, and the values that make them dangerous.
const ATTRIBUTES: [(&str, Danger); 20] = [
    ("ACTION", Danger::Url),
    ("ATTRIBUTENAME", Danger::Name),
    ("BACKGROUND", Danger::Url),
    ("BY", Danger::Url),
    ("DATAFORMATAS", Danger::Always),
    ("DATASRC", Danger::Always),
    ("DYNSRC", Danger::Url),
    ("FILTER", Danger::Always),
    ("FOLDER", Danger::Url),
    ("FORMACTION", Danger::Url),
    ("FROM", Danger::Url),
    ("HANDLER", Danger::Url),
    ("HREF", Danger::Url),
    ("LOWSRC", Danger::Url),
    ("POSTER", Danger::Url),
    ("SRC", Danger::Url),
    ("STYLE", Danger::Always),
    ("TO", Danger::Url),
    ("VALUES", Danger::Url),
    ("XLINK:HREF", Danger::Url),
];

/// Schemes of URLs that run scripts. `JAVA` stands for `JAVASCRIPT` too.
const SCHEMES: [&str; 4] = ["DATA", "VIEW-SOURCE", "JAVA", "VBSCRIPT"];

/// Condition that makes an attribute dangerous.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Danger {
    Always,
    /// With a URL of a scheme that runs scripts.
    Url,
    /// With the name of a dangerous attribute as its value.
    Name,
}

/// Returns true for a value that is cross-site scripting: as text between tags, or within a tag,
/// unquoted or after one of three quotes.
pub(crate) fn detect_xss(value: &[u8]) -> bool {
    // Elements, comments and document types start with `<`, values of attributes follow `=`.
    // Nothing else is dangerous.
    if memchr2(b'<', b'=', value).is_none() {
        return false;
    }
    let in_quotes = |quote: u8| {
        let end = memchr(quote, value);
        end.is_some_and(|end| memchr2(b'<', b'=', &value[end..]).is_some())
            && is_dangerous(value, State::Value(Some(quote)))
    };
    (memchr(b'<', value).is_some() && is_dangerous(value, State::Text))
        || is_dangerous(value, State::BeforeName)
        || in_quotes(b'\'')
        || in_quotes(b'"')
        || in_quotes(b'`')
}

/// Position of a reader within a document.
#[derive(Debug, Clone, Copy)]
enum State {
    Text,
    /// After `<`.
    Tag,
    /// After `</`.
    EndTag,
    ElementName,
    BeforeName,
    Name,
    AfterName,
    BeforeValue,
    /// A value within quotes or without, at its first byte.
    Value(Option<u8>),
    AfterQuotes,
    /// After a slash within a tag.
    Slash,
    /// At the `>` that ends a tag.
    TagEnd,
    /// After `<!`.
    Declaration,
    /// A comment that ends with this text.
    Comment(&'static [u8]),
    ProperComment,
    CharacterData,
}

/// Token of a text.
enum Token<'a> {
    Element(&'a [u8]),
    Name(&'a [u8]),
    Value(&'a [u8]),
    Comment(&'a [u8]),
    DocumentType,
    /// The end of a tag, or text: it separates a name from what follows.
    Other,
}

fn is_dangerous(value: &[u8], start: State) -> bool {
    let mut reader = Reader { input: value, at: 0, state: start, closing: false };
    let mut name: &[u8] = &[];
    while let Some(token) = reader.next() {
        match token {
            Token::DocumentType => return true,
            Token::Element(element) if is_dangerous_element(element) => return true,
            Token::Comment(comment) if is_dangerous_comment(comment) => return true,
            Token::Name(read) => {
                name = read;
                continue;
            }
            Token::Value(value) => {
                let dangerous = match danger(name) {
                    Some(Danger::Always) => true,
                    Some(Danger::Url) => is_dangerous_url(value),
                    Some(Danger::Name) => danger(value).is_some(),
                    None => false,
                };
                if dangerous {
                    return true;
                }
            }
            Token::Element(_) | Token::Comment(_) | Token::Other => {}
        }
        name = &[];
    }
    false
}

/// Whitespace of old browsers, including zero bytes.
fn is_white(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r' | 0)
}

struct Reader<'a> {
    input: &'a [u8],
    at: usize,
    state: State,
    /// An end tag was started.
    closing: bool,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Option<Token<'a>> {
        loop {
            match self.state {
                State::Text => {
                    self.at += memchr(b'<', self.rest())? + 1;
                    self.state = State::Tag;
                }
                State::Tag => self.state = self.tag()?,
                State::EndTag => {
                    self.state = match self.peek()? {
                        b'>' => State::Text,
                        byte if byte.is_ascii_alphabetic() => State::ElementName,
                        _ => {
                            self.closing = false;
                            State::Comment(b">")
                        }
                    };
                }
                State::ElementName => return self.element_name(),
                State::BeforeName | State::AfterName => {
                    let equals = matches!(self.state, State::AfterName);
                    self.skip_white();
                    self.state = match self.peek()? {
                        b'/' => self.step(State::Slash),
                        b'=' if equals => self.step(State::BeforeValue),
                        b'>' => State::TagEnd,
                        _ => State::Name,
                    };
                }
                State::Name => return Some(self.name()),
                State::BeforeValue => {
                    self.skip_white();
                    self.state = match self.peek()? {
                        quote @ (b'"' | b'\'' | b'`') => self.step(State::Value(Some(quote))),
                        _ => State::Value(None),
                    };
                }
                State::Value(quote) => return Some(self.value(quote)),
                State::AfterQuotes => {
                    self.state = match self.peek()? {
                        b'/' => self.step(State::Slash),
                        _ => State::BeforeName,
                    };
                }
                State::Slash => {
                    self.state =
                        if self.peek()? == b'>' { State::TagEnd } else { State::BeforeName };
                }
                State::TagEnd => {
                    self.closing = false;
                    self.state = self.step(State::Text);
                    return Some(Token::Other);
                }
                State::Declaration => {
                    let rest = self.rest();
                    if rest.get(..7).is_some_and(|word| word.eq_ignore_ascii_case(b"DOCTYPE")) {
                        return Some(Token::DocumentType);
                    }
                    self.state = if rest.starts_with(b"[CDATA[") {
                        self.at += 7;
                        State::CharacterData
                    } else if rest.starts_with(b"--") {
                        self.at += 2;
                        State::ProperComment
                    } else {
                        State::Comment(b">")
                    };
                }
                State::Comment(end) => {
                    let length = memmem::find(self.rest(), end);
                    return Some(self.comment(length, end.len()));
                }
                State::ProperComment => {
                    let (length, end) = proper_comment(self.rest()).unzip();
                    return Some(self.comment(length, end.unwrap_or(0)));
                }
                State::CharacterData => {
                    self.at += memmem::find(self.rest(), b"]]>")? + 3;
                    self.state = State::Text;
                    return Some(Token::Other);
                }
            }
        }
    }

    fn rest(&self) -> &'a [u8] {
        &self.input[self.at..]
    }

    fn peek(&self) -> Option<u8> {
        self.input.get(self.at).copied()
    }

    /// Skips a byte and returns the state after it.
    fn step(&mut self, state: State) -> State {
        self.at += 1;
        state
    }

    fn skip_white(&mut self) {
        self.at += self.rest().iter().take_while(|byte| is_white(**byte)).count();
    }

    fn tag(&mut self) -> Option<State> {
        Some(match self.peek()? {
            b'!' => self.step(State::Declaration),
            b'/' => {
                self.closing = true;
                self.step(State::EndTag)
            }
            b'?' => self.step(State::Comment(b">")),
            // Comments of old browsers.
            b'%' => self.step(State::Comment(b"%>")),
            0 | b'a'..=b'z' | b'A'..=b'Z' => State::ElementName,
            _ => State::Text,
        })
    }

    fn element_name(&mut self) -> Option<Token<'a>> {
        let rest = self.rest();
        let ends = |byte: &u8| *byte != 0 && (is_white(*byte) || matches!(byte, b'/' | b'>'));
        let length = rest.iter().position(ends).unwrap_or(rest.len());
        self.at += length;
        let name = &rest[..length];
        self.state = match self.peek() {
            Some(b'>') if self.closing => {
                self.state = State::TagEnd;
                return self.next();
            }
            Some(b'>') => State::TagEnd,
            Some(b'/') => self.step(State::Slash),
            Some(_) => self.step(State::BeforeName),
            None => State::BeforeName,
        };
        Some(Token::Element(name))
    }

    fn name(&mut self) -> Token<'a> {
        let rest = self.rest();
        // The first byte belongs to the name, whatever it is.
        let ends = |byte: &u8| is_white(*byte) || matches!(byte, b'/' | b'=' | b'>');
        let length = rest.iter().skip(1).position(ends).map_or(rest.len(), |length| length + 1);
        self.at += length;
        self.state = match self.peek() {
            Some(b'/') => self.step(State::Slash),
            Some(b'=') => self.step(State::BeforeValue),
            Some(b'>') => State::TagEnd,
            Some(_) => self.step(State::AfterName),
            None => State::AfterName,
        };
        Token::Name(&rest[..length])
    }

    fn value(&mut self, quote: Option<u8>) -> Token<'a> {
        let rest = self.rest();
        let length = match quote {
            Some(quote) => memchr(quote, rest),
            None => rest.iter().position(|byte| is_white(*byte) || *byte == b'>'),
        };
        let length = length.unwrap_or(rest.len());
        self.at += length;
        self.state = match (quote, self.peek()) {
            (Some(_), Some(_)) => self.step(State::AfterQuotes),
            (None, Some(b'>')) => State::TagEnd,
            (None, Some(_)) => self.step(State::BeforeName),
            (_, None) => State::BeforeName,
        };
        Token::Value(&rest[..length])
    }

    /// Takes a comment of that length and its end; one without an end goes up to the end of the
    /// input.
    fn comment(&mut self, length: Option<usize>, end: usize) -> Token<'a> {
        let rest = self.rest();
        self.at += length.map_or(rest.len(), |length| length + end);
        self.state = State::Text;
        Token::Comment(&rest[..length.unwrap_or(rest.len())])
    }
}

/// Length of a comment and of its end: `-->` or `-!>`, with any number of zero bytes after the
/// first hyphen.
fn proper_comment(rest: &[u8]) -> Option<(usize, usize)> {
    let mut from = 0;
    loop {
        let start = from + memchr(b'-', &rest[from..])?;
        let after = &rest[start + 1..];
        let zeros = after.iter().take_while(|byte| **byte == 0).count();
        match &after[zeros..] {
            [b'-' | b'!', b'>', ..] => return Some((start, zeros + 3)),
            _ => from = start + 1,
        }
    }
}

/// Compares with a word in upper case, ignoring case and zero bytes.
fn is_word(text: &[u8], word: &str) -> bool {
    let mut rest = word.bytes();
    text.iter()
        .filter(|byte| **byte != 0)
        .all(|byte| rest.next() == Some(byte.to_ascii_uppercase()))
        && rest.next().is_none()
}

fn starts_with(text: &[u8], word: &str) -> bool {
    text.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word.as_bytes()))
}

fn is_dangerous_element(name: &[u8]) -> bool {
    name.len() >= 3
        && (ELEMENTS.iter().any(|element| is_word(name, element))
            || starts_with(name, "SVG")
            || starts_with(name, "XSL"))
}

fn danger(name: &[u8]) -> Option<Danger> {
    if name.len() < 2 {
        return None;
    }
    if name.len() >= 5 {
        let is_event = starts_with(name, "ON")
            && EVENTS.split_ascii_whitespace().any(|event| starts_with(&name[2..], event));
        if is_event || starts_with(name, "XMLNS") || starts_with(name, "XLINK") {
            return Some(Danger::Always);
        }
    }
    ATTRIBUTES.iter().find(|(attribute, _)| is_word(name, attribute)).map(|(_, danger)| *danger)
}

fn is_dangerous_comment(text: &[u8]) -> bool {
    // The backtick ends a tag in old browsers; the others are conditional comments and
    // declarations.
    memchr(b'`', text).is_some()
        || (text.len() > 3 && (starts_with(text, "[IF") || starts_with(text, "XML")))
        || (text.len() > 5 && (starts_with(text, "IMPORT") || starts_with(text, "ENTITY")))
}

fn is_dangerous_url(url: &[u8]) -> bool {
    let start = url.iter().position(|byte| matches!(byte, 33..=126)).unwrap_or(url.len());
    SCHEMES.iter().any(|scheme| has_scheme(&url[start..], scheme))
}

/// Compares the start of a URL with a scheme after decoding numeric character references. Control
/// characters before it, and line feeds and zero bytes within it, do not count.
fn has_scheme(mut url: &[u8], scheme: &str) -> bool {
    let mut expected = scheme.bytes();
    let mut first = true;
    while !url.is_empty() {
        if expected.len() == 0 {
            return true;
        }
        let (code, length) = character(url);
        url = &url[length..];
        if first && code <= 32 {
            continue;
        }
        first = false;
        if matches!(code, 0 | 10) {
            continue;
        }
        if expected.next() != Some((code as u8).to_ascii_uppercase()) {
            return false;
        }
    }
    expected.len() == 0
}

/// Code and length of the first character, which may be a numeric reference with or without its
/// semicolon. Any other reference is its ampersand.
fn character(text: &[u8]) -> (u32, usize) {
    const CODE_MAX: u32 = 0x10_00ff;
    let (radix, start) = match text {
        [b'&', b'#', b'x' | b'X', ..] => (16, 3),
        [b'&', b'#', ..] => (10, 2),
        _ => return (text.first().map_or(0, |byte| u32::from(*byte)), 1),
    };
    let mut code = 0;
    for (i, byte) in text[start..].iter().enumerate() {
        match char::from(*byte).to_digit(radix) {
            Some(digit) => code = code * radix + digit,
            None if i == 0 => return (u32::from(b'&'), 1),
            None => return (code, start + i + usize::from(*byte == b';')),
        }
        if code > CODE_MAX {
            return (u32::from(b'&'), 1);
        }
    }
    if text.len() == start { (u32::from(b'&'), 1) } else { (code, text.len()) }
}

#[cfg(test)]
mod tests {
    use super::detect_xss;

    #[test]
    fn detects_scripts_in_each_context() {
        for value in [
            "<script>alert(1)</script>",
            "x<SCRIPT",
            "<svg/onload=alert(1)>",
            "<a href=javascript:alert(1)>",
            "<a href=' \u{1}java\nscript:x'>",
            "<a href='&#106;&#x61vascript:x'>",
            "<!DOCTYPE html>",
            "<!-- ` -->",
            "<!--[if IE]>",
            "<?import x",
            "<!ENTITY x>",
            "<%= ` %>",
            " onerror=alert(1)",
            "x onclick = y",
            "' onerror=alert(1) '",
            "\" style=x ",
            "`onerror=x",
            "x' ><script>",
            "<set attributename=onclick to=x>",
            "<a xmlns:x=y>",
            "<\0script>",
            "<s\0cript>",
        ] {
            assert!(detect_xss(value.as_bytes()), "{value}");
        }
    }

    #[test]
    fn lets_plain_text_pass() {
        for value in [
            "",
            "1 < 2",
            "a=b",
            "<b>bold</b>",
            "<a href=https://example.com/?java=1>",
            "online=yes",
            "it's 'quoted' = x",
            "<a onfoo=1>",
            "x style",
            "<!-- plain -->",
            "<a href='&#1048832;java'>",
        ] {
            assert!(!detect_xss(value.as_bytes()), "{value}");
        }
    }
}
