//! Wrong formulas, priors and rows get a message that says what is wrong, where it stands, and what
//! to write instead; none of them panics.
#![allow(clippy::unwrap_used)] // a test may panic

use std::path::Path;

use consilience_engine::config::{Config, ConfigError, Source};
use consilience_engine::plan::Plan;
use consilience_engine::problem::Problem;

const ROWS: &str = "site,time,status,age,town,visits,days,level,score,ill
north,5.5,1,31,bern,0,90,1,2.5,no
north,9.1,0,44,chur,3,365,2,3.1,yes
north,1.2,1,52,bern,9,365,3,0.4,no
north,4.0,1,63,visp,7,180,2,5.5,yes
south,7.3,0,39,chur,1,365,1,2.2,no
south,2.2,1,58,bern,0,200,3,1.7,yes
south,8.8,1,47,visp,12,365,2,4.9,no
south,3.9,0,66,chur,2,120,1,3.3,yes
";

/// The lines of `[target]`, what is changed in the rows, and words that the message must have: what
/// is wrong, where, what to write.
type Case = (&'static str, &'static str, (&'static str, &'static str), &'static [&'static str]);

const NONE: (&str, &str) = ("", "");

const CASES: &[Case] = &[
    // formulas
    ("no tilde", "formula = \"score\"", NONE, &["`score`", "response ~ terms"]),
    ("no such column", "formula = \"score ~ agee\"", NONE, &["`agee`", "did you mean `age`"]),
    ("no such response", "formula = \"scor ~ age\"", NONE, &["`scor`", "did you mean `score`"]),
    ("the response as a term", "formula = \"score ~ score + age\"", NONE, &["`score`", "once"]),
    ("taken away", "formula = \"score ~ age - town\"", NONE, &["- town", "leave it out"]),
    (
        "log of what is not above 0",
        "formula = \"score ~ log(visits)\"",
        NONE,
        &["log(visits)", "line 2"],
    ),
    ("root below 0", "formula = \"score ~ sqrt(age - 50)\"", NONE, &["sqrt(age - 50)", "line 2"]),
    ("function of words", "formula = \"score ~ log(town)\"", NONE, &["town", "number"]),
    ("no such function", "formula = \"score ~ lg(age)\"", NONE, &["lg", "log"]),
    ("an open bracket", "formula = \"score ~ log(age\"", NONE, &["log(age", ")"]),
    ("no degree", "formula = \"score ~ poly(age)\"", NONE, &["poly(age)", "poly(age, 2)"]),
    ("degree 0", "formula = \"score ~ poly(age, 0)\"", NONE, &["poly", "2"]),
    // splines
    ("a spline of nothing", "formula = \"score ~ ns(agee, 3)\"", NONE, &["`agee`", "`age`"]),
    ("no degrees of freedom", "formula = \"score ~ ns(age)\"", NONE, &["ns(age)", "ns(age, 4)"]),
    (
        "too few of them",
        "formula = \"score ~ bs(age, 2)\"",
        NONE,
        &["bs(age, 2)", "3 is the least"],
    ),
    (
        "a straight spline",
        "formula = \"score ~ ns(age, 1)\"",
        NONE,
        &["ns(age, 1)", "`age` itself"],
    ),
    ("a spline of words", "formula = \"score ~ bs(town, 4)\"", NONE, &["bs(town, 4)", "number"]),
    ("a spline of 0 and 1", "formula = \"score ~ ns(status, 3)\"", NONE, &["write `status`"]),
    (
        "more knots than values",
        "formula = \"score ~ ns(level, 5)\"",
        NONE,
        &["ns(level, 5)", "two of its knots", "fewer degrees of freedom", "C(level)"],
    ),
    ("knots of one's own", "formula = \"score ~ bs(age, knots = 40)\"", NONE, &["quantiles"]),
    ("an argument that is none", "formula = \"score ~ bs(age, fd = 4)\"", NONE, &["`fd`", "`df`"]),
    ("no such spline", "formula = \"score ~ cs(age, 4)\"", NONE, &["cs(age, 4)", "ns, bs"]),
    (
        "a slope along a spline",
        "formula = \"score ~ ns(age, 3) + (ns(age, 3) | town)\"",
        NONE,
        &["slopes along splines", "(x | group)"],
    ),
    ("no such level", "formula = \"score ~ C(town, ref = 'brn')\"", NONE, &["brn", "bern"]),
    (
        "an offset of words",
        "model = \"poisson\"\nformula = \"visits ~ age + offset(town)\"",
        NONE,
        &["town", "number"],
    ),
    (
        "an offset that is infinite",
        "model = \"poisson\"\nformula = \"visits ~ age + offset(log(visits))\"",
        NONE,
        &["log(visits)", "line 2"],
    ),
    ("a weight below 0", "formula = \"score ~ age + weights(age - 50)\"", NONE, &["weight", "-19"]),
    (
        "weights of Cox",
        "model = \"cox\"\nformula = \"Surv(time, status) ~ age + weights(days)\"",
        NONE,
        &["Cox", "weights"],
    ),
    (
        "groups of Cox",
        "model = \"cox\"\nformula = \"Surv(time, status) ~ age + (1 | town)\"",
        NONE,
        &["Cox", "groups"],
    ),
    ("groups of no column", "formula = \"score ~ age + (1 | twon)\"", NONE, &["twon", "town"]),
    ("an open group", "formula = \"score ~ age + (1 | town\"", NONE, &["(1 | town"]),
    (
        "a survival of one column",
        "model = \"cox\"\nformula = \"Surv(time) ~ age\"",
        NONE,
        &["Surv(time, status)"],
    ),
    (
        "a time without a survival",
        "model = \"weibull\"\nformula = \"visits ~ age\"",
        NONE,
        &["visits", "line 2", "Surv(time, status) ~"],
    ),
    ("a status of words", "model = \"cox\"\nformula = \"Surv(time, town) ~ age\"", NONE, &["town"]),
    (
        "a status of 2",
        "model = \"weibull\"\nformula = \"Surv(time, level) ~ age\"",
        NONE,
        &["level", "0", "1"],
    ),
    (
        "a survival in a linear model",
        "model = \"linear\"\nformula = \"Surv(time, status) ~ age\"",
        NONE,
        &["Surv", "weibull"],
    ),
    (
        "a term that is a group as well",
        "formula = \"score ~ town + age + (1 | town)\"",
        NONE,
        &["`town` is a term of the formula and names groups", "leave one out"],
    ),
    // models and what they explain
    (
        "no such model",
        "model = \"negbinomial\"\nformula = \"visits ~ age\"",
        NONE,
        &["negbinomial", "negative_binomial"],
    ),
    (
        "halves as counts",
        "model = \"poisson\"\nformula = \"score ~ age\"",
        NONE,
        &["2.5", "line 2", "linear"],
    ),
    (
        "counts below 0",
        "model = \"negative_binomial\"\nformula = \"visits ~ age\"",
        ("bern,0,90", "bern,-3,90"),
        &["-3", "line 2"],
    ),
    (
        "levels from 0",
        "model = \"ordinal\"\nlevels = 3\nformula = \"visits ~ age\"",
        NONE,
        &["line 2", "levels"],
    ),
    ("no levels", "model = \"ordinal\"\nformula = \"level ~ age\"", NONE, &["levels = "]),
    ("words as numbers", "model = \"linear\"\nformula = \"town ~ age\"", NONE, &["town"]),
    (
        "no degrees of freedom",
        "model = \"student_t\"\ndegrees_of_freedom = 0\n\
        formula = \"score ~ age\"",
        NONE,
        &["degrees_of_freedom", "positive"],
    ),
    (
        "a setting of another model",
        "model = \"poisson\"\nnoise_variance = 1\n\
        formula = \"visits ~ age\"",
        NONE,
        &["noise_variance", "remove"],
    ),
    // priors
    (
        "no such law",
        "formula = \"score ~ age\"\nprior = { law = \"norml(0, 1)\" }",
        NONE,
        &["norml", "normal"],
    ),
    (
        "too few numbers",
        "formula = \"score ~ age\"\nprior = { law = \"normal(0)\" }",
        NONE,
        &["`normal` is given 1", "normal(mean, sd)"],
    ),
    (
        "a scale below 0",
        "formula = \"score ~ age\"\nprior = { law = \"normal(0, -1)\" }",
        NONE,
        &["-1", "above 0"],
    ),
    (
        "no such parameter",
        "formula = \"score ~ age\"\n\
        prior = { of = { aeg = \"normal(0, 1)\" } }",
        NONE,
        &["aeg", "did you mean `age`"],
    ),
    (
        "a half law of a coefficient",
        "formula = \"score ~ age\"\n\
        prior = { of = { age = \"half_normal(1)\" } }",
        NONE,
        &["age may be below 0", "normal"],
    ),
    (
        "a whole law of sigma",
        "formula = \"score ~ age\"\n\
        prior = { of = { sigma = \"normal(0, 1)\" } }",
        NONE,
        &["sigma is above 0", "half_normal"],
    ),
    (
        "no shape",
        "model = \"poisson\"\nformula = \"visits ~ age\"\n\
        prior = { of = { shape = \"exponential(1)\" } }",
        NONE,
        &["\"shape\"", "known are"],
    ),
    (
        "a law that is a number",
        "formula = \"score ~ age\"\nprior = { law = 3 }",
        NONE,
        &["prior.law"],
    ),
    // rows
    (
        "a time of 0",
        "model = \"weibull\"\nformula = \"Surv(time, status) ~ age\"",
        ("north,5.5", "north,0"),
        &["line 2", "0"],
    ),
    (
        "a response that is missing",
        "formula = \"score ~ age\"",
        ("1,2.5,no", "1,,no"),
        &["line 2", "score"],
    ),
    ("a typing error", "formula = \"score ~ age\"", ("1,31,", "1,3l,"), &["line 2", "3l", "age"]),
];

fn refusal(target: &str, (from, to): (&str, &str), file: &Path) -> Result<(), ConfigError> {
    let rows = if from.is_empty() { ROWS.into() } else { ROWS.replacen(from, to, 1) };
    assert!(from.is_empty() || rows != ROWS);
    std::fs::write(file, rows).unwrap();
    let name = file.file_name().unwrap().to_string_lossy();
    let text = format!(
        "[target]\n{target}\n[data]\nfile = \"{name}\"\nscheme = \"natural(site)\"\n[sampler]\n\
         name = \"lmc\"\n"
    );
    let folder = file.parent().unwrap().to_path_buf();
    let config = Config::parse(Source { file: "run.toml".into(), folder, text })?;
    let problem = Problem::new(&config)?;
    Plan::new(&config, &problem).map(|_| ())
}

#[test]
fn every_wrong_model_is_told_what_where_and_what_to_write() {
    assert!(CASES.len() >= 40);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wrong_models");
    std::fs::create_dir_all(&folder).unwrap();
    assert!(refusal("formula = \"score ~ age + town\"", NONE, &folder.join("good.csv")).is_ok());
    let mut short = Vec::new();
    for (k, (name, target, change, words)) in CASES.iter().enumerate() {
        let file = folder.join(format!("case{k}.csv"));
        match refusal(target, *change, &file) {
            Ok(()) => short.push(format!("{name}: it is accepted")),
            Err(error) => {
                let said = error.to_string();
                if let Some(word) = words.iter().find(|word| !said.contains(**word)) {
                    short.push(format!("{name}: {word:?} is not in\n{said}"));
                }
                // every complaint has its place in the config, and a fix
                if !said.starts_with("run.toml") || !said.contains('\n') {
                    short.push(format!("{name}: it has no place or no fix\n{said}"));
                }
            }
        }
    }
    assert!(short.is_empty(), "{}", short.join("\n\n"));
}
