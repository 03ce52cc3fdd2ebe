//! Hold a GPU to the bits of the cores, kernels and whole chains, and say how long iterations take.

use std::path::Path;
use std::process::Command;

use crate::cargo;

/// Nets of every kind on rows that come with the program, and where images are at hand LeNet5.
const NETS: [(&str, &str); 5] = [
    ("mlp", "layers = \"mlp(8)\"\ninput = [30]"),
    (
        "convolutions",
        "layers = [\"conv(4, 3, pad = 1)\", \"relu\", \"flatten\", \"linear(2)\"]\n\
        input = [1, 5, 6]",
    ),
    ("resnet", "layers = \"resnet(8, 4)\"\ninput = [1, 6, 5]"),
    ("lenet5", "layers = \"lenet5\""),
    ("resnet20", "layers = \"resnet20\""),
];

/// A sampler of each family that walks by gradients.
const SAMPLERS: [&str; 3] = [
    "name = \"fald\"\nstep = 1e-5\nbatch = 4",
    "name = \"vr-fald*\"\nstep = 1e-5\nbatch = 4\ncorrelation = 0.5",
    "name = \"qlsd++\"\nstep = 1e-5\nbatch = 4\nrefresh = 20",
];

/// Iterations of a chain.
const ITERATIONS: u64 = 120;

/// Everything that needs a GPU, and what is to be had without one.
pub fn run(root: &Path) -> Result<(), String> {
    let folder = root.join("target").join("gpu");
    std::fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    step("kernels have the bits of the core", || {
        let mut test = cargo();
        test.args(["test", "--profile", "test", "-p", "consilience-cuda"])
            .env("CONSILIENCE_GPU", "1")
            .current_dir(root);
        check(test, "cargo test -p consilience-cuda")
    })?;
    sanitised(root)?;
    step("the command is built", || {
        let mut build = cargo();
        build
            .args(["build", "--release", "-p", "consilience", "-p", "consilience-bench"])
            .current_dir(root);
        check(build, "cargo build --release")
    })?;
    let built = root.join("target").join("release");
    let mut wrong = Vec::new();
    for (name, layers) in NETS {
        let Some(data) = data(name) else {
            println!("skipped: {name}, whose images are looked for in CONSILIENCE_DATA");
            continue;
        };
        for sampler in SAMPLERS {
            let config = |device: &str| {
                format!(
                    "seed = 7\n[target]\nmodel = \"net\"\n{layers}\n[target.prior]\nlaw = \
                     \"gaussian\"\nvariance = 0.2\n[data]\n{data}\n[sampler]\n{sampler}\n[run]\n\
                     chains = 1\niterations = {ITERATIONS}\nburn_in = 0\nthin = 1\n\
                     device = \"{device}\"\n"
                )
            };
            let digest = |device| digest(&built.join("consilience"), &folder, &config(device));
            let (cpu, cuda) = (digest("cpu")?, digest("cuda")?);
            let first = sampler.lines().next().unwrap_or_default();
            println!("{name}, {first}: cpu {cpu:.12}, cuda {cuda:.12}");
            if cpu != cuda {
                wrong.push(format!("{name}, {first}: digests differ"));
            }
        }
    }
    println!("\nmilliseconds an iteration of 20 clients:");
    for (workload, more) in [
        ("lenet_vrfald", &["--batch", "8", "--iters", "2000"][..]),
        ("lenet_vrfald", &["--batch", "64", "--iters", "1000"]),
        ("resnet_fald", &["--iters", "40"]),
    ] {
        let mut bench = Command::new(built.join("consilience-bench"));
        bench.args([workload, "--cuda", "--threads", "8"]).args(more);
        let told = output(bench, workload)?;
        let each = number(&told, "\"seconds\":").zip(number(&told, "\"iters\":"));
        let each = each.ok_or_else(|| format!("{workload} said {told}"))?;
        println!("{workload} {}: {:.3}", more.join(" "), 1e3 * each.0 / each.1);
    }
    let mut peer = Command::new("python3");
    peer.arg(root.join("python").join("benchmarks").join("nets_gpu.py"));
    match output(peer, "nets_gpu.py") {
        Ok(told) => println!("PyTorch beside it:\n{told}"),
        Err(why) => println!("skipped: PyTorch beside it: {why}"),
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("; ")) }
}

/// Let compute-sanitizer look for accesses beyond what is there, and for races, if it is found.
fn sanitised(root: &Path) -> Result<(), String> {
    let found = Command::new("compute-sanitizer").arg("--version").output();
    if !found.is_ok_and(|found| found.status.success()) {
        println!("skipped: compute-sanitizer, which is not found");
        return Ok(());
    }
    for tool in ["memcheck", "racecheck"] {
        step(&format!("compute-sanitizer: {tool}"), || {
            let runner = format!(
                "target.'cfg(all())'.runner = ['compute-sanitizer', '--tool', '{tool}', \
                 '--error-exitcode', '9']"
            );
            let mut test = cargo();
            test.args(["--config", &runner, "test", "--profile", "test", "-p", "consilience-cuda"])
                .args(["--lib", "--", "gradients_of"])
                .env("CONSILIENCE_GPU", "1")
                .current_dir(root);
            check(test, tool)
        })?;
    }
    Ok(())
}

/// The rows of a net; `None` where they are not at hand.
fn data(net: &str) -> Option<&'static str> {
    let has = |name: &str| {
        std::env::var_os("CONSILIENCE_DATA").is_some_and(|f| Path::new(&f).join(name).is_dir())
    };
    match net {
        "lenet5" if !has("mnist") => None,
        "resnet20" if !has("cifar10") => None,
        "lenet5" => Some("name = \"mnist\"\nclients = 5\nrows = 500"),
        "resnet20" => Some("name = \"cifar10\"\nclients = 5\nrows = 100"),
        _ => Some("name = \"breast-cancer\"\nclients = 5"),
    }
}

/// The digest of the draws of a run.
fn digest(command: &Path, folder: &Path, config: &str) -> Result<String, String> {
    let file = folder.join("run.toml");
    std::fs::write(&file, config).map_err(|error| format!("{}: {error}", file.display()))?;
    let _ = std::fs::remove_dir_all(folder.join("run"));
    let mut run = Command::new(command);
    run.args(["run", "run.toml", "--out", "run", "--json"]).current_dir(folder);
    let told = output(run, "consilience run")?;
    let at = told.find("\"digest\": \"").ok_or_else(|| format!("no digest in {told}"))?;
    Ok(told[at + 11..].chars().take_while(char::is_ascii_hexdigit).collect())
}

fn number(told: &str, key: &str) -> Option<f64> {
    let rest = &told[told.find(key)? + key.len()..];
    let end = rest.find([',', '}']).unwrap_or(rest.len());
    rest[..end].trim().parse().ok()
}

fn step(name: &str, work: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    println!("== {name}");
    work()
}

fn check(mut command: Command, what: &str) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(format!("{what} failed")),
        Err(error) => Err(format!("{what}: {error}")),
    }
}

fn output(mut command: Command, what: &str) -> Result<String, String> {
    let done = command.output().map_err(|error| format!("{what}: {error}"))?;
    if !done.status.success() {
        return Err(format!("{what}: {}", String::from_utf8_lossy(&done.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}
