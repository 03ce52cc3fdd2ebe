//! Put what was found beside what the paper says: as text, as CSV, as a page.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use consilience_engine::run::Progress;
use maud::{Markup, html};
use serde_json::{Value, json};

use crate::catalogue::Entry;
use crate::claim::{Claim, Judged, Verdict, with_error};
use crate::experiment::{Findings, Reading, Trouble};
use crate::number::Number;
use crate::record::Record;
use crate::runner::Work;
use crate::study::{Config, Size, Study};

/// A page folds what the paper does not state where there are more numbers than this.
const MOST_OPEN: usize = 12;
/// It folds the reasons for a verdict where there are more than this.
const MOST_REASONS: usize = 2;

/// A reproduction that was run, with its verdicts.
pub struct Reproduction {
    /// Which.
    pub entry: &'static Entry,
    /// Its config.
    pub config: Config,
    /// Its size and setting.
    pub study: Study,
    /// What was found; or why nothing was (the data is missing, say).
    pub findings: Result<Findings, String>,
    /// The claims, each with a verdict under every reading that it speaks of.
    pub judged: Vec<(Claim, Vec<Judged>)>,
    /// Whether its numbers have the few digits that an earlier scorecard printed.
    pub printed: bool,
}

impl Reproduction {
    /// Everything, for programs.
    pub fn json(&self) -> Value {
        let number = |n: &Number| {
            json!({
            "name": n.name, "value": n.value, "standard_error": n.error, "runs": n.runs,
            "paper": self.config.paper.get(&n.name) })
        };
        let readings = self.findings.iter().flat_map(|findings| &findings.readings);
        let readings: Vec<Value> = readings
            .map(|r| {
                json!({
                "name": r.name, "says": r.says,
                "numbers": r.numbers.iter().map(number).collect::<Vec<_>>() })
            })
            .collect();
        let verdicts = |list: &[Judged]| -> Vec<Value> {
            list.iter()
                .map(|v| {
                    json!({
                "reading": v.name, "verdict": v.verdict.word(), "why": v.verdict.why() })
                })
                .collect()
        };
        let claims: Vec<Value> = self
            .judged
            .iter()
            .map(|(claim, list)| {
                json!({
                "id": claim.id, "kind": claim.kind.name(), "says": claim.says,
                "source": claim.source, "verdicts": verdicts(list) })
            })
            .collect();
        json!({ "id": self.entry.id, "size": self.study.size.name(),
            "papers_own_size": self.study.papers_own, "seed": self.study.seed,
            "readings": readings, "claims": claims, "not_run": self.findings.as_ref().err() })
    }

    /// Run a reproduction, or what is left of it. Data that is missing makes claims untested; other
    /// trouble is returned.
    pub fn run(
        entry: &'static Entry,
        config: Config,
        study: Study,
        cells: &Path,
        fresh: bool,
        threads: usize,
        progress: &Progress,
    ) -> Result<Self, Trouble> {
        let findings = match (entry.experiment, &config.later) {
            (Some(experiment), _) => {
                let found = Work::new(&study, experiment, cells, fresh)
                    .and_then(|work| work.finish(threads, progress));
                match found.and_then(|found| experiment.conclude(&study, &found)) {
                    Ok(mut findings) => {
                        findings.readings.retain(|reading| study.published || !reading.published);
                        Ok(findings)
                    }
                    Err(Trouble::Data(why)) => Err(why.to_string()),
                    Err(trouble) => return Err(trouble),
                }
            }
            (None, why) => Err(why.clone().unwrap_or_else(|| "it cannot be run yet".into())),
        };
        Reproduction::judge(entry, config, study, findings, false)
    }

    /// A reproduction whose numbers were kept: judged as if it had been run, but without figures.
    pub fn kept(entry: &'static Entry, record: &Record) -> Result<Self, Trouble> {
        let (config, study) = (entry.config().map_err(Trouble::Other)?, record.study(entry)?);
        Reproduction::judge(entry, config, study, Ok(record.findings()), record.printed)
    }

    /// One of which there are no numbers, and why.
    pub fn none(entry: &'static Entry, why: String) -> Result<Self, Trouble> {
        let config = entry.config().map_err(Trouble::Other)?;
        let study = config.study(entry.paper.key, Size::Full);
        Reproduction::judge(entry, config, study, Err(why), false)
    }

    fn judge(
        entry: &'static Entry,
        config: Config,
        study: Study,
        findings: Result<Findings, String>,
        printed: bool,
    ) -> Result<Self, Trouble> {
        let verdicts = |claim: &Claim| match &findings {
            Ok(findings) => claim.judge_all(&findings.readings),
            Err(why) => vec![Judged::untested(why.clone())],
        };
        let claims = entry.claims().map_err(Trouble::Other)?;
        let judged = claims.into_iter().map(|claim| (claim.clone(), verdicts(&claim))).collect();
        Ok(Reproduction { entry, config, study, findings, judged, printed })
    }

    /// The size in words.
    pub fn size(&self) -> String {
        let name = self.study.size.name();
        match &self.study.smaller[..] {
            _ if self.study.papers_own => format!("{name}, the paper's own"),
            [] => name.into(),
            smaller => format!("{name}: {}", smaller.join(", ")),
        }
    }

    /// The paper's numbers beside ours, and the verdicts, for a terminal.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{} ({}, {}), size {}\n",
            self.entry.id,
            self.entry.paper.key,
            self.config.place,
            self.size()
        );
        match &self.findings {
            Err(why) => {
                let _ = writeln!(text, "\nnot run: {why}");
            }
            Ok(findings) => {
                for reading in &findings.readings {
                    if !reading.name.is_empty() {
                        let _ = writeln!(
                            text,
                            "\nunder the reading `{}`: {}",
                            reading.name, reading.says
                        );
                    }
                    let width =
                        reading.numbers.iter().map(|n| n.name.chars().count()).max().unwrap_or(0);
                    let _ = writeln!(text, "\n  {:width$}  {:>10}  ours", "", "paper");
                    for number in reading.numbers.iter() {
                        let paper = self
                            .config
                            .paper
                            .get(&number.name)
                            .map_or(String::new(), |v| with_error(*v, 0.0));
                        let _ = writeln!(
                            text,
                            "  {:width$}  {paper:>10}  {}",
                            number.name,
                            with_error(number.value, number.error)
                        );
                    }
                }
                text.push('\n');
                for note in &findings.notes {
                    let _ = writeln!(text, "{note}");
                }
            }
        }
        text.push('\n');
        for (claim, verdicts) in &self.judged {
            let _ = writeln!(text, "claim: {} ({})", claim.says, claim.source);
            for Judged { name, verdict, .. } in verdicts {
                let reading = if name.is_empty() { String::new() } else { format!("[{name}] ") };
                let why = verdict.why();
                let _ = writeln!(
                    text,
                    "  {reading}{}{}",
                    verdict.word(),
                    if why.is_empty() { why } else { format!(": {why}") }
                );
            }
        }
        text
    }

    /// Write the numbers, the figures' points, the verdicts and the page into a folder.
    pub fn write(&self, folder: &Path) -> Result<PathBuf, Trouble> {
        let write = |name: &str, text: String| {
            let file = folder.join(name);
            std::fs::write(&file, text)
                .map_err(|error| Trouble::File { file: file.display().to_string(), error })?;
            Ok(file)
        };
        std::fs::create_dir_all(folder)
            .map_err(|error| Trouble::File { file: folder.display().to_string(), error })?;
        if let Ok(findings) = &self.findings {
            write("numbers.csv", self.numbers_csv(findings))?;
            write("figures.csv", figures_csv(findings))?;
        }
        write("claims.csv", self.claims_csv())?;
        write("page.html", self.page())
    }

    fn numbers_csv(&self, findings: &Findings) -> String {
        let mut csv = "reading,name,paper,value,standard_error,runs\n".to_owned();
        for reading in &findings.readings {
            for Number { name, value, error, runs } in reading.numbers.iter() {
                let paper = self.config.paper.get(name).map_or(String::new(), f64::to_string);
                let _ = writeln!(
                    csv,
                    "{},{},{paper},{value:e},{error:e},{runs}",
                    quoted(&reading.name),
                    quoted(name)
                );
            }
        }
        csv
    }

    fn claims_csv(&self) -> String {
        let mut csv = "claim,reading,verdict,why\n".to_owned();
        for (claim, verdicts) in &self.judged {
            for Judged { name, verdict, .. } in verdicts {
                let _ = writeln!(
                    csv,
                    "{},{},{},{}",
                    quoted(&claim.id),
                    quoted(name),
                    verdict.word(),
                    quoted(&verdict.why())
                );
            }
        }
        csv
    }

    /// The page: claims first, figures, numbers, notes, the setting.
    pub fn page(&self) -> String {
        let title = format!("{}: {}", self.entry.id, self.config.place);
        let body = html! {
            header {
                h1 { (title) }
                p { (self.entry.paper.title) ". \
                    Size: " (self.size()) ", seed " (self.study.seed) "." }
            }
            main {
                section id="claims" { h2 { "Claims" } (self.claims_table()) }
                @match &self.findings {
                    Err(why) => { section id="numbers" { h2 { "Not run" } p { (why) } } }
                    Ok(findings) => {
                        section id="figures" {
                            h2 { "Figures" }
                                div.two { @for figure in &findings.figures { (figure.draw()) } } }
                        section id="numbers" {
                            h2 { "Numbers" }
                                @for reading in &findings.readings {
                                    (self.numbers_table(reading)) } }
                        section id="notes" {
                            h2 { "Notes" } @for note in &findings.notes { p { (note) } } }
                    }
                }
                section id="setting" {
                    h2 { "Setting" }
                    pre { code { (self.study.setting.to_string()) } }
                    p { "The same numbers, bit for bit:" }
                    pre { code { "consilience reproduce " (self.entry.id)
                        " --" (self.study.size.name())
                        @if self.study.published { " --as-published" } } }
                }
            }
        };
        consilience_report::page(&title, &body)
    }

    fn claims_table(&self) -> Markup {
        html! {
            div.table { table.claims {
                thead { tr { th.text { "Claim" } th.text { "Reading" } th { "Verdict" }
                    th.text { "Why" } } }
                tbody {
                    @for (claim, verdicts) in &self.judged {
                        @for (at, Judged { name, verdict, .. }) in verdicts.iter().enumerate() {
                            tr {
                                td.text { @if at == 0 {
                                    (claim.says) " " span.soft { "(" (claim.source) ")" } } }
                                td.text.reading { (name) }
                                td.verdict.good[*verdict == Verdict::Holds].bad[matches!(verdict,
                                    Verdict::Fails(_))] { (verdict.word()) }
                                td.text { (reasons(&verdict.why())) }
                            }
                        }
                    }
                }
            } }
        }
    }

    /// A reading's numbers: those that the paper states are in sight, many others are folded.
    fn numbers_table(&self, reading: &Reading) -> Markup {
        let stated = |n: &&Number| self.config.paper.contains_key(&n.name);
        let all: Vec<&Number> = reading.numbers.iter().collect();
        let (shown, folded) = if all.len() <= MOST_OPEN {
            (all, Vec::new())
        } else {
            all.into_iter().partition(stated)
        };
        html! {
            @if !reading.name.is_empty() { h3 { (reading.name) } p { (reading.says) } }
            @if !shown.is_empty() { (self.numbers_rows(&shown)) }
            @if !folded.is_empty() {
                details {
                    summary { (folded.len()) " numbers" @if !shown.is_empty() { " that the paper \
                        does not state" } }
                    (self.numbers_rows(&folded))
                }
            }
        }
    }

    fn numbers_rows(&self, numbers: &[&Number]) -> Markup {
        html! {
            div.table tabindex="0" role="region" aria-label="Numbers" { table {
                thead { tr { th { "Number" } th { "Paper" } th { "Ours" } th { "Runs" } } }
                tbody {
                    @for n in numbers {
                        tr {
                            th { span.name { (n.name) } }
                            td { @if let Some(paper) = self.config.paper.get(&n.name) {
                                (with_error(*paper, 0.0)) } }
                            td { (with_error(n.value, n.error)) }
                            td { @if n.runs == 0 { "computed" } @else { (n.runs) } }
                        }
                    }
                }
            } }
        }
    }
}

/// The reasons for a verdict: the first is in sight, many more are folded.
pub(crate) fn reasons(why: &str) -> Markup {
    let all: Vec<&str> = why.split("; ").collect();
    html! {
        @if all.len() <= MOST_REASONS { (why) } @else {
            (all[0])
            details { summary { (all.len() - 1) " \
                more" } ul { @for reason in &all[1..] { li { (reason) } } } }
        }
    }
}

fn figures_csv(findings: &Findings) -> String {
    let mut csv = "figure,series,x,y,standard_error\n".to_owned();
    for figure in &findings.figures {
        for series in &figure.series {
            for p in &series.points {
                let _ = writeln!(
                    csv,
                    "{},{},{:e},{:e},{:e}",
                    quoted(&figure.title),
                    quoted(&series.name),
                    p.x,
                    p.y,
                    p.error
                );
            }
        }
    }
    csv
}

/// A cell of a CSV file.
pub(crate) fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.into()
    }
}
