//! The interpreter outside of any component: its core module on a memory that is in the host's hands.
//!
//! Here a memory is made ready to be kept: by the host's build script, which includes this file too, with the
//! built-ins made; by [`image`](super::image), with a script loaded. Every import but what the standard library needs
//! ends the load, so nothing that is loaded can have touched the world.

use std::time::Instant;

use wasm_encoder::{
    ConstExpr, Encode, ExportKind, ExportSection, MemorySection, MemoryType, Module as Encoder, RawSection, SectionId,
};
use wasmtime::{
    AsContextMut, Engine, Extern, Instance, Linker, Memory, Module, Ref, RefType, ResourceLimiter, Result, Store,
    Table, TableType, TypedFunc, UpdateDeadline, Val, bail, format_err,
};

/// Name under which the shell exports the code's module; the layers of the guest's build have the same.
pub(crate) const CODE: &str = "code";
/// Name under which code and shell import the memory's module; the layers have this one too.
pub(crate) const MEMORY: &str = "image";
const GLOBAL: &str = "harness:global:";
/// Names under which the code imports the table that it shares with the shell.
const TABLE: (&str, &str) = ("shim", "table");
/// The interface whose functions are called here.
pub(crate) const SCRIPT: &str = "harness:sandbox/script@0.1.0";

/// The most memory that a script may use while it is loaded, in bytes, the interpreter's own with it. What is left of it
/// is in every call's memory.
pub const LOAD_MEMORY: u64 = 32 << 20;
/// The most fuel for loading a script; a second or so.
pub const LOAD_FUEL: u64 = 10_000_000_000;
/// WebAssembly's page.
const PAGE: usize = 64 << 10;
/// What the interpreter's hash tables are seeded with: fuel must be the same on every run of a call.
pub(crate) const SEED: u128 = 0x6861_726e_6573_7320_6861_726e_6573_7321;
/// Bytes that are kept of what the interpreter says when it dies.
const MAX_LAST_WORDS: usize = 8 << 10;
/// The most fuel for an interpreter that was stopped, to report its place. It is given beyond what the load may use.
const LAST_WORDS_FUEL: u64 = 1_000_000;
/// Memory is checked in chunks of this many bytes; those that are all zero are left out.
pub(crate) const CHUNK: usize = 4 << 10;

/// The interpreter's core module on a memory, outside of any component.
pub(crate) struct Loader {
    pub store: Store<Limits>,
    pub instance: Instance,
    pub memory: Memory,
    /// The globals as they were at the start: the stack pointer and whatever else can change.
    globals: Vec<(wasmtime::Global, Val)>,
}

/// What a load may use.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// Units of fuel.
    pub fuel: u64,
    /// Bytes of linear memory, the interpreter's own with it.
    pub memory: u64,
    /// When its time is over, where it ever is. Looked at when the engine's clock ticks.
    pub deadline: Option<Instant>,
    /// How long that was, for messages.
    pub milliseconds: u64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { fuel: LOAD_FUEL, memory: LOAD_MEMORY, deadline: None, milliseconds: 0 }
    }
}

/// What the loader's store holds.
pub(crate) struct Limits {
    pub budget: Budget,
    /// What the interpreter wrote to standard error.
    pub last_words: Vec<u8>,
    /// Whether memory was refused.
    pub memory_refused: bool,
    /// Whether its time was over.
    pub late: bool,
    /// What it does at a tick: waits until it may continue.
    pause: Box<dyn FnMut() + Send>,
}

impl ResourceLimiter for Limits {
    fn memory_growing(&mut self, _current: usize, desired: usize, _maximum: Option<usize>) -> Result<bool> {
        let fits = desired as u64 <= self.budget.memory;
        self.memory_refused |= !fits;
        Ok(fits)
    }

    fn table_growing(&mut self, _current: usize, desired: usize, _maximum: Option<usize>) -> Result<bool> {
        /// The interpreter's own has some ten thousand elements.
        const MAX_TABLE: usize = 100_000;
        Ok(desired <= MAX_TABLE)
    }
}

impl Loader {
    /// `pause` is called when the engine's clock ticks while the interpreter runs.
    pub(crate) fn new(
        engine: &Engine,
        code: &Module,
        memory: &Module,
        budget: Budget,
        pause: impl FnMut() + Send + 'static,
    ) -> Result<Self> {
        let pause = Box::new(pause);
        let data = Limits { budget, last_words: Vec::new(), memory_refused: false, late: false, pause };
        let mut store = Store::new(engine, data);
        store.limiter(|data| data);
        store.set_fuel(budget.fuel)?;
        // Until a script is there: what the interpreter itself does before is little, and never late.
        store.set_epoch_deadline(u64::MAX / 2);
        store.epoch_deadline_callback(|mut store| {
            let data = store.data_mut();
            data.late = data.budget.deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if data.late {
                return Ok(UpdateDeadline::Interrupt);
            }
            (data.pause)();
            Ok(UpdateDeadline::Continue(1))
        });
        let holder = Linker::new(engine).instantiate(&mut store, memory)?;
        let memory =
            holder.get_memory(&mut store, "memory").ok_or_else(|| format_err!("the image exports no memory"))?;
        let mut linker = Linker::new(engine);
        linker.define(&mut store, MEMORY, "memory", memory)?;
        let table = TableType::new(RefType::FUNCREF, 1, Some(1));
        let table = Table::new(&mut store, table, Ref::Func(None))?;
        linker.define(&mut store, TABLE.0, TABLE.1, table)?;
        link_standard_library(&mut linker)?;
        linker.define_unknown_imports_as_traps(code)?;
        let instance = linker.instantiate(&mut store, code)?;
        let mut globals = Vec::new();
        for n in 0.. {
            let Some(Extern::Global(global)) = instance.get_export(&mut store, &format!("{GLOBAL}{n}")) else { break };
            let value = global.get(&mut store);
            globals.push((global, value));
        }
        store.set_epoch_deadline(1);
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

    /// Units of fuel that were used so far.
    pub(crate) fn used(&self) -> u64 {
        self.store.data().budget.fuel.saturating_sub(self.store.get_fuel().unwrap_or(0))
    }

    /// Asks an interpreter that was stopped which line it was evaluating.
    pub(crate) fn ask_for_place(&mut self) -> Result<()> {
        let left = self.store.get_fuel()?;
        self.store.set_fuel(LAST_WORDS_FUEL)?;
        self.store.data_mut().budget.deadline = None;
        let report: TypedFunc<(), ()> = self.export("report-place")?;
        let reported = report.call(&mut self.store, ());
        // What the load used is counted by what is left.
        self.store.set_fuel(left)?;
        reported
    }

    /// The memory as it stands.
    ///
    /// # Errors
    ///
    /// Where loading changed a global of the interpreter: calls start with the globals as the code module has them.
    pub(crate) fn kept(&mut self) -> Result<Kept<'_>> {
        for (global, start) in &self.globals {
            let now = global.get(&mut self.store.as_context_mut());
            if now.i32() != start.i32() || now.i64() != start.i64() {
                bail!("loading changed a global of the interpreter: {start:?} to {now:?}");
            }
        }
        // The stack comes first in memory, which the guest's build made sure of, and nothing is on it now.
        let stack = self.globals.first().and_then(|(_, value)| value.i32()).map_or(0, i32::cast_unsigned);
        let start = stack - stack % CHUNK as u32;
        let bytes = self.memory.data(&self.store).get(start as usize..);
        Ok(Kept { start, bytes: bytes.ok_or_else(|| format_err!("the stack pointer is past the end of memory"))? })
    }
}

/// A memory to start from.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Kept<'a> {
    /// All before this is zero. A multiple of [`CHUNK`].
    pub start: u32,
    /// All after that.
    pub bytes: &'a [u8],
}

impl Kept<'_> {
    /// A module that has this memory and nothing else.
    pub(crate) fn module(&self) -> Vec<u8> {
        let mut memories = MemorySection::new();
        let minimum = (self.start as usize + self.bytes.len()).div_ceil(PAGE) as u64;
        memories.memory(MemoryType { minimum, maximum: None, memory64: false, shared: false, page_size_log2: None });
        let mut exports = ExportSection::new();
        exports.export("memory", ExportKind::Memory, 0);
        // Megabytes: written at once, not by the encoder's iterators.
        let runs = self.runs();
        let mut data = Vec::with_capacity(runs.iter().map(|(_, bytes)| bytes.len() + CHUNK).sum());
        runs.len().encode(&mut data);
        for (offset, bytes) in runs {
            const ACTIVE: u32 = 0;
            ACTIVE.encode(&mut data);
            ConstExpr::i32_const((self.start + offset).cast_signed()).encode(&mut data);
            bytes.encode(&mut data);
        }
        let mut module = Encoder::new();
        module.section(&memories).section(&exports).section(&RawSection { id: SectionId::Data.into(), data: &data });
        module.finish()
    }

    /// The runs of chunks that are not all zero: where each begins, from `start`, and its bytes.
    pub(crate) fn runs(&self) -> Vec<(u32, &[u8])> {
        const ZEROS: &[u8] = &[0; CHUNK];
        let mut runs: Vec<(usize, usize)> = Vec::new();
        for (n, chunk) in self.bytes.chunks(CHUNK).enumerate() {
            let at = n * CHUNK;
            if ZEROS.starts_with(chunk) {
                continue;
            }
            match runs.last_mut() {
                Some((_, end)) if *end == at => *end += chunk.len(),
                _ => runs.push((at, at + chunk.len())),
            }
        }
        let run = |(from, to): (usize, usize)| Some((u32::try_from(from).ok()?, self.bytes.get(from..to)?));
        runs.into_iter().filter_map(run).collect()
    }
}

/// What the standard library needs while a script is loaded: a seed for its hash tables, a clock that stands still, and
/// somewhere for its last words. All else is an import that ends the load.
fn link_standard_library(linker: &mut Linker<Limits>) -> Result<()> {
    type Caller<'a> = wasmtime::Caller<'a, Limits>;
    fn memory(caller: &mut Caller<'_>) -> Result<Memory> {
        let memory = caller.get_export("memory").and_then(Extern::into_memory);
        memory.ok_or_else(|| format_err!("the code exports no memory"))
    }
    linker.func_wrap("wasi:clocks/monotonic-clock@0.2.6", "now", || 0_i64)?;
    linker.func_wrap("wasi:random/insecure-seed@0.2.6", "insecure-seed", |mut caller: Caller<'_>, out: i32| {
        memory(&mut caller)?.write(&mut caller, out.cast_unsigned() as usize, &SEED.to_le_bytes())?;
        Ok(())
    })?;
    linker.func_wrap("harness:sandbox/last-words@0.1.0", "write", |mut caller: Caller<'_>, at: i32, length: i32| {
        let (memory, data) = memory(&mut caller)?.data_and_store_mut(&mut caller);
        let reader = Reader { memory };
        keep_last_words(&mut data.last_words, reader.bytes(at.cast_unsigned(), length.cast_unsigned())?);
        Ok(())
    })?;
    Ok(())
}

/// Appends what the interpreter says when it dies, as far as there is room.
pub(crate) fn keep_last_words(words: &mut Vec<u8>, more: &[u8]) {
    let room = MAX_LAST_WORDS.saturating_sub(words.len()).min(more.len());
    words.extend_from_slice(more.get(..room).unwrap_or_default());
}

/// Reads values as the canonical ABI lays them out in memory.
pub(crate) struct Reader<'a> {
    pub memory: &'a [u8],
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
