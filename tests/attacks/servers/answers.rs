//! Lines that break the protocol: what answers nothing, answers something else, or never ends.

use serde_json::{Value as Json, json};

use super::{Ended, Evil, LEGACY, cases, echo, fails, fine, gives, held, ignored, peak, sum, works};
use crate::client::Client;
use crate::corpus::Coded;

pub(super) const CASES: &[Coded] = cases! {
    "201" "answers with a line of five megabytes": fails(Evil::new(), "call() { printf '{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":\"' \"$id\"; head -c 5000000 /dev/zero | tr '\\0' x; say '\"}'; }", 1, "it sent a line of more than 4194304 bytes"), large();
    "202" "answers with a line that never ends": memory("call() { tr '\\0' x </dev/zero; }", "it sent a line of more than 4194304 bytes"), large();
    "203" "sends an answer byte by byte, without end": fails(Evil::brief(), "call() { printf '{'; while :; do printf ' '; done; }", 4, "was ended"), fine();
    "204" "answers nothing, and lives on": fails(Evil::brief(), "call() { while :; do sleep 1; done; }", 4, "was ended"), fine();
    "205" "sends notifications without end": floods("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{}}"), gives(Evil::new(), "call() { for n in 1 2 3; do note notifications/message; done; put \"$id\" result; }", "hello");
    "206" "sends lines without end that are no messages": floods("listening on port 80"), gives(Evil::new(), "call() { say 'listening on port 80'; put \"$id\" result; }", "hello");
    "207" "asks for things without end": floods("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"roots/list\"}"), fine();
    "208" "says that its tools changed without end": floods("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/tools/list_changed\"}"), gives(Evil::new(), "call() { note notifications/tools/list_changed; put \"$id\" result; }", "hello");
    "209" "fills standard error": memory_of_errors(), gives(Evil::new(), "call() { echo oops >&2; put \"$id\" result; }", "hello");
    "210" "answers a request that nobody made": fails(Evil::new(), "call() { put 4000 result; }", 1, "it answered the request 4000, which does not wait for an answer"), fine();
    "211" "answers the next request before it is made": fails(Evil::new(), "call() { put $((id + 1)) result; }", 1, "which does not wait for an answer"), fine();
    "212" "answers a request that was answered": fails(Evil::new(), "call() { put 1 result; }", 1, "it answered the request 1, which does not wait for an answer"), fine();
    "213" "answers under a text, a fraction, zero, null, a list": others(&["\\\"$id\\\"", "$id.0", "0", "-1", "null", "[$id]", "18446744073709551616"]), fine();
    "214" "answers twice, once each way": twice(), fine();
    "215" "answers with a result and an error at once": fails(Evil::new(), "call() { say \"{\\\"jsonrpc\\\":\\\"2.0\\\",\\\"id\\\":$id,\\\"result\\\":{},\\\"error\\\":{\\\"code\\\":1,\\\"message\\\":\\\"x\\\"}}\"; }", 1, "with neither a result nor an error"), fine();
    "216" "answers with nothing in the answer": fails(Evil::new(), "call() { say \"{\\\"jsonrpc\\\":\\\"2.0\\\",\\\"id\\\":$id}\"; }", 1, "with neither a result nor an error"), fine();
    "217" "answers in a batch": fails(Evil::brief(), "call() { say \"[{\\\"jsonrpc\\\":\\\"2.0\\\",\\\"id\\\":$id,\\\"result\\\":{}}]\"; }", 4, "was ended"), fine();
    "218" "answers in another version of JSON-RPC": fails(Evil::brief(), "call() { say \"{\\\"jsonrpc\\\":\\\"1.0\\\",\\\"id\\\":$id,\\\"result\\\":{}}\"; }", 4, "was ended"), fine();
    "219" "answers in bytes that are no text": fails(Evil::brief(), "call() { printf '{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":\"\\377\"}\\n' \"$id\"; }", 4, "was ended"), fine();
    "220" "answers with 10,000 levels": fails(Evil::new(), "call() { printf '{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":' \"$id\"; head -c 10000 /dev/zero | tr '\\0' '['; head -c 10000 /dev/zero | tr '\\0' ']'; say '}'; }", 1, "nested more than 100 levels deep"), fine();
    "221" "answers with 200,001 values": fails(Evil::new(), "call() { printf '{\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":[0' \"$id\"; head -c 200000 /dev/zero | tr '\\0' ','; say '0]}'; }", 1, "it sent a line of more than 200000 values"), fine();
    "222" "answers with a list, a text, a number": kinds(&[json!([]), json!("text"), json!(7), Json::Null, json!(true)], "no object as the result of a call"), fine();
    "223" "answers with a kind of result that is not known": kinds(&[json!({"resultType": "task"}), json!({"resultType": 1}), json!({"resultType": "COMPLETE"})], "a result of a type that is not known"), typed();
    "224" "says by a text that nothing failed": kinds(&[json!({"isError": "false"}), json!({"isError": 0})], "an `isError` that is neither true nor false"), fine();
    "225" "answers with content that is no list": kinds(&[json!({"content": "text"}), json!({"content": {"0": {}}})], "a `content` that is no list"), fine();
    "226" "returns something else than it promised": promised(&json!({"n": "1"})), promised(&json!({"n": 1}));
    "227" "returns nothing where it promised something": promised(&Json::Null), promised(&json!({"n": 1}));
    "228" "answers with 50,000 pieces of content": pieces(50_000), pieces(3);
    "229" "has content of kinds that there are not": unknown_content(), fine();
    "230" "sends progress for requests that were never made": ignored(Evil::new(), "call() { say '{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":7,\"progress\":1}}'; put \"$id\" result; }"), fine();
    "231" "sends progress after its answer": ignored(Evil::new(), "call() { put \"$id\" result; say '{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":1,\"progress\":2}}'; }"), fine();
    "232" "asks for the model of its client": asks("sampling/createMessage", Evil::new()), fine();
    "233" "asks for folders": asks("roots/list", Evil::new()), fine();
    "234" "asks for what there is not": asks("tools/call", Evil::new()), fine();
    "235" "asks for the same in the older era": older_asks(), gives(Evil::new().does(LEGACY), LEGACY, "hello");
    "236" "asks under the identifier of the request that it answers": ignored(Evil::new(), "call() { say \"{\\\"jsonrpc\\\":\\\"2.0\\\",\\\"id\\\":$id,\\\"method\\\":\\\"roots/list\\\"}\"; read -r answer; put \"$id\" result; }"), fine();
    "237" "asks and never reads what is answered": fails(Evil::new(), "call() { n=0; while [ $n -lt 4000 ]; do n=$((n+1)); say \"{\\\"jsonrpc\\\":\\\"2.0\\\",\\\"id\\\":\\\"$(printf %0900d $n)\\\",\\\"method\\\":\\\"roots/list\\\"}\"; done; put \"$id\" result; }", 1, "it asks faster than it reads"), fine();
    "238" "ends in the middle of an answer": fails(Evil::new(), "call() { printf '{\"jsonrpc\":\"2.0\",\"id\":%s,\"resu' \"$id\"; exit 0; }", 1, "it ended"), fine();
    "239" "ends when it is called, each time": ends_always(), fine();
    "240" "closes its output and lives on": fails(Evil::new(), "call() { exec 1>&-; while :; do sleep 1; done; }", 1, "it ended"), fine();
    "241" "never reads an argument of two megabytes": unread(), large();
    "242" "answers a call that was canceled when the next one waits": late(), fine();
    "243" "takes other names for the keys of an answer": fails(Evil::brief(), "call() { say \"{\\\"JSONRPC\\\":\\\"2.0\\\",\\\"ID\\\":$id,\\\"Result\\\":{}}\"; }", 4, "was ended"), fine();
    "244" "names the keys of an answer twice": doubled(), fine();
};

/// A result of two megabytes is one, and is cut for models only.
fn large() -> Ended {
    let evil = Evil::new().locked();
    let text = "x".repeat(2 << 20);
    evil.set("result", &json!({"content": [{"type": "text", "text": text}]}));
    let ran = evil.0.run(&["call", "s_echo", "text=x", "--json"]);
    works(ran.code == 0 && ran.out.contains(&text), (ran.code, ran.out.len(), ran.err))
}

/// The host of a server that does this keeps its memory.
fn memory(script: &str, why: &str) -> Ended {
    let evil = Evil::new().locked();
    let mut client = Client::start(&evil.0, &[]);
    let before = (client.text("s_echo", json!({"text": "x"})), peak(&client));
    let evil = evil.does(script);
    drop(client);
    let mut client = Client::start(&evil.0, &[]);
    let (text, is_error) = client.text("s_echo", json!({"text": "x"}));
    let grown = peak(&client).saturating_sub(before.1);
    held(is_error && text.contains(why) && grown < 64 << 10, (text, grown))
}

fn memory_of_errors() -> Ended {
    let evil = Evil::new().locked().does("call() { head -c 50000000 /dev/zero | tr '\\0' x >&2; put \"$id\" result; }");
    let mut client = Client::start(&evil.0, &[]);
    let said = client.text("s_echo", json!({"text": "x"}));
    let most = peak(&client);
    held(said == ("hello".to_owned(), false) && most < 256 << 10, (said, most))
}

/// It is ended at a flood, or where the machine is too slow for one, at its deadline.
fn floods(line: &str) -> Ended {
    let evil = Evil::with(", limits: { timeout_ms: 20000 }", "").locked();
    let evil = evil.does(&format!("call() {{ yes '{line}'; }}"));
    let ran = evil.call();
    let ended = ["messages in a second that answer nothing", "it asks faster than it reads", "was ended"];
    let is_ended = ended.iter().any(|why| ran.err.contains(why));
    held(matches!(ran.code, 1 | 4) && is_ended && ran.out.is_empty(), ran)
}

fn others(ids: &[&str]) -> Ended {
    ids.iter().try_fold(String::new(), |_, id| {
        let script =
            format!("call() {{ say \"{{\\\"jsonrpc\\\":\\\"2.0\\\",\\\"id\\\":{id},\\\"result\\\":{{}}}}\"; }}");
        fails(Evil::new(), &script, 1, "which was not made")
    })
}

/// The first answer counts, and the server that gave a second one is ended before it answers anything else.
fn twice() -> Ended {
    let evil = Evil::new().locked();
    evil.set("other", &json!({"content": [{"type": "text", "text": "other"}]}));
    let evil = evil.does("call() { put \"$id\" result; put \"$id\" other; }");
    let mut client = Client::start(&evil.0, &[]);
    let said: Vec<(String, bool)> = (0..3).map(|_| client.text("s_echo", json!({"text": "x"}))).collect();
    let is_fine = |(text, is_error): &(String, bool)| text == "hello" || *is_error && text.contains("does not wait");
    held(said.iter().all(is_fine) && said[0].0 == "hello", said)
}

fn kinds(results: &[Json], why: &str) -> Ended {
    results.iter().try_fold(String::new(), |_, result| {
        let evil = Evil::new();
        let evil = evil.locked();
        evil.set("result", result);
        let ran = evil.call();
        held(ran.code == 1 && ran.out.is_empty() && ran.err.contains(why), ran)
    })
}

fn typed() -> Ended {
    let evil = Evil::new().locked();
    evil.set("result", &json!({"resultType": "complete", "content": [{"type": "text", "text": "hello"}]}));
    let ran = evil.call();
    works(ran.code == 0 && ran.out == "hello\n", ran)
}

fn promised(structured: &Json) -> Ended {
    let mut tool = sum();
    tool.as_object_mut().unwrap().remove("annotations");
    let evil = Evil::new().lists(&[echo(), tool]).locked();
    let mut result = json!({"content": [{"type": "text", "text": "1"}]});
    if !structured.is_null() {
        result["structuredContent"] = structured.clone();
    }
    evil.set("result", &result);
    let ran = evil.call_of("s_sum", &json!({}));
    match structured["n"].is_u64() {
        true => works(ran.code == 0, ran),
        false => held(ran.code != 0 && ran.out.is_empty(), ran),
    }
}

fn pieces(count: usize) -> Ended {
    let evil = Evil::new().locked();
    evil.set("result", &json!({"content": vec![json!({"type": "text", "text": "a"}); count]}));
    let ran = evil.call();
    match count {
        3 => works(ran.code == 0, ran),
        _ => held(ran.code == 1 && ran.err.len() < 10_000 && ran.out.is_empty(), (ran.code, ran.err)),
    }
}

fn unknown_content() -> Ended {
    let evil = Evil::new().locked();
    let blocks = [json!({"type": "video", "data": "x"}), json!({"type": 7}), json!("text"), json!(null), json!([])];
    evil.set("result", &json!({"content": blocks}));
    let ran = evil.0.run(&["call", "s_echo", "text=x", "--json"]);
    let shown = ran.out.matches("which is not known").count();
    held(ran.code == 0 && shown >= 5 && !ran.out.contains("\"data\""), ran)
}

/// What it asks for is not offered, and its answer is taken all the same.
fn asks(method: &str, evil: Evil) -> Ended {
    let before = if evil.0.path("docs/evil").exists() { LEGACY } else { "" };
    let script = format!(
        "{before}call() {{ say '{{\"jsonrpc\":\"2.0\",\"id\":\"a\",\"method\":\"{method}\",\"params\":{{}}}}'; read -r answer; text \"$id\" \"$(printf %s \"$answer\" | plain)\"; }}\n"
    );
    let ran = evil.locked().does(&script).call();
    let is_refused = ran.code == 0 && ran.out.contains(" id : a ") && ran.out.contains(" code :-32601,");
    held(is_refused, ran)
}

fn older_asks() -> Ended {
    ["sampling/createMessage", "roots/list", "ping/pong"]
        .into_iter()
        .try_fold(String::new(), |_, method| asks(method, Evil::new().does(LEGACY)))
}

/// It is started again, and not for ever.
fn ends_always() -> Ended {
    let evil = Evil::new().locked().does("call() { exit 3; }");
    let mut client = Client::start(&evil.0, &[]);
    let said: Vec<(String, bool)> = (0..6).map(|_| client.text("s_echo", json!({"text": "x"}))).collect();
    let last = &said[5].0;
    held(said.iter().all(|(_, is_error)| *is_error) && last.contains("is not started again in this run"), said)
}

fn unread() -> Ended {
    let evil = Evil::brief().locked();
    // It reads the beginning of the request, and no more.
    let evil = evil.does("list() { put \"$id\" list; while :; do sleep 1; done; }");
    evil.0.write("argument", &json!({"text": "x".repeat(2 << 20)}).to_string());
    let ran = evil.0.shell("\"$HARNESS\" call s_echo --args \"$(cat argument | head -c 100000 | sed 's/$/\"}/')\"");
    held(ran.code == 4 && ran.out.is_empty() && ran.err.contains("was ended"), ran)
}

/// The process whose call was given up is not the one that answers the next.
fn late() -> Ended {
    let evil = Evil::brief().locked();
    let evil = evil.does(
        "call() { case $line in *first*) : >\"$TMPDIR/it\"; old=$id ;; *) if [ \"$old\" ]; then text \"$old\" late; fi; put \"$id\" result ;; esac; }",
    );
    let mut client = Client::start(&evil.0, &[]);
    let first = client.text("s_echo", json!({"text": "first"}));
    let second = client.text("s_echo", json!({"text": "second"}));
    held(first.1 && second == ("hello".to_owned(), false), (first, second))
}

/// Of two values of one key, one is taken: what is checked is what is used.
fn doubled() -> Ended {
    let script = "call() { say \"{\\\"jsonrpc\\\":\\\"2.0\\\",\\\"id\\\":4000,\\\"id\\\":$id,\\\"result\\\":{\\\"isError\\\":true},\\\"result\\\":{\\\"content\\\":[{\\\"type\\\":\\\"text\\\",\\\"text\\\":\\\"hello\\\"}]}}\"; }";
    let ran = Evil::new().locked().does(script).call();
    held(ran.code == 0 && ran.out == "hello\n", ran)
}
