//! Do a site's part: answer what the server asks, by the site's own rows and its own noise. It
//! neither sends nor waits.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use consilience_core::model::{ByGradients, Coordinates, Model, RowReach, Single, Unusable};
use consilience_core::protocol::{
    Client, Device, Format, Masks, OrderRefusal, PairSecret, Precision, Statement, kept_answers,
};
use consilience_core::rng::{ClientId, Seed};
use consilience_core::sampler::{Keys, Recipe};
use consilience_core::survey;
use consilience_core::target::Target;
use consilience_engine::config::{Config, ConfigError, Source};
use consilience_engine::plan::Decision;
use consilience_engine::privacy;
use consilience_engine::problem::Problem;
use consilience_engine::reference::rows_digest;
use consilience_engine::site::{Agreement, LocalSite, Own, names};
use consilience_engine::site_effects::{EFFECTS_FILE, EffectsLaw};
use consilience_engine::statement;
use consilience_engine::store::{
    Disk, DurableClient, Folder, Payment, Purse, PurseError, StoreError, private_seed,
};
use sha2::{Digest, Sha256};
use thiserror::Error;
use tracing::{info, warn};

use crate::audit::Signature;
use crate::certs::{Papers, name_of_site};
use crate::frame::{ASIDE, Frame, MESSAGE};
use crate::serve::{STATEMENT, again};
use crate::sum::SumSecret;
use crate::talk::{
    Farewell, How, Instruction, PROTOCOL, Tell, VERSION, Versions, Welcome, strangers,
};

/// How many coordinates of a point are shown, and how many digits of a hash.
const SHOWN: usize = 6;
const HASH_SHOWN: usize = 12;
/// The file of a site's state that has the hash of its rows.
const ROWS: &str = "rows.sha256";

/// Why a site takes no part, or no more: for whoever runs the site. The server hears
/// [`SiteError::told`].
#[derive(Debug, Error)]
pub enum SiteError {
    /// The data is wrong, or does not go with the config.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The server's config is wrong, whatever the site's rows are.
    #[error(transparent)]
    Stated(ConfigError),
    /// The rows are others than when the site joined first.
    #[error("{0}")]
    OtherRows(String),
    /// The server and the site do not mean the same. No word of this is made of rows.
    #[error("{0}")]
    Disagree(String),
    /// The server turns the site away.
    #[error("the server refuses this site: {0}")]
    Refused(String),
    /// State cannot be kept.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The model that the site brings gave no answer, or one that nobody can use.
    #[error("the model of site \"{site}\" gave no answer: {why}")]
    Model {
        /// Which site.
        site: String,
        /// What was asked, where, and what came.
        why: String,
    },
    /// A sampler cannot be made.
    #[error(transparent)]
    Data(#[from] consilience_core::error::DataError),
}

impl SiteError {
    /// What the server is told. What is wrong with rows is said by its kind alone: a server that
    /// states the model could choose what a longer text gives away.
    pub fn told(&self) -> String {
        const WHERE: &str = "what it is stands on its own screen and in its log";
        match self {
            SiteError::Config(_) => format!(
                "its data cannot be read, or does not go with what the config states: {WHERE}"
            ),
            SiteError::OtherRows(_) => "its rows, as the config codes them, have changed since it \
                joined this run: give it back the rows and the config that it had, or start the \
                run anew"
                .into(),
            SiteError::Model { .. } => {
                format!("its model gave no answer, or one that is no number: {WHERE}")
            }
            SiteError::Data(_) => format!("its part of the sampler cannot be made: {WHERE}"),
            SiteError::Store(error) => error.told(),
            SiteError::Stated(_) | SiteError::Disagree(_) | SiteError::Refused(_) => {
                self.to_string()
            }
        }
    }
}

/// What a site brings.
#[derive(Clone, Debug)]
pub struct Brings {
    /// Its name.
    pub site: String,
    /// Its rows.
    pub data: Own,
    /// The config that it agreed to, if it insists on one.
    pub expects: Option<Config>,
    /// Where it keeps its state; without it, a site that dies cannot come back.
    pub state: Option<PathBuf>,
    /// How many rounds ahead it reserves instead of syncing every answer; `None`: every answer is
    /// durable before it leaves.
    pub reserve: Option<u64>,
    /// Whether the server may know its noise.
    pub allows_simulation: bool,
    /// What it may tell of one row in all its runs together: epsilon and delta. Without it, it
    /// takes no part in runs that have a privacy budget; with it, in no others.
    pub budget: Option<(f64, f64)>,
    /// What it signs the agreement with, and by what other sites know that a key is this site's:
    /// without it, it takes no part in runs with a secure sum.
    pub papers: Option<Papers>,
    /// Who is shown what all agree on, before this site takes part and again with what surveys
    /// found.
    pub shows: Option<fn(&Statement)>,
}

impl Brings {
    /// A site with these rows, which keeps nothing and whose noise is its own.
    pub fn new(site: &str, data: Own) -> Brings {
        Brings {
            site: site.to_owned(),
            data,
            expects: None,
            state: None,
            reserve: None,
            allows_simulation: false,
            budget: None,
            papers: None,
            shows: None,
        }
    }

    /// Refuse a run without a privacy budget where the site has one for all its runs: nothing that
    /// it would be asked for has noise of its own, and nothing would be counted.
    fn keeps_budget(&self, config: &Config, simulation: bool) -> Result<(), SiteError> {
        match (&config.privacy, self.budget) {
            (Some(_), _) => self.can_keep_count(simulation),
            (None, None) => Ok(()),
            (None, Some((epsilon, delta))) => Err(SiteError::Disagree(format!(
                "this site has a budget of epsilon {epsilon}, delta {delta:e} for all its runs \
                 (--budget; in Python and with Flower budget), and the server's config has no \
                 [privacy]: the run would be told exact functions of its rows, uncounted. Have \
                 [privacy] stated in the config; or join without a budget"
            ))),
        }
    }

    /// Refuse a run with a privacy budget where what was told could not be counted.
    fn can_keep_count(&self, simulation: bool) -> Result<(), SiteError> {
        let missing = match (&self.state, &self.budget) {
            _ if simulation => {
                "the config says seeds = \"simulation\", and so everybody knows this site's noise"
            }
            (None, _) => {
                "this site has no state folder to count in what it has told: join with --state"
            }
            (_, None) => {
                "this site has not said what it may tell in all its runs together: join with \
                 --budget, e.g. --budget 6,1e-5 (in Python budget=(6, 1e-5), with Flower the \
                 node's budget = \"6,1e-5\")"
            }
            _ => return Ok(()),
        };
        let why = format!("the run has a privacy budget, and {missing}");
        Err(SiteError::Disagree(why))
    }
}

/// A site at work.
pub struct Worker {
    brings: Brings,
    run: Option<Run>,
    /// The server's last words.
    farewell: Option<Farewell>,
}

/// What a frame led to.
#[derive(Debug)]
pub enum Did {
    /// Send this, if anything.
    Said(Option<Frame>),
    /// The run is over.
    Over {
        /// Whether it came to its end.
        finished: bool,
    },
}

/// What the site knows of the run.
struct Run {
    welcome: Welcome,
    config: Config,
    local: LocalSite,
    agreed: Option<(Agreement, Problem)>,
    /// The coordinates as they were told, and the target in them.
    moved: Option<(Instruction, Target)>,
    /// Whether the server, which may have started anew, has told them on this connection.
    is_there: bool,
    survey: Option<(u32, Client<survey::Client>)>,
    chains: Option<(Decision, Vec<Chain>)>,
    /// The seed of this site's own noise.
    private: Option<Seed>,
    /// What this site shares with every other one, where answers are hidden in a sum.
    shared: Option<Vec<(ClientId, PairSecret)>>,
    finished: bool,
    /// The effects of its own groups, as far as draws were told.
    effects: Option<OwnEffects>,
}

/// The effects of a site's own groups, while draws are told; none of it is told.
struct OwnEffects {
    law: EffectsLaw,
    /// Given every draw so far.
    drawn: Vec<Vec<f64>>,
    /// Where they are kept, once they are.
    kept: Option<PathBuf>,
}

/// What is said to a server that asks too early.
fn early() -> SiteError {
    SiteError::Disagree("the server asked before all had agreed".into())
}

/// One chain at this site.
enum Chain {
    Fleeting(Box<Client<Box<dyn Device>>>),
    Durable(Box<DurableClient<Folder, Box<dyn Device>>>),
}

impl Chain {
    fn answered(&self) -> u64 {
        self.client().answered()
    }

    fn rows_evaluated(&self) -> u64 {
        self.client().device().rows_evaluated()
    }

    /// The same, as it was with the answer that was given last.
    fn told_rows(&self) -> u64 {
        self.client().told_rows()
    }

    fn client(&self) -> &Client<Box<dyn Device>> {
        match self {
            Chain::Fleeting(client) => client,
            Chain::Durable(client) => client.client(),
        }
    }
}

impl Worker {
    /// A site that brings this.
    pub fn new(brings: Brings) -> Worker {
        Worker { brings, run: None, farewell: None }
    }

    /// Whether the server has asked for the last count: all draws are there then.
    pub fn has_finished(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.finished)
    }

    /// Whether a server has welcomed it to a run.
    pub(crate) fn is_welcomed(&self) -> bool {
        self.run.is_some()
    }

    /// How the run ended and where its draws are, once the server has said so.
    pub fn ended(&self) -> Farewell {
        self.farewell.clone().unwrap_or_default()
    }

    /// Where the effects of this site's own groups are, or how it draws them, where the model has
    /// such.
    fn draws_effects(&self) -> Option<String> {
        let run = self.run.as_ref()?;
        run.config.target.model.of_rows()?.group_by()?;
        if let Some(file) = run.effects.as_ref().and_then(|own| own.kept.as_ref()) {
            return Some(format!(
                "the draws of the effects of this site's own groups are in {}, and nowhere else",
                file.display()
            ));
        }
        let Brings { site, data, state, .. } = &self.brings;
        let mut words = vec!["consilience", "effects", "RUN", "--site", site];
        let path = if let Own::File(path) = data { path.to_string_lossy() } else { "".into() };
        if !path.is_empty() {
            words.extend(["--data", &path]);
        }
        let out = state.clone().unwrap_or_default().join(EFFECTS_FILE);
        let out = out.to_string_lossy();
        words.extend(["--out", &out]);
        let line: Vec<String> = words.into_iter().map(word_of_shell).collect();
        Some(format!(
            "{} draws the effects of this site's own groups by its rows and the run's folder RUN, \
             and nobody else can",
            line.join(" ")
        ))
    }

    /// Its first words on every connection.
    pub fn hello(&self) -> Frame {
        Frame::words(
            ASIDE,
            &Tell::Hello {
                version: VERSION.to_owned(),
                site: self.brings.site.clone(),
                protocol: PROTOCOL,
            },
        )
    }

    /// Make what it keeps durable: it is stopped in good order.
    pub fn rest(&mut self) -> Result<(), SiteError> {
        for chain in
            self.run.iter_mut().flat_map(|run| &mut run.chains).flat_map(|(_, chains)| chains)
        {
            if let Chain::Durable(client) = chain {
                client.rest()?;
            }
        }
        Ok(())
    }

    /// Its last words, when the server has said that it is over.
    pub fn farewell() -> Frame {
        Frame::words(ASIDE, &Tell::Done)
    }

    /// What a site says that takes no part.
    pub fn decline(error: &SiteError) -> Frame {
        Frame::words(ASIDE, &Tell::Refused(error.told()))
    }

    /// Do what a frame asks.
    pub fn handle(&mut self, frame: &Frame) -> Result<Did, SiteError> {
        if frame.kind == MESSAGE {
            return self.answer(frame);
        }
        let ask: Instruction = frame.read().map_err(SiteError::Disagree)?;
        let told = match ask {
            Instruction::Welcome(welcome) => {
                self.enter(*welcome)?;
                return Ok(Did::Said(None));
            }
            Instruction::Refused(why) => return Err(SiteError::Refused(why)),
            Instruction::Bye { finished, farewell } => {
                // servers of before say no more than whether it came to its end
                let how = if finished { How::Finished } else { farewell.how };
                let mut says = vec![farewell.says];
                says.extend(self.draws_effects().filter(|_| how != How::Aborted));
                says.retain(|part| !part.is_empty());
                self.farewell = Some(Farewell { how, says: says.join(". ") });
                return Ok(Did::Over { finished });
            }
            ask => {
                let brings = &self.brings;
                let run = self.run.as_mut().ok_or_else(|| {
                    SiteError::Disagree("the server asked before it welcomed".into())
                })?;
                run.told(brings, ask)?
            }
        };
        let phase = if let Tell::At(_) = told { Instruction::phase(frame) } else { frame.phase };
        Ok(Did::Said(Some(Frame::words(phase, &told))))
    }

    /// Whether a message belongs to the survey that is going on.
    pub(crate) fn surveys(&self, frame: &Frame) -> bool {
        self.run
            .as_ref()
            .and_then(|run| run.survey.as_ref())
            .is_some_and(|(phase, _)| *phase == frame.phase)
    }

    /// The server says which run this is.
    fn enter(&mut self, welcome: Welcome) -> Result<(), SiteError> {
        let disagree = |text: String| Err(SiteError::Disagree(text));
        let server = Versions { least: welcome.protocol, most: welcome.protocol };
        if PROTOCOL.common(server).is_none() {
            return disagree(strangers(server, PROTOCOL));
        }
        if welcome.run.len() != 32 || !welcome.run.bytes().all(|b| b.is_ascii_hexdigit()) {
            // it becomes the name of a folder
            return disagree("the server's name for the run is not 32 hexadecimal digits".into());
        }
        if welcome.simulation && !self.brings.allows_simulation {
            return disagree(
                "the config says seeds = \"simulation\": the server could compute this site's \
                 noise, and nothing would be private. \
                 Join with --allow-simulation-seeds if that is meant"
                    .into(),
            );
        }
        if let Some(run) = &mut self.run
            && (&run.welcome.run, &run.welcome.config, run.welcome.simulation)
                == (&welcome.run, &welcome.config, welcome.simulation)
        {
            if run.welcome.boot != welcome.boot {
                run.survey = None; // surveys do not outlive the server
            }
            (run.welcome, run.is_there) = (welcome, false);
            return Ok(());
        }
        let source = Source {
            file: "the server's config".into(),
            folder: ".".into(),
            text: welcome.config.clone(),
        };
        let config = Config::parse(source).map_err(SiteError::Stated)?;
        self.brings.keeps_budget(&config, welcome.simulation)?;
        let names = names(&config).map_err(SiteError::Stated)?;
        if names.get(welcome.index) != Some(&self.brings.site) {
            return disagree(format!(
                "the server takes this site for number {} of {}",
                welcome.index + 1,
                names.join(", ")
            ));
        }
        let local = LocalSite::open(&config, welcome.index, &self.brings.data)?;
        if let Some(shortened) = local.shortened().map(|shortened| shortened.to_string()) {
            info!("{shortened} (the server is not told)");
        }
        info!(run = %welcome.run, sites = names.len(), protocol = welcome.protocol,
            server = %welcome.version, "welcomed");
        self.run = Some(Run {
            welcome,
            config,
            local,
            agreed: None,
            moved: None,
            is_there: false,
            survey: None,
            chains: None,
            private: None,
            shared: None,
            finished: false,
            effects: None,
        });
        Ok(())
    }

    fn answer(&mut self, frame: &Frame) -> Result<Did, SiteError> {
        let run = self.run.as_mut().ok_or_else(|| {
            SiteError::Disagree("the server gave orders before it welcomed".into())
        })?;
        let mut out = Vec::new();
        let chain = frame.chain as usize;
        let refused = match (&mut run.chains, &mut run.survey) {
            (_, Some((phase, client))) if *phase == frame.phase => {
                client.handle(&frame.body, &mut out).err()
            }
            (Some((_, chains)), _) => match chains.get_mut(chain) {
                None => {
                    return Err(SiteError::Disagree(format!(
                        "the server gave an order for chain {}, which does not exist",
                        chain + 1
                    )));
                }
                Some(Chain::Fleeting(client)) => client.handle(&frame.body, &mut out).err(),
                Some(Chain::Durable(client)) => match client.handle(&frame.body, &mut out) {
                    Ok(_) => None,
                    Err(consilience_engine::store::Silence::Refused(refusal)) => Some(refusal),
                    Err(consilience_engine::store::Silence::Store(error)) => {
                        return Err(error.into());
                    }
                },
            },
            _ => {
                return Err(SiteError::Disagree(
                    "the server gave an order before it said what is sampled".into(),
                ));
            }
        };
        match refused {
            None => {
                let rows = run
                    .chains
                    .as_ref()
                    .and_then(|(_, chains)| chains.get(chain))
                    .map_or(0, Chain::told_rows);
                Ok(Did::Said(Some(Frame { rows, ..Frame::message(frame.phase, chain, out) })))
            }
            Some(OrderRefusal::Unanswered { .. }) => Err(run.failed(&self.brings.site, frame)),
            // A strict run waits for this answer, and nobody can give it any more.
            Some(refusal @ OrderRefusal::Used { .. })
                if self.brings.reserve.is_some() && run.config.sampler.round_deadline.is_none() =>
            {
                Err(SiteError::Disagree(format!(
                    "{refusal}. This site had reserved these rounds when its power failed, and has \
                     lost what it said in them: the run must start anew"
                )))
            }
            Some(refusal @ (OrderRefusal::Spent { .. } | OrderRefusal::Far { .. })) => {
                Err(SiteError::Disagree(refusal.to_string()))
            }
            Some(refusal) => {
                warn!(reason = %refusal, "an order is refused");
                Ok(Did::Said(None))
            }
        }
    }
}

impl Instruction {
    /// The phase that a question about it names.
    fn phase(frame: &Frame) -> u32 {
        match frame.read() {
            Ok(Instruction::Where { phase, .. }) => phase,
            _ => frame.phase,
        }
    }
}

impl Run {
    fn told(&mut self, brings: &Brings, ask: Instruction) -> Result<Tell, SiteError> {
        if self.config.privacy.is_some() {
            // Exact functions of rows, or coordinates in which a row has another bound.
            let exact = match &ask {
                Instruction::Summarise { .. } => Some("codes and sums of its columns"),
                Instruction::RowReach => Some("the length of its longest row"),
                Instruction::Knots(_) => Some("counts of its columns"),
                Instruction::MoveTo { .. } => Some("gradients in other coordinates"),
                Instruction::Where { survey: true, .. } => Some("answers to a survey"),
                Instruction::Evaluate { .. } => Some("its potential at the draws"),
                _ => None,
            };
            if let Some(what) = exact {
                return Err(SiteError::Disagree(format!(
                    "the run has a privacy budget, and the server asks this site for {what}, which \
                     would tell its rows without noise"
                )));
            }
        }
        Ok(match ask {
            Instruction::Introduce => Tell::Introduction(self.local.introduce(&self.config)?),
            Instruction::Summarise { columns } => {
                Tell::Introduction(self.local.code(&self.config, columns)?)
            }
            Instruction::Knots(ask) => Tell::Introduction(self.local.knots(&self.config, &ask)?),
            Instruction::SumKey => {
                let (secret, papers) = self.sum_secret(brings)?;
                let key = secret.signed(papers, &self.welcome.run, &brings.site);
                Tell::SumKey(key.map_err(SiteError::Disagree)?)
            }
            Instruction::Agree { agreement, statement } => {
                self.agree(brings, agreement, &statement)?;
                self.signed(brings, statement)? // checked to be the same
            }
            Instruction::RowReach => {
                let (_, problem) = self.agreed.as_ref().ok_or_else(early)?;
                let own = problem.target.clients[self.welcome.index].row_reach();
                let told = own.map(RowReach::rounded_up).map(|row| (row.gradient, row.loss));
                Tell::RowReach(told)
            }
            Instruction::MoveTo { .. } => {
                self.move_to(ask)?;
                self.is_there = true;
                Tell::Done
            }
            Instruction::Decide { decision, statement } => {
                self.decide(brings, decision, &statement)?;
                self.signed(brings, statement)? // checked to be the same
            }
            Instruction::Where { phase, survey: true } => {
                let target = self.target()?;
                let id = ClientId(self.welcome.index as u32);
                if self.survey.as_ref().is_none_or(|(known, _)| *known != phase) {
                    let client = Client::new(
                        survey::Client::new(target, id),
                        Format::plain(target.dim(), Precision::F64),
                    );
                    // whoever gives gradients alone is asked for nothing else
                    let by_gradients = |model: &Arc<dyn Model>| ByGradients(Arc::clone(model));
                    let client = match target.joint.as_ref().map(by_gradients) {
                        None => client,
                        Some(model) => client.asking(Arc::new(model).evaluator()),
                    };
                    self.survey = Some((phase, client));
                }
                Tell::At(self.survey.iter().map(|(_, client)| client.answered()).collect())
            }
            Instruction::Where { survey: false, .. } => {
                self.survey = None;
                let chains = self.chains.as_ref().ok_or_else(|| {
                    SiteError::Disagree("the server did not say what is sampled".into())
                })?;
                Tell::At(chains.1.iter().map(Chain::answered).collect())
            }
            Instruction::Evaluate { draws } => {
                Tell::Potentials(self.evaluate(&brings.site, &draws)?)
            }
            Instruction::Draws { first, of, length, draws } => {
                self.draw_effects(brings, (first, of, length), &draws)?;
                Tell::Done
            }
            Instruction::Finish => {
                self.finished = true;
                Tell::Finished(
                    self.chains
                        .iter()
                        .flat_map(|(_, chains)| chains.iter().map(Chain::rows_evaluated))
                        .collect(),
                )
            }
            Instruction::Welcome(_) | Instruction::Bye { .. } | Instruction::Refused(_) => {
                Tell::Done
            } // dealt with before
        })
    }

    /// Draw the effects of this site's own groups given these draws of what all share; when all
    /// were told, keep them in its folder. What fails here is said to nobody but the site: the run
    /// is over, and a command can do the same later.
    fn draw_effects(
        &mut self,
        brings: &Brings,
        (first, of, length): (u64, u64, u64),
        draws: &[f64],
    ) -> Result<(), SiteError> {
        let wrong = |why: &str| Err(SiteError::Disagree(why.into()));
        let (agreement, _) = self.agreed.as_ref().ok_or_else(early)?;
        let dim = agreement.parameters.len().max(1);
        let told: Vec<&[f64]> = draws.chunks(dim).collect();
        let is_whole = draws.len().is_multiple_of(dim)
            && first.saturating_add(told.len() as u64) <= of
            && of.checked_rem(length) == Some(0);
        if !is_whole || !draws.iter().all(|value| value.is_finite()) {
            return wrong("the server told draws that are none of this run");
        }
        let Some(folder) = self.folder(brings) else { return Ok(()) };
        if self.effects.is_none() {
            let Some(law) = self.local.effects(&self.config, agreement)? else {
                return wrong("the server told draws for effects of groups, and there are none");
            };
            self.effects = Some(OwnEffects { law, drawn: Vec::new(), kept: None });
        }
        let Some(own) = &mut self.effects else { return Ok(()) };
        if own.law.is_costly(usize::try_from(of).unwrap_or(usize::MAX)) {
            warn!(draws = of, "too many to draw the effects of this site's groups unasked");
            return Ok(());
        }
        let known = own.drawn.len();
        let Some(before) = known.checked_sub(usize::try_from(first).unwrap_or(usize::MAX)) else {
            return wrong("the server left out draws that come before these");
        };
        let new = told.get(before..).unwrap_or_default(); // others were told before
        own.drawn.extend(own.law.draw(known, new));
        if own.drawn.len() as u64 == of && own.kept.is_none() {
            let text = own.law.gathered(&own.drawn, length as usize).csv();
            let kept =
                Folder::open(&folder).and_then(|mut f| f.replace(EFFECTS_FILE, text.as_bytes()));
            match kept {
                Ok(()) => own.kept = Some(folder.join(EFFECTS_FILE)),
                Err(error) => warn!(%error, "the effects of this site's groups cannot be kept"),
            }
        }
        Ok(())
    }

    /// State what all agree on, under this site's signature where it has one.
    fn signed(&self, brings: &Brings, statement: String) -> Result<Tell, SiteError> {
        let Some(papers) = &brings.papers else { return Ok(Tell::Stated(statement.into())) };
        let sha256 = Statement::written(&statement).hash();
        let signature = Signature::new(papers, &self.welcome.run, &brings.site, &sha256);
        let signature = signature.map_err(SiteError::Disagree)?;
        Ok(Tell::Signed { statement: statement.into(), signature })
    }

    /// Why the model that the site brings did not answer an order: what was asked, and where.
    fn failed(&self, site: &str, frame: &Frame) -> SiteError {
        let chain = |(_, chains): &'_ (Decision, Vec<Chain>)| {
            chains.get(frame.chain as usize).and_then(|chain| describe(self, chain.client()))
        };
        let survey = self.survey.as_ref().filter(|(phase, _)| *phase == frame.phase);
        let why = match survey {
            Some((_, client)) => describe(self, client),
            None => self.chains.as_ref().and_then(chain),
        };
        SiteError::Model { site: site.to_owned(), why: why.unwrap_or_default() }
    }

    /// This site's potential at every draw.
    fn evaluate(&self, site: &str, draws: &[f64]) -> Result<Vec<f64>, SiteError> {
        if self.config.lp != Some(true) {
            return Err(SiteError::Disagree(
                "the server asks for this site's potential at the draws, and the config does not \
                 say output.lp = true"
                    .into(),
            ));
        }
        let (_, problem) = self.agreed.as_ref().ok_or_else(early)?;
        let target = &problem.target;
        let own = target.joint.as_ref().unwrap_or(&target.clients[self.welcome.index]);
        let mut single = Single::new(own);
        let values: Vec<f64> =
            draws.chunks_exact(own.dim()).map(|draw| single.value(draw)).collect();
        if target.joint.is_some() && values.iter().any(|value| !value.is_finite()) {
            let why = "its value at a draw is not finite".into();
            return Err(SiteError::Model { site: site.to_owned(), why });
        }
        Ok(values)
    }

    fn target(&self) -> Result<&Target, SiteError> {
        self.moved
            .as_ref()
            .filter(|_| self.is_there)
            .map(|(_, target)| target)
            .or(self.agreed.as_ref().map(|(_, problem)| &problem.target))
            .ok_or_else(early)
    }

    /// Check that server and site mean the same target.
    fn agree(
        &mut self,
        brings: &Brings,
        agreement: Agreement,
        statement: &str,
    ) -> Result<(), SiteError> {
        if self.agreed.as_ref().is_some_and(|(known, _)| *known == agreement) {
            return Ok(());
        }
        if self.chains.is_some() {
            return Err(SiteError::Disagree("the server agreed on something else before".into()));
        }
        self.check(brings, &agreement, None, statement)?;
        self.config = agreement.settle(&self.config);
        let problem = Problem::of_site(&self.config, &self.local, &agreement)?;
        self.check_rows(brings, &problem)?;
        if self.sums() {
            self.shared = Some(self.share(brings, &agreement, &problem)?);
        }
        self.agreed = Some((agreement, problem));
        Ok(())
    }

    /// Where this site keeps its state in this run.
    fn folder(&self, brings: &Brings) -> Option<PathBuf> {
        // sites of one machine may share a folder
        let of = |state: &PathBuf| state.join(&self.welcome.run).join(name_of_site(&brings.site));
        brings.state.as_ref().map(of)
    }

    /// Check that the rows are those that this site came with first: others would change the chain,
    /// and nobody would see it. Their hash is kept with its state, and is never sent.
    fn check_rows(&self, brings: &Brings, problem: &Problem) -> Result<(), SiteError> {
        let target = &problem.target;
        // a model that the site brings alone knows its rows
        let (Some(folder), None) = (self.folder(brings), &target.joint) else { return Ok(()) };
        let now = rows_digest(&target.clients[self.welcome.index])?;
        let failed = |error| StoreError::Io { file: folder.display().to_string(), error };
        let mut disk = Folder::open(&folder).map_err(StoreError::opening(&folder))?;
        match disk.read(ROWS).map_err(failed)? {
            Some(then) if then != now.as_bytes() => Err(SiteError::OtherRows(format!(
                "the rows of site \"{}\", as the config codes them, are not those that it joined \
                 this run with (their SHA-256 was {}..., and is {}...): the draws would be of \
                 neither. Give it back the rows and the config that it had, or start the run anew",
                brings.site,
                String::from_utf8_lossy(&then).chars().take(HASH_SHOWN).collect::<String>(),
                &now[..HASH_SHOWN],
            ))),
            Some(_) => Ok(()),
            None => Ok(disk.replace(ROWS, now.as_bytes()).map_err(failed)?),
        }
    }

    /// Check that the server states what this site would: by the site's own config where it has
    /// one, else by the server's, which is shown to whoever wants to see it.
    fn check(
        &self,
        brings: &Brings,
        agreement: &Agreement,
        decision: Option<&Decision>,
        stated: &str,
    ) -> Result<(), SiteError> {
        let config = agreement.settle(brings.expects.as_ref().unwrap_or(&self.config));
        let ours = statement::of_run(&config, agreement, &names(&config)?, decision);
        Statement::written(stated)
            .check(&ours, &format!("site \"{}\"", brings.site))
            .map_err(|mismatch| SiteError::Disagree(mismatch.to_string()))?;
        info!(sha256 = %ours.hash(), "server and site state the same");
        if let Some(shows) = brings.shows {
            shows(&ours);
        }
        Ok(())
    }

    fn move_to(&mut self, ask: Instruction) -> Result<(), SiteError> {
        if self.moved.as_ref().is_some_and(|(known, _)| *known == ask) {
            return Ok(());
        }
        let (Instruction::MoveTo { centre, matrix, share }, Some((_, problem)), None) =
            (&ask, &self.agreed, &self.chains)
        else {
            return Err(SiteError::Disagree(
                "the server moved to other coordinates out of turn".into(),
            ));
        };
        let target = &problem.target;
        let coordinates =
            Coordinates::told(centre.clone(), matrix.clone()).filter(|c| c.dim() == target.dim());
        let coordinates = coordinates.ok_or_else(|| {
            SiteError::Disagree("the server told coordinates that are none".into())
        })?;
        let mut shares = vec![0.0; target.clients.len()];
        shares[self.welcome.index] = *share;
        let moved = target.whitened(&Arc::new(coordinates), &shares);
        self.moved = Some((ask, moved));
        Ok(())
    }

    /// Make this site's side of all chains, brought to where they were if its state knows them.
    fn decide(
        &mut self,
        brings: &Brings,
        decision: Decision,
        statement: &str,
    ) -> Result<(), SiteError> {
        match &self.chains {
            Some((known, _)) if *known == decision => return Ok(()),
            // The draws of one sampler were given up, or a server that starts anew comes to that.
            Some((known, _)) if known.attempt != decision.attempt => self.finished = false,
            Some(_) => {
                return Err(SiteError::Disagree("the server decided otherwise before".into()));
            }
            None => {}
        }
        self.chains = None; // lets go of their folders
        self.effects = None;
        let early = || SiteError::Disagree("the server decided before all had agreed".into());
        let (agreement, _) = self.agreed.as_ref().ok_or_else(early)?;
        self.check(brings, agreement, Some(&decision), statement)?;
        let (recipe, target) = decision.recipe(&self.config, self.target()?.clone())?;
        let mut folder = self.folder(brings);
        let public = Seed::new(self.config.seed);
        let allowed = self.allowed(&decision, &recipe, &target)?;
        let remembers =
            folder.as_ref().is_some_and(|folder| folder.join("seed").join("private.seed").exists());
        let private = match self.private {
            Some(private) => private,
            None if self.welcome.simulation => public,
            None => own_seed(folder.as_deref())?,
        };
        self.private = Some(private); // the same for all runs of one
        if allowed.is_some() {
            self.pay(brings, remembers)?;
        }
        if let (Some(folder), attempt @ 1..) = (&mut folder, decision.attempt) {
            folder.push(again(attempt));
        }
        if let Some(folder) = &folder {
            let failed = |error| StoreError::Io { file: folder.display().to_string(), error };
            let mut disk = Folder::open(folder).map_err(StoreError::opening(folder))?;
            if allowed.is_some()
                && disk.read(STATEMENT).map_err(failed)?.is_some_and(|s| s != statement.as_bytes())
            {
                // What was told so far was allowed for by another step, noise or budget.
                return Err(SiteError::Disagree(
                    "the run has a privacy budget, and the server states another run under the \
                     same name than before"
                        .into(),
                ));
            }
            disk.replace(STATEMENT, statement.as_bytes()).map_err(failed)?;
        }
        let id = ClientId(self.welcome.index as u32);
        let place = Sha256::digest([self.welcome.run.as_bytes(), statement.as_bytes()].concat());
        let mut chains = Vec::new();
        for chain in 0..decision.chains(&self.config) as u32 {
            let keys = Keys { public: public.chain(chain), private: private.chain(chain) };
            let keys = if decision.halved { keys.halved() } else { keys };
            let client =
                Client::new(recipe.client(&target, id, keys)?, recipe.format(&target, keys)?)
                    .keeping(kept_answers(target.dim()));
            let client = match &target.joint {
                None => client,
                Some(model) => client.asking(Arc::clone(model).evaluator()),
            };
            let client = match allowed {
                None => client,
                Some(releases) => client.allowed(releases),
            };
            let client = match &self.shared {
                None => client,
                Some(shared) => {
                    let none = || SiteError::Disagree("the sites share no secrets".into());
                    client.masked(Masks::new(id, shared, &place, chain).ok_or_else(none)?)
                }
            };
            chains.push(match &folder {
                None => Chain::Fleeting(Box::new(client)),
                Some(folder) => {
                    let path = folder.join(format!("chain-{}", chain + 1));
                    let disk = Folder::open(&path).map_err(StoreError::opening(&path))?;
                    let (client, warnings) = match brings.reserve {
                        None => DurableClient::open(disk, client)?,
                        Some(ahead) => DurableClient::reserving(disk, client, ahead)?,
                    };
                    for warning in warnings {
                        warn!(chain = chain + 1, %warning, "the state was damaged, and mended");
                    }
                    Chain::Durable(Box::new(client))
                }
            });
        }
        self.chains = Some((decision, chains));
        Ok(())
    }
}

impl Run {
    /// How many releases a chain of this site may give, where the run has a privacy budget.
    fn allowed(
        &self,
        decision: &Decision,
        recipe: &Recipe,
        target: &Target,
    ) -> Result<Option<u64>, SiteError> {
        if self.config.privacy.is_none() {
            return Ok(None);
        }
        if decision.attempt > 0 || decision.halved || self.moved.is_some() {
            return Err(SiteError::Disagree(
                "the run has a privacy budget, and the server goes on with another sampler, step \
                 or coordinates than were agreed on"
                    .into(),
            ));
        }
        let index = self.welcome.index;
        let rows = target.clients[index].rows() as u64;
        let allowed = privacy::allowance(&self.config, recipe, index, rows, target.dim());
        Ok(Some(allowed.map_err(SiteError::Stated)?)) // by the number of rows, which all know
    }

    /// Whether nobody may see more of this site's answers than the sum of all.
    fn sums(&self) -> bool {
        self.config.privacy.as_ref().is_some_and(|privacy| privacy.secure_sum)
    }

    /// This site's key for the secure sum of this run: kept with its state, so that it is the same
    /// after a restart.
    fn sum_secret<'a>(&self, brings: &'a Brings) -> Result<(SumSecret, &'a Papers), SiteError> {
        let disagree = |why: &str| Err(SiteError::Disagree(why.into()));
        if !self.sums() {
            return disagree("the server asks for a key of a secure sum, and the config has none");
        }
        let Some(papers) = &brings.papers else {
            return disagree(
                "the run has a secure sum, and this site has no certificate by which the others \
                 could know its key: join with --certs (in Python certs=..., with Flower the \
                 node's certs)",
            );
        };
        brings.can_keep_count(self.welcome.simulation)?;
        let Some(folder) = self.folder(brings) else {
            return disagree("this site has no state folder: join with --state");
        };
        Ok((SumSecret::of(own_seed(Some(&folder.join("sum")))?), papers))
    }

    /// Check the keys of all sites, and find what this one shares with each.
    fn share(
        &self,
        brings: &Brings,
        agreement: &Agreement,
        problem: &Problem,
    ) -> Result<Vec<(ClientId, PairSecret)>, SiteError> {
        let (secret, papers) = self.sum_secret(brings)?;
        let index = self.welcome.index;
        let Some(sites) = &agreement.secure else {
            return Err(SiteError::Disagree(
                "the run has a secure sum, and the server passed on no keys".into(),
            ));
        };
        let rows = problem.target.clients[index].rows() as u64;
        if sites.get(index).is_none_or(|site| site.rows != rows) {
            return Err(SiteError::Disagree("the server counts other rows of this site".into()));
        }
        let place = (&names(&self.config)?[..], index);
        secret
            .shared(papers, &self.welcome.run, place, sites, SystemTime::now())
            .map_err(SiteError::Disagree)
    }

    /// Take the run's whole budget out of what this site may tell in all its runs, once; durable on
    /// return.
    fn pay(&self, brings: &Brings, remembers: bool) -> Result<(), SiteError> {
        brings.can_keep_count(self.welcome.simulation)?;
        let (Some(privacy), Some(state), Some(all)) =
            (&self.config.privacy, &brings.state, brings.budget)
        else {
            return Ok(()); // there is a budget, a state and a purse: checked above
        };
        let path = state.join("purse").join(name_of_site(&brings.site));
        let disk = Folder::open(&path).map_err(StoreError::opening(&path))?;
        let mut purse = Purse::open(disk)?;
        match purse.pay(&self.welcome.run, (privacy.epsilon, privacy.delta), all) {
            Ok(Payment::Before) if !remembers => Err(SiteError::Disagree(
                "this site has paid for this run, and has lost what it has told in it: give it \
                 back its state, or start the run anew"
                    .into(),
            )),
            Ok(_) => Ok(()),
            Err(PurseError::Store(error)) => Err(error.into()),
            Err(empty) => Err(SiteError::Disagree(empty.to_string())),
        }
    }
}

/// Why a client's model gave no answer, in words that name parameters.
fn describe<D: Device>(run: &Run, client: &Client<D>) -> Option<String> {
    let error = client.failure()?;
    let names = run.agreed.as_ref().map_or(&[][..], |(agreement, _)| &agreement.parameters);
    Some(match error.0.downcast_ref::<Unusable>() {
        Some(Unusable::NotFinite { asked, value, coordinate, point }) => {
            let mut at: Vec<String> = names
                .iter()
                .zip(point)
                .take(SHOWN)
                .map(|(name, x)| format!("{name} = {x}"))
                .collect();
            at.extend((point.len() > SHOWN).then(|| "...".to_owned()));
            let parameter = names.get(*coordinate).map_or("the value", String::as_str);
            format!(
                "{asked} was asked at {}, and its part for {parameter} is {value}. Check the model \
                 there (a logarithm of what is not above 0, 0/0, rows that are NaN), or start \
                 elsewhere: run.start",
                at.join(", ")
            )
        }
        Some(other) => other.to_string(),
        None => error.to_string(),
    })
}

/// A word as shells read it, whatever is in it.
fn word_of_shell(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./=:@%+,".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

/// The seed of this site's own noise in this run: from the operating system, never sent, kept where
/// there is a folder.
fn own_seed(folder: Option<&std::path::Path>) -> Result<Seed, SiteError> {
    let entropy = |bytes: &mut [u8; 32]| {
        getrandom::fill(bytes).map_err(|error| std::io::Error::other(error.to_string()))
    };
    let failed = |file: String| move |error| StoreError::Io { file, error };
    match folder {
        None => {
            let mut bytes = [0; 32];
            entropy(&mut bytes).map_err(failed("the system's entropy".into()))?;
            Ok(Seed::from_bytes(bytes))
        }
        Some(folder) => {
            let path = folder.join("seed");
            let mut disk = Folder::open(&path).map_err(StoreError::opening(&path))?;
            Ok(private_seed(&mut disk, entropy)?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_with_spaces_are_one_word_of_a_shell() {
        for (word, quoted) in [
            ("state-north/effects.csv", "state-north/effects.csv"),
            ("St. Gallen", "'St. Gallen'"),
            ("it's mine.csv", r"'it'\''s mine.csv'"),
            ("$(rm x)", "'$(rm x)'"),
            ("", "''"),
        ] {
            assert_eq!(word_of_shell(word), quoted);
        }
    }
}
