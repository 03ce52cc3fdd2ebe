//! Turn layers into steps, shape by shape.

use super::kernels::window::Window;
use super::layers::{Activation, Layer, LayerError, Shortcut};
use super::plan::{Line, MOST_PARAMETERS, NetPlan, Parameter, Role, Shape, allocate, lifetimes};
use super::steps::{Affine, Range, Step, Tensor};

/// What a layer made of a group of rows.
#[derive(Clone, Copy)]
struct Value {
    tensor: Tensor,
    shape: Shape,
    /// Whether the next layer may write over it: nobody else reads it, forth or back.
    free: bool,
}

/// Slopes on their way back.
#[derive(Clone, Copy)]
struct Slopes {
    tensor: Tensor,
    /// Whether they may be written over.
    free: bool,
}

/// A layer that has been built, with what its way back needs.
enum Built {
    Conv { at: Window, p: Affine, x: Tensor, tile: usize },
    Dense { p: Affine, x: Tensor },
    MaxPool { of: Shape, side: usize, winners: Tensor },
    AvgPool { of: Shape, sides: (usize, usize) },
    Activation { kind: Activation, of: Tensor },
    Frn { of: Shape, p: Affine, x: Tensor, rates: Tensor },
    GroupNorm { of: Shape, groups: usize, p: Affine, x: Tensor, rates: Tensor },
    Flatten,
    Residual { inner: Vec<Built>, shortcut: Skipped },
}

/// How the input of residual layers gets past them.
enum Skipped {
    Same,
    Projected(Box<Built>),
    Padded { of: Shape, to: Shape, stride: usize },
}

pub(super) struct Builder {
    input: Shape,
    lengths: Vec<usize>,
    parameters: Vec<Parameter>,
    lines: Vec<Line>,
    forth: Vec<Step>,
    back: Vec<Step>,
    /// How many layers of a kind there are so far.
    counts: Vec<(&'static str, usize)>,
    so_far: Vec<String>,
    depth: usize,
    layers: usize,
}

impl Builder {
    pub(super) fn new(input: Shape) -> Self {
        Builder {
            input,
            lengths: Vec::new(),
            parameters: Vec::new(),
            lines: Vec::new(),
            forth: Vec::new(),
            back: Vec::new(),
            counts: Vec::new(),
            so_far: vec![input.to_string()],
            depth: 0,
            layers: 0,
        }
    }

    pub(super) fn finish(mut self, layers: &[Layer]) -> Result<NetPlan, LayerError> {
        let input = Value { tensor: self.tensor(self.input.len()), shape: self.input, free: false };
        let (last, built) = self.list(layers, input)?;
        let dim = self.parameters.last().map_or(0, |last| last.range().end);
        if dim == 0 {
            return Err(LayerError::None);
        }
        let slopes = self.tensor(last.shape.len());
        self.way_back(&built, Slopes { tensor: slopes, free: true }, false);
        let alive = lifetimes(self.lengths.len(), (&self.forth, &self.back), [last.tensor, slopes]);
        let (places, arena) = allocate(&self.lengths, &alive);
        Ok(NetPlan {
            input: self.input,
            outputs: last.shape.len(),
            parameters: self.parameters,
            lines: self.lines,
            forth: self.forth,
            back: self.back,
            logits: last.tensor,
            slopes,
            places,
            arena,
        })
    }

    fn tensor(&mut self, length: usize) -> Tensor {
        self.lengths.push(length);
        Tensor(self.lengths.len() - 1)
    }

    fn list(&mut self, layers: &[Layer], input: Value) -> Result<(Value, Vec<Built>), LayerError> {
        let (mut value, mut built) = (input, Vec::with_capacity(layers.len()));
        for (k, layer) in layers.iter().enumerate() {
            let tile = match layers.get(k + 1) {
                Some(Layer::MaxPool { side }) => *side,
                _ => 1,
            };
            self.layers += 1;
            let (next, one) = self.layer(layer, tile, value)?;
            self.so_far.push(next.shape.to_string());
            (value, built) = (next, {
                built.push(one);
                built
            });
        }
        Ok((value, built))
    }

    fn misfit(&self, layer: &Layer, problem: String, fix: impl Into<String>) -> LayerError {
        LayerError::Shape {
            at: self.layers,
            layer: layer.to_string(),
            problem,
            fix: fix.into(),
            so_far: self.so_far.join(" -> "),
        }
    }

    fn line(&mut self, layer: &Layer, name: &str, output: Shape, of: Option<Affine>, flops: usize) {
        let parameters = of.map_or(0, |p| p.weight.len() + p.bias.len());
        let (depth, layer, name) = (self.depth, layer.to_string(), name.to_string());
        self.lines.push(Line { depth, layer, name, output, parameters, flops });
    }

    /// Parameters of a new layer of this kind: the sizes of its weights, and how many biases.
    fn affine(
        &mut self,
        kind: &'static str,
        roles: [Role; 2],
        sizes: Vec<usize>,
        biases: usize,
    ) -> Result<(String, Affine), LayerError> {
        let count = match self.counts.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, count)) => {
                *count += 1;
                *count
            }
            None => {
                self.counts.push((kind, 1));
                1
            }
        };
        let layer = format!("{kind}{count}");
        let fan_in = sizes[1..].iter().product();
        let weights = sizes.iter().try_fold(1usize, |all, n| all.checked_mul(*n));
        let start = self.parameters.last().map_or(0, |last| last.range().end);
        let total = weights.and_then(|n| n.checked_add(start + biases)).unwrap_or(usize::MAX);
        if total > MOST_PARAMETERS {
            return Err(LayerError::TooLarge { found: total, most: MOST_PARAMETERS });
        }
        let between = total - biases;
        let mut add = |word: &str, role, sizes, start| {
            let (layer, name) = (layer.clone(), format!("{layer}.{word}"));
            self.parameters.push(Parameter { layer, name, role, sizes, start, fan_in });
        };
        add("weight", roles[0], sizes, start);
        if biases > 0 {
            add("bias", roles[1], vec![biases], between);
        }
        let weight = Range { from: start, to: between };
        Ok((layer, Affine { weight, bias: Range { from: between, to: total } }))
    }

    fn layer(
        &mut self,
        layer: &Layer,
        tile: usize,
        from: Value,
    ) -> Result<(Value, Built), LayerError> {
        let (x, of) = (from.tensor, from.shape);
        let flat = of.height == 1 && of.width == 1;
        match layer {
            Layer::Linear { outputs } => {
                if !flat {
                    let problem = format!("it takes a list of numbers, and {of} come in");
                    return Err(self.misfit(layer, problem, "put flatten before"));
                }
                let roles = [Role::Weight, Role::Bias];
                let sizes = vec![*outputs, of.channels];
                let (name, p) = self.affine("linear", roles, sizes, *outputs)?;
                let shape = Shape::flat(*outputs);
                let y = self.tensor(shape.len());
                self.line(layer, &name, shape, Some(p), 2 * outputs * of.channels);
                self.forth.push(Step::Dense { p, x, y });
                Ok((Value { tensor: y, shape, free: true }, Built::Dense { p, x }))
            }
            Layer::Conv { channels, kernel, pad, stride, bias } => {
                let at = [*channels, *kernel, *pad, *stride];
                self.conv(layer, ("conv", *bias), at, tile, from)
            }
            Layer::MaxPool { side } => {
                let shape = self.pooled(layer, *side, of)?;
                let (y, winners) = (self.tensor(shape.len()), self.tensor(shape.len()));
                self.line(layer, "", shape, None, 0);
                let side = *side;
                self.forth.push(Step::MaxPool { of, side, x, y, winners });
                let built = Built::MaxPool { of, side, winners };
                Ok((Value { tensor: y, shape, free: true }, built))
            }
            Layer::AvgPool { .. } | Layer::GlobalAvgPool => {
                let (sides, shape) = match layer {
                    Layer::AvgPool { side } => ((*side, *side), self.pooled(layer, *side, of)?),
                    _ => ((of.height, of.width), Shape::flat(of.channels)),
                };
                let y = self.tensor(shape.len());
                self.line(layer, "", shape, None, of.len());
                self.forth.push(Step::AvgPool { of, sides, x, y });
                Ok((Value { tensor: y, shape, free: true }, Built::AvgPool { of, sides }))
            }
            Layer::Flatten => {
                let shape = Shape::flat(of.len());
                self.line(layer, "", shape, None, 0);
                Ok((Value { shape, ..from }, Built::Flatten))
            }
            Layer::Activation(kind) => {
                let kind = *kind;
                // Swish goes back from its input, the others from their output.
                let from_input = kind == Activation::Swish;
                let y = if from.free && !from_input { x } else { self.tensor(of.len()) };
                self.line(layer, "", of, None, 0);
                self.forth.push(Step::Activate { kind, x, y });
                let value = Value { tensor: y, shape: of, free: from_input };
                Ok((value, Built::Activation { kind, of: if from_input { x } else { y } }))
            }
            Layer::Frn => {
                let roles = [Role::Scale, Role::Shift];
                let (name, p) = self.affine("frn", roles, vec![of.channels], of.channels)?;
                let (y, rates) = (self.tensor(of.len()), self.tensor(of.channels));
                self.line(layer, &name, of, Some(p), 4 * of.len());
                self.forth.push(Step::Frn { of, p, x, y, rates });
                let value = Value { tensor: y, shape: of, free: true };
                Ok((value, Built::Frn { of, p, x, rates }))
            }
            Layer::GroupNorm { groups } => {
                let groups = *groups;
                if !of.channels.is_multiple_of(groups) {
                    let problem = format!("{} channels are no {groups} groups", of.channels);
                    let fix = "take a number of groups that divides the channels";
                    return Err(self.misfit(layer, problem, fix));
                }
                let roles = [Role::Scale, Role::Shift];
                let (name, p) = self.affine("group_norm", roles, vec![of.channels], of.channels)?;
                let (y, rates) = (self.tensor(of.len()), self.tensor(2 * groups));
                self.line(layer, &name, of, Some(p), 6 * of.len());
                self.forth.push(Step::GroupNorm { of, groups, p, x, y, rates });
                let value = Value { tensor: y, shape: of, free: true };
                Ok((value, Built::GroupNorm { of, groups, p, x, rates }))
            }
            Layer::Residual { layers, shortcut } => self.residual(layer, layers, *shortcut, from),
        }
    }

    fn conv(
        &mut self,
        layer: &Layer,
        (kind, bias): (&'static str, bool),
        [channels, kernel, pad, stride]: [usize; 4],
        tile: usize,
        from: Value,
    ) -> Result<(Value, Built), LayerError> {
        let (x, of) = (from.tensor, from.shape);
        if of.height + 2 * pad < kernel || of.width + 2 * pad < kernel {
            let problem = format!("a kernel of side {kernel} is larger than {of} with pad {pad}");
            return Err(self.misfit(layer, problem, "use a smaller kernel, or pad"));
        }
        let side = |n: usize| (n + 2 * pad - kernel) / stride + 1;
        let shape = Shape { channels, height: side(of.height), width: side(of.width) };
        let sizes = vec![channels, of.channels, kernel, kernel];
        let biases = if bias { channels } else { 0 };
        let (name, p) = self.affine(kind, [Role::Weight, Role::Bias], sizes, biases)?;
        let y = self.tensor(shape.len());
        let flops = 2 * shape.len() * of.channels * kernel * kernel;
        self.line(layer, &name, shape, Some(p), flops);
        let at = Window { input: of, output: shape, kernel, stride, pad };
        self.forth.push(Step::Conv { at, p, x, y });
        Ok((Value { tensor: y, shape, free: true }, Built::Conv { at, p, x, tile }))
    }

    fn pooled(&self, layer: &Layer, side: usize, of: Shape) -> Result<Shape, LayerError> {
        if !of.height.is_multiple_of(side) || !of.width.is_multiple_of(side) {
            let problem = format!("squares of side {side} do not divide {of}");
            let fix = "take a side that divides height and width, or pad the convolution before";
            return Err(self.misfit(layer, problem, fix));
        }
        Ok(Shape { channels: of.channels, height: of.height / side, width: of.width / side })
    }

    fn residual(
        &mut self,
        layer: &Layer,
        layers: &[Layer],
        shortcut: Shortcut,
        from: Value,
    ) -> Result<(Value, Built), LayerError> {
        if layers.is_empty() {
            return Err(LayerError::None);
        }
        let of = from.shape;
        self.depth += 1;
        let (made, inner) = self.list(layers, Value { free: false, ..from })?;
        let to = made.shape;
        let (skipped, shortcut) = if to == of {
            (from.tensor, Skipped::Same)
        } else {
            let side = |n: usize, stride: usize| n.div_ceil(stride);
            let fits =
                |s: &usize| side(of.height, *s) == to.height && side(of.width, *s) == to.width;
            let Some(stride) = (1..=of.height.max(of.width)).find(fits) else {
                let problem = format!("no stride takes its input {of} to its output {to}");
                return Err(self.misfit(layer, problem, "change the layers inside"));
            };
            match shortcut {
                Shortcut::Projection => {
                    let channels = to.channels;
                    let bias = false;
                    let by = Layer::Conv { channels, kernel: 1, pad: 0, stride, bias };
                    let at = [channels, 1, 0, stride];
                    let (value, built) = self.conv(&by, ("shortcut", bias), at, 1, from)?;
                    (value.tensor, Skipped::Projected(Box::new(built)))
                }
                Shortcut::Pad if to.channels >= of.channels => {
                    let y = self.tensor(to.len());
                    self.forth.push(Step::Pad { of, to, stride, x: from.tensor, y });
                    (y, Skipped::Padded { of, to, stride })
                }
                Shortcut::Pad => {
                    let problem = format!("{} channels cannot be padded to fewer", of.channels);
                    return Err(self.misfit(layer, problem, "use shortcut = \"projection\""));
                }
            }
        };
        self.depth -= 1;
        let y = if made.free {
            made.tensor
        } else {
            let y = self.tensor(to.len());
            self.forth.push(Step::Copy { x: made.tensor, y });
            y
        };
        self.forth.push(Step::Add { x: skipped, y });
        Ok((Value { tensor: y, shape: to, free: true }, Built::Residual { inner, shortcut }))
    }

    /// The steps back through these layers; the slopes of their input, if wanted.
    fn way_back(&mut self, built: &[Built], from: Slopes, wanted: bool) -> Option<Slopes> {
        // Nobody wants slopes of what lies before the first parameter.
        let first = built.iter().position(Built::has_parameters);
        let mut slopes = from;
        for (k, layer) in built.iter().enumerate().rev() {
            let needed = wanted || first.is_some_and(|first| k > first);
            if !needed && !layer.has_parameters() {
                return None;
            }
            slopes = self.step_back(layer, slopes, needed)?;
        }
        Some(slopes)
    }

    fn step_back(&mut self, layer: &Built, from: Slopes, wanted: bool) -> Option<Slopes> {
        let dy = from.tensor;
        let fresh = |tensor| Some(Slopes { tensor, free: true });
        match layer {
            Built::Flatten => Some(from),
            Built::Conv { at, p, x, tile } => {
                let (at, p) = (*at, *p);
                self.back.push(Step::ConvWeights { at, p, tile: *tile, x: *x, dy });
                wanted.then_some(())?;
                let dx = self.tensor(at.input.len());
                self.back.push(Step::ConvSlopes { at, p, dy, dx });
                fresh(dx)
            }
            Built::Dense { p, x } => {
                self.back.push(Step::DenseWeights { p: *p, x: *x, dy });
                wanted.then_some(())?;
                let dx = self.tensor(self.lengths[x.0]);
                self.back.push(Step::DenseSlopes { p: *p, dy, dx });
                fresh(dx)
            }
            Built::MaxPool { of, side, winners } => {
                let dx = self.tensor(of.len());
                let (of, side, winners) = (*of, *side, *winners);
                self.back.push(Step::MaxPoolSlopes { of, side, dy, winners, dx });
                fresh(dx)
            }
            Built::AvgPool { of, sides } => {
                let dx = self.tensor(of.len());
                self.back.push(Step::AvgPoolSlopes { of: *of, sides: *sides, dy, dx });
                fresh(dx)
            }
            Built::Activation { kind, of } => {
                let dx = if from.free { dy } else { self.tensor(self.lengths[dy.0]) };
                self.back.push(Step::ActivateSlopes { kind: *kind, of: *of, dy, dx });
                fresh(dx)
            }
            Built::Frn { of, p, x, rates } => {
                let dx = self.tensor(of.len());
                let (of, p, x, rates) = (*of, *p, *x, *rates);
                self.back.push(Step::FrnSlopes { of, p, x, rates, dy, dx });
                fresh(dx)
            }
            Built::GroupNorm { of, groups, p, x, rates } => {
                let dx = self.tensor(of.len());
                let (of, groups, p, x, rates) = (*of, *groups, *p, *x, *rates);
                self.back.push(Step::GroupNormSlopes { of, groups, p, x, rates, dy, dx });
                fresh(dx)
            }
            Built::Residual { inner, shortcut } => {
                let past = match shortcut {
                    Skipped::Same => Some(from),
                    Skipped::Projected(conv) => self.step_back(conv, from, wanted),
                    Skipped::Padded { of, to, stride } => {
                        let dx = self.tensor(of.len());
                        let (of, to, stride) = (*of, *to, *stride);
                        self.back.push(Step::PadSlopes { of, to, stride, dy, dx });
                        fresh(dx)
                    }
                };
                let through = self.way_back(inner, Slopes { free: false, ..from }, wanted);
                wanted.then_some(())?;
                let (past, through) = (past?, through?);
                let dx = if through.free {
                    through.tensor
                } else {
                    let dx = self.tensor(self.lengths[through.tensor.0]);
                    self.back.push(Step::Copy { x: through.tensor, y: dx });
                    dx
                };
                self.back.push(Step::Add { x: past.tensor, y: dx });
                fresh(dx)
            }
        }
    }
}

impl Built {
    fn has_parameters(&self) -> bool {
        match self {
            Built::Conv { .. }
            | Built::Dense { .. }
            | Built::Frn { .. }
            | Built::GroupNorm { .. }
            | Built::Residual { .. } => true,
            Built::MaxPool { .. }
            | Built::AvgPool { .. }
            | Built::Activation { .. }
            | Built::Flatten => false,
        }
    }
}
