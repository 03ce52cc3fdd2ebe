//! A run whose parties share no more than a folder is the run of one process: also where files come
//! twice, late, out of order or not at all, and where parties are started again. A file that was
//! forged or edited is refused by name.
#![allow(clippy::unwrap_used)] // a test may panic

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use common::*;
use consilience_engine::config::Config;
use consilience_engine::run::Progress;
use consilience_engine::site::names;
use consilience_net::certs::{self, Papers};
use consilience_net::folders::{Folders, attend, publish};
use consilience_net::join::JoinError;
use consilience_net::serve::{Admission, Publication, ServeError, ServeOptions, Served};
use consilience_net::status::Status;
use consilience_net::talk::How;
use consilience_net::worker::Brings;

/// A folder of this test's own.
struct Scene {
    root: PathBuf,
    config: Config,
}

impl Scene {
    fn new(name: &str, config: Config) -> Scene {
        let root =
            std::env::temp_dir().join(format!("consilience-folders-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        let sites = names(&config).unwrap();
        certs::make(&root.join("certs"), &sites, &["localhost".into()], SystemTime::now()).unwrap();
        Scene { root, config }
    }

    fn papers(&self, party: &str) -> Papers {
        Papers::load(&self.root.join("certs").join(party)).unwrap()
    }

    /// The folder as one party sees it.
    fn folders(&self, party: &str) -> Folders {
        Folders {
            look: Duration::from_millis(2),
            again: Duration::from_millis(150),
            copying: Duration::from_millis(20),
            ..Folders::new(self.root.join(party))
        }
    }

    fn status(&self) -> Arc<Status> {
        Arc::new(Status::new(&names(&self.config).unwrap(), Arc::new(Progress::default())))
    }

    fn serve(&self, party: &str, status: &Arc<Status>) -> Result<Served, ServeError> {
        let options = ServeOptions {
            state: Some(self.root.join("state-server")),
            linger: Duration::from_secs(20),
            quarantine: true,
            ..ServeOptions::new(Admission::Certificates(self.papers("server")))
        };
        publish(
            &self.folders(party),
            &self.config,
            &options,
            status,
            |_| {},
            |value| Publication { value, safe: true, says: "the draws are in a drawer".into() },
        )
    }

    fn attend(
        &self,
        party: &str,
        site: &str,
        stop: &AtomicBool,
    ) -> Result<consilience_net::talk::Farewell, JoinError> {
        let brings =
            Brings { state: Some(self.root.join(format!("state-{site}"))), ..brings(site) };
        let patience = Some(Duration::from_secs(60));
        attend(brings, &self.folders(party), &self.papers(site), patience, stop)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

#[test]
fn a_shared_folder_is_a_network() {
    for (name, sampler) in
        [("imh", "name = \"imh\""), ("qlsd", "name = \"qlsd++\"\nstep = 0.05\nrefresh = 5")]
    {
        let scene = Scene::new(name, config(&gaussians(sampler, 30)));
        let status = scene.status();
        let served = std::thread::scope(|scope| {
            let sites = names(&scene.config).unwrap();
            let scene = &scene;
            let joined: Vec<_> = sites
                .into_iter()
                .map(|site| {
                    scope.spawn(move || {
                        scene.attend("drive", &site, &AtomicBool::new(false)).unwrap()
                    })
                })
                .collect();
            let served = scene.serve("drive", &status).unwrap();
            for joined in joined {
                let farewell = joined.join().unwrap();
                assert_eq!(farewell.how, How::Finished);
                let says = "the draws are in a drawer; the audit log ends with ";
                assert!(farewell.says.starts_with(says), "{}", farewell.says);
            }
            served
        });
        same(name, &served, &in_process(&scene.config));
        // what parties keep is for their owners alone
        #[cfg(unix)]
        for state in ["state-server", "state-north"] {
            use std::os::unix::fs::PermissionsExt;
            let about = std::fs::metadata(scene.root.join(state)).unwrap();
            assert_eq!(about.permissions().mode() & 0o777, 0o700, "{state}");
        }
        // a site that is started again knows that it is over, though nobody serves
        let again = scene.attend("drive", "north", &AtomicBool::new(false)).unwrap();
        assert_eq!(again.how, How::Finished);
    }
}

/// Copies files between the folders of two parties as a bad mail service would.
struct Mail {
    words: u64,
    seen: BTreeMap<PathBuf, SystemTime>,
    held: Vec<(PathBuf, Vec<u8>, u64)>,
    turn: u64,
    /// How many files were lost, came late, came twice.
    happened: [usize; 3],
}

impl Mail {
    fn chance(&mut self, of: u64) -> bool {
        self.words = self.words.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.words >> 33).is_multiple_of(of)
    }

    fn carry(&mut self, from: &Path, to: &Path) {
        let Ok(entries) = std::fs::read_dir(from) else { return };
        std::fs::create_dir_all(to).unwrap();
        for path in entries.flatten().map(|entry| entry.path()) {
            let Some(name) = path.file_name().filter(|_| path.extension().unwrap() == "letter")
            else {
                continue;
            };
            let Ok(changed) = std::fs::metadata(&path).and_then(|about| about.modified()) else {
                continue;
            };
            if self.seen.insert(path.clone(), changed) == Some(changed) {
                continue;
            }
            let (Ok(bytes), target) = (std::fs::read(&path), to.join(name)) else { continue };
            if self.chance(6) {
                self.happened[0] += 1; // it is lost
                continue;
            }
            if self.chance(5) {
                self.happened[1] += 1; // it comes when others have come
                let late = self.turn + 40;
                self.held.push((target.clone(), bytes.clone(), late));
                continue;
            }
            if self.chance(5) {
                self.happened[2] += 1; // it comes again, under another name
                let copy = to.join(format!("copy of {}", name.to_string_lossy()));
                self.held.push((copy, bytes.clone(), self.turn + 30));
            }
            std::fs::write(target, bytes).unwrap(); // not at once, as people copy
        }
        self.turn += 1;
        let (due, held): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.held).into_iter().partition(|held| held.2 <= self.turn);
        self.held = held;
        for (target, bytes, _) in due {
            std::fs::write(target, bytes).unwrap();
        }
    }
}

#[test]
fn files_that_come_twice_late_or_not_at_all_change_nothing() {
    let text = gaussians("name = \"lmc\"\nstep = 0.05", 25);
    let scene = Scene::new("mail", config(&text));
    let (status, over) = (scene.status(), AtomicBool::new(false));
    let (served, happened) = std::thread::scope(|scope| {
        let (scene, over) = (&scene, &over);
        let sites = names(&scene.config).unwrap();
        let mail = scope.spawn({
            let sites = sites.clone();
            move || {
                let mut mail = Mail {
                    words: 11,
                    seen: BTreeMap::new(),
                    held: Vec::new(),
                    turn: 0,
                    happened: [0; 3],
                };
                while !over.load(Ordering::Relaxed) {
                    for site in &sites {
                        let name = certs::name_of_site(site);
                        let (to, from) = (format!("to-{name}"), format!("from-{name}"));
                        let [here, there] = [&scene.root.join("here"), &scene.root.join(&name)];
                        mail.carry(&here.join(&to), &there.join(&to));
                        mail.carry(&there.join(&from), &here.join(&from));
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
                mail.happened
            }
        });
        let joined: Vec<_> = sites
            .into_iter()
            .map(|site| {
                scope.spawn(move || {
                    // a site that is stopped now and then, and started again
                    let folder = certs::name_of_site(&site);
                    loop {
                        let stop = AtomicBool::new(false);
                        let joined = std::thread::scope(|scope| {
                            scope.spawn(|| {
                                std::thread::sleep(Duration::from_millis(400));
                                stop.store(true, Ordering::Relaxed);
                            });
                            scene.attend(&folder, &site, &stop)
                        });
                        match joined {
                            Err(JoinError::Stopped) => {}
                            joined => return joined.unwrap().how,
                        }
                    }
                })
            })
            .collect();
        let served = scene.serve("here", &status).unwrap();
        let joined: Vec<How> = joined.into_iter().map(|joined| joined.join().unwrap()).collect();
        over.store(true, Ordering::Relaxed);
        assert_eq!(joined, [How::Finished; 3]);
        (served, mail.join().unwrap())
    });
    same("mail", &served, &in_process(&scene.config));
    assert!(happened.iter().all(|times| *times >= 5), "{happened:?}");
}

/// Whoever can write into the folder can hold a run up, and no more.
#[test]
fn forged_and_edited_files_are_refused_by_name() {
    let scene = Scene::new("forged", config(&gaussians("name = \"lmc\"\nstep = 0.05", 10)));
    let (status, over) = (scene.status(), AtomicBool::new(false));
    let served = std::thread::scope(|scope| {
        let (scene, over) = (&scene, &over);
        scope.spawn(move || {
            // Somebody edits every answer of north as it comes, beside it, and writes rubbish.
            let folder = scene.root.join("drive").join("from-north");
            while !over.load(Ordering::Relaxed) {
                let entries = std::fs::read_dir(&folder).map(|e| e.flatten().collect());
                for entry in entries.unwrap_or_else(|_| Vec::new()) {
                    let (path, name) = (entry.path(), entry.file_name());
                    let name = name.to_string_lossy();
                    let ours = name.starts_with("edited") || name.starts_with("rubbish");
                    if ours || !name.ends_with(".letter") {
                        continue;
                    }
                    let Ok(mut bytes) = std::fs::read(&path) else { continue };
                    let middle = bytes.len() / 2;
                    if let Some(byte) = bytes.get_mut(middle) {
                        *byte ^= 4;
                    }
                    for (name, bytes) in [("edited", &bytes[..]), ("rubbish", &[1, 2, 3])] {
                        let file = folder.join(name).with_extension("letter");
                        if !file.exists() {
                            let _ = std::fs::write(file, bytes);
                        }
                    }
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        let joined: Vec<_> = names(&scene.config)
            .unwrap()
            .into_iter()
            .map(|site| {
                scope.spawn(move || {
                    scene.attend("drive", &site, &AtomicBool::new(false)).unwrap().how
                })
            })
            .collect();
        let served = scene.serve("drive", &status).unwrap();
        over.store(true, Ordering::Relaxed);
        assert!(joined.into_iter().all(|joined| joined.join().unwrap() == How::Finished));
        served
    });
    same("forged", &served, &in_process(&scene.config));
    let view = status.view();
    for why in ["edited.letter is refused: its ", "rubbish.letter is refused"] {
        assert!(view.refusals.iter().any(|(said, _)| said.contains(why)), "{:?}", view.refusals);
    }
}
