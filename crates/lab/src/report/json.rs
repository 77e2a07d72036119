//! The analysis as JSON, for programs: everything, unrounded.

use super::ReportError;
use crate::analysis::Analysis;

/// Writes an analysis as JSON.
///
/// # Errors
///
/// A value cannot be written as JSON.
pub fn render(analysis: &Analysis) -> Result<String, ReportError> {
    Ok(serde_json::to_string_pretty(analysis)? + "\n")
}
