//! The share of the processor that a command has.

use super::wall_tests::{confined, in_workspace, unconfined};
use super::*;

/// Whether this process has the right of the machine's root to set shares of sessions, as often as it likes.
fn sets_shares() -> bool {
    const SYS_ADMIN: u64 = 1 << 21;
    let read = |file| std::fs::read_to_string(file).unwrap_or_default();
    let (map, status) = (read("/proc/self/uid_map"), read("/proc/self/status"));
    let capabilities = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let has = capabilities
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & SYS_ADMIN != 0);
    has && map.trim_end().ends_with(" 4294967295") && Path::new("/proc/self/autogroup").exists()
}

/// Where the kernel divides the processor by sessions, all processes of a command are in one that has as small a share as
/// root gives any, and the host keeps its own. A machine may give its own first processes no session, and so no share.
#[tokio::test]
async fn a_command_of_root_has_a_smaller_share_than_the_host() {
    let share = |text: &str| text.split_once(" nice ").map(|(_, nice)| nice.trim_end().to_owned());
    let own = || std::fs::read_to_string("/proc/self/autogroup").unwrap_or_default();
    let plain = || {
        let ran = std::process::Command::new("setsid")
            .args(["sh", "-c", "echo 10 > /proc/self/autogroup; cat /proc/self/autogroup"])
            .output();
        share(&String::from_utf8(ran.unwrap().stdout).unwrap())
    };
    let before = own();
    for grant in [confined(), unconfined()] {
        let shown = in_workspace(&grant, &[], "(cat /proc/self/autogroup; true)").await.1;
        if sets_shares() {
            assert_eq!((share(&shown), own()), (plain(), before.clone()), "{shown}");
        }
    }
}
