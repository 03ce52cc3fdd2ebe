//! Make a client of each group of the data, or of each value of a column.

use super::{Assignment, PartitionError};
use crate::data::Dataset;
use crate::suggest::did_you_mean;

/// The most groups that a column may make.
const MOST: usize = 10_000;

/// The data's own groups, or the values of a column in ascending order.
pub fn assign(
    data: &Dataset,
    column: Option<&str>,
    clients: Option<usize>,
) -> Result<Assignment, PartitionError> {
    let (names, of_row) = match column {
        None => {
            let groups = data.groups.as_ref().ok_or(PartitionError::NoGroups)?;
            (groups.names.clone(), groups.rows.clone())
        }
        Some(column) => values(data, column)?,
    };
    if let Some(clients) = clients.filter(|n| *n != names.len()) {
        return Err(PartitionError::Groups { groups: names.len(), clients });
    }
    let mut rows = vec![Vec::new(); names.len()];
    for (row, group) in of_row.iter().enumerate() {
        rows[*group as usize].push(row as u32);
    }
    Assignment::new(Some(names), rows, data.rows())
}

/// The values of a column as groups.
fn values(data: &Dataset, column: &str) -> Result<(Vec<String>, Vec<u32>), PartitionError> {
    let k = data.columns.iter().position(|name| name == column).ok_or_else(|| {
        let known = data.columns.iter().take(20).cloned().collect::<Vec<_>>().join(", ");
        let hint = did_you_mean(column, data.columns.iter().map(String::as_str));
        PartitionError::NoColumn { column: column.into(), hint, known }
    })?;
    let mut values: Vec<f64> = Vec::new();
    for row in 0..data.rows() {
        let value = data.cell(row, k) + 0.0; // -0 is 0
        if let Err(place) = values.binary_search_by(|v| v.total_cmp(&value)) {
            if values.len() == MOST {
                return Err(PartitionError::TooManyGroups { column: column.into(), most: MOST });
            }
            values.insert(place, value);
        }
    }
    let group = |row: usize| {
        values.binary_search_by(|v| v.total_cmp(&(data.cell(row, k) + 0.0))).unwrap_or_default()
            as u32
    };
    let rows = (0..data.rows()).map(group).collect();
    Ok((values.iter().map(|value| format!("{column} = {value}")).collect(), rows))
}
