//! What can be typed.

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Args, Parser, Subcommand, ValueEnum};
use harness_artifact::schema::Kind;

/// Runs untrusted tools for AI agents, each call in a WebAssembly instance of its own.
#[derive(Debug, Parser)]
#[command(
    name = "harness",
    version,
    about = "Runs untrusted tools and policy hooks for AI agents, each call in a WebAssembly instance of its own",
    max_term_width = 100
)]
#[command(
    after_help = "Exit codes: 0 completed, 1 the script or a check failed, 2 usage or invalid artifact or arguments, \
                        3 denied, 4 over a limit, 5 host fault."
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) place: Place,

    /// When to use color.
    #[arg(long, value_name = "WHEN", global = true, default_value = "auto")]
    pub(crate) color: Color,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Which project, within which policy.
#[derive(Debug, Clone, Args)]
pub(crate) struct Place {
    /// Folder that holds `.harness`; without it, the current folder or the nearest one above that has it.
    #[arg(short = 'C', long, value_name = "DIR", global = true)]
    pub(crate) project: Option<PathBuf>,

    /// The machine's policy, which can only take away from the project's; without it, `/etc/harness/policy.yaml` if
    /// there is such a file.
    #[arg(long, value_name = "FILE", global = true)]
    pub(crate) policy: Option<PathBuf>,
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
    /// Talk to the project's agent: one prompt, or a conversation at the terminal.
    Run(Talk),
    /// Give the project's agent one task from a file or standard input and print its answer.
    Deploy(Deploy),
    /// Show what the agent's model would see, part by part, with how many tokens each takes.
    ///
    /// The tools are shown in the form in which the model is told of them. Hooks on `completion.pre` are not asked: what
    /// they would change is not in it.
    Context(Context),
    /// Look at recorded sessions of agents, go on with one, or run one again with what was recorded.
    #[command(subcommand)]
    Sessions(super::sessions::Sessions),
    /// Dispatch an event to its hooks and print what they decided.
    Fire(Fire),
    /// Run the cases that artifacts carry under `tests:`, in the sandbox, with fakes for what they would reach.
    Test(Test),
    /// List the tools with their parameters.
    Tools(Tools),
    /// List the hooks of each event in the order they are called.
    Hooks(Listing),
    /// List the sub-agents.
    Agents(Listing),
    /// List the skills, and which of them agents are shown.
    Skills(Listing),
    /// Say of each artifact where it is from, what it may do, and what it replaced.
    Inspect(Inspect),
    /// Print the JSON Schema of an artifact's front matter.
    Schema(Schema),
    /// Parse and compile everything, and tell all that is wrong.
    Validate(Validate),
    /// Keep what all artifacts are now in `harness.lock`; from then on, one that is another is refused.
    Lock(Lock),
    /// Look at what tools are granted: one tool's grant, what a new policy allows, what a call needs.
    #[command(subcommand)]
    Policy(Policy),
    /// Look at the record of what was called and decided.
    #[command(subcommand)]
    Audit(Audit),
    /// Say what this machine offers to the sandbox, and what would be refused on it.
    Doctor(Doctor),
    /// Write a small working project.
    Init(Init),
    /// Print a completion script for a shell.
    Completions(Completions),
}

/// What is confirmed beforehand of calls that a person has to confirm.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Confirm {
    /// Confirm beforehand each call of this tool; may be given several times. Without it, a call that is to be confirmed
    /// is asked for at a terminal, and denied where there is none.
    #[arg(long, value_name = "TOOL")]
    pub(crate) confirm: Vec<String>,

    /// Confirm beforehand every call that is to be confirmed.
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  harness call word_count path=README.md\n  \
                        harness call search_files --args '{\"pattern\": \"fn main\"}'\n  \
                        echo '{\"path\": \"src\"}' | harness call list_files --args -")]
pub(crate) struct Call {
    /// Name of the tool: the stem of its file.
    pub(crate) tool: String,

    /// Arguments as `key=value`, each value read by the parameter's type.
    #[arg(value_name = "KEY=VALUE")]
    pub(crate) pairs: Vec<String>,

    /// Arguments as a JSON object: the text itself, `@FILE`, or `-` for standard input.
    #[arg(long, value_name = "JSON", conflicts_with = "pairs", allow_hyphen_values = true)]
    pub(crate) args: Option<String>,

    /// Folder that the tool works in; without it, the folder that holds `.harness`.
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,

    /// Rules as in `capabilities:` that narrow this call: YAML, the text itself, `@FILE`, or `-`. What they do not speak
    /// of stays as the policy has it.
    #[arg(long, value_name = "RULES", allow_hyphen_values = true)]
    pub(crate) within: Option<String>,

    /// Print outcome, result, content, usage and error as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,

    /// Say on standard error what was granted, what was used, and what each host call cost.
    #[arg(long)]
    pub(crate) explain: bool,

    #[command(flatten)]
    pub(crate) confirm: Confirm,

    #[command(flatten)]
    pub(crate) confine: Confine,
}

/// What a process gives up of itself before scripts run. Without either, as much as the machine lets it, with a note where
/// that is not all.
#[derive(Debug, Default, Args)]
pub(crate) struct Confine {
    /// End where the machine does not let this process give up what it needs no more once the project is loaded; without
    /// this that is only noted.
    #[arg(long)]
    pub(crate) self_confine: bool,

    /// Keep what this process needs no more once the project is loaded; for looking into it with a debugger.
    #[arg(long, conflicts_with = "self_confine")]
    pub(crate) no_self_confine: bool,
}

#[derive(Debug, Default, Args)]
pub(crate) struct Talk {
    /// What to say; without it, standard input, or a conversation where that is a terminal.
    pub(crate) prompt: Option<String>,

    /// Folder that tools work in; without it, the folder that holds `.harness`.
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,

    /// Print answer, calls, usage and error as one JSON object, however it ends.
    #[arg(long)]
    pub(crate) json: bool,

    /// Say on standard error what is called and what comes of it; at a terminal that is done anyway.
    #[arg(long)]
    pub(crate) explain: bool,

    #[command(flatten)]
    pub(crate) confirm: Confirm,

    /// Go on with a recorded session: its name, the beginning of that, or `latest`.
    #[arg(long, value_name = "SESSION")]
    pub(crate) resume: Option<String>,

    /// Record nothing of this session in `.harness/sessions/`.
    #[arg(long)]
    pub(crate) no_record: bool,

    #[command(flatten)]
    pub(crate) confine: Confine,
}

#[derive(Debug, Args)]
pub(crate) struct Deploy {
    /// The task: the text itself, `@FILE`, or `-` for standard input, which is where it is read without this.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) input: Option<String>,

    /// Folder that tools work in; without it, the folder that holds `.harness`.
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,

    /// Print answer, calls, usage and error as one JSON object, however it ends.
    #[arg(long)]
    pub(crate) json: bool,

    /// Say on standard error what is called and what comes of it; at a terminal that is done anyway.
    #[arg(long)]
    pub(crate) explain: bool,

    #[command(flatten)]
    pub(crate) confirm: Confirm,

    /// Record nothing of this session in `.harness/sessions/`.
    #[arg(long)]
    pub(crate) no_record: bool,

    #[command(flatten)]
    pub(crate) confine: Confine,
}

#[derive(Debug, Args)]
pub(crate) struct Context {
    /// What would be said to the agent: it is counted with the rest.
    pub(crate) prompt: Option<String>,

    /// Show it after the conversation of a recorded session: its name, the beginning of that, or `latest`.
    #[arg(long, value_name = "SESSION", conflicts_with = "agent")]
    pub(crate) resume: Option<String>,

    /// Show what this sub-agent would see, set to work by the root.
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,

    /// Show the parts themselves, not only what they take.
    #[arg(long)]
    pub(crate) full: bool,

    /// Print the parts and what they take as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  harness fire tool.pre --explain \\\n    \
                        --payload '{\"name\": \"run_command\", \"args\": {\"command\": \"ls\"}}'\n\n\
                        Exit codes: 0 the hooks allow it, 2 it was not dispatched, 3 a hook blocked it.")]
pub(crate) struct Fire {
    /// Name of the event, such as `tool.pre` or `custom.deployed`.
    pub(crate) event: String,

    /// The payload as JSON: the text itself, `@FILE`, or `-` for standard input; `null` without it.
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    pub(crate) payload: Option<String>,

    /// Folder that hooks may read; without it, the folder that holds `.harness`.
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,

    /// Print an object also where the event was not dispatched: with the outcome and the error, as `call --json` does.
    #[arg(long)]
    pub(crate) json: bool,

    /// Say on standard error of each hook whether it matched, what it decided, why, and what it used.
    #[arg(long)]
    pub(crate) explain: bool,

    #[command(flatten)]
    pub(crate) confine: Confine,
}

#[derive(Debug, Args)]
pub(crate) struct Test {
    /// Tools and hooks by name; without any, all that have cases.
    pub(crate) names: Vec<String>,

    /// Print what came out as one JSON object.
    #[arg(long, conflicts_with = "watch")]
    pub(crate) json: bool,

    /// Write the results as JUnit XML to a file; `-` prints them in place of the text.
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,

    /// Run again whenever a file of the project changes.
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
    /// Tools, hooks and agents by name; without any, all.
    pub(crate) names: Vec<String>,

    /// Print what was found as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Schema {
    /// Which kind of artifact.
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
#[command(after_help = "Exit codes: 0 all can be used, 2 something cannot, or with `--strict` there is a warning.")]
pub(crate) struct Validate {
    /// Take warnings for errors.
    #[arg(long)]
    pub(crate) strict: bool,

    /// Print what was found as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,

    #[command(flatten)]
    pub(crate) confine: Confine,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 written, or as locked, 1 with `--check` something is not as locked, 2 there is no lock to \
                  check, or an artifact or the policy cannot be used."
)]
pub(crate) struct Lock {
    /// Write nothing, and tell what is not as it was kept.
    #[arg(long)]
    pub(crate) check: bool,

    /// Print what changed as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Policy {
    /// Print what a tool or hook may do, as it is enforced, with the layer that set each limit.
    Show(Granted),
    /// Say whether one policy allows anything that another one does not, with examples.
    Diff(Diff),
    /// Make a call and print the least policy under which it goes the same way.
    Learn(Learn),
}

#[derive(Debug, Args)]
pub(crate) struct Granted {
    /// Name of the tool or hook.
    pub(crate) name: String,

    /// Rules that narrow the call, as for `harness call`.
    #[arg(long, value_name = "RULES", allow_hyphen_values = true)]
    pub(crate) within: Option<String>,

    /// Print it as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Two project folders are compared tool by tool and hook by hook; two `harness.md`, or one and a \
                        folder, source by source; two files for a machine, by what they leave to this project.\n\n\
                        Exit codes: 0 the new one allows nothing more, 1 it does or may, 2 one cannot be used."
)]
pub(crate) struct Diff {
    /// The old policy: a project folder, a `harness.md`, or a machine's policy.
    pub(crate) old: PathBuf,

    /// The new one.
    pub(crate) new: PathBuf,

    /// Print what was found as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Example:\n  harness policy learn --granting 'fs: { read: [.] }' -- call acme_search text=x")]
pub(crate) struct Learn {
    /// Rules for the tool in the place of those that the project has for it: what it may do at most while it is looked
    /// at. As in `capabilities:`; what they do not speak of is not granted.
    #[arg(long, value_name = "RULES", allow_hyphen_values = true)]
    pub(crate) granting: Option<String>,

    /// Make the call again without each line that looking at it does not judge, such as what commands had, and leave out
    /// those that it gives the same result without. Each call is made for real: what it writes or sends, it writes or sends
    /// again. Without this that is done only where the further calls can neither write nor reach a network.
    #[arg(long)]
    pub(crate) again: bool,

    /// Make the call once, and tell which lines were not judged.
    #[arg(long, conflicts_with = "again")]
    pub(crate) once: bool,

    /// The call, after `--`: `call TOOL ...`, as it is made without this.
    #[arg(last = true, required = true, value_name = "CALL")]
    pub(crate) call: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Audit {
    /// Check that no line of the record was cut out, changed or moved.
    #[command(after_help = "Exit codes: 0 the record is whole, 1 it is not, 2 there is none.")]
    Verify(Listing),
    /// Print the last lines of the record.
    Show(Show),
    /// Print the digest that the record has of these arguments, to look for calls that were made with them.
    Digest(Digest),
}

#[derive(Debug, Args)]
pub(crate) struct Digest {
    /// Arguments as a JSON object, in the order in which they were given: the text itself, `@FILE`, or `-` for standard
    /// input.
    #[arg(value_name = "JSON", allow_hyphen_values = true)]
    pub(crate) arguments: String,
}

#[derive(Debug, Args)]
pub(crate) struct Show {
    /// How many.
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    pub(crate) last: usize,

    /// Print the lines as they are: JSON, one a line.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Doctor {
    /// Print what was found as one JSON object.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Init {
    /// Folder to write it in; made if it is not there. Without it, the one that `-C` names, or the current one.
    pub(crate) dir: Option<PathBuf>,

    /// Write the tools of an agent that works on files (read, write, edit, list, search, git, run and fetch), the hooks that
    /// guard them, and a policy to begin with, in place of the small project.
    #[arg(long)]
    pub(crate) agent: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// Which shell.
    pub(crate) shell: clap_complete::Shell,
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
