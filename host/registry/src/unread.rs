//! Files that nobody reads. One that holds an artifact or a policy is an error: its author believes that it guards.

use harness_artifact::yaml;

/// Keys that make a text an artifact, or a policy.
const TELLING: [&str; 8] =
    ["event", "script", "network", "sandbox", "tools_policy", "meta", "delegation", "artifact_sources"];
/// Bytes of a file that is looked at.
pub(super) const LOOKED_AT: usize = 64 << 10;
/// Files and folders that are looked at below one folder that is not read.
pub(super) const MOST: usize = 500;
/// Folders in folders that are looked at.
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

/// Whether somebody probably takes a file of this name for an artifact.
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
    let lines = lines.take_while(|line| is_yaml || line.trim_end() != "---");
    let key = |line: &str| {
        let (key, _) = line.split_once(':')?;
        let key = key.trim_end().trim_matches(['"', '\'']);
        TELLING.into_iter().find(|telling| *telling == key)
    };
    let written = if is_yaml { text.lines().find_map(key) } else { lines.clone().find_map(key) };
    // In braces the whole mapping may be on one line.
    let in_braces = || {
        let of = if is_yaml { text.to_owned() } else { lines.collect::<Vec<_>>().join("\n") };
        let (node, _) = of.trim_start().starts_with('{').then(|| yaml::parse(&of, 1))?;
        match node?.value {
            yaml::Value::Map(entries) => {
                TELLING.into_iter().find(|telling| entries.iter().any(|(key, _)| key.text == *telling))
            }
            _ => None,
        }
    };
    written.or_else(in_braces)
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
