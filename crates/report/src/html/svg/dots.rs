//! The ratio of subject and baseline in each block, one panel per subject; shows drift.

use super::Whisker;
use super::axis::{self, Frame};
use super::canvas::{Anchor, Canvas, Point, Size};
use super::scale::Scale;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Dot {
    pub(crate) block: u32,
    pub(crate) ratio: f64,
    pub(crate) outlier: bool,
    pub(crate) hint: String,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Panel {
    pub(crate) name: String,
    /// Index of its color and mark.
    pub(crate) series: usize,
    pub(crate) dots: Vec<Dot>,
    pub(crate) price: Option<Whisker>,
}

/// Draws one panel per subject, each with its own axis: a subject that costs a hundred times as
/// much would hide the drift of the others.
pub(crate) fn draw(baseline: &str, panels: &[Panel], size: Size) -> String {
    let width = size.width();
    let last = panels.iter().flat_map(|panel| &panel.dots).map(|dot| dot.block).fold(1, u32::max);
    let scales: Vec<Scale> = panels.iter().map(ratios).collect();
    let margins = scales.iter().map(|scale| axis::margin(&scale.ticks(RATIO_TICKS)));
    let left = margins.fold(0.0, f64::max);
    let right = width - 8.0;
    let blocks = Scale::exact(0.5, f64::from(last) + 0.5).over(left, right);
    // No more ticks than blocks, so that all of them are whole.
    let blocks_ticks = blocks.ticks(size.ticks().min(last as usize));
    let height = panels.len() as f64 * (axis::ABOVE + PANEL);
    let mut canvas = Canvas::new(width, height + axis::BELOW);
    let mut top = axis::ABOVE;
    for (index, (panel, scale)) in panels.iter().zip(scales).enumerate() {
        let frame = Frame { left, right, top, bottom: top + PANEL };
        let scale = scale.over(frame.bottom, frame.top);
        if let Some(price) = panel.price.filter(|price| price.interval) {
            let corners = ((left, scale.at(price.low)), (right, scale.at(price.high)));
            canvas.rect("band", corners.0, corners.1, Some("95 % interval of the price"));
        }
        let unit = format!("{} × {baseline}", panel.name);
        axis::upright(&mut canvas, &frame, &scale, &scale.ticks(RATIO_TICKS), &unit);
        match index + 1 == panels.len() {
            true => axis::level(&mut canvas, &frame, &blocks, &blocks_ticks, "block"),
            false => axis::grid(&mut canvas, &frame, &blocks, &blocks_ticks),
        }
        if let Some(price) = panel.price {
            let y = scale.at(price.estimate);
            canvas.line("estimate", (left, y), (right, y));
        }
        let mut flags: Vec<Point> = Vec::new();
        for dot in &panel.dots {
            let at = (blocks.at(f64::from(dot.block)), scale.at(dot.ratio));
            canvas.mark("", panel.series, at, &dot.hint);
            if let Some(place) = flag_place(&frame, at, &flags).filter(|_| dot.outlier) {
                canvas.text("flag", place, Anchor::Middle, "outlier");
                flags.push(place);
            }
        }
        top = frame.bottom + axis::ABOVE;
    }
    canvas.finish(&label(baseline, panels))
}

const PANEL: f64 = 84.0;
const RATIO_TICKS: usize = 3;

/// Where the word at an outlier stands: above or below its mark, in the panel, and off the words that
/// are there already; none where there is no such place. The table says it too.
fn flag_place(frame: &Frame, (x, y): Point, taken: &[Point]) -> Option<Point> {
    let x = x.clamp(frame.left + HALF_FLAG, (frame.right - HALF_FLAG).max(frame.left + HALF_FLAG));
    let is_free = |place: &Point| {
        let is_inside = place.1 - FLAG_HEIGHT >= frame.top && place.1 <= frame.bottom - 2.0;
        let is_clear = |other: &Point| {
            (other.0 - place.0).abs() >= 2.0 * HALF_FLAG || (other.1 - place.1).abs() >= FLAG_HEIGHT
        };
        is_inside && taken.iter().all(is_clear)
    };
    [-8.0, 16.0, -20.0, 28.0].map(|offset| (x, y + offset)).into_iter().find(is_free)
}

/// Half the width of the word, and its height, in pixels.
const HALF_FLAG: f64 = 21.0;
const FLAG_HEIGHT: f64 = 12.0;

fn ratios(panel: &Panel) -> Scale {
    let ends = panel.price.map(|price| [price.low, price.high]).into_iter().flatten();
    Scale::log(panel.dots.iter().map(|dot| dot.ratio).chain(ends))
}

fn label(baseline: &str, panels: &[Panel]) -> String {
    let blocks = panels.iter().map(|panel| format!("{}, {} blocks", panel.name, panel.dots.len()));
    let blocks: Vec<String> = blocks.collect();
    format!("CPU per request over {baseline}, block by block: {}.", blocks.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn panels() -> Vec<Panel> {
        let dot = |block, ratio, outlier| Dot {
            block,
            ratio,
            outlier,
            hint: format!("block {block}: {ratio}"),
        };
        let price = Whisker { estimate: 2.0, low: 1.0, high: 4.0, interval: true };
        let full = vec![dot(1, 1.0, false), dot(2, 2.0, false), dot(3, 4.0, true)];
        vec![Panel { name: "full".to_owned(), series: 1, dots: full, price: Some(price) }]
    }

    #[test]
    fn wide() {
        insta::assert_snapshot!(draw("nginx", &panels(), Size::Wide));
    }

    #[test]
    fn outlier_label_stays_in_the_panel() {
        let frame = Frame { left: 40.0, right: 340.0, top: 30.0, bottom: 114.0 };
        assert_eq!(flag_place(&frame, (100.0, 80.0), &[]), Some((100.0, 72.0)));
        // Too near to the top, to an edge, and to another word above and below.
        assert_eq!(flag_place(&frame, (100.0, 40.0), &[]), Some((100.0, 56.0)));
        assert_eq!(flag_place(&frame, (42.0, 80.0), &[]), Some((61.0, 72.0)));
        assert_eq!(flag_place(&frame, (110.0, 80.0), &[(100.0, 72.0)]), Some((110.0, 96.0)));
        let both = [(100.0, 72.0), (100.0, 96.0)];
        assert_eq!(flag_place(&frame, (110.0, 80.0), &both), Some((110.0, 60.0)));
        let low = Frame { bottom: 60.0, ..frame };
        assert_eq!(flag_place(&low, (100.0, 45.0), &[(100.0, 57.0), (100.0, 45.0)]), None);
    }

    #[test]
    fn the_middle_of_three_blocks_is_in_the_middle() {
        let svg = draw("nginx", &panels(), Size::Narrow);
        // Ticks are "1", "2", "3" and "4", or with one decimal: the plot begins at 10 px and a letter
        // or three, and ends at 332 px. 2 is in the geometric middle of 1 and 4: 30 + 42 px down.
        let ticks = ratios(&panels()[0]).ticks(RATIO_TICKS);
        let left = axis::margin(&ticks);
        let x = f64::midpoint(left, 332.0);
        let line = format!(r#"<line class="estimate" x1="{left}" y1="72" x2="332" y2="72"/>"#);
        assert!(svg.contains(&line), "no {line} in:\n{svg}");
        // A diamond would begin at its top; series 1 is a square, whose corner is 3.5 px off.
        let square = format!(r#"d="M{:.1} 68.5"#, x - 3.5);
        assert!(svg.contains(&square), "no {square} in:\n{svg}");
        assert_eq!(svg.matches(">outlier<").count(), 1);
    }
}
