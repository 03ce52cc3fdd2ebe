//! A site that keeps a budget is killed again and again while it tells: what it counts as told is
//! never below what left it, and a run is paid for once.
#![allow(clippy::unwrap_used)] // a test may panic

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use consilience_core::protocol::{Client, kept_answers};
use consilience_core::rng::{ClientId, Seed};
use consilience_core::sampler::Keys;
use consilience_engine::config::{Config, Source};
use consilience_engine::plan::Plan;
use consilience_engine::problem::Problem;
use consilience_engine::rundir;
use consilience_engine::store::{DurableClient, Folder, Purse, private_seed};
use consilience_net::certs::name_of_site;

const ITERATIONS: u64 = 1000;
const CHAINS: u32 = 2;
/// More than the run asks for: whoever counts too little would not be stopped by it.
const ALLOWED: u64 = 10_000;

fn config() -> String {
    format!(
        "seed = 3\n[target]\nmodel = \"logistic\"\nintercept = false\n\
         prior = {{ law = \"gaussian\", variance = 2.0 }}\n\
         [[client]]\nname = \"north\"\nrows = [[0.2, 1.0, 1], [-1.1, 0.3, 0]]\n\
         [[client]]\nname = \"south\"\nrows = [[1.3, 0.2, 1], [0.4, -1.6, 0]]\n\
         [sampler]\nname = \"lmc\"\nstep = 1e-6\n\
         [run]\nchains = {CHAINS}\niterations = {ITERATIONS}\n\
         [privacy]\nepsilon = 3.0\ndelta = 1e-6\nrow_norm = 2.0\n"
    )
}

struct Place {
    folder: PathBuf,
    address: String,
}

impl Place {
    fn spawn(&self, name: &str, line: &[&str]) -> Child {
        let log = self.folder.join(format!("{name}.log"));
        let log = std::fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
        Command::new(env!("CARGO_BIN_EXE_consilience"))
            .args(line)
            .args(["--insecure-loopback", "--state", &format!("state-{name}")])
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap()
    }

    fn join(&self, name: &str) -> Child {
        let line = ["join", "--server", &self.address, "--site", name, "--budget", "6,1e-5"];
        self.spawn(name, &line)
    }

    /// Where the site north keeps its state of the run; `None`: it has none yet.
    fn own(&self) -> Option<PathBuf> {
        let text = std::fs::read_to_string(self.folder.join("state-server/run.json")).ok()?;
        let known: serde_json::Value = serde_json::from_str(&text).ok()?;
        let run = known["run"].as_str()?;
        Some(self.folder.join("state-north").join(run).join(name_of_site("north")))
    }

    /// How many answers of a chain the site north counts as told, by its own state.
    fn told(&self, chain: u32) -> u64 {
        let Some(own) = self.own() else { return 0 };
        let folder = own.join(format!("chain-{}", chain + 1));
        if !folder.exists() {
            return 0;
        }
        let source = Source { file: "run.toml".into(), folder: ".".into(), text: config() };
        let config = Config::parse(source).unwrap();
        let problem = Problem::new(&config).unwrap();
        let plan = Plan::new(&config, &problem).unwrap();
        let nobody = |_: &mut [u8; 32]| Err(std::io::Error::other("there is no seed"));
        let mut seeds = Folder::open(&own.join("seed")).unwrap();
        let private = private_seed(&mut seeds, nobody).unwrap().chain(chain);
        let keys = Keys { public: Seed::new(config.seed).chain(chain), private };
        let device = plan.recipe.client(&plan.target, ClientId(0), keys).unwrap();
        let client = Client::new(device, plan.recipe.format(&plan.target, keys).unwrap())
            .keeping(kept_answers(plan.target.dim()))
            .allowed(ALLOWED);
        let (client, _) = DurableClient::open(Folder::open(&folder).unwrap(), client).unwrap();
        client.client().told().unwrap()
    }

    fn paid(&self) -> f64 {
        let folder = self.folder.join("state-north/purse").join(name_of_site("north"));
        if folder.exists() {
            Purse::open(Folder::open(&folder).unwrap()).unwrap().spent().0
        } else {
            0.0
        }
    }
}

fn ends(child: &mut Child, place: &Path) {
    let since = Instant::now();
    loop {
        match child.try_wait().unwrap() {
            Some(status) => {
                assert!(status.success(), "{status}: see {}", place.display());
                return;
            }
            None => assert!(since.elapsed() < Duration::from_secs(120), "{}", place.display()),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn what_a_killed_site_counts_as_told_is_never_below_what_left_it() {
    let folder = std::env::temp_dir().join(format!("consilience-budget-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("run.toml"), config()).unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let place = Place { folder, address: format!("127.0.0.1:{port}") };
    let serve = ["serve", "run.toml", "--listen", &place.address, "--out", "there"];
    let (mut server, mut south) = (place.spawn("server", &serve), place.join("south"));
    let mut north = place.join("north");
    let (mut kills, mut midway, mut before) = (0u64, 0, [0; CHAINS as usize]);
    while kills < 25 && north.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(60 + 7 * (kills * kills % 11)));
        north.kill().unwrap(); // SIGKILL
        north.wait().unwrap();
        kills += 1;
        for (chain, before) in before.iter_mut().enumerate() {
            let told = place.told(chain as u32);
            assert!(told >= *before, "{told} were told, and {before} before");
            midway += u64::from(told > *before && told < ITERATIONS);
            *before = told;
        }
        assert!(place.paid() <= 3.0, "paid twice");
        north = place.join("north");
    }
    ends(&mut server, &place.folder);
    [&mut south, &mut north].into_iter().for_each(|site| ends(site, &place.folder));
    let record = rundir::read(&place.folder.join("there")).unwrap();
    assert_eq!(record.iterations, ITERATIONS, "the server has so many answers of each chain");
    for chain in 0..CHAINS {
        let told = place.told(chain);
        let most = ITERATIONS + kills; // an answer that was counted and never left
        assert!((ITERATIONS..=most).contains(&told), "{told} for {ITERATIONS}, {kills} kills");
    }
    assert_eq!(place.paid(), 3.0, "the run's whole budget, once");
    assert!(kills >= 3 && midway >= 2, "{kills} kills, {midway} while it told");
    std::fs::remove_dir_all(&place.folder).unwrap();
}
