//! Read how columns are coded, where a config states it: `[target.coding]`.

use super::reader::{ConfigError, Section, Value};
use super::{FieldLocation, boolean, optional};
use crate::data::stated::{StatedCoding, StatedColumn};

/// `[target.coding]` as stated.
#[derive(Clone, Debug)]
pub struct CodingConfig {
    /// What is stated.
    pub stated: StatedCoding,
    /// Where the table stands.
    pub place: FieldLocation,
}

/// `[target.coding]`, if there is one.
pub(super) fn read_coding(target: &Section<'_>) -> Result<Option<CodingConfig>, ConfigError> {
    let Some(value) = target.get("coding") else { return Ok(None) };
    let Some(table) = value.value.as_table() else {
        let fix = "write a table, e.g. [target.coding] with age = { centre = 50, scale = 10 }";
        return Err(value.error(format!("{} is no table of columns", value.written()), fix));
    };
    let mut columns = Vec::new();
    for (name, column) in table {
        let item = Value {
            document: value.document,
            field: format!("{}.{}", value.field, name.get_ref()),
            span: column.span(),
            value: column.get_ref(),
        };
        columns.push(read_column(name.get_ref(), &item)?);
    }
    // in an order that does not depend on how tables are kept
    columns.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Some(CodingConfig { stated: StatedCoding { columns }, place: value.place() }))
}

fn read_column(name: &str, value: &Value<'_>) -> Result<StatedColumn, ConfigError> {
    let section = value.section()?;
    let numbers = |v: &Value<'_>, above: bool| -> Result<Vec<f64>, ConfigError> {
        let each = |v: &Value<'_>| if above { v.positive() } else { v.number() };
        if !v.is_list() {
            return Ok(vec![each(v)?]);
        }
        v.list("a list of numbers")?.iter().map(each).collect()
    };
    let centre = optional(section.get("centre"), |v| numbers(v, false))?.unwrap_or_default();
    let scale = optional(section.get("scale"), |v| numbers(v, true))?.unwrap_or_default();
    let levels = optional(section.get("levels"), |v| {
        let list = v.list("a list of levels, such as [\"a\", \"b\"]")?;
        let levels = list.iter().map(level).collect::<Result<Vec<_>, _>>()?;
        if let Some(k) = (0..levels.len()).find(|k| levels[..*k].contains(&levels[*k])) {
            return Err(list[k].error("it stands there twice", "name each level once"));
        }
        if levels.len() < 2 {
            return Err(v.error(
                "a column with fewer than two levels says nothing",
                "name all levels, or leave the column out of the formula",
            ));
        }
        Ok(levels)
    })?
    .unwrap_or_default();
    let reference = optional(section.get("reference"), level)?;
    let given = section.get("impute");
    let filled = optional(given.clone().filter(Value::is_list), Value::numbers)?;
    let impute = optional(given.filter(|v| !v.is_list()), level)?;
    let mark = optional(section.get("mark"), boolean)?.unwrap_or(false);
    let knots = optional(section.get("knots"), Value::numbers)?.unwrap_or_default();
    let bounds = optional(section.get("bounds"), |v| match v.numbers()?[..] {
        [low, high] if low < high => Ok((low, high)),
        _ => Err(v.error(
            format!("{} are no bounds", v.written()),
            "write the least and the greatest value, e.g. [20, 90]",
        )),
    })?;
    section.finish()?;
    Ok(StatedColumn {
        name: name.to_owned(),
        centre,
        scale,
        levels,
        reference,
        impute,
        filled: filled.unwrap_or_default(),
        knots,
        bounds,
        mark,
    })
}

/// A level, as it would be written of a column.
fn level(value: &Value<'_>) -> Result<String, ConfigError> {
    match value.as_number() {
        Some(_) => Ok(value.number()?.to_string()),
        None => Ok(value.text("a word or a number")?.to_owned()),
    }
}
