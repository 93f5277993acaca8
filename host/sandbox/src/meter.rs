//! What every host call goes through: its price, its caps, the scan for secrets, the record of it and its tape.

use std::time::{Duration, Instant};

use wasmtime::{Result, StoreContextMut};

use super::imports::Role;
use super::measure::{Answer, Measure, Subject};
use super::occupant::{Occupant, Occupied};
use super::outcome::{HostCall, LimitKind};
use super::price::Import;
use super::state::{MAX_CALLS, MAX_REFUSED, State};
use super::stop::Stop;
use super::tape::{LatePoint, Spent};
use super::texts::Texts;
use harness_capability::secrets::Vault;
use harness_policy::refusal::Refusal;

/// Counts one host call: takes its price, keeps to its caps, looks for secrets, records it.
pub(super) struct Meter {
    import: Import,
    started: Instant,
    subject: String,
    bytes_in: u64,
    fuel: u64,
    /// The digest of what it was given, where its answer is kept.
    given: Option<String>,
    /// What it took when it was answered, where that is given.
    pub(super) spent: Option<Spent>,
}

impl Meter {
    /// Gives back the parameters, or the answer where they are refused.
    pub(super) fn start<P: Measure + Subject + Texts, A: Answer>(
        store: &mut StoreContextMut<'_, Occupant>,
        import: Import,
        params: P,
    ) -> Result<(Self, std::result::Result<P, A>)> {
        let (mut meter, params, refused) = Self::begin(store, import, params)?;
        let asked = meter.ask(store, params, refused)?;
        Ok((meter, asked))
    }

    /// Takes the price of a call. Gives back what it is to be called with, and the answer where that is refused.
    pub(super) fn begin<P: Measure + Subject + Texts, A: Answer>(
        store: &mut StoreContextMut<'_, Occupant>,
        import: Import,
        mut params: P,
    ) -> Result<(Self, P, Option<A>)> {
        if store.state()?.closed && !Role::Predicate.may(import) {
            return Err(Stop::NotLinked { import, role: Role::Predicate }.into());
        }
        let price = import.price();
        let bytes_in = params.bytes();
        let cap = price.max_in.bytes(store.state()?.limits.file_bytes);
        let fuel = price.call.saturating_add(price.byte.saturating_mul(bytes_in));
        pay(store, fuel)?;
        let held = redacted(&store.state()?.context.secrets, &mut params).filter(|_| import.leaves());
        let subject =
            if store.state()?.calls.len() < MAX_CALLS + MAX_REFUSED { params.subject() } else { String::new() };
        let state = store.state_mut()?;
        state.over = None;
        state.waits = true;
        state.usage.host_calls += 1;
        state.usage.bytes_in += bytes_in;
        state.usage.files += u64::from(import.changes_files());
        state.check_held(subject.len() as u64, bytes_in)?;
        if bytes_in > cap {
            return Err(Stop::TooMuchGiven { import, cap }.into());
        }
        let refused = held.and_then(|name| A::refused(state.context.secrets.keeps(&name).into()));
        let meter = Self { import, started: Instant::now(), subject, bytes_in, fuel, given: None, spent: None };
        Ok((meter, params, refused))
    }

    /// What is to be called with, or what that answered in the past.
    pub(super) fn ask<P: Subject, A: Answer>(
        &mut self,
        store: &mut StoreContextMut<'_, Occupant>,
        params: P,
        refused: Option<A>,
    ) -> Result<std::result::Result<P, A>> {
        let mut taken = None;
        if let Some(taping) = store.state_mut()?.taping.as_mut().filter(|_| self.import.is_taped()) {
            let (given, answer) = taping.asked(self.import, &params)?;
            self.given = Some(given);
            (taken, self.spent) = answer.unzip();
        }
        Ok(taken.or(refused).map_or(Ok(params), Err))
    }

    /// Hooks changed what it is called with: that is what counts, and what is recorded.
    pub(super) fn change<P: Measure + Subject>(
        &mut self,
        store: &mut StoreContextMut<'_, Occupant>,
        params: &P,
    ) -> Result<()> {
        let (price, bytes_in) = (self.import.price(), params.bytes());
        let cap = price.max_in.bytes(store.state()?.limits.file_bytes);
        if cap < bytes_in {
            return Err(Stop::TooMuchGiven { import: self.import, cap }.into());
        }
        let more = bytes_in.saturating_sub(self.bytes_in);
        let fuel = price.byte.saturating_mul(more);
        pay(store, fuel)?;
        self.fuel = self.fuel.saturating_add(fuel);
        self.bytes_in = self.bytes_in.saturating_add(more);
        let state = store.state_mut()?;
        state.usage.bytes_in += more;
        self.subject = if state.calls.len() < MAX_CALLS + MAX_REFUSED { params.subject() } else { String::new() };
        Ok(state.check_held(self.subject.len() as u64, self.bytes_in)?)
    }

    /// Gives back the answer as the script may see it.
    pub(super) fn finish<A: Answer>(
        mut self,
        store: &mut StoreContextMut<'_, Occupant>,
        mut answer: A,
        spent: Spent,
    ) -> Result<A> {
        store.state_mut()?.in_time()?;
        // Counted before: notes may be longer than what they stand for, which is not the function's doing.
        let bytes_out = answer.bytes();
        redacted(&store.state()?.context.secrets, &mut answer);
        let fuel = self.import.price().byte.saturating_mul(bytes_out);
        let state = store.state_mut()?;
        if let (Some(taping), Some(given)) = (&mut state.taping, self.given.take()) {
            taping.answered(self.import, given, &answer, spent);
        }
        state.usage.bytes_out += bytes_out;
        within_cap(self.import, bytes_out, state.limits.file_bytes)?;
        state.over = answer.over();
        let refused = answer.denial().map(|denial| denial.reason.clone());
        if let Some(denial) = answer.denial() {
            state.refusal = Some(Refusal { reason: denial.reason.clone(), hint: denial.hint.clone() });
        }
        // Nobody floods the list to have a refusal left out of it.
        if state.calls.len() < MAX_CALLS || (refused.is_some() && state.calls.len() < MAX_CALLS + MAX_REFUSED) {
            let wall: Duration = self.started.elapsed();
            let bytes = (self.bytes_in, bytes_out);
            let fuel = self.fuel.saturating_add(fuel);
            state.kept += RECORD + (self.subject.len() + refused.as_ref().map_or(0, String::len)) as u64;
            state.calls.push(HostCall { import: self.import, subject: self.subject, fuel, wall, bytes, refused });
        }
        state.check_held(0, self.bytes_in.saturating_add(bytes_out))?;
        pay(store, fuel)?;
        Ok(answer)
    }
}

/// Puts notes instead of secrets. Gives back the name of one, where there were any.
fn redacted(vault: &Vault, texts: &mut impl Texts) -> Option<String> {
    if !vault.scans() {
        return None;
    }
    let mut held = None;
    texts.texts(&mut |text| {
        if let Some(name) = vault.find(text).map(str::to_owned) {
            vault.redact(text);
            held.get_or_insert(name);
        }
    });
    held
}

/// What the host keeps of a host call beside its texts, in bytes.
const RECORD: u64 = size_of::<HostCall>() as u64;

impl State {
    /// A host call has an answer. What comes after the deadline is none, so that nothing is done with it meanwhile.
    fn in_time(&mut self) -> Result<(), Stop> {
        let late = self.taping.as_ref().and_then(|taping| taping.late()).map(|late| late.place);
        if Instant::now() >= self.deadline || late == Some(LatePoint::Waiting(self.usage.host_calls)) {
            return Err(Stop::Deadline);
        }
        self.waits = false;
        Ok(())
    }

    /// Ends the call where it is over a limit, with `passing` bytes on their way in and out and `kept` more to be kept.
    fn check_held(&mut self, kept: u64, passing: u64) -> Result<(), Stop> {
        let held = self.kept.saturating_add(kept).saturating_add(passing);
        self.usage.peak_host_memory = self.usage.peak_host_memory.max(held);
        let host_calls = self.host_calls();
        let (usage, limits) = (&self.usage, &self.limits);
        for (kind, used, most) in [
            (LimitKind::HostCalls, host_calls, limits.host_calls),
            (LimitKind::Files, usage.files, limits.files),
            (LimitKind::Io, usage.io_bytes(), limits.io_bytes),
            (LimitKind::HostMemory, held, limits.host_memory_bytes),
        ] {
            if used > most {
                return Err(Stop::Over(kind));
            }
        }
        Ok(())
    }
}

/// Each function keeps to its own cap, with an error that a script understands. This is for the one that does not.
fn within_cap(import: Import, bytes_out: u64, file_bytes: u64) -> Result<(), Stop> {
    let cap = import.price().max_out.bytes(file_bytes);
    if bytes_out > cap { Err(Stop::TooMuchGivenBack { import, cap }) } else { Ok(()) }
}

/// Takes fuel, or ends the call where there is not enough.
pub(super) fn pay(store: &mut StoreContextMut<'_, Occupant>, fuel: u64) -> Result<()> {
    let left = store.get_fuel()?;
    match left.checked_sub(fuel) {
        Some(left) => store.set_fuel(left),
        None => {
            store.set_fuel(0)?;
            Err(wasmtime::Trap::OutOfFuel.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_an_import_s_cap_never_reaches_a_script() {
        assert_eq!(within_cap(Import::RandomBytes, 1024, 0), Ok(()));
        let stop = within_cap(Import::RandomBytes, 1025, 0).unwrap_err();
        assert_eq!(stop.to_string(), "`random.bytes` returned more than its 1024 bytes");
        // Where the cap is a file's, it is the policy's.
        let path = Import::FsRead.price().max_out.bytes(0);
        assert_eq!(within_cap(Import::FsRead, 100 + path, 100), Ok(()));
        within_cap(Import::FsRead, 101 + path, 100).unwrap_err();
    }
}
