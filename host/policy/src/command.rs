//! Commands: what a script may run.
//!
//! Rules see the program and each argument as the child will get them. There is no shell in between, so that nothing in
//! an argument can start a second command.

mod folder;
pub mod network;
mod rule;
mod variable;

use super::grant::Grant;
use super::network::shown;
use super::refusal::Refusal;
use super::watch::Request;

pub use folder::FolderRule;
pub use network::{CommandNetwork, CommandReach};
pub use rule::CommandRule;
pub use variable::{changes_programs, is_identifier};

/// What a layer says of commands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExecRules {
    /// One of these must cover a command. Empty: nothing is allowed.
    pub allow: Vec<CommandRule>,
    /// Variables, by exact name: a command gets them from the host's environment, and a script may set them.
    pub env: Vec<String>,
    /// Folders outside of the workspace that a command may read and run programs from, beside the machine's own.
    pub folders: Vec<FolderRule>,
    /// What a command may reach of the network.
    pub network: CommandNetwork,
    /// Whether a command runs without the kernel's wall.
    pub unconfined: bool,
}

/// What a hint says instead of a rule that would fill the message.
pub const TOO_LONG: &str =
    "the rule for it is too long to show: write the program and each argument as `{ argv: [...] }` in";

impl Grant {
    /// Whether a program may be run with these arguments.
    pub fn decide_command(&self, program: &str, args: &[String]) -> Result<(), Refusal> {
        self.every(
            |layer| layer.exec.as_ref(),
            |rules| rules.allow.iter().any(|rule| rule.covers(program, args)),
            |origin| {
                let reason = format!("the command `{}` is not allowed", shown(&line(program, args)));
                // A line of a shell, where the name of a program belongs.
                if program.contains(char::is_whitespace) && !program.contains('/') && args.is_empty() {
                    let hint = "a program is named alone, and its arguments are a list: `exec.run(\"ls\", [\"-l\"])`";
                    return Refusal::new(reason, hint);
                }
                match CommandRule::shown_for(program, args) {
                    Some(Ok(rule)) => Refusal::new(reason, origin.add(&rule, "exec.allow")),
                    Some(Err(())) => Refusal::new(reason, format!("{TOO_LONG} `{}`", origin.key("exec.allow"))),
                    None => Refusal::always(reason),
                }
            },
        )?;
        self.note(|| Request::Command(program.to_owned(), args.to_vec()));
        Ok(())
    }

    /// Folders beside the workspace and the machine's own: those that a layer names and every layer that speaks of
    /// commands covers.
    pub fn exec_folders(&self) -> Vec<FolderRule> {
        let layers: Vec<_> = self.layers().iter().filter_map(|layer| layer.exec.as_ref()).collect();
        let covers = |rules: &&ExecRules, folder| rules.folders.iter().any(|one| one.covers(folder));
        let mut folders: Vec<FolderRule> = Vec::new();
        for folder in layers.iter().flat_map(|rules| &rules.folders) {
            if !folders.contains(folder) && layers.iter().all(|rules| covers(rules, folder)) {
                folders.push(folder.clone());
            }
        }
        folders
    }

    /// Whether a command runs without the kernel's wall: every layer that speaks of commands says so.
    pub fn exec_unconfined(&self) -> bool {
        self.every_exec(|rules| rules.unconfined)
    }

    fn every_exec(&self, says: impl Fn(&ExecRules) -> bool) -> bool {
        self.every(|layer| layer.exec.as_ref(), says, |_| Refusal::always("")).is_ok()
    }
}

/// The command as a person would write it; only for a message, so that the first arguments are enough.
pub fn line(program: &str, args: &[String]) -> String {
    let mut line = program.to_owned();
    for arg in args {
        if line.len() > 400 {
            break;
        }
        line.push(' ');
        line.push_str(arg);
    }
    line
}

#[cfg(test)]
mod tests;
