//! What is done for git, wherever the command is git itself: a repository's configuration starts no program.
//!
//! Settings with fixed names are overridden by variables, which come after all files of configuration. Drivers, filters
//! and aliases have names of the repository's choosing: it is asked for the names that it has, and each is overridden too.
//! So is every other repository of the workspace: git looks into those that are submodules, whatever its options say, and
//! hands the variables on. What the command's own arguments say stands: a rule of the policy allowed them. A git that a
//! shell or another program starts is held by the wall alone.

mod repositories;

use std::path::Path;

pub(super) use repositories::all as repositories;

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
const SETTINGS: [(&str, &str); 10] = [
    ("core.hooksPath", "/dev/null"),
    ("core.fsmonitor", "false"),
    ("core.attributesFile", "/dev/null"),
    ("core.pager", "cat"),
    ("core.alternateRefsCommand", ""),
    ("protocol.ext.allow", "never"),
    ("log.showSignature", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
    // Else any folder is one that has the right files in it.
    ("safe.bareRepository", "explicit"),
];

/// Beginning and end of the names of settings that start a program, and what is said instead, where the repository has
/// one: what leaves the content as it is, else what fails.
const PROGRAMS: [(&str, &str, &str); 50] = [
    ("alias.", "", ""),
    ("browser.", ".cmd", "false"),
    ("browser.", ".path", ""),
    ("commit.gpgsign", "", "false"),
    ("core.askpass", "", ""),
    ("core.editor", "", ":"),
    ("core.gitproxy", "", "none"),
    ("core.sshcommand", "", "ssh"),
    ("credential", "helper", ""),
    ("diff.", ".command", ""),
    ("diff.", ".textconv", "cat"),
    ("diff.external", "", ""),
    // The name of a tool is that of a file with its commands, in any folder.
    ("diff.guitool", "", ""),
    ("diff.tool", "", ""),
    ("difftool.", ".cmd", "false"),
    ("difftool.", ".path", ""),
    ("filter.", ".clean", ""),
    ("filter.", ".process", ""),
    ("filter.", ".required", "false"),
    ("filter.", ".smudge", ""),
    ("gpg.", "command", "false"),
    ("gpg.", "program", "false"),
    ("guitool.", ".cmd", "false"),
    ("hook.", ".command", "true"),
    ("imap.tunnel", "", "false"),
    ("instaweb.", "", "false"),
    ("interactive.difffilter", "", "cat"),
    ("man.", ".cmd", "false"),
    ("man.", ".path", ""),
    ("merge.", ".driver", "false"),
    ("merge.guitool", "", ""),
    ("merge.tool", "", ""),
    ("mergetool.", ".cmd", "false"),
    ("mergetool.", ".layout", ""),
    ("mergetool.", ".path", ""),
    ("pager.", "", "false"),
    ("push.gpgsign", "", "false"),
    ("remote.", ".receivepack", "git-receive-pack"),
    ("remote.", ".uploadpack", "git-upload-pack"),
    ("remote.", ".vcs", ""),
    ("sendemail.", "cmd", "false"),
    ("sendemail.", "smtpserver", ""),
    ("sequence.editor", "", ":"),
    ("submodule.", ".update", "none"),
    ("svn.authors", "prog", "false"),
    ("tag.forcesignannotated", "", "false"),
    ("tag.gpgsign", "", "false"),
    ("tar.", ".command", "false"),
    ("trailer.", ".cmd", "false"),
    ("trailer.", ".command", "false"),
];

/// Settings that start a program for each value that they have, so that one more overrides nothing.
const ADDED_UP: [&str; 1] = ["gc.recentobjectshook"];

/// Options before the subcommand whose value is the next argument.
const WITH_VALUE: [&str; 8] =
    ["-C", "-c", "--git-dir", "--work-tree", "--namespace", "--super-prefix", "--config-env", "--attr-source"];

/// Subcommands that show differences, and take no driver of the repository's with these options.
const SHOWING: [&str; 4] = ["diff", "log", "show", "whatchanged"];
const PLAIN: [&str; 2] = ["--no-ext-diff", "--no-textconv"];

/// Subcommands that have a repository elsewhere do something by its own hooks and configuration, for which nobody is asked.
const ELSEWHERE: [&str; 3] = ["archive", "push", "send-pack"];
/// Not in another folder of this machine, then.
const NOT_HERE: [&str; 2] = ["-c", "protocol.file.allow=never"];

/// Whether a program is git.
pub(super) fn is_git(program: &Path) -> bool {
    program.file_name().is_some_and(|name| name == "git")
}

const LISTING: [&str; 4] = ["config", "--list", "--name-only", "-z"];

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
    own.chain(LISTING.map(str::to_owned)).collect()
}

/// The same for another repository, wherever its work tree is said to be.
pub(super) fn listing_of(repository: &Path) -> Result<Vec<String>, String> {
    let repository = repository.to_str().ok_or("the path of a repository in the workspace is not text")?;
    let there = ["--git-dir", repository, "--work-tree", "."];
    Ok(there.into_iter().chain(LISTING).map(str::to_owned).collect())
}

/// What is said instead of a setting that starts a program.
fn instead(name: &str) -> Option<&'static str> {
    // The first and the last part of a name are in lower case as git lists them.
    let fits = |(start, end, _): &&(&str, &str, &str)| {
        let whole = end.is_empty() && !start.ends_with('.');
        if whole { name == *start } else { name.starts_with(start) && name.ends_with(end) }
    };
    PROGRAMS.iter().find(fits).map(|(_, _, instead)| *instead)
}

/// What no variable keeps git from starting, of settings with these names, each with a NUL after it.
pub(super) fn unstoppable(names: &str) -> Option<&str> {
    // A name that is not text cannot be passed to git.
    let no_text = |name: &str| name.contains(char::REPLACEMENT_CHARACTER) && instead(name).is_some();
    names.split('\0').find(|name| ADDED_UP.contains(name) || no_text(name))
}

/// The command's arguments, with what turns off drivers and other repositories where git has options for it.
pub(super) fn arguments(args: &[String]) -> Vec<String> {
    let mut args = args.to_vec();
    let subcommand = before_subcommand(&args);
    let is_one_of = |names: &[&str]| args.get(subcommand).is_some_and(|name| names.contains(&name.as_str()));
    let (shows, elsewhere) = (is_one_of(&SHOWING), is_one_of(&ELSEWHERE));
    if shows {
        let after = subcommand.saturating_add(1);
        args.splice(after..after, PLAIN.map(str::to_owned));
    }
    if elsewhere {
        args.splice(0..0, NOT_HERE.map(str::to_owned));
    }
    args
}

/// The variables for a git whose settings have these names, each with a NUL after it.
pub(super) fn variables(names: &str) -> Vec<(String, String)> {
    let mut settings: Vec<(&str, &str)> = SETTINGS.to_vec();
    for name in names.split('\0').filter(|name| !name.is_empty()) {
        if let Some(instead) = instead(name)
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
    use std::os::unix::ffi::OsStrExt as _;

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
            ("push . HEAD", "-c protocol.file.allow=never push . HEAD"),
            (
                "-c protocol.file.allow=user archive HEAD",
                "-c protocol.file.allow=never -c protocol.file.allow=user archive HEAD",
            ),
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
    fn another_repository_is_asked_whatever_it_says_of_its_work_tree() {
        let asked = |path| listing_of(Path::new(path)).map(|args| args.join(" "));
        assert_eq!(asked("/w/.git"), Ok("--git-dir /w/.git --work-tree . config --list --name-only -z".to_owned()));
        let no_text = std::ffi::OsStr::from_bytes(b"/w/\xff");
        assert_eq!(
            listing_of(Path::new(no_text)),
            Err("the path of a repository in the workspace is not text".to_owned())
        );
    }

    #[test]
    fn what_cannot_be_overridden_is_told() {
        for (names, told) in [
            ("", None),
            ("core.bare\0gc.auto\0", None),
            ("core.bare\0gc.recentobjectshook\0", Some("gc.recentobjectshook")),
            ("filter.\u{fffd}.clean\0", Some("filter.\u{fffd}.clean")),
            ("branch.\u{fffd}.merge\0", None),
        ] {
            assert_eq!(unstoppable(names), told, "{names}");
        }
    }

    /// All that the documentation of git, up to its version 2.55, says to be run or to name what is run, but for
    /// `uploadpack.packObjectsHook`, which no repository's own configuration sets.
    #[test]
    fn every_setting_that_names_a_program_is_known() {
        let documented = "alias.x alias.x.command browser.x.cmd browser.x.path core.alternateRefsCommand core.askPass \
            core.editor core.fsmonitor core.gitProxy core.hooksPath core.pager core.sshCommand credential.helper \
            credential.https://a.b.helper diff.external diff.guitool diff.tool diff.x.command diff.x.textconv \
            difftool.x.cmd difftool.x.path filter.x.clean filter.x.process filter.x.smudge gc.recentObjectsHook \
            gpg.program gpg.ssh.defaultKeyCommand gpg.x.program guitool.x.cmd hook.x.command imap.tunnel \
            instaweb.browser instaweb.gitwebDir instaweb.httpd instaweb.modulePath interactive.diffFilter man.x.cmd \
            man.x.path merge.guitool merge.tool merge.x.driver mergetool.x.cmd mergetool.x.layout mergetool.x.path \
            pager.x remote.x.receivepack remote.x.uploadpack remote.x.vcs sendemail.ccCmd sendemail.headerCmd \
            sendemail.sendmailCmd sendemail.smtpServer sendemail.toCmd sendemail.x.toCmd sendemail.x.smtpServer \
            sequence.editor submodule.x.update svn.authorsProg tar.x.command trailer.x.cmd trailer.x.command";
        for documented in documented.split_whitespace() {
            // As git lists it.
            let parts: Vec<&str> = documented.split('.').collect();
            let (first, last) = (parts[0].to_lowercase(), parts[parts.len() - 1].to_lowercase());
            let name = [&[first.as_str()][..], &parts[1..parts.len() - 1], &[last.as_str()]].concat().join(".");
            let listed = format!("{name}\0");
            let overridden = variables(&listed).iter().any(|(_, value)| value.eq_ignore_ascii_case(&name));
            assert!(overridden || unstoppable(&listed).is_some(), "{name}");
        }
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
