//! Documents as a single HTML file: no scripts, no network access, inline SVG plots.

pub mod load;
mod plots;
pub mod site;
pub mod svg;
mod timeline;

use crate::document::{Block, Document, Media, Section, capitalized, of_run};
use crate::export::NoFigure;
use crate::source::ReportSource;
use anyhow::Context;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{Environment, UndefinedBehavior, Value};
use plots::Figure;
use serde::Serialize;

/// Colors and plots.
const PLOT_STYLE: &str = include_str!("plot.css");

/// The style sheet of all pages.
pub const STYLE: &str = concat!(include_str!("plot.css"), include_str!("style.css"));

/// Name of all templates. Its extension makes minijinja escape all text. Only drawings are marked as safe; they escape it themselves.
const NAME: &str = "page.html";

#[derive(Serialize)]
struct Page<'a> {
    style: &'static str,
    document: &'a Document,
    sections: Vec<PageSection<'a>>,
}

#[derive(Serialize)]
struct PageSection<'a> {
    section: &'a Section,
    line: String,
    blocks: Vec<PageBlock<'a>>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum PageBlock<'a> {
    Block(&'a Block),
    Plots { kind: &'static str, data: Vec<Figure> },
}

/// Renders the report of a run as an HTML page.
pub(crate) fn render(source: &ReportSource) -> anyhow::Result<String> {
    let document = of_run(source);
    let mut sections = Vec::new();
    for section in &document.sections {
        let blocks = section.blocks(&[Media::Page, Media::Paper]).map(|block| drawn(source, block));
        let blocks: Vec<PageBlock<'_>> = blocks.collect::<Result<_, _>>()?;
        if !blocks.is_empty() {
            sections.push(PageSection { section, line: capitalized(&section.line), blocks });
        }
    }
    let page = Page { style: STYLE, document: &document, sections };
    page_of(include_str!("page.html.j2"), &page)
}

/// Renders the chart of the CPU prices of the first case that has one, as an SVG file in the colors of its reader.
pub(crate) fn price_chart(source: &ReportSource) -> Result<String, NoFigure> {
    let chart = plots::price_chart(&source.analysis).ok_or(NoFigure::Price)?;
    let start = "<svg ";
    let styled = format!("{start}xmlns=\"http://www.w3.org/2000/svg\" ");
    let chart = chart.replacen(start, &styled, 1);
    let (head, body) = chart.split_once('\n').unwrap_or((&chart, ""));
    Ok(format!("{head}\n<style>\n{PLOT_STYLE}</style>\n{body}"))
}

pub fn page_of(template: &str, page: &impl Serialize) -> anyhow::Result<String> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax?);
    environment.add_filter("mark", |series: usize| Value::from_safe_string(svg::key(series)));
    environment.add_filter("prose", |text: &str| with_units(text));
    let text = environment.render_named_str(NAME, template, Serde(page));
    text.context("cannot write HTML")
}

/// Units that the page writes after a number and a space.
const UNITS: [&str; 11] = ["%", "ns", "µs", "ms", "s", "min", "h", "bytes", "KiB", "MiB", "GiB"];

/// Joins numbers and their units by no-break spaces.
fn with_units(text: &str) -> String {
    let mut words = text.split(' ');
    let mut joined = words.next().unwrap_or_default().to_owned();
    for word in words {
        let unit = word.trim_end_matches([',', '.', ';', ':', ')', ']', '}']);
        let has_value = joined.ends_with(|last: char| last.is_ascii_digit());
        joined.push(if has_value && UNITS.contains(&unit) { '\u{a0}' } else { ' ' });
        joined += word;
    }
    joined
}

fn drawn<'a>(source: &ReportSource, block: &'a Block) -> anyhow::Result<PageBlock<'a>> {
    let Block::Plots(plots) = block else { return Ok(PageBlock::Block(block)) };
    let figures: Vec<Vec<Figure>> =
        plots.iter().map(|plot| plots::draw(source, plot)).collect::<Result<_, _>>()?;
    Ok(PageBlock::Plots { kind: "figures", data: figures.into_iter().flatten().collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_stay_with_their_numbers() {
        let text = "within 2 %, or 1.50 ms (95 % interval); 3 MiB. Not 2 systems or n ms";
        let joined = "within 2\u{a0}%, or 1.50\u{a0}ms (95\u{a0}% interval); 3\u{a0}MiB. Not 2 systems or n ms";
        assert_eq!(with_units(text), joined);
    }
}
