//! The real data sets are what the catalogue says. Their files are looked for where
//! CONSILIENCE_DATA names a folder.
#![allow(clippy::unwrap_used, clippy::print_stdout)] // a test may panic, and says what it skipped

use consilience_engine::config::{Config, Source};
use consilience_engine::data::catalogue::{self, ENTRIES, FOLDER};
use consilience_engine::problem::Problem;

fn problem(data: &str) -> Problem {
    let text = format!("seed = 1\n[data]\n{data}\n[sampler]\nname = \"lmc\"\nstep = 1e-5\n");
    Problem::new(
        &Config::parse(Source { file: "run.toml".into(), folder: ".".into(), text }).unwrap(),
    )
    .unwrap()
}

/// Every data set loads with the checksum, the shape and the class counts of the catalogue.
#[test]
fn every_data_set_is_what_the_catalogue_says() {
    for entry in ENTRIES {
        if !entry.built_in && catalogue::folder(None).is_none() {
            println!("skipped: {} ({FOLDER} is not set)", entry.name);
            continue;
        }
        let started = std::time::Instant::now();
        let checked = catalogue::check(entry.name, None).unwrap();
        assert_eq!(checked.len(), 1 + usize::from(entry.test.is_some()));
        assert_eq!(
            (checked[0].rows, checked[0].columns, checked[0].counts.as_slice()),
            (entry.train.rows, entry.columns, entry.train.counts)
        );
        println!(
            "{:<14} {:.2} s, {} x {}, {:?}",
            entry.name,
            started.elapsed().as_secs_f64(),
            checked[0].rows,
            checked[0].columns,
            checked[0].counts
        );
    }
}

/// A sparse and a dense data set become targets whose gradient is that of finite differences.
#[test]
fn data_sets_become_targets() {
    let mut problems =
        vec![problem("name = \"titanic\"\nclients = 10\nscheme = \"dirichlet(0.5)\"")];
    assert_eq!((problems[0].target.dim(), problems[0].clients.len()), (6, 10));
    if catalogue::folder(None).is_none() {
        println!("skipped: a9a, covtype and mnist as targets ({FOLDER} is not set)");
    } else {
        problems.push(problem("name = \"a9a\"\nclients = 20"));
        assert_eq!((problems[1].target.dim(), problems[1].clients.len()), (124, 20));
        problems.push(problem(
            "name = \"covtype\"\nclients = 5\nrows = 2000\nscheme = \"dirichlet(1)\"",
        ));
        assert_eq!((problems[2].target.dim(), problems[2].notes.len()), (7 * 55, 3));
        problems
            .push(problem("name = \"mnist\"\nclients = 20\nrows = 1000\nscheme = \"two-clients\""));
        assert_eq!(problems[3].target.dim(), 10 * 785);
    }
    for problem in &problems {
        let d = problem.target.dim();
        let at: Vec<f64> = (0..d).map(|k| 0.01 * ((k * 7 % 11) as f64 - 5.0)).collect();
        let direction: Vec<f64> =
            (0..d).map(|k| ((k * 5 % 7) as f64 - 3.0) / (d as f64).sqrt()).collect();
        let moved = |h: f64| {
            problem
                .target
                .value(&at.iter().zip(&direction).map(|(x, v)| x + h * v).collect::<Vec<_>>())
        };
        let mut gradient = vec![0.0; d];
        problem.target.gradient(&at, &mut gradient);
        let along: f64 = gradient.iter().zip(&direction).map(|(g, v)| g * v).sum();
        let differences = (moved(1e-5) - moved(-1e-5)) / 2e-5;
        assert!((along - differences).abs() < 1e-5 * along.abs().max(1.0), "{along} {differences}");
    }
}
