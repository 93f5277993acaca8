//! Programs of the machine that a person runs by way of this one: with their terminal, their environment and their rights.
//! What a script or a tool asks for never comes here: that is behind the wall of commands.

use std::ffi::OsStr;
use std::process::Command;

/// Runs a program until it ends, at the terminal of this process. Returns its exit code; none where a signal ended it.
///
/// # Errors
///
/// What the system says; there is no such program.
pub fn run_at_terminal(program: &str, arguments: &[&OsStr]) -> std::io::Result<Option<i32>> {
    Ok(Command::new(program).args(arguments).status()?.code())
}

#[cfg(test)]
mod tests {
    use super::run_at_terminal;

    #[test]
    fn codes() {
        let shell = |script: &str| run_at_terminal("sh", &["-c".as_ref(), script.as_ref()]).unwrap();
        assert_eq!((shell("exit 0"), shell("exit 3"), shell("kill -9 $$")), (Some(0), Some(3), None));
        let missing = run_at_terminal("harness-no-such-program", &[]).unwrap_err();
        assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
    }
}
