use std::fmt::Display;
use std::ops::RangeInclusive;

/// What a test found. Every figure is printed with its bounds; those outside are kept.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    wrong: Vec<String>,
}

impl Findings {
    /// A figure that has to lie within `bounds`.
    pub(crate) fn within(&mut self, what: &str, seen: f64, bounds: RangeInclusive<f64>) {
        let line = format!("{what}: {seen:.2} in {:.2} to {:.2}", bounds.start(), bounds.end());
        self.add(bounds.contains(&seen), line);
    }

    /// A figure that has to be this one.
    pub(crate) fn equal<T: Copy + PartialEq + Display>(
        &mut self,
        what: &str,
        seen: T,
        expected: T,
    ) {
        self.add(seen == expected, format!("{what}: {seen}, should be {expected}"));
    }

    /// What has to hold, where there is no figure to show.
    pub(crate) fn holds(&mut self, what: &str, holds: bool) {
        self.add(holds, what.to_owned());
    }

    /// What was measured only to be known.
    pub(crate) fn note(&self, what: &str) {
        eprintln!("        {what}");
    }

    /// The figures that are not as they should be.
    pub(crate) fn wrong(&self) -> &[String] {
        &self.wrong
    }

    fn add(&mut self, right: bool, line: String) {
        eprintln!("  {} {line}", if right { "ok   " } else { "WRONG" });
        if !right {
            self.wrong.push(line);
        }
    }
}
