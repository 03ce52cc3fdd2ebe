//! A run with no open port: parties exchange letters as files, by whatever copies files between
//! them (a shared drive, SFTP, mail).
//!
//! A folder holds `to-NAME` and `from-NAME` for each site. The server puts one letter at a time
//! into `to-NAME`, and the site puts its answer, which has the same number, into `from-NAME`. A
//! letter that is not answered is put there again, byte for byte, and so is the answer: files may
//! come twice, late, out of order, or be lost. Nobody removes a file of somebody else; each party
//! removes its own when they have served.
//!
//! Both sides keep what they need on disk before a file appears: the server which numbers it has
//! used, a site the last letter that it answered, and the answer.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use consilience_engine::config::Config;
use consilience_engine::site::names;
use consilience_engine::store::Folder;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use crate::certs::{Papers, hex, name_of_site};
use crate::join::JoinError;
use crate::letter::{Address, From, Heading, Letter, Letters, SERVER, Series, random};
use crate::mailbox::{Correspondent, Mailboxes};
use crate::revoked::Revoked;
use crate::serve::{Admission, Publication, ServeError, ServeOptions, Served, Stage};
use crate::serve::{publish_by_post, tell_over_by_post};
use crate::status::Status;
use crate::talk::Farewell;
use crate::worker::Brings;

const EXTENSION: &str = "letter";

/// Where letters are, and how often parties look.
#[derive(Clone, Debug)]
pub struct Folders {
    /// The folder that holds `to-NAME` and `from-NAME`.
    pub folder: PathBuf,
    /// How long to wait between looks.
    pub look: Duration,
    /// After how long a letter without an answer is put there again.
    pub again: Duration,
    /// A file that cannot be read may be one that is still being copied: it is refused when it has
    /// been so for this long.
    pub copying: Duration,
}

impl Folders {
    /// Look into this folder every half second, and send again every five minutes.
    pub fn new(folder: PathBuf) -> Folders {
        let [look, copying, again] = [500, 5_000, 300_000].map(Duration::from_millis);
        Folders { folder, look, again, copying }
    }

    fn to(&self, site: &str) -> PathBuf {
        self.folder.join(format!("to-{}", name_of_site(site)))
    }

    fn from(&self, site: &str) -> PathBuf {
        self.folder.join(format!("from-{}", name_of_site(site)))
    }
}

fn name(number: u64) -> String {
    format!("{number:08}.{EXTENSION}")
}

/// Write a file so that nobody sees a part of it.
fn put(folder: &Path, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    let part = folder.join(format!("{name}.part"));
    let mut file = fs::File::create(&part)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    drop(file);
    fs::rename(part, folder.join(name))
}

/// What a party keeps of its letters.
fn read_state<T: Default + for<'a> Deserialize<'a>>(file: &Path) -> Result<T, String> {
    let said =
        |error: &dyn std::fmt::Display| format!("{}: {error}. Nothing was changed", file.display());
    match fs::read(file) {
        Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| said(&error)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(T::default()),
        Err(error) => Err(said(&error)),
    }
}

fn write_state<T: Serialize>(file: &Path, state: &T) -> Result<(), String> {
    let said = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let bytes = serde_json::to_vec(state).map_err(|error| said(&error))?;
    let (Some(folder), Some(name)) = (file.parent(), file.file_name()) else {
        return Err(said(&"it is no file"));
    };
    put(folder, &name.to_string_lossy(), &bytes).map_err(|error| said(&error))
}

/// One folder that somebody else puts letters into.
#[derive(Debug)]
struct Inbox {
    folder: PathBuf,
    copying: Duration,
    /// Files as they were when they were read: when they were changed, and what they are.
    known: BTreeMap<PathBuf, (Option<SystemTime>, u64, Known)>,
}

#[derive(Clone, Debug)]
enum Known {
    /// A letter with this heading.
    Letter(Heading),
    /// It could not be read at first at this time.
    Unread(SystemTime),
    /// It was refused.
    Refused,
}

/// A letter that was found.
struct Found {
    letter: Letter,
    /// Whether it was not there, or older, when the folder was looked into before.
    is_new: bool,
}

impl Inbox {
    fn new(folder: PathBuf, copying: Duration) -> Inbox {
        Inbox { folder, copying, known: BTreeMap::new() }
    }

    /// The letter with the highest rank of those that have one. What cannot be read is told of,
    /// once.
    fn look(
        &mut self,
        letters: &Letters,
        from: From<'_>,
        rank: impl Fn(&Heading) -> Option<(bool, u64)>,
        complain: &mut dyn FnMut(&Path, &str),
    ) -> std::io::Result<Option<Found>> {
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            entries => entries?,
        };
        let mut files = Vec::new();
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_some_and(|e| e == EXTENSION)
                && let Ok(about) = fs::metadata(&path)
            {
                files.push((path, about.modified().ok(), about.len()));
            }
        }
        files.sort();
        self.known.retain(|path, _| files.binary_search_by(|f| f.0.cmp(path)).is_ok());
        let now = SystemTime::now();
        let mut best: Option<Found> = None;
        for (path, changed, length) in files {
            let before = self.known.get(&path).filter(|b| (b.0, b.1) == (changed, length)).cloned();
            let is_new = match &before {
                Some((_, _, Known::Refused)) => continue,
                Some((_, _, Known::Letter(heading))) if rank(heading).is_none() => continue,
                Some((_, _, Known::Letter(_))) => false,
                _ => true,
            };
            let Ok(bytes) = fs::read(&path) else { continue };
            let known = match letters.read(&bytes, from, now) {
                Ok(letter) => {
                    let heading = letter.heading.clone();
                    let found = rank(&heading);
                    let better = |best: &Found| rank(&best.letter.heading) <= found;
                    if found.is_some() && best.as_ref().is_none_or(better) {
                        let is_new =
                            is_new || best.as_ref().is_some_and(|b| b.is_new && b.letter == letter);
                        best = Some(Found { letter, is_new });
                    }
                    Known::Letter(heading)
                }
                Err(why) => {
                    let since = match before {
                        Some((_, _, Known::Unread(since))) => since,
                        _ => now,
                    };
                    if now.duration_since(since).unwrap_or_default() < self.copying {
                        Known::Unread(since)
                    } else {
                        complain(&path, &why);
                        Known::Refused
                    }
                }
            };
            self.known.insert(path, (changed, length, known));
        }
        Ok(best)
    }
}

/// What a server keeps of its letters.
#[derive(Default, Serialize, Deserialize)]
struct ServerState {
    series: Series,
    /// The last number that was used for each site.
    numbers: BTreeMap<String, u64>,
}

/// The letter that a site has not answered yet.
struct Open {
    number: u64,
    bytes: Vec<u8>,
    since: Instant,
}

/// Carry letters between the mailboxes of a server and the folder.
struct Carrier<'a> {
    folders: &'a Folders,
    letters: Letters,
    file: PathBuf,
    state: ServerState,
    sites: Vec<String>,
    addresses: Vec<Option<Address>>,
    inboxes: Vec<Inbox>,
    open: Vec<Option<Open>>,
    /// What was said of the folder last: the same is said once.
    trouble: Option<String>,
}

impl<'a> Carrier<'a> {
    fn new(
        folders: &'a Folders,
        papers: &Papers,
        state: &Path,
        revoked: Option<Revoked>,
        sites: &[String],
    ) -> Result<Carrier<'a>, String> {
        Folder::make(state).map_err(|error| format!("{}: {error}", state.display()))?;
        let letters = Letters::open(SERVER, papers, &state.join("letters.key"), revoked)?;
        let file = state.join("letters.json");
        let mut kept: ServerState = read_state(&file)?;
        if kept.series == Series::default() {
            kept.series = random()?;
            write_state(&file, &kept)?;
        }
        Ok(Carrier {
            folders,
            letters,
            file,
            state: kept,
            sites: sites.to_vec(),
            addresses: vec![None; sites.len()],
            inboxes: sites
                .iter()
                .map(|site| Inbox::new(folders.from(site), folders.copying))
                .collect(),
            open: sites.iter().map(|_| None).collect(),
            trouble: None,
        })
    }

    fn carry(&mut self, mailboxes: &Mailboxes, over: &AtomicBool, status: &Status) {
        loop {
            let ends = over.load(Ordering::Relaxed);
            let mut idle = true;
            for site in 0..self.sites.len() {
                match self.turn(site, mailboxes, ends, status) {
                    Ok(moved) => idle &= !moved,
                    Err(why) => {
                        idle = true;
                        if self.trouble.as_ref() != Some(&why) {
                            warn!(%why, "letters cannot be carried: trying again");
                            self.trouble = Some(why);
                        }
                    }
                }
            }
            if ends {
                return;
            }
            if idle {
                std::thread::sleep(self.folders.look);
            }
        }
    }

    /// Do what is to be done for one site; `true`: a letter was sent or heard.
    fn turn(
        &mut self,
        site: usize,
        mailboxes: &Mailboxes,
        ends: bool,
        status: &Status,
    ) -> Result<bool, String> {
        let name = self.sites[site].clone();
        if let Some(open) = &self.open[site] {
            let (number, series) = (open.number, self.state.series);
            let mut complain = |file: &Path, why: &str| {
                warn!(site = %name, file = %file.display(), %why, "a letter is refused");
                let file = file.file_name().unwrap_or_default().to_string_lossy();
                status.refused(Some(site), &format!("the letter {file} is refused: {why}"));
            };
            let is_answer = |heading: &Heading| {
                (*heading == Heading { series, number }).then_some((true, number))
            };
            let found = self.inboxes[site]
                .look(&self.letters, From::Site(&name), is_answer, &mut complain)
                .map_err(|error| format!("{}: {error}", self.folders.from(&name).display()))?;
            if let Some(Found { letter: Letter { answer_to, says: Some(says), .. }, .. }) = found {
                self.addresses[site] = Some(answer_to);
                self.open[site] = None;
                let _ = fs::remove_file(self.folders.to(&name).join(self::name(number)));
                if let Err(why) = mailboxes.deliver(site, &says) {
                    warn!(site = %name, %why, "an answer is refused");
                }
                return Ok(true);
            }
        }
        if let Some(open) = self.open[site].as_mut().filter(|_| !ends) {
            let file = self.folders.to(&name).join(self::name(open.number));
            if open.since.elapsed() >= self.folders.again || !file.exists() {
                put(&self.folders.to(&name), &self::name(open.number), &open.bytes)
                    .map_err(|error| format!("{}: {error}", file.display()))?;
                open.since = Instant::now();
            }
            return Ok(false);
        }
        let Some(bundle) = mailboxes.collect(site) else { return Ok(false) };
        let number = self.state.numbers.get(&name).copied().unwrap_or(0) + 1;
        self.state.numbers.insert(name.clone(), number);
        write_state(&self.file, &self.state)?;
        let heading = Heading { series: self.state.series, number };
        // a knock says nothing, and goes to whoever has the site's key now
        let address = self.addresses[site].as_ref().filter(|_| !bundle.is_empty());
        let bytes = self.letters.write(&name, &heading, address, &bundle)?;
        let before = self.open[site].take().map(|open| open.number);
        let since = Instant::now();
        let sent = put(&self.folders.to(&name), &self::name(number), &bytes);
        self.open[site] = Some(Open { number, bytes, since });
        sent.map_err(|error| format!("{}: {error}", self.folders.to(&name).display()))?;
        if let Some(before) = before {
            let _ = fs::remove_file(self.folders.to(&name).join(self::name(before)));
        }
        self.trouble = None;
        Ok(true)
    }
}

/// Serve a run to its end by letters in folders; see [`crate::serve::publish`].
pub fn publish<K>(
    folders: &Folders,
    config: &Config,
    options: &ServeOptions,
    status: &Arc<Status>,
    tell: impl FnMut(Stage<'_>),
    keep: impl FnOnce(Served) -> Publication<K>,
) -> Result<K, ServeError> {
    carried(folders, config, options, status, |mailboxes| {
        publish_by_post(mailboxes, config, options, status, tell, keep)
    })
}

/// Tell sites by letter that a run is over which ended before; see [`crate::serve::tell_over`].
pub fn tell_over(
    folders: &Folders,
    config: &Config,
    options: &ServeOptions,
    status: &Arc<Status>,
    tell: impl FnMut(Stage<'_>),
    farewell: Farewell,
) -> Result<(), ServeError> {
    carried(folders, config, options, status, |mailboxes| {
        tell_over_by_post(mailboxes, config, options, status, tell, farewell)
    })
}

/// Carry letters while something is done.
fn carried<K>(
    folders: &Folders,
    config: &Config,
    options: &ServeOptions,
    status: &Arc<Status>,
    work: impl FnOnce(&Mailboxes) -> Result<K, ServeError>,
) -> Result<K, ServeError> {
    let Admission::Certificates(papers) = &options.admission else {
        return Err(ServeError::Setup("letters are signed with certificates: give --certs".into()));
    };
    let Some(state) = &options.state else {
        return Err(ServeError::Setup(
            "a run by letters takes long, and must survive the server: give --state".into(),
        ));
    };
    let revoked = options.revoked.as_deref().map(Revoked::open).transpose();
    let sites = names(config)?;
    let mut carrier =
        Carrier::new(folders, papers, state, revoked.map_err(ServeError::Setup)?, &sites)
            .map_err(ServeError::Setup)?;
    let mailboxes = Mailboxes::new(&sites);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let carried = scope.spawn(|| carrier.carry(&mailboxes, &over, status));
        let served = work(&mailboxes);
        over.store(true, Ordering::Relaxed);
        if carried.join().is_err() {
            warn!("the carrier of letters failed: this is a fault of the program");
        }
        served
    })
}

/// What a site keeps of its letters.
#[derive(Default, Serialize, Deserialize)]
struct SiteState {
    series: Series,
    /// The last letter that was answered.
    number: u64,
    /// The answer, which is given again if it is asked for again.
    answer: Vec<u8>,
    /// Series of before: their letters are not answered again.
    past: BTreeSet<String>,
    /// How the run ended.
    over: Option<Farewell>,
}

/// Take part in a run by letters in folders until it is over, and say how it ended.
pub fn attend(
    brings: Brings,
    folders: &Folders,
    papers: &Papers,
    patience: Option<Duration>,
    stop: &AtomicBool,
) -> Result<Farewell, JoinError> {
    let setup = JoinError::Setup;
    let brings = Brings { papers: Some(papers.clone()), ..brings };
    let (site, Some(state)) = (brings.site.clone(), brings.state.clone()) else {
        return Err(setup("a run by letters takes long: give --state".into()));
    };
    Folder::make(&state).map_err(|error| setup(format!("{}: {error}", state.display())))?;
    let stem = name_of_site(&site);
    let letters = Letters::open(&site, papers, &state.join(format!("{stem}.letters.key")), None)
        .map_err(setup)?;
    let file = state.join(format!("{stem}.letters.json"));
    let mut kept: SiteState = read_state(&file).map_err(setup)?;
    let mut correspondent = None;
    let mut inbox = Inbox::new(folders.to(&site), folders.copying);
    let outbox = folders.from(&site);
    let mut complain = |file: &Path, why: &str| {
        warn!(file = %file.display(), %why, "a letter is refused");
    };
    let mut heard = Instant::now();
    let mut trouble = None;
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(JoinError::Stopped);
        }
        let wanted = |heading: &Heading| {
            let is_other = heading.series != kept.series;
            let counts = if is_other {
                !kept.past.contains(&hex(&heading.series))
            } else {
                heading.number >= kept.number
            };
            counts.then_some((is_other, heading.number))
        };
        let found = match inbox.look(&letters, From::Server, wanted, &mut complain) {
            Ok(found) => found,
            Err(error) => {
                let why = format!("{}: {error}", inbox.folder.display());
                if trouble.as_ref() != Some(&why) {
                    warn!(%why, "the folder cannot be read: trying again");
                    trouble = Some(why);
                }
                None
            }
        };
        let Some(Found { letter, .. }) = found.filter(|found| found.is_new) else {
            if let (Some(farewell), true) = (&kept.over, heard.elapsed() > 4 * folders.look) {
                info!("the run was over when this site last heard of it");
                return Ok(farewell.clone());
            }
            if let Some(patience) = patience.filter(|patience| heard.elapsed() > *patience) {
                return Err(JoinError::Away {
                    server: inbox.folder.display().to_string(),
                    seconds: patience.as_secs(),
                    why: "no letter came".into(),
                });
            }
            std::thread::sleep(folders.look);
            continue;
        };
        heard = Instant::now();
        let Letter { heading, answer_to, says } = letter;
        if heading == (Heading { series: kept.series, number: kept.number }) {
            deliver(&outbox, &heading, &kept.answer, None)?; // it did not arrive
            if let Some(farewell) = &kept.over {
                return Ok(farewell.clone());
            }
            continue;
        }
        let correspondent = match &mut correspondent {
            Some(correspondent) => correspondent,
            none => none.insert(Correspondent::new(brings.clone())?),
        };
        // what it cannot open it answers as what it does not know of: with its greeting
        let answered = correspondent.answer(says.as_deref().unwrap_or_default())?;
        let answer =
            letters.write(SERVER, &heading, Some(&answer_to), &answered.bundle).map_err(setup)?;
        let before = (kept.series == heading.series).then_some(kept.number);
        if before.is_none() && kept.series != Series::default() {
            kept.past.insert(hex(&kept.series));
        }
        let is_last = answered.over.is_some();
        // a server that knocks once more has not heard that this site knows
        let over = match answered.over {
            Some(_) => Some(correspondent.ended()),
            None => kept.over.take().filter(|_| before.is_some()),
        };
        let Heading { series, number } = heading;
        kept = SiteState { series, number, answer, over, past: std::mem::take(&mut kept.past) };
        write_state(&file, &kept).map_err(setup)?;
        deliver(&outbox, &heading, &kept.answer, before)?;
        if let Some(trouble) = answered.trouble {
            return Err(trouble.into());
        }
        if let (Some(farewell), true) = (&kept.over, is_last) {
            return Ok(farewell.clone());
        }
    }
}

/// Put an answer into the outbox, and take away the one before: the server has it.
fn deliver(
    outbox: &Path,
    heading: &Heading,
    answer: &[u8],
    before: Option<u64>,
) -> Result<(), JoinError> {
    put(outbox, &name(heading.number), answer)
        .map_err(|error| JoinError::Setup(format!("{}: {error}", outbox.display())))?;
    if let Some(before) = before {
        let _ = fs::remove_file(outbox.join(name(before)));
    }
    Ok(())
}
