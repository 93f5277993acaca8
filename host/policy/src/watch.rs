//! What was asked of a grant: the requests that its decisions were made on.

use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use super::command::line;
use super::grant::Grant;
use super::layer::Service;
use super::network::{Target, shown};
use super::path::{Access, WorkspacePath};

/// Something that a script asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// A file or folder.
    Path(WorkspacePath, Access),
    /// A file or folder that a command was given, needed or not.
    Shown(WorkspacePath, Access),
    /// A host at an address that its name led to.
    Host(Target, IpAddr),
    /// A host at an address that its name led to, for a command.
    CommandHost(Target, IpAddr),
    /// A program with arguments.
    Command(String, Vec<String>),
    /// A variable that a script gave to a command.
    ChildVariable(String),
    /// A variable of the host's environment.
    Variable(String),
    /// A built-in.
    Service(Service),
    /// A secret, by name.
    Secret(String),
}

impl Request {
    /// Whether a grant allows it.
    pub fn allowed(&self, grant: &Grant) -> bool {
        match self {
            Self::Path(path, access) | Self::Shown(path, access) => grant.decide_path(path, *access).is_ok(),
            Self::Host(target, address) => grant.decide_address(target, *address).is_ok(),
            Self::CommandHost(target, address) => grant.decide_command_address(target, *address).is_ok(),
            Self::Command(program, args) => grant.decide_command(program, args).is_ok(),
            Self::ChildVariable(name) => grant.decide_child_env(name).is_ok(),
            Self::Variable(name) => grant.decide_env(name).is_ok(),
            Self::Service(service) => grant.decide_service(*service).is_ok(),
            Self::Secret(name) => grant.decide_secret(name).is_ok(),
        }
    }
}

/// In words, at most a line of them.
impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Path(path, access) | Self::Shown(path, access) => {
                write!(f, "{} `{}`", access.doing(), shown(&path.to_string()))
            }
            Self::Host(target, _) => write!(f, "the host `{target}`"),
            Self::CommandHost(target, _) => write!(f, "the host `{target}` for commands"),
            Self::Command(program, args) => write!(f, "the command `{}`", shown(&line(program, args))),
            Self::ChildVariable(name) | Self::Variable(name) => write!(f, "the variable `{}`", shown(name)),
            Self::Service(service) => write!(f, "`{}`", service.name()),
            Self::Secret(name) => write!(f, "the secret `{}`", shown(name)),
        }
    }
}

/// What was asked, each thing once, in the order it was first asked; those that were allowed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Asked {
    /// By the name of the source that asked, such as `plugins/acme/tools/x`.
    pub requests: Vec<(String, Request)>,
}

/// Hears of the walls of commands. Meanwhile the host looks at the files that a command will see.
pub trait Walls: fmt::Debug + Send + Sync {
    /// One is planned from now on.
    fn planned(&self);
    /// Its command starts now, unless it failed.
    fn built(&self);
}

/// Keeps what is asked of the grants that it is given to.
#[derive(Debug, Default)]
pub struct Watch {
    asked: Mutex<(Asked, BTreeSet<String>)>,
    servers: Option<Arc<dyn Walls>>,
}

impl Watch {
    /// One that watches servers of `mcp.servers` too, and their walls.
    pub fn of_servers(walls: Arc<dyn Walls>) -> Self {
        Self { servers: Some(walls), ..Self::default() }
    }

    /// Whether it watches servers too.
    pub fn is_of_servers(&self) -> bool {
        self.servers.is_some()
    }

    /// What was asked so far.
    pub fn asked(&self) -> Asked {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// What was asked since it was taken the last time.
    pub fn take(&self) -> Asked {
        std::mem::take(&mut *self.asked.lock().unwrap_or_else(PoisonError::into_inner)).0
    }

    fn note(&self, source: &str, request: Request) {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if asked.1.insert(format!("{source} {request:?}")) {
            asked.0.requests.push((source.to_owned(), request));
        }
    }
}

/// Who watches the decisions of a grant, and whose decisions they are.
#[derive(Debug, Clone)]
pub struct Watched {
    /// Where requests are noted.
    pub watch: Arc<Watch>,
    /// The source that asks.
    pub source: Arc<str>,
}

/// Two are the same where they show the same watch of the same source.
impl PartialEq for Watched {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.watch, &other.watch) && self.source == other.source
    }
}

impl Eq for Watched {}

impl Watched {
    pub(crate) fn walls(&self) -> Option<&dyn Walls> {
        self.watch.servers.as_deref()
    }

    pub(crate) fn note(&self, request: impl FnOnce() -> Request) {
        self.watch.note(&self.source, request());
    }
}
