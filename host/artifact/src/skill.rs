//! A skill: how to do a kind of work, in prose, with files beside it. The format is that of Agent Skills.
//!
//! A model is shown name and description, and reads the rest when it has a use for it. A skill is prose: it may name the
//! tools that it uses, and grants none.

pub mod arguments;

use std::path::PathBuf;

use serde_json::json;

use self::arguments::Argument;
use super::decode::{Decoder, Field};
use super::diagnostic::{Diagnostic, Diagnostics, Position};
use super::keys::{Unknown, keys};
use super::located::Located;
use super::shape::{Anything, Named, Read, Schema, Shape, schema};
use super::yaml::Value;
use harness_policy::text::quoted;

/// Characters of a name at most.
const MAX_NAME: usize = 64;
/// Characters of a description at most.
const MAX_DESCRIPTION: usize = 1024;
/// Characters of `compatibility` at most.
const MAX_COMPATIBILITY: usize = 500;
/// Tools that a skill names at most.
const MAX_TOOLS: usize = 100;

/// A skill as its file declares it.
#[derive(Debug, Clone, PartialEq)]
pub struct Skill {
    /// The name of its folder, or the stem of its file.
    pub name: String,
    /// What it is for and when to use it.
    pub description: Located<String>,
    /// Under which licence it is.
    pub license: Option<String>,
    /// What it needs to be there.
    pub compatibility: Option<String>,
    /// The tools that it names in `allowed-tools`, without what is in brackets: each as it is written. It is granted none.
    pub tools: Vec<Located<String>>,
    /// What a person gives it where it is used as a prompt, in the order of the file.
    pub arguments: Vec<Argument>,
    /// The prose.
    pub body: String,
    /// The files beside it, sorted by path; none of one that has no folder.
    pub files: Vec<SkillFile>,
    /// Where its folder really is; none of one that is a single file.
    pub folder: Option<PathBuf>,
    /// The first line of its file.
    pub source: Position,
    /// The name by which a policy knows where it comes from, such as `skills/pdf` or `plugins/acme/skills/pdf`.
    pub source_name: String,
}

/// A file beside a skill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkillFile {
    /// From the folder of the skill, with `/` between its parts.
    pub path: String,
    /// Its length.
    pub bytes: u64,
    /// What it was when the project was loaded: `sha256:` and hexadecimal digits.
    pub sha256: String,
}

/// What other artifacts have and a skill cannot: anyone who writes one of these expects that something comes of it.
const FOREIGN: Unknown = Unknown::RefuseThese(&[
    "script",
    "event",
    "when",
    "parameters",
    "capabilities",
    "tools",
    "hooks",
    "agents",
    "sandbox",
    "network",
    "tools_policy",
]);

keys! {
    /// The keys of a skill.
    pub(super) SkillKeys: FOREIGN;
    /// The name of its folder, or of its file without `.md`: lower-case letters, digits and single hyphens.
    required name: SkillName;
    /// What it does and when to use it. Models see only this before they read the skill.
    required description: Text<1, MAX_DESCRIPTION>;
    /// Its license.
    given license: String;
    /// What it requires: a product, packages, the network.
    given compatibility: Text<0, MAX_COMPATIBILITY>;
    /// Further data for people and other programs.
    given metadata: Mapping;
    /// The names of the tools that it uses, separated by spaces. This grants nothing; the policy does.
    given allowed_tools("allowed-tools"): ToolNames;
    /// What a person gives it where it is used as a prompt. `{{name}}` in the prose is replaced by the value.
    given arguments: Named<Argument>;
}

keys! {
    /// What is said of a skill to people and other programs, and nothing to the host.
    #[expect(dead_code, reason = "known, and not looked into")]
    LabelKeys: Unknown::Warn;
    /// Its version.
    given version: Anything;
    /// Its author.
    given author: Anything;
    /// Tags for people.
    given tags: Anything;
    /// Where to read more.
    given homepage: Anything;
}

/// A name, of which it is said elsewhere what is wrong with it.
struct SkillName(String);

impl Shape for SkillName {
    fn schema() -> Schema {
        schema(json!({"type": "string", "maxLength": MAX_NAME, "pattern": "^[a-z0-9]+(-[a-z0-9]+)*$"}))
    }
}

impl Read for SkillName {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        String::read(decoder, field).map(Self)
    }
}

/// A text of so many characters; of one that has fewer or more, it is said elsewhere.
struct Text<const LEAST: usize, const MOST: usize>(String);

impl<const LEAST: usize, const MOST: usize> Shape for Text<LEAST, MOST> {
    fn schema() -> Schema {
        schema(json!({"type": "string", "minLength": LEAST, "maxLength": MOST}))
    }
}

impl<const LEAST: usize, const MOST: usize> Read for Text<LEAST, MOST> {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        String::read(decoder, field).map(|text| Self(text.trim().to_owned()))
    }
}

/// A mapping whose values are not looked into.
struct Mapping;

impl Shape for Mapping {
    fn schema() -> Schema {
        schema(json!({"type": "object"}))
    }
}

impl Read for Mapping {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        decoder.mapping(field).map(|_| Self)
    }
}

/// Names of tools: a text with spaces between them, or a list.
struct ToolNames(Vec<Located<String>>);

impl Shape for ToolNames {
    fn schema() -> Schema {
        schema(json!({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}))
    }
}

impl Read for ToolNames {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let position = decoder.position(field.span());
        let texts = match &field.node.value {
            Value::Seq(_) => Vec::<Located<String>>::read(decoder, field)?,
            _ => vec![Located::new(decoder.string(field)?.to_owned(), position)],
        };
        let names = texts.iter().flat_map(|text| {
            let at = |name: String| Located::new(name, text.position.clone());
            tool_names(&text.value).into_iter().map(at).collect::<Vec<_>>()
        });
        let names: Vec<Located<String>> = names.collect();
        if names.len() > MAX_TOOLS {
            decoder.error(field, format!("{} names more than {MAX_TOOLS} tools", quoted(&field.path)));
            return None;
        }
        Some(Self(names))
    }
}

/// `Bash(git add *) Read` names two tools.
fn tool_names(text: &str) -> Vec<String> {
    let (mut names, mut depth) = (vec![String::new()], 0_u32);
    for c in text.chars() {
        match c {
            '(' => depth = depth.saturating_add(1),
            ')' => depth = depth.saturating_sub(1),
            _ if depth > 0 => {}
            c if c.is_whitespace() || c == ',' => names.push(String::new()),
            c => names.iter_mut().next_back().into_iter().for_each(|name| name.push(c)),
        }
    }
    names.retain(|name| !name.is_empty());
    names
}

/// The front matter of a skill.
impl Shape for Skill {
    fn schema() -> Schema {
        super::keys::schema::<(SkillKeys<'_>, LabelKeys<'_>)>()
    }
}

impl Skill {
    /// Reads a skill. `file` is for messages, such as `.harness/skills/pdf/SKILL.md`; `name` is that of its folder, or the
    /// stem of its file. The skill is there only if nothing is wrong with it; the diagnostics hold everything that is, and
    /// warnings. Files and folder are for who looks for them.
    pub fn parse_at(file: &str, source_name: &str, name: &str, text: &str) -> (Option<Self>, Diagnostics) {
        let mut decoder = Decoder::new(file, format!("parse skill {name}"));
        let skill = Self::decode(&mut decoder, source_name, name, text);
        let diagnostics = decoder.into_diagnostics();
        (skill.filter(|_| !diagnostics.has_errors()), diagnostics)
    }

    fn decode(decoder: &mut Decoder, source_name: &str, name: &str, text: &str) -> Option<Self> {
        check_name(decoder, name);
        let document = decoder.document(text)?;
        let (keys, _): (SkillKeys<'_>, LabelKeys<'_>) = decoder.root(&document.root)?;
        match keys.name.field() {
            None => {
                let message = format!("skill {name:?}: `name` cannot be empty");
                decoder
                    .diagnostics
                    .push(Diagnostic::error(message).at(decoder.top()).hint(format!("add `name: {name}`")));
            }
            Some(field) => {
                if let Some(own) = keys.name.read(decoder).filter(|own| own.0 != name) {
                    let message = format!("skill {name:?}: `name` is {}", quoted(&own.0));
                    let hint =
                        format!("a skill has the name of its folder: write `name: {name}`, or rename the folder");
                    decoder.error_with(field, message, Some(hint));
                }
            }
        }
        let description = keys.description.located(decoder).map(|text| text.map(|text| text.0));
        let Some(description) = description.filter(|text| !text.is_empty()) else {
            if keys.description.field().is_none_or(|field| matches!(field.node.value, Value::Str(_))) {
                let hint = "a model sees nothing else of it: say what it does, and when to use it";
                let message = format!("skill {name:?}: `description` cannot be empty");
                let at = keys.description.field().map_or(decoder.top(), |field| decoder.position(field.span()));
                decoder.diagnostics.push(Diagnostic::error(message).at(at).hint(hint));
            }
            return None;
        };
        let compatibility = keys.compatibility.located(decoder).map(|text| text.map(|text| text.0));
        for (key, text, most) in [
            ("description", Some(&description), MAX_DESCRIPTION),
            ("compatibility", compatibility.as_ref(), MAX_COMPATIBILITY),
        ] {
            if let Some(text) = text.filter(|text| text.chars().count() > most) {
                let message = format!("skill {name:?}: `{key}` has more than {most} characters");
                decoder.diagnostics.push(Diagnostic::error(message).at(text.position.clone()));
            }
        }
        // Read for what is wrong with it.
        let _ = keys.metadata.read(decoder);
        Some(Self {
            name: name.to_owned(),
            description,
            license: keys.license.read(decoder),
            compatibility: compatibility.map(|text| text.value),
            tools: keys.allowed_tools.read(decoder).map(|names| names.0).unwrap_or_default(),
            arguments: keys
                .arguments
                .field()
                .map(|field| arguments::read(decoder, field, document.body))
                .unwrap_or_default(),
            body: document.body.to_owned(),
            files: Vec::new(),
            folder: None,
            source: decoder.top(),
            source_name: source_name.to_owned(),
        })
    }
}

fn check_name(decoder: &mut Decoder, name: &str) {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let wrong = if name.is_empty() || !name.chars().all(allowed) {
        "has only lower-case letters, digits and hyphens".to_owned()
    } else if name.starts_with('-') || name.ends_with('-') || name.contains("--") {
        "has hyphens only between letters or digits".to_owned()
    } else if name.len() > MAX_NAME {
        format!("has at most {MAX_NAME} characters")
    } else {
        return;
    };
    let message = format!("the name of a skill {wrong}, found {}", quoted(name));
    decoder.diagnostics.push(Diagnostic::error(message).at(decoder.top()).hint("rename its folder or file"));
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = ".harness/skills/pdf/SKILL.md";

    fn parse(name: &str, front: &str) -> (Option<Skill>, Vec<String>) {
        let (skill, diagnostics) =
            Skill::parse_at(FILE, "skills/pdf", name, &format!("---\n{front}---\n\n# PDF\n\nFill it.\n"));
        let shown = diagnostics.iter().map(|one| {
            let line = one.position.as_ref().map_or(0, |at| at.line);
            format!("{line} {}", one.message)
        });
        (skill, shown.collect())
    }

    #[test]
    fn a_whole_skill() {
        let front = "name: pdf\ndescription: >\n  Fills PDF forms.\n  Use it for forms.\nlicense: MIT\ncompatibility: needs python\nmetadata: { author: Ada, version: \"1.0\" }\nallowed-tools: Bash(git add *) read_file, Bash(jq:*)\nversion: 1\n";
        let (skill, wrong) = parse("pdf", front);
        assert_eq!(wrong, Vec::<String>::new());
        let skill = skill.unwrap();
        assert_eq!(skill.description.value, "Fills PDF forms. Use it for forms.");
        assert_eq!((skill.license.as_deref(), skill.compatibility.as_deref()), (Some("MIT"), Some("needs python")));
        let tools: Vec<&str> = skill.tools.iter().map(|tool| tool.value.as_str()).collect();
        assert_eq!(tools, ["Bash", "read_file", "Bash"]);
        assert_eq!((skill.body.as_str(), skill.source_name.as_str()), ("# PDF\n\nFill it.", "skills/pdf"));
    }

    #[test]
    fn what_is_wrong() {
        for (name, front, expect) in [
            ("pdf", "name: pdf\n", "1 skill \"pdf\": `description` cannot be empty"),
            ("pdf", "name: pdf\ndescription: ''\n", "3 skill \"pdf\": `description` cannot be empty"),
            ("pdf", "name: doc\ndescription: x\n", "2 skill \"pdf\": `name` is `doc`"),
            ("pdf", "description: x\n", "1 skill \"pdf\": `name` cannot be empty"),
            (
                "Pdf",
                "name: Pdf\ndescription: x\n",
                "1 the name of a skill has only lower-case letters, digits and hyphens, found `Pdf`",
            ),
            (
                "a--b",
                "name: a--b\ndescription: x\n",
                "1 the name of a skill has hyphens only between letters or digits, found `a--b`",
            ),
            ("pdf", "name: pdf\ndescription: x\nscript: y\n", "4 unknown key `script`"),
            ("pdf", "name: pdf\ndescription: x\nhooks: []\n", "4 unknown key `hooks`"),
            ("pdf", "name: pdf\ndescription: x\nmodel: y\n", "4 unknown key `model`, it is ignored"),
            (
                "pdf",
                "name: pdf\ndescription: x\nmetadata: y\n",
                "4 parse skill pdf: yaml: line 4: `metadata` must be a mapping, found a string",
            ),
        ] {
            let (skill, wrong) = parse(name, front);
            assert_eq!(wrong, [expect], "{front}");
            assert_eq!(skill.is_some(), expect.contains("is ignored"), "{front}");
        }
        let long = |key: &str, most: usize| format!("name: pdf\n{key}: {}\n", "ä".repeat(most));
        assert!(parse("pdf", &long("description", MAX_DESCRIPTION)).0.is_some());
        let (_, wrong) = parse("pdf", &long("description", MAX_DESCRIPTION + 1));
        assert_eq!(wrong, ["3 skill \"pdf\": `description` has more than 1024 characters"]);
        let (_, wrong) = parse("pdf", &format!("description: x\n{}", long("compatibility", MAX_COMPATIBILITY + 1)));
        assert_eq!(wrong, ["4 skill \"pdf\": `compatibility` has more than 500 characters"]);
        let name = "a".repeat(MAX_NAME + 1);
        let (_, wrong) = parse(&name, &format!("name: {name}\ndescription: x\n"));
        assert!(wrong[0].starts_with("1 the name of a skill has at most 64 characters, found `aaa"), "{wrong:?}");
    }
}
