//! Write a config down as it was resolved: what the command line and the surveys decided is in it,
//! and it can be run from any folder.

use consilience_core::step::Schedule;
use toml::{Table, Value};

use super::{Config, ModelConfig, Start};
use crate::plan::Plan;

/// Fields of a client that may name a file.
const FILES: [&str; 5] = ["file", "label_file", "rows", "precision", "covariance"];

impl Config {
    /// This config as TOML, with all that the plan decided, and files by their full names: it says
    /// what was run, and runs the same again. A whole number beyond TOML's range becomes a text,
    /// which [`Config::parse`] refuses.
    pub fn resolved(&self, plan: &Plan) -> String {
        let mut top = self.pinned_table();
        let sampler = table(&mut top, "sampler");
        sampler.insert("name".into(), Value::String(plan.row.name.into()));
        if let (None, true, Schedule::Constant(step)) =
            (self.sampler.step, plan.row.has_step(), plan.step())
        {
            sampler.insert("step".into(), Value::Float(step));
        }
        for (name, value) in plan.recipe.family().resolved() {
            sampler.insert(name.into(), whole(value));
        }
        sampler.insert("precondition".into(), Value::Boolean(plan.coordinates.is_some()));
        let run = table(&mut top, "run");
        run.remove("effective_draws");
        run.insert("chains".into(), whole(plan.length.chains as u64));
        run.insert("iterations".into(), whole(plan.length.iterations));
        run.insert("burn_in".into(), whole(plan.length.burn_in));
        run.insert("thin".into(), whole(plan.length.thin));
        run.insert("start".into(), written(&plan.begins));
        top.to_string()
    }

    /// The same with nothing decided that the config left open: whoever runs it finds the step and
    /// the length as this run did, and spends the same on it.
    pub fn pinned(&self) -> String {
        self.pinned_table().to_string()
    }

    fn pinned_table(&self) -> Table {
        let mut top: Table = self.source.text.parse().unwrap_or_default();
        top.insert("seed".into(), whole(self.seed));
        let run = table(&mut top, "run");
        if let Some(chains) = self.run.chains {
            run.insert("chains".into(), whole(chains as u64));
        }
        run.insert("threads".into(), whole(self.run.threads as u64));
        let stated = [
            ("iterations", self.run.iterations),
            ("burn_in", self.run.burn_in),
            ("thin", self.run.thin),
        ];
        for (key, number) in stated {
            if let Some(number) = number {
                run.insert(key.into(), whole(number));
            }
        }
        if self.run.iterations.is_none() {
            run.insert("effective_draws".into(), whole(self.run.effective_draws));
        } else {
            run.remove("effective_draws"); // the command line asked for iterations
        }
        if let Some(start) = &self.run.start {
            run.insert("start".into(), written(start));
        }
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
        let model = self.target.model.of_rows();
        if let (Some(file), Some(Value::Table(target))) =
            (model.as_ref().and_then(|model| model.start_file()), top.get_mut("target"))
        {
            target.insert("start".into(), full(&self.source.folder.join(file)));
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
    /// This config as one client may see it: all that is common, nobody else's rows, and no file of
    /// the server.
    pub fn shown_to(&self, client: usize) -> String {
        self.shown().to(client)
    }

    /// The same for every client, with what is common written once.
    pub fn shown(&self) -> Shown {
        let mut top: Table = self.pinned_table(); // what is still to be found is told later
        top.remove("output");
        if let Some(lp) = self.lp {
            // a site must know what it will be asked
            table(&mut top, "output").insert("lp".into(), Value::Boolean(lp));
        }
        if let Some(Value::Table(data)) = top.get_mut("data") {
            data.remove("folder");
        }
        let model = self.target.model.of_rows();
        if let (Some(_), Some(Value::Table(target))) =
            (model.as_ref().and_then(|model| model.start_file()), top.get_mut("target"))
        {
            target.remove("start"); // the server starts the chains
        }
        let (mut own, mut others) = (Vec::new(), Vec::new());
        let listed = top.remove("client").and_then(|clients| clients.try_into().ok());
        let clients: Vec<Table> = listed.unwrap_or_default();
        for (i, client) in clients.into_iter().enumerate() {
            // a file's name may have named it
            let name = match &self.target.model {
                ModelConfig::Own(own) => own.site(i).map(str::to_owned),
                _ => None,
            };
            let name = name.unwrap_or_else(|| format!("client {}", i + 1));
            let shown = |to_itself: bool| {
                let mut table = client.clone();
                table.retain(|key, value| match key {
                    "name" | "response" => true,
                    _ => to_itself && !value.is_str(),
                });
                if table.keys().all(|key| key != "precision" && key != "covariance") {
                    table.remove("mean");
                }
                table.entry("name").or_insert_with(|| name.clone().into());
                let list = Value::Array(vec![Value::Table(table)]);
                Table::from_iter([("client".to_owned(), list)]).to_string()
            };
            own.push(shown(true));
            others.push(shown(false));
        }
        Shown { common: top.to_string(), own, others }
    }
}

/// A config as its clients may see it.
#[derive(Clone, Debug)]
pub struct Shown {
    /// What is common.
    common: String,
    /// What stands there of each client: for itself, and for all others.
    own: Vec<String>,
    others: Vec<String>,
}

impl Shown {
    /// What one client sees; a number that no client has: what all may see.
    pub fn to(&self, client: usize) -> String {
        let clients = self.own.iter().zip(&self.others).enumerate();
        let parts = clients.map(|(i, (own, other))| if i == client { own } else { other });
        let mut text = self.common.clone();
        parts.for_each(|part| {
            text.push('\n');
            text.push_str(part);
        });
        text
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

fn written(start: &Start) -> Value {
    match start {
        Start::Zero => "zero".into(),
        Start::Optimum => "optimum".into(),
        Start::Drawn => "drawn".into(),
        Start::Point(point) => Value::Array(point.iter().map(|x| Value::Float(*x)).collect()),
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
        Config::parse(Source {
            file: "run.toml".into(),
            folder: "somewhere".into(),
            text: text.into(),
        })
        .unwrap()
    }

    #[test]
    fn a_resolved_config_says_what_was_decided_and_parses_again() {
        let mut config = parse(
            "[target]\nmodel = \"logistic\"\nprior = { law = \"gaussian\", variance = 1.0 }\n\
             [[client]]\nrows = [[-0.2, 0]]\n\
             [[client]]\nrows = [[0.5, 1]]\n[sampler]\nname = \"lmc\"\nstep = \"auto\"\n[output]\n\
             draws = \"d.npy\"",
        );
        config.seed = 12;
        let decide = |config: &Config| {
            Plan::new(config, &crate::problem::Problem::new(config).unwrap()).unwrap()
        };
        let plan = decide(&config);
        let text = config.resolved(&plan);
        let again = parse(&text);
        assert_eq!((again.seed, again.run.iterations), (12, Some(plan.length.iterations)));
        assert_eq!(again.sampler.step, Some(plan.step()));
        assert_eq!(
            (again.sampler.precondition, &again.run.start),
            (Some(true), &Some(Start::Optimum))
        );
        let here = std::env::current_dir().unwrap().join("somewhere");
        assert_eq!(again.draws, Some(here.join("d.npy")));
        let second = decide(&again);
        assert_eq!(
            (&second.length, second.step(), &second.start),
            (&plan.length, plan.step(), &plan.start)
        );
        assert_eq!(again.resolved(&second), text, "nothing is left to resolve");
    }

    #[test]
    fn files_are_named_in_full_and_what_is_open_stays_open() {
        let config = parse(
            "[target]\nmodel = \"logistic\"\n[[client]]\nfile = \"a.csv\"\n[sampler]\n\
             name = \"lmc\"\n",
        );
        let text = config.pinned();
        let here = std::env::current_dir().unwrap().join("somewhere");
        assert!(text.contains(&here.join("a.csv").display().to_string()), "{text}");
        assert!(
            !text.contains("step")
                && text.contains("effective_draws = 4000")
                && !text.contains("\niterations"),
            "{text}"
        );
    }

    #[test]
    fn a_client_is_shown_nobody_elses_rows() {
        let config = parse(
            "[target]\nmodel = \"logistic\"\n[[client]]\nname = \"basel\"\nrows = [[0.5, 1]]\n\
             [[client]]\nrows = [[0.25, 0]]\n[[client]]\nfile = \"secret.csv\"\n\
             response = \"ill\"\n\
             [sampler]\nname = \"lmc\"\n[output]\ndraws = \"d.npy\"",
        );
        let shown = config.shown_to(0);
        assert!(
            shown.contains("0.5")
                && !shown.contains("0.25")
                && !shown.contains("secret")
                && !shown.contains("d.npy"),
            "{shown}"
        );
        let again = parse(&shown);
        let super::super::ModelConfig::Rows { clients, .. } = &again.target.model else {
            panic!("rows")
        };
        let names: Vec<&str> = clients.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(
            (names, clients[2].response.as_deref()),
            (vec!["basel", "client 2", "client 3"], Some("ill"))
        );
        assert_eq!(again.sampler.step, None, "the step is found by a survey, and told later");
        assert!(!config.shown_to(2).contains("0.5"));
    }

    #[test]
    fn a_stated_step_and_start_stay() {
        let text = "[target]\nmodel = \"gaussian\"\n[[client]]\nmean = [1.0]\nprecision = [[2.0]]\n\
            [sampler]\nname = \"lmc\"\n\
                    step = { first = 0.1, delay = 10.0, power = 0.6 }\n[run]\nstart = [0.25]";
        let config = parse(text);
        let again = parse(&config.pinned());
        assert_eq!((again.sampler.step, again.run), (config.sampler.step, config.run));
    }
}
