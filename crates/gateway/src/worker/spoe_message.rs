//! Messages of HAProxy's SPOE: the requests and responses that they describe, shown to the firewall.

use std::borrow::Cow;
use std::sync::Arc;

use tollgate_http1::{FieldList, Headers, header_lines};
use tollgate_spop as spop;
use tollgate_spop::{BodyExtent, Message, MessageError, NotifyId};

use super::keys::{ExchangeKey, Key as _};
use super::shared::Shared;
use crate::config::Spoe;
use crate::counters::SpoeAnswer;
use crate::described::Described;
use crate::firewall::{
    Firewall, FirewallVerdict, InspectedResponse, Outcome, RequestContext, TransactionId, WholeBody,
};
use crate::log;

/// A NOTIFY without its answer.
#[derive(Debug)]
pub(super) struct Notify {
    pub(super) id: NotifyId,
    pub(super) kind: Kind,
    pub(super) exports_rules: bool,
    pub(super) firewall: Arc<Firewall>,
    /// Without a status.
    outcome: Outcome,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Request,
    Response { detects_only: bool },
}

impl Notify {
    pub(super) fn outcome(&self, status: Option<u16>) -> Outcome {
        Outcome { status, ..self.outcome }
    }
}

/// A message that was shown to the firewall.
pub(super) enum Asked {
    Verdict(Notify, TransactionId, FirewallVerdict),
    /// The request is not in the sample, or the firewall is off.
    NotInspected,
    Failed(SpoeAnswer),
}

/// Asks for the verdict on a message.
pub(super) fn ask(
    shared: &mut Shared,
    spoe: Option<&Spoe>,
    key: ExchangeKey,
    id: NotifyId,
    message: Result<Message<'_>, MessageError>,
) -> Asked {
    let Some(spoe) = spoe else { return Asked::Failed(SpoeAnswer::NoListener) };
    let transaction = TransactionId { exchange: key.index(), serial: shared.next_serial() };
    let mut list = std::mem::take(&mut shared.scratch.head);
    list.clear();
    let asked = match message {
        Ok(Message::Request(request)) => {
            ask_request(shared, spoe, id, transaction, &request, &mut list)
        }
        Ok(Message::Response(response)) => {
            ask_response(shared, id, transaction, &response, &mut list)
        }
        Err(error) => Err(error),
    };
    shared.scratch.head = list;
    asked.unwrap_or_else(|error| {
        if shared.spoe_log.allow(shared.now) {
            log(format_args!(
                "cannot inspect a message of HAProxy: {error}; correct `args` in its SPOE configuration (logged once a \
                 minute, counted in /metrics)"
            ));
        }
        Asked::Failed(SpoeAnswer::Invalid)
    })
}

fn ask_request(
    shared: &mut Shared,
    spoe: &Spoe,
    id: NotifyId,
    transaction: TransactionId,
    request: &spop::Request<'_>,
    list: &mut Vec<u8>,
) -> Result<Asked, MessageError> {
    let Some(route) = spoe.route_of(request.app) else {
        if shared.spoe_log.allow(shared.now) {
            log(format_args!(
                "a message of HAProxy names the application `{}`, which is not among `applications`; add it, or a \
                 `default-application` (logged once a minute, counted in /metrics)",
                request.app.escape_ascii()
            ));
        }
        return Ok(Asked::Failed(SpoeAnswer::UnknownApplication));
    };
    let protocol = protocol(request.version)?;
    FieldList::push(list, b":method", request.method);
    FieldList::push_with(list, b":path", false, |target| {
        target.extend_from_slice(request.path);
        if let Some(query) = request.query {
            target.push(b'?');
            target.extend_from_slice(query);
        }
    });
    push_headers(request.headers, list)?;
    let body = whole_body(shared, request.body.bytes, request.body_extent());
    let described = Described::new(protocol, body.framing(), request.src_ip);
    let config = shared.upstreams.current_config();
    let Some(firewall) = config.firewalls[route.0].clone() else {
        return Ok(Asked::NotInspected);
    };
    let server = request.dst_ip.map_or_else(String::new, |ip| format!("{ip}:{}", request.dst_port));
    let context = RequestContext {
        head: described.head(list),
        name: request.id,
        client: described.client,
        client_port: request.src_port,
        server: &server,
        firewall: &firewall,
    };
    let Some(verdict) = shared.inspector.whole_request(transaction, &context, body) else {
        return Ok(Asked::NotInspected);
    };
    let notify = Notify {
        id,
        kind: Kind::Request,
        exports_rules: request.exports_rules,
        firewall: Arc::clone(&firewall),
        outcome: Outcome { request_body_bytes: body.bytes.len() as u64, ..Outcome::default() },
    };
    Ok(Asked::Verdict(notify, transaction, verdict))
}

fn ask_response(
    shared: &mut Shared,
    id: NotifyId,
    transaction: TransactionId,
    response: &spop::Response<'_>,
    list: &mut Vec<u8>,
) -> Result<Asked, MessageError> {
    let protocol = protocol(response.version)?;
    push_headers(response.headers, list)?;
    let waiting = &shared.counters.waiting;
    let taken = shared.inspector.take_for_response(transaction, response.id, waiting);
    let firewall = shared.inspector.firewall(transaction);
    let Some((outcome, firewall)) = taken.zip(firewall) else {
        return Ok(Asked::Failed(SpoeAnswer::UnknownId));
    };
    let body = whole_body(shared, response.body.bytes, response.body_extent());
    let head = InspectedResponse {
        protocol: &protocol,
        status: response.status,
        headers: Headers::of_fields(FieldList::new(list)),
        body: body.framing(),
    };
    let verdict = shared.inspector.whole_response(transaction, &head, body);
    let notify = Notify {
        id,
        kind: Kind::Response { detects_only: response.detects_only },
        exports_rules: response.exports_rules,
        firewall,
        outcome: Outcome { response_body_bytes: body.bytes.len() as u64, ..outcome },
    };
    Ok(Asked::Verdict(notify, transaction, verdict))
}

/// The protocol of an HTTP version such as `1.1`. HAProxy also forwards nonexistent versions such as 4.0, which rules see.
fn protocol(version: &[u8]) -> Result<Cow<'static, str>, MessageError> {
    Ok(match version {
        b"1.1" => "HTTP/1.1".into(),
        b"2" => "HTTP/2.0".into(),
        &[major @ b'0'..=b'9', b'.', minor @ b'0'..=b'9'] => {
            format!("HTTP/{}.{}", char::from(major), char::from(minor)).into()
        }
        _ => return Err(MessageError::Invalid("version")),
    })
}

/// Appends the headers of a message to a list, and the end.
fn push_headers(headers: &[u8], list: &mut Vec<u8>) -> Result<(), MessageError> {
    for (name, value) in header_lines(headers) {
        if name.is_empty() || !name.is_ascii() {
            return Err(MessageError::Invalid("headers"));
        }
        FieldList::push(list, name, value);
    }
    FieldList::end(list);
    Ok(())
}

/// A body for the firewall. Only one that is known to be whole counts as such.
fn whole_body<'a>(shared: &mut Shared, bytes: &'a [u8], extent: BodyExtent) -> WholeBody<'a> {
    let counters = shared.client_counters();
    match extent {
        BodyExtent::Whole => {}
        BodyExtent::Truncated => counters.spoe_truncated.add(1),
        BodyExtent::Unknown => {
            counters.spoe_unknown_extents.add(1);
            if shared.spoe_log.allow(shared.now) {
                log(format_args!(
                    "HAProxy sends no `body-complete`, so that a body without `Content-Length` counts as truncated; add \
                     `body-complete=internal.htx.has_eom` to `args` in its SPOE configuration (logged once a minute, counted in /metrics)"
                ));
            }
        }
    }
    WholeBody { bytes, is_truncated: extent != BodyExtent::Whole }
}
