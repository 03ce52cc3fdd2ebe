//! Read a TOML document field by field, so that every complaint has a line, a field and a fix.

use std::cell::RefCell;
use std::ops::Range;

use thiserror::Error;
use toml::de::{DeTable, DeValue};

use super::{FieldLocation, fields};
use crate::suggest::{did_you_mean, suggest};

/// What is wrong with a config, where, and what to do.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{file}{}: {field}: {problem}\n  {fix}", at(*.line))]
pub struct ConfigError {
    /// The file.
    pub file: String,
    /// The line, from 1; 0 where there is none.
    pub line: usize,
    /// The field, such as `sampler.step`.
    pub field: String,
    /// What is wrong.
    pub problem: String,
    /// What to do.
    pub fix: String,
}

fn at(line: usize) -> String {
    if line == 0 { String::new() } else { format!(", line {line}") }
}

/// What is said of a field that must be set, and is not.
pub(crate) const NOT_SET: &str = "it is not set";

/// A config's text and its name.
#[derive(Clone, Copy)]
pub(crate) struct Document<'a> {
    pub(crate) file: &'a str,
    pub(crate) text: &'a str,
}

impl Document<'_> {
    pub(crate) fn error(
        &self,
        span: &Range<usize>,
        field: &str,
        problem: impl Into<String>,
        fix: impl Into<String>,
    ) -> ConfigError {
        let end = span.start.min(self.text.len());
        let line = 1 + self.text.as_bytes()[..end].iter().filter(|byte| **byte == b'\n').count();
        ConfigError {
            file: self.file.into(),
            line,
            field: field.into(),
            problem: problem.into(),
            fix: fix.into(),
        }
    }
}

/// A table of the document.
pub(crate) struct Section<'a> {
    pub(crate) document: Document<'a>,
    pub(crate) path: String,
    pub(crate) span: Range<usize>,
    table: &'a DeTable<'a>,
    asked: RefCell<Vec<&'static str>>,
}

impl<'a> Section<'a> {
    pub(crate) fn new(
        document: Document<'a>,
        path: &str,
        span: Range<usize>,
        table: &'a DeTable<'a>,
    ) -> Self {
        Section { document, path: path.into(), span, table, asked: RefCell::new(Vec::new()) }
    }

    /// The value of a key, if it is set.
    pub(crate) fn get(&self, key: &'static str) -> Option<Value<'a>> {
        debug_assert!(
            fields::is_documented(&self.path, key),
            "{}.{key} is not documented",
            self.path
        );
        self.asked.borrow_mut().push(key);
        let (_, value) = self.table.iter().find(|(name, _)| name.get_ref() == key)?;
        Some(Value {
            document: self.document,
            field: self.field(key),
            span: value.span(),
            value: value.get_ref(),
        })
    }

    /// The value of a key that must be set.
    pub(crate) fn need(&self, key: &'static str, fix: &str) -> Result<Value<'a>, ConfigError> {
        self.get(key).ok_or_else(|| self.error(key, NOT_SET, fix))
    }

    /// A complaint about a key, at its place if it is set; where it is not set and a name that
    /// nobody knows is near it, the complaint is about that one.
    pub(crate) fn error(
        &self,
        key: &str,
        problem: impl Into<String>,
        fix: impl Into<String>,
    ) -> ConfigError {
        let names = || self.table.iter().map(|(name, _)| name);
        if let Some(name) = names().find(|name| name.get_ref() == key) {
            return self.document.error(&name.span(), &self.field(key), problem, fix);
        }
        let known = fields::keys(&self.path);
        let misspelt = names().find(|name| {
            !known.iter().any(|k| *k == name.get_ref())
                && !did_you_mean(name.get_ref(), [key]).is_empty()
        });
        match misspelt {
            Some(name) => self.unknown(name.get_ref(), &name.span()),
            None => self.document.error(&self.span, &self.field(key), problem, fix),
        }
    }

    /// The complaint about a name that no field has.
    fn unknown(&self, name: &str, span: &Range<usize>) -> ConfigError {
        let place =
            if self.path.is_empty() { "the config".into() } else { format!("[{}]", self.path) };
        let mut fix = suggest(name, fields::keys(&self.path).iter().copied());
        let elsewhere = fields::sections_with(name);
        if !elsewhere.is_empty() {
            let mark = if fix.ends_with('?') { "" } else { ";" };
            fix += &format!("{mark} `{name}` is a field of {}", elsewhere.join(" and of "));
        }
        self.document.error(span, &self.field(name), format!("{place} has no such field"), fix)
    }

    /// Refuse keys that nobody asked for.
    pub(crate) fn finish(&self) -> Result<(), ConfigError> {
        let asked = self.asked.borrow();
        for (name, _) in self.table.iter() {
            if !asked.contains(&name.get_ref().as_ref()) {
                if !fields::keys(&self.path).iter().any(|k| *k == name.get_ref()) {
                    return Err(self.unknown(name.get_ref(), &name.span()));
                }
                return Err(self.document.error(
                    &name.span(),
                    &self.field(name.get_ref()),
                    "it does not belong here with the other settings",
                    "remove it, or see `consilience fields` for what it goes with",
                ));
            }
        }
        Ok(())
    }

    fn field(&self, key: &str) -> String {
        if self.path.is_empty() { key.into() } else { format!("{}.{key}", self.path) }
    }
}

/// A value of the document.
#[derive(Clone)]
pub(crate) struct Value<'a> {
    pub(crate) document: Document<'a>,
    pub(crate) field: String,
    pub(crate) span: Range<usize>,
    pub(crate) value: &'a DeValue<'a>,
}

impl<'a> Value<'a> {
    pub(crate) fn error(&self, problem: impl Into<String>, fix: impl Into<String>) -> ConfigError {
        self.document.error(&self.span, &self.field, problem, fix)
    }

    /// Where it stands.
    pub(crate) fn place(&self) -> FieldLocation {
        FieldLocation { line: self.error("", "").line, field: self.field.clone() }
    }

    /// What kind of value it is, with its article.
    fn kind(&self) -> String {
        let name = self.value.type_str();
        format!("{} {name}", if name.starts_with(['a', 'i']) { "an" } else { "a" })
    }

    /// The value as the user wrote it.
    pub(crate) fn written(&self) -> &'a str {
        self.document.text.get(self.span.clone()).unwrap_or("")
    }

    fn wrong_type(&self, expected: &str) -> ConfigError {
        self.error(
            format!("{} is {}", self.written(), self.kind()),
            format!("{expected} is expected"),
        )
    }

    pub(crate) fn text(&self, expected: &str) -> Result<&'a str, ConfigError> {
        self.value.as_str().ok_or_else(|| self.wrong_type(expected))
    }

    pub(crate) fn as_number(&self) -> Option<f64> {
        let digits = |text: &str| text.replace('_', "").parse::<f64>().ok();
        match self.value {
            DeValue::Integer(whole) if whole.radix() == 10 => digits(whole.as_str()),
            DeValue::Float(float) => digits(float.as_str()),
            _ => None,
        }
    }

    /// A finite number.
    pub(crate) fn number(&self) -> Result<f64, ConfigError> {
        match self.as_number() {
            Some(number) if number.is_finite() => Ok(number),
            Some(_) if self.written().contains(|c: char| c.is_ascii_digit()) => Err(self.error(
                format!("{} is too large", self.written()),
                "a finite number is expected: they go up to 1.8e308",
            )),
            Some(_) => Err(self
                .error(format!("{} is not finite", self.written()), "a finite number is expected")),
            None => Err(self.wrong_type("a number")),
        }
    }

    /// A number above 0.
    pub(crate) fn positive(&self) -> Result<f64, ConfigError> {
        let number = self.number()?;
        if number > 0.0 {
            Ok(number)
        } else {
            Err(self.error(
                format!("{} is not above 0", self.written()),
                "a positive number is expected",
            ))
        }
    }

    /// A number between 0 and 1, with 0 itself only where `zero` allows it.
    pub(crate) fn fraction(&self, zero: bool) -> Result<f64, ConfigError> {
        let number = self.number()?;
        let low = if zero { number >= 0.0 } else { number > 0.0 };
        if low && number <= 1.0 {
            return Ok(number);
        }
        let range = if zero { "between 0 and 1" } else { "above 0 and at most 1" };
        Err(self.error(
            format!("{} is out of range", self.written()),
            format!("a number {range} is expected"),
        ))
    }

    pub(crate) fn is_integer(&self) -> bool {
        self.value.is_integer()
    }

    /// A whole number, at least `least`.
    pub(crate) fn whole(&self, least: u64) -> Result<u64, ConfigError> {
        let DeValue::Integer(whole) = self.value else {
            return Err(self.wrong_type("a whole number"));
        };
        match u64::from_str_radix(&whole.as_str().replace('_', ""), whole.radix()) {
            Ok(number) if number >= least && number < 1 << 53 => Ok(number),
            Ok(number) if number < least => Err(self.too_small(least)),
            Err(error) if *error.kind() != std::num::IntErrorKind::PosOverflow => {
                Err(self.too_small(least))
            }
            _ => Err(self.error(
                format!("{} is too large", self.written()),
                "a whole number below 2^53, about 9.0e15, is expected",
            )),
        }
    }

    fn too_small(&self, least: u64) -> ConfigError {
        self.error(
            format!("{} is out of range", self.written()),
            format!("a whole number of at least {least} is expected"),
        )
    }

    pub(crate) fn is_list(&self) -> bool {
        self.value.is_array()
    }

    pub(crate) fn list(&self, expected: &str) -> Result<Vec<Value<'a>>, ConfigError> {
        let Some(array) = self.value.as_array() else { return Err(self.wrong_type(expected)) };
        let item = |(k, item): (usize, &'a toml::Spanned<DeValue<'a>>)| Value {
            document: self.document,
            field: format!("{}[{k}]", self.field),
            span: item.span(),
            value: item.get_ref(),
        };
        Ok(array.iter().enumerate().map(item).collect())
    }

    pub(crate) fn numbers(&self) -> Result<Vec<f64>, ConfigError> {
        self.list("a list of numbers")?.iter().map(Value::number).collect()
    }

    /// A list of lists of numbers, all equally long; row-major.
    pub(crate) fn matrix(&self) -> Result<(Vec<f64>, usize), ConfigError> {
        let rows = self.list("a list of rows, such as [[1.0, 0.0], [0.0, 1.0]]")?;
        let mut cells = Vec::new();
        let mut columns = None;
        for row in &rows {
            let numbers = row.numbers()?;
            let expected = *columns.get_or_insert(numbers.len());
            if numbers.len() != expected {
                return Err(row.error(
                    format!("this row has {} numbers, the first has {expected}", numbers.len()),
                    "all rows must be equally long",
                ));
            }
            cells.extend(numbers);
        }
        Ok((cells, columns.unwrap_or(0)))
    }

    pub(crate) fn section(&self) -> Result<Section<'a>, ConfigError> {
        let Some(table) = self.value.as_table() else { return Err(self.wrong_type("a table")) };
        Ok(Section::new(self.document, &self.field, self.span.clone(), table))
    }

    /// One of some words.
    pub(crate) fn choice<T: Copy>(&self, choices: &[(&'static str, T)]) -> Result<T, ConfigError> {
        let words = || choices.iter().map(|(word, _)| *word);
        let expected = format!(
            "one of {} is expected",
            words().map(|w| format!("\"{w}\"")).collect::<Vec<_>>().join(", ")
        );
        let Some(word) = self.value.as_str() else {
            return Err(self.error(format!("{} is {}", self.written(), self.kind()), expected));
        };
        choices.iter().find(|(known, _)| *known == word).map(|(_, value)| *value).ok_or_else(|| {
            let suggestion = suggest(word, words());
            let fix = if suggestion.starts_with("did") {
                format!("{suggestion} ({expected})")
            } else {
                expected
            };
            self.error(format!("\"{word}\" is not known"), fix)
        })
    }
}
