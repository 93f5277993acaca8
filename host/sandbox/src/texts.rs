//! The texts that go through a host call, to look for secrets in them.

use harness_capability::denial::Denial;
use harness_capability::{
    agents, ask, cache, clock, env, events, exec, fs, http, log, meta, metrics, observe, progress, random, secrets,
    tasks, turn,
};

/// Calls a function on each text that a script has a say in, or gets to see.
pub(crate) trait Texts {
    fn texts(&mut self, each: &mut dyn FnMut(&mut String));
}

macro_rules! without {
    ($($ty:ty),*) => { $(impl Texts for $ty { fn texts(&mut self, _: &mut dyn FnMut(&mut String)) {} })* };
}
// Bytes are random ones, or the last words of an interpreter, which are checked in the report.
without!((), bool, u8, u32, u64, f64, (u64, u64), Vec<u8>, Vec<u32>, log::Level, clock::Moment);

impl Texts for String {
    fn texts(&mut self, each: &mut dyn FnMut(&mut String)) {
        each(self);
    }
}

macro_rules! lists_of {
    ($($ty:ty),*) => {
        $(impl Texts for Vec<$ty> {
            fn texts(&mut self, each: &mut dyn FnMut(&mut String)) {
                self.iter_mut().for_each(|one| one.texts(each));
            }
        })*
    };
}
lists_of!(String, (String, String), (String, f64), fs::Facts, meta::ToolSummary);

impl<T: Texts> Texts for Option<T> {
    fn texts(&mut self, each: &mut dyn FnMut(&mut String)) {
        self.iter_mut().for_each(|one| one.texts(each));
    }
}

impl<T: Texts> Texts for (T,) {
    fn texts(&mut self, each: &mut dyn FnMut(&mut String)) {
        self.0.texts(each);
    }
}

macro_rules! pairs {
    ($($ty:ty),*) => {
        $(impl Texts for $ty {
            fn texts(&mut self, each: &mut dyn FnMut(&mut String)) {
                self.0.texts(each);
                self.1.texts(each);
            }
        })*
    };
}
pairs!((String, String), (String, f64), (log::Level, String), (Vec<u32>, Vec<u32>), (Vec<String>, Option<u32>));

impl<T: Texts, E: Texts> Texts for Result<T, E> {
    fn texts(&mut self, each: &mut dyn FnMut(&mut String)) {
        match self {
            Ok(value) => value.texts(each),
            Err(error) => error.texts(each),
        }
    }
}

macro_rules! records {
    ($($ty:ty: $($field:ident)*;)*) => {
        $(impl Texts for $ty {
            fn texts(&mut self, each: &mut dyn FnMut(&mut String)) {
                $(self.$field.texts(each);)*
            }
        })*
    };
}
records! {
    Denial: reason hint;
    fs::Facts: name;
    meta::NewTool: name description parameters script;
    meta::NewHook: name event script when;
    meta::ToolSummary: name description;
    progress::Step: message;
    http::Request: method url headers body;
    http::Response: url headers body;
    exec::Command: program args dir env stdin;
    exec::Output: stdout stderr;
}

macro_rules! only_denials {
    ($($interface:ident),*) => {
        $(impl Texts for $interface::Error {
            fn texts(&mut self, each: &mut dyn FnMut(&mut String)) {
                let Self::AccessDenied(denial) = self;
                denial.texts(each);
            }
        })*
    };
}
only_denials!(clock, env, observe, random, secrets);

/// Cases with a text, and the others.
macro_rules! errors {
    ($($interface:ident: [$($case:ident)*] [$($other:pat),*];)*) => {
        $(impl Texts for $interface::Error {
            fn texts(&mut self, each: &mut dyn FnMut(&mut String)) {
                match self {
                    Self::AccessDenied(denial) => denial.texts(each),
                    $(Self::$case(text) => each(text),)*
                    $($other => {})*
                }
            }
        })*
    };
}
errors! {
    agents: [Invalid Failed] [Self::TooDeep(_)];
    ask: [Invalid Unavailable Failed] [];
    cache: [] [Self::Full(_), Self::TooLarge(_)];
    events: [Invalid] [Self::TooDeep(_)];
    exec: [InvalidCommand NotFound Start] [];
    fs: [NotFound AlreadyExists NotAFile NotADirectory NotEmpty NotText Invalid Io] [Self::TooLarge(_)];
    http: [InvalidUrl InvalidRequest Connection] [Self::TooLarge(_), Self::Timeout(_), Self::TooManyRedirects];
    meta: [Invalid] [Self::TooMany(_), Self::TooDeep(_)];
    metrics: [] [Self::TooMany];
    tasks: [Invalid] [];
    turn: [] [Self::Full(_), Self::TooLarge(_), Self::ReadOnly];
}
