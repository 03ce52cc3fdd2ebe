//! Bad networks only delay: the chain is the same. Secrets stay where they are. A run can be
//! watched.
#![allow(clippy::unwrap_used)] // a test may panic

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use common::*;
use consilience_core::rng::{Purpose, SERVER, Seed};
use consilience_net::serve::ServeOptions;
use consilience_net::worker::Brings;

/// A wire that breaks after some thousand bytes, again and again.
struct Wire {
    address: SocketAddr,
    breaks: Arc<AtomicU64>,
}

fn wire(to: SocketAddr, most_breaks: u64) -> Wire {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (address, breaks) = (listener.local_addr().unwrap(), Arc::new(AtomicU64::new(0)));
    let count = Arc::clone(&breaks);
    std::thread::spawn(move || {
        for near in listener.incoming().flatten() {
            let Ok(far) = TcpStream::connect(to) else { continue };
            let number = count.load(Ordering::Relaxed);
            let budget = if number < most_breaks { 2500 + 1777 * number % 6000 } else { u64::MAX };
            let (left, count) = (Arc::new(AtomicU64::new(budget)), Arc::clone(&count));
            for (mut from, mut onto) in
                [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)]
            {
                let (left, count) = (Arc::clone(&left), Arc::clone(&count));
                std::thread::spawn(move || {
                    let mut buffer = [0; 256];
                    while let Ok(n @ 1..) = from.read(&mut buffer) {
                        let before = left.fetch_sub(n as u64, Ordering::Relaxed);
                        if before != u64::MAX && before <= n as u64 {
                            count.fetch_add(1, Ordering::Relaxed);
                            break; // in the middle of a frame, more often than not
                        }
                        if onto.write_all(&buffer[..n]).is_err() {
                            break;
                        }
                    }
                    let _ = from.shutdown(Shutdown::Both);
                    let _ = onto.shutdown(Shutdown::Both);
                });
            }
        }
    });
    Wire { address, breaks }
}

#[test]
fn wires_that_break_change_nothing() {
    for sampler in [
        "name = \"lsd++\"\nmemory = 0.5\nrefresh = 5\nstep = 0.05",
        "name = \"vr-fald*\"\nsynchronise = { every = 3 }",
    ] {
        let config = config(&gaussians(sampler, 150));
        let serving = start(&config, options());
        let wires = [wire(serving.address, 12), wire(serving.address, 7)];
        let through = [wires[0].address, wires[1].address, serving.address];
        let names = ["north", "east", "the south"];
        let sites: Vec<_> = names
            .iter()
            .zip(through)
            .map(|(name, address)| site(brings(name), joining(address)))
            .collect();
        same(sampler, &serving.end().unwrap(), &in_process(&config));
        sites.into_iter().for_each(|site| assert!(site.join().unwrap().unwrap()));
        let breaks: u64 = wires.iter().map(|wire| wire.breaks.load(Ordering::Relaxed)).sum();
        assert!(breaks >= 6, "only {breaks} breaks");
    }
}

/// A server and its sites are stopped in the middle, and start again from what they wrote down: the
/// draws, and all that stands beside them, are those of one process.
#[test]
fn a_server_that_is_stopped_goes_on_where_it_was() {
    let here = folder("stopped");
    let config = config(
        &gaussians("name = \"lsd++\"\nbatch = 0.5\nrefresh = 5\nstep = 0.05", 400)
            .replace("thin = 2", "thin = 1"),
    );
    let names = ["north", "east", "the south"];
    for reserve in [None, Some(50)] {
        let place = here.join(format!("{reserve:?}"));
        let bring = |name: &str| Brings { state: Some(place.join(name)), reserve, ..brings(name) };
        let mut stops = 0;
        loop {
            let deadline = Some(std::time::Duration::from_secs(10));
            let serving = start(
                &config,
                ServeOptions { state: Some(place.join("server")), deadline, ..options() },
            );
            let sites: Vec<_> =
                names.iter().map(|name| site(bring(name), joining(serving.address))).collect();
            let status = Arc::clone(&serving.status);
            let (enough, since) = (150 * (stops + 1), std::time::Instant::now());
            while stops < 2
                && since.elapsed().as_secs() < 20
                && status.view().rounds < enough
                && status.view().stage != "finishing"
            {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            if stops < 2 {
                consilience_net::serve::stop(&status);
            }
            let served = serving.end().unwrap();
            let finished: Vec<bool> =
                sites.into_iter().map(|site| site.join().unwrap().unwrap()).collect();
            if !served.outcome.interrupted {
                assert_eq!(finished, [true; 3]);
                same("stopped", &served, &in_process(&config));
                break;
            }
            stops += 1;
        }
        assert!(stops > 0, "it was over before it could be stopped");
    }
    std::fs::remove_dir_all(&here).unwrap();
}

fn folder(name: &str) -> PathBuf {
    let folder =
        std::env::temp_dir().join(format!("consilience-faults-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// All files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        if entry.path().is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found
}

#[test]
fn private_seeds_stay_with_their_sites() {
    let here = folder("private");
    let text = gaussians("name = \"fald\"\nsynchronise = { every = 2 }\nstep = 0.05", 60)
        .replace("seeds = \"simulation\"\n", "");
    let config = config(&text);
    let serving = start(&config, ServeOptions { state: Some(here.join("server")), ..options() });
    let (address, tape) = tapped(serving.address);
    let names = ["north", "east", "the south"];
    let bring = |name: &str| Brings {
        state: Some(here.join(name)),
        allows_simulation: false,
        ..brings(name)
    };
    let sites: Vec<_> = names.iter().map(|name| site(bring(name), joining(address))).collect();
    let served = serving.end().unwrap();
    sites.into_iter().for_each(|site| assert!(site.join().unwrap().unwrap()));
    assert_ne!(served.outcome.draws, in_process(&config).2.draws, "the noise is not the config's");
    let tape = tape.lock().unwrap().clone();
    let at_server: Vec<Vec<u8>> =
        files(&here.join("server")).iter().map(|file| std::fs::read(file).unwrap()).collect();
    assert!(tape.len() > 5000 && !at_server.is_empty());
    // The tape can be read: nothing is encrypted on this wire.
    let run = contains(&tape, b"\"run\":\"");
    assert!(run);
    let mut seeds = Vec::new();
    for name in names {
        let file = files(&here.join(name))
            .into_iter()
            .find(|file| file.ends_with("seed/private.seed"))
            .unwrap();
        let seed: [u8; 32] = std::fs::read(&file).unwrap()[..32].try_into().unwrap();
        let mut derived = vec![seed.to_vec()];
        for chain in 0..2 {
            // The key of a chain, and the first bits of its noise.
            let mut words = [0u32; 8];
            Seed::from_bytes(seed).stream(Purpose::Derive, SERVER, chain).words(&mut words);
            derived.push(words.iter().flat_map(|w| w.to_le_bytes()).collect());
            let mut normals = [0.0; 2];
            let id = consilience_core::rng::ClientId(
                names.iter().position(|n| *n == name).unwrap() as u32,
            );
            Seed::from_bytes(seed)
                .chain(chain as u32)
                .stream(Purpose::Noise, id, 0)
                .normals(&mut normals);
            derived.extend(normals.map(|z| z.to_le_bytes().to_vec()));
        }
        for secret in &derived {
            for part in secret.chunks(8) {
                for text in [part.to_vec(), consilience_net::certs::hex(part).into_bytes()] {
                    assert!(!contains(&tape, &text), "a part of {name}'s seed was sent");
                    assert!(
                        at_server.iter().all(|file| !contains(file, &text)),
                        "the server has a part of {name}'s seed"
                    );
                }
            }
        }
        seeds.push(seed);
    }
    seeds.sort_unstable();
    seeds.dedup();
    assert_eq!(seeds.len(), 3, "every site has its own");
    std::fs::remove_dir_all(&here).unwrap();
}

fn get(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_run_can_be_watched() {
    let config = config(&gaussians("name = \"lmc\"\nstep = 0.05", 40));
    let serving =
        start(&config, ServeOptions { http: Some("127.0.0.1:0".parse().unwrap()), ..options() });
    let (address, http) = (serving.address, serving.http.unwrap());
    let first = site(brings("north"), joining(address));
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !get(http, "GET /metrics HTTP/1.1\r\n\r\n")
        .contains("consilience_site_connected{site=\"north\"} 1")
    {
        assert!(
            std::time::Instant::now() < deadline,
            "{}",
            get(http, "GET /metrics HTTP/1.1\r\n\r\n")
        );
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let metrics = get(http, "GET /metrics HTTP/1.1\r\n\r\n");
    assert!(
        metrics.contains("consilience_site_connected{site=\"the south\"} 0")
            && metrics.contains("# TYPE consilience_rounds_total counter")
    );
    let page = get(http, "GET / HTTP/1.1\r\n\r\n");
    assert!(
        page.starts_with("HTTP/1.1 200 OK")
            && page.contains("</html>")
            && !page.contains("http://")
            && !page.contains("https://")
    );
    let body = get(http, "GET /status.json HTTP/1.1\r\n\r\n");
    let state: serde_json::Value =
        serde_json::from_str(body.split("\r\n\r\n").nth(1).unwrap()).unwrap();
    assert_eq!(
        (state["stage"].as_str(), state["sites"].as_array().unwrap().len()),
        (Some("waiting for the sites"), 3)
    );
    assert!(get(http, "GET /secret HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    assert!(get(http, "POST / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
    let status = Arc::clone(&serving.status);
    let rest: Vec<_> =
        ["east", "the south"].map(|name| site(brings(name), joining(address))).into();
    serving.end().unwrap();
    assert!(first.join().unwrap().unwrap());
    rest.into_iter().for_each(|site| assert!(site.join().unwrap().unwrap()));
    let view = status.view();
    assert_eq!(view.done, (80, 80));
    assert!(
        view.bits.0 > 0 && view.worst_rhat.is_none() && view.line().contains("80 of 80 iterations"),
        "{}",
        view.line()
    );
}
