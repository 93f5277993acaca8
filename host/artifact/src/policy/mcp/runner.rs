//! Package runners, such as `npx` and `uvx`: what a command of one fetches and starts, and whether that is always the same.
//! With a version that is not exact, what was reviewed is not what runs.

use harness_policy::text::quoted;

/// A program that fetches packages and runs them.
struct Runner {
    program: &'static str,
    /// Words that have to follow: `npm exec`.
    words: &'static [&'static str],
    /// Options that name a package.
    packages: &'static [&'static str],
    /// Options without a value.
    flags: &'static [&'static str],
    is_exact: fn(&str) -> bool,
    /// What the host fetches the same packages with; none where it fetches none.
    installer: Option<Installer>,
}

/// What the host fetches packages with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Installer {
    /// `npm`, for packages of Node.
    Npm,
    /// `uv`, for packages of Python.
    Uv,
}

/// What a package runner fetches, and what it starts then.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packages {
    /// What fetches them.
    pub installer: Installer,
    /// The packages as the installer takes them, such as `@scope/server@1.2.3` or `server==1.2.3`. At least one.
    pub specs: Vec<String>,
    /// The program that is started.
    pub program: PackageProgram,
    /// Its arguments.
    pub args: Vec<String>,
}

/// A program of a package.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PackageProgram {
    /// The one of this name.
    Named(String),
    /// The only one of the package of this name, or the one that is called like it.
    Of(String),
}

const NPM_PACKAGES: &[&str] = &["-p", "--package"];
const NPM_FLAGS: &[&str] =
    &["-y", "--yes", "-q", "--quiet", "--silent", "--no", "--no-install", "--prefer-offline", "--offline", "--bun"];
/// The option of `uvx` that adds a package beside the one whose program is started.
const WITH: &str = "--with";
const UV_PACKAGES: &[&str] = &["--from", WITH];
const UV_FLAGS: &[&str] = &["-q", "--quiet", "--offline", "--isolated", "--no-cache", "-n", "--no-config"];

const RUNNERS: [Runner; 11] = [
    npm("npx", &[], Some(Installer::Npm)),
    npm("pnpx", &[], None),
    npm("bunx", &[], None),
    npm("npm", &["exec"], Some(Installer::Npm)),
    npm("npm", &["x"], Some(Installer::Npm)),
    npm("pnpm", &["dlx"], None),
    npm("yarn", &["dlx"], None),
    npm("bun", &["x"], None),
    uv("uvx", &[]),
    uv("uv", &["tool", "run"]),
    Runner {
        program: "pipx",
        words: &["run"],
        packages: &["--spec"],
        flags: &["--quiet", "--verbose"],
        is_exact: is_exact_python,
        installer: None,
    },
];

const fn npm(program: &'static str, words: &'static [&'static str], installer: Option<Installer>) -> Runner {
    Runner { program, words, packages: NPM_PACKAGES, flags: NPM_FLAGS, is_exact: is_exact_npm, installer }
}

const fn uv(program: &'static str, words: &'static [&'static str]) -> Runner {
    let installer = Some(Installer::Uv);
    Runner { program, words, packages: UV_PACKAGES, flags: UV_FLAGS, is_exact: is_exact_python, installer }
}

/// A command of a runner, taken apart.
struct Line<'a> {
    runner: &'static Runner,
    /// The last part of the program's path.
    name: &'a str,
    /// Packages that options name, in their order.
    named: Vec<&'a str>,
    /// Whether one of those options says whose program is started.
    says_whose: bool,
    /// What follows the options: the program, or the package whose program it is.
    started: Option<&'a str>,
    /// And its arguments.
    args: Vec<&'a str>,
}

impl<'a> Line<'a> {
    /// None where the command is not one of a runner.
    ///
    /// # Errors
    ///
    /// An option that is not known: what follows it may be its value.
    fn read(program: &'a str, args: &'a [String]) -> Option<Result<Self, String>> {
        let name = program.rsplit('/').next().unwrap_or(program);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let of = |runner: &&Runner| runner.program == name && args.starts_with(runner.words);
        let runner = RUNNERS.iter().find(of)?;
        let mut line = Self { runner, name, named: Vec::new(), says_whose: false, started: None, args: Vec::new() };
        let mut rest = args.into_iter().skip(runner.words.len());
        while let Some(arg) = rest.next() {
            let (option, value) = arg.split_once('=').map_or((arg, None), |(option, value)| (option, Some(value)));
            if runner.packages.contains(&option) {
                line.says_whose |= option != WITH;
                line.named.push(value.or_else(|| rest.next()).unwrap_or_default());
            } else if arg.starts_with('-') && arg != "--" {
                if !runner.flags.contains(&arg) {
                    return Some(Err(format!("what `{name}` starts is not known with the option {}", quoted(arg))));
                }
            } else {
                line.started = if arg == "--" { rest.next() } else { Some(arg) };
                break;
            }
        }
        line.args = rest.collect();
        Some(Ok(line))
    }

    /// The packages that are fetched, in the order of the command.
    fn specs(&self) -> impl Iterator<Item = &'a str> {
        let own = self.started.filter(|_| !self.says_whose);
        self.named.iter().copied().chain(own)
    }
}

/// What a command starts of which the version is not exact, in words; none where all of it is, or nothing is fetched.
pub(super) fn floating(program: &str, args: &[String]) -> Option<String> {
    let line = match Line::read(program, args)? {
        Ok(line) => line,
        Err(why) => return Some(why),
    };
    if line.specs().next().is_none() {
        return Some(format!("`{}` has no package", line.name));
    }
    let spec = line.specs().find(|spec| !(line.runner.is_exact)(spec))?;
    Some(format!("`{}` starts {} without an exact version", line.name, quoted(spec)))
}

/// What a command fetches of a registry, by a runner whose packages the host fetches itself. None where it is another
/// command, and where it names packages by an address or a path.
pub(super) fn packages(program: &str, args: &[String]) -> Option<Packages> {
    let line = Line::read(program, args)?.ok()?;
    let installer = line.runner.installer?;
    let started = line.started?;
    let own = |spec: &str| match installer {
        Installer::Npm => npm_spec(spec),
        Installer::Uv => uv_spec(spec),
    };
    let specs: Vec<(String, String)> = line.specs().map(own).collect::<Option<_>>()?;
    let program = match (line.says_whose, installer) {
        (true, _) => PackageProgram::Named(started.to_owned()),
        (false, Installer::Npm) => PackageProgram::Of(specs.last()?.0.clone()),
        (false, Installer::Uv) => PackageProgram::Named(specs.last()?.0.clone()),
    };
    if matches!(&program, PackageProgram::Named(name) if !is_program(name)) {
        return None;
    }
    let specs = specs.into_iter().map(|(_, spec)| spec).collect();
    Some(Packages { installer, specs, program, args: line.args.into_iter().map(str::to_owned).collect() })
}

/// Whether a program of a package may be called so: it is a name in a folder, and no option.
fn is_program(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(fits)
}

/// The name of a package of npm's registry, and what `npm install` takes for it. None for one of another place.
fn npm_spec(spec: &str) -> Option<(String, String)> {
    let (name, version) = match spec.char_indices().skip(1).find(|(_, c)| *c == '@') {
        Some((at, _)) => (spec.get(..at)?, spec.get(at.saturating_add(1)..)?),
        None => (spec, ""),
    };
    let is_version = |c: char| c.is_ascii_alphanumeric() || ".^~<>=*+-| ".contains(c);
    let is_spec = is_npm_name(name) && version.chars().all(is_version);
    is_spec.then(|| (name.to_owned(), spec.to_owned()))
}

/// Whether a package of npm may be called so: it is a folder in `node_modules`, or one in a folder of a scope there.
fn is_npm_name(name: &str) -> bool {
    match name.strip_prefix('@') {
        Some(scoped) => scoped.split_once('/').is_some_and(|(scope, name)| is_program(scope) && is_program(name)),
        None => is_program(name),
    }
}

/// The name of a package of Python's index, and what `uv pip install` takes for it. None for one of another place.
fn uv_spec(spec: &str) -> Option<(String, String)> {
    let end = spec.find(|c: char| "[<>=!~@".contains(c)).unwrap_or(spec.len());
    let (name, rest) = spec.split_at_checked(end)?;
    let (extras, version) = match rest.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => ("", rest),
    };
    let is_extra = |c: char| c.is_ascii_alphanumeric() || "._-,".contains(c);
    let is_version = |c: char| c.is_ascii_alphanumeric() || "<>=!~.*+-,".contains(c);
    if !is_program(name) || !extras.chars().all(is_extra) {
        return None;
    }
    let extras = if extras.is_empty() { String::new() } else { format!("[{extras}]") };
    let version = match version.strip_prefix('@') {
        Some("latest") => String::new(),
        Some(exact) => format!("=={exact}"),
        None => version.to_owned(),
    };
    version.chars().all(is_version).then(|| (name.to_owned(), format!("{name}{extras}{version}")))
}

/// `name@1.2.3` or `@scope/name@1.2.3`, with what may follow of a version.
fn is_exact_npm(spec: &str) -> bool {
    let (scope, rest) = match spec.strip_prefix('@') {
        Some(rest) => ("@", rest),
        None => ("", spec),
    };
    let Some((name, version)) = rest.rsplit_once('@') else { return false };
    let is_name = !name.is_empty() && !name.contains('@') && (scope.is_empty() || name.contains('/'));
    is_name && !name.contains(':') && is_version(version, 3)
}

/// `name==1.2.3`, or with one `@`, as `uvx` has it. What is fetched by its address is no release.
fn is_exact_python(spec: &str) -> bool {
    let Some((name, version)) = spec.split_once("==").or_else(|| spec.split_once('@')) else { return false };
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-_.[],".contains(c);
    !name.is_empty() && name.chars().all(is_name) && is_version(version, 1)
}

/// Whether a text is one version: numbers with dots, at least so many, and then what names a build or a release before it.
fn is_version(text: &str, least: usize) -> bool {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (numbers, rest) = text.split_at_checked(end).unwrap_or((text, ""));
    let numbers =
        numbers.strip_suffix('.').filter(|_| rest.starts_with(|c: char| c.is_ascii_alphabetic())).unwrap_or(numbers);
    let parts: Vec<&str> = numbers.split('.').collect();
    let is_rest = |c: char| c.is_ascii_alphanumeric() || "-+.!".contains(c);
    parts.len() >= least && parts.iter().all(|part| !part.is_empty()) && rest.chars().all(is_rest) && !ends_open(rest)
}

/// `1.x` and `1.2.X` are ranges.
fn ends_open(rest: &str) -> bool {
    rest.eq_ignore_ascii_case("x") || rest.eq_ignore_ascii_case(".x")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn floats(line: &str) -> Option<String> {
        let mut words = line.split(' ').map(str::to_owned);
        let program = words.next().unwrap();
        floating(&program, &words.collect::<Vec<_>>())
    }

    #[test]
    fn exact_versions_are_those_of_one_release() {
        for line in [
            "npx -y @modelcontextprotocol/server-github@1.2.3",
            "npx server@1.2.3-beta.1+build --flag",
            "/usr/bin/npx --yes --package=a@1.0.0 -p b@2.0.0 program",
            "npx -y -- a@1.0.0",
            "npm exec -y -- a@1.0.0",
            "pnpm dlx a@1.0.0",
            "bunx --bun a@1.0.0",
            "uvx mcp-server-git==2025.1.14",
            "uvx mcp-server-git@2025.1.14",
            "uvx --from mcp[cli]==1.2.0 mcp run",
            "uvx --with x==1 tool==1.0",
            "uv tool run a==1.0rc1",
            "pipx run --spec a==1.0 b",
            // Nothing is fetched.
            "mcp-files",
            "npm start",
            "uv run server.py",
            "node server.js",
        ] {
            assert_eq!(floats(line), None, "{line}");
        }
        for (line, what) in [
            ("npx a", "`npx` starts `a` without an exact version"),
            ("npx -y @a/b", "`npx` starts `@a/b` without an exact version"),
            ("npx a@latest", "`npx` starts `a@latest` without an exact version"),
            ("npx a@^1.2.3", "`npx` starts `a@^1.2.3` without an exact version"),
            ("npx a@1.2", "`npx` starts `a@1.2` without an exact version"),
            ("npx a@1.2.x", "`npx` starts `a@1.2.x` without an exact version"),
            ("npx github:a/b", "`npx` starts `github:a/b` without an exact version"),
            ("npx a@npm:b@1.2.3", "`npx` starts `a@npm:b@1.2.3` without an exact version"),
            ("npx https://a.example/b@1.2.3", "`npx` starts `https://a.example/b@1.2.3` without an exact version"),
            ("npx -p a b@1.2.3", "`npx` starts `a` without an exact version"),
            ("npx -c a@1.2.3", "what `npx` starts is not known with the option `-c`"),
            ("npx", "`npx` has no package"),
            ("npm exec a", "`npm` starts `a` without an exact version"),
            ("uvx a", "`uvx` starts `a` without an exact version"),
            ("uvx a@latest", "`uvx` starts `a@latest` without an exact version"),
            ("uvx a>=1.0", "`uvx` starts `a>=1.0` without an exact version"),
            ("uvx a==1.*", "`uvx` starts `a==1.*` without an exact version"),
            ("uvx --from git+https://a.example/b c", "`uvx` starts `git+https://a.example/b` without an exact version"),
            ("uvx --with x==1 tool", "`uvx` starts `tool` without an exact version"),
            ("pipx run a", "`pipx` starts `a` without an exact version"),
        ] {
            assert_eq!(floats(line).as_deref(), Some(what), "{line}");
        }
    }

    #[test]
    fn packages_of_registries_are_fetched() {
        let told = |line: &str| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let Packages { installer, specs, program, args } = packages(&words[0], &words[1..])?;
            Some(format!("{installer:?} {specs:?} {program:?} {args:?}"))
        };
        for (line, fetched) in [
            (
                "npx -y @modelcontextprotocol/server-github@1.2.3 --x y",
                r#"Npm ["@modelcontextprotocol/server-github@1.2.3"] Of("@modelcontextprotocol/server-github") ["--x", "y"]"#,
            ),
            ("/usr/bin/npx -- a@1.0.0 -y", r#"Npm ["a@1.0.0"] Of("a") ["-y"]"#),
            ("npx --package=a@1.0.0 -p @b/c@2.0.0 run x", r#"Npm ["a@1.0.0", "@b/c@2.0.0"] Named("run") ["x"]"#),
            ("npm exec -y -- a@1.0.0 --z", r#"Npm ["a@1.0.0"] Of("a") ["--z"]"#),
            ("npx a", r#"Npm ["a"] Of("a") []"#),
            ("npx a@^1.2.3", r#"Npm ["a@^1.2.3"] Of("a") []"#),
            (
                "uvx mcp-server-git==2025.1.14 -r .",
                r#"Uv ["mcp-server-git==2025.1.14"] Named("mcp-server-git") ["-r", "."]"#,
            ),
            ("uvx mcp-server-git@2025.1.14", r#"Uv ["mcp-server-git==2025.1.14"] Named("mcp-server-git") []"#),
            ("uvx a@latest", r#"Uv ["a"] Named("a") []"#),
            ("uvx a>=1.0,<2", r#"Uv ["a>=1.0,<2"] Named("a") []"#),
            ("uvx a[b,c]@1.0", r#"Uv ["a[b,c]==1.0"] Named("a") []"#),
            ("uvx --from mcp[cli]==1.2.0 mcp run", r#"Uv ["mcp[cli]==1.2.0"] Named("mcp") ["run"]"#),
            ("uvx --with x==1 tool==1.0", r#"Uv ["x==1", "tool==1.0"] Named("tool") []"#),
            ("uvx --from a==1 --with b==2 c", r#"Uv ["a==1", "b==2"] Named("c") []"#),
            ("uv tool run a==1.0rc1", r#"Uv ["a==1.0rc1"] Named("a") []"#),
        ] {
            assert_eq!(told(line).as_deref(), Some(fetched), "{line}");
        }
        for line in [
            // Another command, or one of a runner that nothing is fetched for.
            "node server.js",
            "npm start",
            "pnpm dlx a@1.0.0",
            "bunx a@1.0.0",
            "pipx run a==1.0",
            // Packages of another place, and what only looks like one.
            "npx github:a/b",
            "npx a/b",
            "npx ./a",
            "npx ..",
            "npx @a",
            "npx @a/../b@1.0.0",
            "npx @../b@1.0.0",
            "npx a@npm:b@1.2.3",
            "npx a@file:b",
            "npx https://a.example/b.tgz",
            "npx -p a@1.0.0 ../b",
            "npx -p a@1.0.0 -- --b",
            "npx -p a@1.0.0",
            "npx -c a",
            "npx",
            "uvx git+https://a.example/b",
            "uvx ./a",
            "uvx a@https://a.example/b.whl",
            "uvx a==1.0;os",
            "uvx a[b",
            "uvx --from a==1.0 b/c",
            "uvx --python 3.12 a==1.0",
        ] {
            assert_eq!(told(line), None, "{line}");
        }
    }
}
