//! Letters between parties that share no more than a folder: numbered, signed with the sender's
//! certificate, sealed so that the receiver alone can read them.
//!
//! A letter is sealed by X25519 with a key that is used once, HKDF-SHA256 and ChaCha20-Poly1305, to
//! a key that the receiver keeps with its state and states in each of its own letters. The
//! signature covers everything that is in the file. Who has stated no key yet can only be sent an
//! empty letter.

use std::path::Path;
use std::time::SystemTime;

use prost::Message;
use rcgen::{KeyPair, SigningKey};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, SignatureVerificationAlgorithm, UnixTime};
use webpki::KeyUsage;
use x25519_dalek::{PublicKey, StaticSecret};

use crate::certs::{self, Papers, belongs_to};
use crate::revoked::Revoked;

/// The name of the server in a letter: sites cannot have it.
pub const SERVER: &str = "server";
const VERSION: u32 = 1;
/// What is signed begins with this, so that no signature made for something else fits.
const SIGNED: &[u8] = b"consilience letter 1\0";
const ALGORITHMS: [&dyn SignatureVerificationAlgorithm; 5] = [
    webpki::ring::ECDSA_P256_SHA256,
    webpki::ring::ECDSA_P384_SHA384,
    webpki::ring::ED25519,
    webpki::ring::RSA_PKCS1_2048_8192_SHA256,
    webpki::ring::RSA_PKCS1_2048_8192_SHA512,
];

/// The key that letters are sealed to.
pub type Address = [u8; 32];
/// The letters of one server, from its first start on, have this in common.
pub type Series = [u8; 16];

#[derive(Clone, PartialEq, Message)]
struct Envelope {
    #[prost(bytes = "vec", tag = "1")]
    content: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    signature: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Content {
    #[prost(uint32, tag = "1")]
    version: u32,
    #[prost(string, tag = "2")]
    from: String,
    #[prost(string, tag = "3")]
    to: String,
    #[prost(bytes = "vec", tag = "4")]
    series: Vec<u8>,
    #[prost(uint64, tag = "5")]
    number: u64,
    /// The sender's certificate.
    #[prost(bytes = "vec", tag = "6")]
    certificate: Vec<u8>,
    /// What to seal letters to that are for the sender.
    #[prost(bytes = "vec", tag = "7")]
    address: Vec<u8>,
    /// What this one is sealed to; empty: it is not sealed, and says nothing.
    #[prost(bytes = "vec", tag = "8")]
    sealed_to: Vec<u8>,
    /// The public half of the key that was used once.
    #[prost(bytes = "vec", tag = "9")]
    once: Vec<u8>,
    #[prost(bytes = "vec", tag = "10")]
    body: Vec<u8>,
}

/// What stands on a letter.
#[derive(Clone, Debug, PartialEq)]
pub struct Heading {
    /// To which letters of the server it belongs.
    pub series: Series,
    /// Its number; an answer has that of the letter which it answers.
    pub number: u64,
}

/// A letter that was opened.
#[derive(Clone, Debug, PartialEq)]
pub struct Letter {
    /// What stands on it.
    pub heading: Heading,
    /// What to seal the answer to.
    pub answer_to: Address,
    /// What it says; `None`: it is sealed to a key that this party no longer has.
    pub says: Option<Vec<u8>>,
}

/// Who a letter must be from.
#[derive(Clone, Copy, Debug)]
pub enum From<'a> {
    /// The server, whose certificate says that it is one.
    Server,
    /// A site, whose certificate has its name.
    Site(&'a str),
}

/// Write and read one party's letters.
pub struct Letters {
    own: String,
    certificate: CertificateDer<'static>,
    key: KeyPair,
    authority: CertificateDer<'static>,
    secret: StaticSecret,
    revoked: Option<Revoked>,
}

impl std::fmt::Debug for Letters {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Letters({}, secret)", self.own)
    }
}

impl Letters {
    /// The letters of a party with this name and these papers. The key that letters to it are
    /// sealed to is in this file; where there is none, it is made.
    pub fn open(
        own: &str,
        papers: &Papers,
        secret: &Path,
        revoked: Option<Revoked>,
    ) -> Result<Letters, String> {
        let pem = |text: &[u8], what: &str| {
            CertificateDer::from_pem_slice(text).map_err(|error| format!("{what}: {error}"))
        };
        let key = KeyPair::from_pem(papers.key_pem())
            .map_err(|error| format!("key.pem cannot be used: {error}"))?;
        Ok(Letters {
            own: own.to_owned(),
            certificate: pem(papers.own_pem().as_bytes(), "cert.pem")?,
            key,
            authority: pem(papers.authority_pem().as_bytes(), "ca.pem")?,
            secret: StaticSecret::from(secret_in(secret)?),
            revoked,
        })
    }

    /// Write a letter. What is not empty must be sealed to somebody.
    pub fn write(
        &self,
        to: &str,
        heading: &Heading,
        address: Option<&Address>,
        says: &[u8],
    ) -> Result<Vec<u8>, String> {
        let mut content = Content {
            version: VERSION,
            from: self.own.clone(),
            to: to.to_owned(),
            series: heading.series.to_vec(),
            number: heading.number,
            certificate: self.certificate.to_vec(),
            address: PublicKey::from(&self.secret).to_bytes().to_vec(),
            ..Content::default()
        };
        match address {
            None if says.is_empty() => {}
            None => return Err(format!("no key is known that letters to {to} are sealed to")),
            Some(address) => {
                let once = StaticSecret::from(random()?);
                let shared = once.diffie_hellman(&PublicKey::from(*address));
                let once = PublicKey::from(&once).to_bytes();
                content.body = says.to_vec();
                lock(shared.as_bytes(), &once, address)?
                    .seal_in_place_append_tag(nonce(), Aad::empty(), &mut content.body)
                    .map_err(|_| "a letter could not be sealed".to_owned())?;
                (content.sealed_to, content.once) = (address.to_vec(), once.to_vec());
            }
        }
        let content = content.encode_to_vec();
        let signature = self
            .key
            .sign(&[SIGNED, &content].concat())
            .map_err(|error| format!("a letter could not be signed: {error}"))?;
        Ok(Envelope { content, signature }.encode_to_vec())
    }

    /// Read a letter that must be from somebody, and for this party. An error says what is wrong
    /// with it.
    pub fn read(&self, file: &[u8], from: From<'_>, now: SystemTime) -> Result<Letter, String> {
        let Envelope { content: signed, signature } =
            Envelope::decode(file).map_err(|_| "it is no letter, or a part of one".to_owned())?;
        let content = Content::decode(&signed[..])
            .map_err(|_| "it is no letter, or a part of one".to_owned())?;
        if content.version != VERSION {
            return Err(format!(
                "it has version {} of letters, and this program reads {VERSION}",
                content.version
            ));
        }
        let certificate = CertificateDer::from(content.certificate.as_slice());
        self.check_sender(&certificate, from, now)?;
        check_signature(&certificate, &[SIGNED, &signed].concat(), &signature)?;
        let sender = match from {
            From::Server => SERVER,
            From::Site(site) => site,
        };
        if content.from != sender || content.to != self.own {
            return Err(format!(
                "it is from {} to {}, and should be from {sender} to {}",
                content.from, content.to, self.own
            ));
        }
        let (Ok(series), Ok(answer_to)) =
            (Series::try_from(&content.series[..]), Address::try_from(&content.address[..]))
        else {
            return Err("its heading cannot be read".into());
        };
        let says = self.unsealed(&content)?;
        Ok(Letter { heading: Heading { series, number: content.number }, answer_to, says })
    }

    fn unsealed(&self, content: &Content) -> Result<Option<Vec<u8>>, String> {
        if content.sealed_to.is_empty() {
            // what is signed but not sealed may say nothing
            return if content.body.is_empty() {
                Ok(Some(Vec::new()))
            } else {
                Err("it is not sealed".into())
            };
        }
        let own = PublicKey::from(&self.secret).to_bytes();
        if content.sealed_to != own {
            return Ok(None);
        }
        let once = Address::try_from(&content.once[..])
            .map_err(|_| "its heading cannot be read".to_owned())?;
        let shared = self.secret.diffie_hellman(&PublicKey::from(once));
        let mut body = content.body.clone();
        let opened = lock(shared.as_bytes(), &once, &own)?
            .open_in_place(nonce(), Aad::empty(), &mut body)
            .map_err(|_| "its seal is broken".to_owned())?
            .len();
        body.truncate(opened);
        Ok(Some(body))
    }

    fn check_sender(
        &self,
        certificate: &CertificateDer<'_>,
        from: From<'_>,
        now: SystemTime,
    ) -> Result<(), String> {
        certified(&self.authority, certificate, from, now)?;
        if self.revoked.as_ref().is_some_and(|revoked| revoked.has(certificate)) {
            return Err("its certificate was revoked".into());
        }
        Ok(())
    }
}

/// Check that an authority gave out a certificate, to a site or to a server, and that it is valid
/// at that time.
pub(crate) fn check_certificate(
    certificate: &CertificateDer<'_>,
    authority: &CertificateDer<'_>,
    of_site: bool,
    now: SystemTime,
) -> Result<(), String> {
    let wrong = |error: webpki::Error| format!("its certificate is not valid here: {error}");
    let end = webpki::EndEntityCert::try_from(certificate).map_err(wrong)?;
    let anchor = webpki::anchor_from_trusted_cert(authority).map_err(wrong)?;
    let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let time = UnixTime::since_unix_epoch(since);
    let usage = if of_site { KeyUsage::client_auth() } else { KeyUsage::server_auth() };
    end.verify_for_usage(&ALGORITHMS, &[anchor], &[], time, usage, None, None).map_err(wrong)?;
    Ok(())
}

/// Check that a certificate is by this authority, for who it must be from, and valid now.
pub(crate) fn certified(
    authority: &CertificateDer<'_>,
    certificate: &CertificateDer<'_>,
    from: From<'_>,
    now: SystemTime,
) -> Result<(), String> {
    check_certificate(certificate, authority, matches!(from, From::Site(_)), now)?;
    match from {
        From::Site(site) if !belongs_to(certificate, site) => {
            Err(format!("its certificate is not that of site \"{site}\""))
        }
        _ => Ok(()),
    }
}

/// Check that whoever has a certificate signed something.
pub(crate) fn check_signature(
    certificate: &CertificateDer<'_>,
    message: &[u8],
    signature: &[u8],
) -> Result<(), String> {
    let end = webpki::EndEntityCert::try_from(certificate)
        .map_err(|error| format!("its certificate cannot be read: {error}"))?;
    if ALGORITHMS.iter().any(|by| end.verify_signature(*by, message, signature).is_ok()) {
        Ok(())
    } else {
        Err("its signature does not fit: it was changed on its way, or forged".into())
    }
}

/// The key of one letter. It is used once, so its nonce need not differ.
fn lock(shared: &[u8; 32], once: &Address, to: &Address) -> Result<LessSafeKey, String> {
    struct Length;
    impl hkdf::KeyType for Length {
        fn len(&self) -> usize {
            CHACHA20_POLY1305.key_len()
        }
    }
    let failed = |_| "a key could not be derived".to_owned();
    let salt = hkdf::Salt::new(hkdf::HKDF_SHA256, SIGNED);
    let mut bytes = [0; 32];
    salt.extract(shared)
        .expand(&[once, to], Length)
        .and_then(|derived| derived.fill(&mut bytes))
        .map_err(failed)?;
    UnboundKey::new(&CHACHA20_POLY1305, &bytes).map(LessSafeKey::new).map_err(failed)
}

fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; 12])
}

/// Random bytes.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], String> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| format!("the system has no entropy: {error}"))?;
    Ok(bytes)
}

/// The secret in a file, which is made for its owner alone if it is not there.
fn secret_in(file: &Path) -> Result<[u8; 32], String> {
    let said = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    match std::fs::read(file) {
        Ok(bytes) => <[u8; 32]>::try_from(&bytes[..]).map_err(|_| said(&"it holds no key")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let secret = random()?;
            certs::write(file, &secret, true).map_err(|error| error.to_string())?;
            Ok(secret)
        }
        Err(error) => Err(said(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn parties(name: &str) -> (std::path::PathBuf, impl Fn(&str, &str) -> Letters) {
        let folder = std::env::temp_dir().join(format!("consilience-letter-{name}"));
        let folder = folder.with_extension(std::process::id().to_string());
        let _ = std::fs::remove_dir_all(&folder);
        let sites = ["north".to_owned(), "the south".to_owned()];
        certs::make(&folder, &sites, &["localhost".into()], SystemTime::now()).unwrap();
        let certs = folder.clone();
        (folder, move |own: &str, papers: &str| {
            let papers = Papers::load(&certs.join(papers)).unwrap();
            Letters::open(own, &papers, &certs.join(format!("{own}.secret")), None).unwrap()
        })
    }

    fn heading(number: u64) -> Heading {
        Heading { series: [7; 16], number }
    }

    #[test]
    fn letters_go_to_and_fro_and_nobody_else_reads_them() {
        let (folder, party) = parties("fro");
        let (server, north, south) =
            (party(SERVER, "server"), party("north", "north"), party("the south", "the south"));
        let now = SystemTime::now();
        let knock = server.write("north", &heading(1), None, &[]).unwrap();
        let read = north.read(&knock, From::Server, now).unwrap();
        assert_eq!((read.heading.clone(), read.says.as_deref()), (heading(1), Some(&[][..])));
        let said = b"a gradient of north, which the drive must not see";
        let answer = north.write(SERVER, &heading(1), Some(&read.answer_to), said).unwrap();
        assert!(!answer.windows(8).any(|part| part == &said[..8]));
        let heard = server.read(&answer, From::Site("north"), now).unwrap();
        assert_eq!(heard.says.as_deref(), Some(&said[..]));
        // the same key serves again, and another site has another
        assert_eq!(party("north", "north").read(&knock, From::Server, now).unwrap(), read);
        let to_north = server.write("north", &heading(2), Some(&heard.answer_to), said).unwrap();
        assert!(south.read(&to_north, From::Server, now).unwrap_err().contains("should be from"));
        // a site that has lost its key can tell that a letter is for it, and not what it says
        std::fs::remove_file(folder.join("north.secret")).unwrap();
        let forgetful = party("north", "north");
        assert_eq!(forgetful.read(&to_north, From::Server, now).unwrap().says, None);
        // nothing that says something goes unsealed
        assert!(server.write("north", &heading(3), None, said).unwrap_err().contains("no key"));
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn forged_and_edited_letters_are_refused_by_what_is_wrong() {
        let (folder, party) = parties("forged");
        let (server, north) = (party(SERVER, "server"), party("north", "north"));
        let now = SystemTime::now();
        let address = north
            .read(&server.write("north", &heading(1), None, &[]).unwrap(), From::Server, now)
            .unwrap()
            .answer_to;
        let answer = north.write(SERVER, &heading(1), Some(&address), b"minus four").unwrap();
        // every byte counts
        for at in 0..answer.len() {
            let mut edited = answer.clone();
            edited[at] ^= 1;
            assert!(server.read(&edited, From::Site("north"), now).is_err(), "byte {at}");
        }
        assert!(server.read(&answer[..90], From::Site("north"), now).unwrap_err().contains("part"));
        let refusal = |letters: &Letters, from: From<'_>, file: &[u8]| {
            letters.read(file, from, now).unwrap_err()
        };
        // a site does not speak for another, nor for the server
        let posing = party("the south", "north");
        let posed = posing.write(SERVER, &heading(1), Some(&address), b"four").unwrap();
        let why = refusal(&server, From::Site("the south"), &posed);
        assert!(why.contains("not that of site \"the south\""), "{why}");
        let posed = party(SERVER, "north").write("north", &heading(9), None, &[]).unwrap();
        let why = refusal(&north, From::Server, &posed);
        assert!(why.contains("certificate is not valid here"), "{why}");
        // another federation's certificates are worth nothing here, nor are old ones
        let (elsewhere, stranger) = parties("elsewhere");
        let strange = stranger("north", "north");
        let strange = strange.write(SERVER, &heading(1), Some(&address), b"four").unwrap();
        let why = refusal(&server, From::Site("north"), &strange);
        assert!(why.contains("certificate is not valid here"), "{why}");
        let later = now + Duration::from_secs(900 * 24 * 3600);
        assert!(server.read(&answer, From::Site("north"), later).is_err());
        for folder in [folder, elsewhere] {
            std::fs::remove_dir_all(folder).unwrap();
        }
    }
}
