//! The report of `ab` 2.3, line for line, for scripts that read it. FORMAT.md says where our
//! figures mean something else.

use crate::cmd::load::content::Content;
use crate::cmd::load::millis::{ms, ms_of};
use crate::cmd::load::settings::Settings;
use std::fmt::Write as _;
use tollgate_load::Outcome;
use tollgate_stats::LatencyHistogram;

/// Writes an outcome as `ab` would.
pub(crate) fn render(settings: &Settings, outcome: &Outcome) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    write(&mut text, settings, outcome).ok();
    text
}

/// The quantiles that `ab` prints, in percent.
const PERCENTS: [u32; 8] = [50, 66, 75, 80, 90, 95, 98, 99];

fn write(text: &mut String, settings: &Settings, outcome: &Outcome) -> std::fmt::Result {
    let target = &settings.target;
    writeln!(text, "Server Software:        {}", header(&outcome.first_head, "Server"))?;
    writeln!(text, "Server Hostname:        {}", target.hostname)?;
    writeln!(text, "Server Port:            {}\n", target.port)?;
    writeln!(text, "Document Path:          {}", target.path)?;
    writeln!(text, "Document Length:        {}\n", document_length(&settings.content, outcome))?;
    writeln!(text, "Concurrency Level:      {}", settings.connections)?;
    let seconds = outcome.window.as_secs_f64();
    writeln!(text, "Time taken for tests:   {seconds:.3} seconds")?;
    write_counts(text, settings, outcome)?;
    if seconds > 0.0 && outcome.answered > 0 {
        write_rates(text, settings, outcome)?;
    }
    if outcome.answered > 0 {
        write_times(text, settings, outcome)?;
    }
    if outcome.answered > 1 {
        write_percentages(text, &outcome.latency)?;
    }
    Ok(())
}

fn write_counts(text: &mut String, settings: &Settings, outcome: &Outcome) -> std::fmt::Result {
    let failures = &outcome.failures;
    writeln!(text, "Complete requests:      {}", outcome.answered)?;
    let failed = failures.total() + outcome.unexpected;
    writeln!(text, "Failed requests:        {failed}")?;
    if failed > 0 {
        let connect = failures.refused + failures.connect_timeout + failures.no_port;
        let receive = failures.reset + failures.closed_early + failures.answer_timeout;
        let exceptions = failures.malformed + failures.other;
        let length = outcome.unexpected;
        writeln!(
            text,
            "   (Connect: {connect}, Receive: {receive}, Length: {length}, Exceptions: {exceptions})"
        )?;
    }
    let statuses = outcome.templates.iter().flat_map(|template| &template.statuses);
    let non_2xx = statuses.filter(|(status, _)| !(200..300).contains(*status));
    let non_2xx: u64 = non_2xx.map(|(_, count)| count).sum();
    if non_2xx > 0 {
        writeln!(text, "Non-2xx responses:      {non_2xx}")?;
    }
    if settings.keep_alive {
        writeln!(text, "Keep-Alive requests:    {}", outcome.kept_alive)?;
    }
    writeln!(text, "Total transferred:      {} bytes", outcome.bytes_received)?;
    if let Some(bytes) = bytes_sent(settings, outcome) {
        writeln!(text, "Total body sent:        {bytes}")?;
    }
    writeln!(text, "HTML transferred:       {} bytes", outcome.body_bytes)
}

fn write_rates(text: &mut String, settings: &Settings, outcome: &Outcome) -> std::fmt::Result {
    let seconds = outcome.window.as_secs_f64();
    let answered = outcome.answered as f64;
    let each_ms = seconds * 1e3 / answered;
    let concurrent_ms = each_ms * settings.connections as f64;
    writeln!(text, "Requests per second:    {:.2} [#/sec] (mean)", answered / seconds)?;
    writeln!(text, "Time per request:       {concurrent_ms:.3} [ms] (mean)")?;
    writeln!(
        text,
        "Time per request:       {each_ms:.3} [ms] (mean, across all concurrent requests)"
    )?;
    let kib = |bytes: u64| bytes as f64 / 1024.0 / seconds;
    writeln!(
        text,
        "Transfer rate:          {:.2} [Kbytes/sec] received",
        kib(outcome.bytes_received)
    )?;
    if let Some(sent) = bytes_sent(settings, outcome) {
        writeln!(text, "                        {:.2} kb/s sent", kib(sent))?;
        let both = kib(sent + outcome.bytes_received);
        writeln!(text, "                        {both:.2} kb/s total")?;
    }
    Ok(())
}

/// The bytes of the requests that finished in the measurement, if they have a body: `sent` would
/// count those of the warm-up too.
fn bytes_sent(settings: &Settings, outcome: &Outcome) -> Option<u64> {
    let finished = outcome.answered + outcome.failures.total();
    settings.content.posted_bytes.map(|bytes| bytes * finished)
}

fn write_times(text: &mut String, settings: &Settings, outcome: &Outcome) -> std::fmt::Result {
    let mut connect = outcome.connect_time.clone();
    // `ab` has a connect time for every request: none, where the connection was there already.
    connect.record_n(0, outcome.answered.saturating_sub(connect.count()));
    let total = Times::of(&outcome.latency);
    let connect = Times::of(&connect);
    // Without keep-alive the latency runs from the start of the connect.
    let processing = if settings.keep_alive { total } else { total.less(connect.mean_ms) };
    writeln!(text, "\nConnection Times (ms)")?;
    writeln!(text, "              min  mean[+/-sd] median   max")?;
    connect.write(text, "Connect:")?;
    processing.write(text, "Processing:")?;
    outcome.first_byte.as_ref().map_or(processing, Times::of).write(text, "Waiting:")?;
    total.write(text, "Total:")
}

fn write_percentages(text: &mut String, latency: &LatencyHistogram) -> std::fmt::Result {
    writeln!(text, "\nPercentage of the requests served within a certain time (ms)")?;
    for percent in PERCENTS {
        let value_ns = latency.value_at(f64::from(percent) / 100.0);
        writeln!(text, "  {percent}%  {:5.0}", value_ns.map_or(0.0, ms))?;
    }
    writeln!(text, " 100%  {:5.0} (longest request)", latency.max_ns().map_or(0.0, ms))
}

/// A line of the connection times, in milliseconds.
#[derive(Debug, Clone, Copy)]
struct Times {
    min_ms: f64,
    mean_ms: f64,
    deviation_ms: f64,
    median_ms: f64,
    max_ms: f64,
}

impl Times {
    fn of(histogram: &LatencyHistogram) -> Self {
        let or_zero = |ns: Option<u64>| ns.map_or(0.0, ms);
        Self {
            min_ms: or_zero(histogram.min_ns()),
            mean_ms: histogram.mean_ns().map_or(0.0, ms_of),
            deviation_ms: histogram.stdev_ns().map_or(0.0, ms_of),
            median_ms: or_zero(histogram.value_at(0.5)),
            max_ms: or_zero(histogram.max_ns()),
        }
    }

    /// The same, each of them that much shorter.
    fn less(self, by_ms: f64) -> Self {
        let less = |value: f64| (value - by_ms).max(0.0);
        Self {
            min_ms: less(self.min_ms),
            mean_ms: less(self.mean_ms),
            deviation_ms: self.deviation_ms,
            median_ms: less(self.median_ms),
            max_ms: less(self.max_ms),
        }
    }

    fn write(&self, text: &mut String, label: &str) -> std::fmt::Result {
        let Self { min_ms, mean_ms, deviation_ms, median_ms, max_ms } = self;
        writeln!(
            text,
            "{label:<12}{min_ms:5.0} {mean_ms:4.0} {deviation_ms:5.1} {median_ms:6.0} {max_ms:7.0}"
        )
    }
}

/// The length of a document as the first answer gave it.
fn document_length(content: &Content, outcome: &Outcome) -> String {
    if content.is_head {
        return "0 bytes".to_owned();
    }
    match header(&outcome.first_head, "Content-Length") {
        length if length.is_empty() || content.mix.is_some() => "Variable".to_owned(),
        length => format!("{length} bytes"),
    }
}

/// The value of the first header of that name; empty without one.
fn header(head: &[u8], name: &str) -> String {
    let head = String::from_utf8_lossy(head);
    let mut fields = head.lines().filter_map(|line| line.split_once(':'));
    let found = fields.find(|(known, _)| known.eq_ignore_ascii_case(name));
    found.map_or(String::new(), |(_, value)| value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cmd::load::examples;

    #[test]
    fn an_outcome_reads_as_apachebench_prints_it() {
        let settings = examples::settings("http://127.0.0.1:8080/shop -c 10 -n 910 --format ab");
        insta::assert_snapshot!(render(&settings, &examples::outcome()));
    }

    #[test]
    fn a_body_without_keep_alive_has_its_own_lines() {
        let line = "http://127.0.0.1/ -c 10 -d 2s --format ab --no-keepalive --body a=1";
        // A warm-up of 10,000 requests, whose bytes are not those of the measurement.
        let outcome = Outcome { sent: 10_917, ..examples::outcome() };
        let settings = examples::settings(line);
        let length = settings.content.posted_bytes.unwrap();
        let text = render(&settings, &outcome);
        assert!(!text.contains("Keep-Alive requests:"), "{text}");
        let total = format!("\nTotal body sent:        {}\n", 910 * length);
        assert!(text.contains(&total), "{total}\n{text}");
        let kib_per_s = (910 * length) as f64 / 1024.0 / 2.0;
        assert!(text.contains(&format!(" {kib_per_s:.2} kb/s sent\n")), "{text}");
        assert!(text.contains(" kb/s total\n"), "{text}");
    }

    #[test]
    fn without_an_answer_nothing_is_divided_by_it() {
        let nothing = Outcome {
            answered: 0,
            latency: LatencyHistogram::new(),
            first_head: Vec::new(),
            ..examples::outcome()
        };
        let text = render(&examples::closed_loop(), &nothing);
        assert!(text.contains("Complete requests:      0\nFailed requests:        12\n"), "{text}");
        assert!(text.contains("Server Software:        \n"), "{text}");
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}
