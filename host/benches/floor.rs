//! The floor F, to which every time is compared.

use harness_sandbox::engine::Settings;
use wasmtime::component::{Component, Linker};

/// The cheapest call there is: nothing but the engine.
pub(crate) fn floor() -> impl Fn() {
    let engine = harness_sandbox::engine::bare_engine(Settings { instances: 144, ..Settings::default() }).unwrap();
    let text = r#"(component
        (core module $m (func (export "run") (param i32) (result i32) (local.get 0)))
        (core instance $i (instantiate $m))
        (func (export "run") (param "x" u32) (result u32) (canon lift (core func $i "run"))))"#;
    let component = Component::new(&engine, wat::parse_str(text).unwrap()).unwrap();
    let ready = Linker::<()>::new(&engine).instantiate_pre(&component).unwrap();
    move || {
        let mut store = wasmtime::Store::new(&engine, ());
        store.set_fuel(1_000_000).unwrap();
        store.set_epoch_deadline(1_000_000_000);
        let instance = ready.instantiate(&mut store).unwrap();
        let run = instance.get_typed_func::<(u32,), (u32,)>(&mut store, "run").unwrap();
        assert_eq!(run.call(&mut store, (7,)).unwrap(), (7,));
    }
}
