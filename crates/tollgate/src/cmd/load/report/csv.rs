//! The result as CSV: a row for the whole, one for each class, one for each template; numbers
//! unrounded, and what there is not is empty.

use super::layout::class_name;
use crate::cmd::load::result::{ClassResult, Errors, Latency, LoadResult, TemplateResult};
use anyhow::Result;

/// Writes a result as CSV.
///
/// # Errors
///
/// A value cannot be written as CSV.
pub(crate) fn render(result: &LoadResult) -> Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let figures = result.latency.figures_ms().map(|(name, _)| format!("{name}_ms"));
    writer.write_record(COLUMNS.map(str::to_owned).iter().chain(&figures))?;
    let total = Row {
        row: "total",
        name: &result.url,
        class: "",
        answered: result.answered,
        unexpected: result.unexpected,
        latency: &result.latency,
    };
    let Errors {
        refused,
        reset,
        connect_timeout,
        answer_timeout,
        closed_early,
        malformed,
        no_port,
        other,
        ..
    } = result.errors;
    let whole = [
        result.sent,
        result.failed,
        result.unanswered,
        result.overdue,
        result.held,
        refused,
        reset,
        connect_timeout,
        answer_timeout,
        closed_early,
        malformed,
        no_port,
        other,
    ];
    writer.write_record(total.fields(result, Some(whole)))?;
    for class in &result.classes {
        let name = class_name(class.class);
        let &ClassResult { answered, unexpected, ref latency, .. } = class;
        let row = Row { row: "class", name, class: name, answered, unexpected, latency };
        writer.write_record(row.fields(result, None))?;
    }
    for template in &result.templates {
        let class = template.class.map_or("", class_name);
        let &TemplateResult { ref name, answered, unexpected, ref latency, .. } = template;
        let row = Row { row: "template", name, class, answered, unexpected, latency };
        writer.write_record(row.fields(result, None))?;
    }
    Ok(String::from_utf8(writer.into_inner()?)?)
}

const COLUMNS: [&str; 7 + OF_THE_WHOLE] = [
    "row",
    "name",
    "class",
    "window_s",
    "throughput_per_s",
    "answered",
    "unexpected",
    "sent",
    "failed",
    "unanswered",
    "overdue",
    "held",
    "refused",
    "reset",
    "connect_timeout",
    "answer_timeout",
    "closed_early",
    "malformed",
    "no_port",
    "other",
];

/// How many of them only the load as a whole has.
const OF_THE_WHOLE: usize = 13;

/// What every row has.
struct Row<'a> {
    row: &'a str,
    name: &'a str,
    class: &'a str,
    answered: u64,
    unexpected: u64,
    latency: &'a Latency,
}

impl Row<'_> {
    /// The fields in the order of [`COLUMNS`], then those of the latency. `whole` is known of the
    /// load as a whole alone: what never came has no template.
    fn fields(&self, result: &LoadResult, whole: Option<[u64; OF_THE_WHOLE]>) -> Vec<String> {
        let throughput = result.throughput_per_s.map(|_| self.answered as f64 / result.window_s);
        let mut fields = [self.row, self.name, self.class].map(str::to_owned).to_vec();
        fields.push(result.window_s.to_string());
        fields.push(or_empty(throughput));
        fields.extend([self.answered, self.unexpected].map(|count| count.to_string()));
        let whole = whole.map_or([None; OF_THE_WHOLE], |counts| counts.map(Some));
        fields.extend(whole.map(or_empty));
        fields.extend(self.latency.figures_ms().map(|(_, value)| or_empty(value)));
        fields
    }
}

fn or_empty(value: Option<impl ToString>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::load::examples;

    #[test]
    fn the_whole_each_class_and_each_template_have_a_row() {
        let result =
            LoadResult::of(&examples::open_loop(), examples::COLD, &examples::open_outcome());
        let text = render(&result.unwrap()).unwrap();
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        let rows: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
        let heads: Vec<_> = rows.iter().map(|row| [&row[0], &row[1], &row[2]]).collect();
        assert_eq!(
            heads,
            [
                ["total", "http://127.0.0.1:8080/", ""],
                ["class", "benign", "benign"],
                ["class", "malicious", "malicious"],
                ["template", "test.pl", "benign"],
                ["template", "attack", "malicious"],
            ]
        );
        let counts: Vec<&str> = rows[0].iter().skip(3).take(9).collect();
        assert_eq!(counts, ["2", "450.5", "901", "3", "917", "9", "7", "20", "30"]);
        // Refused, reset, timed out, and malformed, in the order of the columns.
        let errors: Vec<&str> = rows[0].iter().skip(12).take(8).collect();
        assert_eq!(errors, ["2", "1", "0", "4", "0", "2", "0", "0"]);
        let counts: Vec<&str> = rows[2].iter().skip(3).take(9).collect();
        assert_eq!(counts, ["2", "25", "50", "0", "", "", "", "", ""]);
        // 50 answers have a median and no p99.
        let column = |name| reader_position(&text, name);
        assert_eq!(&rows[2][column("p50_ms")], "1.500159");
        assert_eq!(&rows[2][column("p99_ms")], "");
    }

    fn reader_position(text: &str, name: &str) -> usize {
        let mut reader = csv::Reader::from_reader(text.as_bytes());
        reader.headers().unwrap().iter().position(|header| header == name).unwrap()
    }
}
