//! Tools and hooks that cannot be called: what their scripts are entered by, and their names.

use super::{literal, place};
use crate::diagnostic::{Diagnostic, Position};
use crate::hook::Hook;
use crate::script::Script;
use crate::tool::Tool;
use harness_policy::text::quoted;

/// The longest name that models' services take for a tool.
const MAX_NAME: usize = 64;

/// What keeps a tool from being called: its name, or a `run` that does not take what it is called with.
pub fn tool(tool: &Tool) -> Vec<Diagnostic> {
    let mut found = Vec::new();
    if !tool.name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-')) || tool.name.len() > MAX_NAME {
        let warning =
            Diagnostic::warning(format!("services of models reject a tool with the name {}", quoted(&tool.name)));
        let hint = format!("letters of ASCII, digits, `_` and `-`, at most {MAX_NAME} of them");
        found.push(warning.at(tool.source.clone()).hint(hint));
    }
    for (script, argument) in [(&tool.script, "args"), (&tool.verify, "result")] {
        let Some(script) = script else { continue };
        found.extend(entry(script, &tool.source, "run", &[argument]));
        found.extend(super::builtins::missing(script, &tool.source, false, super::MOST));
        found.extend(super::emits::refused(script, &tool.source, super::MOST));
    }
    found
}

/// A tool of a project or a bundle without a description. One that an agent has for itself is used by the prompt which
/// is in the same file.
pub fn described(tool: &Tool) -> Option<Diagnostic> {
    if tool.description.trim() != tool.name {
        return None;
    }
    let warning = Diagnostic::warning(format!("tool {} has no description", quoted(&tool.name)));
    let hint = "write it below the front matter, or as `description:` in a list: a model chooses tools by it";
    Some(warning.at(tool.source.clone()).hint(hint))
}

/// A `handle` that does not take what it is called with, or that is not there.
pub fn handler(hook: &Hook) -> Option<Diagnostic> {
    entry(hook.script.as_ref()?, &hook.source, "handle", &["event", "payload"])
}

/// The function that a script is entered by, where it cannot be called with these arguments.
fn entry(script: &Script, source: &Position, name: &str, arguments: &[&str]) -> Option<Diagnostic> {
    let form = format!("write `def {name}({}):`", arguments.join(", "));
    let enters = |line: &str| {
        let named = line.strip_prefix("def ").map_or(line, str::trim_start).strip_prefix(name);
        named.is_some_and(|rest| rest.trim_start().starts_with(['(', '=']))
    };
    let Some((line, _)) = (1_u32..).zip(script.text.lines()).find(|(_, line)| enters(line)) else {
        // A tool's is looked for when its script is loaded; and what has the name in another way may be it.
        if name != "handle" || script.text.contains(name) {
            return None;
        }
        let message = format!("the script has no `{name}`, and fails each time");
        return Some(Diagnostic::warning(message).at(source.clone()).hint(form));
    };
    let from =
        script.text.split_inclusive('\n').take(usize::try_from(line).ok()?.saturating_sub(1)).map(str::len).sum();
    let taken = parameters(script.text.get::<std::ops::RangeFrom<usize>>(from..)?)?;
    if taken.contains(&arguments.len()) {
        return None;
    }
    let count = match arguments.len() {
        1 => "one argument".to_owned(),
        many => format!("{many} arguments"),
    };
    let message = format!("`{name}` is called with {count} ({}), which it does not take", arguments.join(", "));
    Some(
        Diagnostic::warning(message)
            .at(place(source, script, line, 1, "def ".len().saturating_add(name.len())))
            .hint(form),
    )
}

/// How many arguments by position the function at the beginning of a text takes. None where that is not to be seen.
fn parameters(text: &str) -> Option<std::ops::RangeInclusive<usize>> {
    let (_, rest) = text.strip_prefix("def ")?.split_once('(')?;
    let (mut depth, mut at, mut list) = (0_u32, 0, vec![String::new()]);
    while let Some(next) = rest.get(at..)?.chars().next() {
        let here = rest.get(at..)?;
        let length = match (next, literal(here)) {
            ('#', _) => here.find('\n')?,
            (_, Some(text)) => text.len().saturating_add(2),
            _ => next.len_utf8(),
        };
        at = at.saturating_add(length);
        match next {
            ')' if depth == 0 => break,
            ',' if depth == 0 => list.push(String::new()),
            '#' => {}
            _ => {
                depth = match next {
                    '(' | '[' | '{' => depth.saturating_add(1),
                    ')' | ']' | '}' => depth.saturating_sub(1),
                    _ => depth,
                };
                list.last_mut()?.push(next);
            }
        }
    }
    let list: Vec<&str> = list.iter().map(|one| one.trim()).filter(|one| !one.is_empty() && *one != "/").collect();
    let by_position: Vec<&str> = list.iter().copied().take_while(|one| !one.starts_with('*')).collect();
    let by_name = || list.iter().skip(by_position.len()).filter(|one| !one.starts_with('*'));
    if by_name().any(|one| !one.contains('=')) {
        // It has to be named, which nothing here does.
        return Some(usize::MAX..=usize::MAX);
    }
    let least = by_position.iter().filter(|one| !one.contains('=')).count();
    let any = list.iter().any(|one| one.starts_with('*') && !one.starts_with("**") && one.len() > 1);
    Some(least..=if any { usize::MAX } else { by_position.len() })
}

#[cfg(test)]
mod tests {
    use super::super::tests::{hook, shown};
    use super::*;

    #[test]
    fn what_a_script_is_entered_by() {
        let of = |name: &str, script: &str| {
            let text = format!("---\nscript: |\n  x = 1\n  {script}\n---\nWhat it does.\n");
            shown(&tool(&Tool::parse(".harness/tools/t.md", name, &text).0.unwrap()))
        };
        let not_taken = "`run` is called with one argument (args), which it does not take (write `def run(args):`)";
        for good in [
            "def run(args):",
            "def run(a, b=1):",
            "def run(*args):",
            "def run(args, *, b=f(1, ')')):",
            "def run(args,  # the first, (all\n      ):",
            "def run(a = {1: (2, 3)}):",
            "def run(a, /):",
            "def run(a, **more):",
            "run = f",
            "def other():",
        ] {
            assert_eq!(of("t", good), [""; 0], "{good}");
        }
        for bad in
            ["def run():", "def run(a, b):", "def run(*, args):", "def run(**args):", "def run(a=\"(\", b=1, *, c):"]
        {
            assert_eq!(of("t", bad), [format!(".harness/tools/t.md:4:3 {not_taken}")], "{bad}");
        }
        let name = "letters of ASCII, digits, `_` and `-`, at most 64 of them";
        for wrong in ["word count", "wörter", "a.b"] {
            let told =
                format!(".harness/tools/t.md:1:1 services of models reject a tool with the name `{wrong}` ({name})");
            assert_eq!(of(wrong, "def run(args):"), [told]);
        }
        assert_eq!(of(&"a".repeat(65), "run = f").len(), 1);
        assert_eq!(of(&"a".repeat(64), "run = f").len(), 0);

        let of = |script: &str| {
            let text = format!("---\nevent: tool.pre\nscript: |\n  {script}\n---\n");
            shown(&handler(&hook(&text)).into_iter().collect::<Vec<_>>())
        };
        let form = "(write `def handle(event, payload):`)";
        assert_eq!(of("def handle(event, payload):"), [""; 0]);
        assert_eq!(of("if True: handle = 1"), [""; 0]);
        let less = "`handle` is called with 2 arguments (event, payload), which it does not take";
        assert_eq!(of("def handle(payload):"), [format!(".harness/hooks/h.md:4:3 {less} {form}")]);
        let none = "the script has no `handle`, and fails each time";
        assert_eq!(of("def hande(event, payload):"), [format!(".harness/hooks/h.md:1:1 {none} {form}")]);
    }
}
