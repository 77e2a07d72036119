//! Analysis, comparison, thresholds, and the texts, pages and exports made of them.

pub mod ablation;
pub mod analysis;
pub mod bencher;
pub mod bytes;
pub mod compare;
pub mod condition;
pub mod csv;
pub mod error;
pub mod github;
pub mod gobench;
pub mod hgrm;
pub mod html;
pub mod hyperfine;
pub mod json;
pub mod latency;
pub mod markdown;
pub mod noise;
pub mod output;
pub mod rows;
pub mod source;
pub mod table;
pub mod threshold;
