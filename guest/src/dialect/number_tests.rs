use serde_json::json;

use crate::testing::{check_all, fail_all};

#[test]
fn ints_and_floats_are_compared_exactly() {
    check_all([
        ("9007199254740993 == 9007199254740992.0", json!(false)),
        ("9007199254740993 > 9007199254740992.0", json!(true)),
        ("9007199254740992.0 < 9007199254740993", json!(true)),
        ("9007199254740992 == 9007199254740992.0", json!(true)),
        ("10000000000000000000000 == 1e22", json!(true)),
        ("10000000000000000000001 == 1e22", json!(false)),
        ("10000000000000000000001 > 1e22", json!(true)),
        ("-10000000000000000000001 < -1e22", json!(true)),
        ("(1 << 2000) > 1.7976931348623157e308", json!(true)),
        ("(1 << 2000) < float('inf')", json!(true)),
        ("-(1 << 2000) > float('-inf')", json!(true)),
        ("(1 << 2000) < float('nan')", json!(true)),
        ("(1 << 2000) == float('nan')", json!(false)),
        ("4294967296 < 4294967296.5", json!(true)),
        ("-4294967296 > -4294967296.5", json!(true)),
        ("len({10000000000000000000000: 1, 10000000000000000000001: 3} | {1e22: 2})", json!(2)),
        (
            "sorted([1e22, 10000000000000000000001, 9999999999999999999999])[0]",
            json!(9_999_999_999_999_999_999_999_u128),
        ),
    ]);
}

#[test]
fn an_int_without_a_float() {
    check_all([("float(1 << 1023) > 8e307", json!(true)), ("(1 << 1023) / 2 > 4e307", json!(true))]);
    fail_all([
        ("float(1 << 2000)", "int too large to convert to float"),
        ("(1 << 2000) / 2", "int too large to convert to float"),
        ("2 / (1 << 2000)", "int too large to convert to float"),
        ("(1 << 2000) + 1.0", "int too large to convert to float"),
        ("1.0 + (1 << 2000)", "int too large to convert to float"),
        ("(1 << 2000) - 1.0", "int too large to convert to float"),
        ("1.0 - (1 << 2000)", "int too large to convert to float"),
        ("(1 << 2000) * 1.0", "int too large to convert to float"),
        ("1.0 * (1 << 2000)", "int too large to convert to float"),
        ("(1 << 2000) // 1.0", "int too large to convert to float"),
        ("1.0 // (1 << 2000)", "int too large to convert to float"),
        ("(1 << 2000) % 1.0", "int too large to convert to float"),
        ("1.0 % -(1 << 2000)", "int too large to convert to float"),
    ]);
}

#[test]
fn the_base_of_a_number() {
    check_all([
        ("int('12')", json!(12)),
        ("int('-0012')", json!(-12)),
        ("int('0x12', 0)", json!(18)),
        ("int('0x12', 16)", json!(18)),
        ("int('0b101', 0)", json!(5)),
        ("int('zz', 36)", json!(1295)),
    ]);
    fail_all([
        ("int('0x12')", "Cannot parse `0x12` as an integer in base 10"),
        ("int('0b1')", "Cannot parse `0b1` as an integer in base 10"),
        ("int('1', 1)", "1 is not a valid base, int() base must be >= 2 and <= 36"),
    ]);
}

#[test]
fn ends_of_any_size() {
    check_all([
        ("[1, 2, 3][1:9999999999]", json!([2, 3])),
        ("[1, 2, 3][-9999999999:2]", json!([1, 2])),
        ("[1, 2, 3][9999999999:]", json!([])),
        ("'abc'[:9999999999]", json!("abc")),
        ("(1, 2, 3)[::9999999999]", json!([1])),
        ("[1, 2, 3][::-9999999999]", json!([3])),
        ("[1, 2, 3][2147483647:-2147483648:-1]", json!([3, 2, 1])),
    ]);
    fail_all([
        ("[1][9999999999]", "Index `9999999999` is out of bound"),
        ("(1,)[-9999999999]", "Index `-9999999999` is out of bound"),
    ]);
}

#[test]
fn repeats_of_any_size() {
    check_all([
        ("[] * 9999999999", json!([])),
        ("'' * 9999999999", json!("")),
        ("() * 9999999999", json!([])),
        ("'a' * -9999999999", json!("")),
        ("-9999999999 * [1]", json!([])),
        ("3 * 'ab'", json!("ababab")),
    ]);
    let why = "times: the result would be longer than 2147483646";
    fail_all([
        ("'ab' * 9999999999", &*format!("cannot repeat a sequence of length 2 9999999999 {why}")),
        ("[0] * 9999999999", &*format!("cannot repeat a sequence of length 1 9999999999 {why}")),
        ("(1, 2) * 2147483647", &*format!("cannot repeat a sequence of length 2 2147483647 {why}")),
        ("'ab' * 2.0", "Operation `*` not supported for types `string` and `float`"),
    ]);
}

#[test]
fn what_is_beyond_the_limits_says_so() {
    let must = "must be between -2147483648 and 2147483647, got";
    fail_all([
        ("range(9999999999)", &*format!("range: `stop` {must} 9999999999")),
        ("range(9999999999, 1)", &*format!("range: `start` {must} 9999999999")),
        ("range(0, 1, -9999999999)", &*format!("range: `step` {must} -9999999999")),
        ("range('a')", "Type of parameter `stop` doesn't match, expected `int`, actual `string (repr: \"a\")`"),
        ("1 << 100001", "shift count too large: 100001 (at most 100000)"),
        ("1 << (1 << 70)", "shift count too large: 1180591620717411303424 (at most 100000)"),
    ]);
    check_all([("[1 >> 100352, -1 >> (1 << 70), (1 << 100000) > 0]", json!([0, -1, true]))]);
}
