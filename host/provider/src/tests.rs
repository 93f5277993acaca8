//! Providers as they are used, with a real service on the loopback interface.

mod connections;
mod failures;
mod flow;
mod formats;
mod toolless;

use std::sync::Arc;

use serde_json::json;
use url::Url;

use super::connect::{Variables, connect_with};

use super::settings::Settings;
use super::*;
use harness_artifact::model::{Provider as Kind, Retry, ToolForm};

const KEY: &str = "sk-test-Zq3v8LmT0xYw5RkB";

/// An environment in which every variable that ends in `_KEY` or `_TOKEN` is set.
fn keys() -> Variables {
    Arc::new(|name| (name.ends_with("_KEY") || name.ends_with("_TOKEN")).then(|| KEY.to_owned()))
}

/// Settings for a service of a test: no second attempt, and no patience.
fn settings(kind: Kind, url: &str) -> Settings {
    Settings {
        base_url: Some(Url::parse(url).unwrap()),
        key_variable: None,
        retry: Retry { max_retries: 0, ..Retry::default() },
        idle: Some(Duration::from_secs(20)),
        ..Settings::new(kind, "m-1")
    }
}

fn provider(settings: &Settings) -> Box<dyn Provider> {
    connect_with(settings, keys()).unwrap()
}

/// A provider that is asked with the tools that a request has, and nothing else first.
fn structured(kind: Kind, url: &str) -> Box<dyn Provider> {
    provider(&Settings { tools: ToolForm::Structured, ..settings(kind, url) })
}

fn request(messages: Vec<Message>) -> Request {
    Request {
        model: "m-1".to_owned(),
        messages,
        tools: vec![ToolSchema {
            name: "read_file".to_owned(),
            description: "Read a file.".to_owned(),
            parameters: json!({ "type": "object", "properties": { "path": { "type": "string" } }, "required": ["path"] }),
        }],
        max_tokens: Some(100),
        temperature: Some(0.5),
        agent: String::new(),
    }
}

fn user(text: &str) -> Vec<Message> {
    vec![Message::User(text.to_owned())]
}

fn call(id: &str, name: &str, arguments: &str) -> ToolCall {
    ToolCall { id: id.to_owned(), name: name.to_owned(), arguments: arguments.to_owned() }
}

fn used(input_tokens: u64, output_tokens: u64) -> Option<Usage> {
    Some(Usage { input_tokens, output_tokens })
}

/// A reply, and the text that was reported before it ended.
async fn ask(provider: &dyn Provider, request: &Request) -> (Result<Reply, ProviderError>, String) {
    let mut told = String::new();
    let reply = provider
        .complete(request, &mut |delta| {
            if let Delta::Text(text) = delta {
                told.push_str(text);
            }
        })
        .await;
    (reply, told)
}
