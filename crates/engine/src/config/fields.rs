//! Document every field of a config: what it is, what it may be, what it is by default.

use crate::models::MODELS;

/// One field.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// The table it stands in; empty at the top.
    pub section: &'static str,
    /// Its name.
    pub key: &'static str,
    /// What it may be.
    pub values: &'static str,
    /// What it is when it is not set; empty: it must be set, or does not apply.
    pub default: &'static str,
    /// What it means.
    pub says: &'static str,
}

/// A field.
pub(crate) const fn field(
    section: &'static str,
    key: &'static str,
    values: &'static str,
    default: &'static str,
    says: &'static str,
) -> Field {
    Field { section, key, values, default, says }
}

/// Every field of a config, table by table; settings of single models stand behind those of
/// `[target]` that all have.
pub fn all() -> impl Iterator<Item = &'static Field> {
    let target = FIELDS.iter().take_while(|field| field.section.is_empty()).count()
        + FIELDS.iter().filter(|field| field.section == "target").count();
    let (before, after) = FIELDS.split_at(target);
    before.iter().chain(MODELS.iter().flat_map(|row| row.fields)).chain(after)
}

/// The fields that are no model's own. Those of a table stand together.
const FIELDS: &[Field] = &[
    field("", "seed", "whole number", "1", "the same seed gives the same chains, bit for bit"),
    field(
        "",
        "seeds",
        "\"private\", \"simulation\"",
        "private",
        "where clients that `join` take their noise from: their own system, or (for tests) the \
         seed; `run` always uses the seed",
    ),
    field("", "target", "table", "", "what is sampled"),
    field(
        "",
        "data",
        "table",
        "",
        "where rows come from: built in, known by name, a file of your own, generated; or how the \
         clients' files are read",
    ),
    field("", "client", "list of tables, [[client]]", "", "the clients and what each knows"),
    field("", "sampler", "table", "", "how it is sampled"),
    field("", "run", "table", "", "how long, and on how many cores"),
    field("", "output", "table", "", "where draws go"),
    field("", "privacy", "table", "", "what a site may tell of one of its rows"),
    field(
        "target",
        "model",
        "a name from `consilience list`",
        "",
        "the likelihood of a client's rows; external: a program brings it, with its clients, or \
         every site that joins",
    ),
    field(
        "target",
        "model_name",
        "text",
        "",
        "external: what the model is called; a site whose model has another name is refused",
    ),
    field(
        "target",
        "formula",
        "response ~ terms, e.g. num > 0 ~ age + sex + C(cp) + site",
        "",
        "which columns of CSV or Parquet files explain what: numbers standardised, words coded, \
         missing values imputed, all by sums that sites exchange",
    ),
    field(
        "target",
        "standardise",
        "true or false",
        "true",
        "with a formula: whether numbers are standardised; else they enter as they are",
    ),
    field(
        "target",
        "missing",
        "\"mark\", \"impute\", \"refuse\"",
        "mark",
        "with a formula: what becomes of missing values outside mi( ): imputed by the mean or the \
         most common level, and marked by a column where they are more than a twentieth; imputed \
         alone; or refused with their line",
    ),
    field(
        "target",
        "coding",
        "table of columns, e.g. { age = { centre = 50, scale = 10 }, sex = { levels = [0, 1] } }",
        "",
        "how columns are coded, by numbers that are known without the rows: sites are not asked \
         then, as a private run needs it; with a formula or built-in data",
    ),
    field("target", "temperature", "positive number", "1", "T in exp(-U/T); 1 is Bayes"),
    field(
        "target",
        "intercept",
        "true or false",
        "true",
        "models with a response: put a column of ones first",
    ),
    field(
        "target",
        "prior",
        "table",
        "flat; with [data] or a formula normal(0, 2.5), in units of the response where it has any",
        "one prior for the whole federation",
    ),
    field(
        "target.coding.COLUMN",
        "centre",
        "number; for a spline a list, one for each of its columns",
        "",
        "a number: what is taken away; a value that is missing is there. Of the response: where \
         the usual prior of the intercept is",
    ),
    field(
        "target.coding.COLUMN",
        "scale",
        "positive number; for a spline a list",
        "",
        "a number: by what it is divided then. Of the response: the unit of usual priors",
    ),
    field(
        "target.coding.COLUMN",
        "levels",
        "list of words or numbers",
        "",
        "what a column of words may be; a row with another level is refused at its site. [0, 1] is \
         one column, as it is",
    ),
    field(
        "target.coding.COLUMN",
        "reference",
        "one of the levels",
        "the first; that of C(x, ref = ...)",
        "the level that others are compared with",
    ),
    field(
        "target.coding.COLUMN",
        "impute",
        "one of the levels; a number where there is no centre; for a spline also a list",
        "values that are missing are at the centre, else refused at their site",
        "what stands for a value that is missing; a list is of the spline's columns",
    ),
    field(
        "target.coding.COLUMN",
        "mark",
        "true or false",
        "false",
        "whether a further column marks values that are missing",
    ),
    field(
        "target.coding.COLUMN",
        "knots",
        "ascending list of numbers",
        "",
        "a spline: its inner knots, df - 1 of them for ns(x, df), df - 3 for bs(x, df)",
    ),
    field("target.coding.COLUMN", "bounds", "[least, greatest]", "", "a spline: its outer knots"),
    field(
        "target.prior",
        "law",
        "\"flat\", \"gaussian\", \"laplace\", or a law with its numbers, e.g. \"cauchy(0, 2.5)\"",
        "",
        "the law of every coefficient; see the chapter on priors",
    ),
    field(
        "target.prior",
        "of",
        "table of laws, e.g. { intercept = \"normal(0, 10)\", sigma = \"half_cauchy(2.5)\" }",
        "",
        "laws by the name of a parameter, a term, \"coefficients\" (all but the intercept), or of \
         what a model has beside them (sigma, cut, shape)",
    ),
    field(
        "target.prior",
        "variance",
        "positive number, a list, one a parameter, or a table, e.g. { weight = 0.2, bias = 1.0 }",
        "",
        "gaussian: its variance; nets: by layer (conv1), tensor (conv1.weight), role (weight), or \
         all",
    ),
    field(
        "target.prior",
        "scale",
        "positive number; \"fan-in\"",
        "",
        "laplace: its scale; gaussian on a net: variances of weights over the inputs of a unit",
    ),
    field(
        "target.prior",
        "at",
        "\"server\", \"split\"",
        "server; split in family B",
        "who applies it",
    ),
    field(
        "target.prior",
        "split",
        "list of weights that sum to 1",
        "equal; the client weights in family B",
        "with at = \"split\": each client's share",
    ),
    field(
        "data",
        "builtin",
        "a name from `consilience list`",
        "",
        "a data set that comes with the program",
    ),
    field(
        "data",
        "name",
        "a name from `consilience data list`",
        "",
        "a data set to be dealt to clients; logistic (2 classes) or softmax",
    ),
    field(
        "data",
        "file",
        "a file ending in .csv, .parquet, .svm, .npy, .npz, .bin, .cols or -idx3-ubyte; .gz or .xz \
         may follow",
        "",
        "a data set of your own, to be dealt to clients",
    ),
    field("data", "label_file", "a file", "", "with an idx file: the file of its labels"),
    field(
        "data",
        "format",
        "\"csv\", \"parquet\", \"libsvm\", \"npy\", \"npz\", \"idx\", \"cifar\", \"covtype\"",
        "by the ending",
        "how files are written",
    ),
    field(
        "data",
        "header",
        "list of names",
        "the first line",
        "the columns of CSV files that have no header line",
    ),
    field(
        "data",
        "response",
        "the name of a column",
        "the last column; y of an npz",
        "without a formula: which column is the response",
    ),
    field(
        "data",
        "labels",
        "list of numbers",
        "0, 1, ... or those found, ascending",
        "the values of the labels, in the order of the classes, e.g. [-1, 1]",
    ),
    field(
        "data",
        "columns",
        "whole number",
        "as found; generated: as in the paper",
        "libsvm: how many columns there are; generated: how many are made",
    ),
    field(
        "data",
        "generate",
        "synthetic(ALPHA, BETA), qlsd-toy, fald-toy, fa-ld-toy(ALPHA)",
        "",
        "the papers' generated data, in place of files",
    ),
    field(
        "data",
        "test",
        "a share above 0, below 1; with name a number of rows",
        "none",
        "with file, generate or clients' files: hold out these rows, and score the prediction of \
         them; with name: so many of the data set's own test rows",
    ),
    field(
        "data",
        "elsewhere",
        "the name of a data set",
        "none",
        "with name and test: rows of another kind; the report shows how much less sure predictions \
         of them are",
    ),
    field(
        "data",
        "seed",
        "whole number",
        "that of the config",
        "with file or generate: the seed of everything random about the data",
    ),
    field(
        "data",
        "clients",
        "whole number",
        "the groups of a natural scheme",
        "with name, file or generate: how many clients it is dealt to",
    ),
    field(
        "data",
        "scheme",
        "iid, contiguous, natural, natural(COLUMN), dirichlet(0.5), two-clients, dominant, \
         power-law(1)",
        "iid",
        "with name or file: how it is dealt",
    ),
    field(
        "data",
        "folder",
        "a folder",
        "the environment variable CONSILIENCE_DATA",
        "with name: where the data sets lie, relative to the config",
    ),
    field(
        "data",
        "rows",
        "whole number",
        "all",
        "with name or file: use a random subset of so many rows",
    ),
    field(
        "data",
        "scale",
        "\"max\", \"none\"",
        "max",
        "with name, file or clients' files, without a formula: divide every column by its greatest \
         absolute value, or leave it (pixels are in [0, 1] already)",
    ),
    field("client", "name", "text", "client 1, 2, ...", "what the client is called in reports"),
    field("client", "mean", "list of numbers", "", "gaussian: the mean"),
    field(
        "client",
        "precision",
        "list of rows, or a CSV file",
        "",
        "gaussian: the precision matrix",
    ),
    field(
        "client",
        "covariance",
        "list of rows, or a CSV file",
        "",
        "gaussian: the covariance matrix, in place of a precision",
    ),
    field(
        "client",
        "file",
        "a file, as data.file",
        "",
        "other models: the client's rows; of a CSV file without a formula or [data] one a line, \
         numbers only, a header line if you like",
    ),
    field("client", "label_file", "a file", "", "with an idx file: the file of its labels"),
    field(
        "client",
        "rows",
        "list of rows",
        "",
        "other models: the rows themselves, in place of a file",
    ),
    field(
        "client",
        "response",
        "the name of a column",
        "the last column",
        "models with a response: which column it is",
    ),
    field("sampler", "name", "a name from `consilience list`", "", "which sampler"),
    field(
        "sampler",
        "step",
        "\"auto\", a positive number, or a table",
        "auto",
        "the step on the scale of U (FALD's gamma is this times the number of clients)",
    ),
    field(
        "sampler",
        "batch",
        "\"all\", a whole number of rows, or a fraction",
        "all",
        "how many rows a gradient uses",
    ),
    field(
        "sampler",
        "refresh",
        "lsd++: whole number of rounds; vr-fald*: probability",
        "100; as synchronise",
        "how often the reference point moves",
    ),
    field(
        "sampler",
        "memory",
        "number above 0, at most 1",
        "none",
        "lsd++: how fast the memory follows",
    ),
    field(
        "sampler",
        "potential_noise",
        "positive number",
        "none",
        "penalty: the standard deviation of a site's own noise on its difference of potentials, \
         for points that are 1 apart; times the temperature, it stands against row_norm",
    ),
    field(
        "sampler",
        "clip",
        "positive number",
        "none",
        "lmc, sgld, lsd*, qlsd, qlsd#, qlsd*, p-elf: the norm to which longer gradients of a site \
         are shortened, so that none pulls harder; draws are biased where one would",
    ),
    field(
        "sampler",
        "participation",
        "\"all\", a probability, a list of them, { clients = 3 }, or \
         { elastic = 0.7, deadline = 2.0 }",
        "all",
        "who takes part in a round",
    ),
    field(
        "sampler",
        "weighting",
        "\"1/p\", \"b/|A|\"",
        "1/p",
        "what an answer counts for under partial participation",
    ),
    field(
        "sampler",
        "synchronise",
        "{ every = 10 } or { probability = 0.1 }",
        "probability 0.1; fa-ld, dg-lmc: every 10",
        "when clients are averaged",
    ),
    field(
        "sampler",
        "correlation",
        "number from 0 to 1",
        "0",
        "rho, the correlation of the clients' noise (FALD's tau is its square)",
    ),
    field(
        "sampler",
        "weights",
        "\"equal\", \"rows\", or a list that sums to 1",
        "equal",
        "fa-ld, dg-lmc: the clients' weights in the mean; a client's own step is the step over its \
         weight",
    ),
    field(
        "sampler",
        "average",
        "\"all\", or { scheme = \"I\", clients = 3 }",
        "all",
        "fa-ld: who is averaged; scheme I draws with, scheme II without replacement",
    ),
    field(
        "sampler",
        "noise",
        "\"published\", \"participants\"",
        "published",
        "fa-ld: what the private noise is scaled for when not all are averaged",
    ),
    field(
        "sampler",
        "tether",
        "positive number",
        "as many steps as clients take between two draws",
        "dg-lmc: rho, how loosely clients are tied to the server's parameter, in units of their \
         own step",
    ),
    field(
        "sampler",
        "wire",
        "\"f32\", \"f64\"",
        "f32",
        "how an uncompressed number crosses the network",
    ),
    field(
        "sampler",
        "compress",
        "a compressor, or a list with one for each client",
        "qsgd(16); with error feedback scaled(qsgd(16)); local steps: none",
        "how clients compress what they send; `consilience list` has the compressors",
    ),
    field(
        "sampler",
        "compress_down",
        "a compressor",
        "scaled(qsgd(16))",
        "how the server compresses the parameter: a contractive compressor, such as top_k(k) or \
         scaled(...)",
    ),
    field(
        "sampler",
        "code",
        "\"auto\", \"fixed\", \"elias\", \"huffman\", \"entropy\", \"adaptive\"",
        "auto",
        "how compressed vectors are written; auto takes entropy for long vectors, and for others \
         the shortest",
    ),
    field(
        "sampler",
        "restart",
        "number above 0, at most 1",
        "0.1",
        "marina-ld: the probability that gradients are sent in full",
    ),
    field(
        "sampler",
        "block",
        "whole number, at most 65536",
        "4096, or as many as a chain needs",
        "imh: how many proposals an exchange asks about; it changes no draw",
    ),
    field(
        "sampler",
        "leapfrog",
        "whole number, at most 1024",
        "what a pilot finds",
        "hmc: how many leapfrog steps a draw takes, each an exchange",
    ),
    field(
        "sampler",
        "precondition",
        "true or false",
        "true where the step is left open and there are at most 500 parameters",
        "move in coordinates in which the posterior is round: a survey of the Hessian first, far \
         fewer iterations then",
    ),
    field(
        "sampler.step",
        "smoothness",
        "positive number",
        "",
        "L in the decreasing step 1/(2 L + m k/12)",
    ),
    field("sampler.step", "convexity", "positive number", "", "m in it"),
    field(
        "sampler.step",
        "first",
        "positive number",
        "",
        "the first step of first (1 + k/delay)^-power",
    ),
    field("sampler.step", "delay", "positive number", "", "when it starts to decay"),
    field("sampler.step", "power", "positive number", "", "how fast"),
    field(
        "sampler.participation",
        "elastic",
        "a probability, or a list of them",
        "",
        "how often clients answer in time, as they do: `serve` asks all, and closes a round \
         without the others",
    ),
    field(
        "sampler.participation",
        "deadline",
        "positive number",
        "",
        "after how many seconds an elastic round is closed",
    ),
    field(
        "sampler.participation",
        "clients",
        "whole number",
        "",
        "how many clients take part, drawn uniformly",
    ),
    field(
        "sampler.synchronise",
        "every",
        "whole number",
        "",
        "average after every so many iterations",
    ),
    field(
        "sampler.synchronise",
        "probability",
        "number above 0, at most 1",
        "",
        "average after an iteration with this probability",
    ),
    field(
        "sampler.average",
        "scheme",
        "\"I\", \"II\"",
        "",
        "I: with replacement by weight; II: without, equal weights only",
    ),
    field("sampler.average", "clients", "whole number", "", "how many are averaged"),
    field(
        "run",
        "chains",
        "whole number",
        "4; for pcn, mala and hmc one for every 200 effective draws, from 4 to 32",
        "independent chains",
    ),
    field(
        "run",
        "effective_draws",
        "whole number",
        "4000",
        "how many effective draws of every parameter all chains together are to give: decides the \
         iterations. A run that comes out with up to a tenth fewer is left as it is",
    ),
    field(
        "run",
        "iterations",
        "whole number",
        "as many as effective_draws need",
        "iterations of each chain, burn-in included",
    ),
    field(
        "run",
        "burn_in",
        "whole number",
        "a tenth of the iterations",
        "iterations whose draws are not kept",
    ),
    field(
        "run",
        "thin",
        "whole number",
        "1; with automatic iterations so that a chain keeps about 5000 draws",
        "keep every so many draws",
    ),
    field("run", "threads", "whole number", "0", "how many cores; 0: all. No number depends on it"),
    field(
        "run",
        "device",
        "\"cpu\", \"cuda\" or \"auto\"",
        "\"cpu\"",
        "what evaluates nets: the cores; the first NVIDIA GPU (driver 550 or later); or that GPU \
         if it can be used, else the cores. No number depends on it. Sites of a network use cores",
    ),
    field(
        "run",
        "start",
        "\"zero\", \"optimum\", \"drawn\", or a list of numbers",
        "\"optimum\"; \"zero\" where the step is stated and nothing else needs a survey; nets: \
         \"drawn\"",
        "where the chains start; with precondition, \"optimum\" scatters them around it; \"drawn\" \
         as target.start says",
    ),
    field(
        "run",
        "cost",
        "\"bytes\", \"exchanges\", \"seconds\"",
        "\"bytes\"",
        "what name = \"auto\" makes small: what is sent, how often, or how long the network takes",
    ),
    field(
        "run",
        "latency_ms",
        "number above 0",
        "20",
        "how long an exchange takes whatever it carries; seconds are counted by it",
    ),
    field(
        "run",
        "bandwidth_mbit",
        "number above 0",
        "100",
        "megabits a second of the server's line; seconds are counted by it",
    ),
    field(
        "run",
        "bias",
        "\"forecast\", \"halve\"",
        "\"forecast\"",
        "how the bias of a sampler that has one is known: by forecast, or measured, by chains of \
         half the step along the same paths, which take twice as many iterations again",
    ),
    field(
        "run",
        "most_bias",
        "number above 0",
        "0.03",
        "how far an automatic step may shift a mean, in posterior standard deviations, by \
         forecast; half of it, relatively, for standard deviations",
    ),
    field(
        "output",
        "draws",
        "a file ending in .csv or .npy",
        "none",
        "stream the draws there instead of holding them in memory",
    ),
    field(
        "output",
        "lp",
        "true or false",
        "true; over a network false",
        "record the log-density of every draw (lp) in the run's folder; over a network all draws \
         are sent to the sites once more, and each tells the server its potential there",
    ),
    field(
        "privacy",
        "epsilon",
        "number above 0",
        "",
        "how much all answers of a site may tell of one row: nothing is more than exp(epsilon) \
         times as likely with it as without",
    ),
    field(
        "privacy",
        "delta",
        "number below 1/rows",
        "",
        "with which probability they may tell more; below one over the rows of every site",
    ),
    field(
        "privacy",
        "neighbour",
        "\"replace\", \"add-remove\"",
        "\"replace\"",
        "with it as without: another row in its place, or an empty one",
    ),
    field(
        "privacy",
        "rows_per_person",
        "whole number",
        "1",
        "how many rows of one site may be one person's: so many rows are hidden together, by as \
         many times the noise against them; with all rows in every round",
    ),
    field(
        "privacy",
        "row_norm",
        "number above 0",
        "",
        "rows whose features (with the intercept's 1) are longer are shortened to this length; the \
         posterior is that of these rows",
    ),
    field(
        "privacy",
        "slope",
        "number above 0",
        "",
        "linear: the derivative of a row's loss, (predictor - response)/noise_variance, is held \
         within this (Huber's loss); the posterior is the robust one",
    ),
    field(
        "privacy",
        "response",
        "number above 0",
        "",
        "linear with dp-release: responses are clipped to within this in the first release",
    ),
    field(
        "privacy",
        "weak",
        "true or false",
        "false",
        "dp-release: give draws even where noise prevails, and they are mostly those of the prior",
    ),
    field(
        "privacy",
        "secure_sum",
        "true or false",
        "false",
        "lmc, p-elf, and fald and fa-ld with one local step a round: nobody, the server included, \
         sees more of the sites' answers than their sum, so that the noise of all of them hides a \
         row; every site must take part in every round, with all its rows",
    ),
    field(
        "privacy",
        "colluding",
        "whole number",
        "0",
        "how many sites may tell each other what they know, and with secure_sum the server, too",
    ),
    field(
        "privacy",
        "server_share",
        "number from 0 to below 1",
        "what rounding needs",
        "the share of the Langevin noise that the server draws, which hides nothing",
    ),
    field(
        "privacy",
        "noise",
        "\"langevin\"",
        "\"langevin\"",
        "the noise that hides rows is that of the Langevin steps; more of it would be a higher \
         target.temperature, which is stated there",
    ),
    field(
        "privacy",
        "sampling",
        "\"fixed\", \"poisson\"",
        "\"fixed\"",
        "how a minibatch is drawn: so many rows, or every row with the probability that \
         sampler.batch states (sgld, qlsd#), for both kinds of neighbours",
    ),
    field(
        "privacy",
        "hot",
        "true or false",
        "false",
        "give draws even where rounding to levels heats the chain by more than 5%",
    ),
    field(
        "privacy",
        "expect_curvature",
        "number above 0",
        "",
        "how curved the posterior is expected to be, for `consilience privacy` to say how many \
         effective draws a budget buys",
    ),
    field(
        "privacy",
        "rows",
        "whole number",
        "",
        "the most rows that all sites have together, in round numbers: with it sampler.step may be \
         left open, and is a twentieth over the largest curvature that so many rows can have",
    ),
];

/// The keys of a table. Tables in a list share their documentation.
pub fn keys(section: &str) -> Vec<&'static str> {
    let section = match section.starts_with("target.coding.") {
        true => "target.coding.COLUMN", // each column has the same fields
        false => section.split('[').next().unwrap_or(section),
    };
    all().filter(|f| f.section == section).map(|f| f.key).collect()
}

/// The tables that have a field of this name.
pub(crate) fn sections_with(key: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for field in all().filter(|field| field.key == key) {
        let name = match field.section {
            "" => "the top of the file".into(),
            "client" => "[[client]]".into(),
            section => format!("[{section}]"),
        };
        if !found.contains(&name) {
            found.push(name);
        }
    }
    found
}

/// Whether a field is documented.
pub(crate) fn is_documented(section: &str, key: &str) -> bool {
    keys(section).contains(&key)
}
