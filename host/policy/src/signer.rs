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

/// The public key of someone who signs plugins: `RWQ...` of minisign, or `ssh-ed25519 AAAA...` of SSH without its comment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signer(String);

/// The tool that a key is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// minisign.
    Minisign,
    /// ssh-keygen.
    Ssh,
}

impl Signer {
    /// Reads a key. What follows an SSH key is its comment and is left out.
    ///
    /// # Errors
    ///
    /// It is not the text of a key that plugins are signed with.
    pub fn parse(text: &str) -> Result<Self, String> {
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
            _ => wrong("write `RWQ...` of minisign, or `ssh-ed25519 AAAA...`"),
        }
    }

    /// The tool that it is of.
    pub fn kind(&self) -> Kind {
        if self.0.starts_with(SSH) { Kind::Ssh } else { Kind::Minisign }
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

impl fmt::Display for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
            ("acme", "write `RWQ...` of minisign, or `ssh-ed25519 AAAA...`"),
            ("A60F62B4E81F", "write `RWQ...` of minisign, or `ssh-ed25519 AAAA...`"),
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
