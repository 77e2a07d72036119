//! Input of a request and its response: line, headers, body.

use crate::body::multipart::PartKind;
use crate::body::{Limits, json, multipart, urlencoded, xml};
use crate::head::{Target, cookies, quoted_cookies};
use crate::limits::{
    EMPTY_ARGUMENTS_MAX, Limit, NAME_BYTES_FREE, NAME_RATIO_MAX, PARTS_MAX, Reached,
};
use crate::rule::{BodyProcessor, EngineMode, Phase};
use crate::settings::LimitAction;
use crate::transformation::base64;
use crate::variable::Variable;

use super::entries::{Entries, Span};
use super::{Intervention, Transaction, Worker};

/// Work of one value beside that of its bytes, as so many bytes.
const VALUE_WORK: usize = 4;

impl Transaction {
    /// Sets the request line. The protocol is as in the line, such as `HTTP/1.1`.
    pub fn request_line(&mut self, method: &[u8], target: &[u8], protocol: &[u8]) {
        if self.entries.read().contains(Variable::RequestLine) {
            let line = [method, target, protocol].join(&b' ');
            self.entries.set(Variable::RequestLine, &line);
        }
        self.entries.set(Variable::RequestMethod, method);
        self.entries.set(Variable::RequestProtocol, protocol);
        self.entries.set(Variable::RequestUriRaw, target);
        let parsed = Target::parse(target);
        self.entries.set(Variable::RequestUri, parsed.uri());
        self.entries.set(Variable::RequestFilename, parsed.filename());
        self.entries.set(Variable::PathInfo, parsed.filename());
        self.entries.set(Variable::RequestBasename, parsed.basename());
        self.entries.set(Variable::QueryString, parsed.query);
        if !parsed.query.is_empty() {
            self.parse_arguments(parsed.query, true);
        }
    }

    /// Adds a header.
    pub fn request_header(&mut self, name: &[u8], value: &[u8]) {
        let collections = [Variable::RequestHeaders, Variable::RequestHeadersNames];
        if !self.entries.add_named(collections, name, value) {
            return;
        }
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => {
                let host = value.split(|&b| b == b':').next().unwrap_or_default();
                self.entries.set(Variable::ServerName, host);
            }
            6 if name.eq_ignore_ascii_case(b"cookie") => {
                let collections = [Variable::RequestCookies, Variable::RequestCookiesNames];
                if self.entries.read().contains_any(&collections) {
                    let mut add = |name: &[u8], value: &[u8]| {
                        self.entries.add_named(collections, name, value);
                    };
                    cookies(value, &mut add);
                    quoted_cookies(value, &mut add);
                }
            }
            12 if name.eq_ignore_ascii_case(b"content-type") => {
                let starts = |prefix: &[u8]| {
                    value
                        .get(..prefix.len())
                        .is_some_and(|start| start.eq_ignore_ascii_case(prefix))
                };
                if starts(b"multipart/form-data") {
                    self.state.body_processor = Some(BodyProcessor::Multipart);
                } else if starts(b"application/x-www-form-urlencoded") {
                    self.state.body_processor = Some(BodyProcessor::Urlencoded);
                }
            }
            13 if name.eq_ignore_ascii_case(b"authorization") => {
                let mut words = value.split(|&b| b == b' ').filter(|word| !word.is_empty());
                let kind = words.next().unwrap_or_default();
                self.entries.set(Variable::AuthType, kind);
                if kind.eq_ignore_ascii_case(b"basic") {
                    let mut credentials = Vec::new();
                    base64(words.next().unwrap_or_default(), &mut credentials);
                    let user = credentials.split(|&b| b == b':').next().unwrap_or_default();
                    self.entries.set(Variable::RemoteUser, user);
                }
            }
            _ => {}
        }
    }

    /// Runs the rules of phase 1, when all headers are known.
    pub fn process_request_headers(&mut self, worker: &mut Worker) -> Option<&Intervention> {
        self.limit_values();
        self.entries.set_number(Variable::ArgsCombinedSize, self.arguments_size);
        if self.entries.list(Variable::UrlencodedError).is_empty() {
            self.entries.set(Variable::UrlencodedError, b"0");
        }
        self.run(Phase::RequestHeaders, worker);
        self.intervention()
    }

    /// Adds a part of the body. Bytes above the limit are dropped.
    pub fn append_request_body(&mut self, part: &[u8]) {
        if !self.state.request_body_access {
            return;
        }
        let free = self.state.request_body_limit.saturating_sub(self.body.len());
        if part.len() > free {
            self.limit_request_body();
        }
        self.body.extend_from_slice(&part[..part.len().min(free)]);
    }

    /// Bytes of the request body that are inspected; 0 if its rules need none. Known after the rules of phase 1.
    pub fn request_body_limit(&self) -> usize {
        if !self.state.request_body_access || self.state.engine == EngineMode::Off {
            return 0;
        }
        match self.state.body_processor {
            Some(BodyProcessor::Multipart) => self.state.request_body_limit,
            _ => {
                let limit = self.rules.settings.request_body_no_files_limit;
                self.state.request_body_limit.min(limit)
            }
        }
    }

    /// Bytes of the response body that are inspected.
    pub fn response_body_limit(&self) -> usize {
        self.state.response_body_limit
    }

    /// Notes that the request's body goes on behind the parts that were added.
    pub(crate) fn limit_request_body(&mut self) {
        if !self.state.limits.has(Limit::RequestBody) {
            self.state.exceed(Limit::RequestBody, 1, &self.rules.settings);
        }
    }

    /// Notes that the response's body goes on behind the parts that were added.
    pub(crate) fn limit_response_body(&mut self) {
        if !self.state.limits.has(Limit::ResponseBody) {
            self.state.exceed(Limit::ResponseBody, 1, &self.rules.settings);
        }
    }

    /// Handles uninspected values like a body above its limit.
    fn limit_values(&mut self) {
        let dropped = self.entries.take_dropped();
        if dropped > 0 || self.state.limits.has(Limit::Values) {
            self.state.exceed(Limit::Values, dropped, &self.rules.settings);
            self.entries.set(Variable::InboundDataError, b"1");
        }
    }

    /// Parses the body and runs the rules of phase 2.
    pub fn process_request_body(&mut self, worker: &mut Worker) -> Option<&Intervention> {
        self.prepare_request_body();
        if self.state.intervention.is_none() {
            self.run(Phase::RequestBody, worker);
        }
        self.intervention()
    }

    /// Parses the body, unless that was done, and returns a measure of the work that its rules will have: the bytes of all
    /// names and values in it, and some for each of them. Names repeat, so that this can be far more than the body.
    pub fn prepare_request_body(&mut self) -> usize {
        if self.state.engine == EngineMode::Off || self.state.intervention.is_some() {
            return 0;
        }
        if self.state.request_work.is_none() {
            let before = self.entries.size() + VALUE_WORK * self.entries.count();
            self.read_request_body();
            let after = self.entries.size() + VALUE_WORK * self.entries.count();
            self.state.request_work = Some(after - before);
        }
        self.state.request_work.unwrap_or_default()
    }

    fn read_request_body(&mut self) {
        let files = self.state.body_processor == Some(BodyProcessor::Multipart);
        if !files && self.body.len() > self.rules.settings.request_body_no_files_limit {
            self.body.truncate(self.rules.settings.request_body_no_files_limit);
            self.limit_request_body();
        }
        self.entries.set(
            Variable::InboundDataError,
            if self.state.limits.has(Limit::RequestBody) { b"1" } else { b"0" },
        );
        if !self.body.is_empty() {
            let body = std::mem::take(&mut self.body);
            self.entries.set(Variable::RequestBody, &body);
            self.entries.set_number(Variable::RequestBodyLength, body.len());
            self.body = body;
        }
        if self.state.request_body_access {
            self.parse_body();
        } else {
            self.body_error(None);
        }
        self.limit_values();
        self.entries.set_number(Variable::ArgsCombinedSize, self.arguments_size);
        if self.rules.read.contains_any(&[Variable::FullRequest, Variable::FullRequestLength]) {
            self.set_full_request();
        }
    }

    fn parse_body(&mut self) {
        let body = std::mem::take(&mut self.body);
        let error = match self.state.body_processor {
            None | Some(BodyProcessor::Raw) => None,
            Some(BodyProcessor::Urlencoded) => {
                self.parse_arguments(&body, false);
                None
            }
            Some(BodyProcessor::Json) => self.parse_json(&body),
            Some(BodyProcessor::Xml) => self.parse_xml(&body),
            Some(BodyProcessor::Multipart) => self.parse_multipart(&body),
        };
        self.body = body;
        self.body_error(error);
    }

    fn body_error(&mut self, error: Option<String>) {
        let flag: &[u8] = if error.is_some() { b"1" } else { b"0" };
        self.entries.set(Variable::ReqbodyError, flag);
        self.entries.set(Variable::ReqbodyProcessorError, flag);
        if let Some(error) = error {
            self.entries.set(Variable::ReqbodyErrorMsg, error.as_bytes());
            self.entries.set(Variable::ReqbodyProcessorErrorMsg, error.as_bytes());
        }
    }

    /// Adds the arguments of a query or of a form.
    fn parse_arguments(&mut self, text: &[u8], get: bool) {
        let (separator, bare) =
            (self.rules.settings.argument_separator, self.rules.settings.bare_argument);
        let mut adder = self.adder(get);
        let is_valid = urlencoded::parse(
            text,
            separator,
            bare,
            &mut Default::default(),
            &mut |name: &[u8], value: &[u8]| adder.add(name, value),
        );
        if !is_valid {
            self.entries.set(Variable::UrlencodedError, b"1");
        }
    }

    fn parse_json(&mut self, body: &[u8]) -> Option<String> {
        if body.is_empty() {
            return None;
        }
        let limits = self.limits(body.len());
        self.add_json(body, &limits)
    }

    /// Adds the values of a JSON text. Returns an error's message.
    fn add_json(&mut self, text: &[u8], limits: &Limits) -> Option<String> {
        let mut adder = self.adder(false);
        let mut paths = Vec::new();
        let result = json::parse(text, limits, |name, value| match name.element {
            None => adder.add(name.path, value),
            Some(element) => adder.add_element(&mut paths, name.path, element, value),
        });
        let error = result.err().filter(|error| !(limits.is_cut && error.is_of_end()));
        error.map(|error| format!("JSON parsing error: {error}"))
    }

    fn parse_xml(&mut self, body: &[u8]) -> Option<String> {
        if body.is_empty() {
            return None;
        }
        let limits = self.limits(body.len());
        let error = self.add_xml(body, &limits);
        // The raw body has the bytes that a cut hides, such as the attributes of its last tag.
        self.state.is_xml = error.is_none() && !limits.is_cut;
        error
    }

    /// Adds the values of an XML document. Returns an error's message.
    ///
    /// A server reads the text of one element, so each run of text is a value: one with those before it would look otherwise to
    /// rules for words, and to the search for SQL, which looks at the first words. The whole text is a value, too, if there is
    /// only one run, or an element has both text and elements.
    fn add_xml(&mut self, text: &[u8], limits: &Limits) -> Option<String> {
        let document = xml::parse(text, limits);
        let runs = if document.runs.len() > 1 { &document.runs[..] } else { &[] };
        if let Some(text) = &document.text {
            if runs.is_empty() || document.is_mixed {
                self.entries.add(Variable::Xml, b"/*", text);
            }
            for run in runs {
                self.entries.add(Variable::Xml, b"/*", &text[run.clone()]);
            }
        }
        for instruction in &document.instructions {
            self.entries.add(Variable::Xml, b"/*", instruction);
        }
        for attribute in &document.attributes {
            self.entries.add(Variable::Xml, b"//@*", attribute);
        }
        document.error.map(|error| format!("XML parsing error: {error}"))
    }

    fn parse_multipart(&mut self, body: &[u8]) -> Option<String> {
        let content_type = self
            .entries
            .first(Variable::RequestHeaders, b"content-type")
            .unwrap_or_default()
            .to_vec();
        let mut limits = self.limits(body.len());
        let form = multipart::parse(body, &content_type, &limits);
        // Bytes outside of files have a limit of their own.
        let files: usize = form.files.iter().map(|file| file.content.len()).sum();
        let limit = self.rules.settings.request_body_no_files_limit;
        if body.len() - files > limit {
            self.limit_request_body();
        }
        let mut adder = self.adder(false);
        let mut size = 0;
        for field in &form.fields {
            size += field.name.len() + field.value.len();
            if size > limit {
                self.state.limits.exceed(Limit::Values, 1);
                break;
            }
            let is_full = !adder.add(&field.name, &body[field.value.clone()])
                || field.other_name.as_ref().is_some_and(|name| !adder.add(name, b""));
            if is_full {
                break;
            }
        }
        // Names of all parts share what is free.
        limits.name_bytes = NAME_BYTES_FREE;
        let mut part_error = None;
        for field in form.fields.iter().filter(|field| !field.value.is_empty()) {
            let text = &body[field.value.clone()];
            limits.name_bytes += NAME_RATIO_MAX * text.len();
            let error = match field.kind {
                PartKind::Text => None,
                PartKind::Json => self.add_json(text, &limits),
                PartKind::Xml => self.add_xml(text, &limits),
            };
            if field.kind == PartKind::Json {
                limits.name_bytes = 0;
            }
            part_error = part_error.or(error);
        }
        let too_many_files = form.files.len() > self.rules.settings.upload_file_limit;
        self.entries
            .set(Variable::MultipartFileLimitExceeded, if too_many_files { b"1" } else { b"0" });
        let mut size = 0;
        for file in &form.files {
            self.entries.add(Variable::Files, &file.name, &file.file_name);
            for other in &file.other_names {
                self.entries.add(Variable::Files, &file.name, other);
            }
            self.entries.add(Variable::FilesNames, &file.name, &file.name);
            let mut digits = itoa::Buffer::new();
            let length = digits.format(file.content.len()).as_bytes();
            self.entries.add(Variable::FilesSizes, &file.name, length);
            self.entries.add(Variable::FilesTmpContent, &file.name, &body[file.content.clone()]);
            size += file.content.len();
        }
        self.entries.set_number(Variable::FilesCombinedSize, size);
        for name in &form.names {
            self.entries.add(Variable::MultipartName, name, name);
        }
        for name in &form.file_names {
            self.entries.add(Variable::MultipartFilename, name, name);
        }
        for (part, line) in &form.part_headers {
            self.entries.add(Variable::MultipartPartHeaders, part, line);
        }
        self.multipart_flags(&form.flags);
        form.error.map(|error| format!("Multipart parsing error: {error}")).or(part_error)
    }

    fn multipart_flags(&mut self, flags: &multipart::Flags) {
        let values = [
            (Variable::MultipartBoundaryQuoted, flags.boundary_quoted),
            (Variable::MultipartBoundaryWhitespace, flags.boundary_whitespace),
            (Variable::MultipartDataBefore, flags.data_before),
            (Variable::MultipartDataAfter, flags.data_after),
            (Variable::MultipartHeaderFolding, flags.header_folding),
            (Variable::MultipartLfLine, flags.lf_line),
            (Variable::MultipartCrlfLfLines, flags.crlf_lf_lines()),
            (Variable::MultipartMissingSemicolon, flags.missing_semicolon),
            (Variable::MultipartInvalidQuoting, flags.invalid_quoting),
            (Variable::MultipartInvalidPart, flags.invalid_part),
            (Variable::MultipartInvalidHeaderFolding, flags.invalid_header_folding),
            (Variable::MultipartStrictError, flags.strict_error()),
        ];
        for (variable, set) in values {
            self.entries.set(variable, if set { b"1" } else { b"0" });
        }
        self.entries
            .set_number(Variable::MultipartUnmatchedBoundary, flags.unmatched_boundary.into());
    }

    fn limits(&self, body: usize) -> Limits {
        let settings = &self.rules.settings;
        Limits {
            depth: settings.json_depth_limit,
            parts: PARTS_MAX,
            name_bytes: NAME_BYTES_FREE + NAME_RATIO_MAX * body,
            is_cut: self.state.limits.has(Limit::RequestBody),
        }
    }

    fn set_full_request(&mut self) {
        let (mut text, mut name) = (Vec::new(), Vec::new());
        for &index in self.entries.list(Variable::RequestHeaders) {
            text.extend_from_slice(self.entries.name(index, &mut name));
            text.extend_from_slice(b": ");
            text.extend_from_slice(self.entries.value(index));
            text.push(b'\n');
        }
        text.extend_from_slice(b"\n\n");
        text.extend_from_slice(&self.body);
        self.entries.set(Variable::FullRequest, &text);
        self.entries.set_number(Variable::FullRequestLength, text.len());
    }
}

impl Transaction {
    /// Sets the status line. The protocol is as in the line, such as `HTTP/1.1`.
    pub fn response_line(&mut self, protocol: &[u8], status: u16) {
        self.entries.set(Variable::ResponseProtocol, protocol);
        self.entries.set_number(Variable::ResponseStatus, status.into());
        if self.entries.read().contains(Variable::StatusLine) {
            let line = [protocol, status.to_string().as_bytes()].join(&b' ');
            self.entries.set(Variable::StatusLine, &line);
        }
    }

    /// Adds a header.
    pub fn response_header(&mut self, name: &[u8], value: &[u8]) {
        let collections = [Variable::ResponseHeaders, Variable::ResponseHeadersNames];
        if !self.entries.add_named(collections, name, value) {
            return;
        }
        if name.eq_ignore_ascii_case(b"content-type") {
            let kind = value.split(|&b| b == b';').next().unwrap_or_default().trim_ascii();
            self.entries.set(Variable::ResponseContentType, kind);
        }
    }

    /// Runs the rules of phase 3, when all headers are known.
    pub fn process_response_headers(&mut self, worker: &mut Worker) -> Option<&Intervention> {
        if self.state.intervention.is_none() {
            self.run(Phase::ResponseHeaders, worker);
        }
        self.intervention()
    }

    /// True if the body of the response is to be inspected, by its type. A body that no rule depends on is not, unless a
    /// long one is to be rejected.
    pub fn inspects_response_body(&self) -> bool {
        let settings = &self.rules.settings;
        let is_used = self.rules.uses_response_body
            || settings.response_body_limit_action == LimitAction::Reject;
        let kind = self.entries.first(Variable::ResponseContentType, b"").unwrap_or_default();
        let types = &settings.response_body_mime_types;
        self.state.engine != EngineMode::Off
            && self.state.response_body_access
            && is_used
            && types.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(kind))
    }

    /// Adds a part of the body. Bytes above the limit are dropped.
    pub fn append_response_body(&mut self, part: &[u8]) {
        if !self.inspects_response_body() {
            return;
        }
        let free = self.state.response_body_limit.saturating_sub(self.response_body.len());
        if part.len() > free {
            self.limit_response_body();
        }
        self.response_body.extend_from_slice(&part[..part.len().min(free)]);
    }

    /// Removes the content coding from the headers that rules see, as the body was decoded: rules may skip one that is not.
    pub fn response_body_is_decoded(&mut self) {
        let collections = [Variable::ResponseHeaders, Variable::ResponseHeadersNames];
        self.entries.remove_named(&collections, b"content-encoding");
    }

    /// Runs the rules of phase 4, with an empty body if none is inspected.
    pub fn process_response_body(&mut self, worker: &mut Worker) -> Option<&Intervention> {
        if self.state.intervention.is_some() {
            return self.intervention();
        }
        self.entries.set(
            Variable::OutboundDataError,
            if self.state.limits.has(Limit::ResponseBody) { b"1" } else { b"0" },
        );
        let body = std::mem::take(&mut self.response_body);
        if !body.is_empty() {
            self.entries.set(Variable::ResponseBody, &body);
        }
        self.entries.set_number(Variable::ResponseContentLength, body.len());
        self.response_body = body;
        self.run(Phase::ResponseBody, worker);
        self.intervention()
    }
}

/// Adds arguments while a parser runs.
struct Adder<'a> {
    entries: &'a mut Entries,
    count: &'a mut usize,
    size: &'a mut usize,
    empty: &'a mut usize,
    /// Counts the arguments beyond the limit; parsers stop at the first one.
    limits: &'a mut Reached,
    limit: usize,
    /// Of the values and of the names.
    collections: [Variable; 2],
}

impl Transaction {
    fn adder(&mut self, get: bool) -> Adder<'_> {
        let collections = if get {
            [Variable::ArgsGet, Variable::ArgsGetNames]
        } else {
            [Variable::ArgsPost, Variable::ArgsPostNames]
        };
        Adder {
            entries: &mut self.entries,
            count: &mut self.arguments,
            size: &mut self.arguments_size,
            empty: &mut self.empty_arguments,
            limits: &mut self.state.limits,
            limit: self.rules.settings.arguments_limit,
            collections,
        }
    }
}

impl Adder<'_> {
    /// Adds an element of an array; false if the limit is reached. `paths` has the paths of the arrays around it, by depth.
    fn add_element(
        &mut self,
        paths: &mut Vec<Span>,
        path: &[u8],
        element: json::Element,
        value: &[u8],
    ) -> bool {
        let json::Element { index, depth, is_first } = element;
        if !self.has_room() {
            return false;
        }
        let [values, names] = self.collections;
        if self.entries.read().contains_any(&self.collections) {
            if is_first {
                let Some(stored) = self.entries.add_path(names, path, index) else { return false };
                paths.resize(depth, stored);
                paths[depth - 1] = stored;
            }
            if !self.entries.add_element(values, paths[depth - 1], index, value) {
                return false;
            }
        }
        *self.count += 1;
        *self.size += path.len() + itoa::Buffer::new().format(index).len() + value.len();
        true
    }

    fn has_room(&mut self) -> bool {
        let has_room = *self.count < self.limit;
        if !has_room {
            self.limits.exceed(Limit::Values, 1);
        }
        has_room
    }

    /// Adds an argument; false if the limit is reached.
    fn add(&mut self, name: &[u8], value: &[u8]) -> bool {
        if name.is_empty() && value.is_empty() {
            // Separators alone must not hide the arguments behind them.
            if *self.empty < EMPTY_ARGUMENTS_MAX {
                *self.empty += 1;
                return self.entries.add_named(self.collections, name, value);
            }
            return true;
        }
        if !self.has_room() {
            return false;
        }
        if !self.entries.add_named(self.collections, name, value) {
            return false;
        }
        *self.count += 1;
        *self.size += name.len() + value.len();
        true
    }
}
