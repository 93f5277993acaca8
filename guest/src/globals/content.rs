//! `content.text`, `image`, `audio`, `resource`, `link` and `result`: what a tool returns that is more than a value.
//!
//! They make values of types of their own, so that no dict is ever taken for content. The host checks what is in them.

use std::fmt;

use allocative::Allocative;
use serde_json::{Map, Value as Json, json};
use starlark::environment::GlobalsBuilder;
use starlark::values::list::ListRef;
use starlark::values::none::NoneOr;
use starlark::values::tuple::TupleRef;
use starlark::values::{
    NoSerialize, ProvidesStaticType, StarlarkPagable, StarlarkValue, Value, ValueLike, starlark_value,
};
use starlark::{starlark_module, starlark_simple_value};

use super::{argument, told};
use crate::observe::pure;

pub(crate) fn register(builder: &mut GlobalsBuilder) {
    builder.namespace("content", |space| pure(space, "content", functions));
}

/// One block.
#[derive(Debug, ProvidesStaticType, NoSerialize, Allocative, StarlarkPagable)]
struct Block(
    #[allocative(skip)]
    #[starlark_pagable(skip)]
    Map<String, Json>,
);
starlark_simple_value!(Block);

impl fmt::Display for Block {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "content.{}(...)", self.0.get("type").and_then(Json::as_str).unwrap_or_default())
    }
}

#[starlark_value(type = "content")]
impl<'v> StarlarkValue<'v> for Block {}

/// All that a tool returns.
#[derive(Debug, ProvidesStaticType, NoSerialize, Allocative, StarlarkPagable)]
struct Whole(
    #[allocative(skip)]
    #[starlark_pagable(skip)]
    Json,
);
starlark_simple_value!(Whole);

impl fmt::Display for Whole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("content.result(...)")
    }
}

#[starlark_value(type = "content_result")]
impl<'v> StarlarkValue<'v> for Whole {}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    fn text<'v>(
        s: Value<'v>,
        #[starlark(default = NoneOr::None)] audience: NoneOr<Value<'v>>,
        #[starlark(default = NoneOr::None)] priority: NoneOr<Value<'v>>,
    ) -> anyhow::Result<Block> {
        let builtin = "content.text";
        let mut block = block("text", [("text", argument::text(builtin, "s", s)?)]);
        for (name, given) in [("audience", audience), ("priority", priority)] {
            if let NoneOr::Other(given) = given {
                block.0.insert(name.to_owned(), told(builtin, name, given)?);
            }
        }
        Ok(block)
    }

    fn image<'v>(data: Value<'v>, mime: Value<'v>) -> anyhow::Result<Block> {
        binary("image", data, mime)
    }

    fn audio<'v>(data: Value<'v>, mime: Value<'v>) -> anyhow::Result<Block> {
        binary("audio", data, mime)
    }

    /// Exactly one of `text` and `blob`.
    fn resource<'v>(
        uri: Value<'v>,
        #[starlark(default = NoneOr::None)] text: NoneOr<Value<'v>>,
        #[starlark(default = NoneOr::None)] blob: NoneOr<Value<'v>>,
        #[starlark(default = NoneOr::None)] mime: NoneOr<Value<'v>>,
    ) -> anyhow::Result<Block> {
        let builtin = "content.resource";
        let (name, body) = match (text, blob) {
            (NoneOr::Other(text), NoneOr::None) => ("text", text),
            (NoneOr::None, NoneOr::Other(blob)) => ("blob", blob),
            _ => anyhow::bail!("{builtin}: give `text` or `blob`, and not both"),
        };
        let mut block = block("resource", [("uri", argument::text(builtin, "uri", uri)?)]);
        optional(&mut block, builtin, "mime", mime)?;
        block.0.insert(name.to_owned(), argument::text(builtin, name, body)?.into());
        Ok(block)
    }

    fn link<'v>(
        uri: Value<'v>,
        name: Value<'v>,
        #[starlark(default = NoneOr::None)] description: NoneOr<Value<'v>>,
        #[starlark(default = NoneOr::None)] mime: NoneOr<Value<'v>>,
    ) -> anyhow::Result<Block> {
        let builtin = "content.link";
        let parts = [("uri", argument::text(builtin, "uri", uri)?), ("name", argument::text(builtin, "name", name)?)];
        let mut block = block("link", parts);
        optional(&mut block, builtin, "description", description)?;
        optional(&mut block, builtin, "mime", mime)?;
        Ok(block)
    }

    fn result<'v>(
        blocks: Value<'v>,
        #[starlark(default = NoneOr::None)] structured: NoneOr<Value<'v>>,
        #[starlark(default = false)] error: bool,
    ) -> anyhow::Result<Whole> {
        let builtin = "content.result";
        let blocks = match blocks.downcast_ref::<Block>() {
            Some(block) => vec![Json::Object(block.0.clone())],
            None => {
                let items = items(blocks).ok_or_else(|| {
                    anyhow::anyhow!("{builtin}: blocks must be content or a list of it, got {}", blocks.get_type())
                })?;
                all(&items).map_err(|why| anyhow::anyhow!("{builtin}: {why}"))?
            }
        };
        let mut whole = json!({ "blocks": blocks, "error": error });
        if let (NoneOr::Other(structured), Json::Object(whole)) = (structured, &mut whole) {
            whole.insert("structured".to_owned(), told(builtin, "structured", structured)?);
        }
        Ok(Whole(whole))
    }
}

fn block<const N: usize>(kind: &str, parts: [(&str, &str); N]) -> Block {
    let parts = parts.map(|(name, text)| (name.to_owned(), Json::from(text)));
    Block([("type".to_owned(), Json::from(kind))].into_iter().chain(parts).collect())
}

fn binary(kind: &str, data: Value<'_>, mime: Value<'_>) -> anyhow::Result<Block> {
    let builtin = format!("content.{kind}");
    let (data, mime) = (argument::text(&builtin, "data", data)?, argument::text(&builtin, "mime", mime)?);
    Ok(block(kind, [("mime", mime), ("data", data)]))
}

fn optional(block: &mut Block, builtin: &str, name: &str, given: NoneOr<Value<'_>>) -> anyhow::Result<()> {
    if let NoneOr::Other(given) = given {
        block.0.insert(name.to_owned(), argument::text(builtin, name, given)?.into());
    }
    Ok(())
}

fn items<'v>(list: Value<'v>) -> Option<Vec<Value<'v>>> {
    let items = ListRef::from_value(list).map(|list| list.content().to_vec());
    items.or_else(|| TupleRef::from_value(list).map(|tuple| tuple.content().to_vec()))
}

/// The blocks of a list that has nothing else.
fn all(items: &[Value<'_>]) -> anyhow::Result<Vec<Json>> {
    let block = |(at, item): (usize, &Value<'_>)| {
        let block = item.downcast_ref::<Block>().map(|block| Json::Object(block.0.clone()));
        block.ok_or_else(|| {
            let found = item.get_type();
            anyhow::anyhow!(
                "item {at} of the list is a {found}: a list with content has nothing else, see `content.text`"
            )
        })
    };
    items.iter().enumerate().map(block).collect()
}

/// What `run` returned, where that is content: one block, a list of them, or `content.result`.
pub(crate) fn of_return(result: Value<'_>) -> anyhow::Result<Option<Json>> {
    if let Some(Whole(whole)) = result.downcast_ref() {
        return Ok(Some(whole.clone()));
    }
    let items = items(result).unwrap_or_else(|| vec![result]);
    if !items.iter().any(|item| item.downcast_ref::<Block>().is_some()) {
        return Ok(None);
    }
    Ok(Some(json!({ "blocks": all(&items)?, "error": false })))
}

#[cfg(test)]
mod tests {
    use starlark::environment::Module;
    use starlark::eval::Evaluator;
    use starlark::syntax::AstModule;

    use super::*;
    use crate::testing::fail_all;
    use crate::{dialect, globals};

    fn returned(program: &str) -> Result<Option<Json>, String> {
        let ast = AstModule::parse("test", program.to_owned(), &dialect::DIALECT).unwrap();
        let globals = globals::build();
        Module::with_temp_heap(|module| {
            let mut evaluator = Evaluator::new(&module);
            let result =
                evaluator.eval_module(ast, &globals).map_err(|error| error.without_diagnostic().to_string())?;
            of_return(result).map_err(|error| error.to_string())
        })
    }

    #[test]
    fn blocks() {
        let cases = [
            ("content.text('a')", json!({"type": "text", "text": "a"})),
            (
                "content.text('a', audience = ['user'], priority = 0.5)",
                json!({"type": "text", "text": "a", "audience": ["user"], "priority": 0.5}),
            ),
            ("content.image('AA==', 'image/png')", json!({"type": "image", "mime": "image/png", "data": "AA=="})),
            (
                "content.audio(data = 'AA==', mime = 'audio/wav')",
                json!({"type": "audio", "mime": "audio/wav", "data": "AA=="}),
            ),
            ("content.resource('a:b', 'x')", json!({"type": "resource", "uri": "a:b", "text": "x"})),
            (
                "content.resource('a:b', blob = 'AA==', mime = 'a/b')",
                json!({"type": "resource", "uri": "a:b", "mime": "a/b", "blob": "AA=="}),
            ),
            ("content.link('a:b', 'n')", json!({"type": "link", "uri": "a:b", "name": "n"})),
            (
                "content.link('a:b', 'n', 'd', 'a/b')",
                json!({"type": "link", "uri": "a:b", "name": "n", "description": "d", "mime": "a/b"}),
            ),
        ];
        for (program, block) in cases {
            assert_eq!(returned(program), Ok(Some(json!({"blocks": [block], "error": false}))), "{program}");
        }
    }

    #[test]
    fn what_is_content_and_what_is_not() {
        let a = json!({"type": "text", "text": "a"});
        let cases = [
            ("[content.text('a'), content.text('a')]", Some(json!({"blocks": [a, a], "error": false}))),
            ("(content.text('a'),)", Some(json!({"blocks": [a], "error": false}))),
            ("content.result(content.text('a'))", Some(json!({"blocks": [a], "error": false}))),
            (
                "content.result([], structured = {'n': 1})",
                Some(json!({"blocks": [], "error": false, "structured": {"n": 1}})),
            ),
            ("content.result([content.text('a')], error = True)", Some(json!({"blocks": [a], "error": true}))),
            // What only looks like it.
            ("{'type': 'text', 'text': 'a'}", None),
            ("[{'type': 'image', 'data': 'AA==', 'mime': 'image/png'}]", None),
            ("{'blocks': [], 'error': False}", None),
            ("'content {}'", None),
            ("[]", None),
        ];
        for (program, content) in cases {
            assert_eq!(returned(program), Ok(content), "{program}");
        }
        let mixed = "item 1 of the list is a string: a list with content has nothing else, see `content.text`";
        assert_eq!(returned("[content.text('a'), 'b']"), Err(mixed.to_owned()));
        assert_eq!(returned("content.result([content.text('a'), 'b'])"), Err(format!("content.result: {mixed}")));
    }

    #[test]
    fn errors() {
        fail_all([
            ("content.text(1)", "content.text: s must be a string, got int"),
            (
                "content.text('a', priority = len)",
                "content.text: priority: a value of type `function` cannot be told as JSON",
            ),
            ("content.image(b = 1)", "Missing parameter `data` for call to `image`"),
            ("content.image(None, 'image/png')", "content.image: data must be a string, got NoneType"),
            ("content.resource('a:b')", "content.resource: give `text` or `blob`, and not both"),
            ("content.resource('a:b', 'x', 'AA==')", "content.resource: give `text` or `blob`, and not both"),
            ("content.link('a:b', name = 2)", "content.link: name must be a string, got int"),
            ("content.result('a')", "content.result: blocks must be content or a list of it, got string"),
            ("{'a': content.text('a')}", "a value of type `content` cannot be told as JSON"),
            ("json.encode(content.text('a'))", "json.encode: a value of type `content` cannot be told as JSON"),
        ]);
        // They are shown without what is in them.
        crate::testing::check("str(content.image('AA==', 'image/png'))", json!("content.image(...)"));
        crate::testing::check("type(content.text('a'))", json!("content"));
    }
}
