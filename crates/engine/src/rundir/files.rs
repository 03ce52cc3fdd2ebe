//! Turn the numbers of a record that are no draws into JSON, and back.

use serde::{Deserialize, Serialize};

use crate::draws::Streamed;
use crate::plan::Choice;
use crate::record::{Bias, Record, SentRecord, SiteRecord, TargetWords};
use crate::warnings::Warning;

/// The layout's number: a reader refuses one that it does not know.
pub(super) const FORMAT: u32 = 1;

/// `run.json`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RunFile {
    pub(super) format: u32,
    version: String,
    created: String,
    sampler: String,
    sampler_says: String,
    seed: u64,
    step: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    effective_draws: Option<u64>,
    iterations: u64,
    burn_in: u64,
    thin: u64,
    seconds: f64,
    interrupted: bool,
    pub(super) parameters: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    target: Option<TargetWords>,
    /// The names of what is recorded beside the draws.
    pub(super) statistics: Vec<String>,
    /// Whether there is a pooled reference.
    pub(super) reference: bool,
    /// How it was made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reference_by: Option<String>,
    notes: Vec<String>,
    warnings: Vec<Warning>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    choice: Option<Choice>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    bias: Option<Bias>,
    #[serde(default)]
    exchanges: (u64, u64),
    /// A hash of the rows of each site, as they are coded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    row_hashes: Vec<String>,
    /// The fingerprint of the draws, where they are here.
    #[serde(default)]
    digest: Option<String>,
    /// Where the draws are, if not here.
    #[serde(default)]
    streamed: Option<StreamedFile>,
}

#[derive(Debug, Serialize, Deserialize)]
struct StreamedFile {
    file: String,
    chains: usize,
    length: usize,
}

/// `ledger.json`: everything in bits.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct LedgerFile {
    sent: Vec<Sent>,
    sites: Vec<SiteTraffic>,
    uncompressed: UpDown,
    before_sampling: UpDown,
    rows_evaluated: u64,
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct UpDown {
    up: u64,
    down: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Sent {
    direction: String,
    kind: String,
    bits: u64,
    vectors: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct SiteTraffic {
    name: String,
    rows: u64,
    bits: UpDown,
}

impl From<(u64, u64)> for UpDown {
    fn from((up, down): (u64, u64)) -> Self {
        UpDown { up, down }
    }
}

impl From<UpDown> for (u64, u64) {
    fn from(both: UpDown) -> Self {
        (both.up, both.down)
    }
}

impl RunFile {
    pub(super) fn of(record: &Record) -> Self {
        RunFile {
            format: FORMAT,
            version: record.version.clone(),
            created: record.created.clone(),
            sampler: record.sampler.0.clone(),
            sampler_says: record.sampler.1.clone(),
            seed: record.seed,
            step: record.step,
            effective_draws: record.effective_draws,
            iterations: record.iterations,
            burn_in: record.burn_in,
            thin: record.thin,
            seconds: record.seconds,
            interrupted: record.interrupted,
            parameters: record.parameters.clone(),
            target: record.target.clone(),
            statistics: record.statistics.iter().map(|s| s.name.clone()).collect(),
            reference: record.reference.is_some(),
            reference_by: record.reference_by.clone(),
            notes: record.notes.clone(),
            warnings: record.warnings.clone(),
            choice: record.choice.clone(),
            bias: record.bias.clone(),
            exchanges: record.exchanges,
            row_hashes: record.row_hashes.clone(),
            digest: record.streamed.is_none().then(|| record.draws.digest()),
            streamed: record.streamed.as_ref().map(|s| StreamedFile {
                file: s.file.display().to_string(),
                chains: s.chains,
                length: s.length,
            }),
        }
    }

    /// A record that lacks its config, draws, statistics and reference.
    pub(super) fn into_record(self, ledger: LedgerFile) -> Record {
        let sent = |s: Sent| SentRecord {
            direction: s.direction,
            kind: s.kind,
            bits: s.bits,
            vectors: s.vectors,
        };
        let site = |s: SiteTraffic| SiteRecord { name: s.name, rows: s.rows, bits: s.bits.into() };
        Record {
            version: self.version,
            created: self.created,
            config: String::new(),
            sampler: (self.sampler, self.sampler_says),
            seed: self.seed,
            step: self.step,
            effective_draws: self.effective_draws,
            iterations: self.iterations,
            burn_in: self.burn_in,
            thin: self.thin,
            seconds: self.seconds,
            interrupted: self.interrupted,
            draws: crate::draws::Draws::new(self.parameters.len()),
            parameters: self.parameters,
            target: self.target,
            statistics: Vec::new(),
            sites: ledger.sites.into_iter().map(site).collect(),
            row_hashes: self.row_hashes,
            sent: ledger.sent.into_iter().map(sent).collect(),
            uncompressed: ledger.uncompressed.into(),
            before_sampling: ledger.before_sampling.into(),
            rows_evaluated: ledger.rows_evaluated,
            notes: self.notes,
            warnings: self.warnings,
            choice: self.choice,
            bias: self.bias,
            exchanges: self.exchanges,
            reference: None,
            reference_by: self.reference_by,
            streamed: self.streamed.map(|s| Streamed {
                file: s.file.into(),
                chains: s.chains,
                length: s.length,
            }),
            encoding: None,
            calibration: None,
            influence: None,
            check: None,
            loo: None,
        }
    }
}

impl LedgerFile {
    pub(super) fn of(record: &Record) -> Self {
        let sent = |s: &SentRecord| Sent {
            direction: s.direction.clone(),
            kind: s.kind.clone(),
            bits: s.bits,
            vectors: s.vectors,
        };
        let site = |s: &SiteRecord| SiteTraffic {
            name: s.name.clone(),
            rows: s.rows,
            bits: s.bits.into(),
        };
        LedgerFile {
            sent: record.sent.iter().map(sent).collect(),
            sites: record.sites.iter().map(site).collect(),
            uncompressed: record.uncompressed.into(),
            before_sampling: record.before_sampling.into(),
            rows_evaluated: record.rows_evaluated,
        }
    }
}

/// `log.txt`: what happened, in sentences.
pub(super) fn log(record: &Record) -> String {
    let mut lines = vec![
        format!("{} finished; consilience {}", record.created, record.version),
        format!(
            "sampler {} ({}), seed {}, step {:e}",
            record.sampler.0, record.sampler.1, record.seed, record.step
        ),
    ];
    lines.extend(record.sites.iter().map(|s| {
        format!("site {}: {} rows, sent {} bits, received {}", s.name, s.rows, s.bits.0, s.bits.1)
    }));
    lines.extend(record.notes.iter().map(|note| format!("data: {note}")));
    lines.push(format!(
        "before sampling: {} bits up, {} down",
        record.before_sampling.0, record.before_sampling.1
    ));
    lines.push(format!(
        "{} iterations a chain ({} not kept, then one draw in {}): {} chains of {} draws in {:.3} \
         s{}",
        record.iterations,
        record.burn_in,
        record.thin,
        record.drawn().0,
        record.drawn().1,
        record.seconds,
        if record.interrupted { ", stopped before the end" } else { "" }
    ));
    lines.extend(record.sent.iter().map(|s| {
        format!("sent {} {}: {} bits in {} vectors", s.direction, s.kind, s.bits, s.vectors)
    }));
    lines.extend(record.warnings.iter().map(|warning| format!("warning: {warning}")));
    lines.join("\n") + "\n"
}
