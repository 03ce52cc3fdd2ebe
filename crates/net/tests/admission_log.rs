//! What strangers leave in the log: one line a minute for each address, however many
//! they are. A program of its own, since there is one log in a process.
#![allow(clippy::unwrap_used)] // a test may panic

mod common;

use std::io::Write;
use std::net::TcpStream;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use common::*;
use consilience_net::certs::{self, Papers};
use consilience_net::join::{Credentials, JoinOptions};
use consilience_net::serve::{Admission, ServeOptions};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// How many lines speak of refusals, and how many bytes there are.
    fn refusals(&self) -> (usize, usize) {
        let bytes = self.0.lock().unwrap().clone();
        let text = String::from_utf8(bytes).unwrap();
        (text.lines().filter(|line| line.contains("refused before admission")).count(), text.len())
    }
}

#[test]
fn strangers_leave_one_line_however_many_they_are() {
    let log = Log::default();
    let lines = log.clone();
    tracing_subscriber::fmt().with_ansi(false).with_writer(move || lines.clone()).init();
    let here = std::env::temp_dir().join(format!("consilience-admission-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&here);
    let sites = ["north", "east", "the south"];
    for (folder, names) in [("ours", &sites[..]), ("others", &sites[1..2])] {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let now = SystemTime::now();
        certs::make(&here.join(folder), &names, &["localhost".into()], now).unwrap();
    }
    let papers = |folder: &str, name: &str| Papers::load(&here.join(folder).join(name)).unwrap();
    let config = config(&gaussians("name = \"lmc\"\nstep = 0.05", 20));
    let admission = Admission::Certificates(papers("ours", "server"));
    let serving = start(&config, ServeOptions { admission, ..options() });
    let with = |folder: &str, name: &str, seconds: u64| JoinOptions {
        server: format!("localhost:{}", serving.address.port()),
        server_name: None,
        credentials: Credentials::Certificate(papers(folder, name)),
        patience: Some(Duration::from_secs(seconds)),
    };
    // a certificate that nobody here gave out
    site(brings("east"), with("others", "east", 1)).join().unwrap().unwrap_err();
    let since = Instant::now();
    while log.refusals().0 == 0 {
        assert!(
            since.elapsed() < Duration::from_secs(60),
            "no line says that somebody was refused"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    for k in 0..400 {
        let mut stream = TcpStream::connect(serving.address).unwrap();
        let _ = stream.write_all(if k % 2 == 0 { b"GET / HTTP/1.1\r\n\r\n" } else { b"\x16\x03" });
    }
    std::thread::sleep(Duration::from_millis(300));
    let all = sites.map(|name| site(brings(name), with("ours", name, 60)));
    same("after a flood", &serving.end().unwrap(), &in_process(&config));
    all.into_iter().for_each(|site| assert!(site.join().unwrap().unwrap()));
    let (refusals, bytes) = log.refusals();
    let minutes = 1 + since.elapsed().as_secs() as usize / 60;
    let text = || String::from_utf8_lossy(&log.0.lock().unwrap()).into_owned();
    assert!((1..=minutes).contains(&refusals), "{refusals} lines: {}", text());
    assert!(bytes < 20_000, "{bytes} bytes of log");
    std::fs::remove_dir_all(&here).unwrap();
}
