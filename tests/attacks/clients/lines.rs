//! Messages over standard input: their identifiers, their form, and how many there are.

use std::fs;

use serde_json::{Value as Json, json};

use super::{
    Ended, META, all_refused, answer, answered, cases, codes, completed, echo, held, message, project, refused, say,
    until_answered, works,
};
use crate::client::{Client, audited};
use crate::corpus::Coded;
use crate::project::Project;

pub(super) const CASES: &[Coded] = cases! {
    "001" "uses the identifier of a request that is being answered": taken("1"), taken("2");
    "002" "has `null` for an identifier, so that a call has no answer": refused(echo("null").as_bytes(), Some(-32600)), answered(&echo("0"));
    "003" "has a fraction for an identifier": refused(echo("1.5").as_bytes(), Some(-32600)), answered(&echo("1"));
    "004" "has a number beyond all numbers for an identifier": refused(echo("1e999").as_bytes(), Some(-32600)), answered(&echo("9007199254740993"));
    "005" "has a number of 100 digits for an identifier": refused(echo(&"9".repeat(100)).as_bytes(), Some(-32600)), answered(&echo("-1"));
    "006" "has an object, a list or a truth value for an identifier": all_refused(&["{}", "[1]", "true"].map(echo), Some(-32600)), answered(&echo("\"{}\""));
    "007" "gives a request two identifiers, to be answered as another": refused(echo("1,\"id\":2").as_bytes(), Some(-32600)), answered(&echo("2"));
    "008" "gives a message two methods, of which one is harmless": refused(echo("1").replace("\"params\"", "\"method\":\"ping\",\"params\"").as_bytes(), Some(-32600)), answered(&echo("1"));
    "009" "names two tools in one call, of which one is hidden": twice("\"name\":\"echo\",\"name\":\"hidden\",", false), twice("\"name\":\"echo\",", true);
    "010" "nests arguments 100,000 deep": refused(&deep(100_000), Some(-32700)), answered(&String::from_utf8(deep(50)).unwrap());
    "011" "sends a line that is longer than a message may be": refused(&long(4 << 20), Some(-32600)), answered(&String::from_utf8(long(1 << 20)).unwrap());
    "012" "sends a line of 200 MB that does not end, to fill the host's memory": endless(), answered(&echo("1"));
    "013" "sends bytes that are no text": refused(&echo("1").replace(":\"a\"", ":\"\u{1}\"").into_bytes().iter().map(|byte| if *byte == 1 { 0xff } else { *byte }).collect::<Vec<u8>>(), Some(-32700)), answered(&echo("1").replace(":\"a\"", ":\"ü\""));
    "014" "begins a message with a byte order mark": refused(&[b"\xef\xbb\xbf", echo("1").as_bytes()].concat(), Some(-32700)), answered(&format!("  {}", echo("1")));
    "015" "puts a zero byte between messages": refused(&[b"\0", echo("1").as_bytes()].concat(), Some(-32700)), answered(&echo("1"));
    "016" "sends a batch, of which each part would be a call": refused(format!("[{},{}]", echo("1"), echo("2")).as_bytes(), Some(-32600)), answered(&echo("1"));
    "017" "puts two messages into one line": refused(format!("{}{}", echo("1"), echo("2")).as_bytes(), Some(-32700)), answered(&echo("1"));
    "018" "hides a message behind a carriage return": refused(format!("{{}}\r{}", echo("1")).as_bytes(), Some(-32700)), answered(&format!("{}\r", echo("1")));
    "019" "asks for methods that there are not": all_refused(&["tools/delete", "TOOLS/CALL", "tools/call ", "", "$/x", "rpc.discover"].map(|method| message("1", method, "")), Some(-32601)), answered(&message("1", "tools/list", ""));
    "020" "asks for methods of older revisions in the newest": all_refused(&["ping", "logging/setLevel", "resources/subscribe", "initialize"].map(|method| message("1", method, "\"uri\":\"file:///docs/guide.md\",\"level\":\"debug\",")), Some(-32601)), answered(&message("1", "server/discover", ""));
    "021" "answers requests that the server never made": refused(br#"{"jsonrpc":"2.0","id":0,"result":{"action":"accept","content":{"confirm":true}}}"#, None), answered(&echo("0"));
    "022" "cancels a call twice, one that was never made, and nothing": canceled(), answered(&echo("1"));
    "023" "cancels 20,000 calls that were never made, to be remembered": flood_of_cancels(), answered(&echo("1"));
    "024" "has more calls run than the server answers at one time": crowd(65, true), crowd(64, false);
    "025" "listens more often than it may, to take the places of calls": listens(17, true), listens(16, false);
    "026" "subscribes to more resources than it may, and to what it may not read": subscribes(true), subscribes(false);
    "027" "has a list, an object, a fraction or a truth value for a progress token, to be sent it": tokens(&["[1]", "{\"a\":1}", "1.5", "true", "null", "1e999"], false), tokens(&["7", "\"a\"", "-1"], true);
    "028" "names a version that is nearly one that is served": all_refused(&["2026-07-28\\u0000", " 2026-07-28", "2026-7-28", "2026-07-29"].map(|version| echo("1").replace("2026-07-28", version)), Some(-32022)), answered(&echo("1"));
    "029" "leaves its capabilities out, or gives something else for them": all_refused(&["null", "[]", "7", "\"all\""].map(|other| echo("1").replace("clientCapabilities\":{}", &format!("clientCapabilities\":{other}"))), Some(-32602)), answered(&echo("1"));
    "030" "has no metadata, or other things for it": all_refused(&["null", "[]", "7"].map(|other| echo("1").replace(META, &format!("\"_meta\":{other}"))), Some(-32600)), answered(&echo("1"));
    "031" "sends metadata of 3 MB with each of many requests, to be kept": metadata(), answered(&echo("1"));
    "032" "gives a call a list, a text or a number for arguments": all_refused(&["[]", "\"text\"", "7"].map(|other| echo("1").replace("{\"text\":\"a\"}", other)), Some(-32602)), answered(&echo("1"));
    "033" "goes away in the middle of a message that would be a call": gone(), answered(&echo("1"));
};

/// A second call while one waits.
fn taken(id: &str) -> Ended {
    let project = project();
    let mut client = Client::start(&project, &[]);
    client.line(&message("1", "tools/call", "\"name\":\"wait\","));
    while !project.path("begun").exists() {
        std::thread::yield_now();
    }
    let second = answer(&mut client, &echo(id));
    match id {
        "1" => held(second["error"]["code"] == -32600 && completed(&project) == 0, second),
        _ => works(second["result"]["isError"] == false, second),
    }
}

/// A call that names two tools. What is called is what the policy has decided on.
fn twice(names: &str, is_control: bool) -> Ended {
    let project = project();
    let call = message("1", "tools/call", &format!("{names}\"arguments\":{{\"text\":\"a\"}},"));
    let said = answer(&mut Client::start(&project, &[]), &call);
    let is_refused = said["error"]["code"] == -32602 && completed(&project) == 0;
    if is_control { works(said["result"]["isError"] == false, said) } else { held(is_refused, said) }
}

fn deep(levels: usize) -> Vec<u8> {
    let deep = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
    echo("1").replace("\"text\":\"a\"", &format!("\"text\":\"a\",\"more\":{deep}")).into_bytes()
}

fn long(bytes: usize) -> Vec<u8> {
    echo("1").replace("\"text\":\"a\"", &format!("\"text\":\"a\",\"more\":\"{}\"", "x".repeat(bytes))).into_bytes()
}

/// The most memory that a process has had, in KiB.
fn peak(client: &Client) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", client.process())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn endless() -> Ended {
    let project = project();
    let mut client = Client::start(&project, &[]);
    until_answered(&mut client);
    let before = peak(&client);
    client.bytes(b"{\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"");
    (0..200).for_each(|_| client.bytes(&[b'x'; 1_000_000]));
    let messages = say(&mut client, b"");
    let grown = peak(&client) - before;
    held(codes(&messages) == [Some(-32600)] && messages[0]["id"] == 7 && grown < 32 << 10, (messages, grown))
}

fn cancel(id: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#)
}

fn canceled() -> Ended {
    let project = project();
    let mut client = Client::start(&project, &[]);
    client.line(&message("1", "tools/call", "\"name\":\"wait\","));
    while !project.path("begun").exists() {
        std::thread::yield_now();
    }
    ["1", "1", "2", "\"x\"", "null"].map(cancel).iter().for_each(|line| client.line(line));
    client.line(r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#);
    let messages = until_answered(&mut client);
    let (rest, code, _) = client.end();
    let outcomes: Vec<Json> = audited(&project).iter().map(|entry| entry["outcome"].clone()).collect();
    let quiet = messages.iter().chain(&rest).all(|message| message["id"].is_null() && message["error"].is_object());
    held(quiet && code == 0 && outcomes == ["abandoned"], (messages, rest, code, outcomes))
}

fn flood_of_cancels() -> Ended {
    let project = project();
    let mut client = Client::start(&project, &[]);
    until_answered(&mut client);
    let before = peak(&client);
    (0..20_000).for_each(|id| client.line(&cancel(&id.to_string())));
    let messages = until_answered(&mut client);
    // None of them is taken for one that was made.
    let call = answer(&mut client, &echo("7"));
    let grown = peak(&client) - before;
    held(messages.is_empty() && call["result"]["isError"] == false && grown < 32 << 10, (messages, call, grown))
}

fn crowd(count: usize, is_attack: bool) -> Ended {
    let project = project().tool("sit", "", "def run(args):\n    sleep(600000)\n");
    let mut client = Client::start(&project, &[]);
    (1..count).for_each(|id| client.line(&message(&id.to_string(), "tools/call", "\"name\":\"sit\",")));
    let last = answer(&mut client, &echo(&count.to_string()));
    match is_attack {
        true => held(last["error"]["code"] == -32000 && last["id"] == count, last),
        false => works(last["result"]["isError"] == false, last),
    }
}

fn listen(id: usize) -> String {
    message(&id.to_string(), "subscriptions/listen", "\"notifications\":{\"toolsListChanged\":true},")
}

fn listens(count: usize, is_attack: bool) -> Ended {
    let project = project();
    let mut client = Client::start(&project, &[]);
    let answers: Vec<Json> = (1..=count).map(|id| answer(&mut client, &listen(id))).collect();
    let call = answer(&mut client, &echo("0"));
    let last = answers.last().unwrap();
    let accepted = last["method"] == "notifications/subscriptions/acknowledged";
    let calls = call["result"]["isError"] == false;
    if is_attack {
        held(last["error"]["code"] == -32000 && calls, (last, call))
    } else {
        works(accepted && calls, last)
    }
}

fn subscribes(is_attack: bool) -> Ended {
    let project = project();
    let mut client = Client::start(&project, &[]);
    let one = "file:///docs/guide.md".to_owned();
    let uris: Vec<String> = match is_attack {
        true => (0..100).map(|n| format!("file:///docs/{n}.md")).chain(["file:///.env".to_owned()]).collect(),
        false => vec![one.clone()],
    };
    (0..100).for_each(|n| project.write(&format!("docs/{n}.md"), "x"));
    let wanted = json!({"resourceSubscriptions": uris});
    let said = answer(&mut client, &message("1", "subscriptions/listen", &format!("\"notifications\":{wanted},")));
    let accepted = said["params"]["notifications"]["resourceSubscriptions"].clone();
    let accepted: Vec<String> = serde_json::from_value(accepted).unwrap_or_default();
    match is_attack {
        true => held(accepted.len() <= 64 && accepted.iter().all(|uri| uri != "file:///.env"), accepted),
        false => works(accepted == [one], accepted),
    }
}

/// What is no token is none: nothing is sent for it, and the call is made all the same.
fn tokens(tokens: &[&str], is_control: bool) -> Ended {
    let project = project();
    let mut client = Client::start(&project, &[]);
    for token in tokens {
        let call = message("1", "tools/call", "\"name\":\"steps\",");
        client.line(&call.replace("\"_meta\":{", &format!("\"_meta\":{{\"progressToken\":{token},")));
        let first = client.receive();
        let last = if first["method"].is_string() { client.receive() } else { first.clone() };
        let has_step = first["method"] == "notifications/progress";
        if has_step != is_control || last["result"]["isError"] != false {
            return if is_control { works(false, (token, first)) } else { held(false, (token, first)) };
        }
    }
    if is_control { works(true, ()) } else { held(true, ()) }
}

fn with_meta(more: &str) -> String {
    echo("1").replace("\"_meta\":{", &format!("\"_meta\":{{{more}"))
}

fn metadata() -> Ended {
    let project = project();
    let mut client = Client::start(&project, &[]);
    let line = with_meta(&format!("\"example.com/x\":\"{}\",", "x".repeat(3 << 20)));
    let mut once = || answer(&mut client, &line)["result"]["isError"] == false;
    let first = (0..5).all(|_| once());
    let before = peak(&client);
    let line = line.clone();
    let rest = (0..40).all(|_| answer(&mut client, &line)["result"]["isError"] == false);
    let grown = peak(&client) - before;
    held(first && rest && grown < 32 << 10, grown)
}

fn gone() -> Ended {
    let project: Project = project();
    let mut client = Client::start(&project, &[]);
    until_answered(&mut client);
    let line = echo("1");
    client.bytes(&line.as_bytes()[..line.len() - 1]);
    let (rest, code, _) = client.end();
    held(codes(&rest) == [Some(-32700)] && code == 0 && completed(&project) == 0, (rest, code))
}
