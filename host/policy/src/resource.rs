//! What clients of another program may read by a URI: files by a pattern, one file under a URI of its own, and
//! templates of URIs, each of which leads to a path of the workspace.
//!
//! A rule names what is offered. Whether the file behind it may be read is for the grant to decide, as for `fs.read`.

use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use url::Url;

use super::path::{PathPattern, WorkspacePath};

/// Bytes of a URI, and of a template.
pub const MAX_URI: usize = 2048;
/// Variables of a template.
pub const MAX_VARIABLES: usize = 8;
/// What the URI of a file of the workspace begins with; its path in the workspace follows.
pub const FILE: &str = "file:///";
/// What the URI of a skill begins with; its name follows.
pub const SKILL: &str = "skill://";

/// What a URI has in percent notation: all but the characters that RFC 3986 leaves unreserved.
const ENCODED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
/// The same of a path, whose slashes stay.
const ENCODED_PATH: AsciiSet = ENCODED.remove(b'/');

/// What is said of a resource beside its content.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Label {
    /// A name for people and models; the last part of the path where there is none.
    pub name: Option<String>,
    /// What it is.
    pub description: Option<String>,
    /// Its media type; found by the end of the file's name where there is none.
    pub mime_type: Option<String>,
}

/// Files that are offered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Resource {
    /// All that a pattern finds, each as `file:///` and its path.
    Files(PathPattern),
    /// One, under a URI of its own.
    File {
        /// The URI.
        uri: String,
        /// The path in the workspace.
        path: WorkspacePath,
        /// What is said of it.
        label: Label,
    },
}

/// As a policy names it.
impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Files(pattern) => write!(f, "{pattern}"),
            Self::File { uri, path, .. } => write!(f, "{uri} ({path})"),
        }
    }
}

/// URIs of one form, each of which leads to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// The form of the URIs.
    pub uri: Form,
    /// The path in the workspace, with the same variables.
    pub path: Form,
    /// What is said of it. The media type is that of each of them.
    pub label: Label,
    /// What a person may be offered for a variable, by its name. Other values are good too.
    pub values: Vec<(String, Vec<String>)>,
}

impl Template {
    /// The template of all paths of a form: `docs/{name}.md` has the URIs `file:///docs/{name}.md`.
    ///
    /// # Errors
    ///
    /// What is wrong with the form.
    pub fn of_paths(path: &str) -> Result<Self, String> {
        let path = Form::parse(path)?;
        let uri = path.encoded(FILE);
        Self { uri, path, label: Label::default(), values: Vec::new() }.checked()
    }

    /// The same with URIs of another form.
    ///
    /// # Errors
    ///
    /// What is wrong with one of the forms, and a variable that only one of them has.
    pub fn of(uri: &str, path: &str) -> Result<Self, String> {
        let (uri, path) = (Form::parse(uri)?, Form::parse(path)?);
        own_uri(&uri.with(|_| "x".to_owned()))?;
        Self { uri, path, label: Label::default(), values: Vec::new() }.checked()
    }

    fn checked(self) -> Result<Self, String> {
        let names = |form: &Form| {
            let mut names: Vec<String> = form.variables().map(str::to_owned).collect();
            names.sort_unstable();
            names
        };
        let (uri, path) = (names(&self.uri), names(&self.path));
        if uri.is_empty() {
            return Err("a template has a variable, such as `{name}`; name a file in `resources` instead".to_owned());
        }
        if uri != path {
            return Err(format!("`{}` and `{}` do not have the same variables", self.uri, self.path));
        }
        let sample = self.path.with(|_| "x".to_owned());
        plain(&sample)?;
        Ok(self)
    }

    /// The path that a URI of this form leads to. None of one of another form, and where a value would lead elsewhere
    /// than below what is spelled out before it.
    pub fn path_of(&self, uri: &str) -> Option<WorkspacePath> {
        let values = self.uri.values(uri)?;
        let is_below = |value: &String| value.split('/').all(|part| !matches!(part, "" | "." | ".."));
        if !values.iter().all(|(_, value)| is_below(value)) {
            return None;
        }
        let of = |name: &str| values.iter().find(|(known, _)| *known == name).map(|(_, value)| value.clone());
        plain(&self.path.with(|name| of(name).unwrap_or_default())).ok()
    }
}

/// As a policy names it.
impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.uri, self.path)
    }
}

/// A text with variables in braces: of RFC 6570 the simple ones, each of which stands for one value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Form {
    parts: Vec<Part>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Variable(String),
}

impl Form {
    /// Reads a form.
    ///
    /// # Errors
    ///
    /// More than [`MAX_URI`] bytes or [`MAX_VARIABLES`] variables; a variable that is there twice, that follows another
    /// one without a character between them, or whose name has other characters than letters, digits and `_`.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.len() > MAX_URI {
            return Err(format!("a template has 1 to {MAX_URI} bytes"));
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while !rest.is_empty() {
            let (before, after) = rest.split_once('{').unwrap_or((rest, ""));
            if before.contains('}') {
                return Err("there is a `}` without a `{` before it".to_owned());
            }
            if !before.is_empty() {
                parts.push(Part::Text(before.to_owned()));
            }
            if before.len() == rest.len() {
                break;
            }
            let (name, behind) = after.split_once('}').ok_or("there is a `{` without a `}` after it")?;
            if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                return Err(format!("`{{{name}}}` is no variable: its name has letters, digits and `_` only"));
            }
            if parts.contains(&Part::Variable(name.to_owned())) {
                return Err(format!("the variable `{{{name}}}` is there twice"));
            }
            if matches!(parts.last(), Some(Part::Variable(_))) {
                return Err(format!("`{{{name}}}` follows another variable: nothing shows where one ends"));
            }
            parts.push(Part::Variable(name.to_owned()));
            rest = behind;
        }
        let form = Self { parts };
        if form.variables().count() > MAX_VARIABLES {
            return Err(format!("a template has {MAX_VARIABLES} variables at most"));
        }
        Ok(form)
    }

    /// The names of its variables, in order.
    pub fn variables(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Variable(name) => Some(name.as_str()),
            Part::Text(_) => None,
        })
    }

    /// The text with values instead of the variables.
    pub fn with(&self, value: impl Fn(&str) -> String) -> String {
        self.parts
            .iter()
            .map(|part| match part {
                Part::Text(text) => text.clone(),
                Part::Variable(name) => value(name),
            })
            .collect()
    }

    /// The same form as part of a URI.
    fn encoded(&self, begin: &str) -> Self {
        let mut parts = self.parts.clone();
        for part in &mut parts {
            if let Part::Text(text) = part {
                *text = utf8_percent_encode(text, &ENCODED_PATH).to_string();
            }
        }
        match parts.first_mut() {
            Some(Part::Text(text)) => text.insert_str(0, begin),
            _ => parts.insert(0, Part::Text(begin.to_owned())),
        }
        Self { parts }
    }

    /// The values that a URI has for the variables: of each what stands before the text that follows it, decoded. A
    /// variable is a run of characters that simple expansion leaves as they are, or of percent notation, so that it has no
    /// slash unless that is encoded.
    fn values(&self, uri: &str) -> Option<Vec<(&str, String)>> {
        let mut values = Vec::new();
        let mut rest = uri;
        let mut parts = self.parts.as_slice();
        while let Some((part, behind)) = parts.split_first() {
            parts = behind;
            match part {
                Part::Text(text) => rest = rest.strip_prefix(text.as_str())?,
                Part::Variable(name) => {
                    let end = match parts {
                        [] => rest.len(),
                        [Part::Text(text)] => rest.len().checked_sub(text.len())?,
                        [Part::Text(text), ..] => rest.find(text.as_str())?,
                        [Part::Variable(_), ..] => return None,
                    };
                    let (value, after) = rest.split_at_checked(end)?;
                    values.push((name.as_str(), decoded(value)?));
                    rest = after;
                }
            }
        }
        rest.is_empty().then_some(values)
    }
}

/// As it was written.
impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.with(|name| format!("{{{name}}}")))
    }
}

/// What a variable stands for; none where simple expansion makes no such text.
fn decoded(value: &str) -> Option<String> {
    let is_simple = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_' | '~' | '%');
    if value.is_empty() || !value.chars().all(is_simple) {
        return None;
    }
    percent_decode_str(value).decode_utf8().ok().map(|value| value.into_owned())
}

/// A path that is relative to the workspace, as it is written: nothing in it leads elsewhere.
///
/// # Errors
///
/// What is wrong with it.
pub fn plain(path: &str) -> Result<WorkspacePath, String> {
    if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err("a path is relative to the workspace, without `.`, `..` and empty parts".to_owned());
    }
    WorkspacePath::parse(path, "").map_err(|_| "this is not a path in the workspace".to_owned())
}

/// The URI of a file of the workspace.
pub fn file_uri(path: &str) -> String {
    format!("{FILE}{}", utf8_percent_encode(path, &ENCODED_PATH))
}

/// The path of a file of the workspace, by its URI, in any spelling. None of another URI.
pub fn file_path(uri: &str) -> Option<WorkspacePath> {
    let path = percent_decode_str(uri.strip_prefix(FILE)?).decode_utf8().ok()?;
    plain(&path).ok()
}

/// The URI of a skill, or of a file beside it.
pub fn skill_uri(skill: &str, file: &str) -> String {
    format!("{SKILL}{skill}/{}", utf8_percent_encode(file, &ENCODED_PATH))
}

/// The skill and the file beside it, by its URI. None of another URI.
pub fn skill_path(uri: &str) -> Option<(String, String)> {
    let (skill, file) = uri.strip_prefix(SKILL)?.split_once('/')?;
    Some((skill.to_owned(), percent_decode_str(file).decode_utf8().ok()?.into_owned()))
}

/// A URI that a policy gives to a file.
///
/// # Errors
///
/// That it is none, too long, or of a scheme whose URIs say what they are of.
pub fn own_uri(uri: &str) -> Result<(), String> {
    let parsed = Url::parse(uri).map_err(|_| "this is not a URI, such as `docs://guide`".to_owned())?;
    if uri.len() > MAX_URI || !uri.is_ascii() || uri.contains(|c: char| c.is_ascii_control() || c == ' ') {
        return Err(format!("a URI has {MAX_URI} bytes at most, all of them visible ASCII"));
    }
    match parsed.scheme() {
        "file" => Err("a URI with `file:` is that of the path itself: leave `uri` out".to_owned()),
        "skill" => Err("a URI with `skill:` is that of a skill".to_owned()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn path(template: &Template, uri: &str) -> Option<String> {
        template.path_of(uri).map(|path| path.to_string())
    }

    #[test]
    fn a_template_of_paths_leads_below_what_it_spells_out() {
        let template = Template::of_paths("docs/a b/{path}").unwrap();
        assert_eq!(template.uri.to_string(), "file:///docs/a%20b/{path}");
        for (value, want) in [
            ("x.md", Some("docs/a b/x.md")),
            ("x%2Fy.md", Some("docs/a b/x/y.md")),
            ("%C3%BC", Some("docs/a b/ü")),
            ("", None),
            ("..", None),
            ("x%2F..%2F..%2Fy", None),
            ("%2e%2e", None),
            ("%2Fetc", None),
            ("x/y", None),
            ("x%00", None),
            ("%FF", None),
            ("a?b", None),
        ] {
            let uri = format!("file:///docs/a%20b/{value}");
            assert_eq!(path(&template, &uri).as_deref(), want, "{uri}");
        }
        assert_eq!(path(&template, "file:///docs/other"), None);
    }

    #[test]
    fn a_template_may_have_uris_of_its_own() {
        let template = Template::of("test://template/{id}/data", "data/{id}.json").unwrap();
        assert_eq!(path(&template, "test://template/123/data").as_deref(), Some("data/123.json"));
        assert_eq!(path(&template, "test://template/123/datas"), None);
        assert_eq!(path(&template, "test://template//data"), None);
        let two = Template::of("log://{day}-{name}.txt", "logs/{name}/{day}.txt").unwrap();
        assert_eq!(path(&two, "log://1-a-b.txt.txt").as_deref(), Some("logs/a-b.txt/1.txt"));
    }

    #[test]
    fn what_is_no_template() {
        for (uri, file, why) in [
            ("a://{x", "{x}", "there is a `{` without a `}` after it"),
            ("a://x}", "{x}", "there is a `}` without a `{` before it"),
            ("a://{+x}", "{x}", "`{+x}` is no variable: its name has letters, digits and `_` only"),
            ("a://{x}/{x}", "{x}", "the variable `{x}` is there twice"),
            ("a://{x}{y}", "{x}", "`{y}` follows another variable: nothing shows where one ends"),
            ("a://{x}", "{y}", "`a://{x}` and `{y}` do not have the same variables"),
            ("a://x", "x", "a template has a variable, such as `{name}`; name a file in `resources` instead"),
            ("x/{x}", "{x}", "this is not a URI, such as `docs://guide`"),
            ("file:///{x}", "{x}", "a URI with `file:` is that of the path itself: leave `uri` out"),
            ("skill://{x}", "{x}", "a URI with `skill:` is that of a skill"),
            ("a://{x}", "../{x}", "a path is relative to the workspace, without `.`, `..` and empty parts"),
            ("a://{x}", "/{x}", "a path is relative to the workspace, without `.`, `..` and empty parts"),
        ] {
            assert_eq!(Template::of(uri, file), Err(why.to_owned()), "{uri} {file}");
        }
        let many = (0..=MAX_VARIABLES).map(|n| format!("{{v{n}}}")).collect::<Vec<_>>().join("/");
        assert_eq!(Template::of_paths(&many), Err("a template has 8 variables at most".to_owned()));
        let long = "x".repeat(MAX_URI);
        assert_eq!(Template::of_paths(&format!("{long}{{a}}")), Err("a template has 1 to 2048 bytes".to_owned()));
    }

    #[test]
    fn uris_of_files_and_skills_lead_back() {
        assert_eq!(file_uri("docs/a b#ü.md"), "file:///docs/a%20b%23%C3%BC.md");
        for (uri, want) in [
            ("file:///docs/a%20b%23%C3%BC.md", Some("docs/a b#ü.md")),
            ("file:///d%6Fcs/x", Some("docs/x")),
            ("file:///docs/../x", None),
            ("file:////etc/passwd", None),
            ("file:///%2Fetc", None),
            ("file://host/x", None),
            ("other:///x", None),
        ] {
            assert_eq!(file_path(uri).map(|path| path.to_string()).as_deref(), want, "{uri}");
        }
        let of = |skill: &str, file: &str| Some((skill.to_owned(), file.to_owned()));
        assert_eq!(skill_path(&skill_uri("pdf", "a/b c.md")), of("pdf", "a/b c.md"));
        assert_eq!(skill_path("skill://pdf"), None);
    }

    proptest! {
        /// Whatever a client sends, what it leads to is below the text before the first variable.
        #[test]
        fn no_value_leads_elsewhere(value in "([a-c./%]|%2F|%2E|\\.\\.|%5C){0,12}") {
            let template = Template::of_paths("docs/{path}").unwrap();
            if let Some(path) = template.path_of(&format!("file:///docs/{value}")) {
                prop_assert!(path.parts().len() > 1 && path.parts()[0] == "docs", "{path}");
            }
        }
    }
}
