//! The arguments of the command line, and its help.

mod talk;

use std::path::PathBuf;
use std::sync::LazyLock;

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Args, Parser, Subcommand, ValueEnum};
use harness_artifact::schema::Kind;
use harness_sandbox::engine::{INTERPRETER, WASMTIME};

use super::client::Client;
pub(crate) use talk::{Deploy, Talk};

/// What `--version` prints: what a report of a mistake has to name.
static VERSION: LazyLock<String> =
    LazyLock::new(|| format!("{}\ninterpreter {INTERPRETER}\nengine wasmtime {WASMTIME}", env!("CARGO_PKG_VERSION")));

/// Runs untrusted tools for AI agents, each call in its own WebAssembly sandbox.
#[derive(Debug, Parser)]
#[command(
    name = "harness",
    version,
    long_version = VERSION.as_str(),
    about = "Run untrusted tools and hooks for AI agents, each call in its own WebAssembly sandbox",
    max_term_width = 100
)]
#[command(
    after_help = "Exit codes: 0 completed, 1 the script or a check failed, 2 invalid arguments, artifact or policy, \
                        3 denied, 4 over a limit, 5 host fault."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) place: ProjectArgs,

    #[command(flatten)]
    pub(crate) server: ServerArgs,

    /// Choose when to print in color.
    #[arg(long, value_name = "WHEN", global = true, default_value = "auto")]
    pub(crate) color: Color,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The project, and the host policy above it.
#[derive(Debug, Clone, Args)]
pub(crate) struct ProjectArgs {
    /// Use the project in this folder, which holds `.harness`. Default: the current folder, or the nearest folder above
    /// it that holds `.harness`.
    #[arg(short = 'C', long, value_name = "DIR", global = true)]
    pub(crate) project: Option<PathBuf>,

    /// Use this host policy, which narrows the project's policy. Default: `/etc/harness/policy.yaml`, if it exists.
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) policy: Option<PathBuf>,
}

/// The server that executes the command, where none of this machine does.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServerArgs {
    /// Let this server execute the command, with the project of the key's tenant. The key is read from `HARNESS_API_KEY`.
    #[arg(long, value_name = "URL", global = true)]
    pub(crate) server: Option<String>,

    /// Read the key for `--server` from this file.
    #[arg(long, value_name = "FILE", global = true, requires = "server")]
    pub(crate) key_file: Option<PathBuf>,
}

/// How an agent's turn is printed.
#[derive(Debug, Clone, Copy, Default, Args)]
pub(crate) struct Output {
    /// Print answer, calls, usage and error as one JSON object, also if the turn fails. Same as `--output json`.
    #[arg(long, conflicts_with = "output")]
    json: bool,

    /// How to print: the answer as text, one JSON object at the end, or a line of JSON for each event as it happens.
    #[arg(long, value_name = "FORM", value_enum)]
    output: Option<OutputForm>,
}

impl Output {
    pub(crate) fn form(self) -> OutputForm {
        self.output.unwrap_or(if self.json { OutputForm::Json } else { OutputForm::Text })
    }
}

/// See [`Output`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OutputForm {
    Text,
    Json,
    StreamJson,
}

/// When to use color. `auto` is on a terminal, unless `NO_COLOR` is set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Call a tool and print its result as a model would get it.
    Call(Call),
    /// Run the project's agent: with one prompt, or in a conversation at the terminal.
    Run(Talk),
    /// Run the project's agent on one task from a file or standard input, and print its answer.
    Deploy(Deploy),
    /// Show what the agent's model would see, with the tokens of each part.
    ///
    /// Tools are shown in the form that the model gets. Hooks on `completion.pre` do not run, so changes that they
    /// would make are not shown.
    Context(Context),
    /// List, show, resume and replay recorded sessions.
    #[command(subcommand)]
    Sessions(super::sessions::Sessions),
    /// Dispatch an event to its hooks and print their decision.
    Fire(Fire),
    /// Run the test cases of tools and hooks in the sandbox, with fakes for files, hosts and commands.
    Test(Test),
    /// List the tools with their parameters.
    Tools(Tools),
    /// List the hooks of each event, in the order in which they run.
    Hooks(Listing),
    /// List the sub-agents.
    Agents(Listing),
    /// List the skills, and which of them agents see.
    Skills(Listing),
    /// Show the source, the grant and the replaced version of each artifact.
    Inspect(Inspect),
    /// Print the JSON Schema of an artifact's front matter.
    Schema(Schema),
    /// Parse and compile everything, and report every error.
    Validate(Validate),
    /// Serve an editor over standard input and output: the Language Server Protocol for artifacts.
    ///
    /// It reports what `validate` reports, for texts that are not saved too, and runs test cases in the sandbox. It starts
    /// no program and opens no socket, whatever the project grants.
    Lsp(Lsp),
    /// Serve many tenants over HTTP, each with its own project, policy, secrets, budgets and record.
    Serve(super::serve::Serve),
    /// Administer a server: tenants, their projects, keys and secrets, and backups.
    #[command(subcommand)]
    Admin(super::admin::Admin),
    /// List, show, approve and deny calls that wait for confirmation on a server.
    #[command(subcommand)]
    Approvals(super::remote::approvals::Approvals),
    /// Print what a tenant of a server has used of its budgets.
    Usage(super::remote::usage::Usage),
    /// Write `harness.lock`. Artifacts and MCP servers that differ from it are rejected.
    Lock(Lock),
    /// Add, review, pin and update plugins from elsewhere, and write your own.
    #[command(subcommand)]
    Plugin(super::plugin::Plugin),
    /// Print the grant of a tool, compare two policies, or find the least policy for a call.
    #[command(subcommand)]
    Policy(Policy),
    /// Print and verify the audit log.
    #[command(subcommand)]
    Audit(Audit),
    /// Serve the tools to clients of the Model Context Protocol, and manage servers whose tools the project has.
    #[command(subcommand)]
    Mcp(super::mcp::Mcp),
    /// Check which isolation features this machine supports.
    Doctor(Doctor),
    /// Write a small project that works.
    Init(Init),
    /// Write a tool, hook, agent, skill or plugin to begin with.
    New(super::new::New),
    /// Print names for completion, one on each line.
    #[command(hide = true)]
    Names(super::names::Names),
    /// Print a manual page for `man`.
    #[command(hide = true)]
    Manual(super::manual::Manual),
    /// Print a completion script for a shell.
    Completions(super::completions::Completions),
}

/// Calls that are confirmed in advance.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Confirm {
    /// Confirm all calls of this tool in advance; may be repeated. Without it, calls that need confirmation are
    /// confirmed at the terminal, and denied if there is none.
    #[arg(long, value_name = "TOOL")]
    pub(crate) confirm: Vec<String>,

    /// Confirm in advance all calls that need confirmation.
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  harness call word_count path=README.md\n  \
                        harness call search_files --args '{\"pattern\": \"fn main\"}'\n  \
                        echo '{\"path\": \"src\"}' | harness call list_files --args -")]
pub(crate) struct Call {
    /// Name of the tool: the name of its file without `.md`.
    pub(crate) tool: String,

    /// Arguments as `key=value`. Each value is parsed as the type of the parameter.
    #[arg(value_name = "KEY=VALUE")]
    pub(crate) pairs: Vec<String>,

    /// Arguments as a JSON object: literal, `@FILE`, or `-` for standard input.
    #[arg(long, value_name = "JSON", conflicts_with = "pairs", allow_hyphen_values = true)]
    pub(crate) args: Option<String>,

    /// Folder that the tool works in. Default: the folder that holds `.harness`.
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,

    /// Narrow the call by these rules, written like `capabilities:` in YAML: literal, `@FILE`, or `-` for standard
    /// input. Keys that are not given stay as in the policy.
    #[arg(long, value_name = "RULES", allow_hyphen_values = true)]
    pub(crate) within: Option<String>,

    /// Print outcome, result, content, usage and error as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,

    /// Print the grant, the usage and the cost of each host call to standard error.
    #[arg(long)]
    pub(crate) explain: bool,

    #[command(flatten)]
    pub(crate) confirm: Confirm,

    #[command(flatten)]
    pub(crate) confine: Confine,
}

/// Whether the process drops its privileges before scripts run. By default it drops those that the machine lets it drop,
/// and prints a note about the others.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Confine {
    /// Fail if the process cannot drop its privileges once the project is loaded. Default: print a note.
    #[arg(long)]
    pub(crate) self_confine: bool,

    /// Keep the privileges of the process, for example to attach a debugger.
    #[arg(long, conflicts_with = "self_confine")]
    pub(crate) no_self_confine: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Context {
    /// Prompt to count with the rest.
    pub(crate) prompt: Option<String>,

    /// Show it after the conversation of a recorded session: its name, the beginning of its name, or `latest`.
    #[arg(long, value_name = "SESSION", conflicts_with = "agent")]
    pub(crate) resume: Option<String>,

    /// Show what this sub-agent would see if the root agent delegated to it.
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,

    /// Print the content of each part, and not only its size.
    #[arg(long)]
    pub(crate) full: bool,

    /// Print the parts and their sizes as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  harness fire tool.pre --explain \\\n    \
                        --payload '{\"name\": \"run_command\", \"args\": {\"command\": \"ls\"}}'\n  \
                        harness fire --format claude-code -C \"$CLAUDE_PROJECT_DIR\" || exit 2\n\n\
                        Exit codes: 0 allowed, 2 not dispatched, 3 blocked by a hook. With `--format`: 0 allowed, 2 \
                        blocked.")]
pub(crate) struct Fire {
    /// Name of the event, such as `tool.pre` or `custom.deployed`.
    #[arg(required_unless_present = "format")]
    pub(crate) event: Option<String>,

    /// Payload as JSON: literal, `@FILE`, or `-` for standard input. Default: `null`.
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    pub(crate) payload: Option<String>,

    /// Answer a hook of this agent client: read its payload from standard input, and print the decision in its form.
    /// Every failure blocks.
    #[arg(long, value_name = "CLIENT", conflicts_with_all = ["event", "payload", "json"])]
    pub(crate) format: Option<Client>,

    /// Block with `--format` if there is no decision within this time. Keep it below the client's own timeout.
    #[arg(long, value_name = "MS", default_value_t = 50_000, requires = "format")]
    pub(crate) deadline_ms: u64,

    /// Folder that hooks may read. Default: the folder that holds `.harness`.
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,

    /// Print an object also if the event is not dispatched, with outcome and error like `call --json`.
    #[arg(long)]
    pub(crate) json: bool,

    /// Print to standard error for each hook whether it matched, its decision and reason, and its usage.
    #[arg(long)]
    pub(crate) explain: bool,

    #[command(flatten)]
    pub(crate) confine: Confine,
}

impl Fire {
    /// The name of the event; of a client's hook there is none yet.
    pub(crate) fn name(&self) -> &str {
        self.event.as_deref().unwrap_or_default()
    }
}

#[derive(Debug, Args)]
pub(crate) struct Test {
    /// Names of tools and hooks, or patterns with `*`. Default: all that have cases.
    pub(crate) names: Vec<String>,

    /// Run only cases whose names match this pattern, in which `*` stands for any text. May be repeated.
    #[arg(long = "case", value_name = "PATTERN")]
    pub(crate) cases: Vec<String>,

    /// Print only the cases that fail, and the summary.
    #[arg(long, short, conflicts_with = "json")]
    pub(crate) quiet: bool,

    /// Print the results as one JSON object.
    #[arg(long, conflicts_with = "watch")]
    pub(crate) json: bool,

    /// Write the results as JUnit XML to a file, or to standard output with `-`, instead of text.
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,

    /// Run again after each change of a file of the project.
    #[arg(long)]
    pub(crate) watch: bool,

    #[command(flatten)]
    pub(crate) confine: Confine,
}

#[derive(Debug, Args)]
pub(crate) struct Listing {
    /// Print a JSON list.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Inspect {
    /// Names of tools, hooks and agents. Default: all.
    pub(crate) names: Vec<String>,

    /// Print each layer of a grant with its place, and the limits, instead of what all layers allow together.
    #[arg(long)]
    pub(crate) full: bool,

    /// Print the findings as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Schema {
    /// Kind of artifact.
    #[arg(value_parser = PossibleValuesParser::new(Kind::ALL.map(Kind::name)).try_map(kind))]
    pub(crate) kind: Kind,
}

fn kind(word: String) -> Result<Kind, String> {
    Kind::ALL.into_iter().find(|kind| kind.name() == word).ok_or(word)
}

#[derive(Debug, Args)]
pub(crate) struct Tools {
    /// Print the definitions that a model gets: name, description and JSON Schema of the parameters.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 no errors, 2 an error, or a warning with `--strict`.")]
pub(crate) struct Validate {
    /// Treat warnings as errors.
    #[arg(long)]
    pub(crate) strict: bool,

    /// Print the findings as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) confine: Confine,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 ended as the protocol says, 1 the editor went away, 2 input that cannot be followed."
)]
pub(crate) struct Lsp {
    /// Accepted for clients that pass it: standard input and output are used in any case.
    #[arg(long)]
    stdio: bool,

    #[command(flatten)]
    pub(crate) confine: Confine,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 written, or no difference, 1 a difference with `--check`, or a server that cannot be read and \
                  stays as it was locked, 2 no lock file to check, or an invalid artifact or policy."
)]
pub(crate) struct Lock {
    /// Write nothing; report what differs from `harness.lock`.
    #[arg(long)]
    pub(crate) check: bool,

    /// Fetch the packages of servers anew, such as those of `npx`, also where they are locked.
    #[arg(long)]
    pub(crate) fetch: bool,

    /// Print the differences as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Policy {
    /// Print the effective grant of a tool or hook, with the layer that sets each limit.
    Show(Granted),
    /// Report whether a new policy allows more than an old one, with examples.
    Diff(Diff),
    /// Make a call and print the least policy that it needs.
    Learn(Learn),
}

#[derive(Debug, Args)]
pub(crate) struct Granted {
    /// Name of the tool or hook.
    pub(crate) name: String,

    /// Narrow the call by these rules, as in `harness call`.
    #[arg(long, value_name = "RULES", allow_hyphen_values = true)]
    pub(crate) within: Option<String>,

    /// Print the grant as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Two project folders are compared by tool and hook. Two `harness.md` files, or a file and a folder, are \
                  compared by source. Two host policies are compared by what they allow this project.\n\n\
                  Exit codes: 0 the new policy allows nothing more, 1 it allows more or may, 2 a policy is invalid."
)]
pub(crate) struct Diff {
    /// Old policy: a project folder, a `harness.md`, or a host policy.
    pub(crate) old: PathBuf,

    /// New policy, of the same kind.
    pub(crate) new: PathBuf,

    /// Print the findings as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  harness policy learn --granting 'fs: { read: [.] }' -- call acme_search text=x\n  \
                        harness policy learn -- mcp files read_file path=docs/a.md"
)]
pub(crate) struct Learn {
    /// Replace the project's rules for the tool by these while the call is observed: the most that it may do. Written
    /// like `capabilities:`; keys that are not given grant nothing.
    #[arg(long, value_name = "RULES", allow_hyphen_values = true)]
    pub(crate) granting: Option<String>,

    /// Repeat the call without each line whose need the first call does not show, such as variables for commands, and
    /// drop the lines that do not change the result. Each repeated call is real: it writes and sends again. Default:
    /// repeat only calls that can neither write nor use a network.
    #[arg(long)]
    pub(crate) again: bool,

    /// Make the call once, and list the lines whose need is not known.
    #[arg(long, conflicts_with = "again")]
    pub(crate) once: bool,

    /// The call to observe, after `--`: `call TOOL ...`, as for `harness`; or `mcp SERVER TOOL ...`, to print the entry of
    /// a server in `mcp.servers`.
    #[arg(last = true, required = true, value_name = "CALL")]
    pub(crate) call: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Audit {
    /// Check that no line of the audit log was removed, changed or moved.
    #[command(after_help = "Exit codes: 0 intact, 1 not intact, 2 no audit log.")]
    Verify(Listing),
    /// Print the last lines of the audit log.
    Show(Show),
    /// Print the digest of arguments that the audit log contains, to search for calls.
    Digest(Digest),
}

#[derive(Debug, Args)]
pub(crate) struct Digest {
    /// Arguments as a JSON object, in the original order of the keys: literal, `@FILE`, or `-` for standard input.
    #[arg(value_name = "JSON", allow_hyphen_values = true)]
    pub(crate) arguments: String,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// Number of lines.
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    pub(crate) last: usize,

    /// Print the lines unchanged, as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Print the findings as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Init {
    /// Folder to write to; created if it does not exist. Default: the folder of `-C`, or the current folder.
    pub(crate) dir: Option<PathBuf>,

    /// Write the tools of an agent that works on files (read, write, edit, list, search, git, run, fetch), hooks that
    /// guard them, and a policy.
    #[arg(long)]
    pub(crate) agent: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Arguments::command().debug_assert();
    }
}
