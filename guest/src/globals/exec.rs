//! `exec.run`: child processes.

use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::dict::UnpackDictEntries;
use starlark::values::list_or_tuple::UnpackListOrTuple;
use starlark::values::none::NoneOr;
use starlark::values::{Heap, Value};

use super::{ImportError, import};
use crate::bindings::harness::sandbox::exec;
use crate::phase::{self, Needs};
use crate::record::dict;

pub(crate) fn register(builder: &mut GlobalsBuilder) {
    builder.namespace("exec", functions);
}

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    /// A dict `ok, stdout, stderr, exit_code, duration_ms, timed_out, truncated, cmd, args`. A command that fails or
    /// runs out of time is a result; a refusal and a command that cannot be started are errors.
    fn run<'v>(
        cmd: &str,
        #[starlark(default = UnpackListOrTuple::default())] args: UnpackListOrTuple<String>,
        #[starlark(default = 30_000)] timeout_ms: i64,
        #[starlark(default = ".")] dir: &str,
        #[starlark(default = NoneOr::None)] stdin: NoneOr<&str>,
        #[starlark(default = UnpackDictEntries::default())] env: UnpackDictEntries<String, String>,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        phase::check("exec.run", Needs::Tool)?;
        let command = exec::Command {
            program: cmd.to_owned(),
            args: args.items,
            dir: dir.to_owned(),
            env: env.entries,
            stdin: stdin.into_option().map(str::to_owned),
            timeout_ms: u32::try_from(timeout_ms.max(0)).unwrap_or(u32::MAX),
        };
        let output = import("exec.run", exec::run(&command))?;
        Ok(dict(
            heap,
            [
                ("ok", heap.alloc(output.exit_code == 0 && !output.timed_out)),
                ("stdout", heap.alloc(output.stdout)),
                ("stderr", heap.alloc(output.stderr)),
                ("exit_code", heap.alloc(output.exit_code)),
                ("duration_ms", heap.alloc(output.duration_ms)),
                ("timed_out", heap.alloc(output.timed_out)),
                ("truncated", heap.alloc(output.truncated)),
                ("cmd", heap.alloc(cmd)),
                ("args", heap.alloc(command.args)),
            ],
        ))
    }
}

impl ImportError for exec::Error {
    fn tell(self) -> (String, bool) {
        match self {
            Self::AccessDenied(denial) => (denial.reason, true),
            Self::InvalidCommand(why) => (why, false),
            Self::NotFound(program) => (format!("there is no program `{program}` on the search path"), false),
            Self::Start(why) => (format!("cannot start the command: {why}"), false),
        }
    }
}
