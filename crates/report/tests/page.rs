//! The page holds every section and plot, is sound HTML, loads nothing, and survives every kind of
//! draws.
#![allow(clippy::unwrap_used)] // a test may panic

mod made_up;

use consilience_engine::calibration::{Calibration, Judged};
use consilience_engine::config::{Config, Source};
use consilience_engine::draws::{Draws, Streamed};
use consilience_engine::halved::Halved;
use consilience_engine::influence::{Influence, SiteInfluence};
use consilience_engine::predict::{Predictor, Rows};
use consilience_engine::record::{Bias, Record, SiteRecord};
use consilience_engine::session::{Control, Session};
use consilience_engine::warnings::{Code, Warning};
use consilience_report::{COMPARISON_SECTIONS, SECTIONS, comparison, html};

/// Tags in order: name, whether it closes, and its attributes.
fn tags(page: &str) -> Vec<(String, bool, String)> {
    let mut tags = Vec::new();
    let mut rest = page;
    while let Some(start) = rest.find('<') {
        let (mut end, mut quoted) = (start + 1, false);
        for (k, c) in rest[start + 1..].char_indices() {
            quoted ^= c == '"';
            end = start + 1 + k;
            if c == '>' && !quoted {
                break;
            }
        }
        let inside = &rest[start + 1..end];
        let (closes, inside) =
            inside.strip_prefix('/').map_or((false, inside), |inside| (true, inside));
        let (name, attributes) = inside.split_once(' ').unwrap_or((inside, ""));
        assert!(!attributes.contains('<'), "an unescaped text: {inside}");
        tags.push((name.to_owned(), closes, attributes.to_owned()));
        rest = &rest[end + 1..];
        if name == "style" && !closes {
            rest = &rest[rest.find("</style").unwrap()..];
        }
    }
    tags
}

/// Whether a run's page is sound. The number of plots.
fn sound(record: &Record) -> usize {
    sound_page(&html(record), &SECTIONS)
}

/// Whether all is closed in order, nothing is loaded, and coordinates are numbers. The number of
/// plots.
fn sound_page(page: &str, sections: &[(&str, &str)]) -> usize {
    let mut open: Vec<String> = Vec::new();
    let mut plots = 0;
    for (name, closes, attributes) in tags(page) {
        if closes {
            assert_eq!(open.pop().as_deref(), Some(name.as_str()), "closed out of order");
        } else if !["!DOCTYPE", "meta", "link"].contains(&name.as_str()) {
            open.push(name.clone());
        }
        // A plot has a name; the parts within it that are stretched over its width have none.
        plots += usize::from(!closes && name == "svg" && attributes.contains("role=\"img\""));
        assert!(!["script", "img", "iframe", "object"].contains(&name.as_str()), "{name}");
        let drawn = ["svg", "path", "line", "rect", "circle", "text", "tspan", "g"]
            .contains(&name.as_str());
        let numbers = attributes.split("aria-label").next().unwrap();
        assert!(
            !drawn || !["NaN", "inf", "–", "∞"].iter().any(|bad| numbers.contains(bad)),
            "{name} {attributes}"
        );
        let linked = attributes.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
        assert!(!linked.contains("http://") && !linked.contains("https://"), "{name} {attributes}");
        if name == "svg" && !closes && !open[..open.len() - 1].contains(&name) {
            assert!(
                attributes.contains("role=\"img\"") && attributes.contains("aria-label=\""),
                "{attributes}"
            );
        }
    }
    assert!(open.is_empty(), "not closed: {open:?}");
    let style = &page[page.find("<style>").unwrap()..page.find("</style>").unwrap()];
    assert!(!style.contains("url(") && !style.contains("@import"));
    for (id, heading) in sections {
        assert_eq!(
            page.matches(&format!("<section id=\"{id}\"><h2>{heading}</h2>")).count(),
            1,
            "{id}"
        );
    }
    assert!(page.len() < 2_000_000, "{} bytes", page.len());
    plots
}

#[test]
fn a_long_run_has_every_plot_and_stays_small() {
    // The forest, that of ratios, two of the check, two of calibration, the influence, two
    // overviews, traces and ranks, pairs, the error, two of sites, what was sent.
    assert_eq!(
        sound(&made_up::record(4, 4000, 22, true)),
        1 + 1 + 2 + 2 + 1 + 2 + 2 * 22 + 1 + 1 + 2 + 1
    );
}

#[test]
fn a_quiet_run_has_no_warnings_and_a_bad_one_has_all() {
    let mut record = made_up::record(4, 1000, 3, true);
    let page = html(&record);
    assert!(page.contains("None were found") && !page.contains("role=\"alert\""));
    assert!(page.contains("logistic regression, by &quot;ill == 1 ~ age&quot;."));
    assert!(page.contains("normal, mean 0, variance 6.25 for every parameter."));
    record.interrupted = true;
    record.warnings = vec![Warning::new(Code::Other, "clipping bit <often>"); 2];
    let shifted = (0..4)
        .map(|chain| (0..40).map(|t| f64::from(chain) + f64::from(t % 7) * 0.1).collect())
        .collect();
    record.draws = Draws::from_chains(shifted, 1);
    record.parameters.truncate(1);
    let page = html(&record);
    for said in [
        "stopped before its end",
        "clipping bit &lt;often&gt;",
        "the chains disagree: R-hat",
        "where 400 are wanted",
        "chains-disagree",
    ] {
        assert_eq!(page.matches(said).count(), 1, "{said}");
    }
    assert!(page.find("the chains disagree").unwrap() < page.find("id=\"posterior\"").unwrap());
}

#[test]
fn every_text_is_escaped() {
    let mut record = made_up::record(2, 50, 2, true);
    let evil = "<script>alert(\"x\")</script>&'";
    for text in [
        &mut record.version,
        &mut record.created,
        &mut record.config,
        &mut record.sampler.0,
        &mut record.sampler.1,
    ] {
        *text = evil.into();
    }
    record.parameters = vec![evil.into(); 2];
    record.notes = vec![evil.into()];
    record.warnings = vec![Warning::new(Code::Other, evil).remedy(evil)];
    record.sites.push(SiteRecord { name: evil.into(), rows: 1, bits: (1, 1) });
    record.sent[0].kind = evil.into();
    assert!(sound(&record) > 0);
    assert!(!html(&record).contains("<script"));
}

#[test]
fn odd_draws_are_drawn_all_the_same() {
    let base = made_up::record(4, 60, 3, true);
    let with = |chains: Vec<Vec<f64>>, dim: usize| Record {
        draws: Draws::from_chains(chains, dim),
        reference: None,
        ..base.clone()
    };
    let odd = [
        ("constant", with(vec![vec![1.5; 300]; 4], 3)),
        ("one draw", with(vec![vec![1.0, 2.0, 3.0]; 4], 3)),
        ("one draw in one chain", with(vec![vec![1.0, 2.0, 3.0]], 3)),
        ("no draws", with(vec![Vec::new(); 2], 3)),
        ("no chains", with(Vec::new(), 3)),
        (
            "no parameters",
            Record {
                draws: Draws::new(0),
                parameters: Vec::new(),
                reference: None,
                ..base.clone()
            },
        ),
        ("all NaN", with(vec![vec![f64::NAN; 300]; 4], 3)),
        (
            "some NaN",
            with(
                vec![
                    (0..300)
                        .map(|k| if k % 50 == 7 { f64::NAN } else { f64::from(k % 11) })
                        .collect();
                    4
                ],
                3,
            ),
        ),
        (
            "infinite",
            with(
                vec![
                    (0..300)
                        .map(|k| if k == 100 { f64::INFINITY } else { f64::from(k % 7) })
                        .collect();
                    2
                ],
                3,
            ),
        ),
        (
            "huge",
            with(
                vec![vec![f64::MAX, f64::MIN, 1e-320, 1e308, -1e308, 0.0]; 20]
                    .into_iter()
                    .map(|c| c.repeat(20))
                    .collect(),
                3,
            ),
        ),
        ("twenty chains", made_up::record(20, 100, 2, true)),
        ("one chain, one parameter, no reference", made_up::record(1, 500, 1, false)),
        (
            "a reference of another shape",
            Record {
                reference: Some(Draws::from_chains(vec![vec![0.5; 20]; 2], 2)),
                ..base.clone()
            },
        ),
        (
            "a reference of one draw",
            Record { reference: Some(Draws::from_chains(vec![vec![0.5; 3]], 3)), ..base.clone() },
        ),
        (
            "nothing judged",
            Record { calibration: None, influence: None, check: None, ..base.clone() },
        ),
        ("nothing known of influence", Record { influence: Some(odd_influence()), ..base.clone() }),
        (
            "no rows to predict",
            Record {
                calibration: base
                    .calibration
                    .clone()
                    .map(|c| Calibration { sites: Vec::new(), ..c }),
                ..base.clone()
            },
        ),
        (
            "nobody and nothing",
            Record {
                sites: Vec::new(),
                sent: Vec::new(),
                statistics: Vec::new(),
                notes: Vec::new(),
                uncompressed: (0, 0),
                ..base.clone()
            },
        ),
    ];
    assert!(html(&odd[0].1).contains("their draws hardly vary"));
    for (name, record) in odd {
        assert!(std::panic::catch_unwind(|| sound(&record)).is_ok(), "{name}");
    }
}

/// Shifts that are not known, of more sites than the record names, and of none.
fn odd_influence() -> Influence {
    let site = |shift: Vec<f64>| SiteInfluence { shift, most: 7, error: f64::NAN };
    Influence {
        draws: 0,
        sites: vec![
            site(vec![f64::NAN; 3]),
            site(Vec::new()),
            site(vec![f64::INFINITY, 0.0, -0.0]),
            site(vec![0.0; 3]),
            site(vec![1.0; 3]),
        ],
    }
}

#[test]
fn images_that_are_uncertain_and_rows_of_another_kind_are_shown() {
    let mut record = made_up::record(2, 50, 2, false);
    let before = sound(&record);
    assert!(consilience_report::uncertain_images(&record).is_none());
    record.calibration = record.calibration.map(made_up::of_images);
    // a histogram of entropies, and a picture of images
    assert_eq!(sound(&record), before + 2);
    let page = html(&record);
    assert!(page.contains("fashion-mnist") && page.contains("0.934"));
    assert!(page.contains("1? 48%") && page.contains("is 0"), "the first image");
    let picture = consilience_report::uncertain_images(&record).unwrap();
    assert!(picture.starts_with("<svg") && picture.len() < 60_000, "{}", picture.len());
    // what averaging is worth stands beside it
    assert!(page.contains("all draws, averaged") && page.contains("one draw"));
}

#[test]
fn calibration_says_which_rows_it_judges_and_what_sites_would_send() {
    let mut record = made_up::record(2, 50, 2, false);
    let page = html(&record);
    assert!(
        page.contains("on the rows that were fitted")
            && !page.contains("on rows that were held out")
    );
    assert!(page.contains("89 numbers (712 B at 64 bits each)"));
    let total = record.calibration.as_ref().unwrap().total();
    assert!(page.contains(&format!("<dt>ECE</dt><dd>{:.3}</dd>", total.calibration_error())));
    assert!(page.contains(&format!("<dt>Accuracy</dt><dd>{:.3}</dd>", total.accuracy())));
    record.calibration.as_mut().unwrap().judged = Judged::HeldOut;
    let page = html(&record);
    assert!(
        !page.contains("on the rows that were fitted")
            && page.contains("on rows that were held out")
    );
}

#[test]
fn a_check_says_what_is_doubtful_and_what_sites_would_send() {
    let mut record = made_up::record(2, 50, 2, false);
    let page = html(&record);
    assert!(page.contains("They do not look like those that there are"));
    assert!(page.contains("<td class=\"bad\">0.002</td>") && page.contains("AUC 0.876"));
    assert!(page.contains("Cleveland: observed 2.2, replicated 2, 89% from 1.5 to 2.6"));
    let check = record.check.as_mut().unwrap();
    check.statistics.iter_mut().for_each(|of| of.p = 0.3);
    assert!(html(&record).contains("They look like those that there are"));
}

/// Ratios and effects of a real encoding: the line of a logistic regression is its sigmoid.
#[test]
fn ratios_and_effects_are_drawn_from_the_encoding() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("effects");
    std::fs::create_dir_all(&folder).unwrap();
    let row = |k: usize| {
        let (site, town) = (["north", "south"][k % 2], ["bern", "chur", "visp"][k % 3]);
        format!("{site},{},{town},{}\n", 20 + 3 * (k * 7 % 11), u8::from(k * k % 5 > 1))
    };
    let rows: String = (0..40).map(row).collect();
    std::fs::write(folder.join("rows.csv"), format!("site,age,town,ill\n{rows}")).unwrap();
    let text = "[target]\nformula = \"ill == 1 ~ age + town\"\n[data]\nfile = \"rows.csv\"\n\
                scheme = \"natural(site)\"\n[run]\neffective_draws = 400\n";
    let source = Source { file: "run.toml".into(), folder, text: text.into() };
    let session = Session::new(Config::parse(source).unwrap()).unwrap();
    let ended = session.plan().unwrap().run(&Default::default(), Control::default()).unwrap();
    let record = ended.record;
    let page = html(&record);
    assert!(page.contains("The odds ratio of every coefficient"), "no forest");
    assert!(page.contains("What is expected along age") && page.contains("along town"));
    sound(&record);
    // by hand: at the mean of age and the most common town only the intercept is left
    let encoding = record.encoding.as_ref().unwrap();
    let grids = encoding.grids().unwrap();
    assert_eq!(grids.iter().map(|grid| grid.column.as_str()).collect::<Vec<_>>(), ["age", "town"]);
    assert_eq!((grids[0].values.len(), grids[1].values.len()), (21, 3));
    let width = encoding.columns().len();
    let middle = &grids[0].cells[10 * width..11 * width];
    assert!(middle[0] == 1.0 && middle[1..].iter().all(|x| x.abs() < 1e-9), "{middle:?}");
    let ends = (grids[0].cells[1], grids[0].cells[20 * width + 1]);
    assert!((ends.0 + 2.0).abs() < 1e-9 && (ends.1 - 2.0).abs() < 1e-9, "{ends:?}");
    let predictor = Predictor::new(&record).unwrap();
    let (cells, offset) = (grids[0].cells.clone(), Vec::new());
    let rows = Rows { cells, offset, ..Rows::default() };
    let expected = predictor.expect(&rows, 0.89)[10][0].mean;
    let draws = record.draws.parameter(0).concat();
    let sigmoid = draws.iter().map(|t| 1.0 / (1.0 + (-t).exp())).sum::<f64>() / draws.len() as f64;
    assert!((expected - sigmoid).abs() < 1e-12, "{expected} is not {sigmoid}");
}

#[test]
fn influence_shows_numbers_of_few_sites_and_colours_of_many() {
    let mut record = made_up::record(2, 50, 2, false);
    let page = html(&record);
    assert!(page.contains("Cov(θ, Uᵢ(θ))") && page.contains("age without Budapest: "));
    let one = record.influence.as_ref().unwrap().sites[0].clone();
    record.influence = Some(Influence { draws: 100, sites: vec![one; 150] });
    let page = html(&record);
    assert!(
        page.contains("The 40 sites that move them most, of 150")
            && page.contains("The 100 sites with the largest shifts, of 150")
    );
    assert!(sound(&record) > 0);
}

#[test]
fn a_comparison_has_a_curve_for_each_sampler_against_each_cost() {
    for runs in [1, 3, 10] {
        let page = comparison(&made_up::comparison(runs));
        assert_eq!(sound_page(&page, &COMPARISON_SECTIONS), 3);
        // A line in each plot, and bars at every fifth of 36 stops.
        let curves = page.matches("class=\"curve s").count();
        assert!(curves >= 3 * runs * (1 + 7) && curves <= 3 * runs * (1 + 8), "{curves}");
        assert_eq!(
            page.matches("<i class=\"line k").count() + page.matches("<i class=\"dashes k").count(),
            3 * runs,
            "legends"
        );
        assert!(
            page.contains("ESS per MB")
                && page.contains("ESS per s")
                && page.contains("below it nothing can be told")
        );
    }
    let mut exact = made_up::comparison(2);
    exact.reference_error = None;
    for run in &mut exact.runs {
        for stop in &mut run.growth {
            stop.bar = (f64::NAN, f64::NAN); // a single chain
        }
        (run.errors, run.ess, run.seconds) = ([f64::NAN; 3], f64::NAN, 0.0);
    }
    exact.runs[1].growth.clear();
    assert_eq!(sound_page(&comparison(&exact), &COMPARISON_SECTIONS), 3);
    exact.runs[0].growth.clear();
    let page = comparison(&exact);
    assert_eq!(sound_page(&page, &COMPARISON_SECTIONS), 3);
    assert!(page.contains("there are no draws"));
}

/// What stands in the plots of a page.
fn labels(page: &str) -> Vec<String> {
    let one = |text: &str| {
        let text = text.split_once("</text>").unwrap().0;
        text.split('<').map(|part| part.split_once('>').unwrap().1).collect::<String>()
    };
    page.split("<text").skip(1).map(one).collect()
}

#[test]
fn names_are_never_cut() {
    let mut record = made_up::record(2, 100, 4, true);
    record.parameters = vec![
        "electrocardiogram at rest: left ventricular hypertrophy by Estes criteria".into(),
        "electrocardiogram at rest: left ventricular hypertrophy by other criteria".into(),
        "maximal_heart_rate_achieved_during_the_exercise_test_in_beats_per_minute".into(),
        "Blutdrucksenkungsmedikamenteneinnahmehäufigkeit".into(),
    ];
    record.sites[0].name = "Universitätsklinikum Hamburg-Eppendorf, Klinik für Kardiologie".into();
    let page = html(&record);
    assert!(sound(&record) > 0 && !page.contains('…'));
    let found = labels(&page);
    for name in &record.parameters {
        let plots = found.iter().filter(|label| *label == name).count();
        assert_eq!(
            plots, 6,
            "two forests, R-hat, effective draws, pairs and influence have {name} in full"
        );
        assert!(
            page.contains(&format!("<th scope=\"row\"><span class=\"name\">{name}</span></th>")),
            "the table has {name} in full"
        );
    }
    for site in &record.sites {
        assert!(
            found.iter().filter(|label| **label == site.name).count() >= 2,
            "two plots have {} in full",
            site.name
        );
    }
    let mut compared = made_up::comparison(2);
    compared.runs[0].config = "configs/a folder with a long name/another folder/quantised with a \
        memory, 8 bits, eta 0.25.toml"
        .into();
    let page = comparison(&compared);
    assert!(
        page.contains(&format!("<span>lmc ({})</span>", compared.runs[0].config))
            && !page.contains('…')
    );
}

#[test]
fn letters_are_not_scaled_with_a_plot() {
    for page in [html(&made_up::record(2, 100, 4, true)), comparison(&made_up::comparison(2))] {
        // What is stretched over the width holds one path, and no letters.
        for stretched in page.split("viewBox=").skip(1) {
            let inside = stretched.split_once('>').unwrap().1.split_once("</svg>").unwrap().0;
            assert!(inside.starts_with("<path") && !inside.contains("<text"), "{inside}");
        }
    }
}

#[test]
fn draws_on_disk_are_counted_and_the_command_is_named() {
    let mut record = made_up::record(2, 50, 2, false);
    record.draws = Draws::new(2);
    (record.statistics, record.calibration, record.influence) = (Vec::new(), None, None);
    record.streamed = Some(Streamed { file: "big.npy".into(), chains: 4, length: 12_000_000 });
    assert!(sound(&record) > 0);
    let page = html(&record);
    assert!(page.contains("<dd>4 × 12\u{202f}000\u{202f}000</dd>"));
    assert!(
        page.contains("consilience summary big.npy") && !page.contains("there are no draws here")
    );
}

#[test]
fn of_many_parameters_some_are_plotted() {
    let record = made_up::record(4, 200, 300, false);
    assert_eq!(sound(&record), 3 + 1 + 2 + 1 + 2 + 2 * 40 + 1 + 1 + 2 + 1);
    let page = html(&record);
    assert!(page.contains("none of the other 260") && page.contains("The first 60 of 300"));
    // the parameters, the sites twice, two numbers of the check, one beside the draws, and the rows
    // left out of four sites and of all
    let rows = page.matches("<th scope=\"row\"><span class=\"name\">").count();
    assert_eq!(rows, 300 + 4 + 4 + 2 + 1 + 5);
}

#[test]
fn bits_are_counted_or_spread_evenly() {
    let mut record = made_up::record(2, 200, 2, true);
    assert!(!html(&record).contains("grow evenly"));
    record.statistics.clear();
    assert!(html(&record).contains("grow evenly"));
}

#[test]
fn bias_and_choice_are_told() {
    let mut record = made_up::record(2, 60, 3, false);
    record.bias = Some(Bias {
        exact: false,
        mean: vec![0.0, -0.04, 0.01],
        sd: vec![1.0, 1.02, 1.0],
        measured: None,
    });
    let page = html(&record);
    assert!(page.contains("up to 0.040") && page.contains("up to 2.0%"), "{page}");
    record.bias.as_mut().unwrap().measured = Some(Halved {
        step: 0.25,
        mean: vec![1.5; 3],
        mean_error: vec![0.1; 3],
        sd: vec![2.0; 3],
        sd_error: vec![0.2; 3],
        mean_bias: vec![0.021, 0.0, -0.123],
        mean_bias_error: vec![0.003; 3],
        sd_ratio: vec![1.0, 0.93, 1.0],
        sd_ratio_error: vec![0.01; 3],
    });
    let page = html(&record);
    for word in ["Bias as measured", "up to 0.123", "up to 7.0%", "1.500 ± 0.100"] {
        assert!(page.contains(word), "{word}");
    }
    record.bias = Some(Bias { exact: true, mean: vec![0.0; 3], sd: vec![1.0; 3], measured: None });
    record.choice = Some(made_up::choice());
    let page = html(&record);
    for word in ["none. Proposals are accepted", "not used: its weights are heavy", "75%"] {
        assert!(page.contains(word), "{word}");
    }
}

#[test]
fn candidates_are_plotted_and_the_chosen_is_marked() {
    let mut record = made_up::record(2, 60, 3, false);
    record.choice = Some(made_up::choice());
    assert!(!html(&record).contains("Effective draws against"), "no draws were asked for");
    record.effective_draws = Some(4000);
    let page = html(&record);
    for against in ["Effective draws against bytes", "Effective draws against exchanges"] {
        assert!(page.contains(against), "{against}");
    }
    for (mark, times) in [("s0 chosen", 2), ("s1 dashed\"", 2), ("s2\"", 2), ("chosen\"", 2)] {
        assert_eq!(page.matches(mark).count(), times, "{mark}");
    }
    assert!(page.contains("hmc (chosen)") && page.contains("imh (not used)"));
}

/// A run with a budget says what it told of one row; one without says that it claims nothing.
#[test]
fn a_private_run_says_what_it_told() {
    let mut record = made_up::record(1, 200, 2, false);
    let open = html(&record);
    assert!(open.contains("What is not claimed") && !open.contains("told of one row"));
    let config = |sampler: &str| {
        format!(
            "[target]\nmodel = \"logistic\"\nprior = {{ law = \"gaussian\", variance = 2.0 }}\n\
             [[client]]\nname = \"a\"\nfile = \"a.csv\"\n[sampler]\n{sampler}\n\
             [privacy]\nepsilon = 3.0\ndelta = 1e-9\nrow_norm = 2.0\n"
        )
    };
    let chain = "name = \"lmc\"\nstep = 1e-5\n[run]\nchains = 1\niterations = 200";
    for (sampler, word) in
        [(chain, "Iterations allowed"), ("name = \"dp-release\"", "Answers allowed")]
    {
        record.config = config(sampler);
        let page = html(&record);
        for said in ["What was told of one row, at most", "Against other sites", "Assumed:", word] {
            assert_eq!(page.matches(said).count(), 1, "{said}");
        }
        assert!(!page.contains("What is not claimed") && !page.contains("kept nothing private"));
        sound(&record);
        record.warnings = vec![Warning::new(Code::PrivacySimulated, "simulated")];
        assert!(html(&record).contains("kept nothing private"));
        record.warnings.clear();
    }
}

/// Cross-validation stands beside what the model would draw, by site and for all, and a run without
/// it says how it is had.
#[test]
fn rows_left_out_are_shown_by_site() {
    let mut record = made_up::record(2, 60, 3, false);
    let page = html(&record);
    let loo = record.loo.clone().unwrap();
    assert!(
        page.contains(&format!("elpd {:.1}", loo.total.sum).replace('-', "\u{2212}"))
            || page.contains(&format!("elpd {:.1}", loo.total.sum)),
        "{:.1}",
        loo.total.sum
    );
    assert!(page.contains(&format!("Of {} the draws do not tell", loo.doubtful())));
    for (site, _) in &loo.sites {
        assert!(page.contains(site.as_str()));
    }
    record.loo = None;
    assert!(html(&record).contains("<code>consilience loo</code>"));
}
