use std::os::unix::fs::PermissionsExt as _;

use tempfile::TempDir;

use super::*;

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn refused(folder: &Path) -> String {
    Database::open(folder).unwrap_err().to_string()
}

fn shell(folder: &TempDir, sql: &str) {
    Connection::open(folder.path().join(DATABASE)).unwrap().execute_batch(sql).unwrap();
}

#[test]
fn the_files_are_for_their_owner_alone() {
    let folder = folder();
    let (database, connection) = Database::open(folder.path()).unwrap();
    connection.execute("INSERT INTO removed VALUES (1)", []).unwrap();
    let mut names: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap()).collect();
    names.sort_by_key(std::fs::DirEntry::file_name);
    let files: Vec<_> = names
        .iter()
        .map(|entry| (entry.file_name().into_string().unwrap(), entry.metadata().unwrap().permissions().mode() & 0o777))
        .collect();
    let expected = ["store.db", "store.db-shm", "store.db-wal", "store.lock"].map(|name| (name.to_owned(), 0o600));
    assert_eq!(files, expected);
    drop((database, connection));
}

#[test]
fn each_commit_is_synced() {
    let folder = folder();
    let (database, connection) = Database::open(folder.path()).unwrap();
    let number = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!((number("synchronous"), number("user_version")), (2, 1));
    let mode: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
    let reader = database.reader().unwrap();
    let error = reader.execute("INSERT INTO removed VALUES (1)", []).unwrap_err();
    assert_eq!(describe(&error), "Error code 8: attempt to write a readonly database");
}

/// SQLite before 3.51.3 could corrupt a database when its write-ahead log was reset.
#[test]
fn sqlite_is_new_enough() {
    assert!(rusqlite::version_number() >= 3_051_003, "{}", rusqlite::version());
}

#[test]
fn a_folder_has_one_store_at_a_time() {
    let folder = folder();
    let first = Database::open(folder.path()).unwrap();
    let real = folder.path().canonicalize().unwrap();
    let process = std::process::id();
    assert_eq!(refused(folder.path()), format!("the store in `{}` is in use by process {process}", real.display()));
    // By another path too.
    std::os::unix::fs::symlink(&real, folder.path().join("link")).unwrap();
    assert!(matches!(Database::open(&folder.path().join("link")), Err(OpenError::InUse { .. })));
    drop(first);
    Database::open(folder.path()).unwrap();
    // What is no number is not repeated.
    let lock = harness_sys::open_file(&folder.path().join(LOCK)).unwrap();
    std::fs::write(folder.path().join(LOCK), "\u{1b}[31m").unwrap();
    assert_eq!(holder(&lock), "?");
}

#[test]
fn a_newer_store_is_refused_and_left_alone() {
    let folder = folder();
    drop(Database::open(folder.path()).unwrap());
    shell(&folder, "PRAGMA user_version = 7");
    let real = folder.path().canonicalize().unwrap();
    let expected =
        format!("the store in `{}` has version 7, and this program supports versions up to 1", real.display());
    assert_eq!(refused(folder.path()), expected);
    shell(&folder, "PRAGMA user_version = 1");
    Database::open(folder.path()).unwrap();
}

#[test]
fn an_older_store_is_upgraded_as_a_whole_or_not_at_all() {
    let folder = folder();
    drop(Database::open(folder.path()).unwrap());
    shell(&folder, "INSERT INTO removed VALUES (1)");
    let [first] = STEPS;
    let second = "CREATE TABLE added (x) STRICT; INSERT INTO removed VALUES (2);";
    // The last step fails: nothing of the others is left.
    let Err(error) = Database::open_with(folder.path(), &[first, "CREATE TABLE added (x INTEGER) STRICT", "nonsense"])
    else {
        panic!("opened")
    };
    assert!(error.to_string().ends_with("Error code 1: SQL logic error"), "{error}");
    let state = |connection: &Connection| -> (i64, i64, i64) {
        let number = |sql: &str| connection.query_row(sql, [], |row| row.get(0)).unwrap();
        let added = "SELECT count(*) FROM sqlite_schema WHERE name = 'added'";
        (number("PRAGMA user_version"), number("SELECT count(*) FROM removed"), number(added))
    };
    let (database, connection) = Database::open(folder.path()).unwrap();
    assert_eq!(state(&connection), (1, 1, 0));
    drop((database, connection));
    let second = second.replace("(x)", "(x INTEGER)");
    let (database, connection) = Database::open_with(folder.path(), &[first, &second]).unwrap();
    assert_eq!(state(&connection), (2, 2, 1));
    drop((database, connection));
    // Once.
    let (_database, connection) = Database::open_with(folder.path(), &[first, &second]).unwrap();
    assert_eq!(state(&connection), (2, 2, 1));
}

#[test]
fn what_is_no_store_is_refused_and_left_alone() {
    let path = |folder: &TempDir| folder.path().canonicalize().unwrap().join(DATABASE);
    for length in [1, 63, 511, 512, 9_000] {
        let content = vec![b'x'; length];
        let folder = folder();
        std::fs::write(path(&folder), &content).unwrap();
        assert_eq!(refused(folder.path()), format!("`{}` is not a store of Harness", path(&folder).display()));
        assert_eq!(std::fs::read(path(&folder)).unwrap(), content);
    }
    for sql in ["CREATE TABLE x (y)", "PRAGMA application_id = 5", "PRAGMA user_version = 1"] {
        let folder = folder();
        shell(&folder, sql);
        let before = std::fs::read(path(&folder)).unwrap();
        assert_eq!(refused(folder.path()), format!("`{}` is not a store of Harness", path(&folder).display()), "{sql}");
        assert_eq!(std::fs::read(path(&folder)).unwrap(), before);
    }
    // A link leads to a file that another has chosen.
    let (folder, other) = (folder(), tempfile::NamedTempFile::new().unwrap());
    std::os::unix::fs::symlink(other.path(), path(&folder)).unwrap();
    assert!(refused(folder.path()).ends_with("`store.db` is not a regular file"));
    let none = folder.path().join("none");
    assert_eq!(refused(&none), format!("cannot open `{}`: No such file or directory (os error 2)", none.display()));
}
