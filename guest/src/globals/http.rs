//! `http.get`, `http.post`, `http.request`.

use starlark::environment::GlobalsBuilder;
use starlark::starlark_module;
use starlark::values::dict::UnpackDictEntries;
use starlark::values::float::UnpackFloat;
use starlark::values::none::NoneOr;
use starlark::values::{Heap, Value};

use super::{ImportError, import};
use crate::bindings::harness::sandbox::http;
use crate::phase::{self, Needs};
use crate::record::{Headers, dict};
use crate::value;

/// The original's default, for a time-out that is left out, zero or negative.
const DEFAULT_SECONDS: f64 = 30.0;

pub(crate) fn register(builder: &mut GlobalsBuilder) {
    builder.namespace("http", functions);
}

/// The arguments that every form takes.
type HeaderArguments = UnpackDictEntries<String, String>;

#[starlark_module]
fn functions(builder: &mut GlobalsBuilder) {
    /// A dict `status, ok, url, body, headers`, whatever the status.
    fn get<'v>(
        url: &str,
        #[starlark(default = HeaderArguments::default())] headers: UnpackDictEntries<String, String>,
        #[starlark(default = UnpackFloat(DEFAULT_SECONDS))] timeout_seconds: UnpackFloat,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        send("http.get", "GET", url, None, headers, timeout_seconds, heap)
    }

    fn post<'v>(
        url: &str,
        #[starlark(default = NoneOr::None)] body: NoneOr<Value<'v>>,
        #[starlark(default = HeaderArguments::default())] headers: UnpackDictEntries<String, String>,
        #[starlark(default = UnpackFloat(DEFAULT_SECONDS))] timeout_seconds: UnpackFloat,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        send("http.post", "POST", url, body.into_option(), headers, timeout_seconds, heap)
    }

    fn request<'v>(
        method: &str,
        url: &str,
        #[starlark(default = NoneOr::None)] body: NoneOr<Value<'v>>,
        #[starlark(default = HeaderArguments::default())] headers: UnpackDictEntries<String, String>,
        #[starlark(default = UnpackFloat(DEFAULT_SECONDS))] timeout_seconds: UnpackFloat,
        heap: Heap<'v>,
    ) -> anyhow::Result<Value<'v>> {
        send("http.request", method, url, body.into_option(), headers, timeout_seconds, heap)
    }
}

fn send<'v>(
    builtin: &str,
    method: &str,
    url: &str,
    body: Option<Value<'v>>,
    headers: HeaderArguments,
    timeout_seconds: UnpackFloat,
    heap: Heap<'v>,
) -> anyhow::Result<Value<'v>> {
    phase::check(builtin, Needs::Any)?;
    let mut headers = headers.entries;
    let body = body.map(|body| text_of_body(body, &mut headers)).transpose()?;
    let request = http::Request {
        method: method.to_owned(),
        url: url.to_owned(),
        headers,
        body,
        timeout_ms: milliseconds(timeout_seconds.0),
    };
    let response = import(builtin, http::send(&request))?;
    Ok(dict(
        heap,
        [
            ("status", heap.alloc(i32::from(response.status))),
            ("ok", heap.alloc((200..300).contains(&response.status))),
            ("url", heap.alloc(response.url)),
            ("body", heap.alloc(response.body)),
            ("headers", heap.alloc(Headers(response.headers))),
        ],
    ))
}

/// A string goes as it is; anything else goes as JSON, and says so unless the script says otherwise.
fn text_of_body(body: Value<'_>, headers: &mut Vec<(String, String)>) -> anyhow::Result<String> {
    if let Some(text) = body.unpack_str() {
        return Ok(text.to_owned());
    }
    if !headers.iter().any(|(name, _)| name.eq_ignore_ascii_case("content-type")) {
        headers.push(("content-type".to_owned(), "application/json".to_owned()));
    }
    Ok(value::to_json(body)?.to_string())
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to the import's range")]
fn milliseconds(seconds: f64) -> u32 {
    let seconds = if seconds > 0.0 { seconds } else { DEFAULT_SECONDS };
    (seconds * 1000.0).ceil().clamp(1.0, 600_000.0) as u32
}

impl ImportError for http::Error {
    fn tell(self) -> (String, bool) {
        let text = match self {
            Self::AccessDenied(denial) => return (denial.reason, true),
            Self::InvalidUrl(why) | Self::InvalidRequest(why) | Self::Connection(why) => why,
            Self::TooLarge(cap) => format!("the answer is larger than {cap} bytes"),
            Self::Timeout(ms) => format!("no complete answer within {ms} ms"),
            Self::TooManyRedirects => "more than five redirects".to_owned(),
        };
        (text, false)
    }
}
