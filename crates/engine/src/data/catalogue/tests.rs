use super::*;

#[test]
fn built_in_data_needs_no_folder_and_is_what_it_should_be() {
    let built_in: Vec<&Entry> = ENTRIES.iter().filter(|entry| entry.built_in).collect();
    assert_eq!(built_in.len(), builtin::names().len());
    for entry in built_in {
        let checked = check(entry.name, Some(Path::new("no such folder"))).unwrap();
        assert_eq!(
            (checked[0].rows, checked[0].counts.as_slice()),
            (entry.train.rows, entry.train.counts)
        );
    }
    let heart = load("heart-disease", None).unwrap();
    let groups = heart.groups.unwrap();
    let ill = |k: u32| {
        heart.labels.iter().zip(&groups.rows).filter(|(y, g)| **y == 1.0 && **g == k).count()
    };
    assert_eq!([0, 1, 2, 3].map(ill), [139, 106, 115, 149]);
}

#[test]
fn rows_and_counts_of_the_catalogue_agree() {
    for entry in ENTRIES {
        for part in std::iter::once(&entry.train).chain(&entry.test) {
            assert_eq!(part.counts.len(), entry.classes.len(), "{}", entry.name);
            assert!(
                entry.classes.is_empty() || part.counts.iter().sum::<usize>() == part.rows,
                "{}",
                entry.name
            );
            assert!(part.files.iter().all(|(_, sha)| sha.len() == 64));
        }
    }
}

#[test]
fn what_cannot_be_had_is_named() {
    let says =
        |error: CatalogueError, part: &str| assert!(error.to_string().contains(part), "{error}");
    says(load("mnits", None).unwrap_err(), "no data set `mnits`: there are heart-disease");
    says(load("minist", None).unwrap_err(), "no data set `minist`: did you mean `mnist`?");
    says(load_test("mushrooms", None).unwrap_err(), "no test rows");
    says(load("a9a", Some(Path::new("no such folder"))).unwrap_err(), "cannot be read");
}

#[test]
fn another_version_of_a_file_is_named() {
    let folder = std::env::temp_dir().join(format!("consilience-catalogue-{}", std::process::id()));
    std::fs::create_dir_all(folder.join("diabetes")).unwrap();
    std::fs::write(folder.join("diabetes/pima.csv"), "glucose,diabetes\n148,1\n85,0\n").unwrap();
    let error = check("pima", Some(&folder)).unwrap_err();
    assert!(matches!(error, CatalogueError::Checksum { .. }), "{error}");
    let data = load("pima", Some(&folder)).unwrap();
    assert_eq!((data.class_counts(), data.columns), (vec![1, 1], vec!["glucose".to_owned()]));
    std::fs::write(folder.join("diabetes/pima.csv"), "glucose,diabetes\n148,1\n85,2\n").unwrap();
    assert!(
        load("pima", Some(&folder))
            .unwrap_err()
            .to_string()
            .contains("line 3: the label 2 is out of range")
    );
    std::fs::remove_dir_all(&folder).unwrap();
}
