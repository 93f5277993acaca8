//! `template.render`: puts values in the place of `{{ name }}`.
//!
//! A placeholder is a path: `{{ user.tags.0 }}` is the item 0 of the list `tags` of the dict `user`. There is nothing
//! else in it, no loops, no conditions. Braces that are not closed stay as they are.

use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::dict::DictRef;
use starlark::values::list::ListRef;
use starlark::values::tuple::TupleRef;
use starlark::values::{Heap, Value};

use super::argument::{self, MAX_TEXT};

use crate::observe::pure;

/// Placeholders of one template. A text with more is data, not a template.
const MAX_PLACEHOLDERS: usize = 10_000;

pub(crate) fn register(builder: &mut GlobalsBuilder) {
    builder.namespace("template", |space| pure(space, "template", functions));
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    /// The template with every placeholder replaced by the value's text, as `str` gives it.
    fn render<'v>(tmpl: Value<'v>, vars: Value<'v>, heap: Heap<'v>) -> anyhow::Result<String> {
        let template = argument::text("template.render", "tmpl", tmpl)?;
        anyhow::ensure!(
            DictRef::from_value(vars).is_some(),
            "template.render: vars must be a dict, got {}",
            vars.get_type()
        );
        fill(template, vars, heap).map_err(|error| anyhow::anyhow!("template.render: {error}"))
    }
}

fn fill<'v>(template: &str, vars: Value<'v>, heap: Heap<'v>) -> anyhow::Result<String> {
    let mut result = String::new();
    let mut append = |piece: &str| {
        // One long value may be asked for many times.
        anyhow::ensure!(result.len() + piece.len() <= MAX_TEXT, "the result is longer than {MAX_TEXT} bytes");
        result.push_str(piece);
        Ok(())
    };
    let mut rest = template;
    let mut placeholders = 0;
    while let Some((before, path, after)) = placeholder(rest) {
        placeholders += 1;
        anyhow::ensure!(placeholders <= MAX_PLACEHOLDERS, "more than {MAX_PLACEHOLDERS} placeholders");
        append(before)?;
        let value = find(path.trim(), vars, heap)?;
        match value.unpack_str() {
            Some(text) => append(text)?,
            None => append(&value.to_str())?,
        }
        rest = after;
    }
    append(rest)?;
    Ok(result)
}

/// What is before the next placeholder, in it, and after it.
fn placeholder(text: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = text.split_once("{{")?;
    let (path, after) = rest.split_once("}}")?;
    Some((before, path, after))
}

fn find<'v>(path: &str, vars: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
    anyhow::ensure!(!path.is_empty(), "placeholder cannot be empty");
    path.split('.').try_fold(vars, |value, name| step(value, name, path, heap))
}

fn step<'v>(value: Value<'v>, name: &str, path: &str, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
    let items = match (ListRef::from_value(value), TupleRef::from_value(value)) {
        (Some(list), _) => Some(list.content()),
        (None, Some(tuple)) => Some(tuple.content()),
        (None, None) => None,
    };
    let found = if let Some(items) = items {
        let number = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
        let item = name.parse::<usize>().ok().and_then(|index| items.get(index).copied());
        anyhow::ensure!(item.is_some() || !number, "index {name} out of range");
        item.filter(|_| number)
    } else if let Some(dict) = DictRef::from_value(value) {
        dict.get_str(name)
    } else {
        match value.get_type() {
            "struct" => value.get_attr(name, heap).ok().flatten(),
            "record" | "headers" => value.at(heap.alloc(name), heap).ok(),
            _ => None,
        }
    };
    found.ok_or_else(|| anyhow::anyhow!("missing value for \"{path}\""))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use crate::testing::{check_all, evaluate, fail_all};

    #[test]
    fn render() {
        check_all([
            ("template.render('Hi {{ name }}!', {'name': 'Ada'})", json!("Hi Ada!")),
            ("template.render(tmpl = '{{a}}{{  a  }}{{\\na\\n}}', vars = {'a': 1})", json!("111")),
            ("template.render('{{ a.b.0 }}', {'a': {'b': ['x', 'y']}})", json!("x")),
            ("template.render('{{ a.1.b }}', {'a': (1, {'b': 2})})", json!("2")),
            ("template.render('{{ a.0 }}', {'a': {'0': 'key'}})", json!("key")),
            ("template.render('{{ a }}', {'a': [1, 'x', None, True, 1.5]})", json!("[1, \"x\", None, True, 1.5]")),
            ("template.render('{{ a }} {{ b }}', {'a': None, 'b': False})", json!("None False")),
            ("template.render('{{ caf\u{e9} }}', {'caf\u{e9}': '\u{65e5}'})", json!("\u{65e5}")),
            ("template.render('', {})", json!("")),
            ("template.render('no placeholder', {})", json!("no placeholder")),
            ("template.render('{a} {{ a', {'a': 1})", json!("{a} {{ a")),
            ("template.render('}} {{ a }}}', {'a': 1})", json!("}} 1}")),
            // What a value brings along is not read again.
            ("template.render('{{ a }}', {'a': '{{ b }}', 'b': 1})", json!("{{ b }}")),
            ("template.render('{{ <b> }}', {'<b>': '<i>'})", json!("<i>")),
            ("len(template.render('{{a}}' * 10000, {'a': 'x'}))", json!(10_000)),
        ]);
    }

    #[test]
    fn errors() {
        fail_all([
            ("template.render('{{ x }}', {})", "template.render: missing value for \"x\""),
            ("template.render('{{ a.b.c }}', {'a': {'b': {}}})", "template.render: missing value for \"a.b.c\""),
            ("template.render('{{ a.b }}', {'a': 'text'})", "template.render: missing value for \"a.b\""),
            // Neither a method nor a field that a script could call.
            ("template.render('{{ a.upper }}', {'a': 'text'})", "template.render: missing value for \"a.upper\""),
            ("template.render('{{ a.keys }}', {'a': {}})", "template.render: missing value for \"a.keys\""),
            ("template.render('{{ a.x }}', {'a': [1]})", "template.render: missing value for \"a.x\""),
            ("template.render('{{ a. }}', {'a': [1]})", "template.render: missing value for \"a.\""),
            ("template.render('{{ a..0 }}', {'a': [1]})", "template.render: missing value for \"a..0\""),
            ("template.render('{{ a.-1 }}', {'a': [1]})", "template.render: missing value for \"a.-1\""),
            ("template.render('{{ a.+0 }}', {'a': [1]})", "template.render: missing value for \"a.+0\""),
            ("template.render('{{ 1 }}', {1: 'x'})", "template.render: missing value for \"1\""),
            ("template.render('{{ a.1 }}', {'a': [1]})", "template.render: index 1 out of range"),
            ("template.render('{{ a.0 }}', {'a': ()})", "template.render: index 0 out of range"),
            (
                "template.render('{{ a.99999999999999999999 }}', {'a': [1]})",
                "template.render: index 99999999999999999999 out of range",
            ),
            ("template.render('{{}}', {})", "template.render: placeholder cannot be empty"),
            ("template.render('{{  }}', {'': 1})", "template.render: placeholder cannot be empty"),
            ("template.render('', [])", "template.render: vars must be a dict, got list"),
            ("template.render(1, {})", "template.render: tmpl must be a string, got int"),
            ("template.render('{{a}}' * 10001, {'a': 'x'})", "template.render: more than 10000 placeholders"),
            (
                "template.render('{{a}}' * 17, {'a': 'x' * 1048576})",
                "template.render: the result is longer than 16777216 bytes",
            ),
        ]);
    }

    proptest! {
        #[test]
        fn any_template_is_rendered_or_refused(template in "[{}a.0 b]{0,20}") {
            let program = format!("template.render({}, {{'a': ['x', {{'b': 1}}], 'b': 'y'}})", json!(template));
            if let Err(error) = evaluate(&program) {
                prop_assert!(error.starts_with("template.render: "), "{}", error);
            }
        }
    }
}
