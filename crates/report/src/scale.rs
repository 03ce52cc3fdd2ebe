//! Put numbers on an axis: ranges that are never empty, and round ticks.

/// A straight or logarithmic map from numbers to places. Every finite number has a finite place.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    logarithmic: bool,
}

impl Scale {
    /// A scale on which all finite numbers find room, with a margin; `None` if there is none.
    pub fn around(values: impl IntoIterator<Item = f64>, from: f64, to: f64) -> Option<Self> {
        let (low, high) = range(values)?;
        // Halves, so that the largest numbers do not overflow.
        let margin = (high / 2.0 - low / 2.0) * 0.06;
        let margin = if margin > low.abs().max(high.abs()) * 1e-12 {
            margin
        } else {
            (low.abs() * 0.05).max(0.5)
        };
        Some(Scale {
            low: (low - margin).max(f64::MIN),
            high: (high + margin).min(f64::MAX),
            from,
            to,
            logarithmic: false,
        })
    }

    /// A scale from `low` to `high`, which are to be finite and in order; else it is a little
    /// wider.
    pub fn between(low: f64, high: f64, from: f64, to: f64) -> Self {
        let low = if low.is_finite() { low } else { 0.0 };
        let high = if high.is_finite() && high > low { high } else { low + 1.0 + low.abs() * 0.1 };
        Scale { low, high, from, to, logarithmic: false }
    }

    /// A logarithmic scale of all positive finite numbers; `None` if there is none.
    pub fn logarithmic(values: impl IntoIterator<Item = f64>, from: f64, to: f64) -> Option<Self> {
        let (low, high) = range(values.into_iter().filter(|x| *x > 0.0).map(f64::log10))?;
        let middle = f64::midpoint(low, high);
        let half = ((high - low) * 0.53).max(0.25);
        Some(Scale { low: middle - half, high: middle + half, from, to, logarithmic: true })
    }

    /// The place of a number, kept within a width of the axis.
    pub fn at(&self, x: f64) -> f64 {
        let x = if self.logarithmic { x.log10() } else { x };
        let share = (x / 2.0 - self.low / 2.0) / (self.high / 2.0 - self.low / 2.0);
        self.from
            + (self.to - self.from) * if share.is_nan() { 0.5 } else { share.clamp(-0.5, 1.5) }
    }

    /// Round numbers on the axis and how they are written, about `wanted` of them.
    pub fn ticks(&self, wanted: usize) -> Vec<(f64, String)> {
        if self.logarithmic {
            return self.decades(wanted);
        }
        let step = round_step((self.high / 2.0 - self.low / 2.0) / wanted.max(1) as f64 * 2.0);
        if !step.is_finite() || step <= 0.0 || step < 1e-13 * self.low.abs().max(self.high.abs()) {
            return vec![(
                f64::midpoint(self.low, self.high),
                crate::words::number(f64::midpoint(self.low, self.high)),
            )];
        }
        let first = (self.low / step).ceil();
        let places = (-step.log10().floor()).max(0.0) as usize;
        (0..=2 * wanted as u32)
            .map(|k| (first + f64::from(k)) * step)
            .take_while(|x| *x <= self.high)
            .map(|x| {
                (
                    x,
                    if (1e-4..1e6).contains(&step) || x == 0.0 {
                        crate::words::decimals(x, places)
                    } else {
                        plain(x)
                    },
                )
            })
            .collect()
    }

    fn decades(&self, wanted: usize) -> Vec<(f64, String)> {
        let span = self.high - self.low;
        let all = |marks: &[f64], every: i32| -> Vec<(f64, String)> {
            let exponents = (self.low.floor() as i32..=self.high.ceil() as i32)
                .filter(|e| e.rem_euclid(every) == 0);
            let ticks = exponents.flat_map(|e| marks.iter().map(move |m| m * 10f64.powi(e)));
            ticks
                .filter(|x| (self.low..=self.high).contains(&x.log10()))
                .map(|x| (x, plain(x)))
                .collect()
        };
        let every = (span / wanted.max(1) as f64).ceil().max(1.0) as i32;
        if span < 2.2 { all(&[1.0, 2.0, 5.0], 1) } else { all(&[1.0], every) }
    }
}

/// A round number without the zeros at its end; a power of ten without a factor of 1.
fn plain(x: f64) -> String {
    let text = crate::words::number(x);
    let short = |digits: &str| {
        if digits.contains('.') {
            digits.trim_end_matches('0').trim_end_matches('.').to_owned()
        } else {
            digits.to_owned()
        }
    };
    match text.split_once('·') {
        None => short(&text),
        Some((digits, power)) if short(digits) == "1" => power.to_owned(),
        Some((digits, power)) => format!("{}·{power}", short(digits)),
    }
}

/// The least and largest of the finite numbers.
pub fn range(values: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    let finite = values.into_iter().filter(|x| x.is_finite());
    finite.fold(None, |known: Option<(f64, f64)>, x| {
        Some(known.map_or((x, x), |(low, high)| (low.min(x), high.max(x))))
    })
}

/// 1, 2 or 5 times a power of ten, not below `least`.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|k| k * power)
        .into_iter()
        .find(|step| *step >= least * 0.999_999)
        .unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_finite_and_ticks_round() {
        let scale = Scale::between(0.0, 10.0, 100.0, 200.0);
        assert_eq!(
            [scale.at(0.0), scale.at(5.0), scale.at(10.0), scale.at(1e300)],
            [100.0, 150.0, 200.0, 250.0]
        );
        assert_eq!(
            scale.ticks(5).into_iter().map(|t| t.0).collect::<Vec<_>>(),
            [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
        );
        for values in [
            vec![3.0],
            vec![0.0],
            vec![f64::MIN, f64::MAX],
            vec![1e-320, 2e-320],
            vec![-1e9, f64::NAN, f64::INFINITY],
        ] {
            let scale = Scale::around(values.clone(), 0.0, 1.0).unwrap();
            assert!(values.iter().all(|x| scale.at(*x).is_finite()), "{values:?}");
            assert!((1..=11).contains(&scale.ticks(5).len()), "{values:?}: {:?}", scale.ticks(5));
        }
        assert!(Scale::around([f64::NAN], 0.0, 1.0).is_none());
    }

    #[test]
    fn logarithms_have_decades() {
        let scale = Scale::logarithmic([1.0, 1e4, 0.0, -3.0, f64::NAN], 0.0, 1.0).unwrap();
        assert_eq!(
            scale.ticks(5).into_iter().map(|t| t.0).collect::<Vec<_>>(),
            [1.0, 10.0, 100.0, 1e3, 1e4]
        );
        assert!(scale.at(0.0).is_finite() && scale.at(f64::NAN).is_finite());
    }

    #[test]
    fn ticks_are_short() {
        assert_eq!(
            [1e-4, 5e-5, 2.5e7, 0.5, 20.0].map(plain),
            ["10⁻⁴", "5·10⁻⁵", "2.5·10⁷", "0.5", "20"]
        );
    }
}
