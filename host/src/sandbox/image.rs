//! A script's image: the interpreter's memory as it stands after the script was loaded, checked and frozen.
//!
//! Made once for each script. Every call starts from a fresh copy-on-write mapping of it, and so finds the script
//! ready to run.

use wasmtime::{Engine, Error, Module, Result, TypedFunc, bail};

use super::last_words::stopped;
use super::loader::{LOAD_MEMORY, Loader, Reader, SCRIPT};
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

/// The memory after a script was loaded, as a module. `memory` is what [`prepared`] made.
pub(crate) fn loaded(engine: &Engine, code: &Module, memory: &Module, source: &Source) -> Result<Vec<u8>, LoadError> {
    let mut loader = Loader::new(engine, code, memory)?;
    match load(&mut loader, source) {
        Ok(Ok(())) => Ok(loader.keep()?),
        Ok(Err(failure)) => Err(LoadError::Script(failure)),
        Err(error) => Err(match ended(&loader, &error) {
            Some(message) => LoadError::Script(Failure::without_place(FailureKind::Script, &source.file, message)),
            None => LoadError::Host(error),
        }),
    }
}

/// Calls `load` by the component model's canonical ABI.
fn load(loader: &mut Loader, source: &Source) -> Result<Result<(), Failure>> {
    // The record's twelve flat values; only more than sixteen would be passed by pointer.
    type Flat = (i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32, i32);
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
