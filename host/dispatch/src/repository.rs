//! Where a project's git repository is, if `.git` is not the folder itself: a file that names it, or a link to it.

use std::path::{Path, PathBuf};

use harness_sys::{read_text, real_path};

/// What in a repository says which programs git runs, and may itself be a link to elsewhere.
const GOVERNING: [&str; 3] = ["config", "config.worktree", "hooks"];

/// What git goes by in a folder: the repository of that folder or of the nearest one above it, that one's own place for
/// what several work trees share, and what in these leads elsewhere. Absolute, without links; none is in another.
pub(super) fn places(workspace: &Path) -> Vec<PathBuf> {
    let mut places: Vec<PathBuf> = Vec::new();
    for repository in workspace.ancestors().filter_map(of) {
        let shared = read_text(&repository.join("commondir")).ok().and_then(|path| named(&repository, &path));
        for folder in shared.into_iter().chain([repository]) {
            let governing = GOVERNING.iter().filter_map(|name| real_path(&folder.join(name)).ok());
            for place in std::iter::once(folder.clone()).chain(governing) {
                if !places.iter().any(|outer| place.starts_with(outer)) {
                    places.push(place);
                }
            }
        }
    }
    places
}

/// The repository that a folder's `.git` is or leads to.
fn of(folder: &Path) -> Option<PathBuf> {
    let own = folder.join(".git");
    match read_text(&own) {
        Ok(text) => named(folder, text.strip_prefix("gitdir: ")?),
        Err(_) => real_path(&own).ok(),
    }
}

/// The folder that a line of git's names, from another folder.
fn named(from: &Path, line: &str) -> Option<PathBuf> {
    real_path(&from.join(line.trim_end_matches(['\n', '\r']))).ok()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn found(files: &[(&str, &str)], links: &[(&str, &str)], workspace: &str) -> Vec<String> {
        let home = tempfile::tempdir().unwrap();
        let home = home.path().canonicalize().unwrap();
        for (file, text) in files {
            fs::create_dir_all(home.join(file).parent().unwrap()).unwrap();
            fs::write(home.join(file), text.replace("{home}", home.to_str().unwrap())).unwrap();
        }
        for (link, target) in links {
            symlink(target, home.join(link)).unwrap();
        }
        let workspace = home.join(workspace);
        places(&workspace).iter().map(|place| place.strip_prefix(&home).unwrap().display().to_string()).collect()
    }

    #[test]
    fn a_file_names_it() {
        assert_eq!(found(&[("w/.git", "gitdir: ./.bare\n"), ("w/.bare/HEAD", "")], &[], "w"), ["w/.bare"]);
        assert_eq!(found(&[("w/.git", "gitdir: {home}/w/a b"), ("w/a b/HEAD", "")], &[], "w"), ["w/a b"]);
        assert_eq!(found(&[("w/.git", "gitdir: ../meta\r\n"), ("meta/HEAD", "")], &[], "w"), ["meta"]);
        for nothing in ["gitdir: nowhere\n", "other: ../meta", ""] {
            assert_eq!(found(&[("w/.git", nothing), ("meta/HEAD", "")], &[], "w"), [""; 0], "{nothing:?}");
        }
    }

    #[test]
    fn a_link_leads_to_it() {
        let folder = [("w/data/git/HEAD", ""), ("w/a", "")];
        assert_eq!(found(&folder, &[("w/.git", "data/git")], "w"), ["w/data/git"]);
        let file = [("w/data/git/HEAD", ""), ("elsewhere", "gitdir: data/git\n")];
        assert_eq!(found(&file, &[("w/.git", "../elsewhere")], "w"), ["w/data/git"]);
        assert_eq!(found(&[("w/a", "")], &[("w/.git", "nowhere")], "w"), [""; 0]);
    }

    #[test]
    fn work_trees_share_one() {
        let files = [
            ("p/.bare/worktrees/one/HEAD", ""),
            ("p/.bare/worktrees/one/commondir", "../..\n"),
            ("p/one/.git", "gitdir: ../.bare/worktrees/one\n"),
            ("p/one/a", ""),
        ];
        assert_eq!(found(&files, &[], "p/one"), ["p/.bare"]);
        let apart = [("w/.git", "gitdir: own\n"), ("w/own/commondir", "{home}/w/shared\n"), ("w/shared/HEAD", "")];
        assert_eq!(found(&apart, &[], "w"), ["w/shared", "w/own"]);
    }

    #[test]
    fn so_is_that_of_a_folder_above() {
        let files = [("p/.git", "gitdir: w/meta\n"), ("p/w/meta/HEAD", "")];
        assert_eq!(found(&files, &[], "p/w"), ["p/w/meta"]);
    }

    #[test]
    fn what_leads_out_of_it_belongs_to_it() {
        let files = [("w/.git/config", ""), ("w/scripts/pre-commit", ""), ("w/gitconfig", "")];
        let links = [("w/.git/hooks", "../scripts"), ("w/.git/config.worktree", "../gitconfig")];
        assert_eq!(found(&files, &links, "w"), ["w/.git", "w/gitconfig", "w/scripts"]);
    }
}
