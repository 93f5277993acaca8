//! Media types of files, by the ends of their names: those that clients show or that a model reads. What a file holds
//! decides whether it goes out as text.

/// Types by the lower-case end of a name, in the order of the ends.
const BY_END: [(&str, &str); 44] = [
    ("avif", "image/avif"),
    ("bash", "application/x-sh"),
    ("c", "text/x-c"),
    ("cpp", "text/x-c++"),
    ("css", "text/css"),
    ("csv", "text/csv"),
    ("flac", "audio/flac"),
    ("gif", "image/gif"),
    ("go", "text/x-go"),
    ("h", "text/x-c"),
    ("htm", "text/html"),
    ("html", "text/html"),
    ("ico", "image/x-icon"),
    ("java", "text/x-java"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript"),
    ("json", "application/json"),
    ("jsonl", "application/jsonl"),
    ("log", "text/plain"),
    ("m4a", "audio/mp4"),
    ("md", "text/markdown"),
    ("mjs", "text/javascript"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("oga", "audio/ogg"),
    ("ogg", "audio/ogg"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("py", "text/x-python"),
    ("rs", "text/x-rust"),
    ("sh", "application/x-sh"),
    ("sql", "application/sql"),
    ("svg", "image/svg+xml"),
    ("toml", "application/toml"),
    ("ts", "text/x-typescript"),
    ("txt", "text/plain"),
    ("wasm", "application/wasm"),
    ("wav", "audio/wav"),
    ("webm", "video/webm"),
    ("webp", "image/webp"),
    ("xml", "application/xml"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
];

/// The type of a file of this name, where its end shows one.
pub(crate) fn by_name(name: &str) -> Option<&'static str> {
    let (_, end) = name.rsplit('/').next()?.rsplit_once('.')?;
    let end = end.to_ascii_lowercase();
    BY_END.iter().find(|(known, _)| *known == end).map(|(_, kind)| *kind)
}

/// The type of a content of which its name shows none.
pub(crate) fn of_content(is_text: bool) -> &'static str {
    if is_text { "text/plain" } else { "application/octet-stream" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_name_shows_the_type() {
        assert!(BY_END.is_sorted());
        for (name, want) in [
            ("a.md", Some("text/markdown")),
            ("docs.v1/A.PNG", Some("image/png")),
            ("docs.md/readme", None),
            (".png", Some("image/png")),
            ("a.unknown", None),
        ] {
            assert_eq!(by_name(name), want, "{name}");
        }
    }
}
