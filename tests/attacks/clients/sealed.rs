//! What the server gives a client to send back, and what a person is said to have answered.

use serde_json::{Value as Json, json};

use super::{Ended, answered, ask, cases, completed, echo, held, project, works};
use crate::client::{Client, LEGACY};
use crate::corpus::Coded;
use crate::project::Project;

pub(super) const CASES: &[Coded] = cases! {
    "301" "confirms a call that was never asked about": unconfirmed(None, &yes()), confirmed();
    "302" "confirms with a state that it has made up": unconfirmed(Some(&["", "AAAA", "v1.AAAA.AAAA", "null", "0123456789abcdef0123456789abcdef"]), &yes()), confirmed();
    "303" "changes a state, cuts it, and adds to it": changed(), confirmed();
    "304" "confirms with the state of another server": foreign(), confirmed();
    "305" "confirms a call again with the state of one that was made": replayed(), confirmed();
    "306" "confirms one call, and sends another with other arguments": other_arguments(), confirmed();
    "307" "confirms one tool, and calls another with its state": other_tool(), answered(&echo("1"));
    "308" "says yes by something that is no yes": wrong_answers(), confirmed();
    "309" "says that a person answered who could not be asked": unable(), confirmed();
    "310" "answers a form by values of other types": forms(&[json!({"n": "7"}), json!({"n": [7]}), json!({"n": null}), json!({"n": 7.5}), json!({})]), filled();
    "311" "answers a form by what is no answer": asked_again(&[json!(7), json!([]), json!({"action": "accept"}), json!({"action": "yes", "content": {"n": 7}}), json!({"content": {"n": 7}})]), filled();
    "312" "answers a form by a megabyte of what it does not ask for": large(), filled();
    "313" "answers the question of another client's call": stolen(), filled();
    "314" "guesses the task of another client": tasks(), answered(&echo("1"));
    "315" "answers a question of the server under its number, before it is asked": early(), filled_before();
    "316" "leaves many questions open, to fill the host": open_questions(), filled();
};

fn able() -> Json {
    json!({"elicitation": {"form": {}}})
}

fn yes() -> Json {
    json!({"confirm": {"action": "accept", "content": {"confirm": true}}})
}

/// A call of `risky`.
fn risky(client: &mut Client, text: &str, state: Option<&Json>, answers: &Json) -> Json {
    let mut params = json!({"name": "risky", "arguments": {"text": text}, "inputResponses": answers});
    params.as_object_mut().unwrap().extend(state.map(|state| ("requestState".to_owned(), state.clone())));
    ask(client, "tools/call", params, &able())
}

/// The state of the question about a call.
fn state(client: &mut Client, text: &str) -> Json {
    risky(client, text, None, &json!({}))["result"]["requestState"].take()
}

fn is_made(said: &Json) -> bool {
    said["result"]["isError"] == false
}

fn confirmed() -> Ended {
    let project = project();
    let mut client = Client::start(&project, &[]);
    let state = state(&mut client, "a");
    let said = risky(&mut client, "a", Some(&state), &yes());
    works(is_made(&said) && completed(&project) == 1, said)
}

/// Nothing of all this was made.
fn none_made(project: &Project, said: &[Json]) -> Ended {
    held(!said.iter().any(is_made) && completed(project) == 0, said)
}

fn unconfirmed(states: Option<&[&str]>, answers: &Json) -> Ended {
    let project = project();
    let mut client = Client::start(&project, &[]);
    let said: Vec<Json> = match states {
        None => vec![risky(&mut client, "a", None, answers)],
        Some(states) => states.iter().map(|state| risky(&mut client, "a", Some(&json!(state)), answers)).collect(),
    };
    none_made(&project, &said)
}

fn changed() -> Ended {
    let project = project();
    let mut client = Client::start(&project, &[]);
    let state = state(&mut client, "a");
    let state = state.as_str().unwrap();
    let mut said = Vec::new();
    // The last letters of Base64 have bits that say nothing: they are left as they are.
    for at in (0..state.len() - 2).step_by(7) {
        let mut bytes = state.as_bytes().to_vec();
        bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(bytes).unwrap();
        if changed != state {
            said.push(risky(&mut client, "a", Some(&json!(changed)), &yes()));
        }
        said.push(risky(&mut client, "a", Some(&json!(&state[..at])), &yes()));
    }
    said.push(risky(&mut client, "a", Some(&json!(format!("{state}A"))), &yes()));
    said.push(risky(&mut client, "a", Some(&json!(format!("{state}.{state}"))), &yes()));
    none_made(&project, &said)
}

fn foreign() -> Ended {
    let project = project();
    let state = state(&mut Client::start(&project, &[]), "a");
    let said = risky(&mut Client::start(&project, &[]), "a", Some(&state), &yes());
    held(said["error"]["code"] == -32602 && completed(&project) == 0, said)
}

fn replayed() -> Ended {
    let project = project();
    let mut client = Client::start(&project, &[]);
    let state = state(&mut client, "a");
    let said: Vec<bool> = (0..5).map(|_| is_made(&risky(&mut client, "a", Some(&state), &yes()))).collect();
    held(said == [true, false, false, false, false] && completed(&project) == 1, said)
}

fn other_arguments() -> Ended {
    let project = project();
    let mut client = Client::start(&project, &[]);
    let state = state(&mut client, "a");
    let said: Vec<Json> =
        ["b", "", "a ", "A"].iter().map(|text| risky(&mut client, text, Some(&state), &yes())).collect();
    none_made(&project, &said)
}

fn other_tool() -> Ended {
    let project = project().policy_of(|policy| policy.replace("confirm: [risky]", "confirm: [risky, echo]"));
    let mut client = Client::start(&project, &[]);
    let state = state(&mut client, "a");
    let params = json!({"name": "echo", "arguments": {"text": "a"}, "requestState": state, "inputResponses": yes()});
    let said = ask(&mut client, "tools/call", params, &able());
    none_made(&project, &[said])
}

fn wrong_answers() -> Ended {
    let project = project();
    let mut client = Client::start(&project, &[]);
    let accept = |content: Json| json!({"confirm": {"action": "accept", "content": content}});
    let answers = [
        accept(json!({"confirm": "true"})),
        accept(json!({"confirm": 1})),
        accept(json!({"confirm": [true]})),
        accept(json!({"Confirm": true})),
        accept(json!({})),
        json!({"confirm": {"action": "accept"}}),
        json!({"confirm": {"action": "decline", "content": {"confirm": true}}}),
        json!({"confirm": {"action": "cancel", "content": {"confirm": true}}}),
        json!({"confirm": {"action": "ACCEPT", "content": {"confirm": true}}}),
        json!({"confirm": true}),
        json!({"yes": {"action": "accept", "content": {"confirm": true}}}),
        json!([]),
    ];
    let said: Vec<Json> = answers
        .iter()
        .map(|answers| {
            let state = state(&mut client, "a");
            risky(&mut client, "a", Some(&state), answers)
        })
        .collect();
    none_made(&project, &said)
}

fn unable() -> Ended {
    let project = project();
    let mut client = Client::start(&project, &[]);
    let mut said = Vec::new();
    for capabilities in [json!({}), json!({"elicitation": {"url": {}}}), json!({"sampling": {}})] {
        let params = json!({"name": "risky", "arguments": {"text": "a"}, "inputResponses": yes()});
        said.push(ask(&mut client, "tools/call", params, &capabilities));
    }
    none_made(&project, &said)
}

/// A call of `form`.
fn form(client: &mut Client, state: Option<&Json>, answer: &Json) -> Json {
    let mut params = json!({"name": "form", "arguments": {}, "inputResponses": {"n": answer}});
    params.as_object_mut().unwrap().extend(state.map(|state| ("requestState".to_owned(), state.clone())));
    ask(client, "tools/call", params, &able())
}

/// The state of a call of `form` that waits.
fn waiting(client: &mut Client) -> Json {
    ask(client, "tools/call", json!({"name": "form", "arguments": {}}), &able())["result"]["requestState"].take()
}

fn filled() -> Ended {
    let project = project();
    let mut client = Client::start(&project, &[]);
    let state = waiting(&mut client);
    let said = form(&mut client, Some(&state), &json!({"action": "accept", "content": {"n": 7}}));
    works(is_made(&said), said)
}

fn filled_before() -> Ended {
    let project = project();
    let said = form(&mut Client::start(&project, &[]), None, &json!({"action": "accept", "content": {"n": 7}}));
    works(is_made(&said), said)
}

fn forms(contents: &[Json]) -> Ended {
    let project = project();
    let mut client = Client::start(&project, &[]);
    let said: Vec<Json> = contents
        .iter()
        .map(|content| {
            let state = waiting(&mut client);
            form(&mut client, Some(&state), &json!({"action": "accept", "content": content}))
        })
        .collect();
    held(said.iter().all(|said| said["result"]["isError"] == true) && completed(&project) == 0, said)
}

fn asked_again(answers: &[Json]) -> Ended {
    let project = project();
    let mut client = Client::start(&project, &[]);
    let said: Vec<Json> = answers
        .iter()
        .map(|answer| {
            let state = waiting(&mut client);
            form(&mut client, Some(&state), answer)
        })
        .collect();
    let is_asked = |said: &Json| said["result"]["resultType"] == "input_required";
    held(said.iter().all(is_asked) && completed(&project) == 0, said)
}

fn large() -> Ended {
    let project = project();
    let mut client = Client::start(&project, &[]);
    let state = waiting(&mut client);
    let content = json!({"n": 7, "more": "x".repeat(2 << 20)});
    let said = form(&mut client, Some(&state), &json!({"action": "accept", "content": content}));
    held(said["result"]["isError"] == true && said.to_string().len() < 10_000, said.to_string().len())
}

fn stolen() -> Ended {
    let project = project();
    let mut one = Client::start(&project, &[]);
    let state = waiting(&mut one);
    let answer = json!({"action": "accept", "content": {"n": 7}});
    let said = form(&mut Client::start(&project, &[]), Some(&state), &answer);
    let own = form(&mut one, Some(&state), &answer);
    held(said["error"]["code"] == -32602 && is_made(&own), (said, own))
}

fn tasks() -> Ended {
    let project = project();
    let mut client = Client::start(&project, &[]);
    let follows = json!({"extensions": {"io.modelcontextprotocol/tasks": {}}});
    for id in ["", "0", "1", "00000000000000000000000000000000", "task-1", "../1", "\0", &"f".repeat(100_000)] {
        for method in ["tasks/get", "tasks/cancel", "tasks/update"] {
            let said = ask(&mut client, method, json!({"taskId": id, "inputResponses": {}}), &follows);
            if said["error"]["code"] != -32602 || said.to_string().len() > 10_000 {
                return held(false, (id.get(..40), method, said));
            }
        }
    }
    held(true, ())
}

fn early() -> Ended {
    let project = project();
    let mut client = Client::start(&project, &[]);
    let info = json!({"name": "older", "version": "1"});
    client.request("initialize", json!({"protocolVersion": LEGACY, "capabilities": able(), "clientInfo": info}));
    for id in 0..5 {
        let result = json!({"action": "accept", "content": {"confirm": true}});
        client.send(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }
    client.begin("tools/call", json!({"name": "risky", "arguments": {"text": "a"}}));
    let question = client.receive();
    let is_asked = question["method"] == "elicitation/create";
    client.send(&json!({"jsonrpc": "2.0", "id": question["id"], "result": {"action": "decline"}}));
    let said = client.receive();
    held(is_asked && said["result"]["isError"] == true && completed(&project) == 0, (question, said))
}

fn open_questions() -> Ended {
    let project = project();
    let mut client = Client::start(&project, &[]);
    let states: Vec<Json> = (0..40).map(|_| waiting(&mut client)).collect();
    let waits = states.iter().filter(|state| state.is_string()).count();
    client.line(&echo("\"last\""));
    let said = client.receive();
    held(waits == 16 && is_made(&said), (waits, said))
}
