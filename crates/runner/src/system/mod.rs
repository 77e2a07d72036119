//! The system of a subject: find, build and install it, and render its configuration.

pub mod build;
pub mod go;
pub mod installed;
pub mod packages;
pub mod render;
