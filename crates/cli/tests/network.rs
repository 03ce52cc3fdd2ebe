//! A server and its sites as processes, with certificates: the run is the one of one process,
//! whoever is killed.
#![allow(clippy::unwrap_used)] // a test may panic

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use consilience::engine::record::Record;
use consilience::engine::rundir;

const SITES: [&str; 4] = ["cleveland", "hungarian", "switzerland", "va"];

const CONFIG: &str = "seed = 11\nseeds = \"simulation\"\n[data]\nbuiltin = \"heart-disease\"\n\
    [sampler]\nname = \"qlsd++\"\nbatch = 0.2\nrefresh = 25\ncompress = \"qsgd(16)\"\n\
    precondition = true\n\
    [run]\nchains = 2\niterations = 400\nburn_in = 50\nthin = 5\nstart = \"optimum\"\n";

struct Place {
    folder: PathBuf,
    port: u16,
}

impl Place {
    fn new(name: &str) -> Place {
        Place::of(name, CONFIG, &SITES, &[])
    }

    /// A folder with a config, its run in one process, certificates for the sites, and more files.
    fn of(name: &str, config: &str, sites: &[&str], files: &[(&str, &str)]) -> Place {
        let folder =
            std::env::temp_dir().join(format!("consilience-network-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        for (file, text) in files.iter().chain([&("run.toml", config)]) {
            std::fs::write(folder.join(file), text).unwrap();
        }
        let place = Place {
            port: TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port(),
            folder,
        };
        place.succeed(&["certs", "certs", "--sites", &sites.join(",")]);
        place.succeed(&["run", "run.toml", "--out", "here"]);
        place
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_consilience"));
        command
            .args(arguments)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command
    }

    fn succeed(&self, arguments: &[&str]) {
        let output = self.command(arguments).output().unwrap();
        assert!(
            output.status.success(),
            "{arguments:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    fn spawn(&self, name: &str, arguments: &[&str]) -> Child {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.join(format!("{name}.log")))
            .unwrap();
        self.command(arguments).stderr(log).spawn().unwrap()
    }

    fn server(&self) -> Child {
        self.server_of("run.toml")
    }

    fn server_of(&self, config: &str) -> Child {
        let listen = format!("127.0.0.1:{}", self.port);
        self.spawn(
            "server",
            &[
                "serve",
                config,
                "--listen",
                &listen,
                "--certs",
                "certs/server",
                "--state",
                "state",
                "--out",
                "there",
            ],
        )
    }

    fn site(&self, name: &str) -> Child {
        let data = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(format!("../../data/heart-disease/processed.{name}.data"));
        self.site_with(name, &data)
    }

    fn site_with(&self, name: &str, data: &Path) -> Child {
        let (server, certs, state) =
            (format!("localhost:{}", self.port), format!("certs/{name}"), format!("state-{name}"));
        let arguments = [
            "join",
            "--server",
            &server,
            "--site",
            name,
            "--certs",
            &certs,
            "--state",
            &state,
            "--allow-simulation-seeds",
        ];
        self.spawn(
            name,
            &[&arguments[..], &["--patience", "60", "--data", data.to_str().unwrap()]].concat(),
        )
    }

    fn wait(&self, name: &str, child: &mut Child) {
        let deadline = Instant::now() + Duration::from_secs(150);
        loop {
            match child.try_wait().unwrap() {
                Some(status) => {
                    break assert!(status.success(), "{name}: {status}\n{}", self.log(name));
                }
                None if Instant::now() > deadline => {
                    child.kill().unwrap();
                    panic!("{name} did not end\n{}\n{}", self.log(name), self.log("server"));
                }
                None => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.folder.join(format!("{name}.log"))).unwrap_or_default()
    }

    /// The server's run directory says what the one of one process says.
    fn compare(&self) {
        let (here, there): (Record, Record) = (
            rundir::read(&self.folder.join("here")).unwrap(),
            rundir::read(&self.folder.join("there")).unwrap(),
        );
        assert_eq!(there.draws, here.draws);
        assert_eq!(
            (&there.sent, &there.sites, there.before_sampling),
            (&here.sent, &here.sites, here.before_sampling)
        );
        assert_eq!(
            (there.uncompressed, &there.parameters, &there.notes),
            (here.uncompressed, &here.parameters, &here.notes)
        );
        let beside = |record: &Record| {
            record
                .statistics
                .iter()
                .filter(|s| s.name != "lp" && s.name != "gradients")
                .cloned()
                .collect::<Vec<_>>()
        };
        assert_eq!(beside(&there), beside(&here));
        assert!(
            !here.draws.rows().all(|row| row[0] == 0.0) && here.draws.length() > 50,
            "there is something to compare"
        );
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let _ = std::fs::remove_dir_all(&self.folder);
        }
    }
}

#[test]
fn four_hospitals_as_processes_give_the_draws_of_one_process() {
    let place = Place::new("same");
    // Sites may come before the server: they look for it.
    let mut sites: Vec<Child> = SITES.iter().rev().map(|site| place.site(site)).collect();
    let mut server = place.server();
    place.wait("server", &mut server);
    for (name, site) in SITES.iter().rev().zip(&mut sites) {
        place.wait(name, site);
    }
    place.compare();
    let here = rundir::read(&place.folder.join("here")).unwrap();
    assert_eq!(
        rundir::read(&place.folder.join("there")).unwrap().rows_evaluated,
        here.rows_evaluated
    );
}

#[test]
fn killed_parties_come_back_and_the_chain_is_the_same() {
    let place = Place::new("killed");
    let mut server = place.server();
    let mut sites: Vec<Child> = SITES.iter().map(|site| place.site(site)).collect();
    let journal = place.folder.join("state/chain-1");
    let written = || -> u64 {
        let files = std::fs::read_dir(&journal).into_iter().flatten().flatten();
        files.map(|file| file.metadata().map_or(0, |m| m.len())).sum()
    };
    // Kill the server and two sites in turn, while the chains run.
    let (mut kills, started) = (0, Instant::now());
    let mut next = 2000;
    while kills < 6
        && started.elapsed() < Duration::from_secs(60)
        && server.try_wait().unwrap().is_none()
    {
        if written() < next {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        next = written() + 3000;
        let victim = [0, 1, 4][kills % 3];
        if victim == 4 {
            server.kill().unwrap();
            server.wait().unwrap();
            server = place.server();
        } else {
            sites[victim].kill().unwrap();
            sites[victim].wait().unwrap();
            sites[victim] = place.site(SITES[victim]);
        }
        kills += 1;
    }
    place.wait("server", &mut server);
    for (name, site) in SITES.iter().zip(&mut sites) {
        place.wait(name, site);
    }
    assert!(kills >= 3, "only {kills} kills: the run was over too soon");
    place.compare();
}

/// Raw columns with words and gaps: the sites exchange kinds, codes and sums, the run is that of
/// one process, and the server's folder knows how to code rows to come.
#[test]
fn columns_that_a_formula_codes_are_served_and_predicted_from() {
    let rest = "[sampler]\nname = \"lmc\"\n[run]\nchains = 2\niterations = 400\nburn_in = 50\n";
    let config = |file: fn(&str) -> String| {
        let client = |site: &str| format!("[[client]]\nname = \"{site}\"\n{}", file(site));
        let (north, south) = (client("north"), client("south"));
        let head = "seed = 3\nseeds = \"simulation\"\n[target]\n\
            formula = \"ill == yes ~ age + sex\"\n";
        format!("{head}{north}{south}{rest}")
    };
    let north = "age,sex,ill\n41,f,no\n63,m,yes\n,m,no\n38,f,yes\n44.5,m,no\n59,f,yes\n";
    let south = "sex,age,ill,ward\nm,39,no,a\nf,70,yes,b\nf,51,yes,a\nm,62,no,b\nm,,yes,a\n";
    let new = "sex,age\nf,50\nm,\nm,71\n";
    let place = Place::of(
        "formula",
        &config(|site| format!("file = \"{site}.csv\"\n")),
        &["north", "south"],
        &[
            ("served.toml", &config(|_| String::new())),
            ("north.csv", north),
            ("south.csv", south),
            ("new.csv", new),
        ],
    );
    let mut server = place.server_of("served.toml");
    let join = |site: &str| place.site_with(site, Path::new(&format!("{site}.csv")));
    let mut sites = [("south", join("south")), ("north", join("north"))];
    place.wait("server", &mut server);
    for (name, site) in &mut sites {
        place.wait(name, site);
    }
    place.compare();
    let read = |file: &str| std::fs::read_to_string(place.folder.join(file)).unwrap();
    assert_eq!(read("there/encoding.json"), read("here/encoding.json"));
    let predicted = |run: &str| {
        let mut command = place.command(&["predict", run, "--data", "new.csv", "--json"]);
        let output = command.stdout(Stdio::piped()).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(predicted("there"), predicted("here"));
    assert!(predicted("there").len() > 50, "{}", predicted("there"));
    assert!(read("there/statement.txt").contains(": 1 where term 2 is \""), "how words are coded");
}
