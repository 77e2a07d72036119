//! Files below the folder of an agent, and the program itself as its child: commands of the coordinator, and their execution.

use anyhow::{Context, anyhow, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Component, Path, PathBuf};
use tollgate_net::available_cpus;
use tollgate_records::files::remove_folder;
use tollgate_runner::process::group::{self, Launch, ProcessGroup};

/// Bytes of a file in one message.
pub(crate) const PIECE_BYTES: usize = 4 << 20;

/// Limit of a written file, so that a wrong one does not fill a host's disk.
const FILE_BYTES_MAX: u64 = 1 << 30;

/// Limit of the files of one folder.
const FILES_MAX: usize = 100_000;

/// Levels of folders in a listing.
const DEPTH_MAX: usize = 32;

/// Lines of the program's output that are reported.
const OUTPUT_LINES: usize = 12;

/// File of the program's output, in its working directory.
const OUTPUT: &str = "output.log";

/// Paths are relative to the folder of the agent, which they cannot leave.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgramCommand {
    /// Path of the folder of the agent.
    Folder,
    /// Creates a file and its folders, or appends to it.
    Write { path: String, is_new: bool, is_executable: bool, content_base64: String },
    /// Removes a folder with all its files, if it exists.
    Remove { folder: String },
    /// Starts the program of the agent with these arguments in a folder.
    Start {
        folder: String,
        arguments: Vec<String>,
        /// True if no other program measures on this host, as in a job of Slurm.
        is_exclusive: bool,
    },
    /// State of the started program.
    Poll,
    /// Files of a folder and its subfolders.
    List { folder: String },
    /// Reads a piece of a file; empty at its end.
    Read { path: String, offset: u64 },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgramReply {
    Done,
    Folder(PathBuf),
    Running,
    Ended(ProgramEnd),
    /// Paths relative to the listed folder.
    Files(Vec<String>),
    Piece {
        content_base64: String,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgramEnd {
    /// `None` after a signal.
    pub code: Option<i32>,
    /// Last lines of its output.
    pub output: Vec<String>,
}

/// The agent's side. Dropping stops the program.
#[derive(Debug, Default)]
pub(crate) struct AgentProgram {
    running: Option<ProcessGroup>,
}

impl Drop for AgentProgram {
    fn drop(&mut self) {
        if self.running.is_some() {
            // A carrier may kill an agent soon after TERM, and its folder would stay.
            group::kill_now();
        }
    }
}

impl AgentProgram {
    pub(crate) fn execute(
        &mut self,
        command: ProgramCommand,
        root: &Path,
    ) -> anyhow::Result<ProgramReply> {
        match command {
            ProgramCommand::Folder => Ok(ProgramReply::Folder(root.to_owned())),
            ProgramCommand::Write { path, is_new, is_executable, content_base64 } => {
                let content = STANDARD.decode(content_base64).context("cannot decode a file")?;
                write(&inside(root, &path)?, is_new, is_executable, &content)?;
                Ok(ProgramReply::Done)
            }
            ProgramCommand::Remove { folder } => {
                remove_folder(&inside(root, &folder)?)?;
                Ok(ProgramReply::Done)
            }
            ProgramCommand::Start { folder, arguments, is_exclusive } => {
                self.start(&inside(root, &folder)?, &arguments, is_exclusive)?;
                Ok(ProgramReply::Done)
            }
            ProgramCommand::Poll => self.poll(),
            ProgramCommand::List { folder } => {
                let mut files = Vec::new();
                list(&inside(root, &folder)?, "", DEPTH_MAX, &mut files)?;
                Ok(ProgramReply::Files(files))
            }
            ProgramCommand::Read { path, offset } => {
                let content = read(&inside(root, &path)?, offset)?;
                Ok(ProgramReply::Piece { content_base64: STANDARD.encode(content) })
            }
        }
    }

    fn start(&mut self, folder: &Path, arguments: &[String], alone: bool) -> anyhow::Result<()> {
        if self.running.is_some() {
            bail!("a program is running; one runs at a time");
        }
        let program = std::env::current_exe().context("cannot find the staged program")?;
        let mut command = vec![program.display().to_string()];
        command.extend_from_slice(arguments);
        let mut env = BTreeMap::from([("NO_COLOR".to_owned(), "1".to_owned())]);
        if alone {
            // The lock of measuring programs, which would stay behind elsewhere.
            env.insert("XDG_RUNTIME_DIR".to_owned(), folder.display().to_string());
        }
        let cpus = available_cpus().context("cannot read the available CPUs")?;
        let log = folder.join(OUTPUT);
        let launch = Launch {
            name: "tollgate",
            command: &command,
            env: &env,
            dir: folder,
            log: &log,
            cpus: &cpus,
        };
        self.running = Some(ProcessGroup::start(&launch)?);
        Ok(())
    }

    fn poll(&mut self) -> anyhow::Result<ProgramReply> {
        let running = self.running.as_mut().ok_or_else(|| anyhow!("no program is running"))?;
        let Some(status) = running.exit_status().context("cannot wait for the program")? else {
            return Ok(ProgramReply::Running);
        };
        let output = running.log_tail(OUTPUT_LINES).context("cannot read its output")?;
        self.running = None;
        Ok(ProgramReply::Ended(ProgramEnd { code: status.code(), output }))
    }
}

/// Joins a relative path to a folder. Fails if it leaves the folder.
pub(crate) fn inside(root: &Path, path: &str) -> anyhow::Result<PathBuf> {
    let parts = Path::new(path).components();
    let is_inside =
        !path.is_empty() && parts.into_iter().all(|part| matches!(part, Component::Normal(_)));
    if !is_inside {
        bail!("invalid path `{path}`: it must be relative, without `..`");
    }
    Ok(root.join(path))
}

/// Files are for the user alone.
fn write(path: &Path, is_new: bool, is_executable: bool, content: &[u8]) -> anyhow::Result<()> {
    let cannot = || format!("cannot write {}", path.display());
    if let Some(folder) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(folder).with_context(cannot)?;
    }
    let mut options = OpenOptions::new();
    options.mode(if is_executable { 0o700 } else { 0o600 });
    if is_new {
        options.write(true).create_new(true);
    } else {
        options.append(true);
    }
    let mut file = options.open(path).with_context(cannot)?;
    let bytes = file.metadata().with_context(cannot)?.len() + content.len() as u64;
    if bytes > FILE_BYTES_MAX {
        bail!("{}: {bytes} bytes, but the limit is {FILE_BYTES_MAX}", cannot());
    }
    file.write_all(content).with_context(cannot)
}

fn read(path: &Path, offset: u64) -> anyhow::Result<Vec<u8>> {
    let mut content = Vec::new();
    let mut read = || {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::Start(offset))?;
        file.take(PIECE_BYTES as u64).read_to_end(&mut content)
    };
    read().with_context(|| format!("cannot read {}", path.display()))?;
    Ok(content)
}

/// Regular files alone: sockets of servers stay.
fn list(
    folder: &Path,
    prefix: &str,
    depth_left: usize,
    files: &mut Vec<String>,
) -> anyhow::Result<()> {
    let cannot = || format!("cannot list {}", folder.display());
    for entry in fs::read_dir(folder).with_context(cannot)? {
        let entry = entry.with_context(cannot)?;
        let kind = entry.file_type().with_context(cannot)?;
        let name = entry.file_name().into_string();
        let name = name.map_err(|name| anyhow!("{}: {name:?} is not UTF-8", cannot()))?;
        let path = format!("{prefix}{name}");
        if kind.is_dir() {
            let depth_left = depth_left
                .checked_sub(1)
                .ok_or_else(|| anyhow!("{}: too many levels of folders", cannot()))?;
            list(&entry.path(), &format!("{path}/"), depth_left, files)?;
        } else if kind.is_file() {
            if files.len() == FILES_MAX {
                bail!("{}: more than {FILES_MAX} files", cannot());
            }
            files.push(path);
        }
    }
    files.sort();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn written_files_have_a_limit() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a");
        File::create(&path).unwrap().set_len(FILE_BYTES_MAX - 1).unwrap();
        write(&path, false, false, b"b").unwrap();
        let error = write(&path, false, false, b"c").unwrap_err().to_string();
        assert!(error.ends_with("a: 1073741825 bytes, but the limit is 1073741824"), "{error}");
    }

    #[test]
    fn files_are_written_in_pieces_and_read_back() {
        let root = tempfile::tempdir().unwrap();
        let mut program = AgentProgram::default();
        let mut write = |is_new: bool, content: &str| {
            let content_base64 = STANDARD.encode(content);
            let path = "a/b/server".to_owned();
            let write = ProgramCommand::Write { path, is_new, is_executable: true, content_base64 };
            program.execute(write, root.path())
        };
        write(true, "ab").unwrap();
        write(false, "c").unwrap();
        let error = format!("{:#}", write(true, "d").unwrap_err());
        assert!(error.contains("a/b/server: File exists"), "{error}");
        let mode = fs::metadata(root.path().join("a/b/server")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        std::os::unix::fs::symlink("/etc", root.path().join("a/link")).unwrap();
        let list = ProgramCommand::List { folder: "a".to_owned() };
        let ProgramReply::Files(files) = program.execute(list, root.path()).unwrap() else {
            panic!("no files");
        };
        assert_eq!(files, ["b/server"]);
        let read = |offset: u64| ProgramCommand::Read { path: "a/b/server".to_owned(), offset };
        for (offset, content) in [(0, "abc"), (1, "bc"), (3, "")] {
            let ProgramReply::Piece { content_base64 } =
                program.execute(read(offset), root.path()).unwrap()
            else {
                panic!("no piece");
            };
            assert_eq!(STANDARD.decode(content_base64).unwrap(), content.as_bytes());
        }
    }

    #[test]
    fn paths_outside_of_the_folder_are_refused() {
        let root = tempfile::tempdir().unwrap();
        for path in ["", "/etc", "..", "a/../../b", "./a"] {
            let remove = ProgramCommand::Remove { folder: path.to_owned() };
            let error = AgentProgram::default().execute(remove, root.path()).unwrap_err();
            assert!(error.to_string().starts_with("invalid path"), "{path}: {error}");
        }
    }

    #[test]
    fn poll_without_a_program_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        let error = AgentProgram::default().execute(ProgramCommand::Poll, root.path()).unwrap_err();
        assert_eq!(error.to_string(), "no program is running");
    }
}
