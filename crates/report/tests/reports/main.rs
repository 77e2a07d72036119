//! From records to reports: literal records in, hand-derived values out. No socket, no process and
//! no clock.

#![expect(clippy::unwrap_used, reason = "helpers of tests are as free to panic as tests")]

// Builders of records whose figures can be divided in the head.
mod records;
mod settling;
// Ratios and differences, paired by block.
mod prices;
// Medians, shares and bottlenecks of one subject.
mod figures;
// A rule set without each of its files in turn.
mod ablation;
// Bytes to and fro, where an experiment asks for them.
mod bytes;
// What is added to the latency, where an experiment asks for it.
mod latency;
// Cases that are for some of the subjects, and cases of a number of requests.
mod cases;
// What became of subjects and trials that have no figures.
mod notes;
// What an open loop has to say besides.
mod open_loop;
// The answer in one sentence.
mod answer;
// Table and Markdown: what is drawn, how wide, and what is escaped.
mod pages;
// CSV and JSON, literally.
mod data;
// One realistic run, as people get to see it.
mod first_look;
// The page: what it holds, and what is escaped.
mod html;
// The formats of other tools.
mod foreign;
// Gates: held, broken or not settled.
mod thresholds;
// Two runs side by side.
mod compare;
// What an A/A run says of the machine.
mod noise;
// Warm-ups until the subjects are steady.
mod warm_up;
