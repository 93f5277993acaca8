//! Exit codes.

use std::process::ExitCode;

/// How the command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Exit {
    /// It did what was asked.
    Completed,
    /// The script failed, or a check.
    Failed,
    /// The arguments, an artifact or the policy cannot be used; nothing was done.
    Usage,
    /// The policy refused something that the script did not get past, or the call itself.
    Denied,
    /// The call was ended for using too much; the message says which limit.
    Limited,
    /// The host could not do its part.
    Fault,
    /// The host was busy: the same call may do better later.
    Busy,
    /// An agent client was answered, and its action is blocked: the one code that clients take for it.
    Blocked,
    /// A signal ended it.
    Signal(u8),
}

impl Exit {
    /// The number: what the table in the README says.
    pub(crate) fn code(self) -> u8 {
        match self {
            Self::Completed => 0,
            Self::Failed => 1,
            Self::Usage | Self::Blocked => 2,
            Self::Denied => 3,
            Self::Limited => 4,
            Self::Fault => 5,
            Self::Busy => 6,
            // As a shell has it of a program that did not hear the signal.
            Self::Signal(number) => number.saturating_add(128),
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The table in the README is this code.
    #[test]
    fn the_readme_tells_the_codes() {
        let readme = include_str!("../../../README.md");
        let rows = readme.split("## Exit codes").nth(1).unwrap().split("\n## ").next().unwrap();
        let told: Vec<(u8, &str)> = rows
            .lines()
            .filter_map(|line| {
                let mut cells = line.split('|').skip(1).map(str::trim);
                let code = cells.next()?.trim_matches('`').parse().ok()?;
                Some((code, cells.next()?.trim_matches('`')))
            })
            .collect();
        let codes = [Exit::Completed, Exit::Failed, Exit::Usage, Exit::Denied, Exit::Limited, Exit::Fault, Exit::Busy]
            .map(|exit| (exit.code(), format!("{exit:?}").to_lowercase()));
        assert_eq!(told, codes.each_ref().map(|(code, name)| (*code, name.as_str())));
    }
}
