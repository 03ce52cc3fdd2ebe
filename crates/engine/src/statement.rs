//! Say in words what parties agree on: the target, how columns are coded, the sampler with all its
//! settings, the length, the wire, the version, who takes part.
//!
//! The order of fields is fixed, numbers are printed exactly, names stand in quotation marks. A
//! field or a variant that is new does not compile until it has words here.

use consilience_core::model::{Law, Prior};
use consilience_core::privacy::Neighbour;
use consilience_core::protocol::{Exactly, Precision, Statement};
use consilience_core::sampler::registry::{Axis, Settings};
use consilience_core::sampler::{
    Average, Batch, NoiseScale, Participation, Synchronise, Weighting,
};
use consilience_core::step::Schedule;

use crate::config::{
    Config, ModelConfig, PlacementConfig, PriorConfig, PrivacyConfig, RunConfig, SamplerConfig,
    Seeds, Start,
};
use crate::data::partition::Generator;
use crate::data::spline::Knots;
use crate::data::{CellRule, Moments, ResponseMoments};
use crate::models::{Explains, ParameterGroup, of_comparison};
use crate::plan::Decision;
use crate::site::{Agreement, CommonModel, SecureSite};

type Lines = Vec<(String, String)>;

/// The releases that mean the same by these words: a third number mends, and changes no meaning.
const SERIES: &str = concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR"));

/// The target in words. It names everything that parties must agree on, and nothing that only one
/// of them may know.
pub(crate) fn of_target(config: &Config, parameters: &[String], clients: &[String]) -> Statement {
    Statement::new(target(config, parameters, clients))
}

/// The target of a model that a program brings, with a prior of its own.
pub(crate) fn of_external(
    parameters: &[String],
    clients: &[String],
    prior: &Prior,
    temperature: f64,
) -> Statement {
    let prior = match prior {
        Prior::Flat => "flat".into(),
        Prior::Gaussian(precisions) => {
            format!("normal, mean 0, precisions {}", numbers(precisions))
        }
        Prior::Laplace { scale } => format!("Laplace, mean 0, scale {}", Exactly(*scale)),
        Prior::Laws(laws) => {
            let each: Vec<String> = laws.laws().iter().map(law).collect();
            format!("by parameter: {}", each.join(", "))
        }
    };
    Statement::new([
        ("consilience", SERIES.to_owned()),
        ("model", "external".to_owned()),
        ("parameters", quoted(parameters)),
        ("sites", quoted(clients)),
        ("prior", prior),
        ("temperature", Exactly(temperature).to_string()),
    ])
}

/// All that the parties of a served run agree on. What the server decided by surveys is in it once
/// that is known.
pub fn of_run(
    config: &Config,
    agreement: &Agreement,
    clients: &[String],
    decision: Option<&Decision>,
) -> Statement {
    let mut lines = target(config, &agreement.parameters, clients);
    lines.extend(coding(agreement));
    if config.target.coding.is_some() {
        lines.push(("columns are coded by".into(), "what the config states".into()));
        if let Some(ResponseMoments { mean, sd }) =
            agreement.moments.as_ref().and_then(|m| m.response)
        {
            let units = format!("around {}, in units of {}", Exactly(mean), Exactly(sd));
            lines.push(("usual priors".into(), units));
        }
    }
    lines.extend(sampler(&config.sampler));
    lines.extend(run(config));
    if let Some(Decision { sampler, step, weights, chains, attempt, halved }) = decision {
        let mut add = |field: &str, value: String| lines.push((field.into(), value));
        add("found, sampler", sampler.clone().unwrap_or("nothing: it is stated".into()));
        add("found, step", step.map_or("nothing: it is stated".into(), |s| exact(&s)));
        add(
            "found, chains",
            chains.map_or("nothing: they are stated, or 4".into(), |n| n.to_string()),
        );
        let runs = if *halved { "at half the step, for the bias" } else { "as stated" };
        add("found, chains run", runs.into());
        add("found, runs before this one", attempt.to_string());
        let equal = || "nothing: they are stated, or equal".into();
        add("found, weights", weights.as_ref().map_or_else(equal, |w| numbers(w)));
    }
    Statement::new(lines)
}

fn target(config: &Config, parameters: &[String], clients: &[String]) -> Lines {
    let model = match &config.target.model {
        ModelConfig::Builtin(name) => {
            format!("{} on the data set {}", of_comparison().statement(), quote(name))
        }
        ModelConfig::Named(named) => format!(
            "{}, {}, on the data set {}",
            named.kind.statement(),
            intercept(named.intercept),
            quote(&named.name)
        ),
        ModelConfig::Own(own) => match &own.written {
            None => format!("{}, {}", own.kind.statement(), intercept(own.intercept)),
            Some(formula) => {
                let formula = formula.split_whitespace().collect::<Vec<_>>().join(" ");
                format!("{}, by {}", own.kind.statement(), quote(&formula))
            }
        },
        ModelConfig::Generated(toy) => match toy.what {
            Generator::Synthetic(alpha, beta) => {
                format!("generated: synthetic({}, {})", Exactly(alpha), Exactly(beta))
            }
            Generator::QlsdToy => "generated: qlsd-toy".into(),
            Generator::FaldToy => "generated: fald-toy".into(),
            Generator::FaLdToy(alpha) => format!("generated: fa-ld-toy({})", Exactly(alpha)),
        },
        ModelConfig::Gaussian(_) => "Gaussian, a mean and a matrix for each site".into(),
        ModelConfig::External(external) => match &external.name {
            None => "external".into(),
            Some(name) => format!("external, called {}", quote(name)),
        },
        ModelConfig::Rows { kind, intercept: ones, .. } => {
            format!("{}, {}", kind.statement(), intercept(*ones))
        }
    };
    let mut lines: Lines = vec![("consilience".into(), SERIES.into()), ("model".into(), model)];
    if let ModelConfig::Rows { clients, kind, .. } = &config.target.model
        && let Some(first) = clients.first()
        && kind.row().explains != Explains::Nothing
    {
        let response =
            |name: &Option<String>| name.as_ref().map_or("the last column".into(), |n| quote(n));
        let alike = clients.iter().all(|client| client.response == first.response);
        let value = if alike {
            response(&first.response)
        } else {
            clients.iter().map(|client| response(&client.response)).collect::<Vec<_>>().join(", ")
        };
        lines.push(("response".into(), value));
    }
    lines.extend([
        ("parameters".into(), named_parameters(config, parameters)),
        ("sites".into(), quoted(clients)),
        ("prior".into(), with_beside(prior(&config.target.prior), config)),
        ("prior applied by".into(), placement(&config.target.placement)),
        ("temperature".into(), exact(&config.target.temperature)),
    ]);
    if let Some(stated) = &config.privacy {
        lines.extend(privacy(stated));
    }
    lines
}

/// What a site may tell of a row, where that is limited.
fn privacy(stated: &PrivacyConfig) -> Lines {
    let PrivacyConfig {
        epsilon,
        delta,
        neighbour,
        row_norm,
        slope,
        response,
        weak: _, // what the server does with what it was told
        secure_sum,
        colluding,
        server_share,
        poisson,
        hot,
        expect_curvature: _, // it changes nothing that is run
        rows,
        rows_per_person,
        place: _,
    } = stated;
    let neighbour = match neighbour {
        Neighbour::Replace => "another row in its place",
        Neighbour::AddRemove => "an empty row in its place",
    };
    let mut lines: Lines = vec![
        ("privacy, epsilon".into(), exact(epsilon)),
        ("privacy, delta".into(), exact(delta)),
        ("privacy, against".into(), neighbour.into()),
        ("privacy, rows are shortened to".into(), exact(row_norm)),
        ("privacy, slopes are held within".into(), slope.map_or("nothing".into(), |s| exact(&s))),
        (
            "privacy, responses are clipped to within".into(),
            response.map_or("nothing".into(), |bound| exact(&bound)),
        ),
        ("privacy, sites that collude".into(), colluding.to_string()),
        (
            "privacy, noise left to the server".into(),
            server_share.map_or("what rounding needs".into(), |share| exact(&share)),
        ),
    ];
    if *poisson {
        let words = "every row by itself, with the probability that the batch states";
        lines.push(("privacy, rows of a minibatch are drawn".into(), words.into()));
    }
    if *hot {
        lines.push(("privacy, heat of rounding".into(), "draws are wanted whatever it is".into()));
    }
    if *rows_per_person > 1 {
        lines.push(("privacy, rows of one person, at most".into(), rows_per_person.to_string()));
    }
    if let Some(rows) = rows {
        lines.push(("privacy, rows of all sites, at most".into(), rows.to_string()));
    }
    if *secure_sum {
        lines.push(("privacy, the server sees".into(), "the sum of all answers".into()));
    }
    lines
}

/// The parameters' names; where they are groups, those of the groups.
fn named_parameters(config: &Config, parameters: &[String]) -> String {
    let groups = config.target.model.of_rows().map_or(Vec::new(), |model| model.groups());
    if groups.is_empty() {
        return quoted(parameters);
    }
    let of = |group: &ParameterGroup| format!("{}, {} of them", group.name, group.range.len());
    quoted(&groups.iter().map(of).collect::<Vec<_>>())
}

fn intercept(ones: bool) -> &'static str {
    if ones { "with an intercept" } else { "without an intercept" }
}

/// The prior, and the usual laws of parameters beside the coefficients, where the model has any.
fn with_beside(prior: String, config: &Config) -> String {
    let beside = config.target.model.of_rows().map_or(Vec::new(), |model| model.beside());
    if beside.is_empty() {
        return prior;
    }
    let usual = beside.iter().map(|group| {
        let units = if group.in_units { " in units of the response" } else { "" };
        format!("{} {}{units}", group.group, law(&group.law))
    });
    let usual: Vec<String> = usual.collect();
    let prior = prior.replace("for every parameter", "for every coefficient");
    format!("{prior}; unless named: {}", usual.join(", "))
}

fn prior(prior: &PriorConfig) -> String {
    match prior {
        PriorConfig::Flat => "flat".into(),
        PriorConfig::Gaussian(variances) if variances.len() == 1 => {
            format!("normal, mean 0, variance {} for every parameter", Exactly(variances[0]))
        }
        PriorConfig::Gaussian(variances) => {
            format!("normal, mean 0, variances {}", numbers(variances))
        }
        PriorConfig::Groups { groups, fan_in } => {
            let each = |(name, variance): &(String, f64)| format!("{name} {}", Exactly(*variance));
            let list: Vec<String> = groups.iter().map(each).collect();
            let by = if *fan_in { ", of weights over the inputs of a unit" } else { "" };
            format!("normal, mean 0, variances {}{by}", list.join(", "))
        }
        PriorConfig::Laplace(scale) => format!("Laplace, mean 0, scale {}", Exactly(*scale)),
        PriorConfig::Usual => "the usual one, in units of the response".into(),
        PriorConfig::Named { all, of } => {
            let all = all.as_ref().map_or("the usual one".into(), law);
            let named = of.iter().map(|named| format!("{} {}", named.name, law(&named.law)));
            std::iter::once(all).chain(named).collect::<Vec<_>>().join(", ")
        }
    }
}

/// A law, as a config states it but for what holds its parameter in place.
pub(crate) fn law(law: &Law) -> String {
    match law {
        Law::Flat => "flat".into(),
        Law::Normal { mean, sd } => format!("normal({}, {})", Exactly(*mean), Exactly(*sd)),
        Law::StudentT { df, location, scale } => {
            let (location, scale) = (Exactly(*location), Exactly(*scale));
            format!("student_t({}, {location}, {scale})", Exactly(*df))
        }
        Law::Laplace { location, scale } => {
            format!("laplace({}, {})", Exactly(*location), Exactly(*scale))
        }
        Law::Exponential { rate } => format!("exponential({})", Exactly(*rate)),
        Law::Gamma { shape, rate } => format!("gamma({}, {})", Exactly(*shape), Exactly(*rate)),
        Law::Lkj { shape } => format!("lkj({})", Exactly(*shape)),
    }
}

fn placement(placement: &PlacementConfig) -> String {
    match placement {
        PlacementConfig::Default => {
            "the server where clients send gradients, else the sites in equal parts".into()
        }
        PlacementConfig::Server => "the server".into(),
        PlacementConfig::Split(None) => "the sites in equal parts".into(),
        PlacementConfig::Split(Some(shares)) => format!("the sites, shares {}", numbers(shares)),
    }
}

/// How columns are made of what stands in the sites' tables.
fn coding(agreement: &Agreement) -> Lines {
    let Agreement { parameters, moments, models, secure } = agreement;
    if let Some(sites) = secure {
        let list =
            |of: fn(&SecureSite) -> String| sites.iter().map(of).collect::<Vec<_>>().join(", ");
        let mut lines = by_moments(moments.as_ref());
        lines.push(("rows of the sites".into(), list(|site| site.rows.to_string())));
        lines.push(("keys of the secure sum".into(), list(|site| site.key.public.clone())));
        return lines;
    }
    if let Some(CommonModel { name, rows, derivatives, start: _ }) = models {
        // where chains start stands among what is run
        let rows: Vec<String> = rows.iter().map(u64::to_string).collect();
        return vec![
            (
                "model brought by the sites".into(),
                name.as_ref().map_or("no name".into(), |n| quote(n)),
            ),
            ("dimension of the model".into(), parameters.len().to_string()),
            ("rows of the sites".into(), rows.join(", ")),
            (
                "the models give".into(),
                if *derivatives { "gradients, values and Hessians" } else { "gradients" }.into(),
            ),
        ];
    }
    by_moments(moments.as_ref())
}

/// How tables become numbers, where they are no numbers yet.
fn by_moments(moments: Option<&Moments>) -> Lines {
    let Some(moments) = moments else {
        return vec![("columns".into(), "numbers, as they are".into())];
    };
    let mut lines: Lines = vec![("rows of all sites".into(), moments.rows.to_string())];
    for (term, levels) in moments.levels.iter().enumerate().filter(|(_, l)| !l.is_empty()) {
        lines.push((format!("levels of term {}", term + 1), quoted(levels)));
    }
    for (k, column) in moments.columns.iter().enumerate() {
        let rule = by_rule(&column.rule);
        lines.push((format!("column {}", k + 1), format!("{}: {rule}", quote(&column.name))));
    }
    lines
}

/// How a column of the design is filled, in words.
fn by_rule(rule: &CellRule) -> String {
    match rule {
        CellRule::Intercept => "ones".into(),
        CellRule::Standardised { term, mean, sd } => format!(
            "term {} less {}, divided by {}; 0 where it is missing",
            term + 1,
            Exactly(*mean),
            Exactly(*sd)
        ),
        CellRule::Raw { term, mean } => {
            format!("term {}, as it is; {} where it is missing", term + 1, Exactly(*mean))
        }
        CellRule::Level { term, level, fill } => {
            let missing = if *fill { " or it is missing" } else { "" };
            format!("1 where term {} is {}{missing}, else 0", term + 1, quote(level))
        }
        CellRule::Spline { term, part, knots, centre, scale, usual } => {
            let Knots { spline, bounds: (low, high), inner, moments: _ } = knots;
            let kind = if spline.natural { "natural spline" } else { "B-spline" };
            let all: Vec<String> = std::iter::once(low)
                .chain(inner)
                .chain([high])
                .map(|knot| Exactly(*knot).to_string())
                .collect();
            format!(
                "column {} of the {kind} of degree {} of term {}, with knots at {}, less {}, \
                 divided by {}; before that {} where it is missing",
                part + 1,
                spline.degree,
                term + 1,
                all.join(", "),
                Exactly(*centre),
                Exactly(*scale),
                Exactly(*usual)
            )
        }
        CellRule::Missing { term } => format!("1 where term {} is missing, else 0", term + 1),
        CellRule::Site { site } => format!("1 at site {}, else 0", quote(site)),
        CellRule::Value { term } => format!("term {}, as it is", term + 1),
        CellRule::Product { parts } => {
            let parts: Vec<String> =
                parts.iter().map(|part| format!("({})", by_rule(part))).collect();
            format!("the product of {}", parts.join(" and "))
        }
    }
}

fn sampler(sampler: &SamplerConfig) -> Lines {
    let SamplerConfig {
        row,
        step,
        settings,
        weights_by_rows,
        participation_probability,
        round_deadline,
        precondition,
        place: _,
    } = sampler;
    let mut lines: Lines = vec![
        ("sampler".into(), row.name.into()),
        ("step".into(), step.map_or("found by surveys".into(), |step| schedule(&step))),
        (
            "coordinates".into(),
            match precondition {
                None => "those in which the posterior is round, where they can be had".into(),
                Some(true) => "those in which the posterior is round".into(),
                Some(false) => "those of the parameters".into(),
            },
        ),
    ];
    let Settings {
        batch,
        refresh_every,
        refresh_probability,
        memory_rate,
        participation,
        weighting,
        synchronise,
        correlation,
        weights,
        average,
        noise,
        tether,
        precision,
        compress,
        compress_down,
        code,
        restart,
        block,
        leapfrog,
        clip,
        potential_noise,
        proposal: _, // what surveys find is told with every order
        once: _,     // it follows from the budget, which is stated
        weak: _,
        most_heat: _, // stated with the budget
    } = settings;
    let mut add = |axis: Axis, field: &str, value: Option<String>| {
        if row.axes.contains(&axis) || value.is_some() {
            lines.push((field.into(), value.unwrap_or("the sampler's default".into())));
        }
    };
    add(
        Axis::Batch,
        "batch",
        batch.as_ref().map(|batch| match batch {
            Batch::Full => "all rows".into(),
            Batch::Rows(rows) => format!("{rows} rows"),
            Batch::Fraction(share) => format!("a fraction {} of the rows", Exactly(*share)),
            Batch::Each(share) => format!("every row with probability {}", Exactly(*share)),
        }),
    );
    let every = refresh_every.map(|every| format!("every {every} rounds"));
    let randomly = refresh_probability.map(|p| format!("with probability {}", Exactly(p)));
    add(Axis::RefreshEvery, "reference point moves", every);
    add(Axis::RefreshProbability, "reference point moves", randomly);
    add(Axis::Memory, "memory rate", memory_rate.as_ref().map(exact));
    let probabilities =
        |list: &[f64]| participation_probability.map_or_else(|| numbers(list), |p| exact(&p));
    add(
        Axis::Participation,
        "participation",
        participation.as_ref().map(|who| match who {
            Participation::All => "everybody".into(),
            Participation::Bernoulli(list) => format!("with probability {}", probabilities(list)),
            Participation::Fixed(size) => format!("{size} sites, drawn uniformly"),
            Participation::Elastic(list) => {
                format!("whoever answers in time, with probability {}", probabilities(list))
            }
        }),
    );
    let seconds = round_deadline.map(|seconds| format!("{} seconds", Exactly(seconds)));
    if let Some(seconds) = seconds {
        add(Axis::Participation, "a round is closed after", Some(seconds));
    }
    add(
        Axis::Participation,
        "weighting",
        weighting.map(|weighting| match weighting {
            Weighting::InverseProbability => "1/p".into(),
            Weighting::Ratio => "b/|A|".into(),
        }),
    );
    add(
        Axis::Synchronise,
        "synchronisation",
        synchronise.map(|when| match when {
            Synchronise::Every(every) => format!("every {every} iterations"),
            Synchronise::Randomly(p) => format!("with probability {}", Exactly(p)),
        }),
    );
    add(Axis::Correlation, "correlation of the sites' noise", correlation.as_ref().map(exact));
    let by_rows = weights_by_rows.then(|| "by rows".to_owned());
    add(Axis::Weights, "weights", weights.as_ref().map(|weights| numbers(weights)).or(by_rows));
    add(
        Axis::Average,
        "average",
        average.map(|average| match average {
            Average::All => "all sites".into(),
            Average::WithReplacement(size) => format!("{size} draws with replacement"),
            Average::WithoutReplacement(size) => format!("{size} sites without replacement"),
        }),
    );
    add(
        Axis::Average,
        "private noise scaled for",
        noise.map(|noise| match noise {
            NoiseScale::Everybody => "the mean of all sites".into(),
            NoiseScale::Participants => "the mean of those who are averaged".into(),
        }),
    );
    add(Axis::Tether, "tether", tether.as_ref().map(exact));
    let list = |all: &Vec<_>| {
        all.iter()
            .map(|c: &consilience_core::compress::Compressor| c.to_string())
            .collect::<Vec<_>>()
            .join(", ")
    };
    add(Axis::Compress, "compression by sites", compress.as_ref().map(list));
    add(
        Axis::CompressDown,
        "compression by the server",
        compress_down.as_ref().map(ToString::to_string),
    );
    add(Axis::Restart, "gradients sent in full with probability", restart.as_ref().map(exact));
    add(Axis::Block, "proposals in an exchange", block.map(|block| block.to_string()));
    if let Some(clip) = clip {
        add(Axis::Clip, "gradients of sites are shortened to the norm", Some(exact(clip)));
    }
    if let Some(noise) = potential_noise {
        let field = "noise of sites on differences of potentials, for points 1 apart";
        add(Axis::PotentialNoise, field, Some(exact(noise)));
    }
    add(Axis::Leapfrog, "leapfrog steps", leapfrog.map(|steps| steps.to_string()));
    add(Axis::Compress, "code of what is compressed", code.map(|code| code.to_string()));
    let bits = precision.map(|precision| match precision {
        Precision::F32 => "32 bits".into(),
        Precision::F64 => "64 bits".into(),
    });
    lines.push(("numbers on the wire".into(), bits.unwrap_or("the sampler's default".into())));
    lines
}

fn run(config: &Config) -> Lines {
    // What the server chooses by is the server's: what it chose is stated.
    let RunConfig { chains, iterations, effective_draws, burn_in, thin, start, .. } = &config.run;
    let found = || "found by surveys".to_owned();
    let whole = |number: &Option<u64>| number.map_or_else(found, |n| n.to_string());
    let many = || format!("as many as {effective_draws} effective draws take");
    let lines = [
        ("chains", chains.map_or_else(found, |n| n.to_string())),
        ("iterations", iterations.map_or_else(many, |n| n.to_string())),
        ("burn-in", whole(burn_in)),
        ("thinning", whole(thin)),
        (
            "start",
            match start {
                None => found(),
                Some(Start::Zero) => "zero".into(),
                Some(Start::Optimum) => "the optimum".into(),
                Some(Start::Drawn) => "drawn as the model says".into(),
                Some(Start::Point(point)) => numbers(point),
            },
        ),
        ("seed", config.seed.to_string()),
        (
            "the sites' noise",
            match config.seeds {
                Seeds::Private => "from seeds of their own, which nobody else knows".into(),
                Seeds::Simulation => "from the seed, which everybody knows".into(),
            },
        ),
        (
            "log-density of draws",
            if config.lp == Some(true) { "asked for".into() } else { "not asked for".into() },
        ),
    ];
    lines.into_iter().map(|(field, value)| (field.to_owned(), value)).collect()
}

fn schedule(step: &Schedule) -> String {
    match *step {
        Schedule::Constant(step) => exact(&step),
        Schedule::Decreasing { smoothness, convexity } => format!(
            "1 / (2 L + m k / 12) at iteration k, L = {}, m = {}",
            Exactly(smoothness),
            Exactly(convexity)
        ),
        Schedule::Polynomial { first, delay, power } => format!(
            "{} (1 + k / {})^-{} at iteration k",
            Exactly(first),
            Exactly(delay),
            Exactly(power)
        ),
    }
}

fn exact(number: &f64) -> String {
    Exactly(*number).to_string()
}

fn numbers(list: &[f64]) -> String {
    list.iter().map(exact).collect::<Vec<_>>().join(", ")
}

/// A name in quotation marks: two names are not one with a comma in it.
fn quote(name: &str) -> String {
    format!("\"{}\"", name.replace('\\', "\\\\").replace('"', "\\\""))
}

fn quoted(names: &[String]) -> String {
    names.iter().map(|name| quote(name)).collect::<Vec<_>>().join(", ")
}
