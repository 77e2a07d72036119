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
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::{Duration, Instant};

    use super::*;
    use crate::abi::{Attribute, Header, Received};
    use crate::host::Counter;
    use tollgate_firewall::Waf;

    thread_local! {
        /// Calls that panic: the next one by the lowest bit, those that follow by the next ones.
        static PLANTED: Cell<u32> = const { Cell::new(0) };
        /// Status of the last response, faults that were counted, and requests that went on after they had waited.
        static RESPONSE: Cell<u32> = const { Cell::new(0) };
        static FAULTS: Cell<u32> = const { Cell::new(0) };
        static CONTINUED: Cell<u32> = const { Cell::new(0) };
    }

    /// A helper has asked for a call.
    static IS_SCHEDULED: AtomicBool = AtomicBool::new(false);
    const FAULT: usize = 1;
    const HEADERS: [(&str, &str); 3] = [
        (":method", "POST"),
        (":path", "/"),
        ("content-type", "application/x-www-form-urlencoded"),
    ];
    /// Body that goes to the helper: longer than 4 KiB.
    static LONG: [u8; 100_000] = [b'a'; 100_000];

    pub(super) fn panic_if_planted() {
        let planted = PLANTED.get();
        PLANTED.set(planted >> 1);
        assert_eq!(planted & 1, 0, "planted");
    }

    extern "C" fn log(_: Level, _: Bytes) {}

    extern "C" fn one_worker() -> u32 {
        1
    }

    extern "C" fn no_route(_: Object) -> *const c_void {
        null()
    }

    extern "C" fn no_debugging(_: Level) -> bool {
        false
    }

    extern "C" fn count(_: Object, counter: usize, _: *mut Bytes, _: usize, _: u64) -> u32 {
        FAULTS.set(FAULTS.get() + u32::from(counter == FAULT));
        0
    }

    extern "C" fn count_headers(_: Object, _: Fields) -> usize {
        HEADERS.len()
    }

    extern "C" fn write_headers(_: Object, _: Fields, headers: *mut Header) -> bool {
        for (at, (name, value)) in HEADERS.iter().enumerate() {
            let [name, value] = [name, value].map(|text| Bytes::of(text.as_bytes()));
            // SAFETY: there is room for as many as were counted.
            unsafe { headers.add(at).write(Header { name, value }) };
        }
        true
    }

    extern "C" fn count_one_piece(_: Object, _: Received) -> usize {
        1
    }

    extern "C" fn write_piece(_: Object, _: Received, pieces: *mut Bytes) -> bool {
        // SAFETY: there is room for one.
        unsafe { pieces.write(Bytes::of(&LONG)) };
        true
    }

    extern "C" fn no_buffer(_: Object) -> u64 {
        0
    }

    extern "C" fn set_buffer(_: Object, _: u64) {}

    extern "C" fn no_attribute(_: Object, _: Attribute, _: *mut Bytes) -> bool {
        false
    }

    extern "C" fn describe(_: Object, _: Bytes, _: Bytes, _: Bytes) {}

    extern "C" fn new_scheduler(_: Object) -> *mut c_void {
        dangling_mut()
    }

    extern "C" fn schedule(_: *mut c_void, _: u64) {
        IS_SCHEDULED.store(true, Ordering::Release);
    }

    extern "C" fn drop_scheduler(_: *mut c_void) {}

    extern "C" fn continue_request(_: Object) {
        CONTINUED.set(CONTINUED.get() + 1);
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
            Some(b"http_get_headers_size") => count_headers as *mut c_void,
            Some(b"http_get_headers") => write_headers as *mut c_void,
            Some(b"http_get_body_chunks_size") => count_one_piece as *mut c_void,
            Some(b"http_get_body_chunks") => write_piece as *mut c_void,
            Some(b"http_get_buffer_limit") => no_buffer as *mut c_void,
            Some(b"http_set_buffer_limit") => set_buffer as *mut c_void,
            Some(b"http_filter_get_attribute_string") => no_attribute as *mut c_void,
            Some(b"http_set_dynamic_metadata_string") => describe as *mut c_void,
            Some(b"http_filter_scheduler_new") => new_scheduler as *mut c_void,
            Some(b"http_filter_scheduler_commit") => schedule as *mut c_void,
            Some(b"http_filter_scheduler_delete") => drop_scheduler as *mut c_void,
            Some(b"http_filter_continue_decoding") => continue_request as *mut c_void,
            Some(b"log_enabled") => no_debugging as *mut c_void,
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

    fn counters() -> Counters {
        let define =
            |name: &str| Some(Counter::numbered(if name == "waf_faults" { FAULT } else { 0 }));
        Counters::define(define).unwrap()
    }

    const DENY: OnFault = OnFault::Deny;
    const PASS: OnFault = OnFault::Pass;
    /// Reactions to a panic, panics, the faults that are counted, and the response or none. With two panics, the reaction to the
    /// first panics too.
    const PANICS: [(OnFault, u32, u32, u32); 4] =
        [(DENY, 0b1, 1, 500), (DENY, 0b11, 0, 500), (PASS, 0b1, 1, 0), (PASS, 0b11, 0, 0)];

    #[test]
    fn panic_ends_the_stream_or_lets_it_pass_as_configured() {
        abi::load_with(find).unwrap();
        for (on_fault, planted, faults, response) in PANICS {
            let config = FilterConfig { waf: None, counters: counters(), on_fault };
            let config = Arc::into_raw(Arc::new(config));
            let filter = envoy_dynamic_module_on_http_filter_new(config.cast(), null_mut());
            let mut stream = filter;
            let object: Object = (&raw mut stream).cast();
            PLANTED.set(planted);
            RESPONSE.set(0);
            let status = envoy_dynamic_module_on_http_filter_request_headers(object, filter, true);
            assert_eq!(RESPONSE.get(), response);
            assert_eq!(status, if response == 0 { HEAD.forward } else { HEAD.responded });
            assert_eq!(FAULTS.take(), faults);
            if on_fault == OnFault::Pass {
                // The rest of the message passes, too.
                let status = envoy_dynamic_module_on_http_filter_request_trailers(object, filter);
                assert_eq!(status, TRAILERS.forward);
                envoy_dynamic_module_on_http_filter_destroy(filter);
            }
            envoy_dynamic_module_on_http_filter_config_destroy(config.cast());
        }
    }

    #[test]
    fn panic_behind_the_helper_and_at_the_end_of_a_stream_leaves_nothing_waiting() {
        abi::load_with(find).unwrap();
        let rules =
            r#"{rules: [], exclusions: ['SecRule ARGS "@contains attack" "id:1,phase:2,deny"']}"#;
        let waf = parse(rules.as_bytes(), "test").unwrap();
        // First without a panic. A stream that goes on panics at its end, too.
        for (on_fault, planted, faults, response) in [(DENY, 0, 0, 0)].into_iter().chain(PANICS) {
            let config = FilterConfig { waf: waf.clone(), counters: counters(), on_fault };
            let config = Arc::into_raw(Arc::new(config));
            let filter = envoy_dynamic_module_on_http_filter_new(config.cast(), null_mut());
            let mut stream = filter;
            let object: Object = (&raw mut stream).cast();
            let status = envoy_dynamic_module_on_http_filter_request_headers(object, filter, false);
            assert_eq!(status, HEAD.hold);
            let status = envoy_dynamic_module_on_http_filter_request_body(object, filter, true);
            assert_eq!(status, BODY.wait);
            let start = Instant::now();
            while !IS_SCHEDULED.swap(false, Ordering::Acquire) {
                assert!(start.elapsed() < Duration::from_secs(60), "the helper does not finish");
                std::thread::yield_now();
            }
            // The first of its calls asks which message waits.
            PLANTED.set(planted << 1);
            RESPONSE.set(0);
            envoy_dynamic_module_on_http_filter_scheduled(object, filter, 0);
            assert_eq!((FAULTS.take(), RESPONSE.get()), (faults, response));
            assert_eq!(CONTINUED.take(), u32::from(response == 0), "otherwise it waits for ever");
            if response == 0 {
                PLANTED.set(planted);
                envoy_dynamic_module_on_http_filter_stream_complete(object, filter);
                assert_eq!((FAULTS.take(), RESPONSE.get()), (faults, 0));
                envoy_dynamic_module_on_http_filter_destroy(filter);
            }
            envoy_dynamic_module_on_http_filter_config_destroy(config.cast());
        }
    }
}
