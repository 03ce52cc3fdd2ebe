//! Say in words what is sampled, so that every party can check that it means the same.

use sha2::{Digest, Sha256};

/// The target in plain text, one `key: value` a line, the same for every party.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Statement(String);

impl Statement {
    /// From its lines.
    pub fn new<K: std::fmt::Display, V: std::fmt::Display>(
        lines: impl IntoIterator<Item = (K, V)>,
    ) -> Self {
        let mut text = String::new();
        for (key, value) in lines {
            text.push_str(&format!("{key}: {value}\n"));
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

    /// SHA-256 of the text.
    pub fn digest(&self) -> [u8; 32] {
        Sha256::digest(self.0.as_bytes()).into()
    }

    /// Agree, or show both statements.
    pub fn check(&self, other: &Statement, who: &str) -> Result<(), Mismatch> {
        if self.digest() == other.digest() {
            Ok(())
        } else {
            Err(Mismatch { who: who.to_owned(), ours: self.0.clone(), theirs: other.0.clone() })
        }
    }
}

/// Two parties do not mean the same target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{who} works on another target; nothing was sampled.\n--- the server states\n\
     {ours}--- {who} states\n{theirs}"
)]
pub struct Mismatch {
    who: String,
    ours: String,
    theirs: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mismatch_shows_both_statements() {
        let ours = Statement::new([("model", "logistic"), ("temperature", "1")]);
        let theirs = Statement::new([("model", "logistic"), ("temperature", "2")]);
        assert!(ours.check(&ours.clone(), "site basel").is_ok());
        let message = ours.check(&theirs, "site basel").unwrap_err().to_string();
        assert!(
            message.contains("site basel")
                && message.contains("temperature: 1")
                && message.contains("temperature: 2")
        );
    }
}
