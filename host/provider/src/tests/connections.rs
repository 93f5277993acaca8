//! Where requests go, with which key, and which settings are none.

use super::*;
use harness_artifact::policy::ProjectPolicy;
use harness_testing::server::{Server, events, json as answer};

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
        (Kind::OpenAi, "/v1", None, "/v1/chat/completions", None),
        (Kind::Copilot, "", named, "/chat/completions", bearer.clone()),
        (
            Kind::Azure,
            "/openai/deployments/d?api-version=2024-10-21",
            named,
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
            key_variable: variable.map(str::to_owned),
            tools: ToolForm::Structured,
            ..settings(kind, &format!("{}{base}", server.url()))
        })
        .await;
        let seen = server.received();
        let [asked] = seen.as_slice() else { panic!("{seen:?}") };
        assert_eq!(asked.path(), path);
        for name in ["authorization", "api-key", "x-api-key"] {
            let wanted = header.as_ref().filter(|(wanted, _)| *wanted == name).map(|(_, value)| value.as_str());
            assert_eq!(asked.header(name), wanted, "{name} of {kind:?} {base}");
        }
    }
}

#[tokio::test]
async fn a_key_that_is_missing_is_named_when_it_is_needed() {
    let why = |settings: Settings, value: Option<&'static str>| async move {
        let provider = connect_with(&settings, Arc::new(move |_| value.map(str::to_owned))).unwrap();
        assert_eq!(provider.abilities("m-1").await.context_tokens, None);
        let (reply, _) = ask(&*provider, &request(user("hi"))).await;
        reply.unwrap_err().to_string()
    };
    let structured = |settings| Settings { tools: ToolForm::Structured, ..settings };
    assert_eq!(
        why(structured(Settings::new(Kind::OpenAi, "m-1")), None).await,
        "the variable `OPENAI_API_KEY` is not set: it holds the key for https://api.openai.com; `api_key_env` names another"
    );
    let server = service().await;
    let named = Settings { key_variable: Some("MINE".to_owned()), ..settings(Kind::OpenAi, &server.url()) };
    for (value, why_not) in [(" \n", "is empty"), ("a b", "holds characters that no key has")] {
        let said = why(structured(named.clone()), Some(value)).await;
        assert_eq!(said, format!("the variable `MINE`, with the key for {}, {why_not}", server.url()));
    }
    assert!(server.received().is_empty());
}

#[test]
fn settings_that_cannot_be_meant_are_refused() {
    let why = |kind, url: Option<&str>| {
        let settings = Settings { base_url: url.map(|url| Url::parse(url).unwrap()), ..Settings::new(kind, "m") };
        connect_with(&settings, keys()).unwrap_err().to_string()
    };
    assert_eq!(why(Kind::Azure, None), "the provider `azure` needs a `base_url`");
    let url = "the `base_url` of the provider `ollama` is not an `http` or `https` URL without user and password";
    for wrong in ["localhost:11434", "file:///etc", "https://me:hunter2@example.com", "https://me@example.com"] {
        assert_eq!(why(Kind::Ollama, Some(wrong)), url);
    }
    assert_eq!(why(Kind::Script, Some("http://x")), "a scripted provider has no service to connect to");
}

/// All keys of `model` in `harness.md` reach the connection, and the key of a service goes to that service alone.
#[test]
fn settings_come_from_harness_md() {
    let read = |keys: &str| {
        let (policy, wrong) = ProjectPolicy::parse("harness.md", &format!("---\nmodel: {{ {keys} }}\n---\n"));
        let models = policy.unwrap_or_else(|| panic!("{wrong:?}")).models;
        Settings::from(models.main.as_ref().unwrap())
    };
    assert_eq!(read("name: m"), Settings::new(Kind::OpenAi, "m"));
    assert_eq!(read("name: m").key_variable.as_deref(), Some("OPENAI_API_KEY"));
    assert_eq!(read("name: m, provider: anthropic").key_variable.as_deref(), Some("ANTHROPIC_API_KEY"));
    let url = || Some(Url::parse("http://127.0.0.1:8080/v1").unwrap());
    let elsewhere = Settings { base_url: url(), key_variable: None, ..Settings::new(Kind::OpenAi, "m") };
    assert_eq!(read("name: m, base_url: \"http://127.0.0.1:8080/v1\""), elsewhere);
    let all = "name: m, provider: ollama, base_url: \"http://127.0.0.1:8080/v1\", api_key_env: MINE, max_tokens: 7, \
               temperature: 0.5, context_tokens: 9, tools: prose, retry: { max_retries: 1, initial_backoff_ms: 2, \
               max_backoff_ms: 3, multiplier: 4.0 }";
    let wanted = Settings {
        base_url: url(),
        key_variable: Some("MINE".to_owned()),
        max_tokens: Some(7),
        temperature: Some(0.5),
        context_tokens: Some(9),
        tools: ToolForm::Prose,
        retry: Retry {
            max_retries: 1,
            initial_backoff: Duration::from_millis(2),
            max_backoff: Duration::from_millis(3),
            multiplier: 4.0,
        },
        ..Settings::new(Kind::Ollama, "m")
    };
    assert_eq!(read(all), wanted);
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
        let body = server.received()[at].json();
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
    let seen = server.received();
    assert_eq!(seen.len(), 4);
    assert_eq!(seen[3].json()["max_completion_tokens"], 100);

    let other = Server::new(|_, _| answer("400 Bad Request", &json!({ "error": "max_tokens is too large" }))).await;
    let refused = ask(&*structured(Kind::OpenAi, &other.url()), &request(user("hi"))).await.0.unwrap_err();
    assert!(refused.to_string().ends_with("answers 400: max_tokens is too large"), "{refused}");
    assert_eq!(other.received().len(), 1);
}

/// From the file to the wire: everything that it says of a model is sent.
#[tokio::test]
async fn a_model_of_harness_md_is_asked_as_the_file_says() {
    let server = service().await;
    let model = |name: &str, more: &str| format!("{{ name: {name}, base_url: \"{}\", {more} }}", server.url());
    let text = format!(
        "---\nmodel: {}\nmodels: [{}, {}]\n---\n",
        model("first", "provider: openai, max_tokens: 7, temperature: 0.5, tools: structured"),
        model("second", "provider: anthropic, max_tokens: 8, temperature: 0.25"),
        model("third", "provider: ollama, max_tokens: 9, context_tokens: 100, tools: none"),
    );
    let (policy, wrong) = ProjectPolicy::parse("harness.md", &text);
    let models = policy.unwrap_or_else(|| panic!("{wrong:?}")).models;
    for model in models.all() {
        let asked = Request {
            model: model.name.value.clone(),
            max_tokens: model.max_tokens.as_ref().map(|most| most.value),
            temperature: model.temperature.as_ref().map(|value| value.value),
            ..request(user("hi"))
        };
        let provider = connect::connect(&Settings::from(model)).unwrap();
        assert_eq!(ask(&*provider, &asked).await.0.unwrap().text, "ok");
    }
    let sent: Vec<_> = server
        .received()
        .into_iter()
        .filter(|asked| asked.head.starts_with("POST"))
        .map(|asked| {
            let body = asked.json();
            let tools = body.get("tools").is_some();
            let of = |names: &[&str]| names.iter().map(|name| body[*name].clone()).collect::<Vec<_>>();
            (asked.path().to_owned(), of(&["model", "max_tokens", "temperature", "options"]), tools)
        })
        .collect();
    let null = serde_json::Value::Null;
    assert_eq!(
        sent,
        [
            ("/chat/completions".to_owned(), vec![json!("first"), json!(7), json!(0.5), null.clone()], true),
            ("/v1/messages".to_owned(), vec![json!("second"), json!(8), json!(0.25), null.clone()], true),
            (
                "/api/chat".to_owned(),
                vec![json!("third"), null.clone(), null, json!({ "num_predict": 9, "num_ctx": 100 })],
                false,
            ),
        ]
    );
}
