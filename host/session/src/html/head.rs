//! The head of the page: what the session was, what all of it comes to, and what its time went to.

use maud::{Markup, html};

use super::{LANE, Shown, part};
use crate::text::{count, dollars, number, time};
use crate::timeline::{Kind, Span, Timeline, Totals, added};

pub(super) fn render(timeline: &Timeline, title: &str) -> Markup {
    let header = &timeline.header;
    let started = header.started.replace('T', " ").replace('Z', " UTC");
    html! {
        header {
            p class="id" { (Shown(&header.id)) }
            h1 { (Shown(title)) }
            p class="about" {
                (Shown(&started)) " · harness " (Shown(&header.command))
                @if let Some(model) = &header.model { " · " (Shown(model)) }
                @if let (Some(model), Some(provider)) = (&header.model, &header.provider) && model != provider {
                    " (" (Shown(provider)) ")"
                }
                @if let Some(id) = &header.resumes { " · resumes " (Shown(id)) }
            }
            @if !timeline.ended {
                p class="note" { "The session is running, or it ended without a final entry." }
            }
            (totals(&timeline.totals))
            (shares(timeline))
            (filter())
        }
    }
}

fn totals(totals: &Totals) -> Markup {
    let tokens = totals.tokens;
    let written = format!("{} out", number(tokens.output));
    let refused = (totals.refused > 0).then_some("bad");
    let turns = if totals.agents == 1 { "turn" } else { "turns" };
    html! {
        dl class="totals" {
            (tile(None, "Time", &time(totals.took), &count(totals.turns, "turn", "turns")))
            (tile(None, "Replies", &number(totals.replies), &format!("in {}", time(totals.asking))))
            (tile(None, "Tokens", &number(tokens.input.saturating_add(tokens.output)), &written))
            @if let Some(cost) = totals.cost {
                (tile(None, "Cost", &dollars(cost), &unpriced(totals.unpriced)))
            }
            (tile(None, "Calls", &number(totals.calls), &count(totals.failed, "failure", "failures")))
            (tile(refused, "Refused", &number(totals.refused), "not allowed"))
            (tile(None, "Sub-agents", &number(totals.agents), turns))
            (tile(None, "Hooks", &number(totals.hooks), "ran"))
            (tile(None, "Fuel", &fuel(totals.fuel), "units"))
        }
    }
}

fn unpriced(replies: u64) -> String {
    match replies {
        0 => String::new(),
        replies => format!("and {} without a price", count(replies, "reply", "replies")),
    }
}

fn tile(class: Option<&str>, name: &str, value: &str, small: &str) -> Markup {
    html! {
        div class=[class] {
            dt { (name) }
            dd { (value) @if !small.is_empty() { small { (small) } } }
        }
    }
}

/// Which rows are shown.
fn filter() -> Markup {
    let kinds = [("models", "models"), ("tools", "tools"), ("hooks", "hooks"), ("bad", "denied or failed")];
    html! {
        p class="filter" {
            "rows: "
            label { input type="radio" name="rows" checked; "all" }
            @for (id, word) in kinds {
                label { input type="radio" name="rows" id={ "only-" (id) }; (word) }
            }
        }
    }
}

/// What the time of all turns went to.
fn shares(timeline: &Timeline) -> Markup {
    let mut shares = Shares::default();
    timeline.spans.iter().for_each(|span| shares.add(span));
    let whole = added(timeline.spans.iter().filter(|span| span.kind == Kind::Turn).map(Span::took));
    let known = [
        ("model", "models", shares.model),
        ("tool", "tools", shares.tool),
        ("hook", "hooks and verification", shares.hook),
    ];
    let rest = whole.saturating_sub(added(known.iter().map(|(_, _, took)| *took)));
    let mut from = 0_u64;
    let bars = known.map(|(class, word, took)| {
        let (x, width) = (from, part(took, whole));
        from = x.saturating_add(width).min(LANE);
        html! {
            rect class=(class) x=(x) width=(width) height="10" { title { (word) " " (time(took)) } }
        }
    });
    html! {
        svg class="share" viewBox={ "0 0 " (LANE) " 10" } preserveAspectRatio="none" role="img" {
            title { "Time of the turns, by activity" }
            @for bar in &bars { (bar) }
        }
        ul class="legend" {
            @for (class, word, took) in known.into_iter().chain([("rest", "the rest", rest)]) {
                li class=(class) { i {} (word) " " (time(took)) }
            }
            li class="agent" { i {} "sub-agents and tasks" }
            li class="bad" { i {} "denied or failed" }
        }
    }
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
