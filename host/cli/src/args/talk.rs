//! The arguments of commands that talk to the agent.

use std::path::PathBuf;

use clap::Args;

use super::{Confine, Confirm, Output};

#[derive(Debug, Default, Args)]
pub(crate) struct Talk {
    /// Prompt for the agent. Default: standard input, or a conversation if that is a terminal.
    pub(crate) prompt: Option<String>,

    /// Folder that tools work in. Default: the folder that holds `.harness`.
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) output: Output,

    /// Print each call and its result to standard error. At a terminal this is the default.
    #[arg(long)]
    pub(crate) explain: bool,

    #[command(flatten)]
    pub(crate) confirm: Confirm,

    /// Resume a recorded session: its name, the beginning of its name, or `latest`.
    #[arg(long, value_name = "SESSION")]
    pub(crate) resume: Option<String>,

    /// Finish the turn that a recorded session was interrupted in when its process ended, instead of a prompt.
    #[arg(long = "continue", value_name = "SESSION", conflicts_with_all = ["prompt", "resume"])]
    pub(crate) unfinished: Option<String>,

    /// Do not record the session in `.harness/sessions/`.
    #[arg(long)]
    pub(crate) no_record: bool,

    #[command(flatten)]
    pub(crate) confine: Confine,
}

#[derive(Debug, Args)]
pub(crate) struct Deploy {
    /// Task for the agent: literal, `@FILE`, or `-` for standard input. Default: standard input.
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) input: Option<String>,

    /// Folder that tools work in. Default: the folder that holds `.harness`.
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) output: Output,

    /// Print each call and its result to standard error. At a terminal this is the default.
    #[arg(long)]
    pub(crate) explain: bool,

    #[command(flatten)]
    pub(crate) confirm: Confirm,

    /// Do not record the session in `.harness/sessions/`.
    #[arg(long)]
    pub(crate) no_record: bool,

    #[command(flatten)]
    pub(crate) confine: Confine,
}
