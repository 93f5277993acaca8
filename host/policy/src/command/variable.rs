//! Variables that a script gives to a command.

use crate::grant::Grant;
use crate::network::shown;
use crate::refusal::Refusal;
use crate::watch::Request;

/// Beginnings of names that change which code a program loads or which program it starts: the dynamic linkers, the
/// runtimes of languages, the tools that read their configuration from variables.
const PREFIXES: &[&str] = &[
    "BASH_", "BUN_", "CARGO_", "DENO_", "DOCKER_", "DYLD_", "GCONV_", "GIT_", "GLIBC_", "GUILE_", "JULIA_", "LD_",
    "LUA_", "MALLOC_", "NODE_", "NPM_", "OPENSSL_", "PERL", "PHP", "PIP_", "PYTHON", "R_", "RUBY", "RUSTC", "RUSTDOC",
    "RUSTUP_", "SSH_", "SUDO_", "UV_", "YARN_",
];

/// Endings of such names: proxies, and programs that other programs start.
const SUFFIXES: &[&str] = &["_ASKPASS", "BROWSER", "EDITOR", "PAGER", "_PROXY", "_SHELL"];

/// Such names as a whole.
const NAMES: &[&str] = &[
    "AR",
    "AS",
    "BASHOPTS",
    "CC",
    "CDPATH",
    "CLASSPATH",
    "CPP",
    "CURL_HOME",
    "CXX",
    "ENV",
    "GEM_HOME",
    "GEM_PATH",
    "GLOBIGNORE",
    "GNUPGHOME",
    "GOENV",
    "GOFLAGS",
    "GOPATH",
    "GOPROXY",
    "GOROOT",
    "GOTOOLCHAIN",
    "GRADLE_OPTS",
    "HOME",
    "HOSTALIASES",
    "IFS",
    "INPUTRC",
    "JAVA_HOME",
    "JAVA_OPTS",
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "KUBECONFIG",
    "LD",
    "LESS",
    "LESSCLOSE",
    "LESSOPEN",
    "LOCALDOMAIN",
    "LOCPATH",
    "MAKE",
    "MAKEFILES",
    "MAKEFLAGS",
    "MAVEN_OPTS",
    "MORE",
    "NLSPATH",
    "OLDPWD",
    "PATH",
    "PROMPT_COMMAND",
    "PS1",
    "PS2",
    "PS3",
    "PS4",
    "PWD",
    "RES_OPTIONS",
    "SHELL",
    "SHELLOPTS",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
    "TCLLIBPATH",
    "TERMCAP",
    "TERMINFO",
    "TERMINFO_DIRS",
    "TMPDIR",
    "VISUAL",
    "WGETRC",
    "XDG_CONFIG_DIRS",
    "XDG_CONFIG_HOME",
    "XDG_DATA_DIRS",
    "XDG_DATA_HOME",
    "ZDOTDIR",
    "_JAVA_OPTIONS",
];

impl Grant {
    /// The variables of the host's environment that a command gets, sorted: those that every layer that speaks of
    /// commands names.
    pub fn exec_env(&self) -> Vec<String> {
        let mut layers = self.layers().iter().filter_map(|layer| layer.exec.as_ref());
        let mut names = layers.next().map_or_else(Vec::new, |rules| rules.env.clone());
        for rules in layers {
            names.retain(|name| rules.env.contains(name));
        }
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Whether a script may give a command this variable: one that the policy grants to commands, and whose name does
    /// not change how programs load or run. The latter no policy lifts: the operator can give such a variable a value,
    /// a script cannot.
    pub fn decide_child_env(&self, name: &str) -> Result<(), Refusal> {
        let quoted = shown(name);
        if !is_identifier(name) {
            return Err(Refusal::always(format!("`{quoted}` is not the name of a variable")));
        }
        if changes_programs(name) {
            return Err(Refusal::always(format!("the variable `{quoted}` changes how programs load or run")));
        }
        self.every(
            |layer| layer.exec.as_ref(),
            |rules| rules.env.iter().any(|granted| granted == name),
            |origin| {
                Refusal::new(
                    format!("the variable `{quoted}` is not granted to commands"),
                    origin.add(name, "exec.env"),
                )
            },
        )?;
        self.note(|| Request::ChildVariable(name.to_owned()));
        Ok(())
    }
}

/// A letter or `_`, then letters, digits and `_`; at most 255 bytes.
pub fn is_identifier(name: &str) -> bool {
    name.len() <= 255
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// Whether a variable of this name changes how programs load or run. In any letter case: `http_proxy` counts as well as
/// `HTTP_PROXY`.
pub fn changes_programs(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        || SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
        || NAMES.contains(&name.as_str())
}
