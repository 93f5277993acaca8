//! Names of tools that are nearly others', and names that clients choose for themselves.

use serde_json::{Value as Json, json};

use super::{Ended, answered, ask, cases, echo, held, message, project, works};
use crate::client::{Client, audited};
use crate::corpus::Coded;

pub(super) const CASES: &[Coded] = cases! {
    "101" "calls a tool by a name that looks like its own": unknown(&["ech\u{43e}", "e\u{200b}cho", "echo\u{202e}", "\u{ff45}cho"]), answered(&echo("1"));
    "102" "calls a tool by its name with something around it": unknown(&[" echo", "echo ", "ECHO", "echo\0", "./echo", "tools/echo", "echo.md", ""]), answered(&echo("1"));
    "103" "calls a tool that the policy hides": unknown(&["hidden", "HIDDEN", "hidden\0"]), answered(&echo("1"));
    "104" "calls what only the host calls": unknown(&["resources/read", "prompts/get", "delegate", "delegate_async", "search_tools", "call_tool"]), answered(&echo("1"));
    "105" "names a tool of a million characters": unknown(&[&"x".repeat(1_000_000)]), answered(&echo("1"));
    "106" "has characters that steer a terminal in its own name, for the audit log that is printed": printed(ESCAPES, ESCAPES), printed("tester", "1");
    "107" "has a name of a megabyte, to fill the audit log": bounded(), printed("tester", "1");
    "108" "breaks lines in its own name, to add entries to the audit log": added(), printed("tester", "1");
    "109" "says a secret in every field that is kept or sent back": secrets(), answered(&echo("1"));
    "110" "has characters that steer a terminal in all that standard error could show": complained(), answered(&echo("1"));
};

/// Moves the cursor, clears the screen, sets the title, reverses the order of reading, and shows nothing.
const ESCAPES: &str = "\u{1b}[2J\u{1b}[1A\u{1b}]0;x\u{7}\u{202e}\u{200b}\u{feff}\u{e0041}\r\u{8}";

fn quoted(text: &str) -> String {
    json!(text).to_string()
}

fn unknown(names: &[&str]) -> Ended {
    let project = project();
    let mut client = Client::start(&project, &[]);
    for name in names {
        let said = ask(&mut client, "tools/call", json!({"name": name, "arguments": {"text": "a"}}), &json!({}));
        if said["error"]["code"] != -32602 || said.to_string().len() > 10_000 {
            return held(false, (name.get(..20), said));
        }
    }
    let log = project.run(&["audit", "show", "--last", "1000"]);
    held(log.code == 0 && !log.out.contains("completed"), log.out)
}

/// A call of a client of this name, with this identifier.
fn call_as(client: &mut Client, name: &str, id: &str) -> Json {
    let info = format!(r#""io.modelcontextprotocol/clientInfo":{{"name":{},"version":"1"}},"#, quoted(name));
    client.line(&echo(&quoted(id)).replace("\"_meta\":{", &format!("\"_meta\":{{{info}")));
    client.receive()
}

fn hides(text: &str) -> bool {
    text.chars().any(|c| c != '\n' && harness_policy::text::is_hidden(c))
}

fn printed(name: &str, id: &str) -> Ended {
    let project = project();
    let mut client = Client::start(&project, &[]);
    let said = call_as(&mut client, name, id);
    let (_, _, err) = client.end();
    let shown = project.run(&["audit", "show"]);
    let is_fine = said["result"]["isError"] == false && said["id"] == id;
    match name {
        "tester" => works(is_fine && shown.out.contains("echo") && audited(&project)[0]["client"] == name, shown.out),
        _ => held(is_fine && !hides(&shown.out) && !hides(&shown.err) && !hides(&err), (said, shown.out, err)),
    }
}

fn bounded() -> Ended {
    let project = project();
    let mut client = Client::start(&project, &[]);
    let said = call_as(&mut client, &"\u{fc}".repeat(500_000), "1");
    let entries = audited(&project);
    let kept = entries[0]["client"].as_str().unwrap().len();
    held(said["result"]["isError"] == false && kept <= 200 && entries.len() == 1, kept)
}

fn added() -> Ended {
    let project = project();
    let mut client = Client::start(&project, &[]);
    let forged = "x\"}\n{\"seq\":2,\"kind\":\"call\",\"tool\":\"hidden\",\"outcome\":\"completed\"}\n";
    let said = call_as(&mut client, forged, forged);
    drop(client.end());
    let (entries, verified) = (audited(&project), project.run(&["audit", "verify"]));
    held(entries.len() == 1 && verified.code == 0 && said["result"]["isError"] == false, (entries, verified.out))
}

const SECRET: &str = "a-long-secret-value-of-an-attack";

/// What a client sends is its own, but what comes back from a tool, and what is kept, may be read by others.
fn secrets() -> Ended {
    let project = project();
    let mut client = Client::start_with(&project, &[], &[("HARNESS_TEST_SECRET", SECRET)]);
    let mut said = vec![call_as(&mut client, SECRET, "1")];
    let requests = [
        ("tools/call", json!({"name": SECRET})),
        ("tools/call", json!({"name": "echo", "arguments": {"text": SECRET}})),
        ("tools/call", json!({"name": "echo", "arguments": {"text": [SECRET], SECRET: 1}})),
        ("tools/call", json!({"name": "echo", "arguments": {"text": "a"}, "requestState": SECRET})),
        ("resources/read", json!({"uri": format!("file:///{SECRET}")})),
        ("prompts/get", json!({"name": SECRET})),
        ("prompts/get", json!({"name": "write", "arguments": {"about": SECRET}})),
        ("prompts/get", json!({"name": "write", "arguments": {SECRET: "x"}})),
        ("tools/list", json!({"cursor": SECRET})),
        (
            "completion/complete",
            json!({"ref": {"type": "ref/prompt", "name": SECRET}, "argument": {"name": "a", "value": SECRET}}),
        ),
        ("tasks/get", json!({"taskId": SECRET})),
        (SECRET, json!({})),
    ];
    said.extend(requests.into_iter().map(|(method, params)| ask(&mut client, method, params, &json!({}))));
    // An identifier is sent back, as the protocol has it, and is not kept.
    drop(call_as(&mut client, "x", SECRET));
    let (_, _, err) = client.end();
    let log = project.run(&["audit", "show", "--json", "--last", "1000"]).out;
    let leaks: Vec<&Json> = said.iter().filter(|said| said.to_string().contains(SECRET)).collect();
    held(leaks.is_empty() && !log.contains(SECRET) && !err.contains(SECRET), (leaks, log.matches(SECRET).count(), err))
}

fn complained() -> Ended {
    let project = project();
    let mut client = Client::start(&project, &[]);
    for line in [
        message(&quoted(ESCAPES), "tools/call", &format!("\"name\":{},", quoted(ESCAPES))),
        message("1", "resources/read", &format!("\"uri\":{},", quoted(ESCAPES))),
        format!("{ESCAPES}{{"),
    ] {
        client.line(&line.replace('\r', "\\r"));
        drop(client.receive());
    }
    let (_, code, err) = client.end();
    held(code == 0 && !hides(&err) && !err.contains("\\u{"), err)
}
