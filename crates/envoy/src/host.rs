//! Envoy's side of a stream and of a configuration, with the functions of the interface as safe methods.

#![expect(unsafe_code, reason = "functions of Envoy are called here, and nowhere else")]

use std::ffi::c_void;
use std::marker::PhantomData;
use std::mem::MaybeUninit;

use crate::abi::{Attribute, Bytes, Fields, Header, Level, Object, Received, functions};

/// A header: name and value.
pub(crate) type Field<'a> = (&'a [u8], &'a [u8]);

const NOTHING: Bytes = Bytes { start: std::ptr::null(), length: 0 };
/// Namespace of the dynamic metadata.
const NAMESPACE: &str = "tollgate";

impl Bytes {
    pub(crate) fn of(bytes: &[u8]) -> Self {
        Self { start: bytes.as_ptr(), length: bytes.len() }
    }

    /// # Safety
    /// The bytes are Envoy's, and live for `'a`.
    pub(crate) unsafe fn get<'a>(self) -> &'a [u8] {
        if self.start.is_null() || self.length == 0 {
            return b"";
        }
        // SAFETY: the caller's.
        unsafe { std::slice::from_raw_parts(self.start, self.length) }
    }
}

/// Number that Envoy gave a counter without labels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counter(usize);

impl Counter {
    #[cfg(test)]
    pub(crate) const fn numbered(number: usize) -> Self {
        Self(number)
    }
}

/// Writes a line into Envoy's log.
pub(crate) fn log(level: Level, text: &str) {
    // SAFETY: Envoy copies the text.
    unsafe { (functions().log)(level, Bytes::of(text.as_bytes())) };
}

/// True if lines of this level are written.
pub(crate) fn logs(level: Level) -> bool {
    // SAFETY: the function has no further conditions.
    unsafe { (functions().log_enabled)(level) }
}

/// Number of Envoy's workers. Only for the main thread.
pub(crate) fn concurrency() -> usize {
    // SAFETY: the function has no further conditions.
    unsafe { (functions().get_concurrency)() as usize }
}

/// Defines a counter of a filter's configuration.
///
/// # Safety
/// `config` is Envoy's object of a configuration that is being made.
pub(crate) unsafe fn define_counter(config: Object, name: &str) -> Option<Counter> {
    let mut number = 0;
    // SAFETY: the caller's; Envoy copies the name, and there are no labels.
    let result = unsafe {
        (functions().http_filter_config_define_counter)(
            config,
            Bytes::of(name.as_bytes()),
            std::ptr::null_mut(),
            0,
            &raw mut number,
        )
    };
    (result == 0).then_some(Counter(number))
}

/// Envoy's side of a stream, during a call for it. What it lends lives as long as this call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream<'a> {
    object: Object,
    call: PhantomData<&'a ()>,
}

impl<'a> Stream<'a> {
    /// # Safety
    /// `object` is Envoy's object of a stream, for which it calls the module during `'a`.
    pub(crate) unsafe fn new(object: Object) -> Self {
        Self { object, call: PhantomData }
    }

    pub(crate) fn fields(self, fields: Fields) -> Vec<Field<'a>> {
        // SAFETY: the object is valid.
        let count = unsafe { (functions().http_get_headers_size)(self.object, fields) };
        let mut headers: Vec<Header> = Vec::with_capacity(count);
        // SAFETY: there is room for all headers, and those are written if the function returns true.
        unsafe {
            if (functions().http_get_headers)(self.object, fields, headers.as_mut_ptr()) {
                headers.set_len(count);
            }
        }
        // SAFETY: Envoy's headers live until the end of the call, or until this one is changed, after which none is read.
        headers.iter().map(|header| unsafe { (header.name.get(), header.value.get()) }).collect()
    }

    pub(crate) fn set_field(self, fields: Fields, name: &str, value: &str) {
        let [name, value] = [name, value].map(|text| Bytes::of(text.as_bytes()));
        // SAFETY: the object is valid, and Envoy copies the texts.
        unsafe { (functions().http_set_header)(self.object, fields, name, value) };
    }

    pub(crate) fn remove_fields(self, fields: Fields) {
        let names: Vec<Vec<u8>> =
            self.fields(fields).iter().map(|(name, _)| name.to_vec()).collect();
        for name in names {
            // SAFETY: the object is valid, and the name is not Envoy's own.
            unsafe {
                (functions().http_set_header)(self.object, fields, Bytes::of(&name), NOTHING)
            };
        }
    }

    /// The pieces of a body that came with this call.
    pub(crate) fn received(self, body: Received) -> Vec<&'a [u8]> {
        // SAFETY: the object is valid.
        let count = unsafe { (functions().http_get_body_chunks_size)(self.object, body) };
        let mut pieces: Vec<Bytes> = Vec::with_capacity(count);
        // SAFETY: there is room for all pieces, and those are written if the function returns true.
        unsafe {
            if (functions().http_get_body_chunks)(self.object, body, pieces.as_mut_ptr()) {
                pieces.set_len(count);
            }
        }
        // SAFETY: the pieces live until the end of the call, and the module changes no body.
        pieces.iter().map(|piece| unsafe { piece.get() }).collect()
    }

    /// Raises the number of bytes that Envoy keeps of a message.
    pub(crate) fn keep_at_least(self, bytes: u64) {
        // SAFETY: the object is valid.
        unsafe {
            if (functions().http_get_buffer_limit)(self.object) < bytes {
                (functions().http_set_buffer_limit)(self.object, bytes);
            }
        }
    }

    pub(crate) fn attribute(self, attribute: Attribute) -> Option<&'a str> {
        let mut text = MaybeUninit::uninit();
        // SAFETY: the object is valid. The text is written if the function returns true, and lives until the end of the call.
        let text = unsafe {
            (functions().http_filter_get_attribute_string)(
                self.object,
                attribute,
                text.as_mut_ptr(),
            )
            .then(|| text.assume_init().get())
        };
        text.and_then(|text| std::str::from_utf8(text).ok())
    }

    /// Responds in place of the backend. Envoy shows none of the response to the filter.
    pub(crate) fn respond(
        self,
        status: u16,
        headers: &[(String, String)],
        body: &[u8],
        details: &str,
    ) {
        let mut headers: Vec<Header> = headers
            .iter()
            .map(|(name, value)| Header {
                name: Bytes::of(name.as_bytes()),
                value: Bytes::of(value.as_bytes()),
            })
            .collect();
        // SAFETY: the object is valid, and Envoy copies headers and texts.
        unsafe {
            (functions().http_send_response)(
                self.object,
                u32::from(status),
                headers.as_mut_ptr(),
                headers.len(),
                Bytes::of(body),
                Bytes::of(details.as_bytes()),
            );
        }
    }

    /// Sets a text of the dynamic metadata.
    pub(crate) fn describe(self, key: &str, value: &str) {
        let [namespace, key, value] =
            [NAMESPACE, key, value].map(|text| Bytes::of(text.as_bytes()));
        // SAFETY: the object is valid, and Envoy copies the texts.
        unsafe {
            (functions().http_set_dynamic_metadata_string)(self.object, namespace, key, value);
        };
    }

    /// Sets a number of the dynamic metadata.
    pub(crate) fn describe_number(self, key: &str, value: i64) {
        let [namespace, key] = [NAMESPACE, key].map(|text| Bytes::of(text.as_bytes()));
        // SAFETY: the object is valid, and Envoy copies the texts.
        unsafe {
            (functions().http_set_dynamic_metadata_number)(
                self.object,
                namespace,
                key,
                value as f64,
            );
        };
    }

    pub(crate) fn count(self, counter: Counter, amount: u64) {
        // SAFETY: the object is valid, and the counter is one of its configuration, without labels.
        unsafe {
            (functions().http_filter_increment_counter)(
                self.object,
                counter.0,
                std::ptr::null_mut(),
                0,
                amount,
            )
        };
    }

    /// The configuration that the module made for the stream's route, or null. It outlives the call.
    pub(crate) fn route(self) -> *const c_void {
        // SAFETY: the object is valid.
        unsafe { (functions().get_most_specific_route_config)(self.object) }
    }

    pub(crate) fn continue_request(self) {
        // SAFETY: the object is valid, and the filter has stopped the request.
        unsafe { (functions().http_filter_continue_decoding)(self.object) };
    }

    pub(crate) fn continue_response(self) {
        // SAFETY: the object is valid, and the filter has stopped the response.
        unsafe { (functions().http_filter_continue_encoding)(self.object) };
    }

    pub(crate) fn scheduler(self) -> Scheduler {
        // SAFETY: the object is valid.
        Scheduler(unsafe { (functions().http_filter_scheduler_new)(self.object) })
    }
}

/// Has Envoy call the filter of a stream on its own thread.
#[derive(Debug)]
pub(crate) struct Scheduler(*mut c_void);

// SAFETY: Envoy's schedulers are for use on any thread.
unsafe impl Send for Scheduler {}

impl Scheduler {
    /// Does nothing once the stream has ended.
    pub(crate) fn commit(&self) {
        // SAFETY: the scheduler is valid until it is dropped.
        unsafe { (functions().http_filter_scheduler_commit)(self.0, 0) };
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        // SAFETY: the scheduler is valid, and not used again.
        unsafe { (functions().http_filter_scheduler_delete)(self.0) };
    }
}
