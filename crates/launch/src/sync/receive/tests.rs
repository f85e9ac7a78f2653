use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;
use crate::channel::frame::Reader;
use crate::digest::digest_of;
use crate::private::PrivateFolder;

const NAME: &str = "code-0123456789";

/// A host that folders are sent to.
struct Host(PrivateFolder);

fn file(path: &str, text: &str) -> (Entry, String) {
    let content = Content::File {
        size: text.len() as u64,
        digest: digest_of(text.as_bytes()),
        executable: path.contains("run"),
    };
    (Entry::new(Path::new(path), content), text.to_owned())
}

fn folder(path: &str) -> (Entry, String) {
    (Entry::new(Path::new(path), Content::Folder), String::new())
}

fn link(path: &str, target: &str) -> (Entry, String) {
    let target = Word::Text(target.to_owned());
    let content = Content::Link { target };
    (Entry::new(Path::new(path), content), String::new())
}

impl Host {
    fn new() -> Self {
        Self(PrivateFolder::new(&[std::env::temp_dir()]).unwrap())
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(NAME).join(path)
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    /// Sends these things, each with its content; the paths that were wanted and how many were
    /// removed, or the problem.
    async fn send(&self, things: &[(Entry, String)]) -> Result<(Vec<String>, usize), String> {
        self.send_as(NAME, things).await
    }

    async fn send_as(
        &self,
        name: &str,
        things: &[(Entry, String)],
    ) -> Result<(Vec<String>, usize), String> {
        let (frames, mut reports) = mpsc::channel(4);
        let receiving = Receiving::begin(self.0.path().to_owned(), frames);
        let entries = things.iter().map(|(entry, _)| entry.clone()).collect();
        let name = name.to_owned();
        for order in [
            SyncOrder::Begin { name },
            SyncOrder::Entries(entries),
            SyncOrder::Compare,
        ] {
            receiving.take(Piece::Order(order)).await;
        }
        let mut wanted = Vec::new();
        loop {
            let bytes = reports.recv().await.expect("every sending has an end");
            match Reader::new(&bytes[..]).next().await.unwrap() {
                Some(Frame::Report(Report::Sync(SyncReport::Wanted(places)))) => {
                    for place in places {
                        let (entry, text) = &things[place as usize];
                        wanted.push(entry.path().display().to_string());
                        // In two pieces, of which either may be empty.
                        let (first, rest) = text.as_bytes().split_at(text.len() / 2);
                        receiving.take(Piece::Data(place, first.to_vec())).await;
                        if !text.is_empty() {
                            receiving.take(Piece::Data(place, rest.to_vec())).await;
                        }
                    }
                }
                Some(Frame::Report(Report::Sync(SyncReport::Done(arrived)))) => {
                    assert_eq!(
                        arrived.folder.as_os_str(),
                        self.path("").with_file_name(NAME)
                    );
                    return Ok((wanted, arrived.removed));
                }
                Some(Frame::Report(Report::Refused(problem))) => return Err(problem),
                other => panic!("{other:?}"),
            }
        }
    }

    async fn refusal(&self, things: &[(Entry, String)]) -> String {
        self.send(things).await.unwrap_err()
    }
}

#[tokio::test]
async fn only_what_changed_is_wanted_and_what_is_gone_is_removed() {
    let host = Host::new();
    let things = [
        file("a.py", "one"),
        folder("lib"),
        file("lib/b.py", "two"),
        file("lib/run.sh", ""),
        link("lib/c.py", "../a.py"),
        folder("old"),
        file("old/d.py", "four"),
    ];
    let all = ["a.py", "lib/b.py", "lib/run.sh", "old/d.py"];
    assert_eq!(
        host.send(&things).await.unwrap(),
        (all.map(String::from).into(), 0)
    );
    assert_eq!(host.read("lib/c.py"), "one");
    let mode = |path| fs::metadata(host.path(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("a.py"), mode("lib/run.sh")), (0o644, 0o755));
    assert_eq!(host.send(&things).await.unwrap(), (vec![], 0));

    fs::write(host.path("old/result"), "made there").unwrap();
    fs::write(host.path("made"), "made there").unwrap();
    fs::set_permissions(host.path("lib/run.sh"), fs::Permissions::from_mode(0o600)).unwrap();
    let things = [
        file("a.py", "One"),
        folder("lib"),
        file("lib/b.py", "two"),
        file("lib/run.sh", ""),
    ];
    assert_eq!(host.send(&things).await.unwrap(), (vec!["a.py".into()], 2));
    assert_eq!(host.read("a.py"), "One");
    assert_eq!(mode("lib/run.sh"), 0o755);
    assert!(!host.path("lib/c.py").exists() && !host.path("old/d.py").exists());
    assert_eq!(host.read("old/result"), "made there");
    assert_eq!(host.read("made"), "made there");
}

#[tokio::test]
async fn what_was_a_file_may_become_a_folder_and_the_other_way_round() {
    let host = Host::new();
    let one = [folder("a"), file("a/x", "1"), file("b", "2")];
    let other = [file("a", "1"), folder("b"), file("b/x", "2")];
    for _ in 0..2 {
        host.send(&one).await.unwrap();
        assert_eq!((host.read("a/x"), host.read("b")), ("1".into(), "2".into()));
        host.send(&other).await.unwrap();
        assert_eq!((host.read("a"), host.read("b/x")), ("1".into(), "2".into()));
    }
    host.send(&one).await.unwrap();
    // But not if something would be lost that was made there.
    fs::write(host.path("a/result"), "made there").unwrap();
    let problem = host.refusal(&other).await;
    assert!(problem.contains("a should be a file"), "{problem}");
    assert_eq!(host.read("a/result"), "made there");
    let host = Host::new();
    host.send(&[]).await.unwrap();
    fs::write(host.path("b"), "made there").unwrap();
    let problem = host.refusal(&other).await;
    assert!(problem.contains("b should be a folder"), "{problem}");
    assert_eq!(host.read("b"), "made there");
}

#[tokio::test]
async fn what_leads_out_of_the_folder_is_refused() {
    let host = Host::new();
    for (things, why) in [
        (vec![file("../escaped", "x")], "leads out"),
        (vec![file("/tmp/escaped", "x")], "leads out"),
        (vec![folder("a"), file("a/../../escaped", "x")], "leads out"),
        (vec![link("a", "/etc")], "link leads out"),
        (vec![link("a", "../escaped")], "link leads out"),
        (vec![link("a", "b"), file("a/x", "x")], "no folder"),
        (vec![file("a", "x"), file("a", "x")], "twice"),
    ] {
        let problem = host.refusal(&things).await;
        assert!(problem.contains(why), "{problem}");
    }
    for name in ["..", "../x", "/tmp/x", ".", ""] {
        assert!(host.send_as(name, &[]).await.is_err(), "{name}");
    }
    assert_eq!(fs::read_dir(host.0.path()).unwrap().count(), 0);

    // A link that somebody made there is replaced or left alone, never followed.
    let elsewhere = Host::new();
    let kept = elsewhere.0.path().join("x");
    fs::write(&kept, "elsewhere").unwrap();
    host.send(&[folder("a"), file("a/x", "x"), file("b", "b")])
        .await
        .unwrap();
    fs::remove_dir_all(host.path("a")).unwrap();
    symlink(elsewhere.0.path(), host.path("a")).unwrap();
    fs::remove_file(host.path("b")).unwrap();
    symlink(&kept, host.path("b")).unwrap();
    host.send(&[file("b", "b")]).await.unwrap();
    let problem = host.refusal(&[folder("a"), file("a/x", "x")]).await;
    assert!(problem.contains("a should be a folder"), "{problem}");
    assert_eq!(fs::read_to_string(&kept).unwrap(), "elsewhere");
}

#[tokio::test]
async fn a_file_that_changed_on_the_way_does_not_take_the_place_of_the_old_one() {
    let host = Host::new();
    host.send(&[file("a", "old")]).await.unwrap();
    let (entry, _) = file("a", "new");
    let problem = host.refusal(&[(entry, "odd".into())]).await;
    assert!(
        problem.contains("a: it changed while it was sent"),
        "{problem}"
    );
    assert_eq!(host.read("a"), "old");
    let names = fs::read_dir(host.0.path()).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.collect();
    names.sort();
    assert_eq!(
        names,
        [
            NAME.to_owned(),
            format!("{NAME}.list"),
            format!("{NAME}.lock")
        ]
    );
}

#[tokio::test]
async fn more_than_was_asked_for_is_refused() {
    let host = Host::new();
    let (entry, _) = file("a", "short");
    let problem = host.refusal(&[(entry, "longer than that".into())]).await;
    assert!(problem.contains("not asked for"), "{problem}");
}

#[tokio::test]
async fn two_that_send_to_one_folder_take_turns() {
    let (host, things) = (Host::new(), [file("a", "1"), file("b", "2")]);
    let (one, other) = tokio::join!(host.send(&things), host.send(&things));
    let mut wanted = [one.unwrap().0.len(), other.unwrap().0.len()];
    wanted.sort_unstable();
    assert_eq!(wanted, [0, 2]);
}

#[tokio::test]
async fn what_was_cut_is_forgotten() {
    let host = Host::new();
    let (frames, mut reports) = mpsc::channel(4);
    let receiving = Receiving::begin(host.0.path().to_owned(), frames);
    let (entry, _) = file("a", "text");
    for order in [
        SyncOrder::Begin { name: NAME.into() },
        SyncOrder::Entries(vec![entry]),
        SyncOrder::Compare,
    ] {
        receiving.take(Piece::Order(order)).await;
    }
    reports.recv().await.unwrap();
    receiving.take(Piece::Data(0, b"te".to_vec())).await;
    drop(receiving);
    assert!(reports.recv().await.is_none());
    assert!(!host.path("a").exists());
    assert_eq!(host.send(&[file("a", "text")]).await.unwrap().0, ["a"]);
}
