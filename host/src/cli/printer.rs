//! The only place that writes to the terminal. Standard output is data, standard error is talk; what came from a
//! script, an artifact or the network is escaped before a terminal sees it.

use std::io::{IsTerminal, Write};

use harness::artifact::escape;

use super::args::Color;

/// Where output goes, and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Printer {
    color: bool,
}

impl Printer {
    pub(crate) fn new(color: Color) -> Self {
        let color = match color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                std::io::stderr().is_terminal() && harness::ambient::variable("NO_COLOR").is_none_or(|v| v.is_empty())
            }
        };
        Self { color }
    }

    pub(crate) fn color(self) -> bool {
        self.color
    }

    /// Data for whoever reads standard output: as it is for a pipe, escaped for a terminal, ended with a line break.
    pub(crate) fn data(self, text: &str) {
        let mut out = std::io::stdout().lock();
        let shown = if out.is_terminal() { escape::text(text) } else { text.into() };
        // A reader that has seen enough is no failure of ours.
        let _ = out.write_all(shown.as_bytes());
        if !shown.ends_with('\n') {
            let _ = out.write_all(b"\n");
        }
        let _ = out.flush();
    }

    /// Whether data may be in color: on a terminal, unless nobody wants any.
    pub(crate) fn colors_data(self) -> bool {
        self.color && std::io::stdout().is_terminal()
    }

    /// Data whose parts were escaped, each where it was put in: what is left of escapes is color.
    pub(crate) fn shown(self, text: &str) {
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(text.as_bytes());
        let _ = out.flush();
    }

    /// More of a text that is shown on a terminal as it comes.
    pub(crate) fn piece(self, text: &str) {
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(escape::text(text).as_bytes());
        let _ = out.flush();
    }

    /// JSON on standard output, which escapes by itself.
    pub(crate) fn json(self, value: &serde_json::Value) {
        self.data(&format!("{value:#}"));
    }

    /// A line of talk, not escaped: for text that is ours, or was escaped.
    pub(crate) fn say(self, text: &str) {
        let _ = writeln!(std::io::stderr().lock(), "{text}");
    }

    /// A question, without a line break: what is typed stands behind it.
    pub(crate) fn ask(self, text: &str) {
        let mut err = std::io::stderr().lock();
        let _ = err.write_all(text.as_bytes());
        let _ = err.flush();
    }

    /// `error: ...`, its causes one a line, and `hint: ...` after an empty line.
    pub(crate) fn error(self, message: &str, causes: &[String], hint: Option<&str>) {
        self.say(&format!("{} {}", self.paint("error:", "1;31"), escape::text(message)));
        for cause in causes {
            self.say(&format!("  {}", escape::text(cause)));
        }
        if let Some(hint) = hint.filter(|hint| !hint.is_empty()) {
            self.say(&format!("\n{} {}", self.paint("hint:", "1;36"), escape::text(hint)));
        }
    }

    /// `warning: ...`.
    pub(crate) fn warning(self, message: &str) {
        self.say(&format!("{} {}", self.paint("warning:", "1;33"), escape::text(message)));
    }

    /// Text in a color, given as the numbers of an SGR sequence (ECMA-48, 8.3.117).
    pub(crate) fn paint(self, text: &str, numbers: &str) -> String {
        if self.color { format!("\x1b[{numbers}m{text}\x1b[0m") } else { text.to_owned() }
    }
}
