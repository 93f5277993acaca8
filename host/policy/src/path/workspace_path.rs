//! A path inside the workspace, parsed from what a script sent.

use std::fmt;

use crate::refusal::Refusal;

/// Longest path of a script, in bytes: what Linux takes (`PATH_MAX`).
pub const MAX_PATH_BYTES: usize = 4096;
/// Longest part of a path, in bytes: what Linux takes (`NAME_MAX`).
pub const MAX_PART_BYTES: usize = 255;
/// Most parts of a path. Deeper trees exist only to exhaust whoever walks them.
pub const MAX_PARTS: usize = 256;

/// A path relative to the workspace: its parts, none of them empty, `.` or `..`, none with a `/` or a control
/// character in it. No parts: the workspace itself.
///
/// It says nothing of links: `a/b` may still lead elsewhere when `a` is a link.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkspacePath {
    parts: Vec<String>,
}

/// Why a text names nothing in the workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathError {
    /// Not a path at all. Holds what is wrong with it.
    Invalid(String),
    /// A path to outside the workspace.
    Escapes(Refusal),
}

impl WorkspacePath {
    /// The workspace itself.
    pub fn root() -> Self {
        Self { parts: Vec::new() }
    }

    /// Reads a path of a script. `workspace` is the absolute path of the workspace, for absolute paths.
    ///
    /// `/` separates; a doubled or trailing one and `.` mean nothing. `..` takes away the part before it, in the
    /// text, so `a/../b` is `b` even where `a` is a link or is not there. A backslash is a character like any other.
    ///
    /// # Errors
    ///
    /// [`PathError::Invalid`] for an empty text, one over [`MAX_PATH_BYTES`], [`MAX_PART_BYTES`] or [`MAX_PARTS`],
    /// and one with a control character (C0, DEL, C1) or one that changes the direction of text. The message does
    /// not repeat the text then. [`PathError::Escapes`] for a path that leaves the workspace.
    pub fn parse(text: &str, workspace: &str) -> Result<Self, PathError> {
        if text.is_empty() {
            return Err(invalid("a path may not be empty"));
        }
        if text.len() > MAX_PATH_BYTES {
            return Err(invalid(format!("a path may have at most {MAX_PATH_BYTES} bytes")));
        }
        let escapes = || PathError::Escapes(Refusal::always(format!("`{text}` is outside the workspace")));
        let absolute = text.starts_with('/');
        let mut parts: Vec<&str> = Vec::new();
        for part in text.split('/') {
            match part {
                "" | "." => {}
                // Above the root of the system is the root; above the workspace is a way out.
                ".." if absolute => {
                    parts.pop();
                }
                ".." => {
                    parts.pop().ok_or_else(escapes)?;
                }
                _ => {
                    check_part(part)?;
                    parts.push(part);
                }
            }
        }
        let mut parts = parts.into_iter();
        if absolute {
            // Part by part, never as text: `/w/app-secret` is not inside `/w/app`.
            for outer in workspace.split('/').filter(|part| !part.is_empty()) {
                if parts.next() != Some(outer) {
                    return Err(escapes());
                }
            }
        }
        Self::bounded(parts.map(str::to_owned).collect())
    }

    /// The path of something in this folder.
    ///
    /// # Errors
    ///
    /// As [`parse`](Self::parse), for a name that is not one plain part.
    pub fn child(&self, name: &str) -> Result<Self, PathError> {
        if matches!(name, "" | "." | "..") || name.contains('/') {
            return Err(invalid("a name may not be empty, `.` or `..`, nor hold a `/`"));
        }
        check_part(name)?;
        let mut parts = self.parts.clone();
        parts.push(name.to_owned());
        Self::bounded(parts)
    }

    /// The folder it is in; `None` for the workspace itself.
    pub fn parent(&self) -> Option<Self> {
        let (_, parts) = self.parts.split_last()?;
        Some(Self { parts: parts.to_vec() })
    }

    /// Its parts, outermost first.
    pub fn parts(&self) -> &[String] {
        &self.parts
    }

    /// Its last part; `None` for the workspace itself.
    pub fn name(&self) -> Option<&str> {
        self.parts.last().map(String::as_str)
    }

    /// Whether it is the workspace itself.
    pub fn is_root(&self) -> bool {
        self.parts.is_empty()
    }

    /// Whether it is this folder or something in it at any depth.
    pub fn is_within(&self, folder: &Self) -> bool {
        self.parts.starts_with(&folder.parts)
    }

    fn bounded(parts: Vec<String>) -> Result<Self, PathError> {
        if parts.len() > MAX_PARTS {
            return Err(invalid(format!("a path may have at most {MAX_PARTS} parts")));
        }
        Ok(Self { parts })
    }
}

/// The parts with `/` between them; `.` for the workspace itself.
impl fmt::Display for WorkspacePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() { f.write_str(".") } else { f.write_str(&self.parts.join("/")) }
    }
}

fn check_part(part: &str) -> Result<(), PathError> {
    if part.len() > MAX_PART_BYTES {
        return Err(invalid(format!("a part of a path may have at most {MAX_PART_BYTES} bytes")));
    }
    match part.chars().find(|c| is_refused(*c)) {
        Some(c) => Err(invalid(format!("a path may not hold the character U+{:04X}", u32::from(c)))),
        None => Ok(()),
    }
}

/// Control characters, and those that make a text read in another order than it is: a name with one of them is
/// shown as another name.
pub fn is_refused(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61C}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

fn invalid(reason: impl Into<String>) -> PathError {
    PathError::Invalid(reason.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown(text: &str) -> Result<String, PathError> {
        WorkspacePath::parse(text, "/home/me/app").map(|path| path.to_string())
    }

    fn escapes(text: &str) -> Result<String, PathError> {
        Err(PathError::Escapes(Refusal::always(format!("`{text}` is outside the workspace"))))
    }

    #[test]
    fn spellings_of_one_path_collapse() {
        for text in
            ["a/b", "./a/b", "a//b", "a/b/", "a/./b/.", "x/../a/b", "/home/me/app/a/b", "/home/me/../me/app/a/b"]
        {
            assert_eq!(shown(text), Ok("a/b".to_owned()), "{text}");
        }
        for text in [".", "./", "a/..", "/home/me/app", "/home/me/app/", "//home//me/app/."] {
            assert_eq!(shown(text), Ok(".".to_owned()), "{text}");
        }
    }

    #[test]
    fn nothing_outside_is_named() {
        for text in ["..", "../app/a", "a/../../b", "/", "/etc/passwd", "/home/me/app/../x", "/home/me", "/.."] {
            assert_eq!(shown(text), escapes(text), "{text}");
        }
    }

    #[test]
    fn a_sibling_that_begins_alike_is_outside() {
        assert_eq!(shown("/home/me/app-secret/a"), escapes("/home/me/app-secret/a"));
        assert_eq!(shown("/home/me/app/-secret/a"), Ok("-secret/a".to_owned()));
    }

    #[test]
    fn odd_names_that_are_plain_names() {
        for text in ["...", "a\\..\\b", "..a", "a..", "~", "-rf", "a b", "héé", "日本", "a:b", "%2e%2e", "CON"] {
            assert_eq!(shown(text), Ok(text.to_owned()));
        }
    }

    #[test]
    fn what_is_no_path() {
        let invalid = |reason: &str| Err(PathError::Invalid(reason.to_owned()));
        assert_eq!(shown(""), invalid("a path may not be empty"));
        assert_eq!(shown("a\0b"), invalid("a path may not hold the character U+0000"));
        assert_eq!(shown("a\nb"), invalid("a path may not hold the character U+000A"));
        assert_eq!(shown("a\u{7f}b"), invalid("a path may not hold the character U+007F"));
        assert_eq!(shown("a\u{9b}b"), invalid("a path may not hold the character U+009B"));
        assert_eq!(shown("a\u{202e}b"), invalid("a path may not hold the character U+202E"));
    }

    #[test]
    fn lengths_are_bounded() {
        let invalid = |reason: &str| Err(PathError::Invalid(reason.to_owned()));
        let part = "x".repeat(MAX_PART_BYTES);
        assert_eq!(shown(&part), Ok(part.clone()));
        assert_eq!(shown(&format!("{part}x")), invalid("a part of a path may have at most 255 bytes"));
        let long = "/".repeat(MAX_PATH_BYTES - 1);
        assert_eq!(shown(&format!(".{long}")), Ok(".".to_owned()));
        assert_eq!(shown(&format!("./{long}")), invalid("a path may have at most 4096 bytes"));
        let deep = vec!["a"; MAX_PARTS].join("/");
        assert_eq!(shown(&deep), Ok(deep.clone()));
        assert_eq!(shown(&format!("{deep}/a")), invalid("a path may have at most 256 parts"));
    }

    #[test]
    fn a_child_is_one_part() {
        let folder = WorkspacePath::parse("a", "/w").unwrap();
        assert_eq!(folder.child("b").map(|path| path.to_string()), Ok("a/b".to_owned()));
        for name in ["", ".", "..", "b/c", "/", "b\u{1b}[31m"] {
            assert!(matches!(folder.child(name), Err(PathError::Invalid(_))), "{name:?}");
        }
    }

    #[test]
    fn within_is_by_parts() {
        let path = |text| WorkspacePath::parse(text, "/w").unwrap();
        assert!(path("a/b").is_within(&path("a")));
        assert!(path("a").is_within(&path("a")));
        assert!(path("a").is_within(&WorkspacePath::root()));
        assert!(!path("ab").is_within(&path("a")));
    }

    proptest! {
        #[test]
        fn a_parsed_path_has_plain_parts_only(text in "(/w/app)?[a./\\\\ \u{0}-\u{ff}\u{202e}]{0,64}") {
            if let Ok(path) = WorkspacePath::parse(&text, "/w/app") {
                for part in path.parts() {
                    prop_assert!(!matches!(part.as_str(), "" | "." | ".."));
                    prop_assert!(!part.contains(['/', '\0']));
                }
                // What is shown reads back as the same path.
                prop_assert_eq!(WorkspacePath::parse(&path.to_string(), "/w/app"), Ok(path));
            }
        }

        #[test]
        fn parsing_never_panics(text in any::<String>(), workspace in any::<String>()) {
            drop(WorkspacePath::parse(&text, &workspace));
            drop(WorkspacePath::root().child(&text));
        }
    }
}
