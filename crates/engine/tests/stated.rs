//! A config may state how columns are coded: then rows are the numbers that sums of all sites would
//! make of them, bit for bit, and no site says anything of them.
#![allow(clippy::unwrap_used)] // a test may panic

use std::path::{Path, PathBuf};

use consilience_core::model::Single;
use consilience_engine::config::{Config, ConfigError, Source};
use consilience_engine::data::memory::{Values, table};
use consilience_engine::data::{Table, builtin};
use consilience_engine::encoding::Encoding;
use consilience_engine::privacy::{of_config, refusals};
use consilience_engine::problem::{AllRows, Problem};
use consilience_engine::site::{Introduction, LocalSite, Own, agree, kinds};
use consilience_engine::statement;

fn folder(of: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(of)
}

fn read(text: &str, at: &str) -> Result<Config, ConfigError> {
    let (file, folder) = ("run.toml".into(), folder(at));
    Config::parse(Source { file, folder, text: text.into() })
}

/// All rows as bits, and what the parameters are called.
fn rows(config: &Config) -> (Vec<String>, Vec<(String, Vec<u64>)>) {
    let AllRows { parameters, sites } = AllRows::new(config).unwrap().unwrap();
    let of = |site: &consilience_engine::problem::SiteRows| {
        let cell = |row: usize| (0..site.design.columns()).map(move |k| site.design.cell(row, k));
        let cells = (0..site.design.rows()).flat_map(cell);
        let more = site.rows.response.iter().chain(&site.rows.offset).chain(&site.rows.weights);
        let all = cells.chain(more.copied()).map(f64::to_bits).collect();
        (site.name.clone(), all)
    };
    (parameters, sites.iter().map(of).collect())
}

/// What sites would agree on, stated.
fn stated(text: &str, at: &str, more: &str) -> (String, Encoding) {
    let config = read(text, at).unwrap();
    let encoding = Problem::new(&config).unwrap().encoding.unwrap();
    let lines = encoding.as_stated();
    (format!("{text}\n[target.coding]\n{lines}{more}"), encoding)
}

const HEART: &str = "[data]\nbuiltin = \"heart-disease\"\n[target]\n";
const WARDS: &str = "[data]\nfile = \"products.csv\"\nscheme = \"natural(site)\"\n[target]\n\
    formula = \"FORMULA\"\n";
const AGES: &str = "[data]\nfile = \"splines.csv\"\nscheme = \"natural(site)\"\n[target]\n\
    formula = \"FORMULA\"\n";
const LACKING: &str = "[data]\nfile = \"missing.csv\"\nscheme = \"natural(site)\"\n[target]\n\
    formula = \"FORMULA\"\n";

/// Every kind of column: numbers, 0 and 1, words, levels of numbers, splines, products of each with
/// each, what is computed, what is missing, with and without an intercept.
#[test]
fn stated_numbers_make_the_rows_that_sums_of_all_sites_make() {
    let at = "tests/data";
    let one = "model = \"linear\"\nnoise_variance = 1.0\n\
               prior = { law = \"gaussian\", variance = 4.0 }\n";
    let binary = "prior = { law = \"gaussian\", variance = 4.0 }\n";
    let mut compared = 0;
    for (base, formula, target) in [
        (HEART, "", ""),
        ("[data]\nbuiltin = \"titanic\"\n[target]\n", "", ""),
        ("[data]\nbuiltin = \"breast-cancer\"\n[target]\n", "", ""),
        (WARDS, "pain ~ age + dose + sex + town + C(ward) + smokes + site", one),
        (WARDS, "pain > 1 ~ age*sex + town:sex + site:age", binary),
        (WARDS, "pain ~ 0 + town + sex:age + log(dose) + I(age^2)", one),
        (WARDS, "pain ~ C(town, ref = 'genf') + smokes*age", one),
        (WARDS, "pain ~ age:dose + interaction(sex, town)", one),
        (WARDS, "pain ~ C(smokes, ref = '1') + age + offset(dose) + weights(age)", one),
        (WARDS, "smokes == 1 ~ poly(age, 2) + sex", binary),
        (WARDS, "town == bern ~ age + dose", binary),
        (AGES, "pain ~ ns(age, 3) + bs(dose, 5, degree = 2)", one),
        (AGES, "pain ~ ns(age, 4):dose + age", one),
        (AGES, "ill == 1 ~ ns(log(dose), 2) + age", binary),
        (LACKING, "ill == 1 ~ dose + weight + male + C(visits)", binary),
        (LACKING, "ill == 1 ~ dose*male + ns(weight, 3) + site", binary),
        (LACKING, "pain ~ mi(dose) + weight", one),
    ] {
        let mut ways = vec!["", "standardise = false\n"];
        match (base, formula.contains("mi(")) {
            (LACKING, false) => ways.push("missing = \"impute\"\n"),
            (LACKING, true) => ways.truncate(1), // standardised as it is
            _ => {}
        }
        for way in ways {
            let formula = formula.replace('\'', "\\\"");
            let text = format!("{}{target}{way}", base.replace("FORMULA", &formula));
            if base.contains("builtin") && !way.is_empty() {
                continue;
            }
            // offsets and weights stand in no other column
            let (with, encoding) = stated(&text, at, "");
            let config = read(&with, at).unwrap_or_else(|e| panic!("{with}\n{e}"));
            let problem = Problem::new(&config).unwrap_or_else(|e| panic!("{with}\n{e}"));
            assert_eq!(rows(&config), rows(&read(&text, at).unwrap()), "{with}");
            assert_eq!(problem.moments_bits, (0, 0), "nobody says anything");
            // and the statement is that of what is kept
            let kept = problem.encoding.unwrap();
            assert_eq!(kept.as_stated(), encoding.as_stated());
            assert_eq!(kept.columns(), encoding.columns());
            compared += 1;
        }
    }
    assert_eq!(compared, 32);
}

/// Twelve rows of two sites, some of which lack something.
const NORTH: &str = "age,sex,dose,ward,ill\n41,f,0.5,a,no\n63,m,,b,yes\n57,m,1.5,a,no\n38,,2.5,a,\
    yes\n44.5,m,1,b,no\n51,f,0.5,b,yes\n";
const SOUTH: &str = "ward,dose,ill,sex,age\nb,2.25,yes,f,61\na,,no,f,33\nb,1.75,yes,m,58\na,0.5,\
    no,m,47\nb,3,yes,f,66\na,1,no,m,29\n";

/// A config whose clients bring their files.
fn brought(target: &str, more: &str) -> String {
    format!(
        "seed = 1\n[target]\n{target}\n[[client]]\nname = \"north\"\n[[client]]\nname = \"south\"\n\
         [sampler]\nname = \"lmc\"\nstep = 1e-4\n[run]\nchains = 1\niterations = 40\n{more}"
    )
}

const CODED: &str = "formula = \"ill == yes ~ age + sex + dose\"\n\
    prior = { law = \"gaussian\", variance = 4.0 }\n[target.coding]\n\
    age = { centre = 50, scale = 10 }\nsex = { levels = [\"f\", \"m\"], impute = \"m\" }\n\
    dose = { centre = 1.5, scale = 0.5, mark = true }";
const BUDGET: &str = "[privacy]\nepsilon = 3.0\ndelta = 1e-6\nrow_norm = 3.0\n";

fn open(config: &Config, texts: [&str; 2]) -> Result<Vec<LocalSite>, ConfigError> {
    let site = |(k, text): (usize, &str)| LocalSite::open(config, k, &Own::Text(text.into()));
    texts.into_iter().enumerate().map(site).collect()
}

/// What is missing is at the centre, or what is stated stands for it, and a column marks it where
/// that is stated.
#[test]
fn what_is_missing_is_filled_by_what_is_stated() {
    let config = read(&brought(CODED, ""), ".").unwrap();
    let sites = open(&config, [NORTH, SOUTH]).unwrap();
    let said: Vec<Introduction> =
        sites.iter().map(|site| site.introduce(&config).unwrap()).collect();
    let names = ["intercept", "age", "sex: m", "dose", "dose: missing"].map(str::to_owned);
    for told in &said {
        assert_eq!(*told, Introduction::Numbers { columns: names.to_vec(), rows: 6 });
    }
    assert!(kinds(&config, &said).unwrap().is_none(), "no kinds are agreed on");
    let agreed = agree(&config, None, &said).unwrap();
    assert_eq!((agreed.moments_bits, agreed.rows), ((0, 0), vec![6, 6]));
    // The gradient at 0 of logistic regression is the sum of (1/2 - y) times the row.
    let rows = [
        [1.0, -0.9, 0.0, -2.0, 0.0, 0.0],
        [1.0, 1.3, 1.0, 0.0, 1.0, 1.0],
        [1.0, 0.7, 1.0, 0.0, 0.0, 0.0],
        [1.0, -1.2, 1.0, 2.0, 0.0, 1.0],
        [1.0, -0.55, 1.0, -1.0, 0.0, 0.0],
        [1.0, 0.1, 0.0, -2.0, 0.0, 1.0],
    ];
    let model = sites[0].potential(&config, &agreed.agreement).unwrap();
    let gradient = Single::new(&model).gradient(&[0.0; 5]);
    for k in 0..5 {
        let expected: f64 = rows.iter().map(|row| (0.5 - row[5]) * row[k]).sum();
        assert!((gradient[k] - expected).abs() < 1e-12, "{k}: {gradient:?} {expected}");
    }
    // New rows are coded alike, and effects vary about what is stated.
    let encoding = agreed.encoding.unwrap();
    let of = |words: &str| Values::Words(vec![Some(words.to_owned())]);
    let columns = vec![
        ("age".into(), Values::Numbers(vec![30.0].into())),
        ("sex".into(), of("f")),
        ("dose".into(), Values::Numbers(vec![2.0].into())),
    ];
    let new: Table = table("new rows", columns).unwrap();
    assert_eq!(encoding.encode(&new, None).unwrap().cells, [1.0, -2.0, 0.0, 1.0, 0.0]);
    let grids = encoding.grids().unwrap();
    let ages = grids.iter().find(|grid| grid.column == "age").unwrap();
    assert_eq!((ages.values[0].as_str(), ages.values[20].as_str()), ("30", "70"));
}

/// Where it is asked for first, what a site says is the same whatever its rows are.
#[test]
fn what_a_site_says_of_itself_is_no_function_of_its_rows() {
    let other = "age,sex,dose,ward,ill\n90,m,9,b,yes\n20,m,9,b,yes\n77,m,9,b,yes\n20,m,9,b,yes\n\
        21,m,9,b,yes\n99,m,9,b,yes\n";
    for more in ["", BUDGET] {
        let config = read(&brought(CODED, more), ".").unwrap();
        let said = |texts: [&str; 2]| -> Vec<String> {
            let sites = open(&config, texts).unwrap();
            let words = |site: &LocalSite| {
                serde_json::to_string(&site.introduce(&config).unwrap()).unwrap()
            };
            sites.iter().map(words).collect()
        };
        assert_eq!(said([NORTH, SOUTH]), said([other, other]));
    }
    let open_words = read(&brought(&CODED.replace("[target.coding]", "[x]"), ""), ".");
    assert!(open_words.is_err(), "what is stated is read");
}

/// A site codes its rows by its own config, and by nothing that a server says.
#[test]
fn a_server_that_codes_otherwise_is_refused() {
    let config = read(&brought(CODED, ""), ".").unwrap();
    let sites = open(&config, [NORTH, SOUTH]).unwrap();
    let said: Vec<_> = sites.iter().map(|site| site.introduce(&config).unwrap()).collect();
    let mine = agree(&config, None, &said).unwrap().agreement;
    sites[0].potential(&config, &mine).unwrap();
    let other = read(&brought(&CODED.replace("scale = 10", "scale = 10.5"), ""), ".").unwrap();
    let theirs = agree(&other, None, &said).unwrap().agreement;
    let why = sites[0].potential(&config, &theirs).err().unwrap().to_string();
    assert!(why.contains("otherwise than the config states"), "{why}");
    // and the statements differ
    let sites = ["north".to_owned(), "south".to_owned()];
    let words = |config: &Config, agreement| {
        statement::of_run(config, agreement, &sites, None).text().to_owned()
    };
    let (mine, theirs) = (words(&config, &mine), words(&other, &theirs));
    assert!(mine.contains("term 1 less 50, divided by 10;"), "{mine}");
    assert!(mine.contains("what the config states"), "{mine}");
    assert_ne!(mine, theirs);
    // a site that says sums of its rows is none of this run
    let mut said = said;
    said[1] = Introduction::Numbers { columns: vec!["x".into()], rows: 6 };
    assert!(agree(&config, None, &said).is_err());
}

/// What is stated, and what is said of it.
const WRONG: &[(&str, &str, &str)] = &[
    ("age = { centre = 50, scale = 10 }\n", "", "age = { centre = 0.0, scale = 1.0 }"),
    ("age = { centre = 50, scale = 10 }\n", "age = { centre = 50 }\n", "`age` is not stated"),
    ("sex = {", "sx = {", "did you mean `sex`?"),
    ("sex = {", "ward = { levels = [1, 2] }\nsex = {", "the formula does not use"),
    ("centre = 50", "center = 50", "did you mean `centre`?"),
    ("scale = 10", "scale = 0", "above 0"),
    ("scale = 10", "scale = [1, 2]", "one number each"),
    ("scale = 10", "scale = 10, impute = 40", "at the centre"),
    ("scale = 10", "scale = 10, impute = [4, 5]", "impute is one value"),
    ("scale = 10", "scale = 10, levels = [1, 2]", "has levels has no centre"),
    ("scale = 10", "scale = 10, knots = [1]", "ns(age, 4)"),
    ("scale = 10", "scale = 10, reference = \"x\"", "only levels"),
    ("[\"f\", \"m\"]", "[\"f\", \"f\"]", "twice"),
    ("[\"f\", \"m\"]", "[\"m\"]", "fewer than two"),
    ("impute = \"m\"", "impute = \"x\"", "among its levels: f, m"),
    ("impute = \"m\"", "reference = \"x\"", "among its levels: f, m"),
    ("impute = \"m\"", "mark = true", "state impute"),
    ("ill == yes ~ age", "ill == yes ~ ns(age, 3)", "`age` is not stated"),
    ("ill == yes ~", "ill == yes ~ tanh(age) +", "not known"),
    ("prior =", "missing = \"refuse\"\nprior =", "leave impute and mark out"),
    ("prior =", "missing = \"impute\"\nprior =", "marks nothing"),
];

#[test]
fn what_is_stated_wrongly_is_named_with_what_would_be_right() {
    for (find, with, says) in WRONG {
        let target = CODED.replacen(find, with, 1);
        assert_ne!(target, CODED, "{find}");
        let told = read(&brought(&target, ""), ".")
            .and_then(|config| open(&config, [NORTH, SOUTH]).map(|_| ()));
        let error = told.expect_err(with);
        let words = format!("{}: {} {}", error.field, error.problem, error.fix);
        assert!(words.contains(says), "{with}: {words}");
        assert!(error.field.starts_with("target"), "{with}: {}", error.field);
        assert!(error.line > 0, "{with}: {error}");
    }
    // splines
    let spline = CODED.replace("~ age", "~ ns(age, 3)");
    for (stated, says) in [
        ("knots = [40], bounds = [20, 80]", "has 2 inner knots, not 1"),
        ("knots = [40, 60], bounds = [50, 80]", "within the bounds"),
        ("knots = [40, 60], bounds = [80, 20]", "are no bounds"),
        ("knots = [40, 60], bounds = [20, 80], impute = [1, 2]", "3 columns"),
        ("knots = [40, 60], bounds = [20, 80], centre = [1, 2]", "3 columns"),
        ("knots = [40, 60], bounds = [20, 80], scale = [1, 2, 3]", "go together"),
    ] {
        let target = spline.replace("centre = 50, scale = 10", stated);
        let told = read(&brought(&target, ""), ".")
            .and_then(|config| open(&config, [NORTH, SOUTH]).map(|_| ()));
        let why = told.expect_err(stated).to_string();
        assert!(why.contains(says), "{stated}: {why}");
    }
}

/// Rows that do not go with what is stated are refused where they are, with their place.
#[test]
fn rows_that_do_not_go_with_what_is_stated_are_named_at_their_site() {
    let config = read(&brought(CODED, ""), ".").unwrap();
    for (text, says) in [
        (NORTH.replace("63,m", "63,x"), "line 3, column `sex`: target.coding states no level `x`"),
        (NORTH.replace("63,m", "old,m"), "age"),
        (NORTH.replace("ward,ill", "ward,sick"), "no column `ill`"),
    ] {
        let why = open(&config, [&text, SOUTH]).unwrap_err().to_string();
        assert!(why.contains(says), "{why}");
    }
    let strict = CODED.replace(", impute = \"m\"", "");
    let config = read(&brought(&strict, ""), ".").unwrap();
    let why = open(&config, [NORTH, SOUTH]).unwrap_err().to_string();
    assert!(why.contains("line 5, column `sex`: the value is missing, and target.coding"), "{why}");
}

/// Usual priors are in units of the response, which are stated, too.
#[test]
fn usual_priors_are_in_stated_units() {
    let target = "formula = \"dose ~ age\"\n[target.coding]\nage = { centre = 50, scale = 10 }\n";
    let texts = [NORTH.replace("63,m,,", "63,m,1,"), SOUTH.replace("a,,", "a,1,")];
    let texts = [texts[0].as_str(), texts[1].as_str()];
    let assembled = |target: &str| {
        let config = read(&brought(target, ""), ".").unwrap();
        let sites = open(&config, texts).unwrap();
        let said: Vec<_> = sites.iter().map(|site| site.introduce(&config).unwrap()).collect();
        Problem::without_rows(&config, agree(&config, None, &said).unwrap())
    };
    let why = assembled(target).unwrap_err().to_string();
    assert!(why.contains("target.coding does not state them"), "{why}");
    let stated = format!("{target}dose = {{ centre = 1.5, scale = 0.5 }}\n");
    let problem = assembled(&stated).unwrap();
    let notes = problem.notes.join(" ");
    assert!(notes.contains("normal(1.5, 1.25)") && notes.contains("normal(0, 1.25)"), "{notes}");
    let named = target.replace(
        "[target.coding]",
        "prior = { law = \"normal(0, 2)\", of = { sigma = \"exponential(1)\" } }\n[target.coding]",
    );
    assembled(&named).unwrap();
}

/// By formula, or with built-in data, where it is stated: planned without rows, and run.
#[test]
fn private_runs_code_columns_by_what_is_stated() {
    let text = brought(CODED, BUDGET);
    let config = read(&text, ".").unwrap();
    assert_eq!(refusals(&config), []);
    let plan = of_config(&config).unwrap();
    assert_eq!((plan.row_gradient, plan.sites.len()), (3.0, 2));
    let plain = "seed = 1\n[target]\nmodel = \"logistic\"\nprior = { law = \"gaussian\", variance \
        = 4.0 }\n[[client]]\nname = \"north\"\n[[client]]\nname = \"south\"\n";
    let numbers = read(&format!("{plain}{}", &text[text.find("[sampler]").unwrap()..]), ".");
    assert_eq!(of_config(&numbers.unwrap()).unwrap(), plan, "as rows that are numbers");
    // Long rows are shortened.
    let long = NORTH.replace("63,m", "93,m");
    let sites = open(&config, [&long, SOUTH]).unwrap();
    let told = sites[0].shortened().unwrap();
    assert_eq!((told.rows, told.of), (1, 6), "{told:?}");
    let row = [1.0, 4.3, 1.0, 0.0, 1.0f64];
    let length = row.iter().map(|x| x * x).sum::<f64>().sqrt();
    assert!((told.longest - length).abs() < 1e-12, "{told:?}");
    let said: Vec<_> = sites.iter().map(|site| site.introduce(&config).unwrap()).collect();
    let agreed = agree(&config, None, &said).unwrap();
    let model = sites[0].potential(&config, &agreed.agreement).unwrap();
    let short = open(&config, [NORTH, SOUTH]).unwrap()[0].potential(&config, &agreed.agreement);
    let at = |model| Single::new(model).gradient(&[0.0; 5]);
    let (long, short) = (at(&model), at(&short.unwrap()));
    // only that row changed: 1/2 - 1 times the difference of the shortened and the row of before
    let before = [1.0, 1.3, 1.0, 0.0, 1.0];
    for k in 0..5 {
        let expected = -0.5 * (row[k] * 3.0 / length - before[k]);
        assert!((long[k] - short[k] - expected).abs() < 1e-12, "{k}: {long:?} {short:?}");
    }
}

/// What is not stated is named, with the lines to write.
#[test]
fn a_private_run_says_which_lines_are_missing() {
    let whole = |target: &str| refusals(&read(&brought(target, BUDGET), ".").unwrap());
    let open = CODED.split("[target.coding]").next().unwrap();
    let told = whole(open);
    assert_eq!(told.len(), 1, "{told:?}");
    for part in ["[target.coding]\n    age = { centre = 0.0, scale = 1.0 }", "sex = {", "dose = {"]
    {
        assert!(told[0].fix.contains(part), "{told:?}");
    }
    let told = whole(&CODED.replace("sex = {", "# sex = {"));
    assert!(told.len() == 1 && told[0].field == "target.coding", "{told:?}");
    let says = &told[0].problem;
    assert!(says.contains("`sex`") && !says.contains("`age`"), "{told:?}");
    // no bounds are known of these
    for (find, with, says) in [
        ("+ dose", "+ dose + offset(ward)", "offsets and weights"),
        ("+ dose", "+ dose + weights(ward)", "offsets and weights"),
        ("+ dose", "+ dose + (1 | ward)", "bound"),
        ("+ dose", "+ mi(dose)", "bound"),
    ] {
        let target = CODED.replace(find, with).replace(", mark = true", "");
        let told = whole(&target);
        assert!(told.iter().any(|told| told.problem.contains(says)), "{with}: {told:?}");
    }
    // built-in data: words whose codes are known need no line
    let private = "[sampler]\nname = \"lmc\"\nstep = 1e-4\n[run]\nchains = 1\niterations = 20\n";
    let heart = format!("{HEART}prior = {{ law = \"gaussian\", variance = 4.0 }}\n");
    let told = refusals(&read(&format!("{heart}{private}{BUDGET}"), ".").unwrap());
    assert!(told[0].fix.contains("chol = { centre = 0.0, scale = 1.0 }"), "{told:?}");
    assert!(!told[0].fix.contains("sex ="), "{told:?}");
    for name in builtin::names() {
        let text = format!(
            "[data]\nbuiltin = \"{name}\"\n[target]\n\
            prior = {{ law = \"gaussian\", variance = 4.0 }}\n"
        );
        let (text, _) = stated(&text, ".", "");
        let config = read(&format!("{text}{private}{BUDGET}"), ".").unwrap();
        assert_eq!(refusals(&config), [], "{name}");
        assert_eq!(of_config(&config).unwrap().sites.len(), 4);
        // what a run keeps is what was stated, missing values included
        let kept = Problem::new(&config).unwrap().encoding.unwrap();
        assert!(text.contains(&kept.as_stated()), "{text} {}", kept.as_stated());
        let problem = Problem::new(&config).unwrap();
        let plan = consilience_engine::plan::Plan::new(&config, &problem).unwrap();
        assert!(plan.recipe.family().own_noise(4, problem.parameters.len(), 1.0).is_ok());
    }
}
