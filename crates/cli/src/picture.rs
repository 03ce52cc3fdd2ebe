//! Draw how many rows of each label each client has, for a terminal and as SVG.

/// The share of a client's rows, in eight steps.
const SHADES: [&str; 9] = ["  ", "▁▁", "▂▂", "▃▃", "▄▄", "▅▅", "▆▆", "▇▇", "██"];

/// One line a client: its size, and for each label a bar as high as the label's share of the
/// client's rows.
pub fn text(title: &str, names: &[String], classes: &[String], counts: &[Vec<usize>]) -> String {
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max(6);
    let mut out = format!(
        "{title}\n\n{:<width$} {:>8}  share of each label, and its rows\n",
        "client", "rows"
    );
    let total: Vec<usize> =
        (0..classes.len()).map(|k| counts.iter().map(|client| client[k]).sum()).collect();
    let all = "all".to_owned();
    for (name, client) in names.iter().zip(counts).chain([(&all, &total)]) {
        let rows: usize = client.iter().sum();
        let step = |count: &usize| if *count == 0 { 0 } else { (count * 8).div_ceil(rows) };
        let bars: String = client.iter().map(|count| SHADES[step(count)]).collect();
        let listed: Vec<String> = client.iter().map(usize::to_string).collect();
        out.push_str(&format!("{name:<width$} {rows:>8}  |{bars}| {}\n", listed.join(" ")));
    }
    out.push_str(&format!("\nlabels in order: {}\n", classes.join(", ")));
    out
}

const COLOURS: [&str; 10] = [
    "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#bbbbbb", "#ee7733",
    "#009988", "#332288",
];

/// One bar a client, as long as it has rows, cut by label.
pub fn svg(title: &str, names: &[String], classes: &[String], counts: &[Vec<usize>]) -> String {
    let most =
        counts.iter().map(|client| client.iter().sum::<usize>()).max().unwrap_or(1).max(1) as f64;
    let (left, bar, line) = (130.0, 600.0, 18.0);
    let legend = 44.0 + line * names.len() as f64 + 14.0;
    let height = legend + line * classes.len().div_ceil(5) as f64 + 10.0;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {height}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n<title>{1}</title>\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"10\" y=\"22\" font-size=\"14\">{1}</text>\n",
        left + bar + 70.0,
        escape(title)
    );
    let colour = |class: usize| COLOURS[class % COLOURS.len()];
    for (k, (name, client)) in names.iter().zip(counts).enumerate() {
        let y = 40.0 + line * k as f64;
        out.push_str(&format!(
            "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n",
            left - 8.0,
            y + 12.0,
            escape(name)
        ));
        let mut x = left;
        for (class, count) in client.iter().enumerate().filter(|(_, count)| **count > 0) {
            let width = bar * *count as f64 / most;
            let tip = format!("{}: {count} of {}", escape(name), escape(&classes[class]));
            out.push_str(&format!(
                "<rect x=\"{x:.2}\" y=\"{y}\" width=\"{width:.2}\" height=\"14\" \
                 fill=\"{}\"><title>{tip}</title></rect>\n",
                colour(class)
            ));
            x += width;
        }
        out.push_str(&format!(
            "<text x=\"{:.2}\" y=\"{}\">{}</text>\n",
            x + 5.0,
            y + 12.0,
            client.iter().sum::<usize>()
        ));
    }
    for (class, name) in classes.iter().enumerate() {
        let (x, y) = (left + 125.0 * (class % 5) as f64, legend + line * (class / 5) as f64);
        out.push_str(&format!(
            "<rect x=\"{x}\" y=\"{}\" width=\"12\" height=\"12\" fill=\"{}\"/>",
            y - 10.0,
            colour(class)
        ));
        out.push_str(&format!("<text x=\"{}\" y=\"{y}\">{}</text>\n", x + 17.0, escape(name)));
    }
    out + "</svg>\n"
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> (Vec<String>, Vec<String>, Vec<Vec<usize>>) {
        (
            vec!["a<b".into(), "c".into()],
            vec!["no".into(), "yes".into()],
            vec![vec![30, 10], vec![0, 5]],
        )
    }

    #[test]
    fn the_terminal_shows_shares_and_counts() {
        let (names, classes, counts) = example();
        let text = text("t", &names, &classes, &counts);
        assert!(text.contains("a<b          40  |▆▆▂▂| 30 10\n"), "{text}");
        assert!(text.contains("c             5  |  ██| 0 5\n"), "{text}");
        assert!(text.contains("all          45  |▆▆▃▃| 30 15\n"), "{text}");
    }

    #[test]
    fn bars_are_as_long_as_rows() {
        let (names, classes, counts) = example();
        let svg = svg("t", &names, &classes, &counts);
        assert!(
            svg.contains("width=\"450.00\"")
                && svg.contains("width=\"150.00\"")
                && svg.contains("width=\"75.00\"")
        );
        assert!(svg.contains("a&lt;b: 30 of no") && !svg.contains("a<b"));
        assert_eq!(svg.matches("height=\"14\"").count(), 3); // a label without rows has no bar
    }
}
