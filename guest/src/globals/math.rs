//! `math.abs`, `min`, `max`, `floor`, `ceil`, for ints of any size and floats.

use num_bigint::{BigInt, ToBigInt};
use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::float::StarlarkFloat;
use starlark::values::tuple::UnpackTuple;
use starlark::values::{Heap, UnpackValue, Value, ValueLike};

use crate::observe::pure;

pub(crate) fn register(builder: &mut GlobalsBuilder) {
    builder.namespace("math", |space| pure(space, "math", functions));
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    fn abs<'v>(x: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        Ok(match number("math.abs", x)? {
            Number::Int(int) => heap.alloc(BigInt::from(int.magnitude().clone())),
            Number::Float(float) => heap.alloc(float.abs()),
        })
    }

    /// The smallest of two or more numbers, as it was given. Of equal ones, the first.
    fn min<'v>(
        a: Value<'v>,
        b: Value<'v>,
        #[starlark(args)] more: UnpackTuple<Value<'v>>,
    ) -> anyhow::Result<Value<'v>> {
        best("math.min", a, b, more, std::cmp::Ordering::Less)
    }

    /// The largest of two or more numbers, as it was given. Of equal ones, the first.
    fn max<'v>(
        a: Value<'v>,
        b: Value<'v>,
        #[starlark(args)] more: UnpackTuple<Value<'v>>,
    ) -> anyhow::Result<Value<'v>> {
        best("math.max", a, b, more, std::cmp::Ordering::Greater)
    }

    /// The next whole number downwards, as an int.
    fn floor<'v>(x: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        whole("math.floor", x, f64::floor, heap)
    }

    /// The next whole number upwards, as an int.
    fn ceil<'v>(x: Value<'v>, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
        whole("math.ceil", x, f64::ceil, heap)
    }
}

enum Number {
    Int(BigInt),
    Float(f64),
}

/// A bool is not a number.
fn number(builtin: &str, value: Value<'_>) -> anyhow::Result<Number> {
    if let Some(int) = BigInt::unpack_value(value).ok().flatten() {
        return Ok(Number::Int(int));
    }
    match value.downcast_ref::<StarlarkFloat>() {
        Some(float) => Ok(Number::Float(float.0)),
        None => anyhow::bail!("{builtin}: expected number, got {}", value.get_type()),
    }
}

fn best<'v>(
    builtin: &str,
    a: Value<'v>,
    b: Value<'v>,
    more: UnpackTuple<Value<'v>>,
    wanted: std::cmp::Ordering,
) -> anyhow::Result<Value<'v>> {
    number(builtin, a)?;
    let mut best = a;
    for value in std::iter::once(b).chain(more) {
        number(builtin, value)?;
        if value.compare(best).map_err(starlark::Error::into_anyhow)? == wanted {
            best = value;
        }
    }
    Ok(best)
}

fn whole<'v>(builtin: &str, x: Value<'v>, round: fn(f64) -> f64, heap: Heap<'v>) -> anyhow::Result<Value<'v>> {
    match number(builtin, x)? {
        Number::Int(_) => Ok(x),
        Number::Float(float) => match round(float).to_bigint() {
            Some(int) => Ok(heap.alloc(int)),
            None if float.is_nan() => anyhow::bail!("{builtin}: NaN has no whole number next to it"),
            None => anyhow::bail!("{builtin}: an infinity has no whole number next to it"),
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{check, check_all, evaluate, fail_all};

    #[test]
    fn abs() {
        check_all([
            ("math.abs(-3)", json!(3)),
            ("math.abs(3)", json!(3)),
            ("math.abs(x = 0)", json!(0)),
            ("math.abs(-2147483648)", json!(2_147_483_648_i64)),
            ("math.abs(-2.5)", json!(2.5)),
            ("math.abs(-(1 << 90)) == 1 << 90", json!(true)),
            ("[type(math.abs(-1)), type(math.abs(-1.0))]", json!(["int", "float"])),
        ]);
    }

    #[test]
    fn min_and_max() {
        check_all([
            ("math.min(2, 1)", json!(1)),
            ("math.max(2, 1)", json!(2)),
            ("math.min(a = 1.5, b = 2)", json!(1.5)),
            ("math.max(a = 1.5, b = 2)", json!(2)),
            ("math.min(3, 1, 2)", json!(1)),
            ("math.max(3, 1, 2, 7.5)", json!(7.5)),
            ("math.max((1 << 80) + 1, 1 << 80) == (1 << 80) + 1", json!(true)),
            ("math.min((1 << 80) + 1, 1 << 80) == 1 << 80", json!(true)),
            ("[type(math.min(1, 1.0)), type(math.max(1.0, 1))]", json!(["int", "float"])),
        ]);
    }

    #[test]
    fn floor_and_ceil() {
        check_all([
            ("math.floor(1.7)", json!(1)),
            ("math.floor(-1.2)", json!(-2)),
            ("math.floor(x = 2)", json!(2)),
            ("math.ceil(1.2)", json!(2)),
            ("math.ceil(-1.7)", json!(-1)),
            ("math.ceil(x = -2)", json!(-2)),
            ("math.ceil(2.0)", json!(2)),
            ("math.ceil(-0.5)", json!(0)),
            ("math.floor(1 << 90) == 1 << 90", json!(true)),
        ]);
        assert_eq!(evaluate("math.floor(1e30)").unwrap().to_string(), "1000000000000000019884624838656");
        check("[type(math.floor(1.5)), type(math.ceil(1))]", json!(["int", "int"]));
    }

    #[test]
    fn errors() {
        fail_all([
            ("math.abs('1')", "math.abs: expected number, got string"),
            ("math.abs(True)", "math.abs: expected number, got bool"),
            ("math.min(1, None)", "math.min: expected number, got NoneType"),
            ("math.min([], 1)", "math.min: expected number, got list"),
            ("math.max(1, 2, 'x')", "math.max: expected number, got string"),
            ("math.floor({})", "math.floor: expected number, got dict"),
            ("math.ceil(())", "math.ceil: expected number, got tuple"),
            ("math.floor(float('nan'))", "math.floor: NaN has no whole number next to it"),
            ("math.ceil(-float('inf'))", "math.ceil: an infinity has no whole number next to it"),
        ]);
    }
}
