//! The interface `secrets`: values that scripts use by name and never see.
//!
//! A script gets a handle, a text that means something in its own call only. The host puts the value in its place where
//! the secret's rules say so, in the value of a header or in a variable of a command, and after that nobody reads the
//! request again. Whatever comes back to a script, and whatever leaves the host, goes through the [`Vault`]'s scan.
//!
//! - [`Vault`]: the values of a project, read once, and the scan for them
//! - `forms`: how a value may look after it went through something
//! - `scanner`: finding all forms of all values
//! - `loan`: the handles of one request or command, and what is put in their place

mod forms;
mod loan;
mod scanner;
mod vault;

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use wasmtime::component::{ComponentType, Lower};

use super::denial::Denial;
use harness_policy::grant::Grant;
use harness_policy::refusal::Refusal;
use harness_sys as sys;

pub use loan::CommandLoan;
pub use vault::{Given, MAX_VALUE, MIN_VALUE, Vault};

/// The variant `error` of the interface.
#[derive(Debug, Clone, PartialEq, Eq, ComponentType, Lower, Serialize, Deserialize)]
#[component(variant)]
pub enum Error {
    /// The policy grants no secret of this name.
    #[component(name = "access-denied")]
    AccessDenied(Denial),
}

/// What every handle begins with. `<` is in no token, URL or path.
const BEGIN: &str = "<secret:";
/// And ends with.
const END: char = '>';
/// Bytes that make a handle one of its call; twice as many digits.
const RANDOM: usize = 16;

/// The handles of one call. Those of another call mean nothing in it.
#[derive(Debug, Clone, Default)]
pub struct Handles {
    vault: Arc<Vault>,
    /// By the name of the secret.
    minted: Vec<(String, String)>,
}

impl Handles {
    /// None yet.
    pub fn new(vault: Arc<Vault>) -> Self {
        Self { vault, minted: Vec::new() }
    }

    /// The secrets of the project.
    pub fn vault(&self) -> &Vault {
        &self.vault
    }

    /// The text that stands for a secret in this call, the same each time.
    ///
    /// # Errors
    ///
    /// Where the grant does not hold a secret of this name. Whether it has a value shows when it is used.
    pub fn handle(&mut self, grant: &Grant, name: &str) -> Result<String, Error> {
        grant.decide_secret(name).map_err(|refusal| Error::AccessDenied(refusal.into()))?;
        if let Some((_, handle)) = self.minted.iter().find(|(minted, _)| minted == name) {
            return Ok(handle.clone());
        }
        // What a script is given by others, it cannot be made to send: nobody else can know this text.
        let mut random = [0; RANDOM];
        sys::fill_random(&mut random);
        let handle = format!("{BEGIN}{name}:{}{END}", forms::hex(&random));
        self.minted.push((name.to_owned(), handle.clone()));
        Ok(handle)
    }

    /// The first handle in a text, of this call or of another, with what is before and after it.
    fn first(text: &str) -> Option<(&str, &str, &str)> {
        let mut from = 0;
        while let Some(found) = text.get(from..)?.find(BEGIN) {
            let start = from.saturating_add(found);
            from = start.saturating_add(BEGIN.len());
            let Some((inside, after)) = text.get(from..)?.split_once(END) else { return None };
            let random = inside.rsplit_once(':').map(|(_, random)| random).unwrap_or_default();
            if random.len() == RANDOM * 2 && random.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                let end = text.len().saturating_sub(after.len());
                return Some((text.get(..start)?, text.get(start..end)?, after));
            }
        }
        None
    }

    /// The secret that a handle stands for in this call.
    fn meant(&self, handle: &str) -> Result<&str, Refusal> {
        self.minted.iter().find(|(_, minted)| minted == handle).map(|(name, _)| name.as_str()).ok_or_else(|| {
            Refusal::always("a handle is valid only in the call that created it: call `secret` in this script")
        })
    }

    /// Refuses a value in what would go out by another way.
    pub fn none_revealed(&self, place: &str, text: &str) -> Result<(), Refusal> {
        let held = |name| Err(Refusal::always(format!("{place} holds the value of {}", self.vault.called(name))));
        self.vault.find(text).map_or(Ok(()), held)
    }

    /// Refuses a handle in a place where no secret goes.
    fn none_in(&self, place: &str, text: &str) -> Result<(), Refusal> {
        let Some((_, handle, _)) = Self::first(text) else { return Ok(()) };
        let which = self.meant(handle).map_or_else(|_| "a secret".to_owned(), |name| format!("the secret `{name}`"));
        let goes = "it goes into the value of a header, or into a variable of a command";
        Err(Refusal::always(format!("{which} cannot go into {place}: {goes}")))
    }
}

#[cfg(test)]
mod tests;
