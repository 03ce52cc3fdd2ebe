//! State survives power cuts at every step of the disk, full disks and flipped bits: it is there,
//! or its damage is named.

#![allow(clippy::unwrap_used)] // a test may panic

use consilience_core::rng::{Purpose, SERVER, Seed};
use consilience_core::snapshot::{SnapshotError, State, Visit};
use consilience_engine::store::{
    Disk, Faults, Folder, Journal, Log, Replay, Simulated, Snapshots, StoreError, private_seed,
};

/// A party that remembers the sum and number of what it was told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Sum {
    sum: u64,
    told: u64,
}

impl State for Sum {
    fn state(&mut self, visit: &mut Visit<'_>) -> Result<(), SnapshotError> {
        visit.subject("a sum")?;
        visit.number("the sum", &mut self.sum)?;
        visit.number("how often it was told", &mut self.told)
    }
}

impl Replay for Sum {
    fn replay(&mut self, record: &[u8]) -> Result<(), String> {
        self.sum = self
            .sum
            .wrapping_mul(31)
            .wrapping_add(record.iter().map(|b| u64::from(*b)).sum::<u64>());
        self.told += 1;
        Ok(())
    }
}

/// Records of different lengths, with zeros in them.
fn record(k: u64) -> Vec<u8> {
    (0..k * 7 % 40).map(|i| if i % 3 == 0 { 0 } else { (k + i) as u8 }).collect()
}

/// Where a party stands that was told `n` records.
fn after(n: u64) -> Sum {
    let mut sum = Sum::default();
    (0..n).for_each(|k| sum.replay(&record(k)).unwrap());
    sum
}

/// Tell it records up to `most`, with a checkpoint after every fifth, until the power fails. What
/// was acknowledged is returned.
fn live(disk: &Simulated, most: u64) -> Result<u64, StoreError> {
    let mut party = Sum::default();
    let (mut journal, warnings) = Journal::open(disk.clone(), "party", &mut party)?;
    assert_eq!(warnings, [] as [String; 0]);
    assert_eq!(party, after(party.told), "what is found again is what was written");
    let mut told = party.told;
    while told < most {
        if journal.commit(&record(told)).is_err() {
            return Ok(told);
        }
        party.replay(&record(told)).unwrap();
        told += 1;
        if told.is_multiple_of(5) && journal.checkpoint(&mut party).is_err() {
            return Ok(told);
        }
    }
    Ok(told)
}

#[test]
fn a_power_cut_before_any_step_of_the_disk_loses_nothing_that_was_acknowledged() {
    let whole = Simulated::new(0, Faults::default());
    live(&whole, 23).unwrap();
    for seed in 0..8 {
        for step in 0..whole.steps() {
            let disk = Simulated::new(seed * 10_000 + step, Faults::default());
            disk.fail_after(step);
            let acknowledged = live(&disk, 23).unwrap_or(0); // it failed while it was opened
            disk.power_cut();
            let mut found = Sum::default();
            Journal::open(disk.clone(), "party", &mut found)
                .unwrap_or_else(|e| panic!("seed {seed}, step {step}: {e}"));
            assert!(
                (acknowledged..=acknowledged + 1).contains(&found.told),
                "seed {seed}, step {step}: {found:?} {acknowledged}"
            );
            assert_eq!(found, after(found.told), "seed {seed}, step {step}");
            assert_eq!(live(&disk, 30).unwrap(), 30, "it goes on");
        }
    }
}

#[test]
fn power_cuts_during_recovery_are_survived_too() {
    let mut dice = Seed::new(5).stream(Purpose::Data, SERVER, 0);
    let disk = Simulated::new(77, Faults::default());
    let mut acknowledged = 0;
    for _ in 0..500 {
        disk.fail_after(u64::from(dice.below(40)));
        match live(&disk, acknowledged + 8) {
            Ok(told) => {
                assert!(told >= acknowledged, "{told} of {acknowledged}");
                acknowledged = told;
            }
            Err(StoreError::Io { .. }) => {}
            Err(other) => panic!("{other}"),
        }
        disk.power_cut();
    }
    assert!(acknowledged > 500, "only {acknowledged} records were written: the test tests nothing");
}

#[test]
fn a_full_disk_is_an_error_and_no_loss() {
    let mut filled = 0;
    for capacity in (0..1500).step_by(37) {
        let disk = Simulated::new(capacity as u64, Faults { capacity });
        let mut party = Sum::default();
        let Ok((mut journal, _)) = Journal::open(disk.clone(), "party", &mut party) else {
            continue;
        };
        let mut told = 0;
        while told < 100 && journal.commit(&record(told)).is_ok() {
            party.replay(&record(told)).unwrap();
            told += 1;
            if told.is_multiple_of(5) && journal.checkpoint(&mut party).is_err() {
                break;
            }
        }
        if told < 100 {
            assert!(journal.commit(&[1]).is_err(), "a disk that failed is not written to");
            filled += 1;
        }
        disk.power_cut();
        let mut found = Sum::default();
        Journal::open(disk, "party", &mut found).unwrap();
        assert!((told..=told + 1).contains(&found.told) && found == after(found.told));
    }
    assert!(filled > 5, "{filled} disks were full");
}

/// A thousand flipped bits in each kind of file: every one is named, or what is found is what was
/// written.
#[test]
fn flipped_bits_are_detected_or_harmless() {
    let disk = Simulated::new(3, Faults::default());
    live(&disk, 23).unwrap(); // generations 3 and 4
    let files = disk.list().unwrap();
    assert_eq!(
        files,
        [
            "party.000000000003",
            "party.000000000004",
            "party.log.000000000003",
            "party.log.000000000004"
        ]
    );
    let mut dice = Seed::new(6).stream(Purpose::Data, SERVER, 0);
    for file in &files {
        let bits = disk.read(file).unwrap().unwrap().len() as u32 * 8;
        let (mut named, mut harmless) = (0, 0);
        for _ in 0..1000 {
            let copy = disk.copy(1);
            copy.flip(file, dice.below(bits) as usize);
            let mut found = Sum::default();
            match Journal::open(copy, "party", &mut found) {
                Ok((_, warnings)) => {
                    assert_eq!(found, after(23), "{file}");
                    harmless += 1;
                    assert_eq!(
                        warnings.len(),
                        usize::from(file == "party.000000000004"),
                        "{file}: a fallback is told"
                    );
                }
                Err(StoreError::Damaged { file: where_, .. }) => {
                    assert_eq!(&where_, file);
                    named += 1;
                }
                Err(other) => panic!("{file}: {other}"),
            }
        }
        // Only the newest log is needed in any case; the older one behind a whole snapshot is not
        // read.
        assert_eq!(
            (named, harmless),
            if file.contains("log.000000000004") { (1000, 0) } else { (0, 1000) },
            "{file}"
        );
    }
}

#[test]
fn every_bit_of_a_log_is_guarded_and_every_tear_is_cut() {
    let mut disk = Simulated::new(4, Faults::default());
    let (mut log, _) = Log::open(&mut disk, "log", 7).unwrap();
    (0..6).for_each(|k| log.commit(&mut disk, &record(k)).unwrap());
    let bytes = disk.read("log").unwrap().unwrap();
    let expected: Vec<Vec<u8>> = (0..6).map(record).collect();
    for bit in 0..bytes.len() * 8 {
        let mut copy = disk.copy(1);
        copy.flip("log", bit);
        assert!(
            matches!(Log::open(&mut copy, "log", 7), Err(StoreError::Damaged { .. })),
            "bit {bit}"
        );
    }
    let last = bytes.len() - record(5).len() - 21;
    for cut in last..bytes.len() {
        for zeros in [0, bytes.len() - cut] {
            let mut copy = Simulated::new(1, Faults::default());
            copy.append("log", &bytes[..cut]).unwrap();
            copy.append("log", &vec![0; zeros]).unwrap();
            let (mut log, records) = Log::open(&mut copy, "log", 7).unwrap();
            assert_eq!(records, expected[..5], "cut at {cut}");
            log.commit(&mut copy, &record(5)).unwrap();
            assert_eq!(copy.read("log").unwrap().unwrap(), bytes);
        }
    }
    assert!(
        matches!(Log::open(&mut disk, "log", 8), Err(StoreError::Damaged { .. })),
        "another log's records"
    );
}

#[test]
fn of_snapshots_the_newest_whole_one_is_found() {
    let mut disk = Simulated::new(4, Faults::default());
    let snapshots = Snapshots::new("chain");
    let newest = |disk: &mut Simulated| snapshots.newest(disk, |_, found| Ok(found)).unwrap();
    assert!(newest(&mut disk).0.is_none());
    for number in [3, 4, 9] {
        snapshots.save(&mut disk, number, &record(number)).unwrap();
    }
    assert_eq!(snapshots.numbers(&disk).unwrap(), [4, 9]);
    disk.flip(&snapshots.file(9), 50);
    let (found, damaged) = newest(&mut disk);
    assert_eq!(found.unwrap().payload, record(4));
    let why = damaged[0].to_string();
    assert!(why.contains("chain.000000000009 is damaged"), "{why}");
}

/// An empty folder that goes away in the end.
struct Scratch(std::path::PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("consilience-store-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_real_folder_does_what_the_simulated_disk_does() {
    let scratch = Scratch::new("folder");
    for round in 1..=3u64 {
        let folder = Folder::open(&scratch.0).unwrap();
        let twice = Folder::open(&scratch.0).unwrap_err().to_string();
        assert!(twice.contains("is in use by this process: let go of the first"), "{twice}");
        assert!(twice.contains(&scratch.0.display().to_string()), "{twice}");
        let mut party = Sum::default();
        let (mut journal, _) = Journal::open(folder, "party", &mut party).unwrap();
        assert_eq!(party, after((round - 1) * 11));
        for k in (round - 1) * 11..round * 11 {
            journal.commit(&record(k)).unwrap();
            party.replay(&record(k)).unwrap();
            if k % 5 == 4 {
                journal.checkpoint(&mut party).unwrap();
            }
        }
        drop(journal);
        // A torn tail.
        let mut folder = Folder::open(&scratch.0).unwrap();
        let log = folder.list().unwrap().into_iter().rfind(|name| name.contains(".log.")).unwrap();
        folder.append(&log, &[9, 0, 0]).unwrap();
    }
    let names = Folder::open(&scratch.0).unwrap().list().unwrap();
    assert_eq!(names.len(), 4, "{names:?}");
}

#[test]
fn a_private_seed_is_made_once_and_read_by_nobody_else() {
    let scratch = Scratch::new("seed");
    let entropy = |byte: u8| {
        move |out: &mut [u8; 32]| {
            out.fill(byte);
            Ok(())
        }
    };
    let mut folder = Folder::open(&scratch.0).unwrap();
    assert!(private_seed(&mut folder, entropy(1)).unwrap() == Seed::from_bytes([1; 32]));
    assert!(private_seed(&mut folder, entropy(2)).unwrap() == Seed::from_bytes([1; 32]));
    let file = scratch.0.join("private.seed");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
        assert!(matches!(
            private_seed(&mut folder, entropy(2)),
            Err(StoreError::Exposed { mode: 0o640, .. })
        ));
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
    }
    for bit in 0..36 * 8 {
        let mut bytes = std::fs::read(&file).unwrap();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let mut disk = Simulated::new(1, Faults::default());
        disk.replace("private.seed", &bytes).unwrap();
        assert!(matches!(private_seed(&mut disk, entropy(2)), Err(StoreError::Damaged { .. })));
    }
    folder.append("client.log.000000000000", &[]).unwrap();
    folder.remove("private.seed").unwrap();
    assert!(
        matches!(private_seed(&mut folder, entropy(2)), Err(StoreError::Missing { .. })),
        "new noise for old rounds"
    );
}
