//! Paths as the URIs of the protocol.

use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr as _;

use lsp_types::Uri;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, percent_encode};

/// What is written as it is in a path.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The path of a file; none of a document that is no file of this machine.
pub(crate) fn to_path(uri: &Uri) -> Option<PathBuf> {
    let rest = uri.as_str().strip_prefix("file://")?;
    let path = rest.strip_prefix("localhost").unwrap_or(rest);
    let path = path.split(['?', '#']).next().filter(|path| path.starts_with('/'))?;
    let bytes: Vec<u8> = percent_decode_str(path).collect();
    (!bytes.contains(&0)).then(|| PathBuf::from(std::ffi::OsString::from_vec(bytes)))
}

/// The URI of an absolute path.
pub(crate) fn of_path(path: &Path) -> Option<Uri> {
    let encoded = percent_encode(path.as_os_str().as_bytes(), ENCODED);
    Uri::from_str(&format!("file://{encoded}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        for path in ["/a/b.md", "/a b/ä#?%.md", "/"] {
            let uri = of_path(Path::new(path)).unwrap();
            assert_eq!(to_path(&uri).as_deref(), Some(Path::new(path)), "{}", uri.as_str());
        }
        for other in ["untitled:Untitled-1", "https://a/b", "file://host/a", "file:///a%00b"] {
            assert_eq!(to_path(&Uri::from_str(other).unwrap()), None, "{other}");
        }
        assert_eq!(to_path(&Uri::from_str("file:///a%20b").unwrap()), Some("/a b".into()));
    }
}
