//! Answer what a server asks, by the site's own rows and its own noise.

use std::sync::Arc;

use consilience_core::model::Coordinates;
use consilience_core::protocol::{Client, Device, Format, OrderRefusal, Precision, Statement};
use consilience_core::rng::{ClientId, Seed};
use consilience_core::sampler::Keys;
use consilience_core::snapshot::{self, SnapshotError};
use consilience_core::survey;
use consilience_core::target::Target;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::words::{self, Ask, CHAINS, Packet, Tell, WORDS};
use crate::config::{Config, ConfigError, ModelConfig, Seeds};
use crate::plan::Decision;
use crate::problem::Problem;
use crate::site::{Agreement, LocalSite, names};

/// Why a site does not answer. Nothing changed.
#[derive(Debug, Error)]
pub enum NotAnswered {
    /// The config or the rows are wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The server says something that makes no sense, or not now.
    #[error("{0}")]
    Disagree(String),
    /// An order is refused.
    #[error(transparent)]
    Refused(#[from] OrderRefusal),
    /// A sampler cannot be made.
    #[error(transparent)]
    Data(#[from] consilience_core::error::DataError),
    /// A state does not fit.
    #[error(transparent)]
    State(#[from] SnapshotError),
}

/// One site of a run.
pub struct Site {
    config: Config,
    local: LocalSite,
    private: [u8; 32],
    agreed: Option<(Agreement, Problem)>,
    /// The coordinates as they were told, and the target in them.
    moved: Option<(Ask, Target)>,
    survey: Option<(u32, Client<survey::Client>)>,
    chains: Option<(Decision, Chains)>,
}

/// This site's side of every chain.
type Chains = Vec<Client<Box<dyn Device>>>;

/// What a site must remember beside its clients' states.
#[derive(Default, Serialize, Deserialize)]
struct Kept {
    private: [u8; 32],
    agreement: Option<Agreement>,
    moved: Option<Ask>,
    survey: Option<u32>,
    decision: Option<Decision>,
}

impl Site {
    /// The site of this name. `private` is the seed of its own noise: from its operating system, and used for one run alone; where the config says `seeds = "simulation"` it is not used.
    pub fn new(config: Config, name: &str, private: [u8; 32]) -> Result<Site, NotAnswered> {
        let all = names(&config)?;
        let missing = || NotAnswered::Disagree(format!("there is no site \"{name}\": the config has {}", all.join(", ")));
        let index = all.iter().position(|known| known == name).ok_or_else(missing)?;
        let local = match &config.target.model {
            ModelConfig::Builtin(_) => LocalSite::open_all(&config)?.swap_remove(index),
            _ => LocalSite::open(&config, index, None)?,
        };
        Ok(Site { config, local, private, agreed: None, moved: None, survey: None, chains: None })
    }

    /// Answer one message. The same message again gets the same answer.
    pub fn answer(&mut self, bytes: &[u8]) -> Result<Vec<u8>, NotAnswered> {
        if bytes.first() == Some(&WORDS) {
            return Ok(words::write(&self.told(words::read(bytes).map_err(NotAnswered::Disagree)?)?));
        }
        let packet = Packet::read(bytes).map_err(NotAnswered::Disagree)?;
        let mut answer = Packet::new(packet.phase);
        for (chain, order) in packet.items {
            let mut out = Vec::new();
            if packet.phase == CHAINS {
                let early = || NotAnswered::Disagree("the server gave an order for a chain that does not exist".into());
                let client = self.chains.as_mut().and_then(|(_, chains)| chains.get_mut(chain as usize)).ok_or_else(early)?;
                client.handle(&order, &mut out)?;
            } else {
                self.surveyed(packet.phase)?.handle(&order, &mut out)?;
            }
            answer.push(chain, out);
        }
        Ok(answer.bytes())
    }

    fn id(&self) -> ClientId {
        ClientId(self.local.index() as u32)
    }

    fn target(&self) -> Result<&Target, NotAnswered> {
        let early = || NotAnswered::Disagree("the server asked before all had agreed".into());
        self.moved.as_ref().map(|(_, target)| target).or(self.agreed.as_ref().map(|(_, problem)| &problem.target)).ok_or_else(early)
    }

    fn surveyed(&mut self, phase: u32) -> Result<&mut Client<survey::Client>, NotAnswered> {
        if self.survey.as_ref().is_none_or(|(known, _)| *known != phase) {
            let target = self.target()?;
            let format = Format::plain(target.dim(), Precision::F64);
            self.survey = Some((phase, Client::new(survey::Client::new(target, self.id()), format)));
        }
        match &mut self.survey {
            Some((_, client)) => Ok(client),
            None => Err(NotAnswered::Disagree("there is no survey".into())), // it was made above
        }
    }

    fn told(&mut self, ask: Ask) -> Result<Tell, NotAnswered> {
        Ok(match ask {
            Ask::Introduce => Tell::Introduction(self.local.introduce(&self.config)?),
            Ask::Agree { agreement, statement } => {
                self.agree(agreement, Some(&statement))?;
                Tell::Done
            }
            Ask::MoveTo { .. } => {
                self.move_to(ask)?;
                Tell::Done
            }
            Ask::Decide(decision) => {
                self.decide(decision)?;
                Tell::Done
            }
            Ask::Finish => {
                Tell::Finished(self.chains.iter().flat_map(|(_, chains)| chains.iter().map(|c| c.device().rows_evaluated())).collect())
            }
        })
    }

    /// Check that server and site mean the same target.
    fn agree(&mut self, agreement: Agreement, statement: Option<&str>) -> Result<(), NotAnswered> {
        if self.agreed.as_ref().is_some_and(|(known, _)| *known == agreement) {
            return Ok(());
        }
        if self.chains.is_some() {
            return Err(NotAnswered::Disagree("the server agreed on something else before".into()));
        }
        let problem = Problem::of_site(&self.config, &self.local, &agreement)?;
        if let Some(statement) = statement {
            let who = format!("site \"{}\"", self.local.name());
            let checked = Statement::written(statement).check(&problem.statement, &who);
            checked.map_err(|mismatch| NotAnswered::Disagree(mismatch.to_string()))?;
        }
        self.agreed = Some((agreement, problem));
        Ok(())
    }

    fn move_to(&mut self, ask: Ask) -> Result<(), NotAnswered> {
        if self.moved.as_ref().is_some_and(|(known, _)| *known == ask) {
            return Ok(());
        }
        let (Ask::MoveTo { centre, matrix, share }, Some((_, problem)), None) = (&ask, &self.agreed, &self.chains) else {
            return Err(NotAnswered::Disagree("the server moved to other coordinates out of turn".into()));
        };
        let target = &problem.target;
        let coordinates = Coordinates::told(centre.clone(), matrix.clone()).filter(|c| c.dim() == target.dim());
        let coordinates = coordinates.ok_or_else(|| NotAnswered::Disagree("the server told coordinates that are none".into()))?;
        let mut shares = vec![0.0; target.clients.len()];
        shares[self.local.index()] = *share;
        let moved = target.whitened(&Arc::new(coordinates), &shares);
        self.moved = Some((ask, moved));
        Ok(())
    }

    fn decide(&mut self, decision: Decision) -> Result<(), NotAnswered> {
        match &self.chains {
            Some((known, _)) if *known == decision => return Ok(()),
            Some(_) => return Err(NotAnswered::Disagree("the server decided otherwise before".into())),
            None => {}
        }
        let (recipe, target) = decision.recipe(&self.config, self.target()?.clone())?;
        let public = Seed::new(self.config.seed);
        let private = if self.config.seeds == Seeds::Simulation { public } else { Seed::from_bytes(self.private) };
        let mut chains = Vec::new();
        for chain in 0..self.config.run.chains as u32 {
            let keys = Keys { public: public.chain(chain), private: private.chain(chain) };
            chains.push(Client::new(recipe.client(&target, self.id(), keys)?, recipe.format(&target, keys)?));
        }
        self.survey = None;
        self.chains = Some((decision, chains));
        Ok(())
    }

    /// Everything that the next answer needs, but for the config and the rows. It holds the seed of the site's noise: keep it where the rows are kept.
    pub fn save(&mut self) -> Vec<u8> {
        let kept = Kept {
            private: self.private,
            agreement: self.agreed.as_ref().map(|(agreement, _)| agreement.clone()),
            moved: self.moved.as_ref().map(|(ask, _)| ask.clone()),
            survey: self.survey.as_ref().map(|(phase, _)| *phase),
            decision: self.chains.as_ref().map(|(decision, _)| decision.clone()),
        };
        let mut all = Packet::new(CHAINS);
        all.push(0, words::write(&kept));
        all.items.extend(self.survey.iter_mut().map(|(_, client)| (0, snapshot::save(client))));
        all.items.extend(self.chains.iter_mut().flat_map(|(_, chains)| chains.iter_mut().map(|client| (0, snapshot::save(client)))));
        all.bytes()
    }

    /// The same site, brought to where a state was saved.
    pub fn restored(mut self, state: &[u8]) -> Result<Site, NotAnswered> {
        let damaged = |why: String| NotAnswered::Disagree(format!("the site's state is damaged: {why}"));
        let mut items = Packet::read(state).map_err(damaged)?.items.into_iter().map(|(_, bytes)| bytes);
        let kept: Kept = words::read(&items.next().unwrap_or_default()).map_err(damaged)?;
        self.private = kept.private;
        if let Some(agreement) = kept.agreement {
            self.agree(agreement, None)?;
        }
        if let Some(moved) = kept.moved {
            self.move_to(moved)?;
        }
        if let Some(decision) = kept.decision {
            self.decide(decision)?;
        }
        if let Some(phase) = kept.survey {
            snapshot::restore(self.surveyed(phase)?, &items.next().unwrap_or_default())?;
        }
        for client in self.chains.iter_mut().flat_map(|(_, chains)| chains) {
            snapshot::restore(client, &items.next().unwrap_or_default())?;
        }
        Ok(self)
    }
}
