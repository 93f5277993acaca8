use super::*;

fn messages(name: &str, text: &str) -> Vec<String> {
    let (catalogue, diagnostics) = Catalogue::parse(name, "index", text);
    assert_eq!(catalogue.is_none(), diagnostics.has_errors(), "{text}");
    diagnostics.iter().map(|one| one.message.clone()).collect()
}

fn entries(name: &str, text: &str) -> Vec<Entry> {
    let (catalogue, diagnostics) = Catalogue::parse(name, "index", text);
    let shown: Vec<String> = diagnostics.iter().map(|one| one.message.clone()).collect();
    catalogue.unwrap_or_else(|| panic!("{shown:?}")).entries
}

#[test]
fn an_index_of_the_own_form() {
    let text = "plugins:\n  - name: units\n    description: Converts units.\n    version: 1.2.0\n    source: ./units/\n  - { name: all, source: . }\n  - { name: far, source: 'oci://a.example/x@sha256:00' }\n";
    let all = entries(FILE, text);
    assert_eq!(all[0].description.as_deref(), Some("Converts units."));
    assert_eq!(all[0].version, Some(Version::new(1, 2, 0)));
    let sources: Vec<_> = all.into_iter().map(|entry| entry.source.unwrap()).collect();
    assert_eq!(
        sources,
        [
            Listed::Own(Some("units".to_owned())),
            Listed::Own(None),
            Listed::Pinned("oci://a.example/x@sha256:00".to_owned())
        ]
    );
    for (text, why) in [
        ("plugins: [{ name: Units, source: ./a }]", "is not a name: 1 to 64 lower-case letters"),
        ("plugins: [{ name: \"un\\u0456ts\", source: ./a }]", "is not a name: 1 to 64 lower-case letters"),
        ("plugins: [{ name: a, source: ./a }, { name: a, source: ./b }]", "the plugin `a` is there twice"),
        ("plugins: [{ name: a, source: ../a }]", "is neither `./FOLDER`"),
        ("plugins: [{ name: a, source: ./a/../../b }]", "is not a folder inside the catalogue"),
        ("plugins: [{ name: a, source: /etc }]", "is neither `./FOLDER`"),
        ("plugins: [{ name: a, source: 'ext::sh' }]", "is neither `./FOLDER`"),
        ("plugins: [{ name: a }]", "`plugins[0]` has no `source`"),
        ("plugins: [{ source: ./a }]", "`plugins[0]` has no `name`"),
        ("plugins: [{ name: a, source: ./a, run: x }]", "unknown key `plugins[0].run`"),
        ("plugins: [{ name: a, source: ./a, version: one }]", "is not a version such as `1.2.0`"),
        ("other: []", "a catalogue needs `plugins`"),
    ] {
        let all = messages(FILE, text);
        assert!(all.iter().any(|one| one.contains(why)), "{text}: {all:?}");
    }
}

#[test]
fn the_end_of_an_index() {
    let of = |expires: &str| {
        let (catalogue, _) = Catalogue::parse(FILE, "index", &format!("plugins: []\nexpires: {expires}\n"));
        catalogue.map(|catalogue| catalogue.expires.unwrap().seconds)
    };
    assert_eq!(of("2027-01-31"), Some(1_801_353_600));
    assert_eq!(of("2027-01-31T12:00:00Z"), Some(1_801_353_600 + 12 * 3600));
    assert_eq!(of("2027-01-31T12:00:00+12:00"), Some(1_801_353_600));
    for other in ["soon", "2027-02-30", "2027", "1950-01-01", "[]", "''", "2027-01-31T12:00"] {
        assert_eq!(of(other), None, "{other}");
    }
    let (none, _) = Catalogue::parse(FILE, "index", "plugins: []\n");
    assert_eq!(none.unwrap().expires, None);
}

#[test]
fn bounds() {
    let of = |count: usize| {
        let line = |number| format!("- {{ name: a{number}, source: ./a }}\n");
        format!("plugins:\n{}", (0..count).map(line).collect::<String>())
    };
    assert_eq!(messages(FILE, &of(MAX_ENTRIES)), Vec::<String>::new());
    assert_eq!(messages(FILE, &of(MAX_ENTRIES + 1)), ["an index has at most 2000 plugins"]);
    let json = |count: usize| format!("{{\"plugins\": [{}]}}", vec!["{}"; count].join(","));
    assert_eq!(messages(MARKETPLACE, &json(MAX_ENTRIES)), Vec::<String>::new());
    assert_eq!(messages(MARKETPLACE, &json(MAX_ENTRIES + 1)), ["an index has at most 2000 plugins"]);
    let long = format!("plugins: [] # {}", "x".repeat(MAX_BYTES));
    assert_eq!(messages(FILE, &long), ["an index has at most 2097152 bytes"]);
    assert_eq!(messages(FILE, "plugins: []"), Vec::<String>::new());
    assert!(messages(MARKETPLACE, &"[".repeat(100_000))[0].starts_with("it is not JSON: "));
}

#[test]
fn a_marketplace() {
    let commit = "0f".repeat(20);
    let git = |url: &str, reference: Option<&str>, folder: Option<&str>| {
        let owned = |text: Option<&str>| text.map(str::to_owned);
        Ok(Listed::Git { url: url.to_owned(), reference: owned(reference), folder: owned(folder) })
    };
    let own = |folder: &str| Ok(Listed::Own(Some(folder.to_owned())));
    let outside = |source: &str| Err(format!("has the source `{source}`, which is not a folder inside the catalogue"));
    for (source, expected) in [
        ("\"./plugins/a\"".to_owned(), own("plugins/a")),
        ("\"./\"".to_owned(), Ok(Listed::Own(None))),
        ("\"../a\"".to_owned(), outside("../a")),
        ("\"./a/../../b\"".to_owned(), outside("./a/../../b")),
        ("\"/etc\"".to_owned(), outside("/etc")),
        (
            format!("{{\"source\":\"github\",\"repo\":\"acme/units\",\"ref\":\"v1\",\"sha\":\"{commit}\"}}"),
            git("https://github.com/acme/units", Some(&commit), None),
        ),
        (
            "{\"source\":\"url\",\"url\":\"https://a.example/x.git\",\"ref\":\"v1\"}".to_owned(),
            git("https://a.example/x.git", Some("v1"), None),
        ),
        (
            "{\"source\":\"git-subdir\",\"url\":\"acme/units\",\"path\":\"./tools/a\"}".to_owned(),
            git("https://github.com/acme/units", None, Some("tools/a")),
        ),
        (
            "{\"source\":\"git-subdir\",\"url\":\"https://a.example/x\",\"path\":\"../a\"}".to_owned(),
            Err("has a `path` that is not a folder inside the repository".to_owned()),
        ),
        (
            "{\"source\":\"github\",\"repo\":\"acme/units\",\"sha\":\"v1\"}".to_owned(),
            Err("has a `sha` that is not the whole name of a commit".to_owned()),
        ),
        (
            "{\"source\":\"npm\",\"package\":\"x\"}".to_owned(),
            Err("has a source of the kind `npm`, which is not fetched".to_owned()),
        ),
        ("7".to_owned(), Err("has no `source`".to_owned())),
    ] {
        let text =
            format!("{{\"name\":\"m\",\"owner\":{{}},\"new\":1,\"plugins\":[{{\"name\":\"a\",\"source\":{source}}}]}}");
        let all = entries(MARKETPLACE, &text);
        assert_eq!((all.len(), &all[0].source), (1, &expected), "{source}");
    }
    let based = "{\"metadata\":{\"pluginRoot\":\"./p\"},\"plugins\":[{\"name\":\"a\",\"source\":\"x\"},{\"name\":\"b\",\"source\":\"./x\"},{\"name\":\"c\",\"source\":\"../x\"}]}";
    let sources: Vec<_> = entries(MARKETPLACE, based).into_iter().map(|entry| entry.source).collect();
    assert_eq!(sources, [own("p/x"), own("x"), outside("../x")]);
    let picked = |path: &str| {
        let text =
            format!("{{\"plugins\":[{{\"name\":\"a\",\"source\":\"./\",\"strict\":false,\"skills\":[\"{path}\"]}}]}}");
        entries(MARKETPLACE, &text).remove(0)
    };
    let listing = "{\"skills\":[\"./x\"],\"strict\":false}";
    assert_eq!(picked("./x").listing, Some(Listing::parse(listing).unwrap()));
    let outside = "has `skills` with `../x`, which is not a path `./...` inside the plugin";
    assert_eq!((picked("../x").source, picked("../x").listing), (Err(outside.to_owned()), None));
    let (named, _) = Catalogue::parse(
        MARKETPLACE,
        "index",
        "{\"plugins\":[{\"name\":\"Units\",\"source\":\"./a\"},{\"name\":\"units\",\"source\":\"./b\"}]}",
    );
    let named = named.unwrap();
    assert_eq!((named.entries.len(), named.left_out.len()), (1, 1));
    assert!(named.left_out[0].starts_with("`Units` is not a name: "));
    let twice = "{\"plugins\":[{\"name\":\"a\",\"source\":\"./a\"},{\"name\":\"a\",\"source\":\"./b\"}]}";
    assert_eq!(messages(MARKETPLACE, twice), ["the plugin `a` is there twice"]);
    assert_eq!(messages(MARKETPLACE, "[]"), ["it has no list `plugins`"]);
}
