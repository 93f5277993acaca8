//! Calls of tools in a script that a model wrote: whether names, arguments and types are right, before the first one is
//! made. It looks at words and does not run anything, so that what it cannot be sure of it lets pass.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value as Json;

use super::builtins::is_known;
use super::tokens::{Token, What, tokens};
use crate::suggest::closest;
use crate::tool::{Parameter, ParameterType, Tool};
use harness_policy::text::quoted;

/// Faults that are listed.
const MOST: usize = 20;

/// What is wrong with a call, and where, both from 1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The line in the script.
    pub line: u32,
    /// The column in that, in characters.
    pub column: u32,
    /// In words.
    pub message: String,
}

/// What a script says of tools.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Calls {
    /// The functions of tools that it names and does not define itself.
    pub functions: BTreeSet<String>,
    /// What is wrong, in the order of the script.
    pub faults: Vec<Fault>,
    /// Whether its `run` takes no argument.
    pub bare: bool,
}

/// Reads a script. `functions` has the tools by the names of their functions, `names` by their own.
pub fn calls(text: &str, functions: &BTreeMap<String, Arc<Tool>>, names: &BTreeMap<&str, &Arc<Tool>>) -> Calls {
    let all = tokens(text);
    let (at_top, anywhere) = (defined(&all, true), defined(&all, false));
    let mut found = Calls { bare: is_bare(&all), ..Calls::default() };
    for (index, token) in all.iter().enumerate() {
        let What::Name(name) = token.what else { continue };
        if after_dot(&all, index) || is_key(&all, index) {
            continue;
        }
        let is_called = mark(&all, index.saturating_add(1)) == Some('(');
        let fault = |message: String| Fault { line: token.line, column: token.column, message };
        if let Some(tool) = functions.get(name) {
            if !at_top.contains(name) {
                found.functions.insert(name.to_owned());
            }
            if is_called && !anywhere.contains(name) {
                found.faults.extend(wrong(name, tool, &all, index.saturating_add(1)).into_iter().map(fault));
            }
        } else if name == "meta" {
            found.faults.extend(by_name(&all, index, names));
        } else if is_called && !anywhere.contains(name) && !is_known(name) {
            let meant = closest(name, functions.keys().map(String::as_str));
            let meant = meant.map_or_else(String::new, |meant| format!(": did you mean `{meant}`?"));
            found.faults.push(fault(format!("there is no tool or function `{name}`{meant}")));
        }
        if found.faults.len() >= MOST {
            break;
        }
    }
    found.faults.truncate(MOST);
    found
}

/// The name in `meta.call("name", ...)` and `meta.try_call("name", ...)`, where there is no such tool.
fn by_name(all: &[Token<'_>], index: usize, names: &BTreeMap<&str, &Arc<Tool>>) -> Option<Fault> {
    let [dot, call, open, name, after] = all.get(index.checked_add(1)?..index.checked_add(6)?)? else { return None };
    // A name that is put together is known when it runs.
    let (What::Mark('.'), What::Name("call" | "try_call"), What::Mark('('), What::Text(text), What::Mark(',' | ')')) =
        (dot.what, call.what, open.what, name.what, after.what)
    else {
        return None;
    };
    // An escape in it is not looked into.
    if names.contains_key(text) || text.contains('\\') {
        return None;
    }
    let meant = closest(text, names.keys().copied());
    let meant = meant.map_or_else(String::new, |meant| format!(": did you mean {}?", quoted(meant)));
    Some(Fault { line: name.line, column: name.column, message: format!("there is no tool {}{meant}", quoted(text)) })
}

/// What is wrong with the arguments of a call whose bracket opens there.
fn wrong(name: &str, tool: &Tool, all: &[Token<'_>], open: usize) -> Vec<String> {
    let Some(given) = arguments(all, open) else { return Vec::new() };
    let mut found = Vec::new();
    let (mut named, mut spread) = (BTreeSet::new(), false);
    let declared = || tool.parameters.list.iter().map(|parameter| parameter.name.as_str());
    for argument in given {
        let (key, value) = match argument.as_slice() {
            [What::Mark('*'), ..] => {
                spread = true;
                continue;
            }
            [What::Name(key), What::Mark('='), value @ ..] if value.first() != Some(&What::Mark('=')) => (*key, value),
            _ => {
                let first = declared().next().unwrap_or("name");
                found.push(format!("{name}: arguments are given by name, such as `{name}({first}=...)`"));
                continue;
            }
        };
        if !named.insert(key) {
            found.push(format!("{name}: `{key}` is given twice"));
        }
        match tool.parameters.list.iter().find(|parameter| parameter.name == key) {
            Some(parameter) => {
                let wanted = parameter.kind.value;
                if let Some(is) = literal(value).filter(|is| !is.fits(wanted)) {
                    let (is, wanted) = (is.word(), wanted.word());
                    found.push(format!("{name}: `{key}` must be of type `{wanted}`, and this is of type `{is}`"));
                }
            }
            None if !takes_others(tool) => {
                let meant = closest(key, declared());
                let meant = meant.map_or_else(
                    || format!("it has {}", listed(declared())),
                    |meant| format!("did you mean `{meant}`?"),
                );
                found.push(format!("{name}: there is no parameter `{key}`: {meant}"));
            }
            None => {}
        }
    }
    if !spread {
        let is_needed =
            |parameter: &&Parameter| parameter.required.value && !parameter.keywords.contains_key("default");
        let required = tool.parameters.list.iter().filter(is_needed);
        let missing: Vec<&str> =
            required.map(|parameter| parameter.name.as_str()).filter(|name| !named.contains(name)).collect();
        if !missing.is_empty() {
            found.push(format!("{name}: missing: {}", listed(missing.into_iter())));
        }
    }
    found
}

fn listed<'a>(names: impl Iterator<Item = &'a str>) -> String {
    let names: Vec<String> = names.map(|name| format!("`{name}`")).collect();
    if names.is_empty() { "no parameters".to_owned() } else { names.join(", ") }
}

/// Whether a tool says that it takes arguments which it does not name.
fn takes_others(tool: &Tool) -> bool {
    let schema = tool.json_schema();
    let more = ["additionalProperties", "patternProperties", "unevaluatedProperties", "propertyNames"];
    let says = more.iter().any(|key| schema.get(key).is_some_and(|said| *said != Json::Bool(false)));
    // One that names none does not say what it takes.
    if tool.parameters.list.is_empty() && schema.get("additionalProperties").is_none() {
        return true;
    }
    let elsewhere = ["allOf", "anyOf", "oneOf", "$ref", "if", "dependentSchemas"];
    says || elsewhere.iter().any(|key| schema.get(key).is_some())
}

/// The arguments of a call, each as its words. None where the bracket is not closed.
fn arguments<'t>(all: &[Token<'t>], open: usize) -> Option<Vec<Vec<What<'t>>>> {
    let (mut found, mut depth) = (vec![Vec::new()], 0_u32);
    for token in all.get(open.checked_add(1)?..)? {
        match token.what {
            What::Mark(')') if depth == 0 => {
                found.retain(|argument| !argument.is_empty());
                return Some(found);
            }
            What::Mark('(' | '[' | '{') => depth = depth.saturating_add(1),
            What::Mark(')' | ']' | '}') => depth = depth.saturating_sub(1),
            What::Mark(',') if depth == 0 => {
                found.push(Vec::new());
                continue;
            }
            _ => {}
        }
        found.last_mut()?.push(token.what);
    }
    None
}

/// The type of an argument that is written down in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Literal {
    Text,
    Number,
    Bool,
    List,
    Dict,
}

impl Literal {
    fn word(self) -> &'static str {
        match self {
            Self::Text => "string",
            Self::Number => "number",
            Self::Bool => "boolean",
            Self::List => "array",
            Self::Dict => "object",
        }
    }

    fn fits(self, wanted: ParameterType) -> bool {
        match wanted {
            ParameterType::String => self == Self::Text,
            ParameterType::Number | ParameterType::Integer => self == Self::Number,
            ParameterType::Boolean => self == Self::Bool,
            ParameterType::Array => self == Self::List,
            ParameterType::Object => self == Self::Dict,
            ParameterType::Any => true,
        }
    }
}

/// The type of a value, where it is one word or one bracket: of anything else that is known when it runs.
fn literal(value: &[What<'_>]) -> Option<Literal> {
    match value {
        [What::Text(_)] => Some(Literal::Text),
        [What::Number] | [What::Mark('-'), What::Number] => Some(Literal::Number),
        [What::Number, What::Mark('.'), What::Number]
        | [What::Mark('-'), What::Number, What::Mark('.'), What::Number] => Some(Literal::Number),
        [What::Name("True" | "False")] => Some(Literal::Bool),
        [What::Mark('['), inner @ .., What::Mark(']')] if is_one(inner) => Some(Literal::List),
        [What::Mark('{'), inner @ .., What::Mark('}')] if is_one(inner) => Some(Literal::Dict),
        _ => None,
    }
}

/// Whether the bracket around these words is the one that closes after them.
fn is_one(inner: &[What<'_>]) -> bool {
    let mut depth = 0_i64;
    inner.iter().all(|word| {
        match word {
            What::Mark('(' | '[' | '{') => depth = depth.saturating_add(1),
            What::Mark(')' | ']' | '}') => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth >= 0
    })
}

/// Names that a script defines: by `def` and by `=`, as parameters and loop variables; or of these only the ones of the
/// script itself, outside of its functions.
fn defined<'t>(all: &[Token<'t>], at_top: bool) -> BTreeSet<&'t str> {
    let (mut found, mut depth, mut binds) = (BTreeSet::new(), 0_u32, false);
    for (index, token) in all.iter().enumerate() {
        let next = mark(all, index.saturating_add(1));
        match token.what {
            What::Mark('(' | '[' | '{') => depth = depth.saturating_add(1),
            What::Mark(')' | ']' | '}') => depth = depth.saturating_sub(1),
            What::Mark('\n' | ':') => binds = false,
            What::Name("in") => binds = false,
            What::Name("for" | "lambda") => binds = true,
            What::Name(name) => {
                let assigns = next == Some('=') && mark(all, index.saturating_add(2)) != Some('=') && depth == 0;
                let by_def = index.checked_sub(1).and_then(|at| all.get(at)).map(|before| before.what);
                let by_def = by_def == Some(What::Name("def"));
                let of_function = binds || is_parameter(all, index);
                let is_here = if at_top {
                    (by_def && token.column == 5) || (assigns && token.column == 1)
                } else {
                    by_def || assigns || of_function
                };
                if is_here && !after_dot(all, index) {
                    found.insert(name);
                }
            }
            _ => {}
        }
    }
    found
}

/// Whether a name is a parameter in the line of a `def`.
fn is_parameter(all: &[Token<'_>], index: usize) -> bool {
    let Some(token) = all.get(index) else { return false };
    let line = all.get(..index).unwrap_or_default().iter().rev().take_while(|before| before.what != What::Mark('\n'));
    let starts = line.last().is_some_and(|first| first.what == What::Name("def"));
    let before = index.checked_sub(1).and_then(|at| mark(all, at));
    starts && matches!(before, Some('(' | ',' | '*')) && matches!(token.what, What::Name(_))
}

/// Whether a script defines `run` without a parameter.
fn is_bare(all: &[Token<'_>]) -> bool {
    let whats: Vec<What<'_>> = all.iter().map(|token| token.what).collect();
    let bare = [What::Name("def"), What::Name("run"), What::Mark('('), What::Mark(')')];
    whats.windows(bare.len()).any(|window| window == bare)
}

/// Whether a name is the one of an argument: `f(name=...)`.
fn is_key(all: &[Token<'_>], index: usize) -> bool {
    let before = index.checked_sub(1).and_then(|at| mark(all, at));
    let (next, after) = (mark(all, index.saturating_add(1)), mark(all, index.saturating_add(2)));
    matches!(before, Some('(' | ',')) && next == Some('=') && after != Some('=')
}

fn after_dot(all: &[Token<'_>], index: usize) -> bool {
    index.checked_sub(1).and_then(|at| mark(all, at)) == Some('.')
}

fn mark(all: &[Token<'_>], index: usize) -> Option<char> {
    match all.get(index)?.what {
        What::Mark(mark) => Some(mark),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tool(name: &str, parameters: &Json) -> Arc<Tool> {
        let mut tool = Tool::built_in(name, "", &[]);
        tool.parameters = crate::parameters::Parameters::from_json(parameters).unwrap();
        Arc::new(tool)
    }

    fn read(text: &str) -> Calls {
        let search = tool(
            "search",
            &json!({
                "query": {"type": "string", "required": true}, "limit": {"type": "number"},
                "tags": {"type": "array", "items": {}}, "deep": {"type": "boolean"}, "more": {"type": "object"},
            }),
        );
        let open = tool("open", &json!({"type": "object", "properties": {}, "additionalProperties": true}));
        let functions = BTreeMap::from([("search".to_owned(), search.clone()), ("any_thing".to_owned(), open.clone())]);
        calls(text, &functions, &BTreeMap::from([("search", &search), ("any-thing", &open)]))
    }

    fn faults(text: &str) -> Vec<String> {
        read(text).faults.iter().map(|fault| format!("{}:{} {}", fault.line, fault.column, fault.message)).collect()
    }

    #[test]
    fn what_is_right_has_no_fault() {
        let text = "def run(args):\n    found = [search(query=q, limit=-1.5) for q in ['a', 'b']]\n    \
                    one = search(\n        query='x' + str(len(found)),\n        tags=[1][0:1],\n        deep=True,\n    )\n    \
                    any_thing(a=1, **{'b': 2})\n    meta.call('any-thing', {})\n    f = search\n    \
                    print(json.encode(one), sorted(found, key=lambda it: it))\n    return helper(f(query=''))\n\n\
                    def helper(x):\n    return x\n";
        let read = read(text);
        assert_eq!(read.faults, []);
        assert_eq!(read.functions, BTreeSet::from(["any_thing".to_owned(), "search".to_owned()]));
        assert!(!read.bare);
        assert!(super::calls("def run():\n    return 1\n", &BTreeMap::new(), &BTreeMap::new()).bare);
    }

    #[test]
    fn what_is_wrong_is_found_before_the_first_call() {
        let calls = "def run():\n    search('a')\n    search(quer='a', limit='3')\n    search(query=1, tags={}, deep=0, more=[])\n    \
                     serch(query='a')\n    search(query='a', query='b')\n    meta.try_call('serch', {})\n    search()\n";
        assert_eq!(
            faults(calls),
            [
                "2:5 search: arguments are given by name, such as `search(query=...)`",
                "2:5 search: missing: `query`",
                "3:5 search: there is no parameter `quer`: did you mean `query`?",
                "3:5 search: `limit` must be of type `number`, and this is of type `string`",
                "3:5 search: missing: `query`",
                "4:5 search: `query` must be of type `string`, and this is of type `number`",
                "4:5 search: `tags` must be of type `array`, and this is of type `object`",
                "4:5 search: `deep` must be of type `boolean`, and this is of type `number`",
                "4:5 search: `more` must be of type `object`, and this is of type `array`",
                "5:5 there is no tool or function `serch`: did you mean `search`?",
                "6:5 search: `query` is given twice",
                "7:19 there is no tool `serch`: did you mean `search`?",
                "8:5 search: missing: `query`",
            ]
        );
        assert_eq!(faults(&"search()\n".repeat(100)).len(), MOST);
    }

    #[test]
    fn a_script_may_use_the_names_for_its_own() {
        let own = "search = 3\n\ndef any_thing(a, b):\n    return a\n\ndef run(args):\n    return any_thing(1, 2)\n";
        assert_eq!(read(own), Calls::default());
        let inner = "def run(search):\n    return search(1)\n";
        assert_eq!(faults(inner), [""; 0]);
        for odd in
            ["", "search(", "search(query='", "search(((]", "search(query==1)", "meta.call(", "def", "search(*[])"]
        {
            let _ = read(odd);
        }
    }
}
