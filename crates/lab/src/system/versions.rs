//! What version commands say.

use super::bounded::output_of;
use std::collections::BTreeMap;
use std::io;
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// What version commands said, each asked once: for whoever looks at many subjects at one moment, most of which have
/// the same parts. Several threads may ask.
#[derive(Debug, Default)]
pub struct Versions {
    said: Mutex<BTreeMap<Vec<String>, Arc<Said>>>,
}

type Said = OnceLock<Result<String, Arc<io::Error>>>;

impl Versions {
    /// The first line that a command prints, wherever it prints it: nginx uses standard error.
    ///
    /// # Errors
    ///
    /// It cannot be run, fails, prints nothing or does not end in time.
    pub(super) fn of(&self, words: &[String]) -> Result<String, Arc<io::Error>> {
        let mut said = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        let own = Arc::clone(said.entry(words.to_vec()).or_default());
        // While one command runs, others may be asked.
        drop(said);
        own.get_or_init(|| ask(words).map_err(Arc::new)).clone()
    }
}

fn ask(words: &[String]) -> io::Result<String> {
    let (program, arguments) =
        words.split_first().ok_or_else(|| io::Error::other("the command is empty"))?;
    let output = output_of(Command::new(program).args(arguments), LIMIT)?;
    let printed = [output.stdout, output.stderr].concat();
    let printed = String::from_utf8_lossy(&printed);
    if !output.status.success() {
        return Err(io::Error::other(format!("{}: {}", output.status, printed.trim())));
    }
    let line = printed.lines().map(str::trim).find(|line| !line.is_empty());
    line.map(str::to_owned).ok_or_else(|| io::Error::other("it printed nothing"))
}

/// How long a version command may take.
const LIMIT: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::thread;

    #[test]
    fn each_command_is_asked_once_by_however_many_threads() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let command = |version: &str| {
            let script = format!("echo {version} >>{}; sleep 0.05; echo {version}", log.display());
            ["sh", "-c", &script].map(str::to_owned)
        };
        let (one, two) = (command("1.0"), command("2.0"));
        let versions = Versions::default();
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert_eq!(versions.of(&one).unwrap(), "1.0"));
            }
        });
        assert_eq!(versions.of(&two).unwrap(), "2.0");
        assert_eq!(fs::read_to_string(&log).unwrap(), "1.0\n2.0\n");
        // Another moment.
        assert_eq!(Versions::default().of(&one).unwrap(), "1.0");
        assert_eq!(fs::read_to_string(&log).unwrap(), "1.0\n2.0\n1.0\n");
    }

    #[test]
    fn why_there_is_no_version_is_told_each_time() {
        let versions = Versions::default();
        let error = |script: &str| {
            let words = ["sh", "-c", script].map(str::to_owned);
            versions.of(&words).unwrap_err().to_string()
        };
        for _ in 0..2 {
            assert_eq!(error("echo no such option >&2; exit 3"), "exit status: 3: no such option");
            assert_eq!(error("echo"), "it printed nothing");
        }
        assert_eq!(versions.of(&[]).unwrap_err().to_string(), "the command is empty");
    }
}
