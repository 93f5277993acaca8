//! What the host says beside a command that failed: that it was the host's own doing, and by which limit.
//!
//! A program that runs into a wall prints the error of the system, which names no limit and no policy. A note is a line of
//! its own after what the command itself wrote to standard error.

use super::Output;
use super::capture::MAX_TEXT;
use harness_policy::grant::Grant;
use harness_wall::Hit;

/// Adds what there is to say of a command that ended with something else than 0.
pub(super) fn add(output: &mut Output, hit: Hit, refused: &[String], grant: &Grant) {
    if output.exit_code == 0 {
        return;
    }
    let limits = grant.limits();
    let mut notes = refused.to_vec();
    if hit.memory {
        let most = limits.command_memory_bytes >> 20;
        notes.push(format!("the command took more memory than `limits.command_memory_mb`, which is {most}"));
    }
    if hit.processes {
        notes.push(format!("the command could make no more processes: `limits.processes` is {}", limits.processes));
    }
    if !grant.exec_unconfined() && (wrote_to_repository(&output.stderr) || wrote_to_repository(&output.stdout)) {
        notes.push(
            "commands can read `.git/` but never write it, whatever the policy grants: only people change a repository"
                .to_owned(),
        );
    }
    for note in notes {
        let end = if output.stderr.is_empty() || output.stderr.ends_with('\n') { "" } else { "\n" };
        let note = format!("{end}harness: {note}\n");
        if output.stderr.len().saturating_add(note.len()) <= MAX_TEXT {
            output.stderr.push_str(&note);
        }
    }
}

/// Whether a program complains that it could not write there, in the system's words.
fn wrote_to_repository(text: &str) -> bool {
    let refused = |line: &str| {
        ["Read-only file system", "Permission denied", "Device or resource busy"].iter().any(|why| line.contains(why))
    };
    text.lines().any(|line| (line.contains(".git/") || line.contains(".git'")) && refused(line))
}

#[cfg(test)]
mod tests {
    use super::*;
    use harness_policy::grant::Grant;

    fn noted(stderr: &str, exit_code: i32, hit: Hit) -> String {
        let mut output = Output {
            stdout: String::new(),
            stderr: stderr.to_owned(),
            exit_code,
            duration_ms: 0,
            timed_out: false,
            truncated: false,
        };
        add(&mut output, hit, &[], &Grant::new(Vec::new()));
        output.stderr
    }

    #[test]
    fn a_command_that_failed_is_told_by_what() {
        let (none, both) = (Hit::default(), Hit { processes: true, memory: true });
        let git = "fatal: Unable to create '/w/.git/index.lock': Read-only file system\n";
        let repository = "harness: commands can read `.git/` but never write it, whatever the policy grants: only people change a repository\n";
        assert_eq!(noted(git, 128, none), format!("{git}{repository}"));
        assert_eq!(noted(git, 0, both), git);
        for other in ["cat: x: Permission denied\n", "error: .git/index is odd\n", ""] {
            assert_eq!(noted(other, 1, none), other);
        }
        assert_eq!(
            noted("Killed", -1, both),
            "Killed\nharness: the command took more memory than `limits.command_memory_mb`, which is 4096\n\
             harness: the command could make no more processes: `limits.processes` is 64\n"
        );
        let full = "x".repeat(MAX_TEXT);
        assert!(noted(&full, -1, both) == full);
    }
}
