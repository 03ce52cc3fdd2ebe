//! Find columns that others determine, from the Hessian that sites send in sums: no row is looked
//! at.

/// Columns are dependent where less than this share of one is left when the others are taken out.
const LEFT: f64 = 1e-9;
/// How many are named in one message.
const MOST_NAMED: usize = 3;

/// A column that earlier ones determine.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Dependence {
    /// The column.
    column: usize,
    /// Those that determine it; none: it is 0 in every row.
    on: Vec<usize>,
}

/// Which of the first `names` columns earlier ones determine, by a Cholesky factorisation that
/// passes over them. `hessian` is that of the posterior, and what the prior adds to its diagonal is
/// taken out.
pub(crate) fn dependences(hessian: &[f64], prior: &[f64], names: usize) -> Vec<Dependence> {
    let (d, precision) = (prior.len(), |k: usize| prior[k]);
    let entry = |i: usize, j: usize| hessian[i * d + j] - if i == j { precision(i) } else { 0.0 };
    let mut kept: Vec<usize> = Vec::new();
    let mut factor: Vec<Vec<f64>> = Vec::new();
    let mut found = Vec::new();
    for column in 0..names {
        let whole = entry(column, column);
        // Taking out the prior leaves its rounding behind.
        let rounding = 1e-12 * (precision(column) + whole.abs());
        if whole <= rounding {
            found.push(Dependence { column, on: Vec::new() });
            continue;
        }
        let mut row: Vec<f64> = Vec::with_capacity(kept.len());
        for (k, other) in kept.iter().enumerate() {
            let known: f64 = row.iter().zip(&factor[k]).map(|(a, b)| a * b).sum();
            row.push((entry(column, *other) - known) / factor[k][k]);
        }
        let left = whole - row.iter().map(|a| a * a).sum::<f64>();
        if left > (LEFT * whole).max(rounding) {
            row.push(left.sqrt());
            factor.push(row);
            kept.push(column);
            continue;
        }
        let mut weights = row;
        for k in (0..kept.len()).rev() {
            weights[k] /= factor[k][k];
            let weight = weights[k];
            weights[..k].iter_mut().zip(&factor[k]).for_each(|(w, f)| *w -= weight * f);
        }
        let counts = |(other, weight): (&usize, &f64)| {
            weight * weight * entry(*other, *other) > 1e-8 * whole
        };
        let on = kept
            .iter()
            .zip(&weights)
            .filter(|pair| counts(*pair))
            .map(|(other, _)| *other)
            .collect();
        found.push(Dependence { column, on });
    }
    found
}

/// What was found, in words.
pub(crate) fn describe(found: &[Dependence], names: &[String]) -> String {
    let listed = |columns: &[usize]| {
        let named: Vec<String> =
            columns.iter().take(6).map(|k| format!("`{}`", names[*k])).collect();
        let more = if columns.len() > 6 {
            format!(" and {} more", columns.len() - 6)
        } else {
            String::new()
        };
        named.join(", ") + &more
    };
    let one = |dependence: &Dependence| match dependence.on.as_slice() {
        [] => format!("`{}` is 0 in every row", names[dependence.column]),
        on => format!("`{}` is determined by {}", names[dependence.column], listed(on)),
    };
    let mut said: Vec<String> = found.iter().take(MOST_NAMED).map(one).collect();
    if found.len() > MOST_NAMED {
        said.push(format!("{} more columns are determined by others", found.len() - MOST_NAMED));
    }
    said.join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gram(rows: &[&[f64]], precision: f64) -> (Vec<f64>, usize) {
        let d = rows[0].len();
        let mut gram = vec![0.0; d * d];
        for row in rows {
            (0..d * d).for_each(|k| gram[k] += 0.25 * row[k / d] * row[k % d]);
        }
        (0..d).for_each(|k| gram[k * d + k] += precision);
        (gram, d)
    }

    fn says(rows: &[&[f64]], precision: f64, names: &[&str]) -> String {
        let (gram, d) = gram(rows, precision);
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        describe(&dependences(&gram, &vec![precision; d], d), &names)
    }

    #[test]
    fn dependent_columns_are_named_with_those_that_determine_them() {
        // kg, a column of its own, pounds, and the sum of the first two.
        let x = [[70.1, 0.3], [55.2, -1.0], [81.7, 0.4], [64.4, 2.2], [90.3, -0.7]];
        let rows: Vec<Vec<f64>> =
            x.iter().map(|[a, b]| vec![1.0, *a, *b, a * 2.204_62, a + b, 0.0]).collect();
        let rows: Vec<&[f64]> = rows.iter().map(Vec::as_slice).collect();
        let names = ["intercept", "kg", "b", "pounds", "sum", "nothing"];
        for precision in [0.0, 0.16, 100.0] {
            let expected = "`pounds` is determined by `kg`; `sum` is determined by `kg`, `b`; \
                `nothing` is 0 in every row";
            assert_eq!(says(&rows, precision, &names), expected, "{precision}");
        }
        assert_eq!(
            says(
                &[&[1.0, 1.0, 0.0], &[1.0, 0.0, 1.0], &[1.0, 0.0, 1.0]],
                0.0,
                &["intercept", "f", "m"]
            ),
            "`m` is determined by `intercept`, `f`"
        );
    }

    #[test]
    fn columns_that_are_merely_alike_are_not() {
        let rows: Vec<Vec<f64>> = (0..50)
            .map(|k| vec![1.0, f64::from(k), f64::from(k) + 1e-2 * f64::from(k % 7)])
            .collect();
        let rows: Vec<&[f64]> = rows.iter().map(Vec::as_slice).collect();
        for precision in [0.0, 0.16, 1e6] {
            assert_eq!(says(&rows, precision, &["intercept", "a", "b"]), "", "{precision}");
        }
    }
}
