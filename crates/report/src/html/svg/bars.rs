//! Prices as bars that start at the baseline, with intervals.

use super::Whisker;
use super::axis::{self, Frame};
use super::canvas::{Anchor, Canvas, LETTER, Size};
use super::scale::Scale;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Bar {
    pub(crate) name: String,
    /// Index of its color and mark.
    pub(crate) series: usize,
    /// `None` without a ratio.
    pub(crate) price: Option<Whisker>,
    pub(crate) text: String,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Bars {
    pub(crate) baseline: String,
    /// All subjects, including the baseline.
    pub(crate) bars: Vec<Bar>,
    /// The noise floor (A/A).
    pub(crate) band: Option<(f64, f64)>,
}

/// Draws the bars on a logarithmic axis.
pub(crate) fn draw(data: &Bars, size: Size) -> String {
    let width = size.width();
    let names = longest(data.bars.iter().map(|bar| bar.name.as_str()));
    let texts = longest(data.bars.iter().map(|bar| bar.text.as_str()));
    let place = Place::of(width, names, texts, size);
    let (left, right) = match place {
        Place::Beside => (names + 12.0, width - texts - 12.0),
        Place::Above | Place::Stacked => (8.0, width - 8.0),
    };
    let row = place.row();
    let frame = Frame { left, right, top: 8.0, bottom: 8.0 + data.bars.len() as f64 * row };
    let prices = data.bars.iter().filter_map(|bar| bar.price);
    let ends = prices.flat_map(|price| [price.estimate, price.low, price.high]);
    let band = data.band.map_or([1.0, 1.0], |(low, high)| [low, high]);
    let scale = Scale::log(ends.chain([1.0]).chain(band)).over(frame.left + 6.0, frame.right - 6.0);

    let mut canvas = Canvas::new(width, frame.bottom + axis::BELOW);
    if let Some((low, high)) = data.band {
        let hint = "A/A: the baseline a second time";
        let corners = ((scale.at(low), frame.top), (scale.at(high), frame.bottom));
        canvas.rect("band", corners.0, corners.1, Some(hint));
    }
    let unit = format!("CPU per request, × {}", data.baseline);
    axis::level(&mut canvas, &frame, &scale, &scale.ticks(size.ticks()), &unit);
    canvas.line("one", (scale.at(1.0), frame.top), (scale.at(1.0), frame.bottom));
    let mut top = frame.top;
    for bar in &data.bars {
        let (name_y, text_at, text_anchor, middle) = match place {
            Place::Beside => (row / 2.0 + 4.0, (width, row / 2.0 + 4.0), Anchor::End, row / 2.0),
            Place::Above => (14.0, (width, 14.0), Anchor::End, 28.0),
            Place::Stacked => (14.0, (0.0, 29.0), Anchor::Start, 43.0),
        };
        canvas.text("name", (0.0, top + name_y), Anchor::Start, &bar.name);
        canvas.text("value", (text_at.0, top + text_at.1), text_anchor, &bar.text);
        if let Some(price) = bar.price {
            whisker(&mut canvas, &scale, bar, &price, top + middle);
        }
        top += row;
    }
    canvas.finish(&label(data))
}

/// The position of the texts of a bar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Beside,
    Above,
    /// Above it, on two lines.
    Stacked,
}

impl Place {
    fn of(width: f64, names: f64, texts: f64, size: Size) -> Self {
        if size == Size::Wide && width - names - texts >= SHORTEST_AXIS {
            Self::Beside
        } else if names + texts + 2.0 * LETTER <= width {
            Self::Above
        } else {
            Self::Stacked
        }
    }

    fn row(self) -> f64 {
        match self {
            Self::Beside => 32.0,
            Self::Above => 44.0,
            Self::Stacked => 59.0,
        }
    }
}

/// Below this axis length, in pixels, texts are above the bars.
const SHORTEST_AXIS: f64 = 260.0;
const HALF_BAR: f64 = 7.0;
const HALF_CAP: f64 = 5.0;

fn whisker(canvas: &mut Canvas, scale: &Scale, bar: &Bar, price: &Whisker, y: f64) {
    let hint = format!("{}: {}", bar.name, bar.text);
    let [one, end, low, high] = [1.0, price.estimate, price.low, price.high].map(|v| scale.at(v));
    let class = format!("bar s{}", bar.series % super::canvas::SERIES);
    canvas.rect(&class, (one, y - HALF_BAR), (end, y + HALF_BAR), Some(&hint));
    let line = if price.interval { "whisker" } else { "whisker seen" };
    canvas.line(line, (low, y), (high, y));
    for x in [low, high] {
        canvas.line("whisker", (x, y - HALF_CAP), (x, y + HALF_CAP));
    }
    canvas.mark("", bar.series, (end, y), &hint);
}

fn longest<'a>(texts: impl Iterator<Item = &'a str>) -> f64 {
    let letters = texts.map(|text| text.chars().count()).max().unwrap_or(0);
    letters as f64 * LETTER
}

fn label(data: &Bars) -> String {
    let bars: Vec<String> =
        data.bars.iter().map(|bar| format!("{}: {}", bar.name, bar.text)).collect();
    format!("CPU per request over {}. {}.", data.baseline, bars.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bars() -> Bars {
        let bar = |name: &str, series, price: Option<(f64, f64, f64)>, text: &str| Bar {
            name: name.to_owned(),
            series,
            price: price.map(|(estimate, low, high)| Whisker {
                estimate,
                low,
                high,
                interval: true,
            }),
            text: text.to_owned(),
        };
        Bars {
            baseline: "nginx".to_owned(),
            bars: vec![
                bar("nginx", 0, Some((1.0, 1.0, 1.0)), "1"),
                bar("full", 1, Some((100.0, 50.0, 200.0)), "100 [50.0, 200]"),
                bar("direct", 2, None, "no ratio"),
            ],
            band: Some((0.99, 1.01)),
        }
    }

    #[test]
    fn wide() {
        insta::assert_snapshot!(draw(&bars(), Size::Wide));
    }

    #[test]
    fn narrow() {
        insta::assert_snapshot!(draw(&bars(), Size::Narrow));
    }

    #[test]
    fn labels_do_not_overlap() {
        // 720 px less 260 are 460; 340 less two letters are 326.4.
        assert_eq!(Place::of(720.0, 300.0, 160.0, Size::Wide), Place::Beside);
        assert_eq!(Place::of(720.0, 301.0, 160.0, Size::Wide), Place::Above);
        assert_eq!(Place::of(340.0, 200.0, 126.0, Size::Narrow), Place::Above);
        assert_eq!(Place::of(340.0, 200.0, 127.0, Size::Narrow), Place::Stacked);
        let mut data = bars();
        data.bars[1].name = "a-name-that-leaves-no-room-for-the-figures".to_owned();
        let svg = draw(&data, Size::Narrow);
        assert!(
            svg.contains(r#"<text class="value" x="0" y="96" text-anchor="start">100 "#),
            "{svg}"
        );
    }

    #[test]
    fn a_bar_begins_at_one_and_ends_at_its_price() {
        let svg = draw(&bars(), Size::Narrow);
        // The axis goes from 14 to 326 px, from 0.99 / r to 200 * r where r = (200 / 0.99) ^ 0.06.
        let room = (200.0_f64 / 0.99).powf(0.06);
        let length = ((200.0 * room) / (0.99 / room)).ln();
        let x = |value: f64| 14.0 + 312.0 * (value / (0.99 / room)).ln() / length;
        let bar = format!(
            r#"<rect class="bar s1" x="{:.1}" y="73" width="{:.1}" height="14">"#,
            x(1.0),
            x(100.0) - x(1.0)
        );
        assert!(svg.contains(&bar), "no {bar} in:\n{svg}");
    }
}
