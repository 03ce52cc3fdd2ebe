//! Print the layers of a net: shapes, parameters, arithmetic.

use std::fmt::Write;

use consilience_core::model::net::NetPlan;
use consilience_engine::config::Config;
use serde_json::json;

use crate::args::NetCommand;
use crate::output::{Failure, say};

/// `consilience net`.
pub fn net(command: &NetCommand) -> Result<(), Failure> {
    let config = Config::load(&command.config)?;
    let model = config.target.model.of_rows();
    let Some(plan) = model.as_ref().and_then(|model| model.net()) else {
        let file = command.config.display();
        return Err(Failure::Argument(format!(
            "{file} states no net: it has layers where target.model = \"net\""
        )));
    };
    if command.json { say(&format!("{:#}\n", value(plan))) } else { say(&text(plan)) }
}

fn value(plan: &NetPlan) -> serde_json::Value {
    let layers: Vec<_> = plan
        .lines()
        .iter()
        .map(|line| {
            let shape = [line.output.channels, line.output.height, line.output.width];
            json!({ "layer": line.layer, "name": line.name, "output": shape,
                "parameters": line.parameters, "flops": line.flops })
        })
        .collect();
    let tensors: Vec<_> = plan
        .parameters()
        .iter()
        .map(|p| json!({ "name": p.name, "sizes": p.sizes, "start": p.start }))
        .collect();
    json!({ "layers": layers, "tensors": tensors, "parameters": plan.dim(), "flops": plan.flops() })
}

fn text(plan: &NetPlan) -> String {
    let lines: Vec<[String; 5]> =
        std::iter::once(["layer", "name", "output", "parameters", "flops"].map(str::to_owned))
            .chain([[
                "input".into(),
                String::new(),
                plan.input().to_string(),
                "".into(),
                "".into(),
            ]])
            .chain(plan.lines().iter().map(|line| {
                let blank = |n: usize| if n == 0 { String::new() } else { n.to_string() };
                [
                    format!("{}{}", "  ".repeat(line.depth), line.layer),
                    line.name.clone(),
                    line.output.to_string(),
                    blank(line.parameters),
                    blank(line.flops),
                ]
            }))
            .collect();
    let width = |k: usize| lines.iter().map(|line| line[k].len()).max().unwrap_or(0);
    let widths: [usize; 5] = std::array::from_fn(width);
    let mut text = String::new();
    for [layer, name, output, parameters, flops] in &lines {
        let [a, b, c, d, e] = widths;
        let line = format!("{layer:a$}  {name:b$}  {output:>c$}  {parameters:>d$}  {flops:>e$}");
        let _ = writeln!(text, "{}", line.trim_end());
    }
    let _ = writeln!(
        text,
        "\n{} parameters; {} multiplications and additions for one row, three times as many with \
         its gradient.",
        plan.dim(),
        plan.flops()
    );
    text
}
