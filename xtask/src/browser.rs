//! Open pages in a real browser, look for what is missing, and for what cannot be read on a phone.

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
const PLOTTED: [&str; 9] = [
    "posterior",
    "calibration",
    "convergence",
    "chains",
    "pairs",
    "bits",
    "sites",
    "gradients",
    "seconds",
];
const FLAGS: &str = "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run \
    --disable-background-networking --disable-component-update --disable-sync \
                     --hide-scrollbars --virtual-time-budget=2000 --enable-logging=stderr --v=0";

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
            && succeeds(
                "apt-get",
                &["install", "-y", "-qq", "--no-install-recommends", "chromium"],
            );
    }
    found().ok_or_else(|| format!("none of {} is on this machine", NAMES.join(", ")))
}

/// Parts that every page must have, beside its sections.
const PARTS: [&str; 3] = ["<svg", "<path", "<td"];

/// The widths of a phone, a tablet and a workspace, in CSS pixels.
const PHONE: usize = 390;
const TABLET: usize = 768;
const DESK: usize = 1280;
/// What looks at a page as a person does.
const LOOK: &str = include_str!("look.js");
/// A run as the live page is told of it: sites with long names, one of them left out, one blocked.
/// A test of the network crate holds its fields to those that a server tells.
const STATUS: &str = include_str!("../../crates/net/src/live.sample.json");

/// Make the pages, open them, and compare what the browser holds with what the files say.
pub fn run(root: &Path) -> Result<(), String> {
    let browser = find()?;
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| root.join("target"), |folder| root.join(PathBuf::from(folder)));
    let look = Look { browser, folder: target.join("browser-check") };
    std::fs::create_dir_all(&look.folder)
        .map_err(|error| format!("{}: {error}", look.folder.display()))?;
    let (report, compare) = (target.join("report.html"), target.join("compare.html"));
    let built = build(root, &target)?;
    let made = Command::new(built.join("examples").join("sample"))
        .args([&report, &compare])
        .current_dir(root)
        .status();
    if !made.is_ok_and(|status| status.success()) {
        return Err("the sample pages could not be made".into());
    }
    let reproduction = look.folder.join("reproduction");
    let made = Command::new(built.join("consilience"))
        .args(["reproduce", "fald-k", "--tiny", "--as-published", "--out"])
        .arg(&reproduction)
        .current_dir(root)
        .stdout(Stdio::null())
        .status();
    if !made.is_ok_and(|status| status.success()) {
        return Err("the page of a reproduction could not be made".into());
    }
    for (name, file, wanted) in
        [("the report", &report, &REPORT[..]), ("the comparison", &compare, &COMPARISON[..])]
    {
        let page = read(file)?;
        let (dom, log) = look.open(file)?;
        check(&page, &dom, &log, wanted).map_err(|problem| format!("{name}: {problem}"))?;
        println!(
            "{name}: {} sections and {} plots in {browser}, no word on the console",
            sections(&page).len(),
            plots(&page)
        );
    }
    let page = read(&report)?;
    // The same look must see a page that is broken.
    let broken = target.join("broken-report.html");
    let half = page.replacen("</body>", "<script>missing()</script></body>", 1);
    std::fs::write(&broken, half).map_err(|error| format!("{}: {error}", broken.display()))?;
    let (dom, log) = look.open(&broken)?;
    if check(&page, &dom, &log, &REPORT).is_ok() {
        return Err("an error on the console went unseen".into());
    }
    let reproduced = read(&reproduction.join("fald-k").join("page.html"))?;
    let live = read(&root.join("crates/net/src/live.html"))?;
    // Pages, and the least number of labels and verdicts that a person sees there.
    for (name, page, width, labels, verdicts) in [
        ("the report", &page, PHONE, 300, 0),
        ("the report", &page, TABLET, 300, 0),
        ("the report", &page, DESK, 300, 0),
        ("the comparison", &read(&compare)?, PHONE, 24, 0),
        ("the reproduction", &reproduced, PHONE, 8, 3),
        ("the live page", &live, PHONE, 0, 0),
    ] {
        let seen = look.in_a_frame(page, width)?;
        if let Some(complaint) = seen.complaints.first() {
            return Err(format!(
                "{name} at {width} px: {complaint} (and {} more)",
                seen.complaints.len() - 1
            ));
        }
        if seen.labels < labels || seen.verdicts < verdicts {
            return Err(format!(
                "{name} at {width} px: only {} labels and {} verdicts were seen",
                seen.labels, seen.verdicts
            ));
        }
        println!(
            "{name}: {} labels and {} verdicts to be read at {width} px",
            seen.labels, seen.verdicts
        );
    }
    broken_on_a_phone(&look, &page, &reproduced, &live)
}

/// Build the command and the examples, and say where they lie. All of the workspace is selected,
/// and built as the tests build it: what they have built is not built again.
fn build(root: &Path, target: &Path) -> Result<PathBuf, String> {
    let built = cargo()
        .args(["build", "--workspace", "--bins", "--examples", "--profile", "test", "--locked"])
        .current_dir(root)
        .status();
    if built.is_ok_and(|status| status.success()) {
        Ok(target.join("debug"))
    } else {
        Err("cargo build --workspace --bins --examples --profile test".into())
    }
}

/// The look at a phone's screen must see every way in which a page can be broken there.
fn broken_on_a_phone(
    look: &Look,
    report: &str,
    reproduced: &str,
    live: &str,
) -> Result<(), String> {
    let with = |page: &str, more: &str| page.replacen("</body>", &format!("{more}</body>"), 1);
    let scaled = "<svg role=\"img\" viewBox=\"0 0 880 40\" style=\"width: 100%\"><text \
        y=\"20\">twelve pixels of 880</text></svg>";
    let touching =
        "<svg role=\"img\"><text y=\"20\">10 000</text><text x=\"20\" y=\"20\">20 000</text></svg>";
    let cut = "<div style=\"width: 5rem; overflow: hidden; white-space: nowrap; text-overflow: \
        ellipsis\">a long name of a parameter</div>";
    for (wanted, page) in [
        ("the page is", with(report, "<div style=\"width: 40rem\">wide</div>")),
        ("the page is", live.replace("overflow-x: auto", "overflow-x: visible")),
        (
            "letters of 9.0 px",
            with(report, "<style>svg text { font-size: 9px !important }</style>"),
        ),
        ("letters of 4.", with(report, scaled)),
        ("a label lies over", with(report, touching)),
        ("a label is off the page", report.replacen("--left:", "--left:9px;--was:", 1)),
        ("a text is cut", with(report, "<p>electrocardiogr…</p>")),
        ("a text is cut", with(report, cut)),
        ("a verdict is off the screen", reproduced.replace("class=\"claims\"", "")),
    ] {
        let complaints = look.in_a_frame(&page, PHONE)?.complaints;
        if !complaints.iter().any(|complaint| complaint.starts_with(wanted)) {
            return Err(format!(
                "a page on which `{wanted}` should be seen was not seen to be broken; seen: \
                 {complaints:?}"
            ));
        }
    }
    Ok(())
}

/// A browser, and a folder for what it needs.
struct Look {
    browser: &'static str,
    folder: PathBuf,
}

/// What was seen of a page.
struct Seen {
    labels: usize,
    verdicts: usize,
    complaints: Vec<String>,
}

impl Look {
    fn open(&self, file: &Path) -> Result<(String, String), String> {
        open(self.browser, file, &self.folder.join("profile"))
    }

    /// Open a page in a frame of that width: a window of the browser cannot be as narrow as a
    /// phone.
    fn in_a_frame(&self, page: &str, width: usize) -> Result<Seen, String> {
        let (inner, outer) = (self.folder.join("inner.html"), self.folder.join("phone.html"));
        let looked = page.replacen(
            "</body>",
            &format!("<script>const sample = {STATUS};\n{LOOK}</script></body>"),
            1,
        );
        let frame = format!(
            "<!doctype html><meta charset=\"utf-8\"><pre id=\"seen\"></pre>\
             <script>addEventListener(\"message\", m => {{ seen.textContent = m.data; }});</script>\
             <iframe src=\"inner.html\" width=\"{width}\" height=\"844\" style=\"border: \
             0\"></iframe>"
        );
        for (file, text) in [(&inner, &looked), (&outer, &frame)] {
            std::fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))?;
        }
        let (dom, log) = self.open(&outer)?;
        let seen = dom
            .split("<pre id=\"seen\">")
            .nth(1)
            .and_then(|rest| rest.split("</pre>").next())
            .unwrap_or_default();
        let mut lines = seen.lines();
        let counted: Vec<usize> =
            lines.next().unwrap_or_default().split(' ').filter_map(|n| n.parse().ok()).collect();
        let [wide, labels, verdicts] = counted[..] else {
            return Err(format!(
                "the page did not say what is seen of it: {}",
                log.lines().find(|l| l.contains("CONSOLE")).unwrap_or("")
            ));
        };
        if wide != width {
            return Err(format!("the frame is {wide} px wide instead of {width}"));
        }
        Ok(Seen { labels, verdicts, complaints: lines.map(str::to_owned).collect() })
    }
}

fn read(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
}

/// How many plots a page has: what is stretched within a plot has no role.
fn plots(page: &str) -> usize {
    page.matches("role=\"img\"").count()
}

/// The page as the browser understood it, and what it logged.
fn open(browser: &str, file: &Path, profile: &Path) -> Result<(String, String), String> {
    let _ = std::fs::remove_dir_all(profile);
    let address = format!(
        "file://{}",
        file.canonicalize().map_err(|error| format!("{}: {error}", file.display()))?.display()
    );
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
    for tag in ["<svg", "<path", "<line", "<rect", "<circle", "<text", "<td"] {
        let (written, found) = (page.matches(tag).count(), dom.matches(tag).count());
        if written != found || (written == 0 && PARTS.contains(&tag)) {
            return Err(format!("the page has {written} of {tag}>, the browser {found}"));
        }
    }
    for id in PLOTTED.iter().filter(|id| wanted.contains(id)) {
        let section = dom
            .split(&format!("<section id=\"{id}\""))
            .nth(1)
            .and_then(|rest| rest.split("</section>").next());
        if !section.is_some_and(|section| {
            section.contains("<svg") && (section.contains("<path") || section.contains("<line"))
        }) {
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
    command
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
