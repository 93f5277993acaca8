//! Files that nobody reads. One that holds an artifact or a policy is an error: its author believes that it guards.

use harness_artifact::yaml;

/// Keys that make a text an artifact, or a policy.
const TELLING: [&str; 10] = [
    "event",
    "script",
    "network",
    "sandbox",
    "tools_policy",
    "meta",
    "delegation",
    "artifact_sources",
    "mcp",
    "exit_policy",
];
/// Keys of lists that make a text a bundle, where an entry has one of [`ENTRY`].
const LISTS: [&str; 3] = ["tools", "hooks", "agents"];
/// Keys of an entry that is executed.
const ENTRY: [&str; 2] = ["event", "script"];
/// Bytes of a file that is checked.
pub(super) const LOOKED_AT: usize = 64 << 10;
/// Files and folders that are checked below one folder that is not read.
pub(super) const MOST: usize = 500;
/// Folders in folders that are checked.
pub(super) const DEEPEST: usize = 4;

/// Folders of other programs that share this one.
pub(super) const FOREIGN: [&str; 2] = ["context", "extensions"];
/// Where other programs have what `harness.md` says here.
pub(super) const IDENTITY: &str = "identity.md";

/// Where what is in such a folder belongs.
pub(super) fn instead(folder: &str) -> Option<&'static str> {
    match folder {
        "context" => Some(
            "prose that always counts belongs in `harness.md` or in a bundle under `builtins/`, other prose in `skills/`",
        ),
        "extensions" => Some("tools and hooks belong in `plugins/`"),
        _ => None,
    }
}

/// Whether a file of this name is for people: it is no artifact, whatever its ending.
pub(super) fn is_readme(name: &str) -> bool {
    name.split('.').next().is_some_and(|stem| stem.eq_ignore_ascii_case("readme"))
}

/// Whether someone probably takes a file of this name for an artifact.
pub(super) fn is_meant_to_be_read(name: &str) -> bool {
    let ending = name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    ending.is_some_and(|ending| matches!(ending.as_str(), "md" | "markdown" | "mdx" | "star"))
}

/// Whether a file of this name may hold text that was written for this program: not what is plainly data or an image.
pub(super) fn may_hold_one(name: &str) -> bool {
    let name = name.trim_end_matches('~').to_ascii_lowercase();
    match name.rsplit_once('.') {
        None => true,
        Some((stem, ending)) => {
            matches!(ending, "md" | "markdown" | "mdx" | "star" | "yaml" | "yml" | "txt")
                || stem.contains(".md")
                || matches!(ending, "bak" | "old" | "orig" | "off" | "disabled" | "save" | "new" | "tmp")
        }
    }
}

/// The first key of a text by which it is an artifact or a policy: of its front matter, or of all of it where the name says
/// that it is YAML.
pub(super) fn telling_key(name: &str, text: &str) -> Option<&'static str> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).trim_start();
    let is_yaml = matches!(name.rsplit_once('.'), Some((_, "yaml" | "yml")));
    let mut lines = text.lines();
    if !is_yaml && lines.next().map(str::trim_end) != Some("---") {
        return None;
    }
    let lines: Vec<&str> =
        if is_yaml { text.lines().collect() } else { lines.take_while(|line| line.trim_end() != "---").collect() };
    let key = |line: &str, keys: &'static [&'static str]| {
        let (key, _) = line.split_once(':')?;
        let key = key.trim_end().trim_matches(['"', '\'']);
        keys.iter().copied().find(|telling| *telling == key)
    };
    // A list of tools or hooks is a bundle's where an entry is executed; other programs have lists of these names too.
    let in_list = || {
        let entry = |line: &&str| key(line.trim_start_matches([' ', '\t', '-', '{']), &ENTRY).is_some();
        let list = lines.iter().find_map(|line| key(line, &LISTS))?;
        lines.iter().any(entry).then_some(list)
    };
    // What is no YAML was meant as some, too.
    lines.iter().find_map(|line| key(line, &TELLING)).or_else(in_list).or_else(|| {
        let text = if is_yaml { text.to_owned() } else { lines.join("\n") };
        in_tree(yaml::parse(&text, 1).0?)
    })
}

/// The same, however the text is written: mappings and lists may be in braces, on one line.
fn in_tree(node: yaml::Node) -> Option<&'static str> {
    let yaml::Value::Map(entries) = node.value else { return None };
    let has = |entries: &[(yaml::Key, yaml::Node)], name: &str| entries.iter().any(|(key, _)| key.text == name);
    let is_list = |list: &str| {
        let found = entries.iter().find(|(key, _)| key.text == list).map(|(_, node)| &node.value);
        let Some(yaml::Value::Seq(all)) = found else { return false };
        all.iter().any(|one| match &one.value {
            yaml::Value::Map(entry) => ENTRY.iter().any(|name| has(entry, name)),
            _ => false,
        })
    };
    let telling = TELLING.into_iter().find(|telling| has(&entries, telling));
    telling.or_else(|| LISTS.into_iter().find(|list| is_list(list)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_holds_an_artifact() {
        for (name, text, key) in [
            ("guard.md", "---\nevent: tool.pre\n---\n", Some("event")),
            ("guard.md.txt", "\u{feff}---\r\npriority: 1\r\n\"script\": |\r\n  x\r\n---\r\n", Some("script")),
            ("guard", "---\n{ event: tool.pre }\n---\n", Some("event")),
            ("policy.yaml", "sandbox: {}\n", Some("sandbox")),
            ("policy.yml", "{network: {}}", Some("network")),
            ("notes.md", "# Notes\nevent: none\n", None),
            ("notes.md", "---\ntitle: x\n---\nevent: none\n", None),
            ("notes.md", "---\ntitle: |\n  event: x\n---\n", None),
            ("empty", "", None),
            ("plugin.md", "---\nname: x\nhooks:\n  - name: guard\n    event: tool.pre\n---\n", Some("hooks")),
            ("guards.yaml", "\"hooks\":\n- {event: tool.pre}\n", Some("hooks")),
            ("tools.md", "---\ntools:\n- script: |\n    x\n---\n", Some("tools")),
            ("mkdocs.yml", "site_name: x\nhooks:\n  - my_hooks.py\n", None),
            ("flow.md", "---\nhooks: [{name: a, event: tool.pre, script: x}]\n---\n", Some("hooks")),
            ("flow.md", "---\n\"hooks\":\n  [{name: a,\n    \"event\": tool.pre}]\n---\n", Some("hooks")),
            ("flow.md", "---\nhooks: [a, b]\n---\n", None),
            ("servers.md", "---\nmcp: { servers: {} }\n---\n", Some("mcp")),
            ("exit.yaml", "exit_policy: { mode: done }\n", Some("exit_policy")),
            ("agent.md", "---\nname: x\ntools: [Read, Bash]\n---\nevent: none\n", None),
        ] {
            assert_eq!(telling_key(name, text), key, "{name}");
        }
    }

    #[test]
    fn names() {
        for name in ["guard", "guard.md.txt", "guard.md~", "guard.MD", "a.md.bak", "x.yml", "guard.off"] {
            assert!(may_hold_one(name), "{name}");
        }
        for name in ["data.json", "logo.png", "words.csv"] {
            assert!(!may_hold_one(name), "{name}");
        }
        assert!(is_readme("README.md") && is_readme("readme") && !is_readme("readme_tool.md"));
    }
}
