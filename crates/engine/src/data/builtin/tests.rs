use super::*;

fn counts(federation: &Federation) -> Vec<(usize, usize)> {
    federation
        .sites
        .iter()
        .map(|site| (site.rows(), site.response.iter().filter(|y| **y == 1.0).count()))
        .collect()
}

/// The least pivot of the correlation-like matrix of the design: 0 where a column is a combination
/// of others.
fn least_pivot(federation: &Federation) -> f64 {
    let d = federation.dim();
    let rows = || federation.sites.iter().flat_map(|site| site.cells.chunks(site.columns));
    let mut g: Vec<f64> =
        (0..d * d).map(|k| rows().map(|row| row[k / d] * row[k % d]).sum()).collect();
    let scale: Vec<f64> = (0..d).map(|j| g[j * d + j].sqrt()).collect();
    (0..d * d).for_each(|k| g[k] /= scale[k / d] * scale[k % d]);
    let mut least = f64::INFINITY;
    for j in 0..d {
        let pivot = g[j * d + j];
        least = least.min(pivot);
        for i in j + 1..d {
            let factor = g[i * d + j] / pivot;
            (j..d).for_each(|k| g[i * d + k] -= factor * g[j * d + k]);
        }
    }
    least
}

#[test]
fn heart_disease_has_the_known_rows() {
    let federation = load("heart-disease").unwrap();
    assert_eq!(counts(&federation), [(303, 139), (294, 106), (123, 115), (200, 149)]);
    let names: Vec<&str> = federation.sites.iter().map(|site| site.name.as_str()).collect();
    assert_eq!(names, ["cleveland", "hungarian", "switzerland", "va"]);
    assert_eq!(federation.rows(), 920);
    assert!(federation.logistic().is_ok());
}

#[test]
fn heart_disease_misses_what_is_known_to_be_missing() {
    let tables = heart_tables().unwrap();
    let missing = |column: &str| -> Vec<usize> {
        tables.iter().map(|table| table.column(column).unwrap().1.missing()).collect()
    };
    assert_eq!(missing("chol"), [0, 23, 123, 56]);
    assert_eq!(missing("trestbps"), [0, 1, 2, 57]);
    assert_eq!(missing("fbs"), [0, 8, 75, 7]);
    assert_eq!(missing("restecg"), [0, 1, 1, 0]);
    assert_eq!(missing("thalach"), [0, 1, 1, 53]);
    assert_eq!(missing("exang"), [0, 1, 1, 53]);
    assert_eq!(missing("oldpeak"), [0, 0, 6, 56]);
    assert_eq!(missing("ca"), [4, 291, 118, 198]);
    for complete in ["age", "sex", "cp", "num"] {
        assert_eq!(missing(complete), [0; 4]);
    }
}

#[test]
fn heart_disease_names_its_parameters() {
    let expected = [
        "intercept",
        "age",
        "sex: male",
        "chest pain: typical angina",
        "chest pain: atypical angina",
        "chest pain: non-anginal pain",
        "resting blood pressure",
        "resting blood pressure: missing",
        "cholesterol",
        "cholesterol: missing",
        "fasting blood sugar: above 120 mg/dl",
        "fasting blood sugar: missing",
        "resting ECG: ST-T abnormality",
        "resting ECG: ventricular hypertrophy",
        "maximum heart rate",
        "maximum heart rate: missing",
        "exercise angina: yes",
        "ST depression",
        "ST depression: missing",
        "site: hungarian",
        "site: switzerland",
        "site: va",
    ];
    assert_eq!(load("heart-disease").unwrap().parameters, expected);
    assert_eq!(load_with("heart-disease", false).unwrap().parameters, expected[..19]);
}

#[test]
fn heart_disease_says_how_it_was_encoded() {
    let federation = load("heart-disease").unwrap();
    assert_eq!(federation.notes.join("\n") + "\n", include_str!("heart-disease.notes"));
}

#[test]
fn heart_disease_counts_what_was_exchanged() {
    let federation = load("heart-disease").unwrap();
    // Three hospitals say, besides their summaries, how often each of three columns is missing.
    let plan = "num > 0 ~ age + sex + cp + trestbps + chol + fbs + restecg + thalach + exang + \
        oldpeak + site";
    let plan = formula::parse(plan, &heart_schema()).unwrap();
    let named: Vec<(String, Table)> = HOSPITALS
        .iter()
        .zip(heart_tables().unwrap())
        .map(|((site, _, _), table)| ((*site).into(), table))
        .collect();
    let bare = Federation::new("heart-disease", &named, &plan).unwrap();
    assert_eq!(federation.exchanged_bits_up, bare.exchanged_bits_up + 3 * 3 * 64);
    assert_eq!(federation.exchanged_bits_down, bare.exchanged_bits_down);
    assert!(federation.exchanged_bits_up > 4 * 64 * 40, "{}", federation.exchanged_bits_up);
}

#[test]
fn no_column_is_a_combination_of_others() {
    for name in names() {
        for site_effects in [false, true] {
            let federation = load_with(name, site_effects).unwrap();
            assert!(least_pivot(&federation) > 1e-6, "{name}: {}", least_pivot(&federation));
        }
    }
    let mut twin = load("titanic").unwrap();
    for site in &mut twin.sites {
        site.cells.chunks_mut(site.columns).for_each(|row| row[1] = row[0] - row[2]);
    }
    assert!(least_pivot(&twin).abs() < 1e-12, "the test must notice: {}", least_pivot(&twin));
}

#[test]
fn titanic_has_the_known_rows() {
    let federation = load("titanic").unwrap();
    assert_eq!(
        federation.parameters,
        ["intercept", "class: 1st", "class: 2nd", "class: 3rd", "age: Child", "sex: Female"]
    );
    let sums = counts(&federation).iter().fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    assert_eq!((federation.sites.len(), sums), (4, (2201, 711)));
}

#[test]
fn breast_cancer_has_the_known_rows() {
    let federation = load("breast-cancer").unwrap();
    let sums = counts(&federation).iter().fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
    assert_eq!((federation.sites.len(), sums), (4, (569, 569 - 357)));
    assert_eq!(federation.dim(), 31);
    assert_eq!(federation.parameters[1], "mean radius");
    for at in 1..31 {
        let values: Vec<f64> = federation
            .sites
            .iter()
            .flat_map(|site| site.cells.chunks(31).map(|row| row[at]))
            .collect();
        let squares: f64 = values.iter().map(|z| z * z).sum();
        assert!(
            values.iter().sum::<f64>().abs() < 1e-9 && (squares - 568.0).abs() < 1e-9,
            "column {at}"
        );
    }
}

#[test]
fn a_label_out_of_range_and_a_corrupt_line_are_named() {
    let (_, file, text) = HOSPITALS[3];
    let wrong = text.replacen(
        "63,1,4,140,260,0,1,112,1,3,2,?,?,2",
        "63,1,4,140,260,0,1,112,1,3,2,?,?,5",
        1,
    );
    let error = Table::parse(&wrong, file, &heart_schema()).unwrap_err().to_string();
    assert!(
        error.starts_with("processed.va.data, line 1, column `num`: `5` is not within 0 to 4"),
        "{error}"
    );
    let mut lines: Vec<&str> = text.lines().collect();
    lines[41] = "60,1,4,";
    let error = Table::parse(&lines.join("\n"), file, &heart_schema()).unwrap_err().to_string();
    assert!(
        error.starts_with("processed.va.data, line 42: 4 fields where 14 are expected"),
        "{error}"
    );
}

#[test]
fn an_unknown_name_is_refused_with_the_known_ones() {
    let error = load("heart-diseases").unwrap_err().to_string();
    let names = "there are heart-disease, titanic, breast-cancer";
    assert_eq!(
        error,
        format!(
            "there is no built-in data `heart-diseases`: did you mean `heart-disease`? {names}"
        )
    );
}
