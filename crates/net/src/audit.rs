//! Keep a log of what a run's parties did, in which no line can be changed unnoticed: who came and
//! when, what all agreed on, with the signature of every site, what was refused, what the operator
//! ordered, how it ended.
//!
//! Each line is a JSON object that names the SHA-256 of the line before it. Who edits, removes or
//! inserts a line must write all later ones anew, and then the last has another SHA-256 than the
//! one that the sites were told at the end. What a site signed nobody else can sign.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};
use std::path::Path;
use std::time::{Duration, SystemTime};

use consilience_core::protocol::Statement;
use consilience_engine::store::{Disk, Folder};
use rcgen::{KeyPair, SigningKey};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::certs::{Papers, belongs_to, hex};
use crate::letter;

/// The file, in a state folder and in a run folder.
pub const FILE: &str = "audit.jsonl";
/// What is signed begins with this, so that no signature made for something else fits.
const SIGNED: &str = "consilience agreement 1";
/// How many refusals are named; the log is bounded, whoever knocks.
const MOST_REFUSALS: usize = 1000;

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "lowercase")]
pub enum Happened {
    /// The server was started.
    Started {
        /// The name of the run.
        run: String,
        /// The version of its program.
        version: String,
    },
    /// A site came, or came back.
    Joined {
        /// Which.
        site: String,
    },
    /// All agree on this.
    Agreed {
        /// The SHA-256 of the statement.
        sha256: String,
        /// The statement.
        statement: String,
    },
    /// A site signed what all agreed on.
    Signed {
        /// Which.
        site: String,
        /// The SHA-256 of the statement.
        sha256: String,
        /// What it signed it with.
        signature: Signature,
    },
    /// Something was refused.
    Refused {
        /// Whose it was, if that is known.
        site: Option<String>,
        /// Why.
        why: String,
    },
    /// A site cannot go on.
    Blocked {
        /// Which.
        site: String,
        /// Why.
        why: String,
    },
    /// A site's answers dominate or drift.
    Alarm {
        /// Which.
        site: String,
        /// What was said of it.
        says: String,
    },
    /// The operator gave an order, or the server paused the run.
    Ordered {
        /// What.
        order: String,
    },
    /// Every site was told the draws, to draw the effects of its own groups.
    Told {
        /// How many.
        draws: u64,
        /// In how many bytes for each site.
        bytes: u64,
    },
    /// The chains came to their end, or the run was ended.
    Ended {
        /// Whether early.
        early: bool,
    },
}

impl fmt::Display for Happened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Happened::Started { run, version } => {
                write!(f, "the server started: run {run}, version {version}")
            }
            Happened::Joined { site } => write!(f, "{site} joined"),
            Happened::Agreed { sha256, .. } => write!(f, "all agreed on {sha256}"),
            Happened::Signed { site, sha256, .. } => write!(f, "{site} signed {sha256}"),
            Happened::Refused { site: None, why } => write!(f, "refused: {why}"),
            Happened::Refused { site: Some(site), why } => write!(f, "{site} was refused: {why}"),
            Happened::Blocked { site, why } => write!(f, "{site} blocked the run: {why}"),
            Happened::Alarm { says, .. } => write!(f, "alarm: {says}"),
            Happened::Ordered { order } => write!(f, "ordered: {order}"),
            Happened::Told { draws, bytes } => {
                write!(f, "every site was told the {draws} draws, in {bytes} bytes")
            }
            Happened::Ended { early: false } => f.write_str("the chains came to their end"),
            Happened::Ended { early: true } => f.write_str("the run was ended early"),
        }
    }
}

/// A site's signature under what all agreed on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Signature {
    /// The site's certificate, DER in hexadecimal digits.
    certificate: String,
    /// The signature, likewise.
    signature: String,
}

impl Signature {
    /// Sign what all agreed on in a run.
    pub fn new(papers: &Papers, run: &str, site: &str, sha256: &str) -> Result<Signature, String> {
        let certificate = CertificateDer::from_pem_slice(papers.own_pem().as_bytes())
            .map_err(|error| format!("cert.pem: {error}"))?;
        let key = KeyPair::from_pem(papers.key_pem())
            .map_err(|error| format!("key.pem cannot be used: {error}"))?;
        let signature = key
            .sign(&signed(run, site, sha256))
            .map_err(|error| format!("the agreement could not be signed: {error}"))?;
        Ok(Signature { certificate: hex(&certificate), signature: hex(&signature) })
    }

    /// Check that a site signed this; with an authority, that it gave out the certificate.
    pub fn check(
        &self,
        run: &str,
        site: &str,
        sha256: &str,
        authority: Option<&CertificateDer<'_>>,
        now: SystemTime,
    ) -> Result<(), String> {
        let (Some(certificate), Some(signature)) =
            (unhex(&self.certificate), unhex(&self.signature))
        else {
            return Err("the signature cannot be read".into());
        };
        let certificate = CertificateDer::from(certificate);
        if !belongs_to(&certificate, site) {
            return Err(format!("the certificate is not that of site \"{site}\""));
        }
        if let Some(authority) = authority {
            letter::check_certificate(&certificate, authority, true, now)?;
        }
        letter::check_signature(&certificate, &signed(run, site, sha256), &signature)
    }
}

fn signed(run: &str, site: &str, sha256: &str) -> Vec<u8> {
    [SIGNED, run, site, sha256].join("\0").into_bytes()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    Some(digits.chunks_exact(2).map(|pair| 16 * pair[0] + pair[1]).collect())
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its number, from 1.
    pub number: u64,
    /// When, in seconds since 1970.
    pub time: u64,
    /// The SHA-256 of the line before; empty in the first.
    pub before: String,
    /// What happened.
    pub happened: Happened,
}

impl Entry {
    /// When it happened.
    pub fn time(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(self.time)
    }
}

/// What is wrong with a log, and in which line.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("line {line} of the audit log: {why}")]
pub struct Broken {
    /// The line, from 1.
    pub line: usize,
    /// What is wrong.
    pub why: String,
}

/// Check every line of a log: numbers, hashes, statements and signatures.
pub fn verify(
    text: &str,
    authority: Option<&CertificateDer<'_>>,
) -> Result<(Vec<Entry>, String), Broken> {
    let (entries, head) = read(text)?;
    let mut run = String::new();
    for entry in &entries {
        let broken = |why: String| Broken { line: entry.number as usize, why };
        match &entry.happened {
            Happened::Started { run: name, .. } if run.is_empty() => run.clone_from(name),
            Happened::Started { run: name, .. } if *name != run => {
                return Err(broken(format!("it is of the run {name}, the first of {run}")));
            }
            Happened::Agreed { sha256, statement }
                if Statement::written(statement).hash() != *sha256 =>
            {
                return Err(broken("the statement is not the one that was agreed on".into()));
            }
            Happened::Signed { site, sha256, signature } => signature
                .check(&run, site, sha256, authority, entry.time())
                .map_err(|why| broken(format!("site \"{site}\": {why}")))?,
            _ => {}
        }
    }
    Ok((entries, head))
}

/// The same with an authority as PEM.
pub fn checked(text: &str, authority: Option<&str>) -> Result<(Vec<Entry>, String), String> {
    let read = |pem: &str| {
        CertificateDer::from_pem_slice(pem.as_bytes()).map_err(|error| format!("ca.pem: {error}"))
    };
    let authority = authority.map(read).transpose()?;
    verify(text, authority.as_ref()).map_err(|broken| broken.to_string())
}

/// Who signed a statement with this SHA-256; `None`: it was not agreed on.
pub fn signers(entries: &[Entry], hash: &str) -> Option<Vec<String>> {
    let agreed = |entry: &Entry| match &entry.happened {
        Happened::Agreed { sha256, .. } => sha256 == hash,
        _ => false,
    };
    entries.iter().any(agreed).then(|| {
        let signer = |entry: &Entry| match &entry.happened {
            Happened::Signed { site, sha256, .. } if sha256 == hash => Some(site.clone()),
            _ => None,
        };
        entries.iter().filter_map(signer).collect()
    })
}

/// The lines of a log, if each names the one before it, and the SHA-256 of the last.
fn read(text: &str) -> Result<(Vec<Entry>, String), Broken> {
    let (mut entries, mut head) = (Vec::new(), String::new());
    for (k, line) in text.lines().enumerate() {
        let broken = |why: &str| Broken { line: k + 1, why: why.to_owned() };
        let entry: Entry =
            serde_json::from_str(line).map_err(|_| broken("it cannot be read: it was edited"))?;
        if entry.number != k as u64 + 1 {
            return Err(broken("its number is another: a line was removed or added"));
        }
        if entry.before != head {
            return Err(broken(
                "it does not follow on the line before: that one was edited, or removed",
            ));
        }
        head = hash(line);
        entries.push(entry);
    }
    Ok((entries, head))
}

/// The SHA-256 of the last line of a log.
pub fn head(text: &str) -> String {
    text.lines().next_back().map(hash).unwrap_or_default()
}

fn hash(line: &str) -> String {
    hex(&Sha256::digest(line.as_bytes()))
}

/// The log of a run that is served.
#[derive(Debug, Default)]
pub struct Audit {
    text: String,
    entries: u64,
    head: String,
    /// What is not written twice.
    known: BTreeSet<String>,
    refusals: usize,
    disk: Option<Folder>,
}

impl Audit {
    /// The log of a run, in a folder of its own inside a state folder where there is one: what it
    /// holds is checked, and continued.
    pub fn open(state: Option<&Path>) -> Result<Audit, String> {
        let Some(state) = state else { return Ok(Audit::default()) };
        let folder = state.join("audit");
        let failed = |error: &dyn std::fmt::Display| format!("{}: {error}", folder.display());
        let mut disk = Folder::open(&folder).map_err(|e| failed(&e))?;
        let bytes = disk.read(FILE).map_err(|e| failed(&e))?.unwrap_or_default();
        // a power cut may have torn the last line
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if whole < bytes.len() {
            disk.cut(FILE, whole as u64).map_err(|e| failed(&e))?;
        }
        let text = String::from_utf8(bytes[..whole].to_vec())
            .map_err(|_| failed(&"the audit log is no text: it was edited"))?;
        let (entries, head) = read(&text).map_err(|e| failed(&e))?;
        let mut audit = Audit { text, head, entries: entries.len() as u64, ..Audit::default() };
        for entry in &entries {
            audit.is_news(&entry.happened);
        }
        audit.disk = Some(disk);
        Ok(audit)
    }

    /// Whether something must be written: not what stands there already, nor refusals without end.
    fn is_news(&mut self, happened: &Happened) -> bool {
        let key = match happened {
            Happened::Started { .. } | Happened::Joined { .. } | Happened::Ordered { .. } => {
                return true;
            }
            // no two signatures of one text are alike
            Happened::Signed { site, sha256, .. } => format!("signed {site} {sha256}"),
            Happened::Alarm { site, .. } => format!("alarm {site}"),
            Happened::Refused { .. } | Happened::Blocked { .. } => {
                if self.refusals >= MOST_REFUSALS {
                    return false;
                }
                format!("{happened:?}")
            }
            Happened::Agreed { .. } | Happened::Told { .. } | Happened::Ended { .. } => {
                format!("{happened:?}")
            }
        };
        let news = self.known.insert(key);
        let refusal = matches!(happened, Happened::Refused { .. } | Happened::Blocked { .. });
        self.refusals += usize::from(news && refusal);
        news
    }

    /// Write down what happened, durable on return.
    pub fn note(&mut self, happened: Happened, now: SystemTime) -> std::io::Result<()> {
        if !self.is_news(&happened) {
            return Ok(());
        }
        let time = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let before = self.head.clone();
        let entry = Entry { number: self.entries + 1, time, before, happened };
        let line = serde_json::to_string(&entry).unwrap_or_default();
        self.head = hash(&line);
        self.entries += 1;
        let _ = writeln!(self.text, "{line}");
        if let Some(disk) = &mut self.disk {
            disk.append(FILE, format!("{line}\n").as_bytes())?;
            disk.sync(FILE)?;
        }
        Ok(())
    }

    /// All lines.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The SHA-256 of the last line.
    pub fn head(&self) -> &str {
        &self.head
    }

    /// The alarms of earlier starts, with their sites.
    pub fn alarms(&self) -> Vec<(String, String)> {
        let (entries, _) = read(&self.text).unwrap_or_default();
        let alarm = |entry: Entry| match entry.happened {
            Happened::Alarm { site, says } => Some((site, says)),
            _ => None,
        };
        entries.into_iter().filter_map(alarm).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certs;

    fn papers() -> (std::path::PathBuf, impl Fn(&str) -> Papers) {
        let folder = std::env::temp_dir().join(format!("consilience-audit-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let sites = ["east".to_owned(), "west".to_owned()];
        certs::make(&folder, &sites, &["localhost".into()], SystemTime::now()).unwrap();
        let of = folder.clone();
        (folder, move |name: &str| Papers::load(&of.join(name)).unwrap())
    }

    /// Every edit of every line is found, and what a site signed nobody else can sign.
    #[test]
    fn an_edited_line_is_found() {
        let (folder, papers) = papers();
        let now = SystemTime::now();
        let statement = Statement::new([("prior", "normal")]);
        let sha256 = statement.hash();
        let sign = |site: &str, by: &str| Happened::Signed {
            site: site.into(),
            sha256: sha256.clone(),
            signature: Signature::new(&papers(by), "r1", site, &sha256).unwrap(),
        };
        let state = folder.join("state");
        let mut audit = Audit::open(Some(&state)).unwrap();
        let mut note = |happened| audit.note(happened, now).unwrap();
        note(Happened::Started { run: "r1".into(), version: "1".into() });
        note(Happened::Joined { site: "east".into() });
        let text = statement.text().to_owned();
        note(Happened::Agreed { sha256: sha256.clone(), statement: text });
        note(sign("east", "east"));
        note(sign("east", "east")); // known
        note(sign("west", "west"));
        for _ in 0..3 {
            note(Happened::Refused { site: None, why: "a flood".into() });
        }
        note(Happened::Ended { early: false });
        drop(audit);
        let audit = Audit::open(Some(&state)).unwrap();
        let text = audit.text().to_owned();
        assert_eq!(text, std::fs::read_to_string(state.join("audit").join(FILE)).unwrap());
        let authority = papers("east").authority_pem();
        let authority = CertificateDer::from_pem_slice(authority.as_bytes()).unwrap();
        let (entries, head) = verify(&text, Some(&authority)).unwrap();
        assert_eq!((entries.len(), head.as_str()), (7, audit.head()));
        let lines: Vec<&str> = text.lines().collect();
        for k in 0..lines.len() - 1 {
            let mut edited = lines.clone();
            let other = lines[k].replacen("\"time\":1", "\"time\":2", 1);
            edited[k] = &other;
            let broken = verify(&edited.join("\n"), None).unwrap_err();
            assert_eq!(broken.line, k + 2, "{broken}");
            let removed: Vec<&str> =
                lines.iter().enumerate().filter(|(j, _)| *j != k).map(|(_, line)| *line).collect();
            assert_eq!(verify(&removed.join("\n"), None).unwrap_err().line, k + 1);
        }
        // an edit of the last line changes the head, which the sites were told
        let other = text.replace("\"early\":false", "\"early\":true");
        assert_ne!(verify(&other, None).unwrap().1, head);
        // a server that writes all anew cannot sign for a site
        let mut forged = Audit::default();
        forged.note(Happened::Started { run: "r1".into(), version: "1".into() }, now).unwrap();
        forged.note(sign("west", "east"), now).unwrap();
        let why = verify(forged.text(), None).unwrap_err().to_string();
        assert_eq!(
            why,
            "line 2 of the audit log: site \"west\": the certificate is not that of \
            site \"west\""
        );
        let mut other_run = Audit::default();
        other_run.note(Happened::Started { run: "r2".into(), version: "1".into() }, now).unwrap();
        other_run.note(sign("west", "west"), now).unwrap();
        let why = verify(other_run.text(), None).unwrap_err().to_string();
        assert!(why.contains("its signature does not fit"), "{why}");
        drop(audit);
        // what was edited is not continued, what a power cut tore is
        let file = state.join("audit").join(FILE);
        std::fs::write(&file, format!("{text}{{\"number\":")).unwrap();
        assert_eq!(Audit::open(Some(&state)).unwrap().text(), text);
        std::fs::write(&file, text.replace("a flood", "nothing")).unwrap();
        let why = Audit::open(Some(&state)).unwrap_err();
        assert!(why.contains("line 7 of the audit log"), "{why}");
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_log_is_bounded_whoever_knocks() {
        let mut audit = Audit::default();
        for k in 0..5000 {
            let why = format!("stranger {k}");
            audit.note(Happened::Refused { site: None, why }, SystemTime::now()).unwrap();
        }
        assert_eq!(audit.text().lines().count(), MOST_REFUSALS);
    }
}
