//! A question, a call, its result, an answer: in each wire format, streamed and not, with what is sent for it.

use serde_json::Value as Json;

use super::*;
use crate::wire::Wire;
use harness_testing::server::{Received, Server, Step, events, head};

const ASKED: &str = "Read the file config.yaml and tell me what port it uses";
const GAVE: &str = "port: 8080\n";
const SAID: &str = "The config.yaml file specifies port 8080.";

/// What a service answers first, and what second, as it streams or not.
fn answers(kind: Kind, stream: bool) -> [String; 2] {
    let lines = |lines: &[Json]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
    let data = |data: &[Json]| data.iter().map(|data| format!("data: {data}\n\n")).collect::<String>();
    let arguments = "{\"path\": \"config.yaml\"}";
    match (kind, stream) {
        (Kind::Anthropic, true) => [
            data(&[
                json!({ "type": "message_start", "message": { "id": "c-1", "model": "m-1", "usage": { "input_tokens": 11, "output_tokens": 0 } } }),
                json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "tool_use", "id": "call_123", "name": "read_file", "input": {} } }),
                json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "input_json_delta", "partial_json": arguments } }),
                json!({ "type": "content_block_stop", "index": 0 }),
                json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" }, "usage": { "output_tokens": 7 } }),
                json!({ "type": "message_stop" }),
            ]),
            data(&[
                json!({ "type": "message_start", "message": { "id": "c-2", "model": "m-1" } }),
                json!({ "type": "content_block_start", "index": 0, "content_block": { "type": "text", "text": "" } }),
                json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "text_delta", "text": SAID } }),
                json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" } }),
                json!({ "type": "message_stop" }),
            ]),
        ],
        (Kind::Anthropic, false) => [
            json!({ "id": "c-1", "model": "m-1", "stop_reason": "tool_use", "usage": { "input_tokens": 11, "output_tokens": 7 },
                "content": [{ "type": "tool_use", "id": "call_123", "name": "read_file", "input": { "path": "config.yaml" } }] })
            .to_string(),
            json!({ "id": "c-2", "model": "m-1", "stop_reason": "end_turn", "content": [{ "type": "text", "text": SAID }] })
                .to_string(),
        ],
        (Kind::Ollama, stream) => {
            let call = json!({ "function": { "name": "read_file", "arguments": { "path": "config.yaml" } } });
            let first = json!({ "model": "m-1", "message": { "role": "assistant", "content": "", "tool_calls": [call] }, "done": false });
            let end = json!({ "model": "m-1", "message": { "content": "" }, "done": true, "done_reason": "stop", "prompt_eval_count": 11, "eval_count": 7 });
            let said = json!({ "model": "m-1", "message": { "content": SAID }, "done": true, "done_reason": "stop" });
            match stream {
                true => [lines(&[first, end]), lines(&[said])],
                false => {
                    let mut whole = end;
                    whole["message"] = first["message"].clone();
                    [whole.to_string(), said.to_string()]
                }
            }
        }
        (_, true) => {
            let delta = |delta: Json| json!({ "id": "c-1", "model": "m-1", "choices": [{ "index": 0, "delta": delta }] });
            let end = |reason: &str| json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] });
            let called = json!([{ "index": 0, "id": "call_123", "type": "function", "function": { "name": "read_file", "arguments": "" } }]);
            let more = json!([{ "index": 0, "function": { "arguments": arguments } }]);
            let usage = json!({ "choices": [], "usage": { "prompt_tokens": 11, "completion_tokens": 7 } });
            [
                data(&[delta(json!({ "role": "assistant", "content": null, "tool_calls": called })), delta(json!({ "tool_calls": more })), end("tool_calls"), usage])
                    + "data: [DONE]\n\n",
                data(&[delta(json!({ "content": SAID })), end("stop")]) + "data: [DONE]\n\n",
            ]
        }
        (_, false) => {
            let whole = |message: Json, reason: &str| {
                json!({ "id": "c-1", "model": "m-1", "usage": { "prompt_tokens": 11, "completion_tokens": 7 },
                    "choices": [{ "index": 0, "message": message, "finish_reason": reason }] })
                .to_string()
            };
            let call = json!({ "id": "call_123", "type": "function", "function": { "name": "read_file", "arguments": arguments } });
            [whole(json!({ "role": "assistant", "content": null, "tool_calls": [call] }), "tool_calls"), whole(json!({ "content": SAID }), "stop")]
        }
    }
}

fn kind_of(kind: Kind, stream: bool) -> &'static str {
    match (kind, stream) {
        (_, false) => "application/json; charset=utf-8",
        (Kind::Ollama, true) => "application/x-ndjson",
        (_, true) => "text/event-stream",
    }
}

/// Runs the conversation; gives what the service was asked.
async fn converse(kind: Kind, stream: bool) -> Vec<Received> {
    let server = Server::new(move |_, at| {
        let answer = answers(kind, stream)[at].clone();
        vec![head("200 OK", kind_of(kind, stream), ""), Step::Split(answer.into_bytes())]
    })
    .await;
    let provider = provider(&Settings { stream, tools: ToolForm::Structured, ..settings(kind, &server.url()) });
    let system = ["Be short.", "Be kind."].map(|text| Message::System(text.to_owned()));
    let mut messages = [&system[..], &user(ASKED)].concat();

    let (reply, told) = ask(&*provider, &request(messages.clone())).await;
    let reply = reply.unwrap();
    assert_eq!((reply.text.as_str(), told.as_str(), &reply.finish), ("", "", &Finish::ToolCalls));
    assert_eq!(reply.usage, used(11, 7));
    let [called] = reply.calls.as_slice() else { panic!("{reply:?}") };
    assert_eq!(called.name, "read_file");
    assert_eq!(serde_json::from_str::<Json>(&called.arguments).unwrap(), json!({ "path": "config.yaml" }));
    assert_eq!(called.id == "call_123", kind != Kind::Ollama);

    let answer = Message::Tool { call_id: called.id.clone(), name: called.name.clone(), content: GAVE.to_owned() };
    messages.extend([Message::Assistant { text: reply.text, calls: reply.calls }, answer]);
    let (reply, told) = ask(&*provider, &request(messages)).await;
    let reply = reply.unwrap();
    assert_eq!((reply.text.as_str(), told.as_str(), reply.finish), (SAID, SAID, Finish::Stop));
    assert_eq!(reply.calls, []);
    server.received()
}

#[tokio::test]
async fn a_call_and_its_result_go_through_chat_completions() {
    for stream in [true, false] {
        let seen = converse(Kind::OpenAi, stream).await;
        assert_eq!(seen[0].head.lines().next(), Some("POST /chat/completions HTTP/1.1"));
        let mut wanted = json!({
            "model": "m-1",
            "messages": [
                { "role": "system", "content": "Be short.\n\nBe kind." },
                { "role": "user", "content": ASKED },
                { "role": "assistant", "content": null, "tool_calls": [
                    { "id": "call_123", "type": "function", "function": { "name": "read_file", "arguments": "{\"path\": \"config.yaml\"}" } },
                ] },
                { "role": "tool", "tool_call_id": "call_123", "content": GAVE },
            ],
            "tools": [{ "type": "function", "function": {
                "name": "read_file",
                "description": "Read a file.",
                "parameters": { "type": "object", "properties": { "path": { "type": "string" } }, "required": ["path"] },
            } }],
            "max_tokens": 100,
            "temperature": 0.5,
            "stream": stream,
        });
        if stream {
            wanted["stream_options"] = json!({ "include_usage": true });
        }
        assert_eq!(seen[1].json(), wanted);
        wanted["messages"].as_array_mut().unwrap().truncate(2);
        assert_eq!(seen[0].json(), wanted);
    }
}

#[tokio::test]
async fn a_call_and_its_result_go_through_messages() {
    for stream in [true, false] {
        let seen = converse(Kind::Anthropic, stream).await;
        assert_eq!(seen[0].head.lines().next(), Some("POST /v1/messages HTTP/1.1"));
        assert_eq!(seen[0].header("anthropic-version"), Some("2023-06-01"));
        let mut wanted = json!({
            "model": "m-1",
            "max_tokens": 100,
            "system": "Be short.\n\nBe kind.",
            "messages": [
                { "role": "user", "content": [{ "type": "text", "text": ASKED }] },
                { "role": "assistant", "content": [
                    { "type": "tool_use", "id": "call_123", "name": "read_file", "input": { "path": "config.yaml" } },
                ] },
                { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "call_123", "content": GAVE }] },
            ],
            "tools": [{
                "name": "read_file",
                "description": "Read a file.",
                "input_schema": { "type": "object", "properties": { "path": { "type": "string" } }, "required": ["path"] },
            }],
            "temperature": 0.5,
            "stream": stream,
        });
        assert_eq!(seen[1].json(), wanted);
        wanted["messages"].as_array_mut().unwrap().truncate(1);
        assert_eq!(seen[0].json(), wanted);
    }
}

#[tokio::test]
async fn a_call_and_its_result_go_through_ollamas_chat() {
    for stream in [true, false] {
        let seen = converse(Kind::Ollama, stream).await;
        assert_eq!(seen[0].head.lines().next(), Some("POST /api/chat HTTP/1.1"));
        let mut wanted = json!({
            "model": "m-1",
            "messages": [
                { "role": "system", "content": "Be short.\n\nBe kind." },
                { "role": "user", "content": ASKED },
                { "role": "assistant", "content": "", "tool_calls": [
                    { "function": { "name": "read_file", "arguments": { "path": "config.yaml" } } },
                ] },
                { "role": "tool", "tool_name": "read_file", "content": GAVE },
            ],
            "tools": [{ "type": "function", "function": {
                "name": "read_file",
                "description": "Read a file.",
                "parameters": { "type": "object", "properties": { "path": { "type": "string" } }, "required": ["path"] },
            } }],
            "options": { "num_predict": 100, "temperature": 0.5 },
            "stream": stream,
        });
        assert_eq!(seen[1].json(), wanted);
        wanted["messages"].as_array_mut().unwrap().truncate(2);
        assert_eq!(seen[0].json(), wanted);
    }
}

/// What a request leaves open is not sent, but for what a format insists on.
#[test]
fn what_is_not_said_is_not_sent() {
    let bare = Request { tools: Vec::new(), max_tokens: None, temperature: None, ..request(user("hi")) };
    let said = json!([{ "role": "user", "content": "hi" }]);
    assert_eq!(Wire::Chat.body(&bare, false), json!({ "model": "m-1", "messages": said, "stream": false }));
    assert_eq!(Wire::Ollama.body(&bare, false), json!({ "model": "m-1", "messages": said, "stream": false }));
    let said = json!([{ "role": "user", "content": [{ "type": "text", "text": "hi" }] }]);
    let wanted = json!({ "model": "m-1", "max_tokens": 4096, "messages": said, "stream": false });
    assert_eq!(Wire::Messages.body(&bare, false), wanted);
}

/// What other formats take and this one refuses: a first word of the model, empty text, results apart from each other,
/// ids of another service, arguments that are no object.
#[test]
fn messages_are_put_into_the_order_that_anthropic_wants() {
    let gave = |id: &str, content: &str| Message::Tool {
        call_id: id.to_owned(),
        name: "read_file".to_owned(),
        content: content.to_owned(),
    };
    let asked = request(vec![
        Message::System("One.".to_owned()),
        Message::Assistant {
            text: "Both.".to_owned(),
            calls: vec![
                call("a.1", "read_file", "{\"x\":1}"),
                call("b", "read_file", "{\"x"),
                call("c", "read_file", " "),
            ],
        },
        gave("a.1", "1"),
        gave("b", ""),
        gave("c", "3"),
        Message::User("and?".to_owned()),
        Message::User(" ".to_owned()),
        Message::System("Two.".to_owned()),
        Message::Assistant { text: "\n".to_owned(), calls: vec![] },
        Message::User("so".to_owned()),
    ]);
    let body = Wire::Messages.body(&asked, true);
    assert_eq!(body["system"], "One.\n\nTwo.");
    assert_eq!(
        body["messages"],
        json!([
            { "role": "user", "content": [{ "type": "text", "text": "(What was said before is left out.)" }] },
            { "role": "assistant", "content": [
                { "type": "text", "text": "Both." },
                { "type": "tool_use", "id": "a_1", "name": "read_file", "input": { "x": 1 } },
                { "type": "tool_use", "id": "b", "name": "read_file", "input": { "unreadable_arguments": "{\"x" } },
                { "type": "tool_use", "id": "c", "name": "read_file", "input": {} },
            ] },
            { "role": "user", "content": [
                { "type": "tool_result", "tool_use_id": "a_1", "content": "1" },
                { "type": "tool_result", "tool_use_id": "b", "content": "" },
                { "type": "tool_result", "tool_use_id": "c", "content": "3" },
                { "type": "text", "text": "and?" },
                { "type": "text", "text": "so" },
            ] },
        ])
    );
}

/// A service that answers in one piece although it was asked to stream.
#[tokio::test]
async fn an_answer_in_one_piece_is_taken_where_a_stream_was_asked_for() {
    for kind in [Kind::OpenAi, Kind::Anthropic, Kind::Ollama] {
        let server = Server::new(move |_, _| {
            vec![head("200 OK", kind_of(kind, false), ""), Step::Send(answers(kind, false)[1].clone().into_bytes())]
        })
        .await;
        let (reply, told) = ask(&*structured(kind, &server.url()), &request(user("hi"))).await;
        assert_eq!((reply.unwrap().text.as_str(), told.as_str()), (SAID, SAID), "{kind:?}");
    }
}

/// Text is passed on while the reply is streamed.
#[tokio::test]
async fn text_is_told_as_it_comes() {
    let server = Server::new(|_, _| {
        let mut steps = events("data: {\"choices\":[{\"delta\":{\"content\":\"first\"}}]}\n\n");
        steps.push(Step::Hang);
        steps
    })
    .await;
    let provider = structured(Kind::OpenAi, &server.url());
    let asked = request(user("hi"));
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let mut heard = move |delta: Delta<'_>| {
        if let Delta::Text(text) = delta {
            tell.send(text.to_owned()).unwrap();
        }
    };
    let mut reply = provider.complete(&asked, &mut heard);
    tokio::select! {
        text = told.recv() => assert_eq!(text.as_deref(), Some("first")),
        ended = &mut reply => panic!("{ended:?}"),
    }
}
