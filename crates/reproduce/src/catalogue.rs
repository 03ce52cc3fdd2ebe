//! List every published table and figure, the ones that cannot be run yet too.

use crate::claim::{self, Claim};
use crate::experiment::Experiment;
use crate::experiments;
use crate::study::Config;

/// A paper.
#[derive(Clone, Copy, Debug)]
pub struct Paper {
    /// Its folder.
    pub key: &'static str,
    /// Who, what, where.
    pub title: &'static str,
    claims: &'static str,
    /// Where we depart from it or from its program, and why.
    pub deviations: &'static str,
}

impl Paper {
    /// What it claims.
    pub fn claims(&self) -> Result<Vec<Claim>, String> {
        claim::read(self.claims)
            .map_err(|error| format!("papers/{}/claims.toml: {error}", self.key))
    }
}

/// A table or figure.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Its name.
    pub id: &'static str,
    /// Whose it is.
    pub paper: &'static Paper,
    config: &'static str,
    /// What its config shares with others.
    shared: Option<(&'static str, &'static str)>,
    /// How it is run; `None`: not yet.
    pub experiment: Option<&'static dyn Experiment>,
}

impl Entry {
    /// Its config.
    pub fn config(&self) -> Result<Config, String> {
        let (read, beside) = match self.shared {
            None => (Config::read(self.config), String::new()),
            Some((file, shared)) => {
                (Config::read_over(shared, self.config), format!(" over papers/nets/{file}.toml"))
            }
        };
        read.map_err(|error| format!("papers/{}/{}.toml{beside}: {error}", self.paper.key, self.id))
    }

    /// What the paper claims with it.
    pub fn claims(&self) -> Result<Vec<Claim>, String> {
        Ok(self.paper.claims()?.into_iter().filter(|claim| claim.experiment == self.id).collect())
    }
}

macro_rules! paper {
    ($name:ident, $key:literal, $title:literal) => {
        static $name: Paper = Paper {
            key: $key,
            title: $title,
            claims: include_str!(concat!("../../../papers/", $key, "/claims.toml")),
            deviations: include_str!(concat!("../../../papers/", $key, "/deviations.md")),
        };
    };
}

macro_rules! entry {
    ($paper:ident, $key:literal, $id:literal, $experiment:expr) => {
        Entry {
            id: $id,
            paper: &$paper,
            config: include_str!(concat!("../../../papers/", $key, "/", $id, ".toml")),
            shared: None,
            experiment: $experiment,
        }
    };
}

/// A table of methods on a neural net, whose rows stand in papers/nets/.
macro_rules! nets {
    ($paper:ident, $key:literal, $id:literal, $shared:literal) => {
        Entry {
            shared: Some((
                $shared,
                include_str!(concat!("../../../papers/nets/", $shared, ".toml")),
            )),
            ..entry!($paper, $key, $id, Some(&experiments::nets::Nets))
        }
    };
}

paper!(
    QLSD,
    "qlsd",
    "Vono, Plassier, Durmus, Dieuleveut, Moulines: QLSD, quantised Langevin stochastic dynamics \
     for Bayesian federated learning (2022)"
);

paper!(
    FALD,
    "fald",
    "Plassier, Durmus, Moulines: Federated averaging Langevin dynamics, toward a unified theory \
     and new algorithms (2023)"
);

paper!(
    FA_LD,
    "fa-ld",
    "Deng, Ma, Song, Zhang, Lin: On convergence of federated averaging Langevin dynamics (2021)"
);

paper!(
    ELF,
    "elf",
    "Karagulyan, Richtarik: ELF, federated Langevin algorithms with primal, dual and bidirectional \
     compression (2025)"
);

/// Every published table and figure, paper by paper.
pub static CATALOGUE: &[Entry] = &[
    entry!(QLSD, "qlsd", "toy-gaussian", Some(&experiments::toy_gaussian::ToyGaussian)),
    entry!(QLSD, "qlsd", "toy-stepsize", Some(&experiments::toy_stepsize::ToyStepsize)),
    entry!(QLSD, "qlsd", "bias-orders", Some(&experiments::bias_orders::BiasOrders)),
    entry!(QLSD, "qlsd", "logreg-femnist", Some(&experiments::logreg::LogReg::AgainstLsd)),
    entry!(QLSD, "qlsd", "logreg-covtype", Some(&experiments::logreg::LogReg::AgainstMala)),
    entry!(QLSD, "qlsd", "memory", Some(&experiments::memory::Memory)),
    nets!(QLSD, "qlsd", "mlp-mnist", "mlp"),
    nets!(QLSD, "qlsd", "lenet-mnist", "lenet5"),
    nets!(QLSD, "qlsd", "resnet-cifar", "resnet"),
    nets!(QLSD, "qlsd", "calibration", "lenet5"),
    nets!(QLSD, "qlsd", "ood", "lenet5"),
    entry!(FALD, "fald", "fald-complexity", Some(&experiments::fald_complexity::FaldComplexity)),
    entry!(FALD, "fald", "fald-gaussian", Some(&experiments::fald_gaussian::FaldGaussian)),
    entry!(FALD, "fald", "fald-lowerbound", Some(&experiments::fald_lowerbound::FaldLowerBound)),
    entry!(FALD, "fald", "titanic", Some(&experiments::titanic::Titanic)),
    nets!(FALD, "fald", "fald-lenet", "lenet5"),
    nets!(FALD, "fald", "fald-resnet", "resnet"),
    entry!(FA_LD, "fa-ld", "fald-k", Some(&experiments::fald_k::FaldK)),
    entry!(FA_LD, "fa-ld", "fald-hetero", Some(&experiments::fald_hetero::FaldHetero)),
    entry!(FA_LD, "fa-ld", "fald-partial", Some(&experiments::fald_partial::FaldPartial)),
    entry!(FA_LD, "fa-ld", "fald-mnist", Some(&experiments::fald_mnist::FALD_MNIST)),
    entry!(FA_LD, "fa-ld", "fald-privacy", Some(&experiments::fald_privacy::FaldPrivacy)),
    entry!(ELF, "elf", "elf-logreg", Some(&experiments::elf_logreg::ElfLogreg)),
];

/// The table or figure of this name.
pub fn find(id: &str) -> Option<&'static Entry> {
    CATALOGUE.iter().find(|entry| entry.id == id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::Size;

    #[test]
    fn every_file_can_be_read_and_fits() {
        for entry in CATALOGUE {
            let config = entry.config().unwrap();
            assert_eq!(config.id, entry.id);
            assert_eq!(config.later.is_some(), entry.experiment.is_none(), "{}", entry.id);
            let claims = entry.claims().unwrap();
            assert!(!claims.is_empty() || config.later.is_some(), "{} claims nothing", entry.id);
            if entry.experiment.is_some() {
                for size in [Size::Quick, Size::Hour, Size::Full] {
                    assert!(
                        config.minutes.contains_key(&size),
                        "{}: how long does the size {} take?",
                        entry.id,
                        size.name()
                    );
                }
            }
            for claim in entry.paper.claims().unwrap() {
                assert!(
                    find(&claim.experiment).is_some(),
                    "claim {} is of no experiment",
                    claim.id
                );
            }
        }
    }
}
