//! Add a known number to a row's predictor, and let it count more or less than once.

use super::ExtendedLoss;
use crate::error::DataError;

/// Offsets and weights of rows: what a row contributes is `w_j loss(a_j . x + o_j, s, y_j)`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Adjustment {
    /// What is added to the predictor of each row; empty: nothing.
    offset: Vec<f64>,
    /// How often each row counts; empty: once.
    weights: Vec<f64>,
}

impl Adjustment {
    /// From one offset and one weight a row; an empty list is one of zeros, or of ones.
    pub fn new(offset: Vec<f64>, weights: Vec<f64>) -> Result<Self, DataError> {
        if let Some(row) = offset.iter().position(|o| !o.is_finite()) {
            let (label, allowed) = (offset[row], "finite numbers, as offsets".into());
            return Err(DataError::Label { row, label, allowed });
        }
        if let Some(row) = weights.iter().position(|w| !(w.is_finite() && *w >= 0.0)) {
            let (label, allowed) = (weights[row], "finite numbers from 0, as weights".into());
            return Err(DataError::Label { row, label, allowed });
        }
        Ok(Adjustment { offset, weights })
    }

    /// Whether rows are taken as they are.
    pub fn is_none(&self) -> bool {
        self.offset.is_empty() && self.weights.is_empty()
    }

    /// Refuse lists that are not of so many rows.
    pub(super) fn check(&self, rows: usize) -> Result<(), DataError> {
        let wrong = |list: &&Vec<f64>| !list.is_empty() && list.len() != rows;
        match [&self.offset, &self.weights].into_iter().find(wrong) {
            Some(list) => Err(DataError::Responses { responses: list.len(), rows }),
            None => Ok(()),
        }
    }

    /// The predictor of a row, given that of its columns.
    #[inline(always)]
    fn predictor(&self, row: usize, t: f64) -> f64 {
        self.offset.get(row).map_or(t, |offset| t + offset)
    }

    /// A row's loss, given the predictor of its columns.
    #[inline(always)]
    pub(super) fn loss<L: ExtendedLoss>(
        &self,
        of: &L,
        row: usize,
        t: f64,
        beside: &[f64],
        y: f64,
    ) -> f64 {
        let loss = of.loss(self.predictor(row, t), beside, y);
        self.weights.get(row).map_or(loss, |weight| weight * loss)
    }

    /// The same for many predictors, which become losses.
    #[inline(always)]
    pub(super) fn losses<L: ExtendedLoss>(
        &self,
        of: &L,
        row: usize,
        t: &mut [f64],
        beside: &[f64],
        y: f64,
    ) {
        t.iter_mut().for_each(|t| *t = self.predictor(row, *t));
        of.losses(t, beside, y);
        if let Some(weight) = self.weights.get(row) {
            t.iter_mut().for_each(|loss| *loss *= weight);
        }
    }

    /// Its derivatives: see [`ExtendedLoss::derive`].
    #[inline(always)]
    pub(super) fn derive<L: ExtendedLoss>(
        &self,
        of: &L,
        row: usize,
        (t, beside, y): (f64, &[f64], f64),
        slopes: &mut [f64],
        bends: &mut [f64],
    ) {
        of.derive(self.predictor(row, t), beside, y, slopes, bends);
        if let Some(weight) = self.weights.get(row) {
            slopes.iter_mut().chain(bends).for_each(|value| *value *= weight);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::regression::tests::Bernoulli;
    use super::super::tests::normals;
    use super::super::{Design, Extended, GroupEffects, Model, Single, Unextended, contract};
    use super::*;

    const ROWS: usize = 13;

    fn responses() -> Vec<f64> {
        (0..ROWS).map(|j| f64::from(u8::from(j % 3 == 0))).collect()
    }

    fn adjusted() -> Adjustment {
        Adjustment::new(normals(5, ROWS), (0..ROWS).map(|j| (j % 4) as f64).collect()).unwrap()
    }

    #[test]
    fn adjusted_models_keep_what_models_promise() {
        let design = || Design::dense(normals(1, 2 * ROWS), 2).unwrap();
        let plain = Extended::new(design(), responses(), Unextended(Bernoulli)).unwrap();
        let groups: Vec<u32> = (0..ROWS as u32).map(|j| j % 3).collect();
        let grouped =
            GroupEffects::new(design(), responses(), Unextended(Bernoulli), &groups).unwrap();
        let models: [Arc<dyn Model>; 2] = [
            Arc::new(plain.adjusted(adjusted()).unwrap()),
            Arc::new(grouped.adjusted(adjusted()).unwrap()),
        ];
        for model in models {
            contract::check(&model).unwrap_or_else(|broken| panic!("{broken}"));
        }
    }

    /// An offset is a column whose coefficient is 1, and a weight of 3 is a row that stands there
    /// three times.
    #[test]
    fn offsets_are_columns_and_weights_are_copies() {
        let (cells, y, Adjustment { offset, weights }) =
            (normals(1, 2 * ROWS), responses(), adjusted());
        let (mut wide, mut copies, mut of_groups) = (Vec::new(), Vec::new(), Vec::new());
        let groups: Vec<u32> = (0..ROWS as u32).map(|j| j % 3).collect();
        for j in 0..ROWS {
            for _ in 0..weights[j] as usize {
                wide.extend([cells[2 * j], cells[2 * j + 1], offset[j]]);
                copies.push(y[j]);
                of_groups.push(groups[j]);
            }
        }
        let wide = Design::dense(wide, 3).unwrap();
        let narrow = Design::dense(cells, 2).unwrap();
        let loss = Unextended(Bernoulli);
        let plain: [Arc<dyn Model>; 2] = [
            Arc::new(Extended::new(wide.clone(), copies.clone(), loss).unwrap()),
            Arc::new(GroupEffects::new(wide, copies, loss, &of_groups).unwrap()),
        ];
        let extended = Extended::new(narrow.clone(), y.clone(), loss).unwrap();
        let in_groups = GroupEffects::new(narrow, y, loss, &groups).unwrap();
        let adjusted: [Arc<dyn Model>; 2] = [
            Arc::new(extended.adjusted(adjusted()).unwrap()),
            Arc::new(in_groups.adjusted(self::adjusted()).unwrap()),
        ];
        for (plain, adjusted) in plain.iter().zip(&adjusted) {
            let x = normals(2, 3);
            let wide = [&x[..2], &[1.0], &x[2..2 + plain.dim() - 3]].concat();
            let short = &x[..adjusted.dim()];
            let (mut plain, mut adjusted) = (Single::new(plain), Single::new(adjusted));
            let (a, b) = (plain.value(&wide), adjusted.value(short));
            assert!((a - b).abs() < 1e-12 * a.abs(), "{a} is not {b}");
            let (mut a, b) = (plain.gradient(&wide), adjusted.gradient(short));
            a.remove(2);
            for (a, b) in a.iter().zip(&b) {
                assert!((a - b).abs() < 1e-11, "{a} is not {b}");
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert!(Adjustment::new(vec![f64::NAN], Vec::new()).is_err());
        let wrong = Adjustment::new(Vec::new(), vec![1.0, -1.0]).unwrap_err().to_string();
        assert_eq!(
            wrong,
            "row 1 has the label -1: labels must be finite numbers from 0, as weights"
        );
        let design = Design::dense(vec![1.0, 2.0], 1).unwrap();
        let model = Extended::new(design, vec![0.0, 1.0], Unextended(Bernoulli)).unwrap();
        let short = Adjustment::new(vec![1.0], Vec::new()).unwrap();
        assert!(model.adjusted(short).is_err());
        assert!(Adjustment::default().is_none());
    }
}
