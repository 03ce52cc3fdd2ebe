//! Guess which name was meant by a misspelt one.

/// "did you mean `x`? ", or nothing where no name is near.
pub(crate) fn did_you_mean<'a>(word: &str, names: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, names, 1).map_or_else(String::new, |name| format!("did you mean `{name}`? "))
}

/// The same for the column of a table, where the header may be why it is not found.
pub(crate) fn column_hint<'a>(
    column: &str,
    header: impl IntoIterator<Item = &'a str> + Clone,
) -> String {
    let bare = |name: &str| name.trim_matches(['\'', '"', '`', '\u{201c}', '\u{201d}']).to_owned();
    let mut names = header.clone().into_iter();
    if header.clone().into_iter().any(|name| name != column && bare(name) == column) {
        return "the names in the header have quotes that belong to them: remove those (double \
            quotes around a whole field may stay); "
            .into();
    }
    if let (Some(only), None) = (names.next(), names.next())
        && only.split([' ', '\t', '|', ':']).any(|word| bare(word) == column)
    {
        return "the header is one field: separate fields by commas, semicolons or tabs; ".into();
    }
    did_you_mean(column, header)
}

/// "did you mean `x`?", or the list of what there is.
pub fn suggest<'k>(word: &str, known: impl Iterator<Item = &'k str> + Clone) -> String {
    match nearest(word, known.clone(), 2) {
        Some(name) => format!("did you mean `{name}`?"),
        None => format!("known are: {}", known.collect::<Vec<_>>().join(", ")),
    }
}

/// The name that is nearest, if it is no further than a third of the word, or than `least` letters,
/// and some letter of both stays: of one letter any other is as near.
fn nearest<'a>(
    word: &str,
    names: impl IntoIterator<Item = &'a str>,
    least: usize,
) -> Option<&'a str> {
    let (edits, name) = names.into_iter().map(|name| (distance(word, name), name)).min()?;
    let letters = word.chars().count();
    let stays = edits == 0 || edits < letters.max(name.chars().count());
    (stays && edits <= (letters / 3).max(least)).then_some(name)
}

/// How many letters must be added, removed or changed, whatever their case (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    strsim::levenshtein(&a.to_lowercase(), &b.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_one_letter_none_is_near() {
        assert_eq!(did_you_mean("d", ["a", "b", "y"]), "");
        assert_eq!(did_you_mean("A", ["a", "b"]), "did you mean `a`? ");
        assert_eq!(did_you_mean("sx", ["age", "sex"]), "did you mean `sex`? ");
        assert_eq!(suggest("x", ["y", "z"].into_iter()), "known are: y, z");
    }

    #[test]
    fn a_header_that_is_read_otherwise_than_meant_is_told() {
        let quoted = column_hint("age", ["'age'", "'vote'"]);
        assert!(quoted.starts_with("the names in the header have quotes"), "{quoted}");
        let spaced = column_hint("age", ["'age'  'vote'"]);
        assert!(spaced.starts_with("the header is one field"), "{spaced}");
        assert_eq!(column_hint("age", ["age|vote"]), spaced);
        assert_eq!(column_hint("agee", ["age", "vote"]), "did you mean `age`? ");
        assert_eq!(column_hint("dose", ["age", "vote"]), "");
        assert_eq!(column_hint("dose", ["age vote"]), "");
    }

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
