//! Variables and collections that rules name.

use crate::error::nearest;

macro_rules! variables {
    ($($name:literal $variant:ident $($collection:ident)? $(=> $source:expr)?,)*) => {
        /// Variable or collection of a transaction.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub(crate) enum Variable {
            $($variant,)*
        }

        impl Variable {
            pub(crate) const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// Name in rules and logs.
            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }

            /// Variable of a name in upper case.
            fn of_name(name: &str) -> Option<Self> {
                match name {
                    $($name => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// True if its values have names, so that it takes a selector.
            pub(crate) fn is_collection(self) -> bool {
                match self {
                    $(Self::$variant => false $(|| variables!(@ $collection))?,)*
                }
            }

            pub(crate) fn source(self) -> ValueSource {
                match self {
                    $(Self::$variant => variables!(@source $variant $($source)?),)*
                }
            }
        }
    };
    (@ collection) => { true };
    (@source $variant:ident $source:expr) => { $source };
    (@source $variant:ident) => { ValueSource::Entries(&[Variable::$variant]) };
}

// Name, variant, `collection` if its values have names, and the source of its values if it is not the message itself.
variables! {
    "ARGS" Args collection => ValueSource::Entries(&[Variable::ArgsGet, Variable::ArgsPost]),
    "ARGS_COMBINED_SIZE" ArgsCombinedSize,
    "ARGS_GET" ArgsGet collection,
    "ARGS_GET_NAMES" ArgsGetNames collection,
    "ARGS_NAMES" ArgsNames collection => ValueSource::Entries(&[Variable::ArgsGetNames, Variable::ArgsPostNames]),
    "ARGS_POST" ArgsPost collection,
    "ARGS_POST_NAMES" ArgsPostNames collection,
    "AUTH_TYPE" AuthType,
    "DURATION" Duration => ValueSource::Computed,
    "ENV" Env collection => ValueSource::Computed,
    "FILES" Files collection,
    "FILES_COMBINED_SIZE" FilesCombinedSize,
    "FILES_NAMES" FilesNames collection,
    "FILES_SIZES" FilesSizes collection,
    "FILES_TMP_CONTENT" FilesTmpContent collection,
    "FILES_TMPNAMES" FilesTmpNames collection => ValueSource::Never("no temporary file is written"),
    "FULL_REQUEST" FullRequest,
    "FULL_REQUEST_LENGTH" FullRequestLength,
    "GEO" Geo collection => ValueSource::Never("there are no geographic lookups"),
    "GLOBAL" Global collection => ValueSource::Store,
    "HIGHEST_SEVERITY" HighestSeverity => ValueSource::Computed,
    "INBOUND_DATA_ERROR" InboundDataError,
    "IP" Ip collection => ValueSource::Store,
    "LIMITS_REACHED" LimitsReached => ValueSource::Computed,
    "MATCHED_VAR" MatchedVar => ValueSource::Matched,
    "MATCHED_VARS" MatchedVars collection => ValueSource::Matched,
    "MATCHED_VARS_NAMES" MatchedVarsNames collection => ValueSource::Matched,
    "MATCHED_VAR_NAME" MatchedVarName => ValueSource::Matched,
    "MSC_PCRE_LIMITS_EXCEEDED" PcreLimitsExceeded => ValueSource::Computed,
    "MULTIPART_BOUNDARY_QUOTED" MultipartBoundaryQuoted,
    "MULTIPART_BOUNDARY_WHITESPACE" MultipartBoundaryWhitespace,
    "MULTIPART_CRLF_LF_LINES" MultipartCrlfLfLines,
    "MULTIPART_DATA_AFTER" MultipartDataAfter,
    "MULTIPART_DATA_BEFORE" MultipartDataBefore,
    "MULTIPART_FILENAME" MultipartFilename collection,
    "MULTIPART_FILE_LIMIT_EXCEEDED" MultipartFileLimitExceeded,
    "MULTIPART_HEADER_FOLDING" MultipartHeaderFolding,
    "MULTIPART_INVALID_HEADER_FOLDING" MultipartInvalidHeaderFolding,
    "MULTIPART_INVALID_PART" MultipartInvalidPart,
    "MULTIPART_INVALID_QUOTING" MultipartInvalidQuoting,
    "MULTIPART_LF_LINE" MultipartLfLine,
    "MULTIPART_MISSING_SEMICOLON" MultipartMissingSemicolon,
    "MULTIPART_NAME" MultipartName collection,
    "MULTIPART_PART_HEADERS" MultipartPartHeaders collection,
    "MULTIPART_STRICT_ERROR" MultipartStrictError,
    "MULTIPART_UNMATCHED_BOUNDARY" MultipartUnmatchedBoundary,
    "OUTBOUND_DATA_ERROR" OutboundDataError,
    "PATH_INFO" PathInfo,
    "QUERY_STRING" QueryString,
    "REMOTE_ADDR" RemoteAddr,
    "REMOTE_HOST" RemoteHost,
    "REMOTE_PORT" RemotePort,
    "REMOTE_USER" RemoteUser,
    "REQBODY_ERROR" ReqbodyError,
    "REQBODY_ERROR_MSG" ReqbodyErrorMsg,
    "REQBODY_PROCESSOR" ReqbodyProcessor => ValueSource::Computed,
    "REQBODY_PROCESSOR_ERROR" ReqbodyProcessorError,
    "REQBODY_PROCESSOR_ERROR_MSG" ReqbodyProcessorErrorMsg,
    "REQUEST_BASENAME" RequestBasename,
    "REQUEST_BODY" RequestBody,
    "REQUEST_BODY_LENGTH" RequestBodyLength,
    "REQUEST_COOKIES" RequestCookies collection,
    "REQUEST_COOKIES_NAMES" RequestCookiesNames collection,
    "REQUEST_FILENAME" RequestFilename,
    "REQUEST_HEADERS" RequestHeaders collection,
    "REQUEST_HEADERS_NAMES" RequestHeadersNames collection,
    "REQUEST_LINE" RequestLine,
    "REQUEST_METHOD" RequestMethod,
    "REQUEST_PROTOCOL" RequestProtocol,
    "REQUEST_URI" RequestUri,
    "REQUEST_URI_RAW" RequestUriRaw,
    "RESOURCE" Resource collection => ValueSource::Store,
    "RESPONSE_BODY" ResponseBody,
    "RESPONSE_CONTENT_LENGTH" ResponseContentLength,
    "RESPONSE_CONTENT_TYPE" ResponseContentType,
    "RESPONSE_HEADERS" ResponseHeaders collection,
    "RESPONSE_HEADERS_NAMES" ResponseHeadersNames collection,
    "RESPONSE_PROTOCOL" ResponseProtocol,
    "RESPONSE_STATUS" ResponseStatus,
    "RULE" Rule collection => ValueSource::Rule,
    "SERVER_ADDR" ServerAddr,
    "SERVER_NAME" ServerName,
    "SERVER_PORT" ServerPort,
    "SESSION" Session collection => ValueSource::Store,
    "SESSIONID" SessionId => ValueSource::Computed,
    "STATUS_LINE" StatusLine,
    "TIME" Time,
    "TIME_DAY" TimeDay,
    "TIME_EPOCH" TimeEpoch,
    "TIME_HOUR" TimeHour,
    "TIME_MIN" TimeMin,
    "TIME_MON" TimeMon,
    "TIME_SEC" TimeSec,
    "TIME_WDAY" TimeWday,
    "TIME_YEAR" TimeYear,
    "TX" Tx collection => ValueSource::Store,
    "UNIQUE_ID" UniqueId,
    "URLENCODED_ERROR" UrlencodedError,
    "USER" User collection => ValueSource::Store,
    "USERID" UserId => ValueSource::Computed,
    "WEBAPPID" WebAppId => ValueSource::Computed,
    "XML" Xml collection,
}

/// Set of variables.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Variables(u128);

const _: () = assert!(Variable::ALL.len() <= 128);

impl Variables {
    pub(crate) fn insert(&mut self, variable: Variable) {
        self.0 |= 1 << variable as u8;
    }

    #[inline]
    pub(crate) fn contains(self, variable: Variable) -> bool {
        self.0 >> variable as u8 & 1 == 1
    }

    pub(crate) fn contains_any(self, variables: &[Variable]) -> bool {
        variables.iter().any(|&variable| self.contains(variable))
    }
}

impl FromIterator<Variable> for Variables {
    fn from_iter<T: IntoIterator<Item = Variable>>(variables: T) -> Self {
        let mut set = Self::default();
        variables.into_iter().for_each(|variable| set.insert(variable));
        set
    }
}

/// Source of a variable's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ValueSource {
    /// Entries of the request or response, under these physical variables, in this order.
    Entries(&'static [Variable]),
    /// Named values that rules write.
    Store,
    /// The values that the last matching rule matched.
    Matched,
    /// Properties of the rule that runs.
    Rule,
    /// The transaction computes the value when a rule reads it.
    Computed,
    /// Nothing writes it, for this reason: rules that name it are listed when they are loaded.
    Never(&'static str),
}

impl Variable {
    /// Returns the variable of that name, ignoring case.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let upper = name.to_ascii_uppercase();
        Self::of_name(&upper).or(match upper.as_str() {
            "MULTIPART_SEMICOLON_MISSING" => Some(Self::MultipartMissingSemicolon),
            "RESPONSE_BODY_LENGTH" => Some(Self::ResponseContentLength),
            _ => None,
        })
    }

    /// Returns `; did you mean ...` for an unknown name.
    pub(crate) fn hint(name: &str) -> String {
        nearest(name, Self::ALL.iter().map(|v| v.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip_in_any_case() {
        for &variable in Variable::ALL {
            assert_eq!(Variable::parse(&variable.name().to_lowercase()), Some(variable));
        }
    }

    #[test]
    fn unknown_name_has_a_hint() {
        assert_eq!(Variable::hint("REQUEST_HEADER"), "; did you mean \"REQUEST_HEADERS\"?");
    }
}
