use super::*;
use crate::data::{Features, Groups};

fn data(rows: usize, classes: usize) -> Dataset {
    Dataset {
        features: Features::Dense((0..rows).map(|k| (k % 3) as f64).collect()),
        labels: (0..rows).map(|k| (k % classes) as f64).collect(),
        classes: Some((0..classes).map(|k| k.to_string()).collect()),
        columns: vec!["site".into()],
        groups: Some(Groups {
            names: vec!["a".into(), "b".into()],
            rows: (0..rows).map(|k| u32::from(k > 3)).collect(),
        }),
    }
}

fn scheme(text: &str) -> Scheme {
    text.parse().unwrap()
}

fn deal(
    data: &Dataset,
    text: &str,
    clients: usize,
    seed: u64,
) -> Result<Assignment, PartitionError> {
    split(data, &scheme(text), Some(clients), Seed::new(seed))
}

const ALL: [&str; 7] = [
    "iid",
    "contiguous",
    "dirichlet(0.1)",
    "dirichlet",
    "two-clients",
    "dominant(0.3)",
    "power-law(1.5)",
];

#[test]
fn every_row_goes_to_one_client_and_none_is_empty() {
    for text in ALL {
        for (rows, classes, clients) in
            [(400, 10, 20), (997, 10, 7), (1000, 2, 50), (40, 2, 3), (30, 1, 1)]
        {
            for seed in 0..5 {
                let data = data(rows, classes);
                let dealt = match deal(&data, text, clients, seed) {
                    Err(PartitionError::Shortage { .. })
                        if text.starts_with("dominant") && clients % classes != 0 =>
                    {
                        continue;
                    }
                    other => other
                        .unwrap_or_else(|e| panic!("{text}, {rows} rows, {clients} clients: {e}")),
                };
                assert!(is_partition(&dealt.rows, rows), "{text}");
                assert_eq!(dealt.rows.len(), clients);
                assert!(dealt.rows.iter().all(|client| !client.is_empty() && client.is_sorted()));
                assert_eq!(
                    dealt,
                    deal(&data, text, clients, seed).unwrap(),
                    "{text} is not reproducible"
                );
                assert_eq!(dealt.counts(&data).iter().flatten().sum::<usize>(), rows);
            }
        }
        if text != "contiguous" {
            assert_ne!(
                deal(&data(400, 10), text, 20, 1),
                deal(&data(400, 10), text, 20, 2),
                "{text} ignores the seed"
            );
        }
    }
}

#[test]
fn a_lost_or_doubled_row_would_be_noticed() {
    assert!(is_partition(&[vec![0, 2], vec![1]], 3));
    assert!(!is_partition(&[vec![0, 2], vec![]], 3));
    assert!(!is_partition(&[vec![0, 2], vec![2]], 3));
    assert!(!is_partition(&[vec![0, 1, 2], vec![2]], 3));
}

#[test]
fn equal_schemes_are_equal() {
    for text in ["iid", "contiguous"] {
        let sizes: Vec<usize> =
            deal(&data(103, 2), text, 10, 1).unwrap().rows.iter().map(Vec::len).collect();
        assert!(sizes.iter().all(|n| *n == 10 || *n == 11), "{text}: {sizes:?}");
    }
    assert_eq!(
        deal(&data(7, 2), "contiguous", 2, 1).unwrap().rows,
        [vec![0, 1, 2], vec![3, 4, 5, 6]]
    );
}

#[test]
fn two_clients_have_most_of_a_label() {
    let data = data(4000, 10);
    let counts = deal(&data, "two-clients(0.8)", 20, 1).unwrap().counts(&data);
    for y in 0..10 {
        let (first, second) = (counts[y][y], counts[y + 9][y]); // clients y + 1 and y + 10, from 1
        assert_eq!((first, second), (160, 160), "label {y}");
        let rest: Vec<usize> =
            (0..20).filter(|k| *k != y && *k != y + 9).map(|k| counts[k][y]).collect();
        assert_eq!(rest.iter().sum::<usize>(), 80);
        assert!(rest.iter().all(|n| *n == 4 || *n == 5), "{rest:?}");
    }
}

#[test]
fn a_dominant_label_has_its_share() {
    let data = data(4000, 10);
    let counts = deal(&data, "dominant", 20, 1).unwrap().counts(&data);
    for (client, of_client) in counts.iter().enumerate() {
        assert_eq!(of_client.iter().sum::<usize>(), 200);
        assert_eq!(of_client[client % 10], 80, "client {client}");
        let others = (0..10).filter(|k| *k != client % 10).map(|k| of_client[k]);
        assert!(others.clone().max().unwrap() < 40, "{of_client:?}");
    }
    let error = deal(&self::data(100, 10), "dominant(0.9)", 5, 1).unwrap_err();
    assert_eq!(error, PartitionError::Shortage { class: 0, found: 10, needed: 18 });
}

#[test]
fn a_small_concentration_skews_and_a_great_one_does_not() {
    let data = data(10_000, 2);
    let spread = |text: &str| {
        let counts = deal(&data, text, 10, 3).unwrap().counts(&data);
        let shares: Vec<f64> = counts.iter().map(|c| c[0] as f64 / (c[0] + c[1]) as f64).collect();
        shares.iter().map(|s| (s - 0.5).abs()).fold(0.0, f64::max)
    };
    assert!(spread("dirichlet(0.1)") > 0.4 && spread("dirichlet(100000)") < 0.05);
    // Each label has its own draw.
    let counts = deal(&data, "dirichlet(1)", 10, 3).unwrap().counts(&data);
    assert!(counts.iter().any(|c| c[0].abs_diff(c[1]) > 100));
}

#[test]
fn sizes_fall_by_the_power_law() {
    let sizes = |text: &str| -> Vec<usize> {
        deal(&data(10_000, 2), text, 10, 1).unwrap().rows.iter().map(Vec::len).collect()
    };
    let one = sizes("power-law(1)");
    let sum: f64 = (1..=10).map(|i| 1.0 / f64::from(i)).sum();
    for (i, n) in one.iter().enumerate() {
        assert!((*n as f64 - 1.0 - 9990.0 / (sum * (i + 1) as f64)).abs() < 1.5, "{one:?}");
    }
    assert!(sizes("power-law(0)").iter().all(|n| *n == 1000));
    assert_eq!(sizes("power-law(10)")[9], 1);
}

#[test]
fn groups_and_columns_are_clients() {
    let data = data(9, 3);
    let own = split(&data, &scheme("natural"), None, Seed::new(1)).unwrap();
    assert_eq!(
        (own.names, own.rows),
        (vec!["a".to_owned(), "b".into()], vec![vec![0, 1, 2, 3], vec![4, 5, 6, 7, 8]])
    );
    let column = deal(&data, "natural(site)", 3, 1).unwrap();
    assert_eq!(column.names, ["site = 0", "site = 1", "site = 2"]);
    assert_eq!(column.rows[1], [1, 4, 7]);
    assert_eq!(deal(&data, "natural", 3, 1), Err(PartitionError::Groups { groups: 2, clients: 3 }));
    assert!(
        deal(&data, "natural(sit)", 3, 1).unwrap_err().to_string().contains("did you mean `site`")
    );
    let empty = Groups {
        names: vec!["a".into(), "b".into(), "c".into()],
        rows: vec![0, 0, 0, 0, 2, 2, 2, 2, 2],
    };
    let with_empty = Dataset { groups: Some(empty), ..data.clone() };
    assert_eq!(deal(&with_empty, "natural", 3, 1), Err(PartitionError::Empty { client: 2 }));
    assert_eq!(
        deal(&Dataset { groups: None, ..data }, "natural", 3, 1),
        Err(PartitionError::NoGroups)
    );
}

#[test]
fn what_cannot_be_dealt_is_named() {
    for text in ALL {
        assert_eq!(
            deal(&data(5, 5), text, 6, 1),
            Err(PartitionError::Clients { rows: 5, clients: 6 }),
            "{text}"
        );
        assert_eq!(
            deal(&data(5, 5), text, 0, 1),
            Err(PartitionError::Clients { rows: 5, clients: 0 }),
            "{text}"
        );
    }
    assert_eq!(split(&data(5, 5), &Scheme::Iid, None, Seed::new(1)), Err(PartitionError::HowMany));
    let regression = Dataset { classes: None, ..data(9, 3) };
    assert_eq!(deal(&regression, "dirichlet(1)", 3, 1), Err(PartitionError::NoClasses));
    assert!(deal(&regression, "iid", 3, 1).is_ok());
}

#[test]
fn schemes_are_read_as_they_are_written() {
    for text in [
        "iid",
        "contiguous",
        "natural",
        "natural(x1)",
        "dirichlet",
        "dirichlet(0.5)",
        "two-clients(0.8)",
        "dominant(0.4)",
        "power-law(1.5)",
    ] {
        assert_eq!(scheme(text).to_string(), text);
    }
    assert_eq!(
        (scheme("two-clients"), scheme(" dominant ( 0.4 ) ")),
        (Scheme::TwoClients(0.8), Scheme::Dominant(0.4))
    );
    for (text, part) in [
        ("dirichelt(1)", "did you mean `dirichlet`"),
        ("dirichlet(0)", "from 0.001"),
        ("dirichlet(nan)", "from 0.001"),
        ("dirichlet(1", "from 0.001"),
        ("iid(3)", "no setting"),
        ("dominant(1.1)", "at most 1"),
        ("two-clients(-1)", "above 0"),
        ("power-law(11)", "0 to 10"),
        ("natural()", "name of a column"),
        ("", "there are iid"),
    ] {
        let error = text.parse::<Scheme>().unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn a_subset_is_uniform_and_in_order() {
    assert_eq!(subset(5, 5, Seed::new(1)), [0, 1, 2, 3, 4]);
    let mut hits = [0u32; 10];
    for seed in 0..10_000 {
        let rows = subset(10, 3, Seed::new(seed));
        assert!(rows.len() == 3 && rows.is_sorted());
        rows.iter().for_each(|row| hits[*row as usize] += 1);
    }
    for n in hits {
        // 1e-5 false alarms over ten cells
        assert!((f64::from(n) - 3000.0).abs() / 2100f64.sqrt() < 4.9, "{hits:?}");
    }
}
