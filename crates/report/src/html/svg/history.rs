//! The price of each revision relative to the anchor, with the changes of its level.

use super::Whisker;
use super::axis::{self, Frame};
use super::canvas::{Anchor, Canvas, Size};
use super::scale::{Scale, Tick};

#[derive(Debug, Clone, PartialEq)]
pub struct Stop {
    pub name: String,
    /// `None` if the revision could not be measured.
    pub price: Option<Whisker>,
    pub hint: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Cut {
    /// Index of the first revision after the change.
    pub before: usize,
    /// True if a new run confirmed it.
    pub confirmed: bool,
}

/// Draws the revisions from left to right, each with its interval; a change of the level is a line between
/// two of them, in dashes where no fresh run confirmed it.
pub fn draw(unit: &str, stops: &[Stop], cuts: &[Cut], size: Size) -> String {
    let width = size.width();
    let ends = stops.iter().filter_map(|stop| stop.price).flat_map(|price| [price.low, price.high]);
    let scale = Scale::log(ends);
    let left = axis::margin(&scale.ticks(RATIO_TICKS));
    let right = width - 8.0;
    let frame = Frame { left, right, top: axis::ABOVE, bottom: axis::ABOVE + PLOT };
    let scale = scale.over(frame.bottom, frame.top);
    let along = Scale::exact(-0.5, stops.len() as f64 - 0.5).over(left, right);
    let mut canvas = Canvas::new(width, frame.bottom + axis::BELOW);
    axis::upright(&mut canvas, &frame, &scale, &scale.ticks(RATIO_TICKS), unit);
    let ticks: Vec<Tick> = (0_u32..)
        .zip(stops)
        .map(|(place, stop)| Tick { value: f64::from(place), label: stop.name.clone() })
        .collect();
    axis::level(&mut canvas, &frame, &along, &ticks, "revision");
    for cut in cuts {
        let x = along.at(cut.before as f64 - 0.5);
        let class = if cut.confirmed { "estimate" } else { "grid" };
        canvas.line(class, (x, frame.top), (x, frame.bottom));
        if cut.confirmed {
            let word = (x.clamp(left + HALF_WORD, right - HALF_WORD), frame.top - 4.0);
            canvas.text("flag", word, Anchor::Middle, "change");
        }
    }
    for (place, stop) in stops.iter().enumerate() {
        let x = along.at(place as f64);
        match stop.price {
            Some(price) => {
                let class = if price.interval { "whisker" } else { "whisker seen" };
                canvas.line(class, (x, scale.at(price.low)), (x, scale.at(price.high)));
                canvas.mark("", 0, (x, scale.at(price.estimate)), &stop.hint);
            }
            // At the foot of the plot, hollow, as it has no place on the axis.
            None => canvas.mark("hollow", 3, (x, frame.bottom - 6.0), &stop.hint),
        }
    }
    let measured = stops.iter().filter(|stop| stop.price.is_some()).count();
    canvas.finish(&format!("{unit}, revision by revision: {measured} of {}.", stops.len()))
}

const PLOT: f64 = 220.0;
const RATIO_TICKS: usize = 5;
/// Half of what the word at a change takes, in pixels.
const HALF_WORD: f64 = 24.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn change_is_between_revisions() {
        let price = |estimate: f64| Whisker {
            estimate,
            low: estimate / 2.0,
            high: estimate * 2.0,
            interval: true,
        };
        let stop = |name: &str, price| Stop { name: name.to_owned(), price, hint: name.to_owned() };
        let stops = [stop("a", Some(price(1.0))), stop("b", None), stop("c", Some(price(4.0)))];
        let cuts = [Cut { before: 1, confirmed: true }, Cut { before: 2, confirmed: false }];
        let svg = draw("× anchor", &stops, &cuts, Size::Wide);
        let scale = Scale::log([0.5, 2.0, 8.0]);
        let left = axis::margin(&scale.ticks(RATIO_TICKS));
        // A third of the plot's width behind its left end.
        let x = left + (712.0 - left) / 3.0;
        assert!(svg.contains(&format!(r#"<line class="estimate" x1="{x:.1}" y1="30""#)), "{svg}");
        assert_eq!(svg.matches(">change<").count(), 1);
        assert_eq!(svg.matches("mark hollow").count(), 1);
        assert_eq!(svg.matches(r#"class="whisker""#).count(), 2);
        assert!(svg.contains("2 of 3."));
    }
}
