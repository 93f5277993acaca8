//! A session's timeline as one page: a waterfall for each turn, and everything that is known of each bar below it.
//!
//! The page needs nothing but itself: no script, no font, no picture, no address. Its policy allows its own style, by
//! digest, and nothing else, so that a text of a third party's that got out of its place would still do nothing. And no
//! text gets there: `maud` escapes all that is not markup of these templates.

mod head;
mod row;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use maud::{Markup, PreEscaped, Render, html};
use sha2::{Digest as _, Sha256};

use super::text::{count, time};
use super::timeline::{Kind, Span, Timeline};
use harness_artifact::escape;
use row::{Row, Scale};

/// The style of the page. One that shows [`rows`] has it too.
pub const STYLE: &str = include_str!("html/style.css");
/// Width of a lane in its own units.
const LANE: u64 = 10_000;
/// Characters of the title.
const TITLE: usize = 160;

/// The page.
pub fn render(timeline: &Timeline) -> String {
    let style = STANDARD.encode(Sha256::digest(STYLE.as_bytes()));
    let policy = format!("default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'");
    let title = title(timeline);
    let page = html! {
        (PreEscaped("<!doctype html>\n"))
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(policy);
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="referrer" content="no-referrer";
                title { (Shown(&title)) }
                style { (PreEscaped(STYLE)) }
            }
            "\n"
            body {
                main {
                    (head::render(timeline, &title))
                    @for section in sections(timeline) { "\n" (section) }
                    "\n"
                    (foot(timeline))
                }
            }
        }
        "\n"
    };
    page.into_string()
}

/// The turns with their rows, to be put into the body of another page.
pub fn rows(timeline: &Timeline) -> String {
    html! { @for section in sections(timeline) { "\n" (section) } }.into_string()
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

/// Text of any origin: what is hidden in it is shown.
#[derive(Debug, Clone, Copy)]
pub struct Shown<'a>(pub &'a str);

impl Render for Shown<'_> {
    fn render_to(&self, page: &mut String) {
        for (at, text) in escape::text(self.0).split('\'').enumerate() {
            // In case a text is ever copied into an attribute between such quotes, which `maud` does not write.
            if at > 0 {
                page.push_str("&#39;");
            }
            text.render_to(page);
        }
    }
}

/// The turns in their order, and what happened before, between and after them.
fn sections(timeline: &Timeline) -> Vec<Markup> {
    let mut turns = 0_u64;
    let around = |one: &Span, next: &Span| one.kind != Kind::Turn && next.kind != Kind::Turn;
    let section = |spans: &[Span]| match spans {
        [span] if span.kind == Kind::Turn => {
            turns = turns.saturating_add(1);
            Some(turn(span, turns))
        }
        spans => between(spans),
    };
    timeline.spans.chunk_by(around).filter_map(section).collect()
}

/// Nothing where there is no row to show.
fn between(spans: &[Span]) -> Option<Markup> {
    let (first, last) = (spans.first()?, spans.last()?);
    let scale = Scale { start: first.start, took: last.end.saturating_sub(first.start).max(1) };
    let path = |at: usize| format!("at-{}-{}", first.start, at.saturating_add(1));
    let rows = html! {
        @for (at, span) in spans.iter().enumerate() { (Row { span, depth: 0, scale, of: "", path: &path(at) }) }
    };
    let section = html! {
        section class="turn" {
            header { h2 { "Around the turns" } }
            (rows)
        }
    };
    (!rows.0.is_empty()).then_some(section)
}

fn turn(span: &Span, number: u64) -> Markup {
    let of = |wanted: &str| span.texts.iter().find(|(word, _)| *word == wanted).map(|(_, text)| text.as_str());
    let scale = Scale { start: span.start, took: span.took().max(1) };
    html! {
        section class="turn" id={ "turn-" (number) } {
            header {
                h2 { "Turn " (number) " " span class="state" { (Shown(&span.word)) " in " (time(span.took())) } }
                @if let Some(asked) = of("asked") { p class="said" { (Shown(asked.trim())) } }
            }
            div class="axis" {
                ol {
                    @for quarter in 0..=4_u64 { li { (time(span.took().saturating_mul(quarter) / 4)) } }
                }
            }
            @for (at, inner) in span.inside.iter().enumerate() {
                (Row { span: inner, depth: 0, scale, of: "", path: &format!("turn-{number}-{}", at.saturating_add(1)) })
            }
            @for word in ["answer", "until then"] {
                @if let Some(answer) = of(word) {
                    div class="answer" { span { (word) } (Shown(answer.trim())) }
                }
            }
            @if let Some(why) = &span.why {
                div class="answer fails" { span { (Shown(&span.word)) } (Shown(why)) }
            }
        }
    }
}

fn foot(timeline: &Timeline) -> Markup {
    let header = &timeline.header;
    let artifacts = count(header.artifacts.len() as u64, "artifact file", "artifact files");
    html! {
        footer {
            "Recorded by harness " (Shown(&header.harness)) ", interpreter " (Shown(&header.interpreter)) "; "
            (artifacts) "."
        }
    }
}

/// A part of a whole, in the units of a lane.
fn part(part: u64, whole: u64) -> u64 {
    let units = u128::from(part).saturating_mul(u128::from(LANE)) / u128::from(whole.max(1));
    u64::try_from(units).unwrap_or(LANE).min(LANE)
}
