//! `harness completions SHELL`.

use clap::builder::ValueHint;
use clap::{Args, Command, CommandFactory};
use clap_complete::Shell;

use super::args::Arguments;
use super::exit::Exit;
use super::printer::Printer;

#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// Shell to complete for.
    shell: Shell,
}

pub(crate) fn run(command: &Completions, printer: &Printer) -> Exit {
    let script = match command.shell {
        Shell::Zsh => zsh(),
        shell => generated(shell, Arguments::command()),
    };
    // Names of the project, which the shell asks this program for.
    let names = match command.shell {
        Shell::Bash => include_str!("completions/names.bash"),
        Shell::Fish => include_str!("completions/names.fish"),
        _ => "",
    };
    printer.data(&format!("{script}{names}"));
    Exit::Completed
}

fn generated(shell: Shell, mut definition: Command) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut definition, "harness", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Completion for zsh. There, each argument names the function that completes it, and the generator knows some of zsh's own
/// by a hint. Hints that no argument of the program has stand for kinds of names, until theirs are put in.
fn zsh() -> String {
    const KINDS: [(&str, &str); 4] =
        [("_users", "tools"), ("_hosts", "tested"), ("_urls", "all"), ("_email_addresses", "sessions")];
    let named = |command: Command, argument: &'static str, hint: ValueHint| {
        command.mut_arg(argument, |argument| argument.value_hint(hint))
    };
    let (tools, tested, all, sessions) =
        (ValueHint::Username, ValueHint::Hostname, ValueHint::Url, ValueHint::EmailAddress);
    let definition = Arguments::command()
        .mut_subcommand("call", |call| named(call, "tool", tools))
        .mut_subcommand("test", |test| named(test, "names", tested))
        .mut_subcommand("inspect", |inspect| named(inspect, "names", all))
        .mut_subcommand("policy", |policy| policy.mut_subcommand("show", |show| named(show, "name", all)))
        .mut_subcommand("run", |run| named(named(run, "resume", sessions), "unfinished", sessions))
        .mut_subcommand("context", |context| named(context, "resume", sessions))
        .mut_subcommand("sessions", |command| {
            ["show", "resume", "replay"].into_iter().fold(command, |command, name| {
                command.mut_subcommand(name, |subcommand| named(subcommand, "session", sessions))
            })
        });
    let mut script = generated(Shell::Zsh, definition);
    for (function, kind) in KINDS {
        script = script.replace(&format!(":{function}'"), &format!(":_harness_names {kind}'"));
    }
    // Before the last lines, which call the first of the functions.
    let names = include_str!("completions/names.zsh");
    match script.split_once("\nif [ \"$funcstack[1]\"") {
        Some((functions, start)) => format!("{functions}\n{names}\nif [ \"$funcstack[1]\"{start}"),
        None => script + names,
    }
}
