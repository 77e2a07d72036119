//! From records to reports: literal records in, hand-derived values out. No socket, no process and
//! no clock.

#![expect(clippy::unwrap_used, reason = "test helpers may panic as tests do")]

// Builders of records with round figures, and reports of them.
mod records;
// Ratios and differences, paired by block.
mod prices;
// Medians, shares and bottlenecks of one subject.
mod figures;
// Verdicts, the status of a run, and the noise floor.
mod status;
// The headline sentence.
mod answer;
// The cost of each file of a rule set.
mod ablation;
// Subjects and trials without figures; warm-ups.
mod notes;
// Rate, legend and notes of open loops.
mod open_loop;
// Table and Markdown: content, width, and escaping.
mod pages;
// Tables that depend on the experiment.
mod tables;
// Snapshots of a realistic run.
mod first_look;
// The page: plots, figures, and escaping.
mod html;
// CSV and JSON, literally.
mod data;
// The formats of other tools, literally.
mod foreign;
// The layouts of the benchmarks that experiments repeat, literally.
mod original;
// Pass, fail or not settled.
mod thresholds;
// Comparisons of two runs.
mod catch;
mod compare;
// The noise of a machine, from an A/A run.
mod noise;
