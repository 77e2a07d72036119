//! The classes of a mix, each with its templates.

use super::layout::{COLUMN_GAP, class_name, columns, cut, grouped, ms};
use crate::cmd::load::result::{ClassResult, Latency, LoadResult, TemplateResult};
use tollgate_lab::report::layout::COLUMNS;

/// Writes a row for each class and each template; nothing without a mix.
pub(super) fn render(result: &LoadResult) -> String {
    if result.load.mix.is_none() {
        return String::new();
    }
    let mut names = vec![String::new()];
    let head = ["answers", "unexpected", "p50 ms", "p99 ms", "max ms"];
    let mut figures = vec![head.map(str::to_owned)];
    for &ClassResult { class, answered, unexpected, ref latency } in &result.classes {
        names.push(class_name(class).to_owned());
        figures.push(class_figures(answered, unexpected, latency));
        for template in result.templates.iter().filter(|template| template.class == Some(class)) {
            let &TemplateResult { ref name, answered, unexpected, ref latency, .. } = template;
            names.push(format!("  {name}"));
            figures.push(class_figures(answered, unexpected, latency));
        }
    }
    let widths = (0..head.len()).filter_map(|column| {
        figures.iter().map(|row| row[column].chars().count() + COLUMN_GAP).max()
    });
    // What the figures leave of the line is for the name.
    let name_width = COLUMNS.saturating_sub(widths.sum()).max(NAME_MIN);
    let rows = names
        .iter()
        .zip(figures)
        .map(|(name, figures)| std::iter::once(cut(name, name_width)).chain(figures).collect());
    format!("\n{}", columns(&rows.collect::<Vec<_>>()))
}

/// The narrowest name that tells anything.
const NAME_MIN: usize = 8;

fn class_figures(answered: u64, unexpected: u64, latency: &Latency) -> [String; 5] {
    let [p50, p99] = [latency.quantiles.p50_ms, latency.quantiles.p99_ms];
    [grouped(answered), grouped(unexpected), ms(p50), ms(p99), ms(latency.max_ms)]
}
