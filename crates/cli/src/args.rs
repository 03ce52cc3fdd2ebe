//! What can be asked on the command line.

use std::path::PathBuf;

use clap::{Args as Arguments, Parser, Subcommand};

/// One posterior from sites that may not pool their data.
///
/// Without a command it does the main job on built-in data: four hospitals, one posterior, the
/// pooled answer beside it.
#[derive(Debug, Parser)]
#[command(
    name = "consilience",
    version,
    after_help = "Example:\n  consilience                    the main job on built-in data\n  \
        consilience new run.toml       a config to start from\n  consilience run run.toml --out \
        runs/mine\n  consilience summary runs/mine\n\n\
        Exit codes: 0 done; 1 something that you can mend; 2 the config, its data, an argument or \
        a name is wrong; 3 a chain diverged or draws could not be written; 4, 5 parties of a \
        network are away or refused; 130 Ctrl-C stopped it early (what was drawn is kept)."
)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
    /// How the main job runs.
    #[command(flatten)]
    pub run: RunOptions,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Sample the posterior that a config states.
    #[command(
        after_help = "Example:\n  consilience run run.toml --json > summary.json\n  consilience \
            run run.toml --out runs/mine\n  consilience run --resume runs/mine      after Ctrl-C, \
            a kill or a power cut\n\n\
            Exit codes: 0 the run came to its end; 2 the config, its data or an argument is wrong; \
            3 a chain diverged or draws could not be written; 130 Ctrl-C stopped it early, and \
            what was drawn is kept and shown; 1 anything else."
    )]
    Run(RunCommand),
    /// Show the answer of a run directory again, or summarise a file of draws.
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
    #[command(after_help = "Example:\n  consilience predict runs/mine --data new.csv\n\n\
            The rows are raw, as in the files that the run was made from: the same columns (in any \
            order), words, numbers and marks of missing values, CSV or Parquet. The run's own \
            coding, means and imputation are applied to them. The response may be left out; where \
            it is there, the predictions are scored. With effects of sites a column `site` names \
            each row's site, or --site that of all.")]
    Predict(PredictCommand),
    /// Print the exact law of a sampler on a Gaussian target: its bias at this step, without
    /// sampling.
    #[command(after_help = "Example:\n  consilience exact run.toml")]
    Exact(ExactCommand),
    /// Sample the posterior from pooled rows, as a federation may not: the reference, by one method
    /// or several that must agree.
    #[command(after_help = "Example:\n  consilience truth run.toml\n  consilience truth run.toml \
            --method nuts --json\n\n\
            References are kept under the hash of the target; `run`, `compare` and the main job \
            use what is kept (NUTS first).")]
    Truth(TruthCommand),
    /// Run several samplers on one problem: errors against bits, gradients and seconds.
    #[command(after_help = "Example:\n  consilience compare lmc.toml qlsd.toml fald.toml --html \
            compare.html")]
    Compare(CompareCommand),
    /// Run the papers' experiments again and judge their claims; without a name, list them.
    #[command(
        after_help = "Example:\n  consilience reproduce                       what there is, and \
            what it costs\n  consilience reproduce toy-gaussian --quick\n  consilience reproduce \
            all --quick --as-published\n\nCtrl-C stops it; the same command goes on from there."
    )]
    Reproduce(ReproduceCommand),
    /// List the samplers and the built-in data.
    #[command(after_help = "Example:\n  consilience list")]
    List,
    /// List, describe, check, split and show data sets.
    #[command(
        after_help = "Example:\n  consilience data list\n  consilience data show titanic --clients \
            10 --scheme \"dirichlet(0.5)\""
    )]
    Data(DataCommand),
    /// Make certificates by which a server and its sites know each other.
    #[command(after_help = "Example:\n  consilience certs certs --sites \
            cleveland,hungarian,switzerland,va --server-name trials.example.org")]
    Certs(CertsCommand),
    /// Serve a run: sites join it with rows of their own, and the server has none.
    #[command(after_help = "Example:\n  consilience serve run.toml --listen 0.0.0.0:7461 --certs \
            certs/server --state state --out runs/mine --http 8080\n\n\
            Exit codes: 0 the run came to its end; 1 something that you can mend; 2 the config or \
            the sites' data is wrong; 3 a chain diverged or draws could not be written; 4 a site \
            was away beyond the deadline, or does not take part; 130 Ctrl-C stopped it early, and \
            what was drawn is kept.")]
    Serve(ServeCommand),
    /// Join a run as one of its sites.
    #[command(
        after_help = "Example:\n  consilience join --server trials.example.org:7461 --site va \
            --data va.data --certs certs/va --state state\n\n\
            Exit codes: 0 the run came to its end; 1 something that you can mend; 2 the config or \
            the data is wrong; 4 the server was away for too long, or stopped before the end; 5 \
            the server refuses this site, or does not mean the same target; 130 Ctrl-C stopped it."
    )]
    Join(JoinCommand),
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
    /// Use so many cores (0: all). The numbers do not depend on it.
    #[arg(long)]
    pub threads: Option<usize>,
    /// Run so many iterations of each chain instead of the config's.
    #[arg(long)]
    pub iterations: Option<u64>,
    /// Stream the draws to this .csv or .npy file.
    #[arg(long, value_name = "FILE")]
    pub draws: Option<PathBuf>,
    /// Keep the run in this folder: config, draws that ArviZ opens, ledger, log. The main job keeps
    /// its own in runs/heart-disease-SEED, with a number appended where that is taken.
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

/// `consilience serve`.
#[derive(Debug, Arguments)]
pub struct ServeCommand {
    /// The config.
    pub config: PathBuf,
    /// The address that sites connect to.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7461")]
    pub listen: std::net::SocketAddr,
    /// The server's folder of certificates: ca.pem, cert.pem, key.pem.
    #[arg(long, value_name = "DIR", required_unless_present = "insecure_loopback")]
    pub certs: Option<PathBuf>,
    /// Do without certificates, on an address of this machine alone.
    #[arg(long, conflicts_with = "certs")]
    pub insecure_loopback: bool,
    /// Keep the state here, so that a server that dies goes on where it was.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Show the run at this port of this machine, or at this address: / for people, /metrics for
    /// Prometheus. Anybody who can reach it can look.
    #[arg(long, value_name = "PORT or ADDR", value_parser = http_address)]
    pub http: Option<std::net::SocketAddr>,
    /// Give up when nothing went forward for so many seconds [default: wait for ever]
    #[arg(long, value_name = "SECONDS")]
    pub deadline: Option<u64>,
    /// Refuse answers whose vector is longer than this.
    #[arg(long, value_name = "NORM", default_value_t = 1e12)]
    pub largest_norm: f64,
    /// Log in JSON, one object a line.
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

/// `consilience join`.
#[derive(Debug, Arguments)]
pub struct JoinCommand {
    /// The server.
    #[arg(long, value_name = "HOST:PORT")]
    pub server: String,
    /// This site's name in the server's config.
    #[arg(long, value_name = "NAME")]
    pub site: String,
    /// This site's rows.
    #[arg(long, value_name = "FILE")]
    pub data: Option<PathBuf>,
    /// This site's folder of certificates: ca.pem, cert.pem, key.pem.
    #[arg(long, value_name = "DIR", required_unless_present = "insecure_loopback")]
    pub certs: Option<PathBuf>,
    /// The name in the server's certificate, where it is not the host.
    #[arg(long, value_name = "NAME")]
    pub server_name: Option<String>,
    /// Do without certificates, where the server is on this machine.
    #[arg(long, conflicts_with = "certs")]
    pub insecure_loopback: bool,
    /// Keep the private seed and the state here, so that a site that dies can come back.
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,
    /// Reserve so many rounds ahead instead of syncing every answer: a sync a thousand answers
    /// instead of one an answer. A site that is killed goes on all the same; one whose machine
    /// loses its power never uses its noise twice, but may have to start the run anew.
    #[arg(long, value_name = "ROUNDS", requires = "state")]
    pub reserve: Option<u64>,
    /// Insist on the target of this config: any other that the server states is refused.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Let the server know this site's noise where its config says seeds = "simulation": for tests.
    #[arg(long)]
    pub allow_simulation_seeds: bool,
    /// Give up when the server is away for so many seconds [default: look for it for ever]
    #[arg(long, value_name = "SECONDS")]
    pub patience: Option<u64>,
    /// Log in JSON, one object a line.
    #[arg(long)]
    pub json_log: bool,
}

/// `consilience summary`.
#[derive(Debug, Arguments)]
pub struct SummaryCommand {
    /// The run directory, or a .npy or .csv file that `--draws` wrote, however large.
    pub dir: PathBuf,
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
}

/// `consilience predict`.
#[derive(Debug, Arguments)]
pub struct PredictCommand {
    /// The run directory.
    pub dir: PathBuf,
    /// The new rows, a CSV or Parquet file with the columns of the run's own files.
    #[arg(long, value_name = "FILE")]
    pub data: PathBuf,
    /// The site of all rows, where the model has effects of sites and no column says it.
    #[arg(long, value_name = "NAME")]
    pub site: Option<String>,
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
    /// How: nuts, mala or lmc (a long run, biased by its small step), or several with commas
    /// between [default: all].
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
    /// Make the references again, whether they are kept or not.
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
    /// What it is to start from: the main job, sites with CSV files and a formula, sites on
    /// machines of their own, or Gaussian sites.
    #[arg(long, default_value = "heart")]
    pub template: Template,
}

/// What a new config starts from.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Template {
    /// Four hospitals, built in: what `consilience` alone runs.
    Heart,
    /// One CSV or Parquet file a site, and a formula.
    Csv,
    /// Sites on machines of their own.
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
    /// Write one self-contained HTML page with plots to this file too.
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
    /// The paper's own size where that ends within an hour on two cores, else the largest that
    /// does.
    #[arg(long, group = "size")]
    pub hour: bool,
    /// The paper's own size.
    #[arg(long, group = "size")]
    pub full: bool,
    /// Seconds each: too small for verdicts, enough to see that it works.
    #[arg(long, group = "size", hide = true)]
    pub tiny: bool,
    /// Show, too, what the authors' programs did, and what that does to the result.
    #[arg(long)]
    pub as_published: bool,
    /// Do again what was finished before.
    #[arg(long)]
    pub fresh: bool,
    /// Use this seed instead of the experiment's.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Use so many cores (0: all). The numbers do not depend on it.
    #[arg(long)]
    pub threads: Option<usize>,
    /// Keep results in this folder [default: reproductions/SIZE]
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// The folder that holds the data sets that are not built in, as NAME/FILE [default: the
    /// environment variable CONSILIENCE_DATA]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// With `all`: run these at the quick size all the same.
    #[arg(long, value_name = "IDS", value_delimiter = ',')]
    pub quick_for: Vec<String>,
    /// Keep the numbers, too, as PAPER/ID.numbers.json in this folder, so that they can be judged
    /// again without a run.
    #[arg(long, value_name = "DIR")]
    pub keep: Option<PathBuf>,
    /// Run nothing, and judge the numbers that were kept in this folder, each at the size at which
    /// it was run.
    #[arg(long, value_name = "DIR",
        conflicts_with_all = ["size", "as_published", "fresh", "seed", "keep", "quick_for"])]
    pub kept: Option<PathBuf>,
    /// With `all`: write the scorecard, as Markdown, to this file, and its verdicts to a CSV file
    /// beside it.
    #[arg(long, value_name = "FILE")]
    pub scorecard: Option<PathBuf>,
    /// Print JSON instead of tables.
    #[arg(long)]
    pub json: bool,
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
    /// Say what a data set is: shape, classes, columns, files, licence.
    #[command(after_help = "Example:\n  consilience data describe a9a --data ~/data")]
    Describe {
        /// The data set.
        name: String,
        /// Print one JSON object.
        #[arg(long)]
        json: bool,
    },
    /// Compare checksums, shape and class counts with what is known.
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
    /// Show how many rows of each label each client has.
    #[command(after_help = "Example:\n  consilience data show titanic --clients 10 --scheme \
            \"dirichlet(0.5)\" --svg split.svg")]
    Show {
        /// How it is dealt.
        #[command(flatten)]
        deal: DealOptions,
        /// Write the picture to this SVG file too.
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
    /// The data set: a name, or a file ending in .csv, .parquet, .npy, .npz, .svm, .bin or .cols
    /// (.gz or .xz behind it is fine).
    pub name: String,
    /// The column of the labels, where it is a CSV file of your own [default: the last].
    #[arg(long, value_name = "COLUMN")]
    pub response: Option<String>,
    /// How many clients; a natural scheme knows itself.
    #[arg(long)]
    pub clients: Option<usize>,
    /// The scheme: iid, contiguous, natural, natural(COLUMN), dirichlet, dirichlet(A),
    /// two-clients(S), dominant(S), power-law(A).
    #[arg(long, default_value = "iid")]
    pub scheme: String,
    /// The seed of the deal.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Use a random subset of so many rows.
    #[arg(long)]
    pub rows: Option<usize>,
}
