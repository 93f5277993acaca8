//! The record of a session: bytes as they are, and lines of real ones with other values in them.

use harness_session::read::{Recording, parse};
use harness_session::record::{Line, What};
use harness_session::timeline::{Span, Timeline};
use harness_session::{html, text};
use serde_json::{Value as Json, json};

/// Real records, of which lines are taken.
const REAL: [&str; 2] = [include_str!("../tests/corpus/session/agent"), include_str!("../tests/corpus/session/kinds")];

/// Bytes of a recipe for one line.
const OF_A_LINE: usize = 4;
/// Lines that are made of a recipe.
const MAX_LINES: usize = 64;

/// Elements of a page, and attributes: all that it may have, whatever is in the record.
const ELEMENTS: &str = "html head meta title style body main header footer section h1 h2 h3 p b i em small span div dl dt dd \
                        ol ul li pre table tr td details summary svg rect label input";
const ATTRIBUTES: &str =
    "lang charset http-equiv content name class viewBox preserveAspectRatio role x y width height id type title";

/// Bytes, as a record and as a recipe for one: something is wrong with a line of it, or it can be shown in every way.
pub fn session(bytes: &[u8]) {
    let _ = shown(bytes);
    let _ = shown(&mixed(bytes));
}

/// The kinds of lines in a record, where it is one.
pub fn shown(bytes: &[u8]) -> Vec<String> {
    let recording = match parse(bytes) {
        Ok(recording) => recording,
        Err((line, why)) => {
            let lines = bytes.split_inclusive(|byte| *byte == b'\n').count();
            assert!(line.is_none_or(|line| (1..=lines).contains(&line)) && !why.is_empty(), "{line:?} {why}");
            return Vec::new();
        }
    };
    let kinds = kept(&recording);
    let (history, before) = (recording.history(), recording.before());
    for wrong in [history.err(), before.err()].into_iter().flatten() {
        assert!(!wrong.is_empty());
    }
    assert!(recording.prompts().count() <= recording.lines.len());
    let timeline = Timeline::of(&recording);
    timeline.spans.iter().for_each(in_order);
    assert!(timeline.to_json().is_object());
    let plain = text::render(&timeline, false);
    assert!(!plain.chars().any(|c| harness_policy::text::is_hidden(c) && !matches!(c, '\n' | '\t')), "{plain:?}");
    assert!(text::render(&timeline, true).len() >= plain.len());
    page(&html::render(&timeline));
    kinds
}

/// Each line says the same when it is written and read again.
fn kept(recording: &Recording) -> Vec<String> {
    let header =
        Line { at: 0, by: String::new(), strand: Default::default(), what: What::Session(recording.header.clone()) };
    let lines = [&header].into_iter().chain(&recording.lines);
    let again = |line: &Line| {
        let json = line.to_json();
        let kind = json["kind"].as_str().unwrap_or_default().to_owned();
        assert_eq!(Line::from_json(json).as_ref(), Ok(line));
        kind
    };
    lines.map(again).collect()
}

fn in_order(span: &Span) {
    assert!(span.start <= span.end, "{span:?}");
    span.inside.iter().for_each(in_order);
}

/// Nothing in a page but what its maker has put there: known elements with known attributes, each closed where it was
/// opened.
fn page(page: &str) {
    let known = |list: &str, name: &str| list.split(' ').any(|known| known == name);
    let Some(mut rest) = page.strip_prefix("<!doctype html>") else { panic!("{page}") };
    let mut open = Vec::new();
    while let Some((text, tag)) = rest.split_once('<') {
        // Selectors may have it.
        assert!(!text.contains('>') || open.last() == Some(&"style"), "{text}");
        let Some((tag, after)) = tag.split_once('>') else { panic!("`{tag}` is not closed") };
        rest = after;
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name));
            continue;
        }
        let (name, mut attributes) = tag.split_once(' ').unwrap_or((tag, ""));
        assert!(known(ELEMENTS, name), "<{tag}>");
        while !attributes.is_empty() {
            // The one that has no value.
            if attributes.trim() == "checked" {
                break;
            }
            let one = attributes.trim_start().split_once("=\"");
            let Some((attribute, value)) = one else { panic!("<{tag}>") };
            let Some((_, after)) = value.split_once('"') else { panic!("<{tag}>") };
            assert!(known(ATTRIBUTES, attribute), "<{tag}>");
            attributes = after;
        }
        if !known("meta input", name) {
            open.push(name);
        }
    }
    assert!(open.is_empty() && !rest.contains('>'), "{open:?}");
}

/// A record by a recipe: for each line, which one it is, which of its values is another one, and which.
fn mixed(recipe: &[u8]) -> Vec<u8> {
    let real: Vec<&str> = REAL.into_iter().flat_map(str::lines).collect();
    let mut record = real.first().map_or_else(Vec::new, |header| format!("{header}\n").into_bytes());
    for one in recipe.chunks_exact(OF_A_LINE).take(MAX_LINES) {
        let [line, high, place, value] = [one[0], one[1], one[2], one[3]].map(usize::from);
        let Some(line) = real.get((line + (high & 1) * 256) % real.len()) else { continue };
        let Ok(mut line) = serde_json::from_str::<Json>(line) else { continue };
        let mut places = Vec::new();
        leaves(&mut line, &mut places);
        let count = places.len().max(1);
        if high & 2 == 0
            && let Some(place) = places.into_iter().nth(place % count)
        {
            *place = other(value);
        }
        record.extend(format!("{line}\n").into_bytes());
    }
    record
}

/// The values in a line that hold no others, and those that hold nothing.
fn leaves<'a>(value: &'a mut Json, found: &mut Vec<&'a mut Json>) {
    let empty = match value {
        Json::Object(fields) => fields.is_empty(),
        Json::Array(values) => values.is_empty(),
        _ => true,
    };
    if empty {
        return found.push(value);
    }
    match value {
        Json::Object(fields) => fields.values_mut().for_each(|inner| leaves(inner, found)),
        Json::Array(values) => values.iter_mut().for_each(|inner| leaves(inner, found)),
        _ => {}
    }
}

/// Something else.
fn other(which: usize) -> Json {
    let markup = "</pre><script src=//x onload='x'>alert(1)</script>\"><img src=x onerror=x>&lt;&#60;<!--]]>";
    let hidden = "\u{1b}[2J\u{202e}\r\u{0}\u{feff}x\r\ny\tz\n\n";
    match which % 20 {
        0 => json!(0),
        1 => json!(1),
        2 => json!(u64::MAX),
        3 => json!(u64::MAX / 2 + 1),
        4 => json!(u32::MAX),
        5 => json!(-1),
        6 => json!(1.5e300),
        7 => json!(null),
        8 => json!(true),
        9 => json!([]),
        10 => json!({}),
        11 => json!(""),
        12 => json!(markup),
        13 => json!(hidden),
        14 => json!("root"),
        15 => json!("delegation_1"),
        16 => json!("call_1"),
        17 => json!("\u{301}é".repeat(300)),
        18 => json!(format!("{{\"a\":{}}}", json!([markup, hidden]))),
        _ => json!("[".repeat(500)),
    }
}
