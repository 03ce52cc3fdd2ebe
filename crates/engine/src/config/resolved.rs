//! Write a config down as it was resolved: what the command line and the surveys decided is in it, and it can be run from any folder.

use consilience_core::step::Schedule;
use toml::{Table, Value};

use super::{Config, Start};

/// Fields of a client that may name a file.
const FILES: [&str; 5] = ["file", "label_file", "rows", "precision", "covariance"];

impl Config {
    /// This config as TOML, with the step that was found, every number of the run stated, and files by their full names. A whole number beyond TOML's range becomes a
    /// text, which [`Config::parse`] refuses.
    pub fn resolved(&self, step: Schedule) -> String {
        let mut top = self.pinned_table();
        if let (None, Schedule::Constant(step)) = (self.sampler.step, step) {
            table(&mut top, "sampler").insert("step".into(), Value::Float(step));
        }
        top.to_string()
    }

    /// The same without the step: whoever runs it finds the step as this run did, and spends the same on it.
    pub fn pinned(&self) -> String {
        self.pinned_table().to_string()
    }

    fn pinned_table(&self) -> Table {
        let mut top: Table = self.source.text.parse().unwrap_or_default();
        top.insert("seed".into(), whole(self.seed));
        let run = table(&mut top, "run");
        run.insert("chains".into(), whole(self.run.chains as u64));
        run.insert("iterations".into(), whole(self.run.iterations));
        run.insert("burn_in".into(), whole(self.run.burn_in));
        run.insert("thin".into(), whole(self.run.thin));
        run.insert("threads".into(), whole(self.run.threads as u64));
        let start = match &self.run.start {
            Start::Zero => "zero".into(),
            Start::Optimum => "optimum".into(),
            Start::Point(point) => Value::Array(point.iter().map(|x| Value::Float(*x)).collect()),
        };
        run.insert("start".into(), start);
        if let Some(path) = &self.draws {
            table(&mut top, "output").insert("draws".into(), full(path));
        }
        if let Some(Value::Array(clients)) = top.get_mut("client") {
            for client in clients.iter_mut().filter_map(Value::as_table_mut) {
                for key in FILES {
                    if let Some(file) = client.get_mut(key)
                        && let Some(name) = file.as_str()
                    {
                        *file = full(&self.source.folder.join(name));
                    }
                }
            }
        }
        if let Some(Value::Table(data)) = top.get_mut("data") {
            for key in ["folder", "file", "label_file"] {
                if let Some(file) = data.get_mut(key)
                    && let Some(name) = file.as_str()
                {
                    *file = full(&self.source.folder.join(name));
                }
            }
        }
        top
    }
}

impl Config {
    /// This config as one client may see it: all that is common, nobody else's rows, and no file of the server.
    pub fn shown_to(&self, client: usize) -> String {
        // A step that is still to be found is told later: only a constant one would be written.
        let step = self.sampler.step.unwrap_or(Schedule::Decreasing { smoothness: 1.0, convexity: 1.0 });
        let mut top: Table = self.resolved(step).parse().unwrap_or_default();
        top.remove("output");
        if let Some(lp) = self.lp {
            table(&mut top, "output").insert("lp".into(), Value::Boolean(lp)); // a site must know what it will be asked
        }
        if let Some(Value::Table(data)) = top.get_mut("data") {
            data.remove("folder");
        }
        if let Some(Value::Array(clients)) = top.get_mut("client") {
            for (i, table) in clients.iter_mut().enumerate() {
                let Some(table) = table.as_table_mut() else { continue };
                table.retain(|key, value| match key {
                    "name" | "response" => true,
                    _ => i == client && !value.is_str(),
                });
                if table.keys().all(|key| key != "precision" && key != "covariance") {
                    table.remove("mean");
                }
                table.entry("name").or_insert_with(|| format!("client {}", i + 1).into());
            }
        }
        top.to_string()
    }
}

fn table<'a>(top: &'a mut Table, name: &str) -> &'a mut Table {
    let entry = top.entry(name).or_insert_with(|| Value::Table(Table::new()));
    if !entry.is_table() {
        *entry = Value::Table(Table::new()); // a checked config has tables there
    }
    match entry {
        Value::Table(table) => table,
        _ => unreachable!("it was made a table"),
    }
}

fn whole(number: u64) -> Value {
    i64::try_from(number).map_or_else(|_| Value::String(number.to_string()), Value::Integer)
}

/// A file by its full name; as it is where the working folder is unknown.
fn full(path: &std::path::Path) -> Value {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()).display().to_string().into()
}

#[cfg(test)]
mod tests {
    use super::super::Source;
    use super::*;

    fn parse(text: &str) -> Config {
        Config::parse(Source { file: "run.toml".into(), folder: "somewhere".into(), text: text.into() }).unwrap()
    }

    #[test]
    fn a_resolved_config_says_what_was_decided_and_parses_again() {
        let mut config = parse(
            "[target]\nmodel = \"logistic\"\nprior = { law = \"gaussian\", variance = 1.0 }\n[[client]]\nfile = \"a.csv\"\n[[client]]\nrows = [[0.5, 1]]\n\
             [sampler]\nname = \"lmc\"\nstep = \"auto\"\n[output]\ndraws = \"d.npy\"",
        );
        config.seed = 12;
        config.run.iterations = 77;
        config.run.burn_in = 7;
        let step = 0.1 + 0.2; // has no short decimal
        let text = config.resolved(Schedule::Constant(step));
        let again = parse(&text);
        assert_eq!((again.seed, &again.run), (12, &config.run));
        assert_eq!(again.sampler.step, Some(Schedule::Constant(step)));
        let here = std::env::current_dir().unwrap().join("somewhere");
        assert!(text.contains(&here.join("a.csv").display().to_string()), "{text}");
        assert_eq!(again.draws, Some(here.join("d.npy")));
        assert_eq!(again.resolved(Schedule::Constant(9.0)), text, "nothing is left to resolve");
    }

    #[test]
    fn a_client_is_shown_nobody_elses_rows() {
        let config = parse(
            "[target]\nmodel = \"logistic\"\n[[client]]\nname = \"basel\"\nrows = [[0.5, 1]]\n[[client]]\nrows = [[0.25, 0]]\n[[client]]\nfile = \"secret.csv\"\nresponse = \"ill\"\n\
             [sampler]\nname = \"lmc\"\n[output]\ndraws = \"d.npy\"",
        );
        let shown = config.shown_to(0);
        assert!(shown.contains("0.5") && !shown.contains("0.25") && !shown.contains("secret") && !shown.contains("d.npy"), "{shown}");
        let again = parse(&shown);
        let super::super::ModelConfig::Rows { clients, .. } = &again.target.model else { panic!("rows") };
        let names: Vec<&str> = clients.iter().map(|c| c.name.as_str()).collect();
        assert_eq!((names, clients[2].response.as_deref()), (vec!["basel", "client 2", "client 3"], Some("ill")));
        assert_eq!(again.sampler.step, None, "the step is found by a survey, and told later");
        assert!(!config.shown_to(2).contains("0.5"));
    }

    #[test]
    fn a_stated_step_and_start_stay() {
        let text = "[target]\nmodel = \"gaussian\"\n[[client]]\nmean = [1.0]\nprecision = [[2.0]]\n[sampler]\nname = \"lmc\"\n\
                    step = { first = 0.1, delay = 10.0, power = 0.6 }\n[run]\nstart = [0.25]";
        let config = parse(text);
        let again = parse(&config.resolved(config.sampler.step.unwrap()));
        assert_eq!((again.sampler.step, again.run), (config.sampler.step, config.run));
    }
}
