//! `tollgate report --site`: static pages of all runs and batches in a folder.

use crate::console::{self, Exit, Failure};
use anyhow::anyhow;
use std::fs;
use std::path::{Path, PathBuf};
use tollgate_batch::report as batch;
use tollgate_batch::store::StoredBatch;
use tollgate_records::error::io_error;
use tollgate_records::files::{self, write_atomic};
use tollgate_records::run_dir;
use tollgate_report::html::site::{History, Index, Run};
use tollgate_report::source::ReportSource;
use tollgate_report::{Format, render};
use tollgate_stats::text::Screen;

/// Kind of a directory of results.
enum Results {
    Run,
    Batch,
}

pub(super) fn write(folder: &Path, out: &Path) -> Result<Exit, Failure> {
    let found = find(folder)?;
    if found.is_empty() {
        let error = anyhow!(
            "{} has no directory of a run or batch, which contains manifest.json or batch.json",
            folder.display()
        );
        return Err(Failure::bad_input(error));
    }
    let (mut runs, mut histories) = (Vec::new(), Vec::new());
    for (name, dir, kind) in &found {
        console::eprint_line(name);
        let target = out.join(name);
        match kind {
            Results::Run => runs.push(write_run(name, dir, &target)?),
            Results::Batch => histories.push(write_batch(name, dir, &target)?),
        }
    }
    let index = Index::new(runs, histories);
    write_atomic(&out.join("index.json"), &files::json(&index)?)?;
    write_atomic(&out.join("index.html"), &index.render()?)?;
    console::print(&format!("{}\n", out.join("index.html").display()))?;
    Ok(Exit::Success)
}

/// Directories of results, by name.
fn find(folder: &Path) -> Result<Vec<(String, PathBuf, Results)>, Failure> {
    let failed = io_error("read", folder);
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(|error| Failure::bad_input(failed(error)))? {
        let dir = entry.map_err(&failed)?.path();
        let kind = if run_dir::is_search(&dir) {
            console::eprint_line(&format!("{}: left out, as searches have no page", dir.display()));
            continue;
        } else if dir.join("batch.json").is_file() {
            Results::Batch
        } else if dir.join("manifest.json").is_file() {
            Results::Run
        } else {
            continue;
        };
        let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
        found.push((name, dir, kind));
    }
    found.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(found)
}

fn write_run(name: &str, dir: &Path, target: &Path) -> Result<Run, Failure> {
    let source = ReportSource::read(dir).map_err(Failure::bad_input)?;
    write_report(&source, target)?;
    Ok(Run::of(name, &source))
}

fn write_report(source: &ReportSource, target: &Path) -> Result<(), Failure> {
    fs::create_dir_all(target).map_err(io_error("create", target))?;
    for (format, file) in [(Format::Html, "report.html"), (Format::Json, "report.json")] {
        write_atomic(&target.join(file), &render(source, format, Screen::PLAIN)?)?;
    }
    Ok(())
}

/// Writes the page of a batch, and those of its rounds, which it links to.
fn write_batch(name: &str, dir: &Path, target: &Path) -> Result<History, Failure> {
    let stored = StoredBatch::read(dir).map_err(Failure::bad_input)?;
    let stats = batch::stats(&stored.records(), dir)?;
    fs::create_dir_all(target).map_err(io_error("create", target))?;
    write_atomic(&target.join("stats.html"), &batch::render_html(&stats)?)?;
    write_atomic(&target.join("stats.json"), &files::json(&stats)?)?;
    let rounds = dir.join("rounds");
    if rounds.is_dir() {
        for (round, dir, _) in find(&rounds)? {
            let source = ReportSource::read(&dir).map_err(Failure::bad_input)?;
            write_report(&source, &target.join("rounds").join(round))?;
        }
    }
    Ok(History {
        name: name.to_owned(),
        title: stats.title.clone(),
        summary: batch::summary(&stats),
        started_at: stats.started_at.clone(),
        tollgate: stats.tollgate.clone(),
        command: stats.command.clone(),
    })
}
