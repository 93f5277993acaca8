//! A script's image: the interpreter's memory as it stands after the script was loaded, checked and frozen.
//!
//! Made once for each script. Every call starts from a fresh copy-on-write mapping of it, and so finds the script
//! ready to run.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use wasmtime::{Engine, Error, Module, Result, Trap, TypedFunc, bail};

use super::deepest::deepest;
use super::last_words::Said;
use super::loader::{Budget, Kept, Loader, Reader, SCRIPT};
use super::outcome::{Failure, FailureKind, Frame, Limit, LimitKind, Source, Spot};

/// Why a script could not be loaded.
#[derive(Debug)]
pub enum LoadError {
    /// The script's own fault.
    Script(Failure),
    /// It would use more than it may.
    Over(Limit),
    /// The host's.
    Host(Error),
}

impl From<Error> for LoadError {
    fn from(error: Error) -> Self {
        Self::Host(error)
    }
}

/// Loads a script into an interpreter.
pub(crate) fn loaded(loader: &mut Loader, source: &Source, budget: Budget) -> Result<(), LoadError> {
    match load(loader, source) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(failure)) => Err(LoadError::Script(failure)),
        Err(error) => Err(ended(loader, error, source, budget)),
    }
}

/// What loading a script changed of the memory that every load starts from.
pub(crate) struct Changes {
    start: u32,
    length: usize,
    /// Where each run begins, from `start`, and its bytes.
    runs: Vec<(usize, Box<[u8]>)>,
}

/// Memory is compared in pieces of this many bytes: less is more pieces to keep account of, more is more that has not
/// changed.
const PIECE: usize = 256;

impl Changes {
    /// What differs in a memory from another one that begins at the same place.
    pub(crate) fn between(base: &[u8], kept: Kept<'_>) -> Self {
        const ZEROS: &[u8] = &[0; PIECE];
        let mut runs: Vec<(usize, usize)> = Vec::new();
        let pieces = kept.bytes.chunks(PIECE).enumerate();
        for (at, piece) in pieces.map(|(n, piece)| (n * PIECE, piece)) {
            let before = base.get(at..).unwrap_or_default();
            let before = before.get(..piece.len()).unwrap_or(before);
            // Past the end of the other one all was zero.
            let rest = piece.get(before.len()..).unwrap_or_default();
            if piece.starts_with(before) && ZEROS.starts_with(rest) {
                continue;
            }
            match runs.last_mut() {
                Some((_, end)) if *end == at => *end += piece.len(),
                _ => runs.push((at, at + piece.len())),
            }
        }
        let run = |(from, to): (usize, usize)| Some((from, kept.bytes.get(from..to)?.into()));
        Self { start: kept.start, length: kept.bytes.len(), runs: runs.into_iter().filter_map(run).collect() }
    }

    /// Nothing, of a memory that begins there.
    pub(crate) fn none(start: u32, base: &[u8]) -> Self {
        Self { start, length: base.len(), runs: Vec::new() }
    }

    /// How many bytes that is.
    pub(crate) fn size(&self) -> u64 {
        self.runs.iter().map(|(_, run)| run.len() as u64).sum()
    }

    /// Bytes of the whole memory.
    pub(crate) fn length(&self) -> u64 {
        self.length as u64
    }

    /// The memory: the other one with the changes.
    pub(crate) fn applied(&self, base: &[u8]) -> Vec<u8> {
        let mut memory = Vec::with_capacity(self.length);
        memory.extend_from_slice(base.get(..self.length).unwrap_or(base));
        memory.resize(self.length, 0);
        for (at, run) in &self.runs {
            if let Some(place) = memory.get_mut(*at..at.saturating_add(run.len())) {
                place.copy_from_slice(run);
            }
        }
        memory
    }
}

/// A compiled module that holds a memory, without the memory: a header and a trailer, made at build time.
///
/// Images of one size differ in nothing else, so making one is to write its pages between these two, and nothing is
/// compiled. The file is in memory and sealed, and calls map it copy-on-write: it is there once, and without the pages
/// that are all zero.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Template {
    pub head: &'static [u8],
    pub tail: &'static [u8],
    /// Where the memory begins that lies between the two; all before is zero.
    pub start: u32,
    /// How long that is.
    pub length: usize,
}

/// The module of a memory: a base with what loading a script changed of it. One that is larger than every template is
/// compiled, which takes longer and is otherwise the same.
pub(crate) fn module(engine: &Engine, templates: &[Template], base: &[u8], changes: &Changes) -> Result<Module> {
    let fits = |template: &&Template| template.start == changes.start && template.length == changes.length;
    // Where the system has no such files, the engine finds its own way.
    if let Some(Ok(file)) = templates.iter().find(fits).map(|template| template.sealed(base, changes)) {
        // SAFETY: what the build script's engine made, whose settings are this one's, but for the data, which is nothing
        // but data; the seals keep everybody from changing it.
        #[expect(unsafe_code, reason = "an artifact that is part of this binary, and has no machine code")]
        return unsafe { Module::deserialize_open_file(engine, file) };
    }
    Module::from_binary(engine, &Kept { start: changes.start, bytes: &changes.applied(base) }.module())
}

impl Template {
    /// A file in memory that nobody can change or resize. The memory is put together there: it is some megabytes.
    fn sealed(&self, base: &[u8], changes: &Changes) -> std::io::Result<File> {
        let file = File::from(memfd_create("harness-image", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
        let tail = self.head.len() + self.length;
        file.set_len((tail + self.tail.len()) as u64)?;
        file.write_all_at(self.head, 0)?;
        let base = Kept { start: self.start, bytes: base.get(..self.length).unwrap_or(base) };
        for (offset, run) in base.runs() {
            file.write_all_at(run, (self.head.len() + offset as usize) as u64)?;
        }
        for (offset, run) in &changes.runs {
            file.write_all_at(run, (self.head.len() + offset) as u64)?;
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

/// What to report a load that did not end: it was too much, the interpreter gave up, or the host did.
fn ended(loader: &mut Loader, error: Error, source: &Source, budget: Budget) -> LoadError {
    let trap = error.downcast_ref::<Trap>();
    let late = loader.store.data().late;
    if late || trap == Some(&Trap::OutOfFuel) {
        let (kind, allowed) =
            if late { (LimitKind::Deadline, budget.milliseconds) } else { (LimitKind::Fuel, budget.fuel) };
        // Where nothing of it runs yet, the script's first line is shown.
        let place = loader.ask_for_place().ok().and_then(|()| Said::of(&loader.store.data().last_words).at);
        let at = place.unwrap_or_else(|| first(source));
        return LoadError::Over(Limit { at: Some(at), ..Limit::of(kind, allowed) });
    }
    let data = loader.store.data();
    let said = Said::of(&data.last_words);
    let message = match trap {
        Some(_) if data.memory_refused || said.wanted_too_much() => {
            // Nothing of it ran yet: the text itself was too much.
            let at = said.at.unwrap_or_else(|| deepest_statement(source));
            return LoadError::Over(Limit { at: Some(at), ..Limit::of(LimitKind::Memory, budget.memory) });
        }
        // The interpreter's own stack lies first in its memory: what runs past its end is out of bounds.
        Some(Trap::StackOverflow | Trap::MemoryOutOfBounds) => return too_deep(source),
        Some(_) if said.exhausted() => return too_deep(source),
        Some(trap) => said.stopped(trap),
        None => return LoadError::Host(error),
    };
    let failure = Failure::without_place(FailureKind::Script, &source.file, message);
    let at = said.at.map_or((0, 0), |at| (at.line, at.column));
    LoadError::Script(Failure { line: at.0, column: at.1, ..failure })
}

/// Where a script begins.
fn first(source: &Source) -> Spot {
    Spot { line: source.first_line.max(1), column: source.indent.saturating_add(1), live: 0, asked: 0 }
}

/// The statement that is nested most deeply.
fn deepest_statement(source: &Source) -> Spot {
    let (most, (line, column)) = deepest(&source.text);
    let script = Spot {
        line: source.first_line.max(1).saturating_add(line).saturating_sub(1),
        column: source.indent.saturating_add(column),
        live: 0,
        asked: 0,
    };
    let when = source.predicate.as_ref().and_then(|when| {
        let (depth, (line, column)) = deepest(&when.text);
        let indent = if line == 1 { when.column.saturating_sub(1) } else { 0 };
        let line = when.line.saturating_add(line).saturating_sub(1);
        (depth > most).then(|| Spot { line, column: indent.saturating_add(column), live: 0, asked: 0 })
    });
    when.unwrap_or(script)
}

/// The stack of the interpreter did not reach for what a script is made of.
fn too_deep(source: &Source) -> LoadError {
    let Spot { line, column, .. } = deepest_statement(source);
    let message = "the script is nested too deeply: give the parts of an expression names, and put the branches of a \
                   long `elif` into a dict or into functions";
    let failure = Failure::without_place(FailureKind::Syntax, &source.file, message.to_owned());
    LoadError::Script(Failure { line, column, ..failure })
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn changes_make_the_memory_again(
            base in proptest::collection::vec(0..3_u8, 0..3000),
            edits in proptest::collection::vec((0..4000_usize, any::<u8>()), 0..20),
            length in 0..4000_usize,
        ) {
            let mut memory = base.clone();
            memory.resize(length, 0);
            for (at, byte) in edits {
                if let Some(place) = memory.get_mut(at) {
                    *place = byte;
                }
            }
            let changes = Changes::between(&base, Kept { start: 7, bytes: &memory });
            prop_assert_eq!(changes.start, 7);
            prop_assert_eq!(changes.applied(&base), memory);
        }
    }

    #[test]
    fn little_is_kept_of_a_little_change() {
        let base = vec![1_u8; 100_000];
        let mut memory = base.clone();
        memory[50_000] = 2;
        let changes = Changes::between(&base, Kept { start: 0, bytes: &memory });
        assert_eq!(changes.runs.iter().map(|(_, run)| run.len()).sum::<usize>(), PIECE);
    }
}
