//! Judged thresholds as `JUnit` XML, which CI systems show beside the tests of a build: a suite per case, and a test case
//! per threshold, whose class is the case and the subject.

use crate::threshold::{Judged, ThresholdOutcome};
use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesText, Event};
use std::collections::BTreeSet;
use std::io;

/// The status of a test case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Passed,
    Failed,
    /// The interval contains the limit, or there is no interval.
    Skipped,
    /// The subject has no value.
    Error,
}

/// Renders judged thresholds. `title` is that of the run.
pub fn render(title: &str, judged: &[Judged]) -> anyhow::Result<String> {
    let mut writer = Writer::new_with_indent(Vec::new(), b' ', 2);
    writer.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
    let root = writer.create_element("testsuites").with_attribute(("name", &*printable(title)));
    root.with_attributes(counts(judged).each_ref().map(attribute)).write_inner_content(
        |writer| {
            let cases: BTreeSet<&str> = judged.iter().map(|judged| judged.case.as_str()).collect();
            cases.into_iter().try_for_each(|case| suite(writer, case, judged))
        },
    )?;
    Ok(String::from_utf8(writer.into_inner())? + "\n")
}

fn suite(writer: &mut Writer<Vec<u8>>, case: &str, judged: &[Judged]) -> io::Result<()> {
    let of_case: Vec<Judged> =
        judged.iter().filter(|judged| judged.case == case).cloned().collect();
    let element = writer.create_element("testsuite").with_attribute(("name", case));
    let element = element.with_attributes(counts(&of_case).each_ref().map(attribute));
    element.write_inner_content(|writer| {
        of_case.iter().try_for_each(|judged| test_case(writer, judged))
    })?;
    Ok(())
}

fn test_case(writer: &mut Writer<Vec<u8>>, judged: &Judged) -> io::Result<()> {
    let class = format!("{}.{}", judged.case, judged.threshold.subject());
    let element = writer.create_element("testcase").with_attributes([
        ("classname", class.as_str()),
        ("name", printable(&judged.threshold.text).as_str()),
    ]);
    let note = judged.note.as_deref().map(printable);
    let value = judged.measured();
    let text = [value.as_deref(), note.as_deref()].into_iter().flatten().collect::<Vec<_>>();
    let text = text.join("; ");
    let child = match Status::of(judged) {
        Status::Passed => "system-out",
        Status::Failed => "failure",
        Status::Skipped => "skipped",
        Status::Error => "error",
    };
    element.write_inner_content(|writer| {
        let element = writer.create_element(child);
        match Status::of(judged) {
            Status::Passed => element.write_text_content(BytesText::new(&text))?,
            // Some viewers show the message, others the content; an element `skipped` has no content.
            Status::Skipped => element.with_attribute(("message", text.as_str())).write_empty()?,
            Status::Failed | Status::Error => element
                .with_attributes([("message", text.as_str()), ("type", "threshold")])
                .write_text_content(BytesText::new(&text))?,
        };
        Ok(())
    })?;
    Ok(())
}

impl Status {
    fn of(judged: &Judged) -> Self {
        match (judged.outcome, judged.value) {
            (ThresholdOutcome::Pass, _) => Self::Passed,
            (ThresholdOutcome::Fail, _) => Self::Failed,
            (ThresholdOutcome::NotSettled, Some(_)) => Self::Skipped,
            (ThresholdOutcome::NotSettled, None) => Self::Error,
        }
    }
}

/// The attributes with numbers of test cases.
fn counts(judged: &[Judged]) -> [(&'static str, String); 4] {
    let count =
        |status| judged.iter().filter(|judged| Status::of(judged) == status).count().to_string();
    [
        ("tests", judged.len().to_string()),
        ("failures", count(Status::Failed)),
        ("errors", count(Status::Error)),
        ("skipped", count(Status::Skipped)),
    ]
}

fn attribute<'a>((name, value): &'a (&'static str, String)) -> (&'a str, &'a str) {
    (name, value)
}

/// Replaces characters that XML 1.0 does not allow: a text may contain the output of a server.
fn printable(text: &str) -> String {
    let is_allowed = |c: char| !c.is_control() && !matches!(c, '\u{fffe}' | '\u{ffff}');
    text.chars().map(|c| if is_allowed(c) { c } else { '\u{fffd}' }).collect()
}
