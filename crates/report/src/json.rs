//! The analysis as JSON, for programs: everything, unrounded.

use crate::analysis::Analysis;
use crate::error::ReportError;

/// Writes an analysis as JSON.
pub fn render(analysis: &Analysis) -> Result<String, ReportError> {
    Ok(serde_json::to_string_pretty(analysis)? + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use schemars::generate::SchemaSettings;
    use std::path::Path;

    #[test]
    fn committed_schema_matches_types() {
        // What is written has all its fields, those that may be null among them.
        let settings = SchemaSettings::draft2020_12().for_serialize();
        let schema = settings.into_generator().into_root_schema_for::<Analysis>();
        let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas/report.json");
        if std::env::var_os("UPDATE_SCHEMAS").is_some() {
            std::fs::write(&path, &text).unwrap();
        }
        let committed = std::fs::read_to_string(&path).unwrap();
        assert!(committed == text, "set UPDATE_SCHEMAS=1 and run this test to write {path:?}");
    }
}
