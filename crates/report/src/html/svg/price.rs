//! Plots of prices: as bars, by block, and by revision.

use super::canvas::{Canvas, END, LETTER, MIDDLE, Point, SERIES, START, WIDTH};
use super::scale::{Scale, Tick};
use super::{BELOW, Chart, DIGIT, Extent, Frame, GAP, LINE, Panel, PanelAxis, TICKS, horizontal};
use crate::analysis::{BlockFigure, Range};
use tollgate_stats::number::significant;

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Bar {
    pub(crate) name: String,
    /// Index of its color and mark.
    pub(crate) series: usize,
    /// `None` without a ratio.
    pub(crate) price: Option<Range>,
    pub(crate) text: String,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Bars {
    pub(crate) baseline: String,
    /// All subjects, including the baseline.
    pub(crate) bars: Vec<Bar>,
    /// The noise floor (A/A).
    pub(crate) band: Option<Range>,
}

/// Below this axis length, in pixels, texts are above the bars.
const AXIS_MIN: f64 = 260.0;
const HALF_BAR: f64 = 7.0;
const HALF_CAP: f64 = 5.0;

/// Draws bars on a logarithmic axis that start at the baseline.
pub(crate) fn bars(data: &Bars) -> String {
    let width = |text: fn(&Bar) -> &str| {
        let lengths = data.bars.iter().map(|bar| text(bar).chars().count());
        lengths.max().unwrap_or(0) as f64 * LETTER
    };
    let (names, texts) = (width(|bar| &bar.name), width(|bar| &bar.text));
    let has_room = WIDTH - names - texts >= AXIS_MIN;
    // Beside the bar, or in two lines above it.
    let (left, right, row) = if has_room {
        (names + 12.0, WIDTH - texts - 12.0, 32.0)
    } else {
        (8.0, WIDTH - 8.0, 59.0)
    };
    let frame = Frame { left, right, top: 8.0, bottom: 8.0 + data.bars.len() as f64 * row };
    let ranges = data.bars.iter().filter_map(|bar| bar.price).chain(data.band);
    let ends = ranges.flat_map(|range| [range.estimate, range.low, range.high]);
    let scale = Scale::log(ends.chain([1.0])).over(frame.left + 6.0, frame.right - 6.0);
    let mut canvas = Canvas::new(WIDTH, frame.bottom + BELOW);
    if let Some(Range { low, high, .. }) = data.band {
        let corners = ((scale.at(low), frame.top), (scale.at(high), frame.bottom));
        canvas.rect("band", corners.0, corners.1, Some("A/A: the baseline a second time"));
    }
    let unit = format!("CPU per request, × {}", data.baseline);
    horizontal(&mut canvas, &frame, &scale, &scale.ticks(TICKS), Some(&unit));
    canvas.line("one", (scale.at(1.0), frame.top), (scale.at(1.0), frame.bottom));
    let mut top = frame.top;
    for bar in &data.bars {
        let (name_y, value, anchor, middle) = if has_room {
            (row / 2.0 + 4.0, (WIDTH, row / 2.0 + 4.0), END, top + row / 2.0)
        } else {
            (14.0, (0.0, 29.0), START, top + 43.0)
        };
        canvas.text("name", (0.0, top + name_y), START, &bar.name);
        canvas.text("value", (value.0, top + value.1), anchor, &bar.text);
        if let Some(price) = bar.price {
            let hint = format!("{}: {}", bar.name, bar.text);
            let [one, end] = [1.0, price.estimate].map(|value| scale.at(value));
            let class = format!("bar s{}", bar.series % SERIES);
            let corners = ((one, middle - HALF_BAR), (end, middle + HALF_BAR));
            canvas.rect(&class, corners.0, corners.1, Some(&hint));
            let [low, high] = [price.low, price.high].map(|value| scale.at(value));
            canvas.line(whisker(&price), (low, middle), (high, middle));
            for x in [low, high] {
                canvas.line("whisker", (x, middle - HALF_CAP), (x, middle + HALF_CAP));
            }
            canvas.mark("", bar.series, (end, middle), &hint);
        }
        top += row;
    }
    let bars: Vec<String> =
        data.bars.iter().map(|bar| format!("{}: {}", bar.name, bar.text)).collect();
    canvas.finish(&format!("CPU per request over {}. {}.", data.baseline, bars.join("; ")))
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Catch {
    pub(crate) name: String,
    /// Index of its color and mark.
    pub(crate) series: usize,
    pub(crate) price: Range,
    /// Share of attacks blocked, from 0 to 1.
    pub(crate) rate: f64,
    pub(crate) hint: String,
}

const CATCHES_HEIGHT: f64 = 230.0;
const CATCHES_TICKS: usize = 5;
/// Room for names on the right, as a factor.
const NAME_ROOM: f64 = 1.3;
/// Draws the share of attacks blocked against the price, with a pointer to one of the subjects.
pub(crate) fn catches(baseline: &str, catches: &[Catch], cheapest: &Catch) -> String {
    let ends = catches.iter().flat_map(|catch| [catch.price.low, NAME_ROOM * catch.price.high]);
    let along = Scale::log(ends.chain([1.0]));
    let axis = PanelAxis {
        // With room for marks at both ends.
        scale: Scale::exact(-5.0, 105.0),
        ticks: Scale::exact(0.0, 100.0).ticks(CATCHES_TICKS),
        unit: "attacks blocked, %".to_owned(),
        height: CATCHES_HEIGHT,
    };
    let unit_end = axis.unit.len() as f64 * LETTER;
    let unit = format!("CPU per request, × {baseline}");
    let Chart { mut canvas, along, panels } =
        Chart::new(&[axis], along, &along.ticks(TICKS), &unit);
    let Panel { frame, scale } = &panels[0];
    let place = |catch: &Catch| (along.at(catch.price.estimate), scale.at(100.0 * catch.rate));

    let (x, y) = place(cheapest);
    let pointer = format!("{}: cheapest that blocks most", cheapest.name);
    let half = pointer.chars().count() as f64 * LETTER / 2.0;
    let middle = x.min(WIDTH - half).max(unit_end + GAP + half);
    let top = (x.clamp(middle - half, middle + half), frame.top - 5.0);
    canvas.line("estimate", top, (x, y));
    canvas.text("value", (middle, frame.top - 10.0), MIDDLE, &pointer);
    // Names keep clear of that line, too.
    let steps = 1 + ((y - top.1) / MARK_HALF) as usize;
    let step = |step: usize| step as f64 / steps as f64;
    let line =
        (0..=steps).map(step).map(|step| (top.0 + (x - top.0) * step, top.1 + (y - top.1) * step));
    for catch in catches {
        let ((_, y), price) = (place(catch), catch.price);
        canvas.line(whisker(&price), (along.at(price.low), y), (along.at(price.high), y));
    }
    let marks: Vec<Point> = catches.iter().map(place).collect();
    let taken: Vec<Point> = marks.iter().copied().chain(line).collect();
    let others = catches.iter().zip(&marks).filter(|(catch, _)| *catch != cheapest);
    let labels = names_at(frame, &taken, others.map(|(catch, mark)| (catch.name.as_str(), *mark)));
    let mut labels = labels.into_iter();
    for (catch, mark) in catches.iter().zip(&marks) {
        let class = if catch == cheapest { "best" } else { "" };
        let label = if catch == cheapest { None } else { labels.next().flatten() };
        if let Some(Label { at, anchor, .. }) = label {
            if (at.1 - mark.1).abs() > LABEL_BELOW {
                canvas.line("axis", *mark, (at.0, at.1 - LINE / 3.0));
            }
            canvas.text(&format!("label s{}", catch.series % SERIES), at, anchor, &catch.name);
        }
        canvas.mark(class, catch.series, *mark, &catch.hint);
    }
    let hints: Vec<&str> = catches.iter().map(|catch| catch.hint.as_str()).collect();
    canvas.finish(&format!("Attacks blocked, and CPU per request. {}.", hints.join("; ")))
}

/// The place of a name beside its mark.
struct Label {
    at: Point,
    anchor: &'static str,
    along: Extent,
    across: Extent,
}

impl Label {
    fn is_clear_of(&self, along: &Extent, across: &Extent) -> bool {
        self.along.is_clear_of(along) || self.across.is_clear_of(across)
    }
}

/// Baselines of a name above and below its mark, in pixels from the mark.
const LABEL_ABOVE: f64 = 8.0;
const LABEL_BELOW: f64 = 18.0;
const MARK_HALF: f64 = 5.0;

/// Places names at their marks, clear of each other and of the points in `taken`, in the first free row. A name without
/// such a place is left out: its mark has a tooltip.
fn names_at<'a>(
    frame: &Frame,
    taken: &[Point],
    names: impl Iterator<Item = (&'a str, Point)>,
) -> Vec<Option<Label>> {
    let mut placed: Vec<Option<Label>> = Vec::new();
    for (name, (x, y)) in names {
        let length = name.chars().count() as f64 * DIGIT;
        let rows = (0..).map(|row| f64::from(row) * (LINE + GAP));
        let rows = rows.take_while(|row| *row < frame.bottom - frame.top);
        let baselines = rows.flat_map(|row| [y - LABEL_ABOVE - row, y + LABEL_BELOW + row]);
        let candidates = baselines.flat_map(|baseline| {
            let across = Extent { from: baseline - LINE + GAP, to: baseline };
            let right = Extent { from: x + MARK_HALF, to: x + MARK_HALF + length };
            let left = Extent { from: x - MARK_HALF - length, to: x - MARK_HALF };
            [(right, right.from, START), (left, left.to, END)].map(|(along, x, anchor)| Label {
                at: (x, baseline),
                anchor,
                along,
                across,
            })
        });
        let is_free = |label: &Label| {
            let is_inside = label.along.from >= frame.left
                && label.along.to <= WIDTH
                && label.across.from >= frame.top
                && label.across.to <= frame.bottom;
            let is_clear_of_point = |(x, y): &Point| {
                let [along, across] = [*x, *y].map(|at| Extent::around(at, 2.0 * MARK_HALF));
                label.is_clear_of(&along, &across)
            };
            let mut others = placed.iter().flatten();
            is_inside
                && others.all(|other| label.is_clear_of(&other.along, &other.across))
                && taken.iter().all(is_clear_of_point)
        };
        let label = { candidates }.find(is_free);
        placed.push(label);
    }
    placed
}

/// The class of a whisker: dashed for a range that is no interval.
fn whisker(range: &Range) -> &'static str {
    if range.interval { "whisker" } else { "whisker observed" }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Dots<'a> {
    pub(crate) name: &'a str,
    /// Index of its color and mark.
    pub(crate) series: usize,
    pub(crate) blocks: &'a [BlockFigure],
    pub(crate) price: Option<Range>,
}

impl Dots<'_> {
    fn ratios(&self) -> impl Iterator<Item = (&BlockFigure, f64)> {
        self.blocks.iter().filter_map(|figure| Some((figure, figure.ratio?)))
    }
}

const DOTS_HEIGHT: f64 = 84.0;
const DOTS_TICKS: usize = 3;

/// Draws one panel per subject, each with its own axis: a subject that costs a hundred times as
/// much would hide the drift of the others.
pub(crate) fn dots(baseline: &str, subjects: &[Dots<'_>]) -> String {
    let ratios = subjects.iter().flat_map(Dots::ratios);
    let last = ratios.map(|(figure, _)| figure.block).fold(1, u32::max);
    let axes: Vec<PanelAxis> = subjects
        .iter()
        .map(|subject| PanelAxis {
            scale: dots_scale(subject),
            ticks: dots_scale(subject).ticks(DOTS_TICKS),
            unit: format!("{} × {baseline}", subject.name),
            height: DOTS_HEIGHT,
        })
        .collect();
    let along = Scale::exact(0.5, f64::from(last) + 0.5);
    // Not more ticks than blocks, so that all are whole numbers.
    let ticks = along.ticks(TICKS.min(last as usize));
    let Chart { mut canvas, along, panels } = Chart::new(&axes, along, &ticks, "block");
    for (subject, Panel { frame, scale }) in subjects.iter().zip(&panels) {
        if let Some(price) = subject.price.filter(|price| price.interval) {
            let corners = ((frame.left, scale.at(price.low)), (frame.right, scale.at(price.high)));
            canvas.rect("band", corners.0, corners.1, Some("95 % interval of the price"));
        }
        if let Some(price) = subject.price {
            let y = scale.at(price.estimate);
            canvas.line("estimate", (frame.left, y), (frame.right, y));
        }
        let mut words: Vec<Point> = Vec::new();
        for (BlockFigure { block, outlier, .. }, ratio) in subject.ratios() {
            let at = (along.at(f64::from(*block)), scale.at(ratio));
            let suffix = if *outlier { ", an outlier" } else { "" };
            let hint = format!("{}, block {block}: × {}{suffix}", subject.name, significant(ratio));
            canvas.mark("", subject.series, at, &hint);
            if let Some(place) = outlier_word(frame, at, &words).filter(|_| *outlier) {
                canvas.text("flag", place, MIDDLE, "outlier");
                words.push(place);
            }
        }
    }
    let counts: Vec<String> = subjects
        .iter()
        .map(|subject| format!("{}, {} blocks", subject.name, subject.ratios().count()))
        .collect();
    let label = format!("CPU per request over {baseline}, block by block: {}.", counts.join("; "));
    canvas.finish(&label)
}

fn dots_scale(subject: &Dots<'_>) -> Scale {
    let ends = subject.price.map(|price| [price.low, price.high]).into_iter().flatten();
    Scale::log(subject.ratios().map(|(_, ratio)| ratio).chain(ends))
}

/// The position of the word at an outlier: above or below its mark, within the panel, and clear of the words in
/// `taken`. `None` if there is none; the table marks outliers too.
fn outlier_word(frame: &Frame, (x, y): Point, taken: &[Point]) -> Option<Point> {
    let x = x.clamp(frame.left + HALF_WORD, (frame.right - HALF_WORD).max(frame.left + HALF_WORD));
    let is_free = |place: &Point| {
        let is_inside = place.1 - WORD_HEIGHT >= frame.top && place.1 <= frame.bottom - 2.0;
        let is_clear = |other: &Point| {
            (other.0 - place.0).abs() >= 2.0 * HALF_WORD || (other.1 - place.1).abs() >= WORD_HEIGHT
        };
        is_inside && taken.iter().all(is_clear)
    };
    [-8.0, 16.0, -20.0, 28.0].map(|offset| (x, y + offset)).into_iter().find(is_free)
}

/// Half the width, in pixels, of the words "outlier" and "change".
const HALF_WORD: f64 = 21.0;
const WORD_HEIGHT: f64 = 12.0;

/// A revision with its price relative to the anchor.
#[derive(Debug, Clone, PartialEq)]
pub struct Revision {
    pub name: String,
    /// `None` if the revision could not be measured.
    pub price: Option<Range>,
    pub hint: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct LevelChange {
    /// Index of the first revision after the change.
    pub before: usize,
    pub confirmed: bool,
}

const HISTORY_HEIGHT: f64 = 220.0;
const HISTORY_TICKS: usize = 5;

/// Draws the price of each revision with its interval, and a line at each change.
pub fn history(unit: &str, revisions: &[Revision], changes: &[LevelChange]) -> String {
    let prices = revisions.iter().filter_map(|revision| revision.price);
    let scale = Scale::log(prices.flat_map(|price| [price.low, price.high]));
    let unit = unit.to_owned();
    let axis = PanelAxis { scale, ticks: scale.ticks(HISTORY_TICKS), unit, height: HISTORY_HEIGHT };
    let along = Scale::exact(-0.5, revisions.len() as f64 - 0.5);
    let tick = |(place, revision): (u32, &Revision)| Tick {
        value: f64::from(place),
        label: revision.name.clone(),
    };
    let ticks: Vec<Tick> = (0..).zip(revisions).map(tick).collect();
    let axes = [axis];
    let Chart { mut canvas, along, panels } = Chart::new(&axes, along, &ticks, "revision");
    let Panel { frame, scale } = &panels[0];
    for change in changes {
        let x = along.at(change.before as f64 - 0.5);
        let class = if change.confirmed { "estimate" } else { "grid" };
        canvas.line(class, (x, frame.top), (x, frame.bottom));
        if change.confirmed {
            let x = x.clamp(frame.left + HALF_WORD, frame.right - HALF_WORD);
            canvas.text("flag", (x, frame.top - 4.0), MIDDLE, "change");
        }
    }
    for (place, revision) in revisions.iter().enumerate() {
        let x = along.at(place as f64);
        match revision.price {
            Some(price) => {
                let ends = ((x, scale.at(price.low)), (x, scale.at(price.high)));
                canvas.line(whisker(&price), ends.0, ends.1);
                canvas.mark("", 0, (x, scale.at(price.estimate)), &revision.hint);
            }
            // At the bottom, because it has no position on the axis.
            None => canvas.mark("hollow", 3, (x, frame.bottom - 6.0), &revision.hint),
        }
    }
    let measured = revisions.iter().filter(|revision| revision.price.is_some()).count();
    let unit = &axes[0].unit;
    canvas.finish(&format!("{unit}, revision by revision: {measured} of {}.", revisions.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(estimate: f64, low: f64, high: f64) -> Range {
        Range { estimate, low, high, interval: true }
    }

    fn three_bars() -> Bars {
        let bar = |name: &str, series, price, text: &str| Bar {
            name: name.to_owned(),
            series,
            price,
            text: text.to_owned(),
        };
        Bars {
            baseline: "nginx".to_owned(),
            bars: vec![
                bar("nginx", 0, Some(range(1.0, 1.0, 1.0)), "1"),
                bar("full", 1, Some(range(100.0, 50.0, 200.0)), "100 [50.0, 200]"),
                bar("direct", 2, None, "no ratio"),
            ],
            band: Some(range(1.0, 0.99, 1.01)),
        }
    }

    #[test]
    fn bars_snapshot() {
        insta::assert_snapshot!(bars(&three_bars()));
    }

    #[test]
    fn long_names_are_above_their_bars() {
        let mut data = three_bars();
        data.bars[1].name = "a-name-of-more-than-fifty-letters-leaves-no-room-beside".to_owned();
        // The second bar starts 8 + 59 px down; its lines of text are 14 and 29 px below that.
        for text in [r#"class="name" x="0" y="81""#, r#"class="value" x="0" y="96""#] {
            let svg = bars(&data);
            assert!(svg.contains(text), "no {text} in:\n{svg}");
        }
    }

    #[test]
    fn a_bar_starts_at_one_and_ends_at_its_price() {
        let svg = bars(&three_bars());
        // "direct" takes 6 letters, and "100 [50.0, 200]" 15. The axis goes from 0.99 / r to 200 * r, where
        // r = (200 / 0.99) ^ 0.06.
        let (left, right) = (6.0 * 6.8 + 18.0, 720.0 - 15.0 * 6.8 - 18.0);
        let room = (200.0_f64 / 0.99).powf(0.06);
        let length = ((200.0 * room) / (0.99 / room)).ln();
        let x = |value: f64| left + (right - left) * (value / (0.99 / room)).ln() / length;
        let bar = format!(
            r#"<rect class="bar s1" x="{:.1}" y="49" width="{:.1}" height="14">"#,
            x(1.0),
            x(100.0) - x(1.0)
        );
        assert!(svg.contains(&bar), "no {bar} in:\n{svg}");
    }

    const fn block(block: u32, ratio: f64, outlier: bool) -> BlockFigure {
        BlockFigure {
            block,
            cpu_us_per_request: None,
            throughput_per_s: 1.0,
            latency_p50_ms: None,
            latency_p99_ms: None,
            ratio: Some(ratio),
            outlier,
        }
    }

    const BLOCKS: [BlockFigure; 3] =
        [block(1, 1.0, false), block(2, 2.0, false), block(3, 4.0, true)];

    fn three_dots() -> [Dots<'static>; 1] {
        [Dots { name: "full", series: 1, blocks: &BLOCKS, price: Some(range(2.0, 1.0, 4.0)) }]
    }

    fn catch(name: &str, series: usize, estimate: f64, rate: f64) -> Catch {
        let price = range(estimate, estimate * 0.9, estimate * 1.1);
        Catch { name: name.to_owned(), series, price, rate, hint: name.to_owned() }
    }

    #[test]
    fn catches_snapshot() {
        let catches = [catch("nginx", 0, 1.0, 0.0), catch("full", 1, 100.0, 0.9)];
        insta::assert_snapshot!(super::catches("nginx", &catches, &catches[1]));
    }

    #[test]
    fn names_of_near_marks_are_clear_of_each_other() {
        let frame = Frame { left: 40.0, right: 704.0, top: 30.0, bottom: 260.0 };
        let marks = [(500.0, 80.0), (505.0, 80.0), (510.0, 82.0), (700.0, 80.0), (500.0, 80.0)];
        let names = ["modsecurity-nginx", "coraza", "modsecurity-apache", "crowdsec", "naxsi"];
        let labels = names_at(&frame, &marks, names.into_iter().zip(marks));
        let labels: Vec<Label> = labels.into_iter().map(|label| label.expect("a place")).collect();
        for (index, label) in labels.iter().enumerate() {
            let mut others = labels[index + 1..].iter();
            assert!(others.all(|other| label.is_clear_of(&other.along, &other.across)), "{index}");
            assert!(label.along.to <= WIDTH && label.across.from >= frame.top, "{index}");
        }
        // At the right edge, the name is on the left.
        assert_eq!((labels[0].anchor, labels[3].anchor), (START, END));
        let full = vec![(500.0, 80.0); 60];
        let many = names_at(&frame, &full, ["a-name"; 60].into_iter().zip(full.clone()));
        assert!(many.last().unwrap().is_none());
    }

    #[test]
    fn dots_snapshot() {
        insta::assert_snapshot!(dots("nginx", &three_dots()));
    }

    #[test]
    fn outlier_label_stays_in_the_panel() {
        let frame = Frame { left: 40.0, right: 340.0, top: 30.0, bottom: 114.0 };
        assert_eq!(outlier_word(&frame, (100.0, 80.0), &[]), Some((100.0, 72.0)));
        // Too near to the top, to an edge, and to another word above and below.
        assert_eq!(outlier_word(&frame, (100.0, 40.0), &[]), Some((100.0, 56.0)));
        assert_eq!(outlier_word(&frame, (42.0, 80.0), &[]), Some((61.0, 72.0)));
        assert_eq!(outlier_word(&frame, (110.0, 80.0), &[(100.0, 72.0)]), Some((110.0, 96.0)));
        let both = [(100.0, 72.0), (100.0, 96.0)];
        assert_eq!(outlier_word(&frame, (110.0, 80.0), &both), Some((110.0, 60.0)));
        let low = Frame { bottom: 60.0, ..frame };
        assert_eq!(outlier_word(&low, (100.0, 45.0), &[(100.0, 57.0), (100.0, 45.0)]), None);
    }

    #[test]
    fn the_second_of_three_blocks_is_in_the_middle() {
        let svg = dots("nginx", &three_dots());
        // The longest label is "4.0" or "4". 2 is the geometric middle of 1 and 4: 30 + 42 px down.
        let letters = dots_scale(&three_dots()[0]).ticks(DOTS_TICKS)[0].label.len();
        let left = 10.0 + letters as f64 * 6.8;
        let line = format!(r#"<line class="estimate" x1="{left}" y1="72" x2="704" y2="72"/>"#);
        assert!(svg.contains(&line), "no {line} in:\n{svg}");
        // Series 1 is a square, whose corner is 3.5 px off.
        let square = format!(r#"d="M{:.1} 68.5"#, f64::midpoint(left, 704.0) - 3.5);
        assert!(svg.contains(&square), "no {square} in:\n{svg}");
        assert_eq!(svg.matches(">outlier<").count(), 1);
    }

    #[test]
    fn change_is_between_revisions() {
        let revision = |name: &str, estimate: Option<f64>| Revision {
            name: name.to_owned(),
            price: estimate.map(|estimate| range(estimate, estimate / 2.0, estimate * 2.0)),
            hint: name.to_owned(),
        };
        let revisions = [revision("a", Some(1.0)), revision("b", None), revision("c", Some(4.0))];
        let changes = [
            LevelChange { before: 1, confirmed: true },
            LevelChange { before: 2, confirmed: false },
        ];
        let svg = history("× anchor", &revisions, &changes);
        let ticks = Scale::log([0.5, 2.0, 8.0]).ticks(HISTORY_TICKS);
        let letters = ticks.iter().map(|tick| tick.label.len()).max().unwrap();
        let left = 10.0 + letters as f64 * 6.8;
        // At a third of the plot's width.
        let x = left + (704.0 - left) / 3.0;
        assert!(svg.contains(&format!(r#"<line class="estimate" x1="{x:.1}" y1="30""#)), "{svg}");
        assert_eq!(svg.matches(">change<").count(), 1);
        assert_eq!(svg.matches("mark hollow").count(), 1);
        assert_eq!(svg.matches(r#"class="whisker""#).count(), 2);
        assert!(svg.contains("2 of 3."));
    }
}
