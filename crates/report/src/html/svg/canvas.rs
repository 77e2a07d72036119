//! A drawing as SVG text. The style sheet has colors and fonts, so that a page may be light or dark.

use std::fmt::Write as _;

/// x and y in pixels.
pub(super) type Point = (f64, f64);

/// Alignments of a text.
pub(super) const START: &str = "start";
pub(super) const MIDDLE: &str = "middle";
pub(super) const END: &str = "end";

#[derive(Debug)]
pub(super) struct Canvas {
    width: f64,
    height: f64,
    body: String,
}

/// Width of a drawing, in pixels.
pub(super) const WIDTH: f64 = 720.0;

/// Approximate width of a letter, in pixels. Texts are placed without measuring them.
pub(super) const LETTER: f64 = 6.8;

/// Number of distinct colors and marks.
pub(super) const SERIES: usize = 8;

impl Canvas {
    pub(super) fn new(width: f64, height: f64) -> Self {
        Self { width, height, body: String::new() }
    }

    pub(super) fn width(&self) -> f64 {
        self.width
    }

    pub(super) fn line(&mut self, class: &str, from: Point, to: Point) {
        let [x1, y1, x2, y2] = [from.0, from.1, to.0, to.1].map(px);
        self.add(format_args!(
            r#"<line class="{class}" x1="{x1}" y1="{y1}" x2="{x2}" y2="{y2}"/>"#
        ));
    }

    /// A rectangle between two corners, with a tooltip.
    pub(super) fn rect(&mut self, class: &str, a: Point, b: Point, hint: Option<&str>) {
        let [x, y] = [a.0.min(b.0), a.1.min(b.1)].map(px);
        let [width, height] = [(a.0 - b.0).abs(), (a.1 - b.1).abs()].map(px);
        let hint = hint.map_or(String::new(), |hint| format!("<title>{}</title>", escape(hint)));
        self.add(format_args!(
            r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}">{hint}</rect>"#
        ));
    }

    pub(super) fn text(&mut self, class: &str, at: Point, anchor: &str, text: &str) {
        let [x, y] = [at.0, at.1].map(px);
        self.add(format_args!(
            r#"<text class="{class}" x="{x}" y="{y}" text-anchor="{anchor}">{}</text>"#,
            escape(text)
        ));
    }

    /// A line with the color and dashes of a series.
    pub(super) fn curve(&mut self, class: &str, series: usize, points: &[Point]) {
        if points.is_empty() {
            return;
        }
        let series = series % SERIES;
        self.add(format_args!(r#"<path class="{class} s{series}" d="{}"/>"#, path(points)));
    }

    /// The mark of a series, with a tooltip.
    pub(super) fn mark(&mut self, class: &str, series: usize, at: Point, hint: &str) {
        self.add(format_args!(
            r#"<path class="mark {class} s{series}" d="{}"><title>{}</title></path>"#,
            mark_path(series, at),
            escape(hint),
            series = series % SERIES,
        ));
    }

    /// Returns the drawing with its text alternative.
    pub(super) fn finish(self, label: &str) -> String {
        let [width, height] = [self.width, self.height].map(px);
        format!(
            "<svg viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" role=\"img\" \
             aria-label=\"{}\">\n{}</svg>\n",
            escape(label),
            self.body
        )
    }

    fn add(&mut self, element: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        writeln!(self.body, "{element}").ok();
    }
}

/// A standalone mark for a legend.
pub(crate) fn key(series: usize) -> String {
    let mut canvas = Canvas::new(28.0, 14.0);
    canvas.curve("curve", series, &[(1.0, 7.0), (27.0, 7.0)]);
    canvas.add(format_args!(
        r#"<path class="mark s{series}" d="{}"/>"#,
        mark_path(series, (14.0, 7.0)),
        series = series % SERIES,
    ));
    // The text beside it names the series.
    let svg = canvas.finish("");
    svg.replace(r#"role="img" aria-label="""#, r#"aria-hidden="true""#)
}

/// Escapes a text for markup, which must not contain control characters.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            _ if character.is_control() => escaped.push(' '),
            _ => escaped.push(character),
        }
    }
    escaped
}

fn px(length: f64) -> String {
    let text = format!("{length:.1}");
    let text = text.strip_suffix(".0").unwrap_or(&text);
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

fn path(points: &[Point]) -> String {
    let mut path = String::new();
    for (index, (x, y)) in points.iter().enumerate() {
        let step = if index == 0 { 'M' } else { 'L' };
        path.push(step);
        path += &format!("{} {}", px(*x), px(*y));
    }
    path
}

/// The outlines of marks, which can be distinguished without color: their first point relative to the place of the
/// mark, and the path from there.
const MARKS: [(f64, f64, &str); SERIES] = [
    (-3.8, 0.0, "a3.8 3.8 0 1 0 7.6 0a3.8 3.8 0 1 0 -7.6 0Z"),
    (-3.5, -3.5, "h7v7h-7Z"),
    (0.0, -4.6, "l4.4 8h-8.8Z"),
    (0.0, -5.0, "l5 5l-5 5l-5-5Z"),
    (-4.4, -3.4, "h8.8l-4.4 8Z"),
    (-1.5, -4.5, "h3v3h3v3h-3v3h-3v-3h-3v-3h3Z"),
    (-5.0, -2.0, "h10v4h-10Z"),
    (-2.0, -5.0, "h4v10h-4Z"),
];

fn mark_path(series: usize, (x, y): Point) -> String {
    let (dx, dy, path) = MARKS[series % SERIES];
    format!("M{} {}{path}", px(x + dx), px(y + dy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_short() {
        assert_eq!(px(10.0), "10");
        assert_eq!(px(10.26), "10.3");
        assert_eq!(px(-0.01), "0");
    }

    #[test]
    fn escapes_text() {
        let mut canvas = Canvas::new(10.0, 20.0);
        canvas.text("name", (1.0, 2.5), END, "<b>&\"'\u{1b}[1m");
        canvas.rect("bar", (5.0, 9.0), (1.0, 2.0), Some("</title>"));
        assert_eq!(
            canvas.finish("a \"label\""),
            "<svg viewBox=\"0 0 10 20\" width=\"10\" height=\"20\" role=\"img\" \
             aria-label=\"a &quot;label&quot;\">\n\
             <text class=\"name\" x=\"1\" y=\"2.5\" text-anchor=\"end\">&lt;b&gt;&amp;&quot;&#39; [1m</text>\n\
             <rect class=\"bar\" x=\"1\" y=\"2\" width=\"4\" height=\"7\"><title>&lt;/title&gt;</title></rect>\n\
             </svg>\n"
        );
    }

    #[test]
    fn eight_series_have_different_marks() {
        let marks: std::collections::BTreeSet<String> =
            (0..SERIES).map(|shape| mark_path(shape, (50.0, 50.0))).collect();
        assert_eq!(marks.len(), SERIES);
        assert_eq!(key(1), key(1 + SERIES));
        assert!(key(2).contains("aria-hidden"));
    }

    #[test]
    fn curve_connects_its_points() {
        let mut canvas = Canvas::new(1.0, 1.0);
        canvas.curve("curve", 9, &[(0.0, 1.0), (2.0, 3.25)]);
        canvas.curve("curve", 9, &[]);
        assert_eq!(canvas.body, "<path class=\"curve s1\" d=\"M0 1L2 3.2\"/>\n");
    }
}
