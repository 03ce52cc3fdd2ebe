//! Write the short tables of the chapter on choosing: draws for a megabyte, an exchange and a
//! second, and bias.

use std::fmt::Write;

use super::measured::{Cost, Judged, Measured};
use super::targets::DRAWS;

const SAMPLERS: [&str; 6] = ["imh", "pcn", "mala", "hmc", "lmc", "qlsd++"];
const BEGIN: &str = "<!-- cargo xtask choices writes from here -->\n";
const END: &str = "<!-- to here -->\n";

/// What a sampler took, in one unit.
type Unit = fn(&Cost) -> f64;

/// The chapter with its tables written again.
pub fn renewed(chapter: &str, main: &[Judged]) -> Result<String, String> {
    let missing = || format!("there is no `{}` or no `{}`", BEGIN.trim(), END.trim());
    let (before, rest) = chapter.split_once(BEGIN).ok_or_else(missing)?;
    let (_, after) = rest.split_once(END).ok_or_else(missing)?;
    Ok(format!("{before}{BEGIN}\n{}\n{END}{after}", tables(main)))
}

fn tables(main: &[Judged]) -> String {
    let units: [(&str, Unit); 3] = [
        ("Effective draws for a megabyte", |cost| cost.bytes / 1e6),
        ("Effective draws for an exchange", |cost| cost.exchanges),
        ("Effective draws for a second of computing", |cost| cost.cpu),
    ];
    let by_cost =
        units.map(|(title, of)| table(title, main, &|run| rate(DRAWS as f64 / of(&run.cost()))));
    let bias =
        table("How far means and standard deviations are from those of NUTS", main, &|run| {
            run.distance.map_or_else(
                || "not known".into(),
                |off| format!("{:.2} sd, {:.1}%", off.mean, 100.0 * off.sd),
            )
        });
    format!("{}\n{bias}", by_cost.join("\n"))
}

fn table(title: &str, main: &[Judged], cell: &dyn Fn(&Measured) -> String) -> String {
    let mut text = format!(
        "{title}:\n\n| data | {} |\n|---|{}\n",
        SAMPLERS.map(|name| format!("`{name}`")).join(" | "),
        "---|".repeat(SAMPLERS.len())
    );
    for judged in main {
        let cells = SAMPLERS.map(|name| {
            let run = judged.runs.iter().find(|run| run.asked == name);
            run.map_or_else(
                || "–".into(),
                |run| if run.is_usable { cell(run) } else { format!("({})", cell(run)) },
            )
        });
        let _ = writeln!(text, "| {} | {} |", judged.target.name, cells.join(" | "));
    }
    text
}

/// Two digits.
fn rate(number: f64) -> String {
    let unit = 10f64.powi(number.log10().floor() as i32 - 1);
    let round = (number / unit).round() * unit;
    if round < 1.0 {
        format!("{round:.2}")
    } else if round < 9.95 {
        format!("{round:.1}")
    } else {
        format!("{round:.0}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_written_between_their_marks() {
        let chapter = format!("# Choosing\n\n{BEGIN}old\n{END}\nrest\n");
        let new = renewed(&chapter, &[]).unwrap();
        assert!(new.starts_with("# Choosing\n") && new.ends_with("\nrest\n"), "{new}");
        assert!(new.contains("| data | `imh` |") && !new.contains("old"), "{new}");
        assert_eq!(renewed(&new, &[]).unwrap(), new, "writing again changes nothing");
        assert!(renewed("# Choosing\n", &[]).is_err());
        assert_eq!([0.0123, 0.5, 6.04, 21_313.0].map(rate), ["0.01", "0.50", "6.0", "21000"]);
    }
}
