//! `set.new`, `contains`, `union`, `intersect`, `diff`, `values`, `size`.
//!
//! The sets are the language's own, which `set(...)` makes too. Each function here returns a new one. Members keep the
//! order in which they came, and the JSON of a set is a list. Any other iterable is accepted as a set.

use starlark::collections::{Hashed, SmallSet};
use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::none::NoneOr;
use starlark::values::set::SetRef;
use starlark::values::{Heap, UnpackValue, Value};

use crate::observe::pure;

pub(crate) fn register(builder: &mut GlobalsBuilder) {
    builder.namespace("set", |space| pure(space, "set", functions));
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    /// The set of the items, an empty one without.
    fn new<'v>(
        #[starlark(default = NoneOr::None)] items: NoneOr<Value<'v>>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        let members = match items {
            NoneOr::None => Members::new(),
            NoneOr::Other(items) => members("set.new", items, heap)?,
        };
        Ok(SetRef::alloc(members, heap))
    }

    fn contains<'v>(set: Value<'v>, item: Value<'v>, heap: Heap<'v>) -> anyhow::Result<bool> {
        let item = hashed("set.contains", item)?;
        match SetRef::unpack_value_opt(set) {
            Some(_) => set.is_in(*item.key()).map_err(starlark::Error::into_anyhow),
            None => Ok(members("set.contains", set, heap)?.contains_hashed(item.as_ref())),
        }
    }

    /// The members of `a`, then those of `b` that `a` does not have.
    fn union<'v>(a: Value<'v>, b: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        let mut both = members("set.union", a, heap)?;
        for member in members("set.union", b, heap)?.into_iter_hashed() {
            both.insert_hashed(member);
        }
        Ok(SetRef::alloc(both, heap))
    }

    /// The members of `a` that `b` has too, in the order of `a`.
    fn intersect<'v>(a: Value<'v>, b: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        sift("set.intersect", a, b, true, heap)
    }

    /// The members of `a` that `b` does not have.
    fn diff<'v>(a: Value<'v>, b: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        sift("set.diff", a, b, false, heap)
    }

    /// The members as a list.
    fn values<'v>(set: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Vec<Value<'v>>> {
        Ok(members("set.values", set, heap)?.into_iter().collect())
    }

    fn size<'v>(set: Value<'v>, heap: Heap<'v>) -> anyhow::Result<usize> {
        match SetRef::unpack_value_opt(set) {
            Some(set) => Ok(set.members().len()),
            None => Ok(members("set.size", set, heap)?.len()),
        }
    }
}

/// Members in their order.
type Members<'v> = SmallSet<Value<'v>>;

fn members<'v>(builtin: &str, items: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Members<'v>> {
    let items_of =
        items.iterate(heap).map_err(|_| anyhow::anyhow!("{builtin}: expected iterable, got {}", items.get_type()))?;
    let mut members = Members::new();
    for item in items_of {
        members.insert_hashed(hashed(builtin, item)?);
    }
    Ok(members)
}

fn hashed<'v>(builtin: &str, item: Value<'v>) -> anyhow::Result<Hashed<Value<'v>>> {
    // A list could change while it is in the set.
    item.get_hashed().map_err(|_| anyhow::anyhow!("{builtin}: a {} cannot be a member of a set", item.get_type()))
}

fn sift<'v>(builtin: &str, a: Value<'v>, b: Value<'v>, keep: bool, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
    let a = members(builtin, a, heap)?;
    let b = members(builtin, b, heap)?;
    let mut result = Members::new();
    for member in a.into_iter_hashed().filter(|member| b.contains_hashed(member.as_ref()) == keep) {
        result.insert_hashed(member);
    }
    Ok(SetRef::alloc(result, heap))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use crate::testing::{check, check_all, evaluate, fail_all};

    #[test]
    fn members_keep_their_order() {
        check_all([
            ("set.new()", json!([])),
            ("set.new(None)", json!([])),
            ("set.new(['b', 'a', 'b', 'c', 'a'])", json!(["b", "a", "c"])),
            ("set.new(items = (3, 1, 3))", json!([3, 1])),
            ("set.new({'x': 1, 'y': 2})", json!(["x", "y"])),
            ("set.new(range(3))", json!([0, 1, 2])),
            ("set.new(set.new([2, 1]))", json!([2, 1])),
            ("set.new([1, 1.0, True, '1', (1,), None])", json!([1, true, "1", [1], null])),
            ("set.values(set.new(['b', 'a']))", json!(["b", "a"])),
            ("set.values([1, 2, 1])", json!([1, 2])),
            ("type(set.values(set.new()))", json!("list")),
            ("set.size(set.new([1, 2, 1]))", json!(2)),
            ("set.size(set = (1, 1))", json!(1)),
            ("set.size({})", json!(0)),
        ]);
    }

    #[test]
    fn membership() {
        check_all([
            ("set.contains(set.new([1, 2]), 2)", json!(true)),
            ("set.contains(set.new([1, 2]), 3)", json!(false)),
            ("set.contains(set = ['a'], item = 'a')", json!(true)),
            ("set.contains([], 'a')", json!(false)),
            ("set.contains({'k': 'v'}, 'v')", json!(false)),
        ]);
    }

    #[test]
    fn algebra() {
        check_all([
            ("set.union(set.new([2, 1]), set.new([3, 1]))", json!([2, 1, 3])),
            ("set.union(a = [1], b = (2, 1))", json!([1, 2])),
            ("set.intersect(set.new([3, 2, 1]), [1, 3, 5])", json!([3, 1])),
            ("set.intersect(a = [1], b = [])", json!([])),
            ("set.diff([3, 2, 1, 2], set.new([2]))", json!([3, 1])),
            ("set.diff(a = [], b = [1])", json!([])),
            ("type(set.diff([], []))", json!("set")),
        ]);
        // The first one is still what it was.
        check("def f():\n  a = set.new([1])\n  b = set.union(a, [2])\n  return [a, b]\nf()", json!([[1], [1, 2]]));
    }

    #[test]
    fn as_a_value() {
        check_all([
            ("type(set.new())", json!("set")),
            ("str(set.new(['a', 1]))", json!("set([\"a\", 1])")),
            ("str(set.new())", json!("set([])")),
            ("len(set.new([1, 2]))", json!(2)),
            ("[bool(set.new()), bool(set.new([0]))]", json!([false, true])),
            ("1 in set.new([1])", json!(true)),
            ("2 in set.new([1])", json!(false)),
            ("[x + 1 for x in set.new([3, 1])]", json!([4, 2])),
            ("sorted(set.new([3, 1]))", json!([1, 3])),
            ("set.new([1, 2]) == set.new([2, 1])", json!(true)),
            ("set.new([1, 2]) == set.new([1, 3])", json!(false)),
            ("set.new([1]) == set.new([1, 2])", json!(false)),
            ("set.new([1]) == [1]", json!(false)),
        ]);
    }

    #[test]
    fn a_frozen_set_is_the_same() {
        use starlark::environment::Module;
        use starlark::eval::Evaluator;
        use starlark::syntax::AstModule;

        let globals = crate::globals::build();
        let parse = |text: &str| AstModule::parse("test", text.to_owned(), &crate::dialect::DIALECT).unwrap();
        let frozen = Module::with_temp_heap(|module| {
            Evaluator::new(&module).eval_module(parse("s = set.new([2, 'a'])"), &globals).unwrap();
            module.freeze().unwrap()
        });
        Module::with_temp_heap(|module| {
            module.import_public_symbols(&frozen);
            let program = "[s, 2 in s, set.contains(s, 'x'), set.union(s, [3]), s == set.new(['a', 2]), len(s)]";
            let value = Evaluator::new(&module).eval_module(parse(program), &globals).unwrap();
            let json = crate::value::to_json(value).unwrap();
            assert_eq!(json, json!([[2, "a"], true, false, [2, "a", 3], true, 2]));
        });
    }

    #[test]
    fn errors() {
        fail_all([
            ("set.new(1)", "set.new: expected iterable, got int"),
            ("set.new('abc')", "set.new: expected iterable, got string"),
            ("set.contains(None, 1)", "set.contains: expected iterable, got NoneType"),
            ("set.union([], 1)", "set.union: expected iterable, got int"),
            ("set.union(1, [])", "set.union: expected iterable, got int"),
            ("set.intersect(len, [])", "set.intersect: expected iterable, got function"),
            ("set.diff([], 1.5)", "set.diff: expected iterable, got float"),
            ("set.values(True)", "set.values: expected iterable, got bool"),
            ("set.size(1)", "set.size: expected iterable, got int"),
            ("set.new([[]])", "set.new: a list cannot be a member of a set"),
            ("set.union([], [{}])", "set.union: a dict cannot be a member of a set"),
            ("set.contains([], [])", "set.contains: a list cannot be a member of a set"),
            ("set.new([set.new()])", "set.new: a set cannot be a member of a set"),
        ]);
    }

    proptest! {
        #[test]
        fn union_is_what_one_has_and_the_parts_are_apart(a in prop::collection::vec(0_u8..9, 0..9), b in prop::collection::vec(0_u8..9, 0..9)) {
            let program = format!(
                "def f(a, b):\n  u = set.union(a, b)\n  i = set.intersect(a, b)\n  d = set.union(set.diff(a, b), set.diff(b, a))\n  return [u == set.union(i, d), set.size(set.intersect(i, d)), u]\nf({a:?}, {b:?})"
            );
            let mut union: Vec<u8> = Vec::new();
            for item in a.iter().chain(&b) {
                if !union.contains(item) {
                    union.push(*item);
                }
            }
            prop_assert_eq!(evaluate(&program).unwrap(), json!([true, 0, union]));
        }
    }
}
