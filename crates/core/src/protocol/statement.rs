//! Say in words what is sampled and how, so that every party can check that it means the same.

use std::fmt;

use sha2::{Digest, Sha256};

/// What parties agree on in plain text, one `field: value` a line, the same for every party. It is
/// what people read, and what is hashed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement(String);

impl Statement {
    /// From its fields, in their order. A line break in a value is written as `\n`. The name of a
    /// field has no colon before a space: it would end there.
    pub fn new<K: fmt::Display, V: fmt::Display>(lines: impl IntoIterator<Item = (K, V)>) -> Self {
        let mut text = String::new();
        for (field, value) in lines {
            let field = field.to_string();
            debug_assert!(!field.contains(": "), "`{field}` would end at its colon");
            let value = value.to_string().replace('\n', "\\n").replace('\r', "\\r");
            text.push_str(&format!("{field}: {value}\n"));
        }
        Statement(text)
    }

    /// As another party wrote it.
    pub fn written(text: &str) -> Self {
        Statement(text.to_owned())
    }

    /// The text that is hashed.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Its fields, in their order.
    pub fn fields(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.lines().map(|line| line.split_once(": ").unwrap_or((line, "")))
    }

    /// SHA-256 of the text.
    pub fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.0.as_bytes()).into()
    }

    /// The same in hexadecimal digits.
    pub fn hash(&self) -> String {
        self.digest().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Agree with what somebody else states, or name every field that differs, with both values.
    pub fn check(&self, other: &Statement, who: &str) -> Result<(), Mismatch> {
        if self == other {
            return Ok(());
        }
        let value = |statement: &Statement, field: &str| {
            statement.fields().find(|(f, _)| *f == field).map(|(_, value)| value.to_owned())
        };
        let mut fields: Vec<&str> = self.fields().map(|(field, _)| field).collect();
        let more = other.fields().map(|(field, _)| field).filter(|field| !fields.contains(field));
        fields.extend(more.collect::<Vec<_>>());
        let difference = |field: &str| Difference {
            field: field.to_owned(),
            ours: value(self, field),
            theirs: value(other, field),
        };
        let mut differences: Vec<Difference> =
            fields.into_iter().map(difference).filter(|d| d.ours != d.theirs).collect();
        if differences.is_empty() {
            let (ours, theirs) = (Some(self.0.clone()), Some(other.0.clone()));
            differences.push(Difference { field: "the order of fields".into(), ours, theirs });
        }
        Err(Mismatch { who: who.to_owned(), differences })
    }
}

/// A number in the fewest digits that give exactly it again.
#[derive(Clone, Copy, Debug)]
pub struct Exactly(pub f64);

impl fmt::Display for Exactly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Exactly(x) = *self;
        if x == 0.0 || (1e-5..1e16).contains(&x.abs()) || !x.is_finite() {
            write!(f, "{x}")
        } else {
            write!(f, "{x:e}")
        }
    }
}

/// A field that two parties state differently; `None`: one of them does not have it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Difference {
    field: String,
    ours: Option<String>,
    theirs: Option<String>,
}

/// Two parties do not mean the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    who: String,
    differences: Vec<Difference>,
}

impl std::error::Error for Mismatch {}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let who = &self.who;
        write!(f, "{who} does not mean the same; nothing was sampled.")?;
        for Difference { field, ours, theirs } in &self.differences {
            let said = |value: &Option<String>| value.clone().unwrap_or("not stated".into());
            write!(f, "\n  {field}:\n    as stated first: {}", said(ours))?;
            write!(f, "\n    {who}: {}", said(theirs))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mismatch_names_the_fields_that_differ_with_both_values() {
        let ours = Statement::new([("model", "logistic"), ("temperature", "1"), ("a", "b")]);
        let theirs = Statement::new([("model", "logistic"), ("temperature", "2"), ("c", "d")]);
        assert!(ours.check(&ours.clone(), "site basel").is_ok());
        let message = ours.check(&theirs, "site basel").unwrap_err().to_string();
        assert_eq!(
            message,
            "site basel does not mean the same; nothing was sampled.\n  temperature:\n    \
             as stated first: 1\n    site basel: 2\n  a:\n    as stated first: b\n    \
             site basel: not stated\n  c:\n    as stated first: not stated\n    site basel: d"
        );
        let turned = Statement::new([("temperature", "1"), ("model", "logistic"), ("a", "b")]);
        assert!(ours.check(&turned, "x").unwrap_err().to_string().contains("the order of fields"));
    }

    #[test]
    fn a_value_stays_on_its_line() {
        let tricky = Statement::new([("names", "a\ntemperature: 2"), ("temperature", "1")]);
        assert_eq!(tricky.fields().count(), 2);
        assert_eq!(tricky.text(), "names: a\\ntemperature: 2\ntemperature: 1\n");
    }

    #[test]
    fn numbers_are_printed_exactly() {
        for (x, text) in
            [(0.1, "0.1"), (1.0, "1"), (1e-7, "1e-7"), (0.1 + 0.2, "0.30000000000000004")]
        {
            assert_eq!(Exactly(x).to_string(), text);
            assert_eq!(text.parse::<f64>().unwrap().to_bits(), x.to_bits());
        }
        assert_ne!(Exactly(1.0).to_string(), Exactly(1.0 + f64::EPSILON).to_string());
    }
}
