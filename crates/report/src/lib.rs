//! Analysis, comparison and thresholds, and their rendering as texts, pages and exports.

pub mod analysis;
pub mod compare;
pub mod condition;
pub mod document;
pub mod export;
pub mod html;
mod markdown;
pub mod noise;
pub mod output;
pub mod source;
mod text;
pub mod threshold;
