//! Make a client when it is first needed.
//!
//! Where few of many clients take part, most have nothing to remember yet: until its first order a
//! client is its number and no more. It is then made as it would have been at the start, so the
//! chain is the same, bit for bit.

use std::any::Any;
use std::cell::OnceCell;
use std::sync::Arc;

use super::Keys;
use super::recipe::Recipe;
use crate::ask::Question;
use crate::compress::Channel;
use crate::error::DataError;
use crate::model::Evaluator;
use crate::protocol::{Carrier, Device, Order, Reply, Workspace};
use crate::rng::ClientId;
use crate::snapshot::{SnapshotError, State, Visit};
use crate::target::{Site, Target};
use crate::walk::{Walk, WalkRoom};

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
        let at = if self.channels.len() == 1 { 0 } else { id.index() };
        self.recipe.family().client(&self.target, id, self.keys, self.channels[at].clone())
    }
}

/// A client, made or not.
pub(super) struct Lazy {
    id: ClientId,
    maker: Arc<Maker>,
    made: OnceCell<Box<dyn Device>>,
}

impl Lazy {
    /// All clients of a chain.
    pub(super) fn clients(
        recipe: &Recipe,
        target: &Arc<Target>,
        keys: Keys,
    ) -> Result<Vec<Box<dyn Device>>, DataError> {
        let channels = recipe.family().channels(target)?;
        let (recipe, target) = (recipe.clone(), Arc::clone(target));
        let clients = target.clients.len() as u32;
        let maker = Arc::new(Maker { recipe, target, keys, channels });
        let asleep = |i| -> Box<dyn Device> {
            Box::new(Lazy { id: ClientId(i), maker: Arc::clone(&maker), made: OnceCell::new() })
        };
        Ok((0..clients).map(asleep).collect())
    }

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

    fn walk(&mut self) -> Option<(Walk<'_>, &mut dyn Evaluator, &mut WalkRoom)> {
        self.awake_mut().walk()
    }

    fn walked(&mut self) {
        self.awake_mut().walked();
    }

    fn carrier(&self) -> Option<Carrier> {
        self.awake().carrier()
    }

    fn as_any(&mut self) -> Option<&mut dyn Any> {
        self.awake_mut().as_any()
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
