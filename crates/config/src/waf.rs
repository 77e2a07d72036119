//! The `waf` key as written.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::located::Located;

/// Inspection of requests and responses by a web application firewall. A key of a route replaces that of the gateway.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "waf")]
pub struct WafFile {
    /// Consequence of a match. Default: `on`.
    pub mode: Option<ModeFile>,
    /// Percent of the requests that are inspected, drawn at random, from 0 to 100. Default: 100.
    pub sample: Option<Located<u8>>,
    /// Rule files in SecLang, AppSec rules of CrowdSec in files named `*.yaml`, rules of naxsi in files named `*.rules`,
    /// or patterns such as `crs/rules/*.conf`, read in this order. `crs` is the installed Core Rule Set with its setup, unless
    /// there is such a file; its version is printed at the start and by `--check`.
    pub rules: Option<Located<Vec<Located<String>>>>,
    /// Options of the Core Rule Set 4, set before the rules. A file that sets the same variable takes precedence.
    pub crs: Option<CrsFile>,
    /// SecLang directives behind the rules, such as `SecRuleRemoveById 942100` or
    /// `SecRuleUpdateTargetById 942100 "!ARGS:q"`.
    pub exclusions: Option<Located<Vec<String>>>,
    /// Inspection of request bodies.
    pub request_body: Option<RequestBodyFile>,
    /// Inspection of response bodies. Default: as the rule files say, or none.
    pub response_body: Option<ResponseBodyFile>,
    /// Limit of the inspection of a request and its response.
    pub inspection: Option<InspectionFile>,
    /// Response to a blocked request.
    pub block: Option<BlockFile>,
    /// Response header with the identifier of the transaction, as in the audit log. Default: none.
    pub transaction_header: Option<Located<String>>,
}

/// Mode of the firewall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(title = "mode")]
pub enum ModeFile {
    /// Rules can block.
    On,
    /// Matches are logged and counted only.
    DetectionOnly,
    /// Nothing is inspected.
    Off,
}

/// Options of the Core Rule Set 4; `crs-setup.conf.example` describes them.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "crs")]
pub struct CrsFile {
    /// Level of the rules that can block, from 1 to 4. Default: 1.
    pub paranoia_level: Option<Located<u8>>,
    /// Level of the rules that are run; those above `paranoia_level` only log. Default: `paranoia_level`.
    pub detection_paranoia_level: Option<Located<u8>>,
    /// Anomaly score from which a request is blocked. Default: 5.
    pub inbound_anomaly_score_threshold: Option<Located<u32>>,
    /// Anomaly score from which a response is blocked. Default: 4.
    pub outbound_anomaly_score_threshold: Option<Located<u32>>,
    /// Blocks after the headers if they suffice. Default: false.
    pub early_blocking: Option<bool>,
    /// Methods of requests. Default: GET, HEAD, POST and OPTIONS.
    pub allowed_methods: Option<Located<Vec<String>>>,
    /// Media types of request bodies.
    pub allowed_request_content_types: Option<Located<Vec<String>>>,
    /// Protocols, such as HTTP/1.1.
    pub allowed_http_versions: Option<Located<Vec<String>>>,
    /// Extensions of files, such as .bak, that cannot be requested.
    pub restricted_extensions: Option<Located<Vec<String>>>,
    /// Headers that requests must not have.
    pub restricted_headers: Option<Located<Vec<String>>>,
    /// Arguments of a request. Default: unlimited.
    pub max_num_args: Option<Located<u32>>,
    /// Bytes of the name of an argument. Default: unlimited.
    pub arg_name_length: Option<Located<u32>>,
    /// Bytes of the value of an argument. Default: unlimited.
    pub arg_length: Option<Located<u32>>,
    /// Bytes of all arguments of a request. Default: unlimited.
    pub total_arg_length: Option<Located<u32>>,
    /// Bytes of an uploaded file. Default: unlimited.
    pub max_file_size: Option<Located<u32>>,
    /// Bytes of all uploaded files of a request. Default: unlimited.
    pub combined_file_sizes: Option<Located<u32>>,
    /// Other variables of the collection TX, such as those of plugins.
    pub variables: Option<BTreeMap<String, Located<String>>>,
}

/// Inspection of request bodies. Bodies are held until they are inspected.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "request body")]
pub struct RequestBodyFile {
    /// Inspects request bodies. Default: true.
    pub inspect: Option<bool>,
    /// Parses JSON and XML, and rejects malformed bodies (400), unless the rules bring rules for that, as the
    /// recommended configuration of ModSecurity has them. Default: true.
    pub recommended: Option<bool>,
    /// Bytes of a multipart body that are inspected. Default: 13107200.
    pub limit: Option<Located<usize>>,
    /// Bytes of another body that are inspected. Default: 131072.
    pub limit_without_files: Option<Located<usize>>,
    /// Arguments of a request that are inspected: fields of the query and of a form, values of JSON, ... Default: 1000, as in the
    /// recommended configuration of ModSecurity.
    pub arguments_max: Option<Located<usize>>,
    /// Treatment of a larger body, or of a request with more arguments. Default: `reject`.
    pub over_limit: Option<OverLimitFile>,
    /// Treatment of a body with a content coding. Default: `reject`. `inflate` is for backends that decode such bodies: rules do
    /// not see the encoded bytes.
    pub compressed: Option<CompressedFile>,
    /// Inflated bytes per compressed byte, beyond which a body is rejected, from 1 to 1032. Default: 100.
    pub inflate_ratio_max: Option<Located<u32>>,
}

/// Inspection of response bodies. Bodies are held until they are inspected.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "response body")]
pub struct ResponseBodyFile {
    /// Media types of the bodies that are inspected. An empty list inspects none.
    pub mime_types: Option<Located<Vec<String>>>,
    /// Bytes of a body that are inspected. Default: 524288.
    pub limit: Option<Located<usize>>,
    /// Treatment of a larger body. Default: `partial`.
    pub over_limit: Option<OverLimitFile>,
    /// Treatment of a body with a content coding. Default: `inflate`.
    pub compressed: Option<CompressedFile>,
    /// Inflated bytes per compressed byte, beyond which a body is rejected, from 1 to 1032. Default: 100.
    pub inflate_ratio_max: Option<Located<u32>>,
}

/// Limit of the inspection of a request and its response.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "inspection")]
pub struct InspectionFile {
    /// Bytes that operators inspect, the same bytes again for each rule. Default: unlimited.
    pub bytes: Option<Located<u64>>,
    /// `reject` blocks beyond the limit, `partial` runs no further rules. Default: `reject`.
    pub over_limit: Option<OverLimitFile>,
}

/// Treatment beyond a limit.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(title = "over limit")]
pub enum OverLimitFile {
    /// Blocks the transaction, unless the mode is `detection-only`.
    Reject,
    /// Inspects the part within the limit; the rest passes.
    Partial,
}

/// Treatment of a body with a content coding.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(title = "compressed")]
pub enum CompressedFile {
    /// Blocks it: a request with 415.
    Reject,
    /// Does not inspect it.
    Pass,
    /// Inspects what it contains, within the limits; blocks codings other than gzip and deflate.
    Inflate,
}

/// Response to a blocked request.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "block")]
pub struct BlockFile {
    /// Status from 400 to 599. Default: that of the rule, usually 403.
    pub status: Option<Located<u16>>,
    /// File with the body, as HTML if its name ends in `.html`, otherwise as text. Default: a short text.
    pub page: Option<Located<String>>,
}
