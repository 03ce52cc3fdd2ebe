//! Make records of runs in which every site has a file of its own, from the rows of
//! `data/offsets.csv`.

use std::path::{Path, PathBuf};

use consilience_engine::config::{Config, Source};
use consilience_engine::draws::{Draws, Sinks};
use consilience_engine::plan::Plan;
use consilience_engine::problem::Problem;
use consilience_engine::record::{Circumstances, Record};
use consilience_engine::run;

pub fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")
}

/// Files of three sites, each with its own.
fn apart(name: &str, target: &str, stated: bool) -> (PathBuf, String) {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("published-{name}"));
    std::fs::create_dir_all(&folder).unwrap();
    let text = std::fs::read_to_string(data().join("offsets.csv")).unwrap();
    let (head, mut config) = (text.lines().next().unwrap(), format!("[target]\n{target}\n"));
    let place = head.split(',').position(|column| column == "site").unwrap();
    for site in ["north", "south", "west"] {
        let own = text.lines().filter(|line| line.split(',').nth(place) == Some(site));
        let rows: Vec<&str> = std::iter::once(head).chain(own).collect();
        std::fs::write(folder.join(format!("{site}.csv")), rows.join("\n") + "\n").unwrap();
        config += &format!("[[client]]\nname = \"{site}\"\n");
        if stated {
            config += &format!("file = \"{}\"\n", folder.join(format!("{site}.csv")).display());
        }
    }
    (folder, config + "[sampler]\nname = \"lmc\"\nstep = 1e-9\n")
}

/// The folder with the files, the record of a run in which every site has its own, and the same as
/// a server publishes it that knows no file. Draws that do not fit are made up.
pub fn records(name: &str, target: &str, draws: Draws) -> (PathBuf, Record, Record) {
    let (folder, text) = apart(name, target, true);
    let source = Source { file: "run.toml".into(), folder: folder.clone(), text };
    let config = Config::parse(source).unwrap();
    let problem = Problem::new(&config).unwrap();
    let plan = Plan::new(&config, &problem).unwrap();
    let length = run::Length { iterations: 10, burn_in: 0, thin: 1, ..plan.length };
    let mut outcome = run::sample(&plan, &length, 1, Sinks::Memory, &Default::default()).unwrap();
    let dim = problem.parameters.len();
    outcome.draws = if draws.dim() == dim {
        draws
    } else {
        let values = (0..200 * dim).map(|k| 0.4 + 0.2 * (k as f64 * 0.7).sin());
        Draws::from_chains(vec![values.clone().collect(), values.map(|x| 0.9 * x).collect()], dim)
    };
    let made = Circumstances { version: "0".into(), created: String::new(), seconds: 0.0 };
    let here = Record::new(made, &config, &problem, &plan, outcome, None);
    let mut published = here.clone();
    published.config = apart(name, target, false).1;
    (folder, here, published)
}
