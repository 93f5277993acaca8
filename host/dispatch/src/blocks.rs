//! Content of a result that is more than a value: blocks of text, images, audio, resources and links.
//!
//! A script makes them with `content.*`, and hooks on `tool.post` may. What either says is checked here, by the host.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use serde_json::{Number, Value as Json, json};

use super::content::cut;
use harness_capability::secrets::Vault;
use harness_policy::text::quoted;

/// What the interpreter writes before content, and before no other value: no JSON begins with it.
pub(super) const MARK: &str = "content ";
/// Blocks of a result.
pub const MAX_BLOCKS: usize = 100;
/// Bytes of the URI of a block.
const MAX_URI: usize = 4096;
/// Bytes of the name of a link.
const MAX_NAME: usize = 256;
/// Bytes of the description of a link.
const MAX_DESCRIPTION: usize = 2048;
/// Bytes of a media type.
const MAX_MIME: usize = 255;

/// One block. In JSON it has a `type`, and the keys of the constructor of that name in scripts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
pub enum Block {
    /// Text.
    Text {
        /// The text.
        text: String,
        /// Who it is for: nobody in particular if this is empty.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        audience: Vec<Audience>,
        /// How much it matters, from 0 to 1.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        priority: Option<Number>,
    },
    /// An image.
    Image {
        /// Its media type, `image/...`.
        mime: String,
        /// Its bytes, as base64 with padding.
        data: String,
    },
    /// A sound.
    Audio {
        /// Its media type, `audio/...`.
        mime: String,
        /// Its bytes, as base64 with padding.
        data: String,
    },
    /// A resource, with what is in it: `text` or `blob`.
    Resource {
        /// Its name, absolute.
        uri: String,
        /// Its media type.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mime: Option<String>,
        /// Its text.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        /// Its bytes, as base64 with padding.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        blob: Option<String>,
    },
    /// A resource that is elsewhere.
    Link {
        /// Its name, absolute.
        uri: String,
        /// What to call it.
        name: String,
        /// What it is.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
        /// Its media type.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mime: Option<String>,
    },
}

/// Whom a text is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Audience {
    /// The person.
    User,
    /// The model.
    Assistant,
}

/// The content of a result.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Content {
    /// In order.
    pub blocks: Vec<Block>,
    /// Whether the tool gave a value with it, which is then the result.
    pub structured: bool,
}

/// What a script has returned.
pub(super) enum Returned {
    Value(Json),
    Content(Whole),
}

/// Content as the interpreter writes it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Whole {
    blocks: Json,
    #[serde(default)]
    pub(super) structured: Option<Json>,
    pub(super) error: bool,
}

impl Returned {
    /// Reads what the interpreter has written.
    pub(super) fn read(text: &str) -> Result<Self, serde_json::Error> {
        match text.strip_prefix(MARK) {
            Some(whole) => serde_json::from_str(whole).map(Self::Content),
            None => serde_json::from_str(text).map(Self::Value),
        }
    }
}

impl Whole {
    pub(super) fn blocks(&self, vault: &Vault) -> Result<Vec<Block>, String> {
        read(&self.blocks, vault)
    }
}

/// Reads blocks, checks them, and puts notes instead of secrets. Errors say which block is wrong, from 0.
pub(super) fn read(given: &Json, vault: &Vault) -> Result<Vec<Block>, String> {
    let Json::Array(given) = given else { return Err("`blocks` must be a list".to_owned()) };
    if given.len() > MAX_BLOCKS {
        return Err(format!("{} blocks are more than {MAX_BLOCKS}", given.len()));
    }
    let block = |(at, given): (usize, &Json)| {
        let wrong = |why: String| format!("block {at}: {why}");
        let mut block: Block = serde_json::from_value(given.clone()).map_err(|error| wrong(error.to_string()))?;
        block.check().and_then(|()| block.redact(vault)).map_err(wrong)?;
        Ok(block)
    };
    given.iter().enumerate().map(block).collect()
}

/// Blocks as hooks, programs and `--json` see them.
pub fn as_json(blocks: &[Block]) -> Json {
    // Nothing here has keys that are no strings.
    serde_json::to_value(blocks).unwrap_or_default()
}

/// What a model gets of blocks: texts as they are, and a line for each that it cannot read.
pub fn text_of(blocks: &[Block]) -> String {
    blocks.iter().map(Block::shown).collect::<Vec<_>>().join("\n")
}

/// The value of a result that is nothing but this text.
pub(super) fn result_of(text: &str, is_error: bool) -> Json {
    if is_error { json!({ "error": text }) } else { text.into() }
}

/// Cuts texts, the last ones first, so that all blocks together have `cap` bytes at most. Whether some were.
///
/// # Errors
///
/// That the data alone is more: it cannot be cut.
pub(super) fn fit(blocks: &mut [Block], cap: u64) -> Result<bool, String> {
    let data = blocks.iter().filter_map(Block::data).fold(0_u64, |all, data| all.saturating_add(data.len() as u64));
    let mut left = cap
        .checked_sub(data)
        .ok_or_else(|| format!("its data has {data} bytes, over the limit `limits.output_bytes` of {cap} bytes"))?;
    let mut truncated = false;
    for text in blocks.iter_mut().filter_map(Block::text_mut) {
        let (kept, was_cut) = cut(std::mem::take(text), left);
        left = left.saturating_sub(kept.len() as u64);
        truncated |= was_cut;
        *text = kept;
    }
    Ok(truncated)
}

/// Bytes that blocks take.
pub(super) fn size(blocks: &[Block]) -> usize {
    let of = |block: &Block| {
        let texts = block.texts().map(String::len).sum::<usize>();
        texts.saturating_add(block.data().map_or(0, str::len)).saturating_add(size_of::<Block>())
    };
    blocks.iter().map(of).sum()
}

impl Block {
    /// Text for nobody in particular.
    pub fn text(text: String) -> Self {
        Self::Text { text, audience: Vec::new(), priority: None }
    }

    /// The word for it in JSON, and the name of its constructor.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Text { .. } => "text",
            Self::Image { .. } => "image",
            Self::Audio { .. } => "audio",
            Self::Resource { .. } => "resource",
            Self::Link { .. } => "link",
        }
    }

    /// Its bytes as base64, where it has any.
    pub fn data(&self) -> Option<&str> {
        match self {
            Self::Image { data, .. } | Self::Audio { data, .. } => Some(data),
            Self::Resource { blob, .. } => blob.as_deref(),
            Self::Text { .. } | Self::Link { .. } => None,
        }
    }

    /// Its text, where it is text, else one line that says what it is.
    pub fn shown(&self) -> String {
        let bytes = self.data().map_or(0, |data| STANDARD.decode(data).map_or(0, |bytes| bytes.len()));
        match self {
            Self::Text { text, .. } => text.clone(),
            Self::Image { mime, .. } | Self::Audio { mime, .. } => {
                format!("[{}: {mime}, {bytes} bytes]", self.kind())
            }
            Self::Resource { uri, text: Some(text), .. } => format!("[resource: {uri}]\n{text}"),
            Self::Resource { uri, mime, .. } => {
                let mime = mime.as_ref().map(|mime| format!(", {mime}")).unwrap_or_default();
                format!("[resource: {uri}{mime}, {bytes} bytes]")
            }
            Self::Link { uri, name, .. } => format!("[link: {name}, {uri}]"),
        }
    }

    fn text_mut(&mut self) -> Option<&mut String> {
        match self {
            Self::Text { text, .. } => Some(text),
            Self::Resource { text, .. } => text.as_mut(),
            Self::Image { .. } | Self::Audio { .. } | Self::Link { .. } => None,
        }
    }

    fn texts(&self) -> impl Iterator<Item = &String> {
        let (required, optional): ([Option<&String>; 2], [Option<&String>; 2]) = match self {
            Self::Text { text, .. } => ([Some(text), None], [None, None]),
            Self::Image { mime, .. } | Self::Audio { mime, .. } => ([Some(mime), None], [None, None]),
            Self::Resource { uri, mime, text, .. } => ([Some(uri), None], [mime.as_ref(), text.as_ref()]),
            Self::Link { uri, name, description, mime } => {
                ([Some(uri), Some(name)], [description.as_ref(), mime.as_ref()])
            }
        };
        required.into_iter().chain(optional).flatten()
    }

    fn check(&self) -> Result<(), String> {
        if let Some(data) = self.data() {
            let decoded = STANDARD.decode(data).map_err(|error| format!("its data is not base64: {error}"))?;
            if decoded.is_empty() {
                return Err("its data is empty".to_owned());
            }
        }
        match self {
            Self::Text { priority, .. } => match priority.as_ref().map(Number::as_f64) {
                None => Ok(()),
                Some(Some(priority)) if (0.0..=1.0).contains(&priority) => Ok(()),
                Some(_) => Err("`priority` must be from 0 to 1".to_owned()),
            },
            Self::Image { mime, .. } | Self::Audio { mime, .. } => {
                check_mime(mime)?;
                let of_kind = mime.split_once('/').is_some_and(|(kind, _)| kind.eq_ignore_ascii_case(self.kind()));
                if of_kind { Ok(()) } else { Err(format!("`mime` must begin with `{}/`", self.kind())) }
            }
            Self::Resource { uri, mime, text, blob } => {
                check_uri(uri)?;
                mime.as_deref().map_or(Ok(()), check_mime)?;
                if text.is_some() == blob.is_some() {
                    return Err("it must have `text` or `blob`, and not both".to_owned());
                }
                Ok(())
            }
            Self::Link { uri, name, description, mime } => {
                check_uri(uri)?;
                mime.as_deref().map_or(Ok(()), check_mime)?;
                if name.is_empty() || name.len() > MAX_NAME {
                    return Err(format!("`name` must have 1 to {MAX_NAME} bytes"));
                }
                if description.as_ref().is_some_and(|description| description.len() > MAX_DESCRIPTION) {
                    return Err(format!("`description` must have at most {MAX_DESCRIPTION} bytes"));
                }
                Ok(())
            }
        }
    }

    /// Puts notes instead of secrets in texts. Data with a secret is refused, as no note fits there.
    fn redact(&mut self, vault: &Vault) -> Result<(), String> {
        if !vault.scans() {
            return Ok(());
        }
        if let Some(data) = self.data() {
            let decoded = STANDARD.decode(data).unwrap_or_default();
            let found = vault.find(data).or_else(|| vault.find(&String::from_utf8_lossy(&decoded)));
            if let Some(name) = found {
                return Err(format!("its data holds the secret {}", quoted(name)));
            }
        }
        match self {
            Self::Text { text, .. } => vault.redact(text),
            Self::Image { mime, .. } | Self::Audio { mime, .. } => vault.redact(mime),
            Self::Resource { uri, mime, text, .. } => {
                vault.redact(uri);
                mime.iter_mut().chain(text).for_each(|text| vault.redact(text));
            }
            Self::Link { uri, name, description, mime } => {
                [uri, name].into_iter().chain(description).chain(mime).for_each(|text| vault.redact(text));
            }
        }
        Ok(())
    }
}

/// The form of a media type (RFC 6838, section 4.2): two names and parameters.
fn check_mime(mime: &str) -> Result<(), String> {
    let is_name = |name: &str| {
        let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
        first && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte))
    };
    let (essence, parameters) = mime.split_once(';').unwrap_or((mime, ""));
    let is_type = essence.trim_end().split_once('/').is_some_and(|(kind, name)| is_name(kind) && is_name(name));
    let is_plain = parameters.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    if is_type && is_plain && mime.len() <= MAX_MIME {
        return Ok(());
    }
    Err(format!("`mime` is not a media type such as `image/png`: {}", quoted(mime)))
}

/// The form of an absolute URI (RFC 3986, section 3): a scheme, and no character that is not printable.
fn check_uri(uri: &str) -> Result<(), String> {
    let is_scheme = |scheme: &str| {
        let first = scheme.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic());
        first && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    };
    let is_absolute = uri.split_once(':').is_some_and(|(scheme, rest)| is_scheme(scheme) && !rest.is_empty());
    if is_absolute && uri.len() <= MAX_URI && !uri.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Ok(());
    }
    Err(format!("`uri` is not an absolute URI such as `file:///report.txt`: {}", quoted(uri)))
}

#[cfg(test)]
mod tests {
    use harness_artifact::policy::ProjectPolicy;
    use harness_capability::secrets::Given;

    use super::*;

    fn vault(values: &[(&str, &str)]) -> Vault {
        let names: Vec<String> = values.iter().map(|(name, _)| format!("{name}: {{ env: {name} }}")).collect();
        let text = format!("---\nsandbox: {{ secrets: {{ {} }} }}\n---\n", names.join(", "));
        let (policy, _) = ProjectPolicy::parse(".harness/harness.md", &text);
        let secrets = policy.unwrap().secrets.into_iter().zip(values);
        Vault::of(secrets.map(|(secret, (_, value))| (secret.value, Given::text(value))).collect())
    }

    fn read_one(block: Json) -> Result<Block, String> {
        read(&json!([block]), &vault(&[])).map(|blocks| blocks.into_iter().next().unwrap())
    }

    #[test]
    fn every_kind_is_read_and_written_as_it_was() {
        let blocks = json!([
            {"type": "text", "text": "a", "audience": ["user", "assistant"], "priority": 0.50},
            {"type": "text", "text": ""},
            {"type": "image", "mime": "image/png", "data": "AAEC"},
            {"type": "audio", "mime": "audio/ogg; codecs=opus", "data": "AA=="},
            {"type": "resource", "uri": "file:///a.txt", "mime": "text/plain", "text": "x"},
            {"type": "resource", "uri": "a+b:c", "blob": "AAEC"},
            {"type": "link", "uri": "https://a.example/b?c", "name": "n", "description": "d", "mime": "a/b"},
        ]);
        let read = read(&blocks, &vault(&[])).unwrap();
        assert_eq!(as_json(&read), blocks);
        assert_eq!(
            text_of(&read),
            "a\n\n[image: image/png, 3 bytes]\n[audio: audio/ogg; codecs=opus, 1 bytes]\n[resource: file:///a.txt]\nx\n\
             [resource: a+b:c, 3 bytes]\n[link: n, https://a.example/b?c]"
        );
    }

    #[test]
    fn what_is_wrong_is_said() {
        let long = "x".repeat(5000);
        let media = "`mime` is not a media type such as `image/png`: ";
        let uri = "`uri` is not an absolute URI such as `file:///report.txt`: ";
        for (block, why) in [
            (
                json!({"type": "image", "mime": "image/png", "data": "AA="}),
                "its data is not base64: Invalid padding".to_owned(),
            ),
            (
                json!({"type": "image", "mime": "image/png", "data": "A A="}),
                "its data is not base64: Invalid symbol 32, offset 1.".to_owned(),
            ),
            (json!({"type": "audio", "mime": "audio/wav", "data": ""}), "its data is empty".to_owned()),
            (json!({"type": "image", "mime": "png", "data": "AA=="}), format!("{media}`png`")),
            (json!({"type": "image", "mime": "image/p ng", "data": "AA=="}), format!("{media}`image/p ng`")),
            (json!({"type": "image", "mime": "image/", "data": "AA=="}), format!("{media}`image/`")),
            (json!({"type": "image", "mime": "image/a\nb", "data": "AA=="}), format!("{media}`image/a\nb`")),
            (
                json!({"type": "image", "mime": "audio/wav", "data": "AA=="}),
                "`mime` must begin with `image/`".to_owned(),
            ),
            (json!({"type": "text", "text": "a", "priority": 1.5}), "`priority` must be from 0 to 1".to_owned()),
            (json!({"type": "resource", "uri": "a.txt", "text": "x"}), format!("{uri}`a.txt`")),
            (json!({"type": "resource", "uri": "1a:b", "text": "x"}), format!("{uri}`1a:b`")),
            (json!({"type": "resource", "uri": "a:b c", "text": "x"}), format!("{uri}`a:b c`")),
            (json!({"type": "resource", "uri": "a:b"}), "it must have `text` or `blob`, and not both".to_owned()),
            (
                json!({"type": "resource", "uri": "a:b", "text": "x", "blob": "AA=="}),
                "it must have `text` or `blob`, and not both".to_owned(),
            ),
            (json!({"type": "link", "uri": "a:b", "name": ""}), "`name` must have 1 to 256 bytes".to_owned()),
            (
                json!({"type": "link", "uri": "a:b", "name": "n", "description": long}),
                "`description` must have at most 2048 bytes".to_owned(),
            ),
        ] {
            assert_eq!(read_one(block.clone()), Err(format!("block 0: {why}")), "{block}");
        }
        // Keys and values of another shape.
        for block in [
            json!("text"),
            json!({"text": "a"}),
            json!({"type": "video", "mime": "video/mp4", "data": "AA=="}),
            json!({"type": "text", "text": 1}),
            json!({"type": "text", "text": "a", "audience": ["model"]}),
            json!({"type": "text", "text": "a", "_meta": {}}),
            json!({"type": "image", "data": "AA=="}),
        ] {
            assert!(read_one(block.clone()).is_err(), "{block}");
        }
        assert_eq!(read(&json!({}), &vault(&[])), Err("`blocks` must be a list".to_owned()));
        let many = |count: usize| read(&json!(vec![json!({"type": "text", "text": "a"}); count]), &vault(&[]));
        assert_eq!(many(MAX_BLOCKS).map(|blocks| blocks.len()), Ok(MAX_BLOCKS));
        assert_eq!(many(MAX_BLOCKS + 1), Err("101 blocks are more than 100".to_owned()));
    }

    #[test]
    fn secrets_are_replaced_in_texts_and_refused_in_data() {
        let vault = vault(&[("TOKEN", "s3cret-value-12345")]);
        let one = |block: Json| read(&json!([block]), &vault).map(|blocks| as_json(&blocks)[0].clone());
        assert_eq!(
            one(json!({"type": "text", "text": "a s3cret-value-12345"})),
            Ok(json!({"type": "text", "text": "a [redacted:TOKEN]"}))
        );
        assert_eq!(
            one(json!({"type": "link", "uri": "a:s3cret-value-12345", "name": "s3cret-value-12345"})),
            Ok(json!({"type": "link", "uri": "a:[redacted:TOKEN]", "name": "[redacted:TOKEN]"}))
        );
        let refused = Err("block 0: its data holds the secret `TOKEN`".to_owned());
        for text in ["s3cret-value-12345", "xs3cret-value-12345", "\u{0}\u{1}s3cret-value-12345"] {
            let data = STANDARD.encode(text);
            assert_eq!(one(json!({"type": "image", "mime": "image/png", "data": data})), refused, "{text}");
        }
        let bytes = [&[0xff, 0xfe][..], b"s3cret-value-12345", &[0xff]].concat();
        assert_eq!(one(json!({"type": "resource", "uri": "a:b", "blob": STANDARD.encode(bytes)})), refused);
        let other = json!({"type": "image", "mime": "image/png", "data": STANDARD.encode("another-value")});
        assert_eq!(one(other.clone()), Ok(other));
    }

    #[test]
    fn texts_are_cut_and_data_is_not() {
        let text = |text: &str| json!({"type": "text", "text": text});
        let image = json!({"type": "image", "mime": "image/png", "data": "AAECAwQF"});
        let cut = |blocks: Json, cap: u64| {
            let mut blocks = read(&blocks, &vault(&[])).unwrap();
            fit(&mut blocks, cap).map(|truncated| (text_of(&blocks), truncated))
        };
        let long = "x".repeat(100);
        assert_eq!(
            cut(json!([text("ab"), image, text(&long)]), 110),
            Ok((format!("ab\n[image: image/png, 6 bytes]\n{long}"), false))
        );
        let (shown, truncated) = cut(json!([text("ab"), image, text(&long)]), 60).unwrap();
        assert_eq!(
            shown,
            format!("ab\n[image: image/png, 6 bytes]\n{}\n[output truncated at 50 bytes]", "x".repeat(19))
        );
        assert!(truncated);
        assert_eq!(cut(json!([image]), 8), Ok(("[image: image/png, 6 bytes]".to_owned(), false)));
        assert_eq!(
            cut(json!([image]), 7),
            Err("its data has 8 bytes, over the limit `limits.output_bytes` of 7 bytes".to_owned())
        );
    }

    #[test]
    fn only_what_the_interpreter_marks_is_content() {
        let whole = r#"{"blocks": [], "error": false}"#;
        assert!(matches!(Returned::read(whole), Ok(Returned::Value(Json::Object(_)))));
        assert!(matches!(Returned::read(&format!("content {whole}")), Ok(Returned::Content(_))));
        for wrong in ["content", "content []", "content {}", r#"content {"blocks": [], "error": false, "more": 1}"#] {
            assert!(Returned::read(wrong).is_err(), "{wrong}");
        }
    }
}
