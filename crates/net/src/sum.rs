//! Make, sign and check the keys by which sites hide their answers in a sum.
//!
//! Every site makes an X25519 key for a run, keeps it with its state, and signs its public half
//! with the key of its certificate. The server passes them on and is not trusted with that: each
//! site checks that every key was signed by the site whose it is said to be, for this run. All of
//! them stand in the statement. Two sites share what X25519 makes of their keys.

use std::time::SystemTime;

use consilience_core::protocol::PairSecret;
use consilience_core::rng::{ClientId, Purpose, Seed};
use consilience_engine::site::{SecureSite, SumKey};
use rcgen::{KeyPair, SigningKey};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use x25519_dalek::{PublicKey, StaticSecret};

use crate::certs::{Papers, hex};
use crate::letter::{From, certified, check_signature};

/// What is signed begins with this, so that no signature made for something else fits.
const SIGNED: &[u8] = b"consilience secure sum key 1\0";

/// A site's key for one run.
pub(crate) struct SumSecret(StaticSecret);

impl SumSecret {
    /// The key that a seed of this purpose alone stands for.
    pub(crate) fn of(seed: Seed) -> SumSecret {
        let mut words = [0; 8];
        seed.stream(Purpose::Derive, ClientId(0), 0).words(&mut words);
        let mut bytes = [0; 32];
        for (four, word) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(words) {
            *four = word.to_le_bytes();
        }
        SumSecret(StaticSecret::from(bytes))
    }

    /// Its public half, signed by the site's certificate for this run.
    pub(crate) fn signed(&self, papers: &Papers, run: &str, site: &str) -> Result<SumKey, String> {
        let public = PublicKey::from(&self.0).to_bytes();
        let certificate = CertificateDer::from_pem_slice(papers.own_pem().as_bytes())
            .map_err(|error| format!("cert.pem: {error}"))?;
        let signature = KeyPair::from_pem(papers.key_pem())
            .and_then(|key| key.sign(&signed(run, site, &public)))
            .map_err(|error| format!("the key of the secure sum could not be signed: {error}"))?;
        Ok(SumKey {
            public: hex(&public),
            certificate: hex(&certificate),
            signature: hex(&signature),
        })
    }

    /// What this site shares with every other one, each known by its certificate.
    pub(crate) fn shared(
        &self,
        papers: &Papers,
        run: &str,
        (names, own): (&[String], usize),
        sites: &[SecureSite],
        now: SystemTime,
    ) -> Result<Vec<(ClientId, PairSecret)>, String> {
        if sites.len() != names.len() {
            return Err(format!("there are {} keys for {} sites", sites.len(), names.len()));
        }
        let authority = CertificateDer::from_pem_slice(papers.authority_pem().as_bytes())
            .map_err(|error| format!("ca.pem: {error}"))?;
        let mut shared = Vec::new();
        for (index, (SecureSite { key, .. }, name)) in sites.iter().zip(names).enumerate() {
            let wrong = |why: &str| format!("the key of site \"{name}\" is refused: {why}");
            let unread = || wrong("it cannot be read");
            let public = <[u8; 32]>::try_from(unhex(&key.public).ok_or_else(unread)?)
                .map_err(|_| unread())?;
            if index == own {
                if public != PublicKey::from(&self.0).to_bytes() {
                    return Err(wrong("it is not the one that this site has"));
                }
                continue;
            }
            let certificate = CertificateDer::from(unhex(&key.certificate).ok_or_else(unread)?);
            certified(&authority, &certificate, From::Site(name), now).map_err(|e| wrong(&e))?;
            let signature = unhex(&key.signature).ok_or_else(unread)?;
            if check_signature(&certificate, &signed(run, name, &public), &signature).is_err() {
                return Err(wrong("its signature does not fit this run, this site and this key"));
            }
            let secret = self.0.diffie_hellman(&PublicKey::from(public));
            if !secret.was_contributory() {
                return Err(wrong("it is of small order, and shares nothing"));
            }
            shared.push((ClientId(index as u32), secret.to_bytes()));
        }
        Ok(shared)
    }
}

fn signed(run: &str, site: &str, public: &[u8; 32]) -> Vec<u8> {
    let lengths = [run.len() as u64, site.len() as u64].map(u64::to_le_bytes);
    [SIGNED, &lengths[0], run.as_bytes(), &lengths[1], site.as_bytes(), public].concat()
}

/// The bytes of hexadecimal digits.
fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u8> =
        text.chars().map(|c| c.to_digit(16).map(|d| d as u8)).collect::<Option<_>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| high << 4 | low).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::certs;

    #[test]
    fn keys_are_those_of_the_sites_that_signed_them_for_this_run() {
        let folder = std::env::temp_dir().join(format!("consilience-sum-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        let names = ["north", "the south", "east"].map(str::to_owned);
        certs::make(&folder, &names, &["localhost".into()], SystemTime::now()).unwrap();
        let papers = |name: &str| Papers::load(&folder.join(name)).unwrap();
        let secret = |i: usize| SumSecret::of(Seed::new(40 + i as u64));
        let key = |i: usize, run: &str| secret(i).signed(&papers(&names[i]), run, &names[i]);
        let sites: Vec<SecureSite> =
            (0..3).map(|i| SecureSite { rows: 5, key: key(i, "run").unwrap() }).collect();
        let now = SystemTime::now();
        let shared = |own: usize, sites: &[SecureSite]| {
            secret(own).shared(&papers(&names[own]), "run", (&names, own), sites, now)
        };
        // every two have one secret, and no two pairs the same
        let all: Vec<_> = (0..3).map(|own| shared(own, &sites).unwrap()).collect();
        let of = |a: usize, b: u32| all[a].iter().find(|(with, _)| *with == ClientId(b)).unwrap().1;
        assert_eq!((of(0, 1), of(0, 2), of(1, 2)), (of(1, 0), of(2, 0), of(2, 1)));
        assert!(of(0, 1) != of(0, 2) && of(0, 1) != of(1, 2));

        let refused = |change: &dyn Fn(&mut Vec<SecureSite>)| {
            let mut changed = sites.clone();
            change(&mut changed);
            shared(0, &changed).unwrap_err()
        };
        // the server cannot put a key of its own in a site's place
        let own = secret(7).signed(&papers("server"), "run", "east").unwrap();
        let why = refused(&|sites| sites[2].key = own.clone());
        assert!(why.contains("site \"east\"") && why.contains("certificate"), "{why}");
        let posed = secret(7).signed(&papers("the south"), "run", "east").unwrap();
        let why = refused(&|sites| sites[2].key = posed.clone());
        assert!(why.contains("not that of site \"east\""), "{why}");
        // nor a key of another run, nor one with another's signature
        let why = refused(&|sites| sites[2].key = key(2, "another").unwrap());
        assert!(why.contains("signature"), "{why}");
        let why = refused(&|sites| sites[2].key.public = sites[1].key.public.clone());
        assert!(why.contains("signature"), "{why}");
        let why = refused(&|sites| sites[0].key.public = sites[1].key.public.clone());
        assert!(why.contains("not the one that this site has"), "{why}");
        let why = refused(&|sites| sites[1].key.public.push('z'));
        assert!(why.contains("cannot be read"), "{why}");
        assert!(refused(&|sites| sites.truncate(2)).contains("2 keys for 3 sites"));
        // a point of small order, signed by the site itself
        let south = papers("the south");
        let zero = SumKey {
            public: hex(&[0; 32]),
            certificate: sites[1].key.certificate.clone(),
            signature: hex(&KeyPair::from_pem(south.key_pem())
                .and_then(|key| key.sign(&signed("run", "the south", &[0; 32])))
                .unwrap()),
        };
        let why = refused(&|sites| sites[1].key = zero.clone());
        assert!(why.contains("small order"), "{why}");
        std::fs::remove_dir_all(folder).unwrap();
    }
}
