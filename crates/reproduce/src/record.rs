//! Keep the numbers of a reproduction, so that claims can be judged again without running it.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::catalogue::Entry;
use crate::experiment::{Findings, Reading, Trouble};
use crate::number::{Number, Numbers};
use crate::output::Reproduction;
use crate::study::{Size, Study};

/// What was found, and with which setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The experiment.
    pub experiment: String,
    /// How large it was.
    pub size: Size,
    /// The seed of its random numbers.
    pub seed: u64,
    /// The beginning of the SHA-256 of its setting: numbers of another setting are refused.
    setting: String,
    /// Whether what the authors' program did is among the readings.
    published: bool,
    /// Whether numbers have the few digits that an earlier scorecard printed.
    #[serde(default)]
    pub printed: bool,
    notes: Vec<String>,
    readings: Vec<Kept>,
}

/// Name, value, standard error, runs; `None` is not a number.
type Row = (String, Option<f64>, Option<f64>, usize);

/// A reading with its numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Kept {
    name: String,
    says: String,
    published: bool,
    #[serde(default)]
    absent: Vec<(String, String)>,
    numbers: Vec<Row>,
}

/// The beginning of the digest of a setting.
fn digest(study: &Study) -> String {
    let hash = Sha256::digest(study.setting.to_string());
    hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

/// Where the numbers of an experiment lie in a folder.
pub fn file(folder: &Path, entry: &Entry) -> PathBuf {
    folder.join(entry.paper.key).join(format!("{}.numbers.json", entry.id))
}

impl Record {
    /// What a reproduction found; `None` if nothing.
    pub fn of(done: &Reproduction) -> Option<Self> {
        let findings = done.findings.as_ref().ok()?;
        let finite = |x: f64| x.is_finite().then_some(x);
        let row =
            |n: &Number| -> Row { (n.name.clone(), finite(n.value), finite(n.error), n.runs) };
        let kept = |reading: &Reading| Kept {
            name: reading.name.clone(),
            says: reading.says.clone(),
            published: reading.published,
            absent: reading.numbers.absent().to_vec(),
            numbers: reading.numbers.iter().map(row).collect(),
        };
        Some(Record {
            experiment: done.entry.id.into(),
            size: done.study.size,
            seed: done.study.seed,
            setting: digest(&done.study),
            published: done.study.published,
            printed: false,
            notes: findings.notes.clone(),
            readings: findings.readings.iter().map(kept).collect(),
        })
    }

    /// Read the record of an experiment; `None` if there is none.
    pub fn read(folder: &Path, entry: &Entry) -> Result<Option<Self>, Trouble> {
        let file = file(folder, entry);
        let text = match std::fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Trouble::File { file: file.display().to_string(), error }),
        };
        serde_json::from_str(&text)
            .map(Some)
            .map_err(|error| Trouble::Other(format!("{}: {error}", file.display())))
    }

    /// Write it, a number a line.
    pub fn write(&self, folder: &Path, entry: &Entry) -> Result<PathBuf, Trouble> {
        let file = file(folder, entry);
        let text =
            self.text().map_err(|error| Trouble::Other(format!("{}: {error}", file.display())))?;
        let trouble = |error| Trouble::File { file: file.display().to_string(), error };
        if let Some(parent) = file.parent() {
            std::fs::create_dir_all(parent).map_err(trouble)?;
        }
        std::fs::write(&file, text).map_err(trouble)?;
        Ok(file)
    }

    fn text(&self) -> serde_json::Result<String> {
        let text = serde_json::to_string(self)?;
        // A line for every list and object that lies within a list.
        let mut lines = String::with_capacity(text.len() + 4096);
        let (mut quoted, mut escaped, mut depth) = (false, false, 0i32);
        for character in text.chars() {
            let opens = !quoted && matches!(character, '[' | '{');
            if opens && depth > 1 {
                lines.push('\n');
            }
            match character {
                '"' if !escaped => quoted = !quoted,
                '[' | '{' if !quoted => depth += 1,
                ']' | '}' if !quoted => depth -= 1,
                _ => {}
            }
            escaped = quoted && character == '\\' && !escaped;
            lines.push(character);
        }
        lines.push('\n');
        Ok(lines)
    }

    /// The study that it is of; refused if the setting is another by now.
    pub fn study(&self, entry: &Entry) -> Result<Study, Trouble> {
        let config = entry.config().map_err(Trouble::Other)?;
        let mut study = config.study(entry.paper.key, self.size);
        study.seed = self.seed;
        study.published = self.published;
        if self.experiment != entry.id || self.setting != digest(&study) {
            let id = entry.id;
            let size = self.size.name();
            return Err(Trouble::Other(format!(
                "the kept numbers of {id} are of another setting: `consilience reproduce {id} \
                 --{size} --as-published --keep DIR` makes them anew"
            )));
        }
        Ok(study)
    }

    /// What was found, without figures.
    pub fn findings(&self) -> Findings {
        let number = |(name, value, error, runs): &Row| Number {
            name: name.clone(),
            value: value.unwrap_or(f64::NAN),
            error: error.unwrap_or(f64::NAN),
            runs: *runs,
        };
        let reading = |kept: &Kept| {
            let mut numbers: Numbers = kept.numbers.iter().map(number).collect();
            kept.absent.iter().for_each(|(beginning, why)| numbers.leave_out(beginning, why));
            Reading {
                name: kept.name.clone(),
                says: kept.says.clone(),
                published: kept.published,
                numbers,
            }
        };
        Findings {
            readings: self.readings.iter().map(reading).collect(),
            figures: Vec::new(),
            notes: self.notes.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalogue::find;
    use consilience_engine::run::Progress;

    #[test]
    fn what_is_kept_is_judged_alike() {
        let folder =
            std::env::temp_dir().join(format!("consilience-record-{}", std::process::id()));
        let entry = find("fald-complexity").unwrap();
        let config = entry.config().unwrap();
        let study = config.study(entry.paper.key, Size::Tiny);
        let done = Reproduction::run(
            entry,
            config,
            study,
            &folder.join("cells"),
            true,
            1,
            &Progress::default(),
        )
        .unwrap();
        assert!(Record::read(&folder, entry).unwrap().is_none());
        let record = Record::of(&done).unwrap();
        let file = record.write(&folder, entry).unwrap();
        assert_eq!(Record::read(&folder, entry).unwrap().unwrap(), record);
        let again = Reproduction::kept(entry, &record).unwrap();
        let numbers = |r: &Reproduction| r.findings.as_ref().unwrap().readings[0].numbers.clone();
        assert_eq!(numbers(&again), numbers(&done));
        assert_eq!(again.judged[0].1, done.judged[0].1);
        // A number a line, and a setting that has changed since is refused.
        let text = std::fs::read_to_string(file).unwrap();
        assert!(text.lines().count() > numbers(&done).iter().count());
        let other = Record { setting: "0".into(), ..record };
        assert!(
            Reproduction::kept(entry, &other)
                .err()
                .unwrap()
                .to_string()
                .contains("another setting")
        );
        std::fs::remove_dir_all(folder).unwrap();
    }
}
