//! Serve a run, join one, make certificates.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use consilience_core::protocol::Statement;
use consilience_engine::config::{Config, Source};
use consilience_engine::run::Progress;
use consilience_engine::rundir;
use consilience_engine::site::Own;
use consilience_net::certs::{self as papers, Papers};
use consilience_net::join::{Credentials, JoinError, JoinOptions};
use consilience_net::serve::{Admission, ServeError, ServeOptions, Served, Stage};
use consilience_net::status::Status;
use consilience_net::worker::{Brings, SiteError};
use consilience_net::{join as joining, log, serve as serving};

use crate::args::{CertsCommand, JoinCommand, ServeCommand};
use crate::clock;
use crate::output::{Failure, note, say};
use crate::report::{self, Live};
use crate::run::{RunFolder, apply, keep};

/// How often a line says how far a run is.
const LINES: Duration = Duration::from_secs(10);

/// `consilience certs`.
pub fn certs(command: &CertsCommand) -> Result<(), Failure> {
    papers::make(&command.dir, &command.sites, &command.server_name, SystemTime::now())
        .map_err(|e| Failure::Other(e.to_string()))?;
    say(&format!(
        "Certificates for the server and {} sites are in {}: hand every party its own folder. \
         README.txt says how they are used.\n",
        command.sites.len(),
        command.dir.display()
    ))
}

/// `consilience serve`.
pub fn serve(command: &ServeCommand) -> Result<(), Failure> {
    log::start(command.json_log);
    let mut config = Config::load(&command.config)?;
    apply(&mut config, &command.options)?;
    let place = command.options.out.clone().map(RunFolder::Asked);
    if let Some(place) = &place {
        rundir::check(place.path())?; // before hours are spent
    }
    let options = ServeOptions {
        admission: own_papers(command.certs.as_deref())?
            .map_or(Admission::Word, Admission::Certificates),
        state: command.state.clone(),
        http: command.http,
        deadline: command.deadline.map(Duration::from_secs),
        largest_norm: command.largest_norm,
    };
    let progress = Arc::new(Progress::default());
    let status =
        Arc::new(Status::new(&consilience_engine::site::names(&config)?, Arc::clone(&progress)));
    let stop = Arc::clone(&progress);
    let _ = ctrlc::set_handler(move || {
        if stop.stop.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
        note("\nstopping: what was drawn is kept (Ctrl-C again to leave at once)\n");
    });
    let json = command.options.json;
    let over = AtomicBool::new(false);
    let tell = |stage: Stage<'_>| match stage {
        Stage::Listening(address) => note(&format!("listening on {address}\n")),
        Stage::Showing(address) => {
            note(&format!("look at http://{address}/, Prometheus at http://{address}/metrics\n"))
        }
        Stage::Agreed(problem) if !json => note(&report::opening(&config, problem)),
        Stage::Planned(plan) => {
            plan.warnings.iter().for_each(|warning| note(&format!("warning: {warning}\n")));
            if !json {
                note(&report::plan(plan));
            }
        }
        Stage::Stated(statement) if !json => {
            note(&format!("all sites state the same (SHA-256 {})\n", statement.hash()))
        }
        Stage::Agreed(_) | Stage::Stated(_) => {}
    };
    let listener =
        serving::bind(command.listen).map_err(|error| Failure::Other(error.to_string()))?;
    let served = std::thread::scope(|scope| {
        scope.spawn(|| watch(&status, &over));
        let served = serving::serve(listener, &config, &options, &status, tell, |served| {
            over.store(true, Ordering::Relaxed);
            show(&config, served, place, json)
        });
        over.store(true, Ordering::Relaxed);
        served
    });
    served.unwrap_or_else(|error| {
        Err(match error {
            ServeError::Config(error) => Failure::Config(error),
            ServeError::Run(error) => Failure::Run(error),
            ServeError::Lost(lost) => Failure::Lost(lost.to_string()),
            other => Failure::Other(other.to_string()),
        })
    })
}

fn own_papers(folder: Option<&Path>) -> Result<Option<Papers>, Failure> {
    folder.map(Papers::load).transpose().map_err(|error| Failure::Other(error.to_string()))
}

/// Keep a run that was served, and show its answer.
fn show(
    config: &Config,
    served: Served,
    place: Option<RunFolder>,
    json: bool,
) -> Result<(), Failure> {
    if place.is_some() {
        let text = config.resolved(&served.plan);
        Config::parse(Source { file: "the config as resolved".into(), folder: ".".into(), text })?;
    }
    let live = Live {
        shown: served.plan.warnings.len(),
        reference: None,
        held_out: None,
        iterations: served.outcome.iterations,
        survey: served.plan.survey_bits(),
        moments: served.problem.moments_bits,
        published: served.plan.published_bits(&served.outcome.ledger),
        draws: config.draws.clone(),
        folder: place.as_ref().map(|place| place.path().to_path_buf()),
    };
    let created = clock::utc(SystemTime::now());
    let (record, statement) = served.record(config, env!("CARGO_PKG_VERSION"), created);
    let folder = live.folder.clone();
    keep(&record, live, place, json)?;
    let Some(file) = folder.map(|folder| folder.join(serving::STATEMENT)) else { return Ok(()) };
    std::fs::write(&file, statement.text())
        .map_err(|error| Failure::Other(format!("{}: {error}", file.display())))
}

/// Show a site what all parties agree on, and later what surveys added to it.
fn show_statement(statement: &Statement) {
    let found = |(field, _): &(&str, &str)| field.starts_with("found: ");
    let again = statement.fields().any(|field| found(&field));
    note(if again { "The surveys found:\n" } else { "All parties agree on this:\n" });
    for field in statement.fields().filter(|field| !again || found(field)) {
        note(&format!("  {}: {}\n", field.0, field.1));
    }
    note(&format!("(SHA-256 of all of it: {})\n", statement.hash()));
}

/// Say how far a run is: now and then, or all the time on a terminal.
fn watch(status: &Status, over: &AtomicBool) {
    let terminal = std::io::stderr().is_terminal();
    let mut waited = Duration::ZERO;
    let tick = Duration::from_millis(if terminal { 500 } else { 100 });
    while !over.load(Ordering::Relaxed) {
        std::thread::sleep(tick);
        waited += tick;
        if terminal {
            note(&format!("\r\x1b[2K{}", status.view().line()));
        } else if waited >= LINES {
            note(&format!("{}\n", status.view().line()));
            waited = Duration::ZERO;
        }
    }
    if terminal {
        note("\r\x1b[2K");
    }
}

/// `consilience join`.
pub fn join(command: &JoinCommand) -> Result<(), Failure> {
    log::start(command.json_log);
    let brings = Brings {
        site: command.site.clone(),
        data: command.data.clone().map_or(Own::Stated, Own::File),
        expects: command.config.as_deref().map(Config::load).transpose()?,
        state: command.state.clone(),
        reserve: command.reserve,
        allows_simulation: command.allow_simulation_seeds,
        // a config of its own is compared, and need not be read once more
        shows: command.config.is_none().then_some(show_statement),
    };
    let options = JoinOptions {
        server: command.server.clone(),
        server_name: command.server_name.clone(),
        credentials: own_papers(command.certs.as_deref())?
            .map_or(Credentials::Word, Credentials::Certificate),
        patience: command.patience.map(Duration::from_secs),
    };
    let stop = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&stop);
    let _ = ctrlc::set_handler(move || {
        if asked.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    });
    match joining::join(brings, &options, &stop) {
        Ok(true) => say("The run came to its end.\n"),
        Ok(false) => Err(Failure::Lost("the server ended the run before its end".into())),
        Err(JoinError::Site(SiteError::Config(error))) => Err(Failure::Config(error)),
        Err(JoinError::Site(error @ (SiteError::Refused(_) | SiteError::Disagree(_)))) => {
            Err(Failure::Refused(error.to_string()))
        }
        Err(stopped @ JoinError::Stopped) => Err(Failure::Interrupted(Some(stopped.to_string()))),
        Err(error @ JoinError::Away { .. }) => Err(Failure::Lost(error.to_string())),
        Err(other) => Err(Failure::Other(other.to_string())),
    }
}
