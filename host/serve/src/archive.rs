//! The archive that a tenant's project comes in: what `tar` writes, read as files alone.
//!
//! It is a stranger's: links, devices and sparse files are refused, and so is every name that leads out of the folder or
//! that some file system would change. What is left are bytes at paths, which the host writes itself.

use std::io::Read as _;

use harness_plugin::content::{Content, MAX_BYTES, MAX_FILES};
use harness_policy::text::quoted;
use tar::{Archive, EntryType};

/// Bytes of an archive: its files, with headers and filling for each file and folder.
pub const MAX_ARCHIVE: usize = MAX_BYTES + 4 * (MAX_FILES + 1) * 1024;
/// The folders that the host itself keeps in a project, whatever is uploaded.
pub const OF_HOST: [&str; 2] = [".harness/audit", ".harness/sessions"];

/// The files of an archive.
///
/// # Errors
///
/// What is wrong with it.
pub fn unpack(bytes: &[u8]) -> Result<Content, String> {
    if bytes.len() > MAX_ARCHIVE {
        return Err(format!("the archive has more than {MAX_ARCHIVE} bytes"));
    }
    let unreadable = |error: std::io::Error| format!("it is not an archive as `tar` writes it: {error}");
    let mut archive = Archive::new(bytes);
    let mut files = Vec::new();
    let mut entries = 0_usize;
    // Entries as they are: a name is in the header of its own file.
    for entry in archive.entries().map_err(unreadable)?.raw(true) {
        let mut entry = entry.map_err(unreadable)?;
        entries = entries.saturating_add(1);
        if entries > 2 * MAX_FILES {
            return Err(format!("the archive has more than {} entries", 2 * MAX_FILES));
        }
        let name =
            String::from_utf8(entry.path_bytes().into_owned()).map_err(|_| "a name is not UTF-8 text".to_owned())?;
        let path = name.strip_prefix("./").unwrap_or(&name);
        match entry.header().entry_type() {
            EntryType::Directory => continue,
            EntryType::Regular => {}
            _ => return Err(format!("{} is neither a file nor a folder", quoted(&name))),
        }
        if OF_HOST
            .iter()
            .any(|folder| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/') || rest.is_empty()))
        {
            return Err(format!("{} is the server's own record", quoted(&name)));
        }
        let mut text = Vec::new();
        entry.read_to_end(&mut text).map_err(unreadable)?;
        files.push((path.to_owned(), text));
    }
    let content = Content::new(files).map_err(|why| why.to_string())?;
    if content.is_empty() {
        return Err("the archive has no files".to_owned());
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use tar::{Builder, Header};

    use super::*;

    fn entry(builder: &mut Builder<Vec<u8>>, path: &str, kind: EntryType, text: &[u8]) {
        let mut header = Header::new_ustar();
        header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(0o755);
        header.set_mtime(1);
        header.set_size(text.len() as u64);
        header.set_cksum();
        builder.append(&header, text).unwrap();
    }

    fn one(path: &str, kind: EntryType, text: &[u8]) -> Result<Vec<String>, String> {
        let mut builder = Builder::new(Vec::new());
        entry(&mut builder, path, kind, text);
        let content = unpack(&builder.into_inner().unwrap())?;
        Ok(content.files().map(|(path, _)| path.to_owned()).collect())
    }

    #[test]
    fn files_and_folders_are_read_and_nothing_else() {
        assert_eq!(one("./.harness/tools/a.md", EntryType::Regular, b"x"), Ok(vec![".harness/tools/a.md".to_owned()]));
        assert_eq!(one("a/", EntryType::Directory, b""), Err("the archive has no files".to_owned()));
        for kind in [
            EntryType::Link,
            EntryType::Symlink,
            EntryType::Char,
            EntryType::Block,
            EntryType::Fifo,
            EntryType::Continuous,
            EntryType::GNULongName,
            EntryType::GNULongLink,
            EntryType::GNUSparse,
            EntryType::XGlobalHeader,
            EntryType::XHeader,
        ] {
            assert_eq!(one("a", kind, b""), Err("`a` is neither a file nor a folder".to_owned()), "{kind:?}");
        }
        for path in ["../a", "/etc/passwd", "a/../../b", "././a", "a//b", "a\\b", "con\u{7f}"] {
            assert!(one(path, EntryType::Regular, b"x").is_err(), "{path}");
        }
        for path in [".harness/audit/head", ".harness/sessions/a.jsonl", ".harness/audit"] {
            let why = format!("`{path}` is the server's own record");
            assert_eq!(one(path, EntryType::Regular, b"x"), Err(why));
        }
    }

    #[test]
    fn it_is_bounded() {
        let mut builder = Builder::new(Vec::new());
        for n in 0..=MAX_FILES {
            entry(&mut builder, &format!("f{n}"), EntryType::Regular, b"");
        }
        assert_eq!(unpack(&builder.into_inner().unwrap()), Err(format!("it has more than {MAX_FILES} files")));
        let mut builder = Builder::new(Vec::new());
        for n in 0..=2 * MAX_FILES {
            entry(&mut builder, &format!("d{n}/"), EntryType::Directory, b"");
        }
        let why = format!("the archive has more than {} entries", 2 * MAX_FILES);
        assert_eq!(unpack(&builder.into_inner().unwrap()), Err(why));
        assert!(unpack(&vec![0; MAX_ARCHIVE + 1]).is_err() && unpack(b"garbage that is no archive").is_err());
    }
}
