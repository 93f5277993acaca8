//! What to report an interpreter that gave up.

use wasmtime::Trap;

use super::outcome::Spot;

/// What an interpreter wrote before it ended: nobody else writes there.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    /// Where the script was, in its first line: `at LINE:COLUMN live BYTES`.
    pub at: Option<Spot>,
    /// The message of its panic, without the place in its own sources, which no author of a script can do anything about.
    text: String,
}

impl Said {
    pub(crate) fn of(stderr: &[u8]) -> Self {
        let text = String::from_utf8_lossy(stderr);
        let mut lines = text.lines().map(str::trim).peekable();
        let mut at = lines.peek().and_then(|line| spot(line));
        if at.is_some() {
            lines.next();
        }
        let said = lines.filter(|line| {
            !line.is_empty()
                && !line.starts_with("thread ")
                && !line.starts_with("note: ")
                && (!line.starts_with("stack ") || line.starts_with(EXHAUSTED))
        });
        let text = said.collect::<Vec<_>>().join(" ");
        let asked = text.strip_prefix("memory allocation of ").and_then(|rest| rest.split_once(' '));
        if let (Some(at), Some((bytes, _))) = (&mut at, asked) {
            at.asked = bytes.parse().unwrap_or(0);
        }
        Self { at, text }
    }

    /// Whether it asked for more memory than there can be.
    pub(crate) fn wanted_too_much(&self) -> bool {
        self.text == "capacity overflow"
    }

    /// Whether something was nested too deeply for its stack.
    pub(crate) fn exhausted(&self) -> bool {
        self.text == EXHAUSTED
    }

    /// One line about a trap, with what it said before.
    pub(crate) fn stopped(&self, trap: &Trap) -> String {
        if self.text.is_empty() {
            format!("the interpreter stopped: {trap}")
        } else {
            format!("the interpreter stopped: {}", self.text)
        }
    }
}

/// What the interpreter says where it sees the end of its stack itself.
const EXHAUSTED: &str = "stack exhausted";

fn spot(line: &str) -> Option<Spot> {
    let (place, live) = line.strip_prefix("at ")?.split_once(" live ")?;
    let (line, column) = place.split_once(':')?;
    Some(Spot { line: line.parse().ok()?, column: column.parse().ok()?, live: live.parse().ok()?, asked: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRAP: Trap = Trap::UnreachableCodeReached;

    #[test]
    fn the_message_of_a_panic_is_told_without_its_place() {
        let words = b"\nthread '<unnamed>' (1) panicked at /src/lib.rs:1:2:\nno such thing\nnote: run with `X=1`\n";
        assert_eq!(Said::of(words).stopped(&TRAP), "the interpreter stopped: no such thing");
        assert_eq!(
            Said::of(b"").stopped(&TRAP),
            "the interpreter stopped: wasm trap: wasm `unreachable` instruction executed"
        );
    }

    #[test]
    fn where_the_script_was_comes_first() {
        let at = |live, asked| Some(Spot { line: 12, column: 5, live, asked });
        let said = Said::of(b"at 12:5 live 77\nmemory allocation of 4096 bytes failed\n");
        assert_eq!(said.at, at(77, 4096));
        let said = Said::of(b"at 12:5 live 0\n\nthread 'x' panicked at a.rs:1:2:\ncapacity overflow\n");
        assert_eq!((said.at, said.wanted_too_much(), said.exhausted()), (at(0, 0), true, false));
        assert!(Said::of(b"\nthread 'x' panicked at a.rs:1:2:\nstack exhausted\n").exhausted());
        // Whatever else is written is a text.
        for words in ["at 1:2", "at x:2 live 3", "at 1:2 live -3", "at 1:99999999999999999999 live 3", "at"] {
            let said = Said::of(words.as_bytes());
            assert_eq!((said.at, said.text.as_str()), (None, words));
        }
    }
}
