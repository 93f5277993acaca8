//! Names that no policy opens: folders that hold the harness's own state, and files that hold secrets.
//!
//! Policies add to these with `protect`; nothing takes away from them. Names are compared in any letter case and
//! without the dots and spaces at their end, because some file systems open the same file under all of these. A name
//! counts wherever it is in a path: what is in a folder called `.env` is as closed as a file called so. Only whole
//! names count: `x.pem.bak` is an ordinary file.

use std::fmt;

use super::{Access, PathPattern, WorkspacePath};

/// The rule that a path runs against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// In a protected folder, or the folder itself. Holds the folder's name.
    Folder(&'static str),
    /// A file that says what may run. Holds its name.
    File(&'static str),
    /// A name that promises secrets. Holds the pattern it fits.
    Sensitive(&'static str),
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(name) => write!(f, "the folder `{name}/` is protected"),
            Self::File(name) => write!(f, "the file `{name}` is protected"),
            Self::Sensitive(pattern) => write!(f, "`{pattern}` is a sensitive name"),
        }
    }
}

/// Closed to reading and writing, at the top of the workspace.
const CLOSED_AT_TOP: &str = "agents";
/// Closed to writing anywhere: the host's own artifacts, of a project further down too; and git's, whose configuration
/// and hooks make it run programs.
const READ_ONLY: [&str; 2] = [".harness", ".git"];

/// Files closed to writing anywhere: the lock of the artifacts, and the policy of a project without `.harness/harness.md`.
const FILES: [&str; 3] = ["harness.lock", "harness.md", "harness.yaml"];

/// The same of names that someone may take for those of a policy. None of them is read, but a project with one that holds
/// a policy does not start.
pub const LOOK_LIKE_POLICIES: [&str; 4] = ["harness.yml", "harness.markdown", ".harness.md", ".harness.yaml"];

/// Names that nobody creates at the top of the workspace: whoever did would write the project's own policy, artifacts or
/// lock, or a repository whose configuration the operator's git runs. Scripts and commands share this list.
pub const CLOSED_AT_ROOT: [&str; 5] = [".harness", ".git", "harness.lock", "harness.md", "harness.yaml"];

/// Closed to reading too, wherever they are below [`HOME`]: the record of what other calls did, and those of sessions.
const RECORDS: [&str; 2] = ["audit", "sessions"];
/// Their names in a refusal.
const RECORD_FOLDERS: [&str; 2] = [".harness/audit", ".harness/sessions"];
/// The folder of the host's own files.
const HOME: &str = ".harness";

/// Sensitive names, as patterns with one `*` at the most, at their beginning or end.
pub const SENSITIVE: [&str; 16] = [
    ".env*",
    "*.env",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.jks",
    "*.keystore",
    "*.kdbx",
    "id_*",
    "authorized_keys",
    ".netrc",
    ".npmrc",
    ".git-credentials",
    ".pgpass",
    "harvey.yaml",
];

/// The built-in rule against doing this with a path, if there is one.
pub fn rule_against(path: &WorkspacePath, access: Access) -> Option<Rule> {
    let names: Vec<String> = path.parts().iter().map(|part| fold(part)).collect();
    let top = names.first().map(String::as_str);
    if top == Some(CLOSED_AT_TOP) {
        return Some(Rule::Folder(CLOSED_AT_TOP));
    }
    let inside = names.iter().zip(names.iter().skip(1)).filter(|(home, _)| *home == HOME).map(|(_, name)| name);
    if let Some(record) = inside.filter_map(|name| RECORDS.iter().position(|record| record == name)).next() {
        return RECORD_FOLDERS.get(record).map(|folder| Rule::Folder(folder));
    }
    if access == Access::Write
        && let Some(folder) = READ_ONLY.into_iter().find(|folder| names.iter().any(|name| name == folder))
    {
        return Some(Rule::Folder(folder));
    }
    if access == Access::Write
        && let Some(file) =
            FILES.into_iter().chain(LOOK_LIKE_POLICIES).find(|file| names.iter().any(|name| name == file))
    {
        return Some(Rule::File(file));
    }
    names.iter().find_map(|name| sensitive(name)).map(Rule::Sensitive)
}

/// Whether a name could make a rule apply to a path that it is part of: quick, and true too often rather than too seldom.
pub fn could_be_protected(name: &str) -> bool {
    let bytes = name.as_bytes();
    let ordinary_end = bytes.last().is_some_and(u8::is_ascii_alphanumeric);
    if !name.is_ascii() || !ordinary_end || bytes.first() == Some(&b'.') {
        return true;
    }
    let begins = |with: &str| bytes.get(..with.len()).is_some_and(|start| start.eq_ignore_ascii_case(with.as_bytes()));
    let ends = |with: &str| {
        let start = bytes.len().checked_sub(with.len());
        start.and_then(|start| bytes.get(start..)).is_some_and(|end| end.eq_ignore_ascii_case(with.as_bytes()))
    };
    let whole = std::iter::once(CLOSED_AT_TOP).chain(FILES).chain(LOOK_LIKE_POLICIES).chain(READ_ONLY).chain(RECORDS);
    whole.into_iter().any(|name| name.len() == bytes.len() && begins(name))
        || SENSITIVE.into_iter().any(|pattern| match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
            (Some(end), _) => ends(end),
            (_, Some(start)) => begins(start),
            (None, None) => begins(pattern) && bytes.len() == pattern.len(),
        })
}

/// Whether a file or folder of this name is someone's secret, wherever it is.
pub fn is_sensitive(name: &str) -> bool {
    could_be_protected(name) && sensitive(&fold(name)).is_some()
}

/// Whether an entry at the top of the workspace has one of [`CLOSED_AT_ROOT`] for a name, in any spelling.
pub fn is_closed_at_root(name: &str) -> bool {
    could_be_protected(name) && CLOSED_AT_ROOT.contains(&fold(name).as_str())
}

/// The same rules as patterns that forbid, for reasoning about all paths at once. [`rule_against`] is what decides.
pub fn patterns(access: Access) -> Vec<PathPattern> {
    let sensitive = SENSITIVE.iter().map(|name| format!("**/{name}"));
    let read_only = READ_ONLY.iter().chain(&FILES).filter(|_| access == Access::Write).map(|name| format!("**/{name}"));
    let records = RECORD_FOLDERS.iter().map(|folder| format!("**/{folder}"));
    let all = [CLOSED_AT_TOP.to_owned()].into_iter().chain(records).chain(read_only).chain(sensitive);
    all.filter_map(|text| PathPattern::parse(&text).ok()).collect()
}

/// Whether a wildcard passes over a name: `**` is not meant to bring up the insides of a repository. A pattern that
/// spells the name out still finds it.
pub fn is_skipped_by_wildcards(name: &str) -> bool {
    READ_ONLY.contains(&fold(name).as_str())
}

/// One spelling for all the spellings under which a file system may open the same file: letter case (through upper
/// case, so that `ſ` and `ı` become `s` and `i`), characters without a width, dots and spaces at the end.
pub fn fold(name: &str) -> String {
    let mut folded = fold_case(name);
    folded.retain(|c| !is_without_width(c));
    folded.truncate(folded.trim_end_matches(trims).len());
    folded
}

/// Characters that are not seen, and that some file systems leave out of names.
pub fn is_without_width(c: char) -> bool {
    matches!(c, '\u{200B}'..='\u{200D}' | '\u{2060}'..='\u{2064}' | '\u{206A}'..='\u{206F}' | '\u{FEFF}')
}

/// Characters that some file systems leave out at the end of names.
pub fn trims(c: char) -> bool {
    matches!(c, '.' | ' ')
}

/// Letter case alone.
pub fn fold_case(text: &str) -> String {
    text.chars().flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}

/// The sensitive pattern that a folded name fits.
fn sensitive(name: &str) -> Option<&'static str> {
    SENSITIVE.into_iter().find(|pattern| match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(end), _) => name.ends_with(end),
        (_, Some(start)) => name.starts_with(start),
        (None, None) => name == *pattern,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str, access: Access) -> Option<Rule> {
        rule_against(&WorkspacePath::parse(text, "/w").unwrap(), access)
    }

    #[test]
    fn protected_folders() {
        for text in ["agents", "agents/x/y", "AGENTS/x", "Agents. /x", "agent\u{17f}/x", "agent\u{200d}s"] {
            assert_eq!(rule(text, Access::Read), Some(Rule::Folder("agents")), "{text}");
            assert_eq!(rule(text, Access::Write), Some(Rule::Folder("agents")), "{text}");
        }
        for text in [".harness", ".harness/tools/a.md", ".Harness/a", "sub/.harness", "a/b/.harness/x"] {
            assert_eq!(rule(text, Access::Write), Some(Rule::Folder(".harness")), "{text}");
            assert_eq!(rule(text, Access::Read), None, "{text}");
        }
        for text in [".git", ".git/config", "sub/.GIT/hooks/x", "a/.git"] {
            assert_eq!(rule(text, Access::Write), Some(Rule::Folder(".git")), "{text}");
            assert_eq!(rule(text, Access::Read), None, "{text}");
        }
        for (text, folder) in [
            (".harness/audit", ".harness/audit"),
            (".harness/sessions", ".harness/sessions"),
            ("sub/.Harness/SESSIONS. /x.jsonl", ".harness/sessions"),
        ] {
            assert_eq!(rule(text, Access::Read), Some(Rule::Folder(folder)), "{text}");
            assert_eq!(rule(text, Access::Write), Some(Rule::Folder(folder)), "{text}");
        }
        for text in ["sessions", "sessions/.harness/x", ".harness/x/sessions"] {
            assert_eq!(rule(text, Access::Read), None, "{text}");
        }
        for (text, file) in [
            ("harness.lock", "harness.lock"),
            ("harness.md", "harness.md"),
            ("HARNESS.YAML", "harness.yaml"),
            ("sub/Harness.md. ", "harness.md"),
            ("a/harness.lock/b", "harness.lock"),
            ("Harness.yml", "harness.yml"),
            ("harness.MARKDOWN", "harness.markdown"),
            (".harness.md", ".harness.md"),
            ("a/.Harness.yaml", ".harness.yaml"),
        ] {
            assert_eq!(rule(text, Access::Write), Some(Rule::File(file)), "{text}");
            assert_eq!(rule(text, Access::Read), None, "{text}");
        }
        for text in [
            "sub/agents",
            "agents.md",
            "harness.mdx",
            "harness",
            "harness.json",
            "my-harness.md",
            "agents2",
            ".harness2",
            ".github",
            ".gitignore",
            "git",
        ] {
            assert_eq!(rule(text, Access::Write), None, "{text}");
        }
    }

    /// Who could create one would govern the project.
    #[test]
    fn what_is_closed_at_the_root_is_never_written() {
        for name in CLOSED_AT_ROOT {
            assert!(rule(name, Access::Write).is_some(), "{name}");
            assert!(is_closed_at_root(name) && is_closed_at_root(&format!("{}.", name.to_uppercase())), "{name}");
        }
        for name in READ_ONLY.into_iter().chain(FILES) {
            assert!(CLOSED_AT_ROOT.contains(&name), "{name}");
        }
        for name in ["agents", "harness", "harness.lock2", ".github", "docs"] {
            assert!(!is_closed_at_root(name), "{name}");
        }
    }

    #[test]
    fn sensitive_names() {
        let table = [
            (".env", ".env*"),
            (".ENV.local", ".env*"),
            (".env/inside", ".env*"),
            (".env. .", ".env*"),
            ("prod.env", "*.env"),
            ("a/b/server.PEM", "*.pem"),
            ("x.key", "*.key"),
            ("x.\u{212a}ey", "*.key"),
            ("x.p12", "*.p12"),
            ("x.pfx", "*.pfx"),
            ("x.jks", "*.jks"),
            ("x.keystore", "*.keystore"),
            ("x.kdbx", "*.kdbx"),
            (".ssh/id_rsa", "id_*"),
            ("id_ed25519.pub", "id_*"),
            ("authorized_keys", "authorized_keys"),
            (".netrc", ".netrc"),
            (".npmrc", ".npmrc"),
            (".git-credentials", ".git-credentials"),
            (".pgpass", ".pgpass"),
            ("conf/harvey.yaml", "harvey.yaml"),
        ];
        for (text, pattern) in table {
            assert_eq!(rule(text, Access::Read), Some(Rule::Sensitive(pattern)), "{text}");
            assert_eq!(rule(text, Access::Write), Some(Rule::Sensitive(pattern)), "{text}");
        }
        let listed: std::collections::BTreeSet<_> = table.into_iter().map(|(_, pattern)| pattern).collect();
        assert_eq!(listed, SENSITIVE.into_iter().collect(), "each pattern is tried");
        for text in ["x.pem.bak", "environment", "keys", "monkey", "idx", "grid_a", "config.yaml", "npmrc", ".netrc2"] {
            assert_eq!(rule(text, Access::Write), None, "{text}");
        }
    }

    #[test]
    fn the_quick_look_overlooks_no_rule() {
        let names = [
            "agents",
            "AGENTS",
            "audit",
            "Sessions",
            ".harness",
            ".Git",
            "Agents. ",
            "agent\u{17f}",
            "x.\u{212a}ey",
            "id_",
        ];
        let sensitive = SENSITIVE.into_iter().flat_map(|pattern| {
            let name = pattern.replace('*', "some");
            [name.to_uppercase(), format!("{name}."), pattern.replace('*', ""), name]
        });
        for name in names.into_iter().map(str::to_owned).chain(sensitive) {
            assert!(could_be_protected(&name), "{name}");
        }
        for name in ["main.rs", "a", "README.md", "keys", "environment", "node_modules", "index.d.ts"] {
            assert!(!could_be_protected(name), "{name}");
        }
    }
}
