//! Make a certificate authority, and the certificates of the server and its sites.
//!
//! A site is known by the DNS name in its certificate: the site's own name where that can be one,
//! else a name made of its hash. So any authority can issue the certificates; this one is for those
//! who have none.

use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, DnsName, ServerName};
use sha2::{Digest, Sha256};
use thiserror::Error;
use time::{Duration, OffsetDateTime};
use tonic::transport::{Certificate, Identity};

/// The DNS name that stands for an operator in its certificate: no site can have it.
pub const OPERATOR: &str = "operator.consilience";
/// How long certificates are valid, in days.
pub const DAYS: i64 = 825;

/// Why there are no certificates.
#[derive(Debug, Error)]
pub enum CertError {
    /// Something is there already.
    #[error("{} exists and is not an empty folder: nothing was overwritten. Choose another name, \
        or remove it first", .0.display())]
    Exists(PathBuf),
    /// A file cannot be written or read.
    #[error("{}: {error}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// Why not.
        error: std::io::Error,
    },
    /// A name that stands for no site, or twice.
    #[error("{0}")]
    Name(String),
    /// The certificate could not be made.
    #[error("a certificate could not be made: {0}")]
    Made(#[from] rcgen::Error),
    /// Nothing is random here.
    #[error("the system has no entropy: {0}")]
    Entropy(String),
}

fn at(file: &Path) -> impl FnOnce(std::io::Error) -> CertError {
    let file = file.to_path_buf();
    move |error| CertError::Io { file, error }
}

/// What one party needs to show who it is, and to know the others.
#[derive(Clone)]
pub struct Papers {
    /// The authority that all parties trust.
    pub authority: Certificate,
    /// This party's own certificate and key.
    pub identity: Identity,
    /// Its certificate alone.
    own: String,
    /// Its key alone.
    key: String,
}

impl std::fmt::Debug for Papers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Papers(secret)")
    }
}

impl Papers {
    /// Read the three files of one party: `ca.pem`, `cert.pem`, `key.pem`.
    pub fn load(folder: &Path) -> Result<Papers, CertError> {
        let read = |name: &str| {
            let file = folder.join(name);
            fs::read(&file).map_err(at(&file))
        };
        let (own, key) = (read("cert.pem")?, read("key.pem")?);
        Ok(Papers {
            authority: Certificate::from_pem(read("ca.pem")?),
            identity: Identity::from_pem(&own, &key),
            own: String::from_utf8_lossy(&own).into_owned(),
            key: String::from_utf8_lossy(&key).into_owned(),
        })
    }

    /// What to say if this party's own certificate ends soon.
    pub fn end_soon(&self, now: SystemTime) -> Option<String> {
        let certificate = CertificateDer::from_pem_slice(self.own.as_bytes()).ok()?;
        crate::revoked::ends_soon(&certificate, now)
    }

    /// This party's certificate as PEM.
    pub fn own_pem(&self) -> &str {
        &self.own
    }

    /// This party's key as PEM.
    pub(crate) fn key_pem(&self) -> &str {
        &self.key
    }

    /// The authority as PEM, to be handed around.
    pub fn authority_pem(&self) -> String {
        String::from_utf8_lossy(self.authority.as_ref()).into_owned()
    }
}

/// The DNS name that stands for a site in its certificate.
pub fn name_of_site(site: &str) -> String {
    let plain = site.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && site.starts_with(|c: char| c.is_ascii_lowercase())
        && !site.ends_with('-')
        && site.len() <= 63
        && !site.starts_with("site-");
    if plain {
        return site.to_owned();
    }
    let digest: [u8; 32] = Sha256::digest(site.as_bytes()).into();
    format!("site-{}", hex(&digest[..16]))
}

/// Whether a certificate, whose chain is verified already, is this site's.
pub fn belongs_to(certificate: &CertificateDer<'_>, site: &str) -> bool {
    is_valid_for(certificate, name_of_site(site))
}

/// Whether a certificate, whose chain is verified already, is an operator's.
pub fn is_operators(certificate: &CertificateDer<'_>) -> bool {
    is_valid_for(certificate, OPERATOR.to_owned())
}

fn is_valid_for(certificate: &CertificateDer<'_>, name: String) -> bool {
    let Ok(name) = DnsName::try_from(name) else { return false };
    webpki::EndEntityCert::try_from(certificate)
        .is_ok_and(|end| end.verify_is_valid_for_subject_name(&ServerName::DnsName(name)).is_ok())
}

/// Bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Make an authority, the server's certificate and one for each site, in a new folder.
pub fn make(
    folder: &Path,
    sites: &[String],
    server_names: &[String],
    now: SystemTime,
) -> Result<(), CertError> {
    let occupied = fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some());
    if occupied || folder.is_file() {
        return Err(CertError::Exists(folder.to_path_buf()));
    }
    for (i, site) in sites.iter().enumerate() {
        let odd = site.is_empty() || site.contains(['/', '\\', '\0']) || site.starts_with('.');
        if odd || ["authority", "server", "operator"].contains(&site.as_str()) {
            return Err(CertError::Name(format!(
                "\"{site}\" cannot be a site's folder: use another name"
            )));
        }
        if sites[..i].contains(site) {
            return Err(CertError::Name(format!(
                "two sites are called \"{site}\": give each its own name"
            )));
        }
    }
    if sites.is_empty() {
        return Err(CertError::Name("no site is named: use --sites a,b,c".into()));
    }
    let now = date(now);
    let authority = authority(now)?;
    let authority_pem = authority.1.pem();
    let party =
        |name: &str, names: Vec<String>, usage: ExtendedKeyUsagePurpose| -> Result<(), CertError> {
            let (certificate, key) = issue(&authority.0, name, names, usage, now)?;
            let folder = folder.join(name);
            fs::create_dir_all(&folder).map_err(at(&folder))?;
            write(&folder.join("ca.pem"), authority_pem.as_bytes(), false)?;
            write(&folder.join("cert.pem"), certificate.pem().as_bytes(), false)?;
            write(&folder.join("key.pem"), key.serialize_pem().as_bytes(), true)
        };
    party("server", server_names.to_vec(), ExtendedKeyUsagePurpose::ServerAuth)?;
    party("operator", vec![OPERATOR.to_owned()], ExtendedKeyUsagePurpose::ClientAuth)?;
    for site in sites {
        party(site, vec![name_of_site(site)], ExtendedKeyUsagePurpose::ClientAuth)?;
    }
    let own = folder.join("authority");
    fs::create_dir_all(&own).map_err(at(&own))?;
    write(&own.join("ca.pem"), authority_pem.as_bytes(), false)?;
    write(&own.join("key.pem"), authority.0.key().serialize_pem().as_bytes(), true)?;
    write(&folder.join("README.txt"), readme(sites, server_names).as_bytes(), false)
}

/// The papers of a server for one run: an authority that exists for it alone, and whose key nobody
/// keeps.
pub fn for_one_run(server_names: &[String], now: SystemTime) -> Result<Papers, CertError> {
    let now = date(now);
    let authority = authority(now)?;
    let (certificate, key) = issue(
        &authority.0,
        "server",
        server_names.to_vec(),
        ExtendedKeyUsagePurpose::ServerAuth,
        now,
    )?;
    Ok(Papers {
        authority: Certificate::from_pem(authority.1.pem()),
        identity: Identity::from_pem(certificate.pem(), key.serialize_pem()),
        own: certificate.pem(),
        key: key.serialize_pem(),
    })
}

fn date(now: SystemTime) -> OffsetDateTime {
    let since = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |d| d.as_secs() as i64);
    OffsetDateTime::from_unix_timestamp(since).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

/// One party's certificate and key.
fn issue(
    authority: &Issuer<'_, KeyPair>,
    name: &str,
    names: Vec<String>,
    usage: ExtendedKeyUsagePurpose,
    now: OffsetDateTime,
) -> Result<(rcgen::Certificate, KeyPair), CertError> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(names)?;
    dated(&mut params, now);
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![usage];
    params.use_authority_key_identifier_extension = true;
    Ok((params.signed_by(&key, authority)?, key))
}

fn authority(
    now: OffsetDateTime,
) -> Result<(Issuer<'static, KeyPair>, rcgen::Certificate), CertError> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(Vec::new())?;
    dated(&mut params, now);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.distinguished_name.push(DnType::CommonName, "Consilience authority");
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = params.self_signed(&key)?;
    Ok((Issuer::new(params, key), certificate))
}

fn dated(params: &mut CertificateParams, now: OffsetDateTime) {
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.not_before = now - Duration::days(1); // clocks differ
    params.not_after = now + Duration::days(DAYS);
}

/// Write a file; a secret one for its owner alone, from the first byte on.
pub(crate) fn write(file: &Path, bytes: &[u8], secret: bool) -> Result<(), CertError> {
    let mut options = fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        options.mode(if secret { 0o600 } else { 0o644 });
    }
    #[cfg(not(unix))]
    let _ = secret;
    options
        .open(file)
        .and_then(|mut out| out.write_all(bytes).and_then(|()| out.sync_all()))
        .map_err(at(file))
}

fn readme(sites: &[String], server_names: &[String]) -> String {
    let table: String = sites
        .iter()
        .map(|site| {
            format!("  {site}/      for the site \"{site}\", known as {}\n", name_of_site(site))
        })
        .collect();
    format!(
        "Certificates for one federation, made by `consilience certs`. They are valid for {DAYS} \
         days.\n\n\
         authority/  ca.pem, key.pem: whoever holds this key can make certificates for any party. \
         Keep it off-line; nobody needs it to run.\n\
         server/     for `consilience serve CONFIG --certs server`. Sites reach it as: {}\n\
         operator/   for `consilience control --certs operator`: whoever holds it can hold and end \
         a run.\n\
         {table}\n\
         Hand every party its own folder, over a channel that you trust: key.pem is its secret \
         (only its owner may read it), cert.pem says who it is, ca.pem is whom it\n\
         trusts. A site joins with `consilience join --server HOST:PORT --site NAME --certs NAME \
         --data FILE`.\n\n\
         Other authorities serve as well: a site's certificate must be valid for client \
         authentication and for the DNS name above, the server's for server authentication\n\
         and for the name by which sites reach it.\n",
        server_names.join(", "),
        table = table
    )
}

/// Whether a name is an address of this machine alone.
pub fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(name: &str) -> PathBuf {
        let folder =
            std::env::temp_dir().join(format!("consilience-certs-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        folder
    }

    fn first(pem: &Path) -> CertificateDer<'static> {
        CertificateDer::from_pem_file(pem).unwrap()
    }

    #[test]
    fn a_certificate_is_its_sites_and_nobody_elses() {
        let folder = folder("sites");
        let sites = ["basel".to_owned(), "part 1".to_owned(), "Zürich".to_owned()];
        make(&folder, &sites, &["localhost".into()], SystemTime::now()).unwrap();
        for site in &sites {
            let certificate = first(&folder.join(site).join("cert.pem"));
            for other in &sites {
                assert_eq!(belongs_to(&certificate, other), site == other, "{site} as {other}");
            }
            assert!(Papers::load(&folder.join(site)).is_ok());
        }
        assert!(!belongs_to(&first(&folder.join("server/cert.pem")), "basel"));
        let operator = first(&folder.join("operator/cert.pem"));
        assert!(is_operators(&operator) && !belongs_to(&operator, "operator"));
        assert!(!is_operators(&first(&folder.join("basel/cert.pem"))));
        #[cfg(unix)]
        for key in ["authority/key.pem", "server/key.pem", "operator/key.pem", "basel/key.pem"] {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(
                fs::metadata(folder.join(key)).unwrap().permissions().mode() & 0o777,
                0o600,
                "{key}"
            );
        }
        assert!(fs::read_to_string(folder.join("README.txt")).unwrap().contains("part 1"));
        assert!(matches!(
            make(&folder, &sites, &["localhost".into()], SystemTime::now()),
            Err(CertError::Exists(_))
        ));
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn odd_names_are_refused() {
        let folder = folder("odd");
        for sites in [&["a/b"][..], &["server"], &["..", "a"], &["a", "a"], &[]] {
            let sites: Vec<String> = sites.iter().map(|s| (*s).to_owned()).collect();
            assert!(
                matches!(make(&folder, &sites, &[], SystemTime::now()), Err(CertError::Name(_))),
                "{sites:?}"
            );
        }
        assert!(!folder.exists());
        assert!(
            is_loopback("127.0.0.1")
                && is_loopback("[::1]")
                && is_loopback("localhost")
                && !is_loopback("10.0.0.1")
        );
    }
}
