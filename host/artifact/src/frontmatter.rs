//! Where the YAML of an artifact is, and where its prose.
//!
//! The first line is exactly `---`, and so is the line that closes the YAML. A byte order mark before the first and
//! a carriage return at the end of any line are tolerated. An indented `---`, as in a block scalar, closes nothing.

/// An artifact's text in its two parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Front<'t> {
    /// The lines between the delimiters, each with its break; may be empty.
    pub yaml: &'t str,
    /// Line of the file that `yaml` begins at, from 1. Always 2.
    pub first_line: u32,
    /// What comes after the closing delimiter, without space around it.
    pub body: &'t str,
    /// The same, every character of it.
    pub verbatim: &'t str,
}

/// Why there is no front matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Missing {
    /// One line for a message.
    pub message: &'static str,
    /// Line of the file, from 1.
    pub line: u32,
    /// How many characters of that line are meant, from its first.
    pub length: u32,
    /// What to write.
    pub hint: String,
}

/// Splits an artifact.
pub fn split(text: &str) -> Result<Front<'_>, Missing> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.split_inclusive('\n');
    let first = lines.next().unwrap_or_default();
    if content(first) != "---" {
        return Err(missing_opening(content(first)));
    }
    let start = first.len();
    let mut end = start;
    let mut near = None;
    for (number, line) in (2_u32..).zip(lines) {
        let content = content(line);
        if content == "---" {
            let verbatim = text.get(end.saturating_add(line.len())..).unwrap_or_default();
            return Ok(Front {
                yaml: text.get(start..end).unwrap_or_default(),
                first_line: 2,
                body: verbatim.trim(),
                verbatim,
            });
        }
        // A line that looks like a delimiter to the eye, for the hint. An indented one may well be part of a script.
        if near.is_none() && (content.trim_end() == "---" || content.trim_end() == "...") {
            near = Some(number);
        }
        end = end.saturating_add(line.len());
    }
    Err(Missing {
        message: "the front matter is not closed: no second line is exactly `---`",
        line: 1,
        length: 3,
        hint: match near {
            Some(line) => format!("line {line} is almost one: write `---` with nothing after it"),
            None => "add a line `---` between the YAML and the prose".to_owned(),
        },
    })
}

fn missing_opening(first: &str) -> Missing {
    Missing {
        message: "the first line is not `---`",
        line: 1,
        length: u32::try_from(first.chars().count()).unwrap_or(u32::MAX).max(1),
        hint: if first.trim() == "---" {
            "remove the space around `---`".to_owned()
        } else {
            "begin the file with a line `---`, then the YAML, then a second line `---`".to_owned()
        },
    }
}

/// A line without its break.
fn content(line: &str) -> &str {
    let line = line.strip_suffix('\n').unwrap_or(line);
    line.strip_suffix('\r').unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, yaml: &str, body: &str) {
        let front = split(text).unwrap();
        assert_eq!((front.yaml, front.first_line, front.body), (yaml, 2, body));
        assert_eq!(front.verbatim.trim(), body);
        assert!(text.ends_with(front.verbatim));
    }

    #[track_caller]
    fn refuse(text: &str, expect: &str) {
        let missing = split(text).unwrap_err();
        assert_eq!(format!("{}:{}: {}; {}", missing.line, missing.length, missing.message, missing.hint), expect);
    }

    #[test]
    fn two_delimiters() {
        check("---\na: 1\n---\n\n# Title\n\nprose\n", "a: 1\n", "# Title\n\nprose");
        check("---\na: 1\n---", "a: 1\n", "");
        check("---\n---\n", "", "");
        check("---\n---", "", "");
        check("---\n\n---\nbody", "\n", "body");
        check("---\na: 1\n---\nbody\n---\nmore", "a: 1\n", "body\n---\nmore");
    }

    #[test]
    fn byte_order_mark_and_carriage_returns() {
        check("\u{feff}---\r\na: 1\r\n---\r\nbody\r\n", "a: 1\r\n", "body");
    }

    #[test]
    fn only_an_exact_line_closes() {
        check("---\ns: |\n  ---\n  x\n---\n", "s: |\n  ---\n  x\n", "");
        check("---\n# ----\n----\n---x\n---\n", "# ----\n----\n---x\n", "");
    }

    #[test]
    fn no_opening() {
        let hint = "begin the file with a line `---`, then the YAML, then a second line `---`";
        refuse("", &format!("1:1: the first line is not `---`; {hint}"));
        refuse("# Title\n", &format!("1:7: the first line is not `---`; {hint}"));
        refuse("\n---\n---\n", &format!("1:1: the first line is not `---`; {hint}"));
        refuse("--- \na: 1\n---\n", "1:4: the first line is not `---`; remove the space around `---`");
    }

    #[test]
    fn no_closing() {
        let message = "1:3: the front matter is not closed: no second line is exactly `---`";
        refuse("---\na: 1\n", &format!("{message}; add a line `---` between the YAML and the prose"));
        refuse("---", &format!("{message}; add a line `---` between the YAML and the prose"));
        refuse("---\na: 1\n--- \n", &format!("{message}; line 3 is almost one: write `---` with nothing after it"));
    }
}
