//! How long a call of a tool may take: what its author asks for, up to what its grant says.

use super::grant::Grant;
use super::layer::Origin;
use super::limits::LimitKey;

/// What a tool of the project itself may ask for where no layer of its grant sets a limit, in milliseconds. The limit's
/// own default is for those that ask for nothing.
pub const MOST_ASKED: u64 = 600_000;

/// Who wrote a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Author {
    /// Who wrote the policy, or who they trust as themselves.
    Project,
    /// Someone else: a plugin's word raises nothing.
    Plugin,
}

/// The line that decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decides<'g> {
    /// The tool's own `timeout_ms`.
    Tool,
    /// A layer of its grant.
    Layer(&'g Origin),
    /// None: no layer sets it, and the tool asks for nothing, or for more than it may.
    Default,
}

/// How long a call may take, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Deadline<'g> {
    /// In milliseconds.
    pub ms: u64,
    /// What decided it.
    pub by: Decides<'g>,
}

impl Deadline<'_> {
    /// Whether it is shorter than what was asked for.
    pub fn cuts(&self, asked: Option<u64>) -> bool {
        asked.is_some_and(|asked| asked > self.ms)
    }
}

impl Grant {
    /// How long a call may take of a tool that asks for so many milliseconds, or for nothing.
    pub fn deadline(&self, asked: Option<u64>, author: Author) -> Deadline<'_> {
        let (set, origin) = self.limit(LimitKey::Timeout);
        let most = match (origin, author) {
            (None, Author::Project) => set.max(MOST_ASKED),
            (Some(_), _) | (None, Author::Plugin) => set,
        };
        match (asked, origin) {
            (Some(asked), _) if asked <= most => Deadline { ms: asked, by: Decides::Tool },
            (_, Some(origin)) => Deadline { ms: set, by: Decides::Layer(origin) },
            (Some(_), None) => Deadline { ms: most, by: Decides::Default },
            (None, None) => Deadline { ms: set, by: Decides::Default },
        }
    }
}
