//! A script's image: the interpreter's memory as it stands after the script was loaded, checked and frozen.
//!
//! Made once for each script. Every call starts from a fresh copy-on-write mapping of it, and so finds the script
//! ready to run.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use wasmtime::{Engine, Error, Module, Result, TypedFunc, bail};

use super::last_words::stopped;
use super::loader::{Kept, LOAD_MEMORY, Loader, Reader, SCRIPT};
use super::outcome::{Failure, FailureKind, Frame, Source};

/// Why a script could not be loaded.
#[derive(Debug)]
pub(crate) enum LoadError {
    /// The script's own fault.
    Script(Failure),
    /// The host's.
    Host(Error),
}

impl From<Error> for LoadError {
    fn from(error: Error) -> Self {
        Self::Host(error)
    }
}

/// The interpreter after a script was loaded. `memory` is the one to start from.
pub(crate) fn loaded(engine: &Engine, code: &Module, memory: &Module, source: &Source) -> Result<Loader, LoadError> {
    let mut loader = Loader::new(engine, code, memory)?;
    match load(&mut loader, source) {
        Ok(Ok(())) => Ok(loader),
        Ok(Err(failure)) => Err(LoadError::Script(failure)),
        Err(error) => Err(match ended(&loader, &error) {
            Some(message) => LoadError::Script(Failure::without_place(FailureKind::Script, &source.file, message)),
            None => LoadError::Host(error),
        }),
    }
}

/// A compiled module that holds a memory, without the memory: a header and a trailer, made at build time.
///
/// Images of one size differ in nothing else, so making one is to write its pages between these two, and nothing is
/// compiled. The file is in memory and sealed, and calls map it copy-on-write: it is there once, and without the pages
/// that are all zero.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Template {
    pub(crate) head: &'static [u8],
    pub(crate) tail: &'static [u8],
    /// Where the memory begins that lies between the two; all before is zero.
    pub(crate) start: u32,
    /// How long that is.
    pub(crate) length: usize,
}

/// The module of a memory. One that is larger than every template is compiled, which takes longer and is otherwise the
/// same.
pub(crate) fn module(engine: &Engine, templates: &[Template], memory: Kept<'_>) -> Result<Module> {
    let fits = |template: &&Template| template.start == memory.start && template.length == memory.bytes.len();
    // Where the system has no such files, the engine finds its own way.
    if let Some(Ok(file)) = templates.iter().find(fits).map(|template| template.sealed(memory)) {
        // SAFETY: what the build script's engine made, whose settings are this one's, but for the data, which is nothing
        // but data; the seals keep everybody from changing it.
        #[expect(unsafe_code, reason = "an artifact that is part of this binary, and has no machine code")]
        return unsafe { Module::deserialize_open_file(engine, file) };
    }
    Module::from_binary(engine, &memory.module())
}

impl Template {
    /// A file in memory that nobody can change or resize.
    fn sealed(&self, memory: Kept<'_>) -> std::io::Result<File> {
        let file = File::from(memfd_create("harness-image", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
        let tail = self.head.len() + self.length;
        file.set_len((tail + self.tail.len()) as u64)?;
        file.write_all_at(self.head, 0)?;
        for (offset, run) in memory.runs() {
            file.write_all_at(run, (self.head.len() + offset as usize) as u64)?;
        }
        file.write_all_at(self.tail, tail as u64)?;
        fcntl_add_seals(&file, SealFlags::WRITE | SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
        Ok(file)
    }
}

/// Calls `load` by the component model's canonical ABI.
fn load(loader: &mut Loader, source: &Source) -> Result<Result<(), Failure>> {
    // The record's thirteen flat values; only more than sixteen would be passed by pointer.
    type Flat = (i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32);
    let (file, file_len) = loader.pass(&source.file)?;
    let (text, text_len) = loader.pass(&source.text)?;
    let (some, (when, when_len), line, column) = match &source.predicate {
        Some(predicate) => (1, loader.pass(&predicate.text)?, predicate.line, predicate.column),
        None => (0, (0, 0), 0, 0),
    };
    let bits = u32::cast_signed;
    let parameters = (
        file,
        file_len,
        text,
        text_len,
        bits(source.first_line),
        bits(source.indent),
        source.entry as i32,
        some,
        when,
        when_len,
        bits(line),
        bits(column),
        i32::from(source.coverage),
    );
    let load: TypedFunc<Flat, i32> = loader.export("load")?;
    let result = load.call(&mut loader.store, parameters)?;
    let answer = Reader { memory: loader.memory.data(&loader.store) }.load_result(result)?;
    let after: Result<TypedFunc<i32, ()>> =
        loader.instance.get_typed_func(&mut loader.store, &format!("cabi_post_{SCRIPT}#load"));
    if let Ok(after) = after {
        after.call(&mut loader.store, result)?;
    }
    Ok(answer)
}

/// What to tell of a trap that the script caused by itself: it was too much, or the interpreter gave up.
fn ended(loader: &Loader, error: &Error) -> Option<String> {
    let trap = error.downcast_ref::<wasmtime::Trap>()?;
    let data = loader.store.data();
    Some(match trap {
        _ if data.memory_refused => {
            format!("loading the script takes more than {} MiB of memory: move work into a function", LOAD_MEMORY >> 20)
        }
        wasmtime::Trap::OutOfFuel => "loading the script takes too long: move work into a function".to_owned(),
        wasmtime::Trap::StackOverflow => "the script is nested too deeply".to_owned(),
        _ => stopped(trap, &data.last_words),
    })
}

impl Reader<'_> {
    /// `result<_, failure>`: a byte that says which, then the record at the next multiple of four.
    fn load_result(&self, at: i32) -> Result<Result<(), Failure>> {
        let at = at.cast_unsigned();
        if self.byte(at)? == 0 {
            return Ok(Ok(()));
        }
        let record = at.wrapping_add(4);
        let kind = match self.byte(record)? {
            0 => FailureKind::Syntax,
            1 => FailureKind::Script,
            2 => FailureKind::Denied,
            3 => FailureKind::Value,
            4 => FailureKind::Depth,
            5 => FailureKind::EntryPoint,
            other => bail!("there is no failure kind {other}"),
        };
        let (frames, count) = (self.word(record.wrapping_add(28))?, self.word(record.wrapping_add(32))?);
        /// Size of a frame: two strings and two numbers.
        const FRAME: u32 = 24;
        let stack = (0..count.min(64))
            .map(|n| {
                let frame = frames.wrapping_add(n.wrapping_mul(FRAME));
                Ok(Frame {
                    name: self.string(frame)?,
                    file: self.string(frame.wrapping_add(8))?,
                    line: self.word(frame.wrapping_add(16))?,
                    column: self.word(frame.wrapping_add(20))?,
                })
            })
            .collect::<Result<_>>()?;
        Ok(Err(Failure {
            kind,
            message: self.string(record.wrapping_add(4))?,
            file: self.string(record.wrapping_add(12))?,
            line: self.word(record.wrapping_add(20))?,
            column: self.word(record.wrapping_add(24))?,
            stack,
        }))
    }
}
