//! Input of a response: status line, headers, body.

use crate::rule::{EngineMode, Phase};
use crate::settings::LimitAction;
use crate::variable::Variable;

use super::{Intervention, Transaction, Worker};

impl Transaction {
    /// Sets the status line. The protocol is as in the line, such as `HTTP/1.1`.
    pub fn response_line(&mut self, protocol: &[u8], status: u16) {
        self.entries.set(Variable::ResponseProtocol, protocol);
        self.entries.set_number(Variable::ResponseStatus, status.into());
    }

    /// Adds a header.
    pub fn response_header(&mut self, name: &[u8], value: &[u8]) {
        let (Some(name_span), Some(value_span)) =
            (self.entries.store(name), self.entries.store(value))
        else {
            return;
        };
        self.entries.add_stored(Variable::ResponseHeadersNames, name_span, name_span);
        self.entries.add_stored(Variable::ResponseHeaders, name_span, value_span);
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

    /// True if the body of the response is to be inspected, by its type.
    pub fn inspects_response_body(&self) -> bool {
        let kind = self.entries.first(Variable::ResponseContentType, b"").unwrap_or_default();
        let types = &self.rules.settings.response_body_mime_types;
        self.state.engine != EngineMode::Off
            && self.state.response_body_access
            && types.iter().any(|known| known.as_bytes().eq_ignore_ascii_case(kind))
    }

    /// Adds a part of the body. What exceeds the limit is not kept.
    pub fn append_response_body(&mut self, part: &[u8]) {
        if !self.inspects_response_body() {
            return;
        }
        let free = self.state.response_body_limit.saturating_sub(self.response_body.len());
        if part.len() > free {
            self.state.outbound_limit_reached = true;
            if self.rules.settings.response_body_limit_action == LimitAction::Reject {
                self.reject(403);
            }
        }
        self.response_body.extend_from_slice(&part[..part.len().min(free)]);
    }

    /// Runs the rules of phase 4.
    pub fn process_response_body(&mut self, worker: &mut Worker) -> Option<&Intervention> {
        if self.state.intervention.is_some() || !self.inspects_response_body() {
            return self.intervention();
        }
        self.entries.set(
            Variable::OutboundDataError,
            if self.state.outbound_limit_reached { b"1" } else { b"0" },
        );
        let body = std::mem::take(&mut self.response_body);
        self.entries.set(Variable::ResponseBody, &body);
        self.entries.set_number(Variable::ResponseContentLength, body.len());
        self.response_body = body;
        self.run(Phase::ResponseBody, worker);
        self.intervention()
    }
}
