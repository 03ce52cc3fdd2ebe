//! Name variables after parameters, where a store can hold the name.

/// Names that mean something else to a store or to ArviZ.
const TAKEN: [&str; 6] = ["", ".", "..", "zarr.json", "chain", "draw"];
/// Longer names make trouble as names of folders.
const LONGEST: usize = 120;

/// One name of a variable for each parameter: its own name where that is possible, and never the
/// same twice.
pub fn variables(parameters: &[String]) -> Vec<String> {
    let mut names: Vec<String> = Vec::with_capacity(parameters.len());
    let mut seen = std::collections::BTreeSet::new();
    for parameter in parameters {
        let mut plain: String = parameter
            .chars()
            .map(|c| if c == '/' || c == '\\' || c.is_control() { '_' } else { c })
            .collect();
        while plain.len() > LONGEST {
            plain.pop();
        }
        if TAKEN.contains(&plain.as_str()) || plain.starts_with("__") {
            plain = format!("parameter {plain}").trim_end().to_owned();
        }
        let mut name = plain.clone();
        let mut copy = 2;
        // Some file systems do not tell upper from lower case.
        while !seen.insert(name.to_lowercase()) {
            name = format!("{plain} ({copy})");
            copy += 1;
        }
        names.push(name);
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_unless_a_store_cannot_hold_them() {
        let of =
            |names: &[&str]| variables(&names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&["age", "sex: male", "größe"]), ["age", "sex: male", "größe"]);
        assert_eq!(
            of(&["a/b", "a\\b", "chain", ""]),
            ["a_b", "a_b (2)", "parameter chain", "parameter"]
        );
        assert_eq!(of(&["x", "x", "X", "x (2)"]), ["x", "x (2)", "X (3)", "x (2) (2)"]);
        assert_eq!(of(&["__x", ".."]), ["parameter __x", "parameter .."]);
        assert_eq!(of(&[&"é".repeat(100)])[0].len(), 120);
    }
}
