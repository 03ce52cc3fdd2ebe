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
        self.site_with(name, &rows(name))
    }

    fn site_with(&self, name: &str, data: &Path) -> Child {
        let line = self.join_line(name, data);
        self.spawn(name, &line.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// The arguments by which a site joins.
    fn join_line(&self, name: &str, data: &Path) -> Vec<String> {
        let (server, certs, state) =
            (format!("localhost:{}", self.port), format!("certs/{name}"), format!("state-{name}"));
        let line = ["join", "--server", &server, "--site", name, "--certs", &certs, "--state"];
        let rest = [&state, "--allow-simulation-seeds", "--patience", "60", "--data"];
        let data = data.to_str().unwrap();
        line.iter().chain(&rest).chain([&data]).map(|word| (*word).to_owned()).collect()
    }

    fn wait(&self, name: &str, child: &mut Child) {
        let code = self.code(name, child);
        assert_eq!(code, Some(0), "{name}\n{}", self.log(name));
    }

    /// How a party ends.
    fn code(&self, name: &str, child: &mut Child) -> Option<i32> {
        let deadline = Instant::now() + Duration::from_secs(150);
        loop {
            match child.try_wait().unwrap() {
                Some(status) => break status.code(),
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

/// The rows of one hospital.
fn rows(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join(format!("../../data/heart-disease/processed.{name}.data"))
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

/// With no port at all: letters in a folder, by the sampler that is chosen by default.
#[test]
fn four_hospitals_that_share_a_folder_give_the_draws_of_one_process() {
    let config = "seed = 11\nseeds = \"simulation\"\n[data]\nbuiltin = \"heart-disease\"\n\
        [run]\nchains = 4\neffective_draws = 400\n";
    let place = Place::of("letters", config, &SITES, &[]);
    let serve = ["serve", "run.toml", "--post", "drive", "--look", "0.02", "--certs"];
    let serve = [&serve[..], &["certs/server", "--state", "state", "--out", "there"]].concat();
    let join = |name: &str| {
        let (certs, state) = (format!("certs/{name}"), format!("state-{name}"));
        let data = rows(name);
        let line = ["join", "--post", "drive", "--look", "0.02", "--site", name, "--certs", &certs];
        let rest = ["--state", &state, "--allow-simulation-seeds", "--patience", "60", "--data"];
        let line = [&line[..], &rest, &[data.to_str().unwrap()]].concat();
        place.spawn(name, &line)
    };
    let mut server = place.spawn("server", &serve);
    // A site and the server are killed, and started again with the same line, whether the run is
    // over by then or not.
    let mut sites: Vec<Child> = SITES.iter().map(|site| join(site)).collect();
    std::thread::sleep(Duration::from_millis(700));
    for child in [&mut server, &mut sites[1]] {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    (server, sites[1]) = (place.spawn("server", &serve), join(SITES[1]));
    place.wait("server", &mut server);
    for (name, site) in SITES.iter().zip(&mut sites) {
        place.wait(name, site);
    }
    place.compare();
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

/// Wait until something is so.
fn until(what: &str, is_so: impl Fn() -> bool) {
    let since = Instant::now();
    while !is_so() {
        assert!(since.elapsed() < Duration::from_secs(100), "{what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn terminate(child: &Child) {
    let killed = Command::new("kill").args(["-TERM", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
}

/// SIGTERM in the middle: the server says so by its code and publishes nothing, a site likewise,
/// the other sites wait, and the same commands go on.
#[test]
fn an_interrupted_party_goes_on_with_the_same_command() {
    let place = Place::new("interrupted");
    let mut server = place.server();
    let mut sites: Vec<Child> = SITES.iter().map(|site| place.site(site)).collect();
    let journal = place.folder.join("state/chain-1");
    let written = || -> u64 {
        let files = std::fs::read_dir(&journal).into_iter().flatten().flatten();
        files.map(|file| file.metadata().map_or(0, |m| m.len())).sum()
    };
    until("the chains run", || written() > 2000);
    terminate(&sites[0]);
    assert_eq!(place.code(SITES[0], &mut sites[0]), Some(6), "{}", place.log(SITES[0]));
    terminate(&server);
    assert_eq!(place.code("server", &mut server), Some(6), "{}", place.log("server"));
    assert!(!place.folder.join("there").exists(), "nothing is published before the end");
    assert!(place.log("server").contains("the sites wait"));
    for (name, site) in SITES.iter().zip(&mut sites).skip(1) {
        assert!(site.try_wait().unwrap().is_none(), "{name} waits\n{}", place.log(name));
    }
    server = place.server();
    sites[0] = place.site(SITES[0]);
    place.wait("server", &mut server);
    for (name, site) in SITES.iter().zip(&mut sites) {
        place.wait(name, site);
    }
    place.compare();
}

/// A run that is over: the same commands again say so and change nothing, wherever the server was
/// killed after its folder was published; a site is told where the draws are.
#[test]
fn a_run_that_is_over_is_remembered() {
    let place = Place::new("over");
    let all = |server: &mut Child, sites: &mut [Child]| {
        place.wait("server", server);
        SITES.iter().zip(sites).for_each(|(name, site)| place.wait(name, site));
    };
    all(&mut place.server(), &mut SITES.map(|site| place.site(site)));
    place.compare();
    let there = place.folder.join("there");
    let file = |name: &str| std::fs::read(there.join(name)).unwrap();
    let (run, report) = (file("run.json"), file("report.html"));
    assert!(!file("statement.txt").is_empty());
    // Everybody has heard: the server ends at once, and a site knows without it.
    place.wait("server", &mut place.server());
    place.wait("va", &mut place.site("va"));
    assert!(place.log("va").contains("was over when this site last heard"), "{}", place.log("va"));
    // Killed when the folder was published and nothing noted: sites come back and are told.
    std::fs::remove_file(place.folder.join("state/over.json")).unwrap();
    let mut told = place
        .command(&["join", "--server", &format!("localhost:{}", place.port), "--site", "va"])
        .args(["--certs", "certs/va", "--state", "elsewhere", "--patience", "60"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let rest = &SITES[..3];
    let mut sites: Vec<Child> = rest.iter().map(|site| place.site(site)).collect();
    place.wait("server", &mut place.server());
    rest.iter().zip(&mut sites).for_each(|(name, site)| place.wait(name, site));
    let mut says = String::new();
    std::io::Read::read_to_string(told.stdout.as_mut().unwrap(), &mut says).unwrap();
    assert!(told.wait().unwrap().success());
    let stated = "The run came to its end: the draws are at the server, in ";
    assert!(says.starts_with(stated) && says.trim_end().ends_with("there."), "{says}");
    assert_eq!((file("run.json"), file("report.html")), (run, report), "nothing is written again");
    the_audit_log_cannot_be_edited(&place);
    // Another folder that is there already is no run of ours.
    std::fs::write(there.join("served.txt"), "another\n").unwrap();
    assert_eq!(place.code("server", &mut place.server()), Some(2), "{}", place.log("server"));
}

/// All sites signed, the last line is the one that they were told, and every edit is found.
fn the_audit_log_cannot_be_edited(place: &Place) {
    let audit = |more: &[&str]| {
        let line = [&["audit", "there", "--certs", "certs/va"], more].concat();
        let output = place.command(&line).stdout(Stdio::piped()).output().unwrap();
        let says = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&says).into_owned())
    };
    let mut kept = std::fs::read_dir(place.folder.join("state-va")).unwrap().flatten();
    let kept = kept.find(|file| file.file_name().to_string_lossy().ends_with(".over.json"));
    let kept = std::fs::read_to_string(kept.unwrap().path()).unwrap();
    let head = &kept.split("the audit log ends with ").nth(1).unwrap()[..64];
    let (code, says) = audit(&["--head", head]);
    assert_eq!(code, Some(0), "{says}");
    assert!(says.contains("va joined") && says.contains("the chains came to their end"), "{says}");
    assert!(says.contains("signed by cleveland, hungarian, switzerland, va."), "{says}");
    let (code, says) = audit(&["--head", &"0".repeat(64)]);
    assert!(code == Some(1) && says.contains("not the one of the run"), "{says}");
    let file = place.folder.join("there/audit.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    let place_of = text.lines().position(|line| line.contains("\"joined\"")).unwrap();
    std::fs::write(&file, text.replacen("\"site\":\"", "\"site\":\"x", 1)).unwrap();
    let (code, says) = audit(&[]);
    let named = format!("line {} of the audit log", place_of + 2);
    assert!(code == Some(1) && says.contains(&named), "{says}");
    std::fs::write(&file, text).unwrap();
    let statement = place.folder.join("there/statement.txt");
    let stated = std::fs::read_to_string(&statement).unwrap();
    std::fs::write(&statement, stated.replacen("prior", "priority", 1)).unwrap();
    let (code, says) = audit(&[]);
    assert!(code == Some(1) && says.contains("is not what was agreed on"), "{says}");
    std::fs::write(&statement, stated).unwrap();
}

/// A disk that takes no more at one site: that site ends, the run waits and says for whom and why,
/// and goes on when there is room. Meanwhile a second server on the same state is refused.
#[test]
fn a_full_disk_at_one_site_holds_up_the_run_and_no_more() {
    let place = Place::new("full");
    let mut server = place.server();
    let mut sites: Vec<Child> = SITES[1..].iter().map(|site| place.site(site)).collect();
    // files of more than 8 kB are refused, as if the disk were full
    let mut full = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 16; exec \"$@\"", "sh"])
        .arg(env!("CARGO_BIN_EXE_consilience"))
        .args(place.join_line(SITES[0], &rows(SITES[0])))
        .current_dir(&place.folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(place.code(SITES[0], &mut full), Some(1));
    until("the server says so", || place.log("server").contains("File too large"));
    assert!(server.try_wait().unwrap().is_none(), "{}", place.log("server"));
    let listen = ["serve", "run.toml", "--listen", "127.0.0.1:0", "--certs", "certs/server"];
    let second = place.command(&listen).args(["--state", "state"]).output().unwrap();
    let says = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(second.status.code() == Some(1) && says.contains("is in use by process"), "{says}");
    sites.insert(0, place.site(SITES[0]));
    place.wait("server", &mut server);
    for (name, site) in SITES.iter().zip(&mut sites) {
        place.wait(name, site);
    }
    place.compare();
}

/// A state folder at one site that nobody may write into: that site ends by that reason, the run
/// waits and names it, and goes on when the folder is mended.
#[cfg(target_os = "linux")]
#[test]
fn a_folder_that_cannot_be_written_holds_up_the_run_until_it_is_mended() {
    use std::os::unix::fs::PermissionsExt;
    let place = Place::new("readonly");
    let folder = place.folder.join(format!("state-{}", SITES[0]));
    std::fs::create_dir(&folder).unwrap();
    let allow = |mode| {
        std::fs::set_permissions(&folder, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    allow(0o500);
    let mut server = place.server();
    let mut sites: Vec<Child> = SITES[1..].iter().map(|site| place.site(site)).collect();
    // whoever may write everywhere gives that up
    let may = std::fs::write(folder.join("tried"), "").is_ok();
    let _ = std::fs::remove_file(folder.join("tried"));
    let mut line = vec![env!("CARGO_BIN_EXE_consilience").to_owned()];
    line.extend(place.join_line(SITES[0], &rows(SITES[0])));
    if may {
        let gives_up = ["setpriv", "--inh-caps=-dac_override", "--bounding-set=-dac_override"];
        line.splice(0..0, gives_up.map(str::to_owned));
    }
    let log = std::fs::File::create(place.folder.join("readonly.log")).unwrap();
    let mut readonly = Command::new(&line[0])
        .args(&line[1..])
        .current_dir(&place.folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap();
    let code = place.code("readonly", &mut readonly);
    assert_eq!(code, Some(1), "{}", place.log("readonly"));
    assert!(place.log("readonly").contains("Permission denied"), "{}", place.log("readonly"));
    until("the server says so", || place.log("server").contains("Permission denied"));
    assert!(server.try_wait().unwrap().is_none(), "{}", place.log("server"));
    allow(0o700);
    sites.insert(0, place.site(SITES[0]));
    place.wait("server", &mut server);
    for (name, site) in SITES.iter().zip(&mut sites) {
        place.wait(name, site);
    }
    place.compare();
}

/// A site whose groups have effects is killed while the chains run, and comes back: the draws are
/// those of an undisturbed run, and so are the effects that it finds in its own folder when all is
/// over, and those that it draws by itself with the run's folder.
#[test]
fn a_killed_site_draws_the_effects_of_an_undisturbed_run() {
    let rest = "[sampler]\nname = \"lmc\"\n[run]\nchains = 2\niterations = 600\nburn_in = 50\n";
    let config = |file: fn(&str) -> String| {
        let client = |site: &str| format!("[[client]]\nname = \"{site}\"\n{}", file(site));
        let head = "seed = 4\nseeds = \"simulation\"\n[target]\n\
            formula = \"ill == 1 ~ x + (1 | ward)\"\n";
        format!("{head}{}{}{rest}", client("north"), client("south"))
    };
    let rows = |shift: u32| {
        let row = |k: u32| {
            let x = f64::from((k * 7 + shift) % 11) / 4.0 - 1.2;
            format!("w{},{x},{}\n", k % 4, u32::from((k * k + shift) % 5 < 2))
        };
        format!("ward,x,ill\n{}", (0..24).map(row).collect::<String>())
    };
    let place = Place::of(
        "effects",
        &config(|site| format!("file = \"{site}.csv\"\n")),
        &["north", "south"],
        &[
            ("served.toml", &config(|_| String::new())),
            ("north.csv", &rows(1)),
            ("south.csv", &rows(3)),
        ],
    );
    let mut server = place.server_of("served.toml");
    let join = |site: &str| place.site_with(site, Path::new(&format!("{site}.csv")));
    let (mut north, mut south) = (join("north"), join("south"));
    let journal = place.folder.join("state/chain-1");
    let written = || -> u64 {
        let files = std::fs::read_dir(&journal).into_iter().flatten().flatten();
        files.map(|file| file.metadata().map_or(0, |m| m.len())).sum()
    };
    let (mut kills, mut next, started) = (0, 2000, Instant::now());
    while kills < 3
        && started.elapsed() < Duration::from_secs(60)
        && server.try_wait().unwrap().is_none()
    {
        if written() < next {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        next = written() + 3000;
        north.kill().unwrap();
        north.wait().unwrap();
        north = join("north");
        kills += 1;
    }
    place.wait("server", &mut server);
    place.wait("north", &mut north);
    place.wait("south", &mut south);
    assert!(kills > 0, "the run was over too soon");
    place.compare();
    // who comes again is told again
    let line = place.join_line("north", Path::new("north.csv"));
    let line: Vec<&str> = line.iter().map(String::as_str).collect();
    let told = place.command(&line).stdout(Stdio::piped()).output().unwrap();
    let told = String::from_utf8(told.stdout).unwrap();
    let kept = told.split_once("of this site's own groups are in ");
    let kept = kept.unwrap_or_else(|| panic!("{told}")).1.split(',').next().unwrap();
    assert!(kept.starts_with("state-north/") && kept.ends_with("/north/effects.csv"), "{kept}");
    for run in ["here", "there"] {
        let file = format!("{run}.csv");
        let own = ["--site", "north", "--data", "north.csv", "--out", &file];
        place.succeed(&[&["effects", run], &own[..]].concat());
    }
    let read = |file: &str| std::fs::read_to_string(place.folder.join(file)).unwrap();
    assert_eq!(read(kept), read("here.csv"));
    assert_eq!(read("there.csv"), read("here.csv"));
    // one process keeps what each site's own folder has
    assert_eq!(read("here/sites/north/effects.csv"), read("here.csv"));
    assert!(place.folder.join("here/sites/south/effects.csv").exists());
    assert!(!place.folder.join("there/sites").exists(), "the server has no effects");
    assert!(read("here.csv").starts_with("chain,draw,\"w0\",\"w1\",\"w2\",\"w3\"\n0,0,"));
    assert_eq!(read("here.csv").lines().count(), 1 + 2 * 550);
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
