//! Read the rows of a table of nets, spoil some of them, and deal them to clients.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use consilience_core::model::{Design, Model, Prior};
use consilience_core::rng::{ClientId, Purpose, SERVER, Seed};
use consilience_core::target::{Placement, Target};
use consilience_engine::data::catalogue;
use consilience_engine::data::partition::{self, Scheme, iid, subset};
use consilience_engine::data::{Dataset, Features};
use consilience_engine::models::{RowModel, from_settings};

use super::super::pooled::pooled;
use super::setting::Setting;
use crate::experiment::Trouble;
use crate::study::Study;

/// The standard deviation of what is added to pixels, which lie between 0 and 1, of `noisy` images.
const NOISE: f64 = 0.5;

/// Rows, and the net that explains them.
pub(super) struct Images {
    pub kind: Arc<dyn RowModel>,
    pub classes: usize,
    train: Dataset,
    divisors: Vec<f64>,
    /// Rows to test on.
    pub test: Arc<dyn Model>,
    pub labels: Vec<usize>,
    /// Rows of other kinds.
    pub elsewhere: Vec<(String, Arc<dyn Model>)>,
}

/// Images as they were read last: every cell needs them, and reading takes longer than a small one.
static READ: Mutex<BTreeMap<String, Arc<Images>>> = Mutex::new(BTreeMap::new());

impl Images {
    /// Those of a study.
    pub(super) fn of(setting: &Setting, study: &Study) -> Result<Arc<Images>, Trouble> {
        let key = format!("{} {:?}", super::stated(study, None), study.data);
        let mut read =
            READ.lock().map_err(|_| Trouble::Other("a cell that read data has failed".into()))?;
        if let Some(images) = read.get(&key) {
            return Ok(Arc::clone(images));
        }
        let images = Arc::new(Images::read(setting, study)?);
        read.insert(key, Arc::clone(&images));
        Ok(images)
    }

    fn read(setting: &Setting, study: &Study) -> Result<Images, Trouble> {
        let folder = catalogue::folder(study.data.as_deref());
        let seed = Seed::new(study.seed);
        let entry = catalogue::find(&setting.data)?;
        let whole = catalogue::load(&setting.data, folder.as_deref())?;
        let [channels, height, width] = entry.image().unwrap_or([whole.columns.len(), 1, 1]);
        let small = |data: Dataset| pooled(data, setting.pool, [channels, height, width]);
        let (train, test) = if entry.test.is_some() {
            let test = catalogue::load_test(&setting.data, folder.as_deref())?;
            let tested = subset(test.rows(), setting.test_rows, seed);
            (whole.select(&subset(whole.rows(), setting.rows, seed)), test.select(&tested))
        } else {
            let parts = iid::assign(whole.rows(), 5, seed).map_err(other)?.rows;
            (whole.select(&parts[..4].concat()), whole.select(&parts[4])) // a fifth is for tests
        };
        let divisors = train.greatest();
        let (train, test) = (small(train)?, small(test)?);
        let classes = train.classes.as_ref().map_or(0, Vec::len);
        let shape = [channels, height / setting.pool.min(height), width / setting.pool.min(width)];
        let text = format!(
            "model = \"net\"\nlayers = {}\ninput = {shape:?}\nclasses = {classes}\nstart = \"{}\"",
            setting.layers, setting.start
        );
        let kind = from_settings(&text).map_err(other)?;
        let divisors = if setting.pool > 1 { vec![1.0; train.columns.len()] } else { divisors };
        let model = |data: &Dataset| -> Result<Arc<dyn Model>, Trouble> {
            let rows: Vec<u32> = (0..data.rows() as u32).collect();
            let design = data.design(&rows, false, &divisors)?;
            Ok(kind.potential(design, vec![0.0; rows.len()])?)
        };
        let mut elsewhere = Vec::new();
        for (at, (name, what)) in (0..).zip(&setting.elsewhere) {
            let rows = match spoilt(&test, what, shape, seed, at) {
                Some(rows) => rows,
                None => small(catalogue::load_test(what, folder.as_deref())?)?,
            };
            let kept = subset(rows.rows(), setting.elsewhere_rows, seed);
            elsewhere.push((name.clone(), model(&rows.select(&kept))?));
        }
        let labels = test.labels.iter().map(|label| *label as usize).collect();
        let test = model(&test)?;
        Ok(Images { kind, classes, train, divisors, test, labels, elsewhere })
    }

    fn client(&self, rows: &[u32]) -> Result<Arc<dyn Model>, Trouble> {
        let design: Design = self.train.design(rows, false, &self.divisors)?;
        Ok(self.kind.potential(design, self.train.labels_of(rows))?)
    }

    /// The posterior of all rows, dealt to clients, or with one party that has them.
    pub(super) fn target(
        &self,
        setting: &Setting,
        pooled: bool,
        seed: Seed,
    ) -> Result<Target, Trouble> {
        let clients = if pooled {
            vec![self.client(&(0..self.train.rows() as u32).collect::<Vec<_>>())?]
        } else {
            let scheme: Scheme = setting.scheme.parse().map_err(other)?;
            let dealt = partition::split(&self.train, &scheme, Some(setting.clients), seed);
            let dealt = dealt.map_err(other)?;
            dealt.rows.iter().map(|rows| self.client(rows)).collect::<Result<_, _>>()?
        };
        let prior = Prior::gaussian(setting.prior_variance, self.test.dim())?;
        Ok(Target::new(clients, prior, Placement::Server, 1.0)?)
    }

    /// Where the chains of a seed start.
    pub(super) fn start(&self, setting: &Setting, seed: Seed) -> Vec<f64> {
        let mut start = vec![0.0; self.test.dim()];
        seed.stream(Purpose::Start, SERVER, 0).normals(&mut start);
        if let Some(law) = self.kind.start(&|_| setting.prior_variance) {
            for ((z, mean), sd) in start.iter_mut().zip(&law.mean).zip(&law.sd) {
                *z = mean + sd * *z;
            }
        }
        start
    }
}

fn other(error: impl std::fmt::Display) -> Trouble {
    Trouble::Other(error.to_string())
}

/// Rows that are not what they were, where the word says how they are spoilt; at another `place` by
/// other random numbers.
fn spoilt(
    data: &Dataset,
    how: &str,
    [channels, height, width]: [usize; 3],
    seed: Seed,
    place: u64,
) -> Option<Dataset> {
    let turns = how == "rotated" && height == width;
    if !(matches!(how, "shuffled" | "noisy" | "blurred") || turns) {
        return None;
    }
    let columns = channels * height * width;
    let mut order: Vec<usize> = (0..columns).collect();
    let mut stream = seed.stream(Purpose::Data, ClientId(0), place);
    for k in (1..columns).rev() {
        order.swap(k, stream.below(k as u32 + 1) as usize);
    }
    let mut cells = vec![0.0; data.rows() * columns];
    if how == "noisy" {
        seed.stream(Purpose::Data, ClientId(1), place).normals(&mut cells);
    }
    for (k, new) in cells.chunks_exact_mut(columns).enumerate() {
        let old = |at: usize| data.cell(k, at);
        for (at, to) in new.iter_mut().enumerate() {
            let (channel, y, x) = (at / (height * width), at / width % height, at % width);
            let cell = |y: usize, x: usize| old((channel * height + y) * width + x);
            *to = match how {
                "shuffled" => old(order[at]),
                "noisy" => (old(at) + NOISE * *to).clamp(0.0, 1.0),
                "rotated" => cell(x, height - 1 - y), // a quarter turn
                _ => {
                    let near = |at: usize, most: usize| at.saturating_sub(2)..=(at + 2).min(most);
                    let all = near(y, height - 1)
                        .flat_map(|y| near(x, width - 1).map(move |x| (y, x)))
                        .map(|(y, x)| cell(y, x));
                    let (sum, count) = all.fold((0.0, 0.0), |(sum, n), v| (sum + v, n + 1.0));
                    sum / count
                }
            };
        }
    }
    Some(Dataset { features: Features::Dense(cells), ..data.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> Dataset {
        Dataset {
            features: Features::Dense(vec![0.0, 1.0, 0.25, 0.75]),
            labels: vec![1.0],
            classes: None,
            columns: (0..4).map(|k| k.to_string()).collect(),
            groups: None,
        }
    }

    #[test]
    fn spoilt_images_are_what_they_are_called() {
        let data = image();
        let spoil = |how: &str| {
            let cells = spoilt(&data, how, [1, 2, 2], Seed::new(1), 0);
            cells.map(|data| (0..4).map(|k| data.cell(0, k)).collect::<Vec<f64>>())
        };
        // [0 1; 1/4 3/4], a quarter turn to the left
        assert_eq!(spoil("rotated").unwrap(), [1.0, 0.75, 0.0, 0.25]);
        assert_eq!(spoil("blurred").unwrap(), [0.5; 4]);
        let mut shuffled = spoil("shuffled").unwrap();
        shuffled.sort_by(f64::total_cmp);
        assert_eq!(shuffled, [0.0, 0.25, 0.75, 1.0]);
        let noisy = spoil("noisy").unwrap();
        assert!(noisy.iter().all(|v| (0.0..=1.0).contains(v)) && noisy != [0.0, 1.0, 0.25, 0.75]);
        assert_eq!(spoil("fashion-mnist"), None);
    }
}
