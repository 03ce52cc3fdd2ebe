//! Read the layers of a net as people write them, and name what is wrong with them.

use std::fmt;

use thiserror::Error;

/// One layer.
#[derive(Clone, Debug, PartialEq)]
pub enum Layer {
    /// `linear(n)`: every input to each of `n` outputs, with a bias.
    Linear {
        /// How many outputs.
        outputs: usize,
    },
    /// `conv(channels, kernel, pad = p, stride = s, bias = false)`.
    Conv {
        /// How many output channels.
        channels: usize,
        /// The side of its square kernel.
        kernel: usize,
        /// How many rows and columns of zeros there are around the image.
        pad: usize,
        /// By how much the kernel moves.
        stride: usize,
        /// Whether every output channel has a bias.
        bias: bool,
    },
    /// `max_pool(k)`: the largest of every `k` x `k` square; the first, where several are.
    MaxPool {
        /// The side of a square.
        side: usize,
    },
    /// `avg_pool(k)`: the mean of every `k` x `k` square.
    AvgPool {
        /// The side of a square.
        side: usize,
    },
    /// `global_avg_pool`: the mean of every channel.
    GlobalAvgPool,
    /// `flatten`: channels, rows and columns as one list.
    Flatten,
    /// A function of every number.
    Activation(Activation),
    /// `frn`: every channel of a row divided by its root mean square, with a scale and a shift a
    /// channel (filter response normalisation; Singh and Krishnan 2020).
    Frn,
    /// `group_norm(g)`: channels in `g` groups; every group of a row with mean 0 and variance 1,
    /// then a scale and a shift a channel.
    GroupNorm {
        /// How many groups.
        groups: usize,
    },
    /// `{ residual = [...], shortcut = "..." }`: what the layers make of the input, plus the input.
    Residual {
        /// The layers.
        layers: Vec<Layer>,
        /// How the input is brought to the shape of what they make.
        shortcut: Shortcut,
    },
}

/// A function of one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    /// `max(x, 0)`.
    Relu,
    /// The hyperbolic tangent.
    Tanh,
    /// `1 / (1 + exp(-x))`.
    Sigmoid,
    /// `x / (1 + exp(-x))`.
    Swish,
}

/// How the input of residual layers is brought to the shape of their output, where these differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Shortcut {
    /// By a 1 x 1 convolution without bias.
    #[default]
    Projection,
    /// By every second (third, ...) row and column, and channels of zeros behind the others.
    Pad,
}

/// Layers as a config has them: words, or layers that are skipped.
#[derive(Clone, Debug, PartialEq)]
pub enum Stated {
    /// `"conv(6, 5, pad = 2)"`.
    Words(String),
    /// `{ residual = [...], shortcut = "pad" }`.
    Residual {
        /// The layers.
        layers: Vec<Stated>,
        /// The word for the shortcut, if there is one.
        shortcut: Option<String>,
    },
}

/// What is wrong with the layers of a net.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum LayerError {
    /// Nobody knows this layer.
    #[error("there is no layer \"{found}\": {hint}")]
    Unknown {
        /// What was written.
        found: String,
        /// What would be right.
        hint: String,
    },
    /// The layer is known and not wanted.
    #[error("\"{found}\" is no layer here: {why}")]
    Unwanted {
        /// What was written.
        found: String,
        /// Why, and what to do instead.
        why: &'static str,
    },
    /// Its arguments are not what it takes.
    #[error("\"{found}\": {problem}; write it as {usage}")]
    Arguments {
        /// What was written.
        found: String,
        /// What is wrong.
        problem: String,
        /// How it is written.
        usage: &'static str,
    },
    /// Its input has a shape that it cannot take.
    #[error("layer {at}, {layer}, does not fit: {problem}; {fix} (shapes so far: {so_far})")]
    Shape {
        /// Which layer, from 1.
        at: usize,
        /// The layer.
        layer: String,
        /// What does not fit.
        problem: String,
        /// What to do.
        fix: String,
        /// The shapes up to it.
        so_far: String,
    },
    /// There are none.
    #[error("there are no layers: a net needs at least one, e.g. \"linear(10)\"")]
    None,
    /// The last layer has another number of outputs than the likelihood needs.
    #[error(
        "the last layer has {found} outputs, and {needed} are needed, one for each {what}: end \
         with \"linear({needed})\""
    )]
    Outputs {
        /// How many there are.
        found: usize,
        /// How many are needed.
        needed: usize,
        /// What each stands for.
        what: &'static str,
    },
    /// The shape of a row has no size, or a side of none.
    #[error(
        "input = {found:?} is no shape of a row: give channels, height and width, e.g. [1, 28, 28]"
    )]
    Input {
        /// What was written.
        found: Vec<usize>,
    },
    /// The net is too large.
    #[error("the net has {found} parameters, more than {most}: use fewer or narrower layers")]
    TooLarge {
        /// How many there are.
        found: usize,
        /// How many there may be.
        most: usize,
    },
}

/// The names of all layers, with how they are written.
pub const LAYERS: &[(&str, &str)] = &[
    ("linear", "linear(outputs)"),
    ("conv", "conv(channels, kernel, pad = 0, stride = 1, bias = true)"),
    ("max_pool", "max_pool(side)"),
    ("avg_pool", "avg_pool(side)"),
    ("global_avg_pool", "global_avg_pool"),
    ("flatten", "flatten"),
    ("relu", "relu"),
    ("tanh", "tanh"),
    ("sigmoid", "sigmoid"),
    ("swish", "swish"),
    ("frn", "frn"),
    ("group_norm", "group_norm(groups)"),
];

/// The names of all presets, with how they are written.
pub const PRESETS: &[(&str, &str)] = &[
    ("lenet5", "lenet5"),
    ("mlp", "mlp(hidden)"),
    ("resnet20", "resnet20"),
    ("resnet", "resnet(depth, width)"),
];

/// What people expect of a net, and why it is not here.
const UNWANTED: &[(&str, &str)] = &[
    (
        "batch_norm",
        "it makes every row depend on the others of its minibatch, so the likelihood is no sum \
         over rows and there is no posterior; use \"frn\" or \"group_norm(g)\", which work row by \
         row",
    ),
    (
        "dropout",
        "it changes the likelihood from call to call; the prior and the draws do what it is for, \
         so leave it out",
    ),
    (
        "augment",
        "rows made of rows count evidence that nobody has seen; leave it out, or add such rows to \
         the data and lower nothing else",
    ),
    ("layer_norm", "use \"group_norm(1)\", which is the same for images"),
];

/// The layers of a list.
pub fn parse(stated: &[Stated]) -> Result<Vec<Layer>, LayerError> {
    if stated.is_empty() {
        return Err(LayerError::None);
    }
    stated.iter().map(parse_one).collect()
}

fn parse_one(stated: &Stated) -> Result<Layer, LayerError> {
    match stated {
        Stated::Words(words) => words.parse(),
        Stated::Residual { layers, shortcut } => {
            let shortcut = match shortcut.as_deref() {
                None | Some("projection") => Shortcut::Projection,
                Some("pad") => Shortcut::Pad,
                Some(other) => {
                    return Err(LayerError::Arguments {
                        found: format!("shortcut = \"{other}\""),
                        problem: "a shortcut is \"projection\" or \"pad\"".into(),
                        usage: "{ residual = [...], shortcut = \"projection\" }",
                    });
                }
            };
            Ok(Layer::Residual { layers: parse(layers)?, shortcut })
        }
    }
}

impl std::str::FromStr for Layer {
    type Err = LayerError;

    fn from_str(words: &str) -> Result<Self, LayerError> {
        let call = Call::parse(words, LAYERS)?;
        let activation = |kind| Ok(Layer::Activation(kind));
        let layer = match call.name {
            "linear" => Layer::Linear { outputs: call.whole(0, 1)? },
            "conv" => {
                let (channels, kernel) = (call.whole(0, 1)?, call.whole(1, 1)?);
                let (pad, stride) = (call.named("pad", 0, 0)?, call.named("stride", 1, 1)?);
                let bias = call.flag("bias", true)?;
                if pad >= kernel {
                    return Err(call.wrong(format!(
                        "with pad = {pad} a kernel of side {kernel} would see zeros alone"
                    )));
                }
                call.only(2, &["pad", "stride", "bias"])?;
                return Ok(Layer::Conv { channels, kernel, pad, stride, bias });
            }
            "max_pool" => Layer::MaxPool { side: call.whole(0, 1)? },
            "avg_pool" => Layer::AvgPool { side: call.whole(0, 1)? },
            "group_norm" => Layer::GroupNorm { groups: call.whole(0, 1)? },
            name => {
                call.only(0, &[])?;
                return match name {
                    "relu" => activation(Activation::Relu),
                    "tanh" => activation(Activation::Tanh),
                    "sigmoid" => activation(Activation::Sigmoid),
                    "swish" => activation(Activation::Swish),
                    "global_avg_pool" => Ok(Layer::GlobalAvgPool),
                    "flatten" => Ok(Layer::Flatten),
                    _ => Ok(Layer::Frn),
                };
            }
        };
        call.only(1, &[])?;
        Ok(layer)
    }
}

/// The layers of a preset, with so many outputs.
pub fn preset(words: &str, outputs: usize) -> Result<Vec<Layer>, LayerError> {
    let call = Call::parse(words, PRESETS)?;
    let relu = || Layer::Activation(Activation::Relu);
    let linear = |outputs| Layer::Linear { outputs };
    match call.name {
        "mlp" => {
            call.only(1, &[])?;
            Ok(vec![Layer::Flatten, linear(call.whole(0, 1)?), relu(), linear(outputs)])
        }
        "lenet5" => {
            call.only(0, &[])?;
            let conv =
                |channels, pad| Layer::Conv { channels, kernel: 5, pad, stride: 1, bias: true };
            let pool = || Layer::MaxPool { side: 2 };
            Ok(vec![
                conv(6, 2),
                pool(),
                relu(),
                conv(16, 0),
                pool(),
                relu(),
                Layer::Flatten,
                linear(120),
                relu(),
                linear(84),
                relu(),
                linear(outputs),
            ])
        }
        "resnet20" => {
            call.only(0, &[])?;
            Ok(resnet(3, 16, outputs))
        }
        _ => {
            call.only(2, &[])?;
            let (depth, width) = (call.whole(0, 1)?, call.whole(1, 1)?);
            if depth < 8 || !(depth - 2).is_multiple_of(6) {
                return Err(call.wrong(format!(
                    "a depth is 6 n + 2, that is 8, 14, 20, 26, ..., not {depth}"
                )));
            }
            Ok(resnet((depth - 2) / 6, width, outputs))
        }
    }
}

/// Residual layers in three stages of `blocks` blocks: each stage has twice the channels, at half
/// the resolution. FRN and swish, no batch norm (Izmailov et al. 2021); convolutions have no bias.
fn resnet(blocks: usize, width: usize, outputs: usize) -> Vec<Layer> {
    let swish = || Layer::Activation(Activation::Swish);
    let conv = |channels, stride| Layer::Conv { channels, kernel: 3, pad: 1, stride, bias: false };
    let mut layers = vec![conv(width, 1), Layer::Frn, swish()];
    for stage in 0..3 {
        for block in 0..blocks {
            let (channels, stride) = (width << stage, if stage > 0 && block == 0 { 2 } else { 1 });
            let inner =
                vec![conv(channels, stride), Layer::Frn, swish(), conv(channels, 1), Layer::Frn];
            layers.push(Layer::Residual { layers: inner, shortcut: Shortcut::Projection });
            layers.push(swish());
        }
    }
    layers.extend([Layer::GlobalAvgPool, Layer::Linear { outputs }]);
    layers
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Layer::Linear { outputs } => write!(f, "linear({outputs})"),
            Layer::Conv { channels, kernel, pad, stride, bias } => {
                write!(f, "conv({channels}, {kernel}")?;
                if *pad != 0 {
                    write!(f, ", pad = {pad}")?;
                }
                if *stride != 1 {
                    write!(f, ", stride = {stride}")?;
                }
                write!(f, "{})", if *bias { "" } else { ", bias = false" })
            }
            Layer::MaxPool { side } => write!(f, "max_pool({side})"),
            Layer::AvgPool { side } => write!(f, "avg_pool({side})"),
            Layer::GlobalAvgPool => f.write_str("global_avg_pool"),
            Layer::Flatten => f.write_str("flatten"),
            Layer::Activation(kind) => f.write_str(kind.name()),
            Layer::Frn => f.write_str("frn"),
            Layer::GroupNorm { groups } => write!(f, "group_norm({groups})"),
            Layer::Residual { layers, shortcut } => {
                let words: Vec<String> = layers.iter().map(Layer::to_string).collect();
                let shortcut = match shortcut {
                    Shortcut::Projection => "projection",
                    Shortcut::Pad => "pad",
                };
                write!(f, "residual([{}], {shortcut})", words.join(", "))
            }
        }
    }
}

impl Activation {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Activation::Relu => "relu",
            Activation::Tanh => "tanh",
            Activation::Sigmoid => "sigmoid",
            Activation::Swish => "swish",
        }
    }
}

/// `name(1, 2, key = 3)`.
struct Call<'a> {
    words: &'a str,
    name: &'static str,
    usage: &'static str,
    plain: Vec<&'a str>,
    named: Vec<(&'a str, &'a str)>,
}

impl<'a> Call<'a> {
    fn parse(words: &'a str, known: &[(&'static str, &'static str)]) -> Result<Self, LayerError> {
        let words = words.trim();
        let (name, arguments) = match words.split_once('(') {
            None => (words, Some("")),
            Some((name, rest)) => (name.trim(), rest.strip_suffix(')')),
        };
        if let Some((_, why)) = UNWANTED.iter().find(|(word, _)| name.starts_with(word)) {
            return Err(LayerError::Unwanted { found: words.into(), why });
        }
        let Some((name, usage)) = known.iter().find(|(known, _)| *known == name) else {
            return Err(LayerError::Unknown { found: words.into(), hint: hint(name, known) });
        };
        let mut call = Call { words, name, usage, plain: Vec::new(), named: Vec::new() };
        let Some(arguments) = arguments else {
            return Err(call.wrong("there is no closing parenthesis".into()));
        };
        for argument in arguments.split(',').map(str::trim).filter(|_| !arguments.is_empty()) {
            match argument.split_once('=') {
                Some((key, value)) => call.named.push((key.trim(), value.trim())),
                None => call.plain.push(argument),
            }
        }
        Ok(call)
    }

    fn wrong(&self, problem: String) -> LayerError {
        LayerError::Arguments { found: self.words.into(), problem, usage: self.usage }
    }

    fn number(&self, word: &str, least: usize) -> Result<usize, LayerError> {
        match word.parse::<usize>() {
            Ok(number) if number >= least && number <= 1 << 20 => Ok(number),
            _ => Err(self.wrong(format!("\"{word}\" is no whole number from {least}"))),
        }
    }

    fn whole(&self, at: usize, least: usize) -> Result<usize, LayerError> {
        let word = self.plain.get(at).ok_or_else(|| self.wrong("an argument is missing".into()))?;
        self.number(word, least)
    }

    fn value(&self, key: &str) -> Option<&'a str> {
        self.named.iter().find(|(known, _)| *known == key).map(|(_, value)| *value)
    }

    fn named(&self, key: &str, default: usize, least: usize) -> Result<usize, LayerError> {
        self.value(key).map_or(Ok(default), |word| self.number(word, least))
    }

    fn flag(&self, key: &str, default: bool) -> Result<bool, LayerError> {
        self.value(key).map_or(Ok(default), |word| {
            word.parse().map_err(|_| self.wrong(format!("{key} is true or false, not {word}")))
        })
    }

    /// Refuse what nobody reads.
    fn only(&self, plain: usize, named: &[&str]) -> Result<(), LayerError> {
        if self.plain.len() > plain {
            return Err(self.wrong(format!("\"{}\" is one argument too many", self.plain[plain])));
        }
        match self.named.iter().find(|(key, _)| !named.contains(key)) {
            Some((key, _)) => Err(self.wrong(format!("it takes no \"{key}\""))),
            None => Ok(()),
        }
    }
}

/// The nearest name, and all of them.
fn hint(found: &str, known: &[(&str, &str)]) -> String {
    let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
    let nearest = names.iter().map(|name| (distance(found, name), name)).min();
    let all = names.join(", ");
    match nearest {
        Some((far, name)) if far <= 1 + found.len() / 3 => {
            format!("did you mean \"{name}\"? (there are {all})")
        }
        _ => format!("there are {all}"),
    }
}

/// How many letters must be changed, added or left out (Levenshtein).
fn distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut line: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut corner = line[0];
        line[0] = i + 1;
        for (j, y) in b.iter().enumerate() {
            let changed = corner + usize::from(x != *y);
            corner = line[j + 1];
            line[j + 1] = changed.min(corner + 1).min(line[j] + 1);
        }
    }
    line[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_read_back_as_they_are_written() {
        for words in [
            "linear(10)",
            "conv(6, 5)",
            "conv(6, 5, pad = 2)",
            "conv(6, 3, pad = 1, stride = 2, bias = false)",
            "max_pool(2)",
            "avg_pool(4)",
            "global_avg_pool",
            "flatten",
            "relu",
            "tanh",
            "sigmoid",
            "swish",
            "frn",
            "group_norm(4)",
        ] {
            assert_eq!(words.parse::<Layer>().unwrap().to_string(), words);
        }
        let skip = Stated::Residual {
            layers: vec![Stated::Words("relu".into())],
            shortcut: Some("pad".into()),
        };
        assert_eq!(parse(&[skip]).unwrap()[0].to_string(), "residual([relu], pad)");
    }

    #[test]
    fn what_is_no_layer_is_refused_with_what_would_be() {
        let said = |words: &str| words.parse::<Layer>().unwrap_err().to_string();
        assert!(said("liner(10)").contains("did you mean \"linear\"?"), "{}", said("liner(10)"));
        assert!(said("batch_norm").contains("use \"frn\" or \"group_norm(g)\""));
        assert!(said("dropout(0.5)").contains("leave it out"));
        assert!(said("linear()").contains("an argument is missing"));
        assert!(said("linear(0)").contains("no whole number from 1"));
        assert!(said("linear(3, 4)").contains("one argument too many"));
        assert!(said("conv(3, 3, dilation = 2)").contains("it takes no \"dilation\""));
        assert!(said("conv(3, 3, pad = 3)").contains("see zeros alone"));
        assert!(said("conv(3, 3").contains("no closing parenthesis"));
        assert!(said("relu(2)").contains("too many"));
        let preset = |words: &str| preset(words, 10).unwrap_err().to_string();
        assert!(preset("lenet").contains("did you mean \"lenet5\"?"));
        assert!(preset("resnet(9, 8)").contains("6 n + 2"));
        assert_eq!(parse(&[]), Err(LayerError::None));
    }
}
