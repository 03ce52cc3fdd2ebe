//! Check licences, sources and bans of what the workspace is built on, by `deny.toml`. It needs no
//! network, and no tool beside cargo.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::cargo;

/// What `deny.toml` says.
struct Rules {
    licences: Vec<String>,
    registries: Vec<String>,
    banned: Vec<String>,
}

/// A package that the workspace is built on.
struct Package {
    name: String,
    version: String,
    /// Where it comes from; nothing where it is a member of the workspace.
    source: Option<String>,
    /// Its licence; nothing where it is not known here.
    licence: Option<String>,
}

/// Check every package: those of all platforms by the lock file, and the licences of those that
/// this platform needs.
pub fn run(root: &Path) -> Result<(), String> {
    let rules = Rules::read(&text(&root.join("deny.toml"))?)?;
    let locked = locked(&text(&root.join("Cargo.lock"))?)?;
    let here = needed_here(root)?;
    let wrong: Vec<String> =
        locked.iter().chain(&here).filter_map(|package| rules.complaint(package)).collect();
    if !wrong.is_empty() {
        return Err(format!("by deny.toml:\n  {}", wrong.join("\n  ")));
    }
    println!(
        "{} packages from known sources, none banned; {} licences allowed",
        locked.len(),
        here.len()
    );
    Ok(())
}

fn text(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
}

impl Rules {
    fn read(text: &str) -> Result<Self, String> {
        let rules: toml::Table =
            text.parse().map_err(|error| format!("deny.toml is no TOML: {error}"))?;
        let words = |section: &str, key: &str| -> Result<Vec<String>, String> {
            let list = rules.get(section).and_then(|s| s.get(key)).and_then(|v| v.as_array());
            let list = list.ok_or_else(|| format!("deny.toml has no list {section}.{key}"))?;
            Ok(list.iter().filter_map(|word| word.as_str()).map(str::to_owned).collect())
        };
        Ok(Rules {
            licences: words("licenses", "allow")?,
            registries: words("sources", "allow-registry")?,
            banned: words("bans", "deny")?,
        })
    }

    /// What is wrong with a package, if anything.
    fn complaint(&self, package: &Package) -> Option<String> {
        let Package { name, version, source, licence } = package;
        if self.banned.contains(name) {
            return Some(format!("{name} {version} is banned"));
        }
        let registry = source.as_ref().map(|source| source.strip_prefix("registry+"));
        if registry.is_some_and(|url| !url.is_some_and(|u| self.registries.iter().any(|r| r == u)))
        {
            return Some(format!("{name} {version} comes from an unknown source: {source:?}"));
        }
        let licence = licence.as_ref()?;
        (!self.allows(licence))
            .then(|| format!("{name} {version} has a licence that is not allowed: {licence}"))
    }

    /// Whether an SPDX expression can be met by licences that are allowed. A slash means `OR`, as
    /// old manifests have it.
    fn allows(&self, expression: &str) -> bool {
        let spaced = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
        let words: Vec<&str> = spaced.split_whitespace().collect();
        let mut rest = &words[..];
        self.any(&mut rest) && rest.is_empty()
    }

    fn any(&self, words: &mut &[&str]) -> bool {
        let mut allowed = self.all(words);
        while let ["OR", rest @ ..] = words {
            *words = rest;
            allowed |= self.all(words);
        }
        allowed
    }

    fn all(&self, words: &mut &[&str]) -> bool {
        let mut allowed = self.one(words);
        while let ["AND", rest @ ..] = words {
            *words = rest;
            allowed &= self.one(words);
        }
        allowed
    }

    fn one(&self, words: &mut &[&str]) -> bool {
        let (name, rest) = match words {
            ["(", rest @ ..] => {
                *words = rest;
                let allowed = self.any(words);
                let [")", rest @ ..] = words else { return false };
                *words = rest;
                return allowed;
            }
            [licence, "WITH", exception, rest @ ..] => {
                (format!("{licence} WITH {exception}"), rest)
            }
            [licence, rest @ ..] => ((*licence).to_owned(), rest),
            [] => return false,
        };
        *words = rest;
        self.licences.contains(&name)
    }
}

/// The packages of a lock file.
fn locked(text: &str) -> Result<Vec<Package>, String> {
    let lock: toml::Table =
        text.parse().map_err(|error| format!("Cargo.lock is no TOML: {error}"))?;
    let packages = lock.get("package").and_then(|list| list.as_array());
    let packages = packages.ok_or("Cargo.lock lists no packages")?;
    let word = |package: &toml::Value, key: &str| {
        package.get(key).and_then(|value| value.as_str()).map(str::to_owned)
    };
    Ok(packages
        .iter()
        .map(|package| Package {
            name: word(package, "name").unwrap_or_default(),
            version: word(package, "version").unwrap_or_default(),
            source: word(package, "source"),
            licence: None,
        })
        .collect())
}

/// The packages that this platform needs, with their licences: their manifests are here since
/// something was built.
fn needed_here(root: &Path) -> Result<Vec<Package>, String> {
    let version = output(Command::new("rustc").arg("-vV"))?;
    let host = version.lines().find_map(|line| line.strip_prefix("host: "));
    let host = host.ok_or("rustc does not say which platform this is")?;
    let said = output(cargo().current_dir(root).args([
        "metadata",
        "--format-version=1",
        "--locked",
        "--offline",
        "--filter-platform",
        host,
    ]))?;
    let said: Value = serde_json::from_str(&said).map_err(|error| error.to_string())?;
    let packages = said["packages"].as_array().ok_or("cargo metadata lists no packages")?;
    let word = |package: &Value, key: &str| package[key].as_str().map(str::to_owned);
    Ok(packages
        .iter()
        .map(|package| Package {
            name: word(package, "name").unwrap_or_default(),
            version: word(package, "version").unwrap_or_default(),
            source: word(package, "source"),
            licence: Some(word(package, "license").unwrap_or_else(|| "none".into())),
        })
        .collect())
}

fn output(command: &mut Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules() -> Rules {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deny.toml");
        Rules::read(&std::fs::read_to_string(file).unwrap()).unwrap()
    }

    #[test]
    fn licences_are_read_as_expressions() {
        for allowed in [
            "MIT",
            "MIT/Apache-2.0",
            "GPL-3.0 OR MIT",
            "(MIT OR GPL-3.0) AND Unicode-3.0",
            "Apache-2.0 WITH LLVM-exception OR GPL-3.0",
        ] {
            assert!(rules().allows(allowed), "{allowed}");
        }
        for refused in ["GPL-3.0", "MIT AND GPL-3.0", "none", "", "(MIT", "MIT Apache-2.0"] {
            assert!(!rules().allows(refused), "{refused}");
        }
    }

    #[test]
    fn what_is_wrong_with_a_package_is_named() {
        let package = |name: &str, source: Option<&str>, licence: &str| Package {
            name: name.into(),
            version: "1.0.0".into(),
            source: source.map(str::to_owned),
            licence: Some(licence.into()),
        };
        let known = Some("registry+https://github.com/rust-lang/crates.io-index");
        let says = |package| rules().complaint(&package).unwrap_or_default();
        assert_eq!(says(package("serde", known, "MIT")), "");
        assert_eq!(says(package("consilience", None, "Apache-2.0 OR MIT")), "");
        assert!(says(package("serde", known, "AGPL-3.0")).contains("AGPL-3.0"));
        assert!(says(package("openssl-sys", known, "MIT")).contains("banned"));
        for source in ["git+https://example.org/serde", "registry+https://example.org/index"] {
            assert!(says(package("serde", Some(source), "MIT")).contains("unknown source"));
        }
    }

    #[test]
    fn the_lock_file_lists_packages_and_sources() {
        let lock = "[[package]]\nname = \"a\"\nversion = \"1.2.0\"\nsource = \"git+https://x\"\n";
        let packages = locked(lock).unwrap();
        assert_eq!(packages.len(), 1);
        assert!(rules().complaint(&packages[0]).unwrap().contains("a 1.2.0"));
        assert!(locked("").is_err());
    }
}
