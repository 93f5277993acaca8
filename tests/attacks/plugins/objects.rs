//! Commits and packed files that no tool would write.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// A file of a commit: its mode, its path, and what git has of it.
#[derive(Debug, Clone)]
pub(super) struct File {
    pub(super) mode: String,
    pub(super) path: String,
    pub(super) object: String,
}

/// A repository that takes any object.
#[derive(Debug)]
pub(super) struct Repository<'a>(pub(super) &'a Path);

impl Repository<'_> {
    pub(super) fn git(&self, arguments: &[&str], input: &[u8]) -> String {
        let mut command = Command::new("git");
        let settings = ["-c", "user.name=Ada", "-c", "user.email=ada@example.org", "-c", "core.compression=1"];
        command.args(settings).args(arguments).current_dir(self.0);
        command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "git {arguments:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    pub(super) fn blob(&self, bytes: &[u8]) -> String {
        self.git(&["hash-object", "-w", "--stdin"], bytes)
    }

    /// Commits exactly these files, whatever their names are, as a tag that may be there already.
    pub(super) fn commit(&self, files: &[File], tag: &str) -> String {
        let parts: Vec<(Vec<&str>, &File)> = files.iter().map(|file| (file.path.split('/').collect(), file)).collect();
        let tree = self.tree(&parts);
        let commit = self.git(&["commit-tree", &tree, "-m", tag], b"");
        self.git(&["update-ref", &format!("refs/tags/{tag}"), &commit], b"");
        commit
    }

    fn tree(&self, files: &[(Vec<&str>, &File)]) -> String {
        let mut names: Vec<&str> = files.iter().map(|(parts, _)| parts[0]).collect();
        // A folder is sorted as if its name ended with a slash.
        let is_file = |name: &str| files.iter().any(|(parts, _)| parts.len() == 1 && parts[0] == name);
        names.sort_by_key(|name| format!("{name}{}", if is_file(name) { "\0" } else { "/" }));
        names.dedup();
        let mut bytes = Vec::new();
        for name in names {
            let below: Vec<(Vec<&str>, &File)> = files
                .iter()
                .filter(|(parts, _)| parts[0] == name && parts.len() > 1)
                .map(|(parts, file)| (parts[1..].to_vec(), *file))
                .collect();
            for (_, file) in files.iter().filter(|(parts, _)| parts.len() == 1 && parts[0] == name) {
                entry(&mut bytes, &file.mode, name, &file.object);
            }
            if !below.is_empty() {
                entry(&mut bytes, "40000", name, &self.tree(&below));
            }
        }
        self.git(&["hash-object", "-t", "tree", "-w", "--literally", "--stdin"], &bytes)
    }
}

fn entry(tree: &mut Vec<u8>, mode: &str, name: &str, object: &str) {
    tree.extend(format!("{mode} {name}\0").into_bytes());
    let digits: Vec<char> = object.chars().collect();
    tree.extend(digits.chunks(2).map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap()));
}

/// The header and the blocks of one file of a packed plugin. `change` is the field that is not as it should be.
pub(super) fn packed(kind: u8, path: &str, text: &str, change: &str) -> Vec<u8> {
    let mut header = [0_u8; 512];
    let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, path.as_bytes());
    let (mode, owner, time) = match change {
        "mode" => ("0000755", "", "00000000000"),
        "owner" => ("0000644", "0000001", "00000000000"),
        "time" => ("0000644", "", "00000000001"),
        _ => ("0000644", "", "00000000000"),
    };
    let size = if change == "size" { 1 << 33 } else { text.len() };
    put(100, mode.as_bytes());
    put(108, owner.as_bytes());
    put(124, format!("{size:011o}").as_bytes());
    put(136, time.as_bytes());
    put(156, &[kind]);
    if matches!(kind, b'1' | b'2') {
        put(157, text.as_bytes());
    }
    put(257, b"ustar\x0000");
    put(148, b"        ");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:07o}\0").as_bytes());
    let mut all = header.to_vec();
    if matches!(kind, b'0' | b'x' | b'L') {
        all.extend(text.as_bytes());
        all.resize(all.len().next_multiple_of(512), 0);
    }
    all
}
