//! A neural net: layers between the columns of a row and its classes, or a number.

use std::sync::Arc;

use consilience_core::error::DataError;
use consilience_core::model::net::{
    Layer, LayerError, NetPlan, Role, Seen, Stated as StatedLayer, parse, preset,
};
use consilience_core::model::{Arithmetic, Design, Model, Net};
use consilience_core::simd::{exp, ln};
use serde_json::{Value as Json, json};

use super::{
    Descent, Explains, ModelRow, ParameterGroup, Predicts, Reads, RowAt, RowModel, StartLaw, Stated,
};
use crate::config::ConfigError;
use crate::config::fields::{Field, field};
use crate::config::reader::Value;
use crate::random::Random;

/// A neural net.
pub const ROW: ModelRow = ModelRow {
    name: "net",
    title: "a neural net",
    says: "layers that end in one number a class, or in one number with Gaussian noise",
    reads: Reads::Rows(read),
    explains: Explains::Classes,
    by_formula: false,
    fields: FIELDS,
    example: "layers = [\"linear(3)\", \"tanh\", \"linear(4)\"]\ninput = [3]\nclasses = 4\n\
        arithmetic = \"f64\"",
};

const FIELDS: &[Field] = &[
    field(
        "target",
        "layers",
        "\"lenet5\", \"mlp(100)\", \"resnet20\", \"resnet(8, 8)\" or a list, e.g. \
         [\"linear(50)\", \"relu\", \"linear(10)\"]",
        "",
        "net: its layers; { residual = [...], shortcut = \"projection\" } adds what goes past some",
    ),
    field(
        "target",
        "input",
        "[columns] or [channels, height, width]",
        "that of the data set's images",
        "net: the shape of a row",
    ),
    field(
        "target",
        "likelihood",
        "\"classes\" or { gaussian = variance }",
        "classes",
        "net: what its outputs are: one for each class, or a number with noise of this variance",
    ),
    field(
        "target.likelihood",
        "gaussian",
        "positive number",
        "",
        "net: the variance of the noise of a number",
    ),
    field(
        "target.layers",
        "residual",
        "list of layers",
        "",
        "net: layers whose input is added to what they make of it",
    ),
    field(
        "target.layers",
        "shortcut",
        "\"projection\", \"pad\"",
        "projection",
        "net: how that input is brought to the shape of the output: by a 1 x 1 convolution, or by \
         channels of zeros",
    ),
    field(
        "target",
        "start",
        "\"he\", \"torch\", \"prior\", a .npy or .csv file, or { sgd = { epochs, step, batch } }",
        "he",
        "net: the variances of the weights that chains start with: 2 over the inputs of a unit, \
         those of PyTorch's defaults, or the prior's; or the file of all parameters that every \
         chain starts from; or where gradient descent from he leads",
    ),
    field(
        "target.start",
        "sgd",
        "{ epochs, step, batch }",
        "",
        "net: every chain takes these steps first, without noise; what they send is counted",
    ),
    field(
        "target.start.sgd",
        "epochs",
        "positive number",
        "",
        "net: how often the start's descent uses every row",
    ),
    field(
        "target.start.sgd",
        "step",
        "positive number",
        "",
        "net: its step; times the number of all rows it is a learning rate",
    ),
    field(
        "target.start.sgd",
        "batch",
        "whole number",
        "",
        "net: how many rows of every client a step of it uses",
    ),
];

const STARTS: [(&str, StartWord); 3] =
    [("he", StartWord::He), ("torch", StartWord::Torch), ("prior", StartWord::Prior)];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StartWord {
    He,
    Torch,
    Prior,
}

/// Where chains start.
#[derive(Clone, Debug, PartialEq)]
enum StartAt {
    Drawn(StartWord),
    /// From the parameters in a file.
    File(String),
    /// Where descent leads from [`StartWord::He`].
    Downhill(Descent),
}

fn read_start(value: &Value<'_>) -> Result<StartAt, ConfigError> {
    if value.value.is_table() {
        let section = value.section()?;
        let usage = "write start = { sgd = { epochs = 5, step = 1e-6, batch = 16 } }";
        let sgd = section.need("sgd", usage)?.section()?;
        let epochs = sgd.need("epochs", usage)?.positive()?;
        let step = sgd.need("step", usage)?.positive()?;
        let batch = sgd.need("batch", usage)?.whole(1)? as usize;
        sgd.finish()?;
        section.finish()?;
        return Ok(StartAt::Downhill(Descent { epochs, step, batch }));
    }
    match value.value.as_str() {
        Some(file) if file.ends_with(".npy") || file.ends_with(".csv") => {
            Ok(StartAt::File(file.into()))
        }
        _ => Ok(StartAt::Drawn(value.choice(&STARTS)?)),
    }
}

#[derive(Debug)]
struct NetModel {
    /// As they were stated.
    layers: Json,
    words: Vec<String>,
    input: [usize; 3],
    likelihood: Likelihood,
    arithmetic: Arithmetic,
    start: StartAt,
    plan: Arc<NetPlan>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Likelihood {
    Classes(usize),
    Gaussian(f64),
}

fn read(stated: &Stated<'_>) -> Result<Arc<dyn RowModel>, ConfigError> {
    let likelihood = match stated.get("likelihood") {
        Some(value) if value.value.is_table() => {
            let section = value.section()?;
            let variance = section.need("gaussian", "write likelihood = { gaussian = 0.1 }")?;
            let variance = variance.positive()?;
            section.finish()?;
            if let Some(classes) = stated.classes() {
                return Err(value.error(
                    format!("it is that of a number, and the response has {classes} classes"),
                    "use likelihood = \"classes\", or leave it out",
                ));
            }
            Likelihood::Gaussian(variance)
        }
        other => {
            if let Some(value) = other {
                value.choice(&[("classes", ())])?;
            }
            let classes = match stated.classes() {
                Some(classes) => classes,
                None => {
                    let fix = "a net needs the number of labels, e.g. classes = 10; or likelihood \
                        = { gaussian = 0.1 } where the response is a number";
                    stated.need("classes", fix)?.whole(2)? as usize
                }
            };
            Likelihood::Classes(classes)
        }
    };
    let outputs = match likelihood {
        Likelihood::Classes(classes) => classes,
        Likelihood::Gaussian(_) => 1,
    };
    let usage = "a net needs layers, e.g. layers = \"lenet5\" or [\"linear(50)\", \"relu\", \
        \"linear(10)\"]";
    let value = stated.need("layers", usage)?;
    let (layers, kept) = read_layers(&value, outputs)?;
    let input = read_input(stated, &value)?;
    let plan = NetPlan::new(&layers, input).map_err(|e| complain(&value, &e))?;
    if plan.outputs() != outputs {
        let what = if outputs == 1 { "number that is explained" } else { "class" };
        let error = LayerError::Outputs { found: plan.outputs(), needed: outputs, what };
        return Err(complain(&value, &error));
    }
    let arithmetic = match stated.get("arithmetic") {
        None => Arithmetic::F32,
        Some(value) if value.value.as_str() == Some("tf32") => {
            return Err(value.error(
                "\"tf32\" keeps 10 bits of every product: chains would differ from machine to \
                 machine",
                "use \"f32\", or \"f64\" for checks",
            ));
        }
        Some(value) => value.choice(&[("f32", Arithmetic::F32), ("f64", Arithmetic::F64)])?,
    };
    let start = stated.get("start").map(|v| read_start(&v)).transpose()?;
    Ok(Arc::new(NetModel {
        words: layers.iter().map(Layer::to_string).collect(),
        layers: kept,
        input,
        likelihood,
        arithmetic,
        start: start.unwrap_or(StartAt::Drawn(StartWord::He)),
        plan: Arc::new(plan),
    }))
}

fn complain(value: &Value<'_>, error: &LayerError) -> ConfigError {
    let said = error.to_string();
    // The last sentence of a complaint says what to do.
    let (problem, fix) = said
        .rsplit_once("; ")
        .or_else(|| said.rsplit_once(": "))
        .map_or((said.as_str(), "correct the layers"), |(problem, fix)| (problem, fix));
    value.error(problem, fix)
}

/// The layers, and what is kept of how they were stated.
fn read_layers(value: &Value<'_>, outputs: usize) -> Result<(Vec<Layer>, Json), ConfigError> {
    if let Some(words) = value.value.as_str() {
        let layers = preset(words, outputs).map_err(|e| complain(value, &e))?;
        return Ok((layers, json!(words)));
    }
    let list = value.list("the name of a net, or a list of layers,")?;
    let (mut layers, mut kept) = (Vec::new(), Vec::new());
    for item in &list {
        let (stated, json) = read_layer(item)?;
        layers.extend(parse(&[stated]).map_err(|e| complain(item, &e))?);
        kept.push(json);
    }
    if layers.is_empty() {
        return Err(complain(value, &LayerError::None));
    }
    Ok((layers, Json::Array(kept)))
}

fn read_layer(item: &Value<'_>) -> Result<(StatedLayer, Json), ConfigError> {
    if let Some(words) = item.value.as_str() {
        return Ok((StatedLayer::Words(words.into()), json!(words)));
    }
    if !item.value.is_table() {
        return Err(item.error(
            format!("{} is no layer", item.written()),
            "write a layer as a text, e.g. \"linear(50)\", or as { residual = [...] }",
        ));
    }
    let section = item.section()?;
    let inside = section.need("residual", "write { residual = [\"conv(8, 3, pad = 1)\"] }")?;
    let (mut layers, mut kept) = (Vec::new(), Vec::new());
    for layer in inside.list("a list of layers")? {
        let (stated, json) = read_layer(&layer)?;
        layers.push(stated);
        kept.push(json);
    }
    let shortcut = section
        .get("shortcut")
        .map(|v| v.choice(&[("projection", "projection"), ("pad", "pad")]))
        .transpose()?
        .unwrap_or("projection");
    section.finish()?;
    let json = json!({ "residual": kept, "shortcut": shortcut });
    Ok((StatedLayer::Residual { layers, shortcut: Some(shortcut.into()) }, json))
}

fn read_input(stated: &Stated<'_>, layers: &Value<'_>) -> Result<[usize; 3], ConfigError> {
    let Some(value) = stated.get("input") else {
        return stated.image().ok_or_else(|| {
            let problem = "nothing says what shape a row has";
            layers.error(problem, "add input = [columns], or input = [channels, height, width]")
        });
    };
    let sides = value.list("a list of one or three sizes")?;
    let sides = sides.iter().map(|v| v.whole(1)).collect::<Result<Vec<u64>, _>>()?;
    let input = match sides[..] {
        [columns] => [columns as usize, 1, 1],
        [channels, height, width] => [channels as usize, height as usize, width as usize],
        _ => {
            return Err(value.error(
                format!("{} is no shape of a row", value.written()),
                "give [columns], or [channels, height, width]",
            ));
        }
    };
    let size = |sides: [usize; 3]| sides.iter().product::<usize>();
    match stated.image() {
        Some(image) if size(image) != size(input) => Err(value.error(
            format!("it has {} numbers, and a row of the data has {}", size(input), size(image)),
            format!("use input = {image:?}, or leave it out"),
        )),
        _ => Ok(input),
    }
}

impl RowModel for NetModel {
    fn row(&self) -> &'static ModelRow {
        &ROW
    }

    fn settings(&self) -> Vec<(&'static str, Json)> {
        let mut all = vec![("layers", self.layers.clone()), ("input", json!(self.input))];
        match self.likelihood {
            Likelihood::Classes(classes) => all.push(("classes", json!(classes))),
            Likelihood::Gaussian(variance) => {
                all.push(("likelihood", json!({ "gaussian": variance })));
            }
        }
        let arithmetic = if self.arithmetic == Arithmetic::F64 { "f64" } else { "f32" };
        all.push(("arithmetic", json!(arithmetic)));
        all.push((
            "start",
            match &self.start {
                StartAt::File(file) => json!(file),
                StartAt::Downhill(Descent { epochs, step, batch }) => {
                    json!({ "sgd": { "epochs": epochs, "step": step, "batch": batch } })
                }
                StartAt::Drawn(drawn) => {
                    let start = STARTS.iter().find(|(_, start)| start == drawn);
                    json!(start.map_or("he", |(word, _)| word))
                }
            },
        ));
        all
    }

    fn statement(&self) -> String {
        let bits = if self.arithmetic == Arithmetic::F64 { 64 } else { 32 };
        let explains = match self.likelihood {
            Likelihood::Classes(classes) => format!("{classes} classes"),
            Likelihood::Gaussian(variance) => format!("a number with noise of variance {variance}"),
        };
        format!(
            "a neural net in {bits} bits from {} to {explains}: {}",
            self.plan.input(),
            self.words.join(", ")
        )
    }

    fn classes(&self) -> Option<usize> {
        match self.likelihood {
            Likelihood::Classes(classes) => Some(classes),
            Likelihood::Gaussian(_) => None,
        }
    }

    fn predictors(&self) -> usize {
        self.plan.outputs()
    }

    fn columns(&self) -> Option<usize> {
        Some(self.plan.input().len())
    }

    fn dim(&self, _columns: usize) -> usize {
        self.plan.dim()
    }

    fn is_linear(&self) -> bool {
        false
    }

    fn net(&self) -> Option<&NetPlan> {
        Some(&self.plan)
    }

    fn groups(&self) -> Vec<ParameterGroup> {
        let role = |role: Role| match role {
            Role::Weight => "weight",
            Role::Bias => "bias",
            Role::Scale => "scale",
            Role::Shift => "shift",
        };
        let group = |p: &consilience_core::model::net::Parameter| ParameterGroup {
            layer: p.layer.clone(),
            name: p.name.clone(),
            role: role(p.role),
            range: p.range(),
            fan_in: p.fan_in,
        };
        self.plan.parameters().iter().map(group).collect()
    }

    fn start_file(&self) -> Option<&str> {
        match &self.start {
            StartAt::File(file) => Some(file),
            StartAt::Drawn(_) | StartAt::Downhill(_) => None,
        }
    }

    fn descent(&self) -> Option<Descent> {
        match &self.start {
            StartAt::Downhill(descent) => Some(*descent),
            StartAt::Drawn(_) | StartAt::File(_) => None,
        }
    }

    fn start(&self, prior: &dyn Fn(usize) -> f64) -> Option<StartLaw> {
        let d = self.plan.dim();
        let start = match self.start {
            StartAt::Drawn(word) => word,
            StartAt::File(_) | StartAt::Downhill(_) => StartWord::He,
        };
        let mut law = StartLaw { mean: vec![0.0; d], sd: vec![0.0; d] };
        for parameter in self.plan.parameters() {
            let fan_in = parameter.fan_in as f64;
            for k in parameter.range() {
                law.mean[k] = if parameter.role == Role::Scale { 1.0 } else { 0.0 };
                law.sd[k] = match (start, parameter.role) {
                    (StartWord::Prior, _) => prior(k).sqrt(),
                    (_, Role::Scale | Role::Shift) => 0.0,
                    (StartWord::He, Role::Weight) => (2.0 / fan_in).sqrt(),
                    (StartWord::He, Role::Bias) => 0.0,
                    // uniform up to one over the root of the inputs
                    (StartWord::Torch, _) => (1.0 / (3.0 * fan_in)).sqrt(),
                };
                if start == StartWord::Prior {
                    law.mean[k] = 0.0;
                }
            }
        }
        Some(law)
    }

    fn potential(&self, design: Design, response: Vec<f64>) -> Result<Arc<dyn Model>, DataError> {
        if let Some(row) = response.iter().position(|y| !self.accepts(*y)) {
            let allowed = self.responses();
            return Err(DataError::Label { row, label: response[row], allowed });
        }
        let seen = match self.likelihood {
            Likelihood::Classes(_) => Seen::Labels(response.iter().map(|y| *y as u32).collect()),
            Likelihood::Gaussian(variance) => Seen::Numbers(response, variance),
        };
        Ok(Arc::new(Net::new(Arc::clone(&self.plan), design, seen, self.arithmetic)?))
    }

    fn parameters(&self, _columns: &[String], _classes: Option<&[String]>) -> Vec<String> {
        let name = |p: &consilience_core::model::net::Parameter| {
            let (name, count) = (p.name.clone(), p.range().len());
            (0..count).map(move |k| format!("{name}[{k}]"))
        };
        self.plan.parameters().iter().flat_map(name).collect()
    }

    fn predictors_of(&self, design: &Design, draw: &[f64]) -> Vec<f64> {
        let (rows, outputs) = (design.rows(), self.plan.outputs());
        self.plan
            .outputs_of(design.clone(), self.arithmetic, draw)
            .unwrap_or_else(|_| vec![f64::NAN; rows * outputs])
    }

    fn remedy(&self, _column: &str, _found: f64, _right: Option<&str>) -> String {
        match self.likelihood {
            Likelihood::Classes(_) => format!("labels must be {}", self.responses()),
            Likelihood::Gaussian(_) => "the response must be a finite number".into(),
        }
    }

    fn predicts(&self) -> Option<Predicts> {
        Some(match self.likelihood {
            Likelihood::Classes(_) => Predicts {
                kind: "class probabilities",
                what: "the probability of every class",
                of: None,
                interval: "the intervals are of the probabilities",
            },
            Likelihood::Gaussian(_) => Predicts {
                kind: "number",
                what: "the response",
                of: None,
                interval: "the intervals are of the mean, without its noise",
            },
        })
    }

    fn replicate(&self, at: RowAt<'_>, random: &mut Random, into: &mut Vec<f64>) -> bool {
        into.push(match self.likelihood {
            Likelihood::Gaussian(variance) => at.predictors[0] + variance.sqrt() * random.normal(),
            Likelihood::Classes(_) => {
                let mut expected = at.predictors.to_vec();
                self.expect(&mut expected, at.beside);
                random.choice(expected.into_iter()) as f64
            }
        });
        true
    }

    fn expect(&self, predictors: &mut [f64], _beside: &[f64]) {
        if let Likelihood::Gaussian(_) = self.likelihood {
            return;
        }
        let most = predictors.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        predictors.iter_mut().for_each(|t| *t = exp(*t - most));
        let sum: f64 = predictors.iter().sum();
        predictors.iter_mut().for_each(|t| *t /= sum);
    }

    fn log_density(&self, predictor: f64, _beside: &[f64], y: f64) -> f64 {
        match self.likelihood {
            Likelihood::Classes(_) => f64::NAN,
            Likelihood::Gaussian(variance) => {
                let off = y - predictor;
                -0.5 * (off * off / variance + ln(std::f64::consts::TAU * variance))
            }
        }
    }
}
