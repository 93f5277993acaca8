//! A row of the page, and below it everything that is known of it.

use maud::{Markup, Render, html};

use super::{LANE, Shown, part, short};
use crate::record::{HostCalled, Logged};
use crate::text::{dollars, number, time};
use crate::timeline::{Kind, Span, Status};

/// The narrowest bar: one that takes no time can be seen, too.
const THIN: u64 = 40;
/// Levels that are indented; deeper ones are as the last.
const DEEPEST: usize = 8;
/// Characters of a text in the label of a row.
const LABEL: usize = 90;

/// What lanes of a turn show.
#[derive(Clone, Copy)]
pub(super) struct Scale {
    pub(super) start: u64,
    pub(super) took: u64,
}

/// A row, and those of what is inside.
pub(super) struct Row<'a> {
    pub(super) span: &'a Span,
    pub(super) depth: usize,
    pub(super) scale: Scale,
    /// The event of a hook.
    pub(super) of: &'a str,
    /// The name of its place in the page, to which an address can point.
    pub(super) path: &'a str,
}

impl Render for Row<'_> {
    fn render_to(&self, page: &mut String) {
        let Self { span, depth, scale, path, .. } = *self;
        if span.kind == Kind::Event && !span.inside.is_empty() {
            // Its hooks say it all.
            return each(&span.inside, path, |hook, path| {
                Row { span: hook, depth, scale, of: &span.name, path }.render_to(page);
            });
        }
        if matches!(span.word.as_str(), "skip" | "not reached") {
            return;
        }
        self.own().render_to(page);
        if span.inside.is_empty() {
            return;
        }
        let depth = depth.saturating_add(1);
        page.push_str("<div class=\"inside\">");
        each(&span.inside, path, |inner, path| Row { span: inner, depth, scale, of: "", path }.render_to(page));
        page.push_str("</div>");
    }
}

/// Rows inside another one, each with its place.
fn each(spans: &[Span], path: &str, mut render: impl FnMut(&Span, &str)) {
    for (at, span) in spans.iter().enumerate() {
        render(span, &format!("{path}-{}", at.saturating_add(1)));
    }
}

impl Row<'_> {
    fn own(&self) -> Markup {
        let Self { span, depth, scale, of, path } = *self;
        let kind = if span.kind == Kind::Note { "note-row" } else { span.kind.name() };
        let state = match span.status {
            Status::Fine => "",
            other => other.name(),
        };
        let name = if span.name.is_empty() { span.kind.name() } else { &span.name };
        let took = time(span.took());
        let x = part(span.start.saturating_sub(scale.start), scale.took).min(LANE - THIN);
        let width = part(span.took(), scale.took).clamp(THIN, LANE.saturating_sub(x));
        html! {
            "\n"
            details class={ (kind) " " (state) } id=(path) {
                summary {
                    span class={ "label d" (depth.min(DEEPEST)) } {
                        i {} b { (Shown(name)) } em { (Shown(&short(&label(span, of), LABEL))) }
                    }
                    span class="lane" {
                        svg viewBox={ "0 0 " (LANE) " 30" } preserveAspectRatio="none" {
                            rect x=(x) y="9" width=(width) height="12" { title { (Shown(name)) " " (took) } }
                        }
                    }
                    span class="took" {
                        (took)
                        @if !span.inside.is_empty() { " " input type="checkbox" title="hide what is inside"; }
                    }
                }
                (self.more())
            }
        }
    }

    /// Everything that is known of it.
    fn more(&self) -> Markup {
        let span = self.span;
        let line = |line: &Logged| format!("[{}] {}", line.level, line.message);
        let log: Vec<String> = span.log.iter().map(line).collect();
        html! {
            div class="more" {
                ul class="facts" {
                    @for (word, value) in self.facts() { li { (word) " " b { (Shown(&value)) } } }
                }
                @if let Some(why) = &span.why { p class="why" { (Shown(why)) } }
                @for (word, text) in &span.texts {
                    h3 { (Shown(word)) }
                    pre { (Shown(&pretty(text))) }
                }
                @if !span.host.is_empty() {
                    h3 { "host calls" }
                    table { @for call in &span.host { (host(call)) } }
                }
                @if !log.is_empty() {
                    h3 { "log" }
                    pre { (Shown(&log.join("\n"))) }
                }
            }
        }
    }

    /// Words, and the value of each.
    fn facts(&self) -> Vec<(&'static str, String)> {
        let Self { span, scale, of, .. } = *self;
        let on = if of.is_empty() { String::new() } else { format!(" on {of}") };
        let mut facts = vec![("what", format!("{}{on}", span.kind.name()))];
        if !span.word.is_empty() {
            facts.push(("ended", span.word.clone()));
        }
        facts.push(("anchor", format!("#{}", self.path)));
        facts.push(("from", time(span.start.saturating_sub(scale.start))));
        facts.push(("took", time(span.took())));
        if let Some(tokens) = span.tokens {
            facts.push(("tokens", format!("{} in, {} out", number(tokens.input), number(tokens.output))));
        }
        if let Some(cost) = span.cost {
            facts.push(("cost", dollars(cost)));
        }
        if span.fuel > 0 {
            facts.push(("fuel", number(span.fuel)));
        }
        if span.memory > 0 {
            facts.push(("memory", format!("{} KiB", number(span.memory / 1024))));
        }
        if span.host_calls > 0 {
            facts.push(("host calls", number(span.host_calls)));
        }
        facts
    }
}

fn host(call: &HostCalled) -> Markup {
    html! {
        tr {
            td { (Shown(&call.call)) }
            td class=[call.refused.as_ref().map(|_| "no")] {
                (Shown(&call.subject)) @if let Some(why) = &call.refused { " refused: " (Shown(why)) }
            }
            td { (time(call.wall_us)) }
        }
    }
}

/// JSON on several lines; other text as it is.
fn pretty(text: &str) -> String {
    let value =
        serde_json::from_str::<serde_json::Value>(text).ok().filter(|value| value.is_object() || value.is_array());
    value.and_then(|value| serde_json::to_string_pretty(&value).ok()).unwrap_or_else(|| text.to_owned())
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
