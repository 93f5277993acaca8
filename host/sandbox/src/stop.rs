//! Why the host ended an instance, where a WebAssembly trap does not say it.

use super::imports::Role;
use super::outcome::LimitKind;
use super::price::Import;

/// Carried through the engine as an error and looked at when the call has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Stop {
    /// The time of the call is over.
    #[error("the deadline has passed")]
    Deadline,
    /// More than a limit of the call.
    #[error("over a limit")]
    Over(LimitKind),
    /// More bytes than an import takes.
    #[error("more than {cap} bytes were passed to `{}.{}`", import.path().0, import.path().1)]
    TooMuchGiven { import: Import, cap: u64 },
    /// More bytes than an import returns: a fault of the host, which has let more through than its own cap.
    #[error("`{}.{}` returned more than its {cap} bytes", import.path().0, import.path().1)]
    TooMuchGivenBack { import: Import, cap: u64 },
    /// A function that this role has not got.
    #[error("`{}.{}` is not there for a {}", import.path().0, import.path().1, role.name())]
    NotLinked { import: Import, role: Role },
    /// The answers are given, and there is none for this.
    #[error("the recording has no answer of `{}.{}` to this{}", import.path().0, import.path().1, if *too_long { ": it was too long to be kept" } else { "" })]
    NotKept { import: Import, too_long: bool },
    /// An instance called the host that no call has.
    #[error("an instance called the host that no call has")]
    Vacant,
}
