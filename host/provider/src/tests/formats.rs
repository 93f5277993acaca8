//! Each wire format without a wire: what streams mean, however they are cut.

use proptest::prelude::*;
use serde_json::Value as Json;

use super::*;
use crate::wire::{Wire, Wrong};

/// What a stream comes to, and the text that was reported.
fn read_by(wire: Wire, stream: &[u8], size: usize) -> (Result<Reply, Wrong>, String) {
    let mut told = String::new();
    let pieces = stream.chunks(size.max(1));
    let reply = wire.read(&request(user("hi")), true, pieces, &mut |delta| {
        if let Delta::Text(text) = delta {
            told.push_str(text);
        }
    });
    (reply, told)
}

fn read(wire: Wire, stream: &str) -> Result<Reply, Wrong> {
    let (reply, told) = read_by(wire, stream.as_bytes(), usize::MAX);
    if let Ok(reply) = &reply {
        assert_eq!(reply.text, told);
    }
    reply
}

fn whole(wire: Wire, body: &Json) -> Result<Reply, Wrong> {
    wire.read(&request(user("hi")), false, [body.to_string().as_bytes()], &mut |_| {})
}

/// Events of these data.
fn events(data: &[Json]) -> String {
    data.iter().map(|data| format!("data: {data}\n\n")).collect()
}

fn chat(delta: Json) -> Json {
    json!({ "id": "c-1", "model": "m-1", "choices": [{ "index": 0, "delta": delta, "finish_reason": null }] })
}

fn chat_end(reason: &str) -> Json {
    json!({ "choices": [{ "index": 0, "delta": {}, "finish_reason": reason }] })
}

fn piece(index: Option<u64>, id: Option<&str>, name: Option<&str>, arguments: &str) -> Json {
    chat(json!({ "tool_calls": [{ "index": index, "id": id, "function": { "name": name, "arguments": arguments } }] }))
}

/// Calls of a stream of chat completions as `id name arguments`.
fn chat_calls(data: &[Json]) -> Vec<String> {
    let stream = events(data) + &events(&[chat_end("tool_calls")]);
    let calls = read(Wire::Chat, &stream).unwrap().calls;
    calls.into_iter().map(|call| format!("{} {} {}", call.id, call.name, call.arguments)).collect()
}

fn cut(why: &str) -> Result<Reply, Wrong> {
    Err(Wrong::Cut(why.to_owned()))
}

fn malformed(why: &str) -> Result<Reply, Wrong> {
    Err(Wrong::Malformed(why.to_owned()))
}

fn refused(status: u16, message: &str) -> Result<Reply, Wrong> {
    Err(Wrong::Refused { status, message: message.to_owned() })
}

/// Odd but legal: comments, CR LF, empty deltas, interleaved calls, usage before the end and no data after it.
const CHAT: &str = concat!(
    ": good morning\r\n\r\n",
    "data: {\"id\":\"c-1\",\"model\":\"m-1\",\"choices\":[],\"prompt_filter_results\":[]}\r\n\r\n",
    "data: {\"id\":\"c-1\",\"model\":\"m-1\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\r\n\r\n",
    "data:{\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Ich prüfe \"},\"finish_reason\":\"\"}]}\n\n",
    "event: message\ndata: {\"choices\":[{\"index\":0,\n",
    "data: \"delta\":{\"content\":\"es.\"}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":1,\"id\":\"b\",\"type\":\"function\",\"function\":{\"name\":\"two\",\"arguments\":\"\"}}]}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":0,\"id\":\"a\",\"function\":{\"name\":\"one\",\"arguments\":\"{\\\"p\\\":\"}}]}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"tool_calls\":[{\"index\":1,\"function\":{\"arguments\":\"{\\\"é\\\":1}\"}},{\"index\":0,\"function\":{\"arguments\":\"2}\"}}]}}]}\n\n",
    "data: {\"choices\":[{\"index\":1,\"delta\":{\"content\":\"another choice\"}}]}\n\n",
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":7}}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"tool_calls\"}],\"usage\":null}\n\n",
    "data: [DONE]\n\n",
    "data: not read any more\n\n",
);

const MESSAGES: &str = concat!(
    "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"c-1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"m-1\",\"content\":[],\"stop_reason\":null,\"usage\":{\"input_tokens\":5,\"cache_creation_input_tokens\":4,\"cache_read_input_tokens\":2,\"output_tokens\":1}}}\n\n",
    "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"thinking\",\"thinking\":\"\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"thinking_delta\",\"thinking\":\"hm\"}}\n\n",
    "event: ping\ndata: {\"type\":\"ping\"}\n\n",
    "event: content_block_start\r\ndata: {\"type\":\"content_block_start\",\"index\":1,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\r\n\r\n",
    "data: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"text_delta\",\"text\":\"Ich prüfe \"}}\n\n",
    "data: {\"type\":\"content_block_delta\",\"index\":1,\"delta\":{\"type\":\"text_delta\",\"text\":\"es.\"}}\n\n",
    "data: {\"type\":\"content_block_stop\",\"index\":1}\n\n",
    "data: {\"type\":\"content_block_start\",\"index\":2,\"content_block\":{\"type\":\"tool_use\",\"id\":\"a\",\"name\":\"one\",\"input\":{}}}\n\n",
    "data: {\"type\":\"content_block_delta\",\"index\":2,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"\"}}\n\n",
    "data: {\"type\":\"content_block_delta\",\"index\":2,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"{\\\"p\\\":\"}}\n\n",
    "data: {\"type\":\"content_block_delta\",\"index\":2,\"delta\":{\"type\":\"input_json_delta\",\"partial_json\":\"2}\"}}\n\n",
    "data: {\"type\":\"content_block_stop\",\"index\":2}\n\n",
    "data: {\"type\":\"content_block_start\",\"index\":3,\"content_block\":{\"type\":\"tool_use\",\"id\":\"b\",\"name\":\"two\",\"input\":{\"é\":1}}}\n\n",
    "data: {\"type\":\"content_block_stop\",\"index\":3}\n\n",
    "data: {\"type\":\"something_new\",\"index\":\"x\"}\n\n",
    "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"tool_use\",\"stop_sequence\":null},\"usage\":{\"output_tokens\":7}}\n\n",
    "data: {\"type\":\"message_stop\"}\n\n",
);

const OLLAMA: &str = concat!(
    "{\"model\":\"m-1\",\"created_at\":\"x\",\"message\":{\"role\":\"assistant\",\"content\":\"\",\"thinking\":\"hm\"},\"done\":false}\n",
    "{\"model\":\"m-1\",\"message\":{\"role\":\"assistant\",\"content\":\"Ich prüfe \"},\"done\":false}\r\n",
    "\n",
    "{\"model\":\"m-1\",\"message\":{\"role\":\"assistant\",\"content\":\"es.\",\"tool_calls\":[{\"id\":\"a\",\"function\":{\"index\":0,\"name\":\"one\",\"arguments\":{\"p\":2}}}]},\"done\":false}\n",
    "{\"model\":\"m-1\",\"message\":{\"role\":\"assistant\",\"content\":\"\",\"tool_calls\":[{\"id\":\"b\",\"function\":{\"index\":0,\"name\":\"two\",\"arguments\":{\"é\":1}}}]},\"done\":false}\n",
    "{\"model\":\"m-1\",\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"done\":true,\"done_reason\":\"stop\",\"prompt_eval_count\":11,\"eval_count\":7}",
);

const STREAMS: [(Wire, &str); 3] = [(Wire::Chat, CHAT), (Wire::Messages, MESSAGES), (Wire::Ollama, OLLAMA)];

fn expected(wire: Wire) -> Reply {
    Reply {
        id: if wire == Wire::Ollama { String::new() } else { "c-1".to_owned() },
        model: "m-1".to_owned(),
        text: "Ich prüfe es.".to_owned(),
        calls: vec![call("a", "one", "{\"p\":2}"), call("b", "two", "{\"é\":1}")],
        usage: used(11, 7),
        finish: Finish::ToolCalls,
    }
}

#[test]
fn a_stream_is_the_same_reply_however_it_is_cut() {
    for (wire, stream) in STREAMS {
        for size in 1..=stream.len() {
            let (reply, told) = read_by(wire, stream.as_bytes(), size);
            assert_eq!(reply, Ok(expected(wire)), "{wire:?} by {size}");
            assert_eq!(told, "Ich prüfe es.");
        }
    }
}

/// What comes after the reason to end is not needed; without the reason there is no reply.
#[test]
fn a_stream_that_ends_early_is_no_reply() {
    for (wire, stream) in STREAMS {
        let reason = stream.rfind("tool_calls\"}").or(stream.rfind("message_delta")).or(stream.rfind("\"done\":true"));
        for end in 0..stream.len() {
            let (reply, _) = read_by(wire, &stream.as_bytes()[..end], usize::MAX);
            match reply {
                Err(Wrong::Cut(_)) => {}
                Ok(reply) => {
                    assert!(Some(end) > reason, "{wire:?} at {end}");
                    assert_eq!(reply.calls, expected(wire).calls);
                }
                other => panic!("{wire:?} at {end}: {other:?}"),
            }
        }
    }
}

#[test]
fn pieces_of_calls_are_joined_by_their_index() {
    let interleaved = [
        piece(Some(0), Some("a"), Some("one"), "{\"x\""),
        piece(Some(1), Some("b"), Some("two"), "{"),
        piece(Some(0), None, None, ":1}"),
        piece(Some(1), Some(""), Some(""), "}"),
    ];
    assert_eq!(chat_calls(&interleaved), ["a one {\"x\":1}", "b two {}"]);
}

/// Ollama's calls are whole: two that come in pieces of their own, with the same position and identifier, are two.
#[test]
fn calls_of_one_position_in_pieces_of_their_own_are_apart() {
    let called = |x: u32| {
        let function = json!({ "name": "one", "index": 0, "arguments": { "x": x } });
        json!({ "message": { "role": "assistant", "content": "", "tool_calls": [{ "id": "call_0", "function": function }] } })
    };
    let end = json!({ "done": true, "done_reason": "stop", "message": { "role": "assistant", "content": "" } });
    let stream: String = [called(1), called(2), end].iter().map(|line| format!("{line}\n")).collect();
    let calls = read(Wire::Ollama, &stream).unwrap().calls;
    let arguments: Vec<&str> = calls.iter().map(|call| call.arguments.as_str()).collect();
    assert_eq!(arguments, ["{\"x\":1}", "{\"x\":2}"]);
    assert_ne!(calls[0].id, calls[1].id);
}

#[test]
fn services_that_take_the_format_lightly_are_understood() {
    // Each piece says all again.
    let again = [piece(Some(0), Some("a"), Some("one"), "{"), piece(Some(0), Some("a"), Some("one"), "}")];
    assert_eq!(chat_calls(&again), ["a one {}"]);
    // Another id in each piece.
    let other = [piece(Some(0), Some("a"), Some("one"), "{"), piece(Some(0), Some("q"), None, "}")];
    assert_eq!(chat_calls(&other), ["a one {}"]);
    // Whole calls, all of index 0.
    let zero = [piece(Some(0), Some("a"), Some("one"), "{}"), piece(Some(0), Some("b"), Some("one"), "{}")];
    assert_eq!(chat_calls(&zero), ["a one {}", "b one {}"]);
    // No index.
    let none = [
        piece(None, Some("a"), Some("one"), "{"),
        piece(None, None, None, "}"),
        piece(None, Some("b"), Some("two"), ""),
    ];
    assert_eq!(chat_calls(&none), ["a one {}", "b two {}"]);
    // Neither index nor id.
    let bare = [piece(None, None, Some("one"), "{\"a\":1}"), piece(None, None, Some("two"), "{\"b\":2}")];
    let calls = chat_calls(&bare);
    assert!(
        calls[0].ends_with(" one {\"a\":1}") && calls[1].ends_with(" two {\"b\":2}") && calls.len() == 2,
        "{calls:?}"
    );
    // Arguments that are an object, null, or nothing.
    let object = [
        chat(
            json!({ "tool_calls": [{ "index": 0, "id": "a", "function": { "name": "one", "arguments": { "x": 1 } } }] }),
        ),
        chat(json!({ "tool_calls": [{ "index": 1, "id": "b", "function": { "name": "two", "arguments": null } }] })),
        chat(
            json!({ "tool_calls": [{ "index": 2, "id": "c", "function": { "name": "three", "arguments": " " } }, {}] }),
        ),
    ];
    assert_eq!(chat_calls(&object), ["a one {\"x\":1}", "b two {}", "c three {}"]);
}

/// A block that has its input already, and pieces of it all the same: the pieces count.
#[test]
fn pieces_count_more_than_what_a_block_began_with() {
    let block = json!({ "type": "tool_use", "id": "a", "name": "one", "input": { "x": 1 } });
    let start = json!({ "type": "content_block_start", "index": 0, "content_block": block });
    let more = json!({ "type": "content_block_delta", "index": 0, "delta": { "type": "input_json_delta", "partial_json": "{}" } });
    let stop = json!({ "type": "content_block_stop", "index": 0 });
    let end = json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" } });
    let calls = |data: &[Json]| read(Wire::Messages, &events(data)).unwrap().calls;
    assert_eq!(calls(&[start.clone(), more, stop.clone(), end.clone()]), [call("a", "one", "{}")]);
    assert_eq!(calls(&[start, stop, end]), [call("a", "one", "{\"x\":1}")]);
}

#[test]
fn ids_are_the_hosts_where_a_service_gives_none_or_one_that_is_taken() {
    let earlier = Message::Assistant { text: String::new(), calls: vec![call("call_0", "one", "{}")] };
    let line = |id: Json| {
        let calls = [json!({ "id": id, "function": { "name": "one", "arguments": {} } })];
        json!({ "message": { "content": "", "tool_calls": [calls[0], calls[0]] }, "done": true }).to_string()
    };
    for id in [Json::Null, json!(""), json!("call_0"), json!("new")] {
        let body = line(id.clone());
        let asked = request(vec![earlier.clone()]);
        let reply = Wire::Ollama.read(&asked, true, [body.as_bytes()], &mut |_| {}).unwrap();
        let [one, two] = reply.calls.as_slice() else { panic!("{reply:?}") };
        assert_ne!(one.id, two.id);
        assert_eq!(one.id == "new", id == json!("new"), "{one:?}");
        for call in [one, two] {
            assert!(call.id != "call_0" && call.id.len() <= 21 && !call.id.is_empty(), "{call:?}");
        }
    }
}

#[test]
fn every_reason_to_end_is_passed_on() {
    let chat =
        |reason: &str| read(Wire::Chat, &events(&[chat(json!({ "content": "x" })), chat_end(reason)])).unwrap().finish;
    for (word, finish) in [
        ("stop", Finish::Stop),
        ("length", Finish::Length),
        ("content_filter", Finish::ContentFilter),
        ("new_one", Finish::Other("new_one".to_owned())),
    ] {
        assert_eq!(chat(word), finish);
    }
    let messages = |reason: &str| {
        let end = json!({ "type": "message_delta", "delta": { "stop_reason": reason } });
        read(Wire::Messages, &events(&[end])).unwrap().finish
    };
    for (word, finish) in [
        ("end_turn", Finish::Stop),
        ("stop_sequence", Finish::Stop),
        ("max_tokens", Finish::Length),
        ("refusal", Finish::ContentFilter),
        ("pause_turn", Finish::Other("pause_turn".to_owned())),
    ] {
        assert_eq!(messages(word), finish);
    }
    let ollama =
        |reason: Json| read(Wire::Ollama, &json!({ "done": true, "done_reason": reason }).to_string()).unwrap();
    assert_eq!(ollama(json!("length")).finish, Finish::Length);
    assert_eq!(ollama(json!("stop")).finish, Finish::Stop);
    assert_eq!(ollama(Json::Null).finish, Finish::Stop);
    assert_eq!(ollama(json!("load")).finish, Finish::Other("load".to_owned()));
}

#[test]
fn a_reply_that_stops_with_calls_waits_for_them_and_one_that_is_cut_stays_so() {
    let ends = |reason: &str| {
        let reply =
            read(Wire::Chat, &events(&[piece(Some(0), Some("a"), Some("one"), "{\"x"), chat_end(reason)])).unwrap();
        (reply.finish, reply.calls)
    };
    let half = vec![call("a", "one", "{\"x")];
    assert_eq!(ends("stop"), (Finish::ToolCalls, half.clone()));
    assert_eq!(ends("length"), (Finish::Length, half.clone()));
    assert_eq!(ends("content_filter"), (Finish::ContentFilter, half));
}

#[test]
fn calls_that_are_announced_and_not_there_are_a_reply_cut_short() {
    let none = cut("its finish reason is tool calls, but it has none");
    assert_eq!(read(Wire::Chat, &events(&[chat_end("tool_calls")])), none);
    let end = json!({ "type": "message_delta", "delta": { "stop_reason": "tool_use" } });
    assert_eq!(read(Wire::Messages, &events(&[end])), none);
}

#[test]
fn usage_may_come_with_choices_or_without_or_not_at_all() {
    let used_by = |data: &[Json]| read(Wire::Chat, &events(data)).unwrap().usage;
    let with = json!({ "choices": [{ "delta": {}, "finish_reason": "stop" }], "usage": { "prompt_tokens": 1, "completion_tokens": 2 } });
    let without = json!({ "choices": [], "usage": { "prompt_tokens": 3, "completion_tokens": 4 } });
    let bare = json!({ "usage": { "prompt_tokens": 5, "completion_tokens": null } });
    assert_eq!(used_by(std::slice::from_ref(&with)), used(1, 2));
    assert_eq!(used_by(&[with.clone(), without.clone()]), used(3, 4));
    assert_eq!(used_by(&[with, bare]), used(5, 0));
    assert_eq!(used_by(&[without, chat_end("stop")]), used(3, 4));
    assert_eq!(used_by(&[chat_end("stop")]), None);
}

#[test]
fn an_error_in_a_stream_is_one() {
    let chat = |error: Json| read(Wire::Chat, &events(&[chat(json!({ "content": "x" })), json!({ "error": error })]));
    assert_eq!(chat(json!({ "message": "slow down", "code": 429 })), refused(429, "slow down"));
    assert_eq!(chat(json!({ "message": "slow down", "type": "rate_limit_error" })), refused(429, "slow down"));
    assert_eq!(chat(json!({ "message": "oops", "type": "server_error", "code": null })), refused(500, "oops"));
    assert_eq!(chat(json!({ "message": "too long", "code": "context_length_exceeded" })), refused(400, "too long"));
    assert_eq!(chat(json!("oops")), cut("the service says: oops"));
    assert_eq!(chat(json!({ "odd": 1 })), cut("the service says: {\"odd\":1}"));
    let messages = |kind: &str| {
        read(Wire::Messages, &events(&[json!({ "type": "error", "error": { "type": kind, "message": "m" } })]))
    };
    assert_eq!(messages("overloaded_error"), refused(529, "m"));
    assert_eq!(messages("rate_limit_error"), refused(429, "m"));
    assert_eq!(messages("new_error"), cut("the service says: m"));
    assert_eq!(read(Wire::Ollama, "{\"error\":\"the runner died\"}\n"), cut("the service says: the runner died"));
}

#[test]
fn what_is_no_reply_says_so() {
    for wire in Wire::ALL {
        assert_eq!(read(wire, ""), cut("it ended without saying why"));
        assert_eq!(whole(wire, &json!([])).map_err(|wrong| matches!(wrong, Wrong::Malformed(_))), Err(true));
        assert_eq!(read(wire, "\n<html>\n"), malformed("it is a web page and not a reply: is `base_url` right?"));
        let stream = if wire == Wire::Ollama { "x\n" } else { "data: x\n\n" };
        let why = "it does not match the format: expected value at line 1 column 1";
        assert_eq!(read(wire, stream), malformed(why));
    }
    assert_eq!(whole(Wire::Chat, &json!({})), malformed("it has no `choices`"));
    assert_eq!(whole(Wire::Messages, &json!({})), malformed("it has no `content`"));
    assert_eq!(whole(Wire::Ollama, &json!({})), cut("it ended without saying why"));
    let nameless = events(&[piece(Some(0), Some("a"), None, "{}"), chat_end("tool_calls")]);
    assert_eq!(read(Wire::Chat, &nameless), malformed("a call does not say which tool it is for"));
    assert_eq!(read(Wire::Chat, &events(&[chat(json!({ "content": 1 }))])), malformed("`content` is not text"));
}

#[test]
fn text_that_is_not_utf_8_is_shown_as_such() {
    let stream =
        [&b"data: {\"choices\":[{\"delta\":{\"content\":\"a\xffb\"},\"finish_reason\":\"stop\"}]}\n\n"[..]].concat();
    assert_eq!(read_by(Wire::Chat, &stream, 1).0.unwrap().text, "a\u{fffd}b");
}

#[test]
fn a_reply_without_end_is_given_up() {
    let delta = events(&[chat(json!({ "content": "x".repeat(1 << 20) }))]);
    let pieces = std::iter::repeat_n(delta.as_bytes(), 20);
    let reply = Wire::Chat.read(&request(user("hi")), true, pieces, &mut |_| {});
    assert_eq!(reply, malformed("it holds more than 16777216 bytes"));

    let calls: Vec<Json> = (0..200).map(|n| piece(Some(n), Some(&n.to_string()), Some("one"), "")).collect();
    assert_eq!(read(Wire::Chat, &events(&calls)), malformed("it has more than 128 calls"));

    let empty = format!("data: {}\n\n", chat(json!({ "padding": "x".repeat(1 << 20) })));
    let pieces = std::iter::repeat_n(empty.as_bytes(), 130);
    let reply = Wire::Chat.read(&request(user("hi")), true, pieces, &mut |_| {});
    assert_eq!(reply, malformed("it is longer than 134217728 bytes"));

    let piece = vec![b' '; 1 << 20];
    let pieces = std::iter::repeat_n(piece.as_slice(), 17);
    let reply = Wire::Messages.read(&request(user("hi")), false, pieces, &mut |_| {});
    assert_eq!(reply, malformed("it is longer than 16777216 bytes"));
}

/// Not every service does as it is asked.
#[test]
fn a_stream_and_a_reply_in_one_piece_are_told_apart_by_themselves() {
    for (wire, stream) in STREAMS {
        let reply = wire.read(&request(user("hi")), false, stream.as_bytes().chunks(7), &mut |_| {});
        assert_eq!(reply, Ok(expected(wire)));
    }
    let body = json!({ "model": "m", "choices": [{ "message": { "content": "x" }, "finish_reason": "stop" }] });
    assert_eq!(read(Wire::Chat, &format!("\n {body:#}")).unwrap().text, "x");
    for size in 1..4 {
        let (reply, _) = read_by(Wire::Chat, b"\n\n{} x", size);
        assert_eq!(reply, malformed("it does not match the format: trailing characters at line 1 column 4"));
    }
    let body = json!({ "content": [{ "type": "text", "text": "x" }], "stop_reason": "end_turn" });
    assert_eq!(read(Wire::Messages, &body.to_string()).unwrap().text, "x");
    assert_eq!(read(Wire::Ollama, "{\"message\":{\"content\":\"x\"},\"done\":true}").unwrap().text, "x");
}

#[test]
fn a_reply_in_one_piece_is_the_same() {
    let chat = json!({
        "id": "c-1", "model": "m-1",
        "choices": [{ "index": 0, "finish_reason": "tool_calls", "message": {
            "role": "assistant", "content": [{ "type": "text", "text": "Ich prüfe " }, { "type": "text", "text": "es." }],
            "tool_calls": [
                { "id": "a", "type": "function", "function": { "name": "one", "arguments": "{\"p\":2}" } },
                { "id": "b", "type": "function", "function": { "name": "two", "arguments": { "é": 1 } } },
            ],
        } }],
        "usage": { "prompt_tokens": 11, "completion_tokens": 7 },
    });
    assert_eq!(whole(Wire::Chat, &chat), Ok(expected(Wire::Chat)));
    let messages = json!({
        "id": "c-1", "model": "m-1", "type": "message", "role": "assistant", "stop_reason": "tool_use",
        "content": [
            { "type": "text", "text": "Ich prüfe " }, { "type": "text", "text": "es." },
            { "type": "tool_use", "id": "a", "name": "one", "input": { "p": 2 } },
            { "type": "tool_use", "id": "b", "name": "two", "input": { "é": 1 } },
        ],
        "usage": { "input_tokens": 11, "output_tokens": 7 },
    });
    assert_eq!(whole(Wire::Messages, &messages), Ok(expected(Wire::Messages)));
    let ollama = json!({
        "model": "m-1", "done": true, "done_reason": "stop", "prompt_eval_count": 11, "eval_count": 7,
        "message": { "role": "assistant", "content": "Ich prüfe es.", "tool_calls": [
            { "id": "a", "function": { "name": "one", "arguments": { "p": 2 } } },
            { "id": "b", "function": { "name": "two", "arguments": { "é": 1 } } },
        ] },
    });
    assert_eq!(whole(Wire::Ollama, &ollama), Ok(expected(Wire::Ollama)));
}

proptest! {
    /// Calls come out as they went in, whatever order their pieces were sent in and however the bytes were cut.
    #[test]
    fn calls_survive_any_order_and_any_cut(
        order in proptest::collection::vec(0_u64..3, 1..40),
        size in 1_usize..200,
    ) {
        let mut wanted = vec![String::new(); 3];
        let mut data: Vec<Json> = (0..3_u64).map(|n| piece(Some(n), Some(&format!("id{n}")), Some("one"), "")).collect();
        for (at, index) in order.iter().enumerate() {
            let text = format!("{at}é,");
            wanted[usize::try_from(*index).unwrap()].push_str(&text);
            data.push(piece(Some(*index), None, None, &text));
        }
        data.push(chat_end("tool_calls"));
        let (reply, _) = read_by(Wire::Chat, events(&data).as_bytes(), size);
        let got: Vec<String> = reply.unwrap().calls.into_iter().map(|call| call.arguments).collect();
        let wanted: Vec<String> = wanted.into_iter().map(|text| if text.is_empty() { "{}".to_owned() } else { text }).collect();
        prop_assert_eq!(got, wanted);
    }

    /// Bytes of anyone: the same result however they are cut, and never a panic.
    #[test]
    fn any_bytes_are_a_reply_or_an_error(
        wire in proptest::sample::select(Wire::ALL.to_vec()),
        parts in proptest::collection::vec(prop_oneof![
            proptest::sample::select(CHAT.split_inclusive("\n\n").map(str::as_bytes).collect::<Vec<_>>()).prop_map(<[u8]>::to_vec),
            proptest::sample::select(MESSAGES.split_inclusive("\n\n").map(str::as_bytes).collect::<Vec<_>>()).prop_map(<[u8]>::to_vec),
            proptest::sample::select(OLLAMA.split_inclusive('\n').map(str::as_bytes).collect::<Vec<_>>()).prop_map(<[u8]>::to_vec),
            proptest::collection::vec(any::<u8>(), 0..6),
        ], 0..12),
        size in 1_usize..50,
    ) {
        let bytes = parts.concat();
        let (once, told) = read_by(wire, &bytes, usize::MAX);
        let (cut, told_cut) = read_by(wire, &bytes, size);
        prop_assert_eq!(told, told_cut);
        let known = |reply: Result<Reply, Wrong>| reply.map(|mut reply| {
            for call in &mut reply.calls {
                // The host's own are made by chance.
                if call.id.len() == 21 { call.id.clear() }
            }
            reply
        });
        prop_assert_eq!(known(once), known(cut));
    }
}
