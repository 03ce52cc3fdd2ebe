//! State the posteriors on which choices are judged.

/// How many effective draws a run is asked for.
pub const DRAWS: u64 = 2000;

/// Samplers that are run beside `auto`.
const EXACT: &[&str] = &["imh", "pcn", "mala", "hmc"];
const PAPERS: &[&str] = &["lmc", "qlsd++"];

/// One posterior.
#[derive(Clone, Debug)]
pub struct Target {
    pub name: String,
    /// What a config says of it, sampler and length left out.
    pub config: String,
    /// How many draws of each chain NUTS takes from the pooled rows; none where that would take
    /// hours.
    pub nuts: Option<u32>,
    /// The name and the config of the same posterior elsewhere, which NUTS samples once for all.
    pub pooled: Option<(String, String)>,
    /// What is run beside `auto`.
    pub samplers: Vec<&'static str>,
}

impl Target {
    /// Whether the bias of unadjusted samplers is measured: it takes long chains, and NUTS.
    pub fn has_bias_judged(&self) -> bool {
        BIASED.contains(&self.name.as_str())
    }
}

/// Regressions on which biases are measured.
const BIASED: [&str; 5] = ["titanic", "pima", "heart-disease", "german-credit", "breast-cancer"];

/// The targets of the first table.
pub fn main() -> Vec<Target> {
    let builtin = |name: &str| regression(name, &format!("builtin = \"{name}\""), 6.25);
    let dealt = |name: &str| regression(name, &format!("name = \"{name}\"\nclients = 4"), 6.25);
    let plane = Target { config: PLANE.into(), ..regression("gaussian, 2 parameters", "", 1.0) };
    let toy = Target { config: TOY.into(), ..regression("gaussian, 20 parameters", "", 1.0) };
    let large = |name: &str| Target { nuts: Some(1000), ..dealt(name) };
    let digits = Target {
        nuts: None,
        samplers: vec!["imh", "pcn", "mala", "hmc", "qlsd++"],
        ..regression("mnist, 4 x 4 pixels", DIGITS, 6.25)
    };
    vec![
        plane,
        toy,
        builtin("titanic"),
        dealt("pima"),
        builtin("heart-disease"),
        dealt("german-credit"),
        builtin("breast-cancer"),
        large("mushrooms"),
        large("a8a"),
        digits,
    ]
}

/// The same data under other priors, and dealt otherwise. Only `auto` is run.
pub fn variations() -> Vec<Target> {
    let names = ["titanic", "pima", "german-credit", "heart-disease"];
    let mut all = Vec::new();
    for name in names {
        let dealt = |rest: &str| format!("name = \"{name}\"\n{rest}");
        // built-in data has sites of its own
        let elsewhere =
            if ["pima", "german-credit"].contains(&name) { "" } else { ", dealt to 4 sites" };
        let pooled = regression(&format!("{name}{elsewhere}"), &dealt("clients = 4"), 6.25);
        let mut add = |word: &str, data: String, variance: f64| {
            let stated = regression(&format!("{name}, {word}"), &data, variance);
            let same = (variance == 6.25).then(|| (pooled.name.clone(), pooled.config.clone()));
            all.push(Target { pooled: same, samplers: vec![], ..stated });
        };
        add("prior variance 1", dealt("clients = 4"), 1.0);
        add("prior variance 100", dealt("clients = 4"), 100.0);
        add("2 sites", dealt("clients = 2"), 6.25);
        add("8 sites", dealt("clients = 8"), 6.25);
        add("8 unequal sites", dealt("clients = 8\nscheme = \"power-law(1)\""), 6.25);
        add("8 unlike sites", dealt("clients = 8\nscheme = \"dirichlet(0.5)\""), 6.25);
    }
    all
}

fn regression(name: &str, data: &str, variance: f64) -> Target {
    Target {
        name: name.into(),
        config: format!(
            "[data]\n{data}\n\n[target.prior]\nlaw = \"gaussian\"\nvariance = {variance:?}\n"
        ),
        nuts: Some(5000),
        pooled: None,
        samplers: [EXACT, PAPERS].concat(),
    }
}

/// Three sites that disagree, in the plane.
const PLANE: &str = "\
[target]
model = \"gaussian\"

[target.prior]
law = \"gaussian\"
variance = [2.0, 0.8]

[[client]]
mean = [1.0, -2.0]
precision = [[1.0, 0.4], [0.4, 0.6]]

[[client]]
mean = [-1.5, 0.5]
precision = [[0.5, -0.3], [-0.3, 1.4]]

[[client]]
mean = [3.0, 2.0]
covariance = [[1.0, 0.2], [0.2, 3.0]]
";

/// The Gaussian toy of FALD, with fewer sites: they differ in their means and their precisions.
const TOY: &str = "\
[data]
generate = \"fald-toy\"
clients = 10
columns = 20
";

/// MNIST's first digits, each pixel the mean of 49: the command makes these files of MNIST's own.
const DIGITS: &str = "\
file = \"images-idx3-ubyte\"
label_file = \"labels-idx1-ubyte\"
clients = 4

[target]
model = \"softmax\"
classes = 10";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_at_least_eight() {
        let mut names: Vec<_> = main().into_iter().chain(variations()).map(|t| t.name).collect();
        assert!(main().len() >= 8);
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
