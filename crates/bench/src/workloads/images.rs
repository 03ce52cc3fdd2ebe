//! Deal images of ten classes to clients as models: 784 pixels and a constant.

use std::path::Path;
use std::sync::Arc;

use consilience_core::model::{Arithmetic, Design, Model, Single, Softmax};

use crate::files::{self, stream};

/// How many classes.
pub const CLASSES: usize = 10;
/// Pixels and the constant.
pub const COLUMNS: usize = PIXELS + 1;
const PIXELS: usize = 784;

/// Images dealt to clients, and images of nobody.
pub struct Images {
    /// Each client's.
    pub clients: Vec<Arc<dyn Model>>,
    /// For the accuracy.
    pub test: Softmax,
    /// Pixels that no client's image shows.
    pub dead: Vec<usize>,
}

impl Images {
    /// Those of workload `name`, from the peers' files or made up.
    pub fn new(
        data: Option<&Path>,
        name: &str,
        clients: usize,
        each: usize,
        arithmetic: Arithmetic,
    ) -> Result<Self, String> {
        let ((pixels, labels), (test_pixels, test_labels)) = match data {
            Some(folder) => (read(folder, name)?, read(folder, "test")?),
            None => (made_up(1, clients * each), made_up(2, 1000)),
        };
        if (pixels.len(), labels.len()) != (clients * each * PIXELS, clients * each) {
            return Err(format!(
                "{name}_x.bin and {name}_y.bin have {} and {} numbers: write both again",
                pixels.len(),
                labels.len()
            ));
        }
        let mut dead = vec![true; PIXELS];
        for image in pixels.chunks_exact(PIXELS) {
            dead.iter_mut().zip(image).for_each(|(dead, p)| *dead &= *p == 0.0);
        }
        let dealt = pixels.chunks_exact(each * PIXELS).zip(labels.chunks_exact(each));
        let clients = dealt
            .map(|(x, y)| Ok(Arc::new(model(x, y)?.with_arithmetic(arithmetic)) as Arc<dyn Model>))
            .collect::<Result<_, String>>()?;
        Ok(Images {
            clients,
            test: model(&test_pixels, &test_labels)?,
            dead: (0..PIXELS).filter(|p| dead[*p]).collect(),
        })
    }

    /// The clients' mean negative log-likelihood of a label.
    pub fn loss(&self, x: &[f64]) -> f64 {
        let total: f64 = self.clients.iter().map(|c| Single::new(c).value(x)).sum();
        total / self.clients.iter().map(|c| c.rows()).sum::<usize>() as f64
    }

    /// How often the likeliest class is the right one, on images of nobody.
    pub fn accuracy(&self, x: &[f64]) -> f64 {
        let Some(classifier) = self.test.classifier() else { return f64::NAN };
        let mut p = vec![0.0; self.test.rows() * CLASSES];
        classifier.add_probabilities(x, 1.0, &mut p);
        let likeliest = |p: &[f64]| (0..CLASSES).max_by(|a, b| p[*a].total_cmp(&p[*b]));
        let right = p
            .chunks_exact(CLASSES)
            .enumerate()
            .filter(|(row, p)| likeliest(p) == Some(classifier.label(*row)))
            .count();
        right as f64 / self.test.rows() as f64
    }

    /// The parameters that no image moves.
    pub fn dead_parameters(&self) -> Vec<usize> {
        (0..CLASSES)
            .flat_map(|class| self.dead.iter().map(move |pixel| class * COLUMNS + pixel))
            .collect()
    }
}

/// Images without the constant, and their labels.
pub struct Shown {
    /// The pixels.
    pub design: Design,
    /// What they show.
    pub labels: Vec<u32>,
}

/// W5's images, client by client, and images of nobody: from the peers' files, or made up.
pub fn dealt(
    data: Option<&Path>,
    clients: usize,
    each: usize,
) -> Result<(Vec<Shown>, Shown), String> {
    let shown = |pixels: &[f32], labels: Vec<u32>| -> Result<Shown, String> {
        let cells = pixels.iter().map(|p| f64::from(*p)).collect();
        let design = Design::dense(cells, PIXELS).map_err(|e| e.to_string())?;
        Ok(Shown { design, labels })
    };
    let Some(folder) = data else {
        let (pixels, labels) = made_up(5, clients * each);
        let parts = pixels.chunks_exact(each * PIXELS).zip(labels.chunks_exact(each));
        let dealt = parts.map(|(x, y)| shown(x, y.to_vec())).collect::<Result<_, _>>()?;
        let (pixels, labels) = made_up(6, 2000);
        return Ok((dealt, shown(&pixels, labels)?));
    };
    let (pixels, labels) = read(folder, "w5")?;
    let index = files::integers(folder, "w5_client_index")?;
    if !index.len().is_multiple_of(clients) || pixels.len() != labels.len() * PIXELS {
        return Err("the files of w5 do not fit each other: write them again".into());
    }
    let client = |rows: &[i32]| {
        let image = |row: &i32| &pixels[*row as usize * PIXELS..][..PIXELS];
        let pixels: Vec<f32> = rows.iter().flat_map(image).copied().collect();
        shown(&pixels, rows.iter().map(|row| labels[*row as usize]).collect())
    };
    let dealt = index.chunks_exact(index.len() / clients).map(client).collect::<Result<_, _>>()?;
    let (pixels, labels) = read(folder, "test")?;
    let rows = 2000.min(labels.len());
    Ok((dealt, shown(&pixels[..rows * PIXELS], labels[..rows].to_vec())?))
}

fn model(pixels: &[f32], labels: &[u32]) -> Result<Softmax, String> {
    let row = |image: &[f32]| image.iter().map(|p| f64::from(*p)).chain([1.0]).collect::<Vec<_>>();
    let design = Design::dense(pixels.chunks_exact(PIXELS).flat_map(row).collect(), COLUMNS)
        .map_err(|e| e.to_string())?;
    Softmax::new(design, labels.to_vec(), CLASSES).map_err(|e| e.to_string())
}

fn read(folder: &Path, name: &str) -> Result<(Vec<f32>, Vec<u32>), String> {
    let labels = files::integers(folder, &format!("{name}_y"))?;
    Ok((
        files::singles(folder, &format!("{name}_x"))?,
        labels.into_iter().map(|y| y as u32).collect(),
    ))
}

/// Ten patterns of a fifth of the pixels, each image a noisy copy of one; the frame stays empty.
fn made_up(address: usize, n: usize) -> (Vec<f32>, Vec<u32>) {
    let mut patterns = vec![false; CLASSES * PIXELS];
    let mut coins = stream(7000);
    for (k, on) in patterns.iter_mut().enumerate() {
        let (row, column) = (k % PIXELS / 28, k % 28);
        *on = (3..25).contains(&row) && (3..25).contains(&column) && coins.coin(0.34);
    }
    let mut random = stream(7000 + address);
    let (mut pixels, mut labels) = (Vec::with_capacity(n * PIXELS), Vec::with_capacity(n));
    for _ in 0..n {
        let shown = random.below(CLASSES as u32);
        labels.push(if random.coin(0.04) { random.below(CLASSES as u32) } else { shown });
        let pattern = &patterns[shown as usize * PIXELS..][..PIXELS];
        pixels.extend(pattern.iter().map(|on| {
            if *on && random.coin(0.9) { 0.2 + 0.8 * random.uniform() as f32 } else { 0.0 }
        }));
    }
    (pixels, labels)
}
