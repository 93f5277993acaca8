//! Which revision of the protocol a server speaks: one that names it in each request, or an older one that begins with
//! `initialize`.

use serde_json::{Value as Json, json};

use crate::elicit::capabilities;
use crate::failure::Failure;
use crate::limits::INSTRUCTIONS_BYTES;
use crate::link::Link;
use crate::message::{LEGACY, MODERN, RpcError, UNSUPPORTED_VERSION, client, meta};
use harness_artifact::definition::shown;
use harness_artifact::third_party;

/// A server that is ready for requests.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) link: Link,
    pub(crate) about: About,
}

/// What a server says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct About {
    pub(crate) version: String,
    pub(crate) instructions: Option<String>,
    /// Whether it notifies of changes of its tools.
    pub(crate) notifies: bool,
}

/// Finds out which revision a server speaks. One that ends at the question, does not answer it or answers otherwise is
/// started again, as older servers are not made to be asked.
pub(crate) async fn probe(start: impl AsyncFn() -> Result<Link, Failure>) -> Result<Opened, Failure> {
    let link = start().await?;
    let answered = tokio::select! {
        biased;
        answered = discover(&link) => Some(answered),
        () = link.silence() => None,
    };
    match answered {
        Some(Ok(Some(about))) => return Ok(Opened { link, about: about? }),
        // It may not be asked, whatever it speaks.
        Some(Err(refused @ Failure::Refused { .. })) => return Err(refused),
        _ => {}
    }
    link.kill("it speaks an older revision");
    begin(start().await?, LEGACY.first().copied().unwrap_or_default()).await
}

/// Begins with a server of which the revision is known.
pub(crate) async fn begin(link: Link, version: &str) -> Result<Opened, Failure> {
    let about = if version == MODERN {
        let about = discover(&link).await?;
        about.ok_or_else(|| Failure::Broken(format!("it does not speak {MODERN} any more")))??
    } else {
        initialize(&link, version).await?
    };
    Ok(Opened { link, about })
}

/// The parameters of a request, with what its revision adds.
pub(crate) fn params(version: &str, mut params: Json) -> Json {
    if let (true, Some(params)) = (version == MODERN, params.as_object_mut()) {
        params.insert("_meta".to_owned(), meta());
    }
    params
}

/// What a server of the newest revision says of itself; nothing where it is none.
async fn discover(link: &Link) -> Result<Option<Result<About, Failure>>, Failure> {
    let asked = params(MODERN, json!({}));
    let mut answer = link.request("server/discover", &asked).await?;
    // One that names the revision beside its refusal is asked once more, as the protocol wants it.
    let names_it = |error: &RpcError| {
        let supported = error.data.get("supported").and_then(Json::as_array).into_iter().flatten();
        error.code == UNSUPPORTED_VERSION && supported.into_iter().any(|version| version == MODERN)
    };
    if answer.as_ref().is_err_and(names_it) {
        answer = link.request("server/discover", &asked).await?;
    }
    let Ok(result) = answer else { return Ok(None) };
    let versions = result.get("supportedVersions").and_then(Json::as_array).into_iter().flatten();
    let speaks = versions.into_iter().any(|version| version == MODERN);
    Ok(speaks.then(|| about(&result, MODERN)))
}

async fn initialize(link: &Link, version: &str) -> Result<About, Failure> {
    let asked =
        json!({"protocolVersion": version, "capabilities": capabilities(link.can_ask()), "clientInfo": client()});
    let result = link.request("initialize", &asked).await?.map_err(|error| {
        let why = third_party::line(&error.message);
        Failure::Said(format!("it does not begin: {why} ({})", error.code))
    })?;
    let spoken = result.get("protocolVersion").and_then(Json::as_str).unwrap_or_default();
    if !LEGACY.contains(&spoken) {
        let shown = third_party::name(spoken);
        return Err(Failure::Broken(format!("it speaks the revision {shown:?}, which is not known")));
    }
    let about = about(&result, spoken)?;
    link.notify("notifications/initialized", &json!({})).await;
    Ok(about)
}

fn about(result: &Json, version: &str) -> Result<About, Failure> {
    let Some(tools) = result.get("capabilities").and_then(|can| can.get("tools")) else {
        return Err(Failure::Broken("it has no tools".to_owned()));
    };
    let instructions = match result.get("instructions") {
        None | Some(Json::Null) => None,
        Some(Json::String(text)) if text.len() <= INSTRUCTIONS_BYTES => Some(text.clone()),
        Some(Json::String(_)) => {
            return Err(Failure::Broken(format!("its instructions have over {INSTRUCTIONS_BYTES} bytes")));
        }
        Some(_) => return Err(Failure::Broken("its instructions are no text".to_owned())),
    };
    if let Some(Err(why)) = instructions.as_deref().map(shown) {
        return Err(Failure::Broken(format!("its instructions: {why}")));
    }
    let notifies = tools.get("listChanged") == Some(&Json::Bool(true));
    Ok(About { version: version.to_owned(), instructions, notifies })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_of_itself() {
        let ok = json!({"capabilities": {"tools": {"listChanged": true}}, "instructions": "Be kind."});
        let want = About { version: "v".to_owned(), instructions: Some("Be kind.".to_owned()), notifies: true };
        assert_eq!(about(&ok, "v"), Ok(want));
        let plain = About { version: "v".to_owned(), instructions: None, notifies: false };
        assert_eq!(about(&json!({"capabilities": {"tools": {}}}), "v"), Ok(plain));
        let with =
            |instructions: Json| about(&json!({"capabilities": {"tools": {}}, "instructions": instructions}), "v");
        for (instructions, why) in [
            (json!(1), "its instructions are no text".to_owned()),
            (json!("x".repeat(INSTRUCTIONS_BYTES + 1)), "its instructions have over 65536 bytes".to_owned()),
            (json!("a\u{202e}b"), "its instructions: its definition has the hidden character U+202E".to_owned()),
        ] {
            assert_eq!(with(instructions), Err(Failure::Broken(why)));
        }
        assert!(with(json!("x".repeat(INSTRUCTIONS_BYTES))).is_ok());
        assert_eq!(about(&json!({"capabilities": {}}), "v"), Err(Failure::Broken("it has no tools".to_owned())));
    }

    #[test]
    fn only_the_newest_revision_names_itself_in_each_request() {
        assert_eq!(params("2025-11-25", json!({"a": 1})), json!({"a": 1}));
        assert_eq!(params(MODERN, json!({"a": 1})), json!({"a": 1, "_meta": meta()}));
    }
}
