//! Names that every client accepts, for tools whose own names may be longer or have other characters.

use std::collections::BTreeMap;

use harness_sys::digest::digest;

/// Characters of a name that a client gets. Clients put the name of the server before it, and some stop at 64.
pub const MAX_NAME: usize = 40;
/// Characters of the digest at the end of a name that was changed.
const DIGEST: usize = 8;

/// The names of a project's tools for clients, in order. No two tools share one.
///
/// A tool that is called `[a-z0-9_]{1,40}` keeps its name. Any other gets its name in lower case with `_` for each other
/// character, cut to 31 characters, then `_` and the first 8 digits of the digest (SHA-256) of its own name. Should that
/// be taken, the digest is of the name and a number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// Own names by those for clients.
    own: BTreeMap<String, String>,
}

impl Names {
    /// Finds names for tools.
    pub fn of<'a>(tools: impl IntoIterator<Item = &'a str>) -> Self {
        let mut tools: Vec<&str> = tools.into_iter().collect();
        tools.sort_unstable();
        tools.dedup();
        let (kept, changed): (Vec<&str>, Vec<&str>) = tools.into_iter().partition(|name| is_accepted(name));
        let mut own: BTreeMap<String, String> =
            kept.into_iter().map(|name| (name.to_owned(), name.to_owned())).collect();
        for name in changed {
            let free = (0_u64..).map(|attempt| changed_name(name, attempt)).find(|found| !own.contains_key(found));
            own.extend(free.map(|found| (found, name.to_owned())));
        }
        Self { own }
    }

    /// The own name of a tool, by the one that clients use.
    pub fn own(&self, name: &str) -> Option<&str> {
        self.own.get(name).map(String::as_str)
    }

    /// Names for clients, each with the tool's own, in the order of the former.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.own.iter().map(|(name, own)| (name.as_str(), own.as_str()))
    }
}

/// Whether every client accepts a name.
fn is_accepted(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_')
}

fn changed_name(name: &str, attempt: u64) -> String {
    let readable: String = name
        .to_lowercase()
        .chars()
        .map(|c| if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '_' })
        .take(MAX_NAME - DIGEST - 1)
        .collect();
    let digest = if attempt == 0 { digest(name) } else { digest(&format!("{name}\n{attempt}")) };
    let digits: String = digest.trim_start_matches("sha256:").chars().take(DIGEST).collect();
    format!("{readable}_{digits}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_fits_is_kept() {
        let names = Names::of(["word_count", "a", "x".repeat(40).as_str()]);
        assert!(names.iter().all(|(name, own)| name == own));
        assert_eq!(names.own("word_count"), Some("word_count"));
        assert_eq!(names.own("nothing"), None);
    }

    #[test]
    fn other_names_are_changed_and_lead_back() {
        let long = "y".repeat(41);
        let tools = ["Deploy", "deploy", "acme.search", "acme_search", "ünïcode", &long, "acme search"];
        let names = Names::of(tools);
        assert_eq!(names.iter().count(), tools.len(), "{names:?}");
        for (name, own) in names.iter() {
            assert!(is_accepted(name), "{name}");
            assert!(tools.contains(&own));
            assert_eq!(name == own, ["deploy", "acme_search"].contains(&own), "{name} of {own}");
        }
    }

    #[test]
    fn a_name_that_is_taken_is_not_used_twice() {
        let first = changed_name("A.b", 0);
        let names = Names::of(["A.b", first.as_str()]);
        assert_eq!(names.own(&first), Some(first.as_str()));
        assert_eq!(names.own(&changed_name("A.b", 1)), Some("A.b"));
    }

    #[test]
    fn the_order_of_tools_is_of_no_matter() {
        assert_eq!(Names::of(["b.c", "a", "B.C"]), Names::of(["B.C", "b.c", "a", "a"]));
    }
}
