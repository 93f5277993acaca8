//! A session's timeline for a terminal: a line for each thing that happened, indented by what it happened in.

use std::fmt::Write as _;

use super::record::Tokens;
use super::timeline::{Kind, Span, Status, Timeline};
use harness_artifact::escape;

/// Characters of a text that are shown in its line.
const SHOWN: usize = 200;
/// Columns before what happened: when, and how long it took.
const MARGIN: usize = 21;

/// All of it. Everything that was not this program's is escaped.
pub fn render(timeline: &Timeline, color: bool) -> String {
    let mut page = Page { text: String::new(), color };
    page.head(timeline);
    let mut turn = 0_u64;
    for span in &timeline.spans {
        page.text.push('\n');
        if span.kind == Kind::Turn {
            turn = turn.saturating_add(1);
            page.turn(span, turn);
        } else {
            page.span(span, 0);
        }
    }
    page.text
}

/// Microseconds as a person reads them.
pub fn time(micros: u64) -> String {
    let (millis, seconds) = (micros / 1000, micros / 1_000_000);
    match seconds {
        0 if micros < 10_000 => format!("{millis}.{} ms", micros % 1000 / 100),
        0..10 if micros < 1_000_000 => format!("{millis} ms"),
        0..60 => format!("{seconds}.{} s", millis % 1000 / 100),
        60..3600 => format!("{} min {:02} s", seconds / 60, seconds % 60),
        _ => format!("{} h {:02} min", seconds / 3600, seconds % 3600 / 60),
    }
}

/// A number with a comma after each three digits.
pub fn number(number: u64) -> String {
    let digits = number.to_string();
    let mut shown = String::with_capacity(digits.len().saturating_mul(2));
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && digits.len().saturating_sub(at) % 3 == 0 {
            shown.push(',');
        }
        shown.push(digit);
    }
    shown
}

/// Billionths of a dollar as dollars, to the hundredth of a cent.
pub fn dollars(cost: u64) -> String {
    match cost {
        0 => "$0".to_owned(),
        1..100_000 => "<$0.0001".to_owned(),
        _ => {
            let parts = cost.saturating_add(50_000) / 100_000;
            format!("${}.{:04}", number(parts / 10_000), parts % 10_000)
        }
    }
}

/// So many of something.
pub fn count(number: u64, one: &str, more: &str) -> String {
    format!("{} {}", self::number(number), if number == 1 { one } else { more })
}

fn tokens(tokens: Tokens) -> String {
    format!("{} + {} tokens", number(tokens.input), number(tokens.output))
}

/// One line of a text, not too much of it.
fn short(text: &str) -> String {
    let line = text.trim().replace("\r\n", "\n").replace('\n', " ⏎ ");
    let mut shown: String = line.chars().take(SHOWN).collect();
    if shown.len() < line.len() {
        shown.push('…');
    }
    escape::line(&shown).into_owned()
}

struct Page {
    text: String,
    color: bool,
}

impl Page {
    fn line(&mut self, line: &str) {
        self.text.push_str(line.trim_end());
        self.text.push('\n');
    }

    /// In a color, as the numbers of an SGR sequence.
    fn paint(&self, text: &str, numbers: &str) -> String {
        if self.color && !text.is_empty() { format!("\x1b[{numbers}m{text}\x1b[0m") } else { text.to_owned() }
    }

    fn head(&mut self, timeline: &Timeline) {
        let Timeline { header, totals, .. } = timeline;
        let line = |text: &str| escape::line(text).into_owned();
        let title = self.paint(&line(&header.id), "1");
        self.line(&format!("{title}  {}  {}", line(&header.started), line(&header.command)));
        let model = match (&header.model, &header.provider) {
            (Some(model), Some(provider)) => format!(", model {} ({})", line(model), line(provider)),
            (Some(model), None) => format!(", model {}", line(model)),
            _ => String::new(),
        };
        self.line(&format!("harness {}{model}", line(&header.harness)));
        if let Some(resumed) = &header.resumes {
            self.line(&format!("resumes {}", line(resumed)));
        }
        let refused = if totals.refused > 0 { format!(", {} refused", number(totals.refused)) } else { String::new() };
        let failed = if totals.failed > 0 { format!(", {} failed", number(totals.failed)) } else { String::new() };
        let agents = match totals.agents {
            0 => String::new(),
            some => format!(", {}", count(some, "turn of a sub-agent", "turns of sub-agents")),
        };
        self.line(&format!(
            "{} in {}: {} ({}), {}{refused}{failed}{agents}, {}, fuel {}",
            count(totals.turns, "turn", "turns"),
            time(totals.took),
            count(totals.replies, "reply", "replies"),
            tokens(totals.tokens),
            count(totals.calls, "call", "calls"),
            count(totals.hooks, "hook ran", "hooks ran"),
            number(totals.fuel),
        ));
        if !timeline.ended {
            let cut = if timeline.cut { ", and the last line is cut" } else { "" };
            let note = self.paint(&format!("the session is running, or it ended without a final entry{cut}"), "33");
            self.line(&note);
        }
    }

    fn turn(&mut self, span: &Span, number: u64) {
        let title = self.paint(&format!("turn {number}"), "1");
        let why = span.why.as_deref().map(|why| format!(": {}", short(why))).unwrap_or_default();
        let word = self.paint(&format!("{}{why}", escape::line(&span.word)), status(span.status));
        self.line(&format!("{title}, {}, {word}", time(span.took())));
        for (word, text) in &span.texts {
            if *word == "asked" {
                self.line(&format!("> {}", short(text)));
            }
        }
        span.inside.iter().for_each(|inner| self.span(inner, 0));
        for (word, text) in &span.texts {
            if *word == "answer" {
                self.text.push_str(&escape::text(text.trim_end()));
                self.text.push('\n');
            }
        }
    }

    fn span(&mut self, span: &Span, depth: usize) {
        if span.kind == Kind::Event && !span.inside.is_empty() {
            // Its hooks say it all; those that had no part in it are not shown.
            let hooks = span.inside.iter().filter(|hook| !matches!(hook.word.as_str(), "skip" | "not reached"));
            return hooks.for_each(|hook| self.row(hook, depth, &span.name));
        }
        self.row(span, depth, "");
    }

    /// A line of its own; `of` is the event of a hook.
    fn row(&mut self, span: &Span, depth: usize, of: &str) {
        let took = if span.kind == Kind::Note { String::new() } else { time(span.took()) };
        let margin = self.paint(&format!("{:>10} {took:>9} ", time(span.start)), "2");
        let indent = "  ".repeat(depth);
        let mut facts = Vec::new();
        facts.extend(span.tokens.map(tokens));
        if span.fuel > 0 {
            facts.push(format!("fuel {}", number(span.fuel)));
        }
        if span.host_calls > 0 {
            facts.push(count(span.host_calls, "host call", "host calls"));
        }
        let facts = if facts.is_empty() { String::new() } else { format!(" ({})", facts.join(", ")) };
        let why = span.why.as_deref().map(|why| format!(": {}", short(why))).unwrap_or_default();
        let what = match span.kind {
            Kind::Note => String::new(),
            kind => format!("{} ", kind.name()),
        };
        let name = self.paint(&escape::line(&span.name), "1");
        let word = self.paint(&format!("{}{why}", escape::line(&span.word)), status(span.status));
        let facts = self.paint(&facts, "2");
        let gap = if span.name.is_empty() || span.word.is_empty() { "" } else { " " };
        let of = if of.is_empty() { String::new() } else { format!("on {}: ", escape::line(of)) };
        self.line(&format!("{margin}{indent}{what}{name}{gap}{of}{word}{facts}"));
        let below = format!("{}{indent}  ", " ".repeat(MARGIN));
        for (word, text) in &span.texts {
            let mark = match *word {
                "given" | "new messages" => continue,
                "task" | "asked" => ">",
                "arguments" => "(",
                "result" => "=",
                "again" => "~",
                _ => "\"",
            };
            // The last thing that a sub-agent says is its answer, and reported where it says it.
            if *word != "answer" {
                let shown = self.paint(&format!("{mark} {}", short(text)), "2");
                self.line(&format!("{below}{shown}"));
            }
        }
        for call in span.host.iter().filter(|call| call.refused.is_some()) {
            let why = call.refused.as_deref().unwrap_or_default();
            let told = format!("refused {} {}: {}", escape::line(&call.call), short(&call.subject), short(why));
            let told = self.paint(&told, status(Status::Refused));
            self.line(&format!("{below}{told}"));
        }
        for logged in &span.log {
            let mut told = format!("[{}] ", escape::line(&logged.level));
            let _ = write!(told, "{}", short(&logged.message));
            let told = self.paint(&told, "2");
            self.line(&format!("{below}{told}"));
        }
        span.inside.iter().for_each(|inner| self.span(inner, depth.saturating_add(1)));
    }
}

fn status(status: Status) -> &'static str {
    match status {
        Status::Fine => "32",
        Status::Refused => "35",
        Status::Failed => "31",
        Status::Open => "33",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_numbers() {
        let times = [0, 1_250, 9_999, 10_000, 999_999, 1_000_000, 59_999_999, 61_000_000, 7_260_000_000];
        assert_eq!(
            times.map(time),
            ["0.0 ms", "1.2 ms", "9.9 ms", "10 ms", "999 ms", "1.0 s", "59.9 s", "1 min 01 s", "2 h 01 min"]
        );
        let numbers = [0, 999, 1_000, 1_234_567].map(number);
        assert_eq!(numbers, ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn costs() {
        let costs = [0, 1, 99_999, 100_000, 149_999, 150_000, 1_234_500_000, 1_999_999_999_999, u64::MAX];
        let shown = ["$0", "<$0.0001", "<$0.0001", "$0.0001", "$0.0001", "$0.0002", "$1.2345", "$2,000.0000"];
        assert_eq!(costs.map(dollars)[..8], shown);
        assert!(dollars(u64::MAX).starts_with("$18,446,744,073."));
    }

    #[test]
    fn a_text_is_one_short_line() {
        assert_eq!(short("a\r\nb\n\x1b[2J"), "a ⏎ b ⏎ \\u{1b}[2J");
        assert_eq!(short(&"é".repeat(201)), format!("{}…", "é".repeat(200)));
    }
}
