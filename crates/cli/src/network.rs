//! Serve a run, join one, make certificates.

use std::io::IsTerminal;
use std::net::TcpListener;
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
use consilience_net::control::Command;
use consilience_net::folders::{self, Folders};
use consilience_net::join::{Credentials, JoinError, JoinOptions};
use consilience_net::serve::{Admission, Publication, ServeError, ServeOptions, Served, Stage};
use consilience_net::status::Status;
use consilience_net::talk::{Farewell, How};
use consilience_net::worker::{Brings, SiteError};
use consilience_net::{
    audit as auditing, control as controlling, join as joining, log, serve as serving,
};

use crate::args::{
    AuditCommand, CertsCommand, ControlCommand, ControlOrder, JoinCommand, ServeCommand,
};
use crate::clock;
use crate::output::{Failure, note, say};
use crate::page;
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
    let past = match &command.state {
        Some(state) => serving::recall(state, &config).map_err(serve_failure)?,
        None => None,
    };
    let out = command.options.out.as_deref();
    let published = match (out, &past) {
        (Some(out), Some(past)) => rundir::is_published(out, &past.run),
        (None, Some(past)) => past.over.is_some(),
        (_, None) => false,
    };
    if let (Some(out), false) = (out, published) {
        rundir::check(out)?; // before hours are spent
    }
    let options = ServeOptions {
        admission: own_papers(command.certs.as_deref())?
            .map_or(Admission::Word, Admission::Certificates),
        state: command.state.clone(),
        http: command.http,
        deadline: command.deadline.map(Duration::from_secs),
        largest_norm: command.largest_norm,
        quarantine: true,
        pause_after: (command.pause_after > 0).then(|| Duration::from_secs(command.pause_after)),
        revoked: command.revoked.clone(),
        linger: Duration::from_secs(command.linger),
        at_once: command.at_once,
    };
    let progress = Arc::new(Progress::default());
    let status =
        Arc::new(Status::new(&consilience_engine::site::names(&config)?, Arc::clone(&progress)));
    let (asked, goes_on) = (Arc::clone(&status), options.state.is_some());
    let _ = ctrlc::set_handler(move || {
        if asked.is_stopped() || asked.is_suspended() {
            std::process::exit(130);
        }
        if goes_on {
            serving::suspend(&asked);
            note("\ninterrupted: the sites wait (Ctrl-C again to leave at once)\n");
        } else {
            serving::stop(&asked);
            note("\nstopping: what was drawn is kept (Ctrl-C again to leave at once)\n");
        }
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
    let way = match &command.post {
        Some(folder) => {
            let again = Duration::from_secs(command.again);
            let look = command.look;
            Way::Post(Folders { look, again, ..Folders::new(folder.clone()) })
        }
        None => Way::Port(
            serving::bind(command.listen).map_err(|error| Failure::Other(error.to_string()))?,
        ),
    };
    if let (Some(past), true) = (past, published) {
        let over = past.over.map_or_else(|| whereabouts(How::Finished, out), |o| o.farewell);
        match way {
            Way::Port(listener) => {
                note("The run is over: sites that have not heard of it are told.\n");
                serving::tell_over(listener, &config, &options, &status, tell, over.clone())
            }
            Way::Post(folders) => {
                note("The run is over: sites that have not heard of it are told by letter.\n");
                folders::tell_over(&folders, &config, &options, &status, tell, over.clone())
            }
        }
        .map_err(serve_failure)?;
        return ended(&over);
    }
    let served = std::thread::scope(|scope| {
        scope.spawn(|| watch(&status, &over));
        let keep = |served: Served| {
            over.store(true, Ordering::Relaxed);
            let how = if served.outcome.interrupted { How::Ended } else { How::Finished };
            let shown = show(&config, served, out, json);
            // what can fail after the draws are safe is no more than telling of it
            let safe = matches!(shown, Ok(()) | Err(Failure::Interrupted(_) | Failure::PipeClosed));
            let farewell = whereabouts(how, out);
            let shown = match shown {
                Err(Failure::Interrupted(_)) if status.is_ended() => ended(&farewell),
                shown => shown,
            };
            Publication { value: shown, safe, says: farewell.says }
        };
        let served = match way {
            Way::Port(listener) => {
                serving::publish(listener, &config, &options, &status, tell, keep)
            }
            Way::Post(folders) => {
                note(&format!("letters are exchanged in {}\n", folders.folder.display()));
                folders::publish(&folders, &config, &options, &status, tell, keep)
            }
        };
        over.store(true, Ordering::Relaxed);
        served
    });
    served.unwrap_or_else(|error| Err(serve_failure(error)))
}

/// How the parties reach one another.
enum Way {
    Port(TcpListener),
    Post(Folders),
}

fn serve_failure(error: ServeError) -> Failure {
    match error {
        ServeError::Config(error) => Failure::Config(error),
        ServeError::Run(error) => Failure::Run(error),
        ServeError::Lost(lost) => Failure::Lost(lost.to_string()),
        ServeError::Stopped => Failure::Aborted(error.to_string()),
        ServeError::Suspended => Failure::Suspended(error.to_string()),
        other => Failure::Other(other.to_string()),
    }
}

/// How a run ended and where its draws are, for the sites.
fn whereabouts(how: How, out: Option<&Path>) -> Farewell {
    let says = match out {
        None => "the draws were printed at the server, and not kept (it was served without --out)"
            .to_owned(),
        Some(out) => {
            let place = std::path::absolute(out).unwrap_or_else(|_| out.to_path_buf());
            format!("the draws are at the server, in {}", place.display())
        }
    };
    Farewell { how, says }
}

/// Say how a run ended, here and at a site.
fn ended(farewell: &Farewell) -> Result<(), Failure> {
    let says = &farewell.says;
    let also = if says.is_empty() { String::new() } else { format!(": {says}") };
    match farewell.how {
        How::Finished => say(&format!("The run came to its end{also}.\n")),
        How::Ended => Err(Failure::Ended(format!("The operator ended the run early{also}."))),
        How::Aborted => Err(Failure::Aborted(format!("the server gave up the run{also}"))),
    }
}

fn own_papers(folder: Option<&Path>) -> Result<Option<Papers>, Failure> {
    let papers = folder.map(Papers::load).transpose();
    let papers = papers.map_err(|error| Failure::Other(error.to_string()))?;
    if let Some(ends) = papers.as_ref().and_then(|papers| papers.end_soon(SystemTime::now())) {
        note(&format!("warning: this party's certificate {ends}: make new ones\n"));
    }
    Ok(papers)
}

/// Keep a run that was served, and show its answer.
fn show(config: &Config, served: Served, out: Option<&Path>, json: bool) -> Result<(), Failure> {
    if out.is_some() {
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
        folder: out.map(Path::to_path_buf),
        exact: None,
    };
    let created = clock::utc(SystemTime::now());
    let (run, audit) = (served.run.clone(), served.audit.clone());
    let (record, statement) = served.record(config, env!("CARGO_PKG_VERSION"), created);
    let place = out.map(|out| {
        let files = vec![
            (page::NAME, consilience_report::html(&record)),
            (serving::STATEMENT, statement.text().to_owned()),
            (auditing::FILE, audit),
        ];
        RunFolder::Served(out.to_path_buf(), run, files)
    });
    keep(&record, live, place, json)
}

/// Show a site what all parties agree on, and later what surveys added to it.
fn show_statement(statement: &Statement) {
    let found = |(field, _): &(&str, &str)| field.starts_with("found, ");
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
        budget: command.budget,
        papers: None, // those of --certs, which follow
        // a config of its own is compared, and need not be read once more
        shows: command.config.is_none().then_some(show_statement),
    };
    let papers = own_papers(command.certs.as_deref())?;
    let patience = command.patience.map(Duration::from_secs);
    let stop = Arc::new(AtomicBool::new(false));
    let asked = Arc::clone(&stop);
    let _ = ctrlc::set_handler(move || {
        if asked.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    });
    let goes_on = command.state.is_some();
    let attended = match (&command.post, papers) {
        (Some(folder), Some(papers)) => {
            let folders = Folders { look: command.look, ..Folders::new(folder.clone()) };
            folders::attend(brings, &folders, &papers, patience, &stop)
        }
        (_, papers) => {
            let options = JoinOptions {
                server: command.server.clone().unwrap_or_default(),
                server_name: command.server_name.clone(),
                credentials: papers.map_or(Credentials::Word, Credentials::Certificate),
                patience,
            };
            joining::attend(brings, &options, &stop)
        }
    };
    match attended {
        Ok(farewell) => ended(&farewell),
        Err(JoinError::Site(SiteError::Config(error) | SiteError::Stated(error))) => {
            Err(Failure::Config(error))
        }
        Err(JoinError::Site(
            error @ (SiteError::Refused(_) | SiteError::Disagree(_) | SiteError::OtherRows(_)),
        )) => Err(Failure::Refused(error.to_string())),
        Err(JoinError::Stopped) if goes_on => Err(Failure::Suspended(
            "This site was interrupted: start it again with the same command, and it goes on."
                .into(),
        )),
        Err(stopped @ JoinError::Stopped) => Err(Failure::Interrupted(Some(stopped.to_string()))),
        Err(error @ JoinError::Away { .. }) => Err(Failure::Lost(error.to_string())),
        Err(other) => Err(Failure::Other(other.to_string())),
    }
}

/// `consilience audit`.
pub fn audit(command: &AuditCommand) -> Result<(), Failure> {
    let other = |why: String| Failure::Other(why);
    let inside = [
        command.run.join(auditing::FILE),
        command.run.join("audit").join(auditing::FILE),
        command.run.clone(),
    ];
    let file = inside.into_iter().find(|file| file.is_file()).ok_or_else(|| {
        other(format!(
            "there is no {} in {}: give the folder of a run that was served, or its state",
            auditing::FILE,
            command.run.display()
        ))
    })?;
    let read = |file: &Path| {
        std::fs::read_to_string(file).map_err(|e| other(format!("{}: {e}", file.display())))
    };
    let authority = own_papers(command.certs.as_deref())?.map(|papers| papers.authority_pem());
    let (entries, head) = auditing::checked(&read(&file)?, authority.as_deref())
        .map_err(|why| other(format!("{}: {why}", file.display())))?;
    let mut text = String::new();
    for entry in &entries {
        let time = clock::utc(entry.time());
        text.push_str(&format!("{:>5}  {time}  {}\n", entry.number, entry.happened));
    }
    let statement = command.run.join(serving::STATEMENT);
    if statement.is_file() {
        let hash = Statement::written(&read(&statement)?).hash();
        let signers = auditing::signers(&entries, &hash).ok_or_else(|| {
            other(format!(
                "{} is not what was agreed on: its SHA-256 {hash} is not in the audit log",
                statement.display()
            ))
        })?;
        let signed = if signers.is_empty() { "nobody".to_owned() } else { signers.join(", ") };
        text.push_str(&format!("{} was agreed on, and signed by {signed}.\n", serving::STATEMENT));
    }
    if let Some(told) = command.head.as_ref().filter(|told| **told != head) {
        return Err(other(format!(
            "the log is whole, and not the one of the run: its last line has the SHA-256 {head}, \
             and the sites were told {told}"
        )));
    }
    say(&format!(
        "{text}No line was changed: {} lines, the last has the SHA-256\n{head}\n{}",
        entries.len(),
        if command.head.is_some() {
            "which is the one that was stated.\n"
        } else {
            "Compare it with what the sites were told at the end: --head.\n"
        }
    ))
}

/// `consilience control`.
pub fn control(command: &ControlCommand) -> Result<(), Failure> {
    let options = JoinOptions {
        server: command.server.clone(),
        server_name: command.server_name.clone(),
        credentials: own_papers(command.certs.as_deref())?
            .map_or(Credentials::Word, Credentials::Certificate),
        patience: None,
    };
    let order = match &command.order {
        ControlOrder::Status => Command::Status,
        ControlOrder::Pause => Command::Pause,
        ControlOrder::Resume => Command::Resume,
        ControlOrder::Drop { site } => Command::Drop { site: site.clone() },
        ControlOrder::End => Command::End,
    };
    match controlling::order(&options, &order) {
        Ok(line) => say(&format!("{line}\n")),
        Err(JoinError::Site(SiteError::Refused(why))) => Err(Failure::Refused(why)),
        Err(JoinError::Away { server, why, .. }) => {
            Err(Failure::Lost(format!("the server {server} was not reached: {why}")))
        }
        Err(other) => Err(Failure::Other(other.to_string())),
    }
}
