//! Unpacking: what was fetched becomes the files of a plugin, in a process of its own behind a wall. The rules for the files
//! are those of every plugin; what breaks one is refused by name, and nothing is written.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;

use harness_artifact::foreign::is_foreign;
use harness_plugin::Rejected;
use harness_plugin::archive::{self, MAX_PACKED};
use harness_plugin::content::{Content, MAX_BYTES, MAX_FILES};
use harness_plugin::signature::Signatures;
use harness_policy::text::quoted;
use harness_sys as sys;
use tar::{Archive, EntryType};

use crate::Packed;

/// The hidden command of this program that unpacks.
pub const COMMAND: [&str; 2] = ["plugin", "unpack-fetched"];

/// Unpacks a file into a new folder.
///
/// # Errors
///
/// The files are not those of a plugin. What the system says.
pub fn unpack(packed: Packed, file: &Path, folder: &Path) -> Result<(), Rejected> {
    let (content, signatures) = match packed {
        Packed::ByGit => read(std::io::BufReader::new(sys::open_file(file)?))?,
        Packed::ByHarness => (archive::unpack(&sys::read_bytes(file, MAX_PACKED as u64)?)?, Signatures::default()),
    };
    content.write(folder)?;
    for (name, text) in signatures.named() {
        sys::write_whole(&folder.join(name), &text)?;
    }
    Ok(())
}

/// The files of what `git archive` wrote, and the signatures beside them.
fn read(packed: impl Read) -> Result<(Content, Signatures), Rejected> {
    let wrong = |error: std::io::Error| Rejected::new(format!("what git wrote cannot be read: {error}"));
    let mut archive = Archive::new(packed);
    let (mut files, mut folders, mut bytes) = (Vec::new(), BTreeSet::new(), 0_u64);
    let mut executable: Option<String> = None;
    for entry in archive.entries().map_err(wrong)? {
        let mut entry = entry.map_err(wrong)?;
        let path = String::from_utf8(entry.path_bytes().into_owned())
            .map_err(|_| Rejected::new("a name is not UTF-8 text"))?;
        let mode = entry.header().mode().map_err(wrong)?;
        let why = match entry.header().entry_type() {
            // About the whole file: the commit.
            EntryType::XGlobalHeader => continue,
            EntryType::Directory => {
                folders.insert(path.trim_end_matches('/').to_owned());
                continue;
            }
            EntryType::Regular => {
                if mode & 0o111 != 0 {
                    executable.get_or_insert_with(|| path.clone());
                }
                bytes = bytes.saturating_add(entry.size());
                if bytes > MAX_BYTES as u64 {
                    return Err(Rejected::new(format!("it has more than {MAX_BYTES} bytes")));
                }
                if files.len() >= MAX_FILES {
                    return Err(Rejected::new(format!("it has more than {MAX_FILES} files")));
                }
                let mut text = Vec::new();
                entry.read_to_end(&mut text).map_err(wrong)?;
                files.push((path, text));
                continue;
            }
            EntryType::Symlink | EntryType::Link => "is a link",
            _ => "is not a regular file",
        };
        return Err(Rejected::new(format!("{} {why}", quoted(&path))));
    }
    // Git keeps no empty folders: one stands for another repository.
    let is_empty = |folder: &&String| !files.iter().any(|(path, _)| is_below(path, folder));
    if let Some(folder) = folders.iter().find(is_empty) {
        return Err(Rejected::new(format!("{} is a submodule", quoted(folder))));
    }
    let signatures = Signatures::take(&mut files)?;
    let named = files.iter().map(|(path, text): &(String, Vec<u8>)| (path.as_str(), text.as_slice()));
    // Of a plugin of another program, what could be run stays behind.
    if let (Some(path), false) = (executable, is_foreign(&named.collect())) {
        let why = "is executable: nothing of a plugin is run by the system (`git update-index --chmod=-x`)";
        return Err(Rejected::new(format!("{} {why}", quoted(&path))));
    }
    Ok((Content::new(files)?, signatures))
}

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use tar::{Builder, Header};

    use super::*;

    type Entry<'a> = (&'a str, EntryType, u32, &'a [u8]);

    fn packed(entries: &[Entry<'_>]) -> Vec<u8> {
        let mut builder = Builder::new(Vec::new());
        for (path, kind, mode, text) in entries {
            let mut header = Header::new_ustar();
            header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
            header.set_entry_type(*kind);
            header.set_mode(*mode);
            header.set_size(text.len() as u64);
            header.set_cksum();
            builder.append(&header, *text).unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn told(entries: &[Entry<'_>]) -> Result<Vec<String>, String> {
        let (content, _) = read(&packed(entries)[..]).map_err(|why| why.to_string())?;
        Ok(content.files().map(|(path, _)| path.to_owned()).collect())
    }

    const FILE: Entry<'static> = ("tools/a.md", EntryType::Regular, 0o644, b"x");
    const FOLDER: Entry<'static> = ("tools/", EntryType::Directory, 0o755, b"");

    #[test]
    fn files_of_a_commit() {
        let commit: Entry<'_> = ("pax_global_header", EntryType::XGlobalHeader, 0o666, b"16 comment=0123\n");
        let text = ("plugin.md", EntryType::Regular, 0o644, &b"---\n"[..]);
        assert_eq!(told(&[commit, text, FOLDER, FILE]), Ok(vec!["plugin.md".to_owned(), "tools/a.md".to_owned()]));
    }

    #[test]
    fn what_is_no_file_of_a_plugin_is_refused_by_name() {
        let of = |path, kind, mode| told(&[FOLDER, FILE, (path, kind, mode, b"")]).unwrap_err();
        for (path, kind, mode, why) in [
            ("a", EntryType::Symlink, 0o777, "`a` is a link"),
            ("a", EntryType::Link, 0o644, "`a` is a link"),
            ("a", EntryType::Char, 0o644, "`a` is not a regular file"),
            ("a", EntryType::Fifo, 0o644, "`a` is not a regular file"),
            ("a/", EntryType::Directory, 0o755, "`a` is a submodule"),
            ("tool", EntryType::Directory, 0o755, "`tool` is a submodule"),
            ("../a", EntryType::Regular, 0o644, "`../a` is not a path inside the plugin"),
            ("/a", EntryType::Regular, 0o644, "`/a` is not a path inside the plugin"),
            ("tools/A.md", EntryType::Regular, 0o644, "`tools/A.md` and `tools/a.md` differ by letter case alone"),
            (
                "a\x1b[31m",
                EntryType::Regular,
                0o644,
                "`a\u{1b}[31m` has a character that not every system has in names",
            ),
        ] {
            assert_eq!(of(path, kind, mode), why);
        }
        let executable = of("run.sh", EntryType::Regular, 0o755);
        assert_eq!(
            executable,
            "`run.sh` is executable: nothing of a plugin is run by the system (`git update-index --chmod=-x`)"
        );
    }

    #[test]
    fn bounds() {
        let names: Vec<String> = (0..=MAX_FILES).map(|number| number.to_string()).collect();
        let many: Vec<Entry<'_>> =
            names.iter().map(|name| (name.as_str(), EntryType::Regular, 0o644, &b""[..])).collect();
        assert_eq!(told(&many), Err("it has more than 1000 files".to_owned()));
        assert!(told(&many[1..]).is_ok());
        // What comes after the last one that may be is not looked at.
        let then = [many.as_slice(), &[("link", EntryType::Symlink, 0o777, b"")]].concat();
        assert_eq!(told(&then), Err("it has more than 1000 files".to_owned()));
        assert_eq!(told(&then[1..]), Err("`link` is a link".to_owned()));
        // A size that is not there is not waited for, nor made room for.
        let mut long = packed(&[FILE]);
        let mut header = Header::from_byte_slice(&long[..512]).clone();
        header.set_size(1 << 40);
        header.set_cksum();
        long[..512].copy_from_slice(header.as_bytes());
        assert_eq!(read(&long[..]).unwrap_err().to_string(), "it has more than 16777216 bytes");
        assert!(read(&packed(&[FILE])[..700]).is_err());
    }
}
