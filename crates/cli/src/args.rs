//! Declare the commands, their options and their help.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as Arguments, Parser, Subcommand};

/// One posterior from sites that may not pool their data.
///
/// Without a command it samples built-in data: four hospitals, one posterior, and beside it the
/// posterior from pooled rows.
#[derive(Debug, Parser)]
#[command(
    name = "consilience",
    version,
    after_help = "Example:\n  consilience                    four hospitals, built-in data\n  \
        consilience new run.toml       a config to start from\n  consilience run run.toml --out \
        runs/mine\n  consilience summary runs/mine\n\n\
        Exit codes: 0 done; 1 any other error; 2 the config, its data, an argument or a name is \
        wrong; 3 a chain diverged or draws could not be written; 4 a party of a network is away; \
        5 a party of a network was refused; 6 a party of a network was interrupted (the same \
        command continues it); 7 the operator ended a run early; 8 the server gave up a run; 130 \
        stopped by Ctrl-C (draws so far are kept)."
)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// How the run without a command runs.
    #[command(flatten)]
    pub run: RunOptions,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Sample the posterior that a config describes.
    #[command(
        after_help = "Example:\n  consilience run run.toml --json > summary.json\n  consilience \
            run run.toml --out runs/mine\n  consilience run --resume runs/mine      after Ctrl-C, \
            a kill or a power cut\n\n\
            Exit codes: 0 done; 1 any other error; 2 the config, its data or an argument is wrong; \
            3 a chain diverged or draws could not be written; 130 stopped by Ctrl-C (draws so far \
            are kept and shown)."
    )]
    Run(RunCommand),
    /// Print the summary of a run directory, or of a file of draws.
    #[command(
        after_help = "Example:\n  consilience run run.toml --out runs/mine && consilience summary \
            runs/mine"
    )]
    Summary(SummaryCommand),
    /// Write the report of a run directory: one self-contained HTML page with plots.
    #[command(
        after_help = "Example:\n  consilience report runs/mine && xdg-open runs/mine/report.html"
    )]
    Report(ReportCommand),
    /// Predict new rows from the draws of a run directory.
    #[command(
        after_help = "Example:\n  consilience predict runs/mine --data new.csv\n  consilience \
            predict run.toml --prior --data new.csv    before any run\n\n\
            Give the rows as they are in the run's own files, CSV or Parquet: the same columns (in \
            any order), words, numbers and marks of missing values. They are coded, scaled and \
            imputed as the run's rows were. The response column is optional; if it is there, the \
            predictions are scored. If the model has site effects, name each row's site in a \
            column `site`, or the site of all rows by --site."
    )]
    Predict(PredictCommand),
    /// Check a model: hold responses that it would draw against those that there are, by counts and
    /// sums that sites send.
    #[command(
        after_help = "Example:\n  consilience check runs/mine\n  consilience check run.toml \
            --prior    what the prior alone says of the rows\n\n\
            Every site draws its rows' responses anew at up to 1000 draws of the run, and sends \
            counts and sums: mean, standard deviation, zeros, rows that are far off, counts by \
            bin, the mean of every site; and R^2 or AUC. A p below 0.005 is a warning that says \
            what to do. The files that the config names must be as they were."
    )]
    Check(CheckCommand),
    /// Judge a model by what it says of each row without having seen it: leave-one-out
    /// cross-validation (PSIS-LOO), computed at the sites.
    #[command(after_help = "Example:\n  consilience loo runs/mine\n\n\
            Every site computes the log-likelihood of each of its rows at all draws, and smooths \
            importance weights, as ArviZ does; sums over rows leave it. The files that the run's \
            config names must be as they were.\n\n\
            Where nobody has the files of all, each site does its part with the run's folder, and \
            somebody adds up the small files:\n  \
            consilience loo runs/mine --site north --data north.csv --out north.json\n  \
            consilience loo --merge north.json south.json")]
    Loo(LooCommand),
    /// Compare two models of the same rows by leave-one-out cross-validation.
    #[command(after_help = "Example:\n  consilience compare-models runs/poisson \
            runs/negative-binomial\n\n\
            Each site by itself, as with `consilience loo`:\n  \
            consilience compare-models runs/a runs/b --site north --data north.csv --out \
            north.json\n  \
            consilience compare-models --merge north.json south.json")]
    CompareModels(CompareModelsCommand),
    /// Draw the effects of one site's groups from a run, with that site's rows.
    #[command(after_help = "Example:\n  consilience effects runs/wards --site north --out \
            north/effects.csv\n\n\
            A model with (1 | group) samples what all sites share. Given each draw of that, a site \
            draws the effects of its own groups from their law: together they are draws of the \
            whole model.")]
    Effects(EffectsCommand),
    /// Compute the exact law of a sampler on a Gaussian target, and so its bias at this step,
    /// without sampling.
    #[command(after_help = "Example:\n  consilience exact run.toml")]
    Exact(ExactCommand),
    /// Survey the posterior and say what sampling it would take, without sampling
    #[command(
        after_help = "Example:\n  consilience plan run.toml    what each sampler would cost, which \
            is chosen and why"
    )]
    Plan(PlanCommand),
    /// Say what a run would tell of one row of a site, without reading any
    #[command(
        after_help = "Example:\n  consilience privacy run.toml    epsilon by site and threat \
            against iterations, what the budget allows, what would be refused"
    )]
    Privacy(PrivacyCommand),
    /// Print the layers of a net, their shapes, parameters and arithmetic, without sampling
    #[command(after_help = "Example:\n  consilience net run.toml")]
    Net(NetCommand),
    /// Sample the posterior from pooled rows, as a reference to compare with.
    #[command(after_help = "Example:\n  consilience truth run.toml\n  consilience truth run.toml \
            --method nuts --json\n\n\
            References are kept under the hash of the target. `run`, `compare` and `consilience` \
            alone compare their draws with a kept reference, NUTS first.")]
    Truth(TruthCommand),
    /// Run several samplers on one target and compare their errors by bits, gradients and seconds.
    #[command(after_help = "Example:\n  consilience compare lmc.toml qlsd.toml fald.toml --html \
            compare.html")]
    Compare(CompareCommand),
    /// Run the papers' experiments again and test their claims; without a name, list them.
    #[command(
        after_help = "Example:\n  consilience reproduce                       the list, with \
            costs\n  consilience reproduce toy-gaussian --quick\n  consilience reproduce \
            all --quick --as-published\n\nCtrl-C stops it; the same command continues."
    )]
    Reproduce(ReproduceCommand),
    /// List the samplers, the models, the compressors and the built-in data.
    #[command(after_help = "Example:\n  consilience list")]
    List,
    /// List, describe, check, split and show data sets.
    #[command(
        after_help = "Example:\n  consilience data list\n  consilience data show titanic --clients \
            10 --scheme \"dirichlet(0.5)\""
    )]
    Data(DataCommand),
    /// Make the certificates of a server and its sites.
    #[command(after_help = "Example:\n  consilience certs certs --sites \
            cleveland,hungarian,switzerland,va --server-name trials.example.org")]
    Certs(CertsCommand),
    /// Serve a run that sites join with their own rows; the server has none.
    #[command(after_help = "Example:\n  consilience serve run.toml --listen 0.0.0.0:7461 --certs \
            certs/server --state state --out runs/mine --http 8080\n\n\
            Exit codes: 0 done; 1 any other error; 2 the config or the sites' data is wrong; 3 a \
            chain diverged or draws could not be written; 4 a site was away beyond the deadline; 6 \
            interrupted by Ctrl-C or SIGTERM with --state (the sites wait; the same command \
            continues the run); 7 the operator ended the run early; 130 stopped by Ctrl-C without \
            --state (draws so far are kept).")]
    Serve(ServeCommand),
    /// Join a run as one of its sites.
    #[command(
        after_help = "Example:\n  consilience join --server trials.example.org:7461 --site va \
            --data va.data --certs certs/va --state state\n\n\
            Exit codes: 0 done; 1 any other error; 2 the config or the data is wrong; 4 the server \
            was away for longer than --patience; 5 the server refuses this site, or has another \
            target; 6 interrupted by Ctrl-C or SIGTERM with --state (the same command continues); \
            7 the operator ended the run early; 8 the server gave up the run; 130 stopped by \
            Ctrl-C without --state."
    )]
    Join(JoinCommand),
    /// Hold a run that is served, let it go on, go on without a site, or end it.
    #[command(after_help = "Example:\n  consilience control --server trials.example.org:7461 \
            --certs certs/operator pause\n\n\
            Exit codes: 0 done; 1 any other error; 4 the server was not reached; 5 it refuses.")]
    Control(ControlCommand),
    /// Check the audit log of a run that was served: that no line was changed, and who signed what.
    #[command(after_help = "Example:\n  consilience audit runs/sites --certs certs/east --head \
            SHA256\n\n\
            Exit codes: 0 no line was changed; 1 one was, and is named; 2 a wrong argument.")]
    Audit(AuditCommand),
    /// Document every field of a config.
    #[command(after_help = "Example:\n  consilience fields | less")]
    Fields,
    /// Write a config to start from.
    #[command(after_help = "Example:\n  consilience new run.toml && consilience run run.toml\n  \
            consilience new sites.toml --template csv")]
    New(NewCommand),
    /// Print completions for a shell.
    #[command(after_help = "Example:\n  consilience completions bash > \
            ~/.local/share/bash-completion/completions/consilience")]
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
}

/// How a run runs.
#[derive(Clone, Debug, Default, Arguments)]
pub struct RunOptions {
    /// Print one JSON object to standard output instead of tables.
    #[arg(long)]
    pub json: bool,
    /// Use this seed instead of the config's.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Use this many cores (0: all). Results do not depend on it.
    #[arg(long)]
    pub threads: Option<usize>,
    /// Run this many iterations of each chain instead of the config's.
    #[arg(long)]
    pub iterations: Option<u64>,
    /// Stream the draws to this .csv or .npy file.
    #[arg(long, value_name = "FILE")]
    pub draws: Option<PathBuf>,
    /// Keep the run in this folder: config, draws that ArviZ opens, ledger, log. Without a command
    /// it is runs/heart-disease-SEED, with a number appended where that exists.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Look for a kept reference here [default: the environment variable CONSILIENCE_CACHE, else
    /// the platform's cache folder]
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
}

/// `consilience run`.
#[derive(Debug, Arguments)]
pub struct RunCommand {
    /// The config.
    #[arg(required_unless_present = "resume")]
    pub config: Option<PathBuf>,
    /// Continue the unfinished run of this folder, to the same draws as if it had never stopped.
    #[arg(long, value_name = "DIR",
        conflicts_with_all = ["config", "out", "seed", "iterations", "draws"])]
    pub resume: Option<PathBuf>,
    /// How it runs.
    #[command(flatten)]
    pub options: RunOptions,
}

/// `consilience certs`.
#[derive(Debug, Arguments)]
pub struct CertsCommand {
    /// The folder to write to; it must be empty or new.
    pub dir: PathBuf,
    /// The sites, separated by commas.
    #[arg(long, value_delimiter = ',', required = true)]
    pub sites: Vec<String>,
    /// The names or addresses by which sites reach the server, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "localhost,127.0.0.1")]
    pub server_name: Vec<String>,
}

/// `consilience audit`.
#[derive(Debug, Arguments)]
pub struct AuditCommand {
    /// The run's folder, or the state folder of its server.
    pub run: PathBuf,
    /// The SHA-256 of the last line, as the sites were told it at the end.
    #[arg(long, value_name = "SHA256")]
    pub head: Option<String>,
    /// A party's folder of certificates: signatures must be by certificates of its authority.
    #[arg(long, value_name = "DIR")]
    pub certs: Option<PathBuf>,
}

/// `consilience serve`.
#[derive(Debug, Arguments)]
pub struct ServeCommand {
    /// The config.
    pub config: PathBuf,
    /// The address that sites connect to.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7461")]
    pub listen: std::net::SocketAddr,
    /// Open no port: exchange letters as files in this folder, by whatever copies files between
    /// the parties (a shared drive, SFTP, mail). Letters are signed and sealed.
    #[arg(
        long,
        value_name = "DIR",
        requires = "state",
        requires = "certs",
        conflicts_with = "listen"
    )]
    pub post: Option<PathBuf>,
    /// With --post: look into the folder every so many seconds.
    #[arg(long, value_name = "SECONDS", default_value = "0.5", requires = "post",
        value_parser = seconds)]
    pub look: Duration,
    /// With --post: put a letter that has no answer there again after this many seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 300, requires = "post")]
    pub again: u64,
    /// The server's folder of certificates: ca.pem, cert.pem, key.pem.
    #[arg(long, value_name = "DIR", required_unless_present = "insecure_loopback")]
    pub certs: Option<PathBuf>,
    /// Use no certificates; allowed only on an address of this machine.
    #[arg(long, conflicts_with = "certs")]
    pub insecure_loopback: bool,
    /// Keep the state here, so that a server that is killed can continue.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Show the run at this port of this machine, or at this address: / is a page, /metrics is for
    /// Prometheus. Anybody who can reach the address can read both.
    #[arg(long, value_name = "PORT or ADDR", value_parser = http_address)]
    pub http: Option<std::net::SocketAddr>,
    /// Give up after this many seconds without progress [default: wait forever]
    #[arg(long, value_name = "SECONDS")]
    pub deadline: Option<u64>,
    /// Pause a strict run that a site has blocked for this many seconds, by that site's name, until
    /// `consilience control resume`; 0: never.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub pause_after: u64,
    /// Refuse the certificates whose SHA-256 fingerprints stand in this file, one per line. It is
    /// read again when it changes.
    #[arg(long, value_name = "FILE", requires = "certs")]
    pub revoked: Option<PathBuf>,
    /// Stay this long after the end, to tell sites that have not heard of it.
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub linger: u64,
    /// Let this many connections of one address be about to say who they are: the others try again.
    /// Take more where many sites share an address.
    #[arg(long, value_name = "CONNECTIONS", default_value_t = 32, value_parser = at_least_one)]
    pub at_once: usize,
    /// Refuse answers whose vector has a larger norm than this, where no smaller limit follows from
    /// the model and the sites' rows.
    #[arg(long, value_name = "NORM", default_value_t = 1e12)]
    pub largest_norm: f64,
    /// Log as JSON, one object per line.
    #[arg(long)]
    pub json_log: bool,
    /// How the run runs.
    #[command(flatten)]
    pub options: RunOptions,
}

/// A port of this machine, or an address.
fn http_address(text: &str) -> Result<std::net::SocketAddr, String> {
    let loopback = text.parse::<u16>().map(|port| (std::net::Ipv4Addr::LOCALHOST, port).into());
    loopback
        .or_else(|_| text.parse())
        .map_err(|_| "give a port, such as 8080, or an address, such as 127.0.0.1:8080".to_owned())
}

/// A number from 1 on.
fn at_least_one(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or_else(|| "give a whole number from 1 on, such as 32".to_owned())
}

/// A time above 0.
fn seconds(text: &str) -> Result<Duration, String> {
    let above = |seconds: &f64| *seconds > 0.0 && *seconds < 1e6;
    let seconds = text.parse().ok().filter(above);
    let seconds = seconds.ok_or_else(|| "give seconds above 0, such as 0.5 or 60".to_owned())?;
    Ok(Duration::from_secs_f64(seconds))
}

/// Two numbers, both above 0.
fn budget(text: &str) -> Result<(f64, f64), String> {
    let two = text.split_once(',').and_then(|(epsilon, delta)| {
        Some((epsilon.trim().parse::<f64>().ok()?, delta.trim().parse::<f64>().ok()?))
    });
    two.filter(|(epsilon, delta)| {
        epsilon.is_finite() && *epsilon > 0.0 && *delta > 0.0 && *delta < 1.0
    })
    .ok_or_else(|| "give epsilon and delta, such as 6,1e-5".to_owned())
}

/// `consilience join`.
#[derive(Debug, Arguments)]
pub struct JoinCommand {
    /// The server.
    #[arg(long, value_name = "HOST:PORT", required_unless_present = "post")]
    pub server: Option<String>,
    /// Use no network: exchange letters as files in this folder, as the server does with its
    /// --post. It holds to-NAME and from-NAME for this site.
    #[arg(long, value_name = "DIR", requires = "state", requires = "certs",
        conflicts_with_all = ["server", "server_name"])]
    pub post: Option<PathBuf>,
    /// With --post: look into the folder every so many seconds.
    #[arg(long, value_name = "SECONDS", default_value = "0.5", requires = "post",
        value_parser = seconds)]
    pub look: Duration,
    /// This site's name in the server's config.
    #[arg(long, value_name = "NAME")]
    pub site: String,
    /// This site's rows.
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
    /// This site's folder of certificates: ca.pem, cert.pem, key.pem.
    #[arg(long, value_name = "DIR", required_unless_present = "insecure_loopback")]
    pub certs: Option<PathBuf>,
    /// The name in the server's certificate, if it is not the host.
    #[arg(long, value_name = "NAME")]
    pub server_name: Option<String>,
    /// Use no certificates; allowed only if the server is on this machine.
    #[arg(long, conflicts_with = "certs")]
    pub insecure_loopback: bool,
    /// Keep the private seed and the state here, so that a site that is killed can continue.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Reserve the random numbers of this many rounds at a time, instead of syncing the disk for
    /// every answer. A site that is killed continues as before. After a power failure noise is
    /// never used twice, but the run may have to start again.
    #[arg(long, value_name = "ROUNDS", requires = "state")]
    pub reserve: Option<u64>,
    /// Compare what the server states with this config, and refuse if anything differs.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// What this site may tell of one row in all its runs together: epsilon and delta. A run with a
    /// privacy budget takes its whole budget out of it, once; nothing is put back.
    #[arg(long, value_name = "EPSILON,DELTA", requires = "state", value_parser = budget)]
    pub budget: Option<(f64, f64)>,
    /// For tests: take the noise from the server's seed if its config has seeds = "simulation".
    #[arg(long)]
    pub allow_simulation_seeds: bool,
    /// Give up when the server is away for this many seconds [default: retry forever]
    #[arg(long, value_name = "SECONDS")]
    pub patience: Option<u64>,
    /// Log as JSON, one object per line.
    #[arg(long)]
    pub json_log: bool,
}

/// `consilience control`.
#[derive(Debug, Arguments)]
pub struct ControlCommand {
    /// The server.
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:7461")]
    pub server: String,
    /// The operator's folder of certificates: ca.pem, cert.pem, key.pem.
    #[arg(long, value_name = "DIR", required_unless_present = "insecure_loopback")]
    pub certs: Option<PathBuf>,
    /// The name in the server's certificate, if it is not the host.
    #[arg(long, value_name = "NAME")]
    pub server_name: Option<String>,
    /// Use no certificates; allowed only if the server is on this machine.
    #[arg(long, conflicts_with = "certs")]
    pub insecure_loopback: bool,
    /// What to do.
    #[command(subcommand)]
    pub order: ControlOrder,
}

/// What an operator asks for.
#[derive(Debug, Subcommand)]
pub enum ControlOrder {
    /// Say how the run stands.
    Status,
    /// Hold the run until it is resumed, or the server is started again: the sites wait.
    Pause,
    /// Let it go on.
    Resume,
    /// Go on without a site, if the run is elastic, until the server is started again.
    Drop {
        /// The site.
        site: String,
    },
    /// End it now: the draws so far are published, and the run is over.
    End,
}

/// `consilience summary`.
#[derive(Debug, Arguments)]
pub struct SummaryCommand {
    /// The run directory, or a .npy or .csv file that `--draws` wrote, however large.
    pub dir: PathBuf,
    /// Show odds, rate, hazard or time ratios with their intervals instead.
    #[arg(long)]
    pub ratios: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `consilience report`.
#[derive(Debug, Arguments)]
pub struct ReportCommand {
    /// The run directory.
    pub dir: PathBuf,
    /// Write the page here instead of `report.html` in the run directory.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Also write the plot of means and intervals to this SVG file.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Also write the held-out images of which predictions are least sure to this SVG file.
    #[arg(long, value_name = "FILE")]
    pub uncertain: Option<PathBuf>,
}

/// `consilience predict`.
#[derive(Debug, Arguments)]
pub struct PredictCommand {
    /// The run directory; with --prior, a config will do.
    pub dir: PathBuf,
    /// The new rows, a CSV or Parquet file with the columns of the run's own files.
    #[arg(long, value_name = "FILE")]
    pub data: PathBuf,
    /// The site of all rows, if the model has site effects and there is no column `site`; with
    /// effects of groups, one whose groups' effects are drawn by its own rows.
    #[arg(long, value_name = "NAME")]
    pub site: Option<String>,
    /// That site's own rows, where the model has effects of groups and the config does not name its
    /// file.
    #[arg(long, value_name = "FILE", requires = "site")]
    pub site_data: Option<PathBuf>,
    /// Say what the prior alone expects of the rows, before any data.
    #[arg(long)]
    pub prior: bool,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `consilience effects`.
#[derive(Debug, Arguments)]
pub struct EffectsCommand {
    /// The run directory.
    pub dir: PathBuf,
    /// Whose groups.
    #[arg(long, value_name = "NAME")]
    pub site: String,
    /// The site's rows, where the config does not name its file.
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
    /// Write the draws to this CSV file, one column a group.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `consilience check`.
#[derive(Debug, Arguments)]
pub struct CheckCommand {
    /// The run directory; with --prior, a config will do.
    pub path: PathBuf,
    /// Draw parameters from the prior instead of the posterior.
    #[arg(long, conflicts_with_all = ["site", "merge"])]
    pub prior: bool,
    #[command(flatten)]
    pub apart: ApartArguments,
    /// The files that all sites wrote first (--site and --out without --first): a site counts its
    /// responses in the bins that follow from them.
    #[arg(long, value_name = "FILE", num_args = 1.., requires = "site")]
    pub first: Vec<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// What sites do each by itself.
#[derive(Debug, Arguments)]
pub struct ApartArguments {
    /// Do the part of this site alone, by its own rows.
    #[arg(long, value_name = "NAME", requires = "out", conflicts_with = "merge")]
    pub site: Option<String>,
    /// The site's rows, where the config does not name its file.
    #[arg(long, value_name = "FILE", requires = "site")]
    pub data: Option<PathBuf>,
    /// Write the site's sums to this file, and nothing else.
    #[arg(long, value_name = "FILE", requires = "site")]
    pub out: Option<PathBuf>,
    /// Add up the files of all sites.
    #[arg(long, value_name = "FILE", num_args = 1..)]
    pub merge: Vec<PathBuf>,
}

/// `consilience loo`.
#[derive(Debug, Arguments)]
pub struct LooCommand {
    /// The run directory.
    #[arg(required_unless_present = "merge", conflicts_with = "merge")]
    pub dir: Option<PathBuf>,
    #[command(flatten)]
    pub apart: ApartArguments,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `consilience compare-models`.
#[derive(Debug, Arguments)]
pub struct CompareModelsCommand {
    /// The run directory of one model.
    #[arg(required_unless_present = "merge", conflicts_with = "merge")]
    pub a: Option<PathBuf>,
    /// The run directory of another model of the same rows.
    #[arg(required_unless_present = "merge", conflicts_with = "merge")]
    pub b: Option<PathBuf>,
    #[command(flatten)]
    pub apart: ApartArguments,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `consilience plan`.
#[derive(Debug, Arguments)]
pub struct PlanCommand {
    /// The config.
    pub config: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `consilience privacy`.
#[derive(Debug, Arguments)]
pub struct PrivacyCommand {
    /// The config.
    pub config: PathBuf,
    /// Also read the rows of this site, which are here, and say how many are longer than row_norm.
    #[arg(long, value_name = "NAME")]
    pub site: Option<String>,
    /// The site's file, where the config does not have its rows.
    #[arg(long, value_name = "FILE", requires = "site")]
    pub data: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `consilience net`.
#[derive(Debug, Arguments)]
pub struct NetCommand {
    /// The config.
    pub config: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `consilience exact`.
#[derive(Debug, Arguments)]
pub struct ExactCommand {
    /// The config.
    pub config: PathBuf,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `consilience truth`.
#[derive(Debug, Arguments)]
pub struct TruthCommand {
    /// The config; its sampler does not matter.
    pub config: PathBuf,
    /// The method: nuts, mala or lmc (a long run, biased by its small step), or several separated
    /// by commas, which must agree [default: all].
    #[arg(long, value_name = "METHOD", value_delimiter = ',')]
    pub method: Vec<String>,
    /// How many chains.
    #[arg(long, default_value_t = 4)]
    pub chains: usize,
    /// How many draws each chain keeps [default: 1000 of nuts, 4000 of mala and lmc].
    #[arg(long)]
    pub draws: Option<usize>,
    /// Use this seed instead of the config's.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Make the references again, even if they are kept.
    #[arg(long)]
    pub fresh: bool,
    /// Keep references here [default: the environment variable CONSILIENCE_CACHE, else the
    /// platform's cache folder]
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `consilience new`.
#[derive(Debug, Arguments)]
pub struct NewCommand {
    /// The file to write; standard output if none is given.
    pub file: Option<PathBuf>,
    /// What to start from: the four hospitals, CSV files and a formula, a network, or Gaussian
    /// sites.
    #[arg(long, default_value = "heart")]
    pub template: Template,
}

/// What a new config starts from.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Template {
    /// Four hospitals, built-in data: what `consilience` alone runs.
    Heart,
    /// One CSV or Parquet file per site, and a formula.
    Csv,
    /// Sites on their own machines.
    Network,
    /// Gaussian sites, whose posterior is known exactly.
    Gaussian,
}

/// `consilience compare`.
#[derive(Debug, Arguments)]
pub struct CompareCommand {
    /// The configs: the same target, different samplers.
    #[arg(required = true)]
    pub configs: Vec<PathBuf>,
    /// Use this seed for all of them.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Also write one self-contained HTML page with plots to this file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Look for a kept reference here [default: the environment variable CONSILIENCE_CACHE, else
    /// the platform's cache folder]
    #[arg(long, value_name = "DIR")]
    pub cache: Option<PathBuf>,
    /// Print one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// `consilience reproduce`.
#[derive(Debug, Arguments)]
pub struct ReproduceCommand {
    /// Which one, or `all`.
    pub id: Option<String>,
    /// A minute or so each [default]
    #[arg(long, group = "size")]
    pub quick: bool,
    /// The paper's own size if that takes at most an hour on two cores, else the largest that does.
    #[arg(long, group = "size")]
    pub hour: bool,
    /// The paper's own size.
    #[arg(long, group = "size")]
    pub full: bool,
    /// Seconds each: enough to see that it runs, too small for verdicts.
    #[arg(long, group = "size", hide = true)]
    pub tiny: bool,
    /// Also show what the authors' programs did, and how that changes the result.
    #[arg(long)]
    pub as_published: bool,
    /// Run again what is already finished.
    #[arg(long)]
    pub fresh: bool,
    /// Use this seed instead of the experiment's.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Use this many cores (0: all). Results do not depend on it.
    #[arg(long)]
    pub threads: Option<usize>,
    /// What computes neural nets: cuda and auto are an NVIDIA GPU. Results do not depend on it.
    #[arg(long, value_enum, default_value = "cpu")]
    pub device: DeviceWord,
    /// Keep results in this folder [default: reproductions/SIZE]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The folder that holds the data sets that are not built in, as NAME/FILE [default: the
    /// environment variable CONSILIENCE_DATA]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// With `all`: run these at the quick size.
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    pub quick_for: Vec<String>,
    /// Also keep the numbers in this folder as PAPER/ID.numbers.json, so that claims can be tested
    /// again without a run.
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
    /// Run nothing; test the claims on the numbers kept in this folder, whatever their size.
    #[arg(long, value_name = "DIR",
        conflicts_with_all = ["size", "as_published", "fresh", "seed", "keep", "quick_for"])]
    pub kept: Option<PathBuf>,
    /// With `all`: write the scorecard as Markdown to this file, and its verdicts to a CSV file of
    /// the same name.
    #[arg(long, value_name = "FILE")]
    pub scorecard: Option<PathBuf>,
    /// Print JSON instead of tables.
    #[arg(long)]
    pub json: bool,
}

/// What computes.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum DeviceWord {
    /// This machine's cores.
    Cpu,
    /// Its first GPU, or nothing.
    Cuda,
    /// Its first GPU if it can be used, else its cores.
    Auto,
}

/// `consilience data`.
#[derive(Debug, Arguments)]
pub struct DataCommand {
    /// The folder that holds the data sets that are not built in, as NAME/FILE [default: the
    /// environment variable CONSILIENCE_DATA]
    #[arg(long, global = true, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// What to do.
    #[command(subcommand)]
    pub action: DataAction,
}

/// What to do with data.
#[derive(Debug, Subcommand)]
pub enum DataAction {
    /// List the data sets that are known by name.
    #[command(after_help = "Example:\n  consilience data list --json")]
    List {
        /// Print one JSON array.
        #[arg(long)]
        json: bool,
    },
    /// Describe a data set: shape, classes, columns, files, licence.
    #[command(after_help = "Example:\n  consilience data describe a9a --data ~/data")]
    Describe {
        /// The data set.
        name: String,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Check the checksums, shape and class counts of a data set.
    #[command(
        after_help = "Example:\n  consilience data check titanic\n  consilience data check all \
            --data ~/data"
    )]
    Check {
        /// The data set, or `all`.
        name: String,
        /// Print one JSON array.
        #[arg(long)]
        json: bool,
    },
    /// Deal a data set to clients and write one CSV file for each.
    #[command(after_help = "Example:\n  consilience data split titanic --clients 10 --scheme \
            \"dirichlet(0.5)\" --out sites\n  consilience data split mine.csv --response ill \
            --clients 4 --out sites")]
    Split {
        /// How it is dealt.
        #[command(flatten)]
        deal: DealOptions,
        /// The folder to write to; it must be empty or new.
        #[arg(long, value_name = "DIR")]
        out: PathBuf,
    },
    /// Print how a run coded columns, as lines of [target.coding]: a config that states them asks
    /// no site.
    #[command(after_help = "Example:\n  consilience data coding runs/public >> private.toml")]
    Coding {
        /// The run's folder.
        dir: PathBuf,
    },
    /// Show how many rows of each label each client has.
    #[command(after_help = "Example:\n  consilience data show titanic --clients 10 --scheme \
            \"dirichlet(0.5)\" --svg split.svg")]
    Show {
        /// How it is dealt.
        #[command(flatten)]
        deal: DealOptions,
        /// Also write the picture to this SVG file.
        #[arg(long, value_name = "FILE")]
        svg: Option<PathBuf>,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
}

/// How a data set is dealt to clients.
#[derive(Debug, Arguments)]
pub struct DealOptions {
    /// The data set: a name, or a file that ends in .csv, .parquet, .npy, .npz, .svm, .bin or
    /// .cols, optionally with .gz or .xz.
    pub name: String,
    /// The column of the labels in a CSV file [default: the last].
    #[arg(long, value_name = "COLUMN")]
    pub response: Option<String>,
    /// The number of clients; natural schemes have their own.
    #[arg(long)]
    pub clients: Option<usize>,
    /// The scheme: iid, contiguous, natural, natural(COLUMN), dirichlet, dirichlet(A),
    /// two-clients(S), dominant(S), power-law(A).
    #[arg(long, default_value = "iid")]
    pub scheme: String,
    /// The seed of the deal.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Use a random subset of this many rows.
    #[arg(long)]
    pub rows: Option<usize>,
}
