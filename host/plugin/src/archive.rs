//! A plugin as one file: the same bytes on every machine, and no other bytes are read.
//!
//! The form is that of `tar` (POSIX.1-1988): a header for each file, sorted by path, without owners and times. A file that
//! holds a plugin in any other way is refused, so that no two programs can read two plugins in it.

use std::io::Read as _;

use harness_policy::text::quoted;
use tar::{Archive, Builder, EntryType, Header};

use crate::Rejected;
use crate::content::{Content, MAX_BYTES, MAX_FILES};

/// Bytes of a packed plugin: what its files may be, with two blocks for each and two at the end.
pub const MAX_PACKED: usize = MAX_BYTES + (MAX_FILES + 1) * 1024;
/// The ending of the name of a packed plugin.
pub const ENDING: &str = ".tar";

/// The bytes of a packed plugin.
///
/// # Errors
///
/// A path that the form has no room for.
pub fn pack(content: &Content) -> Result<Vec<u8>, Rejected> {
    let mut builder = Builder::new(Vec::new());
    for (path, text) in content.files() {
        let mut header = Header::new_ustar();
        header.set_path(path)?;
        header.set_entry_type(EntryType::Regular);
        header.set_mode(0o644);
        header.set_size(u64::try_from(text.len()).unwrap_or(u64::MAX));
        header.set_cksum();
        builder.append(&header, text)?;
    }
    Ok(builder.into_inner()?)
}

/// The content of a packed plugin.
///
/// # Errors
///
/// It is not what [`pack`] makes of any plugin.
pub fn unpack(packed: &[u8]) -> Result<Content, Rejected> {
    let wrong = |why: String| Rejected::new(format!("it is not a plugin as `harness plugin pack` writes it: {why}"));
    if packed.len() > MAX_PACKED {
        return Err(wrong(format!("it has more than {MAX_PACKED} bytes")));
    }
    let mut archive = Archive::new(packed);
    let mut files = Vec::new();
    // Entries as they are: nothing about a file is in another entry than its own.
    for entry in archive.entries().map_err(|why| wrong(why.to_string()))?.raw(true) {
        let mut entry = entry.map_err(|why| wrong(why.to_string()))?;
        if files.len() >= MAX_FILES {
            return Err(wrong(format!("it has more than {MAX_FILES} files")));
        }
        let path = entry.path_bytes().into_owned();
        let path = String::from_utf8(path).map_err(|_| wrong("a name is not UTF-8 text".to_owned()))?;
        if entry.header().entry_type() != EntryType::Regular {
            return Err(wrong(format!("{} is not a regular file", quoted(&path))));
        }
        let mut text = Vec::new();
        entry.read_to_end(&mut text).map_err(|why| wrong(why.to_string()))?;
        files.push((path, text));
    }
    let content = Content::new(files).map_err(|why| wrong(why.to_string()))?;
    match pack(&content) {
        Ok(again) if again == packed => Ok(content),
        _ => Err(wrong("its bytes are in another form".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn content() -> Content {
        let long = format!("skills/{}/{}.md", "n".repeat(64), "m".repeat(60));
        Content::new([
            ("plugin.md".to_owned(), b"---\nname: a\n---\n".to_vec()),
            ("tools/\u{fc}.md".to_owned(), vec![b'x'; 513]),
            (long, Vec::new()),
        ])
        .unwrap()
    }

    #[test]
    fn the_same_bytes_each_time() {
        let packed = pack(&content()).unwrap();
        assert_eq!(pack(&content()), Ok(packed.clone()));
        assert_eq!(unpack(&packed), Ok(content()));
        assert_eq!(
            harness_sys::digest::digest_of(&packed),
            "sha256:08d39087b705b55fbe45648bf59be7e417aead3844cdd3ba0e3f0308ae483b1c"
        );
    }

    /// Each bit counts: a packed plugin with one that is turned is another plugin, or none.
    #[test]
    fn no_bit_is_turned_unseen() {
        let content =
            Content::new([("plugin.md".to_owned(), b"x".to_vec()), ("a/b".to_owned(), b"y".to_vec())]).unwrap();
        let packed = pack(&content).unwrap();
        for at in 0..packed.len() * 8 {
            let mut turned = packed.clone();
            turned[at / 8] ^= 1 << (at % 8);
            if let Ok(other) = unpack(&turned) {
                assert_ne!(other.digest(), content.digest(), "bit {at}");
            }
        }
    }

    fn told(packed: &[u8]) -> String {
        let told = unpack(packed).unwrap_err().to_string();
        told.strip_prefix("it is not a plugin as `harness plugin pack` writes it: ").unwrap().to_owned()
    }

    fn entry(path: &str, kind: EntryType, text: &[u8], change: &dyn Fn(&mut Header)) -> Vec<u8> {
        let mut header = Header::new_ustar();
        header.as_mut_bytes()[..path.len()].copy_from_slice(path.as_bytes());
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_size(text.len() as u64);
        change(&mut header);
        header.set_cksum();
        let mut builder = Builder::new(Vec::new());
        builder.append(&header, text).unwrap();
        builder.into_inner().unwrap()
    }

    #[test]
    fn what_is_packed_otherwise_is_refused() {
        let nothing: &dyn Fn(&mut Header) = &|_| {};
        // The control: built by the same hands, and read.
        assert!(unpack(&entry("a", EntryType::Regular, b"x", nothing)).is_ok());
        for (path, why) in [
            ("../a", "`../a` is not a path inside the plugin"),
            ("/a", "`/a` is not a path inside the plugin"),
            ("a/../../b", "`a/../../b` is not a path inside the plugin"),
            ("./a", "`./a` is not a path inside the plugin"),
        ] {
            assert_eq!(told(&entry(path, EntryType::Regular, b"x", nothing)), why);
        }
        for kind in [
            EntryType::Link,
            EntryType::Symlink,
            EntryType::Char,
            EntryType::Block,
            EntryType::Directory,
            EntryType::Fifo,
            EntryType::Continuous,
            EntryType::GNULongName,
            EntryType::GNULongLink,
            EntryType::GNUSparse,
            EntryType::XGlobalHeader,
            EntryType::XHeader,
        ] {
            assert_eq!(told(&entry("a", kind, b"", nothing)), "`a` is not a regular file", "{kind:?}");
        }
        let other = "its bytes are in another form";
        for change in [
            &(|header: &mut Header| header.set_mode(0o755)) as &dyn Fn(&mut Header),
            &|header| header.set_mode(0o4644),
            &|header| header.set_uid(1),
            &|header| header.set_mtime(1),
            &|header| header.as_ustar_mut().unwrap().set_username("root").unwrap(),
        ] {
            assert_eq!(told(&entry("a", EntryType::Regular, b"x", change)), other);
        }
        // A size that is not there, or much more than there is.
        assert!(told(&entry("a", EntryType::Regular, b"x", &|header| header.set_size(1 << 40))).len() > 3);
        let good = entry("a", EntryType::Regular, b"x", nothing);
        assert_eq!(told(&[good.as_slice(), &[0; 512]].concat()), other);
        assert_eq!(told(&[good.as_slice(), good.as_slice()].concat()), other);
        assert!(!told(&good[..600]).is_empty());
        assert_eq!(told(b""), other);
        assert!(told(&vec![0; MAX_PACKED + 1]).starts_with("it has more than "));
        let one = &good[..1024];
        let unsorted = [&entry("b", EntryType::Regular, b"x", nothing)[..1024], &good].concat();
        assert_eq!(told(&unsorted), other);
        assert_eq!(told(&[one, &good].concat()), "it has `a` twice");
        let case = [&entry("A", EntryType::Regular, b"x", nothing)[..1024], &good].concat();
        assert_eq!(told(&case), "`A` and `a` differ by letter case alone");
        let empty = &entry("a", EntryType::Regular, b"", nothing)[..512];
        assert_eq!(told(&empty.repeat(MAX_FILES + 1)), "it has more than 1000 files");
    }

    proptest! {
        /// What is packed comes out again, and bytes of anything else never panic.
        #[test]
        fn there_and_back(files in proptest::collection::btree_map("[a-z]{1,3}(/[a-z]{1,3}){0,2}", any::<Vec<u8>>(), 1..5), noise: Vec<u8>) {
            if let Ok(content) = Content::new(files) {
                prop_assert_eq!(unpack(&pack(&content).unwrap()), Ok(content));
            }
            let _ = unpack(&noise);
        }
    }
}
