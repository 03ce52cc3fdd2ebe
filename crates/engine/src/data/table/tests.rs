use super::*;

fn schema() -> Schema {
    Schema::new(vec![
        ColumnSpec::number("age").within(0.0, 120.0),
        ColumnSpec::category("town"),
        ColumnSpec::codes("pain", &[("4", "none"), ("1", "typical")]),
        ColumnSpec::binary("ill"),
        ColumnSpec::number("chol").missing_if(0.0),
    ])
}

fn refusal(text: &str) -> String {
    Table::parse(text, "a.csv", &schema()).unwrap_err().to_string()
}

#[test]
fn columns_are_found_by_name_and_codes_by_value() {
    let text = "chol,extra,ill,pain,town,age\n0.0,x,1.0,4.0,Bonn,30\n210,y,0,1, Ulm ,?\n\
        ,z,NA,1.0,Bonn,31.5\n";
    let table = Table::parse(text, "a.csv", &schema()).unwrap();
    assert_eq!(table.rows(), 3);
    assert_eq!(table.column("age").unwrap().1, &Column::Number(vec![Some(30.0), None, Some(31.5)]));
    assert_eq!(table.column("chol").unwrap().1, &Column::Number(vec![None, Some(210.0), None]));
    let town = Category {
        levels: vec!["Bonn".into(), "Ulm".into()],
        cells: vec![Some(0), Some(1), Some(0)],
    };
    assert_eq!(table.column("town").unwrap().1, &Column::Category(town));
    let pain = Category {
        levels: vec!["none".into(), "typical".into()],
        cells: vec![Some(0), Some(1), Some(1)],
    };
    assert_eq!(table.column("pain").unwrap().1, &Column::Category(pain));
    let (_, ill) = table.column("ill").unwrap();
    assert_eq!((ill.missing(), ill.is_missing(2), ill.is_missing(0)), (1, true, false));
    assert_eq!(table.place(2), At::Line(4));
    assert!(table.column("extra").is_none());
}

#[test]
fn another_separator_and_no_header() {
    let schema = Schema::new(vec![ColumnSpec::number("a"), ColumnSpec::category("b")])
        .without_header()
        .separated_by(b';');
    let table = Table::parse("1;x\n\n2;y\n", "b.txt", &schema).unwrap();
    assert_eq!(table.column("a").unwrap().1, &Column::Number(vec![Some(1.0), Some(2.0)]));
    assert_eq!(table.place(1), At::Line(3));
    let windows =
        Table::parse("1;x\r\n2;y\r\n\r\n3;\"two\nlines\"\r\n4;y\r\n", "b.txt", &schema).unwrap();
    assert_eq!(
        (0..4).map(|row| windows.place(row)).collect::<Vec<_>>(),
        [1, 2, 4, 6].map(At::Line)
    );
    let wrong = Table::parse("1,x\n", "b.txt", &schema).unwrap_err().to_string();
    assert_eq!(
        wrong,
        "b.txt, line 1: 1 fields where 2 are expected: check the separator, decimal commas and the \
         line's end"
    );
}

#[test]
fn a_wrong_field_is_named_with_its_line_and_column() {
    let header = "age,town,pain,ill,chol\n30,Bonn,4,1,200\n";
    let ending = "; write a missing value as ? or an empty field or NA";
    assert_eq!(
        refusal(&format!("{header}x1,Bonn,4,1,9\n")),
        format!("a.csv, line 3, column `age`: `x1` is not a finite number{ending}")
    );
    assert_eq!(
        refusal(&format!("{header}1e400,Bonn,4,1,9\n")),
        format!("a.csv, line 3, column `age`: `1e400` is not a finite number{ending}")
    );
    assert_eq!(
        refusal(&format!("{header}130,Bonn,4,1,9\n")),
        format!("a.csv, line 3, column `age`: `130` is not within 0 to 120{ending}")
    );
    let codes = "one of 4 (none), 1 (typical)";
    assert_eq!(
        refusal(&format!("{header}30,Bonn,3,1,9\n")),
        format!("a.csv, line 3, column `pain`: `3` is not {codes}{ending}")
    );
    assert_eq!(
        refusal(&format!("{header}30,Bonn,4,2,9\n")),
        format!("a.csv, line 3, column `ill`: `2` is not 0 or 1{ending}")
    );
    assert!(
        refusal(&format!("{header}30,Bonn,4,1\n"))
            .starts_with("a.csv, line 3: 4 fields where 5 are expected")
    );
}

#[test]
fn a_wrong_header_is_refused() {
    let hint = "did you mean `agee`? the header has agee, town, pain, ill, chol";
    assert_eq!(
        refusal("agee,town,pain,ill,chol\n"),
        format!("a.csv, line 1: there is no column `age`: {hint}")
    );
    let twice = "a.csv, line 1: the column `ill` stands there twice: rename one of the two";
    assert_eq!(refusal("age,town,pain,ill,chol,ill\n"), twice);
}

#[test]
fn an_empty_file_and_bytes_that_are_no_text_are_refused() {
    assert!(refusal("age,town,pain,ill,chol\n").starts_with("a.csv: there are no rows"));
    assert!(refusal("").starts_with("a.csv: there are no rows"));
    let bytes: &[u8] = b"age,town,pain,ill,chol\n30,Bo\xffnn,4,1,200\n";
    let error = Table::read(bytes, "a.csv", &schema()).unwrap_err().to_string();
    assert!(error.starts_with("a.csv, line 2: cannot be read"), "{error}");
}

#[test]
fn a_split_keeps_every_row_in_order() {
    let schema =
        Schema::new(vec![ColumnSpec::number("a"), ColumnSpec::category("b")]).without_header();
    let table = Table::parse("1,x\n2,y\n3,x\n4,z\n5,z\n", "b.txt", &schema).unwrap();
    let parts = table.split(3).unwrap();
    let values = |part: &Table| part.column("a").unwrap().1.clone();
    assert_eq!(parts.iter().map(Table::rows).collect::<Vec<_>>(), [1, 2, 2]);
    assert_eq!(values(&parts[1]), Column::Number(vec![Some(2.0), Some(3.0)]));
    assert_eq!(parts[2].place(1), At::Line(5));
    assert_eq!(
        table.split(6).unwrap_err().to_string(),
        "b.txt: 5 rows cannot be split into 6 sites: ask for 1 to 5"
    );
    assert!(table.split(0).is_err());
}
