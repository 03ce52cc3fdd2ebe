//! Build the target of data of one's own: read, hold rows out, deal, agree on labels and scales.

use std::sync::Arc;

use consilience_core::error::DataError;
use consilience_core::model::{Design, Gaussian, Isotropic, Model};
use consilience_core::protocol::Statement;
use consilience_core::rng::Seed;
use consilience_core::simd::ln;

use super::formula::{CODING, CodeFacts, Judged, Kinds, OddOne, TableFacts, as_stated_error};
use super::{AllRows, Assembled, Problem, SiteRows, assemble};
use crate::config::{Config, ConfigError, Generated, OwnData, OwnSource};
use crate::data::formats::{At, DataFile, Format, FormatError, RawTable};
use crate::data::hazards::{self, Origin, Used};
use crate::data::partition::{self, Generator, Scheme, synthetic, toy_fa_ld, toy_fald, toy_qlsd};
use crate::data::stated::StatedCoding;
use crate::data::{
    ColumnSpec, Dataset, DesignPlan, Features, Federation, GroupBy, Response, ResponseMoments,
    Schema, Table, derived, formula, lay_out, sums,
};
use crate::encoding::Encoding;
use crate::held_out::HeldOut;
use crate::models::Observed;
use crate::privacy;
use crate::warnings::Warning;

/// A problem, what of the config it is about, and its fix.
pub(crate) struct Complaint {
    about: About,
    problem: String,
    fix: String,
}

/// What of the config is wrong.
#[derive(Clone, Copy)]
pub(crate) enum About {
    /// The table of the data.
    Data,
    /// The formula.
    Formula,
    /// How columns are coded.
    Coding,
    /// The file at this place of the list.
    File(usize),
}

impl Complaint {
    /// What is wrong.
    pub(crate) fn problem(&self) -> &str {
        &self.problem
    }

    /// The complaint about this config.
    pub(crate) fn about(self, config: &Config, own: &OwnData) -> ConfigError {
        let place = match self.about {
            About::Data => None,
            About::Formula => own.formula_place.as_ref(),
            About::Coding => {
                let coding = config.target.coding.as_ref().map(|coding| &coding.place);
                coding.or(own.formula_place.as_ref())
            }
            About::File(k) => own.file_places.get(k),
        };
        config.source.complain(place.unwrap_or(&own.place), self.problem, self.fix)
    }
}

impl About {
    pub(crate) fn complain(self, problem: impl ToString, fix: impl Into<String>) -> Complaint {
        Complaint { about: self, problem: problem.to_string(), fix: fix.into() }
    }
}

pub(crate) const READ: &str = "correct the file, or what the config says of it";
const DEAL: &str = "correct clients, scheme, rows or test in [data]";
const ELSEWHERE: &str = "give the file with the rows, e.g. file = \"basel.csv\"; or let the client \
    bring it, with `consilience serve` and `consilience join`";
const DESIGN: &str = "correct the rows; where they are dealt, use another scheme, or fewer clients";
pub(crate) const FORMULA: &str = "correct target.formula, or the files' columns";

/// What the sites of a config with data of its own know.
fn sites(config: &Config, own: &OwnData) -> Result<Sites, ConfigError> {
    let seed = Seed::new(own.seed.unwrap_or(config.seed));
    let stated = config.target.coding.as_ref().map(|coding| &coding.stated);
    let bound = config.privacy.as_ref().map(|privacy| privacy.row_norm);
    let sites = match &own.formula {
        Some(formula) => by_formula(own, formula, (stated, bound), seed),
        None => by_columns(own, seed),
    };
    sites.map_err(|complaint| complaint.about(config, own))
}

/// The rows of every site, and the parameters' names.
pub(super) fn rows(config: &Config, own: &OwnData) -> Result<AllRows, ConfigError> {
    let sites = sites(config, own)?;
    let parameters = own.kind.parameters(&sites.columns, sites.classes.as_deref());
    let site =
        |Client { name, design, rows, group_names }| SiteRows { name, design, rows, group_names };
    Ok(AllRows { parameters, sites: sites.clients.into_iter().map(site).collect() })
}

/// The problem of a config with data of its own.
pub(super) fn build(config: &Config, own: &OwnData) -> Result<Problem, ConfigError> {
    let complain = |complaint: Complaint| complaint.about(config, own);
    let sites = sites(config, own)?;
    let mut clients: Vec<Arc<dyn Model>> = Vec::new();
    let bounds = config.privacy.as_ref();
    for Client { name, design, rows, .. } in sites.clients {
        let model = match bounds {
            None => own.kind.potential_of(design, rows),
            Some(bounds) => own.kind.bounded_of(bounds.slope, design, rows),
        };
        clients.push(model.map_err(|e| {
            complain(About::Data.complain(format!("client \"{name}\": {e}"), DESIGN))
        })?);
    }
    let encoding = sites.encoding.map(|encoding| encoding.with_classes(sites.classes.clone()));
    let parameters = own.kind.parameters(&sites.columns, sites.classes.as_deref());
    let assembled = assemble(config, clients, &parameters, sites.response)?;
    let mut notes = sites.notes;
    notes.extend(assembled.note);
    Ok(Problem {
        target: assembled.target,
        origin: assembled.origin,
        parameters,
        clients: sites.names,
        statement: Statement::new::<&str, &str>([]),
        notes,
        warnings: sites.warnings,
        moments_bits: sites.bits,
        held_out: sites.held_out,
        elsewhere: None,
        encoding,
    })
}

/// The problem of a toy that is generated.
pub(super) fn generate(config: &Config, toy: &Generated) -> Result<Problem, ConfigError> {
    let complain =
        |e: DataError| config.source.complain(&toy.place, e.to_string(), "use other sizes");
    let seed = Seed::new(toy.seed.unwrap_or(config.seed));
    let gaussian = |mean: Vec<f64>, covariance: &[f64]| -> Result<Arc<dyn Model>, DataError> {
        Ok(Arc::new(Gaussian::from_covariance(mean, covariance)?))
    };
    let clients: Result<Vec<Arc<dyn Model>>, DataError> = match toy.what {
        Generator::QlsdToy => {
            let rows = toy_qlsd::make(toy.clients, toy.dim, seed).into_iter();
            rows.map(|cells| Ok(Arc::new(Isotropic::new(cells, toy.dim)?) as Arc<dyn Model>))
                .collect()
        }
        Generator::FaLdToy(alpha) => toy_fa_ld::make(toy.clients, alpha, seed)
            .into_iter()
            .map(|mean| gaussian(mean.to_vec(), &toy_fa_ld::COVARIANCE))
            .collect(),
        Generator::FaldToy | Generator::Synthetic(..) => toy_fald::make(toy.clients, toy.dim, seed)
            .into_iter()
            .map(|(mean, covariance)| gaussian(mean, &covariance))
            .collect(),
    };
    let clients = clients.map_err(complain)?;
    let parameters: Vec<String> = (1..=toy.dim).map(|k| format!("x{k}")).collect();
    let names = (1..=clients.len()).map(|k| format!("client {k}")).collect();
    let Assembled { target, origin, .. } = assemble(config, clients, &parameters, None)?;
    Ok(Problem {
        parameters,
        clients: names,
        target,
        origin,
        statement: Statement::new::<&str, &str>([]),
        notes: Vec::new(),
        warnings: Vec::new(),
        moments_bits: (0, 0),
        held_out: None,
        elsewhere: None,
        encoding: None,
    })
}

/// What one client knows, as numbers.
struct Client {
    name: String,
    design: Design,
    rows: Observed,
    /// What the groups are called that rows are in.
    group_names: Vec<String>,
}

/// What sites know, as numbers.
struct Sites {
    clients: Vec<Client>,
    names: Vec<String>,
    columns: Vec<String>,
    classes: Option<Vec<String>>,
    notes: Vec<String>,
    warnings: Vec<Warning>,
    bits: (u64, u64),
    held_out: Option<HeldOut>,
    encoding: Option<Encoding>,
    response: Option<ResponseMoments>,
}

/// Which rows of `rows` are learnt from and which are held out; at least one is learnt from.
fn hold_out(rows: usize, share: Option<f64>, seed: Seed, place: u64) -> (Vec<u32>, Vec<u32>) {
    let held = share
        .map_or(0, |share| ((share * rows as f64).round() as usize).min(rows.saturating_sub(1)));
    let test = partition::held_out(rows, held, seed, place);
    let learn = (0..rows as u32).filter(|row| test.binary_search(row).is_err()).collect();
    (learn, test)
}

/// Rows that were to be held out must be there.
fn check_held_out(own: &OwnData, tests: usize) -> Result<(), Complaint> {
    match own.test {
        Some(share) if tests == 0 => Err(About::Data.complain(
            format!("{share} of every site's rows is less than one row to test on"),
            DEAL,
        )),
        _ => Ok(()),
    }
}

/// Columns as they are, perhaps scaled; labels as they are, or in the order of the classes.
fn by_columns(own: &OwnData, seed: Seed) -> Result<Sites, Complaint> {
    let mut notes = Vec::new();
    let mut parts: Vec<(String, Dataset, Vec<u32>)> = Vec::new();
    let mut tests: Vec<Dataset> = Vec::new();
    let (mut raw, mut header): (Option<RawTable>, Option<Vec<String>>) = (None, None);
    match &own.source {
        OwnSource::Sites(sites) => {
            let (mut all, mut tables) = (Vec::new(), Vec::new());
            for (k, (name, file)) in sites.iter().enumerate() {
                let (data, table) =
                    read(file, None).map_err(|e| About::File(k).complain(e, READ))?;
                match (
                    &mut raw,
                    table.as_ref().and_then(|table| RawTable::of(table, file.response_of(table))),
                ) {
                    (Some(raw), Some(columns)) => raw.join(&columns),
                    (raw, columns) => *raw = raw.take().or(columns),
                }
                header = header.or_else(|| file.header.clone());
                tables.extend(table.map(|table| (name.as_str(), table)));
                all.push((name.clone(), data, file));
            }
            check_columns(own, &sites[0].1, &tables, None, &mut notes)?;
            drop(tables);
            agree_on_columns(&mut all)?;
            let classes = agree_on_labels(
                own,
                all.iter_mut().map(|(_, data, file)| (data, file.path.display().to_string())),
                &mut notes,
            )?;
            for (k, (name, mut data, _)) in all.into_iter().enumerate() {
                data.classes.clone_from(&classes);
                let (learn, test) = hold_out(data.rows(), own.test, seed, k as u64);
                tests.extend((!test.is_empty()).then(|| data.select(&test)));
                parts.push((name, data, learn));
            }
        }
        OwnSource::File { file, clients, scheme, rows } => {
            let (mut data, columns, scheme) = read_to_deal(own, file, scheme, &mut notes)?;
            (raw, header) = (columns, file.header.clone());
            data.classes = agree_on_labels(
                own,
                std::iter::once((&mut data, file.path.display().to_string())),
                &mut notes,
            )?;
            if let Some(rows) = rows.filter(|rows| *rows < data.rows()) {
                notes.push(format!("A random subset of {rows} of {} rows.", data.rows()));
                data = data.select(&partition::subset(data.rows(), rows, seed));
            }
            deal(own, data, &scheme, *clients, seed, &mut parts, &mut tests, &mut notes)?;
        }
        OwnSource::Synthetic(settings) => {
            let data = synthetic::make(*settings, seed);
            deal(
                own,
                data,
                &Scheme::Natural(None),
                None,
                seed,
                &mut parts,
                &mut tests,
                &mut notes,
            )?;
        }
    }
    check_held_out(own, tests.len())?;
    let Some((_, first, _)) = parts.first() else {
        return Err(About::Data.complain("there are no clients", DEAL));
    };
    let (columns, classes) = (first.columns.clone(), first.classes.clone());
    let mut divisors = vec![1.0f64; columns.len()];
    if own.scale {
        let greatest: Vec<Vec<f64>> =
            parts.iter().map(|(_, data, rows)| data.select(rows).greatest()).collect();
        divisors = (0..columns.len())
            .map(|k| greatest.iter().map(|of_site| of_site[k]).fold(0.0, f64::max))
            .collect();
    }
    let scaled = divisors.iter().filter(|divisor| **divisor != 1.0).count();
    if scaled > 0 {
        notes.push(format!("{scaled} columns are divided by their greatest absolute value."));
    }
    let bits = if scaled > 0 { 64 * (parts.len() * columns.len()) as u64 } else { 0 };
    let design = |data: &Dataset, rows: &[u32], who: &str| {
        data.design(rows, own.intercept, &divisors)
            .map_err(|e| About::Data.complain(format!("{who}: {e}"), DESIGN))
    };
    let raw_divisors = first.divisors(&divisors);
    let encoding = Encoding::by_columns(&columns, raw.as_ref(), header, Arc::clone(&own.kind))
        .scaled(&raw_divisors, own.intercept);
    let held_out = match hold_together(&tests) {
        None => None,
        Some(test) => {
            notes.push(format!("{} rows are held out, to test on.", test.rows()));
            let all: Vec<u32> = (0..test.rows() as u32).collect();
            Some(HeldOut {
                design: design(&test, &all, "the rows held out")?,
                offset: Vec::new(),
                labels: test.labels,
                kind: Arc::clone(&own.kind),
            })
        }
    };
    let mut clients = Vec::new();
    for (name, data, rows) in &parts {
        clients.push(Client {
            name: name.clone(),
            design: design(data, rows, name)?,
            rows: Observed { response: data.labels_of(rows), ..Observed::default() },
            group_names: Vec::new(),
        });
    }
    let names = parts.iter().map(|(name, _, _)| name.clone()).collect();
    let columns =
        own.intercept.then(|| "intercept".to_owned()).into_iter().chain(columns).collect();
    let encoding = Some(encoding);
    let part = |(_, data, rows): &(String, Dataset, Vec<u32>)| {
        let mut labels = data.labels_of(rows);
        if own.kind.is_in_logs() {
            labels.iter_mut().for_each(|time| *time = ln(time.abs()));
        }
        let (sum, squares) = sums(&labels);
        (labels.len() as f64, sum, squares)
    };
    let response = match own.kind.is_in_units() || own.kind.is_in_logs() {
        true => ResponseMoments::merge(&parts.iter().map(part).collect::<Vec<_>>()),
        false => None,
    };
    // each site says three numbers of its responses, and hears two
    let more = if response.is_some() { 64 * clients.len() as u64 } else { 0 };
    let bits = (bits + 3 * more, bits + 2 * more);
    let warnings = Vec::new();
    Ok(Sites {
        clients,
        names,
        columns,
        classes,
        notes,
        warnings,
        bits,
        held_out,
        encoding,
        response,
    })
}

/// The rows of a file, and its table where it has one.
fn read(file: &DataFile, leave_out: Option<&str>) -> Result<(Dataset, Option<Table>), FormatError> {
    if !matches!(file.format()?, Format::Csv | Format::Parquet) || file.label_file.is_some() {
        return Ok((file.dataset(leave_out)?, None));
    }
    let table = file.table(None)?;
    Ok((file.dataset_of(&table, leave_out)?, Some(table)))
}

/// Refuse columns that cannot be what they are taken for, where all columns are used.
fn check_columns(
    own: &OwnData,
    file: &DataFile,
    tables: &[(&str, Table)],
    leave_out: Option<&str>,
    notes: &mut Vec<String>,
) -> Result<(), Complaint> {
    let Some((_, first)) = tables.first() else { return Ok(()) };
    let sites: Vec<(&str, &Table)> = tables.iter().map(|(site, table)| (*site, table)).collect();
    let response = file.response_of(first);
    for spec in first.specs().iter().filter(|spec| leave_out != Some(spec.name.as_str())) {
        let used = Used {
            column: &spec.name,
            origin: Origin::Every,
            levels: false,
            response: spec.name == response,
        };
        notes.extend(
            hazards::check(used, &sites)
                .map_err(|hazard| About::Data.complain(&hazard, hazard.fix()))?,
        );
    }
    if own.kind.classes().is_none() {
        check_values(own, response, &sites)
            .map_err(|(problem, fix)| About::Data.complain(problem, fix))?;
    }
    Ok(())
}

/// The rows of one file, and the scheme that deals them. A column of names or numbers that deals
/// the rows of a table is no feature.
fn read_to_deal(
    own: &OwnData,
    file: &DataFile,
    scheme: &Scheme,
    notes: &mut Vec<String>,
) -> Result<(Dataset, Option<RawTable>, Scheme), Complaint> {
    let wrong = |e: FormatError| About::File(0).complain(e, READ);
    let by = match scheme {
        Scheme::Natural(Some(column))
            if matches!(file.format().map_err(wrong)?, Format::Csv | Format::Parquet) =>
        {
            Some(column.as_str())
        }
        _ => None,
    };
    let (data, table) = read(file, by).map_err(wrong)?;
    let features = table
        .as_ref()
        .map(|table| by.map_or_else(|| table.clone(), |column| table.without(column)));
    let raw = features.and_then(|table| RawTable::of(&table, file.response_of(&table)));
    check_columns(
        own,
        file,
        &table.map(|table| ("the file", table)).into_iter().collect::<Vec<_>>(),
        by,
        notes,
    )?;
    Ok(match by {
        Some(column) => (
            Dataset { groups: Some(file.groups(column).map_err(wrong)?), ..data },
            raw,
            Scheme::Natural(None),
        ),
        None => (data, raw, scheme.clone()),
    })
}

/// Hold rows out, then deal the others.
#[allow(clippy::too_many_arguments)] // one step of `by_columns`, taken out for its two callers
fn deal(
    own: &OwnData,
    data: Dataset,
    scheme: &Scheme,
    clients: Option<usize>,
    seed: Seed,
    parts: &mut Vec<(String, Dataset, Vec<u32>)>,
    tests: &mut Vec<Dataset>,
    notes: &mut Vec<String>,
) -> Result<(), Complaint> {
    let (learn, test) = hold_out(data.rows(), own.test, seed, 0);
    tests.extend((!test.is_empty()).then(|| data.select(&test)));
    let data = if test.is_empty() { data } else { data.select(&learn) };
    let dealt = partition::split(&data, scheme, clients, seed)
        .map_err(|e| About::Data.complain(e, DEAL))?;
    notes.push(format!("{} rows dealt to {} clients by {scheme}.", data.rows(), dealt.rows.len()));
    for (name, rows) in dealt.names.into_iter().zip(dealt.rows) {
        let mine = data.select(&rows);
        let all = (0..mine.rows() as u32).collect();
        parts.push((name, mine, all));
    }
    Ok(())
}

/// All sites must have the same columns; sparse files may differ in the greatest one that they use.
fn agree_on_columns(all: &mut [(String, Dataset, &DataFile)]) -> Result<(), Complaint> {
    let widest = all
        .iter()
        .filter(|(_, data, _)| data.is_sparse())
        .map(|(_, data, _)| data.columns.clone())
        .max_by_key(Vec::len);
    for (_, data, file) in all.iter_mut() {
        if let Some(widest) = widest.as_ref().filter(|_| data.is_sparse() && file.columns.is_none())
        {
            data.columns.clone_from(widest);
        }
    }
    let Some((first, rest)) = all.split_first() else { return Ok(()) };
    let listed = |columns: &[String]| {
        let more = if columns.len() > 12 {
            format!(" and {} more", columns.len() - 12)
        } else {
            String::new()
        };
        format!("{}{more}", columns.iter().take(12).cloned().collect::<Vec<_>>().join(", "))
    };
    for (k, (name, data, _)) in rest.iter().enumerate() {
        if data.columns != first.1.columns {
            let (found, expected) = (listed(&data.columns), listed(&first.1.columns));
            let problem = format!(
                "client \"{name}\": its columns are {found}, those of client \"{}\" {expected}",
                first.0
            );
            return Err(About::File(k + 1).complain(
                problem,
                "all clients must have the same columns; a formula agrees on the levels of words",
            ));
        }
    }
    Ok(())
}

/// Make labels class numbers, alike at all sites, and name the classes.
fn agree_on_labels<'a>(
    own: &OwnData,
    all: impl Iterator<Item = (&'a mut Dataset, String)>,
    notes: &mut Vec<String>,
) -> Result<Option<Vec<String>>, Complaint> {
    let mut all: Vec<(&mut Dataset, String)> = all.collect();
    let Some(classes) = own.kind.classes() else {
        if let Some((data, file)) = all.iter().find(|(data, _)| data.classes.is_some()) {
            let word = data.classes.iter().flatten().next().cloned().unwrap_or_default();
            let problem = format!("{file}: the response `{word}` is no number");
            return Err(
                About::Data.complain(problem, "name another response, or use model = \"logistic\"")
            );
        }
        return match all.iter().find_map(|(data, file)| not_accepted(own, data, file)) {
            Some(error) => Err(About::Data.complain(error, own.kind.remedy("", 0.0, None))),
            None => Ok(None),
        };
    };
    if all.iter().any(|(data, _)| data.classes.is_some()) {
        return agree_on_words(&mut all, classes, notes).map(Some);
    }
    let plain: Vec<f64> = (0..classes).map(|k| k as f64).collect();
    let mut found: Vec<f64> =
        all.iter().flat_map(|(data, _)| data.labels.iter().copied()).collect();
    found.sort_by(f64::total_cmp);
    found.dedup();
    let values = match &own.labels {
        Some(stated) => stated.clone(),
        None if found.iter().all(|label| plain.contains(label)) || found.len() > classes => {
            plain.clone()
        }
        None => found,
    };
    if values.len() != classes {
        let problem = format!("{} labels for {classes} classes", values.len());
        return Err(About::Data.complain(problem, "state data.labels, one value for each class"));
    }
    for (data, file) in &mut all {
        for row in 0..data.labels.len() {
            let label = data.labels[row];
            data.labels[row] = values
                .iter()
                .position(|value| *value == label)
                .map(|k| k as f64)
                .ok_or_else(|| {
                    let allowed = format!(
                        "use one of {}",
                        values.iter().map(f64::to_string).collect::<Vec<_>>().join(", ")
                    );
                    let error = FormatError::Label {
                        file: file.clone(),
                        at: At::Row(row as u64 + 1),
                        found: label,
                        allowed,
                    };
                    About::Data
                        .complain(error, "correct the row, or state data.labels or target.classes")
                })?;
        }
    }
    if values != plain {
        let pairs: Vec<String> =
            values.iter().enumerate().map(|(k, value)| format!("{value} is class {k}")).collect();
        notes.push(format!("Labels: {}.", pairs.join(", ")));
    }
    Ok(Some(values.iter().map(f64::to_string).collect()))
}

/// The first response that the model does not explain, where it has no classes.
fn not_accepted(own: &OwnData, data: &Dataset, file: &str) -> Option<FormatError> {
    let row = data.labels.iter().position(|y| !own.kind.accepts(*y))?;
    Some(FormatError::Label {
        file: file.into(),
        at: At::Row(row as u64 + 1),
        found: data.labels[row],
        allowed: format!("use {}", own.kind.responses()),
    })
}

/// Words as labels: the classes are the words of all sites in the order of the alphabet.
fn agree_on_words(
    all: &mut [(&mut Dataset, String)],
    classes: usize,
    notes: &mut Vec<String>,
) -> Result<Vec<String>, Complaint> {
    let mut words: Vec<String> =
        all.iter().flat_map(|(data, _)| data.classes.iter().flatten().cloned()).collect();
    words.sort();
    words.dedup();
    if let Some((_, file)) = all.iter().find(|(data, _)| data.classes.is_none()) {
        return Err(About::Data.complain(
            format!("{file}: its labels are numbers, those of other clients words"),
            "write all labels alike",
        ));
    }
    if words.len() != classes {
        let problem = format!(
            "{} different labels ({}) for {classes} classes",
            words.len(),
            words.iter().take(8).cloned().collect::<Vec<_>>().join(", ")
        );
        let fix = "name the right response, set target.classes, or write a formula such as ill == \
            yes ~ age";
        return Err(About::Data.complain(problem, fix));
    }
    for (data, _) in all.iter_mut() {
        let places: Vec<f64> = data
            .classes
            .iter()
            .flatten()
            .map(|word| words.binary_search(word).unwrap_or_default() as f64)
            .collect();
        data.labels.iter_mut().for_each(|label| *label = places[*label as usize]);
    }
    let pairs: Vec<String> =
        words.iter().enumerate().map(|(k, word)| format!("{word} is class {k}")).collect();
    notes.push(format!("Labels: {}.", pairs.join(", ")));
    Ok(words)
}

/// The rows that all sites hold out, as one data set.
fn hold_together(tests: &[Dataset]) -> Option<Dataset> {
    let mut all = tests.first()?.clone();
    for more in &tests[1..] {
        match (&mut all.features, &more.features) {
            (Features::Dense(cells), Features::Dense(more)) => cells.extend_from_slice(more),
            (Features::Bytes { cells, .. }, Features::Bytes { cells: more, .. }) => {
                cells.extend_from_slice(more)
            }
            (
                Features::Sparse { starts, columns, values },
                Features::Sparse { starts: s, columns: c, values: v },
            ) => {
                let before = columns.len();
                starts.extend(s.iter().skip(1).map(|start| start + before));
                columns.extend_from_slice(c);
                values.extend_from_slice(v);
            }
            _ => continue, // a site in another format is not tested on
        }
        all.labels.extend_from_slice(&more.labels);
    }
    Some(all)
}

/// The sites' tables as a formula uses them.
struct Tables {
    sites: Vec<(String, Table)>,
    plan: DesignPlan,
    /// The columns that others are computed of.
    raw: Vec<ColumnSpec>,
    judged: Judged,
}

/// Read the formula over the columns of all sites, and check that every site has what it names, and
/// means the same by it.
fn agree_on_kinds(
    own: &OwnData,
    formula: &str,
    tables: Vec<(String, Table)>,
    dealt: bool,
) -> Result<Tables, Complaint> {
    let tables: Vec<(String, Table)> = tables
        .into_iter()
        .map(|(site, table)| Ok((site, with_computed(&table, formula)?)))
        .collect::<Result<_, Complaint>>()?;
    let said: Vec<TableFacts> =
        tables.iter().map(|(_, table)| TableFacts::of(table, formula)).collect();
    let names = || tables.iter().map(|(site, _)| site.as_str());
    let kinds = Kinds::agree(own, formula, &names().zip(&said).collect::<Vec<_>>())?;
    let said: Vec<CodeFacts> =
        tables.iter().map(|(_, table)| kinds.facts(own, formula, table)).collect();
    let judged = kinds.judge(own, formula, &names().zip(&said).collect::<Vec<_>>(), dealt)?;
    let alike = |(k, (site, table)): (usize, &(String, Table))| {
        Ok((site.clone(), kinds.convert(k, table)?))
    };
    let sites = tables.iter().enumerate().map(alike).collect::<Result<_, Complaint>>()?;
    let raw = kinds.raw();
    Ok(Tables { sites, plan: kinds.plan, raw, judged })
}

/// A site's table with the columns that the formula computes.
pub(crate) fn with_computed(table: &Table, formula: &str) -> Result<Table, Complaint> {
    derived::extend(table, &formula::written(formula), |_| false)
        .map_err(|e| About::Formula.complain(e, FORMULA))
}

/// Refuse a value of the response that the model does not explain, with its file and line; classes
/// that are numbers are looked at when they are numbered.
fn check_values(
    own: &OwnData,
    column: &str,
    sites: &[(&str, &Table)],
) -> Result<(), (String, String)> {
    let odd = |(site, table): &(&str, &Table)| {
        OddOne::of(own, column, table).map(|odd| odd.complaint(own, (site, column), None))
    };
    sites.iter().find_map(odd).map_or(Ok(()), Err)
}

/// The sites' tables as a config states that their columns are coded.
fn as_stated(
    own: &OwnData,
    formula: &str,
    coding: &StatedCoding,
    tables: Vec<(String, Table)>,
) -> Result<Tables, Complaint> {
    let kinds = Kinds::stated(own, formula, coding)?;
    let alike = |(k, (site, table)): (usize, (String, Table))| {
        let read = kinds.read(own, formula, (k, &site), &table)?;
        Ok((site, read))
    };
    let sites = tables.into_iter().enumerate().map(alike).collect::<Result<_, Complaint>>()?;
    let judged = Judged { notes: Vec::new(), warnings: Vec::new(), bits: (0, 0) };
    Ok(Tables { sites, raw: kinds.raw(), plan: kinds.plan, judged })
}

/// Columns by a formula: sites agree on kinds, levels, means and deviations by exchanging sums,
/// unless the config states them.
fn by_formula(
    own: &OwnData,
    formula: &str,
    (stated, bound): (Option<&StatedCoding>, Option<f64>),
    seed: Seed,
) -> Result<Sites, Complaint> {
    let formula = &*derived::write_out(formula);
    let agree = |tables: Vec<(String, Table)>, dealt: bool| match stated {
        None => agree_on_kinds(own, formula, tables, dealt),
        Some(coding) => as_stated(own, formula, coding, tables),
    };
    let encode = |e: crate::data::EncodeError| About::Formula.complain(e, FORMULA);
    let Tables { mut sites, mut plan, raw, judged } = match &own.source {
        OwnSource::Synthetic(_) => {
            return Err(About::Formula
                .complain("generated data has no columns with names", "remove target.formula"));
        }
        OwnSource::Sites(files) => {
            let table = |(k, (name, file)): (usize, &(String, DataFile))| {
                if file.is_elsewhere() {
                    return Err(About::File(k).complain("it is not set", ELSEWHERE));
                }
                Ok((name.clone(), file.table(None).map_err(|e| About::File(k).complain(e, READ))?))
            };
            let tables =
                files.iter().enumerate().map(table).collect::<Result<Vec<_>, Complaint>>()?;
            agree(tables, false)?
        }
        OwnSource::File { file, clients, scheme, rows } => {
            let read = |e: FormatError| About::File(0).complain(e, READ);
            let mut table = file.table(None).map_err(read)?;
            let kept = rows
                .filter(|rows| *rows < table.rows())
                .map(|rows| partition::subset(table.rows(), rows, seed));
            if let Some(kept) = &kept {
                table = table.select(kept);
            }
            let mut whole = agree(vec![("the file".into(), table)], true)?;
            let Some((_, table)) = whole.sites.pop() else {
                return Err(About::Data.complain("there are no clients", DEAL));
            };
            let labels = crate::data::response(&table, &whole.plan.response).map_err(encode)?;
            let classes = match &whole.plan.response {
                Response::Value { .. } => None,
                Response::Class { classes, .. } => Some(classes.clone()),
                Response::Above { .. } | Response::Equals { .. } => {
                    Some(vec!["0".into(), "1".into()])
                }
            };
            let (scheme, groups) = match scheme {
                Scheme::Natural(Some(column)) => {
                    let mut groups = file.groups(column).map_err(read)?;
                    if let Some(kept) = &kept {
                        groups.rows = kept.iter().map(|row| groups.rows[*row as usize]).collect();
                    }
                    (Scheme::Natural(None), Some(groups))
                }
                other => (other.clone(), None),
            };
            let labelled = Dataset {
                features: Features::Dense(Vec::new()),
                labels,
                classes,
                columns: Vec::new(),
                groups,
            };
            let dealt = partition::split(&labelled, &scheme, *clients, seed)
                .map_err(|e| About::Data.complain(e, DEAL))?;
            let (up, down) = whole.judged.bits;
            let bits = (up * dealt.rows.len() as u64, down * dealt.rows.len() as u64);
            Tables {
                sites: dealt
                    .names
                    .into_iter()
                    .zip(dealt.rows.iter().map(|rows| table.select(rows)))
                    .collect(),
                judged: Judged { bits, ..whole.judged },
                ..whole
            }
        }
    };
    let Judged { mut notes, mut warnings, bits } = judged;
    let mut tests = Vec::new();
    for (k, (name, table)) in sites.iter_mut().enumerate() {
        let (learn, test) = hold_out(table.rows(), own.test, seed, k as u64);
        if !test.is_empty() {
            tests.push((name.clone(), table.select(&test)));
            *table = table.select(&learn);
        }
    }
    check_held_out(own, tests.len())?;
    let federation = match stated {
        None => Federation::new(formula, &sites, &plan).map_err(encode)?,
        Some(coding) => {
            let names: Vec<String> = sites.iter().map(|(site, _)| site.clone()).collect();
            let (as_stated, moments) = lay_out(coding, &plan, &coding.schema(formula), &names)
                .map_err(|e| About::Coding.complain(e, CODING))?;
            plan = as_stated;
            Federation::stated(formula, &sites, &plan, moments)
                .map_err(|e| About::Formula.complain(as_stated_error(e), FORMULA))?
        }
    };
    let (header, site_column) = match &own.source {
        OwnSource::Sites(files) => (files.iter().find_map(|(_, file)| file.header.clone()), None),
        OwnSource::File { file, scheme: Scheme::Natural(column), .. } => {
            (file.header.clone(), column.as_deref())
        }
        OwnSource::File { file, .. } => (file.header.clone(), None),
        OwnSource::Synthetic(_) => (None, None),
    };
    // who predicts need not know the groups
    let is_coded = |spec: &&ColumnSpec| plan.group != Some(GroupBy::Column(spec.name.clone()));
    let specs = sites.first().map_or_else(Vec::new, |(_, table)| table.specs().to_vec());
    let schema = Schema::new(specs.iter().filter(is_coded).cloned().collect());
    let model = Arc::clone(&own.kind);
    let encoding = Encoding::by_formula(&schema, header, &plan, federation.moments(), model)
        .with_computed(raw)
        .with_site_column(site_column)
        .stated(stated.is_some());
    let held_out = if tests.is_empty() {
        None
    } else {
        let rows = federation.encode_more(&tests, &plan).map_err(encode)?;
        let complain = |e: DataError| About::Data.complain(format!("the rows held out: {e}"), READ);
        Some(HeldOut {
            design: Design::dense(rows.cells, rows.columns).map_err(complain)?,
            offset: rows.offset,
            labels: rows.response,
            kind: Arc::clone(&own.kind),
        })
    };
    notes.splice(0..0, federation.notes.iter().cloned());
    warnings.extend(federation.warnings.iter().cloned());
    if let Some(held) = &held_out {
        notes.push(format!("{} rows are held out, to test on.", held.labels.len()));
    }
    let response = federation.moments().response;
    let mut clients = Vec::new();
    for site in federation.sites {
        let complain =
            |e: DataError| About::Data.complain(format!("client \"{}\": {e}", site.name), READ);
        let mut cells = site.cells;
        if let Some(most) = bound {
            privacy::shorten(&mut cells, site.columns, most);
        }
        let design = Design::dense(cells, site.columns).map_err(complain)?;
        let rows = Observed {
            response: site.response,
            groups: site.groups,
            offset: site.offset,
            weights: site.weights,
        };
        let (name, group_names) = (site.name, site.group_names);
        clients.push(Client { name, design, rows, group_names });
    }
    Ok(Sites {
        names: clients.iter().map(|client| client.name.clone()).collect(),
        clients,
        columns: federation.parameters,
        classes: plan.response.classes().map(<[String]>::to_vec),
        notes,
        warnings,
        bits: (federation.exchanged_bits_up + bits.0, federation.exchanged_bits_down + bits.1),
        held_out,
        encoding: Some(encoding),
        response,
    })
}
