//! Analysis, comparison, thresholds, and the texts, pages and exports made of them.

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
