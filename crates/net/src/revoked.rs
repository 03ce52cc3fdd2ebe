//! Know certificates that are no longer valid: by a list that is read again whenever it changes,
//! and by the date until which each is valid.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rustls_pki_types::CertificateDer;
use sha2::{Digest, Sha256};
use tracing::warn;

use crate::certs::hex;

/// How long before its end a certificate is named in the log.
pub const AHEAD: Duration = Duration::from_secs(30 * 24 * 3600);

/// The SHA-256 of a certificate, as `openssl x509 -fingerprint -sha256` has it, without colons.
pub fn fingerprint(certificate: &CertificateDer<'_>) -> String {
    let digest: [u8; 32] = Sha256::digest(certificate.as_ref()).into();
    hex(&digest)
}

/// A list of certificates that were revoked: a text file with one fingerprint a line. Colons, upper
/// case and whatever stands behind a `#` do not matter.
#[derive(Debug)]
pub struct Revoked {
    file: PathBuf,
    known: Mutex<(Option<SystemTime>, BTreeSet<String>)>,
}

impl Revoked {
    /// The list in this file, which must be readable now.
    pub fn open(file: &Path) -> Result<Revoked, String> {
        let revoked = Revoked { file: file.to_path_buf(), known: Mutex::default() };
        let listed = revoked.read().map_err(|error| format!("{}: {error}", file.display()))?;
        *revoked.known.lock().unwrap_or_else(PoisonError::into_inner) = listed;
        Ok(revoked)
    }

    fn read(&self) -> std::io::Result<(Option<SystemTime>, BTreeSet<String>)> {
        let changed = std::fs::metadata(&self.file)?.modified().ok();
        let text = std::fs::read_to_string(&self.file)?;
        let line = |line: &str| {
            let stated = line.split('#').next().unwrap_or_default();
            let digits = stated.chars().filter(char::is_ascii_hexdigit);
            digits.map(|c| c.to_ascii_lowercase()).collect::<String>()
        };
        Ok((changed, text.lines().map(line).filter(|line| line.len() == 64).collect()))
    }

    /// Whether a certificate is on the list as it is now. A list that cannot be read is the list
    /// that was read before.
    pub fn has(&self, certificate: &CertificateDer<'_>) -> bool {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = std::fs::metadata(&self.file).and_then(|about| about.modified()).ok();
        if changed != known.0 {
            match self.read() {
                Ok(listed) => *known = listed,
                Err(error) => {
                    warn!(file = %self.file.display(), %error, "the list of revoked certificates \
                        cannot be read: the old one is used");
                    known.0 = changed; // said once for each change
                }
            }
        }
        known.1.contains(&fingerprint(certificate))
    }
}

/// Until when a certificate is valid.
pub fn expires(certificate: &CertificateDer<'_>) -> Option<SystemTime> {
    let (_, certificate, _) = element(certificate.as_ref())?;
    let (_, mut rest, _) = element(certificate)?; // what is signed
    if rest.first() == Some(&0xa0) {
        rest = element(rest)?.2; // the version
    }
    for _ in 0..3 {
        rest = element(rest)?.2; // serial number, algorithm, issuer
    }
    let (_, validity, _) = element(rest)?;
    let (_, _, after_start) = element(validity)?;
    let (kind, end, _) = element(after_start)?;
    let text = std::str::from_utf8(end).ok()?;
    let digits = |from: usize, to: usize| text.get(from..to)?.parse::<i64>().ok();
    // two digits of the year stand for 1950 to 2049 (RFC 5280, 4.1.2.5.1)
    let (year, at) = match kind {
        0x17 => (digits(0, 2).map(|y| if y < 50 { 2000 + y } else { 1900 + y })?, 2),
        0x18 => (digits(0, 4)?, 4),
        _ => return None,
    };
    let month = time::Month::try_from(u8::try_from(digits(at, at + 2)?).ok()?).ok()?;
    let part = |k: usize| u8::try_from(digits(at + k, at + k + 2)?).ok();
    let date = time::Date::from_calendar_date(i32::try_from(year).ok()?, month, part(2)?).ok()?;
    let moment = date.with_hms(part(4)?, part(6)?, part(8)?).ok()?.assume_utc();
    Some(moment.into())
}

/// The first element of DER: its tag, its contents, and what follows it.
fn element(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (tag, length, rest) = (*der.first()?, usize::from(*der.get(1)?), der.get(2..)?);
    let (length, rest) = if length < 0x80 {
        (length, rest)
    } else {
        let (bytes, rest) = rest.split_at_checked(length & 0x7f)?;
        if bytes.len() > 4 {
            return None;
        }
        (bytes.iter().fold(0, |sum, byte| sum << 8 | usize::from(*byte)), rest)
    };
    let (contents, rest) = rest.split_at_checked(length)?;
    Some((tag, contents, rest))
}

/// What to say of a certificate that ends soon, or has ended; nothing of others.
pub fn ends_soon(certificate: &CertificateDer<'_>, now: SystemTime) -> Option<String> {
    let end = expires(certificate)?;
    match end.duration_since(now) {
        Ok(left) if left > AHEAD => None,
        Ok(left) => Some(format!("is valid for {} more days", left.as_secs() / (24 * 3600))),
        Err(_) => Some("is no longer valid".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certs;
    use rustls_pki_types::pem::PemObject;

    const DAY: Duration = Duration::from_secs(24 * 3600);

    #[test]
    fn certificates_are_named_weeks_before_they_end_and_when_they_are_revoked() {
        let folder =
            std::env::temp_dir().join(format!("consilience-revoked-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let made = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_123);
        let sites = ["east".to_owned(), "west".to_owned()];
        certs::make(&folder, &sites, &["localhost".into()], made).unwrap();
        let first =
            |site: &str| CertificateDer::from_pem_file(folder.join(site).join("cert.pem")).unwrap();
        let (east, west) = (first("east"), first("west"));
        let end = made + DAY * certs::DAYS as u32;
        assert_eq!(expires(&east), Some(end));
        assert_eq!(ends_soon(&east, end - 31 * DAY), None);
        let soon = ends_soon(&east, end - 10 * DAY - DAY / 2);
        assert_eq!(soon.as_deref(), Some("is valid for 10 more days"));
        assert_eq!(ends_soon(&east, end + DAY).as_deref(), Some("is no longer valid"));
        for cut in 0..east.len() {
            let _ = expires(&CertificateDer::from(east[..cut].to_vec())); // no panic
        }
        let file = folder.join("revoked.txt");
        assert!(Revoked::open(&file).unwrap_err().contains("revoked.txt"));
        std::fs::write(&file, "# nobody yet\n").unwrap();
        let revoked = Revoked::open(&file).unwrap();
        assert!(!revoked.has(&east) && !revoked.has(&west));
        let pairs: Vec<String> = fingerprint(&east)
            .as_bytes()
            .chunks(2)
            .map(|pair| String::from_utf8_lossy(pair).to_uppercase())
            .collect();
        std::fs::write(&file, format!("{} # lost\n", pairs.join(":"))).unwrap();
        let later = SystemTime::now() + DAY; // whatever the clock of the disk is
        std::fs::File::options().write(true).open(&file).unwrap().set_modified(later).unwrap();
        assert!(revoked.has(&east) && !revoked.has(&west), "it is read again");
        std::fs::remove_file(&file).unwrap();
        assert!(revoked.has(&east), "a list that is gone revokes as before");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
