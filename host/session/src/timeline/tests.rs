use serde_json::json;

use super::growing::MAX_DEPTH;
use super::*;
use crate::read::parse;
use crate::record::ROOT;

/// A record with these lines after its first.
fn recording(lines: &[Json]) -> Recording {
    let header = json!({
        "at": 0, "kind": "session", "version": 1, "id": "s", "started": "2026-01-01T00:00:00Z", "harness": "0.1.0",
        "interpreter": "x", "command": "run", "artifacts": {},
    });
    let text: String = std::iter::once(&header).chain(lines).map(|line| format!("{line}\n")).collect();
    parse(text.as_bytes()).unwrap()
}

fn turn(at: u64, by: &str, parent: Option<&str>) -> Json {
    let agent = if by == ROOT { "" } else { "helper" };
    json!({"at": at, "by": by, "kind": "turn", "agent": agent, "parent": parent, "depth": 0, "text": "do it"})
}

fn asked(at: u64, by: &str) -> Json {
    json!({"at": at, "by": by, "kind": "asked", "round": 1, "model": "m", "messages": 1, "tools": 1, "room": 9, "said": "", "offered": ""})
}

fn reply(at: u64, by: &str, calls: &[&str]) -> Json {
    let calls: Vec<Json> =
        calls.iter().map(|id| json!({"id": id, "name": "t", "arguments": format!("{{\"of\":\"{id}\"}}")})).collect();
    json!({"at": at, "by": by, "kind": "reply", "model": "m", "text": "", "calls": calls, "finish": "stop", "took_us": 1,
           "tokens": {"input": 3, "output": 2}})
}

fn calling(at: u64, by: &str, id: &str) -> Json {
    json!({"at": at, "by": by, "kind": "calling", "call": id, "tool": "t"})
}

fn called(at: u64, by: &str, id: &str, outcome: &str) -> Json {
    let hook = |verdict: &str| {
        json!({"hook": "guard", "file": "g.md", "verdict": verdict,
               "work": {"fuel": 5, "wall_us": 10, "peak_memory": 0, "host_calls": 0}})
    };
    json!({"at": at, "by": by, "kind": "called", "call": id, "tool": "t", "outcome": outcome, "is_error": false,
           "content": "", "fuel": 50, "took_us": 100, "pre": {"event": "tool.pre", "hooks": [hook("allow")]},
           "work": {"fuel": 40, "wall_us": 30, "peak_memory": 7, "host_calls": 1},
           "post": {"event": "tool.post", "hooks": [hook("modify")]}})
}

fn turned(at: u64, by: &str) -> Json {
    json!({"at": at, "by": by, "kind": "turned", "answer": "done", "rounds": 1, "tokens": {"input": 3, "output": 2}})
}

/// Kind, time and state of each span, indented by what it is in.
fn outline(timeline: &Timeline) -> String {
    fn add(span: &Span, depth: usize, lines: &mut Vec<String>) {
        let (kind, word) = (span.kind.name(), &span.word);
        lines.push(format!("{}{kind} {}..{} {word} {}", "  ".repeat(depth), span.start, span.end, span.status.name()));
        span.inside.iter().for_each(|inner| add(inner, depth + 1, lines));
    }
    let mut lines = Vec::new();
    timeline.spans.iter().for_each(|span| add(span, 0, &mut lines));
    lines.join("\n")
}

#[test]
fn what_is_in_what_and_when() {
    let lines = [
        turn(10, ROOT, None),
        asked(20, ROOT),
        reply(30, ROOT, &["a", "b"]),
        calling(40, ROOT, "a"),
        json!({"at": 45, "by": ROOT, "kind": "delegated", "to": "helper", "attempt": 1}),
        turn(50, "d1", Some(ROOT)),
        asked(51, "d1"),
        reply(60, "d1", &[]),
        turned(61, "d1"),
        json!({"at": 62, "by": ROOT, "kind": "judged", "of": "helper", "refused": "too short", "took_us": 1}),
        json!({"at": 63, "by": ROOT, "kind": "delegated", "to": "helper", "attempt": 2}),
        turn(64, "d1", Some(ROOT)),
        turned(70, "d1"),
        called(140, ROOT, "a", "completed"),
        calling(150, ROOT, "b"),
        called(250, ROOT, "b", "denied"),
        turned(260, ROOT),
    ];
    let timeline = Timeline::of(&recording(&lines));
    insta::assert_snapshot!(outline(&timeline), @"
    turn 10..260 answered fine
      model 20..30 calls t, t fine
      tool 40..140 completed fine
        event 40..50 passed fine
          hook 40..50 allow fine
        agent 50..61 not accepted refused
          model 51..60 answers fine
        judge 61..62 not accepted refused
        agent 64..70 answered fine
        event 130..140 passed fine
          hook 130..140 modify fine
      tool 150..250 denied refused
        event 150..160 passed fine
          hook 150..160 allow fine
        event 240..250 passed fine
          hook 240..250 modify fine
    ");
    let Totals { took, turns, replies, asking, tokens, calls, refused, failed, agents, hooks, fuel, .. } =
        timeline.totals;
    assert_eq!((took, turns, replies, asking, tokens), (260, 1, 2, 19, Tokens { input: 6, output: 4 }));
    assert_eq!((calls, refused, failed, agents, hooks, fuel), (2, 1, 0, 2, 4, 100));
    assert_eq!(timeline.spans[0].inside[1].texts, [("arguments", "{\"of\":\"a\"}".to_owned())]);
}

#[test]
fn what_is_open_ends_with_the_record() {
    let lines = [
        turn(10, ROOT, None),
        asked(20, ROOT),
        reply(30, ROOT, &["a"]),
        calling(40, ROOT, "a"),
        turn(50, "d1", Some(ROOT)),
        asked(55, "d1"),
    ];
    let timeline = Timeline::of(&recording(&lines));
    insta::assert_snapshot!(outline(&timeline), @"
    turn 10..55 not ended open
      model 20..30 calls t fine
      tool 40..55 not ended open
        agent 50..55 not ended open
          model 55..55 not ended open
    ");
    assert!(!timeline.ended);
    let mut stopped = lines.to_vec();
    stopped.extend([
        json!({"at": 60, "by": "d1", "kind": "stopped"}),
        json!({"at": 61, "by": ROOT, "kind": "stopped"}),
        json!({"at": 90, "kind": "ended"}),
    ]);
    let timeline = Timeline::of(&recording(&stopped));
    insta::assert_snapshot!(outline(&timeline), @"
    turn 10..61 stopped open
      model 20..30 calls t fine
      tool 40..61 stopped open
        agent 50..60 stopped open
          model 55..60 stopped open
    ");
    assert!(timeline.ended);
}

/// Anyone who writes a record by hand does not choose how deep a reader has to go.
#[test]
fn no_tree_is_deeper_than_it_may_be() {
    let name = |n: u64| if n == 0 { ROOT.to_owned() } else { format!("d{n}") };
    let lines: Vec<Json> = (0..10_000).map(|n| turn(n, &name(n), (n > 0).then(|| name(n - 1)).as_deref())).collect();
    let timeline = Timeline::of(&recording(&lines));
    fn depth(span: &Span) -> u32 {
        1 + span.inside.iter().map(depth).max().unwrap_or(0)
    }
    assert_eq!(timeline.spans.iter().map(depth).max(), Some(MAX_DEPTH + 1));
    assert_eq!(timeline.totals.agents, 9_999);
}
