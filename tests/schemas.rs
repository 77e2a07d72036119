//! The committed JSON Schemas in `schemas/`, for the unit tests of each crate that has one.

use schemars::generate::{Contract, SchemaSettings};
use schemars::{JsonSchema, Schema};
use std::fs;
use std::path::Path;

/// Returns the schema of a type. With [`Contract::Serialize`] all fields are required, null ones included.
pub(crate) fn of<T: JsonSchema>(contract: Contract) -> Schema {
    let settings = SchemaSettings::draft2020_12().with(|settings| settings.contract = contract);
    settings.into_generator().into_root_schema_for::<T>()
}

/// Compares the schema of a type with `schemas/NAME.json`, or writes that file if `UPDATE_SCHEMAS` is set.
pub(crate) fn check<T: JsonSchema>(name: &str, contract: Contract) {
    let text = serde_json::to_string_pretty(&of::<T>(contract)).unwrap() + "\n";
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../schemas/{name}.json"));
    if std::env::var_os("UPDATE_SCHEMAS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let committed = fs::read_to_string(&path).unwrap();
    assert!(committed == text, "set UPDATE_SCHEMAS=1 and run this test to write {path:?}");
}
