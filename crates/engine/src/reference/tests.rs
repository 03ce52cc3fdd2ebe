use super::*;
use crate::config::Source;

fn problem(text: &str) -> (Config, Problem) {
    let text = format!("{text}\n[sampler]\nname = \"lmc\"\nstep = 0.01\n");
    let config = Config::parse(Source { file: "test".into(), folder: ".".into(), text }).unwrap();
    let problem = Problem::new(&config).unwrap();
    (config, problem)
}

const ROWS: &str = "[target]\nmodel = \"logistic\"\n\
    prior = { law = \"gaussian\", variance = 2.0 }\n[[client]]\n\
    rows = [[0.2, 1], [-1.1, 0], [0.7, 1]]\n[[client]]\nrows = [[1.3, 0]]";

#[test]
fn a_hash_sees_rows_labels_prior_and_temperature_and_no_names() {
    let of = |text: &str| digest(&problem(text).1.target);
    let base = of(ROWS);
    assert_eq!(base.len(), 64);
    assert_eq!(
        base,
        of(&ROWS.replace("[[client]]", "[[client]]\nname = \"a\"").replacen("\"a\"", "\"b\"", 1))
    );
    for (from, to) in [
        ("0.7, 1", "0.7000000000001, 1"),
        ("0.7, 1", "0.7, 0"),
        ("2.0", "2.5"),
        ("\"gaussian\", variance", "\"laplace\", scale"),
        ("[target]", "[target]\ntemperature = 0.5"),
        ("[target]", "[target]\nintercept = false"),
    ] {
        assert_ne!(base, of(&ROWS.replacen(from, to, 1)), "{from} -> {to}");
    }
}

fn folder(name: &str) -> std::path::PathBuf {
    let folder =
        std::env::temp_dir().join(format!("consilience-cache-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    folder
}

fn small(method: Method, draws: usize) -> Reference {
    let settings = ReferenceSettings { chains: 2, draws, seed: 3 };
    let chain = |c: usize| (0..2 * draws).map(|k| (k * 7 % 5) as f64 + c as f64 / 3.0).collect();
    Reference {
        method,
        settings,
        draws: Draws::from_chains(vec![chain(0), chain(1)], 2),
        acceptance: Some(0.1 + 0.2),
    }
}

#[test]
fn what_is_kept_is_found_again_and_the_best_first() {
    let folder = folder("find");
    let cache = Cache::open(Some(&folder)).unwrap();
    assert_eq!(cache.find("abc"), (None, Vec::new()));
    for reference in [small(Method::Lmc, 50), small(Method::Mala, 10), small(Method::Mala, 20)] {
        cache.store("abc", &reference).unwrap();
        assert_eq!(
            cache.load("abc", reference.method, reference.settings).unwrap(),
            Some(reference)
        );
    }
    assert_eq!(cache.find("abc").0, Some(small(Method::Mala, 20)));
    cache.store("abc", &small(Method::Nuts, 5)).unwrap();
    assert_eq!(cache.find("abc").0, Some(small(Method::Nuts, 5)));
    assert_eq!(cache.find("abd").0, None);
    assert_eq!(
        cache
            .load(
                "abc",
                Method::Nuts,
                ReferenceSettings { seed: 4, ..small(Method::Nuts, 5).settings }
            )
            .unwrap(),
        None
    );
    let names: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(
        names.len() == 4 && names.iter().all(|name| name.to_str().unwrap().ends_with(".reference")),
        "{names:?}"
    );
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn no_damaged_file_is_trusted() {
    let folder = folder("damage");
    let cache = Cache::open(Some(&folder)).unwrap();
    let reference = small(Method::Nuts, 3);
    let path = cache.store("abc", &reference).unwrap();
    let good = std::fs::read(&path).unwrap();
    let refused = |bytes: &[u8], at: usize| {
        std::fs::write(&path, bytes).unwrap();
        let error = cache.load("abc", reference.method, reference.settings).unwrap_err();
        assert!(error.to_string().contains("is damaged"), "{at}: {error}");
        let (found, complaints) = cache.find("abc");
        assert!(found.is_none() && complaints == [error]);
    };
    for at in 0..good.len() {
        refused(&good[..at], at);
        let mut flipped = good.clone();
        flipped[at] ^= 1 << (at % 8);
        refused(&flipped, at);
    }
    // A sound file under a wrong name is refused too.
    cache.store("abd", &reference).unwrap();
    std::fs::rename(cache.path("abd", reference.method, reference.settings), &path).unwrap();
    assert!(
        cache
            .load("abc", reference.method, reference.settings)
            .unwrap_err()
            .to_string()
            .contains("of another target")
    );
    cache.store("abc", &reference).unwrap();
    assert_eq!(cache.find("abc").0, Some(reference));
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Every score is below 5.3 standard errors: four parameters raise a false alarm once in a million
/// seeds. The same scores reject standard deviations that are 15% wider.
#[test]
fn mala_and_long_lmc_agree_and_a_wider_posterior_is_noticed() {
    let (config, problem) = problem(ROWS);
    let settings = ReferenceSettings { chains: 4, draws: 4000, seed: 5 };
    let long = LongLmc::new(&config, &problem, settings).unwrap();
    let mala = mala(&problem, long.optimum(), settings).unwrap();
    let lmc = long.run(&Progress::default()).unwrap();
    assert!(agree(&mala, &lmc).unwrap().holds(), "{:?}", agree(&mala, &lmc));
    let mean = mala.draws.mean();
    let wider = |k: usize, x: &f64| mean[k % 2] + 1.15 * (x - mean[k % 2]);
    let chains = (0..4).map(|c| {
        mala.draws
            .rows()
            .skip(c * 4000)
            .take(4000)
            .flatten()
            .enumerate()
            .map(|(k, x)| wider(k, x))
            .collect()
    });
    let wider = Reference { draws: Draws::from_chains(chains.collect(), 2), ..lmc };
    let found = agree(&mala, &wider).unwrap();
    assert!(!found.holds() && found.deviations > found.means, "{found:?}");
}
