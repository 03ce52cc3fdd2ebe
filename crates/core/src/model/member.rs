//! Ask a model of several clients for one of them alone, and take no answer that is no number.

use std::sync::Arc;

use thiserror::Error;

use super::{EvaluationError, Evaluator, Model, Offers};
use crate::ask::{Ask, Sum};
use crate::rng::ClientId;

/// One client of a model, for a party that is that client alone. Whoever asks it means that client,
/// whatever number the client has elsewhere.
///
/// What the model does not offer, and what is no finite number, is refused with what was asked and
/// where: another party must not be sent it.
#[derive(Debug)]
pub struct Member {
    model: Arc<dyn Model>,
    client: ClientId,
}

impl Member {
    /// The client that has this number in the model; `None`: it has no such client.
    pub fn new(model: Arc<dyn Model>, client: ClientId) -> Option<Self> {
        (client.index() < model.clients()).then_some(Member { model, client })
    }
}

impl Model for Member {
    fn dim(&self) -> usize {
        self.model.dim()
    }

    fn rows(&self) -> usize {
        self.model.rows_of(self.client)
    }

    fn offers(&self) -> Offers {
        self.model.offers()
    }

    fn evaluator(self: Arc<Self>) -> Box<dyn Evaluator> {
        let inner = Arc::clone(&self.model).evaluator();
        let (dim, offers) = (self.dim(), self.model.offers());
        Box::new(Renamed { inner, client: self.client, dim, offers })
    }

    fn host(&self, work: &mut (dyn FnMut() + Send)) {
        self.model.host(work);
    }
}

/// Why what a model says goes no further.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum Unusable {
    /// It is asked for what it does not offer.
    #[error(
        "it is asked for {asked}, which it does not offer: use a sampler and settings that need \
         gradients alone"
    )]
    NotOffered {
        /// What it is asked for.
        asked: &'static str,
    },
    /// A number is NaN or infinite.
    #[error("{asked} is {value} in coordinate {} at {point:?}", .coordinate + 1)]
    NotFinite {
        /// What it was asked for.
        asked: &'static str,
        /// The number.
        value: f64,
        /// Where it stands in the answer.
        coordinate: usize,
        /// The point.
        point: Vec<f64>,
    },
}

#[derive(Debug)]
struct Renamed {
    inner: Box<dyn Evaluator>,
    client: ClientId,
    dim: usize,
    offers: Offers,
}

impl Renamed {
    fn offers(&self, sum: &Sum<'_>) -> bool {
        match sum {
            Sum::Gradient { .. } | Sum::Difference { .. } => true,
            Sum::Value { .. } | Sum::GradientAndValue { .. } => self.offers.values,
            Sum::HessianVector { .. } | Sum::Hessian { .. } | Sum::Average { .. } => {
                self.offers.hessians
            }
        }
    }
}

impl Evaluator for Renamed {
    fn answer(&mut self, asks: &mut [Ask<'_>]) -> Result<(), EvaluationError> {
        if let Some(ask) = asks.iter().find(|ask| !self.offers(&ask.sum)) {
            return Err(Unusable::NotOffered { asked: ask.sum.name() }.into());
        }
        asks.iter_mut().for_each(|ask| ask.client = self.client);
        self.inner.answer(asks)?;
        for ask in asks {
            if let Some(at) = ask.out.iter().position(|value| !value.is_finite()) {
                let (asked, value, width) =
                    (ask.sum.name(), ask.out[at], ask.sum.width(self.dim).max(1));
                let mut points = ask.sum.points().chunks(self.dim.max(1));
                let point = points.nth(at / width).unwrap_or_default().to_vec();
                let coordinate = at % width;
                return Err(Unusable::NotFinite { asked, value, coordinate, point }.into());
            }
        }
        Ok(())
    }
}

impl From<Unusable> for EvaluationError {
    fn from(unusable: Unusable) -> Self {
        EvaluationError(Box::new(unusable))
    }
}
