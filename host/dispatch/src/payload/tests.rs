use super::*;
use serde_json::json;

/// As hooks see it: with the agent by which it came about.
fn full(payload: &impl Serialize) -> Json {
    AgentAt::default().payload(payload)
}

fn pre() -> Json {
    full(&ToolPre {
        id: "call_1".to_owned(),
        name: "run".to_owned(),
        arguments: r#"{"a":1}"#.to_owned(),
        args: json!({"a": 1}),
    })
}

fn post() -> Json {
    let result = json!({"out": "x"});
    full(&ToolPost {
        call_id: "call_1".to_owned(),
        name: "run".to_owned(),
        content: result.to_string(),
        blocks: None,
        is_error: false,
        result,
    })
}

#[track_caller]
fn changed(event: &Event, mut payload: Json, new: Json) -> (Json, Vec<String>) {
    let warnings = modify(event, &mut payload, new).unwrap();
    (payload, warnings)
}

#[track_caller]
fn refused(event: &Event, mut payload: Json, new: Json) -> String {
    modify(event, &mut payload, new).unwrap_err()
}

/// The keys of each type are those that `Event::shape` tells.
#[test]
fn the_types_have_the_keys_of_their_events() {
    let tokens = Tokens { input_tokens: 1, output_tokens: 2 };
    let delegated = DelegationPost {
        id: String::new(),
        parent_id: None,
        agent: String::new(),
        result: Json::Null,
        depth: 1,
        path: Vec::new(),
    };
    let builtin = BuiltinPre { tool: String::new(), function: String::new(), arguments: Json::Null };
    let tool = harness_artifact::tool::Tool::parse("f.md", "f", "---\n---\n").0.unwrap();
    let payloads = [
        (Event::ArtifactLoad, crate::admission::payload_of(&tool)),
        (Event::McpList, full(&json!({"server": "", "transport": "", "tools": []}))),
        (Event::BuiltinPre, full(&builtin)),
        (Event::BuiltinPost, full(&BuiltinPost { pre: builtin.clone(), result: Json::Null, error: None })),
        (Event::ToolPre, pre()),
        (Event::ToolPost, post()),
        (
            Event::TurnEnd,
            full(&TurnEnd { text: String::new(), tool_calls: Vec::new(), usage: tokens, log: Vec::new() }),
        ),
        (
            Event::CompletionPre,
            full(&CompletionPre {
                model: String::new(),
                messages: Vec::new(),
                tools: Vec::new(),
                max_tokens: None,
                temperature: None,
            }),
        ),
        (
            Event::CompletionPost,
            full(&CompletionPost {
                id: String::new(),
                model: String::new(),
                choices: Vec::new(),
                usage: tokens,
                finish_reason: String::new(),
            }),
        ),
        (
            Event::DelegationPre,
            full(&DelegationPre {
                id: String::new(),
                parent_id: None,
                agent: String::new(),
                prompt: String::new(),
                depth: 1,
                path: Vec::new(),
                model: None,
                tools: Vec::new(),
                hooks: Vec::new(),
            }),
        ),
        (Event::DelegationPost, full(&delegated)),
        (Event::DelegationPostVerify, full(&DelegationPostVerify { post: delegated, attempt: 1 })),
        (
            Event::AgentStop,
            full(&AgentStop {
                id: String::new(),
                parent_id: None,
                finish_reason: String::new(),
                iteration: 1,
                text: String::new(),
                response: String::new(),
                tool_calls: Vec::new(),
                tool_results: Vec::new(),
                usage: tokens,
            }),
        ),
        (Event::Error, full(&ErrorEnvelope { kind: String::new(), message: String::new(), source: String::new() })),
        (
            Event::Meta("tool_register".to_owned()),
            full(&MetaToolRegister {
                name: String::new(),
                description: String::new(),
                parameters: Json::Null,
                script: String::new(),
                replace: false,
            }),
        ),
        (
            Event::Meta("hook_register".to_owned()),
            full(&MetaHookRegister {
                name: String::new(),
                event: String::new(),
                script: String::new(),
                when: None,
                priority: 100,
            }),
        ),
        (
            Event::Meta("call_tool".to_owned()),
            full(&MetaCallTool { name: String::new(), arguments: String::new(), args: Json::Null }),
        ),
    ];
    for (event, payload) in &payloads {
        let Shape::Dict(keys) = event.shape() else { panic!("{event}") };
        let found: Vec<&str> = payload.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(found, keys, "{event}");
    }
    let dicts = Event::FIXED.iter().filter(|event| matches!(event.shape(), Shape::Dict(_))).count();
    assert_eq!(dicts + Event::FIRED_META.len(), payloads.len());
}

#[test]
fn a_modify_replaces_the_keys_it_gives() {
    let (payload, warnings) = changed(&Event::ToolPost, post(), json!({"is_error": true, "note": 1}));
    assert_eq!(
        payload,
        json!({"call_id": "call_1", "name": "run", "content": "{\"out\":\"x\"}", "blocks": null, "is_error": true, "result": {"out": "x"}, "agent": AgentAt::default(), "note": 1})
    );
    let only = "a hook can change `content`, `blocks`, `is_error` and `result`";
    assert_eq!(warnings, [format!("`note` of `tool.post` is changed for later hooks only: {only}")]);
}

/// Each key of each event: a change either is taken back, or is warned of; what is as before is no change.
#[test]
fn no_change_is_without_effect_and_without_a_word() {
    let metas = ["tool_register", "hook_register", "call_tool"].map(|name| Event::Meta(name.to_owned()));
    let mut seen = Vec::new();
    for event in Event::FIXED.into_iter().chain(metas) {
        let Shape::Dict(keys) = event.shape() else { continue };
        let old = |key: &str| match key {
            "is_error" => json!(false),
            "blocks" => Json::Null,
            _ => json!("old"),
        };
        let payload: Map<String, Json> = keys.iter().map(|key| ((*key).to_owned(), old(key))).collect();
        for key in keys.iter().chain(&["other"]) {
            let (same, warnings) = changed(&event, payload.clone().into(), json!({*key: payload.get(*key)}));
            assert_eq!(warnings.is_empty(), *key != "other", "{event} {key}");
            assert_eq!(same.as_object().map(Map::len), Some(keys.len() + usize::from(*key == "other")));
            let value = match *key {
                "is_error" => json!(true),
                "blocks" => json!([{"type": "text", "text": "7"}]),
                _ => json!("7"),
            };
            let (after, warnings) = changed(&event, payload.clone().into(), json!({*key: value}));
            let taken = event.taken_keys().unwrap().contains(key);
            assert_eq!(warnings.is_empty(), taken, "{event} {key}: {warnings:?}");
            let delegates = matches!(event, Event::DelegationPre | Event::DelegationPost | Event::DelegationPostVerify);
            // Of a delegation it is the one that is started, and who fired the event looks at a change of it.
            let stays = match *key {
                "agent" => !delegates,
                "tool" | "function" => event.is_builtin(),
                "server" | "transport" => matches!(event, Event::McpList),
                key => ["id", "call_id", "name"].contains(&key),
            };
            assert_eq!(after[*key] == payload.get(*key).cloned().unwrap_or_default(), stays, "{event} {key}");
            seen.extend(warnings);
        }
    }
    let of = |event: &str| -> Vec<&str> {
        seen.iter()
            .filter(|said| said.contains(&format!("` of {event} ")))
            .filter_map(|said| said.split('`').nth(1))
            .collect()
    };
    assert_eq!(of("`turn.end`"), ["tool_calls", "usage", "log", "agent", "other"]);
    assert_eq!(of("`completion.post`"), ["id", "model", "usage", "agent", "other"]);
    assert_eq!(of("`error`"), ["kind", "message", "source", "agent", "other"]);
    assert_eq!(of("`completion.pre`"), ["agent", "other"]);
}

#[test]
fn text_and_response_stay_equal() {
    let stop = || json!({"text": "a", "response": "a"});
    let both = |text: &str| json!({"text": text, "response": text});
    for new in [json!({"text": "b"}), json!({"response": "b"}), json!({"text": "b", "response": "b"})] {
        assert_eq!(changed(&Event::AgentStop, stop(), new), (both("b"), Vec::new()));
    }
    let (payload, warnings) = changed(&Event::AgentStop, stop(), json!({"text": "b", "response": "c"}));
    assert_eq!(payload, both("b"));
    assert_eq!(warnings, ["`text` and `response` say different things: `text` counts"]);
}

#[test]
fn what_an_event_is_about_stays() {
    let (payload, warnings) = changed(&Event::ToolPre, pre(), json!({"id": "call_1", "name": "other", "args": {}}));
    assert_eq!(
        payload,
        json!({"id": "call_1", "name": "run", "arguments": "{}", "args": {}, "agent": AgentAt::default()})
    );
    assert_eq!(warnings, ["`name` of `tool.pre` cannot be changed: the change is ignored"]);
    let (payload, warnings) = changed(&Event::ToolPost, post(), json!({"call_id": 5}));
    assert_eq!((payload["call_id"].as_str(), warnings.len()), (Some("call_1"), 1));
    let custom = Event::Custom("x".to_owned());
    assert_eq!(changed(&custom, json!({"name": 1}), json!({"name": 2})), (json!({"name": 2}), Vec::new()));
}

#[test]
fn arguments_and_args_stay_equal() {
    let both = |args: Json| full(&json!({"id": "call_1", "name": "run", "arguments": args.to_string(), "args": args}));
    assert_eq!(changed(&Event::ToolPre, pre(), json!({"args": {"b": [1]}})).0, both(json!({"b": [1]})));
    assert_eq!(changed(&Event::ToolPre, pre(), json!({"arguments": "{\"b\": 2}"})).0, both(json!({"b": 2})));
    assert_eq!(changed(&Event::ToolPre, pre(), json!({"arguments": {"b": 2}})).0, both(json!({"b": 2})));
    // A whole payload with one of the two changed.
    let mut whole = pre();
    whole["args"] = json!({"c": 3});
    assert_eq!(changed(&Event::ToolPre, pre(), whole).0, both(json!({"c": 3})));
    let (payload, warnings) = changed(&Event::ToolPre, pre(), json!({"args": {"b": 1}, "arguments": "{\"b\":2}"}));
    assert_eq!(payload, both(json!({"b": 1})));
    assert_eq!(warnings, ["`arguments` and `args` say different things: `args` counts"]);
    assert_eq!(refused(&Event::ToolPre, pre(), json!({"arguments": "{"})), "`arguments` is not JSON");
    assert_eq!(refused(&Event::ToolPre, pre(), json!({"arguments": 1})), "`arguments` must be JSON text, not a number");
}

#[test]
fn content_and_result_stay_equal() {
    let after = |new: Json| {
        let payload = changed(&Event::ToolPost, post(), new).0;
        (payload["content"].clone(), payload["result"].clone())
    };
    assert_eq!(after(json!({"result": {"out": "*"}})), (json!("{\"out\":\"*\"}"), json!({"out": "*"})));
    assert_eq!(after(json!({"result": "text"})), (json!("text"), json!("text")));
    assert_eq!(after(json!({"content": "[1]"})), (json!("[1]"), json!([1])));
    assert_eq!(after(json!({"content": "no json"})), (json!("no json"), json!("no json")));
    assert_eq!(after(json!({"content": "short", "result": {"out": "*"}})), (json!("short"), json!("short")));
    assert_eq!(after(json!({"content": "{\"out\":1}", "result": {"out": 1}})).1, json!({"out": 1}));
    assert_eq!(refused(&Event::ToolPost, post(), json!({"content": 1})), "`content` must be a string");
    assert_eq!(refused(&Event::ToolPost, post(), json!({"is_error": "no"})), "`is_error` must be True or False");
}

#[test]
fn a_failed_call_keeps_its_shape() {
    let failed = || {
        let mut payload = post();
        payload["is_error"] = json!(true);
        payload["content"] = json!("no key");
        payload["result"] = json!({"error": "no key"});
        payload
    };
    for new in [
        json!({"content": "no ***"}),
        json!({"result": {"error": "no ***"}}),
        json!({"content": "no ***", "result": {"error": "no ***"}}),
    ] {
        let (payload, warnings) = changed(&Event::ToolPost, failed(), new);
        assert_eq!((&payload["content"], &payload["result"]), (&json!("no ***"), &json!({"error": "no ***"})));
        assert_eq!(warnings, [""; 0]);
    }
}

/// What someone fires by hand need not be whole.
#[test]
fn a_payload_with_keys_missing() {
    let (payload, _) = changed(&Event::ToolPost, json!({"name": "x"}), json!({"note": 1}));
    assert_eq!(payload, json!({"name": "x", "note": 1}));
    let (payload, _) = changed(&Event::ToolPre, json!({"name": "x"}), json!({"note": 1}));
    assert_eq!(payload, json!({"name": "x", "note": 1}));
}

#[test]
fn what_is_no_dict_is_replaced_whole() {
    assert_eq!(changed(&Event::TurnStart, json!("a"), json!("b")).0, json!("b"));
    assert_eq!(
        refused(&Event::TurnStart, json!("a"), json!({})),
        "`modify` of `turn.start` takes a string, not a dict"
    );
    assert_eq!(refused(&Event::ToolPre, pre(), json!("x")), "`modify` of `tool.pre` takes a dict, not a string");
    let custom = Event::Custom("x".to_owned());
    assert_eq!(changed(&custom, json!([1]), json!({"a": 1})).0, json!({"a": 1}));
    let (payload, warnings) = changed(&Event::SessionEnd, Json::Null, json!({"a": 1}));
    assert_eq!((payload, warnings.len()), (Json::Null, 1));
}

#[test]
fn blocks_count_and_nothing_old_is_left_beside_what_replaces_them() {
    let image = json!({"type": "image", "mime": "image/png", "data": "AAEC"});
    let text = |text: &str| json!({"type": "text", "text": text});
    let with = |result: Json| {
        let mut payload = post();
        payload["content"] = json!("a\n[image: image/png, 3 bytes]");
        payload["blocks"] = json!([text("a"), image]);
        payload["result"] = result;
        payload
    };
    let event = Event::ToolPost;
    let of = |payload: &Json| (payload["content"].clone(), payload["blocks"].clone(), payload["result"].clone());
    let plain = with(json!("a\n[image: image/png, 3 bytes]"));
    let (changed_to, warnings) = changed(&event, plain.clone(), json!({"blocks": [text("b")]}));
    assert_eq!((of(&changed_to), warnings), ((json!("b"), json!([text("b")]), json!("b")), vec![]));
    // A value beside the blocks is another thing.
    let (changed_to, _) = changed(&event, with(json!({"n": 1})), json!({"blocks": [text("b")]}));
    assert_eq!(of(&changed_to), (json!("b"), json!([text("b")]), json!({"n": 1})));
    let (changed_to, _) = changed(&event, plain.clone(), json!({"content": "c"}));
    assert_eq!(of(&changed_to), (json!("c"), Json::Null, json!("c")));
    let (changed_to, _) = changed(&event, with(json!({"n": 1})), json!({"result": {"n": 2}}));
    assert_eq!(of(&changed_to), (json!("{\"n\":2}"), Json::Null, json!({"n": 2})));
    let (changed_to, warnings) = changed(&event, plain.clone(), json!({"content": "c", "blocks": [image]}));
    assert_eq!(of(&changed_to).0, json!("[image: image/png, 3 bytes]"));
    assert_eq!(warnings, ["`content` and `blocks` are both changed: `blocks` counts"]);
    let (changed_to, _) = changed(&event, plain.clone(), json!({"blocks": null}));
    assert_eq!(of(&changed_to).1, Json::Null);
    for (wrong, why) in [
        (
            json!([{"type": "image", "mime": "png", "data": "AA=="}]),
            "block 0: `mime` is not a media type such as `image/png`: `png`",
        ),
        (json!("text"), "`blocks` must be a list"),
    ] {
        assert_eq!(refused(&event, plain.clone(), json!({ "blocks": wrong })), why);
    }
}
