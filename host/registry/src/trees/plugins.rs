//! Plugins in the trees.

use super::Block;

/// Lets hooks of plugins be for an event that needs no consent of a policy.
pub(super) fn hear_no_others(path: &str, blocks: &mut [Block]) {
    let of_hooks = blocks.iter_mut().filter(|(name, _)| matches!(*name, "event" | "hooks"));
    for line in of_hooks.flat_map(|(_, lines)| lines).filter(|_| path.contains("/plugins/")) {
        if let Some((before, _)) = line.split_once("event: ").filter(|(before, _)| before.trim().is_empty()) {
            *line = format!("{before}event: builtin.pre");
        }
    }
}
