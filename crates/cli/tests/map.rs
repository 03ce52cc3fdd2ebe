//! The code map of ARCHITECTURE.md names what there is, and leaves out nothing.
#![allow(clippy::unwrap_used)] // a test may panic

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The paths that the map's lines begin with.
fn mapped() -> Vec<String> {
    let text = std::fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let map = text.split("\n## ").find(|section| section.starts_with("Code map")).unwrap();
    let lines = map.lines().filter_map(|line| line.trim_start().strip_prefix("- `"));
    lines
        .map(|line| {
            line.split_once("`: ")
                .unwrap_or_else(|| panic!("no path and sentence: {line}"))
                .0
                .to_owned()
        })
        .collect()
}

fn rust_files(folder: &Path, found: &mut Vec<String>) {
    for entry in std::fs::read_dir(root().join(folder)).unwrap() {
        let path = folder.join(entry.unwrap().file_name());
        if root().join(&path).is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path.to_str().unwrap().replace('\\', "/"));
        }
    }
}

#[test]
fn every_path_on_the_map_exists() {
    let mapped = mapped();
    assert!(mapped.len() > 50, "{} paths", mapped.len());
    for path in &mapped {
        let place = root().join(path);
        assert!(
            if path.ends_with('/') { place.is_dir() } else { place.is_file() },
            "{path} is on the map and not in the tree"
        );
    }
    let mut once = mapped.clone();
    once.sort();
    once.dedup();
    assert_eq!(once.len(), mapped.len(), "a path is on the map twice");
}

#[test]
fn every_source_file_is_on_the_map() {
    let mapped = mapped();
    for member in std::fs::read_dir(root().join("crates")).unwrap() {
        let sources = Path::new("crates").join(member.unwrap().file_name()).join("src");
        let mut files = Vec::new();
        rust_files(&sources, &mut files);
        assert!(!files.is_empty());
        for file in files {
            let covers =
                |path: &String| *path == file || path.ends_with('/') && file.starts_with(path);
            assert!(mapped.iter().any(covers), "{file} is in the tree and not on the map");
        }
    }
}

/// Whatever differs between families stands in their folders, behind the trait.
#[test]
fn one_place_asks_which_family_a_sampler_is_of() {
    let mut asking = Vec::new();
    for member in ["core", "engine", "net", "cli", "python", "report", "truth"] {
        let mut files = Vec::new();
        rust_files(&Path::new("crates").join(member).join("src"), &mut files);
        for file in files {
            let text = std::fs::read_to_string(root().join(&file)).unwrap();
            // what is matched on, not what is made
            let asks = |line: &str| {
                let variant = line.find("Recipe::Uplink(").or_else(|| line.find("Recipe::Local("));
                variant.is_some_and(|at| {
                    let rest = &line[at..];
                    rest.contains("=>") || rest.contains(") =") || rest.contains(") if ")
                })
            };
            asking.extend(text.lines().filter(|line| asks(line)).map(|_| file.clone()));
        }
    }
    assert_eq!(asking, ["crates/core/src/sampler/recipe.rs"; 2], "use Recipe::family instead");
}
