//! Write numbers as people read them.

/// A number with about four significant digits; a dash where there is none.
pub fn number(x: f64) -> String {
    let size = x.abs();
    match x {
        _ if x.is_nan() => "–".into(),
        _ if x.is_infinite() => (if x > 0.0 { "∞" } else { "−∞" }).into(),
        _ if size == 0.0 => "0".into(),
        _ if !(1e-3..1e6).contains(&size) => minus(&power(x)),
        _ if size >= 1000.0 => minus(&grouped(x)),
        _ if size >= 100.0 => minus(&format!("{x:.1}")),
        _ if size >= 10.0 => minus(&format!("{x:.2}")),
        _ if size >= 0.1 => minus(&format!("{x:.3}")),
        _ if size >= 0.01 => minus(&format!("{x:.4}")),
        _ => minus(&format!("{x:.5}")),
    }
}

/// A number with so many decimals, where its size allows it.
pub fn decimals(x: f64, places: usize) -> String {
    if !x.is_finite() || x.abs() >= 1e6 {
        return number(x);
    }
    let text = format!("{x:.places$}");
    let nothing = text.chars().all(|c| matches!(c, '-' | '0' | '.'));
    if nothing { text.trim_start_matches('-').into() } else { minus(&text) }
}

/// How many decimals show three digits of a number of this size.
pub fn places(size: f64) -> usize {
    if size.is_finite() && size > 0.0 {
        (2.0 - size.log10().floor()).clamp(1.0, 9.0) as usize
    } else {
        3
    }
}

/// A whole number of things, with thousands apart.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (k, digit) in digits.chars().enumerate() {
        if k > 0 && (digits.len() - k).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// So many things, by name: `1 chain`, `4 chains`.
pub fn many(n: u64, name: &str) -> String {
    format!("{} {name}{}", count(n), if n == 1 { "" } else { "s" })
}

/// A number of bits, in bytes.
pub fn bytes(bits: f64) -> String {
    match bits / 8.0 {
        b if !b.is_finite() => number(b),
        b if b >= 1e12 => format!("{:.2} TB", b / 1e12),
        b if b >= 1e9 => format!("{:.2} GB", b / 1e9),
        b if b >= 1e6 => format!("{:.1} MB", b / 1e6),
        b if b >= 1e3 => format!("{:.1} kB", b / 1e3),
        b => format!("{b:.0} B"),
    }
}

/// A round number of bytes, for an axis.
pub fn round_bytes(x: f64) -> String {
    bytes(8.0 * x).replace(".0 ", " ").replace(".00 ", " ")
}

/// A time in seconds, in units that suit its length.
pub fn duration(seconds: f64) -> String {
    match seconds {
        s if !s.is_finite() => number(s),
        s if s < 1.0 => format!("{s:.2} s"),
        s if s < 90.0 => format!("{s:.1} s"),
        s if s < 5400.0 => format!("{:.1} minutes", s / 60.0),
        s => format!("{:.1} hours", s / 3600.0),
    }
}

/// A moment such as `2026-01-31T12:00:00Z`, as `2026-01-31 12:00 UTC`; anything else as it is.
pub fn moment(created: &str) -> String {
    match created.split_once('T') {
        Some((day, time)) if time.ends_with('Z') && time.is_ascii() && time.len() >= 6 => {
            format!("{day} {} UTC", &time[..5])
        }
        _ => created.into(),
    }
}

/// How many pixels a text takes at 12 pixels a letter, in a wide typeface.
pub fn breadth(text: &str) -> f64 {
    let one = |c: char| match c {
        ' ' | '\u{202f}' | 'i' | 'j' | 'l' | 't' | 'f' | 'r' | 'I' | '.' | ',' | ':' | ';'
        | '\'' | '|' | '!' | '(' | ')' | '[' | ']' => 4.7,
        'm' | 'w' | 'M' | 'W' | 'Q' | '@' | '%' | '=' | '<' | '>' | '+' | '−' | '~' | '…' | '—' => {
            10.2
        }
        c if c.is_uppercase() => 8.6,
        c if c.is_ascii() || c.is_alphanumeric() || "·–".contains(c) => 7.6,
        _ => 12.0,
    };
    text.chars().map(one).sum()
}

/// The lines of a text, each at most so many pixels wide; joined they are the text, letter by
/// letter.
pub fn wrapped(text: &str, most: f64) -> Vec<String> {
    let mut lines: Vec<String> = vec![String::new()];
    for word in text.split_inclusive([' ', '_', ':', '=', '/', '-']) {
        let last = lines.len() - 1;
        if !lines[last].is_empty() && breadth(&lines[last]) + breadth(word.trim_end()) > most {
            lines.push(String::new());
        }
        for letter in word.chars() {
            let last = lines.len() - 1;
            if letter != ' '
                && !lines[last].is_empty()
                && breadth(&lines[last]) + breadth(&letter.to_string()) > most
            {
                lines.push(String::new());
            }
            let last = lines.len() - 1;
            lines[last].push(letter);
        }
    }
    // A space at a line's end would push centred and right-aligned letters aside: the next takes
    // it.
    for k in 1..lines.len() {
        if lines[k - 1].len() > 1 && lines[k - 1].ends_with(' ') {
            lines[k - 1].pop();
            lines[k].insert(0, ' ');
        }
    }
    lines
}

fn grouped(x: f64) -> String {
    format!("{}{}", if x < 0.0 { "-" } else { "" }, count(x.abs().round() as u64))
}

fn power(x: f64) -> String {
    let text = format!("{x:.2e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let raised = exponent.chars().map(|c| match c {
        '-' => '⁻',
        c => {
            ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'][c.to_digit(10).unwrap_or(0) as usize]
        }
    });
    format!("{digits}·10{}", raised.collect::<String>())
}

fn minus(text: &str) -> String {
    text.strip_prefix('-').map_or_else(|| text.into(), |rest| format!("−{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_for_people() {
        let shown = [
            0.0,
            0.1234,
            0.0032,
            -2.5,
            12.345,
            999.96,
            12_345.6,
            1.5e7,
            -2e-5,
            f64::NAN,
            f64::INFINITY,
        ]
        .map(number);
        assert_eq!(
            shown,
            [
                "0",
                "0.123",
                "0.00320",
                "−2.500",
                "12.35",
                "1000.0",
                "12\u{202f}346",
                "1.50·10⁷",
                "−2.00·10⁻⁵",
                "–",
                "∞"
            ]
        );
        assert_eq!(
            [decimals(1.0049, 3), decimals(-1e-7, 3), decimals(-3.0, 2)],
            ["1.005", "0.000", "−3.00"]
        );
        assert_eq!([places(0.12), places(12.0), places(1e-5), places(0.0)], [3, 1, 7, 3]);
        assert_eq!(
            [count(7), count(1234), count(1_234_567)],
            ["7", "1\u{202f}234", "1\u{202f}234\u{202f}567"]
        );
        assert_eq!([many(1, "chain"), many(2, "chain")], ["1 chain", "2 chains"]);
        assert_eq!([bytes(64.0), bytes(8e3), bytes(8e7)], ["8 B", "1.0 kB", "10.0 MB"]);
        assert_eq!(
            [duration(0.5), duration(12.34), duration(600.0), duration(7200.0)],
            ["0.50 s", "12.3 s", "10.0 minutes", "2.0 hours"]
        );
        assert_eq!(
            [moment("2026-01-31T12:00:00Z"), moment("today")],
            ["2026-01-31 12:00 UTC", "today"]
        );
    }

    #[test]
    fn lines_are_whole_words_that_fit_and_leave_nothing_out() {
        assert_eq!(wrapped("age", 100.0), ["age"]);
        assert_eq!(
            wrapped("chest pain: typical angina", 100.0),
            ["chest pain:", " typical angina"]
        );
        for text in [
            "",
            " ",
            "a  b",
            "Ventrikulärhypertrophiediagnose",
            "x_1_2_3_4_5_6_7_8_9_10_11_12",
            "sex = male, at rest",
            "東京都立病院",
        ] {
            let lines = wrapped(text, 60.0);
            assert_eq!(lines.concat(), text);
            assert!(lines.iter().all(|line| breadth(line.trim()) <= 60.0), "{lines:?}");
        }
    }
}
