use super::super::{
    ColumnSpec, Federation, MomentLedger, Schema, SiteSummary, TermSummary, combine, formula,
    summarise,
};
use super::*;

fn schema() -> Schema {
    Schema::new(vec![
        ColumnSpec::number("age"),
        ColumnSpec::number("chol"),
        ColumnSpec::number("rate"),
        ColumnSpec::category("town"),
        ColumnSpec::binary("smokes"),
        ColumnSpec::binary("ill"),
    ])
    .without_header()
}

fn table(text: &str) -> Table {
    Table::parse(text, "t.csv", &schema()).unwrap()
}

fn federate(formula: &str, texts: &[&str]) -> Result<Federation, EncodeError> {
    let names = ["a", "b", "c"];
    let sites: Vec<(String, Table)> =
        names.iter().zip(texts).map(|(name, text)| (name.to_string(), table(text))).collect();
    Federation::new("test", &sites, &formula::parse(formula, &schema()).unwrap())
}

/// One column of the design, site after site.
fn column(federation: &Federation, name: &str) -> Vec<f64> {
    let at = federation.parameters.iter().position(|parameter| parameter == name).unwrap();
    federation
        .sites
        .iter()
        .flat_map(|site| site.cells.chunks(site.columns).map(move |row| row[at]))
        .collect()
}

const A: &str = "30,200,60,Bonn,0,0\n41,?,61,Ulm,1,1\n57,180,62,Bonn,?,0\n";
const B: &str = "63,310,90,Ulm,1,1\n70,250,95,Jena,1,1\n";

#[test]
fn sites_get_what_the_pooled_rows_would_give() {
    let federation = federate("ill ~ age + chol + rate", &[A, B]).unwrap();
    let ages = [30.0, 41.0, 57.0, 63.0, 70.0];
    let mean = ages.iter().sum::<f64>() / 5.0;
    let sd = (ages.iter().map(|a| (a - mean) * (a - mean)).sum::<f64>() / 4.0).sqrt();
    for (found, age) in column(&federation, "age").iter().zip(ages) {
        assert!((found - (age - mean) / sd).abs() < 1e-12, "{found}");
    }
    let seen = [200.0, 180.0, 310.0, 250.0];
    let mean = seen.iter().sum::<f64>() / 4.0;
    let sd = (seen.iter().map(|c| (c - mean) * (c - mean)).sum::<f64>() / 3.0).sqrt();
    let expected =
        [(200.0 - mean) / sd, 0.0, (180.0 - mean) / sd, (310.0 - mean) / sd, (250.0 - mean) / sd];
    for (found, expected) in column(&federation, "chol").iter().zip(expected) {
        assert!((found - expected).abs() < 1e-12, "{found}");
    }
}

#[test]
fn no_sites_own_mean_or_deviation_is_used() {
    let rates = column(&federate("ill ~ rate", &[A, B]).unwrap(), "rate");
    assert!(
        rates[..3].iter().all(|z| *z < -0.5) && rates[3..].iter().all(|z| *z > 0.5),
        "each site would be centred: {rates:?}"
    );
    let other = column(&federate("ill ~ rate", &[A, "63,310,10,Ulm,1,1\n"]).unwrap(), "rate");
    assert!(
        other[..3].iter().all(|z| *z > 0.0),
        "another second site must move the first: {other:?}"
    );
}

#[test]
fn moments_stay_accurate_far_from_zero() {
    let near = federate("ill ~ age", &["1,1,1,x,0,0\n2,1,1,x,0,1\n", "4,1,1,x,0,1\n"]).unwrap();
    let far = federate(
        "ill ~ age",
        &["1000000001,1,1,x,0,0\n1000000002,1,1,x,0,1\n", "1000000004,1,1,x,0,1\n"],
    )
    .unwrap();
    for (near, far) in column(&near, "age").iter().zip(column(&far, "age")) {
        assert!((near - far).abs() < 1e-6, "a sum of squares would lose all digits: {near} {far}");
    }
}

#[test]
fn levels_and_binary_values_are_imputed_by_the_federated_mode() {
    let federation = federate("ill ~ town + smokes", &[A, B]).unwrap();
    assert_eq!(
        federation.parameters,
        ["intercept", "town: Jena", "town: Ulm", "smokes", "smokes: missing"]
    );
    assert_eq!(column(&federation, "town: Ulm"), [0.0, 1.0, 0.0, 1.0, 0.0]);
    assert_eq!(column(&federation, "town: Jena"), [0.0, 0.0, 0.0, 0.0, 1.0]);
    assert_eq!(
        column(&federation, "smokes"),
        [0.0, 1.0, 1.0, 1.0, 1.0],
        "site a alone would be tied"
    );
    assert_eq!(column(&federation, "smokes: missing"), [0.0, 0.0, 1.0, 0.0, 0.0]);
    assert!(
        federation
            .notes
            .contains(&"town: compared with Bonn (the most common level; 2 of 5 rows).".into()),
        "{:?}",
        federation.notes
    );
    assert_eq!(federation.sites[0].response, [0.0, 1.0, 0.0]);
    assert!(federation.logistic().is_ok());
}

#[test]
fn numbers_become_levels_on_request() {
    let federation =
        federate("ill ~ C(rate)", &["1,1,10,x,0,0\n1,1,9,x,0,1\n", "1,1,9,x,0,0\n1,1,2,x,0,1\n"])
            .unwrap();
    assert_eq!(federation.parameters, ["intercept", "rate: 2", "rate: 10"]);
    assert_eq!(column(&federation, "rate: 2"), [0.0, 0.0, 0.0, 1.0]);
}

#[test]
fn without_an_intercept_one_set_of_levels_is_whole() {
    let levels = federate("ill ~ town + site - 1", &[A, B]).unwrap();
    assert_eq!(levels.parameters, ["town: Bonn", "town: Jena", "town: Ulm", "site: b"]);
    let sites = federate("ill ~ age + site - 1", &[A, B]).unwrap();
    assert_eq!(sites.parameters, ["age", "site: a", "site: b"]);
    assert_eq!(column(&sites, "site: b"), [0.0, 0.0, 0.0, 1.0, 1.0]);
}

#[test]
fn what_other_columns_determine_is_left_out_and_named() {
    let a = "1,?,?,x,0,0\n2,5,6,x,0,1\n3,9,8,x,0,0\n";
    let b = "4,?,?,y,0,1\n5,4,1,y,0,0\n";
    let twins = federate("ill ~ chol + rate", &[a, b]).unwrap();
    assert_eq!(twins.parameters, ["intercept", "chol", "chol: missing", "rate"]);
    assert!(
        twins.notes.iter().any(|note| note.contains("the indicator of chol marks the same rows")),
        "{:?}",
        twins.notes
    );
    let towns = federate("ill ~ age + town + smokes + site", &[a, b]).unwrap();
    assert_eq!(towns.parameters, ["intercept", "age", "site: b"]);
    assert!(
        towns.notes.contains(&"smokes: left out, for it is 0 everywhere.".into()),
        "{:?}",
        towns.notes
    );
    assert!(
        towns.notes.contains(&"town: y left out, for the site effects determine it.".into()),
        "{:?}",
        towns.notes
    );
    assert_eq!(
        federate("ill ~ age + town", &[a, b]).unwrap().parameters,
        ["intercept", "age", "town: y"]
    );
    let c = "4,?,1,y,0,1\n5,?,2,y,0,0\n";
    let whole = federate("ill ~ chol + site", &["1,1,1,x,0,0\n2,5,6,x,0,1\n", c]).unwrap();
    assert_eq!(whole.parameters, ["intercept", "chol", "site: b"]);
    let flat = federate(
        "ill ~ age + rate + chol + site",
        &["3,1,7,x,0,0\n3,2,7,x,0,1\n", "3,3,8,x,0,1\n"],
    )
    .unwrap();
    assert_eq!(
        flat.parameters,
        ["intercept", "chol", "site: b"],
        "age is constant, rate is constant within sites"
    );
}

#[test]
fn rules_for_what_is_missing() {
    let mut plan = formula::parse("ill ~ age + chol", &schema()).unwrap();
    let sites = [("a".to_string(), table(A)), ("b".to_string(), table(B))];
    let parameters = |plan: &DesignPlan| {
        Federation::new("test", &sites, plan).map(|federation| federation.parameters)
    };
    plan.terms[1].missing = Missing::Impute;
    assert_eq!(parameters(&plan).unwrap(), ["intercept", "age", "chol"]);
    plan.terms[1].missing = Missing::Indicate { above: 0.2 };
    assert_eq!(
        parameters(&plan).unwrap(),
        ["intercept", "age", "chol"],
        "one in five is not above a fifth"
    );
    plan.terms[1].missing = Missing::DropColumn;
    assert_eq!(parameters(&plan).unwrap(), ["intercept", "age"]);
    plan.terms[1].missing = Missing::Refuse;
    let refusal = "t.csv, line 2, column `chol`: the value is missing: fill it in, or choose a \
        rule that imputes it";
    assert_eq!(parameters(&plan).unwrap_err().to_string(), refusal);
}

#[test]
fn the_ledger_counts_the_messages() {
    let plan = formula::parse("ill ~ age + town", &schema()).unwrap();
    let summaries =
        [summarise("a", &table(A), &plan).unwrap(), summarise("b", &table(B), &plan).unwrap()];
    let levels = TermSummary::Levels(vec![("Bonn".into(), 2), ("Ulm".into(), 1)]);
    assert_eq!(summaries[0].terms[1], levels);
    // The name and its length, two numbers, three for age, two levels with their counts.
    assert_eq!(
        summaries[0].bits(),
        (64 + 8) + 2 * 64 + 3 * 64 + (64 + 64 + 4 * 8) + (64 + 64 + 3 * 8)
    );
    let moments = combine(&summaries, &plan, &[]).unwrap();
    let ledger = MomentLedger::count(&summaries, &moments);
    assert_eq!(
        ledger,
        MomentLedger { up: summaries[0].bits() + summaries[1].bits(), down: 2 * moments.bits() }
    );
    let federation = federate("ill ~ age + town", &[A, B]).unwrap();
    assert_eq!(
        (federation.exchanged_bits_up, federation.exchanged_bits_down),
        (ledger.up, ledger.down)
    );
}

#[test]
fn wrong_plans_and_summaries_are_refused_by_name() {
    let refusal = |error: EncodeError| error.to_string();
    let plan = formula::parse("ill ~ age + town", &schema()).unwrap();
    let good = summarise("a", &table(A), &plan).unwrap();
    let mut other = plan.clone();
    other.terms[0].column = "agee".into();
    let text = "t.csv: there is no column `agee`: did you mean `age`? the columns are age, chol, \
        rate, town, smokes, ill";
    assert_eq!(refusal(summarise("a", &table(A), &other).unwrap_err()), text);
    other.terms[0].column = "town".into();
    assert!(
        refusal(summarise("a", &table(A), &other).unwrap_err())
            .contains("the column `town` cannot be taken as numbers")
    );
    let words = DesignPlan { response: Response::Value { column: "town".into() }, ..plan.clone() };
    assert!(
        refusal(summarise("a", &table(A), &words).unwrap_err())
            .contains("write `column == level` as the response")
    );
    let unknown = "t.csv, line 1, column `ill`: the value is missing: leave out the rows whose \
        response is unknown";
    assert_eq!(refusal(summarise("a", &table("30,1,1,Bonn,0,?\n"), &plan).unwrap_err()), unknown);
    assert_eq!(
        refusal(combine(&[], &plan, &[]).unwrap_err()),
        "there are no sites: give at least one table"
    );
    let twice = refusal(combine(&[good.clone(), good.clone()], &plan, &[]).unwrap_err());
    assert_eq!(twice, "two sites are called `a`: give each its own name");
    let empty = SiteSummary { site: "b".into(), rows: 0, ..good.clone() };
    let text = "the summary of site `b` is refused: it has no rows: leave the site out";
    assert_eq!(refusal(combine(&[good.clone(), empty], &plan, &[]).unwrap_err()), text);
    let short = SiteSummary { terms: Vec::new(), ..good.clone() };
    assert!(
        refusal(combine(&[short], &plan, &[]).unwrap_err())
            .contains("it has 0 terms where the plan has 2")
    );
    let mut wild = good.clone();
    wild.terms[0] = TermSummary::Numbers { observed: 3, sum: f64::NAN, squares: 0.0 };
    assert!(
        refusal(combine(&[wild], &plan, &[]).unwrap_err())
            .contains("its summary of `age` is not one")
    );
    let moments = combine(&[good], &plan, &[]).unwrap();
    assert!(
        refusal(encode("z", &table(A), &plan, &moments).unwrap_err())
            .contains("the site `z` sent no summary: the moments know a")
    );
    assert_eq!(
        refusal(encode("a", &table(B), &plan, &moments).unwrap_err()),
        "t.csv, line 2, column `town`: no site has the level `Jena`: the levels are Bonn, Ulm"
    );
    let fewer = DesignPlan { terms: Vec::new(), ..plan.clone() };
    assert!(
        refusal(encode("a", &table(A), &fewer, &moments).unwrap_err())
            .contains("made for another plan")
    );
}

#[test]
fn a_response_that_never_varies_is_refused() {
    let typo = federate("town == bonn ~ age", &[A, B]).unwrap_err().to_string();
    assert!(typo.starts_with("`town == bonn` holds in 0 of 5 rows"), "{typo}");
    assert_eq!(federate("town == Bonn ~ age", &[A, B]).unwrap().sites[0].response, [1.0, 0.0, 1.0]);
    assert_eq!(federate("ill ~ - 1", &[A]).unwrap_err(), EncodeError::NoColumns);
}
