//! List, describe, check, split and show data sets.

use std::io::{BufWriter, Write};
use std::path::Path;

use consilience_core::rng::Seed;
use consilience_engine::data::catalogue::{self, CatalogueError, ENTRIES, Entry};
use consilience_engine::data::partition::{self, Assignment, Scheme};
use consilience_engine::data::{Dataset, formats};
use consilience_engine::rundir;
use serde_json::{Value, json};

use crate::args::{DataAction, DataCommand, DealOptions};
use crate::output::{Failure, note, say};
use crate::picture;

/// `consilience data`.
pub fn data(command: &DataCommand) -> Result<(), Failure> {
    let folder = command.data.as_deref();
    match &command.action {
        DataAction::List { json } => list(*json),
        DataAction::Describe { name, json } => describe(name, folder, *json),
        DataAction::Check { name, json } => check(name, folder, *json),
        DataAction::Coding { dir } => coding(dir),
        DataAction::Split { deal, out } => split(deal, folder, out),
        DataAction::Show { deal, svg, json } => show(deal, folder, svg.as_deref(), *json),
    }
}

/// A name, a scheme or a file that cannot be used.
fn wrong(error: impl ToString) -> Failure {
    Failure::Argument(error.to_string())
}

fn object(entry: &Entry) -> Value {
    let files = |part: &catalogue::Part| -> Vec<Value> {
        part.files.iter().map(|(file, sha256)| json!({ "file": file, "sha256": sha256 })).collect()
    };
    json!({
        "name": entry.name,
        "says": entry.says,
        "rows": entry.train.rows,
        "test_rows": entry.test.as_ref().map(|part| part.rows),
        "columns": entry.columns,
        "classes": entry.classes,
        "counts": entry.train.counts,
        "built_in": entry.built_in,
        "licence": entry.licence,
        "files": files(&entry.train),
        "test_files": entry.test.as_ref().map(files),
    })
}

fn list(json: bool) -> Result<(), Failure> {
    if json {
        return say(&format!("{:#}\n", Value::Array(ENTRIES.iter().map(object).collect())));
    }
    let mut text =
        format!("{:<15}{:>9}{:>9}{:>9}{:>9}  what\n", "name", "rows", "test", "columns", "classes");
    for entry in ENTRIES {
        let test = entry.test.as_ref().map_or_else(|| "-".into(), |part| part.rows.to_string());
        let classes =
            if entry.classes.is_empty() { "-".into() } else { entry.classes.len().to_string() };
        let built_in = if entry.built_in { " (built in)" } else { "" };
        text.push_str(&format!(
            "{:<15}{:>9}{test:>9}{:>9}{classes:>9}  {}{built_in}\n",
            entry.name, entry.train.rows, entry.columns, entry.says
        ));
    }
    say(&format!(
        "{text}\nThose that are not built in are looked for in the folder of --data DIR or \
         CONSILIENCE_DATA.\n"
    ))
}

/// How a run coded columns.
fn coding(dir: &Path) -> Result<(), Failure> {
    let record = rundir::read(dir)?;
    let lines = record.encoding.map_or_else(String::new, |encoding| encoding.as_stated());
    if lines.is_empty() {
        let dir = dir.display();
        return Err(wrong(format!(
            "{dir}: its columns entered as they were, and there is nothing to state"
        )));
    }
    let stated = record.config.contains("[target.coding");
    let exact = "# Exact functions of the rows of that run: state them where these are public.\n";
    say(&format!("[target.coding]\n{}{lines}", if stated { "" } else { exact }))
}

fn describe(name: &str, folder: Option<&Path>, json: bool) -> Result<(), Failure> {
    let entry = catalogue::find(name).map_err(wrong)?;
    let data = match catalogue::load(name, folder) {
        Ok(data) => Some(data),
        Err(CatalogueError::NoFolder { .. }) => None,
        Err(error) => return Err(wrong(error)),
    };
    if json {
        let mut value = object(entry);
        value["column_names"] = json!(data.map(|data| data.columns));
        return say(&format!("{value:#}\n"));
    }
    let mut text = format!("{}: {}\n\n", entry.name, entry.says);
    let test = entry
        .test
        .as_ref()
        .map_or_else(String::new, |part| format!(", and {} to test on", part.rows));
    text.push_str(&format!("rows     {}{test}\ncolumns  {}\n", entry.train.rows, entry.columns));
    for (class, count) in entry.classes.iter().zip(entry.train.counts) {
        text.push_str(&format!("class    {class}: {count}\n"));
    }
    for (file, _) in entry.train.files.iter().chain(entry.test.iter().flat_map(|part| part.files)) {
        text.push_str(&format!(
            "file     {file}{}\n",
            if entry.built_in { " (built in)" } else { "" }
        ));
    }
    text.push_str(&format!("licence  {}\n", entry.licence));
    match data {
        None => text.push_str(
            "\n\
            Its files are not at hand: name their folder with --data DIR or CONSILIENCE_DATA to \
            see the columns.\n",
        ),
        Some(data) => {
            let names: Vec<&str> = data.columns.iter().take(60).map(String::as_str).collect();
            let more = if data.columns.len() > names.len() { ", ..." } else { "" };
            text.push_str(&format!("\nColumns: {}{more}\n", names.join(", ")));
            if let Some(groups) = &data.groups {
                text.push_str(&format!("Groups: {}\n", groups.names.join(", ")));
            }
        }
    }
    say(&text)
}

fn check(name: &str, folder: Option<&Path>, json: bool) -> Result<(), Failure> {
    let names: Vec<&str> = match name {
        "all" => ENTRIES.iter().map(|entry| entry.name).collect(),
        name => vec![catalogue::find(name).map_err(wrong)?.name],
    };
    let (mut values, mut wrong) = (Vec::new(), Vec::new());
    for name in names {
        match catalogue::check(name, folder) {
            Ok(parts) => {
                for part in parts {
                    values.push(json!({
                        "name": name, "part": part.part, "ok": true, "rows": part.rows,
                        "columns": part.columns, "counts": part.counts }));
                    if !json {
                        let counts: Vec<String> =
                            part.counts.iter().map(usize::to_string).collect();
                        let counts = if counts.is_empty() {
                            "no classes".into()
                        } else {
                            format!("classes {}", counts.join(" "))
                        };
                        say(&format!(
                            "{name:<15}{:<6} ok  {} x {}, {counts}\n",
                            part.part, part.rows, part.columns
                        ))?;
                    }
                }
            }
            Err(error) => {
                values.push(json!({ "name": name, "ok": false, "error": error.to_string() }));
                wrong.push(format!("{name}: {error}"));
            }
        }
    }
    if json {
        say(&format!("{:#}\n", Value::Array(values)))?;
    }
    if wrong.is_empty() { Ok(()) } else { Err(Failure::Other(wrong.join("\n  "))) }
}

/// The rows, dealt.
fn deal(
    options: &DealOptions,
    folder: Option<&Path>,
) -> Result<(Dataset, Assignment, Scheme), Failure> {
    let scheme: Scheme = options.scheme.parse().map_err(wrong)?;
    let own = Path::new(&options.name);
    let mut data = match (own.extension(), options.response.as_deref()) {
        (None, Some(_)) => {
            return Err(Failure::Argument(format!(
                "--response goes with a file, and {} is the name of a data set",
                options.name
            )));
        }
        (None, None) => catalogue::load(&options.name, folder).map_err(wrong)?,
        (Some(_), response) => formats::open(own, response).map_err(wrong)?,
    };
    let seed = Seed::new(options.seed);
    if let Some(rows) = options.rows.filter(|rows| *rows < data.rows()) {
        data = data.select(&partition::subset(data.rows(), rows, seed));
    }
    let dealt = partition::split(&data, &scheme, options.clients, seed).map_err(wrong)?;
    Ok((data, dealt, scheme))
}

fn show(
    options: &DealOptions,
    folder: Option<&Path>,
    svg: Option<&Path>,
    json: bool,
) -> Result<(), Failure> {
    let (data, dealt, scheme) = deal(options, folder)?;
    let classes = data.classes.clone().unwrap_or_else(|| vec!["rows".into()]);
    let counts = dealt.counts(&data);
    let title = format!(
        "{}, {} rows, {} clients, {scheme}, seed {}",
        options.name,
        data.rows(),
        counts.len(),
        options.seed
    );
    if let Some(file) = svg {
        let cannot =
            |error| Failure::Other(format!("{} cannot be written: {error}", file.display()));
        std::fs::write(file, picture::svg(&title, &dealt.names, &classes, &counts))
            .map_err(cannot)?;
        note(&format!("wrote {}\n", file.display()));
    }
    if json {
        let clients: Vec<Value> = dealt
            .names
            .iter()
            .zip(&counts)
            .map(|(name, counts)| json!({ "name": name, "counts": counts }))
            .collect();
        let value = json!({
            "data": options.name, "scheme": scheme.to_string(), "seed": options.seed,
            "classes": classes, "clients": clients });
        return say(&format!("{value:#}\n"));
    }
    say(&picture::text(&title, &dealt.names, &classes, &counts))
}

fn split(options: &DealOptions, folder: Option<&Path>, out: &Path) -> Result<(), Failure> {
    let (data, dealt, _) = deal(options, folder)?;
    let cannot = |error: std::io::Error| {
        Failure::Other(format!("{} cannot be written: {error}", out.display()))
    };
    std::fs::create_dir_all(out).map_err(cannot)?;
    if std::fs::read_dir(out).map_err(cannot)?.next().is_some() {
        return Err(Failure::Argument(format!(
            "{} is not empty\n  choose another folder: nothing was overwritten",
            out.display()
        )));
    }
    let quoted = |name: &str| {
        if name.contains([',', '"', '\n']) {
            format!("\"{}\"", name.replace('"', "\"\""))
        } else {
            name.into()
        }
    };
    let header: Vec<String> =
        data.columns.iter().map(|name| quoted(name)).chain(["label".into()]).collect();
    for (k, rows) in dealt.rows.iter().enumerate() {
        let mut file = BufWriter::new(
            std::fs::File::create(out.join(file_name(k, &dealt.names[k]))).map_err(cannot)?,
        );
        let mut write = || -> std::io::Result<()> {
            writeln!(file, "{}", header.join(","))?;
            for row in rows {
                let mut cells = vec![0.0; data.columns.len() + 1];
                for (column, value) in data.entries(*row as usize) {
                    cells[column as usize] = value;
                }
                cells[data.columns.len()] = data.labels[*row as usize];
                let words: Vec<String> = cells.iter().map(f64::to_string).collect();
                writeln!(file, "{}", words.join(","))?;
            }
            file.flush()
        };
        write().map_err(cannot)?;
    }
    note(&format!(
        "wrote {} files to {}; the last column, label, is the class number\n",
        dealt.rows.len(),
        out.display()
    ));
    Ok(())
}

/// A file name that any system takes: the client's name in small letters, digits and dashes, after
/// its number.
fn file_name(k: usize, name: &str) -> String {
    let plain: String = name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
        .collect();
    let words: Vec<&str> = plain.split('-').filter(|word| !word.is_empty()).collect();
    format!("{:03}-{}.csv", k + 1, words.join("-"))
}
