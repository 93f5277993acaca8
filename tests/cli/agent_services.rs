//! Whole sessions with a model's service: in each wire format, streamed and in one piece and in prose; and what a
//! service does wrong.

use serde_json::{Value as Json, json};

use crate::agent_turns::{spied, told};
use crate::project::{Project, Ran};
use crate::services::{Answer, KEY, Service, WIRES, Wire};

pub(crate) const ASKED: &str = "Read the file config.yaml and tell me what port it uses";
pub(crate) const SAID: &str = "The config.yaml file specifies port 8080.";

/// A project that reads files, whose agent asks a service.
pub(crate) fn project(provider: &str, service: &Service, more: &str) -> Project {
    let model = format!(
        "name: m-1, provider: {provider}, base_url: 'http://{}', api_key_env: HARNESS_TEST_KEY, tools: structured, retry: {{ max_retries: 0 }}",
        service.address
    );
    let policy = format!("---\nmodel: {{ {model}{more} }}\n---\nYou help.\n");
    Project::new()
        .file(".harness/harness.md", &policy)
        .tool(
            "read_file",
            "parameters:\n  path: { type: string, required: true }\n",
            "def run(args):\n    return fs.read(args['path'])\n",
        )
        .file("config.yaml", "port: 8080\n")
        .file("other.yaml", "port: 9090\n")
}

pub(crate) fn run(project: &Project, arguments: &[&str]) -> Ran {
    let output = project.command(arguments).env("HARNESS_TEST_KEY", KEY).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let ran = Ran { code: output.status.code().unwrap(), out: text(output.stdout), err: text(output.stderr) };
    assert!(!ran.to_string().contains(KEY), "{ran}");
    no_key_in(project.root());
    ran
}

/// No file of the project holds the key.
fn no_key_in(folder: &std::path::Path) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            no_key_in(&path);
        } else {
            let bytes = std::fs::read(&path).unwrap();
            assert!(!bytes.windows(KEY.len()).any(|part| part == KEY.as_bytes()), "{}", path.display());
        }
    }
}

fn calls(path: &str) -> Json {
    json!({ "path": path })
}

/// What went to the model as the result of a call, in any of the formats.
pub(crate) fn results(asked: &Json) -> Vec<String> {
    let of = |message: &Json| -> Vec<String> {
        let text = |content: &Json| content.as_str().map(str::to_owned);
        match message["role"].as_str() {
            Some("tool") => text(&message["content"]).into_iter().collect(),
            Some("user") => {
                let blocks = message["content"].as_array().into_iter().flatten();
                blocks
                    .filter(|block| block["type"] == "tool_result")
                    .filter_map(|block| text(&block["content"]))
                    .collect()
            }
            _ => Vec::new(),
        }
    };
    asked["messages"].as_array().unwrap().iter().flat_map(of).collect()
}

/// A question, two calls in one reply, their results, the answer from them.
#[test]
fn a_file_is_read_and_the_answer_comes_from_it() {
    for (wire, name) in WIRES {
        for stream in [true, false] {
            let wanted = [("read_file", calls("config.yaml")), ("read_file", calls("other.yaml"))];
            let service =
                Service::new(vec![wire.reply(stream, "Let me see.", &wanted).split(), wire.reply(stream, SAID, &[])]);
            let project = project(name, &service, "");
            let ran = run(&project, &["run", "--json", ASKED]);
            assert_eq!(ran.code, 0, "{name} {stream}: {ran}");
            let told = ran.json();
            assert_eq!((&told["answer"], &told["rounds"]), (&json!(SAID), &json!(1)), "{name} {stream}");
            assert_eq!(told["usage"], json!({"input_tokens": 22, "output_tokens": 14}), "{name} {stream}");
            let chats = service.chats();
            assert_eq!(chats.len(), 2, "{name} {stream}");
            assert_eq!(results(&chats[0].json()), [""; 0]);
            assert_eq!(results(&chats[1].json()), ["port: 8080\n", "port: 9090\n"], "{name} {stream}");
            assert!(chats[1].body.contains("Let me see."), "{name} {stream}: {}", chats[1].body);
            // Without `--json` it is what a pipe gets.
            assert_eq!(run(&project, &["run", "again"]).out, format!("{SAID}\n"));
        }
    }
}

/// The program learns of all that was counted, whoever asked and however the turn ended; a turn's hooks of its own.
#[test]
fn what_was_counted_is_that_of_all_agents() {
    let (wire, name) = WIRES[0];
    let ran = |last: Answer, command: &[&str]| {
        let asks = [("delegate", json!({"agent": "helper", "task": "Help."}))];
        let service = Service::new(vec![wire.reply(true, "", &asks), wire.reply(true, "Helped.", &[]), last]);
        let helper = "---\ndescription: Helps.\n---\nYou help.\n";
        let project = project(name, &service, "").file(".harness/agents/helper.md", helper);
        run(&spied(project, &["turn.end", "delegation.post"]), command)
    };
    for command in [&["run", "--json", "Go"][..], &["deploy", "--json", "--input", "Go"]] {
        let answered = ran(wire.reply(true, "Thanks.", &[]), command);
        let mut json = answered.json();
        json["log"].take();
        assert_eq!(
            json,
            json!({
                "outcome": "completed",
                "answer": "Thanks.",
                "rounds": 1,
                "calls": [{"name": "delegate", "args": {"agent": "helper", "task": "Help."}}],
                "usage": {"input_tokens": 33, "output_tokens": 21},
                "log": null,
                "warning": null,
            })
        );
        let of = |event: &str| -> Vec<Json> {
            let payloads = told(&answered, event).into_iter();
            payloads.map(|payload| payload.get("result").unwrap_or(&payload)["usage"].clone()).collect()
        };
        let (one, two) =
            (json!({"input_tokens": 11, "output_tokens": 7}), json!({"input_tokens": 22, "output_tokens": 14}));
        assert_eq!((of("turn.end"), of("delegation.post")), (vec![one.clone(), two], vec![one]));

        let failed = ran(Answer::new("500 Oops", "text/plain", "no"), command);
        let mut json = failed.json();
        json["log"].take();
        assert_eq!(
            json,
            json!({
                "outcome": "fault",
                "error": {"kind": "completion", "message": json["error"]["message"]},
                "rounds": 1,
                "calls": [{"name": "delegate", "args": {"agent": "helper", "task": "Help."}}],
                "usage": {"input_tokens": 22, "output_tokens": 14},
                "log": null,
            })
        );
    }
}

/// A model without tools is told of them in its prompt, writes a call as text, and gets the result back.
#[test]
fn a_model_without_tools_works_in_prose() {
    for (wire, name) in WIRES {
        let call = "I look.\n```json\n{\"name\": \"read_file\", \"arguments\": {\"path\": \"config.yaml\"}}\n```\n";
        let service = Service::new(vec![wire.reply(true, call, &[]), wire.reply(true, SAID, &[])]);
        let project = project(name, &service, "").policy_of(|text| text.replace("tools: structured", "tools: prose"));
        let ran = run(&project, &["run", ASKED]);
        assert_eq!((ran.code, ran.out), (0, format!("{SAID}\n")), "{name}");
        let chats = service.chats();
        assert_eq!(chats[0].json().get("tools"), None, "{name}");
        assert!(chats[0].body.contains("read_file"), "{name}: the prompt tells of the tool");
        let last = chats[1].json()["messages"].as_array().unwrap().last().unwrap().clone();
        assert_eq!(last["role"], "user", "{name}");
        assert!(last.to_string().contains("port: 8080"), "{name}: {last}");
    }
}

/// A service that is busy is asked again as often as the file says, and no sooner than it wants.
#[test]
fn a_service_that_is_busy_is_asked_again() {
    for (wire, name) in WIRES {
        let mut busy = Answer::new("429 Too Many Requests", "application/json", "{\"error\": {\"message\": \"slow\"}}");
        busy.headers.push_str("retry-after: 0\r\n");
        let service = Service::new(vec![busy.clone(), wire.reply(true, SAID, &[])]);
        let once = "max_retries: 1, initial_backoff_ms: 1";
        let again = project(name, &service, "").policy_of(|text| text.replace("max_retries: 0", once));
        let ran = run(&again, &["run", ASKED]);
        assert_eq!((ran.code, ran.out, service.chats().len()), (0, format!("{SAID}\n"), 2), "{name}: {}", ran.err);
        let service = Service::new(vec![busy]);
        let ran = run(&project(name, &service, ""), &["run", ASKED]);
        assert_eq!((ran.code, service.chats().len()), (5, 1), "{name}: {ran}");
        assert!(ran.err.contains("429") && ran.err.contains("slow"), "{name}: {ran}");
    }
}

/// A reply that ends too early is no reply: nothing of it is shown as an answer, and no call of it is made.
#[test]
fn a_reply_that_is_cut_is_an_error() {
    for (wire, name) in WIRES {
        let whole = wire.reply(true, "Let me see.", &[("read_file", calls("config.yaml"))]);
        let length = whole.pieces.concat().len();
        for part in [length / 3, length * 2 / 3] {
            let service = Service::new(vec![whole.clone().cut(part)]);
            let ran = run(&project(name, &service, ""), &["run", "--json", ASKED]);
            assert_eq!((ran.code, &ran.json()["outcome"]), (5, &json!("fault")), "{name} {part}: {ran}");
            assert!(!ran.err.contains("read_file completed"), "{name}: {ran}");
        }
    }
}

/// What a service refuses is told with its own words, and never with the key that it may say back.
#[test]
fn a_refusal_is_told_without_the_key() {
    for (_, name) in WIRES {
        let body = json!({"error": {"type": "authentication_error", "message": format!("the key {KEY} is not known")}});
        let service = Service::new(vec![Answer::new("401 Unauthorized", "application/json", &body.to_string())]);
        let ran = run(&project(name, &service, ""), &["run", ASKED]);
        assert_eq!((ran.code, ran.out.as_str()), (5, ""), "{name}: {ran}");
        assert!(ran.err.contains("401") && ran.err.contains("is not known"), "{name}: {ran}");
        let sent = service.chats().remove(0).head;
        assert!(sent.contains(KEY), "{name}: the service gets it: {sent}");
    }
}

/// One whose reply never continues is given up when the person asks for it, and the program ends.
#[cfg(unix)]
#[test]
fn a_turn_is_stopped_by_ctrl_c() {
    for (wire, name) in WIRES {
        let whole = wire.reply(true, "Let me see.", &[]);
        let length = whole.pieces.concat().len();
        let service = Service::new(vec![whole.cut(length / 2).hanging()]);
        let project = project(name, &service, "");
        let mut command = project.command(&["run", ASKED]);
        let child = command.env("HARNESS_TEST_KEY", KEY).stderr(std::process::Stdio::piped()).spawn().unwrap();
        while service.chats().is_empty() {
            std::thread::yield_now();
        }
        let id = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
        let output = child.wait_with_output().unwrap();
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), told.as_str()), (Some(130), "error: interrupted by SIGINT\n"), "{name}");
    }
}

/// The settings of the file are what is sent.
#[test]
fn every_setting_of_the_model_is_sent() {
    for (wire, name) in WIRES {
        let service = Service::new(vec![wire.reply(true, SAID, &[])]);
        let project = project(name, &service, ", max_tokens: 321, temperature: 0.25, context_tokens: 4096");
        assert_eq!(run(&project, &["run", ASKED]).code, 0, "{name}");
        let asked = service.chats().remove(0);
        let body = asked.json();
        assert_eq!(body["model"], "m-1", "{name}");
        let (most, warmth) = match wire {
            Wire::Ollama => (&body["options"]["num_predict"], &body["options"]["temperature"]),
            _ => (&body["max_tokens"], &body["temperature"]),
        };
        assert_eq!((most, warmth), (&json!(321), &json!(0.25)), "{name}: {body}");
        if wire == Wire::Ollama {
            assert_eq!(body["options"]["num_ctx"], 4096);
        }
        let header = if wire == Wire::Anthropic { format!("x-api-key: {KEY}") } else { format!("bearer {KEY}") };
        assert!(asked.head.to_ascii_lowercase().contains(&header.to_ascii_lowercase()), "{name}: {}", asked.head);
    }
}
