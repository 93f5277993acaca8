//! Commands that start whatever version of a package is the newest: what was reviewed is then not what runs.

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
}

const NPM_PACKAGES: &[&str] = &["-p", "--package"];
const NPM_FLAGS: &[&str] =
    &["-y", "--yes", "-q", "--quiet", "--silent", "--no", "--no-install", "--prefer-offline", "--offline", "--bun"];
const UV_PACKAGES: &[&str] = &["--from", "--with"];
const UV_FLAGS: &[&str] = &["-q", "--quiet", "--offline", "--isolated", "--no-cache", "-n", "--no-config"];

const RUNNERS: [Runner; 11] = [
    npm("npx", &[]),
    npm("pnpx", &[]),
    npm("bunx", &[]),
    npm("npm", &["exec"]),
    npm("npm", &["x"]),
    npm("pnpm", &["dlx"]),
    npm("yarn", &["dlx"]),
    npm("bun", &["x"]),
    python("uvx", &[]),
    python("uv", &["tool", "run"]),
    Runner {
        program: "pipx",
        words: &["run"],
        packages: &["--spec"],
        flags: &["--quiet", "--verbose"],
        is_exact: is_exact_python,
    },
];

const fn npm(program: &'static str, words: &'static [&'static str]) -> Runner {
    Runner { program, words, packages: NPM_PACKAGES, flags: NPM_FLAGS, is_exact: is_exact_npm }
}

const fn python(program: &'static str, words: &'static [&'static str]) -> Runner {
    Runner { program, words, packages: UV_PACKAGES, flags: UV_FLAGS, is_exact: is_exact_python }
}

/// What a command starts of which the version is not exact, in words; none where all of it is, or nothing is fetched.
pub(super) fn package(program: &str, args: &[String]) -> Option<String> {
    let name = program.rsplit('/').next().unwrap_or(program);
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let of = |runner: &&Runner| runner.program == name && args.starts_with(runner.words);
    let runner = RUNNERS.iter().find(of)?;
    let mut rest = args.into_iter().skip(runner.words.len());
    let floats = |spec: &str| {
        let exact = (runner.is_exact)(spec);
        (!exact).then(|| format!("`{name}` starts {} without an exact version", quoted(spec)))
    };
    // With `-p`, what follows is a program of the packages that are named so.
    let mut named = false;
    while let Some(arg) = rest.next() {
        let (option, value) = arg.split_once('=').map_or((arg, None), |(option, value)| (option, Some(value)));
        if runner.packages.contains(&option) {
            named = true;
            let spec = value.or_else(|| rest.next()).unwrap_or_default();
            // What is added beside the program's own package leaves that one to the argument.
            named &= option != "--with";
            if let Some(why) = floats(spec) {
                return Some(why);
            }
        } else if arg == "--" {
            return if named { None } else { floats(rest.next().unwrap_or_default()) };
        } else if arg.starts_with('-') {
            if !runner.flags.contains(&arg) {
                return Some(format!("what `{name}` starts is not known with the option {}", quoted(arg)));
            }
        } else {
            return if named { None } else { floats(arg) };
        }
    }
    if named { None } else { Some(format!("`{name}` has no package")) }
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
        package(&program, &words.collect::<Vec<_>>())
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
}
