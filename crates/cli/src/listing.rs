//! List samplers, models, compressors, data and fields, and write a first config.

use clap::CommandFactory;
use consilience_core::compress;
use consilience_core::sampler::registry::{self, FAMILIES};
use consilience_engine::config::fields;
use consilience_engine::data::builtin;
use consilience_engine::models::MODELS;

use crate::args::{Args, NewCommand, Template};
use crate::output::{Failure, note, say};

/// The config of the main job; `consilience new` writes it.
pub const MAIN_JOB: &str = include_str!("../templates/heart.toml");

/// `consilience list`.
pub fn list() -> Result<(), Failure> {
    let mut text = String::new();
    for family in FAMILIES {
        text.push_str(&format!("Samplers: {}\n  {}\n", family.name, family.says));
        for row in registry::all().filter(|row| std::ptr::eq(row.family, *family)) {
            text.push_str(&format!("  {:<12} {}\n", row.name, row.says));
            if !row.paper.is_empty() {
                text.push_str(&format!("  {:<12} [{}]\n", "", row.paper));
            }
        }
        text.push('\n');
    }
    text.push_str("Models\n");
    for row in MODELS {
        text.push_str(&format!("  {:<10} {}\n", row.name, row.says));
    }
    text.push_str("\nCompressors\n");
    for row in compress::rows() {
        text.push_str(&format!("  {:<18} {} ({})\n", row.usage, row.says, row.constant));
    }
    text.push_str("\nBuilt-in data\n");
    for name in builtin::names() {
        text.push_str(&format!("  {name}\n"));
    }
    text.push_str("\nOther data sets: `consilience data list`\n");
    say(&text)
}

/// `consilience fields`.
pub fn fields() -> Result<(), Failure> {
    let mut text = String::new();
    let mut section = None;
    for field in fields::all() {
        if section != Some(field.section) {
            let heading = match field.section {
                "" => "top of the file".to_owned(),
                "client" => "[[client]]".into(),
                other => format!("[{other}]"),
            };
            text.push_str(&format!("\n{heading}\n"));
            section = Some(field.section);
        }
        let default = if field.default.is_empty() {
            String::new()
        } else {
            format!("  (default: {})", field.default)
        };
        text.push_str(&format!(
            "  {:<16} {}\n  {:<16} {}{default}\n",
            field.key, field.says, "", field.values
        ));
    }
    say(text.trim_start())
}

/// `consilience new`.
pub fn new(command: &NewCommand) -> Result<(), Failure> {
    let text = match command.template {
        Template::Heart => MAIN_JOB,
        Template::Csv => include_str!("../templates/csv.toml"),
        Template::Network => include_str!("../templates/network.toml"),
        Template::Gaussian => include_str!("../templates/gaussian.toml"),
    };
    let Some(file) = &command.file else { return say(text) };
    let mut options = std::fs::OpenOptions::new();
    let mut target = options.write(true).create_new(true).open(file).map_err(|error| {
        let fix = if error.kind() == std::io::ErrorKind::AlreadyExists {
            "choose another name: nothing was overwritten"
        } else {
            "check the path"
        };
        Failure::Argument(format!("{} cannot be written: {error}\n  {fix}", file.display()))
    })?;
    std::io::Write::write_all(&mut target, text.as_bytes())?;
    let next = match command.template {
        Template::Heart | Template::Gaussian => {
            format!("run it with: consilience run {}", file.display())
        }
        Template::Csv => {
            format!("put in your files and columns, then: consilience run {}", file.display())
        }
        Template::Network => "its first lines say who runs what".into(),
    };
    note(&format!("wrote {}; {next}\n", file.display()));
    Ok(())
}

/// `consilience completions`.
pub fn completions(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "consilience", &mut text);
    say(&String::from_utf8_lossy(&text))
}
