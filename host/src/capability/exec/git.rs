//! What is done for git, wherever the command is git itself: a repository's configuration starts no program.
//!
//! Settings with fixed names are overridden by variables, which come after all files of configuration. Drivers, filters
//! and aliases have names of the repository's choosing: it is asked for the names that it has, and each is overridden too.
//! What the command's own arguments say stands: a rule of the policy allowed them. A git that a shell or another program
//! starts is held by the wall alone.

use std::path::Path;

/// Variables that hold for every git: no configuration but the repository's, no questions, no locks for reading.
const VARIABLES: [(&str, &str); 9] = [
    ("GIT_CONFIG_NOSYSTEM", "1"),
    ("GIT_CONFIG_SYSTEM", "/dev/null"),
    ("GIT_CONFIG_GLOBAL", "/dev/null"),
    ("GIT_ATTR_NOSYSTEM", "1"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_PAGER", "cat"),
    ("GIT_EDITOR", ":"),
    ("GIT_SEQUENCE_EDITOR", ":"),
    ("GIT_NO_LAZY_FETCH", "1"),
];

/// Settings that are always overridden.
const SETTINGS: [(&str, &str); 9] = [
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.attributesFile", "/dev/null"),
    ("core.pager", "cat"),
    ("core.alternateRefsCommand", ""),
    ("protocol.ext.allow", "never"),
    ("log.showSignature", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
];

/// Beginning and end of the names of settings that start a program, and what is said instead, where the repository has
/// one: what leaves the content as it is, else what fails.
const PROGRAMS: [(&str, &str, &str); 30] = [
    ("alias.", "", ""),
    ("browser.", ".cmd", "false"),
    ("commit.gpgsign", "", "false"),
    ("core.askpass", "", ""),
    ("core.editor", "", ":"),
    ("core.gitproxy", "", "none"),
    ("core.sshcommand", "", "ssh"),
    ("credential", "helper", ""),
    ("diff.", ".command", ""),
    ("diff.", ".textconv", "cat"),
    ("diff.external", "", ""),
    ("difftool.", ".cmd", "false"),
    ("filter.", ".clean", ""),
    ("filter.", ".process", ""),
    ("filter.", ".required", "false"),
    ("filter.", ".smudge", ""),
    ("gpg.", "program", "false"),
    ("interactive.difffilter", "", "cat"),
    ("man.", ".cmd", "false"),
    ("merge.", ".driver", "false"),
    ("mergetool.", ".cmd", "false"),
    ("pager.", "", "false"),
    ("remote.", ".receivepack", "git-receive-pack"),
    ("remote.", ".uploadpack", "git-upload-pack"),
    ("remote.", ".vcs", ""),
    ("sequence.editor", "", ":"),
    ("submodule.", ".update", "none"),
    ("tag.gpgsign", "", "false"),
    ("trailer.", ".cmd", "false"),
    ("trailer.", ".command", "false"),
];

/// Options before the subcommand whose value is the next argument.
const WITH_VALUE: [&str; 8] =
    ["-C", "-c", "--git-dir", "--work-tree", "--namespace", "--super-prefix", "--config-env", "--attr-source"];

/// Subcommands that show differences, and take no driver of the repository's with these options.
const SHOWING: [&str; 4] = ["diff", "log", "show", "whatchanged"];
const PLAIN: [&str; 2] = ["--no-ext-diff", "--no-textconv"];

/// Whether a program is git.
pub(super) fn is_git(program: &Path) -> bool {
    program.file_name().is_some_and(|name| name == "git")
}

/// How many arguments come before the subcommand; all, where there is none.
fn before_subcommand(args: &[String]) -> usize {
    let mut index = 0;
    while let Some(arg) = args.get(index).filter(|arg| arg.starts_with('-')) {
        index += if WITH_VALUE.contains(&arg.as_str()) { 2 } else { 1 };
    }
    index.min(args.len())
}

/// The arguments that list the names of all settings that the command would go by.
pub(super) fn listing(args: &[String]) -> Vec<String> {
    let own = args.get(..before_subcommand(args)).unwrap_or_default().iter().cloned();
    own.chain(["config", "--list", "--name-only", "-z"].map(str::to_owned)).collect()
}

/// The command's arguments, with what turns off drivers where git has options for it.
pub(super) fn arguments(args: &[String]) -> Vec<String> {
    let mut args = args.to_vec();
    let subcommand = before_subcommand(&args);
    if args.get(subcommand).is_some_and(|name| SHOWING.contains(&name.as_str())) {
        let after = subcommand.saturating_add(1);
        args.splice(after..after, PLAIN.map(str::to_owned));
    }
    args
}

/// The variables for a git whose settings have these names, each with a NUL after it.
pub(super) fn variables(names: &str) -> Vec<(String, String)> {
    let mut settings: Vec<(&str, &str)> = SETTINGS.to_vec();
    for name in names.split('\0').filter(|name| !name.is_empty()) {
        // The first and the last part of a name are in lower case as git lists them.
        let fits = |(start, end, _): &&(&str, &str, &str)| {
            let whole = end.is_empty() && !start.ends_with('.');
            if whole { name == *start } else { name.starts_with(start) && name.ends_with(end) }
        };
        if let Some((_, _, instead)) = PROGRAMS.iter().find(fits)
            && !settings.iter().any(|(known, _)| *known == name)
        {
            settings.push((name, instead));
        }
    }
    let fixed = VARIABLES.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let count = ("GIT_CONFIG_COUNT".to_owned(), settings.len().to_string());
    let pairs = settings.iter().enumerate().flat_map(|(index, (name, value))| {
        [
            (format!("GIT_CONFIG_KEY_{index}"), (*name).to_owned()),
            (format!("GIT_CONFIG_VALUE_{index}"), (*value).to_owned()),
        ]
    });
    fixed.into_iter().chain([count]).chain(pairs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn the_repository_is_asked_where_the_command_would_look() {
        for (given, asked) in [
            ("status", ""),
            ("", ""),
            ("-C sub --no-pager log -p", "-C sub --no-pager "),
            ("--git-dir=.git -c a.b=log diff", "--git-dir=.git -c a.b=log "),
            ("--git-dir .git --work-tree . show", "--git-dir .git --work-tree . "),
            ("-c", "-c "),
        ] {
            assert_eq!(listing(&words(given)).join(" "), format!("{asked}config --list --name-only -z"), "{given}");
        }
    }

    #[test]
    fn what_shows_differences_shows_them_itself() {
        for (given, made) in [
            ("diff HEAD -- log", "diff --no-ext-diff --no-textconv HEAD -- log"),
            ("-C diff log", "-C diff log --no-ext-diff --no-textconv"),
            ("--no-pager show", "--no-pager show --no-ext-diff --no-textconv"),
            ("status diff", "status diff"),
            ("-p", "-p"),
            ("", ""),
        ] {
            assert_eq!(arguments(&words(given)).join(" "), made, "{given}");
        }
    }

    #[test]
    fn settings_of_the_machine_and_the_user_are_not_read() {
        let variables: Vec<String> =
            variables("").iter().take(VARIABLES.len()).map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(
            variables,
            [
                "GIT_CONFIG_NOSYSTEM=1",
                "GIT_CONFIG_SYSTEM=/dev/null",
                "GIT_CONFIG_GLOBAL=/dev/null",
                "GIT_ATTR_NOSYSTEM=1",
                "GIT_TERMINAL_PROMPT=0",
                "GIT_PAGER=cat",
                "GIT_EDITOR=:",
                "GIT_SEQUENCE_EDITOR=:",
                "GIT_NO_LAZY_FETCH=1",
            ]
        );
    }

    #[test]
    fn every_name_that_starts_a_program_is_overridden_once() {
        let names = "core.bare\0alias.st\0filter.a.b/C=d.clean\0diff.external\0diff.x.textconv\0user.name\0\
                     credential.https://a.b.helper\0credential.helper\0alias.st\0gpg.ssh.program\0core.hookspath\0";
        let variables = variables(names);
        let value = |name: &str| variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
        let count: usize = value("GIT_CONFIG_COUNT").unwrap().parse().unwrap();
        let settings: Vec<String> = (SETTINGS.len()..count)
            .map(|index| {
                let key = value(&format!("GIT_CONFIG_KEY_{index}")).unwrap();
                format!("{key}={}", value(&format!("GIT_CONFIG_VALUE_{index}")).unwrap())
            })
            .collect();
        assert_eq!(
            settings,
            [
                "alias.st=",
                "filter.a.b/C=d.clean=",
                "diff.external=",
                "diff.x.textconv=cat",
                "credential.https://a.b.helper=",
                "credential.helper=",
                "gpg.ssh.program=false",
            ]
        );
        assert_eq!(value(&format!("GIT_CONFIG_KEY_{count}")), None);
    }
}
