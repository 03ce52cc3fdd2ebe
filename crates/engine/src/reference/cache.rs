//! Keep references in a folder, one file each, named by the target's hash, the method, its settings
//! and the version.
//!
//! A file is `MAGIC`, one line of JSON, the draws as little-endian numbers, and the SHA-256 of all
//! that. It is written beside its place and renamed, so that a crash leaves no half of it; a file
//! that is damaged all the same is refused with a reason.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use thiserror::Error;

use super::digest::hex;
use super::{Method, Reference, ReferenceSettings};
use crate::draws::Draws;

/// The environment variable that names the cache folder.
pub const FOLDER: &str = "CONSILIENCE_CACHE";

const MAGIC: &[u8] = b"consilience reference 1\n";
/// A hash's bytes.
const CHECKSUM: usize = 32;

/// Where references are kept.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
}

/// Why a kept reference is not used, or a new one not kept.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum CacheError {
    /// A file that is not what was written.
    #[error("the kept reference {file} is damaged ({problem}): it is not used, and is made again")]
    Damaged {
        /// The file.
        file: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A file that cannot be written.
    #[error("the reference cannot be kept as {file}: {problem}")]
    Unwritable {
        /// The file.
        file: String,
        /// What the system said.
        problem: String,
    },
}

impl Cache {
    /// The folder that is given, else the one that the environment names, else the platform's; none
    /// where there is no such.
    pub fn open(given: Option<&Path>) -> Option<Cache> {
        let variable = |name: &str| {
            std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
        };
        let home = || variable("HOME");
        let platform = || {
            let base = if cfg!(windows) {
                variable("LOCALAPPDATA")
            } else if cfg!(target_os = "macos") {
                home().map(|home| home.join("Library/Caches"))
            } else {
                variable("XDG_CACHE_HOME").or_else(|| home().map(|home| home.join(".cache")))
            };
            base.map(|base| base.join("consilience"))
        };
        let folder = given.map(Path::to_path_buf).or_else(|| variable(FOLDER)).or_else(platform)?;
        Some(Cache { folder })
    }

    /// Where it is.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The file of a reference.
    pub fn path(&self, target: &str, method: Method, settings: ReferenceSettings) -> PathBuf {
        let ReferenceSettings { chains, draws, seed } = settings;
        self.folder.join(format!("{target}-{method}-{chains}x{draws}-seed{seed}{}", ending()))
    }

    /// A reference with these settings, where it is kept.
    pub fn load(
        &self,
        target: &str,
        method: Method,
        settings: ReferenceSettings,
    ) -> Result<Option<Reference>, CacheError> {
        let path = self.path(target, method, settings);
        if !path.exists() {
            return Ok(None);
        }
        let reference = read(&path, target)?;
        if (reference.method, reference.settings) == (method, settings) {
            return Ok(Some(reference));
        }
        Err(CacheError::Damaged {
            file: path.display().to_string(),
            problem: "it holds another reference than its name says".into(),
        })
    }

    /// The best reference of a target that is kept: by NUTS, else by MALA; of several by one method
    /// the longest. Damaged files are told, and not used.
    pub fn find(&self, target: &str) -> (Option<Reference>, Vec<CacheError>) {
        let mut complaints = Vec::new();
        for method in [Method::Nuts, Method::Mala] {
            let mut found: Option<Reference> = None;
            for path in self.files(&format!("{target}-{method}-")) {
                match read(&path, target) {
                    Ok(reference)
                        if found.as_ref().is_none_or(|best| length(&reference) > length(best)) =>
                    {
                        found = Some(reference)
                    }
                    Ok(_) => {}
                    Err(error) => complaints.push(error),
                }
            }
            if found.is_some() {
                return (found, complaints);
            }
        }
        (None, complaints)
    }

    /// The files of this version whose names begin so, in the order of their names.
    fn files(&self, beginning: &str) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let fits = |path: &PathBuf| {
            path.file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|name| name.starts_with(beginning) && name.ends_with(&ending()))
        };
        let mut files: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(fits).collect();
        files.sort();
        files
    }

    /// Keep a reference, in place of one of the same name.
    pub fn store(&self, target: &str, reference: &Reference) -> Result<PathBuf, CacheError> {
        let path = self.path(target, reference.method, reference.settings);
        let cannot = |error: std::io::Error| CacheError::Unwritable {
            file: path.display().to_string(),
            problem: error.to_string(),
        };
        std::fs::create_dir_all(&self.folder).map_err(cannot)?;
        // Two processes may do this at once: each has a file of its own until the rename.
        let beside = path.with_extension(format!("{}.part", std::process::id()));
        let written = std::fs::write(&beside, bytes_of(target, reference))
            .and_then(|()| std::fs::rename(&beside, &path));
        written.map_err(|error| {
            let _ = std::fs::remove_file(&beside);
            cannot(error)
        })?;
        Ok(path)
    }
}

fn ending() -> String {
    format!("-{}.reference", env!("CARGO_PKG_VERSION"))
}

fn length(reference: &Reference) -> usize {
    reference.draws.chains() * reference.draws.length()
}

fn bytes_of(target: &str, reference: &Reference) -> Vec<u8> {
    let header = json!({
        "target": target,
        "method": reference.method.word(),
        "chains": reference.draws.chains(),
        "draws": reference.draws.length(),
        "parameters": reference.draws.dim(),
        "seed": reference.settings.seed,
        "acceptance": reference.acceptance,
    });
    let mut bytes = [MAGIC, format!("{header}\n").as_bytes()].concat();
    for number in reference.draws.rows().flatten() {
        bytes.extend_from_slice(&number.to_le_bytes());
    }
    let checksum = Sha256::digest(&bytes);
    bytes.extend_from_slice(&checksum);
    bytes
}

fn read(path: &Path, target: &str) -> Result<Reference, CacheError> {
    let parsed = std::fs::read(path)
        .map_err(|error| error.to_string())
        .and_then(|bytes| parse(&bytes, target));
    parsed.map_err(|problem| CacheError::Damaged { file: path.display().to_string(), problem })
}

/// A reference from its file's bytes, or what is wrong with them.
fn parse(bytes: &[u8], target: &str) -> Result<Reference, String> {
    let body = bytes.len().checked_sub(CHECKSUM).ok_or("it is cut short")?;
    let (content, checksum) = bytes.split_at(body);
    if Sha256::digest(content).as_slice() != checksum {
        return Err(format!("its checksum is {}", hex(&checksum[..4])));
    }
    let rest = content.strip_prefix(MAGIC).ok_or("it does not begin like a reference")?;
    let end = rest.iter().position(|byte| *byte == b'\n').ok_or("it has no header")?;
    let (header, numbers) = (&rest[..end], &rest[end + 1..]);
    let header: Value = serde_json::from_slice(header).map_err(|error| error.to_string())?;
    let whole = |key: &str| header[key].as_u64().ok_or_else(|| format!("its header has no {key}"));
    if header["target"] != target {
        return Err("it is of another target".into());
    }
    let word = header["method"].as_str().unwrap_or_default();
    let method = Method::ALL
        .into_iter()
        .find(|method| method.word() == word)
        .ok_or_else(|| format!("there is no method {word}"))?;
    let (chains, draws, d) =
        (whole("chains")? as usize, whole("draws")? as usize, whole("parameters")? as usize);
    let each = draws.checked_mul(d).filter(|each| *each > 0).ok_or("it has no draws")?;
    if each.checked_mul(chains).and_then(|all| all.checked_mul(8)) != Some(numbers.len()) {
        return Err(format!(
            "{} bytes of draws where {chains} chains of {draws} draws of {d} parameters were \
             announced",
            numbers.len()
        ));
    }
    let number = |eight: &[u8]| f64::from_le_bytes(eight.try_into().unwrap_or_default());
    let all: Vec<f64> = numbers.chunks_exact(8).map(number).collect();
    let settings = ReferenceSettings { chains, draws, seed: whole("seed")? };
    let chains = all.chunks_exact(each).map(<[f64]>::to_vec).collect();
    Ok(Reference {
        method,
        settings,
        draws: Draws::from_chains(chains, d),
        acceptance: header["acceptance"].as_f64(),
    })
}
