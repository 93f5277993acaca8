//! Items of YAML lists that hints and messages print.

use proptest::prelude::*;

use harness_artifact::yaml::{self, Value};
use harness_policy::item::{in_message, scalar};
use harness_policy::text::is_hidden;

#[test]
fn what_is_plain_stays_plain() {
    for (text, strict, in_a_message) in [
        ("git", "git", "git"),
        ("git push", "\"git push\"", "git push"),
        ("git push \"a b\"", "\"git push \\\"a b\\\"\"", "git push \"a b\""),
        ("src/*.rs", "\"src/*.rs\"", "src/*.rs"),
        ("/opt/go", "\"/opt/go\"", "\"/opt/go\""),
        ("true", "\"true\"", "\"true\""),
        ("git - a", "\"git - a\"", "git - a"),
        ("git a -", "\"git a -\"", "\"git a -\""),
        ("rm a #b", "\"rm a #b\"", "\"rm a #b\""),
        ("a, b", "\"a, b\"", "\"a, b\""),
        ("a: b", "\"a: b\"", "\"a: b\""),
        ("a`b", "\"a\\U00000060b\"", "\"a\\U00000060b\""),
        ("a\n\u{202e}", "\"a\\n\\U0000202e\"", "\"a\\n\\U0000202e\""),
        ("", "\"\"", "\"\""),
    ] {
        assert_eq!((scalar(text).as_str(), in_message(text).as_str()), (strict, in_a_message), "{text}");
    }
}

proptest! {
    #[test]
    fn each_reads_back_as_itself(text in "\\PC{0,12}|[a-c*?\"'`#,:\\[\\]{}&!|>%@ \\\\\n\t-]{0,12}|any{0,3}") {
        for item in [scalar(&text), in_message(&text)] {
            prop_assert!(!item.chars().any(|c| c == '`' || is_hidden(c)), "{}", item);
            for list in [format!("- {item}"), format!("[{item}, x]"), format!("[x, {item}]")] {
                let (root, errors) = yaml::parse(&list, 1);
                prop_assert!(errors.is_empty(), "{}: {:?}", list, errors.len());
                let Some(Value::Seq(items)) = root.map(|root| root.value) else { panic!("{list}") };
                prop_assert!(items.iter().any(|item| item.value == Value::Str(text.clone())), "{}", list);
            }
        }
    }
}
