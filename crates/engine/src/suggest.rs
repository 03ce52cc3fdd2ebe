//! Guess which name was meant by a misspelt one.

/// "did you mean `x`? ", or nothing where no name is near.
pub(crate) fn did_you_mean<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, names, 1).map_or_else(String::new, |name| format!("did you mean `{name}`? "))
}

/// "did you mean `x`?", or the list of what there is.
pub fn suggest<'k>(word: &str, known: impl Iterator<Item = &'k str> + Clone) -> String {
    match nearest(word, known.clone(), 2) {
        Some(name) => format!("did you mean `{name}`?"),
        None => format!("known are: {}", known.collect::<Vec<_>>().join(", ")),
    }
}

/// The name that is nearest, if it is no further than a third of the word, or than `least` letters.
fn nearest<'a>(
    word: &str,
    names: impl IntoIterator<Item = &'a str>,
    least: usize,
) -> Option<&'a str> {
    let (edits, name) = names.into_iter().map(|name| (distance(word, name), name)).min()?;
    (edits <= (word.chars().count() / 3).max(least)).then_some(name)
}

/// How many letters must be added, removed or changed, whatever their case (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    strsim::levenshtein(&a.to_lowercase(), &b.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_by_hand() {
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
        assert_eq!(distance("Age", "age"), 0);
    }

    #[test]
    fn only_near_names_are_offered() {
        assert_eq!(did_you_mean("trestbp", ["chol", "trestbps"]), "did you mean `trestbps`? ");
        assert_eq!(did_you_mean("weight", ["chol", "trestbps"]), "");
    }
}
