use crate::env::Variables;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use harness_artifact::policy::ProjectPolicy;
use harness_policy::secret::Holder;

const VALUE: &str = "s3cr3t/v\"lue+01";

fn vault(values: &[(&str, &str)]) -> Vault {
    let names: Vec<String> = values.iter().map(|(name, _)| format!("{name}: {{ env: {name} }}")).collect();
    let text = format!("---\nsandbox: {{ secrets: {{ {} }} }}\n---\n", names.join(", "));
    let (policy, diagnostics) = ProjectPolicy::parse(".harness/harness.md", &text);
    let secrets = policy.unwrap_or_else(|| panic!("{diagnostics:?}")).secrets;
    Vault::of(secrets.into_iter().zip(values).map(|(secret, (_, value))| (secret.value, Given::text(value))).collect())
}

fn redacted(vault: &Vault, text: &str) -> String {
    let mut text = text.to_owned();
    vault.redact(&mut text);
    text
}

#[test]
fn every_form_of_a_value_is_found() {
    let vault = vault(&[("A", VALUE)]);
    for (form, text) in [
        ("as it is", VALUE.to_owned()),
        ("JSON", json!({"token": VALUE}).to_string()),
        ("a URL's", "?t=s3cr3t%2Fv%22lue%2B01&x".to_owned()),
        ("in lower case", "?t=s3cr3t%2fv%22lue%2b01&x".to_owned()),
        ("hexadecimal", format!("{{{}}}", forms::hex(VALUE.as_bytes()))),
        ("upper", forms::hex(VALUE.as_bytes()).to_uppercase()),
        ("Basic", format!("Basic {}", forms::base64(format!("user:{VALUE}").as_bytes()))),
        ("base64 with more after it", forms::base64(format!("{VALUE}, and more").as_bytes())),
    ] {
        assert_eq!(vault.find(&text), Some("A"), "{form}: {text}");
        let clean = redacted(&vault, &text);
        assert!(clean.contains("[redacted:A]") && vault.find(&clean).is_none(), "{form}: {clean}");
    }
    // Less than all of it is not found: else it could be guessed character by character.
    for part in [&VALUE[1..], &VALUE[..VALUE.len() - 1], "s3cr3t", ""] {
        assert_eq!(redacted(&vault, part), part);
    }
}

#[test]
fn values_that_overlap_leave_nothing_of_each_other() {
    let vault = vault(&[("A", "abcdefgh"), ("B", "efghijkl"), ("C", "abcdefghijklmnop")]);
    assert_eq!(redacted(&vault, "<abcdefghijkl>"), "<[redacted:A]>");
    assert_eq!(redacted(&vault, "<abcdefghijklmnop>"), "<[redacted:A]>");
    assert_eq!(redacted(&vault, "<efghijkl efghijkl>"), "<[redacted:B] [redacted:B]>");
}

#[test]
fn in_json_keys_and_numbers_too() {
    let vault = vault(&[("A", VALUE), ("N", "12345678")]);
    let mut value = json!({VALUE: [VALUE, {"x": format!("a{VALUE}b")}, 12345678, 1234567, null, true]});
    vault.redact_json(&mut value);
    let wanted =
        json!({"[redacted:A]": ["[redacted:A]", {"x": "a[redacted:A]b"}, "[redacted:N]", 1234567, null, true]});
    assert_eq!(value, wanted);
}

/// As the libraries of the languages write it, each with its own care.
#[test]
fn what_libraries_write_is_found() {
    const ODD: &str = "p<&'\"+`=>~*!/\u{fc}\u{1f511}\u{2028}\u{7f}\u{1f}\n\\";
    let vault = vault(&[("A", ODD)]);
    for (library, text) in [
        ("Go", r#"{"t":"p\u003c\u0026'\"+`=\u003e~*!/ü🔑\u2028DEL\u001f\n\\"}"#),
        ("Python", r#"{"t": "p<&'\"+`=>~*!/\u00fc\ud83d\udd11\u2028\u007f\u001f\n\\"}"#),
        ("PHP", r#"{"t":"p<&'\"+`=>~*!\/\u00fc\ud83d\udd11\u2028\u007f\u001f\n\\"}"#),
        ("Gson", r#"{"t":"p\u003c\u0026\u0027\"+`\u003d\u003e~*!/ü🔑\u2028DEL\u001f\n\\"}"#),
        (".NET", r#"{"t":"p\u003C\u0026\u0027\u0022\u002B\u0060=\u003E~*!/\u00FC\uD83D\uDD11\u2028\u007F\u001F\n\\"}"#),
        ("Jackson", r#"{"t":"p<&'\"+`=>~*!/\u00FC\uD83D\uDD11\u2028\u007F\u001F\n\\"}"#),
        ("encodeURI", "?t=p%3C&'%22+%60=%3E~*!/%C3%BC%F0%9F%94%91%E2%80%A8%7F%1F%0A%5C"),
        ("URLSearchParams", "?t=p%3C%26%27%22%2B%60%3D%3E%7E*%21%2F%C3%BC%F0%9F%94%91%E2%80%A8%7F%1F%0A%5C"),
        ("urlencode", "?t=p%3C%26%27%22%2B%60%3D%3E%7E%2A%21%2F%C3%BC%F0%9F%94%91%E2%80%A8%7F%1F%0A%5C"),
        ("html.escape", "<b>p&lt;&amp;&#x27;&quot;+`=&gt;~*!/ü🔑\u{2028}\u{7f}\u{1f}\n\\</b>"),
        ("html/template", "<b>p&lt;&amp;&#39;&#34;+`=&gt;~*!/ü🔑\u{2028}\u{7f}\u{1f}\n\\</b>"),
        ("XML", "<b>p&lt;&amp;&apos;&quot;+`=&gt;~*!/ü🔑\u{2028}\u{7f}\u{1f}\n\\</b>"),
    ] {
        let text = text.replace("DEL", "\u{7f}");
        let (start, end) = (text.find('p').unwrap(), text.rfind(|end| matches!(end, '\\' | 'C' | '5')).unwrap());
        let wanted = format!("{}[redacted:A]{}", &text[..start], &text[end + 1..]);
        assert_eq!(redacted(&vault, &text), wanted, "{library}");
    }
}

/// What is cut off is checked, so that nothing of a value is left before the cut, wherever it falls.
#[test]
fn a_cut_through_a_value() {
    let vault = vault(&[("A", VALUE)]);
    let text = format!("0123456789{VALUE}abcdef");
    for cap in 0..=text.len() {
        let mut cut = text.clone();
        vault.redact_within(&mut cut, cap);
        let wanted = match cap {
            0..=10 => text[..cap].to_owned(),
            _ if cap <= 10 + VALUE.len() => "0123456789[redacted:A]".to_owned(),
            _ => format!("0123456789[redacted:A]{}", &text[10 + VALUE.len()..cap]),
        };
        assert_eq!(cut, wanted, "{cap}");
    }
}

/// Letter by letter, as a model's answer may come: no part of a value is shown before all of it is there.
#[test]
fn of_a_text_that_is_still_coming_no_beginning_of_a_value_is_shown() {
    let vault = vault(&[("A", VALUE)]);
    let (mut held, mut shown) = (String::new(), Vec::new());
    for letter in format!("a{VALUE}b{}!", &VALUE[..4]).chars() {
        held.push(letter);
        shown.push(vault.take_shown(&mut held));
    }
    shown.retain(|shown| !shown.is_empty());
    assert_eq!((shown.join("|"), held.as_str()), (format!("a|[redacted:A]|b|{}!", &VALUE[..4]), ""));
}

#[test]
fn values() {
    let one = |text: &str| format!("{:?}", Given::text(text));
    assert_eq!(one("12345678"), "a value");
    // One line's end is not part of it.
    assert_eq!(vault(&[("A", "12345678\r\n")]).find("12345678"), Some("A"));
    assert_eq!(one("1234567\n"), "it has 7 bytes, and a secret has at least 8");
    assert_eq!(one("\n"), "it is empty");
    assert_eq!(one("12345678\0"), "there is a NUL in it");
    assert_eq!(one(&"x".repeat(MAX_VALUE)), "a value");
    assert_eq!(one(&"x".repeat(MAX_VALUE + 1)), "it has over 16384 bytes");
}

/// The characters that hold a part of a value and a part of what is beside it go with it.
#[test]
fn nothing_of_a_value_is_left_in_base64() {
    let text = forms::base64(format!("a{VALUE}b").as_bytes());
    assert_eq!(redacted(&vault(&[("A", VALUE)]), &text), "Y[redacted:A]I=");
}

/// What a script prints of secrets does not grow with their names.
#[test]
fn a_note_has_so_many_bytes() {
    let name = "N".repeat(100);
    assert_eq!(redacted(&vault(&[(&name, VALUE)]), VALUE), format!("[redacted:{}]", &name[..32]));
}

#[test]
fn no_debug_text_holds_a_value() {
    let vault = vault(&[("A", VALUE)]);
    let told = format!("{vault:?}");
    assert!(told.contains("\"A\"") && !told.contains(&VALUE[..6]), "{told}");
}

/// The handles of a call, and what it may use: `A` and `B`, of which `B` has no value.
fn handles() -> (Handles, Grant) {
    let text = "---\nsandbox:\n  secrets:\n    A: { env: A, hosts: [\"127.0.0.1:80\"], exec: [tool] }\n    B: { env: B, hosts: [\"127.0.0.1:80\"] }\n---\n";
    let policy = ProjectPolicy::parse(".harness/harness.md", text).0.unwrap();
    let grant = policy.grant_for("tools/it", None);
    let values = [Given::text(VALUE), Given::text("")];
    let secrets = policy.secrets.into_iter().zip(values).map(|(secret, value)| (secret.value, value));
    (Handles::new(Arc::new(Vault::of(secrets.collect()))), grant)
}

#[test]
fn a_handle_is_one_of_its_call() {
    let ((mut one, grant), (mut other, _)) = (handles(), handles());
    let handle = one.handle(&grant, "A").unwrap();
    assert_eq!(one.handle(&grant, "A"), Ok(handle.clone()));
    assert_ne!(other.handle(&grant, "A"), Ok(handle.clone()));
    assert!(handle.starts_with("<secret:A:") && handle.ends_with('>') && handle.len() == 43, "{handle}");
    assert!(one.handle(&grant, "C").is_err());
    assert!(one.handle(&Grant::new(Vec::new()), "A").is_err());

    let header = |value: String| vec![("authorization".to_owned(), value)];
    assert!(one.lend_to_request("u", &header(format!("Bearer {handle}")), None).is_ok());
    let why = other.lend_to_request("u", &header(format!("Bearer {handle}")), None).unwrap_err().reason;
    assert_eq!(why, "a handle is valid only in the call that created it: call `secret` in this script");
    // So does one that was made up; what only looks a little like one is a text.
    let made_up = format!("<secret:A:{}>", "0".repeat(32));
    assert_eq!(one.lend_to_request("u", &header(made_up), None).unwrap_err().reason, why);
    for text in ["<secret:A:0>", "<secret:A>", "<secret:", "<secret:A:zz000000000000000000000000000000>"] {
        assert!(one.lend_to_request("u", &header(text.to_owned()), None).is_ok(), "{text}");
    }
}

#[test]
fn a_handle_has_two_places_and_no_others() {
    let (mut handles, grant) = handles();
    let handle = handles.handle(&grant, "A").unwrap();
    let text = format!("x{handle}");
    let wrong = |refused: Option<Refusal>| refused.unwrap().reason;
    let goes = "it goes into the value of a header, or into a variable of a command";
    let asked = |url: &str, name: &str, body: &str| {
        handles.lend_to_request(url, &[(name.to_owned(), String::new())], Some(body)).err()
    };
    assert_eq!(asked("u", "x", "b"), None);
    assert_eq!(wrong(asked(&text, "x", "b")), format!("the secret `A` cannot go into a URL: {goes}"));
    assert_eq!(wrong(asked("u", &text, "b")), format!("the secret `A` cannot go into the name of a header: {goes}"));
    assert_eq!(wrong(asked("u", "x", &text)), format!("the secret `A` cannot go into the body of a request: {goes}"));

    let ran = |program: &str, arg: &str, dir: &str, stdin: &str, variable: &str| {
        let mut variables = [(variable.to_owned(), String::new())];
        handles.lend_to_command(program, &[arg.to_owned()], dir, Some(stdin), &mut variables).err()
    };
    assert_eq!(ran("tool", "a", ".", "", "X"), None);
    for (refused, place) in [
        (ran(&text, "a", ".", "", "X"), "the name of a program"),
        (ran("tool", &text, ".", "", "X"), "an argument of a command"),
        (ran("tool", "a", &text, "", "X"), "the folder of a command"),
        (ran("tool", "a", ".", &text, "X"), "the standard input of a command"),
        (ran("tool", "a", ".", "", &text), "the name of a variable"),
    ] {
        assert_eq!(wrong(refused), format!("the secret `A` cannot go into {place}: {goes}"));
    }
}

#[test]
fn a_command_gets_what_is_for_it() {
    let (mut handles, grant) = handles();
    let handle = handles.handle(&grant, "A").unwrap();
    let mut given = [("T".to_owned(), format!("a {handle} b {handle}")), ("U".to_owned(), "u".to_owned())];
    handles.lend_to_command("tool", &[], ".", None, &mut given).unwrap().fill().unwrap();
    assert_eq!(given, [("T".to_owned(), format!("a {VALUE} b {VALUE}")), ("U".to_owned(), "u".to_owned())]);
    let mut given = [("T".to_owned(), handle)];
    let refusal = handles.lend_to_command("other", &[], ".", None, &mut given).unwrap_err();
    assert_eq!(refusal.reason, "the secret `A` is not for the command `other`");
    assert_eq!(refusal.hint, "add `{ argv: [other] }` to `sandbox.secrets.A.exec` in `.harness/harness.md:4:49`");
}

#[test]
fn what_has_no_value_is_an_error_of_who_uses_it() {
    let (mut handles, grant) = handles();
    let handle = handles.handle(&grant, "B").unwrap();
    let headers = [("x-key".to_owned(), handle.clone())];
    let loan = handles.lend_to_request("u", &headers, None).unwrap();
    let mut map = reqwest::header::HeaderMap::new();
    map.insert("x-key", handle.parse().unwrap());
    let refusal = loan.fill(&mut map).unwrap_err();
    assert_eq!(refusal.reason, "the secret `B` has no value: it is empty");
    assert_eq!(handles.vault().missing().collect::<Vec<_>>(), [("B", "it is empty")]);
}

#[test]
fn values_are_read_from_variables_and_files() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("token"), "from-a-file\n").unwrap();
    std::fs::write(root.path().join("large"), "x".repeat(MAX_VALUE + 3)).unwrap();
    std::fs::create_dir(root.path().join("folder")).unwrap();
    let read = |holder: Holder| format!("{:?}", vault::read(&holder, root.path(), &Variables::Host));
    let file = |path: &str| read(Holder::File(path.to_owned()));
    assert_eq!(file("token"), "a value");
    assert_eq!(file(root.path().join("token").to_str().unwrap()), "a value");
    insta::assert_snapshot!(file("none"), @"the file `none` cannot be read: No such file or directory (os error 2)");
    insta::assert_snapshot!(file("folder"), @"the file `folder` cannot be read: not a regular file");
    insta::assert_snapshot!(file("large"), @"the file `large` cannot be read: larger than 16386 bytes");
    insta::assert_snapshot!(read(Holder::Variable("HARNESS_NO_SUCH_SECRET".to_owned())), @"the variable `HARNESS_NO_SUCH_SECRET` is not set");
    assert_eq!(read(Holder::Variable("PATH".to_owned())), "a value");
}

proptest! {
    /// Wherever a value is in a text: nothing of it is left, and the rest is as it was.
    #[test]
    fn the_rest_of_a_text_is_left(before in "[ -~é]{0,20}", after in "[ -~é]{0,20}") {
        let vault = vault(&[("A", VALUE)]);
        prop_assert_eq!(redacted(&vault, &format!("{before}{VALUE}{after}")), format!("{before}[redacted:A]{after}"));
        prop_assert_eq!(redacted(&vault, &format!("{before}{after}")), format!("{before}{after}"));
    }
}

#[test]
fn the_key_of_a_model_is_for_nobody() {
    let (path, folder) = (std::env::var("PATH").unwrap(), tempfile::tempdir().unwrap());
    let vault = Vault::open([], ["PATH", "HARNESS_TEST_NOT_THERE"], folder.path(), &Variables::Host);
    let reason = "the variable `PATH` holds the key of a model, which no script sees";
    assert_eq!(vault.decide_variable("PATH"), Err(Refusal::always(reason)));
    assert!(vault.holds_variable("PATH") && !vault.holds_variable("HOME"));
    assert_eq!(vault.decide_variable("HOME"), Ok(()));
    let mut text = format!("it is {path}.");
    assert_eq!(vault.find(&text), Some("PATH"));
    vault.redact(&mut text);
    assert_eq!(text, "it is [redacted:PATH].");
    assert_eq!(vault.keeps("PATH").reason, "what would go out holds the value of `PATH`, the key of a model");
    // It has no use, so that nothing is missing, and no secret has its name.
    assert_eq!(vault.missing().count(), 0);
    assert!(vault.secret("PATH").is_none() && vault.value("PATH").is_err());
}
