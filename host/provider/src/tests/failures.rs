//! What goes wrong on the way, and that nothing of it shows a key.

use std::time::Instant;

use tokio::net::TcpListener;

use super::*;
use harness_testing::server::{Server, Step, events, head, json as answer};

const HALF: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"half\"}}]}\n\n";
const END: &str = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n";

/// The error of an answer, with the address of the service taken out.
async fn error_of(server: &Server, settings: Settings) -> String {
    let (reply, _) = ask(&*provider(&settings), &request(user("hi"))).await;
    let error = reply.unwrap_err();
    assert!(!format!("{error:?} {error}").contains(KEY), "{error:?}");
    error.to_string().replace(&server.url(), "SERVICE")
}

fn plain(server: &Server) -> Settings {
    Settings { tools: ToolForm::Structured, ..settings(Kind::OpenAi, &server.url()) }
}

/// Asks again with more time where the service seemed silent: a busy machine can hold up its answer.
async fn patiently(ask: impl AsyncFn(u32) -> Result<Reply, ProviderError>) -> Result<Reply, ProviderError> {
    for times in [1, 4, 16] {
        match ask(times).await {
            Err(error) if error.to_string().contains(" is silent for ") => {}
            reply => return reply,
        }
    }
    ask(64).await
}

async fn answered(status: &'static str, headers: &'static str, body: &'static str) -> (String, bool) {
    let server =
        Server::new(move |_, _| vec![head(status, "x/y", headers), Step::Send(body.as_bytes().to_vec())]).await;
    let (reply, _) = ask(&*provider(&plain(&server)), &request(user("hi"))).await;
    let error = reply.unwrap_err();
    (error.to_string().replace(&server.url(), "SERVICE"), error.is_retryable())
}

#[tokio::test]
async fn a_refusal_says_what_the_service_says() {
    let openai = r#"{"error":{"message":"no such model","type":"invalid_request_error"}}"#;
    let anthropic = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    for (status, headers, body, wanted, again) in [
        ("400 Bad Request", "", openai, "400: no such model", false),
        ("404 Not Found", "", r#"{"error":"model 'x' not found"}"#, "404: model 'x' not found", false),
        ("529 Busy", "", anthropic, "529: Overloaded", true),
        ("429 Slow", "retry-after: 7\r\n", "{}", "429: {}; it wants to be asked again in 7 s", true),
        ("500 Oops", "", "<p>oops</p>", "500: <p>oops</p>", true),
        ("503 Down", "", "", "503: Service Unavailable", true),
        (
            "401 Who",
            "",
            " \n",
            "401: Unauthorized; no key was sent: `api_key_env` of the model names the variable that has one",
            false,
        ),
    ] {
        let (said, retryable) = answered(status, headers, body).await;
        assert_eq!(said, format!("SERVICE answers {wanted}"), "{body:?}");
        assert_eq!(retryable, again, "{wanted}");
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let other = Server::new(|_, _| events(END)).await;
    let to = format!("location: {}/x\r\n", other.url());
    for status in ["302 Found", "307 Temporary Redirect", "308 Permanent Redirect"] {
        let to = to.clone();
        let server = Server::new(move |_, _| vec![head(status, "x/y", &to)]).await;
        let settings = Settings { key_variable: Some("A_KEY".to_owned()), ..plain(&server) };
        let said = error_of(&server, settings).await;
        let code = &status[..3];
        assert_eq!(
            said,
            format!("SERVICE answers {code}: redirects are not followed; this one is to {}/x", other.url())
        );
    }
    assert!(other.received().is_empty());
}

#[tokio::test]
async fn a_key_that_a_service_says_back_is_hidden_everywhere() {
    let keyed = |server: &Server| Settings { key_variable: Some("A_KEY".to_owned()), ..plain(server) };
    for body in [
        format!("{{\"error\":{{\"message\":\"wrong key {KEY}\"}}}}"),
        format!("wrong key {KEY}"),
        format!("{{\"error\":\"wrong key {}\"}}", KEY.replace("Zq3v8LmT0x", "****")),
    ] {
        let server = Server::new(move |_, _| {
            vec![head("401 Unauthorized", "application/json", ""), Step::Send(body.clone().into_bytes())]
        })
        .await;
        let said = error_of(&server, keyed(&server)).await;
        assert!(said.starts_with("SERVICE answers 401: wrong key [key]"), "{said}");
        assert!(!said.contains("YwR5kB") && !said.contains("5RkB"), "{said}");
    }
    let error = format!("data: {{\"error\":{{\"message\":\"wrong {KEY}\",\"code\":401}}}}\n\n");
    let server = Server::new(move |_, _| events(&error)).await;
    assert_eq!(error_of(&server, keyed(&server)).await, "SERVICE answers 401: wrong [key]");
    let odd = format!("data: {{\"id\":{{\"{KEY}\":1}}}}\n\n");
    let server = Server::new(move |_, _| events(&odd)).await;
    assert!(error_of(&server, keyed(&server)).await.starts_with("the reply of SERVICE cannot be read"));
    // A reply too.
    let body = json!({ "id": KEY, "model": KEY, "choices": [{ "message": { "content": format!("it is {KEY}!"), "tool_calls": [
        { "id": KEY, "function": { "name": KEY, "arguments": format!("{{\"a\":\"{KEY}\"}}") } } ] }, "finish_reason": KEY }] });
    let server = Server::new(move |_, _| answer("200 OK", &body)).await;
    let (reply, _) = ask(&*provider(&keyed(&server)), &request(user("hi"))).await;
    let reply = reply.unwrap();
    assert_eq!(reply.text, "it is [key]!");
    assert!(!format!("{reply:?}").contains(KEY));
    assert!(!format!("{:?}", provider(&keyed(&server))).contains(KEY));
}

#[tokio::test]
async fn a_long_refusal_is_cut() {
    let server = Server::new(|_, _| vec![head("500 Oops", "x/y", ""), Step::Repeat(b"no! ".to_vec())]).await;
    let said = error_of(&server, plain(&server)).await;
    assert_eq!(said.len(), "SERVICE answers 500: ".len() + 2048 + '…'.len_utf8());
}

#[tokio::test]
async fn a_cut_connection_is_an_error() {
    let length = |length: usize| head("200 OK", "text/event-stream", &format!("content-length: {length}\r\n"));
    // The connection ends as it should, and the reply does not.
    let server = Server::new(|_, _| events(HALF)).await;
    assert_eq!(error_of(&server, plain(&server)).await, "the reply of SERVICE was cut: it ended without saying why");
    let server = Server::new(|_, _| events("")).await;
    assert_eq!(error_of(&server, plain(&server)).await, "the reply of SERVICE was cut: it ended without saying why");
    // The connection breaks.
    let server = Server::new(move |_, _| vec![length(1000), Step::Send(HALF.as_bytes().to_vec())]).await;
    let said = error_of(&server, plain(&server)).await;
    assert!(said.starts_with("the reply of SERVICE was cut: "), "{said}");
    let server = Server::new(|_, _| vec![]).await;
    let said = error_of(&server, plain(&server)).await;
    assert!(said.starts_with("cannot reach SERVICE: "), "{said}");
    // In one piece.
    for whole in [true, false] {
        let body = json!({ "choices": [{ "message": { "content": "x" }, "finish_reason": "stop" }] }).to_string();
        let sent = if whole { body.len() } else { body.len() / 2 };
        let server = Server::new(move |_, _| {
            vec![head("200 OK", "application/json", ""), Step::Send(body.as_bytes()[..sent].to_vec())]
        })
        .await;
        let (reply, _) = ask(&*provider(&plain(&server)), &request(user("hi"))).await;
        assert_eq!(reply.is_ok(), whole, "{reply:?}");
        assert!(whole || matches!(reply, Err(ProviderError::Cut { .. })));
    }
}

#[tokio::test]
async fn what_comes_after_a_whole_reply_does_not_matter() {
    let said = format!("{HALF}{END}");
    let broken = said.clone();
    let server = Server::new(move |_, _| {
        let head = head("200 OK", "text/event-stream", "content-length: 100000\r\n");
        vec![head, Step::Send(broken.clone().into_bytes())]
    })
    .await;
    assert_eq!(ask(&*provider(&plain(&server)), &request(user("hi"))).await.0.unwrap().text, "half");
    // Nothing more comes, and the connection stays: waiting is over long before the service would be called silent.
    let server = Server::new(move |_, _| {
        let mut steps = events(&said);
        steps.push(Step::Hang);
        steps
    })
    .await;
    let reply = patiently(async |times| {
        let settings = Settings { idle: Some(Duration::from_millis(200) * times), ..plain(&server) };
        ask(&*provider(&settings), &request(user("hi"))).await.0
    })
    .await;
    assert_eq!(reply.unwrap().text, "half");
    // After the last event nothing is read.
    let endless = Server::new(|_, _| {
        let mut steps = events(&format!("{HALF}{END}data: [DONE]\n\n"));
        steps.push(Step::Repeat(vec![b'x'; 4096]));
        steps
    })
    .await;
    assert_eq!(ask(&*provider(&plain(&endless)), &request(user("hi"))).await.0.unwrap().text, "half");
}

#[tokio::test]
async fn a_service_that_says_nothing_is_given_up() {
    for start in [vec![], vec![head("200 OK", "text/event-stream", "")], events(HALF)] {
        let start = std::sync::Mutex::new(start);
        let server = Server::new(move |_, _| {
            let mut steps = std::mem::take(&mut *start.lock().unwrap());
            steps.push(Step::Hang);
            steps
        })
        .await;
        let settings = Settings { idle: Some(Duration::from_millis(300)), ..plain(&server) };
        assert_eq!(error_of(&server, settings).await, "SERVICE is silent for 0 s");
        server.ended().await;
    }
}

#[tokio::test]
async fn a_service_that_is_slow_is_not_silent() {
    let reply = patiently(async |times| {
        let server = Server::new(move |_, _| {
            let wait = || Step::Wait(Duration::from_millis(150) * times);
            let comment = || Step::Send(b": still here\n".to_vec());
            let mut steps = vec![wait(), head("200 OK", "text/event-stream", "")];
            for _ in 0..20 {
                steps.extend([wait(), comment()]);
            }
            steps.push(Step::Send(format!("{HALF}{END}").into_bytes()));
            steps
        })
        .await;
        // Together it takes longer than any silence may.
        let settings = Settings { idle: Some(Duration::from_millis(2500) * times), ..plain(&server) };
        ask(&*provider(&settings), &request(user("hi"))).await.0
    })
    .await;
    assert_eq!(reply.unwrap().text, "half");
}

#[tokio::test]
async fn a_hostile_service_is_given_up_at_the_caps() {
    let delta = format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}\"}}}}]}}\n\n", "x".repeat(60_000));
    for (repeated, why) in [
        (delta.into_bytes(), "it holds more than 16777216 bytes"),
        (vec![b'x'; 60_000], "a line is longer than 4194304 bytes"),
        (
            b"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"function\":{\"name\":\"x\"}}]}}]}\n\n".to_vec(),
            "it has more than 128 calls",
        ),
    ] {
        let server =
            Server::new(move |_, _| vec![head("200 OK", "text/event-stream", ""), Step::Repeat(repeated.clone())])
                .await;
        assert_eq!(error_of(&server, plain(&server)).await, format!("the reply of SERVICE cannot be read: {why}"));
        server.ended().await;
    }
}

#[tokio::test]
async fn a_service_that_is_not_there_cannot_be_reached() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let (reply, _) = ask(&*structured(Kind::OpenAi, &url), &request(user("hi"))).await;
    let error = reply.unwrap_err();
    assert!(error.is_retryable());
    assert_eq!(error.to_string(), format!("cannot reach {url}: Connection refused (os error 111)"));
}

#[tokio::test]
async fn a_service_that_fails_for_a_moment_is_asked_again() {
    let server = Server::new(|_, at| match at {
        0 => answer("503 Down", &json!({ "error": "down" })),
        1 => events(HALF),
        _ => events(&format!("{HALF}{END}")),
    })
    .await;
    let retry = Retry { max_retries: 2, initial_backoff: Duration::from_millis(1), ..Retry::default() };
    let provider = provider(&Settings { retry, ..plain(&server) });
    let mut told = Vec::new();
    let asked = request(user("hi"));
    let reply = provider
        .complete(&asked, &mut |delta| {
            told.push(match delta {
                Delta::Text(text) => text.to_owned(),
                Delta::Retry { error, attempt, of, .. } => {
                    format!("{attempt} of {of}: {}", error.to_string().replace(&server.url(), "SERVICE"))
                }
                Delta::Silent { .. } => "silent".to_owned(),
            });
        })
        .await;
    assert_eq!(reply.unwrap().text, "half");
    let cut = "3 of 3: the reply of SERVICE was cut: it ended without saying why";
    assert_eq!(told, ["2 of 3: SERVICE answers 503: down", "half", cut, "half"]);
    let bodies: Vec<String> = server.received().into_iter().map(|asked| asked.body).collect();
    assert!(bodies.len() == 3 && bodies.iter().all(|body| *body == bodies[0]));
}

/// What Ctrl-C does: the future is dropped. The connection is closed, so that the service stops, and the provider works.
#[tokio::test]
async fn a_request_that_is_given_up_closes_its_connection_and_leaves_the_provider_usable() {
    let server = Server::new(|_, at| {
        let mut steps = events(HALF);
        steps.push(if at < 2 { Step::Hang } else { Step::Send(END.as_bytes().to_vec()) });
        steps
    })
    .await;
    let provider = provider(&plain(&server));
    for _ in 0..2 {
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let asked = request(user("hi"));
        let mut heard = move |_: Delta<'_>| tell.send(()).unwrap();
        let reply = provider.complete(&asked, &mut heard);
        tokio::select! {
            _ = told.recv() => {}
            ended = reply => panic!("{ended:?}"),
        }
        server.ended().await;
    }
    assert_eq!(ask(&*provider, &request(user("hi"))).await.0.unwrap().text, "half");
    // A pause before another attempt is given up as well.
    let down = Server::new(|_, _| answer("503 Down", &json!({}))).await;
    let slow = Retry { initial_backoff: Duration::from_secs(30), ..Retry::default() };
    let provider = super::provider(&Settings { retry: slow, ..plain(&down) });
    let start = Instant::now();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    let asked = request(user("hi"));
    let mut heard = move |_: Delta<'_>| tell.send(()).unwrap();
    tokio::select! {
        _ = told.recv() => {}
        ended = provider.complete(&asked, &mut heard) => panic!("{ended:?}"),
    }
    assert!(start.elapsed() < Duration::from_secs(20));
}
