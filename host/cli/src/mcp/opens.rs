//! Options of commands that describe what a server may do.

use clap::Args;

/// What a server's process may do, as the keys of its entry in `mcp.servers`.
#[derive(Debug, Args)]
pub(crate) struct Opens {
    /// Pattern of paths of the workspace that it may read; may be repeated.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) read: Vec<String>,

    /// Pattern of paths of the workspace that it may write; may be repeated.
    #[arg(long, value_name = "PATTERN")]
    pub(crate) write: Vec<String>,

    /// Host that it may connect to, such as `api.example.org` or `*.example.net:8443`; may be repeated.
    #[arg(long, value_name = "HOST")]
    pub(crate) network: Vec<String>,

    /// A variable of it as `NAME=VALUE`, with `{secret:NAME}` and `{env:NAME}` in the value; may be repeated.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,

    /// Let it start packages without an exact version.
    #[arg(long)]
    pub(crate) floating: bool,
}
