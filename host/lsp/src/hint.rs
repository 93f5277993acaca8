//! Hints that ask for a rule of a policy, such as "add `docs` to `sandbox.fs.read` in `.harness/harness.md:5:9`".

/// A rule that a hint asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskedRule<'h> {
    /// The rule as YAML.
    pub value: &'h str,
    /// The keys that lead to it, from the top of the file.
    pub keys: Vec<&'h str>,
    /// The file.
    pub file: &'h str,
    /// Whether the file has the last key, so that the rule is one more item there.
    pub has_key: bool,
}

impl<'h> AskedRule<'h> {
    /// The rule that a hint asks for; none where it asks for something else.
    pub fn of(hint: &'h str) -> Option<Self> {
        let (value, rest) = hint.strip_prefix("add `")?.split_once("` to `")?;
        let (keys, rest) = rest.split_once("` in `")?;
        let (position, _) = rest.split_once('`')?;
        let file = without_number(without_number(position));
        Some(Self { value, keys: keys.split('.').collect(), file, has_key: file != position })
    }

    /// The lines of YAML that a file needs which does not have the key. None where it has it: the rule by itself is what is
    /// added there. None too for what is no file of keys.
    pub fn lines(&self) -> Option<String> {
        let is_plain = |key: &&str| !key.is_empty() && !key.contains(['[', ']', ':', '#', ' ']);
        let is_file = !self.file.starts_with('-') && self.keys.first() != Some(&"asks");
        if self.has_key || !is_file || !self.keys.iter().all(is_plain) || self.value.contains(char::is_control) {
            return None;
        }
        let mut lines = String::new();
        for (depth, key) in self.keys.iter().enumerate() {
            lines.push_str(&format!("{:1$}{key}:\n", "", depth.saturating_mul(2)));
        }
        let is_entry =
            self.value.split_once(": ").is_some_and(|(key, _)| is_plain(&key) && !key.starts_with(['{', '"']));
        let dash = if is_entry { "" } else { "- " };
        lines.push_str(&format!("{:2$}{dash}{}", "", self.value, self.keys.len().saturating_mul(2)));
        Some(lines)
    }
}

/// A text without `:` and a number at its end.
fn without_number(text: &str) -> &str {
    let is_number = |digits: &str| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    text.rsplit_once(':').filter(|(_, digits)| is_number(digits)).map_or(text, |(before, _)| before)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_that_hints_ask_for() {
        for (hint, expected) in [
            (
                "add `a b` to `sandbox.fs.read` in `.harness/harness.md:5:9`",
                Some(("a b", "sandbox fs read", ".harness/harness.md", true)),
            ),
            ("add `a` to `sandbox.env` in `harness.yaml`", Some(("a", "sandbox env", "harness.yaml", false))),
            (
                "add `a` to `sandbox.env` in `harness.yaml:2:3`, or not",
                Some(("a", "sandbox env", "harness.yaml", true)),
            ),
            ("add `a` to it", None),
            ("name `a`", None),
        ] {
            let found = AskedRule::of(hint);
            let found = found.as_ref().map(|rule| (rule.value, rule.keys.join(" "), rule.file, rule.has_key));
            let expected = expected.map(|(value, keys, file, has_key)| (value, keys.to_owned(), file, has_key));
            assert_eq!(found, expected, "{hint}");
        }
    }

    #[test]
    fn lines_of_a_file_without_the_key() {
        for (hint, expected) in [
            (
                "add `cat a` to `sandbox.exec.allow` in `.harness/harness.md`",
                Some("sandbox:\n  exec:\n    allow:\n      - cat a"),
            ),
            (
                "add `{ host: \"[::1]:80\", private: true }` to `network.allowed_domains` in `harness.yaml`",
                Some("network:\n  allowed_domains:\n    - { host: \"[::1]:80\", private: true }"),
            ),
            (
                "add `\"a: b\"` to `sandbox.sources.plugins/acme.fs.read` in `f.md`",
                Some("sandbox:\n  sources:\n    plugins/acme:\n      fs:\n        read:\n          - \"a: b\""),
            ),
            (
                "add `private: true` to `mcp.servers.files` in `f.md`",
                Some("mcp:\n  servers:\n    files:\n      private: true"),
            ),
            // The key is there, there is no such file, and what is no path of keys.
            ("add `cat a` to `sandbox.exec.allow` in `.harness/harness.md:3:4`", None),
            ("add `a` to `fs.read` in `--within`", None),
            ("add `a` to `asks.fs.read` in `plugin.md`", None),
            ("add `a` to `trusted_sources[0].max.fs.read` in `f.md`", None),
            ("add `a\nb` to `sandbox.env` in `f.md`", None),
        ] {
            assert_eq!(AskedRule::of(hint).unwrap().lines().as_deref(), expected, "{hint}");
        }
    }
}
