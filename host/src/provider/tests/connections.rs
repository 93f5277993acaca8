//! Where requests go, with which key, and which settings are none.

use super::server::{Server, events, json as answer};
use super::*;

const SAID: &str =
    "data: {\"choices\":[{\"delta\":{\"content\":\"ok\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

/// A service that says `ok` in the format that it is asked in.
async fn service() -> Server {
    Server::new(|asked, _| match asked.path() {
        path if path.contains("messages") => {
            answer("200 OK", &json!({ "content": [{ "type": "text", "text": "ok" }], "stop_reason": "end_turn" }))
        }
        path if path.ends_with("/api/chat") => {
            answer("200 OK", &json!({ "message": { "content": "ok" }, "done": true }))
        }
        _ => events(SAID),
    })
    .await
}

async fn says_ok(settings: &Settings) {
    let (reply, _) = ask(&*provider(settings), &request(user("hi"))).await;
    assert_eq!(reply.unwrap().text, "ok");
}

/// A path below the service, whether its query is kept, and the header with the key.
#[tokio::test]
async fn requests_go_where_the_settings_say_with_the_key_where_the_service_wants_it() {
    let bearer = Some(("authorization", format!("Bearer {KEY}")));
    let own = |name| Some((name, KEY.to_owned()));
    let named = Some("SOME_KEY");
    for (kind, base, variable, path, header) in [
        (Kind::OpenAi, "/v1", named, "/v1/chat/completions", bearer.clone()),
        (Kind::OpenAi, "/v1/", named, "/v1/chat/completions", bearer.clone()),
        (Kind::OpenAi, "/v1/chat/completions", named, "/v1/chat/completions", bearer.clone()),
        (Kind::OpenAi, "", named, "/chat/completions", bearer.clone()),
        (Kind::OpenAi, "/v1?a=b#c", named, "/v1/chat/completions?a=b", bearer.clone()),
        // The key of OpenAI is not for others.
        (Kind::OpenAi, "/v1", None, "/v1/chat/completions", None),
        (Kind::Copilot, "", named, "/chat/completions", bearer.clone()),
        (
            Kind::Azure,
            "/openai/deployments/d?api-version=2024-10-21",
            None,
            "/openai/deployments/d/chat/completions?api-version=2024-10-21",
            own("api-key"),
        ),
        (Kind::OpenAi, "/openai?api-version=1", named, "/openai/chat/completions?api-version=1", own("api-key")),
        (Kind::Anthropic, "", named, "/v1/messages", own("x-api-key")),
        (Kind::Anthropic, "/proxy/v1/", named, "/proxy/v1/messages", own("x-api-key")),
        (Kind::Anthropic, "", None, "/v1/messages", None),
        (Kind::Ollama, "", None, "/api/chat", None),
        (Kind::Ollama, "/below/", named, "/below/api/chat", bearer.clone()),
    ] {
        let server = service().await;
        says_ok(&Settings {
            api_key_env: variable.map(str::to_owned),
            tools: settings::ToolMode::Structured,
            ..settings(kind, &format!("{}{base}", server.url()))
        })
        .await;
        let seen = server.seen();
        let [asked] = seen.as_slice() else { panic!("{seen:?}") };
        assert_eq!(asked.path(), path);
        for name in ["authorization", "api-key", "x-api-key"] {
            let wanted = header.as_ref().filter(|(wanted, _)| *wanted == name).map(|(_, value)| value.as_str());
            assert_eq!(asked.header(name), wanted, "{name} of {kind:?} {base}");
        }
    }
}

#[test]
fn each_kind_has_its_place_and_its_key() {
    let known = [Kind::OpenAi, Kind::Copilot, Kind::Azure, Kind::Anthropic, Kind::Ollama]
        .map(|kind| (kind.as_str(), kind.default_url(), kind.default_key()));
    assert_eq!(
        known,
        [
            ("openai", Some("https://api.openai.com/v1"), Some("OPENAI_API_KEY")),
            ("copilot", Some("https://api.githubcopilot.com"), Some("GITHUB_TOKEN")),
            ("azure", None, Some("AZURE_OPENAI_API_KEY")),
            ("anthropic", Some("https://api.anthropic.com"), Some("ANTHROPIC_API_KEY")),
            ("ollama", Some("http://127.0.0.1:11434"), None),
        ]
    );
}

#[tokio::test]
async fn a_key_that_is_missing_is_named_when_it_is_needed() {
    let why = |settings: Settings, value: Option<&'static str>| async move {
        let provider = connect_with(&settings, Arc::new(move |_| value.map(str::to_owned))).unwrap();
        assert_eq!(provider.abilities("m-1").await.context_tokens, None);
        let (reply, _) = ask(&*provider, &request(user("hi"))).await;
        reply.unwrap_err().to_string()
    };
    let structured = |settings| Settings { tools: settings::ToolMode::Structured, ..settings };
    assert_eq!(
        why(structured(Settings::new(Kind::OpenAi, "m-1")), None).await,
        "the variable `OPENAI_API_KEY` is not set: it holds the key for https://api.openai.com; `api_key_env` names another"
    );
    let server = service().await;
    let named = Settings { api_key_env: Some("MINE".to_owned()), ..settings(Kind::OpenAi, &server.url()) };
    for (value, why_not) in [(" \n", "is empty"), ("a b", "holds characters that no key has")] {
        let said = why(structured(named.clone()), Some(value)).await;
        assert_eq!(said, format!("the variable `MINE`, with the key for {}, {why_not}", server.url()));
    }
    assert!(server.seen().is_empty());
}

#[test]
fn settings_that_cannot_be_meant_are_refused() {
    let why = |kind, url: Option<&str>| {
        let settings = Settings { base_url: url.map(str::to_owned), ..Settings::new(kind, "m") };
        connect_with(&settings, keys()).unwrap_err().to_string()
    };
    assert_eq!(why(Kind::Azure, None), "the provider `azure` needs a `base_url`");
    assert_eq!(
        why(Kind::OpenAi, Some("localhost")),
        "`base_url` of the provider `openai` is no URL: relative URL without a base"
    );
    let scheme = "`base_url` of the provider `ollama` begins with `http://` or `https://` and a host";
    assert_eq!(why(Kind::Ollama, Some("localhost:11434")), scheme);
    assert_eq!(why(Kind::Ollama, Some("file:///etc")), scheme);
    let password = why(Kind::OpenAi, Some("https://me:hunter2@example.com"));
    assert!(password.contains("may not hold a name or a password") && !password.contains("hunter2"), "{password}");
    assert_eq!(why(Kind::Script, Some("http://x")), "a scripted provider has no service to connect to");
}

#[tokio::test]
async fn settings_stand_in_for_what_a_request_leaves_open() {
    let server = service().await;
    let settings = Settings {
        max_tokens: Some(7),
        temperature: Some(1.5),
        context_tokens: Some(9000),
        ..settings(Kind::Ollama, &server.url())
    };
    let open =
        Request { model: String::new(), tools: Vec::new(), max_tokens: None, temperature: None, ..request(user("hi")) };
    let provider = provider(&settings);
    ask(&*provider, &open).await.0.unwrap();
    ask(&*provider, &Request { max_tokens: Some(8), model: "m-2".to_owned(), ..open }).await.0.unwrap();
    let sent = |at: usize| {
        let body = server.seen()[at].json();
        (body["model"].clone(), body["options"].clone())
    };
    assert_eq!(sent(0), (json!("m-1"), json!({ "num_predict": 7, "temperature": 1.5, "num_ctx": 9000 })));
    assert_eq!(sent(1), (json!("m-2"), json!({ "num_predict": 8, "temperature": 1.5, "num_ctx": 9000 })));
}

/// A service that knows neither `stream_options` nor `max_tokens` says so once.
#[tokio::test]
async fn a_service_may_teach_what_it_does_not_take() {
    let server = Server::new(|asked, _| {
        let body = asked.json();
        let no = |message: &str| answer("400 Bad Request", &json!({ "error": { "message": message } }));
        if body.get("stream_options").is_some() {
            return no("Unknown parameter: stream_options");
        }
        if body.get("max_tokens").is_some() {
            return no("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.");
        }
        events(SAID)
    })
    .await;
    let provider = structured(Kind::OpenAi, &server.url());
    for _ in 0..2 {
        assert_eq!(ask(&*provider, &request(user("hi"))).await.0.unwrap().text, "ok");
    }
    let seen = server.seen();
    assert_eq!(seen.len(), 4);
    assert_eq!(seen[3].json()["max_completion_tokens"], 100);

    let other = Server::new(|_, _| answer("400 Bad Request", &json!({ "error": "max_tokens is too large" }))).await;
    let refused = ask(&*structured(Kind::OpenAi, &other.url()), &request(user("hi"))).await.0.unwrap_err();
    assert!(refused.to_string().ends_with("answers 400: max_tokens is too large"), "{refused}");
    assert_eq!(other.seen().len(), 1);
}
