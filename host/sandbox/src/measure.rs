//! How many bytes go through a host call, and what it is about.

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::outcome::LimitKind;
use super::texts::Texts;
use harness_capability::denial::Denial;
use harness_capability::{
    agents, ask, cache, clock, env, events, exec, fs, http, log, meta, metrics, observe, progress, random, secrets,
    tasks, turn,
};

/// Bytes that the price counts: those of strings and lists. Numbers and flags are in the price of the call.
pub(crate) trait Measure {
    fn bytes(&self) -> u64;
}

macro_rules! weightless {
    ($($ty:ty),*) => { $(impl Measure for $ty { fn bytes(&self) -> u64 { 0 } })* };
}
weightless!((), bool, u8, u32, u64, f64, log::Level, clock::Moment);

impl Measure for String {
    fn bytes(&self) -> u64 {
        self.len() as u64
    }
}

/// What an element of a list costs beside its content.
const ELEMENT: u64 = 1;

impl<T: Measure> Measure for Vec<T> {
    fn bytes(&self) -> u64 {
        self.iter().map(|element| ELEMENT + element.bytes()).sum()
    }
}

impl<T: Measure> Measure for Option<T> {
    fn bytes(&self) -> u64 {
        self.as_ref().map_or(0, Measure::bytes)
    }
}

impl<T: Measure> Measure for (T,) {
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }
}

impl<T: Measure, U: Measure> Measure for (T, U) {
    fn bytes(&self) -> u64 {
        self.0.bytes() + self.1.bytes()
    }
}

impl Measure for meta::NewTool {
    fn bytes(&self) -> u64 {
        self.name.bytes() + self.description.bytes() + self.parameters.bytes() + self.script.bytes()
    }
}

impl Measure for meta::NewHook {
    fn bytes(&self) -> u64 {
        self.name.bytes() + self.event.bytes() + self.script.bytes() + self.when.bytes()
    }
}

impl Measure for meta::ToolSummary {
    fn bytes(&self) -> u64 {
        self.name.bytes() + self.description.bytes()
    }
}

impl Measure for progress::Step {
    fn bytes(&self) -> u64 {
        self.message.bytes()
    }
}

impl Measure for fs::Facts {
    fn bytes(&self) -> u64 {
        self.name.bytes()
    }
}

impl Measure for http::Request {
    fn bytes(&self) -> u64 {
        self.method.bytes() + self.url.bytes() + self.headers.bytes() + self.body.bytes()
    }
}

impl Measure for http::Response {
    fn bytes(&self) -> u64 {
        self.url.bytes() + self.headers.bytes() + self.body.bytes()
    }
}

impl Measure for exec::Command {
    fn bytes(&self) -> u64 {
        self.program.bytes() + self.args.bytes() + self.dir.bytes() + self.env.bytes() + self.stdin.bytes()
    }
}

impl Measure for exec::Output {
    fn bytes(&self) -> u64 {
        self.stdout.bytes() + self.stderr.bytes()
    }
}

/// What a host function answers: a value, or an error of which one case is a refusal.
pub(crate) trait Answer: Measure + Texts + Serialize + DeserializeOwned + Sized {
    /// The result as the component model has it: a list of at most one value.
    type Returned;
    fn returned(self) -> Self::Returned;
    fn denial(&self) -> Option<&Denial>;
    /// A refusal in its place, where it can be one.
    fn refused(_: Denial) -> Option<Self> {
        None
    }
    /// What is answered where the function was not called and cannot say so.
    fn nothing() -> Option<Self> {
        None
    }
    /// The limit that it says was not kept to, where it does.
    fn over(&self) -> Option<LimitKind> {
        None
    }
}

impl Answer for () {
    type Returned = ();
    fn returned(self) {}
    fn nothing() -> Option<Self> {
        Some(())
    }
    fn denial(&self) -> Option<&Denial> {
        None
    }
}

/// What WASI answers, which never fails.
macro_rules! plain {
    ($($ty:ty),*) => {
        $(impl Answer for $ty {
            type Returned = (Self,);
            fn returned(self) -> (Self,) {
                (self,)
            }
            fn denial(&self) -> Option<&Denial> {
                None
            }
        })*
    };
}
plain!(u64, (u64, u64));

impl<T: Measure, E: MayDeny> Measure for Result<T, E> {
    fn bytes(&self) -> u64 {
        self.as_ref().map_or(0, Measure::bytes)
    }
}

impl<T, E> Answer for Result<T, E>
where
    T: Measure + Texts + Serialize + DeserializeOwned,
    E: MayDeny + Texts + Serialize + DeserializeOwned,
{
    type Returned = (Self,);
    fn returned(self) -> (Self,) {
        (self,)
    }
    fn denial(&self) -> Option<&Denial> {
        self.as_ref().err().and_then(MayDeny::denial)
    }
    fn refused(denial: Denial) -> Option<Self> {
        Some(Err(E::refused(denial)))
    }
    fn over(&self) -> Option<LimitKind> {
        self.as_ref().err().and_then(MayDeny::over)
    }
}

/// The error of an interface.
pub(crate) trait MayDeny {
    fn denial(&self) -> Option<&Denial>;
    fn refused(denial: Denial) -> Self;
    fn over(&self) -> Option<LimitKind> {
        None
    }
}

/// The refusal of an error, where it is one.
macro_rules! may_deny {
    ($($interface:ident),*) => {
        $(impl MayDeny for $interface::Error {
            fn denial(&self) -> Option<&Denial> {
                if let Self::AccessDenied(denial) = self { Some(denial) } else { None }
            }
            fn refused(denial: Denial) -> Self {
                Self::AccessDenied(denial)
            }
        })*
    };
}
may_deny!(agents, ask, cache, events, exec, fs, meta, metrics, tasks, turn);

impl MayDeny for http::Error {
    fn refused(denial: Denial) -> Self {
        Self::AccessDenied(denial)
    }
    fn denial(&self) -> Option<&Denial> {
        if let Self::AccessDenied(denial) = self { Some(denial) } else { None }
    }
    fn over(&self) -> Option<LimitKind> {
        matches!(self, Self::TooLarge(_)).then_some(LimitKind::Body)
    }
}

/// The refusal of an error that is nothing else.
macro_rules! only_denies {
    ($($interface:ident),*) => {
        $(impl MayDeny for $interface::Error {
            fn denial(&self) -> Option<&Denial> {
                let Self::AccessDenied(denial) = self;
                Some(denial)
            }
            fn refused(denial: Denial) -> Self {
                Self::AccessDenied(denial)
            }
        })*
    };
}
only_denies!(clock, env, observe, random, secrets);

/// What a call is about, in a few words, for the record.
pub(crate) trait Subject: Serialize + DeserializeOwned {
    fn subject(&self) -> String;
}

/// Longer subjects are cut.
const MAX_SUBJECT: usize = 200;

fn cut(text: &str) -> String {
    let end = text.floor_char_boundary(MAX_SUBJECT);
    text.get(..end).unwrap_or_default().to_owned()
}

impl Subject for () {
    fn subject(&self) -> String {
        String::new()
    }
}

macro_rules! first_is_the_subject {
    ($($ty:ty),*) => { $(impl Subject for $ty { fn subject(&self) -> String { cut(&self.0) } })* };
}
first_is_the_subject!((String,), (String, String), (String, f64));

impl Subject for (Vec<u8>,) {
    fn subject(&self) -> String {
        String::new()
    }
}

impl Subject for (Vec<String>, Option<u32>) {
    fn subject(&self) -> String {
        cut(&self.0.iter().take(32).map(|id| cut(id)).collect::<Vec<_>>().join(" "))
    }
}

impl Subject for (meta::NewTool,) {
    fn subject(&self) -> String {
        cut(&self.0.name)
    }
}

impl Subject for (meta::NewHook,) {
    fn subject(&self) -> String {
        cut(&self.0.name)
    }
}

impl Subject for (progress::Step,) {
    fn subject(&self) -> String {
        self.0.total.map_or_else(|| self.0.done.to_string(), |total| format!("{}/{total}", self.0.done))
    }
}

impl Subject for (Vec<u32>, Vec<u32>) {
    fn subject(&self) -> String {
        String::new()
    }
}

impl Subject for (u32,) {
    fn subject(&self) -> String {
        self.0.to_string()
    }
}

impl Subject for (Option<String>,) {
    fn subject(&self) -> String {
        cut(self.0.as_deref().unwrap_or_default())
    }
}

impl Subject for (log::Level, String) {
    fn subject(&self) -> String {
        self.0.name().to_owned()
    }
}

impl Subject for (http::Request,) {
    fn subject(&self) -> String {
        cut(&format!("{} {}", cut(&self.0.method), cut(&self.0.url)))
    }
}

impl Subject for (exec::Command,) {
    fn subject(&self) -> String {
        let words = std::iter::once(&self.0.program).chain(&self.0.args).take(32).map(|word| cut(word));
        cut(&words.collect::<Vec<_>>().join(" "))
    }
}
