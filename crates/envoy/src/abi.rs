//! The binary interface of Envoy's dynamic modules, as far as the module uses it: `source/extensions/dynamic_modules/abi/abi.h` of Envoy
//! 1.38 to 1.40.
//!
//! Envoy's functions are looked up when it loads the module, which is refused if one is missing. Their arguments are the same in these
//! versions; Envoy keeps the next minor version of the interface compatible.

#![expect(unsafe_code, reason = "functions of another program are declared and looked up here")]

use std::ffi::{CStr, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Versions of the interface: of Envoy 1.38 and 1.39, and of 1.40.
const VERSION_1: &CStr = c"v0.1.0";
const VERSION_2: &CStr = c"v0.2.0";
/// A function that Envoy has since 1.40.
const SINCE_VERSION_2: &CStr = c"envoy_dynamic_module_callback_http_set_dynamic_metadata_struct";

/// A function that Envoy has since 1.39.
const SINCE_1_39: &CStr = c"envoy_dynamic_module_callback_http_filter_config_increment_counter";

/// Bytes of one side, valid during the call to which they belong.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bytes {
    pub(crate) start: *const u8,
    pub(crate) length: usize,
}

/// A header of one side, valid as [`Bytes`] are.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) name: Bytes,
    pub(crate) value: Bytes,
}

/// Envoy's object of a stream, or of a filter's configuration.
pub(crate) type Object = *mut c_void;

/// Headers or trailers.
#[repr(u32)]
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fields {
    RequestHeaders = 0,
    RequestTrailers = 1,
    ResponseHeaders = 2,
}

/// Bytes of a body that came with the current call.
#[repr(u32)]
#[derive(Clone, Copy, Debug)]
pub(crate) enum Received {
    Request = 0,
    Response = 2,
}

/// Attributes of a stream.
#[repr(u32)]
#[derive(Clone, Copy, Debug)]
pub(crate) enum Attribute {
    RequestProtocol = 10,
    /// Address and port.
    SourceAddress = 24,
    DestinationAddress = 26,
}

/// Level of a line of Envoy's log.
#[repr(u32)]
#[derive(Clone, Copy, Debug)]
pub(crate) enum Level {
    Debug = 1,
    Warn = 3,
    Error = 4,
}

/// Numbers of the answers to one kind of part of a message.
pub(crate) struct Statuses {
    pub(crate) forward: u32,
    /// Forwards nothing, and shows the filter what follows. Above its limit, Envoy ends the stream.
    pub(crate) hold: u32,
    /// Forwards nothing until the filter continues. Above its limit, Envoy has the peer wait.
    pub(crate) wait: u32,
    /// Forwards nothing, as there is a response.
    pub(crate) responded: u32,
}

/// `Continue`, `StopIteration` and `StopAllIterationAndWatermark`.
pub(crate) const HEAD: Statuses = Statuses { forward: 0, hold: 1, wait: 4, responded: 1 };
/// `Continue`, `StopIterationAndBuffer`, `StopIterationAndWatermark` and `StopIterationNoBuffer`.
pub(crate) const BODY: Statuses = Statuses { forward: 0, hold: 1, wait: 2, responded: 3 };
/// `Continue` and `StopIteration`.
pub(crate) const TRAILERS: Statuses = Statuses { forward: 0, hold: 1, wait: 1, responded: 1 };

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident($($argument:ty),*) $(-> $result:ty)?;)*) => {
        /// Envoy's functions, without `envoy_dynamic_module_callback_` in their names.
        pub(crate) struct Functions {
            $($(#[$doc])* pub(crate) $name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            /// Looks the functions up. Returns the name of one that is missing.
            fn find(find: impl Fn(&CStr) -> *mut c_void) -> Result<Self, &'static str> {
                Ok(Self {
                    $($name: {
                        let name = concat!("envoy_dynamic_module_callback_", stringify!($name), "\0");
                        let found = CStr::from_bytes_with_nul(name.as_bytes()).map(&find);
                        let Some(found) = found.ok().filter(|found| !found.is_null()) else {
                            return Err(name.trim_end_matches('\0'));
                        };
                        // SAFETY: Envoy defines a function of this name as it is declared here, in all versions that have one.
                        unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) $(-> $result)?>(found)
                        }
                    },)*
                })
            }
        }
    };
}

functions! {
    log(Level, Bytes);
    log_enabled(Level) -> bool;
    get_concurrency() -> u32;
    http_get_headers_size(Object, Fields) -> usize;
    http_get_headers(Object, Fields, *mut Header) -> bool;
    /// A value that is null removes the header.
    http_set_header(Object, Fields, Bytes, Bytes) -> bool;
    http_get_body_chunks_size(Object, Received) -> usize;
    http_get_body_chunks(Object, Received, *mut Bytes) -> bool;
    http_get_buffer_limit(Object) -> u64;
    http_set_buffer_limit(Object, u64);
    http_filter_get_attribute_string(Object, Attribute, *mut Bytes) -> bool;
    /// Status, headers with their number, body, and details for the access log.
    http_send_response(Object, u32, *mut Header, usize, Bytes, Bytes);
    /// Namespace, key and value.
    http_set_dynamic_metadata_string(Object, Bytes, Bytes, Bytes);
    http_set_dynamic_metadata_number(Object, Bytes, Bytes, f64);
    /// Name, names of labels with their number, and where the number of the counter is written; returns 0 for success.
    http_filter_config_define_counter(Object, Bytes, *mut Bytes, usize, *mut usize) -> u32;
    /// Number of the counter, values of labels with their number, and the amount.
    http_filter_increment_counter(Object, usize, *mut Bytes, usize, u64) -> u32;
    http_filter_scheduler_new(Object) -> *mut c_void;
    http_filter_scheduler_commit(*mut c_void, u64);
    http_filter_scheduler_delete(*mut c_void);
    http_filter_continue_decoding(Object);
    http_filter_continue_encoding(Object);
    get_most_specific_route_config(Object) -> *const c_void;
}

static FUNCTIONS: OnceLock<Functions> = OnceLock::new();
static HAS_ONE_CONTINUE: AtomicBool = AtomicBool::new(false);

/// Envoy's functions.
pub(crate) fn functions() -> &'static Functions {
    FUNCTIONS.get().unwrap_or_else(|| unreachable!("Envoy loads the module before it uses it"))
}

/// True for Envoy 1.38: a response that waits never continues if a part of its request is forwarded meanwhile.
pub(crate) fn has_one_continue() -> bool {
    HAS_ONE_CONTINUE.load(Ordering::Relaxed)
}

/// Looks up Envoy's functions. Returns the version of its interface, or an error text.
pub(crate) fn load() -> Result<&'static CStr, String> {
    // SAFETY: the name is a text that ends with NUL.
    load_with(|name| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) })
}

pub(crate) fn load_with(find: impl Fn(&CStr) -> *mut c_void) -> Result<&'static CStr, String> {
    let version = if find(SINCE_VERSION_2).is_null() { VERSION_1 } else { VERSION_2 };
    let functions = Functions::find(&find).map_err(|missing| {
        format!("cannot run in this Envoy: it has no {missing}; use Envoy 1.38, 1.39 or 1.40")
    })?;
    HAS_ONE_CONTINUE.store(find(SINCE_1_39).is_null(), Ordering::Relaxed);
    FUNCTIONS.get_or_init(|| functions);
    Ok(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envoy_without_a_function_is_refused_by_its_name() {
        let missing = c"envoy_dynamic_module_callback_http_filter_scheduler_new";
        let somewhere: *mut c_void = std::ptr::dangling_mut();
        let find = |name: &CStr| if name == missing { std::ptr::null_mut() } else { somewhere };
        let error = load_with(find).unwrap_err();
        assert_eq!(
            error,
            "cannot run in this Envoy: it has no envoy_dynamic_module_callback_http_filter_scheduler_new; use Envoy 1.38, 1.39 or 1.40"
        );
    }
}
