use super::*;

/// A tree on one line, with the place of each key and value.
fn show(node: &Node) -> String {
    let LineColumn { line, column } = node.span.start;
    let what = match &node.value {
        Value::Null => "null".to_owned(),
        Value::Bool(b) => b.to_string(),
        Value::Int(n) | Value::Float(n) => n.clone(),
        Value::Str(s) => format!("{s:?}"),
        Value::Seq(items) => format!("[{}]", items.iter().map(show).collect::<Vec<_>>().join(", ")),
        Value::Map(entries) => {
            let entry = |(k, v): &(Key, Node)| {
                format!("{}@{}:{}+{} {}", k.text, k.span.start.line, k.span.start.column, k.span.length(), show(v))
            };
            format!("{{{}}}", entries.iter().map(entry).collect::<Vec<_>>().join(", "))
        }
    };
    format!("{what}@{line}:{column}+{}", node.span.length())
}

fn tree(text: &str) -> String {
    let (tree, errors) = parse(text, 2);
    assert_eq!(errors, [], "{text:?}");
    show(&tree.unwrap())
}

fn wrong(text: &str) -> String {
    let show = |e: &Error| format!("{}:{}+{} {}", e.span.start.line, e.span.start.column, e.span.length(), e.message);
    parse(text, 2).1.iter().map(show).collect::<Vec<_>>().join("\n")
}

#[test]
fn trees() {
    assert_eq!(tree(""), "null@2:1+1");
    assert_eq!(tree("# only a comment\n"), "null@2:1+1");
    insta::assert_snapshot!(tree("a: 1\nb: [x, 'y', \"z\"]\n"), @r#"{a@2:1+1 1@2:4+1, b@3:1+1 ["x"@3:5+1, "y"@3:8+3, "z"@3:13+3]@3:4+13}@2:1+1"#);
    insta::assert_snapshot!(tree("a:\n  b: {c: true, d: ~}\n  e:\n  - 1.5\n  - é: x y\n"), @r#"{a@2:1+1 {b@3:3+1 {c@3:7+1 true@3:10+4, d@3:16+1 null@3:19+1}@3:6+15, e@4:3+1 [1.5@5:5+3, {é@6:5+1 "x y"@6:8+3}@6:5+1]@5:5+1}@3:3+1}@2:1+1"#);
    insta::assert_snapshot!(tree("s: |\n  one\n\n  two\nt: 18446744073709551617\n"), @r#"{s@2:1+1 "one\n\ntwo\n"@3:3+1, t@6:1+1 18446744073709551617@6:4+20}@2:1+1"#);
}

#[test]
fn what_is_not_followed_is_named() {
    insta::assert_snapshot!(wrong("a: &x 1\nb: *x\n"), @r#"
    2:4+4 anchors (`&name`) are not supported
    3:4+2 aliases (`*name`) are not supported
    "#);
    insta::assert_snapshot!(wrong("a: [*x]\n"), @"2:5+1 aliases (`*name`) are not supported");
    insta::assert_snapshot!(wrong("a: !!str 1\nb: !x [1]\n"), @r#"
    2:4+7 tags (`!name`) are not supported
    3:4+4 tags (`!name`) are not supported
    "#);
    insta::assert_snapshot!(wrong("a: 1\nb: 2\na: 3\n{}: 4\n"), @r#"
    4:1+1 `a` is given twice, first on line 2
    5:1+1 a key must be text, not a list or a mapping
    "#);
    insta::assert_snapshot!(wrong("{a: 1, a: 2, a: 3}\n"), @r#"
    2:8+1 `a` is given twice, first on line 2
    2:14+1 `a` is given twice, first on line 2
    "#);
    insta::assert_snapshot!(wrong("a: 1\n--- b\n"), @"3:1+1 a second document begins here");
    insta::assert_snapshot!(wrong("? [a]\n: 1\n"), @"2:3+1 a key must be text, not a list or a mapping");
    insta::assert_snapshot!(wrong("a: [1,\nb: 2\n"), @"3:1+1 invalid indentation in flow construct");
    for (text, line) in [("\ta: 1\nb: 2\n", 2), ("a: x\n\tb: y\n", 3), ("a:\n\t- 1\n", 3), ("a:\n  - 1\n\t- 2\n", 4)] {
        assert_eq!(wrong(text), format!("{line}:1+1 a tab cannot indent a line: use spaces"), "{text:?}");
    }
    // Not what is wrong here.
    insta::assert_snapshot!(wrong("a: 1\n\t\nb: 'x\n"), @"4:4+1 while scanning a quoted scalar, found unexpected end of stream");
    insta::assert_snapshot!(wrong("a: x\ty\nb: 'x\n"), @"3:4+1 while scanning a quoted scalar, found unexpected end of stream");
    insta::assert_snapshot!(wrong("a: 'x\n"), @"2:4+1 while scanning a quoted scalar, found unexpected end of stream");
    insta::assert_snapshot!(wrong("a: b: c\n"), @"2:5+1 mapping values are not allowed in this context");
    insta::assert_snapshot!(wrong("a: 1\u{0}\nb: 2\n"), @"2:5+1 the character U+0000 is not allowed");
    insta::assert_snapshot!(wrong("a: 1\rb: 2\n"), @"2:5+1 the character U+000D is not allowed");
    insta::assert_snapshot!(wrong("ok: 1\na: é\u{1b}[31m\n"), @"3:5+1 the character U+001B is not allowed");
}

/// In each place where there is a mapping, and with each value, there is one error for it; and the rest is read.
#[test]
fn merge_keys_are_refused_in_so_many_words() {
    insta::assert_snapshot!(wrong("<<: {a: 1}\nb: 2\n"), @"2:1+2 merge keys (`<<`) are not supported: nothing would be merged");
    insta::assert_snapshot!(wrong("a: &x 1\nb:\n  <<: *x\n  c: 3\n"), @r"
    2:4+4 anchors (`&name`) are not supported
    4:3+2 merge keys (`<<`) are not supported: nothing would be merged
    ");
    insta::assert_snapshot!(wrong("- {x: 1, <<: [{y: 2}, {z: 3}]}\n"), @"2:10+2 merge keys (`<<`) are not supported: nothing would be merged");
    insta::assert_snapshot!(wrong("? <<\n: a\n<< : b\n"), @r"
    2:3+2 merge keys (`<<`) are not supported: nothing would be merged
    4:1+2 merge keys (`<<`) are not supported: nothing would be merged
    ");
    insta::assert_snapshot!(wrong("a: &x 1\n<<: [*x]\n"), @r"
    2:4+4 anchors (`&name`) are not supported
    3:1+2 merge keys (`<<`) are not supported: nothing would be merged
    3:6+2 aliases (`*name`) are not supported
    ");
    let (rest, errors) = parse("a: 1\n<<: {a: 2, b: 3}\nc: 4\n", 2);
    insta::assert_snapshot!(show(&rest.unwrap()), @"{a@2:1+1 1@2:4+1, c@4:1+1 4@4:4+1}@2:1+1");
    insta::assert_snapshot!(errors[0].hint.unwrap(), @"write the keys out here, or quote it if a key is really called `<<`");
    insta::assert_snapshot!(tree("'<<': 1\n\"<<<\": <<\n<<a: <<\n"), @r#"{<<@2:1+4 1@2:7+1, <<<@3:1+5 "<<"@3:8+2, <<a@4:1+3 "<<"@4:6+2}@2:1+1"#);
}

#[test]
fn a_key_given_twice_keeps_its_first_value() {
    let (tree, errors) = parse("a: 1\na: 2\nb: 3\n", 2);
    assert_eq!(errors.len(), 1);
    insta::assert_snapshot!(show(&tree.unwrap()), @"{a@2:1+1 1@2:4+1, b@4:1+1 3@4:4+1}@2:1+1");
}

#[test]
fn bounds() {
    let deep = |n: usize| format!("{}{}", "[".repeat(n), "]".repeat(n));
    assert_eq!(parse(&deep(MAX_DEPTH), 1).1, []);
    insta::assert_snapshot!(wrong(&deep(MAX_DEPTH + 1)), @"2:33+1 nested deeper than 32 levels");
    insta::assert_snapshot!(wrong(&"- ".repeat(200_000)), @"2:65+1 nested deeper than 32 levels");
    insta::assert_snapshot!(wrong(&"[".repeat(MAX_BYTES)), @"2:256+1 recursion limit exceeded");
    insta::assert_snapshot!(wrong(&"a".repeat(MAX_BYTES + 1)), @"2:1+1 longer than 1048576 bytes");
    let many = format!("[{}]", "1,".repeat(MAX_NODES - 1));
    assert_eq!(parse(&many, 1).1, []);
    insta::assert_snapshot!(wrong(&format!("[{}]", "1,".repeat(MAX_NODES))), @"2:200000+1 more than 100000 values");
}
