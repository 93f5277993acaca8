//! Bundles that the packages of sigstore for Node wrote, with signatures of OpenSSL's keys, which were made for these tests.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use harness_policy::signer::Signer;

use super::tests::{key, packed};
use super::{MAX_BYTES, Signatures, Signed};

const P256: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE7sQpRDN47VJKbd8dXd3rmq3+OV1t6151/jhaWCCISssLxY4/UXvWA7SdgivrVWO7qgBZjLg32QqwJiZGKLul3Q==";
const ED25519: &str = "MCowBQYDK2VwAyEAxQlYrOXBTD+svfHhkkn50f0bjxQiEvckwyzYL+2cF00=";
const STRANGER: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE20IQFALGqjV6+b61hbstdVxygU2qcdxBI6fTNoVFQsnXLHnqjhUcQozaKF1afZQ+9Q+Sett+ozPmogwR0Ce36A==";

macro_rules! made {
    ($name:literal) => {
        include_str!(concat!("fixtures/", $name, ".sigstore.json"))
    };
}

fn verify(text: &str, keys: &[&str]) -> Result<Signed, String> {
    let keys: Vec<Signer> = keys.iter().map(|text| key(text)).collect();
    let signatures = Signatures::default().with_sigstore(text.to_owned());
    let all = signatures.verify(&packed(), &keys).map_err(|why| why.to_string())?;
    assert_eq!(all.len(), 1);
    Ok(all.into_iter().next().unwrap())
}

/// The bundle with a part of its text replaced.
fn with(from: &str, to: &str) -> String {
    let text = made!("acme");
    assert!(text.contains(from), "{from}");
    text.replace(from, to)
}

fn refused(text: &str) -> String {
    verify(text, &[STRANGER, ED25519, P256]).unwrap_err()
}

#[test]
fn bundles_with_keys_of_the_signer() {
    for (text, of) in [(made!("acme"), P256), (made!("ed25519"), ED25519), (made!("stranger"), STRANGER)] {
        let signed = verify(text, &[STRANGER, ED25519, P256]).unwrap();
        assert_eq!((signed.signer.as_str(), &signed.comment), (of, &None));
        assert!(signed.signature.len() < MAX_BYTES);
        // What is kept verifies again, and is kept as it is.
        assert_eq!(super::verify(&signed.signer, &signed.signature, &packed()), Ok(signed.clone()));
        let other = if of == STRANGER { P256 } else { STRANGER };
        let why = super::verify(&key(other), &signed.signature, &packed()).unwrap_err().to_string();
        assert_eq!(why, "its sigstore bundle does not verify with any of the keys that are known");
    }
    let kept = verify(made!("acme"), &[P256]).unwrap().signature;
    let digest = "caA9qHk/06uhkfMoZ0WErUTJVHVFvpfPI+krIEo1R7I=";
    assert!(kept.contains(digest) && !kept.contains("hint"), "{kept}");
}

#[test]
fn what_is_no_such_bundle_is_refused() {
    let type_of = |what: &str| {
        format!("its sigstore bundle is of the type `{what}`, and not `application/vnd.dev.sigstore.bundle.v0.3+json`")
    };
    let certificate = "its sigstore bundle has a certificate, and no key: sign with a key that `signers` can name";
    let public_key = "\"publicKey\": {";
    let digest = "\"digest\": \"caA9";
    for (text, why) in [
        (made!("version2").to_owned(), type_of("application/vnd.dev.sigstore.bundle+json;version=0.2")),
        (with(".v0.3+json", ".v0.4+json"), type_of("application/vnd.dev.sigstore.bundle.v0.4+json")),
        (
            made!("envelope").to_owned(),
            "its sigstore bundle has an envelope: sign the packed plugin itself".to_owned(),
        ),
        (made!("other_file").to_owned(), "its sigstore bundle is of another plugin: it has another digest".to_owned()),
        (with(digest, "\"digest\": \"daA9"), "its sigstore bundle is of another plugin: it has another digest".to_owned()),
        (
            with("SHA2_256", "SHA2_512"),
            "its sigstore bundle has a digest by `SHA2_512`, and not by `SHA2_256`".to_owned(),
        ),
        // Keyless: alone, and beside a key.
        (with(public_key, "\"certificate\": {\"rawBytes\": \"MIIC\"}, \"publicKey\": {"), certificate.to_owned()),
        (with(public_key, "\"x509CertificateChain\": {\"certificates\": []}, \"publicKey\": {"), certificate.to_owned()),
        (with(public_key, "\"publicKeyless\": {"), String::new()),
        (
            r#"{"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json","verificationMaterial":{"certificate":{"rawBytes":"MIIC"}},"messageSignature":{"messageDigest":{"algorithm":"SHA2_256","digest":""},"signature":""}}"#.to_owned(),
            certificate.to_owned(),
        ),
        // One key twice: which one counts is anybody's guess.
        (with("\"signature\":", "\"signature\": \"MEUC\", \"signature\":"), String::new()),
        (with("\"messageSignature\":", "\"messageSignature\": null, \"messageSignature\":"), String::new()),
        (with("\"mediaType\":", "\"mediaType\": \"x\", \"mediaType\":"), String::new()),
        (with("\"digest\":", "\"digest\": \"x\", \"digest\":"), String::new()),
        (with("\"hint\":", "\"hint\": \"x\", \"hint\":"), String::new()),
        (with(public_key, "\"publicKey\": {}, \"publicKey\": {"), String::new()),
        (with(public_key, "\"rawKey\": 1, \"publicKey\": {"), String::new()),
        (made!("acme").trim_end().trim_end_matches('}').to_owned(), String::new()),
        (format!("{}{{}}", made!("acme")), String::new()),
        ("[".repeat(10_000), String::new()),
        (String::new(), String::new()),
    ] {
        let told = refused(&text);
        match why.is_empty() {
            true => assert!(told.starts_with("its sigstore bundle cannot be read: "), "{told}"),
            false => assert_eq!(told, why),
        }
    }
    let neither = r#"{"mediaType":"application/vnd.dev.sigstore.bundle.v0.3+json","verificationMaterial":{}}"#;
    assert_eq!(refused(neither), "its sigstore bundle cannot be read: it has no `publicKey`");
}

#[test]
fn keys_that_are_not_the_signers() {
    let none = "its sigstore bundle needs a key: it does not have its own, so give the key with `--signer`";
    let wrong = "its sigstore bundle does not verify with any of the keys that are known";
    let ssh = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIPwYkwYU1pOyCD0FMBSQ8AAe741BsH2dfDBN0B9fHbJm";
    assert_eq!(verify(made!("acme"), &[]), Err(none.to_owned()));
    assert_eq!(verify(made!("acme"), &[ssh]), Err(none.to_owned()));
    assert_eq!(verify(made!("acme"), &[STRANGER]), Err(wrong.to_owned()));
    assert_eq!(verify(made!("acme"), &[ED25519]), Err(wrong.to_owned()));
    assert_eq!(verify(made!("ed25519"), &[P256]), Err(wrong.to_owned()));
    // A point that is not on the curve verifies nothing.
    let mut bytes = STANDARD.decode(P256).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    assert_eq!(verify(made!("acme"), &[&STANDARD.encode(&bytes)]), Err(wrong.to_owned()));
}

/// Each bit of a bundle, turned once. Nothing covers the hint and the white space: they are not kept, and not shown.
#[test]
fn no_bit_of_a_bundle_is_turned_unseen() {
    for (text, of) in [(made!("acme"), P256), (made!("ed25519"), ED25519)] {
        let good = verify(text, &[of]).unwrap();
        let hint = text.find("\"hint\": \"").unwrap() + 9..text.find("\"\n    },").unwrap();
        for at in 0..text.len() * 8 {
            let mut turned = text.as_bytes().to_vec();
            turned[at / 8] ^= 1 << (at % 8);
            let Ok(turned) = String::from_utf8(turned) else { continue };
            if let Ok(signed) = verify(&turned, &[of]) {
                let is_space = |at: usize| text.as_bytes()[at].is_ascii_whitespace();
                assert!(hint.contains(&(at / 8)) || is_space(at / 8), "bit {at}");
                assert_eq!(signed, good);
            }
        }
        for length in 0..text.trim_end().len() {
            assert!(verify(text.split_at(length).0, &[of]).is_err(), "{length}");
        }
        let packed = packed();
        let keys = [key(of)];
        let signatures = Signatures::default().with_sigstore(text.to_owned());
        for at in 0..packed.len() {
            let mut turned = packed.clone();
            turned[at] ^= 1 << (at % 8);
            assert!(signatures.verify(&turned, &keys).is_err(), "byte {at}");
        }
        // With the digest of the turned bytes beside it, the signature alone refuses them.
        let mut turned = packed.clone();
        turned[0] ^= 1;
        let digest = STANDARD.encode(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &turned));
        let forged = text.replace("caA9qHk/06uhkfMoZ0WErUTJVHVFvpfPI+krIEo1R7I=", &digest);
        let why = Signatures::default().with_sigstore(forged).verify(&turned, &keys).unwrap_err().to_string();
        assert_eq!(why, "its sigstore bundle does not verify with any of the keys that are known");
    }
}

#[test]
fn where_bundles_lie() {
    let place = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &[u8]| std::fs::write(place.path().join(name), text).unwrap();
    write("acme.tar", &packed());
    let beside = || Signatures::beside(&place.path().join("acme.tar")).map_err(|why| why.to_string());
    assert_eq!(beside(), Ok(Signatures::default()));
    write("acme.tar.sigstore.json", made!("acme").as_bytes());
    let found = beside().unwrap();
    assert_eq!(found, Signatures::default().with_sigstore(made!("acme").to_owned()));
    assert_eq!(found.named(), [("plugin.sigstore.json".to_owned(), made!("acme").to_owned())]);
    assert!(!found.is_empty());
    // As a tool may write it, with what is not kept.
    let long = with("\"publicKey\": {", &format!("\"tlogEntries\": [\"{}\"], \"publicKey\": {{", "x".repeat(8 << 10)));
    write("acme.tar.sigstore.json", long.as_bytes());
    let signed = beside().unwrap().verify(&packed(), &[key(P256)]).unwrap();
    assert_eq!(signed, [verify(made!("acme"), &[P256]).unwrap()]);
    let huge = with("\"publicKey\": {", &format!("\"tlogEntries\": [\"{}\"], \"publicKey\": {{", "x".repeat(16 << 10)));
    write("acme.tar.sigstore.json", huge.as_bytes());
    assert_eq!(beside(), Err("its sigstore bundle cannot be read: larger than 16384 bytes".to_owned()));
}
