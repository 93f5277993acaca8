//! Whatever the text, parsing ends with a value or a message, and every message points into the text.

use proptest::prelude::*;

use super::diagnostic::Diagnostics;
use super::frontmatter;
use super::hook::Hook;
use super::policy::ProjectPolicy;
use super::tool::Tool;
use super::yaml::{self, Key, Node, Style, Value};

const TOOL: &str = "---\nparameters:\n  path: { type: string, required: true }\n  size:\n    type: number\n    description: >\n      In\n      bytes.\nscript: |\n  def run(args):\n      return {\"a\": [1, 'é']}\n\n  X = 1\ntimeout_ms: 30000\nasync: false\ncapabilities: { fs: { read: [docs] }, env: [A] }\n---\n# Title\n\nprose\n";
const HOOK: &str = "---\nevent: tool.pre\npriority: 10\nwhen: payload[\"name\"] == 'x'\nscript: |-\n    def handle(event, payload):\n        return allow()\n---\n";
const POLICY: &str = "---\nnetwork:\n  allowed_domains: [a.com, { host: b, private: true }]\nsandbox:\n  fs: { read: [\".\"] }\n  limits: { fuel: 5 }\n  sources:\n    plugins/acme: { env: [A] }\ntools_policy: { deny: [\"x*\"] }\n---\n";

/// Pieces that YAML and the front matter care about.
fn noise() -> impl Strategy<Value = String> {
    let pieces = prop_oneof![
        proptest::sample::select(vec![
            "---",
            "\n",
            "\r\n",
            "\r",
            " ",
            "  ",
            "\t",
            ": ",
            ":",
            "- ",
            "? ",
            "|",
            ">",
            "|2",
            "|+",
            "&a ",
            "*a",
            "!!str ",
            "!",
            "{",
            "}",
            "[",
            "]",
            ",",
            "\"",
            "'",
            "\\",
            "#",
            "%YAML 1.2",
            "...",
            "a",
            "é",
            "🦀",
            "\0",
            "\u{feff}",
            "\u{85}",
            "\u{2028}",
            "null",
            "~",
            "1",
            "-1",
            "1e5",
            "0x1",
            "<<",
            "\n  ",
            "\n- ",
            "\na: ",
            "\\x",
            "\\u12",
            "@",
            "`",
        ])
        .prop_map(str::to_owned),
        any::<String>(),
    ];
    proptest::collection::vec(pieces, 0..40).prop_map(|pieces| pieces.concat())
}

/// A good artifact with some of it cut out and something else put in.
fn mutated(base: &'static str) -> impl Strategy<Value = String> {
    (0..base.len(), 0..30_usize, noise()).prop_map(move |(at, cut, noise)| {
        let at = base.floor_char_boundary(at);
        let end = base.ceil_char_boundary((at + cut).min(base.len()));
        format!("{}{noise}{}", base.get(..at).unwrap(), base.get(end..).unwrap())
    })
}

fn lines(text: &str) -> Vec<&str> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    text.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)).collect()
}

fn points_inside(text: &str, diagnostics: &Diagnostics) -> Result<(), TestCaseError> {
    let lines = lines(text);
    for diagnostic in diagnostics {
        let position = diagnostic.position.as_ref().unwrap();
        let line = lines.get(position.line as usize - 1);
        prop_assert!(line.is_some(), "{:?} in {:?}", diagnostic, text);
        let width = line.unwrap().chars().count();
        let (first, length) = (position.column as usize - 1, position.length as usize);
        prop_assert!(first <= width && length >= 1, "{:?} in {:?}", diagnostic, text);
        prop_assert!(first + length <= width.max(first + 1), "{:?} in {:?}", diagnostic, text);
        let shown = diagnostic.render(Some(text), false);
        prop_assert!(!shown.chars().any(|c| harness_policy::text::is_hidden(c) && c != '\n'), "{:?}", shown);
        let place = format!("--> x.md:{}:{}\n", position.line, position.column);
        prop_assert!(shown.contains(place.trim_end()), "{} wanted in {:?}", place, shown);
    }
    Ok(())
}

/// That a scalar's text is where its node says, and a script's lines are where they are said to be.
fn is_where_it_says(lines: &[&str], node: &Node) -> Result<(), TestCaseError> {
    let rest = |line: u32, before: u32| -> String {
        lines.get(line as usize - 1).map_or_else(String::new, |line| line.chars().skip(before as usize).collect())
    };
    match &node.value {
        Value::Seq(items) => items.iter().try_for_each(|item| is_where_it_says(lines, item)),
        Value::Map(entries) => entries.iter().try_for_each(|(Key { text, span }, value)| {
            if !text.is_empty() && !text.contains('\n') {
                let at = rest(span.start.line, span.start.column - 1);
                let quoted = at.starts_with(['"', '\'', '|', '>']) || at.is_empty();
                prop_assert!(
                    quoted || at.chars().next() == text.chars().next() || text.starts_with(' '),
                    "key {:?} at {:?}",
                    text,
                    at
                );
            }
            is_where_it_says(lines, value)
        }),
        Value::Str(text) => {
            match node.style {
                Style::Literal(block) if text.contains(|c| c != '\n') => {
                    for (n, line) in (0..).zip(text.lines()) {
                        prop_assert_eq!(line, rest(block.first_line + n, block.indent), "line {} of {:?}", n, text);
                    }
                }
                Style::Quoted => {
                    let at = rest(node.span.start.line, node.span.start.column - 1);
                    prop_assert!(at.starts_with(['"', '\'']), "{:?} at {:?}", text, at);
                }
                Style::Plain if node.span.start.line == node.span.end.line => {
                    let at = rest(node.span.start.line, node.span.start.column - 1);
                    prop_assert!(at.starts_with(text.as_str()), "{:?} at {:?}", text, at);
                    prop_assert_eq!(node.span.length() as usize, text.chars().count());
                }
                _ => {}
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

fn everything(text: &str) -> Result<(), TestCaseError> {
    if let Ok(front) = frontmatter::split(text) {
        prop_assert!(text.contains(front.yaml) && text.contains(front.body));
        prop_assert!(!lines(front.yaml).contains(&"---"));
    }
    let (tree, errors) = yaml::parse(text, 1);
    prop_assert!(tree.is_some() || !errors.is_empty());
    // Keys with errors beside them may be anything.
    if let (Some(tree), []) = (&tree, errors.as_slice()) {
        // A byte order mark inside is not stripped here: the parser skips it itself.
        if !text.contains('\u{feff}') {
            is_where_it_says(&lines(text), tree)?;
        }
    }
    points_inside(text, &Tool::parse("x.md", "x", text).1)?;
    points_inside(text, &Hook::parse("x.md", "x", 0, text).1)?;
    points_inside(text, &ProjectPolicy::parse("x.md", text).1)
}

#[test]
fn the_originals_are_good() {
    assert_eq!(Tool::parse("x.md", "x", TOOL).1, Diagnostics::new());
    assert_eq!(Hook::parse("x.md", "x", 0, HOOK).1, Diagnostics::new());
    assert_eq!(ProjectPolicy::parse("x.md", POLICY).1, Diagnostics::new());
}

proptest! {
    // Fewer without optimization.
    #![proptest_config(ProptestConfig::with_cases(if cfg!(debug_assertions) { 100 } else { 400 }))]

    #[test]
    fn any_text(text in any::<String>()) {
        everything(&text)?;
    }

    #[test]
    fn noise_in_front_matter(noise in noise()) {
        everything(&noise)?;
        everything(&format!("---\n{noise}\n---\n"))?;
    }

    #[test]
    fn mutated_tools(text in mutated(TOOL)) {
        everything(&text)?;
    }

    #[test]
    fn mutated_hooks(text in mutated(HOOK)) {
        everything(&text)?;
    }

    #[test]
    fn mutated_policies(text in mutated(POLICY)) {
        everything(&text)?;
    }
}
