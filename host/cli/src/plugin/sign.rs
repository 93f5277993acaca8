//! `harness plugin sign`: the machine's own tool signs the packed bytes, and asks for its password itself.

use std::path::{Path, PathBuf};

use clap::Args;
use harness_plugin::archive::{self, MAX_PACKED};
use harness_plugin::content::Content;
use harness_plugin::signature::{self, ENDINGS, FILES, NAMESPACE};
use harness_policy::signer::Kind;
use harness_sys as sys;
use harness_sys::output::{self, Readers};

use super::fetched::Fetched;
use crate::exit::Exit;
use crate::printer::Printer;

/// What the first line of a secret key begins with.
const MINISIGN_KEY: &str = "untrusted comment: ";
/// The same of a secret key of SSH, and of a public one, whose secret an agent has.
const SSH_KEYS: [&str; 2] = ["-----BEGIN OPENSSH PRIVATE KEY-----", "ssh-ed25519 "];
/// Bytes of a key that are looked at.
const LOOKED_AT: usize = 64;

#[derive(Debug, Args)]
#[command(
    after_help = "The tool is `minisign` or `ssh-keygen`, by what the key is. It asks for a password itself.\n\n\
                        Examples:\n  harness plugin sign acme-1.2.0.tar --key ~/.minisign/minisign.key\n  \
                        harness plugin sign ./acme --key ~/.ssh/id_ed25519"
)]
pub(crate) struct Sign {
    /// Packed plugin, or the folder of one. The signature is written beside the file, or into the folder, where `add` looks
    /// for it.
    #[arg(default_value = ".", value_name = "FILE|FOLDER")]
    pub(crate) plugin: PathBuf,

    /// Secret key of minisign or SSH, or a public key whose secret the SSH agent has.
    #[arg(long, value_name = "FILE")]
    pub(crate) key: PathBuf,
}

pub(super) fn run(command: &Sign, printer: Printer) -> Result<Exit, Exit> {
    let place = &command.plugin;
    let shown = place.display().to_string();
    let failed = |why: String, hint: Option<&str>| {
        printer.error(&why, &[], hint);
        Exit::Usage
    };
    let tool = tool(&command.key).map_err(|why| failed(why, None))?;
    let is_folder = sys::is_folder(place);
    let most = u64::try_from(MAX_PACKED).unwrap_or(u64::MAX);
    let content = match is_folder {
        true => Content::read(place),
        false => sys::read_bytes(place, most).map_err(Into::into).and_then(|packed| archive::unpack(&packed)),
    };
    let content = content.map_err(|why| failed(format!("`{shown}` is no plugin: {why}"), None))?;
    let fetched = Fetched::of(content, &shown, printer)?;
    let packed = archive::pack(&fetched.content).map_err(|why| failed(format!("`{shown}`: {why}"), None))?;
    // The tool signs a copy: what it writes is checked before it is where others find it.
    let scratch = sys::Scratch::new(&[]).map_err(|error| failed(format!("no temporary folder: {error}"), None))?;
    let name = format!("{}-{}{}", fetched.name(), fetched.plugin.version, archive::ENDING);
    let (copy, made) = (scratch.path().join(&name), scratch.path().join(format!("{name}{}", tool.ending())));
    output::write(&copy, &packed, Readers::All, &[]).map_err(|error| failed(format!("cannot write: {error}"), None))?;
    let key = sys::current_folder().join(&command.key);
    let (program, arguments) = tool.arguments(&key, &copy, &made);
    let code = sys::program::run_at_terminal(program, &arguments).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => failed(format!("`{program}` is not installed"), Some(tool.install())),
        _ => failed(format!("`{program}` cannot be started: {error}"), None),
    })?;
    if code != Some(0) {
        return Err(failed(format!("`{program}` did not sign `{shown}`"), None));
    }
    let most = u64::try_from(signature::MAX_BYTES).unwrap_or(u64::MAX);
    let text = sys::read_at_most(&made, most).map_err(|error| failed(format!("no signature: {error}"), None))?;
    let signer = signature::check(tool.kind(), &text, &packed)
        .map_err(|why| failed(format!("`{program}` made a signature that `add` refuses: {why}"), None))?;
    let target = match (is_folder, tool) {
        (true, Tool::Minisign) => place.join(FILES[0]),
        (true, Tool::Ssh) => place.join(FILES[1]),
        (false, tool) => {
            let mut path = place.as_os_str().to_owned();
            path.push(tool.ending());
            PathBuf::from(path)
        }
    };
    let here = sys::current_folder();
    output::write(&target, &text, Readers::All, &[&here])
        .map_err(|error| failed(format!("cannot write `{}`: {error}", target.display()), None))?;
    let version = &fetched.plugin.version;
    printer.data(&format!("{}: {} {version} signed by {signer}", target.display(), fetched.name()));
    Ok(Exit::Completed)
}

/// A tool that signs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tool {
    Minisign,
    Ssh,
}

/// The tool that a key is of, by how it begins.
fn tool(key: &Path) -> Result<Tool, String> {
    let shown = key.display();
    let begin = sys::read_beginning(key, LOOKED_AT).map_err(|error| format!("cannot read `{shown}`: {error}"))?;
    if begin.starts_with(MINISIGN_KEY) {
        return Ok(Tool::Minisign);
    }
    if SSH_KEYS.iter().any(|one| begin.starts_with(one)) {
        return Ok(Tool::Ssh);
    }
    Err(format!("`{shown}` is no key of minisign, and none of OpenSSH"))
}

impl Tool {
    const fn kind(self) -> Kind {
        match self {
            Self::Minisign => Kind::Minisign,
            Self::Ssh => Kind::Ssh,
        }
    }

    const fn ending(self) -> &'static str {
        match self {
            Self::Minisign => ENDINGS[0],
            Self::Ssh => ENDINGS[1],
        }
    }

    /// The program, and what it is run with.
    fn arguments<'a>(self, key: &'a Path, copy: &'a Path, made: &'a Path) -> (&'static str, Vec<&'a std::ffi::OsStr>) {
        let (key, copy, made) = (key.as_os_str(), copy.as_os_str(), made.as_os_str());
        match self {
            Self::Minisign => {
                ("minisign", vec!["-S".as_ref(), "-s".as_ref(), key, "-m".as_ref(), copy, "-x".as_ref(), made])
            }
            Self::Ssh => {
                let namespace = ["-n".as_ref(), NAMESPACE.as_ref(), copy];
                let sign = ["-Y".as_ref(), "sign".as_ref(), "-f".as_ref(), key];
                ("ssh-keygen", sign.into_iter().chain(namespace).collect())
            }
        }
    }

    const fn install(self) -> &'static str {
        match self {
            Self::Minisign => "install minisign: `apt install minisign`, or from https://jedisct1.github.io/minisign/",
            Self::Ssh => "install OpenSSH: `apt install openssh-client`",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test writes keys")]
    fn a_key_says_which_tool_it_is_of() {
        let folder = tempfile::tempdir().unwrap();
        let of = |text: &str| {
            let path = folder.path().join("key");
            std::fs::write(&path, text).unwrap();
            tool(&path).map_err(|why| why.replace(folder.path().to_str().unwrap(), ""))
        };
        assert_eq!(of("untrusted comment: minisign encrypted secret key\nRWR\n"), Ok(Tool::Minisign));
        assert_eq!(of("-----BEGIN OPENSSH PRIVATE KEY-----\nb3\n"), Ok(Tool::Ssh));
        assert_eq!(of("ssh-ed25519 AAAA ada\n"), Ok(Tool::Ssh));
        for other in ["", "-----BEGIN PRIVATE KEY-----\n", "ssh-rsa AAAA\n"] {
            assert_eq!(of(other), Err("`/key` is no key of minisign, and none of OpenSSH".to_owned()));
        }
    }
}
