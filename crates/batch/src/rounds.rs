//! Rounds of a batch and their trials, which are read once.

use crate::store::{BatchDir, RecordFile, Round, RoundRecord, RoundRun, runs};
use tollgate_records::run_dir::RunRecords;

#[derive(Debug)]
pub(crate) struct Rounds {
    file: RecordFile<RoundRecord>,
    /// Rounds that have a run, in their order.
    runs: Vec<RoundRun>,
}

impl Rounds {
    pub(crate) fn open(dir: &BatchDir) -> anyhow::Result<Self> {
        let file = RecordFile::open(&dir.rounds())?;
        let runs = runs(dir.path(), file.lines())?;
        Ok(Self { file, runs })
    }

    pub(crate) fn runs(&self) -> &[RoundRun] {
        &self.runs
    }

    pub(crate) fn started(&self) -> impl Iterator<Item = &Round> {
        self.file.lines().iter().filter_map(RoundRecord::started)
    }

    /// Returns the rounds that were started but have not ended.
    pub(crate) fn open_rounds(&self) -> Vec<Round> {
        let has_ended = |number: u32| {
            let ends = |record: &RoundRecord| matches!(record, RoundRecord::Ended { round, .. } if *round == number);
            self.file.lines().iter().any(ends)
        };
        self.started().filter(|round| !has_ended(round.round)).cloned().collect()
    }

    pub(crate) fn next_number(&self) -> u32 {
        self.started().map(|round| round.round).max().unwrap_or(0) + 1
    }

    pub(crate) fn start(&mut self, round: Round) -> anyhow::Result<()> {
        self.file.add(RoundRecord::Started(round))
    }

    /// Records the end of a round, with its trials.
    pub(crate) fn end(
        &mut self,
        round: &Round,
        reason: String,
        node: Option<String>,
        run: RunRecords,
    ) -> anyhow::Result<()> {
        self.file.add(RoundRecord::Ended { round: round.round, reason, node })?;
        self.runs.retain(|known| known.round.round != round.round);
        self.runs.push(RoundRun { round: round.clone(), run });
        self.runs.sort_by_key(|run| run.round.round);
        Ok(())
    }
}
