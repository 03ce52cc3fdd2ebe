//! Make a client when it is first needed.
//!
//! Where few of many clients take part, most have nothing to remember yet: until its first order a
//! client is its number and no more. It is then made as it would have been at the start, so the
//! chain is the same, bit for bit.

use std::cell::OnceCell;
use std::sync::Arc;

use super::recipe::Recipe;
use super::{Keys, local, uplink};
use crate::ask::Question;
use crate::compress::Channel;
use crate::error::DataError;
use crate::protocol::{Device, Order, Reply, Workspace};
use crate::rng::ClientId;
use crate::snapshot::{SnapshotError, State, Visit};
use crate::target::{Site, Target};

/// What all clients of a chain are made from.
struct Maker {
    recipe: Recipe,
    target: Arc<Target>,
    keys: Keys,
    /// One for all, or one for each.
    channels: Vec<Option<Channel>>,
}

impl Maker {
    fn make(&self, id: ClientId) -> Box<dyn Device> {
        let channel =
            if self.channels.len() == 1 { self.channels[0] } else { self.channels[id.index()] };
        match &self.recipe {
            Recipe::Uplink(recipe) => {
                Box::new(uplink::Client::over(recipe, &self.target, id, self.keys, channel))
            }
            Recipe::Local(recipe) => {
                Box::new(local::Client::over(recipe, &self.target, id, self.keys, channel))
            }
        }
    }
}

impl Recipe {
    /// All clients of a chain, each made when it is first needed. The target must have passed
    /// [`Recipe::check`].
    pub fn clients(
        &self,
        target: &Arc<Target>,
        keys: Keys,
    ) -> Result<Vec<Box<dyn Device>>, DataError> {
        let channels = match self {
            Recipe::Uplink(recipe) => {
                let different = if recipe.up.len() > 1 { target.clients.len() } else { 1 };
                (0..different).map(|i| recipe.up_channel(i, target)).collect::<Result<_, _>>()?
            }
            Recipe::Local(recipe) => vec![recipe.up_channel(target.dim())?],
        };
        let maker =
            Arc::new(Maker { recipe: self.clone(), target: Arc::clone(target), keys, channels });
        let asleep = |i| -> Box<dyn Device> {
            Box::new(Lazy { id: ClientId(i), maker: Arc::clone(&maker), made: OnceCell::new() })
        };
        Ok((0..target.clients.len() as u32).map(asleep).collect())
    }
}

/// A client, made or not.
struct Lazy {
    id: ClientId,
    maker: Arc<Maker>,
    made: OnceCell<Box<dyn Device>>,
}

impl Lazy {
    fn awake(&self) -> &dyn Device {
        &**self.made.get_or_init(|| self.maker.make(self.id))
    }

    fn awake_mut(&mut self) -> &mut Box<dyn Device> {
        self.awake();
        match self.made.get_mut() {
            Some(device) => device,
            None => unreachable!("it was made in the line above"),
        }
    }
}

impl Device for Lazy {
    fn accepts(&self, order: &Order<'_>) -> bool {
        self.awake().accepts(order)
    }

    fn begin(&mut self, order: &Order<'_>) {
        self.awake_mut().begin(order);
    }

    fn question(&mut self) -> Option<(&mut Site, Question<'_>)> {
        self.awake_mut().question()
    }

    fn proceed(&mut self) {
        self.awake_mut().proceed();
    }

    fn reply(&mut self) -> Reply<'_> {
        self.awake_mut().reply()
    }

    fn rows_evaluated(&self) -> u64 {
        self.made.get().map_or(0, |device| device.rows_evaluated())
    }

    fn workspace(&mut self) -> Option<&mut Option<Box<Workspace>>> {
        self.awake_mut().workspace()
    }

    fn answer(&mut self, order: &Order<'_>) -> Reply<'_> {
        self.awake_mut().answer(order)
    }
}

/// That of the client itself, so that snapshots do not depend on who has taken part; to be saved,
/// all are made.
impl State for Lazy {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        self.awake_mut().state(visit)
    }
}
