//! A session's timeline as one page: a waterfall for each turn, and everything that is known of each bar below it.
//!
//! The page needs nothing but itself: no script, no font, no picture, no address. Its policy allows its own style, by
//! digest, and nothing else, so that a text of a third party's that got out of its place would still do nothing.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

use super::record::{HostCalled, Logged};
use super::text::{count, number, time};
use super::timeline::{Kind, Span, Status, Timeline, Totals, added};
use harness_artifact::escape;

const STYLE: &str = include_str!("html/style.css");
/// Width of a lane in its own units.
const LANE: u64 = 10_000;
/// The narrowest bar: one that takes no time can be seen, too.
const THIN: u64 = 40;
/// Levels that are indented; deeper ones are as the last.
const DEEPEST: usize = 8;
/// Characters of the title.
const TITLE: usize = 160;
/// Characters of a text in the label of a row.
const LABEL: usize = 90;

/// The page.
pub fn render(timeline: &Timeline) -> String {
    let mut page = Page(String::new());
    let style = STANDARD.encode(Sha256::digest(STYLE.as_bytes()));
    let title = title(timeline);
    page.put(&format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-{style}'; \
         base-uri 'none'; form-action 'none'\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n<title>{}</title>\n<style>{STYLE}</style>\n</head>\n\
         <body>\n<main>\n",
        safe(&title),
    ));
    page.head(timeline, &title);
    let mut turns = 0_u64;
    let mut between: Vec<&Span> = Vec::new();
    for span in &timeline.spans {
        if span.kind == Kind::Turn {
            page.between(&mut between);
            turns = turns.saturating_add(1);
            page.turn(span, turns);
        } else {
            between.push(span);
        }
    }
    page.between(&mut between);
    page.foot(timeline);
    page.put("</main>\n</body>\n</html>\n");
    page.0
}

/// What the session was first asked.
fn title(timeline: &Timeline) -> String {
    let asked = timeline.spans.iter().flat_map(|span| &span.texts).find(|(word, _)| *word == "asked");
    let first = asked.map_or("", |(_, text)| text.trim().lines().next().unwrap_or_default());
    if first.is_empty() { "A session without prompts".to_owned() } else { short(first, TITLE) }
}

fn short(text: &str, most: usize) -> String {
    let mut shown: String = text.chars().take(most).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

/// Text of any origin between tags or in an attribute: what is hidden is shown, and nothing is markup.
fn safe(text: &str) -> String {
    let shown = escape::text(text);
    let mut safe = String::with_capacity(shown.len().saturating_add(16));
    for c in shown.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            c => safe.push(c),
        }
    }
    safe
}

/// JSON on several lines; other text as it is.
fn pretty(text: &str) -> String {
    let value =
        serde_json::from_str::<serde_json::Value>(text).ok().filter(|value| value.is_object() || value.is_array());
    value.and_then(|value| serde_json::to_string_pretty(&value).ok()).unwrap_or_else(|| text.to_owned())
}

struct Page(String);

impl Page {
    fn put(&mut self, text: &str) {
        self.0.push_str(text);
    }

    fn head(&mut self, timeline: &Timeline, title: &str) {
        let Timeline { header, totals, .. } = timeline;
        let model = match (&header.model, &header.provider) {
            (Some(model), Some(provider)) if model != provider => format!(" · {} ({})", safe(model), safe(provider)),
            (Some(model), _) => format!(" · {}", safe(model)),
            _ => String::new(),
        };
        let resumes = header.resumes.as_deref().map(|id| format!(" · resumes {}", safe(id))).unwrap_or_default();
        self.put(&format!(
            "<header>\n<p class=\"id\">{}</p>\n<h1>{}</h1>\n<p class=\"about\">{} · harness {}{model}{resumes}</p>\n",
            safe(&header.id),
            safe(title),
            safe(&header.started.replace('T', " ").replace('Z', " UTC")),
            safe(&header.command),
        ));
        if !timeline.ended {
            self.put("<p class=\"note\">The session is running, or it ended without a final entry.</p>\n");
        }
        self.totals(totals);
        self.shares(timeline);
        self.put("</header>\n");
    }

    fn totals(&mut self, totals: &Totals) {
        self.put("<dl class=\"totals\">\n");
        let tokens = totals.tokens;
        let mut tile = |class: &str, name: &str, value: String, small: String| {
            let small = if small.is_empty() { small } else { format!("<small>{small}</small>") };
            let _ = writeln!(self.0, "<div{class}><dt>{name}</dt><dd>{value}{small}</dd></div>");
        };
        tile("", "Time", time(totals.took), count(totals.turns, "turn", "turns"));
        tile("", "Replies", number(totals.replies), format!("in {}", time(totals.asking)));
        tile(
            "",
            "Tokens",
            number(tokens.input.saturating_add(tokens.output)),
            format!("{} out", number(tokens.output)),
        );
        tile("", "Calls", number(totals.calls), count(totals.failed, "failure", "failures"));
        let bad = if totals.refused > 0 { " class=\"bad\"" } else { "" };
        tile(bad, "Refused", number(totals.refused), "not allowed".to_owned());
        tile("", "Sub-agents", number(totals.agents), if totals.agents == 1 { "turn" } else { "turns" }.to_owned());
        tile("", "Hooks", number(totals.hooks), "ran".to_owned());
        tile("", "Fuel", fuel(totals.fuel), "units".to_owned());
        self.put("</dl>\n");
    }

    /// What the time of all turns went to.
    fn shares(&mut self, timeline: &Timeline) {
        let mut shares = Shares::default();
        timeline.spans.iter().for_each(|span| shares.add(span));
        let whole = added(timeline.spans.iter().filter(|span| span.kind == Kind::Turn).map(Span::took));
        let known = [
            ("model", "models", shares.model),
            ("tool", "tools", shares.tool),
            ("hook", "hooks and verification", shares.hook),
        ];
        let rest = whole.saturating_sub(added(known.iter().map(|(_, _, took)| *took)));
        self.put(&format!("<svg class=\"share\" viewBox=\"0 0 {LANE} 10\" preserveAspectRatio=\"none\" role=\"img\">"));
        self.put("<title>Time of the turns, by activity</title>");
        let mut from = 0_u64;
        for (class, word, took) in known {
            let width = part(took, whole);
            self.put(&format!(
                "<rect class=\"{class}\" x=\"{from}\" width=\"{width}\" height=\"10\"><title>{word} {}</title></rect>",
                time(took)
            ));
            from = from.saturating_add(width).min(LANE);
        }
        self.put("</svg>\n<ul class=\"legend\">\n");
        for (class, word, took) in known.into_iter().chain([("rest", "the rest", rest)]) {
            self.put(&format!("<li class=\"{class}\"><i></i>{word} {}</li>\n", time(took)));
        }
        self.put(
            "<li class=\"agent\"><i></i>sub-agents and tasks</li>\n<li class=\"bad\"><i></i>denied or failed</li>\n</ul>\n",
        );
    }

    /// What happened before, between and after turns.
    fn between(&mut self, spans: &mut Vec<&Span>) {
        let (Some(first), Some(last)) = (spans.first(), spans.last()) else { return };
        let scale = Scale { start: first.start, took: last.end.saturating_sub(first.start).max(1) };
        let mut rows = Page(String::new());
        for span in spans.drain(..) {
            rows.span(span, 0, scale, "");
        }
        if !rows.0.is_empty() {
            self.put("<section class=\"turn\">\n<header><h2>Around the turns</h2></header>\n");
            self.put(&rows.0);
            self.put("</section>\n");
        }
    }

    fn turn(&mut self, span: &Span, number: u64) {
        let of = |wanted: &str| span.texts.iter().find(|(word, _)| *word == wanted).map(|(_, text)| text.as_str());
        self.put(&format!(
            "<section class=\"turn\">\n<header><h2>Turn {number} <span class=\"state\">{} in {}</span></h2>\n",
            safe(&span.word),
            time(span.took())
        ));
        if let Some(asked) = of("asked") {
            self.put(&format!("<p class=\"said\">{}</p>\n", safe(asked.trim())));
        }
        self.put("</header>\n<div class=\"axis\"><ol>");
        for quarter in 0..=4_u64 {
            self.put(&format!("<li>{}</li>", time(span.took().saturating_mul(quarter) / 4)));
        }
        self.put("</ol></div>\n");
        let scale = Scale { start: span.start, took: span.took().max(1) };
        span.inside.iter().for_each(|inner| self.span(inner, 0, scale, ""));
        if let Some(answer) = of("answer") {
            self.put(&format!("<div class=\"answer\"><span>answer</span>{}</div>\n", safe(answer.trim())));
        }
        if let Some(why) = &span.why {
            self.put(&format!("<div class=\"answer fails\"><span>{}</span>{}</div>\n", safe(&span.word), safe(why)));
        }
        self.put("</section>\n");
    }

    /// A row, and those of what is inside. `of` is the event of a hook.
    fn span(&mut self, span: &Span, depth: usize, scale: Scale, of: &str) {
        if span.kind == Kind::Event && !span.inside.is_empty() {
            // Its hooks say it all.
            return span.inside.iter().for_each(|hook| self.span(hook, depth, scale, &span.name));
        }
        if matches!(span.word.as_str(), "skip" | "not reached") {
            return;
        }
        let kind = if span.kind == Kind::Note { "note-row" } else { span.kind.name() };
        let state = match span.status {
            Status::Fine => "",
            other => other.name(),
        };
        let deep = depth.min(DEEPEST);
        let x = part(span.start.saturating_sub(scale.start), scale.took).min(LANE - THIN);
        let width = part(span.took(), scale.took).clamp(THIN, LANE.saturating_sub(x));
        let name = if span.name.is_empty() { span.kind.name() } else { &span.name };
        self.put(&format!(
            "<details class=\"{kind} {state}\">\n<summary><span class=\"label d{deep}\"><i></i><b>{}</b><em>{}</em></span>\
             <span class=\"lane\"><svg viewBox=\"0 0 {LANE} 30\" preserveAspectRatio=\"none\">\
             <rect x=\"{x}\" y=\"9\" width=\"{width}\" height=\"12\"><title>{} {}</title></rect></svg></span>\
             <span class=\"took\">{}</span></summary>\n",
            safe(name),
            safe(&short(&label(span, of), LABEL)),
            safe(name),
            time(span.took()),
            time(span.took()),
        ));
        self.more(span, of, scale);
        self.put("</details>\n");
        span.inside.iter().for_each(|inner| self.span(inner, depth.saturating_add(1), scale, ""));
    }

    /// Everything that is known of a row.
    fn more(&mut self, span: &Span, of: &str, scale: Scale) {
        self.put("<div class=\"more\">\n<ul class=\"facts\">");
        let mut fact = |word: &str, value: String| {
            let _ = write!(self.0, "<li>{word} <b>{value}</b></li>");
        };
        fact(
            "what",
            format!("{}{}", span.kind.name(), if of.is_empty() { String::new() } else { format!(" on {}", safe(of)) }),
        );
        if !span.word.is_empty() {
            fact("ended", safe(&span.word));
        }
        fact("from", time(span.start.saturating_sub(scale.start)));
        fact("took", time(span.took()));
        if let Some(tokens) = span.tokens {
            fact("tokens", format!("{} in, {} out", number(tokens.input), number(tokens.output)));
        }
        if span.fuel > 0 {
            fact("fuel", number(span.fuel));
        }
        if span.memory > 0 {
            fact("memory", format!("{} KiB", number(span.memory / 1024)));
        }
        if span.host_calls > 0 {
            fact("host calls", number(span.host_calls));
        }
        self.put("</ul>\n");
        if let Some(why) = &span.why {
            self.put(&format!("<p class=\"why\">{}</p>\n", safe(why)));
        }
        for (word, text) in &span.texts {
            self.put(&format!("<h3>{}</h3>\n<pre>{}</pre>\n", safe(word), safe(&pretty(text))));
        }
        if !span.host.is_empty() {
            self.put("<h3>host calls</h3>\n<table>\n");
            span.host.iter().for_each(|call| self.host(call));
            self.put("</table>\n");
        }
        if !span.log.is_empty() {
            let line = |line: &Logged| format!("[{}] {}", line.level, line.message);
            let log: Vec<String> = span.log.iter().map(line).collect();
            self.put(&format!("<h3>log</h3>\n<pre>{}</pre>\n", safe(&log.join("\n"))));
        }
        self.put("</div>\n");
    }

    fn host(&mut self, call: &HostCalled) {
        let (class, why) = match &call.refused {
            Some(why) => (" class=\"no\"", format!(" refused: {}", safe(why))),
            None => ("", String::new()),
        };
        self.put(&format!(
            "<tr><td>{}</td><td{class}>{}{why}</td><td>{}</td></tr>\n",
            safe(&call.call),
            safe(&call.subject),
            time(call.wall_us)
        ));
    }

    fn foot(&mut self, timeline: &Timeline) {
        let header = &timeline.header;
        self.put(&format!(
            "<footer>Recorded by harness {}, interpreter {}; {}.</footer>\n",
            safe(&header.harness),
            safe(&header.interpreter),
            count(header.artifacts.len() as u64, "artifact file", "artifact files"),
        ));
    }
}

/// What lanes of a turn show.
#[derive(Clone, Copy)]
struct Scale {
    start: u64,
    took: u64,
}

/// A part of a whole, in the units of a lane.
fn part(part: u64, whole: u64) -> u64 {
    let units = u128::from(part).saturating_mul(u128::from(LANE)) / u128::from(whole.max(1));
    u64::try_from(units).unwrap_or(LANE).min(LANE)
}

/// What is said of a row beside its name.
fn label(span: &Span, of: &str) -> String {
    let first = |wanted: &str| {
        let text = span.texts.iter().find(|(word, _)| *word == wanted);
        text.map(|(_, text)| text.trim().replace('\n', " "))
    };
    let why = span.why.clone().map(|why| format!(": {why}")).unwrap_or_default();
    match (span.kind, span.status) {
        (Kind::Hook, _) if !of.is_empty() => format!("{of} {}{why}", span.word),
        (Kind::Note, _) => span.why.clone().unwrap_or_default(),
        (Kind::Task, _) => format!("task {}{why}", span.word),
        (_, Status::Fine) => match span.kind {
            Kind::Model => format!("{}{why}", span.word),
            Kind::Tool => first("arguments").map(|text| flat(&text)).unwrap_or_default(),
            Kind::Agent => {
                let attempt = span.why.clone().map(|attempt| format!("{attempt}: ")).unwrap_or_default();
                format!("{attempt}{}", first("answer").or_else(|| first("task")).unwrap_or_default())
            }
            _ => format!("{}{why}", span.word),
        },
        _ => format!("{}{why}", span.word),
    }
}

/// Arguments in a line: names and values, without what JSON has around them.
fn flat(arguments: &str) -> String {
    let Ok(serde_json::Value::Object(fields)) = serde_json::from_str(arguments) else { return arguments.to_owned() };
    let field = |(name, value): (&String, &serde_json::Value)| {
        let value = value.as_str().map_or_else(|| value.to_string(), |text| text.replace('\n', " "));
        format!("{name}: {value}")
    };
    fields.iter().map(field).collect::<Vec<_>>().join(", ")
}

/// Units of fuel, in millions where there are many.
fn fuel(units: u64) -> String {
    if units < 1_000_000 {
        number(units)
    } else {
        format!("{}.{} M", number(units / 1_000_000), units % 1_000_000 / 100_000)
    }
}

/// Microseconds that went to models, tools and hooks, each counted once.
#[derive(Default)]
struct Shares {
    model: u64,
    tool: u64,
    hook: u64,
}

impl Shares {
    fn add(&mut self, span: &Span) {
        // What continues beside a turn takes none of its time.
        let within = || span.inside.iter().filter(|inner| inner.kind != Kind::Task);
        let inside = added(within().map(Span::took));
        let own = span.took().saturating_sub(inside);
        match span.kind {
            Kind::Model => self.model = self.model.saturating_add(own),
            Kind::Tool if !span.inside.iter().any(|inner| inner.kind == Kind::Agent) => {
                self.tool = self.tool.saturating_add(own);
            }
            Kind::Hook | Kind::Judge => self.hook = self.hook.saturating_add(own),
            _ => {}
        }
        within().for_each(|inner| self.add(inner));
    }
}
