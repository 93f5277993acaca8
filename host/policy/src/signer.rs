//! The public keys of those who sign plugins, as text. A key is compared as a whole: an id of one can be made up.

use std::fmt;

use super::text::quoted;

/// Characters of a public key of minisign: the base64 of 42 bytes.
const MINISIGN: usize = 56;
/// What public keys of minisign begin with: the two letters `Ed`, and two bits of the key's id.
const MINISIGN_BEGINS: [&str; 4] = ["RWQ", "RWR", "RWS", "RWT"];
/// The algorithm of an SSH key, as it stands before the key.
const SSH: &str = "ssh-ed25519";
/// Characters of an SSH key: the base64 of 51 bytes.
const SSH_KEY: usize = 68;
/// What the base64 of an SSH key begins with: the algorithm and the length of the key.
const SSH_BEGINS: &str = "AAAAC3NzaC1lZDI1NTE5AAAAI";
/// What the base64 of a key in PEM begins with, and the characters that follow without padding: a point on the curve P-256
/// that is not compressed, and a key of Ed25519.
const PEM_KEYS: [(&str, usize, &str); 2] = [(P256, 122, "=="), (ED25519, 59, "=")];
const P256: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE";
const ED25519: &str = "MCowBQYDK2VwAyEA";
/// The lines around a public key in PEM.
const PEM: (&str, &str) = ("-----BEGIN PUBLIC KEY-----", "-----END PUBLIC KEY-----");
/// What the first line of anything in PEM begins with.
const PEM_BEGINS: &str = "-----BEGIN ";
/// The last characters of base64 with one `=` behind them.
const LAST_OF_TWO: [char; 16] = ['A', 'E', 'I', 'M', 'Q', 'U', 'Y', 'c', 'g', 'k', 'o', 's', 'w', '0', '4', '8'];

/// The public key of someone who signs plugins: `RWQ...` of minisign, `ssh-ed25519 AAAA...` of SSH without its comment, or of
/// sigstore the base64 of a key in PEM, in one line.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signer(String);

/// The tool that a key is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// minisign.
    Minisign,
    /// ssh-keygen.
    Ssh,
    /// cosign, and other tools of sigstore, with a key of the signer's own.
    Sigstore(Curve),
}

/// The algorithm of a key of sigstore.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Curve {
    /// ECDSA on the curve P-256, with SHA-256.
    P256,
    /// Ed25519.
    Ed25519,
}

impl Signer {
    /// Reads a key. What follows an SSH key is its comment and is left out.
    ///
    /// # Errors
    ///
    /// It is not the text of a key that plugins are signed with.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.trim_start().starts_with(PEM_BEGINS) {
            return Self::pem(text.trim());
        }
        let wrong = |why: &str| Err(format!("{} is not the public key of a signer: {why}", quoted(text)));
        let mut words = text.split_ascii_whitespace();
        let (Some(first), second) = (words.next(), words.next()) else {
            return wrong("it is empty");
        };
        if MINISIGN_BEGINS.iter().any(|begin| first.starts_with(begin)) {
            return match (is_base64(first, MINISIGN), second) {
                (true, None) => Ok(Self(first.to_owned())),
                (true, Some(_)) => wrong("something follows it"),
                (false, _) => wrong("a key of minisign has 56 letters, digits, `+` and `/`"),
            };
        }
        if first.starts_with(P256) || first.starts_with(ED25519) {
            return match (is_pem_key(first), second) {
                (true, None) => Ok(Self(first.to_owned())),
                (true, Some(_)) => wrong("something follows it"),
                (false, _) => wrong("it is not the base64 of a key of P-256 or Ed25519"),
            };
        }
        match (first, second) {
            (SSH, Some(key)) if key.starts_with(SSH_BEGINS) && is_base64(key, SSH_KEY) => {
                Ok(Self(format!("{SSH} {key}")))
            }
            (SSH, _) => {
                wrong("after `ssh-ed25519` there are 68 letters, digits, `+` and `/`, which begin with `AAAAC3Nz`")
            }
            (other, Some(_))
                if other.starts_with("ssh-") || other.starts_with("ecdsa-") || other.starts_with("sk-") =>
            {
                wrong("of SSH keys, `ssh-ed25519` alone is supported")
            }
            _ => wrong("write `RWQ...` of minisign, `ssh-ed25519 AAAA...`, or a public key in PEM"),
        }
    }

    /// Reads a key in PEM. What is not a public key may be a secret one: no message has it.
    fn pem(text: &str) -> Result<Self, String> {
        let inside = text.strip_prefix(PEM.0).and_then(|rest| rest.strip_suffix(PEM.1));
        let Some(inside) = inside else {
            return Err(format!(
                "what is in PEM is not the public key of a signer: it is not between `{}` and `{}`",
                PEM.0, PEM.1
            ));
        };
        let key: String = inside.split_ascii_whitespace().collect();
        match is_pem_key(&key) {
            true => Ok(Self(key)),
            false => Err(
                "the public key in PEM is not that of a signer: it is neither of P-256, not compressed, nor of Ed25519"
                    .to_owned(),
            ),
        }
    }

    /// The tool that it is of.
    pub fn kind(&self) -> Kind {
        match &self.0 {
            key if key.starts_with(SSH) => Kind::Ssh,
            key if key.starts_with(P256) => Kind::Sigstore(Curve::P256),
            key if key.starts_with(ED25519) => Kind::Sigstore(Curve::Ed25519),
            _ => Kind::Minisign,
        }
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether a text is this much base64 without padding.
fn is_base64(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/'))
}

/// Whether a text is the base64 of a key of sigstore, in its one spelling.
fn is_pem_key(text: &str) -> bool {
    let is_one = |(begin, length, padding): &(&str, usize, &str)| {
        // The bits that no byte has are zero.
        let last: &[char] = if padding.len() == 2 { &['A', 'Q', 'g', 'w'] } else { &LAST_OF_TWO };
        let key = text.strip_suffix(padding).filter(|key| key.starts_with(begin) && key.ends_with(last));
        key.is_some_and(|key| is_base64(key, *length))
    };
    PEM_KEYS.iter().any(is_one)
}

impl fmt::Display for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_in_pem() {
        let p256 = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE7sQpRDN47VJKbd8dXd3rmq3+OV1t6151/jhaWCCISssLxY4/UXvWA7SdgivrVWO7qgBZjLg32QqwJiZGKLul3Q==";
        let ed25519 = "MCowBQYDK2VwAyEAxQlYrOXBTD+svfHhkkn50f0bjxQiEvckwyzYL+2cF00=";
        let read = |text: &str| Signer::parse(text).map(|key| (key.kind(), key.to_string()));
        for (key, curve) in [(p256, Curve::P256), (ed25519, Curve::Ed25519)] {
            let (first, second) = key.split_at(key.len().min(64));
            let pem = format!("{}\n{first}\n{second}\n{}\n", PEM.0, PEM.1);
            for text in [key.to_owned(), format!(" {key}\n"), pem.clone(), pem.replace('\n', "\r\n")] {
                assert_eq!(read(&text), Ok((Kind::Sigstore(curve), key.to_owned())));
            }
        }
        // A key that is not the one spelling of itself, or of another kind.
        for text in [
            p256.trim_end_matches('=').to_owned(),
            format!("{p256} x"),
            p256.replace("Q==", "R=="),
            ed25519.replace("00=", "01="),
            p256.replace("QgAE", "QgAD"),
            format!("{ed25519}A"),
        ] {
            assert!(Signer::parse(&text).is_err(), "{text}");
        }
        let point = format!("{}\n{}\n{}", PEM.0, p256.replace("QgAE", "QgAD"), PEM.1);
        let not_these =
            "the public key in PEM is not that of a signer: it is neither of P-256, not compressed, nor of Ed25519";
        assert_eq!(Signer::parse(&point), Err(not_these.to_owned()));
        // A secret key is not shown.
        let secret = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIHNlY3JldHNlY3JldHNlY3JldHNlY3JldHNlY3JldA==\n-----END PRIVATE KEY-----";
        let told = Signer::parse(secret).unwrap_err();
        assert!(
            told.starts_with("what is in PEM is not the public key of a signer: ") && !told.contains("MC4C"),
            "{told}"
        );
    }

    #[test]
    fn keys() {
        let minisign = "RWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3";
        let ssh = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";
        let read = |text: &str| Signer::parse(text).map(|key| (key.kind(), key.to_string()));
        assert_eq!(read(minisign), Ok((Kind::Minisign, minisign.to_owned())));
        for text in [ssh.to_owned(), format!(" {ssh} ada@example \n")] {
            assert_eq!(read(&text), Ok((Kind::Ssh, ssh.to_owned())));
        }
        for (text, why) in [
            ("", "it is empty"),
            ("acme", "write `RWQ...` of minisign, `ssh-ed25519 AAAA...`, or a public key in PEM"),
            ("A60F62B4E81F", "write `RWQ...` of minisign, `ssh-ed25519 AAAA...`, or a public key in PEM"),
            (&minisign[..55], "a key of minisign has 56 letters, digits, `+` and `/`"),
            (&minisign.replace('m', "-"), "a key of minisign has 56 letters, digits, `+` and `/`"),
            (&format!("{minisign} x"), "something follows it"),
            ("ssh-ed25519", "after `ssh-ed25519` there are 68 letters"),
            (&ssh.replace("AAAAC3", "AAAAB3"), "after `ssh-ed25519` there are 68 letters"),
            (&ssh[..70], "after `ssh-ed25519` there are 68 letters"),
            ("ssh-rsa AAAAB3NzaC1yc2E", "of SSH keys, `ssh-ed25519` alone is supported"),
            ("ssh-ed25519-cert-v01@openssh.com AAAA", "of SSH keys, `ssh-ed25519` alone is supported"),
            ("sk-ssh-ed25519@openssh.com AAAA", "of SSH keys, `ssh-ed25519` alone is supported"),
        ] {
            let told = Signer::parse(text).unwrap_err();
            assert!(told.contains(&format!(" is not the public key of a signer: {why}")), "{told}");
        }
    }
}
