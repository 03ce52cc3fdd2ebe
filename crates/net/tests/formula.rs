//! Columns that a formula codes are served: sites exchange kinds, codes and sums, and the run is
//! that of one process; what is refused there is refused here, in the same words.
#![allow(clippy::unwrap_used)] // a test may panic

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use common::*;
use consilience_engine::config::{Config, Source};
use consilience_engine::data::Table;
use consilience_engine::data::memory::{Values, table};
use consilience_engine::problem::Problem;
use consilience_engine::session::{Control, Session};
use consilience_engine::site::Own;
use consilience_engine::site_effects::{self, EFFECTS_FILE};
use consilience_net::certs::name_of_site;
use consilience_net::serve::{ServeOptions, Served};
use consilience_net::worker::Brings;

const SITES: [&str; 3] = ["north", "east", "the south"];

/// A folder that is gone in the end.
struct Files(PathBuf);

impl Files {
    fn new(name: &str, texts: [&str; 3]) -> Files {
        let folder =
            std::env::temp_dir().join(format!("consilience-formula-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        for (site, text) in SITES.iter().zip(texts) {
            std::fs::write(folder.join(format!("{site}.csv")), text).unwrap();
        }
        Files(folder)
    }

    fn of(&self, site: &str) -> PathBuf {
        self.0.join(format!("{site}.csv"))
    }

    /// A config whose clients have their files, or bring them.
    fn config(&self, target: &str, sampler: &str, stated: bool) -> Config {
        let file = |site: &str| if stated { format!("file = \"{site}.csv\"\n") } else { "".into() };
        let clients: String = SITES
            .iter()
            .map(|site| format!("[[client]]\nname = \"{site}\"\n{}", file(site)))
            .collect();
        let text = format!(
            "seed = 5\nseeds = \"simulation\"\n[target]\n{target}\n{clients}[sampler]\n{sampler}\n\
             [run]\nchains = 2\niterations = 40\nburn_in = 5\n"
        );
        let (file, folder) = ("run.toml".into(), self.0.clone());
        Config::parse(Source { file, folder, text }).unwrap()
    }

    /// What the sites bring.
    fn brings(&self) -> Vec<Brings> {
        let bring = |site: &&str| Brings { data: Own::File(self.of(site)), ..brings(site) };
        SITES.iter().map(bring).collect()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Ages and doses with gaps, words that not every site has, and a column that nobody may use.
const TEXTS: [&str; 3] = [
    "id,age,sex,ward,dose,ill\n1,41,f,a,0.5,no\n2,63,m,b,,yes\n3,57,m,a,1.5,no\n4,38,f,a,2.5,yes\n\
     5,44.5,m,b,1,no\n",
    "id,age,sex,ward,dose,ill\n6,39,m,a,0.25,no\n7,70,f,c,2,yes\n8,,f,c,1,yes\n9,51,m,a,3,no\n",
    "sex,age,ill,dose,id,ward\nf,61,yes,2.25,10,b\nf,33,no,0,11,a\nm,58,yes,1.75,12,b\n\
     m,47,no,0.5,13,a\nf,66,yes,,14,c\nm,29,no,1,15,a\n",
];

fn served(config: &Config, brings: Vec<Brings>) -> Served {
    let serving = start(config, options());
    let sites: Vec<_> = brings.into_iter().map(|own| site(own, joining(serving.address))).collect();
    let served = serving.end().unwrap();
    sites.into_iter().for_each(|site| assert!(site.join().unwrap().unwrap()));
    served
}

#[test]
fn a_formula_over_raw_columns_gives_the_run_of_one_process() {
    let files = Files::new("same", TEXTS);
    for (target, sampler) in [
        ("formula = \"ill == yes ~ age + sex + ward + dose + site\"", "name = \"lmc\""),
        (
            "formula = \"ill == yes ~ . - id\"",
            "name = \"qlsd++\"\nbatch = 2\nrefresh = 7\ncompress = \"qsgd(16)\"",
        ),
        ("formula = \"dose > 1 ~ C(sex) + age - 1\"", "name = \"vr-fald*\"\nbatch = 2"),
        (
            "formula = \"age ~ sex + ward\"\nmodel = \"linear\"\nnoise_variance = 90.0",
            "name = \"lmc\"\nstep = 0.01",
        ),
        // a scale beside the coefficients, columns that sites compute, usual and named laws
        (
            "formula = \"log(age) ~ sex + I(id^2)\"\n\
             prior = { of = { sigma = \"half_cauchy(1)\" } }",
            "name = \"imh\"",
        ),
        ("formula = \"age ~ sex\"\nmodel = \"student_t\"", "name = \"fald\"\nstep = 0.01"),
        // what a row adds and how often it counts, and effects that stay at their site
        (
            "formula = \"id ~ sex + offset(log(age)) + weights(age)\"\nmodel = \"poisson\"",
            "name = \"lmc\"\nstep = 1e-4",
        ),
        // knots by counts, with values that are missing
        ("formula = \"ill == yes ~ ns(age, 3) + bs(dose, 3) + sex\"", "name = \"lmc\""),
        ("formula = \"ill == yes ~ age + (1 | ward)\"", "name = \"imh\""),
        ("formula = \"ill == yes ~ age + (1 + age || ward)\"", "name = \"lmc\"\nstep = 1e-3"),
        // products with words, of which east lacks a ward and a combination
        ("formula = \"ill == yes ~ age*sex + sex:ward + site:age\"", "name = \"lmc\""),
        // the other responses
        ("formula = \"id ~ sex + dose\"\nmodel = \"negative_binomial\"", "name = \"imh\""),
        (
            "formula = \"level ~ sex + age\"\nmodel = \"ordinal\"\nlevels = 3",
            "name = \"lmc\"\nstep = 1e-3",
        ),
        ("formula = \"Surv(age, ill) ~ sex + dose\"\nmodel = \"weibull\"", "name = \"imh\""),
        (
            "formula = \"Surv(age, ill) ~ sex + dose\"\nmodel = \"cox\"",
            "name = \"lmc\"\nstep = 1e-2",
        ),
        // several classes, of which one site lacks one
        (
            "formula = \"ward ~ sex + id\"\nmodel = \"softmax\"\nclasses = [\"a\", \"b\", \"c\"]",
            "name = \"imh\"",
        ),
        // what is missing, integrated over
        ("formula = \"ill == yes ~ mi(dose) + sex\"", "name = \"lmc\"\nstep = 1e-3"),
    ] {
        // The responses of a line must be there.
        let texts = TEXTS.map(|text| text.replace("8,,f", "8,55,f"));
        let complete = ["age ~", "(age) ~", "offset(", "| ward"];
        let files = if complete.iter().any(|part| target.contains(part)) {
            Files::new("line", texts.each_ref().map(String::as_str))
        } else if target.contains("Surv(") || target.contains("level") {
            let seen = |text: &str| text.replace(",yes", ",1").replace(",no", ",0");
            let texts = texts.map(|text| seen(&text));
            let wards = |text: &str| {
                let levels = text.replace(",a", ",1").replace(",b", ",2").replace(",c", ",3");
                levels.replace(",1ge", ",age").replace("ward", "level")
            };
            let texts = match target.contains("level") {
                true => texts.map(|text| wards(&text)),
                false => texts,
            };
            Files::new("times", texts.each_ref().map(String::as_str))
        } else if target.contains("dose >") {
            let texts = TEXTS.map(|text| text.replace(",b,,", ",b,1,").replace("yes,,", "yes,3,"));
            Files::new("doses", texts.each_ref().map(String::as_str))
        } else {
            Files::new("same", TEXTS)
        };
        let expected = in_process(&files.config(target, sampler, true));
        let run = served(&files.config(target, sampler, false), files.brings());
        same(target, &run, &expected);
        assert_eq!(run.problem.encoding, expected.0.encoding, "{target}");
        assert!(run.problem.encoding.is_some() && run.problem.moments_bits.0 > 0);
        assert!(run.statement.text().contains("column 1: "), "{}", run.statement.text());
        // The server may know the files' names all the same: they are nobody else's business.
        let stated = served(&files.config(target, sampler, true), files.brings());
        assert_eq!(stated.outcome.draws, run.outcome.draws);
    }
    drop(files);
}

#[test]
fn rows_in_memory_are_coded_too() {
    let files = Files::new("text", TEXTS);
    let (target, sampler) = ("formula = \"ill == yes ~ age + sex\"", "name = \"lmc\"");
    let text = |site: &&str| {
        let text = std::fs::read_to_string(files.of(site)).unwrap();
        Brings { data: Own::Text(text.into()), ..brings(site) }
    };
    let run = served(&files.config(target, sampler, false), SITES.iter().map(text).collect());
    same("text", &run, &in_process(&files.config(target, sampler, true)));
}

/// "007" and "7" are two words where a table says that they are words, and one number in a file.
#[test]
fn columns_in_memory_keep_their_kinds() {
    let digits = |text: &str| text.replace(",a,", ",007,").replace(",b,", ",7,");
    let texts = TEXTS.map(|text| digits(text).replace(",c,", ",11,"));
    let texts = texts.each_ref().map(|text| text.replace(",a\n", ",007\n"));
    let texts = texts.each_ref().map(|text| text.replace(",b\n", ",7\n").replace(",c\n", ",11\n"));
    let files = Files::new("kinds", texts.each_ref().map(String::as_str));
    let names = |words: bool| -> Vec<String> {
        let bring = |site: &&str| {
            let text = std::fs::read_to_string(files.of(site)).unwrap();
            let data = if words { Own::Table(as_words(&text)) } else { Own::Text(text.into()) };
            Brings { data, ..brings(site) }
        };
        let target = "formula = \"ill == yes ~ C(ward)\"";
        let config = files.config(target, "name = \"lmc\"", false);
        let mut names = served(&config, SITES.iter().map(bring).collect()).problem.parameters;
        names.sort();
        names
    };
    assert_eq!(names(true), ["intercept", "ward: 11", "ward: 7"]);
    assert_eq!(names(false), ["intercept", "ward: 11"]);
}

/// The table of a text in which every column is of words.
fn as_words(text: &str) -> Arc<Table> {
    let mut lines = text.lines().map(|line| line.split(',').map(str::to_owned).collect::<Vec<_>>());
    let names = lines.next().unwrap();
    let rows: Vec<Vec<String>> = lines.collect();
    let cells = |k: usize| rows.iter().map(|row| Some(row[k].clone())).collect();
    let columns = names.iter().enumerate().map(|(k, name)| (name.clone(), Values::Words(cells(k))));
    Arc::new(table("the site's rows", columns.collect()).unwrap())
}

/// What is refused in one process, and what the server says of sites that bring the same files: the
/// same, or that it stands at the site, where it is a fault of single rows.
fn refusals(name: &str, formula: &str, texts: [&str; 3]) -> (String, String) {
    let files = Files::new(name, texts);
    let target = format!("{formula}\nprior = {{ law = \"gaussian\", variance = 1.0 }}");
    let sampler = "name = \"lmc\"\nstep = 0.01";
    let here = Problem::new(&files.config(&target, sampler, true)).unwrap_err();
    let config = files.config(&target, sampler, false);
    let options = ServeOptions { deadline: Some(Duration::from_secs(20)), ..options() };
    let serving = start(&config, options);
    let join = |own| site(own, joining(serving.address));
    let sites: Vec<_> = files.brings().into_iter().map(join).collect();
    let there = serving.end().unwrap_err().to_string();
    let told: Vec<String> = sites
        .into_iter()
        .filter_map(|site| site.join().unwrap().err())
        .map(|error| error.to_string())
        .collect();
    let says = |text: &String| text.contains(&here.problem) && text.contains(&here.fix);
    if there.contains("its data cannot be read, or does not go with what the config states") {
        assert!(told.iter().any(says), "{name}: {told:?}\nwhere one process says {here}");
        assert!(!there.contains(&here.problem), "{name}: {there}");
    } else {
        assert!(says(&there), "{name}: {there}\nwhere one process says {here}");
    }
    (here.problem, there)
}

#[test]
fn what_one_process_refuses_is_refused_in_the_same_words() {
    let [north, east, south] = TEXTS;
    let words = |text: &str, from: &str, to: &str| text.replace(from, to);
    for (name, formula, texts, part) in [
        (
            "codes",
            "formula = \"ill == yes ~ sex\"",
            [north.into(), words(&words(east, ",f,", ",female,"), ",m,", ",male,"), south.into()],
            "at site `north`, female, male at site `east`",
        ),
        (
            "mixed",
            "formula = \"ill == yes ~ age\"",
            [north.into(), words(&words(east, "yes", "1"), "no", "0"), south.into()],
            "no, yes at site `north`, 0, 1 at site `east`",
        ),
        (
            "column",
            "formula = \"ill == yes ~ age + dose\"",
            [north.into(), east.into(), words(south, "dose", "amount")],
            "the south",
        ),
        (
            "identifier",
            "formula = \"ill == yes ~ .\"",
            [north.into(), east.into(), south.into()],
            "a whole number of its own in each of 15 rows",
        ),
        (
            "comma",
            "formula = \"ill == yes ~ dose\"",
            [north.into(), words(east, "0.25", "\"0,25\""), south.into()],
            "decimal comma",
        ),
        (
            "typing error",
            "formula = \"age > 50 ~ dose\"",
            [north.into(), east.into(), words(south, "61", "6l")],
            "`6l` is no number",
        ),
        (
            "two values",
            "formula = \"id ~ age\"\nnoise_variance = 1.0",
            ["id,age\n1,3\n2,4\n1,5\n".into(), "id,age\n1,3\n2,4\n".into(), "id,age\n2,3\n".into()],
            "the two values 1 and 2",
        ),
        (
            "other numbers",
            "formula = \"id ~ age\"\nmodel = \"logistic\"",
            ["id,age\n1,3\n0,4\n1,5\n".into(), "id,age\n1,3\n2,4\n".into(), "id,age\n0,3\n".into()],
            "`id` is 2 at site `east`",
        ),
        (
            "one class",
            "formula = \"ill == maybe ~ age\"",
            [north.into(), east.into(), south.into()],
            "holds in 0 of 15 rows",
        ),
        (
            "no such column",
            "formula = \"ill == yes ~ height\"",
            [north.into(), east.into(), south.into()],
            "height",
        ),
        (
            "no response",
            "formula = \"ill == yes ~ age\"",
            [north.into(), words(east, "3,no", "3,"), south.into()],
            "the value is missing",
        ),
    ] {
        let (here, there) = refusals(name, formula, texts.each_ref().map(String::as_str));
        assert!(here.contains(part), "{name}: {here}");
        let named = SITES.iter().any(|site| there.contains(site));
        assert!(
            named || ["identifier", "two values", "one class", "no such column"].contains(&name)
        );
    }
}

#[test]
fn sites_without_rows_and_rows_without_sites_are_told_what_to_do() {
    let files = Files::new("without", TEXTS);
    let config = files.config("formula = \"ill == yes ~ age\"", "name = \"lmc\"", false);
    let error = Problem::new(&config).unwrap_err();
    assert_eq!((error.field.as_str(), error.problem.as_str()), ("client[0].file", "it is not set"));
    assert!(error.fix.contains("`consilience join`"), "{error}");
    let serving =
        start(&config, ServeOptions { deadline: Some(Duration::from_secs(20)), ..options() });
    let error = site(brings("east"), joining(serving.address)).join().unwrap().unwrap_err();
    assert!(error.to_string().contains("--data FILE"), "{error}");
    assert!(serving.end().unwrap_err().to_string().contains("site \"east\" does not take part"));
    assert!(Path::new(&files.of("east")).exists());
}

/// The run of sites that bring their files, and all bytes that were exchanged or that the server
/// keeps.
/// Each site keeps its state in a folder of its own.
fn overheard(files: &Files, target: &str, sampler: &str) -> (Served, Vec<Vec<u8>>) {
    let config = files.config(target, sampler, false);
    let state = files.0.join("server");
    let serving = start(&config, ServeOptions { state: Some(state.clone()), ..options() });
    let (address, tape) = tapped(serving.address);
    let join = |own: Brings| {
        let state = Some(files.0.join("state of").join(&own.site));
        site(Brings { state, ..own }, joining(address))
    };
    let sites: Vec<_> = files.brings().into_iter().map(join).collect();
    let served = serving.end().unwrap();
    sites.into_iter().for_each(|site| assert!(site.join().unwrap().unwrap()));
    let mut seen = vec![tape.lock().unwrap().clone()];
    let mut folders = vec![state];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            match entry.unwrap().path() {
                path if path.is_dir() => folders.push(path),
                path => seen.push(std::fs::read(path).unwrap()),
            }
        }
    }
    assert!(seen.len() > 2, "the tape, and what the server keeps");
    (served, seen)
}

/// Whether a number was told, as 64 bits or in words.
fn tells(bytes: &[u8], number: f64) -> bool {
    contains(bytes, &number.to_le_bytes()) || contains(bytes, number.to_string().as_bytes())
}

/// Effects of groups are their site's: neither they nor the names of the groups are on the wire, or
/// at the server, whether intercepts differ, or slopes. When the run is over each site has the
/// draws of its own in its folder; it was told those of what all share for that, in bytes that are
/// counted in the audit log.
#[test]
fn groups_and_their_effects_stay_at_their_site() {
    let wards = |text: &str| {
        let named = text.replace("8,,f", "8,55,f").replace(",a,", ",cardiology,");
        let named = named.replace(",b,", ",oncology,").replace(",c,", ",surgery,");
        let named = named.replace(",a\n", ",cardiology\n").replace(",b\n", ",oncology\n");
        named.replace(",c\n", ",surgery\n")
    };
    let texts = TEXTS.map(wards);
    for (name, part, sampler, last, effects) in [
        ("groups", "(1 | ward)", "name = \"imh\"", "sd(1 | ward)", 2),
        ("slope", "(0 + age | ward)", "name = \"lmc\"\nstep = 1e-3", "sd(age | ward)", 2),
        ("both", "(age | ward)", "name = \"lmc\"\nstep = 1e-3", "cor(1, age | ward)", 4),
    ] {
        let files = Files::new(name, texts.each_ref().map(String::as_str));
        let target = format!("formula = \"ill == yes ~ age + {part}\"");
        let run = Session::new(files.config(&target, sampler, true)).unwrap().plan().unwrap();
        let record = run.run(&Default::default(), Control::default()).unwrap().record;
        let own = site_effects::effects(&record, "north", None).unwrap();
        assert_eq!(own.groups, ["cardiology", "oncology"]);
        assert_eq!(own.draws.dim(), effects);
        let (served, seen) = overheard(&files, &target, sampler);
        assert_eq!(served.outcome.draws, record.draws);
        // what is exchanged can be read: columns by name, and numbers as they are
        assert!(contains(&seen[0], b"ward") && contains(&seen[0], b"\"age\""));
        assert_eq!(served.problem.parameters.last().unwrap(), last);
        for bytes in &seen {
            for name in ["cardiology", "oncology", "surgery"] {
                assert!(!contains(bytes, name.as_bytes()), "{part}: {name} was told");
            }
            for effect in own.draws.rows().flatten() {
                assert!(!tells(bytes, *effect), "{part}: an effect was told");
            }
        }
        for site in SITES {
            let folder = files.0.join("state of").join(site).join(&served.run);
            let kept = std::fs::read_to_string(folder.join(name_of_site(site)).join(EFFECTS_FILE));
            let own = site_effects::effects(&record, site, None).unwrap();
            assert_eq!(kept.unwrap(), own.csv(), "{part}: {site}");
        }
        let last = record.draws.rows().last().unwrap()[0];
        assert!(contains(&seen[0], last.to_string().as_bytes()), "draws are told");
        let draws = record.draws.rows().count();
        let line = format!("\"what\":\"told\",\"draws\":{draws},\"bytes\":");
        let audit = served.audit.split_once(&line);
        let told = audit.unwrap_or_else(|| panic!("{}", served.audit)).1;
        let bytes: usize = told.split('}').next().unwrap().parse().unwrap();
        let least = record.draws.rows().flatten().map(|x| x.to_string().len()).sum::<usize>();
        assert!(bytes > least && bytes < 2 * least + 200, "{bytes} bytes, {least} of numbers");
    }
}

/// No value of a column whose missing values are integrated over is on the wire or at the server,
/// nor which rows lack one: the laws of such columns are learnt by sums.
#[test]
fn values_that_some_rows_lack_stay_at_their_site() {
    let doses = |text: &str| {
        let mut lines = text.lines().map(str::to_owned);
        let header = lines.next().unwrap();
        let at = header.split(',').position(|name| name == "dose").unwrap();
        let row = |(k, line): (usize, String)| {
            let mut cells: Vec<String> = line.split(',').map(str::to_owned).collect();
            if let Ok(dose) = cells[at].parse::<f64>() {
                cells[at] = format!("{}", dose + 0.0137 + 0.00171 * k as f64); // no sum of others
            }
            cells.join(",")
        };
        let rows: Vec<String> = lines.enumerate().map(row).collect();
        format!("{header}\n{}\n", rows.join("\n"))
    };
    let texts = TEXTS.map(doses);
    let files = Files::new("lacking", texts.each_ref().map(String::as_str));
    let target = "formula = \"ill == yes ~ mi(dose) + sex\"";
    let (served, seen) = overheard(&files, target, "name = \"lmc\"\nstep = 1e-3");
    assert!(served.problem.parameters.iter().any(|name| name.contains("dose")));
    let values: Vec<f64> = texts
        .iter()
        .flat_map(|text| text.split([',', '\n']).map(str::to_owned).collect::<Vec<_>>())
        .filter_map(|cell| cell.parse().ok().filter(|value: &f64| value.fract() != 0.0))
        .filter(|value| *value != 44.5)
        .collect();
    assert_eq!(values.len(), 13);
    for bytes in &seen {
        for value in &values {
            assert!(!tells(bytes, *value), "{value} was told");
        }
        assert!(!tells(bytes, consilience_core::model::ABSENT), "what is missing was told");
    }
}
