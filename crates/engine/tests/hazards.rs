//! Data that would give a misleading answer is refused, with the site, the column, the line and
//! what to do; or it is read as what it is.
#![allow(clippy::unwrap_used)] // a test may panic

use std::path::PathBuf;

use consilience_engine::config::{Config, Source};
use consilience_engine::plan::Plan;
use consilience_engine::problem::Problem;
use consilience_engine::warnings::Code;

/// A folder of this test's own.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder =
            std::env::temp_dir().join(format!("consilience-hazards-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }

    fn with(self, name: &str, bytes: impl AsRef<[u8]>) -> Self {
        std::fs::write(self.0.join(name), bytes).unwrap();
        self
    }

    /// The problem of a target on two files, and its plan's warnings; or what is said against it.
    fn plan(&self, text: &str) -> Result<(Problem, Vec<String>), String> {
        let source = Source {
            file: "run.toml".into(),
            folder: self.0.clone(),
            text: format!("{text}\n[sampler]\nname = \"lmc\"\n"),
        };
        let config = Config::parse(source).map_err(|e| e.to_string())?;
        let problem = Problem::new(&config).map_err(|e| e.to_string())?;
        let plan = Plan::new(&config, &problem).map_err(|e| e.to_string())?;
        Ok((problem, plan.warnings.iter().map(ToString::to_string).collect()))
    }

    /// The parameters, or what is said against a formula on `north.csv` and `south.csv`.
    fn by(&self, formula: &str) -> Result<String, String> {
        let sites = "[[client]]\nfile = \"north.csv\"\n[[client]]\nfile = \"south.csv\"";
        self.plan(&format!("[target]\nformula = \"{formula}\"\n{sites}"))
            .map(|(problem, _)| problem.parameters.join(" "))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A table of one column beside `age` and `ill`, each cell made from its row.
fn table(name: &str, rows: usize, cell: impl Fn(usize) -> String) -> String {
    let row =
        |k: usize| format!("{};{};{}\n", 30 + k * 7 % 23, cell(k), u8::from(k.is_multiple_of(3)));
    format!("age;{name};ill\n{}", (0..rows).map(row).collect::<String>())
}

/// Two sites whose tables differ in one column.
fn two(
    name: &str,
    column: &str,
    north: impl Fn(usize) -> String,
    south: impl Fn(usize) -> String,
) -> Folder {
    Folder::new(name)
        .with("north.csv", table(column, 12, north))
        .with("south.csv", table(column, 9, south))
}

#[track_caller]
fn refused(said: Result<String, String>, parts: &[&str]) {
    let said = said.unwrap_err();
    assert!(parts.iter().all(|part| said.contains(part)), "{said}\nshould have {parts:?}");
}

#[test]
fn a_column_that_is_different_in_almost_every_row_is_refused_under_a_dot() {
    let folder = two("names", "name", |k| format!("patient {k}"), |k| format!("person {k}"));
    let parts = [
        "run.toml, line 2: target.formula",
        "`name` has 21 different words in 21 rows",
        "write `. - name`",
    ];
    refused(folder.by("ill == 1 ~ ."), &parts);
    refused(folder.by("ill == 1 ~ age + name"), &["C(name)"]);
    assert_eq!(folder.by("ill == 1 ~ . - name").unwrap(), "intercept age");
    let folder = two("numbers", "patient", |k| (k + 1).to_string(), |k| (k + 13).to_string());
    refused(
        folder.by("ill == 1 ~ ."),
        &[
            "`patient` has a whole number of its own in each of 21 rows",
            "`. - patient`",
            "`patient + .`",
        ],
    );
    assert_eq!(folder.by("ill == 1 ~ patient + .").unwrap(), "intercept patient age");
    let folder = two("measured", "dose", |k| format!("{k}.25"), |k| format!("{k}.75"));
    assert_eq!(folder.by("ill == 1 ~ .").unwrap(), "intercept age dose");
    // Without a formula all columns are used as well.
    let folder = Folder::new("every")
        .with("all.csv", table("patient_id", 12, |k| (900 + k * k).to_string()));
    let said = folder
        .plan("[target]\nmodel = \"logistic\"\n[data]\nfile = \"all.csv\"\nclients = 2")
        .map(|_| String::new());
    refused(said, &["line 3: data:", "`patient_id` has a whole number of its own", "formula"]);
}

#[test]
fn codes_that_differ_between_sites_are_refused_with_both_shown() {
    let codes = |north: [&'static str; 2], south: [&'static str; 2]| {
        two("codes", "smokes", move |k| north[k % 2].into(), move |k| south[k / 2 % 2].into())
    };
    refused(
        codes(["0", "1"], ["No", "Yes"]).by("ill == 1 ~ age + smokes"),
        &["`smokes`", "0, 1 at site `north`", "No, Yes at site `south`"],
    );
    refused(
        codes(["no", "yes"], ["No", "Yes"]).by("ill == 1 ~ C(smokes)"),
        &["no, yes at site `north`", "No, Yes at site `south`"],
    );
    refused(
        codes(["0", "1"], ["1", "2"]).by("ill == 1 ~ smokes"),
        &["0, 1 at site `north`", "1, 2 at site `south`"],
    );
    refused(
        codes(["f", "m"], ["female", "male"]).by("smokes == m ~ age"),
        &["f, m at site `north`", "female, male at site `south`"],
    );
    assert_eq!(
        codes(["no", "yes"], ["yes", "no"]).by("ill == 1 ~ smokes").unwrap(),
        "intercept smokes: no"
    );
}

#[test]
fn missing_values_are_known_by_all_their_names() {
    let marks = ["NaN", "nan", "NA", "NULL", ".", "", "?", "n/a", "null"];
    let folder = two(
        "gaps",
        "dose",
        move |k| marks.get(k).map_or_else(|| format!("{k}.5"), |mark| (*mark).into()),
        |k| format!("{k}"),
    );
    assert_eq!(folder.by("ill == 1 ~ dose").unwrap(), "intercept dose dose: missing");
}

#[test]
fn numbers_that_are_written_wrong_are_named_and_no_words() {
    let wrong = |cell: &'static str| {
        two(
            "wrong",
            "dose",
            move |k| if k == 4 { cell.into() } else { format!("{k}.5") },
            |k| format!("{k}"),
        )
    };
    for (formula, cell, parts) in [
        (
            "ill == 1 ~ dose",
            "3,5",
            &["north.csv, line 6, column `dose`: `3,5` has a decimal comma", "1234.5"][..],
        ),
        (
            "ill == 1 ~ dose",
            "1O",
            &["north.csv, line 6, column `dose`: `1O` is no number, where 11 of 12", "C(dose)"],
        ),
        ("ill == 1 ~ dose", "1e999", &["`1e999`", "1.8e308"]),
        ("ill == 1 ~ dose", "inf", &["`inf` is no number"]),
        ("dose > 3 ~ age", "1O", &["north.csv, line 6, column `dose`: `1O` is no number"]),
        ("dose ~ age", "3,5", &["`3,5`"]),
    ] {
        refused(wrong(cell).by(formula), parts);
    }
    assert_eq!(
        wrong("1O").by("ill == 1 ~ age").unwrap(),
        "intercept age",
        "a column that is not used does not matter"
    );
    let huge = two("huge", "dose", |k| format!("{k}e200"), |k| format!("{k}"));
    refused(huge.by("ill == 1 ~ dose"), &["north", "`dose`", "too large to be squared"]);
}

#[test]
fn a_site_that_lacks_a_column_is_named() {
    let folder = Folder::new("lacks")
        .with("north.csv", table("dose", 12, |k| format!("{k}.5")))
        .with("south.csv", "age,doses,ill\n50,2,1\n40,1,0\n");
    let parts = [
        "run.toml, line 6: client[1].file: site \"south\" has no column `dose`",
        "did you mean `doses`?",
    ];
    refused(folder.by("ill == 1 ~ age + dose"), &parts);
    refused(folder.by("ill == 1 ~ . - doses"), &parts);
    assert_eq!(folder.by("ill == 1 ~ . - dose - doses").unwrap(), "intercept age");
    refused(
        folder.by("ill == 1 ~ weight"),
        &["line 2: target.formula: `weight` in the formula is not a column"],
    );
}

#[test]
fn perfect_collinearity_is_named() {
    let rows = |first: usize| {
        let row = |k: usize| {
            format!(
                "{},{},{},{}\n",
                50 + k * k % 17,
                2 * (50 + k * k % 17) + 1,
                k % 5,
                u8::from(k.is_multiple_of(3))
            )
        };
        format!("kg,half_kg,dose,ill\n{}", (first..first + 12).map(row).collect::<String>())
    };
    let folder = Folder::new("collinear").with("north.csv", rows(0)).with("south.csv", rows(12));
    let sites = "[[client]]\nfile = \"north.csv\"\n[[client]]\nfile = \"south.csv\"";
    for sampler in ["", "step = 0.001", "precondition = true"] {
        let text = |target: &str| {
            format!("[target]\n{target}\n{sites}\n[sampler]\nname = \"lmc\"\n{sampler}")
        };
        let config = |target: &str| {
            let source =
                Source { file: "run.toml".into(), folder: folder.0.clone(), text: text(target) };
            let config = Config::parse(source).unwrap();
            let problem = Problem::new(&config).unwrap();
            Plan::new(&config, &problem)
                .map(|plan| plan.warnings.iter().map(ToString::to_string).collect::<Vec<_>>())
        };
        // A proper prior still gives a posterior: that is a warning.
        let warnings = config("formula = \"ill == 1 ~ .\"").unwrap();
        let named =
            |text: &str| text.contains("`half_kg` is determined by `kg` (perfect collinearity)");
        assert!(warnings.iter().any(|warning| named(warning)), "{sampler}: {warnings:?}");
        assert!(
            !config("formula = \"ill == 1 ~ . - half_kg\"")
                .unwrap()
                .iter()
                .any(|warning| warning.contains("collinearity"))
        );
        // A flat one does not.
        for target in [
            "formula = \"ill == 1 ~ .\"\nprior = { law = \"flat\" }",
            "model = \"logistic\"",
            "model = \"linear\"\nnoise_variance = 1.0",
        ] {
            let error = config(target).unwrap_err().to_string();
            let by = if target.starts_with("formula") {
                "`half_kg` is determined by `kg`"
            } else {
                "`half_kg` is determined by `intercept`, `kg`"
            };
            assert!(
                error.contains(by)
                    && error.contains("the prior is flat: the posterior is not proper"),
                "{sampler}, {target}: {error}"
            );
        }
    }
}

#[test]
fn two_values_are_not_explained_by_a_line_unless_that_is_said() {
    let folder = Folder::new("labels");
    let rows = |labels: [&str; 2]| {
        (0..10).map(|k| format!("{},{}\n", 30 + k * 7 % 23, labels[k % 2])).collect::<String>()
    };
    for (labels, shown, fix) in
        [(["1", "2"], "1 and 2", "class == 2 ~ age"), (["0", "1"], "0 and 1", "class == 1 ~ age")]
    {
        let text = format!("age,class\n{}", rows(labels));
        std::fs::write(folder.0.join("north.csv"), &text).unwrap();
        std::fs::write(folder.0.join("south.csv"), &text).unwrap();
        let parts = ["line 2: target.formula", shown, fix, "model = \"linear\""];
        refused(folder.by("class ~ age"), &parts);
        let sites = "[[client]]\nfile = \"north.csv\"\n[[client]]\nfile = \"south.csv\"";
        let by = |more: &str| {
            folder
                .plan(&format!("[target]\nformula = \"class ~ age\"\n{more}\n{sites}"))
                .map(|(problem, _)| problem.parameters.join(" "))
        };
        refused(by("noise_variance = 0.2"), &parts);
        assert_eq!(by("noise_variance = 0.2\nmodel = \"linear\"").unwrap(), "intercept age");
        match labels {
            ["1", "2"] => refused(
                by("model = \"logistic\""),
                &["explains 0 and 1, and `class` is 2 at site `north`", "class == 2 ~ age"],
            ),
            _ => assert_eq!(by("model = \"logistic\"").unwrap(), "intercept age"),
        }
    }
}

#[test]
fn linear_regression_without_a_variance_estimates_sigma() {
    let folder = Folder::new("variance")
        .with("north.csv", table("dose", 12, |k| format!("{k}.5")))
        .with("south.csv", table("dose", 9, |k| format!("{k}.1")));
    let rows = "[[client]]\nrows = [[0.5, 1.5], [0.25, 2.0], [1.0, 3.5]]";
    let sites = "[[client]]\nfile = \"north.csv\"\n[[client]]\nfile = \"south.csv\"";
    let file = "[data]\nfile = \"north.csv\"\nresponse = \"dose\"\nclients = 2";
    for (target, rest) in [
        ("model = \"linear\"", rows),
        ("model = \"linear\"", file),
        ("formula = \"dose ~ age\"", sites),
    ] {
        let said = |more: &str| {
            let text = format!("[target]\n{target}\n{more}\n{rest}");
            folder.plan(&text).map(|(problem, _)| problem.parameters.join(" "))
        };
        assert!(said("").unwrap_or_else(|e| e).ends_with("sigma"), "{target}");
        let known = said("noise_variance = 0.5").unwrap_or_else(|e| e);
        assert!(!known.contains("sigma") && !known.contains("it is"), "{target}: {known}");
    }
}

#[test]
fn files_that_are_no_utf8_text_say_what_they_are() {
    let good = table("dose", 12, |k| format!("{k}.5"));
    let sixteen: Vec<u8> =
        [0xfeff].into_iter().chain(good.encode_utf16()).flat_map(u16::to_le_bytes).collect();
    let bare: Vec<u8> = good.encode_utf16().flat_map(u16::to_be_bytes).collect();
    let latin = good
        .replace("dose", "d\u{0}se")
        .bytes()
        .map(|b| if b == 0 { 0xf6 } else { b })
        .collect::<Vec<u8>>();
    for (bytes, part) in [
        (sixteen, "it is UTF-16 text"),
        (bare, "it is UTF-16 text"),
        (latin, "it is not UTF-8 text"),
    ] {
        let folder = Folder::new("utf").with("north.csv", &good).with("south.csv", bytes);
        refused(
            folder.by("ill == 1 ~ age"),
            &["line 6: client[1].file", "south.csv, line 1", part, "save the file as UTF-8"],
        );
        let plain = folder
            .plan("[target]\nmodel = \"logistic\"\n[[client]]\nfile = \"south.csv\"")
            .map(|_| String::new());
        refused(plain, &["client[0]", part]);
    }
    let marked =
        Folder::new("bom").with("north.csv", format!("\u{feff}{good}")).with("south.csv", &good);
    assert_eq!(
        marked.by("ill == 1 ~ age").unwrap(),
        "intercept age",
        "a byte order mark of UTF-8 is no part of a name"
    );
}

#[test]
fn two_sites_of_one_name_are_refused() {
    let folder = two("twice", "dose", |k| format!("{k}.5"), |k| format!("{k}.1"));
    let named = |key: &str, model: &str| {
        format!(
            "[target]\n{model}\n[[client]]\nname = \"a\"\n{key}\n[[client]]\nname = \"a\"\n{key}"
        )
    };
    for (key, model) in [
        ("file = \"north.csv\"", "formula = \"ill == 1 ~ age\""),
        ("rows = [[0.5, 1], [0.1, 0]]", "model = \"logistic\""),
        ("mean = [1.0]\nprecision = [[1.0]]", "model = \"gaussian\""),
    ] {
        refused(
            folder.plan(&named(key, model)).map(|_| String::new()),
            &["client[1].name: client[0] is called \"a\", too", "a name of its own"],
        );
    }
}

#[test]
fn one_file_for_two_sites_is_refused() {
    let folder = two("same", "dose", |k| format!("{k}.5"), |k| format!("{k}.1"));
    let folder = folder.with("plain.csv", "0.5,1\n0.1,0\n");
    for (file, model) in [
        ("north.csv", "formula = \"ill == 1 ~ age\""),
        ("plain.csv", "model = \"logistic\"\nprior = { law = \"gaussian\", variance = 1.0 }"),
    ] {
        let client = |name: &str| format!("[[client]]\nname = \"{name}\"\nfile = \"{file}\"\n");
        let text = format!("[target]\n{model}\n{}{}", client("a"), client("b"));
        refused(
            folder.plan(&text).map(|_| String::new()),
            &["client[1].file: client[0] has the same file", "count twice", "[data] file"],
        );
    }
}

/// Names in single quotes, and white space between fields, are not what they were meant to be.
#[test]
fn a_header_that_hides_its_columns_is_told() {
    for (text, part) in [
        ("'age'\t'ill'\n50\t1\n40\t0\n", "the names in the header have quotes"),
        ("'age';'ill'\n50;1\n40;0\n", "the names in the header have quotes"),
        ("age  ill\n50  1\n40  0\n", "the header is one field: separate fields by commas"),
    ] {
        let folder = Folder::new("header").with("north.csv", text);
        let formula = "[target]\nformula = \"ill == 1 ~ age\"\n[[client]]\nfile = \"north.csv\"\n";
        refused(folder.plan(formula).map(|_| String::new()), &["`ill` in the formula", part]);
        let dealt = "[target]\nmodel = \"logistic\"\n[data]\nfile = \"north.csv\"\n\
            response = \"ill\"\nclients = 2\n";
        refused(folder.plan(dealt).map(|_| String::new()), &["there is no column `ill`", part]);
    }
}

#[test]
fn formulas_are_complained_about_where_they_stand() {
    let folder = two("formula", "dose", |k| format!("{k}.5"), |k| format!("{k}.1"));
    for (formula, part) in [
        ("ill == 1 ~ agee", "did you mean `age`?"),
        (
            "ill == 1 ~ tanh(age)",
            "`tanh(age)` in the formula is not supported yet (a function that is not known)",
        ),
        ("ill == 1 ~ age:dosee", "`age:dosee` needs the column `dosee`: did you mean `dose`?"),
        ("ill == 1 ~ log(dose - 100)", "`log(dose - 100)` is no finite number"),
        ("ill == 1 ~ I(dose + )", "`I(dose + )` in the formula cannot be read"),
        ("ill == 1 ~ age - dose", "`- dose` in the formula: there is no such term"),
        ("ill == 2 ~ age", "a binary column is 0 or 1"),
        ("dos ~ age", "`dos` in the formula is not a column: did you mean `dose`?"),
        ("dose ~ agee", "did you mean `age`?"),
        ("Surv(dose, age) ~ ill", "use model = \"weibull\" or model = \"cox\""),
        ("dose == 77 ~ age", "holds in 0 of 21 rows"),
    ] {
        refused(folder.by(formula), &["run.toml, line 2: target.formula: ", part]);
    }
}

#[test]
fn plain_numbers_say_what_is_wrong_with_them() {
    let said =
        |text: &str| {
            let folder = Folder::new("plain").with("north.csv", text);
            folder
            .plan("[target]\nmodel = \"logistic\"\nprior = { law = \"gaussian\", variance = 1.0 }\n\
                [[client]]\nfile = \"north.csv\"")
            .map(|_| String::new())
        };
    refused(
        said("age,y\n1,0\nNA,1\n"),
        &["line 3, column 1 (age): \"NA\" is not a finite number: a value is missing"],
    );
    refused(said("age,y\n1,0\n\"3,5\",1\n"), &["line 3, column 1 (age)", "decimals with a point"]);
    refused(said("age;y\n1;0\n"), &["line 2", "separated by commas"]);
    refused(said("NA,0\n1,1\n"), &["line 1, column 1", "a value is missing"]);
    refused(said("age,y\n1,0\n1e999,1\n"), &["1.8e308"]);
    refused(said("age,y\n1,1\n2,2\n"), &["labels must be 0 or 1"]);
    assert_eq!(said("0,1,y\n1,2,0\n3,5,1\n").unwrap(), "", "names may be numbers");
}

/// Rows that a column separates, and a group without an event: under a flat prior there is no
/// posterior, and that is said before anything is sampled. Rows that overlap by one have one.
#[test]
fn a_flat_prior_on_separable_rows_is_warned_of_by_its_direction() {
    let rows = |overlap: bool| {
        let row = |k: usize| {
            let (dose, age) = ((k * 37 % 40) as f64 / 10.0, 30 + k * k % 23);
            let ill = (dose > 2.0) != (overlap && k == 11);
            let visits = if k.is_multiple_of(4) { 0 } else { 1 + k % 3 };
            let rare = u8::from(k.is_multiple_of(4));
            format!("{dose},{age},{},{rare},{visits}\n", u8::from(ill))
        };
        let head = "dose,age,ill,rare,visits\n";
        let part = |from: usize| (from..from + 20).map(row).collect::<String>();
        [format!("{head}{}", part(0)), format!("{head}{}", part(20))]
    };
    let warned = |overlap: bool, target: &str, sampler: &str| {
        let [north, south] = rows(overlap);
        let folder = Folder::new("separable").with("north.csv", north).with("south.csv", south);
        let text = format!(
            "[target]\n{target}\n[[client]]\nfile = \"north.csv\"\n[[client]]\nfile = \
             \"south.csv\"\n[sampler]\nname = \"{sampler}\"\n"
        );
        let source = Source { file: "run.toml".into(), folder: folder.0.clone(), text };
        let config = Config::parse(source).unwrap();
        let plan = Plan::new(&config, &Problem::new(&config).unwrap()).unwrap();
        plan.warnings.into_iter().find(|warning| warning.code == Code::ImproperPosterior)
    };
    let (ill, flat) = ("formula = \"ill == 1 ~ dose + age\"\n", "prior = { law = \"flat\" }");
    let visits = "model = \"poisson\"\nformula = \"visits ~ age + rare\"\n";
    for sampler in ["auto", "hmc", "lmc"] {
        let separated = warned(false, &format!("{ill}{flat}"), sampler).unwrap();
        assert!(separated.message.contains("towards larger values of `dose`"), "{separated}");
        assert!(separated.remedy.contains("[target.prior]"));
        let no_event = warned(false, &format!("{visits}{flat}"), sampler).unwrap();
        assert!(no_event.message.contains("towards smaller values of `rare`"), "{no_event}");
        assert!(warned(true, &format!("{ill}{flat}"), sampler).is_none(), "{sampler}");
        assert!(warned(false, ill, sampler).is_none(), "{sampler}");
    }
}

/// A column in months at one site, the same rows at two, and -99 are warned of by their sites,
/// whichever sampler is planned.
#[test]
fn what_sums_and_codes_show_is_warned_of() {
    let rows = |factor: f64, k: usize, code: bool| {
        let row = |j: usize| {
            let age = factor * (40.0 + 1.3 * j as f64 + k as f64);
            let dose = if code && j == 3 { "-99".into() } else { format!("{}", (7 * j) % 11) };
            format!("{age},{dose},{}\n", (j * j + k) % 5)
        };
        format!("age,dose,y\n{}", (0..20).map(row).collect::<String>())
    };
    let target = "[target]\nmodel = \"linear\"\nformula = \"y ~ age + dose\"";
    for sampler in ["auto", "lmc"] {
        let codes = |name: &str, south: String| -> Vec<(Code, String)> {
            let folder = Folder::new(&format!("{name}-{sampler}"));
            let folder = folder.with("north.csv", rows(1.0, 0, false)).with("south.csv", south);
            let text = format!(
                "{target}\n[[client]]\nname = \"north\"\nfile = \"north.csv\"\n[[client]]\n\
                 name = \"south\"\nfile = \"south.csv\"\n[sampler]\nname = \"{sampler}\"\n"
            );
            let source = Source { file: "run.toml".into(), folder: folder.0.clone(), text };
            let config = Config::parse(source).unwrap();
            let plan = Plan::new(&config, &Problem::new(&config).unwrap()).unwrap();
            let told = plan.warnings.iter().map(|w| (w.code, w.message.clone()));
            let ours = [Code::UnitsDiffer, Code::SitesAlike, Code::MissingCode];
            told.filter(|(code, _)| ours.contains(code)).collect()
        };
        let months = codes("months", rows(12.0, 1, false));
        assert_eq!(months.len(), 1, "{months:?}");
        assert!(months[0].0 == Code::UnitsDiffer && months[0].1.contains("`age` at `south`"));
        let twice = codes("twice", rows(1.0, 0, false));
        assert_eq!(twice.iter().map(|(code, _)| *code).collect::<Vec<_>>(), [Code::SitesAlike]);
        let coded = codes("coded", rows(1.0, 1, true));
        assert_eq!(coded.len(), 1, "{coded:?}");
        assert!(coded[0].1.contains("`dose` has the number -99 at site `south`"), "{coded:?}");
        assert!(codes("fine", rows(1.0, 1, false)).is_empty());
    }
}
