//! What the generator's threads used.

use super::layout::labelled;
use crate::cmd::load::result::ThreadResult;
use tollgate_lab::report::number::percent;

/// Writes a line for each thread, or for the busiest of many.
pub(super) fn render(threads: &[ThreadResult]) -> String {
    let mut busiest: Vec<(usize, &ThreadResult)> = threads.iter().enumerate().collect();
    busiest.sort_by(|(_, a), (_, b)| b.busy.total_cmp(&a.busy));
    busiest.truncate(THREADS_MAX);
    busiest.sort_by_key(|(index, _)| *index);
    let mut text = String::new();
    for (index, thread) in busiest {
        let of_window = |us: u64| percent(us as f64 / thread.window_us.max(1) as f64);
        let polled = match thread.polled_us {
            0 => String::new(),
            us => format!(", less {} of idle polling", of_window(us)),
        };
        let used = format!(
            "{} of a CPU (user {}, system {}, waited {}{polled})",
            percent(thread.busy),
            of_window(thread.user_us),
            of_window(thread.system_us),
            of_window(thread.waited_us)
        );
        text += &labelled(&format!("thread {}", index + 1), &used);
    }
    if threads.len() > THREADS_MAX {
        let others = threads.len() - THREADS_MAX;
        text += &labelled("", &format!("and {others} that used no more than these"));
    }
    text
}

/// How many threads have a line of their own.
const THREADS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_threads_the_busiest_have_a_line() {
        let thread = |percent_busy: u32| ThreadResult {
            user_us: u64::from(percent_busy) * 10_000,
            system_us: 0,
            waited_us: 0,
            polled_us: 0,
            window_us: 1_000_000,
            busy: f64::from(percent_busy) / 100.0,
        };
        let text = render(&(0..10).map(|index| thread(index * 10)).collect::<Vec<_>>());
        let lines: Vec<&str> = text.lines().collect();
        // The first two, which used 0 and 10 %, have none.
        assert_eq!(lines.len(), 9, "{text}");
        let third = "thread 3        20.0 % of a CPU (user 20.0 %, system 0 %, waited 0 %)";
        assert_eq!(lines[0], third);
        assert!(lines[7].starts_with("thread 10       90.0 % of a CPU"), "{text}");
        assert_eq!(lines[8].trim_start(), "and 2 that used no more than these");
    }
}
