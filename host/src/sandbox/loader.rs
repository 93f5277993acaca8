//! The interpreter outside of any component: its core module on a memory that is in the host's hands.
//!
//! Here a memory is made ready to be kept: by the host's build script, which includes this file too, with the
//! built-ins made; by [`image`](super::image), with a script loaded. Every import but what the standard library needs
//! ends the load, so nothing that is loaded can have touched the world.

use wasm_encoder::{ConstExpr, DataSection, ExportKind, ExportSection, MemorySection, MemoryType, Module as Encoder};
use wasmtime::{
    AsContextMut, Engine, Extern, Instance, Linker, Memory, Module, ResourceLimiter, Result, Store, TypedFunc, Val,
    bail, format_err,
};

/// Name under which the shell imports the code's module.
pub(crate) const CODE: &str = "code";
/// Name under which code and shell import the memory's module; the layers of the guest's build have the same.
pub(crate) const MEMORY: &str = "image";
const GLOBAL: &str = "harness:global:";
/// The interface whose functions are called here.
pub(crate) const SCRIPT: &str = "harness:sandbox/script@0.1.0";

/// Memory that a script may use while it is loaded, in bytes. What is left of it is in every call's memory.
pub(crate) const LOAD_MEMORY: usize = 64 << 20;
/// Fuel for loading a script; a second or so.
const LOAD_FUEL: u64 = 10_000_000_000;
/// WebAssembly's page.
const PAGE: usize = 64 << 10;
/// Data is kept in segments of this many bytes; those that are all zero are left out.
const CHUNK: usize = 4 << 10;

/// The interpreter's core module on a memory, outside of any component.
pub(crate) struct Loader {
    pub(crate) store: Store<Limits>,
    pub(crate) instance: Instance,
    pub(crate) memory: Memory,
    /// The globals as they were at the start: the stack pointer and whatever else can change.
    globals: Vec<(wasmtime::Global, Val)>,
}

/// What the loader's store holds.
pub(crate) struct Limits {
    /// What the interpreter wrote to standard error.
    pub(crate) last_words: Vec<u8>,
    /// Whether memory was refused.
    pub(crate) memory_refused: bool,
}

impl ResourceLimiter for Limits {
    fn memory_growing(&mut self, _current: usize, desired: usize, _maximum: Option<usize>) -> Result<bool> {
        self.memory_refused |= desired > LOAD_MEMORY;
        Ok(desired <= LOAD_MEMORY)
    }

    fn table_growing(&mut self, _current: usize, desired: usize, _maximum: Option<usize>) -> Result<bool> {
        /// The interpreter's own has some ten thousand elements.
        const MAX_TABLE: usize = 100_000;
        Ok(desired <= MAX_TABLE)
    }
}

impl Loader {
    pub(crate) fn new(engine: &Engine, code: &Module, memory: &Module) -> Result<Self> {
        let mut store = Store::new(engine, Limits { last_words: Vec::new(), memory_refused: false });
        store.limiter(|data| data);
        store.set_fuel(LOAD_FUEL)?;
        // Fuel ends a load; the ticks of the clock that calls are ended by have no meaning here.
        store.set_epoch_deadline(u64::MAX / 2);
        let holder = Linker::new(engine).instantiate(&mut store, memory)?;
        let memory =
            holder.get_memory(&mut store, "memory").ok_or_else(|| format_err!("the image exports no memory"))?;
        let mut linker = Linker::new(engine);
        linker.define(&mut store, MEMORY, "memory", memory)?;
        link_standard_library(&mut linker)?;
        linker.define_unknown_imports_as_traps(code)?;
        let instance = linker.instantiate(&mut store, code)?;
        let mut globals = Vec::new();
        for n in 0.. {
            let Some(Extern::Global(global)) = instance.get_export(&mut store, &format!("{GLOBAL}{n}")) else { break };
            let value = global.get(&mut store);
            globals.push((global, value));
        }
        Ok(Self { store, instance, memory, globals })
    }

    /// A function of the interface `script`.
    pub(crate) fn export<P: wasmtime::WasmParams, R: wasmtime::WasmResults>(
        &mut self,
        function: &str,
    ) -> Result<TypedFunc<P, R>> {
        self.instance.get_typed_func(&mut self.store, &format!("{SCRIPT}#{function}"))
    }

    /// Copies a string into the interpreter's memory: its address and length.
    pub(crate) fn pass(&mut self, text: &str) -> Result<(i32, i32)> {
        let length = i32::try_from(text.len())?;
        let allocate: TypedFunc<(i32, i32, i32, i32), i32> =
            self.instance.get_typed_func(&mut self.store, "cabi_realloc")?;
        let address = allocate.call(&mut self.store, (0, 0, 1, length))?;
        self.memory.write(&mut self.store, address.cast_unsigned() as usize, text.as_bytes())?;
        Ok((address, length))
    }

    /// The memory as it stands, as a module that has nothing else.
    pub(crate) fn keep(mut self) -> Result<Vec<u8>> {
        for (global, start) in &self.globals {
            let now = global.get(&mut self.store.as_context_mut());
            // Calls start with the globals as the code module has them, so loading must have left them alone.
            if now.i32() != start.i32() || now.i64() != start.i64() {
                bail!("loading changed a global of the interpreter: {start:?} to {now:?}");
            }
        }
        Ok(encode(self.memory.data(&self.store)))
    }
}

/// A module with one memory that holds these bytes.
fn encode(bytes: &[u8]) -> Vec<u8> {
    let mut memories = MemorySection::new();
    let pages = bytes.len().div_ceil(PAGE) as u64;
    memories.memory(MemoryType { minimum: pages, maximum: None, memory64: false, shared: false, page_size_log2: None });
    let mut exports = ExportSection::new();
    exports.export("memory", ExportKind::Memory, 0);
    let mut data = DataSection::new();
    let mut run: Option<(usize, usize)> = None;
    let segment = |data: &mut DataSection, (start, end): (usize, usize)| {
        if let (Ok(offset), Some(bytes)) = (u32::try_from(start), bytes.get(start..end)) {
            data.active(0, &ConstExpr::i32_const(offset.cast_signed()), bytes.iter().copied());
        }
    };
    for (n, chunk) in bytes.chunks(CHUNK).enumerate() {
        let start = n * CHUNK;
        if chunk.iter().all(|byte| *byte == 0) {
            if let Some(run) = run.take() {
                segment(&mut data, run);
            }
        } else {
            run = Some((run.map_or(start, |(first, _)| first), start + chunk.len()));
        }
    }
    if let Some(run) = run {
        segment(&mut data, run);
    }
    let mut module = Encoder::new();
    module.section(&memories).section(&exports).section(&data);
    module.finish()
}

/// What Rust's standard library asks of WASI while a script is loaded: a fixed seed for its hash tables, a clock that
/// stands still, no variables, and somewhere for its last words. All else is an import that ends the load.
fn link_standard_library(linker: &mut Linker<Limits>) -> Result<()> {
    const WASI: &str = "wasi_snapshot_preview1";
    const SUCCESS: i32 = 0;
    /// `errno.fault` of WASI 0.1: an address that is not in memory.
    const FAULT: i32 = 21;
    fn memory(caller: &mut wasmtime::Caller<'_, Limits>) -> Option<Memory> {
        caller.get_export("memory").and_then(Extern::into_memory)
    }
    fn put(caller: &mut wasmtime::Caller<'_, Limits>, address: i32, bytes: &[u8]) -> i32 {
        let written = memory(caller).map(|memory| memory.write(caller, address.cast_unsigned() as usize, bytes));
        if matches!(written, Some(Ok(()))) { SUCCESS } else { FAULT }
    }
    linker.func_wrap(WASI, "random_get", |mut caller: wasmtime::Caller<'_, Limits>, address: i32, length: i32| {
        /// More than any seed; the interpreter asks for 16.
        const MAX: i32 = 1024;
        put(&mut caller, address, &vec![0x5a; length.clamp(0, MAX) as usize])
    })?;
    linker.func_wrap(
        WASI,
        "clock_time_get",
        |mut caller: wasmtime::Caller<'_, Limits>, _: i32, _: i64, out: i32| {
            put(&mut caller, out, &0_u64.to_le_bytes())
        },
    )?;
    linker.func_wrap(
        WASI,
        "environ_sizes_get",
        |mut caller: wasmtime::Caller<'_, Limits>, count: i32, size: i32| {
            put(&mut caller, count, &[0; 4]) | put(&mut caller, size, &[0; 4])
        },
    )?;
    linker.func_wrap(WASI, "environ_get", |_: i32, _: i32| SUCCESS)?;
    linker.func_wrap(
        WASI,
        "fd_write",
        |mut caller: wasmtime::Caller<'_, Limits>, _fd: i32, vectors: i32, count: i32, out: i32| -> i32 {
            /// Bytes that are kept.
            const MAX: usize = 8 << 10;
            let Some(memory) = memory(&mut caller) else { return FAULT };
            let (bytes, data) = memory.data_and_store_mut(&mut caller);
            let reader = Reader { memory: bytes };
            let mut total = 0_u32;
            for n in 0..count.clamp(0, 64) {
                let at = vectors.wrapping_add(n.wrapping_mul(8)).cast_unsigned();
                let (Ok(address), Ok(length)) = (reader.word(at), reader.word(at.wrapping_add(4))) else {
                    return FAULT;
                };
                let Ok(text) = reader.bytes(address, length) else { return FAULT };
                let room = MAX.saturating_sub(data.last_words.len()).min(text.len());
                data.last_words.extend_from_slice(text.get(..room).unwrap_or_default());
                total = total.saturating_add(length);
            }
            put(&mut caller, out, &total.to_le_bytes())
        },
    )?;
    Ok(())
}

/// Reads values as the canonical ABI lays them out in memory.
pub(crate) struct Reader<'a> {
    pub(crate) memory: &'a [u8],
}

impl Reader<'_> {
    /// Bytes at an address.
    pub(crate) fn bytes(&self, at: u32, length: u32) -> Result<&[u8]> {
        let (at, length) = (at as usize, length as usize);
        let end = at.checked_add(length).ok_or_else(|| format_err!("an address past the end of memory"))?;
        self.memory.get(at..end).ok_or_else(|| format_err!("an address past the end of memory"))
    }

    /// One byte.
    pub(crate) fn byte(&self, at: u32) -> Result<u8> {
        self.bytes(at, 1)?.first().copied().ok_or_else(|| format_err!("an empty read"))
    }

    /// A number of 32 bits.
    pub(crate) fn word(&self, at: u32) -> Result<u32> {
        Ok(u32::from_le_bytes(self.bytes(at, 4)?.try_into()?))
    }

    /// A string: its address and length are at `at`.
    pub(crate) fn string(&self, at: u32) -> Result<String> {
        let (address, length) = (self.word(at)?, self.word(at.wrapping_add(4))?);
        Ok(std::str::from_utf8(self.bytes(address, length)?)?.to_owned())
    }
}
