//! Turn calibration and influence into JSON, and back: `judged.json`, where there is something to
//! say.

use consilience_core::measure::{Count, Elpd, Tally};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::calibration::{Calibration, Entropies, Judged, Point, UncertainImage};
use crate::check::Check;
use crate::influence::{Influence, SiteInfluence};
use crate::loo::Loo;
use crate::record::Record;

/// `judged.json`.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct JudgedFile {
    calibration: Option<CalibrationFile>,
    influence: Option<InfluenceFile>,
    #[serde(default)]
    check: Option<Check>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    loo: Option<LooFile>,
}

#[derive(Debug, Serialize, Deserialize)]
struct LooFile {
    draws: usize,
    groups: bool,
    sites: Vec<LooSiteFile>,
}

#[derive(Debug, Serialize, Deserialize)]
struct LooSiteFile {
    name: String,
    rows: u64,
    elpd: Real,
    squares: Real,
    seen: Real,
    by_k: [u64; 3],
}

impl LooFile {
    fn of(loo: &Loo) -> Self {
        let site = |(name, elpd): &(String, Elpd)| LooSiteFile {
            name: name.clone(),
            rows: elpd.rows,
            elpd: Real(elpd.sum),
            squares: Real(elpd.squares),
            seen: Real(elpd.seen),
            by_k: elpd.by_k,
        };
        let sites = loo.sites.iter().map(site).collect();
        LooFile { draws: loo.draws, groups: loo.unit == "groups", sites }
    }

    fn back(self) -> Loo {
        let site = |of: LooSiteFile| {
            let (sum, squares, seen) = (of.elpd.0, of.squares.0, of.seen.0);
            (of.name, Elpd { rows: of.rows, sum, squares, seen, by_k: of.by_k })
        };
        let unit = if self.groups { "groups" } else { "rows" };
        Loo::new(self.sites.into_iter().map(site).collect(), self.draws, unit)
    }
}

#[derive(Debug, Serialize, Deserialize)]
struct CalibrationFile {
    /// Whether the rows were held out; else they were fitted.
    held_out: bool,
    classes: usize,
    draws: usize,
    sites: Vec<TallyFile>,
    #[serde(default)]
    points: Vec<PointFile>,
    #[serde(default)]
    elsewhere: Option<EntropiesFile>,
    #[serde(default)]
    uncertain: Vec<UncertainImage>,
}

#[derive(Debug, Serialize, Deserialize)]
struct PointFile {
    name: String,
    tally: TallyFile,
}

#[derive(Debug, Serialize, Deserialize)]
struct EntropiesFile {
    name: String,
    here: Vec<u64>,
    there: Vec<u64>,
    auc: Real,
}

/// Counts as `[all, right]`.
#[derive(Debug, Serialize, Deserialize)]
struct TallyFile {
    bins: Vec<((u64, u64), Real)>,
    at_least: Vec<(Real, (u64, u64))>,
    total: (u64, u64),
    brier: Real,
    minus_log_likelihood: Real,
}

#[derive(Debug, Serialize, Deserialize)]
struct InfluenceFile {
    draws: usize,
    sites: Vec<SiteInfluenceFile>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SiteInfluenceFile {
    shift: Vec<Real>,
    most: usize,
    error: Real,
}

impl JudgedFile {
    /// What a record says, if it says anything.
    pub(super) fn of(record: &Record) -> Option<Self> {
        let calibration = record.calibration.as_ref().map(|c| CalibrationFile {
            held_out: c.judged == Judged::HeldOut,
            classes: c.classes,
            draws: c.draws,
            sites: c.sites.iter().map(TallyFile::of).collect(),
            points: c
                .points
                .iter()
                .map(|p| PointFile { name: p.name.clone(), tally: TallyFile::of(&p.tally) })
                .collect(),
            elsewhere: c.elsewhere.as_ref().map(|e| EntropiesFile {
                name: e.name.clone(),
                here: e.here.clone(),
                there: e.there.clone(),
                auc: Real(e.auc),
            }),
            uncertain: c.uncertain.clone(),
        });
        let site = |s: &SiteInfluence| SiteInfluenceFile {
            shift: s.shift.iter().copied().map(Real).collect(),
            most: s.most,
            error: Real(s.error),
        };
        let influence = record
            .influence
            .as_ref()
            .map(|i| InfluenceFile { draws: i.draws, sites: i.sites.iter().map(site).collect() });
        let (check, loo) = (record.check.clone(), record.loo.as_ref().map(LooFile::of));
        let says = calibration.is_some() || influence.is_some() || check.is_some() || loo.is_some();
        says.then_some(JudgedFile { calibration, influence, check, loo })
    }

    /// Give it back to a record.
    pub(super) fn into_record(self, record: &mut Record) {
        record.check = self.check;
        record.loo = self.loo.map(LooFile::back);
        record.calibration = self.calibration.map(|c| Calibration {
            judged: if c.held_out { Judged::HeldOut } else { Judged::Fitted },
            classes: c.classes,
            draws: c.draws,
            sites: c.sites.into_iter().map(TallyFile::back).collect(),
            points: c
                .points
                .into_iter()
                .map(|p| Point { name: p.name, tally: p.tally.back() })
                .collect(),
            elsewhere: c.elsewhere.map(|e| Entropies {
                name: e.name,
                here: e.here,
                there: e.there,
                auc: e.auc.0,
            }),
            uncertain: c.uncertain,
        });
        let site = |s: SiteInfluenceFile| SiteInfluence {
            shift: s.shift.into_iter().map(|x| x.0).collect(),
            most: s.most,
            error: s.error.0,
        };
        record.influence = self
            .influence
            .map(|i| Influence { draws: i.draws, sites: i.sites.into_iter().map(site).collect() });
    }
}

impl TallyFile {
    fn of(tally: &Tally) -> Self {
        let pair = |count: Count| (count.all, count.right);
        TallyFile {
            bins: tally
                .bins
                .iter()
                .map(|(count, confidence)| (pair(*count), Real(*confidence)))
                .collect(),
            at_least: tally
                .at_least
                .iter()
                .map(|(threshold, count)| (Real(*threshold), pair(*count)))
                .collect(),
            total: pair(tally.total),
            brier: Real(tally.brier),
            minus_log_likelihood: Real(tally.minus_log_likelihood),
        }
    }

    fn back(self) -> Tally {
        let count = |(all, right): (u64, u64)| Count { all, right };
        Tally {
            bins: self
                .bins
                .into_iter()
                .map(|(pair, confidence)| (count(pair), confidence.0))
                .collect(),
            at_least: self
                .at_least
                .into_iter()
                .map(|(threshold, pair)| (threshold.0, count(pair)))
                .collect(),
            total: count(self.total),
            brier: self.brier.0,
            minus_log_likelihood: self.minus_log_likelihood.0,
        }
    }
}

/// Any number: JSON has none that are infinite, so these are words.
#[derive(Clone, Copy, Debug)]
struct Real(f64);

impl Serialize for Real {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_finite() {
            serializer.serialize_f64(self.0)
        } else {
            serializer.serialize_str(&self.0.to_string())
        }
    }
}

impl<'de> Deserialize<'de> for Real {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Written {
            Number(f64),
            Word(String),
        }
        match Written::deserialize(deserializer)? {
            Written::Number(x) => Ok(Real(x)),
            Written::Word(word) => word
                .parse()
                .map(Real)
                .map_err(|_| serde::de::Error::custom(format!("\"{word}\" is no number"))),
        }
    }
}
