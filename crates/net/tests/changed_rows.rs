//! A site whose rows were changed while a run goes on is not let back in, by itself: no server
//! could see it.
#![allow(clippy::unwrap_used)] // a test may panic

mod common;

use std::path::Path;

use common::config;
use consilience_engine::site::{LocalSite, Own, agree, names};
use consilience_engine::statement;
use consilience_net::frame::{ASIDE, Frame};
use consilience_net::talk::{Instruction, PROTOCOL, Tell, Welcome};
use consilience_net::worker::{Brings, Did, SiteError, Worker};

const CONFIG: &str = "seed = 5\nseeds = \"simulation\"\n[target]\nmodel = \"linear\"\n\
    noise_variance = 1.0\nprior = { law = \"gaussian\", variance = 4.0 }\n\
    [[client]]\nname = \"north\"\n[[client]]\nname = \"south\"\n\
    [sampler]\nname = \"lmc\"\nstep = 0.01\n[run]\niterations = 10\n";
const ROWS: &str = "dose,effect\n0.5,1.25\n1.0,2.0\n-0.75,0.5\n";

/// Join as `north` with these rows, and hear what all agree on.
fn join(rows: &str, state: Option<&Path>) -> Result<(), SiteError> {
    let config = config(CONFIG);
    let own = |rows: &str| Own::Text(rows.into());
    let introduce = |index: usize| {
        let site = LocalSite::open(&config, index, &own(if index == 0 { rows } else { ROWS }));
        site.unwrap().introduce(&config).unwrap()
    };
    let agreement = agree(&config, None, &[introduce(0), introduce(1)]).unwrap().agreement;
    let stated = statement::of_run(&config, &agreement, &names(&config).unwrap(), None);
    let state = state.map(Path::to_path_buf);
    let brings = Brings { allows_simulation: true, state, ..Brings::new("north", own(rows)) };
    let mut worker = Worker::new(brings);
    let welcome = Welcome {
        version: String::new(),
        protocol: PROTOCOL.most,
        run: "0123456789abcdef0123456789abcdef".into(),
        boot: 1,
        config: CONFIG.into(),
        index: 0,
        simulation: true,
    };
    let words = stated.text().to_owned();
    for ask in [
        Instruction::Welcome(Box::new(welcome)),
        Instruction::Agree { agreement, statement: words },
    ] {
        let did = worker.handle(&Frame::words(ASIDE, &ask))?;
        assert!(matches!(did, Did::Said(_)), "{did:?}");
    }
    Ok(())
}

#[test]
fn a_site_comes_back_with_the_rows_that_it_had_or_not_at_all() {
    let state = std::env::temp_dir().join(format!("consilience-rows-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&state);
    for _ in 0..2 {
        join(ROWS, Some(&state)).unwrap();
    }
    for changed in [
        ROWS.replace("2.0", "2.5"),
        ROWS.replace("-0.75", "-0.7500001"),
        "dose,effect\n1.0,2.0\n0.5,1.25\n-0.75,0.6\n".into(),
    ] {
        let error = join(&changed, Some(&state)).unwrap_err();
        let said = error.to_string();
        assert!(said.contains("as the config codes them, are not those that it joined"), "{said}");
        // whoever guesses rows could try a hash on them: the server hears none
        let Ok(Tell::Refused(told)) = Worker::decline(&error).read() else { panic!() };
        assert!(told.contains("have changed since it joined"), "{told}");
        assert!(!told.contains("SHA-256") && !told.contains("..."), "{told}");
        join(&changed, None).unwrap(); // whoever keeps no state does not come back
    }
    join(ROWS, Some(&state)).unwrap();
    std::fs::remove_dir_all(&state).unwrap();
}
