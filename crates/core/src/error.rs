//! Name what can be wrong with the input, with the numbers that show it.

use thiserror::Error;

/// What is wrong with a client's data or with the statement of a target.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum DataError {
    /// No rows, or no columns.
    #[error("there are no rows or no columns: a client needs at least one observation")]
    Empty,
    /// The number of cells is not a multiple of the number of columns.
    #[error(
        "{found} values cannot be rows of {columns} columns: a row is cut short, or the column \
         count is wrong"
    )]
    Shape {
        /// How many values there are.
        found: usize,
        /// How many columns were announced.
        columns: usize,
    },
    /// A NaN or an infinity.
    #[error("row {row}, column {column} is {value}: values must be finite, so impute or drop it")]
    NotFinite {
        /// The row, from 0.
        row: usize,
        /// The column, from 0.
        column: usize,
        /// What was found.
        value: f64,
    },
    /// A column number out of range or out of order in a sparse row.
    #[error("row {row} names column {column}: columns must ascend and stay below {columns}")]
    Column {
        /// The row, from 0.
        row: usize,
        /// The column found.
        column: usize,
        /// How many columns there are.
        columns: usize,
    },
    /// As many responses as rows are needed.
    #[error("{responses} responses for {rows} rows: there must be one for each")]
    Responses {
        /// How many responses there are.
        responses: usize,
        /// How many rows there are.
        rows: usize,
    },
    /// A label that the model does not know.
    #[error("row {row} has the label {label}: labels must be {allowed}")]
    Label {
        /// The row, from 0.
        row: usize,
        /// What was found.
        label: f64,
        /// What would be right.
        allowed: String,
    },
    /// Offsets or weights of rows where a model has no use for them.
    #[error("{model} takes no offsets and no weights: leave them out, or take another model")]
    Adjusted {
        /// The model.
        model: &'static str,
    },
    /// A sampler, or a setting of it, that does not keep rows private.
    #[error("this sampler cannot keep rows private: {why}. Instead, {instead}")]
    NotPrivate {
        /// What stands against it.
        why: String,
        /// What to do.
        instead: &'static str,
    },
    /// A variance, scale or temperature that is not positive and finite.
    #[error("{what} is {value}: it must be positive and finite")]
    NotPositive {
        /// Which quantity.
        what: &'static str,
        /// What was found.
        value: f64,
    },
    /// A matrix that is not symmetric, or not positive definite where it must be.
    #[error("the {what} is not {property} (entry {entry}: {value}): {fix}")]
    Matrix {
        /// Which matrix.
        what: &'static str,
        /// Which property it lacks.
        property: &'static str,
        /// Where that shows.
        entry: usize,
        /// The offending value.
        value: f64,
        /// What to do about it.
        fix: &'static str,
    },
    /// A client with no rows, or more than can be numbered.
    #[error("client {client} has {rows} rows: give it between 1 and 4294967295")]
    Rows {
        /// Which client, from 0.
        client: usize,
        /// How many rows it has.
        rows: usize,
    },
    /// Two parts of the statement disagree on the number of parameters.
    #[error("{what} has dimension {found}, where {expected} is expected")]
    Dimension {
        /// What has the wrong dimension.
        what: String,
        /// Its dimension.
        found: usize,
        /// The dimension of the rest.
        expected: usize,
    },
    /// A compressor that cannot work, or not here.
    #[error("the compressor {compressor} cannot be used here: {problem}")]
    Compressor {
        /// Which one.
        compressor: String,
        /// Why not, and what instead.
        problem: String,
    },
    /// Something that a sampler cannot do, or not rightly.
    #[error("{what} cannot be used here: {why}")]
    Unsupported {
        /// What was asked for.
        what: String,
        /// Why not, and what instead.
        why: &'static str,
    },
    /// Weights that are not a probability vector, probabilities out of range, and the like.
    #[error("{what}: {problem}")]
    Weights {
        /// Which weights.
        what: &'static str,
        /// What is wrong with them, with the numbers.
        problem: String,
    },
}
