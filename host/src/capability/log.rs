//! `log`: lines for the operator.

use wasmtime::component::{ComponentType, Lift};

/// Bytes of a line; the rest is dropped.
pub const MAX_LINE: usize = 16 << 10;
/// Lines of a call; the rest is counted.
pub const MAX_LINES: usize = 1000;

/// How much a line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ComponentType, Lift)]
#[component(enum)]
#[repr(u8)]
#[expect(missing_docs, reason = "the words are the interface's")]
pub enum Level {
    #[component(name = "debug")]
    Debug,
    #[component(name = "info")]
    Info,
    #[component(name = "warn")]
    Warn,
    #[component(name = "error")]
    Error,
}

impl Level {
    /// The word of the interface.
    pub fn name(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }
}

/// One line of a script.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// How much it matters.
    pub level: Level,
    /// What the script said; not escaped.
    pub message: String,
}

/// The lines of one call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Log {
    /// What was kept, in order.
    pub lines: Vec<Line>,
    /// Lines that were dropped because there were too many.
    pub dropped: u64,
}

impl Log {
    /// Appends a line, or counts it where there are too many.
    pub fn write(&mut self, level: Level, mut message: String) {
        if self.lines.len() >= MAX_LINES {
            self.dropped += 1;
            return;
        }
        message.truncate(message.floor_char_boundary(MAX_LINE));
        self.lines.push(Line { level, message });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_dropped_and_counted() {
        let mut log = Log::default();
        for _ in 0..MAX_LINES + 5 {
            log.write(Level::Info, "x".to_owned());
        }
        assert_eq!((log.lines.len(), log.dropped), (MAX_LINES, 5));
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        let mut log = Log::default();
        log.write(Level::Warn, format!("x{}", "ü".repeat(MAX_LINE)));
        assert_eq!(log.lines[0].message.len(), MAX_LINE - 1);
    }
}
