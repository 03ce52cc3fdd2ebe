//! A run whose frames are carried by mailboxes, to sites that forget everything between letters, is
//! the run of one process: also where letters are lost, and state with them.
#![allow(clippy::unwrap_used)] // a test may panic

mod common;

use std::path::PathBuf;
use std::sync::Arc;

use common::*;
use consilience_engine::config::Config;
use consilience_engine::run::Progress;
use consilience_engine::site::names;
use consilience_net::frame::{Frame, MESSAGE};
use consilience_net::mailbox::{Correspondent, Mailboxes};
use consilience_net::serve::{Admission, ServeError, ServeOptions, Served, serve_by_post};
use consilience_net::status::Status;
use consilience_net::worker::{Brings, Worker};
use prost::Message;

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        Folder(
            std::env::temp_dir().join(format!("consilience-mailbox-{}-{name}", std::process::id())),
        )
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Serve by mailboxes. `meddle` may spoil the answer to a letter (`None`: it is lost), given the
/// letter's number and the site. Gives how many letters there were, and what was refused.
fn by_post(
    config: &Config,
    folder: &Folder,
    brings: impl Fn(&str) -> Brings,
    meddle: impl FnMut(usize, usize, Vec<u8>) -> Option<Vec<u8>>,
) -> (Result<Served, ServeError>, usize, Vec<String>) {
    let (served, letters, refused, _) = with_troubles(config, folder, brings, meddle);
    (served, letters, refused)
}

/// The same, with what sites said that took no part any more.
fn with_troubles(
    config: &Config,
    folder: &Folder,
    brings: impl Fn(&str) -> Brings,
    mut meddle: impl FnMut(usize, usize, Vec<u8>) -> Option<Vec<u8>>,
) -> (Result<Served, ServeError>, usize, Vec<String>, Vec<String>) {
    let mut troubles = Vec::new();
    let sites = names(config).unwrap();
    let mailboxes = Mailboxes::new(&sites);
    let status = Arc::new(Status::new(&sites, Arc::new(Progress::default())));
    let served = {
        let (mailboxes, config) = (mailboxes.clone(), config.clone());
        std::thread::spawn(move || {
            serve_by_post(
                &mailboxes,
                &config,
                &ServeOptions::new(Admission::Word),
                &status,
                |_| {},
                |served| served,
            )
        })
    };
    let (mut letters, mut refused) = (0, Vec::new());
    while !served.is_finished() {
        let mut idle = true;
        for (index, site) in sites.iter().enumerate() {
            let Some(letter) = mailboxes.collect(index) else { continue };
            idle = false;
            let brings = Brings { state: Some(folder.0.clone()), ..brings(site) };
            let answered = Correspondent::new(brings).unwrap().answer(&letter).unwrap();
            letters += 1;
            troubles.extend(answered.trouble.map(|trouble| trouble.to_string()));
            assert!(letters < 20_000, "letters go to and fro without end");
            match meddle(letters, index, answered.bundle) {
                Some(bundle) => refused.extend(mailboxes.deliver(index, &bundle).err()),
                None => mailboxes.lost(index, "the letter was lost"),
            }
        }
        if idle {
            std::thread::yield_now();
        }
    }
    (served.join().unwrap(), letters, refused, troubles)
}

/// An answer that is longer than any can be, which a site would give again whenever it is asked: it
/// is refused by name, and the site is told; once it answers better the run is that of one process.
#[test]
fn an_answer_that_is_too_long_is_named_to_its_site() {
    let config = config(&gaussians("name = \"lmc\"\nstep = 0.05", 30));
    let mut lengthened = 0;
    let (served, letters, refused, troubles) =
        with_troubles(&config, &Folder::new("long"), brings, |_, site, bundle| {
            // a message of a chain, three times
            let is_message = bundle.len() < 60 && site == 1;
            if !is_message || lengthened == 3 {
                return Some(bundle);
            }
            let Ok(mut frame) = Frame::decode_length_delimited(&bundle[..]) else {
                return Some(bundle);
            };
            if frame.kind != MESSAGE {
                return Some(bundle);
            }
            lengthened += 1;
            frame.body = vec![0; 5000].into();
            Some(frame.encode_length_delimited_to_vec())
        });
    same("too long", &served.unwrap(), &in_process(&config));
    assert_eq!((lengthened, refused.len()), (3, 3), "{refused:?}");
    assert!(refused.iter().all(|why| why.contains("with 5000 bytes, where")), "{refused:?}");
    assert_eq!(troubles.len(), 3, "{troubles:?}");
    let named = |why: &String| why.starts_with("the server refuses this site: a frame of kind");
    assert!(troubles.iter().all(named), "{troubles:?}");
    assert!(letters < 2000, "{letters} letters");
}

#[test]
fn samplers_by_post_are_those_of_one_process() {
    for (name, sampler) in [
        ("lmc", "name = \"lmc\"\nstep = 0.05"),
        // surveys, and coordinates that are told
        ("qlsd++", "name = \"qlsd++\"\nrefresh = 5\nprecondition = true"),
        ("b-elf", "name = \"b-elf\"\nstep = 0.02"),
        ("vr-fald*", "name = \"vr-fald*\"\nsynchronise = { probability = 0.3 }"),
    ] {
        let config = config(&gaussians(sampler, 60));
        let (served, letters, _) =
            by_post(&config, &Folder::new(name.trim_matches('*')), brings, |_, _, bundle| {
                Some(bundle)
            });
        same(name, &served.unwrap(), &in_process(&config));
        assert!(letters > 60, "{name}: {letters} letters");
    }
}

/// A survey of curvature asks in one letter about the reference point of another: where curvature
/// depends on the point, a site that forgot it would answer wrongly.
#[test]
fn what_a_survey_was_told_is_kept_between_letters() {
    let config = config(&hospitals(20));
    let folder = Folder::new("hospitals");
    let (served, ..) = by_post(
        &config,
        &folder,
        |site| Brings { data: hospital(site), ..brings(site) },
        |_, _, bundle| Some(bundle),
    );
    same("hospitals", &served.unwrap(), &in_process(&config));
}

#[test]
fn lost_letters_and_lost_notes_change_nothing() {
    let config = config(&gaussians("name = \"qlsd++\"\nstep = 0.05", 80));
    let folder = Folder::new("lost");
    let notes = folder.0.clone();
    let mut lost = 0;
    let (served, _, refused) = by_post(&config, &folder, brings, |letter, site, bundle| {
        if letter % 23 == 0 {
            // Site 1 loses what it was told, but not its chains.
            let _ = std::fs::read_dir(&notes).map(|files| {
                for file in files.flatten().filter(|file| {
                    site == 1 && file.file_name().to_string_lossy().ends_with(".told")
                }) {
                    std::fs::remove_file(file.path()).unwrap();
                }
            });
        }
        if letter % 17 == 0 {
            lost += 1;
            return None;
        }
        Some(bundle)
    });
    same("lost letters", &served.unwrap(), &in_process(&config));
    assert!(lost > 5 && refused.is_empty(), "{lost} lost, {refused:?} refused");
}

/// A site forgets a run that is over. Where its last words are lost it greets anew, is told again
/// that the run is over, and understands.
#[test]
fn lost_last_words_are_said_again() {
    use prost::Message;
    let config = config(&gaussians("name = \"lmc\"\nstep = 0.05", 20));
    let last_words = Worker::farewell().encode_length_delimited_to_vec();
    let mut lost = 0;
    let (served, _, refused) = by_post(&config, &Folder::new("last"), brings, |_, site, bundle| {
        let is_lost = bundle == last_words && site == 1 && lost < 3;
        lost += usize::from(is_lost);
        (!is_lost).then_some(bundle)
    });
    same("lost last words", &served.unwrap(), &in_process(&config));
    assert_eq!((lost, refused.len()), (3, 0), "{refused:?}");
}

#[test]
fn wrong_letters_are_refused_by_name() {
    let config = config(&gaussians("name = \"lmc\"\nstep = 0.05", 20));
    let folder = Folder::new("wrong");
    let sites = names(&config).unwrap();
    let mailboxes = Mailboxes::new(&sites);
    assert!(mailboxes.deliver(0, &[]).unwrap_err().contains("not begun"));
    // The first answers are garbage, cut short, and another site's greeting; the site is asked
    // again each time.
    let (served, _, refused) =
        by_post(&config, &folder, brings, |letter, site, bundle| match letter {
            1 => Some(vec![200; 40]),
            2 => Some(bundle[..bundle.len() - 1].to_vec()),
            3 => {
                let other = brings(&sites[(site + 1) % sites.len()]);
                Some(Correspondent::new(other).unwrap().answer(&[]).unwrap().bundle)
            }
            _ => Some(bundle),
        });
    same("wrong letters", &served.unwrap(), &in_process(&config));
    assert_eq!(refused.len(), 3, "{refused:?}");
    for (why, part) in refused.iter().zip(["cannot be read", "cannot be read", "answers for site"])
    {
        assert!(why.contains(part), "{why}");
    }
}

/// A second site with the folder of one that lives is told whose it is; the first goes on, and the
/// run comes to its end.
#[test]
fn a_second_site_on_the_same_folder_is_refused_by_the_folder_and_its_owner() {
    let config = config(&gaussians("name = \"lmc\"\nstep = 0.05", 40));
    let folder = Folder::new("twin");
    let sites = names(&config).unwrap();
    let mailboxes = Mailboxes::new(&sites);
    let status = Arc::new(Status::new(&sites, Arc::new(Progress::default())));
    let served = {
        let (mailboxes, config) = (mailboxes.clone(), config.clone());
        std::thread::spawn(move || {
            let options = ServeOptions::new(Admission::Word);
            serve_by_post(&mailboxes, &config, &options, &status, |_| {}, |served| served)
        })
    };
    let bringing = |site: &String| Brings { state: Some(folder.0.clone()), ..brings(site) };
    let mut first: Vec<Correspondent> =
        sites.iter().map(|site| Correspondent::new(bringing(site)).unwrap()).collect();
    let (mut letters, mut refused) = (0, 0);
    while !served.is_finished() {
        for (index, site) in sites.iter().enumerate() {
            let Some(letter) = mailboxes.collect(index) else { continue };
            letters += 1;
            // before its chains are there, and after them, a twin is no harm
            if letters > 30
                && index == 0
                && let Err(why) = Correspondent::new(bringing(site))
            {
                let why = why.to_string();
                assert!(why.contains("is in use by this process"), "{why}");
                assert!(why.contains(&folder.0.display().to_string()), "{why}");
                refused += 1;
            }
            let answered = first[index].answer(&letter).unwrap();
            mailboxes.deliver(index, &answered.bundle).unwrap();
        }
        std::thread::yield_now();
    }
    same("twin", &served.join().unwrap().unwrap(), &in_process(&config));
    assert!(refused > 5, "{refused}");
}
