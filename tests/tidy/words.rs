//! Words that make a reader decode a sentence, kept out of everything that users read: README and docs, help and schemas
//! as the binary prints them, and the texts of the host's errors and hints.

use std::process::Command;

use crate::{files, root};

/// Each with the words to use instead.
const WORST: [(&str, &str); 26] = [
    ("told", "prints, shows, reports, logs"),
    ("tell", "print, show, report, log"),
    ("tells", "prints, shows, reports, logs"),
    ("whoever", "the caller, everyone who"),
    ("somebody", "a person, another process"),
    ("somebody else's", "third-party"),
    ("has no effect", "is ignored"),
    ("have no effect", "are ignored"),
    ("not waited for", "in the background"),
    ("goes on", "continues, resumes"),
    ("go on", "continue, resume"),
    ("gone on", "continued, resumed"),
    ("in the place of", "instead of"),
    ("stands in", "is in"),
    ("gives up", "drops, cancels"),
    ("give up", "drop, cancel"),
    ("given up", "canceled"),
    ("machine's policy", "host policy"),
    ("carried out", "executed"),
    ("comes to no", "does not"),
    ("have to do with", "concern"),
    ("has to do with", "concerns"),
    ("looked at", "checked, read"),
    ("set to work", "delegated to, started"),
    ("lets pass", "allows"),
    ("is to be confirmed", "needs confirmation"),
];

/// The worst words in a text, in lower case and with one space between words.
fn worst(text: &str) -> Vec<String> {
    let text = text.to_lowercase().split_whitespace().collect::<Vec<_>>().join(" ");
    let is_word = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || c == '_');
    let has = |word: &str| {
        text.match_indices(word).any(|(at, _)| {
            let (before, after) = (text[..at].chars().next_back(), text[at + word.len()..].chars().next());
            !is_word(before) && !is_word(after)
        })
    };
    WORST.iter().filter(|(word, _)| has(word)).map(|(word, use_)| format!("`{word}` (write: {use_})")).collect()
}

/// Prose of a page: what is in backticks or in a block of code is quoted.
fn prose(page: &str) -> Vec<(usize, String)> {
    let mut in_block = false;
    let mut found: Vec<(usize, String)> = Vec::new();
    for (n, line) in page.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if !in_block {
            found.push((n + 1, line.split('`').step_by(2).collect::<Vec<_>>().join("_")));
        }
    }
    found
}

#[test]
fn pages_are_in_plain_words() {
    let top = ["README.md", "CONTRIBUTING.md", "SECURITY.md"].map(|name| root().join(name));
    let mut wrong = Vec::new();
    for path in top.into_iter().chain(files("docs", "md")) {
        for (line, text) in prose(&std::fs::read_to_string(&path).unwrap()) {
            wrong.extend(worst(&text).into_iter().map(|word| format!("{}:{line}: {word}", path.display())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The help of every command, found from that of the command above it, and the schema of every kind of artifact.
#[test]
fn help_and_schemas_are_in_plain_words() {
    let printed = |arguments: &[String]| {
        let output = Command::new(env!("CARGO_BIN_EXE_harness")).args(arguments).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let mut wrong = Vec::new();
    let mut seen = 0;
    let mut waiting = vec![Vec::<String>::new()];
    while let Some(command) = waiting.pop() {
        let help = printed(&[command.clone(), vec!["--help".to_owned()]].concat());
        wrong.extend(worst(&help).into_iter().map(|word| format!("{} --help: {word}", command.join(" "))));
        let below = help.split("\nCommands:\n").nth(1).unwrap_or_default().split("\n\n").next().unwrap_or_default();
        let names = below.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
        let names = names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
        waiting.extend(names.map(|name| [command.clone(), vec![name.to_owned()]].concat()));
        seen += 1;
    }
    assert!(seen > 25, "only {seen} commands found");
    for kind in ["tool", "hook", "agent", "skill", "bundle", "plugin", "harness"] {
        let schema: serde_json::Value = serde_json::from_str(&printed(&["schema".into(), kind.into()])).unwrap();
        let mut waiting = vec![&schema];
        while let Some(value) = waiting.pop() {
            if let Some(text) = value.get("description").and_then(serde_json::Value::as_str) {
                wrong.extend(worst(text).into_iter().map(|word| format!("schema {kind}: {word}: {text}")));
            }
            waiting.extend(value.as_object().into_iter().flat_map(|object| object.values()));
            waiting.extend(value.as_array().into_iter().flatten());
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// String literals of a source file with their lines, without those of its tests.
fn literals(source: &str) -> Vec<(usize, String)> {
    let code = source.split("#[cfg(test)]\nmod ").next().unwrap();
    let mut found = Vec::new();
    let (mut rest, mut line) = (code, 1);
    while let Some(first) = rest.chars().next() {
        let taken = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("r#\"") {
            let end = rest.find("\"#").map_or(rest.len(), |end| end + 2);
            found.push((line, rest[3..end - 2].to_owned()));
            end
        } else if first == '"' {
            let mut escaped = false;
            let end = rest[1..].find(|c: char| {
                let ends = c == '"' && !escaped;
                escaped = c == '\\' && !escaped;
                ends
            });
            let end = end.map_or(rest.len(), |end| end + 1);
            found.push((line, rest[1..end].replace("\\\n", "\n").replace("\\n", "\n")));
            end + 1
        } else if rest.starts_with("'\"'") || rest.starts_with("'\\") {
            // A quote as a character, and escaped characters.
            rest[2..].find('\'').map_or(1, |end| end + 3)
        } else {
            first.len_utf8()
        };
        let taken = taken.min(rest.len());
        line += rest[..taken].matches('\n').count();
        rest = &rest[taken..];
    }
    found
}

#[test]
fn messages_are_in_plain_words() {
    let mut wrong = Vec::new();
    for path in files("host", "rs") {
        let name = path.strip_prefix(root()).unwrap().to_str().unwrap();
        let not_in_the_binary = ["tests", "host/testing", "host/benches", "host/registry/src/trees.rs"];
        let is_test = not_in_the_binary.iter().any(|part| name.contains(part));
        if is_test || !name.contains("/src/") {
            continue;
        }
        // A message is more than one word; the rest are keys.
        let literals = literals(&std::fs::read_to_string(&path).unwrap());
        for (line, text) in literals.into_iter().filter(|(_, text)| text.contains(' ')) {
            wrong.extend(worst(&text).into_iter().map(|word| format!("{name}:{line}: {word}: {text}")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The test finds what it is for.
#[test]
fn the_worst_words_are_found() {
    assert_eq!(worst("Errors are Told\n  twice, untold"), ["`told` (write: prints, shows, reports, logs)"]);
    assert_eq!(worst("the call goes\n  on").len(), 1);
    assert!(worst("a teller, foretold").is_empty());
    let source = "let a = \"one \\\"two\\\"\"; // \"no\"\nlet b = '\"'; let c = r#\"three \"x\"\"#;\n#[cfg(test)]\nmod tests { \"four\" }";
    let texts: Vec<_> = literals(source);
    assert_eq!(texts, [(1, "one \\\"two\\\"".to_owned()), (2, "three \"x\"".to_owned())]);
    assert_eq!(prose("a `told` b\n```\ntold\n```\nc"), [(1, "a _ b".to_owned()), (5, "c".to_owned())]);
}
