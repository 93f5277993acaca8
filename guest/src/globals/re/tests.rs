use proptest::prelude::*;
use serde_json::{Value as Json, json};

use crate::testing::{check, check_all, evaluate, fail_all, fails};

fn no_match() -> Json {
    json!({"matched": false, "full_match": "", "groups": [], "named_groups": {}, "start": -1, "end": -1})
}

fn whole(text: &str, start: usize, end: usize) -> Json {
    json!({"matched": true, "full_match": text, "groups": [], "named_groups": {}, "start": start, "end": end})
}

#[test]
fn match_is_anchored_at_the_start() {
    check_all([
        ("re.match('a', 'abc')", whole("a", 0, 1)),
        ("re.match('b', 'abc')", no_match()),
        ("re.match('b|abc', 'abc')", whole("abc", 0, 3)),
        ("re.match('', 'abc')", whole("", 0, 0)),
        ("re.match('', '')", whole("", 0, 0)),
        ("re.match('a', '')", no_match()),
        ("re.match('(?m)^b', 'a\\nb')", no_match()),
        // A comment at the end of the pattern would swallow anything put behind it.
        ("re.match('(?x) a # comment', 'ab')", whole("a", 0, 1)),
        ("re.match(text = 'abc', pattern = '.+')", whole("abc", 0, 3)),
    ]);
}

#[test]
fn search_finds_the_first_one() {
    check_all([
        ("re.search('b', 'abcb')", whole("b", 1, 2)),
        ("re.search('x', 'abc')", no_match()),
        ("re.search('$', 'abc')", whole("", 3, 3)),
        ("re.search(pattern = '(?i)B+', text = 'aBb')", whole("Bb", 1, 3)),
    ]);
}

#[test]
fn groups() {
    check(
        r"re.match(r'(?P<key>\w+)=(\d+)?(;)?', 'size=12')",
        json!({
            "matched": true, "full_match": "size=12", "groups": ["size", "12", ""],
            "named_groups": {"key": "size"}, "start": 0, "end": 7,
        }),
    );
    check(
        r"re.search(r'(?<b>x)(?<a>y)?', '--x')",
        json!({
            "matched": true, "full_match": "x", "groups": ["x", ""],
            "named_groups": {"b": "x", "a": ""}, "start": 2, "end": 3,
        }),
    );
}

#[test]
fn offsets_index_the_starlark_string() {
    check_all([
        ("len('\u{e9}\u{65e5}\u{1f600}x')", json!(4)),
        ("'\u{e9}\u{65e5}\u{1f600}x'[3]", json!("x")),
        ("re.search('x+', '\u{e9}\u{65e5}\u{1f600}xx')", whole("xx", 3, 5)),
        ("re.search('\u{65e5}.', '\u{e9}\u{65e5}\u{1f600}x')", whole("\u{65e5}\u{1f600}", 1, 3)),
    ]);
}

#[test]
fn find_all() {
    check_all([
        (r"re.find_all(r'\d+', 'a1b22c333')", json!(["1", "22", "333"])),
        (r"re.findall(r'(\d)(\d)', '1234x5')", json!(["12", "34"])),
        ("re.find_all('x', 'abc')", json!([])),
        ("re.find_all('', 'ab')", json!(["", "", ""])),
        ("re.findall(pattern = '.', text = '\u{e9}\u{65e5}')", json!(["\u{e9}", "\u{65e5}"])),
        ("len(re.find_all('a', 'a' * 10000))", json!(10_000)),
    ]);
    fail_all([
        ("re.find_all('a', 'a' * 10001)", "re.find_all: more than 10000 matches"),
        ("re.findall('', 'a' * 10001)", "re.findall: more than 10000 matches"),
    ]);
}

#[test]
fn replace() {
    check_all([
        ("re.replace('a', 'b', 'banana')", json!("bbnbnb")),
        ("re.replace('x', 'b', 'banana')", json!("banana")),
        (r"re.replace(r'(\w+)@(\w+)', '$2 at $1', 'me@home you@work')", json!("home at me work at you")),
        (r"re.replace(r'(?P<first>\w)(\w*)', '${2}${first}', 'abc de')", json!("bca ed")),
        (r"re.replace(r'(?P<first>\w)(\w*)', '$first-', 'abc de')", json!("a- d-")),
        (r"re.replace(r'(\d)', '${1}a', '12')", json!("1a2a")),
        (r"re.replace(r'\d', '[$0]', '12')", json!("[1][2]")),
        (r"re.replace(r'(a)|(b)', '<$1$2>', 'abc')", json!("<a><b>c")),
        ("re.replace('a', '$$1 $ $.', 'a')", json!("$1 $ $.")),
        ("re.replace('', '-', 'ab')", json!("-a-b-")),
        ("re.replace('\u{e9}', '', 'caf\u{e9}!')", json!("caf!")),
        ("re.replace(pattern = 'a', repl = 'b', text = 'a')", json!("b")),
        ("len(re.replace('a', 'bb', 'a' * 10000))", json!(20_000)),
    ]);
    fail_all([
        ("re.replace('(a)', '$2', 'a')", "re.replace: the pattern has no group `2`; a dollar sign is `$$`"),
        ("re.replace('(a)', '$1x', 'a')", "re.replace: the pattern has no group `1x`; a dollar sign is `$$`"),
        ("re.replace('a', '${x}', 'a')", "re.replace: the pattern has no group `x`; a dollar sign is `$$`"),
        (
            "re.replace('a', '$99999999999999999999999', 'a')",
            "re.replace: the pattern has no group `99999999999999999999999`; a dollar sign is `$$`",
        ),
        ("re.replace('a', '${1', 'a')", "re.replace: `${` without `}` in repl"),
        ("re.replace('a', 'b', 'a' * 10001)", "re.replace: more than 10000 matches"),
        ("re.replace('a', 'b' * 4096, 'a' * 5000)", "re.replace: the result is longer than 16777216 bytes"),
        ("re.replace('.+', '$0' * 20, 'a' * 1048576)", "re.replace: the result is longer than 16777216 bytes"),
    ]);
}

#[test]
fn split() {
    check_all([
        (r"re.split(r'\s*,\s*', 'a , b,c')", json!(["a", "b", "c"])),
        ("re.split(',', '')", json!([""])),
        ("re.split(',', ',a,')", json!(["", "a", ""])),
        ("re.split('x', 'abc')", json!(["abc"])),
        ("re.split('', 'ab')", json!(["", "a", "b", ""])),
        ("re.split(pattern = '-', text = 'a-b')", json!(["a", "b"])),
        ("len(re.split(',', ',' * 10000))", json!(10_001)),
    ]);
    fails("re.split(',', ',' * 10001)", "re.split: more than 10000 matches");
}

#[test]
fn patterns_are_bounded() {
    check_all([
        ("re.match('a' * 4096, 'a' * 4096)['matched']", json!(true)),
        (r"re.match(r'\w{20}', 'a' * 20)['matched']", json!(true)),
        (r"re.match(r'[0-9A-Za-z_]{1000}', 'a' * 1000)['matched']", json!(true)),
    ]);
    fail_all([
        ("re.match('a' * 4097, 'a')", "re.match: pattern is longer than 4096 bytes"),
        (
            r"re.search(r'(\w{100}){100}', 'a')",
            r"re.search: the pattern needs more than 1048576 bytes when compiled (`limits.regex_bytes`); in `{n}`, [0-9A-Za-z_] is smaller than \w",
        ),
        ("re.match('(', 'a')", "re.match: invalid pattern: unclosed group"),
        (
            "re.find_all('[z-a]', 'a')",
            "re.find_all: invalid pattern: invalid character class range, the start must be <= the end",
        ),
        (
            "re.search('(?=a)', 'a')",
            "re.search: invalid pattern: look-around, including look-ahead and look-behind, is not supported",
        ),
        (r"re.split(r'(a)\1', 'aa')", "re.split: invalid pattern: backreferences are not supported"),
        ("re.match('a', 'a' * 16777217)", "re.match: text is longer than 16777216 bytes"),
    ]);
    let nested = evaluate("re.match('(' * 1000 + ')' * 1000, 'a')").unwrap_err();
    assert!(nested.starts_with("re.match: invalid pattern: ") && !nested.contains('\n'), "{nested}");
}

#[test]
fn arguments() {
    fail_all([
        ("re.match(1, 'a')", "re.match: pattern must be a string, got int"),
        ("re.match('a', None)", "re.match: text must be a string, got NoneType"),
        ("re.search([], 'a')", "re.search: pattern must be a string, got list"),
        ("re.find_all('a', {})", "re.find_all: text must be a string, got dict"),
        ("re.findall('a', True)", "re.findall: text must be a string, got bool"),
        ("re.replace('a', 1, 'a')", "re.replace: repl must be a string, got int"),
        ("re.split('a', 1.5)", "re.split: text must be a string, got float"),
    ]);
}

#[test]
fn more_patterns_than_are_kept() {
    check(
        "[re.match('a{%d}' % (i % 12 + 1), 'a' * 12)['end'] for i in range(30)]",
        json!((0..30).map(|i| i % 12 + 1).collect::<Vec<_>>()),
    );
}

#[test]
fn slow_patterns_of_other_engines_are_fast() {
    check("re.match('(a+)+$', 'a' * 100000 + 'b')['matched']", json!(false));
}

proptest! {
    #[test]
    fn offsets_cut_out_the_match(text in "[a\u{e9}\u{65e5}\u{1f600}b]{0,12}", pattern in "[a\u{e9}b]{1,2}") {
        let program = format!(
            "def f(t, m):\n  return [m['matched'], t[m['start']:m['end']] == m['full_match']]\nf({}, re.search({}, {}))",
            json!(text), json!(pattern), json!(text),
        );
        prop_assert_eq!(evaluate(&program).unwrap()[0].as_bool().unwrap(), text.contains(&pattern));
        if text.contains(&pattern) {
            prop_assert_eq!(evaluate(&program).unwrap(), json!([true, true]));
        }
    }

    #[test]
    fn any_pattern_is_compiled_or_refused_in_one_line(pattern in "[a\\[\\](){}?*+|\\\\^$.0-9:<>P=!,-]{0,20}") {
        for function in ["match", "search", "find_all", "split"] {
            if let Err(error) = evaluate(&format!("re.{function}({}, 'aab01')", json!(pattern))) {
                prop_assert!(error.starts_with(&format!("re.{function}: ")) && !error.contains('\n'), "{}", error);
            }
        }
    }

    #[test]
    fn any_replacement_is_used_or_refused(repl in "[$\\{\\}01ax_ ]{0,12}") {
        if let Err(error) = evaluate(&format!("re.replace('(?P<a>a)', {}, 'aab')", json!(repl))) {
            prop_assert!(error.starts_with("re.replace: "), "{}", error);
        }
    }

    #[test]
    fn what_is_split_joins_again(text in "[ab,]{0,20}") {
        let program = format!("','.join(re.split(',', {}))", json!(text));
        prop_assert_eq!(evaluate(&program).unwrap(), json!(text));
    }
}
