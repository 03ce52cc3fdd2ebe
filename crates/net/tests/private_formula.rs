//! Columns that a formula codes, in a run with a privacy budget: the config states how, and nothing
//! that is a function of rows leaves a site before its first noised answer.
#![allow(clippy::unwrap_used)] // a test may panic

mod common;

use std::path::{Path, PathBuf};

use common::*;
use consilience_core::protocol::{
    Order, Payload, Precision, ReferencePoint, Statement, Task, encode_order,
};
use consilience_engine::config::Config;
use consilience_engine::plan::Decision;
use consilience_engine::problem::Problem;
use consilience_engine::site::{Introduction, Own, agree, names};
use consilience_engine::statement;
use consilience_engine::store::{Folder, Purse};
use consilience_net::certs::name_of_site;
use consilience_net::frame::{ASIDE, Frame};
use consilience_net::serve::ServeOptions;
use consilience_net::talk::{Instruction, PROTOCOL, Tell, VERSION, Welcome};
use consilience_net::worker::{Brings, Did, Worker};
use prost::Message;

const HOSPITALS: [&str; 4] = ["cleveland", "hungarian", "switzerland", "va"];

fn folder(name: &str) -> PathBuf {
    let name = format!("consilience-coded-{name}-{}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn file(site: &str) -> PathBuf {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data");
    data.join(format!("heart-disease/processed.{site}.data"))
}

/// Four hospitals by a formula, coded by round numbers that everybody knows.
fn hospitals(sampler: &str) -> String {
    let clients: String = HOSPITALS.map(|name| format!("[[client]]\nname = \"{name}\"\n")).concat();
    format!(
        "seed = 1\n[data]\nformat = \"csv\"\nheader = [\"age\", \"sex\", \"cp\", \"trestbps\", \
         \"chol\", \"fbs\", \"restecg\", \"thalach\", \"exang\", \"oldpeak\", \"slope\", \"ca\", \
         \"thal\", \"num\"]\n[target]\nformula = \"num > 0 ~ ns(age, 2) + sex + C(cp) + thalach + \
         exang + sex:thalach\"\nprior = {{ law = \"gaussian\", variance = 4.0 }}\n\
         [target.coding]\nage = {{ knots = [55], bounds = [25, 80] }}\n\
         sex = {{ levels = [0, 1] }}\ncp = {{ levels = [1, 2, 3, 4], reference = 4 }}\n\
         thalach = {{ centre = 140, scale = 25, mark = true }}\n\
         exang = {{ levels = [0, 1], impute = 0 }}\n\"sex:thalach\" = {{ centre = 0, scale = 150 \
         }}\n\
         {clients}[sampler]\n{sampler}\n[privacy]\nepsilon = 3.0\ndelta = 1e-6\nrow_norm = 3.0\n"
    )
}

const CHAINS: &str = "name = \"lmc\"\nstep = 1e-5\n[run]\nchains = 2\niterations = 40\nburn_in = 5";
const ONCE: &str = "name = \"dp-release\"\n[run]\niterations = 200";

fn bring(here: &Path, name: &str, data: Own) -> Brings {
    let (state, budget) = (Some(here.join(name)), Some((6.0, 1e-5)));
    Brings { data, state, budget, allows_simulation: false, ..brings(name) }
}

fn spent(here: &Path, name: &str) -> f64 {
    let path = here.join(name).join("purse").join(name_of_site(name));
    Purse::open(Folder::open(&path).unwrap()).unwrap().spent().0
}

/// Rows of real hospitals and of 944 voters, coded by what the config states, over a network: paid
/// for once, and the same statement at every party.
#[test]
fn a_formula_is_private_over_the_network_where_its_coding_is_stated() {
    let voters = std::fs::read_to_string(
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/anes96/anes96.csv"),
    )
    .unwrap();
    let lines: Vec<&str> = voters.lines().collect();
    let part = |k: usize| -> Own {
        let rows = lines[1..].iter().skip(k).step_by(3).map(|line| format!("{line}\n"));
        Own::Text(format!("{}\n{}", lines[0], rows.collect::<String>()).into())
    };
    let anes = |sampler: &str| {
        let clients: String =
            (0..3).map(|k| format!("[[client]]\nname = \"part {k}\"\n")).collect();
        format!(
            "seed = 2\n[target]\nformula = \"vote == 1 ~ selfLR + age + educ + C(PID)\"\n\
             prior = {{ law = \"gaussian\", variance = 4.0 }}\n[target.coding]\n\
             selfLR = {{ centre = 4, scale = 1.5 }}\nage = {{ centre = 45, scale = 16 }}\n\
             educ = {{ centre = 4, scale = 1.5 }}\nPID = {{ levels = [0, 1, 2, 3, 4, 5, 6], \
             reference = 3 }}\n{clients}[sampler]\n{sampler}\n[privacy]\nepsilon = 3.0\n\
             delta = 1e-6\nrow_norm = 3.0\nweak = true\n"
        )
    };
    let hospital = |k: usize| Own::File(file(HOSPITALS[k]));
    type Data<'a> = &'a dyn Fn(usize) -> Own;
    let runs: [(&str, String, Data<'_>); 4] = [
        ("chains", hospitals(CHAINS), &hospital),
        ("once", format!("{}weak = true\n", hospitals(ONCE)), &hospital),
        ("voters", anes(CHAINS), &part),
        ("voters-once", anes(ONCE), &part),
    ];
    for (name, text, data) in runs {
        let here = folder(name);
        let config = config(&text);
        let serving = start(&config, options());
        let sites = names(&config).unwrap();
        let joined: Vec<_> = sites
            .iter()
            .enumerate()
            .map(|(k, site)| common::site(bring(&here, site, data(k)), joining(serving.address)))
            .collect();
        let served = serving.end().unwrap();
        assert!(joined.into_iter().all(|site| site.join().unwrap().unwrap()), "{name}");
        for site in &sites {
            assert_eq!(spent(&here, site), 3.0, "{name}: {site}");
        }
        let draws = served.outcome.draws.rows().count();
        assert!(draws >= 70, "{name}: {draws}");
        assert_eq!(served.problem.moments_bits, (0, 0), "{name}: nothing was agreed on by sums");
        let text = served.statement.text();
        assert!(text.contains("what the config states"), "{name}: {text}");
        // what is kept codes new rows
        let encoding = served.problem.encoding.as_ref().unwrap();
        let own = match data(0) {
            Own::File(path) => encoding.read(&path, None).unwrap(),
            Own::Text(text) => {
                let path = here.join("new.csv");
                std::fs::write(&path, text.as_bytes()).unwrap();
                encoding.read(&path, None).unwrap()
            }
            _ => panic!("a file or a text"),
        };
        assert_eq!(own.cells.len() % served.problem.parameters.len(), 0);
        std::fs::remove_dir_all(here).unwrap();
    }
}

/// All that a site says up to its first answer, and that.
fn tape(here: &Path, text: &str, rows: &str) -> (Vec<u8>, Vec<u8>) {
    let config: Config = config(text);
    let mut worker = Worker::new(bring(here, "north", Own::Text(rows.into())));
    let mut said: Vec<u8> = worker.hello().encode_to_vec();
    let mut ask = |worker: &mut Worker, phase: u32, ask: &Instruction| -> Frame {
        match worker.handle(&Frame::words(phase, ask)).unwrap() {
            Did::Said(Some(frame)) => {
                said.extend(frame.encode_length_delimited_to_vec());
                frame
            }
            Did::Said(None) => Frame::words(phase, &Tell::Done),
            Did::Over { .. } => panic!("it goes on"),
        }
    };
    let welcome = Welcome {
        version: VERSION.into(),
        protocol: PROTOCOL.most,
        run: "0123456789abcdef0123456789abcdef".into(),
        boot: 1,
        config: config.shown_to(0),
        index: 0,
        simulation: false,
    };
    ask(&mut worker, ASIDE, &Instruction::Welcome(Box::new(welcome)));
    let told = ask(&mut worker, 1, &Instruction::Introduce);
    let Ok(Tell::Introduction(own)) = told.read() else { panic!("{told:?}") };
    // the other site has as many columns
    let Introduction::Numbers { columns, .. } = &own else { panic!("{own:?}") };
    let other = Introduction::Numbers { columns: columns.clone(), rows: 3 };
    let agreed = agree(&config, None, &[own, other]).unwrap();
    let agreement = agreed.agreement.clone();
    let sites = names(&config).unwrap();
    let stated = |decision: Option<&Decision>| {
        statement::of_run(&config, &agreement, &sites, decision).text().to_owned()
    };
    let statement = stated(None);
    let agree = Instruction::Agree { agreement: agreement.clone(), statement };
    ask(&mut worker, 1, &agree);
    let decision = Decision {
        sampler: None,
        step: None,
        weights: None,
        chains: None,
        attempt: 0,
        halved: false,
    };
    let statement = stated(Some(&decision));
    ask(&mut worker, 2, &Instruction::Decide { decision, statement });
    ask(&mut worker, 2, &Instruction::Where { phase: 2, survey: false });
    let dim = Problem::without_rows(&config, agreed).unwrap().target.dim();
    let mut order = Vec::new();
    let here = vec![0.125; dim];
    let first = Order {
        round: 0,
        task: Task::Estimate,
        position: Some(Payload::Plain(&here, Precision::F32)),
        reference: ReferencePoint::Keep,
        control: None,
        numbers: &[],
    };
    encode_order(&first, &mut order);
    let answer = match worker.handle(&Frame::message(2, 0, order)).unwrap() {
        Did::Said(Some(frame)) => frame.body.to_vec(),
        _ => panic!("an answer"),
    };
    (said, answer)
}

/// Two sets of rows of which no value is the same: what a site says before its first answer is the
/// same, byte for byte. The answers are of the same length.
#[test]
fn nothing_of_rows_leaves_a_site_before_its_first_noised_answer() {
    let text = "seed = 1\n[target]\nformula = \"ill == yes ~ ns(age, 3) + sex + log(dose) + \
        age:sex\"\nprior = { law = \"gaussian\", variance = 4.0 }\n[target.coding]\n\
        age = { centre = 50, scale = 10 }\n\"ns(age, 3)\" = { knots = [40, 60], bounds = [20, 90] \
        }\nsex = { levels = [\"f\", \"m\", \"x\"], impute = \"x\" }\n\"log(dose)\" = { centre = 0, \
        scale = 1, mark = true }\n[[client]]\nname = \"north\"\n[[client]]\nname = \"south\"\n\
        [sampler]\nname = \"lmc\"\nstep = 1e-4\n[run]\nchains = 1\niterations = 40\n[privacy]\n\
        epsilon = 3.0\ndelta = 1e-6\nrow_norm = 3.0\n";
    let rows = [
        "age,sex,dose,ill\n41,f,0.5,no\n63,m,,yes\n57,m,1.5,no\n38,,2.5,yes\n44.5,m,1,no\n",
        "ill,extra,dose,sex,age\nyes,1,7,x,90\nyes,2,8,x,20\nyes,3,9,x,21\nyes,1,8.5,x,89\n\
         yes,1,0.001,x,22\n",
    ];
    let mut tapes = Vec::new();
    for (k, rows) in rows.iter().enumerate() {
        let here = folder(&format!("tape-{k}"));
        tapes.push(tape(&here, text, rows));
        std::fs::remove_dir_all(here).unwrap();
    }
    assert_eq!(tapes[0].0, tapes[1].0, "what is said of rows is a function of them");
    assert!(tapes[0].0.len() > 1000);
    assert_eq!(tapes[0].1.len(), tapes[1].1.len());
    assert_ne!(tapes[0].1, tapes[1].1);
}

/// A level that the config does not state is named where the rows are, and nowhere else.
#[test]
fn a_level_that_is_not_stated_is_named_at_its_site_alone() {
    let here = folder("level");
    let text = "seed = 1\n[target]\nformula = \"ill == yes ~ illness\"\n\
        prior = { law = \"gaussian\", variance = 4.0 }\n[target.coding]\n\
        illness = { levels = [\"cold\", \"flu\"] }\n[[client]]\nname = \"north\"\n[[client]]\n\
        name = \"south\"\n[sampler]\nname = \"lmc\"\nstep = 1e-4\n[run]\nchains = 1\n\
        iterations = 40\n[privacy]\nepsilon = 3.0\ndelta = 1e-6\nrow_norm = 3.0\n";
    let config = config(text);
    let deadline = Some(std::time::Duration::from_secs(5));
    let serving = start(&config, ServeOptions { deadline, ..options() });
    let (address, tape) = tapped(serving.address);
    let rows = ["illness,ill\nflu,yes\nsyphilis,no\n", "illness,ill\nflu,yes\ncold,no\n"];
    let sites: Vec<_> = ["north", "south"]
        .iter()
        .zip(rows)
        .map(|(name, rows)| site(bring(&here, name, Own::Text(rows.into())), joining(address)))
        .collect();
    let served = serving.end().err().unwrap().to_string();
    let told: Vec<String> = sites
        .into_iter()
        .filter_map(|site| Some(site.join().unwrap().err()?.to_string()))
        .collect();
    let own = "column `illness`: target.coding states no level `syphilis`";
    assert!(told.iter().any(|why| why.contains(own)), "{told:?}");
    assert!(served.contains("does not go with what the config states"), "{served}");
    assert!(!served.contains("syphilis"), "{served}");
    assert!(!contains(&tape.lock().unwrap(), b"syphilis"));
    assert!(!here.join("north").join("purse").exists(), "nothing is paid");
    std::fs::remove_dir_all(here).unwrap();
}

/// Without a budget nothing is asked either: the run is that of one process, to the last bit.
#[test]
fn a_stated_coding_takes_no_exchange_without_a_budget_too() {
    let text = hospitals(CHAINS).split("[privacy]").next().unwrap().to_owned();
    let text = format!("seeds = \"simulation\"\n{text}");
    let with_files = HOSPITALS.iter().fold(text.clone(), |text, name| {
        let client = format!("name = \"{name}\"\n");
        text.replace(&client, &format!("{client}file = \"{}\"\n", file(name).display()))
    });
    let here = in_process(&config(&with_files));
    let config = config(&text);
    let serving = start(&config, options());
    let sites: Vec<_> = HOSPITALS
        .iter()
        .map(|name| {
            let data = Own::File(file(name));
            site(Brings { data, ..brings(name) }, joining(serving.address))
        })
        .collect();
    let served = serving.end().unwrap();
    sites.into_iter().for_each(|site| assert!(site.join().unwrap().unwrap()));
    same("stated", &served, &here);
    let kept: &Statement = &served.statement;
    assert!(kept.text().contains("column 1"), "{}", kept.text());
}
