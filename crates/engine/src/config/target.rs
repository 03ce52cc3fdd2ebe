//! Read what is sampled: the model, the prior, the clients.

use super::coding::{CodingConfig, read_coding};
use super::laws;
use super::reader::{ConfigError, Section, Value};
use super::{
    FieldLocation, GaussianClient, ModelConfig, PlacementConfig, PriorConfig, RowsClient, Source,
    TableSource, TargetConfig, boolean, external, named, optional, own, place,
};
use crate::data::memory::Tables;
use crate::models::{self, Explains, Reads, RowModel, Stated};
use crate::suggest::suggest;

pub(super) fn read_target(
    top: &Section<'_>,
    source: &Source,
    tables: &Tables,
) -> Result<TargetConfig, ConfigError> {
    let data = top.get("data").map(|value| value.section()).transpose()?;
    if let Some(section) = data.as_ref().filter(|section| section.get("name").is_some()) {
        return named::read_target(top, section, source);
    }
    if own::is_meant(top, data.as_ref())? {
        return own::read_target(top, data.as_ref(), source, tables);
    }
    let builtin = match data {
        None => None,
        Some(section) => {
            let fix = "say where the data is: builtin = \"heart-disease\", name = \"a9a\", file = \
                \"all.csv\" or generate = \"synthetic(1, 1)\"";
            let name = section.need("builtin", fix)?;
            let known = crate::data::builtin::names();
            let word = name.text("the name of a built-in data set")?;
            if !known.contains(&word) {
                return Err(name.error(
                    format!("there is no built-in data set \"{word}\""),
                    suggest(word, known.iter().copied()),
                ));
            }
            section.finish()?;
            Some(word.to_owned())
        }
    };
    let clients = top.get("client");
    let mut prior_place = top
        .get("data")
        .or(top.get("target"))
        .as_ref()
        .map_or(FieldLocation { line: 1, field: "target".into() }, Value::place);
    let mut coding: Option<CodingConfig> = None;
    let (temperature, prior, placement, model) = match top.get("target") {
        None if builtin.is_some() => {
            (1.0, PriorConfig::Gaussian(vec![6.25]), PlacementConfig::Default, None)
        }
        None => {
            return Err(top.error(
                "target",
                "it is not set",
                "add a table [target] with a model, or [data] with a built-in data set",
            ));
        }
        Some(value) => {
            let section = value.section()?;
            let temperature = optional(section.get("temperature"), Value::positive)?.unwrap_or(1.0);
            prior_place = section.get("prior").as_ref().map_or(prior_place, Value::place);
            let (prior, placement) = match section.get("prior") {
                Some(prior) => read_prior(&prior.section()?)?,
                None if builtin.is_some() => {
                    (PriorConfig::Gaussian(vec![6.25]), PlacementConfig::Default)
                }
                None => (PriorConfig::Flat, PlacementConfig::Default),
            };
            let model = if builtin.is_some() {
                coding = read_coding(&section)?;
                None
            } else {
                Some(read_model(&section, clients.clone(), source, tables)?)
            };
            section.finish()?;
            (temperature, prior, placement, model)
        }
    };
    let model = match (builtin, model) {
        (Some(_), _) if clients.is_some() => {
            return Err(top.error(
                "client",
                "there are clients and a built-in data set",
                "remove either [data] or the [[client]] tables",
            ));
        }
        (Some(name), _) => ModelConfig::Builtin(name),
        (None, Some(model)) => model,
        (None, None) => {
            return Err(top.error(
                "target",
                "no model is stated",
                "add model = \"gaussian\" to [target]",
            ));
        }
    };
    Ok(TargetConfig { model, temperature, prior, placement, prior_place, coding })
}

pub(super) fn read_prior(
    section: &Section<'_>,
) -> Result<(PriorConfig, PlacementConfig), ConfigError> {
    let of = section.get("of");
    let stated = section.get("law");
    let by_name = |value: &Value<'_>| value.value.as_str().is_some_and(|text| text.contains('('));
    if of.is_some() || stated.as_ref().is_some_and(by_name) {
        let all = stated.map(|value| laws::read(&value, laws::Support::Line)).transpose()?;
        let of = of.map_or(Ok(Vec::new()), |value| laws::read_named(&value))?;
        return Ok((PriorConfig::Named { all, of }, read_placement(section)?));
    }
    let law = section
        .need("law", "add law = \"normal(0, 2.5)\" (or \"flat\", \"student_t(3, 0, 2.5)\")")?;
    if let Some(word) = law.value.as_str()
        && !["flat", "gaussian", "laplace"].contains(&word)
    {
        return Err(laws::unknown(&law, word));
    }
    let law = law.choice(&[("flat", 0), ("gaussian", 1), ("laplace", 2)])?;
    let prior = match law {
        1 => {
            let variance = section
                .need("variance", "a gaussian prior needs a variance, e.g. variance = 1.0")?;
            let fan_in = optional(section.get("scale"), |v| v.choice(&[("fan-in", true)]))?;
            if variance.value.is_table() || fan_in.is_some() {
                let groups = read_group_variances(&variance)?;
                let fan_in = fan_in.is_some();
                let prior = PriorConfig::Groups { groups, fan_in };
                return Ok((prior, read_placement(section)?));
            }
            let list = if variance.value.is_array() {
                variance.list("a list of variances")?.iter().map(Value::positive).collect::<Result<
                    Vec<_>,
                    _,
                >>(
                )?
            } else {
                vec![variance.positive()?]
            };
            PriorConfig::Gaussian(list)
        }
        2 => PriorConfig::Laplace(
            section.need("scale", "a laplace prior needs a scale, e.g. scale = 1.0")?.positive()?,
        ),
        _ => PriorConfig::Flat,
    };
    Ok((prior, read_placement(section)?))
}

fn read_placement(section: &Section<'_>) -> Result<PlacementConfig, ConfigError> {
    let at = optional(section.get("at"), |v| v.choice(&[("server", false), ("split", true)]))?;
    let placement = match at {
        None => PlacementConfig::Default,
        Some(false) => PlacementConfig::Server,
        Some(true) => PlacementConfig::Split(optional(section.get("split"), Value::numbers)?),
    };
    section.finish()?;
    Ok(placement)
}

/// `{ weight = 0.2, bias = 1.0, conv1 = 0.1 }`, or one variance for all.
fn read_group_variances(value: &Value<'_>) -> Result<Vec<(String, f64)>, ConfigError> {
    let Some(table) = value.value.as_table() else {
        return Ok(vec![(EVERY_GROUP.into(), value.positive()?)]);
    };
    let mut groups = Vec::new();
    for (name, variance) in table {
        let item = Value {
            document: value.document,
            field: format!("{}.{}", value.field, name.get_ref()),
            span: variance.span(),
            value: variance.get_ref(),
        };
        groups.push((name.get_ref().to_string(), item.positive()?));
    }
    if groups.is_empty() {
        return Err(value.error("it names no variance", "write { weight = 0.2, bias = 1.0 }"));
    }
    // in an order that does not depend on how tables are kept
    groups.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(groups)
}

/// The name that stands for all parameters.
pub(crate) const EVERY_GROUP: &str = "all";

/// Whether a column of ones is put first: usually so for models that are linear, and never for
/// others.
pub(super) fn read_intercept(
    section: &Section<'_>,
    kind: &dyn RowModel,
) -> Result<bool, ConfigError> {
    let usual = kind.is_linear() && kind.takes_intercept();
    let Some(value) = section.get("intercept") else { return Ok(usual) };
    let stated = boolean(&value)?;
    if stated && !kind.takes_intercept() {
        let problem = format!("{} has an intercept of its own", kind.row().title);
        return Err(value.error(problem, "leave it out"));
    }
    if stated && !kind.is_linear() {
        let problem = format!("{} has biases of its own", kind.row().title);
        return Err(value.error(problem, "leave it out"));
    }
    Ok(stated)
}

fn read_model(
    section: &Section<'_>,
    clients: Option<Value<'_>>,
    source: &Source,
    tables: &Tables,
) -> Result<ModelConfig, ConfigError> {
    let row = section
        .need("model", "name the likelihood, e.g. model = \"logistic\"")?
        .choice(&models::choices(|_| true))?;
    if let Reads::Program = row.reads {
        return external::read(section, clients);
    }
    let fix = "add one [[client]] table for each client";
    let Some(clients) = clients else {
        return Err(section.error("client", "there are no clients", fix));
    };
    let list = clients.list("a list of [[client]] tables")?;
    if list.is_empty() {
        return Err(clients.error("there are no clients", fix));
    }
    let Reads::Rows(read_settings) = row.reads else {
        let read = |(i, v): (usize, &Value<'_>)| read_gaussian_client(i, &v.section()?, source);
        let clients: Vec<GaussianClient> =
            list.iter().enumerate().map(read).collect::<Result<_, _>>()?;
        check_names(&list, clients.iter().map(|client| client.name.as_str()))?;
        return Ok(ModelConfig::Gaussian(clients));
    };
    let kind = read_settings(&Stated::new(section))?;
    let explains = row.explains != Explains::Nothing;
    let intercept = explains && read_intercept(section, &*kind)?;
    let read =
        |(i, v): (usize, &Value<'_>)| read_rows_client(i, &v.section()?, source, tables, explains);
    let clients: Vec<RowsClient> = list.iter().enumerate().map(read).collect::<Result<_, _>>()?;
    check_names(&list, clients.iter().map(|client| client.name.as_str()))?;
    for (k, value) in list.iter().enumerate() {
        let TableSource::File(file) = &clients[k].cells else { continue };
        let same =
            |known: &RowsClient| matches!(&known.cells, TableSource::File(known) if known == file);
        if let Some(first) = clients[..k].iter().position(same) {
            return Err(same_file(&value.section()?, first));
        }
    }
    Ok(ModelConfig::Rows { kind, intercept, clients })
}

/// Refuse two clients of one name.
fn check_names<'n>(
    list: &[Value<'_>],
    names: impl Iterator<Item = &'n str> + Clone,
) -> Result<(), ConfigError> {
    for (k, (value, name)) in list.iter().zip(names.clone()).enumerate() {
        if let Some(first) = names.clone().take(k).position(|known| known == name) {
            return Err(same_name(&value.section()?, name, first));
        }
    }
    Ok(())
}

/// The complaint about a client that has the name of an earlier one.
pub(super) fn same_name(section: &Section<'_>, name: &str, first: usize) -> ConfigError {
    section.error(
        "name",
        format!("client[{first}] is called \"{name}\", too"),
        "give each client a name of its own",
    )
}

/// The complaint about a client that has the file of an earlier one.
pub(super) fn same_file(section: &Section<'_>, first: usize) -> ConfigError {
    section.error(
        "file",
        format!("client[{first}] has the same file, and its rows would count twice"),
        "give each client rows of its own, or deal one file to clients: [data] file",
    )
}

fn client_name(i: usize, section: &Section<'_>) -> Result<String, ConfigError> {
    Ok(optional(section.get("name"), |v| v.text("a name"))?
        .map_or_else(|| format!("client {}", i + 1), str::to_owned))
}

fn cells(value: &Value<'_>, source: &Source) -> Result<TableSource, ConfigError> {
    match value.value.as_str() {
        Some(file) => Ok(TableSource::File(source.folder.join(file))),
        None => value.matrix().map(|(cells, columns)| TableSource::Inline(cells, columns)),
    }
}

fn read_gaussian_client(
    i: usize,
    section: &Section<'_>,
    source: &Source,
) -> Result<GaussianClient, ConfigError> {
    let name = client_name(i, section)?;
    if ["mean", "precision", "covariance"].iter().all(|key| section.get(key).is_none()) {
        section.finish()?;
        return Ok(GaussianClient {
            name,
            mean: Vec::new(),
            matrix: TableSource::Elsewhere,
            is_covariance: false,
            place: place(section),
        });
    }
    let mean = section
        .need("mean", "a gaussian client needs a mean, e.g. mean = [0.0, 1.0]")?
        .numbers()?;
    let (precision, covariance) = (section.get("precision"), section.get("covariance"));
    let (matrix, is_covariance) = match (precision, covariance) {
        (Some(matrix), None) => (matrix, false),
        (None, Some(matrix)) => (matrix, true),
        (None, None) => {
            return Err(section.error(
                "precision",
                "it is not set",
                "give a precision or a covariance, e.g. precision = [[1.0]]",
            ));
        }
        (Some(_), Some(_)) => {
            return Err(section.error(
                "covariance",
                "a precision is given too",
                "give one of the two",
            ));
        }
    };
    let client = GaussianClient {
        name,
        mean,
        matrix: cells(&matrix, source)?,
        is_covariance,
        place: place(section),
    };
    if let TableSource::Inline(cells, columns) = &client.matrix
        && (*columns != client.mean.len() || cells.len() != columns * columns)
    {
        let d = client.mean.len();
        return Err(matrix.error(
            format!(
                "it is {} x {columns}, the mean has {d} numbers",
                cells.len().checked_div(*columns).unwrap_or(0)
            ),
            format!("give {d} rows of {d} numbers"),
        ));
    }
    section.finish()?;
    Ok(client)
}

fn read_rows_client(
    i: usize,
    section: &Section<'_>,
    source: &Source,
    tables: &Tables,
    explains: bool,
) -> Result<RowsClient, ConfigError> {
    let name = client_name(i, section)?;
    let cells = match (section.get("file"), section.get("rows")) {
        (Some(file), None) => {
            TableSource::File(source.folder.join(file.text("the name of a CSV file")?))
        }
        (None, Some(rows)) => {
            let (numbers, columns) = rows.matrix()?;
            if numbers.is_empty() {
                return Err(rows.error(
                    "there are no rows",
                    "a client needs at least one row: leave empty clients out",
                ));
            }
            TableSource::Inline(numbers, columns)
        }
        (None, None)
            if ["mean", "precision", "covariance"].iter().any(|key| section.get(key).is_some()) =>
        {
            return Err(section.error(
                "file",
                "it is not set",
                "give the client's rows, e.g. file = \"basel.csv\"",
            ));
        }
        (None, None) => tables
            .get(&name)
            .map_or(TableSource::Elsewhere, |table| TableSource::Table(table.clone())),
        (Some(_), Some(_)) => {
            return Err(section.error("rows", "a file is given too", "give one of the two"));
        }
    };
    let response = if explains {
        optional(section.get("response"), |v| v.text("the name of a column"))?
    } else {
        None
    };
    section.finish()?;
    Ok(RowsClient { name, cells, response: response.map(str::to_owned), place: place(section) })
}
