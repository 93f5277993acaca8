//! Built-ins that a script names and that are not there, or not for it. What there is stands on the page of built-ins, which
//! tests keep true.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use super::place;
use super::tokens::{Token, What, tokens};
use crate::builtins;
use crate::diagnostic::{Diagnostic, Position};
use crate::script::Script;
use crate::suggest::closest;
use crate::upstream;

/// Words of the language.
const WORDS: [&str; 19] = [
    "and", "or", "not", "in", "if", "else", "elif", "for", "lambda", "def", "return", "True", "False", "None", "break",
    "continue", "pass", "load", "while",
];

/// What the page of built-ins has.
struct Page {
    /// The functions of each namespace, and whether hooks have them.
    spaces: BTreeMap<&'static str, BTreeMap<&'static str, bool>>,
    /// Functions that are called by themselves, and whether hooks have them.
    alone: BTreeMap<&'static str, bool>,
    /// The functions of the language itself.
    language: BTreeSet<&'static str>,
}

static THERE: LazyLock<Page> = LazyLock::new(|| {
    let language = builtins::of_language().iter().copied().collect();
    let mut page = Page { spaces: BTreeMap::new(), alone: BTreeMap::new(), language };
    for one in builtins::all() {
        match one.name.split_once('.') {
            Some((space, name)) => drop(page.spaces.entry(space).or_default().insert(name, one.hooks)),
            None => drop(page.alone.insert(one.name, one.hooks)),
        }
    }
    page
});

/// What a script's functions name that is not there. `hook` is whether it is a hook's.
pub(super) fn missing(script: &Script, source: &Position, hook: bool, most: usize) -> Vec<Diagnostic> {
    let all = tokens(&script.text);
    let own = own_names(&all);
    let mut found = Vec::new();
    for (index, token) in all.iter().enumerate() {
        let What::Name(space) = token.what else { continue };
        if found.len() >= most {
            break;
        }
        if is_mark(&all, index.checked_sub(1), '.') || own.contains(space) {
            continue;
        }
        let at = |length: usize| place(source, script, token.line, token.column, length);
        if let Some(false) = THERE.alone.get(space).filter(|_| hook && is_mark(&all, index.checked_add(1), '(')) {
            found.push(forbidden(space, at(space.len())));
        }
        let Some(functions) = THERE.spaces.get(space).filter(|_| is_mark(&all, index.checked_add(1), '.')) else {
            continue;
        };
        let Some(What::Name(name)) = index.checked_add(2).and_then(|next| all.get(next)).map(|token| token.what) else {
            continue;
        };
        let whole = format!("{space}.{name}");
        match functions.get(name) {
            Some(false) if hook => found.push(forbidden(&whole, at(whole.len()))),
            Some(_) => {}
            None => {
                let error = Diagnostic::error(format!("there is no built-in `{whole}`")).at(at(whole.len()));
                found.push(match closest(name, functions.keys().copied()) {
                    _ if upstream::built_in(&whole).is_some() => {
                        error.hint(upstream::built_in(&whole).unwrap_or_default())
                    }
                    Some(word) => error.hint(format!("did you mean `{space}.{word}`?")),
                    None => error
                        .hint(format!("`{space}` has {}", functions.keys().copied().collect::<Vec<_>>().join(", "))),
                });
            }
        }
    }
    found
}

/// Whether scripts have a built-in of this name, such as `fs.read` or `env`, or several below it, such as `exec`.
pub fn is_built_in(name: &str) -> bool {
    let (space, function) = name.split_once('.').unwrap_or((name, ""));
    THERE.alone.contains_key(name)
        || THERE.spaces.get(space).is_some_and(|functions| function.is_empty() || functions.contains_key(function))
}

/// Whether a name that is called by itself is the language's, or a built-in.
pub(super) fn is_known(name: &str) -> bool {
    WORDS.contains(&name) || THERE.language.contains(name) || THERE.alone.contains_key(name)
}

/// Whether a name is a word of the language, one of its functions, or a built-in's.
pub fn is_taken(name: &str) -> bool {
    is_known(name) || THERE.spaces.contains_key(name)
}

fn forbidden(name: &str, at: Position) -> Diagnostic {
    let error = Diagnostic::error(format!("a hook may not call `{name}`: the call is denied each time")).at(at);
    error.hint("let the hook call a tool that does it, by `meta.call_tool`")
}

/// Names that a script binds itself, in whatever place: what it says of these is its own affair.
pub(super) fn own_names<'t>(all: &[Token<'t>]) -> BTreeSet<&'t str> {
    let mut own = BTreeSet::new();
    for (index, token) in all.iter().enumerate() {
        let What::Name(name) = token.what else { continue };
        // As an attribute it is nobody's name; and called by itself it is the built-in.
        let after = index.checked_add(1);
        if !is_mark(all, index.checked_sub(1), '.') && !is_mark(all, after, '.') && !is_mark(all, after, '(') {
            own.insert(name);
        }
        if matches!(before(all, index), Some(What::Name("def"))) {
            own.insert(name);
        }
    }
    own
}

/// Names in a `when` that nothing has: it fails each time, and the hook never runs.
pub(super) fn unknown_in_when(script: &Script, source: &Position, most: usize) -> Vec<Diagnostic> {
    let all = tokens(&script.text);
    let mut bound: BTreeSet<&str> = BTreeSet::from(["payload", "event", "hash"]);
    let mut binds = false;
    for token in &all {
        match token.what {
            What::Name("for" | "lambda") => binds = true,
            What::Name("in") | What::Mark(':') => binds = false,
            What::Name(name) if binds => drop(bound.insert(name)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    for (index, token) in all.iter().enumerate() {
        let What::Name(name) = token.what else { continue };
        let is_keyword_argument = is_mark(&all, index.checked_add(1), '=') && !is_mark(&all, index.checked_add(2), '=');
        let known = bound.contains(name) || WORDS.contains(&name) || THERE.language.contains(name);
        if known || is_keyword_argument || is_mark(&all, index.checked_sub(1), '.') || found.len() >= most {
            continue;
        }
        let at = place(source, script, token.line, token.column, name.chars().count());
        let error =
            Diagnostic::error(format!("`when` names `{name}`, which nothing defines: the hook never matches")).at(at);
        found.push(if THERE.spaces.contains_key(name) || THERE.alone.contains_key(name) {
            error.hint("`when` has no built-ins but the language's own functions: decide in `handle`")
        } else {
            match closest(name, ["payload", "event"].into_iter().chain(THERE.language.iter().copied())) {
                Some(word) => error.hint(format!("did you mean `{word}`?")),
                None => error.hint("it has `payload`, `event` and the language's own functions; a text is in quotes"),
            }
        });
    }
    found
}

/// Places where the arguments of a call, which are JSON as a text, are used as a dict.
pub(super) fn arguments_as_dict(script: &Script, source: &Position, most: usize) -> Vec<Diagnostic> {
    let all = tokens(&script.text);
    let mut held: BTreeSet<&str> = BTreeSet::new();
    let mut found = Vec::new();
    let warn = |token: &Token<'_>| {
        let at = place(source, script, token.line, token.column, "payload".len());
        Diagnostic::warning("`payload[\"arguments\"]` is JSON as a text, and no dict")
            .at(at)
            .hint("write `payload[\"args\"]`")
    };
    for (index, token) in all.iter().enumerate() {
        if found.len() >= most {
            break;
        }
        let What::Name(name) = token.what else { continue };
        if is_mark(&all, index.checked_sub(1), '.') {
            continue;
        }
        let end = if name == "payload" { arguments(&all, index) } else { None };
        if let Some(end) = end {
            if uses_dict(&all, end) || is_iterated(&all, index) && !goes_on(&all, end) {
                found.push(warn(token));
            }
            // `name = payload["arguments"]` and the end of the line.
            let ends = matches!(all.get(end).map(|token| token.what), None | Some(What::Mark('\n')));
            if let (true, Some(What::Mark('=')), Some(What::Name(holder))) =
                (ends, before(&all, index), index.checked_sub(2).and_then(|at| all.get(at)).map(|token| token.what))
            {
                held.insert(holder);
            }
        } else if held.contains(name) {
            let end = index.saturating_add(1);
            if uses_dict(&all, end) || is_iterated(&all, index) && !goes_on(&all, end) {
                found.push(warn(token));
            }
        }
    }
    found
}

/// The index after `payload["arguments"]` or `payload.get("arguments", ...)`, where that begins here.
fn arguments(all: &[Token<'_>], index: usize) -> Option<usize> {
    let what = |offset: usize| index.checked_add(offset).and_then(|at| all.get(at)).map(|token| token.what);
    match (what(1)?, what(2)?, what(3)?) {
        (What::Mark('['), What::Text("arguments"), What::Mark(']')) => index.checked_add(4),
        (What::Mark('.'), What::Name("get"), What::Mark('(')) if what(4)? == What::Text("arguments") => {
            let mut depth = 1_u32;
            let mut at = index.checked_add(5)?;
            while depth > 0 {
                match all.get(at)?.what {
                    What::Mark('(' | '[' | '{') => depth = depth.checked_add(1)?,
                    What::Mark(')' | ']' | '}') => depth = depth.checked_sub(1)?,
                    _ => {}
                }
                at = at.checked_add(1)?;
            }
            Some(at)
        }
        _ => None,
    }
}

/// Whether what ends before this is used as a dict is: `["key"]`, `.get(`, `.items(`.
fn uses_dict(all: &[Token<'_>], at: usize) -> bool {
    let what = |offset: usize| at.checked_add(offset).and_then(|at| all.get(at)).map(|token| token.what);
    match (what(0), what(1)) {
        (Some(What::Mark('[')), Some(What::Text(_))) => true,
        (Some(What::Mark('.')), Some(What::Name(name))) => super::DICT_METHODS.contains(&name),
        _ => false,
    }
}

/// Whether what begins here comes after `for NAME in`.
fn is_iterated(all: &[Token<'_>], index: usize) -> bool {
    let what = |back: usize| index.checked_sub(back).and_then(|at| all.get(at)).map(|token| token.what);
    matches!((what(3), what(2), what(1)), (Some(What::Name("for")), Some(What::Name(_)), Some(What::Name("in"))))
}

/// Whether something is made of what ends before this, such as a list of its parts.
fn goes_on(all: &[Token<'_>], at: usize) -> bool {
    ['.', '[', '('].into_iter().any(|mark| is_mark(all, Some(at), mark))
}

fn before<'t>(all: &[Token<'t>], index: usize) -> Option<What<'t>> {
    index.checked_sub(1).and_then(|at| all.get(at)).map(|token| token.what)
}

pub(super) fn is_mark(all: &[Token<'_>], index: Option<usize>, mark: char) -> bool {
    index.and_then(|index| all.get(index)).is_some_and(|token| token.what == What::Mark(mark))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lint::tests::shown;

    fn of(text: &str) -> (Script, Position) {
        let lines = u32::try_from(text.lines().count()).unwrap();
        let script = Script { text: text.to_owned(), first_line: 1, indent: 0, last_line: lines };
        (script, Position { file: "f".into(), line: 1, column: 1, length: 1 })
    }

    fn tool(text: &str) -> Vec<String> {
        let (script, at) = of(text);
        shown(&missing(&script, &at, false, 100))
    }

    fn hook(text: &str) -> Vec<String> {
        let (script, at) = of(text);
        shown(&missing(&script, &at, true, 100))
    }

    #[test]
    fn the_page_is_read() {
        assert_eq!(THERE.spaces["fs"]["read"], true);
        assert_eq!(THERE.spaces["fs"]["write"], false);
        assert_eq!(THERE.spaces["log"]["debug"], true);
        assert_eq!(THERE.spaces["http"]["get"], true);
        assert_eq!((THERE.alone["delegate"], THERE.alone["sleep"]), (false, true));
        assert!(THERE.language.contains("len") && THERE.spaces.len() > 15, "{:?}", THERE.spaces.keys());
    }

    #[test]
    fn built_ins_that_are_not_there() {
        assert_eq!(
            tool("def run(args):\n    x = fs.raed('a')  # fs.no\n    return json.dump('fs.no'), \"fs.no\"\n"),
            [
                "f:2:9 there is no built-in `fs.raed` (did you mean `fs.read`?)",
                "f:3:12 there is no built-in `json.dump` (`json` has decode, encode)",
            ]
        );
        for fine in [
            "def run(args):\n    return fs.read('a') + args.url.x + x.fs.no\n",
            "def run(args):\n    url = args['url']\n    return url.strip()\n",
            "def fetch(url):\n    return url.strip()\n",
            "def run(args):\n    return [re.upper() for re in ['a']] + log('x')\n",
            "def run(args):\n    log('x')\n    return fs.write('a', 'b')\n",
        ] {
            assert_eq!(tool(fine), [""; 0], "{fine}");
        }
    }

    #[test]
    fn what_a_hook_may_not_call() {
        assert_eq!(
            hook("def handle(event, payload):\n    fs.write('a', 'b')\n    delegate('a', 'b')\n    fs.read('a')\n"),
            [
                "f:2:5 a hook may not call `fs.write`: the call is denied each time (let the hook call a tool that does it, by `meta.call_tool`)",
                "f:3:5 a hook may not call `delegate`: the call is denied each time (let the hook call a tool that does it, by `meta.call_tool`)",
            ]
        );
    }

    #[test]
    fn names_in_when() {
        let of = |text: &str| {
            let (script, at) = of(text);
            shown(&unknown_in_when(&script, &at, 100))
        };
        assert_eq!(
            of("paylod['name'] == read_file or json.decode(payload['arguments'])"),
            [
                "f:1:1 `when` names `paylod`, which nothing defines: the hook never matches (did you mean `payload`?)",
                "f:1:19 `when` names `read_file`, which nothing defines: the hook never matches (it has `payload`, `event` and the language's own functions; a text is in quotes)",
                "f:1:32 `when` names `json`, which nothing defines: the hook never matches (`when` has no built-ins but the language's own functions: decide in `handle`)",
            ]
        );
        for fine in [
            "payload[\"name\"] in [\"a\", 'b'] and event != \"x\" and not False",
            "any([x.startswith(y) for x, y in payload.items() if len(x) > 1])",
            "sorted([1], key=lambda z: z, reverse=True)[0] == 1",
            "len(payload.get('content', '')) > 4000",
        ] {
            assert_eq!(of(fine), [""; 0], "{fine}");
        }
    }

    #[test]
    fn arguments_are_a_text() {
        let of = |text: &str| {
            let (script, at) = of(text);
            shown(&arguments_as_dict(&script, &at, 100))
        };
        let told = |at: &str| {
            format!("{at} `payload[\"arguments\"]` is JSON as a text, and no dict (write `payload[\"args\"]`)")
        };
        assert_eq!(
            of(
                "a = payload[\"arguments\"]['x']\nb = payload.get('arguments', {}).get('y')\nc = payload['arguments']\nd = c.get('z')\n"
            ),
            [told("f:1:5"), told("f:2:5"), told("f:4:5")]
        );
        assert_eq!(
            of("for k in payload['arguments']:\n    pass\nc = payload['arguments']\nx = [k for k in c]\n"),
            [told("f:1:10"), told("f:4:17")]
        );
        for fine in [
            "json.decode(payload['arguments'])['x']",
            "'rm' in payload['arguments']",
            "payload['args']['x']",
            "[line for line in payload['arguments'].splitlines()]",
            "c = payload['arguments'].strip()\nc.get('x')",
        ] {
            assert_eq!(of(fine), [""; 0], "{fine}");
        }
    }
}
