//! The coordinator's side of files below the folder of an agent, and of the program as a command on its host, with such
//! files as inputs and outputs.

use crate::agent_program::{PIECE_BYTES, ProgramCommand, ProgramEnd, ProgramReply, inside};
use crate::connection::{Agent, AgentError, COMMAND_LIMIT};
use crate::protocol::{Command, Reply};
use anyhow::{Context, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tollgate_runner::process::Interrupt;

/// Interval of the questions whether the program still runs.
const POLL: Duration = Duration::from_millis(200);

/// A run of the program on a host.
#[derive(Debug)]
pub struct ProgramRun<'a> {
    pub folder: &'a str,
    pub arguments: &'a [String],
    pub is_exclusive: bool,
    pub limit: Duration,
}

impl Agent {
    /// Path of the folder of the agent on its host.
    pub fn folder(&mut self, interrupt: &Interrupt) -> Result<PathBuf, AgentError> {
        match self.program(ProgramCommand::Folder, interrupt)? {
            ProgramReply::Folder(folder) => Ok(folder),
            other => Err(self.unexpected(&Reply::Program(other))),
        }
    }

    /// Writes a new file below the folder of the agent, with its folders.
    pub fn write_file(
        &mut self,
        path: &str,
        mut content: impl Read,
        is_executable: bool,
        interrupt: &Interrupt,
    ) -> anyhow::Result<()> {
        let mut is_new = true;
        loop {
            let mut piece = Vec::new();
            let cannot = || format!("cannot read {path}");
            (&mut content).take(PIECE_BYTES as u64).read_to_end(&mut piece).with_context(cannot)?;
            if piece.is_empty() && !is_new {
                return Ok(());
            }
            let (path, content_base64) = (path.to_owned(), STANDARD.encode(&piece));
            let write = ProgramCommand::Write { path, is_new, is_executable, content_base64 };
            self.program(write, interrupt).map_err(AgentError::into_plain)?;
            is_new = false;
            if piece.len() < PIECE_BYTES {
                return Ok(());
            }
        }
    }

    /// Removes a folder with all its files, if it exists.
    pub fn remove_files(&mut self, folder: &str, interrupt: &Interrupt) -> Result<(), AgentError> {
        self.program(ProgramCommand::Remove { folder: folder.to_owned() }, interrupt).map(drop)
    }

    /// Runs the program to its end.
    pub fn run_program(
        &mut self,
        run: &ProgramRun<'_>,
        interrupt: &Interrupt,
    ) -> anyhow::Result<ProgramEnd> {
        let deadline = Instant::now() + run.limit;
        let (folder, arguments) = (run.folder.to_owned(), run.arguments.to_vec());
        let is_exclusive = run.is_exclusive;
        let start = ProgramCommand::Start { folder, arguments, is_exclusive };
        self.program(start, interrupt).map_err(AgentError::into_plain)?;
        loop {
            match self.program(ProgramCommand::Poll, interrupt).map_err(AgentError::into_plain)? {
                ProgramReply::Running if Instant::now() < deadline => interrupt.sleep(POLL)?,
                ProgramReply::Running => {
                    bail!("{}: not finished within {} s", self.host(), run.limit.as_secs())
                }
                ProgramReply::Ended(end) => return Ok(end),
                other => return Err(self.unexpected(&Reply::Program(other)).into()),
            };
        }
    }

    /// Copies the files of a folder that `is_wanted` selects by their paths into a local folder.
    pub fn fetch_files(
        &mut self,
        folder: &str,
        to: &Path,
        is_wanted: impl Fn(&str) -> bool,
        interrupt: &Interrupt,
    ) -> anyhow::Result<()> {
        let list = ProgramCommand::List { folder: folder.to_owned() };
        let files = match self.program(list, interrupt).map_err(AgentError::into_plain)? {
            ProgramReply::Files(files) => files,
            other => return Err(self.unexpected(&Reply::Program(other)).into()),
        };
        for file in files.iter().filter(|file| is_wanted(file)) {
            let target = inside(to, file)?;
            let cannot = || format!("cannot write {}", target.display());
            if let Some(parent) = target.parent() {
                fs::create_dir_all(parent).with_context(cannot)?;
            }
            let mut target_file = File::create(&target).with_context(cannot)?;
            let mut offset = 0;
            loop {
                let read = ProgramCommand::Read { path: format!("{folder}/{file}"), offset };
                let piece = self.program(read, interrupt).map_err(AgentError::into_plain)?;
                let piece = match piece {
                    ProgramReply::Piece { content_base64 } => STANDARD.decode(content_base64)?,
                    other => return Err(self.unexpected(&Reply::Program(other)).into()),
                };
                target_file.write_all(&piece).with_context(cannot)?;
                offset += piece.len() as u64;
                if piece.len() < PIECE_BYTES {
                    break;
                }
            }
            target_file.sync_all().with_context(cannot)?;
        }
        Ok(())
    }

    fn program(
        &mut self,
        command: ProgramCommand,
        interrupt: &Interrupt,
    ) -> Result<ProgramReply, AgentError> {
        match self.call(Command::Program(command), COMMAND_LIMIT, interrupt)? {
            Reply::Program(reply) => Ok(reply),
            other => Err(self.unexpected(&other)),
        }
    }
}
