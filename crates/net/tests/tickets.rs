//! Sites are let in by tickets: no files, the rows in memory, and nobody comes in with a ticket
//! that is not its own.
#![allow(clippy::unwrap_used)] // a test may panic

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use common::*;
use consilience_engine::config::Config;
use consilience_engine::numbers::Numbers;
use consilience_engine::site::Own;
use consilience_net::join::{Credentials, JoinOptions, join};
use consilience_net::serve::{Admission, ServeOptions};
use consilience_net::ticket::{Invitation, Ticket, Tickets};
use consilience_net::worker::Brings;

const SITES: [&str; 2] = ["a", "b"];

fn stated(a: &str, b: &str) -> Config {
    config(&format!(
        "seeds = \"simulation\"\n[target]\nmodel = \"logistic\"\n\
         prior = {{ law = \"gaussian\", variance = 1.0 }}\n[[client]]\nname = \"a\"\n{a}\n\
         [[client]]\nname = \"b\"\n{b}\n[sampler]\nname = \"lmc\"\n[run]\nchains = 1\n\
         iterations = 100\n"
    ))
}

fn issue() -> Tickets {
    Tickets::issue(&SITES.map(str::to_owned), &["localhost".into()], SystemTime::now()).unwrap()
}

fn invited(invitation: &Invitation) -> JoinOptions {
    JoinOptions {
        patience: Some(Duration::from_secs(20)),
        ..JoinOptions::invited(invitation).unwrap()
    }
}

/// Rows as numbers, and rows as text.
fn rows(site: &str) -> Brings {
    let own = if site == "a" {
        Own::Numbers(Arc::new(Numbers {
            names: None,
            cells: vec![0.3, 1.0, 1.0, -1.0, 0.5, 0.0],
            columns: 3,
        }))
    } else {
        Own::Text("0.5,-1,0\n-0.2,0.7,1\n".into())
    };
    Brings { allows_simulation: true, ..Brings::new(site, own) }
}

#[test]
fn only_a_sites_own_ticket_of_this_run_opens_the_door() {
    let (tickets, others) = (issue(), issue());
    let serving = start(
        &stated("", ""),
        ServeOptions { admission: Admission::Tickets(tickets.clone()), ..options() },
    );
    let status = Arc::clone(&serving.status);
    let server = format!("localhost:{}", serving.address.port());
    let invitation = |tickets: &Tickets, site: &str| tickets.invitation(site, &server).unwrap();
    let refused = |options: JoinOptions| {
        let since = Instant::now();
        let why =
            join(rows("a"), &options, &Arc::new(AtomicBool::new(false))).unwrap_err().to_string();
        assert!(since.elapsed() < Duration::from_secs(15), "a ticket does not mend itself: {why}");
        why
    };
    let with = |ticket: Ticket| {
        let options = invited(&invitation(&tickets, "a"));
        let Credentials::Ticket { authority, .. } = options.credentials else {
            panic!("it holds a ticket")
        };
        JoinOptions { credentials: Credentials::Ticket { authority, ticket }, ..options }
    };
    let parsed = |invitation: Invitation| Ticket::parse(&invitation.ticket).unwrap();
    for (ticket, why) in [
        (Ticket::random().unwrap(), "none of this run"),
        // though whoever shows it trusts this server
        (parsed(invitation(&others, "a")), "none of this run"),
        (parsed(invitation(&tickets, "b")), "another site's"),
    ] {
        let text = refused(with(ticket));
        assert!(text.contains(why), "{text}");
    }
    let text = refused(invited(&invitation(&others, "a")));
    assert!(
        text.contains("certificate"),
        "the server of this run is not the one that the invitation names: {text}"
    );
    let named: Vec<String> = status.view().refusals.into_iter().map(|(why, _)| why).collect();
    for why in ["none of this run", "another site's"] {
        assert!(named.iter().any(|name| name.contains(why)), "{named:?}");
    }
    assert!(
        !named.iter().any(|name| name.contains(&invitation(&tickets, "b").ticket)),
        "a ticket is in the log"
    );

    let all: Vec<_> =
        SITES.map(|name| site(rows(name), invited(&invitation(&tickets, name)))).into();
    let whole =
        stated("rows = [[0.3, 1.0, 1], [-1.0, 0.5, 0]]", "rows = [[0.5, -1, 0], [-0.2, 0.7, 1]]");
    same("by tickets", &serving.end().unwrap(), &in_process(&whole));
    all.into_iter().for_each(|site| assert!(site.join().unwrap().unwrap()));
}

#[test]
fn a_site_comes_back_with_its_ticket_and_a_waiting_one_can_be_stopped() {
    let tickets = issue();
    let serving = start(
        &stated("", ""),
        ServeOptions { admission: Admission::Tickets(tickets.clone()), ..options() },
    );
    let server = format!("localhost:{}", serving.address.port());
    let options = |site: &str| invited(&tickets.invitation(site, &server).unwrap());
    let stop = Arc::new(AtomicBool::new(false));
    let (first, asked) = (options("a"), Arc::clone(&stop));
    let waiting = std::thread::spawn(move || join(rows("a"), &first, &asked));
    let deadline = Instant::now() + Duration::from_secs(20);
    while !serving.status.view().sites[0].connected {
        assert!(Instant::now() < deadline, "site a does not come in");
        std::thread::sleep(Duration::from_millis(10));
    }
    // while the first stream is open: it takes its place
    let second = site(rows("a"), options("a"));
    std::thread::sleep(Duration::from_millis(300));
    stop.store(true, Ordering::Relaxed);
    assert!(waiting.join().unwrap().unwrap_err().to_string().contains("stopped"));
    let other = site(rows("b"), options("b"));
    serving.end().unwrap();
    assert!(second.join().unwrap().unwrap() && other.join().unwrap().unwrap());
}

#[test]
fn rows_in_memory_are_checked() {
    let tickets = issue();
    let serving = start(
        &stated("", ""),
        ServeOptions { admission: Admission::Tickets(tickets.clone()), ..options() },
    );
    let server = format!("localhost:{}", serving.address.port());
    let own = Own::Numbers(Arc::new(Numbers {
        names: None,
        cells: vec![0.3, f64::NAN, 1.0],
        columns: 3,
    }));
    let brings = Brings { allows_simulation: true, ..Brings::new("a", own) };
    let why = site(brings, invited(&tickets.invitation("a", &server).unwrap()))
        .join()
        .unwrap()
        .unwrap_err()
        .to_string();
    assert!(why.contains("row 1, column 2 is not finite"), "{why}");
    assert!(serving.end().unwrap_err().to_string().contains("site \"a\" does not take part"));
}
