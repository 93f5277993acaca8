//! `log`: lines for the operator.

use std::fmt;

use serde::{Deserialize, Serialize};
use wasmtime::component::{ComponentType, Lift};

use super::progress::Step;

/// Bytes of a line; the rest is dropped.
pub const MAX_LINE: usize = 16 << 10;

/// How much a line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ComponentType, Lift, Serialize, Deserialize)]
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

/// Hears the lines of a script as it writes them.
pub trait LogListener: fmt::Debug + Send + Sync {
    /// A line that is kept. Secrets in it are replaced already.
    fn line(&self, level: Level, message: &str);

    /// How far a tool is. Secrets in it are replaced already.
    fn step(&self, step: &Step) {
        let _ = step;
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
    /// Appends a line, or counts it where there are `most` already. Gives back how many bytes were kept.
    pub fn write(&mut self, level: Level, mut message: String, most: u64) -> u64 {
        if self.lines.len() as u64 >= most {
            self.dropped += 1;
            return 0;
        }
        message.truncate(message.floor_char_boundary(MAX_LINE));
        // What was cut off is returned.
        message.shrink_to_fit();
        let kept = message.len() as u64;
        self.lines.push(Line { level, message });
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_dropped_and_counted() {
        let mut log = Log::default();
        for _ in 0..15 {
            log.write(Level::Info, "x".to_owned(), 10);
        }
        assert_eq!((log.lines.len(), log.dropped), (10, 5));
    }

    #[test]
    fn a_long_line_is_cut_between_characters() {
        let mut log = Log::default();
        log.write(Level::Warn, format!("x{}", "ü".repeat(MAX_LINE)), 1);
        assert_eq!(log.lines[0].message.len(), MAX_LINE - 1);
    }
}
