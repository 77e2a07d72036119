//! The functions that Envoy calls. A panic never reaches it: a stream in which the firewall panics is ended with status 500, or passes,
//! as `TOLLGATE_WAF_ON_FAULT` says.
//!
//! A filter is a counted reference, since Envoy may destroy a stream, or show the filter another part of it, while it carries out
//! what the filter asked for: sending a response or going on.

#![expect(unsafe_code, reason = "functions for another program, with its pointers")]

use std::cell::RefCell;
use std::ffi::{CStr, c_char, c_void};
use std::rc::Rc;
use std::sync::Arc;

use tollgate_firewall::{OnFault, guard};
use tollgate_waf::Direction;

use crate::abi::{self, BODY, Bytes, Fields, HEAD, Level, Object, Statuses, TRAILERS};
use crate::config::{Counters, FilterConfig, RouteConfig, parse};
use crate::filter::{Answer, Filter};
use crate::host::{Stream, define_counter, log};
use crate::message::Head;

type Shared = RefCell<Filter>;

// ---- the module and its configurations

/// Returns the version of the interface, or null if this Envoy cannot run the module.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_program_init() -> *const c_char {
    match guard(abi::load) {
        Some(Ok(version)) => CStr::as_ptr(version),
        Some(Err(error)) => {
            eprintln!("tollgate: {error}");
            std::ptr::null()
        }
        None => std::ptr::null(),
    }
}

/// Returns the result of `make` for Envoy, or null after logging its error.
fn made<T>(make: impl FnOnce() -> Result<T, String>) -> Option<T> {
    let made = guard(make).unwrap_or_else(|| Err("bug in the firewall, see above".to_owned()));
    made.map_err(|error| {
        guard(|| log(Level::Error, &format!("tollgate: cannot use the configuration: {error}")));
    })
    .ok()
}

/// Reads the configuration of a filter, the keys of a `waf` block. Returns null if it is not valid; the reason is in Envoy's log.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_config_new(
    config: Object,
    name: Bytes,
    text: Bytes,
) -> *const c_void {
    let made = made(|| {
        // SAFETY: Envoy's texts live until the end of the call.
        let (name, text) = unsafe { (name.get(), text.get()) };
        // SAFETY: Envoy makes the configuration in this call.
        let counters = Counters::define(|name| unsafe { define_counter(config, name) })?;
        let waf = parse(text, &place(name, "filter_config"))?;
        Ok(FilterConfig { waf, counters, on_fault: OnFault::from_environment() })
    });
    made.map_or(std::ptr::null(), |made| Arc::into_raw(Arc::new(made)).cast())
}

/// Names a configuration in errors.
fn place(filter: &[u8], field: &str) -> String {
    format!("{field} of `{}`", String::from_utf8_lossy(filter))
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_config_destroy(config: *const c_void) {
    if !config.is_null() {
        // SAFETY: the pointer is from `config_new`, and Envoy does not use it again.
        guard(|| drop(unsafe { Arc::from_raw(config.cast::<FilterConfig>()) }));
    }
}

/// Reads the configuration of a route.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_per_route_config_new(
    name: Bytes,
    text: Bytes,
) -> *const c_void {
    let made = made(|| {
        // SAFETY: Envoy's texts live until the end of the call.
        let (name, text) = unsafe { (name.get(), text.get()) };
        Ok(RouteConfig { waf: parse(text, &place(name, "filter_config of a route"))? })
    });
    made.map_or(std::ptr::null(), |made| Box::into_raw(Box::new(made)).cast_const().cast())
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_per_route_config_destroy(config: *const c_void) {
    if !config.is_null() {
        // SAFETY: the pointer is from `per_route_config_new`, and Envoy does not use it again.
        guard(|| drop(unsafe { Box::from_raw(config.cast::<RouteConfig>().cast_mut()) }));
    }
}

// ---- streams

/// Makes the filter of a stream.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_new(
    config: *const c_void,
    _stream: Object,
) -> *const c_void {
    let config = config.cast::<FilterConfig>();
    // SAFETY: the pointer is from `config_new`, and a configuration lives as long as its filters.
    let config = unsafe {
        Arc::increment_strong_count(config);
        Arc::from_raw(config)
    };
    Rc::into_raw(Rc::new(RefCell::new(Filter::new(config)))).cast()
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_destroy(filter: *const c_void) {
    if !filter.is_null() {
        // SAFETY: the pointer is from `http_filter_new`, and Envoy does not use it again. A call that goes on has a reference of
        // its own.
        guard(|| drop(unsafe { Rc::from_raw(filter.cast::<Shared>()) }));
    }
}

/// Runs a call on a filter. `None` if it panics.
fn with_filter<R>(
    filter: *const c_void,
    call: impl FnOnce(&mut Filter) -> R,
) -> (Rc<Shared>, Option<R>) {
    let filter = filter.cast::<Shared>();
    // SAFETY: the pointer is from `http_filter_new`, and not destroyed. Envoy uses a stream on one thread.
    let filter = unsafe {
        Rc::increment_strong_count(filter);
        Rc::from_raw(filter)
    };
    let result = guard(|| {
        #[cfg(test)]
        tests::panic_if_planted();
        call(&mut filter.borrow_mut())
    });
    (filter, result)
}

/// Has a filter answer to a part of a message, and sends a response in place of the message. Returns the number of the answer.
fn answer(
    stream: Object,
    filter: *const c_void,
    statuses: &Statuses,
    call: impl FnOnce(&mut Filter, Stream<'_>) -> Answer,
) -> u32 {
    // SAFETY: Envoy calls the module for this stream.
    let stream = unsafe { Stream::new(stream) };
    let (filter, answer) = with_filter(filter, |filter| call(filter, stream));
    match carry_out(stream, answer.unwrap_or_else(|| fault(stream, &filter))) {
        Some(Answer::Forward) => statuses.forward,
        Some(Answer::Hold) => statuses.hold,
        Some(Answer::Wait) => statuses.wait,
        Some(Answer::Respond(_)) | None => statuses.responded,
    }
}

/// Has a filter react to a panic, also if there is another one.
fn fault(stream: Stream<'_>, filter: &Shared) -> Answer {
    let answer = guard(|| {
        #[cfg(test)]
        tests::panic_if_planted();
        filter.borrow_mut().fault(stream)
    });
    answer.unwrap_or_else(|| filter.borrow().answer_to_fault())
}

/// Sends the response of an answer, while no filter is borrowed.
fn carry_out(stream: Stream<'_>, answer: Answer) -> Option<Answer> {
    match answer {
        Answer::Respond(mut response) => {
            if Head(stream.fields(Fields::RequestHeaders)).is_grpc() {
                // Otherwise Envoy says that the call succeeded, and sends the page in the header `grpc-message`.
                response.headers.push(("grpc-status".to_owned(), response.grpc_status.to_string()));
                response.body = Arc::default();
            }
            stream.respond(response.status, &response.headers, &response.body, &response.details);
            None
        }
        other => Some(other),
    }
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_request_headers(
    stream: Object,
    filter: *const c_void,
    is_end: bool,
) -> u32 {
    answer(stream, filter, &HEAD, |filter, stream| {
        // SAFETY: the pointer is null or from `per_route_config_new`, and the configuration outlives the call.
        let route = unsafe { stream.route().cast::<RouteConfig>().as_ref() };
        filter.request_head(stream, route, is_end)
    })
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_request_body(
    stream: Object,
    filter: *const c_void,
    is_end: bool,
) -> u32 {
    answer(stream, filter, &BODY, |filter, stream| filter.body(stream, Direction::Request, is_end))
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_request_trailers(
    stream: Object,
    filter: *const c_void,
) -> u32 {
    answer(stream, filter, &TRAILERS, |filter, stream| filter.trailers(stream, Direction::Request))
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_response_headers(
    stream: Object,
    filter: *const c_void,
    is_end: bool,
) -> u32 {
    let answered =
        answer(stream, filter, &HEAD, |filter, stream| filter.response_head(stream, is_end));
    if answered == HEAD.forward {
        // Within this call, as Envoy 1.38 does not let the request continue once the response does.
        let (_, holds) = with_filter(filter, Filter::takes_held_tunnel);
        if holds == Some(true) {
            // SAFETY: Envoy calls the module for this stream, which no response has ended.
            unsafe { Stream::new(stream) }.continue_request();
        }
    }
    answered
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_response_body(
    stream: Object,
    filter: *const c_void,
    is_end: bool,
) -> u32 {
    answer(stream, filter, &BODY, |filter, stream| filter.body(stream, Direction::Response, is_end))
}

#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_response_trailers(
    stream: Object,
    filter: *const c_void,
) -> u32 {
    answer(stream, filter, &TRAILERS, |filter, stream| filter.trailers(stream, Direction::Response))
}

/// The helper is done with a message of the stream.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_scheduled(
    stream: Object,
    filter: *const c_void,
    _event: u64,
) {
    // SAFETY: Envoy calls the module for this stream.
    let stream = unsafe { Stream::new(stream) };
    let (_, Some(Some(direction))) = with_filter(filter, |filter| filter.waiting()) else { return };
    let (filter, resumed) = with_filter(filter, |filter| filter.resume(stream));
    let answer = match resumed {
        Some(Some(answer)) => answer,
        Some(None) => return,
        None => fault(stream, &filter),
    };
    if let Some(Answer::Forward) = carry_out(stream, answer) {
        match direction {
            Direction::Request => stream.continue_request(),
            Direction::Response => stream.continue_response(),
        }
    }
}

/// The stream has ended; its access log is not written yet.
#[unsafe(no_mangle)]
extern "C" fn envoy_dynamic_module_on_http_filter_stream_complete(
    stream: Object,
    filter: *const c_void,
) {
    // SAFETY: Envoy calls the module for this stream.
    let stream = unsafe { Stream::new(stream) };
    let (filter, ended) = with_filter(filter, |filter| filter.end(stream));
    if ended.is_none() {
        fault(stream, &filter);
    }
}

// ---- functions that Envoy looks up, for what the module does not use

macro_rules! unused {
    ($($name:ident($($argument:ty),*);)*) => {
        $(#[unsafe(no_mangle)]
        extern "C" fn $name($(_: $argument),*) {})*
    };
}

unused! {
    envoy_dynamic_module_on_http_filter_http_callout_done(Object, *const c_void, u64, u32, *mut c_void, usize, *mut c_void, usize);
    envoy_dynamic_module_on_http_filter_http_stream_headers(Object, *const c_void, u64, *mut c_void, usize, bool);
    envoy_dynamic_module_on_http_filter_http_stream_data(Object, *const c_void, u64, *const c_void, usize, bool);
    envoy_dynamic_module_on_http_filter_http_stream_trailers(Object, *const c_void, u64, *mut c_void, usize);
    envoy_dynamic_module_on_http_filter_http_stream_complete(Object, *const c_void, u64);
    envoy_dynamic_module_on_http_filter_http_stream_reset(Object, *const c_void, u64, u32);
    envoy_dynamic_module_on_http_filter_downstream_above_write_buffer_high_watermark(Object, *const c_void);
    envoy_dynamic_module_on_http_filter_downstream_below_write_buffer_low_watermark(Object, *const c_void);
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::ptr::{dangling_mut, null, null_mut};

    use super::*;
    use crate::abi::Header;
    use crate::host::Counter;
    use tollgate_firewall::Waf;

    thread_local! {
        /// Panics that are to come.
        static PLANTED: Cell<u32> = const { Cell::new(0) };
        /// Status of the last response, and calls that counted something.
        static RESPONSE: Cell<u32> = const { Cell::new(0) };
        static COUNTED: Cell<u32> = const { Cell::new(0) };
    }

    pub(super) fn panic_if_planted() {
        let planted = PLANTED.get();
        PLANTED.set(planted.saturating_sub(1));
        assert_eq!(planted, 0, "planted");
    }

    extern "C" fn log(_: Level, _: Bytes) {}

    extern "C" fn one_worker() -> u32 {
        1
    }

    extern "C" fn no_route(_: Object) -> *const c_void {
        null()
    }

    extern "C" fn count(_: Object, _: usize, _: *mut Bytes, _: usize, _: u64) -> u32 {
        COUNTED.set(COUNTED.get() + 1);
        0
    }

    extern "C" fn no_headers(_: Object, _: Fields) -> usize {
        0
    }

    extern "C" fn write_no_header(_: Object, _: Fields, _: *mut Header) -> bool {
        true
    }

    extern "C" fn respond(
        stream: Object,
        status: u32,
        _: *mut Header,
        _: usize,
        _: Bytes,
        _: Bytes,
    ) {
        RESPONSE.set(status);
        // Envoy ends and destroys a stream within this call; the first word of this one is its filter.
        // SAFETY: the object is one of `stream_with`.
        let filter = unsafe { *stream.cast::<*const c_void>() };
        envoy_dynamic_module_on_http_filter_stream_complete(stream, filter);
        envoy_dynamic_module_on_http_filter_destroy(filter);
    }

    /// A stand-in for Envoy, with the functions that the test reaches.
    fn find(name: &CStr) -> *mut c_void {
        match name.to_bytes().strip_prefix(b"envoy_dynamic_module_callback_") {
            Some(b"log") => log as *mut c_void,
            Some(b"get_most_specific_route_config") => no_route as *mut c_void,
            Some(b"http_filter_increment_counter") => count as *mut c_void,
            Some(b"http_get_headers_size") => no_headers as *mut c_void,
            Some(b"http_get_headers") => write_no_header as *mut c_void,
            Some(b"http_send_response") => respond as *mut c_void,
            Some(b"get_concurrency") => one_worker as *mut c_void,
            Some(_) => dangling_mut(),
            None => null_mut(),
        }
    }

    #[test]
    fn equal_configurations_share_their_rules_until_a_file_changes() {
        abi::load_with(find).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rules.conf");
        let text = format!("rules: [{}]", path.display());
        let write = |id: u32| {
            let rule = format!("SecRule ARGS \"@contains attack\" \"id:{id},phase:2,deny\"");
            std::fs::write(&path, rule).unwrap();
        };
        let parse = |text: &str| parse(text.as_bytes(), "test").unwrap();
        write(1);
        // As soon as the file is older than the first reading.
        let mut first = parse(&text).unwrap();
        loop {
            let next = parse(&text).unwrap();
            if Arc::ptr_eq(&first, &next) {
                break;
            }
            first = next;
        }
        let other = parse(&format!("{text}\nmode: detection-only")).unwrap();
        assert_ne!(other.mode, first.mode);
        write(23);
        let second = parse(&text).unwrap();
        // The others are the recommended ones for bodies.
        let rule = |waf: &Waf| waf.rules.set.rules().map(|rule| rule.id).find(|id| *id < 100);
        assert_eq!((rule(&first), rule(&second)), (Some(1), Some(23)));
        assert_eq!(parse("mode: off"), None);
        assert_eq!(parse("mode: off"), None);
    }

    #[test]
    fn panic_ends_the_stream_or_lets_it_pass_as_configured() {
        abi::load_with(find).unwrap();
        let counters = Counters::define(|_| Some(Counter::FIRST)).unwrap();
        let (deny, pass) = (OnFault::Deny, OnFault::Pass);
        // With two, the reaction to the first panics too.
        for (on_fault, planted, expected) in
            [(deny, 1, (1, 500)), (deny, 2, (1, 500)), (pass, 1, (0, 0)), (pass, 2, (0, 0))]
        {
            let config = Arc::into_raw(Arc::new(FilterConfig { waf: None, counters, on_fault }));
            let filter = envoy_dynamic_module_on_http_filter_new(config.cast(), null_mut());
            let mut stream = filter;
            let object: Object = (&raw mut stream).cast();
            PLANTED.set(planted);
            RESPONSE.set(0);
            let status = envoy_dynamic_module_on_http_filter_request_headers(object, filter, true);
            assert_eq!((status, RESPONSE.get()), expected);
            assert_eq!(COUNTED.take(), 2 - planted, "the fault");
            if on_fault == OnFault::Pass {
                // The rest of the message passes, too.
                let status = envoy_dynamic_module_on_http_filter_request_trailers(object, filter);
                assert_eq!(status, 0);
                envoy_dynamic_module_on_http_filter_destroy(filter);
            }
            envoy_dynamic_module_on_http_filter_config_destroy(config.cast());
        }
    }
}
