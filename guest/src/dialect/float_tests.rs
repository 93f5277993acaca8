use serde_json::json;
use starlark::values::float::StarlarkFloat;

use crate::testing::{check, check_all};

fn text(float: f64) -> String {
    StarlarkFloat(float).to_string()
}

/// The layout of Go's `%g` from the shortest digits, which another implementation finds here.
fn expected(float: f64) -> String {
    let json = serde_json::to_string(&float.abs()).unwrap();
    let (mantissa, exponent) = json.split_once('e').unwrap_or((&json, "0"));
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let mut point = whole.len() as i32 + exponent.parse::<i32>().unwrap();
    let all = format!("{whole}{fraction}");
    let zeros = all.len() - all.trim_start_matches('0').len();
    point -= zeros as i32;
    let digits = all.trim_matches('0');
    let sign = if float.is_sign_negative() { "-" } else { "" };
    if digits.is_empty() {
        return format!("{sign}0.0");
    }
    let (first, rest) = digits.split_at(1);
    if !(-3..=6).contains(&point) {
        let dot = if rest.is_empty() { "" } else { "." };
        return format!("{sign}{first}{dot}{rest}e{:+03}", point - 1);
    }
    if point <= 0 {
        return format!("{sign}0.{}{digits}", "0".repeat(point.unsigned_abs() as usize));
    }
    let padded = format!("{digits:0<width$}", width = point as usize);
    let (whole, fraction) = padded.split_at(point as usize);
    format!("{sign}{whole}.{}", if fraction.is_empty() { "0" } else { fraction })
}

#[track_caller]
fn reads_back(float: f64) {
    let text = text(float);
    assert_eq!(text.parse::<f64>().unwrap().to_bits(), float.to_bits(), "{text}");
    assert_eq!(text, expected(float));
}

/// Numbers of SplitMix64.
fn random(seed: u64) -> impl Iterator<Item = u64> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    })
}

#[test]
fn a_million_random_floats_read_back() {
    let mut tried = 0;
    for bits in random(1).take(1_000_000) {
        let float = f64::from_bits(bits);
        if float.is_finite() {
            reads_back(float);
            tried += 1;
        }
    }
    assert!(tried > 999_000, "{tried}");
}

/// Numbers as people write them: prices, times, shares.
#[test]
fn random_decimals_read_back() {
    for bits in random(2).take(300_000) {
        let whole = (bits >> 8) % 10_u64.pow(1 + (bits % 15) as u32);
        reads_back(whole as f64 / 10_f64.powi(((bits >> 4) % 10) as i32));
    }
}

#[test]
fn every_edge_reads_back() {
    for exponent in -1074..1024 {
        let power = if exponent < -1022 { f64::from_bits(1 << (exponent + 1074)) } else { 2_f64.powi(exponent) };
        for float in [power, power.next_up(), power.next_down(), -power] {
            if float.is_finite() {
                reads_back(float);
            }
        }
    }
    for exponent in -323..=308 {
        let power: f64 = format!("1e{exponent}").parse().unwrap();
        for float in [power, power.next_up(), power.next_down(), -power, power * 9.0, power * 9.5] {
            if float.is_finite() {
                reads_back(float);
            }
        }
    }
    for float in [0.0, -0.0, f64::MAX, f64::MIN, f64::MIN_POSITIVE, f64::from_bits(1), f64::EPSILON] {
        reads_back(float);
    }
}

#[test]
fn the_text_of_a_float() {
    check_all([
        ("str(99999999.5)", json!("9.99999995e+07")),
        ("str(1700000000.123)", json!("1.700000000123e+09")),
        ("str(0.1 + 0.2)", json!("0.30000000000000004")),
        ("str(123456.789)", json!("123456.789")),
        ("str(999999.9999999999)", json!("999999.9999999999")),
        ("str(1000000.0)", json!("1e+06")),
        ("str(0.0001)", json!("0.0001")),
        ("str(0.00001)", json!("1e-05")),
        ("str(1e100)", json!("1e+100")),
        ("str(5e-324)", json!("5e-324")),
        ("str(-0.0)", json!("-0.0")),
        ("str(float('nan'))", json!("nan")),
        ("str([float('inf'), float('-inf')])", json!("[+inf, -inf]")),
    ]);
}

/// Wherever a float becomes a text, it is the same one.
#[test]
fn every_way_to_a_text_is_the_same() {
    let program = "\
def same(x):
    texts = [
        str(x), repr(x), '%s' % x, '%r' % x, '%g' % x, '{}'.format(x), '{!r}'.format(x),
        str([x])[1:-1], str((x,))[1:-2], str({'k': x})[6:-1], str({x: 1})[1:-4],
        '%s' % [x], template.render('{{ x }}', {'x': x}), template.render('{{ x }}', {'x': [x]}),
    ]
    return [x] + [text.strip('[]') for text in texts if text.strip('[]') != str(x) or float(text.strip('[]')) != x]

[same(x) for x in [99999999.5, 1700000000.123, 0.1 + 0.2, 1e23, 5e-324, 1.7976931348623157e308, 2.5, 100000.0]]
";
    check(
        program,
        json!([
            [99_999_999.5],
            [1_700_000_000.123],
            [0.300_000_000_000_000_04],
            [1e23],
            [5e-324],
            [f64::MAX],
            [2.5],
            [100_000.0]
        ]),
    );
    check(
        "json.decode(json.encode([99999999.5, 1700000000.123, 0.1 + 0.2])) == [99999999.5, 1700000000.123, 0.1 + 0.2]",
        json!(true),
    );
}

/// `%e` rounds the exact value.
#[test]
fn a_fixed_number_of_digits() {
    check_all([
        ("'%e' % 99999999.5", json!("1.000000e+08")),
        ("'%e' % 1700000000.123", json!("1.700000e+09")),
        ("'%E' % 5e-324", json!("4.940656E-324")),
        ("'%e' % 1.7976931348623157e308", json!("1.797693e+308")),
        ("'%e' % -0.0", json!("-0.000000e+00")),
        ("'%e' % 9.9999995", json!("9.999999e+00")),
        ("'%e' % 9.99999951", json!("1.000000e+01")),
        ("'%f' % 99999999.5", json!("99999999.500000")),
        ("'%G' % 1e-07", json!("1E-07")),
    ]);
}
