//! Keep what a server must remember from one start to the next: which run it is, what all agreed
//! on, and that the run is over and who has heard of it.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use consilience_core::protocol::Statement;
use consilience_engine::config::Config;
use consilience_engine::store::{Disk, Folder};
use serde::{Deserialize, Serialize};

use crate::certs::hex;
use crate::serve::{STATEMENT, ServeError, random};
use crate::talk::Farewell;

const RUN: &str = "run.json";
const OVER: &str = "over.json";

/// A run that came to its end, or was ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Over {
    /// What sites are told.
    pub farewell: Farewell,
    /// Which sites have heard it.
    pub told: BTreeSet<String>,
}

/// What a state folder says of a run before it is served again.
#[derive(Clone, Debug, PartialEq)]
pub struct Past {
    /// The name of the run.
    pub run: String,
    /// How it ended, if it did.
    pub over: Option<Over>,
}

/// What a state folder says of the run of a config; `None`: it has not begun. A folder that another
/// server uses is refused.
pub fn recall(folder: &Path, config: &Config) -> Result<Option<Past>, ServeError> {
    if !folder.join(RUN).exists() {
        return Ok(None);
    }
    let Memory { run, over, .. } = Memory::open(Some(folder), config)?;
    Ok(Some(Past { run, over }))
}

#[derive(Serialize, Deserialize)]
struct RunFile {
    run: String,
    config: String,
}

/// What a server remembers.
pub(crate) struct Memory {
    pub(crate) run: String,
    /// Held as long as the server runs: a second one is refused.
    pub(crate) folder: Option<Folder>,
    pub(crate) over: Option<Over>,
    /// Since when somebody has heard it who is not written down.
    news: Option<Instant>,
}

impl Memory {
    pub(crate) fn open(folder: Option<&Path>, config: &Config) -> Result<Memory, ServeError> {
        let fresh = hex(&random::<16>()?);
        let Some(folder) = folder else {
            return Ok(Memory { run: fresh, folder: None, over: None, news: None });
        };
        let failed = |file: &str| {
            let file = folder.join(file).display().to_string();
            move |error: &dyn std::fmt::Display| ServeError::State(format!("{file}: {error}"))
        };
        let mut disk = Folder::open(folder).map_err(|e| failed(RUN)(&e))?;
        let shown = config.shown_to(usize::MAX);
        let run = match disk.read(RUN).map_err(|e| failed(RUN)(&e))? {
            Some(bytes) => {
                let known: RunFile = serde_json::from_slice(&bytes).map_err(|e| failed(RUN)(&e))?;
                if known.config != shown {
                    return Err(failed(RUN)(
                        &"this is the state of another config: restore the config, or use another \
                            folder for another run",
                    ));
                }
                known.run
            }
            None => {
                let known = RunFile { run: fresh, config: shown };
                let bytes = serde_json::to_vec(&known).map_err(|e| failed(RUN)(&e))?;
                disk.replace(RUN, &bytes).map_err(|e| failed(RUN)(&e))?;
                known.run
            }
        };
        let over = match disk.read(OVER).map_err(|e| failed(OVER)(&e))? {
            None => None,
            Some(bytes) => Some(serde_json::from_slice(&bytes).map_err(|e| failed(OVER)(&e))?),
        };
        Ok(Memory { run, folder: Some(disk), over, news: None })
    }

    /// Keep what all agreed on beside the chains.
    pub(crate) fn keep(&mut self, statement: &Statement) -> Result<(), ServeError> {
        let Some(disk) = &mut self.folder else { return Ok(()) };
        disk.replace(STATEMENT, statement.text().as_bytes())
            .map_err(|error| ServeError::State(format!("{STATEMENT}: {error}")))
    }

    /// The run is over: a server that is started again knows.
    pub(crate) fn is_over(&mut self, farewell: Farewell) -> Result<(), ServeError> {
        let told = match self.over.take() {
            Some(over) if over.farewell == farewell => over.told,
            _ => BTreeSet::new(),
        };
        self.over = Some(Over { farewell, told });
        self.write()
    }

    /// A site has heard that it is over.
    pub(crate) fn has_heard(&mut self, site: &str) {
        if self.over.as_mut().is_some_and(|over| over.told.insert(site.to_owned())) {
            self.news.get_or_insert_with(Instant::now);
        }
    }

    /// Write down who has heard it, if that is known for so long: thousands of sites hear it at
    /// once, and all their names are one file.
    pub(crate) fn note(&mut self, after: Duration) -> Result<(), ServeError> {
        if self.news.is_none_or(|since| since.elapsed() < after) {
            return Ok(());
        }
        self.news = None;
        self.write()
    }

    fn write(&mut self) -> Result<(), ServeError> {
        let (Some(disk), Some(over)) = (&mut self.folder, &self.over) else { return Ok(()) };
        let failed = |error: &dyn std::fmt::Display| ServeError::State(format!("{OVER}: {error}"));
        let bytes = serde_json::to_vec(over).map_err(|e| failed(&e))?;
        disk.replace(OVER, &bytes).map_err(|e| failed(&e))
    }
}
