//! What to tell of an interpreter that gave up.

use wasmtime::Trap;

/// One line about a trap, with what the interpreter said before it: the message of its panic, without the place in its
/// own sources, which no author of a script can do anything about.
pub(crate) fn stopped(trap: &Trap, stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let said = text.lines().map(str::trim).filter(|line| {
        !line.is_empty() && !line.starts_with("thread ") && !line.starts_with("note: ") && !line.starts_with("stack ")
    });
    match said.collect::<Vec<_>>().join(" ") {
        said if said.is_empty() => format!("the interpreter stopped: {trap}"),
        said => format!("the interpreter stopped: {said}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_of_a_panic_is_told_without_its_place() {
        let words = b"\nthread '<unnamed>' (1) panicked at /src/lib.rs:1:2:\nno such thing\nnote: run with `X=1`\n";
        assert_eq!(stopped(&Trap::UnreachableCodeReached, words), "the interpreter stopped: no such thing");
        assert_eq!(
            stopped(&Trap::UnreachableCodeReached, b""),
            "the interpreter stopped: wasm trap: wasm `unreachable` instruction executed"
        );
    }
}
