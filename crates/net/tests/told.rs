//! What a server hears of a site's rows where the site turns it away, or bounds them: the kind of
//! what is wrong, and nothing that is made of a row. The site's own screen and log have the rest.
#![allow(clippy::unwrap_used)] // a test may panic

mod common;

use std::io::Write;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::*;
use consilience_engine::site::Own;
use consilience_net::serve::ServeOptions;
use consilience_net::worker::Brings;

/// The response of one row of the first site is what the model does not explain, and another row is
/// long.
const NORTH: &str = "a,b,y\n0.2,1.0,1\n-1.1,0.3,5712.5\n30.0,-40.0,0\n";
const MENDED: &str = "a,b,y\n0.2,1.0,1\n-1.1,0.3,1\n30.0,-40.0,0\n";
const SOUTH: &str = "a,b,y\n1.3,0.2,1\n0.4,-1.6,0\n-0.9,0.8,1\n";

fn text() -> String {
    "seed = 1\n[target]\nmodel = \"logistic\"\nintercept = false\n\
     prior = { law = \"gaussian\", variance = 2.0 }\n\
     [[client]]\nname = \"north\"\n[[client]]\nname = \"south\"\n\
     [sampler]\nname = \"lmc\"\nstep = 1e-4\n[run]\nchains = 2\niterations = 30\nburn_in = 5\n\
     [privacy]\nepsilon = 3.0\ndelta = 1e-6\nrow_norm = 2.0\n"
        .to_owned()
}

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

#[test]
fn the_server_hears_kinds_of_faults_and_no_row() {
    let log = Log::default();
    let lines = log.clone();
    tracing_subscriber::fmt().with_ansi(false).with_writer(move || lines.clone()).init();
    let here = std::env::temp_dir().join(format!("consilience-told-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&here);
    let config = config(&text());
    let bring = |name: &str, rows: &str| Brings {
        state: Some(here.join(name)),
        budget: Some((6.0, 1e-5)),
        ..Brings::new(name, Own::Text(rows.into()))
    };
    let deadline = Some(Duration::from_secs(60));
    let serving = start(&config, ServeOptions { quarantine: true, deadline, ..options() });
    let (tapped, tape) = tapped(serving.address);
    let south = site(bring("south", SOUTH), joining(serving.address));
    let own = site(bring("north", NORTH), joining(tapped)).join().unwrap().unwrap_err().to_string();
    assert!(own.contains("row 2 has the label 5712.5"), "{own}");
    let kind = "its data cannot be read, or does not go with what the config states";
    let blocked = || serving.status.view().blocked.iter().any(|text| text.contains(kind));
    for _ in 0..600 {
        if blocked() {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(blocked(), "{:?}", serving.status.view().blocked);
    let north = site(bring("north", MENDED), joining(tapped));
    serving.end().unwrap();
    assert!(north.join().unwrap().unwrap() && south.join().unwrap().unwrap());
    let heard = tape.lock().unwrap().clone();
    assert!(contains(&heard, kind.as_bytes()), "the tape is of these words");
    let log = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    let counted = "1 of 3 rows are longer than privacy.row_norm";
    assert!(log.contains(counted), "the site's own log has it: {log}");
    for word in ["5712.5", "row 2", "has the label", counted, "longest"] {
        assert!(!contains(&heard, word.as_bytes()), "\"{word}\" left the site");
    }
    std::fs::remove_dir_all(&here).unwrap();
}
