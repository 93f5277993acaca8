//! `arguments:` of a skill: what a person gives it where it is used as a prompt. `{{name}}` in its prose is replaced by the
//! value.

use crate::decode::{Decoder, Field};
use crate::keys::{self, Unknown, keys};
use crate::shape::{Named, Read, Schema, Shape};
use crate::suggest::closest;
use harness_policy::text::quoted;

/// Arguments of a skill at most.
const MAX_ARGUMENTS: usize = 32;
/// Values of an argument at most.
const MAX_VALUES: usize = 1000;
/// Characters of a name at most.
const MAX_NAME: usize = 64;

/// One argument, which is a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Argument {
    /// What stands between the braces.
    pub name: String,
    /// What it is.
    pub description: Option<String>,
    /// Whether the skill needs it. Another one that is not given is empty.
    pub required: bool,
    /// The only values that it may have; any where there are none.
    pub values: Vec<String>,
}

keys! {
    /// The keys of one argument.
    ArgumentKeys: Unknown::Refuse;
    /// What it is, for people.
    given description: String;
    /// Whether the skill needs it. Another one that is not given is empty.
    given required: bool = false;
    /// The only values that it may have.
    given values("enum"): Vec<String>;
}

impl Shape for Argument {
    fn schema() -> Schema {
        keys::schema::<ArgumentKeys<'_>>()
    }
}

impl Read for Argument {
    fn read(decoder: &mut Decoder, field: &Field<'_>) -> Option<Self> {
        let keys: ArgumentKeys<'_> = decoder.keys(field)?;
        let values = keys.values.read(decoder).unwrap_or_default();
        if values.len() > MAX_VALUES {
            decoder.error(field, format!("{} has more than {MAX_VALUES} values", quoted(&field.path)));
        }
        let description = keys.description.read(decoder).map(|text| text.trim().to_owned());
        let required = keys.required.read(decoder);
        Some(Self { name: String::new(), description: description.filter(|text| !text.is_empty()), required, values })
    }
}

/// Reads all arguments of a skill, and looks for them in its prose.
pub(super) fn read(decoder: &mut Decoder, field: &Field<'_>, body: &str) -> Vec<Argument> {
    let named: Named<Argument> = Named::read(decoder, field).unwrap_or_default();
    let arguments: Vec<Argument> =
        named.pairs().into_iter().map(|(name, argument)| Argument { name, ..argument }).collect();
    if arguments.len() > MAX_ARGUMENTS {
        decoder.error(field, format!("a skill has {MAX_ARGUMENTS} arguments at most"));
    }
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    for Argument { name, .. } in &arguments {
        if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(is_word) {
            let message = format!(
                "the argument {} has a name of other characters than letters, digits and `_`, or of more than {MAX_NAME}",
                quoted(name)
            );
            decoder.error(field, message);
        }
    }
    for piece in pieces(body) {
        let Piece::Value(name) = piece else { continue };
        if !arguments.iter().any(|argument| argument.name == name) {
            let known = arguments.iter().map(|argument| argument.name.as_str());
            let hint = match closest(name, known) {
                Some(name) => format!("did you mean `{{{{{name}}}}}`?"),
                None => "declare it in `arguments`".to_owned(),
            };
            decoder.warn(field, format!("`{{{{{name}}}}}` in the prose is no argument: it stays as it is"), &hint);
        }
    }
    arguments
}

/// A piece of a text with arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'t> {
    /// As it is.
    Text(&'t str),
    /// The value of this argument.
    Value(&'t str),
}

/// A text in pieces. Braces around anything that cannot be the name of an argument are text.
pub fn pieces(text: &str) -> Vec<Piece<'_>> {
    let mut found = Vec::new();
    let (mut begin, mut from) = (0, 0);
    while let Some(at) = text.get(from..).and_then(|rest| rest.find("{{")).map(|at| at.saturating_add(from)) {
        let inside = at.saturating_add(2);
        let name = text.get(inside..).and_then(|rest| rest.split_once("}}")).map(|(name, _)| name);
        let is_name = |name: &str| {
            let name = name.trim();
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        match name.filter(|name| is_name(name)) {
            Some(name) => {
                found.extend(text.get(begin..at).filter(|text| !text.is_empty()).map(Piece::Text));
                found.push(Piece::Value(name.trim()));
                from = inside.saturating_add(name.len()).saturating_add(2);
                begin = from;
            }
            // The second brace may begin the name.
            None => from = at.saturating_add(1),
        }
    }
    found.extend(text.get(begin..).filter(|text| !text.is_empty()).map(Piece::Text));
    found
}

#[cfg(test)]
mod tests {
    use super::super::Skill;
    use super::*;

    fn parse(arguments: &str, body: &str) -> (Option<Skill>, Vec<String>) {
        let text = format!("---\nname: pdf\ndescription: x\narguments:\n{arguments}---\n{body}\n");
        let (skill, diagnostics) = Skill::parse_at("f/SKILL.md", "skills/pdf", "pdf", &text);
        (skill, diagnostics.iter().map(|one| one.message.clone()).collect())
    }

    #[test]
    fn arguments_are_in_the_order_of_the_file() {
        let (skill, wrong) = parse(
            "  topic: { description: What about., required: true }\n  style: { enum: [short, long] }\n",
            "About {{topic}}, {{ style }}.",
        );
        assert_eq!(wrong, Vec::<String>::new());
        let argument = |name: &str, description: Option<&str>, required: bool, values: &[&str]| Argument {
            name: name.to_owned(),
            description: description.map(str::to_owned),
            required,
            values: values.iter().map(|value| (*value).to_owned()).collect(),
        };
        let want =
            [argument("topic", Some("What about."), true, &[]), argument("style", None, false, &["short", "long"])];
        assert_eq!(skill.unwrap().arguments, want);
    }

    #[test]
    fn what_is_wrong() {
        let (skill, wrong) = parse("  topic: {}\n", "About {{topik}}.");
        assert_eq!(wrong, ["`{{topik}}` in the prose is no argument: it stays as it is"]);
        assert!(skill.is_some());
        let name = "the argument `a-b` has a name of other characters than letters, digits and `_`, or of more than 64";
        assert_eq!(parse("  a-b: {}\n", "").1, [name]);
        assert_eq!(parse("  a: { type: string }\n", "").1, ["unknown key `arguments.a.type`"]);
        let many = |count: usize| (0..count).map(|n| format!("  a{n}: {{}}\n")).collect::<String>();
        assert!(parse(&many(MAX_ARGUMENTS), "").0.is_some());
        assert_eq!(parse(&many(MAX_ARGUMENTS + 1), "").1, ["a skill has 32 arguments at most"]);
        let values = |count: usize| format!("  a: {{ enum: [{}] }}\n", vec!["x"; count].join(", "));
        assert!(parse(&values(MAX_VALUES), "").0.is_some());
        assert_eq!(parse(&values(MAX_VALUES + 1), "").1, ["`arguments.a` has more than 1000 values"]);
        // Without arguments, braces are text.
        let text = "---\nname: pdf\ndescription: x\n---\nA {{b}}.\n";
        let (_, found) = Skill::parse_at("f/SKILL.md", "skills/pdf", "pdf", text);
        assert_eq!(found.iter().count(), 0);
    }

    #[test]
    fn a_text_is_cut_at_its_arguments() {
        use Piece::{Text, Value};
        for (text, want) in [
            ("a {{b}} c", vec![Text("a "), Value("b"), Text(" c")]),
            ("{{ b }}{{c}}", vec![Value("b"), Value("c")]),
            ("{{{b}}}", vec![Text("{"), Value("b"), Text("}")]),
            ("{{a b}} {{}} {{x", vec![Text("{{a b}} {{}} {{x")]),
            ("", vec![]),
        ] {
            assert_eq!(pieces(text), want, "{text}");
        }
    }
}
