//! The largest entry there can be fits in the audit log, and says what it left out.

use proptest::prelude::*;

use super::*;
use crate::chain::{Decision, Voice};
use harness_capability::log::Log as Lines;
use harness_policy::refusal::Refusal;
use harness_sandbox::outcome::{Failure, FailureKind};
use harness_sandbox::price::Import;

/// Bytes of a line.
const MAX_LINE: usize = 1 << 20;

fn hook(name: &str, verdict: Verdict, reason: Option<&str>, refused: &[HostCall]) -> HookRun {
    HookRun {
        name: name.to_owned(),
        file: name.to_owned(),
        priority: 0,
        voice: Voice::Own,
        shows: Shows::All,
        verdict,
        reason: reason.map(str::to_owned),
        warnings: Vec::new(),
        usage: Usage::default(),
        log: Lines::default(),
        calls: refused.to_vec(),
        coverage: None,
        nested: Vec::new(),
    }
}

fn dispatch(event: Event, hooks: Vec<HookRun>) -> Dispatch {
    Dispatch { event, hooks, decision: Decision::Allow, payload: Json::Null }
}

fn report(id: &str, why: &str, pre: Dispatch, post: Dispatch, calls: Vec<HostCall>) -> CallReport {
    let failure = Failure::without_place(FailureKind::Denied, "", why.to_owned());
    CallReport {
        id: id.to_owned(),
        tool: "it".to_owned(),
        confirmed: None,
        task: Some(id.to_owned()),
        ends: None,
        grant: Arc::new(Grant::new(Vec::new())),
        outcome: Outcome::Denied { failure, refusal: Refusal::always(why) },
        content: String::new(),
        rich: None,
        result: Json::Null,
        is_error: true,
        usage: Usage::default(),
        log: Lines::default(),
        calls,
        coverage: None,
        verify: None,
        pre: Some(pre),
        post: Some(post),
        nested: Vec::new(),
    }
}

/// The entry as it is in the log of a folder of its own.
fn logged(describe: impl FnOnce(&mut Entry)) -> Json {
    let folder = tempfile::tempdir().unwrap();
    let audit = folder.path().join("audit");
    let log = AuditWriter::new().log(&audit);
    let mut entry = log.entry().unwrap();
    describe(&mut entry);
    log.append(entry).block().unwrap();
    assert_eq!(harness_audit::verify(&audit).map(|summary| summary.lines), Ok(1));
    let lines = harness_audit::lines(&audit).unwrap();
    assert!(lines[0].len() < MAX_LINE, "{} bytes", lines[0].len());
    serde_json::from_str(&lines[0]).unwrap()
}

fn texts(of: &Json, most: usize) {
    match of {
        Json::String(text) => assert!(text.len() <= most, "{} bytes", text.len()),
        Json::Array(all) => all.iter().for_each(|one| texts(one, most)),
        Json::Object(all) => all.values().for_each(|one| texts(one, most)),
        _ => {}
    }
}

/// How many rows of a list are there, and how many it says were left out.
fn rows(entry: &Json, field: &str) -> (usize, usize) {
    let left_out =
        entry["cut"].as_array().into_iter().flatten().find(|cut| cut["field"] == field && cut["rows"] != Json::Null);
    let left_out = left_out.map_or(0, |cut| usize::try_from(cut["rows"].as_u64().unwrap()).unwrap());
    (entry[field].as_array().map_or(0, Vec::len), left_out)
}

fn layers(count: usize, text: &str, key: &Key) -> GrantEntry {
    let all: Vec<Cow<'_, str>> = (0..count).map(|n| format!("{n}{text}").into()).collect();
    let (layers, cut) = kept_list(key, "layers", &all, LAYERS);
    GrantEntry { policy: "sha256:0".into(), machine: Some("sha256:0".into()), layers, cut }
}

fn refused(subject: &str, why: &str) -> HostCall {
    HostCall {
        import: Import::MetaRegisterHook,
        subject: subject.to_owned(),
        fuel: u64::MAX,
        wall: std::time::Duration::MAX,
        bytes: (u64::MAX, u64::MAX),
        refused: Some(why.to_owned()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Whatever names, reasons and counts there are: the entry fits, no text is over its bound, each row is there or
    /// counted, and no decision is crowded out by hooks that let pass.
    #[test]
    fn every_entry_fits(
        character in prop_oneof![Just('\0'), Just('"'), Just('y'), Just('\u{10ffff}'), any::<char>()],
        lengths in (0..9000_usize, 0..9000_usize, 0..300_usize),
        counts in (0..6000_usize, 0..3000_usize, 0..300_usize),
        blocking in 0..6000_usize,
    ) {
        let text = |bytes: usize| character.to_string().repeat(bytes / character.len_utf8());
        let (name, why, subject) = (text(lengths.0), text(lengths.1), text(lengths.2));
        let mut hooks: Vec<HookRun> =
            (0..counts.0 / 2).map(|_| hook(&name, Verdict::Allow, None, &[])).collect();
        let at = blocking.min(hooks.len());
        hooks.insert(at, hook(&name, Verdict::Block, Some(&why), &[]));
        let ran = hooks.len();
        let calls: Vec<HostCall> = (0..counts.1 / 10).map(|_| refused(&subject, &why)).collect();
        let told = report(&why, &why, dispatch(Event::Custom(name.clone()), Vec::new()), dispatch(Event::ToolPost, hooks), calls.clone());
        let entry = logged(|entry| {
            for field in ["tool", "file", "caller", "event", "task"] {
                entry.put_text(field, &name, MAX_NAME);
            }
            let grant = layers(counts.2, &name, entry.key());
            describe(entry, &told, &grant);
        });
        texts(&entry, MAX_TEXT);
        let (told, left_out) = rows(&entry, "hooks");
        prop_assert_eq!(told + left_out, ran);
        prop_assert!(entry["hooks"].as_array().unwrap().iter().any(|row| row["verdict"] == "block"));
        let (told, left_out) = rows(&entry, "refusals");
        prop_assert_eq!(told + left_out, calls.len());
    }
}

/// What is cut is reported with its length, and with the digest of all of it.
#[test]
fn what_is_cut_says_so() {
    let why = "y".repeat(1_200_000);
    let post = dispatch(Event::ToolPost, vec![hook("h", Verdict::Block, Some(&why), &[])]);
    let told = report("call_1", &why, dispatch(Event::ToolPre, Vec::new()), post, Vec::new());
    let mut digest = String::new();
    let entry = logged(|entry| {
        digest = entry.key().digest(why.as_bytes());
        let grant = layers(0, "", entry.key());
        describe(entry, &told, &grant);
    });
    let of = |field: &str| serde_json::json!([{"field": field, "bytes": 1_200_000, "digest": digest}]);
    assert_eq!(entry["cut"], of("why"));
    assert_eq!(entry["hooks"][0]["cut"], of("reason"));
    assert_eq!(entry["hooks"][0]["reason"], "y".repeat(MAX_TEXT));
    assert_eq!(entry["hooks"][0]["hook"], "h");
}
