//! The built-ins, one file for each namespace.
//!
//! Pure ones compute, and are added by [`pure`](crate::observe::pure) so that hooks can hear them. The others call an
//! import, which the host decides on. The functions of a namespace that work on the text of a file (`fs.replace`,
//! `fs.find`, ...) are built from the imports that read and write one.

mod agents;
mod argument;
mod ask;
mod assert_that;
mod base64;
mod cache;
pub(crate) mod content;
mod crypto;
mod ctx;
pub(crate) mod decision;
mod env;
mod events;
mod exec;
mod fs;
mod hash;
mod http;
mod json;
mod log;
mod math;
mod meta;
mod metrics;
mod os;
mod parallel;
mod progress;
mod random;
mod re;
mod secret;
mod set;
mod string;
mod task;
mod template;
mod time;
mod url;
mod uuid;
mod validate;

use starlark::environment::{Globals, GlobalsBuilder, LibraryExtension};
use starlark::values::Value;

use crate::{coverage, value};

/// All built-ins of `run` and `handle`.
pub(crate) fn build() -> Globals {
    builder().build()
}

/// The same, and what a script calls whose lines are counted.
pub(crate) fn build_for_coverage() -> Globals {
    builder().with(coverage::register).build()
}

fn builder() -> GlobalsBuilder {
    let mut builder = GlobalsBuilder::standard();
    LibraryExtension::Print.add(&mut builder);
    LibraryExtension::SetType.add(&mut builder);
    for register in ALL {
        register(&mut builder);
    }
    builder
}

const ALL: &[fn(&mut GlobalsBuilder)] = &[
    agents::register,
    ask::register,
    assert_that::register,
    base64::register,
    cache::register,
    content::register,
    crypto::register,
    ctx::register,
    decision::register,
    env::register,
    events::register,
    exec::register,
    fs::register,
    hash::register,
    http::register,
    json::register,
    log::register,
    math::register,
    meta::register,
    metrics::register,
    os::register,
    parallel::register,
    progress::register,
    random::register,
    re::register,
    secret::register,
    set::register,
    string::register,
    task::register,
    template::register,
    time::register,
    url::register,
    uuid::register,
    validate::register,
];

/// An error of an import, as the script's error.
pub(crate) trait ImportError {
    /// What to say, and whether it was a refusal.
    fn tell(self) -> (String, bool);
}

/// Names the built-in before what an import answered. A refusal stays recognizable as one.
pub(crate) fn import<T, E: ImportError>(builtin: &str, answer: Result<T, E>) -> anyhow::Result<T> {
    answer.map_err(|error| {
        let (text, denied) = error.tell();
        let text = format!("{builtin}: {text}");
        if denied { anyhow::Error::new(crate::diagnostic::Denied(text)) } else { anyhow::Error::msg(text) }
    })
}

/// An argument as JSON. An error names the built-in and the argument.
fn told(builtin: &str, argument: &str, value: Value<'_>) -> anyhow::Result<serde_json::Value> {
    value::to_json(value).map_err(|error| anyhow::anyhow!("{builtin}: {argument}: {error:#}"))
}

/// Implements [`ImportError`] for an interface whose only error is a refusal.
macro_rules! only_denied {
    ($interface:ident) => {
        impl super::ImportError for $interface::Error {
            fn tell(self) -> (String, bool) {
                match self {
                    Self::AccessDenied(denial) => (denial.reason, true),
                }
            }
        }
    };
}
use only_denied;
