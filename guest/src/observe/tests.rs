use starlark::environment::Module;
use starlark::starlark_module;
use starlark::syntax::AstModule;

use super::*;
use crate::dialect;

/// `f(s, n = …, *more, char = …)`.
fn signature() -> Signature {
    let parameter =
        |name: &str, by_place, required| Parameter { name: name.to_owned(), by_place, by_name: true, required };
    let parameters = vec![parameter("s", true, true), parameter("n", true, false), parameter("char", false, false)];
    Signature { parameters, rest: Some("more".to_owned()) }
}

#[starlark_module]
fn probes(builder: &mut GlobalsBuilder) {
    /// What the arguments are bound to.
    fn bound<'v>(args: &Arguments<'v, '_>, heap: Heap<'v>) -> anyhow::Result<String> {
        Ok(match signature().bind(args, heap) {
            Some(bound) => bound.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" "),
            None => "none".to_owned(),
        })
    }

    /// The call with other arguments than `s = 1, n = "old"`.
    fn call<'v>(after: &str, heap: Heap<'v>) -> anyhow::Result<String> {
        let given = [("s", heap.alloc(1)), ("n", heap.alloc("old"))];
        // A value that a hook saw as something else.
        let before: Map<String, Json> = serde_json::from_str(r#"{"s": "<seen>", "n": "old"}"#)?;
        let after: Map<String, Json> = serde_json::from_str(after)?;
        let changed = Changed { given: &given, before: &before, after: &after };
        Ok(match signature().call(&changed, heap) {
            Some(Call { by_place, by_name }) => {
                let places = by_place.iter().map(ToString::to_string);
                let names = by_name.iter().map(|(name, value)| format!("{name}={value}"));
                places.chain(names).collect::<Vec<_>>().join(" ")
            }
            None => "none".to_owned(),
        })
    }
}

#[track_caller]
fn check(program: &str, expected: &str) {
    let ast = AstModule::parse("test", program.to_owned(), &dialect::DIALECT).unwrap();
    let globals = GlobalsBuilder::standard().with(probes).build();
    Module::with_temp_heap(|module| {
        let mut evaluator = Evaluator::new(&module);
        let result = evaluator.eval_module(ast, &globals).unwrap();
        assert_eq!(result.unpack_str(), Some(expected), "{program}");
    });
}

#[test]
fn arguments_have_the_names_of_their_parameters() {
    check("bound(1)", "s=1 more=[]");
    check("bound(1, 2, 3, 4, char = 5)", "s=1 n=2 char=5 more=[3, 4]");
    check("bound(n = 2, s = 1)", "s=1 n=2 more=[]");
    check("bound(*[1, 2], **{'char': 3})", "s=1 n=2 char=3 more=[]");
    for none in ["bound()", "bound(n = 1)", "bound(1, s = 2)", "bound(1, other = 2)", "bound(1, **{'other': 2})"] {
        check(none, "none");
    }
}

#[test]
fn a_call_is_made_of_what_a_hook_left_and_what_it_changed() {
    check(r#"call('{"s": "<seen>", "n": "old"}')"#, r#"1 "old""#);
    check(r#"call('{"s": "<seen>", "n": "new"}')"#, r#"1 "new""#);
    check(r#"call('{"s": "<other>"}')"#, r#""<other>""#);
    check(r#"call('{"s": 2, "char": "x", "n": 3, "more": [4, 5]}')"#, r#"2 3 4 5 char="x""#);
    check(r#"call('{"s": 2, "char": "x", "more": []}')"#, r#"2 char="x""#);
    for none in
        [r#"{}"#, r#"{"n": 1}"#, r#"{"s": 1, "more": [2]}"#, r#"{"s": 1, "more": 2}"#, r#"{"s": 1, "other": 2}"#]
    {
        check(&format!("call('{none}')"), "none");
    }
}

#[test]
fn a_signature_is_read_from_the_function() {
    #[starlark_module]
    fn functions(builder: &mut GlobalsBuilder) {
        fn all<'v>(
            a: Value<'v>,
            #[starlark(default = starlark::values::none::NoneOr::None)] b: starlark::values::none::NoneOr<Value<'v>>,
            #[starlark(args)] more: starlark::values::tuple::UnpackTuple<Value<'v>>,
        ) -> anyhow::Result<bool> {
            let _ = (a, b.into_option(), more);
            Ok(true)
        }
    }
    let globals = GlobalsBuilder::new().with(functions).build();
    let (_, function) = globals.iter().next().unwrap();
    let Signature { parameters, rest } = Signature::of(function.to_value());
    let read: Vec<_> = parameters.iter().map(|p| (p.name.as_str(), p.by_place, p.by_name, p.required)).collect();
    assert_eq!(read, [("a", true, true, true), ("b", true, true, false)]);
    assert_eq!(rest.as_deref(), Some("more"));
}

#[test]
fn what_has_no_place_in_a_payload_is_shown_as_its_type() {
    Module::with_temp_heap(|module| {
        let heap = module.heap();
        let mut nested = heap.alloc(1);
        for _ in 0..99 {
            nested = heap.alloc(AllocList([nested]));
        }
        assert_ne!(shown(nested), json!("<list>"));
        assert_eq!(shown(heap.alloc(AllocList([nested]))), json!("<list>"));
        assert_eq!(shown(heap.alloc(f64::NAN)), json!("<float>"));
        assert_eq!(shown(heap.alloc("text")), json!("text"));
    });
}
