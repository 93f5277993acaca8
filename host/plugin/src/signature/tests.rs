//! Signatures that the tools themselves made, with keys that were made for these tests.

use std::os::unix::fs::symlink;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use harness_policy::signer::{Kind, Signer};

use super::{MAX_BYTES, Signatures, Signed, check, verify};
use crate::archive::pack;
use crate::content::Content;

const TEXT: &str = "---\nname: acme\nversion: 1.2.0\ndescription: Searches the archive.\n---\n";
const MINISIGN: &str = "RWQyUHrYd0ab27mjqZ75GRgdSpqXHVuKKq/eWWvtG2VlNaj3bNCz0hLz";
const MINISIGN_STRANGER: &str = "RWS358gyOVxmwJW3bsX+z+yZFs8IFs3QOe4tLVdXxGt2xS3W+1/vYJJv";
const SSH: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPwYkwYU1pOyCD0FMBSQ8AAe741BsH2dfDBN0B9fHbJm";
const SSH_STRANGER: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILqIUWVyXL4Qnw8iSZsHuOvdfbrG0L+0A7a1Gtp4SEFy";

macro_rules! made {
    ($name:literal) => {
        include_str!(concat!("fixtures/", $name))
    };
}

pub(super) fn key(text: &str) -> Signer {
    Signer::parse(text).unwrap()
}

fn content() -> Content {
    Content::new([("plugin.md".to_owned(), TEXT.as_bytes().to_vec())]).unwrap()
}

pub(super) fn packed() -> Vec<u8> {
    pack(&content()).unwrap()
}

/// Verifies a signature of minisign with the key of these tests.
fn minisign(text: &str) -> Result<Signed, String> {
    let signatures = Signatures::of(Some(text.to_owned()), None);
    let all = signatures.verify(&packed(), &[key(SSH), key(MINISIGN)]).map_err(|why| why.to_string())?;
    assert_eq!(all.len(), 1);
    Ok(all.into_iter().next().unwrap())
}

fn ssh(text: &str) -> Result<Signed, String> {
    let all = Signatures::of(None, Some(text.to_owned())).verify(&packed(), &[]).map_err(|why| why.to_string())?;
    assert_eq!(all.len(), 1);
    Ok(all.into_iter().next().unwrap())
}

#[test]
fn what_the_tools_sign_verifies() {
    let signed = minisign(made!("acme.minisig")).unwrap();
    assert_eq!(signed.signer.as_str(), MINISIGN);
    assert_eq!(signed.comment.as_deref(), Some("timestamp:1795794833\tfile:acme-1.2.0.tar\thashed"));
    let first = signed.signature.lines().next().unwrap();
    assert_eq!(first, "untrusted comment: signature");
    assert_eq!(verify(&signed.signer, &signed.signature, &packed()), Ok(signed.clone()));
    for text in [made!("acme.sig"), made!("sha256.sig")] {
        let signed = ssh(text).unwrap();
        assert_eq!((signed.signer.as_str(), signed.signature.as_str(), &signed.comment), (SSH, text, &None));
        assert_eq!(verify(&signed.signer, &signed.signature, &packed()), Ok(signed.clone()));
    }
    assert_eq!(ssh(made!("stranger.sig")).unwrap().signer.as_str(), SSH_STRANGER);
    // Both, and each of them counts.
    let both = |minisign: &str, ssh: &str| {
        let both = Signatures::of(Some(minisign.to_owned()), Some(ssh.to_owned()));
        both.verify(&packed(), &[key(MINISIGN)]).map(|all| all.len()).map_err(|why| why.to_string())
    };
    assert_eq!(both(made!("acme.minisig"), made!("acme.sig")), Ok(2));
    assert_eq!(
        both(made!("acme.minisig"), made!("other_file.sig")),
        Err("its SSH signature does not verify".to_owned())
    );
    assert!(both(made!("other_file.minisig"), made!("acme.sig")).is_err());
    assert_eq!(Signatures::default().verify(&packed(), &[]), Ok(Vec::new()));
}

#[test]
fn signatures_of_something_else_are_refused() {
    // The control of each is in the test before.
    let id = "its minisign signature is by the key with the id C0665C3932C8E7B7, which is unknown: give the key with `--signer`";
    for (text, why) in [
        (made!("stranger.minisig"), id),
        (
            made!("other_file.minisig"),
            "its minisign signature does not verify with the key that has its id DB9B4677D87A5032",
        ),
        (
            made!("legacy.minisig"),
            "its minisign signature is in the form before prehashing: sign again with `minisign -S`, without `-l`",
        ),
        (made!("escapes.minisig"), "its minisign signature cannot be read: it has a control character"),
        (made!("acme.sig"), "its minisign signature cannot be read: it has not four lines"),
        ("", "its minisign signature cannot be read: it has not four lines"),
    ] {
        assert_eq!(minisign(text).unwrap_err(), why);
    }
    let kind =
        |kind: &str| format!("its SSH signature is by a key of the kind `{kind}`: `ssh-ed25519` alone is supported");
    for (text, why) in [
        (made!("other_file.sig"), "its SSH signature does not verify".to_owned()),
        (
            made!("other_namespace.sig"),
            "its SSH signature is for the namespace `file`, and not for `harness`: sign with `ssh-keygen -Y sign -n harness`"
                .to_owned(),
        ),
        (made!("rsa.sig"), kind("ssh-rsa")),
    ] {
        assert_eq!(ssh(text).unwrap_err(), why);
    }
    for text in [made!("ecdsa.sig"), made!("certificate.sig"), made!("acme.minisig"), ""] {
        assert!(ssh(text).unwrap_err().starts_with("its SSH signature "), "{text}");
    }
    // Signatures that verify, by another key than the one that is kept.
    let other = |signer: &str, text: &str| verify(&key(signer), text, &packed()).unwrap_err().to_string();
    assert_eq!(other(SSH, made!("stranger.sig")), "its signature is by another key");
    assert!(other(MINISIGN, made!("stranger.minisig")).contains("which is unknown"));
    assert!(other(SSH, &"x".repeat(MAX_BYTES + 1)).contains("more than 4096 bytes"));
}

/// A key with the id of another one is made in no time.
#[test]
fn an_id_proves_nothing() {
    let mut forged = STANDARD.decode(MINISIGN_STRANGER).unwrap();
    forged[2..10].copy_from_slice(&STANDARD.decode(MINISIGN).unwrap()[2..10]);
    let forged = key(&STANDARD.encode(&forged));
    let signatures = Signatures::of(Some(made!("acme.minisig").to_owned()), None);
    let why = signatures.verify(&packed(), std::slice::from_ref(&forged)).unwrap_err().to_string();
    assert_eq!(why, "its minisign signature does not verify with the key that has its id DB9B4677D87A5032");
    // Beside it the true key is found.
    let signed = signatures.verify(&packed(), &[forged, key(MINISIGN)]).unwrap();
    assert_eq!(signed[0].signer.as_str(), MINISIGN);
    // And a signature with the id of another key is not that key's.
    let stranger = made!("stranger.minisig");
    let line = stranger.lines().nth(1).unwrap();
    let mut bytes = STANDARD.decode(line).unwrap();
    bytes[2..10].copy_from_slice(&STANDARD.decode(MINISIGN).unwrap()[2..10]);
    assert!(minisign(&stranger.replace(line, &STANDARD.encode(&bytes))).unwrap_err().contains("does not verify"));
}

/// Each bit of a signature, turned once. Nothing covers the first line of minisign's: it is not kept, and not shown.
#[test]
fn no_bit_of_a_signature_is_turned_unseen() {
    let turned = |text: &str, at: usize| {
        let mut turned = text.as_bytes().to_vec();
        turned[at / 8] ^= 1 << (at % 8);
        String::from_utf8(turned).ok()
    };
    let text = made!("acme.minisig");
    let good = minisign(text).unwrap();
    let first = text.find('\n').unwrap();
    for at in 0..text.len() * 8 {
        match turned(text, at).map(|turned| minisign(&turned)) {
            Some(Ok(signed)) => {
                assert!(at / 8 < first, "bit {at}");
                assert_eq!(signed, good);
            }
            Some(Err(_)) | None => {}
        }
    }
    let text = made!("acme.sig");
    for at in 0..text.len() * 8 {
        assert!(turned(text, at).is_none_or(|turned| ssh(&turned).is_err()), "bit {at}");
    }
    for length in 0..text.len() {
        assert!(text.get(..length).is_none_or(|text| ssh(text).is_err()), "{length}");
    }
    // Of the packed bytes, one bit of each byte.
    let both = Signatures::of(Some(made!("acme.minisig").to_owned()), Some(text.to_owned()));
    let packed = packed();
    for at in 0..packed.len() {
        let mut turned = packed.clone();
        turned[at] ^= 1 << (at % 8);
        assert!(both.verify(&turned, &[key(MINISIGN)]).is_err(), "byte {at}");
        assert!(Signatures::of(None, both.ssh.clone()).verify(&turned, &[]).is_err(), "byte {at}");
    }
}

#[test]
fn a_comment_of_the_signer_is_covered() {
    let text = made!("acme.minisig");
    let changed = minisign(&text.replace("file:acme-1.2.0.tar", "file:acme-9.9.9.tar"));
    assert!(changed.unwrap_err().contains("does not verify"));
    // Other spellings of the same signature are none.
    for other in [
        text.replace('\n', "\r\n"),
        text.trim_end().to_owned(),
        format!("{text}\n"),
        format!("{text}more\n"),
        text.replace("trusted comment: t", "trusted comment:  t"),
        text.replacen("untrusted comment: ", "comment: ", 1),
    ] {
        assert!(minisign(&other).is_err(), "{other:?}");
    }
    let text = made!("acme.sig");
    for other in [text.replace('\n', "\r\n"), text.trim_end().to_owned(), format!("x\n{text}"), format!("{text}\n")] {
        assert!(ssh(&other).is_err(), "{other:?}");
    }
}

#[test]
fn where_signatures_lie() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("acme");
    let write = |name: &str, text: &[u8]| std::fs::write(place.path().join(name), text).unwrap();
    std::fs::create_dir(&folder).unwrap();
    write("acme/plugin.md", TEXT.as_bytes());
    write("acme.tar", &packed());
    let beside = |name: &str| Signatures::beside(&place.path().join(name)).map_err(|why| why.to_string());
    assert_eq!((beside("acme"), beside("acme.tar")), (Ok(Signatures::default()), Ok(Signatures::default())));
    let both = Signatures::of(Some(made!("acme.minisig").to_owned()), Some(made!("acme.sig").to_owned()));
    for [minisign, ssh] in [["acme/plugin.minisig", "acme/plugin.sig"], ["acme.tar.minisig", "acme.tar.sig"]] {
        write(minisign, made!("acme.minisig").as_bytes());
        write(ssh, made!("acme.sig").as_bytes());
    }
    assert_eq!((beside("acme"), beside("acme.tar")), (Ok(both.clone()), Ok(both.clone())));
    // They change nothing of what was signed.
    assert_eq!(Content::read(&folder).unwrap(), content());
    let of_folder = both.verify(&pack(&Content::read(&folder).unwrap()).unwrap(), &[key(MINISIGN)]);
    assert_eq!(of_folder.unwrap().len(), 2);
    for name in ["plugin.sig", "plugin.minisig", "PLUGIN.SIG"] {
        let why = Content::new([(name.to_owned(), Vec::new())]).unwrap_err().to_string();
        assert_eq!(why, format!("`{name}` is a signature, and no file of a plugin"));
    }
    assert!(
        Content::read_exactly(&folder).unwrap_err().to_string().ends_with("is a signature, and no file of a plugin")
    );
    // Elsewhere a file of this name is one like others.
    write("acme/x.md", b"");
    assert!(Content::new([("tools/plugin.sig".to_owned(), Vec::new())]).is_ok());
    let mut files = vec![("a".to_owned(), b"x".to_vec()), ("plugin.sig".to_owned(), made!("acme.sig").into())];
    assert_eq!(Signatures::take(&mut files), Ok(Signatures::of(None, Some(made!("acme.sig").to_owned()))));
    assert_eq!(files.len(), 1);
    // One that cannot be read is not the same as none.
    let refused = |name: &str| {
        for ending in ["/plugin.sig", ".tar.sig"] {
            let path = place.path().join(format!("acme{ending}"));
            let good = std::fs::read(&path).unwrap();
            std::fs::remove_file(&path).unwrap();
            match name {
                "link" => symlink("nowhere", &path).unwrap(),
                "folder" => std::fs::create_dir(&path).unwrap(),
                "huge" => std::fs::write(&path, vec![b'x'; MAX_BYTES + 1]).unwrap(),
                _ => std::fs::write(&path, [0xff, 0xfe]).unwrap(),
            }
            let why = beside(if ending.starts_with('/') { "acme" } else { "acme.tar" }).unwrap_err();
            assert!(why.starts_with("its SSH signature cannot be read: "), "{name}: {why}");
            if name == "folder" {
                std::fs::remove_dir(&path).unwrap()
            } else {
                std::fs::remove_file(&path).unwrap()
            }
            std::fs::write(&path, good).unwrap();
        }
    };
    ["link", "folder", "huge", "bytes"].into_iter().for_each(refused);
    assert_eq!(beside("acme"), Ok(both));
}

#[test]
fn what_an_author_made_is_checked() {
    let packed = packed();
    assert_eq!(check(Kind::Ssh, made!("acme.sig"), &packed), Ok(format!("`{SSH}`")));
    let minisign = check(Kind::Minisign, made!("acme.minisig"), &packed);
    assert_eq!(minisign, Ok("the minisign key with the id DB9B4677D87A5032".to_owned()));
    assert!(check(Kind::Ssh, made!("other_file.sig"), &packed).is_err());
    assert!(check(Kind::Minisign, made!("legacy.minisig"), &packed).is_err());
}
