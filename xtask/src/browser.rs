//! Open a report in a real browser, and look for what is missing.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::cargo;

const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];
/// The sections of a report, and of a comparison; those that must have plots.
const REPORT: [&str; 12] = [
    "warnings",
    "posterior",
    "summary",
    "calibration",
    "convergence",
    "chains",
    "pairs",
    "bits",
    "sites",
    "influence",
    "sent",
    "reproduce",
];
const COMPARISON: [&str; 5] = ["bits", "gradients", "seconds", "table", "method"];
const PLOTTED: [&str; 9] = ["posterior", "calibration", "convergence", "chains", "pairs", "bits", "sites", "gradients", "seconds"];
const FLAGS: &str = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update --disable-sync \
                     --virtual-time-budget=2000 --enable-logging=stderr --v=0";

/// The browser of this machine; where there is none, it is installed if that needs no password.
pub fn find() -> Result<&'static str, String> {
    let found = || NAMES.into_iter().find(|name| succeeds(name, &["--version"]));
    if let Some(name) = found() {
        return Ok(name);
    }
    let root = Command::new("id").arg("-u").output().is_ok_and(|id| id.stdout.trim_ascii() == b"0");
    if root && succeeds("apt-get", &["--version"]) {
        println!("    installing chromium");
        let _ = succeeds("apt-get", &["update", "-qq"])
            && succeeds("apt-get", &["install", "-y", "-qq", "--no-install-recommends", "chromium"]);
    }
    found().ok_or_else(|| format!("none of {} is on this machine", NAMES.join(", ")))
}

/// Parts that every page must have, beside its sections.
const PARTS: [&str; 3] = ["<svg", "<path", "<td"];

/// Make the pages, open them, and compare what the browser holds with what the files say.
pub fn run(root: &Path) -> Result<(), String> {
    let browser = find()?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), |folder| root.join(PathBuf::from(folder)));
    let (report, compare) = (target.join("report.html"), target.join("compare.html"));
    let made = cargo()
        .args(["run", "--locked", "-p", "consilience-report", "--example", "sample", "--"])
        .args([&report, &compare])
        .current_dir(root)
        .status();
    if !made.is_ok_and(|status| status.success()) {
        return Err("the sample pages could not be made".into());
    }
    let read = |file: &Path| std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()));
    for (name, file, wanted) in [("the report", &report, &REPORT[..]), ("the comparison", &compare, &COMPARISON[..])] {
        let page = read(file)?;
        let (dom, log) = open(browser, file, &target.join("browser-check"))?;
        check(&page, &dom, &log, wanted).map_err(|problem| format!("{name}: {problem}"))?;
        println!(
            "{name}: {} sections and {} plots in {browser}, no word on the console",
            sections(&page).len(),
            page.matches("<svg").count()
        );
    }
    let page = read(&report)?;
    // The same look must see a page that is broken.
    let broken = target.join("broken-report.html");
    let half = page.replacen("</body>", "<script>missing()</script></body>", 1);
    std::fs::write(&broken, half).map_err(|error| format!("{}: {error}", broken.display()))?;
    let (dom, log) = open(browser, &broken, &target.join("browser-check"))?;
    if check(&page, &dom, &log, &REPORT).is_ok() {
        return Err("an error on the console went unseen".into());
    }
    Ok(())
}

/// The page as the browser understood it, and what it logged.
fn open(browser: &str, file: &Path, profile: &Path) -> Result<(String, String), String> {
    let _ = std::fs::remove_dir_all(profile);
    let address = format!("file://{}", file.canonicalize().map_err(|error| format!("{}: {error}", file.display()))?.display());
    let output = Command::new(browser)
        .args(FLAGS.split_whitespace())
        .arg(format!("--user-data-dir={}", profile.display()))
        .args(["--dump-dom", &address])
        .output();
    let output = output.map_err(|error| format!("{browser}: {error}"))?;
    let _ = std::fs::remove_dir_all(profile);
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        return Err(format!("{browser} failed: {log}"));
    }
    Ok((String::from_utf8_lossy(&output.stdout).into_owned(), log))
}

fn check(page: &str, dom: &str, log: &str, wanted: &[&str]) -> Result<(), String> {
    if let Some(line) = log.lines().find(|line| line.contains("CONSOLE")) {
        return Err(format!("the page said on the console: {line}"));
    }
    let shown = sections(dom);
    if let Some(id) = wanted.iter().find(|id| !shown.contains(id)) {
        return Err(format!("the browser does not show the section `{id}`"));
    }
    if let Some(id) = sections(page).iter().find(|id| !shown.contains(id)) {
        return Err(format!("the browser does not show the section `{id}`, which the file has"));
    }
    for tag in ["<svg", "<path", "<rect", "<circle", "<td"] {
        let (written, found) = (page.matches(tag).count(), dom.matches(tag).count());
        if written != found || (written == 0 && PARTS.contains(&tag)) {
            return Err(format!("the page has {written} of {tag}>, the browser {found}"));
        }
    }
    for id in PLOTTED.iter().filter(|id| wanted.contains(id)) {
        let section = dom.split(&format!("<section id=\"{id}\"")).nth(1).and_then(|rest| rest.split("</section>").next());
        if !section.is_some_and(|section| section.contains("<svg") && section.contains("<path")) {
            return Err(format!("the section `{id}` has no plot"));
        }
    }
    Ok(())
}

fn sections(page: &str) -> Vec<&str> {
    page.split("<section id=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

fn succeeds(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
