use serde_json::json;

use crate::testing::{check_all, fail_all};

/// A name of the format and a function of the language at once.
#[test]
fn set_and_hash_are_both() {
    check_all([
        ("set([2, 1, 2])", json!([2, 1])),
        ("type(set())", json!("set")),
        ("set([1]) == set.new([1])", json!(true)),
        ("str(set.new([1]) | set([2]))", json!("set([1, 2])")),
        ("hash('abc')", json!(96354)),
        ("len(hash.md5('abc'))", json!(32)),
    ]);
    check_all([("def f():\n  s = set([1])\n  s.add(2)\n  return [s, 2 in s, len(s)]\nf()", json!([[1, 2], true, 2]))]);
    fail_all([("fs('a')", "Operation `call()` not supported on type `namespace`")]);
}

#[test]
fn errors_name_functions_as_the_script_does() {
    fail_all([
        ("def f(x):\n  return x\nf()", "Missing parameter `x` for call to `f`"),
        ("(lambda x: x)()", "Missing parameter `x` for call to `lambda`"),
        ("min([])", "Argument is an empty iterable, min() expects a non-empty iterable"),
        ("max([])", "Argument is an empty iterable, max() expects a non-empty iterable"),
    ]);
}

#[test]
fn parameters_have_the_names_of_the_specification() {
    for (call, parameter) in [
        ("sorted()", "x"),
        ("enumerate()", "x"),
        ("chr('a')", "i"),
        ("getattr(1, 2)", "name"),
        ("hasattr(1, 2)", "name"),
        ("'a'.find(1)", "sub"),
        ("'a'.count(1)", "sub"),
        ("'a'.rindex(1)", "sub"),
        ("'a'.strip(1)", "cutset"),
        ("'a'.partition(1)", "x"),
        ("[].insert('a', 1)", "i"),
        ("[].pop('a')", "i"),
    ] {
        let error = crate::testing::evaluate(call).unwrap_err();
        assert!(error.contains(&format!(" parameter `{parameter}` ")), "{call}: {error}");
    }
    fail_all([("hash(1)", "Type of parameter `x` doesn't match, expected `str`, actual `int (repr: 1)`")]);
}

/// What a call does not reach costs nothing and fails nowhere.
#[test]
fn constants_are_folded_where_that_is_cheap() {
    let never = [
        "list(range(2000000000))",
        "'a' * 2000000000",
        "(0,) * 2000000000",
        "[0] * 2000000000",
        "sorted(range(2000000000))",
        "'%s' % (range(2000000000),)",
    ];
    for expression in never {
        check_all([(&*format!("def f(x):\n  if x:\n    return {expression}\n  return 1\nf(False)"), json!(1))]);
    }
    check_all([
        (
            "def f():\n  return [2 * 3, 'a' + 'b', 'x' * 3, 1 << 4, list(range(3)), 'a,b'.split(',')]\nf()",
            json!([6, "ab", "xxx", 16, [0, 1, 2], ["a", "b"]]),
        ),
        ("N = 1000\ndef f():\n  return len('ab' * N) + len([0] * N)\nf()", json!(3000)),
    ]);
}
