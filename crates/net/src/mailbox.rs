//! Carry frames by mailboxes: for transports that deliver bundles of bytes now and then, to sites
//! that wake for each and forget all but what they keep on disk.
//!
//! The server's side is a [`Mailboxes`]: whoever carries the mail collects what waits for a site
//! and delivers what the site answers. An empty bundle is a knock; a site that knows nothing of the
//! run, since it is new or has lost its state, answers with its greeting, and is told everything
//! again. The site's side is a [`Correspondent`]: one bundle in, one out. With a state folder it
//! keeps what it was told, and the state of its chains, on disk before anything leaves, and need
//! not live between letters.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use consilience_engine::store::StoreError;
use prost::Message;
use tokio::sync::mpsc;
use tonic::Status;

use crate::certs::name_of_site;
use crate::frame::{Frame, MESSAGE};
use crate::service::{Event, FarEnd, Link, Numbers, greeted, too_much};
use crate::talk::{Farewell, Instruction, Tell};
use crate::worker::{Brings, Did, SiteError, Worker};

/// The sites' letter boxes at the server.
#[derive(Clone, Debug)]
pub struct Mailboxes(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    sites: Vec<String>,
    numbers: Numbers,
    /// The way to the conductor, while there is one.
    events: Option<mpsc::Sender<Event>>,
    most_message: Arc<AtomicUsize>,
    boxes: Vec<Option<Connection>>,
    generation: u64,
    over: bool,
}

#[derive(Debug)]
struct Connection {
    letters: mpsc::Receiver<Result<Frame, Status>>,
    credit: Arc<AtomicI64>,
    generation: u64,
}

impl Mailboxes {
    /// Letter boxes for these sites.
    pub fn new(sites: &[String]) -> Mailboxes {
        let boxes = sites.iter().map(|_| None).collect();
        let most_message = Arc::default();
        Mailboxes(Arc::new(Mutex::new(Inner {
            sites: sites.to_vec(),
            numbers: Numbers::new(sites),
            events: None,
            most_message,
            boxes,
            generation: 0,
            over: false,
        })))
    }

    /// What waits for a site; `None`: nothing. A site that has not come in yet is knocked for.
    pub fn collect(&self, site: usize) -> Option<Vec<u8>> {
        let mut inner = self.inner();
        if inner.events.is_none() && !inner.over {
            return None; // nobody conducts yet
        }
        let Some(mailbox) = inner.boxes.get_mut(site)?.as_mut() else {
            return (!inner.over).then(Vec::new);
        };
        let mut bundle = Vec::new();
        loop {
            match mailbox.letters.try_recv() {
                Ok(Ok(frame)) => bundle.extend(frame.encode_length_delimited_to_vec()),
                Ok(Err(_)) | Err(mpsc::error::TryRecvError::Empty) => {
                    return (!bundle.is_empty()).then_some(bundle);
                }
                Err(mpsc::error::TryRecvError::Disconnected) => {
                    // the conductor cut it off: what was said last is still carried
                    inner.boxes[site] = None;
                    return (!bundle.is_empty()).then_some(bundle);
                }
            }
        }
    }

    /// Deliver what a site answered. An error says what is wrong with it; the conductor has heard
    /// of it then.
    pub fn deliver(&self, site: usize, bundle: &[u8]) -> Result<(), String> {
        let mut inner = self.inner();
        let Some(events) = inner.events.clone() else {
            // last words need no ear
            return if inner.over { Ok(()) } else { Err("the run has not begun".into()) };
        };
        let refuse = |why: String| {
            let _ = events.blocking_send(Event::Refused { client: Some(site), why: why.clone() });
            Err(why)
        };
        let frames = match unbundled(bundle) {
            Ok(frames) => frames,
            Err(why) => return refuse(why),
        };
        for frame in frames {
            if let Ok(Tell::Hello { .. }) = frame.read() {
                let protocol = match greeted(&inner.numbers, &frame) {
                    Ok((client, _, protocol)) if client == site => protocol,
                    Ok((client, ..)) => {
                        let why = format!(
                            "site \"{}\" answers for site \"{}\"",
                            inner.sites[client], inner.sites[site]
                        );
                        return refuse(why);
                    }
                    Err((_, why)) => return refuse(why),
                };
                inner.generation += 1;
                let (link, far) = Link::open(inner.generation, protocol, None);
                let (generation, FarEnd { outward: letters, credit, .. }) = (link.generation, far);
                inner.boxes[site] = Some(Connection { letters, credit, generation });
                let _ = events.blocking_send(Event::Joined { client: site, link });
                continue;
            }
            let most = inner.most_message.load(std::sync::atomic::Ordering::Relaxed);
            let Some(mailbox) = inner.boxes.get(site).and_then(Option::as_ref) else {
                // the conductor said its own last words, and cut it off
                if frame == Worker::farewell() || matches!(frame.read(), Ok(Tell::Refused(_))) {
                    continue;
                }
                return refuse("it has not come in".into());
            };
            if let Some(why) = too_much(&frame, most, &mailbox.credit) {
                // It would give the same answer whenever it is asked again: it is told so.
                let generation = mailbox.generation;
                let event = Event::Excess { client: site, generation, why: why.clone() };
                let _ = events.blocking_send(event);
                return Err(why);
            }
            let _ = events.blocking_send(Event::Heard {
                client: site,
                generation: mailbox.generation,
                frame,
            });
        }
        Ok(())
    }

    /// Say that a site does not answer: it is knocked for again.
    pub fn lost(&self, site: usize, why: &str) {
        let mut inner = self.inner();
        let Some(mailbox) = inner.boxes.get_mut(site).and_then(Option::take) else { return };
        if let Some(events) = &inner.events {
            let _ = events.blocking_send(Event::Left {
                client: site,
                generation: mailbox.generation,
                why: why.to_owned(),
            });
        }
    }

    /// Open for a conductor.
    pub(crate) fn open(&self, events: mpsc::Sender<Event>, most_message: &Arc<AtomicUsize>) {
        let mut inner = self.inner();
        inner.events = Some(events);
        inner.most_message = Arc::clone(most_message);
    }

    /// The run is over: farewells may still be collected.
    pub(crate) fn close(&self) {
        let mut inner = self.inner();
        inner.events = None;
        inner.over = true;
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner) // letters are whole whatever happened
    }
}

fn unbundled(mut bundle: &[u8]) -> Result<Vec<Frame>, String> {
    let mut frames = Vec::new();
    while !bundle.is_empty() {
        frames.push(
            Frame::decode_length_delimited(&mut bundle)
                .map_err(|error| format!("a bundle that cannot be read: {error}"))?,
        );
    }
    Ok(frames)
}

/// What a site makes of a bundle.
#[derive(Debug)]
pub struct Answered {
    /// What goes back.
    pub bundle: Vec<u8>,
    /// Whether the run is over, and if so whether it came to its end.
    pub over: Option<bool>,
    /// Why the site takes no part, if so. The server is told in the bundle.
    pub trouble: Option<SiteError>,
}

/// A site that is reached by mailboxes. With a state folder it may be made anew for every letter;
/// without, it must live as long as the run.
pub struct Correspondent {
    worker: Worker,
    told: Option<Told>,
    /// Whether it remembers the run.
    knows: bool,
}

impl Correspondent {
    /// A site that brings this, with what it was told before.
    pub fn new(brings: Brings) -> Result<Correspondent, SiteError> {
        let file = |state: &PathBuf| Told {
            file: state.join(format!("{}.told", name_of_site(&brings.site))),
        };
        let told = brings.state.as_ref().map(file);
        let mut worker = Worker::new(brings);
        let known = told.as_ref().map_or(Ok(Vec::new()), Told::read)?;
        let mut knows = !known.is_empty();
        for frame in &known {
            match worker.handle(frame) {
                Ok(_) => {}
                // It has a twin, which knows better: to begin anew would not end.
                Err(SiteError::Store(StoreError::InUse(who))) => {
                    return Err(StoreError::InUse(who).into());
                }
                Err(_) => {
                    knows = false;
                    break;
                }
            }
        }
        Ok(Correspondent { worker, told, knows })
    }

    /// How the run ended and where its draws are, once the server has said so.
    pub fn ended(&self) -> Farewell {
        self.worker.ended()
    }

    /// Do what a bundle asks.
    pub fn answer(&mut self, bundle: &[u8]) -> Result<Answered, SiteError> {
        let frames = unbundled(bundle).map_err(SiteError::Disagree)?;
        let welcomed = |frame: &Frame| matches!(frame.read(), Ok(Instruction::Welcome(_)));
        // A site whose last words were lost has forgotten the run, and is told again that it is
        // over: to greet anew would not end.
        let understood = |frame: &Frame| {
            matches!(
                frame.read(),
                Ok(Instruction::Welcome(_) | Instruction::Bye { .. } | Instruction::Refused(_))
            )
        };
        if !(self.knows && !frames.is_empty() || frames.first().is_some_and(understood)) {
            return Ok(Answered {
                bundle: self.worker.hello().encode_length_delimited_to_vec(),
                over: None,
                trouble: None,
            });
        }
        let mut answered = Answered { bundle: Vec::new(), over: None, trouble: None };
        let mut say =
            |frame: &Frame| answered.bundle.extend(frame.encode_length_delimited_to_vec());
        for frame in &frames {
            let is_order = frame.kind == MESSAGE && !self.worker.surveys(frame);
            match self.worker.handle(frame) {
                Ok(Did::Said(said)) => {
                    if let (false, Some(told)) = (is_order, &self.told) {
                        told.note(frame, welcomed(frame))?; // a chain's state is kept by the chain
                    }
                    self.knows = true;
                    said.iter().for_each(&mut say);
                }
                Ok(Did::Over { finished }) => {
                    self.told.as_ref().map_or(Ok(()), Told::forget)?;
                    say(&Worker::farewell());
                    answered.over = Some(finished);
                    break;
                }
                Err(error) => {
                    say(&Worker::decline(&error));
                    answered.trouble = Some(error);
                    break;
                }
            }
        }
        Ok(answered)
    }
}

/// What a site was told in this run, on disk.
struct Told {
    file: PathBuf,
}

impl Told {
    /// All of it; a letter that was torn by a power cut was never answered, and is dropped.
    fn read(&self) -> Result<Vec<Frame>, StoreError> {
        let bytes = match std::fs::read(&self.file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.failed(error)),
        };
        let mut rest = &bytes[..];
        let mut frames = Vec::new();
        while let Some((record, after)) = rest.split_at_checked(8) {
            let number = |at: usize| {
                u32::from_le_bytes([record[at], record[at + 1], record[at + 2], record[at + 3]])
            };
            let Some((body, after)) = after.split_at_checked(number(0) as usize) else { break };
            match Frame::decode(body) {
                Ok(frame) if crc32fast::hash(body) == number(4) => frames.push(frame),
                _ => break,
            }
            rest = after;
        }
        Ok(frames)
    }

    /// Keep a letter, behind the others or as the first.
    fn note(&self, frame: &Frame, first: bool) -> Result<(), StoreError> {
        let body = frame.encode_to_vec();
        let mut record = (body.len() as u32).to_le_bytes().to_vec();
        record.extend(crc32fast::hash(&body).to_le_bytes());
        record.extend(body);
        let write = || -> std::io::Result<()> {
            if let Some(folder) = self.file.parent() {
                std::fs::create_dir_all(folder)?;
            }
            let mut file = OpenOptions::new()
                .create(true)
                .write(true)
                .append(!first)
                .truncate(first)
                .open(&self.file)?;
            file.write_all(&record)?;
            file.sync_data()
        };
        write().map_err(|error| self.failed(error))
    }

    fn forget(&self) -> Result<(), StoreError> {
        match std::fs::remove_file(&self.file) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(self.failed(error)),
            _ => Ok(()),
        }
    }

    fn failed(&self, error: std::io::Error) -> StoreError {
        StoreError::Io { file: self.file.display().to_string(), error }
    }
}
