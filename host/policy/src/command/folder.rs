//! Folders outside of the workspace that commands see.

use std::fmt;
use std::path::{Component, Path, PathBuf};

/// A folder by its whole path, or by its path below the user's own folder, with `~/` at the beginning.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderRule(String);

impl FolderRule {
    /// Reads a rule.
    ///
    /// # Errors
    ///
    /// What is wrong with it. The whole machine and the user's whole folder are no such folders: what opens them is
    /// `unconfined`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let path = text.strip_prefix("~/").or_else(|| text.strip_prefix('/'));
        let Some(path) = path else {
            return Err(format!("`{text}` is neither an absolute path nor one that begins with `~/`"));
        };
        let plain = Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
        if !plain || path.chars().any(char::is_control) {
            return Err(format!("`{text}` is not a plain path"));
        }
        let path = path.trim_end_matches('/');
        if path.is_empty() {
            return Err(format!("`{text}` is too much: name the folder that programs are in"));
        }
        if matches!(path.split('/').next(), Some("proc" | "sys" | "dev")) && text.starts_with('/') {
            return Err(format!("`{text}` is the kernel's and no folder of programs"));
        }
        let start = if text.starts_with('/') { "/" } else { "~/" };
        let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
        Ok(Self(format!("{start}{}", parts.join("/"))))
    }

    /// Whether another rule's folder is this one or in it.
    pub fn covers(&self, other: &Self) -> bool {
        Path::new(&other.0).starts_with(&self.0)
    }

    /// The folder, with the user's own instead of `~`; nothing where it is needed and not known.
    pub fn path(&self, home: Option<&Path>) -> Option<PathBuf> {
        match self.0.strip_prefix("~/") {
            Some(below) => home.filter(|home| home.is_absolute()).map(|home| home.join(below)),
            None => Some(PathBuf::from(&self.0)),
        }
    }
}

/// As it is written in a policy.
impl fmt::Display for FolderRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_whole_paths() {
        for (text, shown) in
            [("/opt/go", "/opt/go"), ("/opt//go/", "/opt/go"), ("~/.cargo", "~/.cargo"), ("/a/./b", "/a/b")]
        {
            assert_eq!(FolderRule::parse(text).map(|rule| rule.to_string()), Ok(shown.to_owned()));
        }
        for text in
            ["", ".", "opt", "/", "~", "~/", "~root/x", "/opt/../etc", "~/..", "/a\0", "/proc/1", "/dev", "//", "/."]
        {
            assert!(FolderRule::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_folder_covers_what_is_in_it() {
        let covers = |a: &str, b: &str| FolderRule::parse(a).unwrap().covers(&FolderRule::parse(b).unwrap());
        assert!(covers("/opt", "/opt") && covers("/opt", "/opt/go") && covers("~/.cargo", "~/.cargo/bin"));
        assert!(!covers("/opt/go", "/opt") && !covers("/opt", "/opt2") && !covers("/opt", "~/opt"));
    }

    #[test]
    fn the_users_folder_takes_the_place_of_the_tilde() {
        let path = |text: &str, home: Option<&str>| FolderRule::parse(text).unwrap().path(home.map(Path::new));
        assert_eq!(path("~/.cargo", Some("/home/ada")), Some("/home/ada/.cargo".into()));
        assert_eq!((path("~/.cargo", None), path("~/.cargo", Some("ada"))), (None, None));
        assert_eq!(path("/opt", None), Some("/opt".into()));
    }
}
